"""The best plan, where plans must divide. In go a problem and whether its plan must divide; out come the best plan
and a note. The note names a faster plan that divides less, or says that a fastest plan was left because every device does everything in it."""

from __future__ import annotations

from contextlib import suppress

from distir.dialects.errors import DistirError
from distir.passes.sharding.division import divide
from distir.passes.sharding.plans import ShardingPlan
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.result import Result
from distir.passes.sharding.search import best_plan
from distir.passes.solver.deadline import Deadline

COMPARING_SECONDS = 5.0
"""For a plan that is only there to be compared with."""


def best_division(
    problem: Problem, memory_limit: int | None, deadline: Deadline, solver: str, divides: bool
) -> tuple[Result, str]:
    """The best plan, in which dividing counts first if it `divides`, or if the fastest plan cuts nothing; and a note, or nothing. Raises DistirError as
    `best_plan` does."""
    if not divides:
        fastest = best_plan(problem, memory_limit, deadline, solver)
        if problem.prices.mesh.devices == 1 or cuts(problem, fastest.plan):
            return fastest, ""
        with suppress(DistirError):
            found = best_plan(divide(problem), memory_limit, deadline, solver)
            if cuts(problem, found.plan):
                return found, (
                    f"the fastest plan ({_text(fastest)}) cuts nothing, so every device would do everything: this one divides, and "
                    f"takes {_text(found)}"
                )
        return fastest, ""
    found = best_plan(divide(problem), memory_limit, deadline, solver)
    with suppress(DistirError):
        fastest = best_plan(problem, memory_limit, Deadline.after(min(deadline.left, COMPARING_SECONDS)))
        if fastest.seconds < found.seconds * (1 - 1e-6):
            return found, f"a plan that divides less is faster: {_text(fastest)}, where this one takes {_text(found)}"
    return found, ""


def cuts(problem: Problem, plan: ShardingPlan) -> bool:
    """Whether some device does less than everything."""
    whole = problem.prices.whole
    return any(states != whole for option in plan.options.values() for states in (*option.operands, *option.results))


def _text(result: Result) -> str:
    return f"{result.seconds * 1e6:,.1f} us"
