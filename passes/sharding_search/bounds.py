"""The exact minimum of a network of tables that are too large to eliminate as they are.

Costs are moved between tables and variables, which changes no assignment's total, so that the sum of everything's own minimum
grows: a lower bound (sequential reweighted message passing; Kolmogorov, TPAMI 2015). What a choice costs beyond its variable's
minimum is then at least what choosing it adds. The cheapest assignment among the most promising choices, found by elimination,
is an upper bound; choices that add more than the distance between the bounds cannot be in a better one and are dropped, until
elimination finds the minimum of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from distir.passes.sharding_search.elimination import MOST_ENTRIES, Network, Table
from distir.passes.sharding_search.wide_tables import WideTable

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SMALL_TABLES = tuple(1 << n for n in (14, 15, 16, 18, 20, 22, 24, 24))
"""Up to which size of tables elimination goes in each round: between rounds, bounds make tables smaller."""
ROUNDING = 1e-9
"""A choice is dropped only if it is worse by more than this share of the total."""
SWEEPS = 12
"""Passes over the network, each forth and back, in a round."""
PROMISING = (4, 5, 6, 8)
"""How many choices of a variable are promising, round by round."""


def cheapest(network: Network, small_tables: Sequence[int] = SMALL_TABLES) -> list[int] | None:
    """The choice of every variable in a cheapest assignment; None if it was not found. The network is used up."""
    best: list[int] | None = None
    for i, entries in enumerate(small_tables):
        network.drop_dominated()
        if network.eliminate(entries):
            return network.decided()
        bounds = Bounds(network)
        for _ in range(SWEEPS):
            bounds.sweep()
        if bounds.lower == inf:
            return None
        restricted = network.copy()
        for v, bound in bounds.with_choice.items():
            restricted.keep(v, _least(bound, PROMISING[min(i, len(PROMISING) - 1)]))
        candidate = restricted.decided() if restricted.eliminate(MOST_ENTRIES) else None
        if candidate is not None and (best is None or network.cost(candidate) < network.cost(best)):
            best = candidate
        if best is not None:
            upper = network.cost(best)
            _keep_within(network, bounds, upper + ROUNDING * abs(upper))
    return None


def _least(bound: Array, count: int) -> Array:
    import numpy as np

    return np.sort(np.argsort(bound, kind="stable")[:count])


def _keep_within(network: Network, bounds: Bounds, upper: float) -> None:
    """Drops the choices with which every assignment costs more than this."""
    import numpy as np

    for v, bound in bounds.with_choice.items():
        network.keep(v, np.flatnonzero(bound <= upper))


class Bounds:
    """The costs of a network, moved around."""

    def __init__(self, network: Network):
        self._own = {v: network.own[v] for v in network.left}
        self._tables: list[_Dense | _Wide] = [_Dense(table) for table in network.tables]
        self._tables += [_Wide(table) for table in network.wide_tables]
        self._of: dict[int, list[tuple[int, int]]] = {v: [] for v in self._own}
        for t, table in enumerate(self._tables):
            for axis, v in enumerate(table.scope):
                self._of[v].append((t, axis))
        self._least = {v: float(own.min()) for v, own in self._own.items()}
        self.with_choice: dict[int, Array] = {}
        """Per variable and choice: no assignment with that choice costs less."""

    @property
    def lower(self) -> float:
        """No assignment costs less."""
        return sum(self._least.values()) + sum(table.minimum for table in self._tables)

    def sweep(self) -> None:
        """Moves costs towards later variables, then towards earlier ones."""
        for v in self._own:
            self._pass_on(v, max)
        for v in reversed(self._own):
            self.with_choice[v] = self._pass_on(v, min)

    def _pass_on(self, variable: int, end: Callable[[Sequence[int]], int]) -> Array:
        """Collects what all tables say about a variable, and gives it to those that go on towards the end. Returns the
        bound of each choice when all is collected."""
        import numpy as np

        own = self._own[variable]
        left: dict[tuple[int, int], Array] = {}
        for t, axis in self._of[variable]:
            table = self._tables[t]
            least = table.least(axis)
            taken = np.where(np.isfinite(least), least, 0.0)
            left[t, axis] = least - taken
            table.add(axis, -taken, left[t, axis])
            own = own + least[table.classes[axis]]
        self._least[variable] = 0.0
        bounds = own + self.lower
        onward = [(t, axis) for t, axis in self._of[variable] if end(self._tables[t].scope) != variable]
        share = 1.0 / max(len(onward), len(self._of[variable]) - len(onward), 1)
        for t, axis in onward:
            table = self._tables[t]
            classes = table.classes[axis]
            given = np.full(len(left[t, axis]), np.inf)
            np.minimum.at(given, classes, own * share)
            table.add(axis, given, left[t, axis] + given)
            own = own - np.where(np.isfinite(given), given, 0.0)[classes]
        self._own[variable], self._least[variable] = own, float(own.min())
        return bounds


class _Dense:
    """A table, and what was added to it."""

    def __init__(self, table: Table):
        self.scope, self.classes, self._costs = table.scope, table.classes, table.costs
        self.minimum = float(table.costs.min())

    def least(self, axis: int) -> Array:
        """Per class of one variable, the least cost with it."""
        return self._costs.min(axis=tuple(a for a in range(self._costs.ndim) if a != axis))

    def add(self, axis: int, costs: Array, least: Array) -> None:
        """Adds costs per class of one variable, with which these are least."""
        self._costs = self._costs + costs.reshape([-1 if a == axis else 1 for a in range(self._costs.ndim)])
        self.minimum = float(least.min())


class _Wide:
    """The same of a table that is not written down."""

    def __init__(self, table: WideTable):
        import numpy as np

        self.scope, self.classes, self._table = table.scope, table.classes, table
        self._added = [np.zeros(count) for count in table.shape]
        self.minimum = float(table.least(0, self._added).min())

    def least(self, axis: int) -> Array:
        return self._table.least(axis, self._added)

    def add(self, axis: int, costs: Array, least: Array) -> None:
        self._added[axis] = self._added[axis] + costs
        self.minimum = float(least.min())
