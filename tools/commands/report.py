"""The output of commands. In go rows, quantities and paths; out come tables, texts with units, files that appear
whole, and a sign of life for slow work."""

from __future__ import annotations

import os
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, TextIO

from distir.dialects.errors import DistirError

SIGN_OF_LIFE_SECONDS = 2.0


def shown(text: str) -> str:
    """A text as one line that a terminal takes for nothing else: what cannot be printed (line ends, control characters, marks that
    change the direction of text) as escapes. Names come from models, and must not write another line or colour."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(line: str, stream: TextIO | None = None) -> None:
    """Prints one line."""
    print(shown(line), file=stream)


def print_table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> None:
    """Prints a table without lines; as wide as it needs when the reader is no terminal."""
    terminal = sys.stdout.isatty()
    print(table_text(rows, header, get_terminal_size().columns if terminal else None, terminal))


def table_text(
    rows: Sequence[Sequence[str]], header: Sequence[str] = (), width: int | None = None, coloured: bool = False
) -> str:
    """A table without lines, as wide as it needs, or with cells that break between words to stay within a width."""
    from io import StringIO

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=bool(header), pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    names = header or [""] * len(rows[0])
    for column, cells in zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True):
        words = [word for text in (column, *cells) for word in shown(text).split()]
        longest = max(map(len, words), default=1)
        table.add_column(column, overflow="fold", min_width=None if width is None else min(longest, width // 4))
    for row in rows:
        table.add_row(*(Text(shown(cell)) for cell in row))
    text = StringIO()
    Console(file=text, force_terminal=coloured, width=width or 1000, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


@contextmanager
def progress(doing: str) -> Generator[None]:
    """Says what is being done on stderr, if that is a terminal and it takes longer than two seconds."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.markup import escape

    status = Console(stderr=True).status(escape(f"{shown(doing)} ..."))
    timer = threading.Timer(SIGN_OF_LIFE_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def seconds_text(seconds: float) -> str:
    """`23 us`, `1.28 s`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def along_text(shares: Mapping[str, float]) -> str:
    """`dp 3% tp 8%`: shares by axis, without those that are nothing."""
    return " ".join(f"{axis} {share:.0%}" for axis, share in shares.items() if share >= 0.005) or "0%"


def bytes_text(count: float) -> str:
    """`1.125 KiB`, `32 GiB`."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:.0f} bytes"


def assumed_text(shares: Mapping[str, float]) -> str:
    """Operators of which nothing says what they do, each with its share of the time; empty if there is none."""
    return ", ".join(f"{name} ({share:.1%} of the time)" for name, share in shares.items())


def facts_of(machine: str, cost_model: str) -> dict[str, str]:
    """What a report says of where its figures come from."""
    from datetime import UTC, datetime

    from distir.dialects.version import distir_version

    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {"machine": machine, "cost model": cost_model, "made": f"{now} by distir {distir_version()}"}


def add_settings(parser: ArgumentParser) -> None:
    """`--set`, for commands that take a machine."""
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another number for the machine, as in device.memory_capacity_bytes=80GB, or a factor, as in node.bandwidth=0.5x; keys are those of "
        "distir machines M, or their ends; may repeat",
    )


def check_output(path: str) -> None:
    """Raises DistirError, before any work is done, if no file can be put there."""
    if "\0" in path:
        raise DistirError(f"{path}: a file's name has no null characters")
    target = Path(path)
    if target.exists() and not target.is_file():
        raise DistirError(f"{path}: cannot be written: it is not a regular file")
    if not target.parent.is_dir():
        raise DistirError(f"{path}: cannot be written: no folder {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise DistirError(f"{path}: cannot be written: folder {target.parent} is read-only")


def write_whole(path: str, write: Callable[[Any], object]) -> None:
    """Writes to a temporary stream of bytes, which then becomes the file: whole or not at all."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            write(stream)
        temporary.replace(target)
    except OSError as error:
        raise DistirError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
