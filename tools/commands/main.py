"""The sub-commands of `distir`, each a file of this folder. In goes a command line; out comes the exit status of its command.

A user's mistake ends in one line on stderr, `distir: error: what, where, what to do`, and exit status 1."""

from __future__ import annotations

import argparse
import gc
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from xdsl.utils.exceptions import DiagnosticException, ParseError, UnregisteredConstructException

from distir.dialects.errors import DistirError, reason_of
from distir.dialects.plugins import fault_of_plugin
from distir.tools.commands import (
    cache,
    calibrate,
    completion,
    doctor,
    import_model,
    machines,
    plan,
    plugins,
    run,
    search,
    simulate,
    train,
    verify,
)
from distir.tools.commands.help import HelpFormatter, wrong_usage
from distir.tools.commands.report import say

COMMANDS = (
    import_model,
    doctor,
    search,
    plan,
    simulate,
    run,
    train,
    verify,
    calibrate,
    machines,
    cache,
    plugins,
    completion,
)

EXAMPLES = """\
examples:
  distir import gpt2.onnx --shape input1=8,1,128 -o gpt2.mlir
  distir simulate best.mlir --machine dgx-a100
  distir verify gpt2.mlir best.mlir
  distir run best.mlir --check gpt2.mlir

"""


EXIT_CODES = """\
exit status:
  0    done; a check that was asked for holds
  1    a mistake of yours, in one line on stderr; or a check that fails (verify, run --check)
  3    verify --proof: not proven, which is no proof of a fault
  130  interrupted by Ctrl-C (search first reports what it found); 143: terminated
"""


class ArgumentParser(argparse.ArgumentParser):
    """Wrong usage is a user's mistake like any other."""

    def parse_known_args(self, *arguments: Any, **keywords: Any) -> Any:
        """A command tells of what it does not know itself: argparse leaves that to the parser above it."""
        namespace, unknown = super().parse_known_args(*arguments, **keywords)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        raise wrong_usage(message, options_of(self), self.prog)


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands."""
    actions: list[Any] = parser._actions  # pyright: ignore[reportPrivateUsage]
    found = [each.choices for each in actions if isinstance(each, argparse._SubParsersAction)]  # pyright: ignore[reportPrivateUsage]
    return {name: command for choices in found for name, command in choices.items()}


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """The options of a parser and of the commands below it."""
    own = list(parser._option_string_actions)  # pyright: ignore[reportPrivateUsage]
    return [*own, *(option for command in subcommands(parser).values() for option in options_of(command))]


class Version(argparse.Action):
    """Prints the version."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, nargs=0, **kwargs)

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        from distir.dialects.version import distir_version

        print(f"distir {distir_version()}")
        parser.exit()


def make_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="distir",
        description="Distributes neural networks: finds a good way, shows why, proves it, and runs it.",
        epilog=EXAMPLES + EXIT_CODES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=Version, help="show the version and exit")
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
            text = reason_of(error)
    return " ".join(text.split())


def run_command(argv: Sequence[str] | None) -> int:
    """Runs one command; the exit status: 0, or 1 for a mistake or a check that fails."""
    # Building IR makes many cycles that stay alive; the default threshold costs 2-4x (measured on xDSL 0.74).
    gc.set_threshold(200_000, 50, 50)
    try:
        arguments = make_parser().parse_args(argv)
        arguments.command_line = shlex.join(["distir", *(sys.argv[1:] if argv is None else argv)])
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
        ModuleNotFoundError,
        OSError,
        ParseError,
        UnregisteredConstructException,
    ) as error:
        say(f"distir: error: {describe(error)}", sys.stderr)
        return 1
    except Exception as error:
        if not (fault := fault_of_plugin(error)):
            raise
        say(f"distir: error: {' '.join(fault.split())}", sys.stderr)
        return 1
