"""A problem with prices instead of limits for memory at program points (Lagrangian relaxation). In go prices of a
byte; out comes a network of cost functions, whose minimum is a lower bound of all plans within the limit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distir.passes.sharding.choice_network import MOST_WRITTEN, ChoiceNetwork, JointDomain
from distir.passes.sharding.memory import Point
from distir.passes.sharding.memory_tables import Key, MemoryTables, Occupancy, PointTables
from distir.passes.solver.elimination import Network, Table
from distir.passes.solver.shared_values import Indicators

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class Relaxation:
    """Costs and memory of one choice network, for those choices that are not ruled out."""

    def __init__(self, choices: ChoiceNetwork, time_weight: float = 1.0):
        import numpy as np

        self.choices, self.problem = choices, choices.problem
        self.memory = MemoryTables(choices)
        self._time_weight = time_weight
        self.own = [self._time(costs) for costs in choices.own]
        """Per variable, the cost of each choice."""
        self.kept = [np.arange(len(costs)) for costs in self.own]
        self.points: list[Point] = []
        self.at: list[PointTables] = []
        """Per point, what memory holds there."""
        self._free = self.network(())

    def _time(self, costs: Array) -> Array:
        """What is ruled out stays so, where time counts for nothing too: beside a plan that is ruled out itself."""
        import numpy as np

        if self._time_weight == 1.0:
            return costs
        return np.multiply(costs, self._time_weight, out=costs.astype(np.float64), where=np.isfinite(costs))

    @property
    def size(self) -> int:
        """How many choices are left in all."""
        return sum(map(len, self.kept))

    def add_point(self, point: Point) -> None:
        self.points.append(point)
        self.at.append(self.memory.at(point))

    def network(self, prices: Sequence[float]) -> Network:
        """Costs with these prices of a byte at each point."""
        network = Network()
        weights: dict[Key, dict[Occupancy, float]] = defaultdict(lambda: defaultdict(float))
        own = list(self.own)
        for price, tables in zip(prices, self.at, strict=True):
            if not price:
                continue
            for occupancy, count in tables.occupied.items():
                weights[occupancy.key][occupancy] += price * count
            for v, sizes in tables.single.items():
                own[v] = own[v] + price * sizes
        for costs, kept in zip(own, self.kept, strict=True):
            network.variable(costs[kept].tolist())
        plain: list[Key] = [(cost_function, None, ()) for cost_function in self.choices.tables]
        for key in dict.fromkeys((*plain, *weights)):
            self._add(network, key, weights.get(key, {}))
        for table in (table for tables in self.choices.by_state.values() for table in tables):
            network.add(Table(table.scope, self._left(table.scope, table.classes), self._time(table.costs)))
        return network

    def _add(self, network: Network, key: Key, weights: dict[Occupancy, float]) -> None:
        import numpy as np

        table = self.choices.tables.get(key[0]) if key[1:] == (None, ()) else None
        domain = self.memory.domain(*key)
        total: Array | None = None
        if isinstance(table, Table):
            index = [np.unique(c) for c in self._left(table.scope, table.classes)]
            total, table = self._time(table.costs[np.ix_(*index)]).reshape(domain.shape), None
        for occupancy, weight in weights.items():
            held = self.memory.bytes(occupancy)
            if held is None:
                for v, sizes in self.memory.least(occupancy).items():
                    network.charge(v, weight * sizes[self.kept[v]])
            else:
                total = weight * held if total is None else total + weight * held
        if total is not None:
            network.add(Table(domain.scope, self._left(domain.scope, domain.classes), total))
        if table is not None:
            for v in table.scope:
                table = table.keep(v, self.kept[v])
            if self._time_weight != 1.0:
                table = replace(table, paid=self._time(table.paid), opening=self._time(table.opening))
            if table.size <= MOST_WRITTEN:
                network.add(Table(*table.written()))
            else:
                network.add_wide(table)

    def _left(self, scope: Sequence[int], classes: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(c[self.kept[v]] for v, c in zip(scope, classes, strict=True))

    def limited_apart(self) -> tuple[Network, list[list[int]], list[Counter[Occupancy]]]:
        """Costs without prices, and beside them memory as limited tables: their numbers per point. Apart from them, per point, what has too
        many combinations for a table."""
        import numpy as np

        network = self.network([0.0] * len(self.at))
        indicators = Indicators(network)
        numbers: list[list[int]] = []
        wide: list[Counter[Occupancy]] = []
        for tables in self.at:
            held: dict[Key, Array] = {}
            numbers.append([])
            wide.append(Counter())
            for occupancy, count in tables.occupied.items():
                key = occupancy.key
                found = self.memory.bytes(occupancy)
                if found is None and occupancy.cost_function in self.choices.by_state:
                    for table in self.memory.by_state(occupancy, indicators):
                        numbers[-1].append(network.add_limited(Table(table.scope, table.classes, count * table.costs)))
                elif found is None:
                    wide[-1][occupancy] += count
                else:
                    held[key] = held.get(key, 0.0) + count * found
            for key, found in held.items():
                domain = self.memory.domain(*key)
                table = Table(domain.scope, self._left(domain.scope, domain.classes), found)
                numbers[-1].append(network.add_limited(table))
            for v, sizes in tables.single.items():
                left = sizes[self.kept[v]]
                numbers[-1].append(network.add_limited(Table((v,), (np.arange(len(left)),), left)))
        return network, numbers, wide

    def add_least(self, network: Network, occupancy: Occupancy, count: int) -> list[int]:
        """Adds what values with too many combinations hold in any case, as limited tables; their numbers."""
        import numpy as np

        found: list[int] = []
        for v, sizes in self.memory.least(occupancy).items():
            left = count * sizes[self.kept[v]]
            found.append(network.add_limited(Table((v,), (np.arange(len(left)),), left)))
        return found

    def classes_left(self, domain: JointDomain) -> tuple[Array, ...]:
        """For each variable of a domain, the classes of its choices that are left."""
        return self._left(domain.scope, domain.classes)

    def cost(self, choices: Sequence[int]) -> float:
        """Of an assignment without prices."""
        return self._free.cost(choices)

    def bytes_at(self, number: int, choices: Sequence[int]) -> float:
        """Memory at one of the points."""
        tables = self.at[number]
        total = sum(float(sizes[choices[v]]) for v, sizes in tables.single.items())
        for occupancy, count in tables.occupied.items():
            held = self.memory.bytes(occupancy)
            if held is None:
                total += count * sum(float(sizes[choices[v]]) for v, sizes in self.memory.least(occupancy).items())
            else:
                domain = self.memory.domain(*occupancy.key)
                total += count * float(
                    held[tuple(c[choices[v]] for v, c in zip(domain.scope, domain.classes, strict=True))]
                )
        return total

    def memory_by_choice(self, prices: Sequence[float], choices: Sequence[int]) -> dict[int, Array]:
        """Per variable, what memory costs at these prices for each of its choices that are left, if the others are chosen as given
        (a choice that is ruled out counts as one that is not)."""
        import numpy as np

        found = {v: np.zeros(len(kept)) for v, kept in enumerate(self.kept)}
        for price, tables in zip(prices, self.at, strict=True):
            if not price:
                continue
            for v, sizes in tables.single.items():
                found[v] += price * sizes[self.kept[v]]
            for occupancy, count in tables.occupied.items():
                held = self.memory.bytes(occupancy)
                if held is None:
                    for v, sizes in self.memory.least(occupancy).items():
                        found[v] += price * count * sizes[self.kept[v]]
                    continue
                domain = self.memory.domain(*occupancy.key)
                here = [int(c[choices[v]]) for v, c in zip(domain.scope, domain.classes, strict=True)]
                for axis, v in enumerate(domain.scope):
                    along = held[tuple(slice(None) if i == axis else n for i, n in enumerate(here))]
                    found[v] += price * count * along[domain.classes[axis][self.kept[v]]]
        return found

    def keep(self, chosen: Mapping[int, Array]) -> None:
        """Rules out all choices of variables but these of those that are left, by position."""
        self.restore([kept[chosen[v]] if v in chosen else kept for v, kept in enumerate(self.kept)])

    def restore(self, kept: Sequence[Array]) -> None:
        """Leaves these choices of each variable."""
        self.kept = list(kept)
        self.memory.narrow(self.kept)

    def has(self, choices: Sequence[int]) -> bool:
        """Whether none of an assignment's choices is ruled out."""
        return all(choice in kept for choice, kept in zip(choices, self.kept, strict=True))

    def original(self, decided: Sequence[int]) -> list[int]:
        """The choices of an assignment of a network that was built from what is left, without indicators of memory."""
        return [int(kept[i]) for kept, i in zip(self.kept, decided, strict=False)]
