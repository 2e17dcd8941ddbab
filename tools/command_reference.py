"""What each command takes, as `docs/commands.md` says it. In goes the parser of `distir`; out comes a page with every command's options and examples.

python -m distir.tools.command_reference > docs/commands.md
"""

from __future__ import annotations

import re
import sys
from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterator

from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.main import EXIT_CODES, make_parser, subcommands

HEAD = """\
# Commands

Made from the commands' source by `python -m distir.tools.command_reference`; a test holds it to them. `distir COMMAND --help` says the same.
`distir-opt` is in [passes](passes.md)."""


def reference() -> str:
    """The page."""
    return "\n\n".join([HEAD, _code(EXIT_CODES), *_sections(make_parser())]) + "\n"


def _sections(parser: ArgumentParser) -> Iterator[str]:
    for command in subcommands(parser).values():
        actions = [each for each in _actions(command) if each.help != SUPPRESS and "-h" not in each.option_strings]
        required = [each for each in actions if each.required and each.option_strings]
        words = [command.prog, *(_text(each) for each in required), *(_text(each) for each in actions if not each.option_strings)]  # fmt: skip
        yield f"## `{' '.join(words)}`"
        if command.description:
            yield command.description
        if rows := [f"| `{_text(each)}` | {_help(each)} |" for each in actions if each.help]:
            yield "\n".join(["| | |", "|---|---|", *rows])
        if command.epilog:
            yield _code(command.epilog)
        yield from _sections(command)


def _actions(parser: ArgumentParser) -> list[Action]:
    found: list[Action] = parser._actions  # pyright: ignore[reportPrivateUsage]
    return [each for each in found if not (each.nargs == "A..." and each.dest == SUPPRESS)]


def _text(action: Action) -> str:
    """An option with what it takes; a positional argument by its name."""
    metavar = action.metavar
    if metavar is None and action.choices is not None:
        metavar = "{" + ",".join(map(str, action.choices)) + "}"
    named = metavar if isinstance(metavar, str) else action.dest.upper()
    if not action.option_strings:
        return f"[{named}]" if action.nargs == "?" else named
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {named}")


def _help(action: Action) -> str:
    return re.sub(r"([|<])", r"\\\1", (action.help or "").replace("%%", "%"))


def _code(text: str) -> str:
    lines = HelpFormatter("distir")._fill_text(text.strip("\n"), 110, "")  # pyright: ignore[reportPrivateUsage]
    return f"```text\n{lines}\n```"


if __name__ == "__main__":
    sys.stdout.write(reference())
