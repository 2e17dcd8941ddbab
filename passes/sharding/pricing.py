"""Prices of memory (Lagrangian relaxation). In go a relaxation and a limit; out come the prices that make its
fastest plan as slow as can be (the best lower bound) and, on the way, plans within the limit. Prices are found by
cutting planes (Kelley, 1960): each plan found bounds the bound from above as a linear function of the prices, and
the next prices maximise the least of these functions. Points are priced once a plan exceeds the limit there."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from operator import mul
from typing import TYPE_CHECKING, Any

from distir.passes.sharding.memory import Footprint, footprint
from distir.passes.sharding.plans import ShardingPlan
from distir.passes.sharding.relaxation import Relaxation
from distir.passes.solver.bounds import Bounds, minimum
from distir.passes.solver.deadline import NEVER, Deadline

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

POINTS_AT_ONCE = 2
"""How many of a plan's worst points are priced together."""
CONVERGED, CLOSING = 1e-4, 0.1
"""Prices are good enough when the bound is at most this share below what others could make it, and that is at most this share of
what lies between it and the best plan."""

EXACT = 1e-9
"""Costs that differ by a smaller share are equal: tables are floating."""
AT_MOST = 0.999
"""Prices are as high as they may be if they are this share of that."""
AT_FIRST, DEARER, MOST_DEAR = 0.25, 10.0, 1e4
"""The whole limit costs this share of the fastest plan's time at most, at first: the best prices are mostly less (GPT-3 on 1,024 H100: 0.02 to 0.2), and far higher ones tell little. While no
plan fits, and while it is these that keep the bound from getting better, they may grow by this factor, up to so many times that time."""


@dataclass
class Found:
    """A plan that some prices made the fastest."""

    choices: list[int]
    plan: ShardingPlan
    cost: float
    """Picoseconds, and what breaks ties."""
    memory: Footprint
    excess: list[float] = field(default_factory=list[float])
    """Per point, by which share of the limit it is exceeded."""


class Pricing:
    """The search for prices under one limit, in bytes."""

    def __init__(self, relaxation: Relaxation, limit: int, deadline: Deadline = NEVER, enough: float = EXACT):
        """A plan of which the bound is short by at most the share `enough` will do."""
        self.relaxation, self.limit, self._deadline, self.enough = relaxation, limit, deadline, enough
        self.every: list[Found] = []
        """All plans found."""
        self.found: list[Found] = []
        """Those whose choices are not ruled out."""
        self.best: Found | None = None
        """The fastest plan found within the limit."""
        self.lower = -inf
        """No plan within the limit costs less."""
        self.prices: list[float] = []
        """Those of this bound: picoseconds for the whole limit."""
        self.bounds: dict[int, Array] = {}
        """Of the choices that were left when some were ruled out the last time: no plan with it costs less."""
        self._most = AT_FIRST

    @property
    def deadline(self) -> Deadline:
        """The end of the search, which is earlier while it has no plan."""
        return self._deadline.without_plan if self.best is None else self._deadline

    def improve(self, rounds: int) -> bool:
        """Looks for better prices and plans, until the bounds meet or prices cannot get better. False if a relaxation could
        not be solved."""
        for _ in range(rounds):
            self.deadline.check()
            if self.is_enough:
                break
            prices, promised = self._next_prices() if self.found else (self.prices, inf)
            if promised - self.lower <= self._negligible:
                is_open = self.best is None or sum(prices) >= AT_MOST * self._most * abs(self.found[0].cost)
                if not is_open or self._most >= MOST_DEAR:
                    break
                self._most *= DEARER
            elif not self._solve(prices):
                return False
        return True

    @property
    def short(self) -> float:
        """By which share of the best plan's cost the bound is short of it; infinite without a plan."""
        return inf if self.best is None else (self.best.cost - self.lower) / (abs(self.best.cost) or 1.0)

    @property
    def is_closed(self) -> bool:
        """Whether the best plan found is proven to be one."""
        return self.short <= EXACT

    @property
    def is_enough(self) -> bool:
        """Whether no better plan need be sought."""
        return self.short <= self.enough

    @property
    def _negligible(self) -> float:
        """By how much better prices need not be sought."""
        if self.lower == -inf:
            return -inf
        small = CONVERGED * abs(self.lower)
        if self.best is None:
            return small
        return max(EXACT * abs(self.lower), min(small, CLOSING * (self.best.cost - self.lower)))

    def narrow(self, sweeps: int) -> None:
        """Rules out choices that no plan as fast as the best one makes; memory is counted anew where tables got smaller."""
        assert self.best is not None
        bounds = Bounds(self.relaxation.network([price / self.limit for price in self.prices]))
        bounds.improve(sweeps, self.deadline)
        self.lower = max(self.lower, bounds.lower - sum(self.prices))
        most = self.best.cost * (1 + EXACT) + sum(self.prices) * (1 + EXACT)
        chosen = {v: (bound <= most).nonzero()[0] for v, bound in bounds.with_choice.items()}
        self.bounds = {v: bound[chosen[v]] - sum(self.prices) for v, bound in bounds.with_choice.items()}
        self.relaxation.keep(chosen)
        self.weigh_again()

    @contextmanager
    def among(self, kept: Sequence[Array], prices: Sequence[float]) -> Generator[None]:
        """Looks for plans among these choices only; afterwards all is as it was, but for plans found."""
        every, lower, own = self.relaxation.kept, self.lower, self.prices
        self.enter(kept, -inf, prices)
        try:
            yield
        finally:
            self.enter(every, lower, own)

    def enter(self, kept: Sequence[Array], lower: float, prices: Sequence[float]) -> None:
        """Goes on among these choices, from a bound for them and the prices that gave it."""
        self.relaxation.restore(kept)
        self.lower, self.prices = lower, [*prices, *[0.0] * (len(self.relaxation.points) - len(prices))]
        self.found = self.every
        self.weigh_again()

    @property
    def nearest(self) -> tuple[list[int], list[int]]:
        """Of the plans found among the choices that are left, those that are the fastest at these prices: one that exceeds limits, weighed with
        their prices, and one that does not (the same if there is none)."""

        def excess(one: Found) -> float:
            return sum(map(mul, self.prices, one.excess))

        ordered = sorted(self.found or self.every, key=lambda one: one.cost + excess(one))
        above, below = (
            next((one for one in ordered if (excess(one) > 0) == is_above), ordered[0]) for is_above in (True, False)
        )
        return above.choices, below.choices

    def weigh_again(self) -> None:
        """After choices were ruled out: plans that make them do not count any more, and memory is counted as it is now."""
        self.found = [found for found in self.found if self.relaxation.has(found.choices)]
        for found in self.found:
            found.excess.clear()
        self._weigh()

    def _solve(self, prices: Sequence[float]) -> bool:
        network = self.relaxation.network([price / self.limit for price in prices])
        found = minimum(network.copy(), self.deadline)
        lower = network.cost(found.choices) if found.is_proven and found.choices is not None else found.lower
        if lower - sum(prices) > self.lower:
            self.lower, self.prices = lower - sum(prices), list(prices)
        if found.choices is not None:
            self.add(self.relaxation.original(found.choices))
        return found.is_proven

    def add(self, choices: list[int], memory: Footprint | None = None) -> Found:
        """Takes note of a plan, and of its memory if that is known; prices points at which it exceeds the limit."""
        plan = self.relaxation.choices.plan(choices)
        memory = footprint(self.relaxation.problem, plan, self.limit) if memory is None else memory
        found = Found(choices, plan, self.relaxation.cost(choices), memory)
        self.every.append(found)
        self.found.append(found)
        if memory.peak_bytes <= self.limit and (self.best is None or found.cost < self.best.cost):
            self.best = found
        for point in memory.worst(self.limit, POINTS_AT_ONCE):
            if point not in self.relaxation.points:
                self.relaxation.add_point(point)
                self.prices.append(0.0)
        self._weigh()
        return found

    def _weigh(self) -> None:
        for found in self.found:
            for number in range(len(found.excess), len(self.relaxation.points)):
                found.excess.append(self.relaxation.bytes_at(number, found.choices) / self.limit - 1)

    def _next_prices(self) -> tuple[list[float], float]:
        """The prices that maximise the bound as far as plans found so far tell, and that bound."""
        import pulp

        scale = abs(self.found[0].cost) or 1.0
        model = pulp.LpProblem("prices", pulp.LpMaximize)
        bound = model.add_variable("bound")
        prices = [model.add_variable(f"price{i}", 0) for i in range(len(self.relaxation.points))]
        model.setObjective(pulp.LpAffineExpression([(bound, 1.0)]))
        for one in self.found:
            terms = [(bound, 1.0), *((price, -excess) for price, excess in zip(prices, one.excess, strict=True))]
            model.addConstraint(
                pulp.LpConstraint(pulp.LpAffineExpression(terms), pulp.LpConstraintLE, rhs=one.cost / scale)
            )
        total = pulp.LpAffineExpression([(price, 1.0) for price in prices])
        model.addConstraint(pulp.LpConstraint(total, pulp.LpConstraintLE, rhs=self._most))
        model.solve(pulp.HiGHS(msg=False))
        return [max(0.0, p.value() or 0.0) * scale for p in prices], (bound.value() or 0.0) * scale
