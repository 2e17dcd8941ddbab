"""Translates shardings. In go the states of a value along the axes of a mesh; out comes Shardy's sharding, and back.

A dim lists the axes that cut it, the first one outermost, as here; a partial sum is `unreduced`. Shardy has no pieces and no
other reduction: a dim cut in several pieces, and a value that is partial otherwise, are left open for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.dialects.sdy import Axis, Dim, Sharding
from distir.dialects.sharding import REPLICATED, Partial, Sharded, State


def sharding_to_shardy(mesh: str, axes: Sequence[str], states: Sequence[State], rank: int) -> Sharding:
    """The states along these axes, for a value of so many dims. Dims of which Shardy cannot say it all are open."""
    cut: list[list[Axis]] = [[] for _ in range(rank)]
    left_open: set[int] = set()
    unreduced: list[Axis] = []
    for axis, state in zip(axes, states, strict=True):
        if isinstance(state, Sharded) and len(state.pieces) < 2:
            cut[state.dim].append(Axis(axis))
        elif isinstance(state, Sharded):
            left_open.add(state.dim)
        elif state == Partial(Reduction.SUM):
            unreduced.append(Axis(axis))
        elif isinstance(state, Partial):
            left_open |= set(range(rank))
    dims = tuple(Dim(() if d in left_open else tuple(found), d in left_open) for d, found in enumerate(cut))
    return Sharding(mesh, dims, unreduced=tuple(unreduced))


def sharding_from_shardy(sharding: Sharding, shape: Sequence[int], sizes: Mapping[str, int]) -> tuple[State, ...]:
    """The states along the axes of a mesh of these sizes. Raises DistirError for what distir cannot say: sub-axes, a dim
    whose axes are not in the order of the mesh, a dim that they do not cut evenly."""
    states: dict[str, State] = {}
    if len(sharding.dims) != len(shape):
        raise DistirError(f"{sharding} is not of a value of shape {list(shape)}")
    for d, dim in enumerate(sharding.dims):
        names = [_whole(axis, sharding, sizes) for axis in dim.axes]
        if names != [axis for axis in sizes if axis in names]:
            raise DistirError(
                f"{sharding}: dim {d} is cut by {names}, which is not their order in the mesh {dict(sizes)}"
            )
        parts = 1
        for name in names:
            parts *= sizes[name]
            states[name] = Sharded(d, (shape[d],))
        if shape[d] % parts:
            raise DistirError(f"{sharding}: dim {d} of {shape[d]} is not cut evenly into {parts} parts")
    for axis in sharding.unreduced:
        states[_whole(axis, sharding, sizes)] = Partial(Reduction.SUM)
    return tuple(states.get(axis, REPLICATED) for axis in sizes)


def _whole(axis: Axis, sharding: Sharding, sizes: Mapping[str, int]) -> str:
    if axis.sub_axis is not None:
        raise DistirError(f"{sharding}: {axis} is a part of an axis; give the mesh an axis of that size")
    if axis.name not in sizes:
        raise DistirError(f"{sharding}: the mesh {dict(sizes)} has no axis {axis}")
    return axis.name
