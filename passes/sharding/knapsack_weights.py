"""Knapsack weights: the exact memory of values with too many combinations of choices for a table. In go the choices
that are left; out come bytes per combination that sparse elimination leaves (`sparse_elimination`), or a table once few choices are left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from distir.passes.sharding.choice_network import MOST_WRITTEN
from distir.passes.sharding.memory_tables import Occupancy
from distir.passes.sharding.relaxation import Relaxation
from distir.passes.solver.elimination import Network, Table
from distir.passes.solver.sparse_elimination import Counted

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class KnapsackWeights:
    """Bytes of a value, beside a network of the choices that are left."""

    scope: tuple[int, ...]
    marks: tuple[int, ...]
    """Per variable, the number of the limited table that says the class of each choice."""
    of: Callable[[Sequence[Array]], Array]
    """For the classes of combinations, per variable, what they hold."""

    @staticmethod
    def beside(network: Network, relaxation: Relaxation, occupancy: Occupancy) -> KnapsackWeights:
        """Choices that it tells apart are not dropped for each other in the network: one may hold more beside some choices of others, and less
        beside others."""
        import numpy as np

        domain = relaxation.memory.domain(*occupancy.key)
        marks: list[int] = []
        for v, classes, size in zip(domain.scope, relaxation.classes_left(domain), domain.shape, strict=True):
            numbers = np.arange(size, dtype=np.float64)
            marks.append(network.add_limited(Table((v,), (classes,), numbers)))
            network.add_limited(Table((v,), (classes,), -numbers))
        return KnapsackWeights(domain.scope, tuple(marks), partial(relaxation.memory.bytes_of, occupancy))

    def counted(self, network: Network, count: int) -> Counted:
        """So many times, for combinations of the choices that the network has left."""
        return Counted(self.scope, self.classes(network), count, self.of)

    def table(self, network: Network, count: int) -> Table | None:
        """So many times as a table of the choices that the network has left; None if that is too large."""
        import numpy as np

        used = [np.unique(classes, return_inverse=True) for classes in self.classes(network)]
        shape = tuple(len(classes) for classes, _ in used)
        if prod(shape) > MOST_WRITTEN:
            return None
        combinations = np.meshgrid(*(classes for classes, _ in used), indexing="ij")
        return Table(self.scope, tuple(numbers.reshape(-1) for _, numbers in used), count * self.of(combinations))

    def classes(self, network: Network) -> tuple[Array, ...]:
        """Per variable, the class of each choice that the network has left."""
        import numpy as np

        found: list[Array] = []
        for v, mark in zip(self.scope, self.marks, strict=True):
            table = network.limited[mark]
            is_one = not table.scope
            classes = np.full(len(network.own[v]), table.costs) if is_one else table.costs[table.classes[0]]
            found.append(classes.astype(np.intp))
        return tuple(found)


@dataclass(frozen=True)
class Uncounted:
    """What is still too wide for a table at one point."""

    amounts: KnapsackWeights
    count: int
    least: Sequence[int]
    """The numbers of limited tables of what it holds at least."""

    def beyond_least(self, network: Network, positions: Mapping[int, int]) -> float:
        """By how much more than that it holds, if these choices are made, by position among those that are left."""
        import numpy as np

        places = [positions[v] for v in self.amounts.scope]
        combination = [np.array([c[i]]) for c, i in zip(self.amounts.classes(network), places, strict=True)]
        held = self.count * float(self.amounts.of(combination)[0])
        return held - sum(_value(network.limited[number], positions) for number in self.least)


def _value(table: Table, positions: Mapping[int, int]) -> float:
    return float(table.costs[tuple(c[positions[v]] for v, c in zip(table.scope, table.classes, strict=True))])
