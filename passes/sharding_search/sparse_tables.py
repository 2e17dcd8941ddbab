"""Tables of which only the combinations that matter are written down: those that can be part of an assignment within a bound. What
`sparse_elimination` joins, filters and projects, as relations of a database whose rows have a cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from distir.passes.sharding_search.elimination import Table
from distir.passes.sharding_search.wide_tables import WideTable

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

LARGEST_KEY = 1 << 62
"""Combinations are numbered up to this."""
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

    @staticmethod
    def of(table: Table, most: float) -> SparseTable:
        """The combinations of a table that cost at most so much."""
        rows = (table.costs <= most).nonzero()
        return SparseTable(table.scope, table.classes, rows, table.costs[rows])

    @staticmethod
    def of_wide(table: WideTable, most: float, most_rows: int) -> SparseTable:
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
        return SparseTable(table.scope, table.classes, rows, costs)

    @cached_property
    def least(self) -> tuple[Array, ...]:
        """Per variable and choice, the least cost with it."""
        import numpy as np

        found: list[Array] = []
        for classes, row in zip(self.classes, self.rows, strict=True):
            least = np.full(int(classes.max()) + 1, np.inf)
            np.minimum.at(least, row.astype(np.intp), self.costs)
            found.append(least[classes])
        return tuple(found)

    def among(self, left: Mapping[int, Array]) -> SparseTable:
        """The combinations of choices that are left (per variable and choice, whether it is)."""
        import numpy as np

        is_left = np.ones(len(self.costs), dtype=bool)
        for v, classes, row in zip(self.scope, self.classes, self.rows, strict=True):
            has_choice = np.zeros(int(classes.max()) + 1, dtype=bool)
            has_choice[classes[left[v]]] = True
            if not has_choice.all():
                is_left &= has_choice[row]
        return self if is_left.all() else self.take(is_left)

    def take(self, which: Array) -> SparseTable:
        return SparseTable(self.scope, self.classes, tuple(row[which] for row in self.rows), self.costs[which])

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
        return SparseTable(
            (*here.scope, *(other.scope[i] for i in new)),
            (*here.classes, *(other.classes[i] for i in new)),
            (*(row[repeated] for row in here.rows), *(other.rows[i][there] for i in new)),
            here.costs[repeated] + other.costs[there],
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
        rows = [part[repeated] for part in self.rows]
        rows[axis] = (starts[row][repeated] + offsets).astype(np.int32)
        all_classes = (*self.classes[:axis], classes, *self.classes[axis + 1 :])
        return SparseTable(self.scope, all_classes, tuple(rows), self.costs[repeated]), pairs % count

    def without(self, variable: int) -> SparseTable:
        """The least cost of each combination of the others."""
        import numpy as np

        rest = [i for i, v in enumerate(self.scope) if v != variable]
        (number,) = _numbered([(self.rows[i],) for i in rest], len(self.costs))
        order = np.lexsort((self.costs, number))
        ordered = number[order]
        first = order[np.flatnonzero(np.diff(ordered, prepend=-1))]
        return SparseTable(
            tuple(self.scope[i] for i in rest),
            tuple(self.classes[i] for i in rest),
            tuple(self.rows[i][first] for i in rest),
            self.costs[first],
        )

    def along(self, variable: int, decided: Mapping[int, int]) -> Array:
        """The cost per choice of one variable where the others are decided."""
        import numpy as np

        fits = np.ones(len(self.costs), dtype=bool)
        for v, classes, row in zip(self.scope, self.classes, self.rows, strict=True):
            if v != variable:
                fits &= row == classes[decided[v]]
        axis = self.scope.index(variable)
        found = np.full(int(self.classes[axis].max()) + 1, np.inf)
        found[self.rows[axis][fits]] = self.costs[fits]
        return found[self.classes[axis]]


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
