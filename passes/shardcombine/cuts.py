"""Cuts. In go a stand-in and a factor; out come ways to divide the operands along the factor, and the op as one
shard sees it: its sizes and result shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from distir.dialects.sharding import NO_HALO, Combine, Halo, Offset
from distir.passes.shardcombine.factors import LARGEST_LEFTOVER, Factor
from distir.passes.shardcombine.probe_op import Point, ProbeOp, Shape
from distir.passes.shardcombine.standins import StandIn

Pieces = tuple[int, ...]


def portions(extent: int, shards: int) -> tuple[int, ...]:
    """Uneven parts of an extent of at least as many, no two shards alike where possible: it is, of five and more."""
    first = max(1, (extent - 1) // shards)
    return (first, extent - first) if shards == 2 else (1, first, extent - 1 - first)


def shard_indices(size: int, pieces: Pieces, parts: Sequence[int], shard: int) -> list[int]:
    """The indices of one shard of a dim of `pieces` (relative sizes; empty: one), each cut in the ratio of parts."""
    pieces = pieces or (1,)
    start, indices = 0, list[int]()
    for piece in pieces:
        length = size * piece // sum(pieces)
        width = length // sum(parts)
        indices += range(start + sum(parts[:shard]) * width, start + sum(parts[: shard + 1]) * width)
        start += length
    return indices


@dataclass(frozen=True)
class Layout:
    """How a factor lies in a dim: in pieces, or once within every index of the factors outside it, or in windows."""

    pieces: Pieces = ()
    outer: tuple[Factor, ...] = ()
    halo: Halo = NO_HALO
    stride: int = 1
    is_windowed: bool = False
    filled: bool = False

    @property
    def segments(self) -> Pieces:
        """Relative sizes of the segments of the dim that are each cut."""
        return (self.pieces or (1,)) * math.prod(f.extent for f in self.outer)


@dataclass(frozen=True)
class Cut:
    """A factor with its layout in each operand dim that carries it (by slot)."""

    factor: Factor
    layouts: Mapping[int, Layout]


@dataclass(frozen=True)
class Survivor:
    """A cut whose results combine."""

    cut: Cut
    combines: tuple[Combine, ...]
    """Factors are named by `factor_name`."""
    partners: tuple[int, ...] = ()
    """The operands that must then be partial sums."""
    offset: Offset | None = None
    """What is done for shards that have to know their positions."""


def factor_name(factor: Factor) -> str:
    """A name that no other factor of the stand-in has."""
    return "_".join(map(str, factor.slots))


def cuts(probe_op: ProbeOp, small: StandIn, factor: Factor, survivors: Sequence[Survivor] = ()) -> Iterator[Cut]:
    """Ways to cut the operands along a factor: plain first, then in pieces taken from the leftovers. In a dim that
    survivors carry, only inside them."""
    dims = [i for i in factor.slots if not probe_op.slots[i].is_size]
    choices: list[list[Layout]] = []
    for i in dims:
        taken = [s.cut.layouts[i] for s in survivors if i in s.cut.layouts]
        if any(layout.pieces for layout in taken):
            return
        outer = [s.cut.factor for s in survivors if i in s.cut.layouts]
        outer = [f for _, f in sorted(zip(taken, outer, strict=True), key=lambda pair: len(pair[0].outer))]
        pieces = () if taken or i in small.altered else pieces_of(probe_op, small, factor, small.leftovers[i])
        choices.append([Layout((), tuple(outer)), *map(Layout, pieces)])
    for layouts in product(*choices):
        yield Cut(factor, dict(zip(dims, layouts, strict=True)))


def pieces_of(probe_op: ProbeOp, small: StandIn, factor: Factor, leftover: int) -> list[Pieces]:
    """Sequences of leftovers that sum to this one: of sizes, results or operands; else ones."""
    slots = probe_op.slots
    if leftover == 1 or leftover > 4 * LARGEST_LEFTOVER:
        return []
    groups: dict[object, list[int]] = {}
    for i in factor.slots:
        groups.setdefault(slots[i].owner if slots[i].is_size else "operands", []).append(small.leftovers[i])
    groups["results"] = [small.result_leftover(r, d) for r, d in factor.results]
    found = [tuple(group) for group in groups.values() if sum(group) == leftover and len(group) > 1]
    if leftover <= LARGEST_LEFTOVER:
        found.append((1,) * leftover)
    return list(dict.fromkeys(found))


def local_point(small: StandIn, factor: Factor, part: int) -> Point:
    """The point of a shard that has this part of the factor's extent."""
    return tuple(value // factor.extent * part if i in factor.slots else value for i, value in enumerate(small.point))


def expected_shapes(small: StandIn, factor: Factor, part: int) -> list[Shape | None]:
    """The shapes of its results, if they grow with the factor as those of the stand-in do."""
    return [
        None
        if shape is None
        else tuple(dim // factor.extent * part if (r, d) in factor.results else dim for d, dim in enumerate(shape))
        for r, shape in enumerate(small.shapes)
    ]
