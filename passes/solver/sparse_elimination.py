"""The exact minimum of a network with a known good assignment. In go the network and that assignment's cost; out
comes a better assignment, or none. Variables are eliminated in tables of only the combinations that can be part of a better one.

Once bounds have moved costs so that every variable and table costs at least 0 beside a constant, whatever is part of an assignment within a
bound is within it by itself. So combinations beyond it are left out: of tables, of joins while they are made, and of what
elimination leaves (mini-buckets' bounds as in Kask & Dechter, 2001, on the relations of bucket elimination; Dechter, 1999). Where bounds are
close, few of the millions of combinations are left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from distir.passes.solver.deadline import NEVER, Deadline
from distir.passes.solver.elimination import Network, Table
from distir.passes.solver.implicit_tables import ImplicitTable
from distir.passes.solver.sparse_tables import SparseTable, TooManyRows

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

ROWS_EACH = 2000
"""With more rows per variable at first, joins would be far too large in the end."""


@dataclass(frozen=True)
class Resource:
    """What is limited, beside costs."""

    tables: Sequence[Table]
    """What choices take of it."""
    limit: float
    price: float
    """Of one of it, which costs have in them."""
    counted: Sequence[Counted] = ()
    """What combinations of wide tables of costs take of it beside, which costs do not have in them."""


@dataclass(frozen=True, eq=False)
class Counted:
    """What combinations of a wide table's choices take of a resource, found only for those that are left."""

    scope: tuple[int, ...]
    classes: tuple[Array, ...]
    """For each variable of the scope, the class of each of its choices."""
    count: int
    of: Callable[[Sequence[Array]], Array]
    """For the classes of combinations, per variable, what each takes, so many times."""

    def amounts(self, table: SparseTable, left: Mapping[int, Array]) -> Array | None:
        """For each row of a table; None if its scope has less, or it does not tell the same choices apart of those that are left (per
        variable and choice, whether it is)."""
        import numpy as np

        if not set(self.scope) <= set(table.scope):
            return None
        rows: list[Array] = []
        for v, all_here in zip(self.scope, self.classes, strict=True):
            axis = table.scope.index(v)
            all_there, row = table.classes[axis], table.rows[axis]
            class_of = np.zeros(int(all_there.max()) + 1, dtype=np.intp)
            here, there = all_here[left[v]], all_there[left[v]]
            class_of[there] = here
            if not np.array_equal(class_of[there], here):
                return None
            rows.append(class_of[row])
        return self.count * self.of(rows)


def cheapest_within(
    network: Network,
    most: float,
    most_rows: int,
    resources: Sequence[Resource] = (),
    deadline: Deadline = NEVER,
) -> list[int] | None:
    """The choice of every variable in a cheapest assignment that costs at most `most`, and takes no more of resources than there is; None if
    there is none. Raises TooManyRows if tables would have more than so many. Costs stay as they are, so bounds should have been
    `written`. Prices of resources are in the costs, and are taken off to say what is cheapest."""
    return _SparseElimination(network, most, most_rows, resources, deadline).run()


@dataclass
class _Eliminated:
    """For the rows that were left of a join: the choice of the variable, and the rows of the tables joined."""

    variable: int
    choices: Array
    numbers: Mapping[int, Array]


class _SparseElimination:
    def __init__(
        self, network: Network, most: float, most_rows: int, resources: Sequence[Resource], deadline: Deadline
    ):
        import numpy as np

        self._deadline = deadline

        self._network, self._most_rows = network, most_rows
        self._prices = [resource.price for resource in resources]
        self._room = np.array([resource.limit for resource in resources])
        """What may be taken of each resource beyond what is taken at least."""
        self._uncounted = [list(resource.counted) for resource in resources]
        least = {v: float(network.own[v].min()) for v in network.left}
        self._own = {v: network.own[v] - least[v] for v in network.left}
        tables = [(table, float(table.costs.min())) for table in network.tables]
        wide = [(table, float(table.least(0).min())) for table in network.implicit_tables]
        self._most = most - network.settled - sum(least.values()) - sum(low for _, low in (*tables, *wide))
        """What choices may cost beyond what they cost at least."""
        self._left = {v: own <= self._most for v, own in self._own.items()}
        """Of the choices of each variable, which are left."""
        self._tables: dict[int, SparseTable] = {}
        self._of: dict[int, set[int]] = {v: set() for v in self._own}
        self._steps: dict[int, _Eliminated] = {}
        """By the number of the table that was left."""
        self._made = 0
        rows = ROWS_EACH * len(self._own)
        for table, low in tables:
            self._add(SparseTable.of(table, self._most + low, len(resources)), low)
            rows -= len(self._tables[self._made - 1].costs)
        for number, resource in enumerate(resources):
            for table in resource.tables:
                self._add(self._taken(table, number))
        for table, low in sorted(wide, key=lambda found: found[0].size):
            self._deadline.check()
            if rows < 0:
                raise TooManyRows
            found = self._counted(self._written(table, self._most + low, rows))
            rows -= len(found.costs)
            self._add(found, low)
            self._narrow([self._made - 1])

    def _counted(self, table: SparseTable) -> SparseTable:
        """A table with what its combinations take, and what that costs."""
        amounts, costs = table.amounts.copy(), table.costs
        for number, (price, pending) in enumerate(zip(self._prices, self._uncounted, strict=True)):
            for counted in list(pending):
                if (taken := counted.amounts(table, self._left)) is not None:
                    pending.remove(counted)
                    amounts[number] += taken
                    costs = costs + price * taken
        return replace(table, amounts=amounts, costs=costs)

    def _taken(self, table: Table, resource: int) -> SparseTable:
        """What choices take of a resource."""
        import numpy as np

        free = SparseTable.of(Table(table.scope, table.classes, np.zeros(table.costs.shape)), 0.0, len(self._room))
        amounts = free.amounts.copy()
        amounts[resource] = table.costs.reshape(-1)
        return replace(free, amounts=amounts)

    def _written(self, table: ImplicitTable, most: float, most_rows: int) -> SparseTable:
        """The combinations of the choices that are left."""
        import numpy as np

        for v in table.scope:
            table = table.keep(v, self._left[v].nonzero()[0])
        found = SparseTable.of_wide(table, most, most_rows, len(self._room))
        positions = (np.maximum(np.cumsum(self._left[v]) - 1, 0) for v in found.scope)
        return replace(found, classes=tuple(c[at] for c, at in zip(found.classes, positions, strict=True)))

    def run(self) -> list[int] | None:
        self._narrow(self._tables)
        sizes = {v: self._size(v) for v in self._own}
        while sizes:
            v = min(sizes, key=sizes.__getitem__)
            del sizes[v]
            for neighbour in self._eliminate(v):
                sizes[neighbour] = self._size(neighbour)
        return self._decided()

    def _add(self, table: SparseTable, low: float = 0.0) -> None:
        """Adds a table, less its least cost and the least that it takes."""
        import numpy as np

        least = table.amounts.min(axis=1, initial=np.inf)
        if not len(table.costs):
            least = np.zeros(len(self._room))
        self._room = self._room - least
        self._tables[self._made] = replace(
            table, costs=table.costs - low, amounts=table.amounts - least[:, None]
        ).named(self._made)
        for v in table.scope:
            self._of[v].add(self._made)
        self._made += 1

    def _narrow(self, tables: Iterable[int]) -> None:
        """Drops choices that are in no combination of some table, or cost too much, and combinations of choices that are dropped, until there
        are none."""
        pending = dict.fromkeys(tables)
        while pending:
            self._deadline.check()
            number = next(iter(pending))
            del pending[number]
            table = self._tables[number] = self._tables[number].among(self._left)
            for v in table.scope:
                costs = self._own[v] + sum(self._tables[t].least[self._tables[t].scope.index(v)] for t in self._of[v])
                is_left = self._left[v] & (costs <= self._most)
                if is_left.sum() < self._left[v].sum():
                    self._left[v] = is_left
                    pending.update(dict.fromkeys(self._of[v]))

    def _size(self, variable: int) -> float:
        """Rows at most when a variable is eliminated, if nothing is limited."""
        import numpy as np

        views: dict[int, Array] = {}
        rows = 1.0
        for t in self._of[variable]:
            table = self._tables[t]
            rows *= len(table.costs)
            for v, classes in zip(table.scope, table.classes, strict=True):
                left = classes[self._left[v]]
                known = views.get(v)
                views[v] = left if known is None else known.astype(np.int64) * (int(left.max(initial=0)) + 1) + left
        combinations = float(self._left[variable].sum())
        for v, joint in views.items():
            if v != variable:
                combinations *= len(set(joint.tolist()))
        return min(rows, combinations)

    def _eliminate(self, variable: int) -> list[int]:
        """Eliminates a variable; its neighbours."""
        import numpy as np

        numbers = sorted(self._of[variable])
        choices = np.arange(len(self._own[variable]))
        left = self._left[variable].nonzero()[0]
        joined = SparseTable.made((variable,), (choices,), (left,), self._own[variable][left], len(self._room))
        pending = [self._tables[t] for t in numbers]
        while pending:
            self._deadline.check()
            one = max(pending, key=lambda t: (len(set(t.scope) & set(joined.scope)), -len(t.costs)))
            pending = [table for table in pending if table is not one]
            joined = joined.joined(one, self._left, self._most, self._most_rows)
            if len(self._room):
                joined = joined.take(np.all(joined.amounts <= self._room[:, None], axis=0))
        for number in numbers:
            for v in self._tables.pop(number).scope:
                self._of[v].discard(number)
        best = joined.take(joined.best_without(variable, self._prices))
        axis = joined.scope.index(variable)
        choice = np.zeros(int(best.classes[axis].max()) + 1, dtype=np.intp)
        choice[best.classes[axis][left]] = left
        self._steps[self._made] = _Eliminated(variable, choice[best.rows[axis]], best.numbers)
        low = float(best.costs.min(initial=inf))
        rest = [v for v in best.scope if v != variable]
        self._most -= low
        self._add(best.over(rest), low)
        if rest:
            self._narrow([self._made - 1])
        return rest

    def _decided(self) -> list[int] | None:
        """Every variable's choice, of the best rows of the tables that are left: those of no variable. None if none is within the bound."""
        import numpy as np

        left = SparseTable.made((), (), (), np.zeros(1), len(self._room))
        for table in self._tables.values():
            left = left.joined(table, self._left, self._most + float(table.costs.min(initial=0.0)), self._most_rows)
        left = left.take(np.all(left.amounts <= self._room[:, None], axis=0))
        if not len(left.costs):
            return None
        row = int(np.argmin(left.costs - np.array(self._prices) @ left.amounts))
        pending = [(number, int(rows[row])) for number, rows in left.numbers.items()]
        found: dict[int, int] = {}
        while pending:
            number, row = pending.pop()
            if (step := self._steps.get(number)) is not None:
                found[step.variable] = int(step.choices[row])
                pending += [(number, int(rows[row])) for number, rows in step.numbers.items()]
        return self._network.decided({v: self._network.original(v, choice) for v, choice in found.items()})
