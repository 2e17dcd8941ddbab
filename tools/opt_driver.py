"""What `distir-opt` does: `xdsl-opt` plus distir's dialects, passes, ONNX frontend and module check.

A user's mistake ends in a message on stderr that says what was wrong and where, and exit status 1. A file named by `-o`
appears whole or not at all.
"""

import gc
import os
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import IO

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import (
    ArgSpecParseError,
    DiagnosticException,
    ParseError,
    PassFailedException,
    UnregisteredConstructException,
)
from xdsl.xdsl_opt_main import xDSLOptMain

from distir.dialects.errors import DistirError
from distir.dialects.registry import register_dialects
from distir.frontends import FRONTENDS
from distir.frontends.program_parser import ProgramParser
from distir.frontends.text import bound_lexer
from distir.tools.commands.cache import add_no_cache
from distir.tools.commands.report import say, shown


class DistirOptMain(xDSLOptMain):
    """The driver. An installed distir is found through its entry point; a bare checkout registers itself here."""

    version_format = "distir-opt (xdsl {xdsl_version})"
    unfinished: str | None = None
    """The file that the output goes to until it is whole."""
    imported = False
    """Whether the input is a model, which brings values."""

    def register_all_arguments(self, arg_parser: ArgumentParser) -> None:
        super().register_all_arguments(arg_parser)
        add_no_cache(arg_parser)
        arg_parser.add_argument(
            "--print-pipeline",
            action="store_true",
            help="print the passes, composite ones as those that they are, in the form of -p, and stop",
        )

    def register_all_dialects(self) -> None:
        register_dialects(self.ctx)

    def register_all_passes(self) -> None:
        from distir.tools.universe import (
            DISTIR_UNIVERSE,  # which loads plug-ins: what is wrong with one is a user's to know
        )

        super().register_all_passes()
        self.available_passes.update(DISTIR_UNIVERSE.all_passes)

    def register_all_frontends(self) -> None:
        super().register_all_frontends()
        self.available_frontends["mlir"] = self._parse_program
        for extension in FRONTENDS:
            self.available_frontends[extension.removeprefix(".")] = partial(self._import, extension)

    def _parse_program(self, stream: IO[bytes]) -> ModuleOp:
        parser = ProgramParser(self.ctx, stream.read(), self.get_input_name())
        return parser.parse_module(not self.args.no_implicit_module)

    def _import(self, extension: str, stream: IO[bytes]) -> ModuleOp:
        self.imported = True
        if self.args.input_file is not None:
            return FRONTENDS[extension](self.args.input_file)
        if extension != ".onnx":
            raise DistirError(f"a {extension} model is read from a file: give its name")
        import onnx

        from distir.frontends.onnx import import_model

        return import_model(onnx.load_from_string(stream.read()))

    def setup_pipeline(self) -> None:
        """Where a module is verified (once parsed, and after each pass), it is checked as a whole too."""
        try:
            super().setup_pipeline()
        except ValueError as error:
            raise DistirError(f"-p '{self.args.passes}': {error}") from error
        verify = self.pipeline.callback

        def verify_and_check(previous: ModulePass | None, module: ModuleOp, following: ModulePass | None) -> None:
            if verify is not None:
                verify(previous, module, following)
            if not self.args.disable_verify:
                from distir.interpreters.module_check import check_module

                check_module(module)

        self.pipeline = replace(self.pipeline, callback=verify_and_check)

    def prepare_input(self) -> tuple[list[tuple[IO[bytes], int]], str]:
        try:
            return super().prepare_input()
        except ValueError as error:
            known = ", ".join(f".{extension}" for extension in self.available_frontends)
            raise DistirError(f"{self.args.input_file}: {error}; known: {known}") from error

    def apply_passes(self, prog: ModuleOp) -> None:
        """A pass that cannot do what it was asked to is a diagnostic, which `--verify-diagnostics` prints."""
        try:
            super().apply_passes(prog)
        except DistirError as error:
            raise PassFailedException(str(error)) from error

    def prepare_output(self) -> IO[str]:
        path = self.args.output_file
        if path is None:
            return sys.stdout
        if not os.path.isfile(path) and os.path.exists(path):  # a device or a pipe
            return open(path, "w", encoding="utf-8")
        folder, name = os.path.split(path)
        if not os.path.isdir(folder or "."):
            raise DistirError(f"{path}: no such folder to write to")
        stream = tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder or ".", prefix=f".{name}.", delete=False)
        self.unfinished = stream.name
        return stream

    def output_resulting_program(self, prog: ModuleOp) -> str:
        """An imported model that goes to a file has its values beside it."""
        if self.imported and self.args.output_file is not None:
            from distir.frontends import weights

            weights.save(prog, self.args.output_file)
        return super().output_resulting_program(prog)

    def run(self) -> None:
        if self.args.print_pipeline:
            passes = [
                each for one in self.pipeline.passes for each in getattr(one, "pipeline", lambda one=one: (one,))()
            ]
            print(",".join(str(each.pipeline_pass_spec()) for each in passes))
            return
        try:
            super().run()
            if self.unfinished is not None:
                os.umask(mask := os.umask(0))
                os.chmod(self.unfinished, 0o666 & ~mask)
                os.replace(self.unfinished, self.args.output_file)
        except BaseException:
            if self.unfinished is not None:
                with suppress(FileNotFoundError):
                    os.unlink(self.unfinished)
            raise


def describe(error: BaseException) -> str:
    """What to tell a user: what was wrong, and where if the error knows."""
    match error:
        case ParseError() | ArgSpecParseError():
            return str(error).rstrip()
        case OSError(filename=str(), strerror=str()):
            return f"{error.filename}: {error.strerror}"
        case UnicodeDecodeError():
            return f"error: the input is not text ({error.reason} at byte {error.start})"
        case DiagnosticException():
            return "\n".join([f"error: {error}", *_offending_lines(error)])
        case _:
            return f"error: {shown(str(error))}"


def _offending_lines(error: DiagnosticException) -> list[str]:
    """The ops that a diagnostic marks, in the module that it carries."""
    lines = [line for note in getattr(error, "__notes__", ()) for line in note.splitlines()]
    return [f"  in: {op.strip()}" for op, mark in pairwise(lines) if mark.lstrip().startswith("^^^")]


def run_driver(args: Sequence[str] | None) -> int:
    """The exit status: 0, or 1 for a mistake."""
    # Building IR makes many cycles that stay alive; the default threshold costs 2-4x (measured on xDSL 0.74).
    gc.set_threshold(200_000, 50, 50)
    try:
        try:
            bound_lexer()
            driver = DistirOptMain("distir's optimizer driver: parse, run passes, print", args)
        except SystemExit as usage:  # argparse has printed what is wrong, or what was asked for
            return 1 if usage.code else 0
        driver.run()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (
        ArgSpecParseError,
        DiagnosticException,
        DistirError,
        OSError,
        ParseError,
        UnicodeDecodeError,
        UnregisteredConstructException,
    ) as error:
        for line in describe(error).splitlines():
            say(line, sys.stderr)
        return 1
    return 0
