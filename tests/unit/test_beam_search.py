"""Beam searches: what a candidate is said to hold never exceeds what its plan needs, and steps of many choices stay small."""

from dataclasses import replace

import pytest
from xdsl.context import Context

from benchmarks.gpt_training import gpt_step
from benchmarks.training_workloads import wide_resnet_step
from distir.passes.sharding_search.beam import Beam, beam_plan
from distir.passes.sharding_search.problem import Problem
from distir.passes.sharding_search.search import Result, best_plan
from distir.passes.sharding_search.settings import pose
from tests.unit.sharding_problems import MACHINE, parsed, problem_of

GPT = {"layers": 2, "width": 12, "heads": 2, "vocabulary": 13, "batch": 4, "sequence": 3}


def posed(workload: str) -> Problem:
    module = gpt_step(**GPT) if workload == "gpt" else wide_resnet_step(2, 2, blocks=(1, 1), channels=2, image=8)
    return pose(Context(), module, "tp=2", MACHINE, "analytic", "", "", "any", "main")


def only(problem: Problem, result: Result) -> Problem:
    """The problem in which nothing else can be chosen."""
    plan = result.plan
    return replace(
        problem,
        options={op: [plan.options[op]] if op in plan.options else found for op, found in problem.options.items()},
        arguments={argument: [states] for argument, states in plan.arguments.items()},
        results={f: [[] if s is None else [s] for s in found] for f, found in plan.results.items()},
    )


@pytest.mark.parametrize("workload", ["gpt", pytest.param("resnet", marks=pytest.mark.long)])
def test_what_a_candidate_holds_is_never_more_than_its_plan_needs(workload: str):
    """Layers are functions that are called several times: what they take may be gone before what they return is there."""
    problem = posed(workload)
    for result in (best_plan(problem), Beam(problem, 4).search()):
        peak = result.memory.peak_bytes
        found = Beam(only(problem, result), 1, peak).search()
        assert found.memory.peak_bytes == peak
        assert found.seconds == result.seconds


def test_a_limit_that_the_plan_keeps_changes_nothing():
    problem = posed("gpt")
    without = beam_plan(problem, 2)
    assert beam_plan(problem, 2, without.memory.peak_bytes).plan == without.plan


def test_choices_within_a_step_are_not_multiplied(monkeypatch: pytest.MonkeyPatch):
    """A second call of a layer of 20 weights chooses how each arrives: 2^20 ways."""
    count = 20
    names = [f"%w{i}" for i in range(count)]
    types = ", ".join(["tensor<8x8xf16>"] * (count + 1))
    inside = "".join(
        f'  %y{i + 1} = "onnx.Add"(%y{i}, {name}) : (tensor<8x8xf16>, tensor<8x8xf16>) -> tensor<8x8xf16>\n'
        for i, name in enumerate(names)
    )
    stated = ", ".join(f"{name}: tensor<8x8xf16>" for name in names)
    given = [
        f'%p{call}_{i}: tensor<8x8xf16> {{dist.name = "p{call}_{i}", dist.role = "parameter"}}'
        for call in range(2)
        for i in range(count)
    ]
    calls = "".join(
        f"  %x{call + 1} = func.call @layer(%x{call}, {', '.join(f'%p{call}_{i}' for i in range(count))})"
        f" : ({types}) -> tensor<8x8xf16>\n"
        for call in range(2)
    )
    module = parsed(
        f"""func.func private @layer(%y0: tensor<8x8xf16>, {stated}) -> tensor<8x8xf16> {{
{inside}  func.return %y{count} : tensor<8x8xf16> }}
func.func @main(%x0: tensor<8x8xf16> {{dist.name = "x", dist.role = "input"}}, {", ".join(given)}) -> tensor<8x8xf16> {{
{calls}  func.return %x2 : tensor<8x8xf16> }}"""
    )
    needs: list[object] = []
    need = Beam._need
    monkeypatch.setattr(Beam, "_need", lambda self, *given: needs.append(given) or need(self, *given))
    problem = problem_of(module, (("tp", 2),))
    assert Beam(problem, 8).search().seconds == best_plan(problem).seconds
    assert len(needs) < 100 * len(problem.options) * 8
