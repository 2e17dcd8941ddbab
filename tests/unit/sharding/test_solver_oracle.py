"""Two other solvers agree with ours: toulbar2 on the cost functions, HiGHS on the integer program, with and without limits of memory."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import strategies as st

from distir.passes.sharding.choice_network import ChoiceNetwork
from distir.passes.sharding.integer_program import Infeasible
from distir.passes.sharding.least_memory import least_memory
from distir.passes.sharding.memory import footprint
from distir.passes.sharding.plans import picoseconds
from distir.passes.sharding.search import by_integer_program
from distir.passes.sharding.within_memory import WithinMemory
from tests.slow_machine import written
from tests.unit.random_models import Program
from tests.unit.sharding.test_uneven_search import problem_of, run_programs
from tests.unit.weighted_constraints import Unsolved, fastest

NEAR = 0.1
"""A plan may be as far from its bound, where one that is near is asked for."""
TIE = 1000
"""Picoseconds: ten times what breaks ties."""


def check(program: Program, sizes: tuple[int, ...], machine: str, seen: Counter[str]) -> None:
    problem = problem_of(program, sizes, machine)
    choices = ChoiceNetwork(problem)
    decided = choices.fastest()
    assert decided is not None
    plan = choices.plan(decided)
    compare(choices, picoseconds(problem, plan), None, seen)
    peak, least = footprint(problem, plan).peak_bytes, least_memory(choices, [decided])
    if (limit := (least.memory.peak_bytes + peak) // 2) < peak:
        search = WithinMemory(choices, limit)
        found = search.search(decided)
        assert found is not None
        assert search.is_proven
        compare(choices, picoseconds(problem, found.plan), limit, seen)
        near = WithinMemory(choices, limit, enough=NEAR)
        about = near.search(decided)
        assert about is not None
        assert about.memory.peak_bytes <= limit
        assert max(near.lower, (1 - NEAR) * about.cost) <= found.cost * (1 + 1e-9) <= about.cost * (1 + 2e-9)
        seen["near"] += near.lower < about.cost * (1 - 1e-9)
    if least.is_proven and least.memory.peak_bytes:
        with pytest.raises(Infeasible):
            by_integer_program(choices, least.memory.peak_bytes - 1)
        seen["refused"] += 1


def compare(choices: ChoiceNetwork, ours: int, limit: int | None, seen: Counter[str]) -> None:
    program = by_integer_program(choices, limit)
    assert abs(picoseconds(choices.problem, program.plan) - ours) <= TIE
    assert program.lower is None or ours - program.lower <= TIE
    seen["programs"] += 1
    try:
        other = fastest(choices, limit)
    except Unsolved:
        return
    assert other is not None
    assert abs(other - ours) <= TIE
    seen["free" if limit is None else "limited"] += 1


@pytest.mark.parametrize(
    ("count", "largest", "is_slow"),
    [
        (6, 3, False),
        (6, 3, True),
        pytest.param(100, 4, False, marks=pytest.mark.long),
        pytest.param(100, 4, True, marks=pytest.mark.long),
    ],
)
def test_other_solvers_find_what_ours_does(count: int, largest: int, is_slow: bool, tmp_path: Path):
    """On a machine on which it would be faster to cut nothing, and on one on which cuts pay."""
    meshes = st.sampled_from([(2,), (3,), (4,), (2, 2)])
    seen = run_programs(count, largest, written(tmp_path) if is_slow else "dgx-2", check, meshes)
    assert seen["free"] >= count // 2, seen
    assert seen["limited"] >= count // 6, seen
    assert seen["refused"], seen
