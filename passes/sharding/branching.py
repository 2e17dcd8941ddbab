"""Branch and bound over choices that memory depends on. In goes a search by prices with a plan within the limit; out
come a better plan, if there is one, and a bound of all plans.

Prices of memory give a bound as if plans could be mixed. A few large values (the logits of a loss, a table of embeddings) keep it away
from the optimum: half of a step of them fits, but no plan has half a step. So the choices of the variable on which memory
depends most are parted, into those that hold much and those that hold little, and each part is priced anew (branch and bound with
Lagrangian bounds; Geoffrion, 1974). The part with the least bound goes first; one whose bound is not below the best plan is done. Bounds
rule out choices in each part, and where few are left, an integer program ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any

from distir.passes.sharding.pricing import Pricing
from distir.passes.solver.deadline import OutOfTime

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

PARTS = 48
"""So many parts are made at most: mostly a few are enough, and where they are not, many would not be."""
PRICES = 6
"""Prices that are tried in each part."""
CROSSED = 1.5
"""Plans are crossed once there are so many times as many as the last time."""
SWEEPS = 10
"""Passes over the network for the bounds by which choices are ruled out there."""
WORTHWHILE = 0.8
"""Bounds are improved further while that leaves at most this share of the choices."""

APART = 4.0
"""By how much more a variable is worth parting that tells two plans apart of which the bound is a mixture."""


class Branching:
    """One search, from the choices that are left in `pricing`, which has a plan within the limit."""

    def __init__(self, pricing: Pricing, solve: Callable[[], bool], cross: Callable[[], None]):
        """`solve` ends a part if it is small enough, and says whether it did; `cross` looks for a better plan among the choices that
        plans found so far make."""
        self._pricing, self._solve, self._cross = pricing, solve, cross
        self._crossed = 0
        self._open: list[tuple[float, int, Sequence[Array], list[float]]] = []
        self._made = 0
        self._near = inf
        """The least bound of parts in which a better plan is not worth looking for."""

    def run(self) -> None:
        """Afterwards the pricing's bound is that of all plans."""
        pricing = self._pricing
        self._add(pricing.lower, pricing.relaxation.kept, pricing.prices)
        try:
            self._part()
        except OutOfTime:  # in the middle of the part that was entered last
            self._add(pricing.lower, pricing.relaxation.kept, pricing.prices)
        best = pricing.best
        assert best is not None
        pricing.lower = min([best.cost, self._near, *(lower for lower, *_ in self._open)])

    def _part(self) -> None:
        pricing = self._pricing
        while self._open and self._made < PARTS:
            pricing.deadline.check()
            if len(pricing.every) >= CROSSED * self._crossed:
                self._cross()
                self._crossed = len(pricing.every)
            lower, _, kept, prices = heappop(self._open)
            pricing.enter(kept, lower, prices)
            if not self._is_done():
                for part in self._parts():
                    self._add(pricing.lower, part, pricing.prices)

    def _add(self, lower: float, kept: Sequence[Array], prices: Sequence[float]) -> None:
        heappush(
            self._open, (lower, -self._made, kept, list(prices))
        )  # of equal bounds, the part made last: towards plans
        self._made += 1

    def _is_done(self) -> bool:
        """Whether no better plan is left in the part that was entered, or none that is worth looking for."""
        if self._narrow() or self._solve():
            return True
        self._pricing.improve(PRICES)
        return self._narrow() or self._solve()

    def _narrow(self) -> bool:
        pricing, left = self._pricing, inf
        while not pricing.is_enough and pricing.relaxation.size < WORTHWHILE * left:
            left = pricing.relaxation.size
            pricing.narrow(SWEEPS)
        if pricing.is_enough:
            self._near = min(self._near, pricing.lower)
        return pricing.is_enough

    def _parts(self) -> list[list[Array]]:
        """The choices that are left in two parts: those of a variable that hold much and those that hold little, where much memory lies
        between the most promising choice of each, and both are."""
        pricing, relaxation = self._pricing, self._pricing.relaxation
        assert pricing.best is not None
        above, below = pricing.nearest
        held = relaxation.memory_by_choice(pricing.prices, above)
        distance = pricing.best.cost - pricing.lower
        found, most = None, 0.0
        for v, sizes in held.items():
            is_little = sizes <= (sizes.min() + sizes.max()) / 2
            if is_little.all():
                continue
            bounds = pricing.bounds[v]
            little, much = (part.nonzero()[0][bounds[part].argmin()] for part in (is_little, ~is_little))
            worse = max(bounds[little], bounds[much]) - pricing.lower
            worth = float(sizes[much] - sizes[little]) * max(0.0, 1 - worse / distance)
            kept = relaxation.kept[v]
            if is_little[kept == above[v]].any() != is_little[kept == below[v]].any():
                worth *= APART
            if found is None or worth > most:
                found, most = (v, is_little), worth
        if found is None:  # memory depends on no choice
            v = max(held, key=lambda v: len(held[v]))
            found = v, held[v].argsort(kind="stable") < len(held[v]) // 2
        v, is_little = found
        parts: list[list[Array]] = []
        for is_part in (is_little, ~is_little):
            part = list(relaxation.kept)
            part[v] = relaxation.kept[v][is_part]
            parts.append(part)
        return parts
