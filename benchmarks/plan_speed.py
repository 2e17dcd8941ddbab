"""CPU seconds of distributing and simulating single large plans, and of a training grid.

    python -m benchmarks.plan_speed worst | large | training

`worst`: GPT-2 175B with T=8, P=2, K=128. `large`: GPT-2 of 128 layers on 16,384 devices, D=64, T=8, P=32, K=512. `training`: one batch size of the MLP
103B training step on 16 devices, the ten fastest of all degrees, by 1f1b.

Beside each: the time to make the annotated program, once per model, in the same run.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from benchmarks.gpt2_175b import level1
from benchmarks.paper.mlp import MODELS
from benchmarks.paper.sequential import module as mlp
from benchmarks.search_grid import paper_grid, timed
from distir.interpreters.entry import entry_function
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.dtp_parallelize import prepare
from distir.passes.search.collector import leave_collector_off
from distir.passes.search.configurations import Configuration
from distir.passes.search.search import Search
from distir.tools.commands.search import binder_of, defaults


def annotated(make: Callable[[], ModuleOp]) -> ModuleOp:
    """The program with rules, and what it took."""

    def run() -> ModuleOp:
        module = make()
        prepare(Context(), module)
        return module

    seconds, module = timed(run)
    print(f"annotated program, once  {seconds:8.3f} s")
    return module


def gpt2(batch: int, layers: int = 96) -> ModuleOp:
    model = level1(layers)
    bind = binder_of(model, "GPT-2", {}, parse_batch("", entry_function(model)), Namespace(**defaults()))
    return annotated(lambda: bind(batch))


def search(module: ModuleOp, machine: str, wanted: int = 0) -> Search:
    restrict = "dp=batch,tp=model"
    found = Search(lambda _: module.clone(), machine, "analytic", 1 << 62, restrict=restrict, wanted=wanted)
    found.seconds = 1e6
    return found


def one_plan(module: ModuleOp, machine: str, configuration: Configuration) -> None:
    plans = search(module, machine)
    plans.base(configuration.batch)
    seconds, outcome = timed(lambda: plans.evaluate(configuration))
    assert outcome.figures is not None, outcome.dropped
    print(f"the plan                 {seconds:8.3f} s")


def worst() -> None:
    one_plan(gpt2(131072), "dgx-2", Configuration(131072, 1, 8, 2, 128, "1f1b"))


def large() -> None:
    one_plan(gpt2(64 * 512, 128), "dgx-a100", Configuration(64 * 512, 64, 8, 32, 512, "1f1b"))


def training() -> None:
    module = annotated(lambda: mlp(MODELS["mlp-large"], 1 << 14))
    configurations = paper_grid([1 << 14])
    seconds, outcomes = timed(lambda: list(search(module, "dgx-2", 10).outcomes(configurations)))
    simulated = sum(o.figures is not None for o in outcomes)
    print(f"{len(outcomes)} plans, {simulated} simulated {seconds:8.3f} s")


def main() -> None:
    leave_collector_off()  # as `distir search` does
    targets: dict[str, Callable[[], Any]] = {"worst": worst, "large": large, "training": training}
    parser = argparse.ArgumentParser(description="CPU seconds of single plans and a training grid.")
    parser.add_argument("what", choices=targets)
    targets[parser.parse_args().what]()


if __name__ == "__main__":
    main()
