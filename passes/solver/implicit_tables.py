"""Implicit cost functions: the reshards of a value with many uses, as a table that is not written down. In go the
costs of making one value available in the states of several uses, each state paid once; out come the least costs per
choice. They are found by dynamic programming over which uses share a state (facility location with few clients), so
that bounds can be computed before the table is small enough to be a `Table` of `elimination`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass
class ImplicitTable:
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
    """Per use, the state that each of its classes needs, each another one: an index into the last axis of `opening`."""
    added: tuple[Array, ...] = ()
    """Per use, what each of its classes pays by itself."""

    def __post_init__(self) -> None:
        import numpy as np

        if not self.added:
            self.added = tuple(np.zeros(len(need)) for need in self.needs)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.paid.shape, *(len(need) for need in self.needs))

    @property
    def size(self) -> int:
        """Entries of the table, if it were written down."""
        return prod(self.shape)

    def keep(self, variable: int, chosen: Array) -> ImplicitTable:
        """The table for these choices of a variable."""
        import numpy as np

        axis = self.scope.index(variable)
        used, renumbered = np.unique(self.classes[axis][chosen], return_inverse=True)
        classes = (*self.classes[:axis], renumbered.reshape(-1), *self.classes[axis + 1 :])
        first = self.paid.ndim
        if axis < first:
            paid, opening = self.paid.take(used, axis), self.opening.take(used, axis)
            return replace(self, classes=classes, paid=paid, opening=opening)
        needs, added = list(self.needs), list(self.added)
        needs[axis - first], added[axis - first] = needs[axis - first][used], added[axis - first][used]
        states = np.unique(np.concatenate(needs))
        needs = tuple(np.searchsorted(states, need) for need in needs)
        return replace(self, classes=classes, opening=self.opening[..., states], needs=needs, added=tuple(added))

    def charge(self, axis: int, costs: Array) -> ImplicitTable:
        """The table with these costs added per class of one variable."""
        first = self.paid.ndim
        if axis < first:
            return replace(self, paid=self.paid + costs.reshape([-1 if i == axis else 1 for i in range(first)]))
        added = (costs + own if i == axis - first else own for i, own in enumerate(self.added))
        return replace(self, added=tuple(added))

    def written(self) -> tuple[tuple[int, ...], tuple[Array, ...], Array]:
        """The scope, classes and costs of the table."""
        import numpy as np

        first, count = self.paid.ndim, len(self.needs)
        costs = self.paid.reshape(*self.paid.shape, *(1,) * count)
        placed = [need.reshape([-1 if i == j else 1 for j in range(count)]) for i, need in enumerate(self.needs)]
        for i, need in enumerate(self.needs):
            alone = [len(need) if i == j else 1 for j in range(count)]
            opened = self.opening[..., need].reshape(*self.paid.shape, *alone)
            for j in range(i):
                opened = np.where((placed[i] == placed[j])[(None,) * first], 0.0, opened)
            costs = costs + opened + self.added[i].reshape(alone)
        return self.scope, self.classes, costs

    def cost(self, choices: Sequence[int]) -> float:
        """Of one choice of each variable, by index."""
        here = [int(classes[choice]) for classes, choice in zip(self.classes, choices, strict=True)]
        source, uses = tuple(here[: self.paid.ndim]), here[self.paid.ndim :]
        needed = {int(need[c]) for need, c in zip(self.needs, uses, strict=True)}
        own = sum(float(added[c]) for added, c in zip(self.added, uses, strict=True))
        return float(self.paid[source]) + own + sum(float(self.opening[source][state]) for state in needed)

    def most_added(self, variable: int) -> Array:
        """[a, b]: by how much class a costs more than b at most."""
        import numpy as np

        axis, first = self.scope.index(variable), self.paid.ndim
        count = self.shape[axis]
        if axis < first:
            added = np.full((count, count), np.inf)
        else:
            own = self.added[axis - first]
            most = self.opening.reshape(-1, self.opening.shape[-1]).max(axis=0)
            added = most[self.needs[axis - first]][:, None] + own[:, None] - own
        np.fill_diagonal(added, 0.0)
        return added

    def least(self, axis: int) -> Array:
        """Per class of one variable, the least cost of all combinations with it."""
        import numpy as np

        first, states = self.paid.ndim, self.opening.shape[-1]
        at_state: list[Array] = []
        for need, own in zip(self.needs, self.added, strict=True):
            spread = np.full(states, np.inf)
            spread[need] = own
            at_state.append(spread)
        if axis < first:
            total = self.paid + self._shared(_alone(at_state, states))[-1]
            return total.min(axis=tuple(i for i in range(first) if i != axis))
        own = axis - first
        alone = _alone([spread for i, spread in enumerate(at_state) if i != own], states)
        rest = (
            self.paid + self._shared(alone)[::-1]
        )  # those that do not need the state that is open: the others' complement
        alone = alone.reshape(len(alone), *(1,) * first, states)
        least = (self.opening + (rest[..., None] + alone).min(axis=0)).reshape(-1, states).min(axis=0)
        return least[self.needs[own]] + self.added[own]

    def _shared(self, alone: Array) -> Array:
        """Per set of uses and source the least cost, uses being split into groups that share a state; `alone` are the uses' own costs
        in each state."""

        states = alone.shape[-1]
        group = (self.opening + alone.reshape(len(alone), *(1,) * self.paid.ndim, states)).min(axis=-1)
        best = group.copy()
        best[0] = 0.0
        for sets, groups, others in _splits(len(alone)):
            best[sets] = (group[groups] + best[others]).min(axis=1)
        return best


def _alone(at_state: Sequence[Array], states: int) -> Array:
    """Per set of uses (bit i: whether use i is in it) and state the sum of the uses' costs."""
    import numpy as np

    found = np.zeros((1 << len(at_state), states))
    for i, costs in enumerate(at_state):
        found[1 << i : 2 << i] = found[: 1 << i] + costs
    return found


@cache
def _splits(sets: int) -> Sequence[tuple[Array, Array, Array]]:
    """Sets of two members, of three, and so on: the sets; of each, its subsets with its first member; what each leaves of it."""
    import numpy as np

    found: list[tuple[Array, Array, Array]] = []
    for size in range(2, sets.bit_length()):
        same = [members for members in range(sets) if members.bit_count() == size]
        groups = np.array([[part for part in range(members + 1) if _is_first_group(part, members)] for members in same])
        found.append((np.array(same), groups, np.array(same)[:, None] - groups))
    return found


def _is_first_group(part: int, members: int) -> bool:
    """Whether a set is a part of another and has its first member."""
    return part & ~members == 0 and part & members & -members != 0
