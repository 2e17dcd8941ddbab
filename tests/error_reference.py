"""The page of errors. In go the mistakes that `tests/end_to_end/test_mistakes.py` makes; out come, command by command, what was typed and what is said.

python -m tests.error_reference > docs/errors.md
"""

from __future__ import annotations

import shlex
import sys

from distir.tools.commands.main import EXIT_CODES
from tests.end_to_end.commands import PIPELINE, SEQUENTIAL
from tests.end_to_end.test_mistakes import MISTAKES

HEAD = """\
# Errors

Made from mistakes that a test makes, by `python -m tests.error_reference`. A mistake ends in one line on stderr, `distir: error: what, where, what to
do`, without a traceback, and nothing is written. What an operation of a model is refused for ends in its name there, `(in blocks.7.mlp.up)`. In Python the
same line is the text of `distir.DistirError`. `distir-opt` shows the place in the text, as `mlir-opt` does; errors that are expected are written
beside the operation, `// expected-error {{text}}`, and checked with `--verify-diagnostics`.
"""
FILES = {PIPELINE: "pipeline.mlir", SEQUENTIAL: "model.mlir"}
"""Names that say more than the tests' own."""


def reference() -> str:
    """The page."""
    parts = [HEAD.strip(), f"```text\n{EXIT_CODES.strip()}\n```"]
    commands = list(dict.fromkeys(arguments[0] if arguments else "" for arguments, _ in MISTAKES.values()))
    for command in sorted(
        commands, key=lambda name: (name not in ("import", "search", "simulate", "verify", "run"), name)
    ):
        rows = [
            (mistake, shlex.join(["distir", *(FILES.get(a, a) for a in arguments)]), message)
            for mistake, (arguments, message) in MISTAKES.items()
            if (arguments[0] if arguments else "") == command
        ]
        parts.append(f"## `{f'distir {command}'.strip()}`")
        table = ["| mistake | typed | said |", "|---|---|---|"]
        table += [f"| {mistake} | `{_cell(typed)}` | {_cell(message)} |" for mistake, typed, message in rows]
        parts.append("\n".join(table))
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    for name, shown in FILES.items():
        text = text.replace(name.rpartition("/")[2], shown)
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(reference())
