"""CPU seconds of the search over the grid of the DistIR paper (section 5.1): 16 devices, all degrees in powers of two, 2 to 128
microbatches where there is a pipeline, batches of 128 to 1,048,576: 1035 configurations of GPT-2 175B, shapes only.

    python -m benchmarks.search_grid [--top 10] [--batches 14]

Prints what the file takes to read (it is written to a temporary folder first), and what it takes to find the fastest plans, which the passes write: the
others are bounded. The published search took 138 minutes on 56 cores (Table 1).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpt2_175b import level1
from distir.interpreters.entry import entry_function
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.search.collector import leave_collector_off
from distir.passes.search.configurations import PAPER_MICROBATCHES, Configuration, grid, ranked
from distir.passes.search.search import Search
from distir.tools.commands.model import load_model
from distir.tools.commands.search import binder_of, defaults

BATCHES = [2**i for i in range(7, 21)]


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds, and the result."""
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def paper_grid(batches: list[int]) -> list[Configuration]:
    """The configurations of the paper."""
    return [c for c in grid(16, batches, PAPER_MICROBATCHES, ["1f1b"]) if c.pp > 1 or c.microbatches == 1]


def main() -> None:
    parser = argparse.ArgumentParser(description="The 1035-configuration grid of GPT-2 175B.")
    parser.add_argument("--top", type=int, default=10, help="fastest plans that are wanted (default: 10)")
    parser.add_argument("--batches", type=int, default=len(BATCHES), help="the smallest of them (default: all 14)")
    args = parser.parse_args()
    leave_collector_off()  # as the command does
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "gpt2_175b.mlir"
        path.write_text(str(level1()))
        read, model = timed(lambda: load_model(str(path)))
    print(f"file to level 1 program              {read:8.2f} s")
    bind = binder_of(model, "GPT-2 175B", {}, parse_batch("", entry_function(model)), Namespace(**defaults()))
    configurations = paper_grid(BATCHES[: args.batches])
    search = Search(bind, "dgx-2", "analytic", 10**15, restrict="dp=batch,tp=model", wanted=args.top)
    search.seconds = 1e6
    seconds, outcomes = timed(lambda: list(search.outcomes(configurations)))
    simulated = sum(o.figures is not None for o in outcomes)
    print(f"{len(configurations)} configurations, {simulated} simulated {seconds:8.2f} s")
    for each in ranked(outcomes)[: args.top]:
        c = each.configuration
        print(f"  {each.throughput:8.1f} samples/s: batch {c.batch}, {c.degrees_text}")


if __name__ == "__main__":
    main()
