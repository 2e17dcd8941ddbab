"""The exact minimum of a sum of cost tables, by eliminating variables one by one (nonserial dynamic programming;
Bertele & Brioschi, 1972; for tables of two variables the PBQP reductions of Scholz & Eckstein, LCTES 2002). In go
tables over few variables each; out comes the cheapest choice of every variable.

Eliminating a variable replaces the tables that mention it by one over its neighbours: the least cost of each of their
combinations. A table does not distinguish choices of a variable that it treats alike (its classes), and a choice that another
one beats in every table is dropped first (dead-end elimination; Goldstein, 1994). Where a program is a chain with few values
alive across it, as neural networks are, tables stay small; where one would not, there is no answer and the caller must search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from distir.passes.solver.deadline import NEVER, Deadline

if TYPE_CHECKING:
    import numpy as np

    from distir.passes.solver.implicit_tables import ImplicitTable

    Array = np.ndarray[Any, Any]

MOST_ENTRIES = 1 << 24
"""Elimination gives up before a larger table: 128 MB."""
MOST_COMPARED = 1 << 23
"""A choice is compared with others over at most so many table entries."""
FEW = 1 << 14
"""So many differences are taken at once."""
SHORT = 64
"""So many numbers are told apart faster without numpy."""


@dataclass
class Table:
    """Costs of combinations of classes of choices; infinite where they do not go together."""

    scope: tuple[int, ...]
    classes: tuple[Array, ...]
    """For each variable of the scope, the class of each of its choices: an index into this axis of `costs`."""
    costs: Array
    _excess: dict[int, Array] = field(default_factory=dict[int, "Array"], repr=False, compare=False)

    def excess(self, variable: int) -> Array:
        """[a, b]: by how much a's costs, of this variable's choices, exceed b's at most (`_excess`)."""
        import numpy as np

        axis = self.scope.index(variable)
        if axis not in self._excess:
            self._excess[axis] = _excess(np.moveaxis(self.costs, axis, 0).reshape(self.costs.shape[axis], -1))
        classes = self.classes[axis]
        return self._excess[axis][classes[:, None], classes]


@dataclass
class _Eliminated:
    """What decides a variable once its neighbours are decided."""

    variable: int
    own: Array
    tables: list[Table]
    kept: dict[int, Array]
    """Of each variable in the tables, which of its original choices their classes are of."""


@dataclass
class _Alike:
    """Variables that decide as another does."""

    variable: int
    others: list[int]


class Network:
    """Variables, each with a cost per choice, and tables over several of them."""

    def __init__(self) -> None:
        self._own: list[Array] = []
        self._kept: list[Array] = []
        self._tables: dict[int, Table] = {}
        self._of: list[set[int]] = []
        self._wide: dict[int, ImplicitTable] = {}
        self._limited: dict[int, Table] = {}
        self._made = 0
        self._steps: list[_Eliminated | _Alike] = []
        self.left: dict[int, None] = {}
        """The variables that are not eliminated."""
        self.settled = 0.0
        """What those that are eliminated cost whatever the others are."""

    def variable(self, costs: Sequence[float]) -> int:
        """A new variable with this cost per choice."""
        import numpy as np

        self._own.append(np.array(costs, dtype=np.float64))
        self._kept.append(np.arange(len(costs)))
        self._of.append(set())
        self.left[len(self._own) - 1] = None
        return len(self._own) - 1

    def charge(self, variable: int, costs: Array) -> None:
        """Adds to a variable's cost per choice."""
        self._own[variable] = self._own[variable] + costs

    def add(self, table: Table) -> None:
        """Adds a table; its scope names each variable once."""
        table = _merged(table)
        if len(table.scope) == 0:
            return
        if len(table.scope) == 1:
            self.charge(table.scope[0], table.costs[table.classes[0]])
            return
        self._tables[self._made] = table
        for v in table.scope:
            self._of[v].add(self._made)
        self._made += 1

    def add_wide(self, table: ImplicitTable) -> None:
        """Adds a table that is too large to write down. Its variables are eliminated once it is not."""
        self._wide[self._made] = table
        self._made += 1

    def add_limited(self, table: Table) -> int:
        """Adds a table of what is limited elsewhere and is no cost: its variables are not eliminated, and their choices only
        dropped for others that have no more of it. Returns its number in `limited`."""
        self._limited[self._made] = _merged(table)
        self._made += 1
        return self._made - 1

    @property
    def limited(self) -> Mapping[int, Table]:
        return self._limited

    def reweigh(
        self, own: Mapping[int, Array], tables: Sequence[Array], implicit_tables: Sequence[ImplicitTable]
    ) -> None:
        """Replaces the costs of variables, of `tables` and of `implicit_tables` by others that have the same sums."""
        for v, costs in own.items():
            self._own[v] = costs
        for (t, table), costs in zip(self._tables.items(), tables, strict=True):
            self._tables[t] = Table(table.scope, table.classes, costs)
        self._wide = dict(zip(self._wide, implicit_tables, strict=True))

    def copy(self) -> Network:
        """Another network of the same tables."""
        other = Network()
        other._own, other._kept, other._tables = list(self._own), list(self._kept), dict(self._tables)
        other._of, other._made = [set(numbers) for numbers in self._of], self._made
        other._steps, other.left, other._wide = list(self._steps), dict(self.left), dict(self._wide)
        other._limited, other.settled = dict(self._limited), self.settled
        return other

    @property
    def size(self) -> int:
        """How many choices are left in all."""
        return sum(len(self._own[v]) for v in self.left)

    @property
    def own(self) -> Sequence[Array]:
        """The cost per choice of each variable."""
        return self._own

    @property
    def tables(self) -> Sequence[Table]:
        return list(self._tables.values())

    @property
    def implicit_tables(self) -> Sequence[ImplicitTable]:
        return list(self._wide.values())

    def cost(self, choices: Sequence[int]) -> float:
        """What an assignment of original choices costs beyond what eliminated variables do whatever the others are."""
        import numpy as np

        here = {v: int(np.searchsorted(self._kept[v], choices[v])) for v in self.left}
        total = sum(float(self._own[v][i]) for v, i in here.items())
        for table in self._tables.values():
            total += float(table.costs[tuple(c[here[v]] for v, c in zip(table.scope, table.classes, strict=True))])
        return total + sum(table.cost([here[v] for v in table.scope]) for table in self._wide.values())

    def original(self, variable: int, choice: int) -> int:
        """The number that a choice which is left had at first."""
        return int(self._kept[variable][choice])

    def keep(self, chosen: Mapping[int, Array]) -> None:
        """Drops all choices of variables but these (of those that they have)."""
        fewer = {v: choices for v, choices in chosen.items() if len(choices) < len(self._own[v])}
        for v, choices in fewer.items():
            self._own[v], self._kept[v] = self._own[v][choices], self._kept[v][choices]
        for t in list(dict.fromkeys(t for v in fewer for t in sorted(self._of[v]))):
            table = self._tables[t]
            self._remove(t)
            self.add(_narrowed(table, fewer))
        for t, wide in self._wide.items():
            for v in fewer.keys() & set(wide.scope):
                self._wide[t] = self._wide[t].keep(v, fewer[v])
        for t, table in self._limited.items():
            if any(v in fewer for v in table.scope):
                self._limited[t] = _merged(_narrowed(table, fewer))

    def drop_impossible(self) -> bool:
        """Drops choices whose own cost is infinite; False if a variable has no other."""
        import numpy as np

        for v in self.left:
            possible = np.flatnonzero(np.isfinite(self._own[v]))
            if not len(possible):
                return False
            if len(possible) < len(self._own[v]):
                self.keep({v: possible})
        return True

    def merge_alike(self) -> None:
        """Lets variables decide together whose costs are the same whatever the others are: the parameters of layers that are alike. Each of their tables is
        there once, so many times as dear."""
        held = {v for table in (*self._wide.values(), *self._limited.values()) for v in table.scope}
        texts = {t: _as_bytes(table) for t, table in self._tables.items()}
        groups: dict[object, list[int]] = {}
        for v in self.left:
            if v not in held and self._of[v]:
                tables = sorted((_others(self._tables[t].scope, v), *texts[t]) for t in self._of[v])
                groups.setdefault((self._own[v].tobytes(), self._kept[v].tobytes(), *tables), []).append(v)
        for first, *others in groups.values():
            if not others:
                continue
            for t in self._of[first]:
                table = self._tables[t]
                self._tables[t] = Table(table.scope, table.classes, table.costs * (1 + len(others)))
            self._own[first] = self._own[first] * (1 + len(others))
            for v in others:
                for t in list(self._of[v]):
                    self._remove(t)
                del self.left[v]
            self._steps.append(_Alike(first, others))

    def drop_dominated(self, deadline: Deadline = NEVER) -> None:
        """Drops choices that are never better than another of their variable."""
        self._drop_dominated(list(self.left), deadline)

    def eliminate(self, most_entries: int = MOST_ENTRIES, is_dropping: bool = True, deadline: Deadline = NEVER) -> bool:
        """Eliminates variables, those with the smallest tables first, up to tables of this size; whether none is left. Choices that
        others beat by now are dropped on the way, unless that would take longer than it saves."""
        for t, wide in list(self._wide.items()):
            if wide.size <= most_entries:
                del self._wide[t]
                self.add(Table(*wide.written()))
        held = {v for table in (*self._wide.values(), *self._limited.values()) for v in table.scope}
        sizes = {v: self._size(v) for v in self.left if v not in held}
        smallest = [(size, order, v) for order, (v, size) in enumerate(sizes.items())]
        orders = {v: order for _, order, v in smallest}
        heapify(smallest)
        while smallest:
            deadline.check()
            size, _, v = heappop(smallest)
            if sizes.get(v) != size:  # another by now
                continue
            del sizes[v]
            if size <= most_entries or self._size(v) <= most_entries:  # choices may have been dropped since
                neighbours = self._eliminate(v)
                if is_dropping:
                    self._drop_dominated(neighbours, deadline)
                for n in neighbours:
                    if n not in held and sizes.get(n) != (size := self._size(n)):
                        sizes[n] = size
                        heappush(smallest, (size, orders[n], n))
        return not self.left

    def decided(self, given: Mapping[int, int] | None = None, takes_last: bool = False) -> list[int] | None:
        """The choice of every variable in a cheapest assignment, once all are eliminated but those that are given; None if
        none is finite. Those eliminated last are decided first, so that each has its neighbours decided. Of choices that cost the
        same it is the first, or the last."""
        import numpy as np

        found = dict(given or {})
        for step in reversed(self._steps):
            if isinstance(step, _Alike):
                found.update(dict.fromkeys(step.others, found[step.variable]))
                continue
            costs = step.own
            for table in step.tables:
                index = tuple(
                    c if v == step.variable else c[np.searchsorted(step.kept[v], found[v])]
                    for v, c in zip(table.scope, table.classes, strict=True)
                )
                costs = costs + table.costs[index]
            best = len(costs) - 1 - int(np.argmin(costs[::-1])) if takes_last else int(np.argmin(costs))
            if not np.isfinite(costs[best]):
                return None
            found[step.variable] = int(step.kept[step.variable][best])
        return [found[v] for v in range(len(self._own))]

    # --- elimination ---

    def _views(self, variable: int) -> dict[int, list[tuple[Array, int]]]:
        """For each neighbour, the classes of its choices in each of the variable's tables, and how many these are."""
        views: dict[int, list[tuple[Array, int]]] = {}
        for t in sorted(self._of[variable]):
            table = self._tables[t]
            for v, classes, count in zip(table.scope, table.classes, table.costs.shape, strict=True):
                if v != variable:
                    views.setdefault(v, []).append((classes, count))
        return views

    def _joint_classes(self, variable: int) -> dict[int, tuple[Array, Array]]:
        """For each neighbour, the classes of its choices that the variable's tables distinguish together: of each choice,
        and one choice of each."""
        return {v: _distinct(_joint(seen)) for v, seen in self._views(variable).items()}

    def _size(self, variable: int) -> int:
        """How many entries the table has that eliminates a variable."""
        size = len(self._own[variable])
        for seen in self._views(variable).values():
            size *= seen[0][1] if len(seen) == 1 else len(set(_joint(seen).tolist()))
        return size

    def _eliminate(self, variable: int) -> list[int]:
        import numpy as np

        joint = self._joint_classes(variable)
        neighbours = list(joint)
        tables = [self._tables[t] for t in sorted(self._of[variable])]
        own = self._own[variable]
        total = own.reshape(-1, *(1,) * len(neighbours))
        for table in tables:
            axes = sorted(
                range(len(table.scope)),
                key=lambda i: -1 if table.scope[i] == variable else neighbours.index(table.scope[i]),
            )
            index = [c if v == variable else c[joint[v][1]] for v, c in zip(table.scope, table.classes, strict=True)]
            costs = table.costs[np.ix_(*index)].transpose(axes)
            shape = [1] * (1 + len(neighbours))
            for i, axis in enumerate(axes):
                v = table.scope[axis]
                shape[0 if v == variable else 1 + neighbours.index(v)] = costs.shape[i]
            total = total + costs.reshape(shape)
        for table_number in list(self._of[variable]):
            self._remove(table_number)
        if not neighbours:
            self.settled += float(total.min())
        else:
            self.add(Table(tuple(neighbours), tuple(joint[v][0] for v in neighbours), total.min(axis=0)))
        kept = {v: self._kept[v] for v in (variable, *neighbours)}
        self._steps.append(_Eliminated(variable, own, tables, kept))
        del self.left[variable]
        return neighbours

    def _remove(self, number: int) -> None:
        for v in self._tables.pop(number).scope:
            self._of[v].discard(number)

    # --- choices that others beat ---

    def _drop_dominated(self, variables: Sequence[int], deadline: Deadline) -> None:
        """Drops choices that are never better than another, until none is."""
        pending = dict.fromkeys(variables)
        while pending:
            deadline.check()
            v = next(iter(pending))
            del pending[v]
            if self._drop(v):
                pending.update(dict.fromkeys(w for t in self._of[v] for w in self._tables[t].scope if w != v))

    def _drop(self, variable: int) -> bool:
        import numpy as np

        own = self._own[variable]
        n = len(own)
        tables = [self._tables[t] for t in sorted(self._of[variable])]
        if (
            n == 1
            or n * n * sum(t.costs.size // t.costs.shape[t.scope.index(variable)] for t in tables) > MOST_COMPARED
        ):
            return False
        worse = _excess(own.reshape(n, 1))
        with np.errstate(invalid="ignore"):
            for table in tables:
                worse = worse + table.excess(variable)
            for wide in self._wide.values():
                if variable in wide.scope:
                    classes = wide.classes[wide.scope.index(variable)]
                    worse = worse + wide.most_added(variable)[classes[:, None], classes]
        for table in self._limited.values():
            if variable in table.scope:
                worse = np.where(table.excess(variable) > 0, np.inf, worse)
        # worse[a, b]: how much worse than b a can be at most; b is dropped if that is not positive
        keep, beats = np.ones(n, dtype=bool), worse <= 0
        np.fill_diagonal(beats, False)
        for b in np.flatnonzero(beats.any(axis=0)):
            keep[b] = not (keep & beats[:, b]).any()
        if keep.all():
            return False
        self.keep({variable: np.flatnonzero(keep)})
        return True


def _others(scope: Sequence[int], variable: int) -> tuple[int, ...]:
    """The scope of a table of this variable, which is told from others by its place only."""
    return tuple(-1 if v == variable else v for v in scope)


def _as_bytes(table: Table) -> tuple[bytes, ...]:
    """What tells tables of one scope apart."""
    return table.costs.tobytes(), *(classes.tobytes() for classes in table.classes)


def _narrowed(table: Table, chosen: Mapping[int, Array]) -> Table:
    """The table for these choices of variables."""
    classes = tuple(c[chosen[v]] if v in chosen else c for v, c in zip(table.scope, table.classes, strict=True))
    return Table(table.scope, classes, table.costs)


def _excess(slices: Array) -> Array:
    """[a, b]: by how much a's costs exceed b's at most; combinations that b does not allow do not count."""
    import numpy as np

    n = len(slices)
    impossible = np.isinf(slices)
    if n * slices.size <= FEW:
        with np.errstate(invalid="ignore"):
            differences = slices[:, None, :] - slices[None, :, :]
        return np.where(impossible[None, :, :], -np.inf, differences).max(axis=2)
    found = np.empty((n, n))
    for b in range(n):
        with np.errstate(invalid="ignore"):
            difference = slices - slices[b]
        difference[:, impossible[b]] = -np.inf
        found[:, b] = difference.max(axis=1)
    return found


def _joint(seen: Sequence[tuple[Array, int]]) -> Array:
    """Of each choice a number for its classes in several tables together."""
    joint, _ = seen[0]
    for classes, count in seen[1:]:
        joint = joint * count + classes
    return joint


def _distinct(numbers: Array) -> tuple[Array, Array]:
    """Of each number the class of those that equal it, and the position of one of each class."""
    import numpy as np

    if len(numbers) > SHORT:
        _, firsts, inverses = np.unique(numbers, return_index=True, return_inverse=True)
        return inverses.reshape(-1), firsts
    classes: dict[int, int] = {}
    first: list[int] = []
    inverse: list[int] = []
    for position, number in enumerate(numbers.tolist()):
        if (found := classes.setdefault(number, len(classes))) == len(first):
            first.append(position)
        inverse.append(found)
    return np.array(inverse), np.array(first)


def _merged(table: Table) -> Table:
    """The same costs with choices of one class wherever the table treats them alike; variables that it does not
    distinguish at all leave its scope."""
    import numpy as np

    scope, all_classes, costs = list(table.scope), list(table.classes), table.costs
    for axis in range(len(scope)):
        classes = all_classes[axis]
        used: Sequence[int] = sorted(set(classes.tolist())) if len(classes) <= SHORT else np.unique(classes).tolist()
        slices = np.moveaxis(costs, axis, 0)
        seen: dict[bytes, int] = {}
        renumbered = np.zeros(costs.shape[axis], dtype=np.intp)
        first: list[int] = []
        for c in used:
            key = slices[c].tobytes()
            if key not in seen:
                seen[key] = len(first)
                first.append(c)
            renumbered[c] = seen[key]
        if len(first) < costs.shape[axis]:
            all_classes[axis] = renumbered[classes]
            costs = np.moveaxis(slices[first], 0, axis)
    rest = [i for i in range(len(scope)) if costs.shape[i] > 1]
    if not rest and scope:
        rest = [0]
    costs = costs.reshape([costs.shape[i] for i in rest])
    return Table(tuple(scope[i] for i in rest), tuple(all_classes[i] for i in rest), costs)
