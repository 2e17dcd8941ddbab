"""The devices of a mesh. In go axis sizes and the states of a value; out come coordinates, groups along an axis, and
each device's shard: its shape and its part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from math import prod

from distir.dialects.dist import PartAttr
from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Partial, Pieces, Sharded, State, Windowed, share
from distir.passes.distribution.conversions import shard_extent, shard_ranges

AxisStates = tuple[State, ...]
"""What a value is along each axis of the mesh, in mesh order."""


@dataclass(frozen=True)
class Mesh:
    """Axis sizes, last axis fastest."""

    axes: tuple[tuple[str, int], ...]
    uneven: bool = False
    """Whether the shards of a value may differ in extent, or overlap."""

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.axes)

    @cached_property
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
            [self.device((*rest[:axis], i, *rest[axis:])) for i in range(self.sizes[axis])] for rest in product(*others)
        ]

    def device(self, coordinates: Sequence[int]) -> int:
        """The device at these coordinates."""
        device = 0
        for size, coordinate in zip(self.sizes, coordinates, strict=True):
            device = device * size + coordinate
        return device

    def cuts(self, states: Sequence[State]) -> dict[int, dict[Pieces, int]]:
        """For each dim that is cut, into how many parts its pieces are; those of the first axis come first."""
        found: dict[int, dict[Pieces, int]] = {}
        for size, state in zip(self.sizes, states, strict=False):
            if isinstance(state, Sharded) and size > 1:
                cuts = found.setdefault(state.dim, {})
                cuts[state.pieces] = cuts.get(state.pieces, 1) * size
        return found

    def local_state(self, axis: int, state: State, states: Sequence[State], device: int = 0) -> State:
        """A state along one axis as the axes before it leave the dim to a device: its pieces are those of a shard of theirs.
        Of pieces finer than theirs, a shard has some, whole."""
        if not isinstance(state, Sharded):
            return state
        coordinates, pieces, counts = self.coordinates(device), state.pieces, state.counts
        for other, parts in self.cuts(states[:axis]).get(state.dim, {}).items():
            if len(other) < len(state.pieces):
                kept = _inside(pieces, shard_ranges(Sharded(state.dim, other), 0, parts))
                pieces, counts = (tuple(each[i] for i in kept) for each in (pieces, counts))
        for size, coordinate, outer in zip(self.sizes[:axis], coordinates, states, strict=False):
            if not isinstance(outer, Sharded) or outer.dim != state.dim or len(outer.pieces) < len(state.pieces):
                continue
            if len(outer.pieces) > len(state.pieces):
                pieces = tuple(piece // size for piece in pieces)
                counts = counts if state.blocks else pieces
                continue
            shares = [share(count, coordinate, size) for count in counts]
            local = tuple(stop - start for start, stop in shares)
            pieces = tuple(p // c * n for p, c, n in zip(pieces, counts, local, strict=True))
            counts = local
        return Sharded(state.dim, pieces, counts if state.blocks else ())

    def canonical(self, states: AxisStates) -> AxisStates:
        """Equal states for equal shards: blocks matter only where the axes that cut a dim do not divide them."""

        cuts = self.cuts(states)

        def is_even(state: Sharded) -> bool:
            parts = cuts.get(state.dim, {}).get(state.pieces, 1)
            return all(count % parts == 0 for count in state.counts)

        return tuple(replace(s, blocks=()) if isinstance(s, Sharded) and is_even(s) else s for s in states)

    def fraction(self, axis: int, states: AxisStates, device: int) -> Fraction:
        """What share of its group's part of the dim that an axis cuts a device has."""
        if isinstance(states[axis], Sharded) and not self.uneven:
            return Fraction(1, self.sizes[axis])
        local = self.local_state(axis, states[axis], states, device)
        if not isinstance(local, Sharded):
            return Fraction(1)
        return Fraction(shard_extent(local, self.coordinates(device)[axis], self.sizes[axis]), sum(local.pieces))

    def conflict(self, states: AxisStates) -> str | None:
        """Why no value can be in these states: axes that cut one dim, the first one outermost, cut it in the same
        pieces, which all of them together divide, or some in pieces of which the shards of the others have equally many
        whole ones (the heads of each row, where the rows are cut); and addends of different reductions do not nest."""
        return _conflict(self, states)

    def is_uniform(self, states: AxisStates) -> bool:
        """Whether the shards of all devices have one shape."""
        if any(isinstance(state, Windowed) for state in states):
            return False
        return not self.uneven or self.even.conflict(states) is None

    def local_shape(self, shape: Sequence[int], states: AxisStates, device: int = 0) -> tuple[int, ...]:
        """The shape of a device's shard; raises DistirError where axes do not fit together."""
        if (self.uneven or len(self.axes) > 1) and (why := self.conflict(states)) is not None:
            raise DistirError(f"a value of shape {list(shape)} cannot be sharded over {dict(self.axes)}: {why}")
        local, coordinates = list(shape), self.coordinates(device)
        is_even = not self.uneven or self.even.conflict(states) is None
        for state, size, coordinate in zip(states, self.sizes, coordinates, strict=True):
            if isinstance(state, Windowed):
                start, stop = state.range(coordinate, size)
                local[state.dim] = stop - start
            elif isinstance(state, Sharded) and is_even:
                local[state.dim] //= size
            elif isinstance(state, Sharded):
                local[state.dim] = sum(stop - start for start, stop in self.ranges(state, states, coordinates))
        return tuple(local)

    def part(self, shape: Sequence[int], states: AxisStates, device: int) -> PartAttr:
        """Which part of the global array a device holds."""
        coordinates = self.coordinates(device)
        dims: list[list[tuple[int, int]]] = [[(0, n)] for n in shape]
        partial = None
        for state in states:
            if isinstance(state, Sharded):
                dims[state.dim] = self.ranges(state, states, coordinates)
            elif isinstance(state, Partial):
                if partial not in (None, state.reduction):
                    raise DistirError(
                        f"a result is partial {partial} on one axis and partial {state.reduction} on another"
                    )
                partial = state.reduction
        return PartAttr(dims, shape, partial)

    def ranges(self, state: Sharded, states: AxisStates, coordinates: Sequence[int]) -> list[tuple[int, int]]:
        """The ranges of a dim that one device holds, over all axes that cut it."""
        every = dict.fromkeys(s for s in states if isinstance(s, Sharded) and s.dim == state.dim)
        coarse, *finer = sorted(every, key=lambda s: len(s.pieces))
        found = self._ranges(coarse, states, coordinates)
        for fine in finer:
            common = [(max(a, c), min(b, d)) for c, d in self._ranges(fine, states, coordinates) for a, b in found]
            found = [(start, stop) for start, stop in common if start < stop]
        return found

    def _ranges(self, state: Sharded, states: AxisStates, coordinates: Sequence[int]) -> list[tuple[int, int]]:
        """Those of the axes that cut the dim in these pieces."""
        found: list[tuple[int, int]] = []
        offset = 0
        for piece, count in zip(state.pieces, state.counts, strict=True):
            start, stop = 0, count
            for size, coordinate, other in zip(self.sizes, coordinates, states, strict=True):
                if other == state:
                    first, last = share(stop - start, coordinate, size)
                    start, stop = start + first, start + last
            block = piece // count
            if found and found[-1][1] == offset + start * block:
                found[-1] = (found[-1][0], offset + stop * block)
            else:
                found.append((offset + start * block, offset + stop * block))
            offset += piece
        return found

    @cached_property
    def even(self) -> Mesh:
        """The same mesh of even shards."""
        return replace(self, uneven=False)


def dim_of(state: State) -> int | None:
    """The dim that a state cuts."""
    return state.dim if isinstance(state, Sharded | Windowed) else None


def _inside(pieces: Sequence[int], ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Which pieces lie in one of the ranges, which are in order."""
    found: list[int] = []
    end, at = 0, 0
    for i, piece in enumerate(pieces):
        start, end = end, end + piece
        while at < len(ranges) and ranges[at][1] < end:
            at += 1
        if at < len(ranges) and ranges[at][0] <= start:
            found.append(i)
    return found


def _nests(coarse: Sharded, parts: int, fine: Sharded) -> bool:
    """Whether each of so many even shards of the coarse pieces consists of fine ones, the same in each."""
    if any(count % parts for count in coarse.counts):
        return False
    shards = [[fine.pieces[i] for i in _inside(fine.pieces, shard_ranges(coarse, n, parts))] for n in range(parts)]
    return sum(shards[0]) * parts == sum(coarse.pieces) and all(shard == shards[0] for shard in shards)


@lru_cache(maxsize=1 << 17)
def _conflict(mesh: Mesh, states: AxisStates) -> str | None:
    for axis, state in enumerate(states):
        if isinstance(state, Windowed):
            if any(a != axis and dim_of(other) == state.dim for a, other in enumerate(states)):
                return f"dim {state.dim} is cut with a halo, which only one axis can do"
            if (rows := min(anchor.extent for anchor in state.steps.anchors)) < mesh.sizes[axis]:
                return f"dim {state.dim} makes {rows} rows, too few for {mesh.sizes[axis]} parts"
    for dim, cuts in mesh.cuts(states).items():
        here = dict.fromkeys(s for s in states if isinstance(s, Sharded) and s.dim == dim)
        by_pieces = {pieces: [s for s in here if s.pieces == pieces] for pieces in cuts}
        for (state, *others), parts in zip(by_pieces.values(), cuts.values(), strict=True):
            if others:
                return f"dim {dim} is cut in blocks, {list(state.counts)} and {list(others[0].counts)} of them"
            if (not mesh.uneven or len(cuts) > 1) and any(count % parts for count in state.counts):
                return f"dim {dim} in pieces {list(state.pieces)} is not cut evenly into {parts} parts"
            if any(count < parts for count in state.counts):
                return f"dim {dim} has pieces of {list(state.counts)} blocks, too few for {parts} parts"
        if len(cuts) > 1:
            (first, *_), (second, *_), *more = by_pieces.values()
            coarse, fine = (first, second) if len(first.pieces) < len(second.pieces) else (second, first)
            if more or not _nests(coarse, cuts[coarse.pieces], fine):
                return f"dim {dim} is cut in pieces {list(first.pieces)} and in pieces {list(second.pieces)}"
    reductions = {state.reduction for state in states if isinstance(state, Partial)}
    return f"partial {' and partial '.join(sorted(reductions))}" if len(reductions) > 1 else None


def as_addends(states: AxisStates) -> AxisStates:
    """How a value that is a partial sum along some axis leaves the entry: along the axes that replicate it too, or every
    replica would be added. A partial product becomes whole."""
    states = tuple(REPLICATED if s == Partial(Reduction.PROD) else s for s in states)
    if Partial(Reduction.SUM) not in states:
        return states
    return tuple(Partial(Reduction.SUM) if s == REPLICATED else s for s in states)
