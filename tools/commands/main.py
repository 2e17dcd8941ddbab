"""The sub-commands of `distir`, each a file of this folder: their arguments, and how a mistake in them ends.

A user's mistake ends in one line on stderr, `distir: error: what, where, what to do`, and exit status 1.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from xdsl.utils.exceptions import DiagnosticException, ParseError, UnregisteredConstructException

from distir.dialects.errors import DistirError
from distir.tools.commands import (
    cache,
    calibrate,
    doctor,
    import_model,
    machines,
    plugins,
    run,
    search,
    simulate,
    verify,
)
from distir.tools.commands.report import say

COMMANDS = (import_model, doctor, search, simulate, run, verify, calibrate, machines, cache, plugins)

EXAMPLES = """\
examples:
  distir import gpt2.onnx --shape input1=8,1,128 -o gpt2.mlir
  distir simulate best.mlir --machine dgx-a100
  distir verify gpt2.mlir best.mlir
  distir run best.mlir --check gpt2.mlir
"""


class ArgumentParser(argparse.ArgumentParser):
    """Wrong usage is a user's mistake like any other."""

    def error(self, message: str) -> NoReturn:
        raise DistirError(f"{message}; see {self.prog} --help")


def make_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="distir",
        description="Distributes neural networks: finds a good way, shows why, proves it, and runs it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def describe(error: Exception) -> str:
    """What was wrong, in one line."""
    match error:
        case ParseError():
            text = f"{error.span.get_location()}: {error.msg}"
        case OSError(strerror=str()):
            text = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error.strerror)
        case MemoryError():
            text = f"not enough memory: {error}" if str(error) else "not enough memory"
        case _:
            text = str(error)
    return " ".join(text.split())


def run_command(argv: Sequence[str] | None) -> int:
    """Runs one command; the exit status: 0, or 1 for a mistake or a check that fails."""
    # Building IR makes many cycles that stay alive; the default threshold costs 2-4x (measured on xDSL 0.74).
    gc.set_threshold(200_000, 50, 50)
    try:
        arguments = make_parser().parse_args(argv)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except SystemExit:  # argparse has printed the help
        return 0
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (
        DiagnosticException,
        DistirError,
        MemoryError,
        OSError,
        ParseError,
        UnregisteredConstructException,
    ) as error:
        say(f"distir: error: {describe(error)}", sys.stderr)
        return 1
