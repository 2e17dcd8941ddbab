"""Checks that summaries equal executing every operation, bit for bit: makespan, and the peak memory of every device.

    python -m benchmarks.oracle gpt3-175B                                   # 1035 configurations of 96 layers, compiled
    python -m benchmarks.oracle gpt3-175B --layers 16 --by interpreter      # 16 layers, the interpreter: over an hour
    python -m benchmarks.oracle gpt3-175B --sample 20 --by interpreter      # 20 of 96 layers, the largest among them
    python -m benchmarks.oracle mlp-large --batches 8192                    # a training grid
    python -m benchmarks.oracle gpt3-175B --programs dtp-parallelize        # programs of our transform, not the paper's

With `--by kernel`, the loop in `kernel`, compiled by numba, executes the operations; with `--by interpreter`, `simulate` does.
Times are CPU seconds: of the summaries (with a memo over the grid), of the execution and of making its tables. Exit status 1 if
any configuration differs.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import track
from xdsl.dialects.builtin import ModuleOp

from benchmarks.oracle import tables
from benchmarks.oracle.programs import MODELS, builder, configurations, sample
from benchmarks.paper import grid
from benchmarks.paper.mlp_stages import Configuration
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import SummaryMemo, summarize

MACHINE = load_machine("dgx-2")


@dataclass
class Tally:
    """What was found, and CPU seconds."""

    equal: int = 0
    total: int = 0
    operations: int = 0
    building: float = 0
    summaries: float = 0
    execution: float = 0

    def check(
        self, build: Callable[[], ModuleOp], by: Callable[..., tables.Outcome], cost_model: str, memo: SummaryMemo
    ) -> bool:
        """Simulates a program both ways."""
        module, seconds = timed(build)
        self.building += seconds
        summary, seconds = timed(lambda: summarize(module, MACHINE, cost_model, memo=memo))
        self.summaries += seconds
        outcome, seconds = timed(lambda: by(module, MACHINE, cost_model))
        self.execution += seconds
        same = (
            summary.makespan_picoseconds == outcome.makespan_picoseconds
            and list(summary.peak_memory_bytes.values()) == outcome.peak_memory_bytes
            and sum(summary.counts.values()) == outcome.steps
        )
        self.total += 1
        self.equal += same
        self.operations += outcome.steps
        return same


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = run()
    return result, time.process_time() - start


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.oracle", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--layers", type=int, help="instead of the model's")
    parser.add_argument(
        "--programs", choices=["paper", "dtp-parallelize"], default="paper", help="whose (default: paper)"
    )
    parser.add_argument("--by", choices=list(EXECUTE), default="kernel", help="what executes them (default: kernel)")
    parser.add_argument("--batches", help="A,B,... (default: the paper's, 128 to 1048576 in powers of two)")
    parser.add_argument("--sample", type=int, help="only so many configurations, the largest among them")
    parser.add_argument("--cost-model", choices=["distir", "analytic"], default="distir")
    options = parser.parse_args(arguments)
    batches = [int(b) for b in options.batches.split(",")] if options.batches else grid.BATCHES
    chosen = configurations(batches)
    chosen = sample(chosen, min(options.sample, len(chosen))) if options.sample else chosen
    tally = compare(chosen, builder(options.model, options.layers, options.programs), options.by, options.cost_model)
    report(tally)
    return 0 if tally.equal == tally.total else 1


EXECUTE: dict[str, Callable[..., tables.Outcome]] = {"kernel": tables.run, "interpreter": tables.interpret}


def compare(
    chosen: Sequence[Configuration], build: Callable[[Configuration], ModuleOp], by: str, cost_model: str = "distir"
) -> Tally:
    """Both simulations of every configuration; names those that differ. Automatic garbage collection is off meanwhile:
    programs are large and full of cycles, so that each is collected as it is done with; those that grew old
    meanwhile, a few at a time."""
    was_enabled = gc.isenabled()
    gc.disable()
    tally, memo = Tally(), SummaryMemo()
    console = Console(stderr=True)
    try:
        for done, c in enumerate(
            track(chosen, description="configurations", console=console, disable=not console.is_terminal)
        ):
            if not tally.check(lambda c=c: build(c), EXECUTE[by], cost_model, memo):
                print(f"differs: D/T/P/K {grid.name(c)}, batch {c.batch}")
            gc.collect(2 if done % 16 == 15 else 1)
    finally:
        if was_enabled:
            gc.enable()
    return tally


def report(tally: Tally) -> None:
    print(f"{tally.equal} of {tally.total} configurations equal")
    print(f"{tally.operations:,} operations executed one by one in {tally.execution:.1f} CPU-s", end="")
    print(f" ({tally.execution / max(tally.operations, 1) * 1e9:.0f} ns each)")
    print(f"{tally.summaries:.1f} CPU-s for their summaries; {tally.building:.1f} CPU-s to build the programs")


if __name__ == "__main__":
    raise SystemExit(main())
