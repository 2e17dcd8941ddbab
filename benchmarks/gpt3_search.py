"""GPT-3 175B's training step in mixed precision (`examples/gpt3_pytorch.py`) on 1,024 GPUs: import, outlining, rules, and the
search over D, T, P, K and gpipe | 1f1b, in CPU seconds, with the ranked plans.

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

from xdsl.context import Context

from distir.interpreters.machines import load_machine
from distir.passes.dtp_parallelize import prepare
from distir.passes.outline_repeats import OutlineRepeatsPass
from distir.passes.search.configurations import grid
from distir.passes.search.search import Search, leave_collector_off
from distir.tools.commands.search import report
from distir.tools.plan_source import PlanSource
from distir.tools.plans import Plans
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
    from distir.frontends.pytorch import import_step

    module = timed("import", lambda: import_step(gpt3_pytorch.step(args.layers)))
    timed("outline", lambda: OutlineRepeatsPass().apply(Context(), module))
    print(f"{sum(1 for _ in module.walk())} operations")
    timed("rules", lambda: prepare(Context(), module))
    machine = load_machine(args.machine)
    capacity = machine.device.memory_capacity_bytes
    search = Search(lambda _: module.clone(), machine, "analytic", capacity, wanted=args.top)
    microbatches = [int(k) for k in args.microbatches.split(",")]
    configurations = grid(
        1024, [gpt3_pytorch.BATCH], microbatches, ["1f1b", "gpipe"], allows=lambda _, tp, __: tp <= args.most_tensor
    )
    outcomes = timed("search", lambda: list(search.outcomes(configurations)))
    report(Plans.of(outcomes, PlanSource(search, module), len(configurations)), args.top)
    print(f"memory     {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:6.2f} GiB at most")


if __name__ == "__main__":
    main()
