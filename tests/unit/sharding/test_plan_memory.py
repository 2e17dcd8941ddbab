"""Memory and time of any plan, also of one that no search would choose, are those of the program that it becomes."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from distir.passes.sharding.beam import Beam
from distir.passes.sharding.memory import footprint
from distir.passes.sharding.memory_lookahead import Limit, MemoryLookahead
from distir.passes.sharding.plans import ShardingPlan, conversions, needs, produced
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.result import result_of
from tests.slow_machine import written
from tests.unit.random_models import Program
from tests.unit.sharding.test_beam_search import only
from tests.unit.sharding.test_uneven_search import compare_with_its_program, problem_of, run_programs

TRIES = 200


def is_possible(problem: Problem, plan: ShardingPlan) -> bool:
    """Whether there are collectives for every conversion, and every result can leave."""
    last = problem.entry.body.block.last_op
    assert last is not None
    for states, value in zip(plan.results["main"], last.operands, strict=True):
        if states is None and problem.leaving(produced(problem, plan, value)) is None:
            return False
    sources = (
        (value.type, produced(problem, plan, value), need.states) for value, need in needs(problem, plan, problem.entry)
    )
    return all(problem.prices.conversion(*ends) is not None for ends in sources)


def drawn(problem: Problem, random: Random) -> ShardingPlan | None:
    """A plan of random choices; None if none of many is possible."""
    for _ in range(TRIES):
        plan = ShardingPlan(
            {op: random.choice(options) for op, options in problem.options.items()},
            {argument: random.choice(states) for argument, states in problem.arguments.items()},
            {name: [random.choice(s) if s else None for s in found] for name, found in problem.results.items()},
        )
        for index, argument in problem.tied.items():
            plan.results["main"][index] = plan.arguments[argument]
        if is_possible(problem, plan):
            return plan
    return None


def check_a_random_plan(program: Program, sizes: tuple[int, ...], machine: str, seen: Counter[str]) -> None:
    problem = problem_of(program, sizes, machine)
    plan = drawn(problem, Random(f"{program.text} {sizes}"))
    if plan is None:
        return
    found = [conversion for _, _, conversion in conversions(problem, plan, problem.entry)]
    seen["apart"] += any(conversion.apart for conversion in found)
    seen["kept"] += any(conversion.keeps_source for conversion in found)
    result = result_of(problem, plan, 0.0, footprint(problem, plan))
    if all(conversion.uses_source for conversion in found):
        alone, peak = only(problem, result), result.memory.peak_bytes
        assert Beam(alone, 1, Limit(MemoryLookahead(alone), peak, 0.0)).search().memory.peak_bytes == peak
        seen["ahead"] += 1
    compare_with_its_program(program, problem, result, machine)


def check_beams(program: Program, sizes: tuple[int, ...], machine: str, seen: Counter[str]) -> None:
    for width in (1, 3):
        problem = problem_of(program, sizes, machine)
        compare_with_its_program(program, problem, Beam(problem, width).search(), machine)


@pytest.mark.parametrize(("count", "largest"), [(15, 3), pytest.param(300, 8, marks=pytest.mark.long)])
def test_random_plans_need_what_their_programs_need(count: int, largest: int, tmp_path: Path):
    """Where a whole value becomes addends, one device keeps it and the others need it no more; where a window on it is all of it on
    some devices, these keep it too. What a beam counts ahead is no more,
    if all devices need what they convert."""
    seen = run_programs(count, largest, written(tmp_path), check_a_random_plan)
    assert min(seen["apart"], seen["ahead"]) > count // 10, seen


@pytest.mark.parametrize(("count", "largest"), [(10, 3), pytest.param(100, 8, marks=pytest.mark.long)])
def test_what_beams_find_needs_what_its_program_needs(count: int, largest: int):
    run_programs(count, largest, "dgx-2", check_beams)
