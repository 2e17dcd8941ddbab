"""Sparse cost functions: tables with only the combinations within a bound. In go tables and the bound; out come
their joins, filters and projections for `sparse_elimination`, as in a relational database whose rows have a cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from distir.passes.solver.elimination import Table
from distir.passes.solver.implicit_tables import ImplicitTable

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

LARGEST_KEY = 1 << 62
"""Combinations are numbered up to this."""
COMPARED = 6
"""With so many predecessors a row is compared."""
AT_ONCE = 1 << 20
"""Rows that are extended together."""


class TooManyRows(Exception):
    """More combinations matter than may be written down."""


@dataclass(frozen=True)
class SparseTable:
    """Costs of some combinations of classes of choices; all others are out."""

    scope: tuple[int, ...]
    classes: tuple[Array, ...]
    """For each variable of the scope, the class of each of its choices."""
    rows: tuple[Array, ...]
    """For each variable of the scope, its class in each combination."""
    costs: Array
    amounts: Array
    """[resource, row]: what each combination takes of resources that are limited."""
    numbers: Mapping[int, Array]
    """Of what tables this one was joined from: which row of each."""

    @staticmethod
    def of(table: Table, most: float, resources: int = 0) -> SparseTable:
        """The combinations of a table that cost at most so much."""
        rows = (table.costs <= most).nonzero()
        return SparseTable.made(table.scope, table.classes, rows, table.costs[rows], resources)

    @staticmethod
    def made(
        scope: tuple[int, ...], classes: tuple[Array, ...], rows: tuple[Array, ...], costs: Array, resources: int
    ) -> SparseTable:
        """A table that takes of no resource."""
        import numpy as np

        return SparseTable(scope, classes, rows, costs, np.zeros((resources, len(costs))), {})

    def named(self, number: int) -> SparseTable:
        """The same, as the table with this number: its rows are numbered as they are now."""
        import numpy as np

        return replace(self, numbers={number: np.arange(len(self.costs), dtype=np.int32)})

    @staticmethod
    def of_wide(table: ImplicitTable, most: float, most_rows: int, resources: int = 0) -> SparseTable:
        """The same of a table that is not written down. Raises TooManyRows.

        Uses are added one by one. What those that are missing take at least is known exactly for each source and set of open states: each of
        them takes an open state or one of its own, or several share one. So every row on the way is part of one of the end."""
        import numpy as np

        source = (table.paid < np.inf).nonzero()
        opening, states = table.opening[source], table.opening.shape[-1]
        costs, rows = table.paid[source], tuple(part.astype(np.int32) for part in source)
        at_state = np.full((len(table.needs), states), np.inf)
        for spread, need, own in zip(at_state, table.needs, table.added, strict=True):
            spread[need] = own
        alone = (opening[:, None, :] + at_state[None]).min(axis=2)
        is_open = np.zeros((len(costs), states), dtype=bool)
        origin = np.arange(len(costs))
        groups = _group_costs(opening, at_state)
        for use, need in enumerate(table.needs):
            found: list[tuple[Array, Array, Array, Array]] = []
            step = max(1, AT_ONCE // max(1, len(need)))
            for start in range(0, max(1, len(costs)), step):
                part = slice(start, start + step)
                price = np.where(is_open[part][:, need], 0.0, opening[origin[part]][:, need])
                total = costs[part, None] + price + table.added[use]
                later = [np.minimum(alone[part, None, i], at_state[i, need]) for i in range(use + 1, len(table.needs))]
                least = total + _completion(later, groups, use + 1, origin[part])
                row, taken = (least <= most).nonzero()
                found.append((row + start, taken, total[row, taken], need[taken]))
            kept, taken, costs, state = (np.concatenate(parts) for parts in zip(*found, strict=True))
            if len(costs) > most_rows:
                raise TooManyRows
            origin, is_open = origin[kept], is_open[kept]
            is_open[np.arange(len(kept)), state] = True
            alone = np.minimum(alone[kept], at_state[:, state].T)
            rows = (*(part[kept] for part in rows), taken.astype(np.int32))
        return SparseTable.made(table.scope, table.classes, rows, costs, resources)

    @cached_property
    def least(self) -> tuple[Array, ...]:
        """Per variable and choice, the least cost with it."""
        import numpy as np

        found: list[Array] = []
        for classes, row in zip(self.classes, self.rows, strict=True):
            least = np.full(int(classes.max()) + 2, np.inf)  # the last is of choices that are in no row, of class -1
            np.minimum.at(least, row.astype(np.intp), self.costs)
            found.append(least[classes])
        return tuple(found)

    def among(self, left: Mapping[int, Array]) -> SparseTable:
        """The combinations of choices that are left (per variable and choice, whether it is)."""
        import numpy as np

        is_left = np.ones(len(self.costs), dtype=bool)
        for v, classes, row in zip(self.scope, self.classes, self.rows, strict=True):
            has_choice = np.zeros(int(classes.max()) + 2, dtype=bool)
            has_choice[classes[left[v]]] = True
            if not has_choice[:-1].all():
                is_left &= has_choice[row]
        return self if is_left.all() else self.take(is_left)

    def take(self, which: Array) -> SparseTable:
        """Some of the rows."""
        return replace(
            self,
            rows=tuple(row[which] for row in self.rows),
            costs=self.costs[which],
            amounts=self.amounts[:, which],
            numbers={t: rows[which] for t, rows in self.numbers.items()},
        )

    def joined(self, other: SparseTable, left: Mapping[int, Array], most: float, most_rows: int) -> SparseTable:
        """The sums of both tables for all combinations that go together and cost at most so much. Raises TooManyRows before there are
        too many."""
        import numpy as np

        here, shared = self, [v for v in self.scope if v in other.scope]
        class_there: dict[int, Array] = {}
        for v in shared:
            here, class_there[v] = here._refined(v, other.classes[other.scope.index(v)], left[v], most_rows)
        matched = [(class_there[v][here.rows[here.scope.index(v)]], other.rows[other.scope.index(v)]) for v in shared]
        mine, theirs = _numbered(matched, len(here.costs), len(other.costs))
        order = np.lexsort((other.costs, theirs))
        theirs, costs = theirs[order], other.costs[order]
        starts = np.searchsorted(theirs, np.arange(int(max(mine.max(initial=-1), theirs.max(initial=-1))) + 2))
        ranks = np.searchsorted(np.sort(costs), costs)  # so that two numbers are ordered as one
        room = np.searchsorted(np.sort(costs), most - here.costs, side="right")
        joint = theirs * (len(costs) + 1) + ranks
        first = starts[mine]
        counts = np.maximum(np.searchsorted(joint, mine * (len(costs) + 1) + room) - first, 0)
        if counts.sum() > most_rows:
            raise TooManyRows
        repeated, offsets = _expanded(counts)
        there = order[first[repeated] + offsets]
        new = [i for i, v in enumerate(other.scope) if v not in shared]
        mine_too, theirs_too = here.take(repeated), other.take(there)
        return SparseTable(
            (*here.scope, *(other.scope[i] for i in new)),
            (*here.classes, *(other.classes[i] for i in new)),
            (*mine_too.rows, *(theirs_too.rows[i] for i in new)),
            mine_too.costs + theirs_too.costs,
            mine_too.amounts + theirs_too.amounts,
            {**mine_too.numbers, **theirs_too.numbers},
        )

    def _refined(self, variable: int, other: Array, left: Array, most_rows: int) -> tuple[SparseTable, Array]:
        """The table with classes of a variable that are not split by other classes; of each new class, the other one."""
        import numpy as np

        axis = self.scope.index(variable)
        own, count = self.classes[axis], int(other.max()) + 1
        joint = own.astype(np.int64) * count + other
        pairs = np.unique(joint[left])
        classes = np.minimum(np.searchsorted(pairs, joint), len(pairs) - 1)
        starts = np.searchsorted(pairs // count, np.arange(int(own.max()) + 2))
        row = self.rows[axis]
        counts = (starts[1:] - starts[:-1])[row]
        if counts.sum() > 8 * most_rows:
            raise TooManyRows
        repeated, offsets = _expanded(counts)
        more = self.take(repeated)
        rows = [*more.rows]
        rows[axis] = (starts[row][repeated] + offsets).astype(np.int32)
        all_classes = (*self.classes[:axis], classes, *self.classes[axis + 1 :])
        return replace(more, classes=all_classes, rows=tuple(rows)), pairs % count

    def best_without(self, variable: int, prices: Sequence[float]) -> Array:
        """The rows that are best for their combination of the other variables: those for which none is known that costs no more and takes no
        more of any resource. Costs have these prices of resources in them."""
        import numpy as np

        rest = [row for v, row in zip(self.scope, self.rows, strict=True) if v != variable]
        (number,) = _numbered([(row,) for row in rest], len(self.costs))
        costs = self.costs
        for price, amounts in zip(prices, self.amounts, strict=True):
            costs = costs - price * amounts
        order = np.lexsort((*self.amounts, costs, number))
        is_first = np.diff(number[order], prepend=-1) != 0
        if not len(self.amounts):
            return order[is_first]
        return order[_not_beaten(self.amounts[:, order], is_first)]

    def over(self, rest: Sequence[int]) -> SparseTable:
        """The rows as they are, without other variables than these."""
        axes = [self.scope.index(v) for v in rest]
        return replace(
            self,
            scope=tuple(rest),
            classes=tuple(self.classes[i] for i in axes),
            rows=tuple(self.rows[i] for i in axes),
        )


def _not_beaten(amounts: Array, is_first: Array) -> Array:
    """Of rows in groups, the cheapest of each first: those that are not known to be beaten by an earlier one of their group that takes no more of
    anything. Each is compared with its predecessors, and with those of all earlier ones that take least of each and of all."""
    import numpy as np

    positions = np.arange(len(is_first))
    start = np.maximum.accumulate(np.where(is_first, positions, 0))
    group = np.cumsum(is_first)
    witnesses = [np.maximum(positions - lag, start) for lag in range(1, COMPARED + 1)]
    for sizes in (*amounts, amounts.sum(axis=0)):
        apart = sizes - group * (sizes.max(initial=0.0) + 1.0)
        least = np.minimum.accumulate(apart)
        holder = np.maximum.accumulate(np.where(apart == least, positions, 0))
        witnesses.append(np.maximum(np.concatenate([[0], holder[:-1]]), start))
    is_beaten = np.zeros(len(is_first), dtype=bool)
    for witness in witnesses:
        is_beaten |= (amounts[:, witness] <= amounts).all(axis=0) & (witness < positions)
    return np.flatnonzero(~is_beaten)


def _group_costs(opening: Array, at_state: Array) -> dict[int, Array]:
    """For each set of at least two uses (bit i: whether use i is in it), per source what it takes if they share one state."""
    sets = (s for s in range(1 << len(at_state)) if s.bit_count() > 1)
    return {
        s: (opening + at_state[[i for i in range(len(at_state)) if s >> i & 1]].sum(axis=0)).min(axis=-1) for s in sets
    }


def _completion(alone: Sequence[Array], groups: Mapping[int, Array], first: int, origin: Array) -> Array | float:
    """What uses from `first` on take at least, if each takes `alone` so much by itself or in a state that is open."""
    import numpy as np

    best: list[Array | float] = [0.0]
    for members in range(1, 1 << len(alone)):
        lowest = members & -members
        least = alone[lowest.bit_length() - 1] + best[members ^ lowest]
        part = members
        while part:
            if part & lowest and part != lowest:
                least = np.minimum(least, groups[part << first][origin][:, None] + best[members ^ part])
            part = (part - 1) & members
        best.append(least)
    return best[-1]


def _expanded(counts: Array) -> tuple[Array, Array]:
    """Each position as often as it counts, and how many of it came before."""
    import numpy as np

    repeated = np.repeat(np.arange(len(counts)), counts)
    return repeated, np.arange(len(repeated)) - np.repeat(np.cumsum(counts) - counts, counts)


def _numbered(columns: Sequence[Sequence[Array]], *lengths: int) -> list[Array]:
    """One number per combination, the same in all tables; `columns` are per variable its rows in each table."""
    import numpy as np

    numbers, size = [np.zeros(length, dtype=np.int64) for length in lengths], 1
    for column in columns:
        extent = 1 + max(int(rows.max(initial=0)) for rows in column)
        if size * extent > LARGEST_KEY:
            _, all_numbers = np.unique(np.concatenate(numbers), return_inverse=True)
            numbers = np.split(all_numbers.reshape(-1), np.cumsum(lengths)[:-1])
            size = 1 + max(int(part.max(initial=0)) for part in numbers)
        numbers = [number * extent + rows for number, rows in zip(numbers, column, strict=True)]
        size *= extent
    _, all_numbers = np.unique(np.concatenate(numbers), return_inverse=True)
    return np.split(all_numbers.reshape(-1), np.cumsum(lengths)[:-1])
