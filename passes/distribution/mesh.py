"""The devices of a mesh: coordinates, groups along an axis, and what each device holds of a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from distir.dialects.dist import PartAttr
from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Partial, Sharded, State
from distir.passes.distribution.conversions import shard_ranges

AxisStates = tuple[State, ...]
"""What a value is along each axis of the mesh, in mesh order."""


@dataclass(frozen=True)
class Mesh:
    """Axis sizes, last axis fastest."""

    axes: tuple[tuple[str, int], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.axes)

    @property
    def devices(self) -> int:
        return prod(self.sizes)

    def coordinates(self, device: int) -> tuple[int, ...]:
        found: list[int] = []
        for size in reversed(self.sizes):
            device, coordinate = divmod(device, size)
            found.append(coordinate)
        return tuple(reversed(found))

    def groups(self, axis: int) -> list[list[int]]:
        """The devices of each group along one axis, in axis order."""
        others = [range(size) for i, size in enumerate(self.sizes) if i != axis]
        return [
            [self._device((*rest[:axis], i, *rest[axis:])) for i in range(self.sizes[axis])]
            for rest in product(*others)
        ]

    def _device(self, coordinates: Sequence[int]) -> int:
        device = 0
        for size, coordinate in zip(self.sizes, coordinates, strict=True):
            device = device * size + coordinate
        return device

    def local_shape(self, shape: Sequence[int], states: AxisStates) -> tuple[int, ...]:
        """The shape of one shard; raises DistirError where two axes cut one dim."""
        local = list(shape)
        cut: set[int] = set()
        for (axis, size), state in zip(self.axes, states, strict=True):
            if isinstance(state, Sharded):
                if state.dim in cut:
                    raise DistirError(
                        f"axis {axis!r} cuts dim {state.dim} of {list(shape)}, which another axis cuts already"
                    )
                cut.add(state.dim)
                local[state.dim] //= size
        return tuple(local)

    def part(self, shape: Sequence[int], states: AxisStates, device: int) -> PartAttr:
        """Which part of the global array a device holds."""
        dims: list[list[tuple[int, int]]] = [[(0, n)] for n in shape]
        partial = None
        for size, coordinate, state in zip(self.sizes, self.coordinates(device), states, strict=True):
            if isinstance(state, Sharded):
                dims[state.dim] = shard_ranges(state.pieces, coordinate, size)
            elif isinstance(state, Partial):
                if partial not in (None, state.reduction):
                    raise DistirError(
                        f"a result is partial {partial} on one axis and partial {state.reduction} on another"
                    )
                partial = state.reduction
        return PartAttr(dims, shape, partial)


def conversion_order(source: Sequence[State], target: Sequence[State]) -> list[tuple[int, State]]:
    """Which axis is converted to what, in order: cuts come last, and no two axes ever cut one dim (where axes take over
    each other's dims, one goes through the replicated value)."""
    here, order = list(source), list[tuple[int, State]]()
    pending = [axis for axis, state in enumerate(target) if here[axis] != state]
    pending.sort(key=lambda axis: isinstance(target[axis], Sharded))
    while pending:
        cut = {axis: state.dim for axis, state in enumerate(here) if isinstance(state, Sharded)}
        taken = {axis: {dim for other, dim in cut.items() if other != axis} for axis in pending}
        free = [a for a in pending if not (isinstance(state := target[a], Sharded) and state.dim in taken[a])]
        axis = free[0] if free else next(a for a in pending if a in cut)
        here[axis] = target[axis] if free else REPLICATED
        order.append((axis, here[axis]))
        if free:
            pending.remove(axis)
    return order


def as_addends(states: AxisStates) -> AxisStates:
    """How a value that is a partial sum along some axis leaves the entry: along the axes that replicate it too, or every
    replica would be added. A partial product becomes whole."""
    states = tuple(REPLICATED if s == Partial(Reduction.PROD) else s for s in states)
    if Partial(Reduction.SUM) not in states:
        return states
    return tuple(Partial(Reduction.SUM) if s == REPLICATED else s for s in states)
