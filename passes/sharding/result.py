"""The result of a search. In go a plan and a bound of all others; out come its time, its memory, and how far from optimal it may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from distir.passes.sharding.makespan import makespan_seconds, most_waited_seconds
from distir.passes.sharding.memory import Footprint, Point
from distir.passes.sharding.plans import ShardingPlan, picoseconds
from distir.passes.sharding.problem import Problem


@dataclass
class Result:
    """What a search found."""

    plan: ShardingPlan
    seconds: float
    """The time of one run, as the simulator has it."""
    bound_seconds: float
    """No plan is faster."""
    memory: Footprint
    binding: list[Point] = field(default_factory=list[Point])
    """The points at which memory was constrained."""
    prices: list[float] = field(default_factory=list[float])
    """Of a byte at each of them, in seconds: about what one more would save."""

    @property
    def gap(self) -> float:
        """The part of the time that is not proven necessary; 0 is optimal."""
        return max(0.0, 1.0 - self.bound_seconds / self.seconds) if self.seconds > 0 else 0.0


def result_of(
    problem: Problem,
    plan: ShardingPlan,
    bound_seconds: float | None,
    memory: Footprint,
    binding: Sequence[Point] = (),
    prices: Sequence[float] = (),
) -> Result:
    """The result of a plan, where no plan's prices add up to less than `bound_seconds` (None: than this one's)."""
    total = picoseconds(problem, plan) * 1e-12
    seconds = makespan_seconds(problem, plan, total)
    least = total if bound_seconds is None else bound_seconds
    bound = max(0.0, min(seconds, least - most_waited_seconds(problem)))
    return Result(plan, seconds, bound, memory, list(binding), list(prices))
