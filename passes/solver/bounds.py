"""The exact minimum of a network whose tables are too large to eliminate as they are. In go a network and a
deadline; out come the cheapest assignment found and a lower bound.

Costs are moved between tables and variables, which changes no assignment's total, so that the sum of everything's own minimum
grows: a lower bound (sequential reweighted message passing; Kolmogorov, TPAMI 2015). What a choice costs beyond its variable's
minimum is then at least what choosing it adds. The cheapest assignment among the most promising choices, found by elimination,
is an upper bound; choices that add more than the distance between the bounds cannot be in a better one and are dropped, until
elimination finds the minimum of the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from distir.passes.solver.deadline import NEVER, Deadline, OutOfTime
from distir.passes.solver.elimination import MOST_ENTRIES, Network, Table
from distir.passes.solver.implicit_tables import ImplicitTable
from distir.passes.solver.sparse_elimination import cheapest_within
from distir.passes.solver.sparse_tables import TooManyRows

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SMALL_TABLES = 1 << 16
"""Up to which size of tables elimination goes at first: larger ones make each pass slower."""
TRIED_TABLES = 1 << 16
"""The same for promising choices."""
GROWTH = 4
"""By how much larger tables are made when bounds hardly get better."""
SWEEPS = 24
"""Passes over the network, each forth and back, between eliminations."""
ROUNDS = 80
"""After so many of these there is no answer."""
ROUNDING = 1e-9
"""A choice is dropped only if it is worse by more than this share of the total."""
DIVE, DIVE_SWEEPS = 0.5, 4
"""A dive leaves this share of the choices, and then makes so many passes, until elimination goes through."""
PROGRESS = 0.25
"""The share of the distance between the bounds, or of the choices left, that a round of passes should take away."""
WORTH_DIVING = 0.75
"""Another dive is worth while once at most this share of the choices is left."""
STANDING, IDLE = 1e-7, 2
"""The bound stands still if so many passes in a row, forth and back, raise it by at most this share of it each."""
MOMENTUM = 0.9
"""After each pass forth and back, costs are moved on by at most this share of what was moved in it."""
WORTH_FINISHING, MOST_ROWS = 0.8, 1 << 21
"""Sparse elimination is tried again once at most this share of the choices is left; its tables have at most so many rows."""
NEAR = 0.05
"""Nor before the bounds are so near to each other, as long as they come nearer: what is dropped by bounds that are far apart is little."""
GRAIN = 2.0**-10
"""What is moved are multiples of this: sums of picoseconds, or bytes, stay exact, and equal ones equal."""


@dataclass(frozen=True)
class Minimum:
    """What is known of the cheapest assignment of a network."""

    choices: list[int] | None
    """Of every variable, in the cheapest assignment that was found."""
    lower: float
    """No assignment costs less."""
    is_proven: bool
    """Whether none costs less than the one found."""


def cheapest(network: Network, smallest: int = SMALL_TABLES, largest: int = MOST_ENTRIES) -> list[int] | None:
    """The choice of every variable in a cheapest assignment; None if it was not found with tables of at most `largest` entries.
    The network is used up."""
    found = minimum(network, NEVER, smallest, largest)
    return found.choices if found.is_proven else None


def minimum(
    network: Network,
    deadline: Deadline,
    smallest: int = SMALL_TABLES,
    largest: int = MOST_ENTRIES,
    enough: float = ROUNDING,
) -> Minimum:
    """The same, and what is known if it was not found, or not in time, or if one was found that costs more than the bound by at most the share `enough`. The
    network is used up."""
    search = _Search(network, deadline)
    with suppress(OutOfTime):
        found = _minimised(search, smallest, largest, enough)
        if found is not None:
            return Minimum(found, -inf, True)
    return Minimum(search.best, search.lower, False)


def _minimised(search: _Search, smallest: int, largest: int, enough: float) -> list[int] | None:
    network, deadline = search.network, search.deadline
    entries, finished = smallest, inf
    network.merge_alike()
    network.drop_dominated(deadline)
    if network.eliminate(entries, is_dropping=False, deadline=search.deadline):
        return network.decided()
    is_stuck = False
    for _ in range(ROUNDS):
        if network.eliminate(entries, deadline=search.deadline):
            return network.decided()
        distance, size = search.distance, network.size
        if not search.improve(is_stuck):
            return None
        if search.is_closed:
            return search.best
        if search.best is not None and search.distance <= enough * abs(search.upper):
            return None
        is_near = entries >= largest or search.distance <= NEAR * abs(search.upper)
        if search.best is not None and is_near and network.size <= WORTH_FINISHING * finished:
            finished = network.size
            with suppress(TooManyRows):
                most = search.upper * (1 + ROUNDING)
                found = cheapest_within(network, most, MOST_ROWS, deadline=search.deadline)
                return search.best if found is None else found
        is_stuck = search.distance >= (1 - PROGRESS) * distance and network.size >= (1 - PROGRESS) * size
        if is_stuck:
            if entries >= largest:
                return None
            entries = min(largest, GROWTH * entries)
    return None


class _Search:
    """Bounds of one network from both sides."""

    def __init__(self, network: Network, deadline: Deadline):
        self.network = network
        self.best: list[int] | None = None
        self._deadline = deadline
        least = [
            network.settled,
            *(network.own[v].min() for v in network.left),
            *(table.costs.min() for table in network.tables),
        ]
        least += [table.paid.min() for table in network.implicit_tables]
        self._upper, self._lower = inf, float(sum(least))
        self._dived = 0

    @property
    def deadline(self) -> Deadline:
        return self._deadline.without_plan if self.best is None else self._deadline

    @property
    def lower(self) -> float:
        """No assignment costs less."""
        return self._lower

    @property
    def distance(self) -> float:
        """Between the bounds."""
        return self._upper - self._lower

    @property
    def upper(self) -> float:
        """The cost of the best assignment found."""
        return self._upper

    @property
    def is_closed(self) -> bool:
        return self.best is not None and self.distance <= ROUNDING * abs(self._upper)

    def improve(self, is_stuck: bool) -> bool:
        """Improves bounds and drops choices by them; False if no assignment is possible."""
        import numpy as np

        network = self.network
        bounds = Bounds(network)
        bounds.improve(SWEEPS, self.deadline)
        if bounds.lower == inf:
            return False
        bounds.write()
        self._lower = max(self._lower, bounds.lower + network.settled)
        if self.best is None or is_stuck or network.size < WORTH_DIVING * self._dived:
            self._dived = network.size
            self._dive(bounds.with_choice)
        most = self._upper - network.settled + ROUNDING * abs(self._upper) if self.best is not None else inf
        network.keep({v: ((b <= most) & np.isfinite(b)).nonzero()[0] for v, b in bounds.with_choice.items()})
        return True

    def _dive(self, with_choice: Mapping[int, Array]) -> None:
        """Looks for a better assignment: leaves the choices with the least bounds, finds bounds of these, and so on."""
        among, left = self.network.copy(), inf
        while True:
            kept = promising(with_choice, int(DIVE * among.size))
            if among.size == left:  # all have the same bound
                most = max(kept, key=lambda v: len(kept[v]))
                kept[most] = kept[most][:1]
            left = among.size
            among.keep(kept)
            if among.eliminate(TRIED_TABLES, is_dropping=False, deadline=self._deadline):
                break
            bounds = Bounds(among)
            bounds.improve(DIVE_SWEEPS, self._deadline)
            if bounds.lower + among.settled >= self._upper:
                return
            bounds.write()
            with_choice = bounds.with_choice
        found = among.decided()
        if found is not None:
            cost = self.network.cost(found) + self.network.settled
            if cost < self._upper:
                self.best, self._upper = found, cost


def promising(bounds: Mapping[int, Array], count: int) -> dict[int, Array]:
    """About as many choices, those with the least bounds, by position; of each variable at least one."""
    import numpy as np

    least = {v: bound.min() for v, bound in bounds.items()}
    every = np.concatenate([*bounds.values()])
    place = min(count, len(every)) - 1
    most = np.partition(every, place)[place]
    return {v: (bound <= max(most, least[v])).nonzero()[0] for v, bound in bounds.items()}


class Bounds:
    """The costs of a network, moved around."""

    def __init__(self, network: Network):
        self._network = network
        self._own = {v: network.own[v] for v in network.left}
        self._tables: list[_Dense | _Wide] = [_Dense(table) for table in network.tables]
        self._tables += [_Wide(table) for table in network.implicit_tables]
        self._of: dict[int, list[tuple[_Dense | _Wide, int]]] = {v: [] for v in self._own}
        for table in self._tables:
            for axis, v in enumerate(table.scope):
                self._of[v].append((table, axis))
        scopes = {v: [table.scope for table, _ in tables] for v, tables in self._of.items()}
        self._later = {v: [max(scope) != v for scope in found] for v, found in scopes.items()}
        self._earlier = {v: [min(scope) != v for scope in found] for v, found in scopes.items()}
        self._least = {v: float(own.min()) for v, own in self._own.items()}
        least = [*self._least.values(), *(table.minimum for table in self._tables)]
        self._total, self._is_impossible = sum(least), inf in least
        self.with_choice: dict[int, Array] = {}
        """Per variable and choice: no assignment with that choice costs less."""

    @property
    def lower(self) -> float:
        """No assignment costs less."""
        return inf if self._is_impossible else self._total

    def improve(self, sweeps: int, deadline: Deadline = NEVER) -> None:
        """Moves costs towards later variables, then towards earlier ones, so often; each time further in the direction in which they
        went, as long as that makes the bound better (Nesterov's extrapolation, restarted; O'Donoghue & Candes, 2015). Ends early once the
        bound stands still."""
        steps, best, idle = 0, -inf, 0
        for sweep in range(1, sweeps + 1):
            for v in self._own:
                deadline.check()
                self._pass_on(v, self._later[v])
            for v in reversed(self._own):
                deadline.check()
                self._pass_on(v, self._earlier[v])
            idle = 0 if self.lower - best > STANDING * abs(self.lower) else idle + 1
            steps = steps + 1 if self.lower > best else 0
            best = max(best, self.lower)
            if self._is_impossible or idle == IDLE:
                break
            if sweep < sweeps:
                self._extrapolate(min(steps / (steps + 3), MOMENTUM))

    def write(self) -> None:
        """Leaves the costs of the network where they were moved."""
        tables = [table.costs for table in self._tables if isinstance(table, _Dense)]
        self._network.reweigh(self._own, tables, [table.table for table in self._tables if isinstance(table, _Wide)])

    def _extrapolate(self, share: float) -> None:
        """Moves this share of what was moved since the last time, once more."""
        import numpy as np

        for v, tables in self._of.items():
            for table, axis in tables:
                further = np.floor((table.moved[axis] - table.before[axis]) * (share / GRAIN)) * GRAIN
                table.before[axis] = table.moved[axis]
                if share:
                    table.move(axis, further)
                    self._own[v] = self._own[v] - further[table.classes[axis]]

    def _pass_on(self, variable: int, onward: Sequence[bool]) -> None:
        """Collects what all tables say about a variable, and gives it to those that go on. The bound of each choice is known when
        all is collected."""
        import numpy as np

        tables = self._of[variable]
        found = [table.least(axis) for table, axis in tables]
        own = self._own[variable]
        for (table, axis), least in zip(tables, found, strict=True):
            own = own + least[table.classes[axis]]
        is_finite = own.max() < inf
        for (table, _), least in zip(tables, found, strict=True):
            self._settle(table, 0.0 if is_finite or least.min() < inf else inf)
        self._total -= self._least[variable]
        self._least[variable] = 0.0
        self.with_choice[variable] = own + self._total
        share = 1.0 / (GRAIN * max(sum(onward), len(tables) - sum(onward), 1))
        for (table, axis), least, goes_on in zip(tables, found, onward, strict=True):
            taken = least if is_finite else np.where(np.isfinite(least), least, 0.0)
            if not goes_on:
                table.move(axis, -taken)
                continue
            given = np.floor(table.gathered(axis, own) * share) * GRAIN
            table.move(axis, given - taken)
            if table.minimum < inf:
                self._settle(table, float(given.min()))
            own = own - (given if is_finite else np.where(np.isfinite(given), given, 0.0))[table.classes[axis]]
        self._own[variable] = own
        self._least[variable] = float(own.min())
        self._total += self._least[variable]
        self._is_impossible |= self._least[variable] == inf

    def _settle(self, table: _Dense | _Wide, minimum: float) -> None:
        """Takes note of a table's least cost."""
        self._total += minimum - table.minimum
        table.minimum = minimum
        self._is_impossible |= minimum == inf


class _Moved(ABC):
    """A table, and what was added to it."""

    def __init__(self, scope: tuple[int, ...], classes: tuple[Array, ...]):
        import numpy as np

        self.scope, self.classes = scope, classes
        self.minimum = 0.0
        self._sorted = [np.argsort(c, kind="stable") for c in classes]
        self._starts = [
            np.searchsorted(c[order], np.arange(c.max() + 1)) for c, order in zip(classes, self._sorted, strict=True)
        ]
        self.moved: list[Array] = [np.zeros(len(starts)) for starts in self._starts]
        """Per variable and class, what was added in all."""
        self.before = list(self.moved)
        """The same at an earlier time."""

    def gathered(self, axis: int, costs: Array) -> Array:
        """Per class of one variable, the least of these costs of its choices."""
        import numpy as np

        return np.minimum.reduceat(costs[self._sorted[axis]], self._starts[axis])

    def move(self, axis: int, costs: Array) -> None:
        """Adds costs per class of one variable."""
        import numpy as np

        self.moved[axis] = self.moved[axis] + np.where(np.isfinite(costs), costs, 0.0)
        self.add(axis, costs)

    @abstractmethod
    def add(self, axis: int, costs: Array) -> None:
        """The same, where costs are kept."""


class _Dense(_Moved):
    def __init__(self, table: Table):
        super().__init__(table.scope, table.classes)
        self.costs = table.costs
        self.minimum = float(table.costs.min())
        axes = range(table.costs.ndim)
        self._others = [tuple(other for other in axes if other != axis) for axis in axes]
        self._along = [tuple(-1 if other == axis else 1 for other in axes) for axis in axes]

    def least(self, axis: int) -> Array:
        """Per class of one variable, the least cost with it."""
        return self.costs.min(axis=self._others[axis])

    def add(self, axis: int, costs: Array) -> None:
        self.costs = self.costs + costs.reshape(self._along[axis])


class _Wide(_Moved):
    """One that is not written down."""

    def __init__(self, table: ImplicitTable):
        super().__init__(table.scope, table.classes)
        self.table = table
        self.minimum = float(table.least(0).min())

    def least(self, axis: int) -> Array:
        return self.table.least(axis)

    def add(self, axis: int, costs: Array) -> None:
        self.table = self.table.charge(axis, costs)
