"""What each rank of a training step holds at its peak on a CPU, beside what the simulator says: bytes of tensors, counted by PyTorch's profiler at every allocation.

    python -m benchmarks.training_memory [gpt mlp llama resnet]

A step is measured once its updates are in their arguments' memory: what arguments hold, and the most that was allocated beyond in the step, whatever an operator needs inside. In the
simulation no operator needs anything inside, and an update of any size is in place.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.training_references import PLANS
from benchmarks.training_speed import MODELS, prepared, run_ranks

MEMORY_PLANS: dict[str, dict[str, Any]] = {
    name: PLANS[kind] for name, kind in (("one", "eager"), ("dp", "DDP"), ("tp", "DTensor"), ("pp", "pipelining"))
}
MEASURED = [*itertools.product(("gpt", "mlp", "llama"), MEMORY_PLANS), ("resnet", "one"), ("resnet", "dp")]


def held_bytes(tensors: list[torch.Tensor]) -> int:
    """Of the memory of these tensors, each storage once."""
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
    return sum(storages.values())


def peak_bytes(arguments: list[torch.Tensor], step: Any) -> int:
    """The most that is held in the third step: what is there before, and the highest sum of allocations since. PyTorch knows the size of what is freed only if it
    saw it allocated."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
        step()
        before, since = held_bytes(arguments), time.time_ns()
        step()
    events = found.profiler.kineto_results.events()  # pyright: ignore
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]" and e.start_ns() >= since)
    return before + max(itertools.accumulate((n for _, n in changes), initial=0))


def work(name: str, plan: str, folder: str, rank: int, ranks: int) -> None:
    """One rank: writes what it held and what the simulator says."""
    from distir.interpreters.simulate import simulate

    program = prepared(name, MEMORY_PLANS[plan], folder, rank, ranks)
    held = peak_bytes(program.arguments, program.step)
    simulated = simulate(program.module, "local-cpu").peak_memory_bytes[rank]
    Path(folder, f"{rank}.bytes").write_text(f"{held} {simulated}")
    if ranks > 1:
        torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--plan")
    parser.add_argument("--rank", nargs=3)
    given = parser.parse_args()
    if given.rank:
        work(given.models[0], given.plan, given.rank[2], int(given.rank[0]), int(given.rank[1]))
        return
    print(f"{'model':8}{'plan':6}{'rank':>5}{'held':>12}{'simulated':>12}{'ratio':>8}")
    for name, plan in MEASURED:
        if name not in given.models:
            continue
        ranks = 1 if plan == "one" else 2
        with TemporaryDirectory() as folder:
            run_ranks("benchmarks.training_memory", name, ranks, folder, ["--plan", plan])
            for rank in range(ranks):
                held, simulated = map(int, Path(folder, f"{rank}.bytes").read_text().split())
                print(
                    f"{name:8}{plan:6}{rank:5}{held / 1e6:9.2f} MB{simulated / 1e6:9.2f} MB{simulated / held:8.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
