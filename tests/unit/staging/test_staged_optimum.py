"""The optimum of staged programs is that of all strategies, lowered, scheduled and simulated; memory and time of a plan are those of its schedule."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from time import monotonic

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from distir.dialects.errors import DistirError
from distir.dialects.sharding import MeshOp, StrategyAttr
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import Simulation, simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.mesh import Mesh
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_schedule import PipelineSchedulePass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.sharding.pipeline_search import STAGES, PipelineSearch
from distir.passes.sharding.plans import ShardingPlan, annotate
from distir.passes.sharding.prices import Prices
from distir.passes.sharding.problem import Problem, build
from distir.passes.sharding.search import SOLVERS, best_plan
from distir.passes.solver.deadline import Deadline
from tests.slow_machine import written
from tests.small_models import mlp
from tests.unit.sharding_problems import parsed

SCHEDULES = ("1f1b", "gpipe", "pipedream")


def staged_problem(
    module: ModuleOp, stages: int, count: int, axes: tuple[tuple[str, int], ...], schedule: str, machine: str
) -> Problem:
    module = module.clone()
    PipelineStagesPass(stages=stages, microbatches=count, machine=machine).apply(Context(), module)
    MicrobatchPass(count=count).apply(Context(), module)
    prices = Prices(Mesh(axes, uneven=True), load_machine(machine), stages=stages)
    return build(module, "main", prices, parse_batch("", entry_function(module)), schedule=schedule)


def scheduled(problem: Problem, plan: ShardingPlan) -> Simulation:
    """What the simulator says of the program that a plan becomes."""
    assert problem.order is not None
    annotate(problem, plan)
    module = problem.module.clone()
    ApplyShardingPass().apply(Context(), module)
    PipelineSchedulePass(problem.order.schedule).apply(Context(), module)
    module.verify()
    return simulate(module, problem.prices.machine)


@pytest.mark.parametrize("stages", [1, pytest.param(2, marks=pytest.mark.long)])
def test_where_time_is_over_a_plan_that_fits_is_taken(stages: int, tmp_path: Path):
    """Of a staged program too, which beams do not search: in the last of the time."""
    problem = staged_problem(mlp().module, stages, 2, (("dp", 2),), "1f1b", written(tmp_path))
    fastest = best_plan(problem)
    limit = fastest.memory.peak_bytes - 1
    result = best_plan(problem, limit, Deadline(monotonic() - 70, 100))
    assert result.memory.peak_bytes <= limit
    assert result.seconds >= fastest.seconds


@pytest.mark.parametrize(
    ("stages", "count", "schedule", "axes"),
    [
        *(
            pytest.param(stages, count, schedule, axes, marks=pytest.mark.long)
            for stages, count, schedule in product((1, 2, 3), (1, 2, 4), SCHEDULES)
            for axes in ((("dp", 2),), (("dp", 2), ("tp", 2)))
        ),
    ],
)
def test_a_plan_takes_what_its_schedule_takes(
    stages: int, count: int, schedule: str, axes: tuple[tuple[str, int], ...], tmp_path: Path
):
    """To the picosecond and the byte, without a limit and within one."""
    machine = written(tmp_path)
    problem = staged_problem(mlp(widths=(12, 24, 24, 24, 12)).module, stages, count, axes, schedule, machine)
    limit = None
    for _ in range(2):
        result = best_plan(problem, limit)
        found = scheduled(problem, result.plan)
        assert max(found.peak_memory_bytes.values()) == result.memory.peak_bytes
        assert found.makespan_seconds == pytest.approx(result.seconds, rel=1e-12)
        assert limit is None or result.memory.peak_bytes <= limit
        limit = result.memory.peak_bytes - 1 if limit is None else limit
        try:
            best_plan(problem, limit)
        except DistirError:
            return  # nothing needs less


def test_every_stage_costs_something_until_the_bound_is_near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Plans along a mixture without a stage may waste its time and memory."""
    problem = staged_problem(
        mlp(widths=(12, 24, 24, 24, 12)).module, 4, 4, (("dp", 2), ("tp", 2)), "1f1b", written(tmp_path)
    )
    tried: list[tuple[float, Sequence[int]]] = []
    along = PipelineSearch._solve

    def solve(self: PipelineSearch, shares: Sequence[int]) -> None:
        tried.append((1 - self._lower / self._makespan, shares[:4]))
        along(self, shares)

    monkeypatch.setattr(PipelineSearch, "_solve", solve)
    best_plan(problem, None)
    far = [shares for gap, shares in tried if gap > 1 / STAGES]
    assert len(far) > 1
    assert all(map(all, far))


def programs(random: Random) -> tuple[str, int, int]:
    """A chain of operations on a batch, with the number of stages and of microbatches."""
    rows, n = random.choice([8, 64]), random.choice([64, 1024])
    x, w = f"tensor<{rows}x{n}xf32>", f"tensor<{n}x{n}xf32>"
    kinds = ["MatMul", *(random.choice(["MatMul", "Relu", "Add"]) for _ in range(random.randint(1, 2)))]
    random.shuffle(kinds)
    lines, weights, last = list[str](), 0, "x"
    for i, kind in enumerate(kinds):
        operands, types = [last], [x]
        if kind == "MatMul":
            operands, types, weights = [last, f"w{weights}"], [x, w], weights + 1
        elif kind == "Add":
            operands, types = [last, last if random.random() < 0.5 else "x"], [x, x]
        named = ", ".join(f"%{operand}" for operand in operands)
        lines.append(f'%v{i} = "onnx.{kind}"({named}) : ({", ".join(types)}) -> {x}')
        last = f"v{i}"
    arguments = [f'%x: {x} {{dist.name = "x", dist.role = "input"}}']
    arguments += [f'%w{i}: {w} {{dist.name = "w{i}", dist.role = "parameter"}}' for i in range(weights)]
    body = "\n".join(lines)
    text = f'func.func @main({", ".join(arguments)}) -> ({x} {{dist.name = "y"}}) {{\n{body}\nfunc.return %{last} : {x}\n}}'
    return text, random.randint(min(2, len(kinds)), min(3, len(kinds))), random.choice([1, 2, 4])


def strategies(problem: Problem, most: int, random: Random) -> Iterator[ModuleOp]:
    """The module with combinations of what operations do, all if they are few: values are passed as they are first needed."""
    ops = [op for op in problem.options if op.operands]
    every = list(product(*(range(len(problem.options[op])) for op in ops)))
    for choice in every if len(every) <= most else random.sample(every, most):
        copy = problem.module.clone()
        copied = [op for function in copy.body.block.ops for op in function.walk()]
        original = [op for function in problem.module.body.block.ops for op in function.walk()]
        there = dict(zip(original, copied, strict=True))
        first = copy.body.block.first_op
        assert first is not None
        copy.body.block.insert_op_before(MeshOp("mesh", dict(problem.prices.mesh.axes)), first)
        for op, i in zip(ops, choice, strict=True):
            options = problem.options[op][i].options
            choices = {axis: o.choice for (axis, _), o in zip(problem.prices.mesh.axes, options, strict=True)}
            there[op].attributes["dist.strategy"] = StrategyAttr.of("mesh", choices)
        yield copy


def compare_with_all_strategies(seed: int, most: int, machine: str) -> None:
    random = Random(seed)
    text, stages, count = programs(random)
    schedule = random.choice(SCHEDULES)
    axes = random.choice([(("a", 2),), (("a", 3),), (("a", 2), ("b", 2))])
    problem = staged_problem(parsed(text), stages, count, axes, schedule, machine)
    found: list[tuple[float, int]] = []
    for candidate in strategies(problem, most, random):
        try:
            ApplyShardingPass().apply(Context(), candidate)
            PipelineSchedulePass(schedule).apply(Context(), candidate)
        except (DistirError, DiagnosticException, VerifyException):
            continue  # addends of different reductions, or an argument that would be addends
        simulation = simulate(candidate, problem.prices.machine)
        found.append((simulation.makespan_seconds, max(simulation.peak_memory_bytes.values())))
    peaks = sorted(peak for _, peak in found)
    for limit in (None, peaks[len(peaks) // 4], peaks[0]):
        fastest = min(seconds for seconds, peak in found if limit is None or peak <= limit)
        results = [best_plan(problem, limit, solver=solver) for solver in SOLVERS]
        for result in results:
            assert result.gap == 0, (seed, limit)
            assert result.seconds <= fastest + 1e-9, (seed, limit, result.seconds, fastest)
            assert limit is None or result.memory.peak_bytes <= limit
            simulation = scheduled(problem, result.plan)
            assert abs(simulation.makespan_seconds - result.seconds) < 1e-11, (seed, limit)
            assert max(simulation.peak_memory_bytes.values()) == result.memory.peak_bytes, (seed, limit)
        assert abs(results[0].seconds - results[1].seconds) < 1e-9, (seed, limit)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(i, marks=pytest.mark.long) for i in range(3, 63))])
def test_no_strategy_is_better(seed: int, tmp_path: Path):
    """Of what operations do along each axis; what is lowered and simulated is at most as fast, within limits too, and both solvers agree."""
    compare_with_all_strategies(seed, 60, written(tmp_path) if seed % 2 else "dgx-a100")
