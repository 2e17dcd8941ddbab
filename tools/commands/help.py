"""The layout of `--help`, and what is said of wrong usage. In go the descriptions and examples of the commands, and argparse's messages; out
come texts of at most 80 columns that break between words, and mistakes of one line."""

from __future__ import annotations

import re
import textwrap
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from difflib import get_close_matches
from shutil import get_terminal_size

from distir.dialects.errors import DistirError

WIDTH = 80
"""Of a terminal: the text is two columns narrower."""
COLUMNS = re.compile(r"( *\S(?:.*?\S)? {2,})(?=\S)")
"""What stands before a second column."""


class HelpFormatter(RawDescriptionHelpFormatter):
    """Paragraphs are filled; indented lines (examples, tables) stay lines, and break where they are too long."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(WIDTH, get_terminal_size((WIDTH, 24)).columns) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + part for line in joined(text.splitlines()) for part in broken(line, width))


def joined(lines: list[str]) -> list[str]:
    """Lines of one paragraph, and of one cell of a second column, as one line."""
    found: list[str] = []
    for line in lines:
        margin = len(line) - len(line.lstrip())
        before = found[-1] if found else ""
        column = COLUMNS.match(before)
        if before and line.strip() and margin == (column.end() if column else 0) and not before.endswith(":"):
            found[-1] += " " + line.strip()
        else:
            found.append(line)
    return found


def broken(line: str, width: int) -> list[str]:
    """A line as lines of a width: what stands in a second column goes on in that column, or below the first where that leaves no room."""
    margin = len(line) - len(line.lstrip())
    match = COLUMNS.match(line)
    if len(line) <= width:
        return [line]
    if match is None and margin:
        glued = re.sub(r"(?<= )(-\S+) (?=[^-\s])", "\\1\0", line)  # an option stays with its value
        parts = textwrap.wrap(glued, width - 2, subsequent_indent=" " * (margin + 4), break_on_hyphens=False)
        return [part.replace("\0", " ") + " \\" * (part is not parts[-1]) for part in parts]
    if match is None:
        return textwrap.wrap(line, width)
    column = match.end() if match.end() <= width // 2 else margin + 4
    below = textwrap.wrap(line[match.end() :], width - column)
    if column == match.end():
        return [match[1] + below[0], *(" " * column + part for part in below[1:])]
    return [*broken(match[1].rstrip(), width), *(" " * column + part for part in below)]


INVALID_CHOICE = re.compile(r"invalid choice: '(?P<given>.*?)' \(choose from (?P<choices>.*)\)")
"""How argparse says that a word is none of those that it knows."""
QUOTED = re.compile("'([^']*)'")


def wrong_usage(message: str, options: Sequence[str], program: str) -> DistirError:
    """What argparse says of a command line, with the nearest name that there is."""
    known = options
    wrong = [
        word.partition("=")[0].rstrip(":") for word in message.split() if word.startswith("--") and word.strip("-")
    ]
    if choice := INVALID_CHOICE.search(message):
        known, wrong = QUOTED.findall(choice["choices"]), [choice["given"]]
    near = [found for word in wrong if word not in known for found in get_close_matches(word, known, 1, 0.6)]
    hint = f" (did you mean {' and '.join(near)}?)" if near else ""
    return DistirError(f"{message}{hint}; see {program} --help")
