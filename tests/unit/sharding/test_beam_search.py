"""Beam searches: what a candidate is said to hold never exceeds what its plan needs, and steps of many choices stay small."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from benchmarks.gpt_training import gpt_step
from benchmarks.training_workloads import gat_step, wide_resnet_step
from distir.passes.sharding.beam import Beam, NoPlan
from distir.passes.sharding.beam_within import beam_plan
from distir.passes.sharding.memory_lookahead import Limit, MemoryLookahead
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.result import Result
from distir.passes.sharding.search import best_plan
from distir.passes.sharding.settings import build_problem
from distir.passes.sharding.within_memory import WithinMemory
from distir.passes.solver.deadline import Deadline, OutOfTime
from tests.unit.sharding_problems import MACHINE, agrees, lowered, parsed, problem_of

WORKLOADS: dict[str, Callable[[], ModuleOp]] = {
    "gpt": lambda: gpt_step(2, 12, 2, vocabulary=13, batch=4, sequence=3),
    "gat": lambda: gat_step(nodes=17, width=8, heads=4, classes=4),
    "resnet": lambda: wide_resnet_step(2, 2, blocks=(1, 1), channels=2, image=8),
}


def posed(workload: str, mesh: str = "tp=2") -> Problem:
    return build_problem(Context(), WORKLOADS[workload](), mesh, MACHINE, "analytic", "", "", "any", "main")[0]


def out_of_time(*_: object, **__: object) -> None:
    raise OutOfTime


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
        alone = only(problem, result)
        found = Beam(alone, 1, Limit(MemoryLookahead(alone), peak, 0.0)).search()
        assert found.memory.peak_bytes == peak
        assert found.seconds == result.seconds


@pytest.mark.long
def test_a_beam_finds_a_plan_where_time_is_too_short(monkeypatch: pytest.MonkeyPatch):
    problem = posed("gpt")
    limit = int(0.9 * best_plan(problem).memory.peak_bytes)
    best = best_plan(problem, limit)
    assert best.gap == 0
    monkeypatch.setattr(WithinMemory, "search", lambda self, *_: self.pricing.improve(1) and None)  # pyright: ignore
    monkeypatch.setattr("distir.passes.sharding.search.by_integer_program", out_of_time)
    found = best_plan(problem, limit, Deadline.after(600))
    assert found.memory.peak_bytes <= limit
    assert found.bound_seconds <= best.seconds <= found.seconds
    assert found.gap > 0


def test_a_problem_that_is_not_posed_in_time_is_left_to_a_beam(monkeypatch: pytest.MonkeyPatch):
    """All costs side by side take longer to write down than a plan takes to be found."""
    problem = posed("gpt")
    best = best_plan(problem)
    monkeypatch.setattr("distir.passes.sharding.choice_network.ChoiceNetwork.__init__", out_of_time)
    found = best_plan(problem, best.memory.peak_bytes, Deadline.after(600))
    assert found.seconds >= best.seconds
    assert (found.bound_seconds, found.gap) == (0.0, 1.0)


def test_a_limit_that_the_plan_keeps_changes_nothing():
    problem = posed("gpt")
    without = beam_plan(problem, 2)
    assert beam_plan(problem, 2, without.memory.peak_bytes).plan == without.plan


@pytest.mark.parametrize(
    ("workload", "share", "mesh"),
    [
        ("gat", 0.8, "tp=8"),
        *(pytest.param("gpt", share, "dp=2,tp=2", marks=pytest.mark.long) for share in (0.97, 0.9, 0.8)),
    ],
)
def test_plans_within_a_limit_that_the_fastest_exceeds(workload: str, share: float, mesh: str):
    """Shares of what the fastest plan of all needs; the beam's fastest needs more. What is found needs what the simulator says."""
    problem = posed(workload, mesh)
    limit = int(share * best_plan(problem).memory.peak_bytes)
    assert Beam(problem, 16).search().memory.peak_bytes > limit
    found = beam_plan(problem, 16, limit)
    assert found.memory.peak_bytes <= limit
    _, simulation = lowered(problem, found)
    assert agrees(simulation, found)


def test_that_no_plan_was_found_is_not_that_there_is_none():
    problem = posed("gpt", "tp=2")
    with pytest.raises(NoPlan, match=r"memory-limit 1000 bytes: a beam of width 2 found no plan .* there may be one"):
        beam_plan(problem, 2, 1000)


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


def test_what_a_beam_cannot_reshard_any_more_it_leaves_out(monkeypatch: pytest.MonkeyPatch):
    """The columns of 9 rows are 9 pieces of what they become, which stay as they are; the other addend has no pieces by then."""
    module = parsed(
        """
        func.func @main(%a: tensor<9x4096xf32>, %b: tensor<36864xf32>) -> tensor<36864xf32> {
          %s = "onnx.Constant"() <{value = #onnx.tensor<dense<36864> : tensor<1xi64>>}> : () -> tensor<1xi64>
          %c = "onnx.Relu"(%b) : (tensor<36864xf32>) -> tensor<36864xf32>
          %d = "onnx.Relu"(%a) : (tensor<9x4096xf32>) -> tensor<9x4096xf32>
          %r = "onnx.Reshape"(%d, %s) : (tensor<9x4096xf32>, tensor<1xi64>) -> tensor<36864xf32>
          %m = "onnx.Add"(%c, %r) : (tensor<36864xf32>, tensor<36864xf32>) -> tensor<36864xf32>
          func.return %m : tensor<36864xf32>
        }
        """
    )
    problem = problem_of(module, (("tp", 2),))
    with pytest.raises(NoPlan, match=r"the beam ends at onnx.Add"):
        beam_plan(problem, 1)
    monkeypatch.setattr("distir.passes.sharding.choice_network.ChoiceNetwork.__init__", out_of_time)
    monkeypatch.setattr("distir.passes.sharding.search.RESCUE", (1,))
    found = best_plan(problem, None, Deadline.after(600))
    _, simulation = lowered(problem, found)
    assert agrees(simulation, found)
