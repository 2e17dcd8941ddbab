"""Stand-ins: an op at small sizes. In go the factors and leftovers of an op; out comes its stand-in, or None where types reject it.

A stand-in replaces the extent of every factor by a small number of its own, and leftovers that no factor explains by small ones
where it would be too large with them. Ops with equal stand-ins are one class and share a rule; that is how a rule found at
width 10 holds at width 12288."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from distir.passes.shardcombine.dim_groups import Types, dim_groups
from distir.passes.shardcombine.factors import LARGEST_LEFTOVER, Factor
from distir.passes.shardcombine.probe_op import Point, ProbeOp, Shapes
from distir.passes.shardcombine.readings import Reading
from distir.passes.shardcombine.trial_runs import LARGEST_STAND_IN, elements, runs
from distir.passes.shardcombine.window_candidates import window_candidates

_EXTENTS = (4, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 19)
"""Distinct, and all allow two and three uneven shards."""
_SMALL_LEFTOVERS = (3, 4)
_SMALL_ENOUGH = 2_000
_DIVISORS = (2, 3, 5, 7)
"""Of an op without factors: its elements, and what its sizes are divided by until it has so few."""
_FEW_STEPS = 4
_LARGEST_SHRUNK = 24
_LARGEST_JOINT = 2
"""Of leftovers that are made small together: sizes, and how many different ones."""


@dataclass(frozen=True)
class StandIn:
    """The op at small sizes. `leftovers[i]` is slot i without its factors."""

    point: Point
    shapes: Shapes
    factors: tuple[Factor, ...]
    leftovers: tuple[int, ...]
    tied: bool
    """Whether factors of equal extent at the op have equal extents here, so that they may be one."""
    evident: bool
    """Whether it is of an `evident` reading."""
    shown: bool
    """Whether it is of a reading in which all factors of sizes are `shown`."""
    altered: frozenset[int] = frozenset()
    """The slots whose leftovers are not those of the op: they say nothing of pieces."""

    def result_leftover(self, result: int, dim: int) -> int:
        shape = self.shapes[result]
        assert shape is not None
        return shape[dim] // math.prod(f.extent for f in self.factors if (result, dim) in f.results)


def shrunk(point: Point, factors: Sequence[Factor], left: Point, reading: Reading, by_size: bool) -> StandIn | None:
    """The stand-in for these factors, or None if types reject it; result dims must be what the factors say. Small
    extents are in the order of the slots, which makes classes few, or `by_size`, which keeps slices in range."""
    keys = reading.ties(factors)
    extents = dict(zip(keys, (f.extent for f in factors), strict=True))
    if len(extents) > len(_EXTENTS):
        return None
    order = sorted(extents, key=extents.__getitem__) if by_size else extents
    small = dict(zip(order, _EXTENTS, strict=False))
    chosen = [replace(f, extent=small[key]) for f, key in zip(factors, keys, strict=True)]
    small_point = tuple(value * math.prod(f.extent for f in chosen if i in f.slots) for i, value in enumerate(left))
    before, shapes = reading.types(point), reading.types(small_point)
    if before is None or shapes is None or len(before) != len(shapes):
        return None
    for r, (old, new) in enumerate(zip(before, shapes, strict=True)):
        if old is None or new is None:
            continue
        if len(old) != len(new):
            return None
        for d, (old_dim, new_dim) in enumerate(zip(old, new, strict=True)):
            carried = [(f.extent, g.extent) for f, g in zip(factors, chosen, strict=True) if (r, d) in f.results]
            if carried and old_dim * math.prod(g for _, g in carried) != new_dim * math.prod(f for f, _ in carried):
                return None
            if not carried and old_dim != new_dim:
                return None
    return StandIn(
        small_point, shapes, tuple(chosen), left, len(extents) < len(factors), reading.evident, reading.shown
    )


def divided(probe_op: ProbeOp) -> StandIn | None:
    """The op with its sizes divided, all that are equal together and those of two values where types want it, until it is
    small, or as it is where it does not run so; without factors, which running it will show. None if it does not run."""
    divided = probe_op.point
    while (smaller := _divided_once(probe_op, divided)) is not None:
        divided = smaller
    for point in dict.fromkeys((divided, probe_op.point)):
        shapes = probe_op.infer(point)
        if shapes is None or elements(probe_op, point, shapes) > LARGEST_STAND_IN or runs(probe_op, point) is None:
            continue
        altered = frozenset(i for i, (old, new) in enumerate(zip(probe_op.point, point, strict=True)) if old != new)
        return StandIn(point, shapes, (), point, tied=True, evident=False, shown=False, altered=altered)
    return None


def _divided_once(probe_op: ProbeOp, point: Point) -> Point | None:
    """None if it is small, or types want nothing divided."""
    shapes = probe_op.infer(point)
    if shapes is None or elements(probe_op, point, shapes) <= _SMALL_ENOUGH:
        return None

    def of(values: set[int]) -> tuple[int, ...]:
        return tuple(i for i, value in enumerate(point) if value in values)

    large = sorted({value for value in point if value > LARGEST_LEFTOVER}, reverse=True)
    others = sorted(set(point), reverse=True)
    together = [of({value, other}) for value in large for other in (value, *others)]
    together += [s.slots for s in dim_groups(probe_op.slots, point, probe_op.infer) if len(s.slots) > 1]
    for slots, divisor in product(together, _DIVISORS):
        if any(point[i] % divisor or point[i] == divisor for i in slots):
            continue
        smaller = tuple(each // divisor if i in slots else each for i, each in enumerate(point))
        if probe_op.infer(smaller) is not None:
            return smaller
    return None


def without_large_leftovers(probe_op: ProbeOp, small: StandIn, jointly: bool) -> StandIn | None:
    """The stand-in with leftovers that no factor explains made small too, if it would be too large with them: rows of windows,
    step by step; or each alone; or, jointly, all of one value together with those of others (the rows of an image and of its
    convolution)."""
    if elements(probe_op, small.point, small.shapes) <= LARGEST_STAND_IN:
        return small
    if (found := _if_small(probe_op, small, _with_fewer_steps(probe_op, small))) is not None:
        return found
    leftovers = list(small.leftovers)
    for i, leftover in enumerate(small.leftovers):
        for smaller in _SMALL_LEFTOVERS if leftover > LARGEST_LEFTOVER else ():
            trial = [*leftovers]
            trial[i] = smaller
            if probe_op.infer(_with_leftovers(small, trial)) is not None:
                leftovers = trial
                break
    if (found := _if_small(probe_op, small, leftovers)) is not None:
        return found
    if not jointly:
        return None
    values = sorted({leftover for leftover in small.leftovers if leftover > LARGEST_LEFTOVER}, reverse=True)
    for count in range(1, min(len(values), _LARGEST_JOINT) + 1):
        choices = combinations(range(_LARGEST_SHRUNK, 1, -1), count)
        for chosen in sorted(choices, key=sum):
            smaller = dict(zip(values, chosen, strict=False))
            if all(new < old for old, new in smaller.items()):
                if (found := _if_small(probe_op, small, [smaller.get(n, n) for n in small.leftovers])) is not None:
                    return found
    return None


def _with_fewer_steps(probe_op: ProbeOp, small: StandIn) -> Sequence[int]:
    """Its leftovers with a few rows in every window that no factor cuts."""
    scaled = {i for factor in small.factors for i in factor.slots}
    point = with_few_steps(probe_op, small.point, scaled, probe_op.infer)
    return [leftover if i in scaled else n for i, (n, leftover) in enumerate(zip(point, small.leftovers, strict=True))]


def with_few_steps(probe_op: ProbeOp, point: Point, scaled: Collection[int], types: Types) -> Point:
    """The point with a few rows in every window, those of `scaled` slots and those that `types` do not let have fewer left out."""
    seen: set[tuple[int, int]] = set()  # a kernel's rows make the same dim longer as those that it goes over
    for window in window_candidates(probe_op, point, scaled):
        dims = {(r, d) for r, d, _ in window.results}
        if dims & seen or (shapes := probe_op.infer(point)) is None:
            continue
        fewer = window.moved(point, min(0, _FEW_STEPS - window.steps(point, shapes)))
        if min(fewer) > 0 and types(fewer) is not None:
            point, seen = fewer, seen | dims
    return point


def _with_leftovers(small: StandIn, leftovers: Sequence[int]) -> Point:
    return tuple(value // old * new for value, old, new in zip(small.point, small.leftovers, leftovers, strict=True))


def _if_small(probe_op: ProbeOp, small: StandIn, leftovers: Sequence[int]) -> StandIn | None:
    """The stand-in with these leftovers, if types accept it and it is small."""
    point = _with_leftovers(small, leftovers)
    shapes = probe_op.infer(point)
    if shapes is None or elements(probe_op, point, shapes) > LARGEST_STAND_IN:
        return None
    altered = {i for i, (old, new) in enumerate(zip(small.leftovers, leftovers, strict=True)) if old != new}
    return replace(
        small, point=point, shapes=shapes, leftovers=tuple(leftovers), altered=small.altered | frozenset(altered)
    )


def strided(probe_op: ProbeOp, small: StandIn) -> list[Factor]:
    """The factors in which a size grows along with a dim that it is not the extent of, in an op of several operands (one that
    merges or splits dims has one): what overlaps in the op (the windows of a pooling's gradient) may lie apart in the stand-in."""

    def strides(factor: Factor) -> bool:
        sizes = {probe_op.point[i] for i in factor.slots if probe_op.slots[i].is_size}
        dims = {probe_op.point[i] for i in factor.slots if not probe_op.slots[i].is_size}
        return bool(sizes and dims and sizes != dims)

    return [factor for factor in small.factors if len(probe_op.tensors) > 1 and strides(factor)]
