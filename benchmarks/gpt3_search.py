"""GPT-3 175B's training step in mixed precision (`examples/gpt3_pytorch.py`) on 1,024 GPUs: import, and the search that `distir search` does
over D, T, P, K, gpipe | 1f1b, in CPU seconds, with the ranked plans.

    python -m benchmarks.gpt3_search [--layers 96] [--microbatches 6,12,24,48,96,192] [--most-tensor 8] [--top 10] [--machine dgx-h100]

`--most-tensor` bounds T: 8 keeps a tensor group within a node. The rules come from the user's cache where it has them (warm); an
empty `DISTIR_CACHE_DIR` measures them cold.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from distir.frontends.pytorch import import_step
from distir.passes.search.collector import leave_collector_off
from distir.tools.api import search
from distir.tools.commands.search_output import report
from examples import gpt3_pytorch

T = TypeVar("T")


def timed(what: str, run: Callable[[], T]) -> T:
    """Runs, and prints CPU seconds."""
    start = time.process_time()
    result = run()
    print(f"{what:10} {time.process_time() - start:6.1f} CPU-s", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="GPT-3 175B's training step searched on 1,024 GPUs.")
    parser.add_argument("--layers", type=int, default=gpt3_pytorch.LAYERS)
    parser.add_argument("--microbatches", default="6,12,24,48,96,192")
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--most-tensor", type=int, default=8)
    parser.add_argument("--machine", default="dgx-h100")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    leave_collector_off()  # as `distir search` does
    module = timed("import", lambda: import_step(gpt3_pytorch.step(args.layers)))
    plans = timed(
        "search",
        lambda: search(
            module,
            args.machine,
            1024,
            microbatches=[int(k) for k in args.microbatches.split(",")],
            schedules=["1f1b", "gpipe"],
            most_tensor=args.most_tensor,
            top=args.top,
        ),
    )
    report(plans, args.top)
    print(f"memory     {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:6.2f} GiB at most")


if __name__ == "__main__":
    main()
