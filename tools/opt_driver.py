"""The driver `distir-opt`: `xdsl-opt` plus distir's dialects, passes, ONNX frontend and module check. In go a file
and a pipeline; out comes the program after its passes.

A user's mistake ends in a message on stderr that says what was wrong and where, and exit status 1. A file named by `-o`
appears whole or not at all."""

import gc
import os
import sys
import tempfile
from argparse import Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from io import BytesIO
from itertools import pairwise
from shutil import get_terminal_size
from textwrap import fill, shorten
from typing import IO, Any, NoReturn

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import parse_pipeline
from xdsl.utils.exceptions import (
    ArgSpecParseError,
    DiagnosticException,
    ParseError,
    PassFailedException,
    UnregisteredConstructException,
)
from xdsl.xdsl_opt_main import xDSLOptMain

from distir.dialects.errors import DistirError, reason_of
from distir.dialects.plugins import fault_of_plugin
from distir.dialects.registry import register_dialects
from distir.dialects.version import distir_version
from distir.frontends import FRONTENDS, extension_of
from distir.frontends.program_parser import ProgramParser
from distir.frontends.text import bound_lexer
from distir.passes.registry import PASSES
from distir.tools.commands.cache import add_no_cache
from distir.tools.commands.help import wrong_usage
from distir.tools.commands.report import say, shown
from distir.tools.opt_diagnostics import Expectations, Unexpected, message_of, offending_operation
from distir.tools.opt_instrumentation import Instrumentation, reproduced_pipeline
from distir.tools.opt_instrumentation import add_options as add_instrumentation


class LinedParser(ProgramParser):
    """A parser that knows where in the text each operation begins."""

    def __init__(self, ctx: Context, input: str | bytes, name: str, starts: dict[Operation, tuple[str, int]]) -> None:
        super().__init__(ctx, input, name)
        self._starts = starts

    def parse_operation(self) -> Operation:
        start = self.pos
        op = super().parse_operation()
        self._starts[op] = (self._content, start)
        return op


class DistirOptMain(xDSLOptMain):
    """The driver. An installed distir is found through its entry point; a bare checkout registers itself here."""

    unfinished: str | None = None
    """The file that the output goes to until it is whole."""
    imported = False
    """Whether the input is a model, which brings values."""
    parser: ArgumentParser

    def __init__(self, description: str, args: Sequence[str] | None = None) -> None:
        self.starts: dict[Operation, tuple[str, int]] = {}
        self.offset = 0
        """Lines of the file before the chunk at hand."""
        super().__init__(description, args)

    def register_all_arguments(self, arg_parser: ArgumentParser) -> None:
        super().register_all_arguments(arg_parser)
        self.parser = arg_parser
        arg_parser.prog = "distir-opt"
        arg_parser.error = self._wrong_usage
        add_no_cache(arg_parser)
        arg_parser.formatter_class = RawDescriptionHelpFormatter
        arg_parser._optionals.conflict_handler = "resolve"  # pyright: ignore[reportPrivateUsage]
        arg_parser.add_argument("-h", "--help", action=Help, passes=self.available_passes, help="show this and exit")
        own = ", ".join(PASSES)
        arg_parser.add_argument(
            "-p",
            "--passes",
            metavar="PIPELINE",
            default="",
            help=f"passes to run, 'a{{option=value}},b': {own}; and xDSL's",
        )
        arg_parser.add_argument(
            "-t", "--target", metavar="TARGET", default="mlir", help="what to print (default: mlir)"
        )
        arg_parser.add_argument(
            "--verify-diagnostics",
            action="store_true",
            help="check that each 'expected-error @+N {{text}}' comment is met by an error there, and each error by a comment; without "
            "such comments, print errors. The exit status is 0 then",
        )
        arg_parser.add_argument("-v", "--version", action=Version, help="show the versions and exit")
        add_instrumentation(arg_parser)
        arg_parser.add_argument(
            "--print-pipeline",
            action="store_true",
            help="print the passes, composite ones as those that they are, in the form of -p, and stop",
        )

    def _wrong_usage(self, message: str) -> NoReturn:
        options = [option for action in self.parser._actions for option in action.option_strings]  # pyright: ignore[reportPrivateUsage]
        raise wrong_usage(message, options, self.parser.prog)

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
        self.starts.clear()
        if not (text := stream.read()).strip():
            raise DistirError(f"{self.get_input_name()}: the input is empty: expected a program")
        parser = LinedParser(self.ctx, text, self.get_input_name(), self.starts)
        module = parser.parse_module(not self.args.no_implicit_module)
        if 'loc("' in parser.lexer.input.content:
            from distir.interpreters.model_names import names_from_locations

            names_from_locations(module)
        return module

    def _import(self, extension: str, stream: IO[bytes]) -> ModuleOp:
        self.imported = True
        if self.args.input_file is not None:
            return FRONTENDS[extension](self.args.input_file)
        if extension != ".onnx":
            raise DistirError(f"a {extension} model is read from a file: give its name")
        import onnx

        from distir.frontends.onnx import import_model

        return import_model(onnx.load_from_string(stream.read()))

    def get_input_stream(self) -> tuple[IO[bytes], str]:
        stream, extension = super().get_input_stream()
        ours = extension_of(self.args.input_file or "")
        return stream, extension if ours is None else ours.removeprefix(".")

    def parse_chunk(self, chunk: IO[bytes], file_extension: str, start_offset: int = 0) -> ModuleOp | None:
        self.offset = start_offset
        module = super().parse_chunk(chunk, file_extension, start_offset)
        self.instrumentation.lap("Parser")
        return module

    def _check_pass(self, name: str, option: str) -> None:
        if name not in self.available_passes:
            near = get_close_matches(name, self.available_passes, 1, 0.6)
            hint = f"did you mean {near[0]}? " if near else ""
            raise DistirError(f"{option}: unknown pass {name}: {hint}distir-opt --help lists the passes")

    def setup_pipeline(self) -> None:
        """Where a module is verified (once parsed, and after each pass), it is checked as a whole too."""
        if self.args.run_reproducer:
            self.args.passes = reproduced_pipeline(self.args.input_file)
        self.instrumentation = Instrumentation(self.args)
        try:
            for spec in parse_pipeline(self.args.passes):
                self._check_pass(spec.name, f"-p '{self.args.passes}'")
            for option, name in self.instrumentation.named_passes():
                self._check_pass(name, option)
            super().setup_pipeline()
        except ValueError as error:
            raise DistirError(f"-p '{self.args.passes}': {error}") from error
        verify = self.pipeline.callback

        def verify_and_check(previous: ModulePass | None, module: ModuleOp, following: ModulePass | None) -> None:
            if verify is not None:
                verify(previous, module, following)
            if not self.args.disable_verify:
                from distir.interpreters.module_check import check_structure

                check_structure(module)
            self.instrumentation.between(previous, module, following)

        passes = self._expanded() if self.instrumentation.shows_passes else self.pipeline.passes
        self.pipeline = replace(self.pipeline, passes=passes, callback=verify_and_check)

    def _expanded(self) -> tuple[ModulePass, ...]:
        """The passes, composite ones as those that they are."""
        found = (getattr(one, "pipeline", lambda one=one: (one,))() for one in self.pipeline.passes)
        return tuple(each for several in found for each in several)

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
        except BaseException as error:
            self.instrumentation.failed(error)
            if isinstance(error, DistirError):
                raise PassFailedException(str(error)) from error
            raise

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
        if self.args.print_debuginfo:
            from distir.interpreters.model_names import locations_from_names

            locations_from_names(prog)
        text = super().output_resulting_program(prog)
        self.instrumentation.lap("Output")
        return text

    def line_of(self, error: Exception) -> int | None:
        """The line of the file that a diagnostic is about, if it is about an operation of the text, or a place in it."""
        if isinstance(error, ParseError):
            return error.span.get_location().line
        place = self.starts.get(op) if (op := offending_operation(error)) is not None else None
        return None if place is None else self.offset + place[0].count("\n", 0, place[1]) + 1

    def run(self) -> None:
        """Raises what goes wrong, and DistirError where diagnostics are not those that the file expects."""
        if self.args.print_pipeline:
            print(",".join(str(each.pipeline_pass_spec()) for each in self._expanded()))
            return
        try:
            self._run_chunks()
            if self.unfinished is not None:
                os.umask(mask := os.umask(0))
                os.chmod(self.unfinished, 0o666 & ~mask)
                os.replace(self.unfinished, self.args.output_file)
            self.instrumentation.report_times()
        except BaseException:
            if self.unfinished is not None:
                with suppress(FileNotFoundError):
                    os.unlink(self.unfinished)
            raise

    def _run_chunks(self) -> None:
        if not self.args.verify_diagnostics:
            super().run()
            return
        chunks, extension = self.prepare_input()
        texts = [(chunk.read(), offset) for chunk, offset in chunks]
        expected = [Expectations.of(text.decode("utf-8", "replace"), offset) for text, offset in texts]
        is_annotated = any(each.comments or each.wrong for each in expected)
        output = self.prepare_output()
        try:
            for i, (text, offset) in enumerate(texts):
                if i > 0:
                    output.write("// -----\n")
                try:
                    module = self.parse_chunk(BytesIO(text), extension, offset)
                    if module is not None:
                        self.apply_passes(module)
                        output.write(self.output_resulting_program(module))
                except (ParseError, DiagnosticException) as error:
                    if isinstance(error, ParseError):
                        error.span = replace(error.span, line_offset=offset)
                    if is_annotated:
                        expected[i].meet(message_of(error), self.line_of(error))
                    elif isinstance(error, ParseError) and not self.args.parsing_diagnostics:
                        raise
                    else:
                        print("\n".join([str(error), *getattr(error, "__notes__", ())]))
                output.flush()
        finally:
            if output is not sys.stdout:
                output.close()
        if wrong := [line for each in expected for line in each.finish()]:
            raise Unexpected("\n".join(f"{self.get_input_name()}: {line}" for line in wrong))


class Version(Action):
    """Prints the versions of distir and xDSL."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, nargs=0, **kwargs)

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option: str | None = None) -> None:
        print(f"distir-opt {distir_version()} (xdsl {version('xdsl')})")
        parser.exit()


class Help(Action):
    """Prints the usage, then distir's passes with their options."""

    def __init__(self, *args: Any, passes: Mapping[str, Callable[[], type[ModulePass]]], **kwargs: Any) -> None:
        super().__init__(*args, nargs=0, **kwargs)
        self._passes = passes

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option: str | None = None) -> None:
        from distir.tools.pass_reference import help_text, own_passes

        width = min(get_terminal_size().columns, 100) - 2
        others = ", ".join(sorted(self._passes.keys() - set(PASSES)))
        parser.epilog = f"passes:\n{help_text(own_passes(), width)}\n\npasses of xDSL:\n" + fill(
            others, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
        parser.print_help()
        parser.exit()


def describe(error: BaseException, where: str = "") -> str:
    """What to tell a user: what was wrong, and where if the error or the driver knows."""
    match error:
        case ParseError() | ArgSpecParseError():
            return str(error).rstrip()
        case OSError(filename=str(), strerror=str()):
            return f"{error.filename}: {error.strerror}"
        case Unexpected():
            return str(error)
        case UnicodeDecodeError():
            return f"error: the input is not text ({error.reason} at byte {error.start})"
        case DiagnosticException():
            return "\n".join([f"{where}error: {error}", *_offending_lines(error)])
        case _:
            return f"error: {shown(reason_of(error))}"


def _offending_lines(error: DiagnosticException) -> list[str]:
    """The ops that a diagnostic marks, in the module that it carries."""
    lines = [line for note in getattr(error, "__notes__", ()) for line in note.splitlines()]
    return [
        f"  in: {shorten(op.strip(), 400, placeholder=' ...')}"
        for op, mark in pairwise(lines)
        if mark.lstrip().startswith("^^^")
    ]


def run_driver(args: Sequence[str] | None) -> int:
    """The exit status: 0, or 1 for a mistake."""
    # Building IR makes many cycles that stay alive; the default threshold costs 2-4x (measured on xDSL 0.74).
    gc.set_threshold(200_000, 50, 50)
    driver: DistirOptMain | None = None
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
        ModuleNotFoundError,
        OSError,
        ParseError,
        UnicodeDecodeError,
        UnregisteredConstructException,
    ) as error:
        line = None if driver is None else driver.line_of(error) if isinstance(error, DiagnosticException) else None
        where = "" if driver is None or line is None else f"{driver.get_input_name()}:{line}: "
        for line in describe(error, where).splitlines():
            say(line, sys.stderr)
        return 1
    except Exception as error:
        if not (fault := fault_of_plugin(error)):
            raise
        say(f"distir-opt: error: {' '.join(fault.split())}", sys.stderr)
        return 1
    return 0
