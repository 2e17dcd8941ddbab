"""What it saves that a search over a large staged program ends once its plan is within `pipeline_search.NEAR` of the bound, and along one mixture
of paths within `NEAR_EACH`, and what it costs: CPU seconds and step time of plans of GPT-3 175B's training step, with both, with the first,
and until nothing better is promised.

    python -m benchmarks.pipeline_gap [--layers 96] [--plans 16,8,8,48/16,4,16,48/8,8,16,96] [--machine dgx-h100] [--memory 80]

A plan is D,T,P,K. Measured on two cores with other work beside, 96 layers on DGX-H100: 27.0 instead of 46.5 CPU-s (14.1366 s a step), 23.9 instead of 45
(14.5405 s), 30.6 instead of 51 (14.2148 s): the same plans.
"""

from __future__ import annotations

import argparse
import time
import warnings
from math import inf

from distir.frontends.pytorch import import_step
from distir.interpreters.machines import load_machine
from distir.passes.search import search as plan_search
from distir.passes.search.collector import leave_collector_off
from distir.passes.search.configurations import Configuration
from distir.passes.search.search import Search
from distir.passes.sharding import pipeline_search
from examples import gpt3_pytorch

BATCH = 1536


def plans_of(text: str) -> list[tuple[int, ...]]:
    """D,T,P,K/D,T,P,K/..."""
    plans = [tuple(int(n) if n.isdecimal() else 0 for n in plan.split(",")) for plan in text.split("/")]
    if not all(len(plan) == 4 and all(plan) for plan in plans):
        raise argparse.ArgumentTypeError(f"expected D,T,P,K/D,T,P,K/..., got {text}")
    return plans


def main() -> None:
    parser = argparse.ArgumentParser(description="Plans of GPT-3 within a gap and without.")
    parser.add_argument("--layers", type=int, default=gpt3_pytorch.LAYERS)
    parser.add_argument("--plans", type=plans_of, default="16,8,8,48/16,4,16,48/8,8,16,96")
    parser.add_argument("--machine", default="dgx-h100")
    parser.add_argument("--memory", type=float, help="GB per device; by default the machine's")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    leave_collector_off()  # as `distir search` does
    plan_search.SECONDS_PER_PLAN = inf
    module = import_step(gpt3_pytorch.step(args.layers))
    capacity = load_machine(args.machine).device.memory_capacity_bytes
    if args.memory is not None:
        capacity = int(args.memory * 1e9)
    near, near_each = pipeline_search.NEAR, pipeline_search.NEAR_EACH
    for gap, each in ((near, near_each), (near, pipeline_search.EXACT), (0.0, pipeline_search.EXACT)):
        pipeline_search.NEAR, pipeline_search.NEAR_EACH = gap, each
        search = Search(lambda _: module.clone(), args.machine, "analytic", capacity)
        search.base(BATCH)
        for dp, tp, pp, microbatches in args.plans:
            plan = Configuration(BATCH, dp, tp, pp, microbatches, "1f1b", sharding="ilp")
            start = time.process_time()
            found = search.evaluate(plan)
            seconds = time.process_time() - start
            step = f"{found.figures.latency_seconds:8.4f} s" if found.figures else found.dropped
            print(
                f"gap {gap:.3f}, {each:.3f}  D{dp} T{tp} P{pp} K{microbatches}  step {step}  {seconds:6.1f} CPU-s",
                flush=True,
            )


if __name__ == "__main__":
    main()
