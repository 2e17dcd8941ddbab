"""The cheapest steps by which values get from one sharding to another. In go a mesh, states, and pairs of them; out comes a number for each pair that tells its
steps. Each changes one axis, to its target or by way of the whole (or, of a window, of the parts that it overlaps).

Steps are weighed by the elements that the collective moves (ring algorithms; Patarasuk & Yuan, JPDC 2009) and a constant for its latency, so that every
machine takes the same reshard plan: cuts and reductions early, gathers late. Of reshard plans as cheap, one is taken of the fewest steps, along the first axes first. All pairs are
relaxed together, as by Bellman and Ford, over what the axes of each may be on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Partial, Sharded, State, Windowed
from distir.passes.distribution.conversions import collective, reshard_steps
from distir.passes.distribution.mesh import AxisStates, Mesh, dim_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

LATENCY_ELEMENTS = 1 << 18
"""What a collective's latency is worth: 10 us at 100 GB/s are 1 MB."""
COPY_SHARE = 1 / 16
"""A local copy moves an element this much faster than a link."""
PARTS = 1 << 10
"""Weights are whole numbers of such parts of an element: their sums are exact, whatever the order."""
TARGET, BASE, WHOLE, SOURCE = range(4)
"""What an axis is on the way; where a step leads is one of the first three."""
MOST_PAIRS = 1 << 16
"""So many are relaxed together."""


def reshard_plan(mesh: Mesh, elements: int, source: AxisStates, target: AxisStates) -> tuple[tuple[int, State], ...]:
    """The cheapest steps from one to the other, as (axis, next state along it), for a value of so many elements. Raises DistirError if no collectives do it."""
    found = _places(mesh, elements, *_alike(mesh, source, target))
    if found is None:
        raise DistirError(f"no collectives take a value from {source} to {target} over {dict(mesh.axes)}")
    return tuple((axis, _reached(kind, target[axis])) for axis, kind in found)


def _reached(kind: int, target: State) -> State:
    if kind == WHOLE:
        return REPLICATED
    return target.base if kind == BASE and isinstance(target, Windowed) else target


@lru_cache(maxsize=1 << 15)
def _places(mesh: Mesh, elements: int, source: AxisStates, target: AxisStates) -> tuple[tuple[int, int], ...] | None:
    import numpy as np

    reshard_plans = ReshardPlans(mesh, (source, target))
    (found,) = reshard_plans.between(elements, np.array([0]), np.array([1]))
    return None if found < 0 else tuple(reshard_plans.reshard_steps(int(found)))


def _alike(mesh: Mesh, source: AxisStates, target: AxisStates) -> tuple[AxisStates, AxisStates]:
    """States between which reshard plans are the same, and which stand for many: dims are numbered as they come."""
    numbers: dict[int, int] = {}

    def numbered(state: State) -> State:
        if isinstance(state, Sharded | Windowed):
            return replace(state, dim=numbers.setdefault(state.dim, len(numbers)))
        return state

    return tuple(map(numbered, source)), tuple(map(numbered, target))


class ReshardPlans:
    """The reshard plans between some states on a mesh."""

    def __init__(self, mesh: Mesh, states: Sequence[AxisStates]):
        import numpy as np

        self.mesh, self.states = mesh, states
        self.along: list[list[State]] = []
        """Per axis, the states that it may be in on the way."""
        found: list[Array] = []
        for axis in range(len(mesh.axes)):
            own = [each[axis] for each in states]
            bases = [s.base for s in own if isinstance(s, Windowed)]
            numbers = {s: i for i, s in enumerate(dict.fromkeys([REPLICATED, *own, *bases]))}
            self.along.append([*numbers])
            places = np.array([numbers[s] for s in own])
            base = np.array([numbers[s.base] if isinstance(s, Windowed) else -1 for s in own])
            found.append(np.stack([places, base, np.zeros_like(places)]))
        self.places = np.stack(found)
        """By axis, kind of place, and state: the number along the axis; -1 if there is none."""
        self.shape = tuple(map(len, self.along))

    def between(self, elements: int, sources: Array, targets: Array) -> Array:
        """The reshard plan of each pair, for a value of so many elements; -1 if no collectives do it. Values that are cut evenly take the reshard plans of even meshes."""
        import numpy as np

        found, is_even = np.full(len(sources), -1), np.ones(len(sources), dtype=bool)
        if self.mesh.uneven:
            evenly = np.array([self.mesh.even.conflict(states) is None for states in self.states])
            is_even = evenly[sources] & evenly[targets]
        for mesh, which in ((self.mesh.even, is_even), (self.mesh, ~is_even)):
            if len(of_mesh := np.flatnonzero(which)):
                weights = [self._weights(mesh, axis, elements) for axis in range(len(self.shape))]
                for pairs in np.array_split(of_mesh, -(-len(of_mesh) // MOST_PAIRS)):
                    found[pairs] = self._relaxed(weights, sources[pairs], targets[pairs])
        return found

    def reshard_steps(self, reshard_plan: int) -> Iterator[tuple[int, int]]:
        """The axis of each step of a reshard plan, and the kind of place that it leads to."""
        base = _base(len(self.shape))
        digits: list[int] = []
        while reshard_plan:
            reshard_plan, digit = divmod(reshard_plan, base)
            digits.append(digit - 1)
        return ((digit // SOURCE, digit % SOURCE) for digit in reversed(digits))

    def _relaxed(self, weights: Sequence[Array], sources: Array, targets: Array) -> Array:
        """The cheapest reshard plans of pairs by the weights of steps, from each joint state to each state along an axis."""
        import numpy as np

        axes, base = range(len(self.shape)), _base(len(self.shape))
        to = self.places[:, :, targets]
        place = np.concatenate([to, self.places[:, :1, sources]], axis=1)
        kinds = [kind for kind in range(SOURCE + 1) if kind != BASE or (to[:, BASE] >= 0).any()]
        numbers = {at: i for i, at in enumerate(product(kinds, repeat=len(self.shape)))}
        begins = np.where(place[:, SOURCE] == place[:, TARGET], TARGET, SOURCE)
        cost = np.stack([np.where(np.all(begins.T == at, axis=1), 0.0, inf) for at in numbers])
        code = np.zeros(cost.shape, dtype=np.int64)
        joint = [
            np.ravel_multi_index(tuple(place[axis, at[axis]] for axis in axes), self.shape, mode="wrap")
            for at in numbers
        ]
        waiting = {at: None for at, here in numbers.items() if np.isfinite(cost[here]).any()}
        while waiting:
            at = next(iter(waiting))
            del waiting[at]
            here = numbers[at]
            for axis, kind in product(axes, kinds):
                if kind in (SOURCE, at[axis]):
                    continue
                after = (*at[:axis], kind, *at[axis + 1 :])
                there = numbers[after]
                added = weights[axis][joint[here], to[axis, kind]]
                if kind == BASE:
                    added = np.where(to[axis, kind] >= 0, added, inf)
                total, taken = cost[here] + added, code[here] * base + axis * SOURCE + kind + 1
                is_less = (total < cost[there]) | ((total == cost[there]) & (taken < code[there]) & (total < inf))
                if is_less.any():
                    np.copyto(cost[there], total, where=is_less)
                    np.copyto(code[there], taken, where=is_less)
                    waiting[after] = None
        end = numbers[(TARGET,) * len(self.shape)]
        return np.where(np.isfinite(cost[end]), code[end], -1)

    def _weights(self, mesh: Mesh, axis: int, elements: int) -> Array:
        """What a step along an axis weighs, by the joint state before it and the state along the axis after it: infinite where one step does not do it, since it takes two, or an axis
        inside cuts the dim that changes."""
        import numpy as np

        states, n = self.along[axis], mesh.sizes[axis]
        fixed, per_element = np.full((len(states), len(states)), inf), np.zeros((len(states), len(states)))
        for (i, before), (j, after) in product(enumerate(states), repeat=2):
            is_lossy = isinstance(after, Partial) and after.reduction in (Reduction.PROD, Reduction.MEAN)
            if len(reshard_steps(before, after)) == 1 and not is_lossy:
                fixed[i, j], per_element[i, j] = _weight(before, after, n)
        places = np.indices(self.shape).reshape(len(self.shape), -1)
        dims = [np.array([-1 if (d := dim_of(s)) is None else d for s in every]) for every in self.along]
        of_joint = [of_axis[own] for of_axis, own in zip(dims, places, strict=True)]
        parts = np.prod(
            [
                np.where(own >= 0, size, 1)
                for a, (own, size) in enumerate(zip(of_joint, mesh.sizes, strict=True))
                if a != axis
            ],
            axis=0,
        )
        local = elements / np.broadcast_to(parts, (prod(self.shape),))
        found = np.round((fixed[places[axis]] + per_element[places[axis]] * local[:, None]) * PARTS)
        for inner in of_joint[axis + 1 :]:
            found[(inner >= 0) & (inner == of_joint[axis])] = inf
            found[(inner[:, None] >= 0) & (inner[:, None] == dims[axis])] = inf
        can_be = np.array([mesh.conflict(states) is None for states in product(*self.along)])
        stride = prod(self.shape[axis + 1 :])
        reached = np.arange(prod(self.shape))[:, None] + stride * (np.arange(len(states)) - places[axis][:, None])
        return np.where(can_be[reached], found, inf)


def _base(axes: int) -> int:
    """ReshardPlans are numbers of digits that tell a step each, from 1 on."""
    return axes * SOURCE + 1


def _weight(before: State, after: State, n: int) -> tuple[float, float]:
    """Of a step among n, and of each element of what one of them would hold of the whole along the axis."""
    match collective(before, after):
        case None:
            return 0.0, COPY_SHARE / n
        case "allreduce":
            return LATENCY_ELEMENTS, 2 * (n - 1) / n
        case "exchange":
            assert isinstance(after, Windowed)
            return LATENCY_ELEMENTS, after.beyond / after.extent
        case "alltoall":
            return LATENCY_ELEMENTS, (n - 1) / n / n
        case _:
            return LATENCY_ELEMENTS, (n - 1) / n
