"""CHECK lines of lit tests, written from what `distir-opt` prints now. In go lit files with one line `// RUN: distir-opt %s ... | filecheck %s`; each is
rewritten: a CHECK line per function and operation, with values captured and types left out, in place of those that it had. Read the difference: what is
printed is not always what is right.

    python -m distir.tools.update_checks tests/filecheck/passes/outline-repeats/*.mlir

Tests of a package that extends distir are written the same way, where that package is installed.
"""

from __future__ import annotations

import re
import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path

from distir.tools import distir_opt
from distir.tools.interruption import interruptible

RUN = re.compile(r"^// RUN: distir-opt %s (.*) \| filecheck %s$", re.MULTILINE)
LONGEST = 110
"""Of a function's head that is checked whole."""


def updated(path: Path) -> str:
    """The file's text with new CHECK lines. Raises ValueError if its RUN lines are others."""
    text = path.read_text(encoding="utf-8")
    runs = RUN.findall(text)
    if len(runs) != 1 or text.count("// RUN:") != 1:
        raise ValueError(f"{path}: expected one line // RUN: distir-opt %s ... | filecheck %s")
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said), suppress(SystemExit):
        distir_opt.main([str(path), *shlex.split(runs[0].replace("%S", str(path.parent)))])
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("// CHECK")]
    place = next((i for i, line in enumerate(text.splitlines()) if line.startswith("// CHECK")), 1)
    is_module = said.getvalue().startswith("builtin.module")
    found = (
        checks(said.getvalue()) if is_module else [f"CHECK: {line}" for line in said.getvalue().strip().splitlines()]
    )
    return "\n".join([*lines[:place], *(f"// {line}" for line in found), *lines[place:]]) + "\n"


def checks(printed: str) -> list[str]:
    """What a module's text is checked by. Values that a function makes are captured: `%0` as `V0`, `%y` as `Y`."""
    found: list[str] = []
    known: dict[str, str] = {}
    directive = "CHECK:      "
    for line in map(str.strip, printed.splitlines()):
        if not line or line in ("}", "// -----") or line.startswith("builtin.module"):
            directive = "CHECK:      "
            continue
        if line.startswith("func.func"):
            known = {}
            head = re.sub(r" attributes \{.*|\) -> .*|\{$", "", line).rstrip()
            found.append("CHECK:      " + (head if len(head) <= LONGEST else head.split("(")[0]))
            if stated := re.search(r" (attributes \{.*\}) \{$", line):
                found.append(f"CHECK-SAME: {stated[1]}")
            directive = "CHECK-NEXT: "
            continue
        line = re.sub(r" : .*", "", line) if line.startswith("func.return") else re.sub(r" : (\(|tensor).*", "", line)
        results, equals, rest = line.partition(" = ") if line.startswith("%") else ("", "", line)
        rest = re.sub(r"%\w+", lambda match: f"[[{known[match[0]]}]]" if match[0] in known else match[0], rest)
        made = results.split(", ") if results else []
        known |= {value: f"V{value[1:]}" if value[1:].isdigit() else value[1:].upper() for value in made}
        captured = ", ".join(f"[[{known[value]}:%.*]]" for value in made)
        found.append(directive + captured + equals + rest)
        directive = "CHECK-NEXT: "
    return found


def main(args: Sequence[str] | None = None) -> None:
    """Rewrites files; ends the process with status 1 where one could not be."""
    parser = ArgumentParser(
        prog="python -m distir.tools.update_checks",
        description="Write the CHECK lines of lit tests from what distir-opt prints now. Read the difference: what is printed is not always what is right.",
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="a test with one line // RUN: distir-opt %%s ... | filecheck %%s",
    )
    files: list[Path] = parser.parse_args(args).files
    if status := interruptible("update_checks", lambda: _rewrite(files)):
        sys.exit(status)


def _rewrite(files: Sequence[Path]) -> int:
    status = 0
    for path in files:
        try:
            path.write_text(updated(path), encoding="utf-8")
        except (OSError, ValueError) as error:
            print(f"update_checks: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    main()
