"""How long a proof takes: the training step of GPT-3 175B in mixed precision (`examples/gpt3_pytorch.py`), distributed over D, T, P and
K microbatches. In: layers and degrees. Out: CPU seconds of import, rules, distribution, parts and proof, and how many operations were looked at.

    python -m benchmarks.proof_speed [--layers 96] [--dp 8 --tp 8 --pp 16 --microbatches 64] [--schedule 1f1b] [--grouped] [--profile]

With `--grouped` the program is what the search writes: over groups whose devices do the same.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import sys
import warnings

from xdsl.context import Context

from benchmarks.gpt3_search import timed
from distir.interpreters.proof import prove
from distir.passes.decompose import prepare_like
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.search.collector import leave_collector_off
from examples import gpt3_pytorch


def main() -> None:
    parser = argparse.ArgumentParser(description="the proof of GPT-3 175B's training step")
    parser.add_argument("--layers", type=int, default=gpt3_pytorch.LAYERS)
    for name, degree in (("dp", 8), ("tp", 8), ("pp", 16), ("microbatches", 64)):
        parser.add_argument(f"--{name}", type=int, default=degree)
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--grouped", action="store_true", help="what the devices of a stage do alike is written once")
    parser.add_argument("--profile", action="store_true", help="where the proof's time goes")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    leave_collector_off()  # as `distir verify` does
    from distir.frontends.pytorch import import_step

    sequential = timed("import", lambda: import_step(gpt3_pytorch.step(args.layers)))
    timed("rules", lambda: prepare(Context(), sequential))
    distributed = sequential.clone()
    degrees = {name: getattr(args, name) for name in ("dp", "tp", "pp", "microbatches", "schedule")}
    distribute = DtpParallelizePass(**degrees, grouped=args.grouped)
    timed("distribute", lambda: distribute.apply(Context(), distributed))
    print(f"{sum(1 for _ in distributed.walk())} operations")
    timed("decompose", lambda: prepare_like(sequential, distributed))
    profile = cProfile.Profile()
    if args.profile:
        profile.enable()
    proof = timed("proof", lambda: prove(sequential, distributed))
    profile.disable()
    print(f"{proof}, {proof.walked} operations looked at")
    print(f"memory     {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:6.2f} GiB at most")
    if args.profile:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
