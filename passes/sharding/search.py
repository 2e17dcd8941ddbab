"""Takes a problem, a limit of memory and a deadline; gives the best plan. Without regard to memory, elimination finds a fastest plan. If
that does not fit, one is searched within the limit (`within_memory`). Where tables grow too large for elimination, or if it is asked for, the
whole integer program is solved, again with a memory constraint at every program point at which a solution exceeds the limit, until none does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from distir.dialects.errors import DistirError
from distir.passes.sharding.beam import NoPlan
from distir.passes.sharding.beam_within import beam_plan
from distir.passes.sharding.choice_network import TIE_BREAK, ChoiceNetwork
from distir.passes.sharding.integer_program import Infeasible, IntegerProgram, Solution
from distir.passes.sharding.least_memory import Least, least_memory
from distir.passes.sharding.memory import Footprint, Point, footprint
from distir.passes.sharding.path_weights import Weights
from distir.passes.sharding.plans import ShardingPlan, cost, picoseconds
from distir.passes.sharding.problem import Problem, without_fine_pieces
from distir.passes.sharding.result import Result, result_of
from distir.passes.sharding.within_memory import WithinMemory
from distir.passes.solver.bounds import Minimum
from distir.passes.solver.deadline import NEVER, Deadline, OutOfTime

POINTS_AT_ONCE = 4
"""How many of a solution's worst points are constrained together."""
RESCUE = (1, 8)
"""The widths of the beams that look for a plan where none was found in time."""
ROUNDS = 60
"""After so many solutions the search gives up: in practice a few are enough."""
EXACT = 1e-9
"""A bound that is short by a smaller share is met: solvers' numbers are floating, a plan's time is not."""


class NothingFits(DistirError):
    """No plan fits a limit of memory."""

    def __init__(self, message: str, least_bytes: int):
        super().__init__(message)
        self.least_bytes = least_bytes
        """What the smallest plan that was found needs, per device."""


class NotInTime(DistirError):
    """A time limit is over before there is a plan."""

    def __init__(self, seconds: float, why: str, instead: str = ""):
        super().__init__(f"time-limit {seconds:g} s: {why}: allow more time{instead}")


class NotBuilt(NotInTime):
    """It is over before all plans can be compared."""


class TooSlow(DistirError):
    """No plan is as fast as asked for."""

    def __init__(self, least_seconds: float, cutoff: float):
        super().__init__(f"cutoff {cutoff:g} s: every plan takes at least {least_seconds:.6g} s")
        self.least_seconds = least_seconds


SOLVERS = ("own", "highs")
"""What finds the best plan: tables, prices and bounds of this package; or the whole integer program, by HiGHS."""


@dataclass
class Solved:
    """A plan that costs least, where costs add up; or the best that was found."""

    plan: ShardingPlan
    lower: float | None
    """Picoseconds that no plan costs less than; None: than this one."""
    memory: Footprint
    binding: Sequence[Point] = ()
    prices: Sequence[float] = ()


Cost = Callable[[ShardingPlan], float]
"""Picoseconds of a plan where costs add up."""


def best_plan(
    problem: Problem, memory_limit: int | None = None, deadline: Deadline = NEVER, solver: str = "own"
) -> Result:
    """The fastest plan within a limit of bytes per device; at the deadline the fastest that was found, with a bound of all others. Raises
    DistirError, with the smallest memory that any plan needs, if none fits; and if none was found in time."""
    if solver not in SOLVERS:
        raise DistirError(f"solver: expected one of {', '.join(SOLVERS)}, got '{solver}'")
    try:
        if problem.order is not None and problem.order.ranks > 1 and problem.division is None:
            from distir.passes.sharding.pipeline_search import PipelineSearch

            return PipelineSearch(problem, memory_limit, deadline, solver).result()
        return _best_of_one(problem, memory_limit, deadline, solver)
    except NotBuilt:
        if (found := _by_beams(problem, memory_limit, deadline)) is None:
            raise
        return replace(found, bound_seconds=0.0)


def _best_of_one(problem: Problem, memory_limit: int | None, deadline: Deadline, solver: str) -> Result:
    """The same where costs add up: of one stage, or by what devices are left with."""
    choices = choices_of(
        problem, deadline if problem.carried else deadline.without_plan
    )  # beams find plans of the others
    found = solve(choices, memory_limit, deadline, solver, lambda plan: cost(problem, plan), enough=problem.enough)
    bound = None if found.lower is None else _bound(problem, found.plan, found.lower)
    result = result_of(problem, found.plan, bound, found.memory, found.binding, found.prices)
    least = result.seconds if bound is None else bound
    check_cutoff(problem, least)
    return result


def least_cost(choices: ChoiceNetwork, found: Minimum) -> float:
    """Picoseconds that no plan costs less than, without what breaks ties."""
    lower = found.lower
    if found.is_proven and found.choices is not None:
        lower = choices.network.cost(found.choices)
    return lower - TIE_BREAK


def check_cutoff(problem: Problem, least_seconds: float) -> None:
    """Raises TooSlow if no plan is as fast as asked for."""
    if problem.division is None and least_seconds > problem.cutoff:
        raise TooSlow(least_seconds, problem.cutoff)


def _bound(problem: Problem, plan: ShardingPlan, lower: float) -> float:
    """Seconds of which a plan's are as much more as its cost is more than a lower bound of all costs."""
    ratio = max(0.0, lower) / (cost(problem, plan) or 1)
    return picoseconds(problem, plan) * 1e-12 * min(1.0, ratio)


def choices_of(problem: Problem, deadline: Deadline, weights: Weights | None = None) -> ChoiceNetwork:
    """The network of a problem. Raises DistirError if it is not built in time."""
    try:
        return ChoiceNetwork(problem, deadline, weights)
    except OutOfTime:
        raise NotBuilt(deadline.seconds, "the problem was not built in time") from None


def solve(
    choices: ChoiceNetwork,
    memory_limit: int | None,
    deadline: Deadline,
    solver: str,
    costing: Cost,
    is_first: bool = True,
    enough: float = EXACT,
    parts: int = 1,
    found: Minimum | None = None,
) -> Solved:
    """The plan that costs least within a limit, or one of which the bound is short by at most the share `enough`; costs are so many `parts` of a plan's
    time. `found` is the one that costs least of all, if it is known. Raises as `best_plan` does; and OutOfTime, if another plan is known, where the whole integer program would be needed."""
    problem = choices.problem
    if solver == "highs":
        return _whole(choices, memory_limit, deadline, 0.0, costing)
    if found is None:
        found = choices.minimum(deadline if memory_limit is None else deadline.without_plan)
    check_cutoff(problem, least_cost(choices, found) / parts * 1e-12)
    if found.choices is None:
        return _whole(choices, memory_limit, deadline, found.lower, costing, is_first)
    plan = choices.plan(found.choices)
    memory = footprint(problem, plan, memory_limit)
    if memory_limit is not None and memory.peak_bytes > memory_limit:
        lower = None if found.is_proven else found.lower
        return _within(choices, found.choices, memory, lower, memory_limit, deadline, costing, is_first, enough)
    known = Solved(plan, None if found.is_proven else max(0.0, found.lower), memory)
    is_near = found.lower >= (1 - enough) * choices.network.cost(found.choices)
    will_do = found.is_proven or is_near or problem.division is not None  # of plans that divide, one that divides well
    if will_do or not is_first or deadline.without_plan.is_over:
        return known
    return _whole(choices, memory_limit, deadline, found.lower, costing, known=known)


def _within(
    choices: ChoiceNetwork,
    fastest: list[int],
    memory: Footprint,
    lower: float | None,
    limit: int,
    deadline: Deadline,
    costing: Cost,
    is_first: bool,
    enough: float,
) -> Solved:
    """The fastest plan within a limit that the fastest one of all exceeds, or one that is about as fast, of which all cost at least `lower`."""
    search = WithinMemory(choices, limit, deadline, enough)
    found = search.search(fastest, memory, lower)
    points = search.relaxation.points
    if found is not None:
        lower = None if search.is_proven else costing(found.plan) * min(1.0, search.lower / found.cost)
        prices = [price * 1e-12 / limit for price in search.pricing.prices]
        return Solved(found.plan, lower, found.memory, points, prices)
    plans = [plan.choices for plan in search.pricing.found]
    if search.is_infeasible:
        raise _too_little(choices, limit, plans, search.least, deadline)
    try:
        return _whole(choices, limit, deadline, search.lower, costing, is_first, starts=plans)
    except Infeasible:
        raise _too_little(choices, limit, plans, search.least, deadline) from None


def _whole(
    choices: ChoiceNetwork,
    limit: int | None,
    deadline: Deadline,
    lower: float,
    costing: Cost,
    is_first: bool = True,
    known: Solved | None = None,
    starts: Sequence[Sequence[int]] = (),
) -> Solved:
    """The best plan by the whole integer program; if it has none in time, the one known, that of a beam, or one that needs little memory, sought
    from `starts`. Raises OutOfTime if it is not the first that is sought."""
    if not is_first:
        raise OutOfTime
    with suppress(OutOfTime):
        solved = by_integer_program(choices, limit, deadline.without_plan, costing)
        return solved if known is None or costing(solved.plan) <= costing(known.plan) else known
    if known is not None:
        return known
    found = _by_beams(choices.problem, limit, deadline)
    starts, needed = [*starts, *filter(None, (choices.replicated(),))], ""
    if found is None and starts:
        rest = Deadline.after(deadline.left)
        least = least_memory(choices, starts, sys.maxsize if limit is None else limit, rest)
        if limit is None or least.memory.peak_bytes <= limit:
            return Solved(least.plan, max(0.0, lower), least.memory)
        needed = f", the smallest needs {least.memory.peak_bytes} bytes per device"
    if found is None:
        within = "" if limit is None else f" within {limit} bytes"
        raise NotInTime(
            deadline.seconds, f"no plan{within} was found in time{needed}", "" if limit is None else " or memory"
        )
    return Solved(found.plan, max(0.0, lower), found.memory)


def _by_beams(problem: Problem, limit: int | None, deadline: Deadline) -> Result | None:
    """A plan that is found soon, if there is one; without fine pieces where a beam ends in them."""
    found: Result | None = None
    with suppress(OutOfTime):
        for width in RESCUE:
            for each in (problem, without_fine_pieces(problem)):
                with suppress(NoPlan):
                    result = beam_plan(each, width, limit, deadline)
                    found = min(filter(None, (found, result)), key=lambda one: cost(problem, one.plan))
                    break
    return found


def by_integer_program(
    choices: ChoiceNetwork, memory_limit: int | None, deadline: Deadline = NEVER, costing: Cost | None = None
) -> Solved:
    """The same by the whole integer program alone. Raises Infeasible if no plan fits, OutOfTime if none was found in time."""
    problem = choices.problem
    program = IntegerProgram(choices, deadline)
    constrained: list[Point] = []
    for _ in range(ROUNDS):
        solution, plan, memory = solved_within(program, memory_limit, constrained)
        if plan is not None:
            total = cost(problem, plan) if costing is None else costing(plan)
            proven = min(1.0, solution.lower / solution.cost) if solution.cost > 0 else 1.0
            return Solved(plan, None if proven > 1 - EXACT else total * proven, memory, constrained)
    raise DistirError(f"no plan within {memory_limit} bytes was found in {ROUNDS} rounds: raise memory-limit")


def solved_within(
    program: IntegerProgram, memory_limit: int | None, constrained: list[Point]
) -> tuple[Solution, ShardingPlan | None, Footprint]:
    """A solution of the program, and its plan if that is within the limit; otherwise the points at which it is not are constrained from now on."""
    try:
        solution = program.solve()
    except Infeasible as error:
        if memory_limit is None:
            raise error from None
        raise Infeasible(
            f"memory-limit {memory_limit} bytes: no sharding fits: raise memory-limit, or use more devices"
        ) from None
    plan = program.choices.plan(solution.choices)
    memory = footprint(program.choices.problem, plan, memory_limit)
    if memory_limit is None or memory.peak_bytes <= memory_limit:
        return solution, plan, memory
    points = [p for p in memory.worst(memory_limit, POINTS_AT_ONCE) if p not in constrained]
    for point in points:
        program.limit(point, memory_limit)
    if not points:  # by less than the solver sees
        program.forbid(solution.choices)
    constrained += points
    return solution, None, memory


def _too_little(
    choices: ChoiceNetwork, limit: int, plans: Sequence[Sequence[int]], known: Least | None, deadline: Deadline
) -> DistirError:
    least = least_memory(choices, plans, 0, deadline) if known is None else known
    found = least.memory
    (point,) = found.worst(-1, 1)
    holder = point.operation.parent_op()
    where = f"@{holder.sym_name.data}" if hasattr(holder, "sym_name") else "the program"  # pyright: ignore
    largest = found.live_at_peak()[0]
    smallest = "the smallest that one needs is" if least.is_proven else "the smallest that one was found to need is"
    return NothingFits(
        f"memory-limit {limit} bytes: no sharding fits; {smallest} {found.peak_bytes} bytes per device, at "
        f"{point.operation.name} in {where}, where the largest value held is a {largest.what.type} of {largest.bytes} bytes here: "
        "raise memory-limit, use more devices or a smaller batch",
        found.peak_bytes,
    )
