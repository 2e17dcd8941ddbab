"""The conversions of a value with many uses as a table that is not written down: what it takes to make one value available in
the states that several uses need, each state paid once. Its least costs are found by dynamic programming over which uses share
a state (facility location with few clients), so that bounds can be computed before the table is small enough to be a
`Table` of `elimination`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass
class WideTable:
    """Variables of two kinds: those that say where the value comes from (and what they need themselves), first in the scope;
    then the uses that need one state each."""

    scope: tuple[int, ...]
    classes: tuple[Array, ...]
    """For each variable of the scope, the class of each of its choices."""
    paid: Array
    """Per combination of the first variables' classes, what they pay."""
    opening: Array
    """The same, and per state, what it takes beyond that to have the value in this state."""
    needs: tuple[Array, ...]
    """Per use, the state that each of its classes needs: an index into the last axis of `opening`."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.paid.shape, *(len(need) for need in self.needs))

    @property
    def size(self) -> int:
        """Entries of the table, if it were written down."""
        return prod(self.shape)

    def keep(self, variable: int, chosen: Array) -> WideTable:
        """The table for these choices of a variable."""
        import numpy as np

        axis = self.scope.index(variable)
        used, renumbered = np.unique(self.classes[axis][chosen], return_inverse=True)
        classes = (*self.classes[:axis], renumbered.reshape(-1), *self.classes[axis + 1 :])
        first = self.paid.ndim
        if axis < first:
            paid, opening = self.paid.take(used, axis), self.opening.take(used, axis)
            return replace(self, classes=classes, paid=paid, opening=opening)
        needs = (*self.needs[: axis - first], self.needs[axis - first][used], *self.needs[axis - first + 1 :])
        states = np.unique(np.concatenate(needs))
        needs = tuple(np.searchsorted(states, need) for need in needs)
        return replace(self, classes=classes, opening=self.opening[..., states], needs=needs)

    def written(self) -> tuple[tuple[int, ...], tuple[Array, ...], Array]:
        """The scope, classes and costs of the table."""
        import numpy as np

        first, count = self.paid.ndim, len(self.needs)
        costs = self.paid.reshape(*self.paid.shape, *(1,) * count)
        placed = [need.reshape([-1 if i == j else 1 for j in range(count)]) for i, need in enumerate(self.needs)]
        for i, need in enumerate(self.needs):
            added = self.opening[..., need].reshape(
                *self.paid.shape, *(len(need) if i == j else 1 for j in range(count))
            )
            for j in range(i):
                added = np.where((placed[i] == placed[j])[(None,) * first], 0.0, added)
            costs = costs + added
        return self.scope, self.classes, costs

    def cost(self, choices: Sequence[int]) -> float:
        """Of one choice of each variable, by index."""
        here = [int(classes[choice]) for classes, choice in zip(self.classes, choices, strict=True)]
        source, uses = tuple(here[: self.paid.ndim]), here[self.paid.ndim :]
        needed = {int(need[c]) for need, c in zip(self.needs, uses, strict=True)}
        return float(self.paid[source]) + sum(float(self.opening[source][state]) for state in needed)

    def most_added(self, variable: int) -> Array:
        """[a, b]: by how much class a costs more than b at most."""
        import numpy as np

        axis = self.scope.index(variable)
        count = self.shape[axis]
        if axis < self.paid.ndim:
            added = np.full((count, count), np.inf)
        else:
            most = self.opening.reshape(-1, self.opening.shape[-1]).max(axis=0)
            added = np.repeat(most[self.needs[axis - self.paid.ndim]].reshape(-1, 1), count, axis=1)
        np.fill_diagonal(added, 0.0)
        return added

    def least(self, axis: int, added: Sequence[Array]) -> Array:
        """Per class of one variable, the least cost of all combinations with it, where `added` are further costs per class
        of each variable."""
        import numpy as np

        first = self.paid.ndim
        total = self.paid
        for i in range(first):
            total = total + added[i].reshape([-1 if i == j else 1 for j in range(first)])
        states = self.opening.shape[-1]
        at_state: list[Array] = []
        for need, more in zip(self.needs, added[first:], strict=True):
            spread = np.full(states, np.inf)
            np.minimum.at(spread, need, more)
            at_state.append(spread)
        if axis < first:
            total = total + self._shared(at_state, None)[..., 0]
            return total.min(axis=tuple(i for i in range(first) if i != axis))
        own = axis - first
        others = [spread for i, spread in enumerate(at_state) if i != own]
        with_state = total[..., None] + self.opening + self._shared(others, np.arange(states))
        least = with_state.reshape(-1, states).min(axis=0)
        return least[self.needs[own]] + added[axis]

    def _shared(self, at_state: Sequence[Array], available: Array | None) -> Array:
        """Per source, and per state that is available without paying (None: none is), the least cost of the uses, whose own
        costs of each state are given: uses are split into groups that share a state."""
        import numpy as np

        everyone = (1 << len(at_state)) - 1
        group: dict[int, Array] = {}
        for members in range(1, everyone + 1):
            costs = sum(spread for i, spread in enumerate(at_state) if members >> i & 1)
            least = (self.opening + costs).min(axis=-1)[..., None]
            group[members] = least if available is None else np.minimum(least, costs)
        best: dict[int, Array | float] = {0: 0.0}
        for members in range(1, everyone + 1):
            lowest = members & -members
            rest = members ^ lowest
            part, found = rest, best[rest] + group[lowest]
            while part:
                found = np.minimum(found, best[rest ^ part] + group[lowest | part])
                part = (part - 1) & rest
            best[members] = found
        return np.asarray(best[everyone]) + np.zeros((*self.paid.shape, 1))
