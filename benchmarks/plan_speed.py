"""CPU seconds of distributing and simulating single large plans, and of a training grid, under the targets that the project
has set itself.

    python -m benchmarks.plan_speed worst | large | training

`worst`: GPT-2 175B with T=8, P=2, K=128, from the annotated program in memory, median of 5 (target 0.06 s).
`large`: GPT-2 of 128 layers on 16,384 devices, D=64, T=8, P=32, K=512 (target 10 s).
`training`: one batch size of the MLP 103B training step on 16 devices, all degrees, 1f1b: 75 configurations (target 5 s).

Beside each: the time to make the annotated program, once per model, in the same run. One replica, and the first tensor rank of a
group, are simulated for all (`passes/search/representative`); steps of the schedule that recur are functions. Nothing
is known but what the tensor axis chose. Measured on two cores without other work: `worst` 0.055 s (a third of it cutting
into stages at the rows of a microbatch, a sixth lowering, two fifths the entry and its simulation; 0.2 s with choosing the sharding), `large`
0.2 s (0.9 s with choosing), `training` 3.9 s (two fifths are writing and reading the entries). All three meet their targets.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from benchmarks.gpt2_175b import level1
from benchmarks.paper.mlp import MODELS
from benchmarks.paper.sequential import module as mlp
from benchmarks.search_grid import timed
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import Machine, load_machine
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.tensor.choices import TensorChoices
from distir.passes.dtp_parallelize import prepare
from distir.passes.search.configurations import PAPER_MICROBATCHES, Configuration, grid
from distir.passes.search.search import Search, leave_collector_off
from distir.tools.commands.search import _binder  # pyright: ignore[reportPrivateUsage]


def annotated(make: Callable[[], ModuleOp]) -> ModuleOp:
    """The program with rules, and what it took."""

    def run() -> ModuleOp:
        module = make()
        prepare(Context(), module)
        return module

    seconds, module = timed(run)
    print(f"annotated program, once        {seconds:8.3f} s")
    return module


def gpt2(batch: int, layers: int = 96) -> ModuleOp:
    model = level1(layers)
    bind = _binder(model, "GPT-2", {}, parse_batch("", entry_function(model)))
    return annotated(lambda: bind(batch))


def search(module: ModuleOp, machine: Machine, choices: TensorChoices | None = None) -> Search:
    return Search(lambda _: module.clone(), machine, "analytic", 1 << 62, choices=choices or TensorChoices())


def one_plan(module: ModuleOp, machine: Machine, configuration: Configuration, times: int) -> None:
    """The first time the tensor axis is chosen; then this is known, as in a search, and nothing else."""
    known = TensorChoices()
    found: list[float] = []
    for _ in range(times + 1):
        plans = search(module, machine, known)
        plans.base(configuration.batch)
        seconds, outcome = timed(lambda plans=plans: plans.evaluate(configuration))
        assert outcome.figures is not None, outcome.dropped
        found.append(seconds)
    print(f"first, choosing the sharding   {found[0]:8.3f} s")
    print(f"median of {times} more               {statistics.median(found[1:]):8.3f} s")


def worst() -> None:
    one_plan(gpt2(131072), load_machine("dgx-2"), Configuration(131072, 1, 8, 2, 128, "1f1b"), 5)


def large() -> None:
    one_plan(gpt2(64 * 512, 128), load_machine("dgx-a100"), Configuration(64 * 512, 64, 8, 32, 512, "1f1b"), 1)


def training() -> None:
    module = annotated(lambda: mlp(MODELS["mlp-large"], 1 << 14))
    configurations = grid(16, [1 << 14], PAPER_MICROBATCHES, ["1f1b"])
    seconds, outcomes = timed(lambda: list(search(module, load_machine("dgx-2")).outcomes(configurations)))
    dropped = sum(o.figures is None for o in outcomes)
    print(f"{len(outcomes)} configurations ({dropped} impossible) {seconds:8.3f} s")


def main() -> None:
    leave_collector_off()  # as `distir search` does
    targets: dict[str, Callable[[], Any]] = {"worst": worst, "large": large, "training": training}
    parser = argparse.ArgumentParser(description="CPU seconds of single plans and a training grid.")
    parser.add_argument("what", choices=targets)
    targets[parser.parse_args().what]()


if __name__ == "__main__":
    main()
