"""Instrumentation of `distir-opt` pipelines. In go the module before and after each pass; out come the IR dumps, the
table of times and the crash reproducer that MLIR's `opt` has, under the same options."""

from __future__ import annotations

import re
import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer

from distir.dialects.errors import DistirError

REPRODUCER = "// configuration: -p "
"""Begins a reproducer, as MLIR's did."""


def add_options(parser: ArgumentParser) -> None:
    """The options, each under MLIR's name, those for printing without the `mlir-` too."""
    shown = parser.add_argument_group("what is shown of a pipeline (on stderr)")
    for when in ("before", "after"):
        shown.add_argument(
            f"--print-ir-{when}",
            f"--mlir-print-ir-{when}",
            metavar="PASS,...",
            action="append",
            default=[],
            help=f"print the module {when} each run of these passes",
        )
        shown.add_argument(
            f"--print-ir-{when}-all",
            f"--mlir-print-ir-{when}-all",
            action="store_true",
            help=f"print the module {when} every pass, those inside a composite one too",
        )
    shown.add_argument("--mlir-timing", action="store_true", help="print what parsing, each pass and printing took")
    shown.add_argument(
        "--mlir-pass-pipeline-crash-reproducer",
        metavar="FILE",
        help="when a pass fails, write the module as it was before the pipeline, with the pipeline, to FILE",
    )
    shown.add_argument(
        "--run-reproducer", action="store_true", help="run the pipeline that the input, a reproducer, names"
    )


def reproduced_pipeline(path: str | None) -> str:
    """The pipeline that a reproducer names. Raises DistirError if the file names none."""
    if path is None:
        raise DistirError("--run-reproducer: give the file of the reproducer")
    with open(path, encoding="utf-8") as file:
        first = file.readline()
    if (match := re.fullmatch(re.escape(REPRODUCER) + r"'(.*)'\n?", first)) is None:
        raise DistirError(f"{path}: no reproducer: expected {REPRODUCER}'...' on its first line")
    return match[1]


@dataclass
class Instrumentation:
    """What one run shows."""

    args: Namespace
    text_before: str = ""
    """The module before the pipeline, kept for a reproducer."""
    running: str = ""
    """The pass that runs."""
    times: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    _start: float = field(default_factory=time.perf_counter)

    @property
    def shows_passes(self) -> bool:
        """Whether the passes inside a composite one are looked at one by one."""
        args = self.args
        named = args.print_ir_before or args.print_ir_after or args.print_ir_before_all or args.print_ir_after_all
        return bool(named or args.mlir_timing)

    def named_passes(self) -> list[tuple[str, str]]:
        """The options that name passes, with each name."""
        options = {"--print-ir-before": self.args.print_ir_before, "--print-ir-after": self.args.print_ir_after}
        return [(option, name) for option, given in options.items() for name in sorted(_names(given))]

    def between(self, previous: ModulePass | None, module: ModuleOp, following: ModulePass | None) -> None:
        """After one pass and before the next."""
        if previous is not None:
            self.lap(previous.name)
            if self.args.print_ir_after_all or previous.name in _names(self.args.print_ir_after):
                _dump("After", previous.name, module)
        elif self.args.mlir_pass_pipeline_crash_reproducer is not None:
            self.text_before = _text(module)
        if following is not None:
            if self.args.print_ir_before_all or following.name in _names(self.args.print_ir_before):
                _dump("Before", following.name, module)
            self.running = following.name
        self._start = time.perf_counter()

    def lap(self, name: str) -> None:
        """What was done since the last time is over."""
        now = time.perf_counter()
        self.times.append((name, now - self._start))
        self._start = now

    def failed(self, error: BaseException) -> None:
        """A pass raised: writes the reproducer, if one is asked for."""
        path = self.args.mlir_pass_pipeline_crash_reproducer
        if path is not None and self.running:
            Path(path).write_text(f"{REPRODUCER}'{self.args.passes}'\n{self.text_before}\n", "utf-8")
            print(f"{self.running} failed: wrote a reproducer to {path}", file=sys.stderr)

    def report_times(self) -> None:
        """The table of MLIR's `--mlir-timing`."""
        if not self.args.mlir_timing:
            return
        total = sum(seconds for _, seconds in self.times)
        line = f"===-{'-' * 73}-==="
        title = "... Execution time report ..."
        print(f"{line}\n{title:^{len(line)}}\n{line}".replace(" \n", "\n"), file=sys.stderr)
        print(f"  Total Execution Time: {total:.4f} seconds\n\n  ----Wall Time----  ----Name----", file=sys.stderr)
        for name, seconds in [*self.times, ("Total", total)]:
            share = seconds / total if total else 0.0
            print(f"  {seconds:8.4f} ({share:6.1%})  {name}", file=sys.stderr)


def _names(given: list[str]) -> set[str]:
    return {name.strip() for text in given for name in text.split(",")}


def _text(module: ModuleOp) -> str:
    stream = StringIO()
    Printer(stream).print_op(module)
    return stream.getvalue()


def _dump(when: str, name: str, module: ModuleOp) -> None:
    print(f"// -----// IR Dump {when} {name} //----- //\n{_text(module)}\n", file=sys.stderr)
