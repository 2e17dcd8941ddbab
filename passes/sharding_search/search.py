"""A search from options to a plan. Without regard to memory, elimination finds a fastest plan. If that does not fit, one is
searched within the limit (`within_memory`). Where tables grow too large for elimination, the whole integer program is solved,
again with a memory constraint at every program point at which a solution exceeds the limit, until none does. Points that no
solution exceeds are never constrained."""

from __future__ import annotations

from collections.abc import Sequence

from distir.dialects.errors import DistirError
from distir.passes.sharding_search.beam import NoPlan
from distir.passes.sharding_search.beam_within import beam_plan
from distir.passes.sharding_search.choice_network import ChoiceNetwork
from distir.passes.sharding_search.integer_program import Infeasible, IntegerProgram, Solution
from distir.passes.sharding_search.least_memory import Least, least_memory
from distir.passes.sharding_search.memory import Footprint, Point, footprint
from distir.passes.sharding_search.memory_rows import MemoryRows
from distir.passes.sharding_search.plans import picoseconds
from distir.passes.sharding_search.problem import Problem
from distir.passes.sharding_search.result import Result, result_of
from distir.passes.sharding_search.within_memory import WithinMemory

POINTS_AT_ONCE = 4
"""How many of a solution's worst points are constrained together."""
RESCUE = 8
"""The width of the beam that looks for a plan where none was found in time."""
ROUNDS = 60
"""After so many solutions the search gives up: in practice a few are enough."""


def best_plan(problem: Problem, memory_limit: int | None = None, seconds_limit: float | None = None) -> Result:
    """The fastest plan within a limit of bytes per device. Raises DistirError, with the smallest memory that any plan
    needs, if none is."""
    choices = ChoiceNetwork(problem)
    fastest = choices.fastest()
    if fastest is not None:
        plan = choices.plan(fastest)
        memory = footprint(problem, plan)
        if memory_limit is None or memory.peak_bytes <= memory_limit:
            return result_of(problem, plan, None, memory)
        search = WithinMemory(choices, memory_limit, seconds_limit)
        found = search.search(fastest)
        points = search.relaxation.points
        if found is not None:
            seconds = picoseconds(problem, found.plan) * 1e-12
            proven = min(1.0, search.lower / found.cost)
            bound = seconds if search.is_proven else seconds * proven
            prices = [price * 1e-12 / memory_limit for price in search.pricing.prices]
            return result_of(problem, found.plan, bound, found.memory, points, prices)
        plans = [plan.choices for plan in search.pricing.found]
        if search.is_infeasible:
            raise _too_little(choices, memory_limit, plans, search.least)
        if seconds_limit is not None and (rescue := _by_beam(problem, memory_limit)) is not None:
            return result_of(problem, rescue.plan, search.lower * 1e-12, rescue.memory, points)
        try:
            return by_integer_program(problem, memory_limit, seconds_limit)
        except Infeasible:
            raise _too_little(choices, memory_limit, plans, search.least) from None
    return by_integer_program(problem, memory_limit, seconds_limit)


def _by_beam(problem: Problem, memory_limit: int) -> Result | None:
    """What a beam finds, if it finds anything: where time is short, a plan of unknown distance to the best is better than none."""
    try:
        return beam_plan(problem, RESCUE, memory_limit)
    except NoPlan:
        return None


def by_integer_program(problem: Problem, memory_limit: int | None, seconds_limit: float | None = None) -> Result:
    """The same by the whole integer program alone."""
    program = IntegerProgram(problem)
    rows = MemoryRows(program)
    constrained: list[Point] = []
    for _ in range(ROUNDS):
        try:
            solution = program.solve(seconds_limit)
        except Infeasible as error:
            if memory_limit is None:
                raise error from None
            raise Infeasible(
                f"memory-limit {memory_limit} bytes: no sharding fits: raise memory-limit, or use more devices"
            ) from None
        found = footprint(problem, solution.plan)
        if memory_limit is None or found.peak_bytes <= memory_limit:
            return _result(problem, solution, found, constrained)
        points = _new_points(found, memory_limit, constrained)
        for point in points:
            program.row([(x, weight / memory_limit) for x, weight in rows.terms(point)], "<=", 1.0)
        constrained += points
    raise DistirError(f"no plan within {memory_limit} bytes was found in {ROUNDS} rounds: raise memory-limit")


def _new_points(found: Footprint, limit: int, constrained: Sequence[Point]) -> list[Point]:
    points = [p for p in found.worst(limit, POINTS_AT_ONCE) if p not in constrained]
    if not points:
        raise AssertionError("a memory row holds less than the program does")
    return points


def _result(problem: Problem, solution: Solution, found: Footprint, constrained: list[Point]) -> Result:
    seconds = picoseconds(problem, solution.plan) * 1e-12
    proven = 1.0 if solution.seconds == 0 else min(1.0, solution.bound_seconds / solution.seconds)
    if proven > 1 - 1e-9:
        proven = 1.0  # the solver's numbers are floating, the plan's time is not
    return result_of(problem, solution.plan, seconds * proven, found, constrained)


def _too_little(choices: ChoiceNetwork, limit: int, plans: Sequence[Sequence[int]], known: Least | None) -> DistirError:
    least = least_memory(choices, plans) if known is None else known
    found = least.memory
    (point,) = found.worst(-1, 1)
    holder = point.operation.parent_op()
    where = f"@{holder.sym_name.data}" if hasattr(holder, "sym_name") else "the program"  # pyright: ignore
    largest = found.live_at_peak()[0]
    smallest = "the smallest that one needs is" if least.is_proven else "the smallest that one was found to need is"
    return DistirError(
        f"memory-limit {limit} bytes: no sharding fits; {smallest} {found.peak_bytes} bytes per device, at "
        f"{point.operation.name} in {where}, where the largest value held is a {largest.what.type} of {largest.bytes} bytes here: "
        "raise memory-limit, use more devices or a smaller batch"
    )
