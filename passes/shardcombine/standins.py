"""Small sizes for an op, and with them its class.

Each co-scaling takes a *factor* out of its slots: the greatest common divisor g of what is left of them. A slot is then
its leftover (the 3 of a fused `3 d`, the 4 and 1 of grouped queries) times its factors, and a stand-in replaces every g
by a small number of its own. Ops with equal stand-ins are one class and share a rule; that is how a rule found at
width 10 holds at width 12288.

Type inference may accept more than the op does, so a stand-in counts only if the op runs at it and gives the inferred
shapes. Where it does not, stricter readings of the types are tried: no elements appear or vanish (views), factors of
equal extent are one (contractions); and what the op accepts at the small sizes then says which slots go together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from typing import TypeAlias

import numpy as np

from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.scaling import CoScaling, Types, co_scalings
from distir.passes.shardcombine.subject import Point, Shapes, Subject

_EXTENTS = (4, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 19)
"""Distinct, and all allow two and three uneven shards."""
LARGEST_LEFTOVER = 8
LARGEST_STAND_IN = 20_000
"""Elements of any one tensor."""
_SMALL_LEFTOVERS = (3, 4)


@dataclass(frozen=True)
class Factor:
    """Slots (by index) and result dims whose sizes are multiples of one extent that is cut."""

    slots: tuple[int, ...]
    results: tuple[tuple[int, int], ...]
    extent: int


@dataclass(frozen=True)
class StandIn:
    """The op at small sizes. `leftovers[i]` is slot i without its factors."""

    point: Point
    shapes: Shapes
    factors: tuple[Factor, ...]
    leftovers: tuple[int, ...]
    tied: bool
    """Whether factors of equal extent at the op have equal extents here, so that they may be one."""

    def result_leftover(self, result: int, dim: int) -> int:
        shape = self.shapes[result]
        assert shape is not None
        return shape[dim] // math.prod(f.extent for f in self.factors if (result, dim) in f.results)


Rank: TypeAlias = Callable[[CoScaling, Sequence[int]], tuple[object, ...]]
"""Which of several co-scalings takes its factor next, given what is left of the slots: the least."""


def _ranks(subject: Subject) -> list[Rank]:
    """Orders in which factors may be taken; all begin with co-scalings that are seen in results.

    Slots of equal size belong together, or those that explain a size entry do, or those at close positions; a view is
    read from one end, place by place."""

    def places(scaling: CoScaling) -> tuple[list[int], list[int]]:
        slots = [subject.slots[i] for i in scaling.slots]
        return [s.position for s in slots], [s.length - s.position for s in slots]

    def apart(scaling: CoScaling, side: str) -> int:
        left, right = (max(positions) - min(positions) for positions in places(scaling))
        return {"left": left, "right": right}.get(side, min(left, right))

    def by_likeness(sizes_first: bool, side: str) -> Rank:
        def rank(scaling: CoScaling, left: Sequence[int]) -> tuple[object, ...]:
            values = [left[i] for i in scaling.slots]
            unequal, sizes = len(set(values)) > 1, sum(subject.slots[i].is_size for i in scaling.slots)
            first = (not sizes, unequal) if sizes_first else (unequal, not sizes)
            return (not scaling.results, *first, apart(scaling, side), -math.gcd(*values), scaling.slots)

        return rank

    def by_place(side: int) -> Rank:
        def rank(scaling: CoScaling, left: Sequence[int]) -> tuple[object, ...]:
            sizes = sum(subject.slots[i].is_size for i in scaling.slots)
            return (not scaling.results, not sizes, sum(places(scaling)[side]), scaling.slots)

        return rank

    likeness = [by_likeness(first, side) for first, side in product((False, True), ("either", "right", "left"))]
    return [*likeness, by_place(0), by_place(1)]


def _take_factors(point: Point, scalings: Sequence[CoScaling], rank: Rank, smallest: int) -> tuple[list[Factor], Point]:
    """Factors at their extents of the point, and the leftovers."""
    left, factors, open_ = list(point), list[Factor](), list(scalings)
    while open_:
        scaling = min(open_, key=lambda s: rank(s, left))
        open_.remove(scaling)
        extent = math.gcd(*(left[i] for i in scaling.slots))
        used_before = any(left[i] != point[i] for i in scaling.slots)
        if extent < smallest or (used_before and not scaling.results and extent <= LARGEST_LEFTOVER):
            continue
        factors.append(Factor(scaling.slots, scaling.results, extent))
        for i in scaling.slots:
            left[i] //= extent
    return sorted(factors, key=lambda f: f.slots), tuple(left)


def factorizations(
    subject: Subject, point: Point, scalings: Sequence[CoScaling], smallest: int = 2
) -> list[tuple[list[Factor], Point]]:
    """Ways to read the slots as leftovers times factors: small leftovers, few factors and few crossings first."""

    def crossings(factors: Sequence[Factor]) -> int:
        """Pairs of factors in one order in one operand and in the other order in another."""
        count = 0
        for one, other in combinations(factors, 2):
            a, b = ({subject.slots[i].owner: subject.slots[i].position for i in f.slots} for f in (one, other))
            signs = {a[owner] < b[owner] for owner in a.keys() & b.keys() if a[owner] != b[owner]}
            count += len(signs) > 1
        return count

    found = [_take_factors(point, scalings, rank, smallest) for rank in _ranks(subject)]
    found.sort(key=lambda f: (math.prod(f[1]), len(f[0]), crossings(f[0])))
    return [each for i, each in enumerate(found) if each not in found[:i]]


@dataclass(frozen=True)
class _Reading:
    """One way to trust type inference."""

    types: Types
    tied: bool = False
    smallest: int = 2
    """Factors of smaller extents are not taken."""


def _shrunk(point: Point, factors: Sequence[Factor], left: Point, reading: _Reading, by_size: bool) -> StandIn | None:
    """The stand-in for these factors, or None if types reject it; result dims must be what the factors say. Small
    extents are in the order of the slots, which makes classes few, or `by_size`, which keeps slices in range."""
    extents = list(dict.fromkeys(f.extent for f in factors)) if reading.tied else [f.extent for f in factors]
    if len(extents) > len(_EXTENTS):
        return None
    order = sorted(range(len(extents)), key=extents.__getitem__) if by_size else range(len(extents))
    small = {position: _EXTENTS[rank] for rank, position in enumerate(order)}
    chosen = [replace(f, extent=small[extents.index(f.extent) if reading.tied else i]) for i, f in enumerate(factors)]
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
    return StandIn(small_point, shapes, tuple(chosen), left, reading.tied)


def _elements(subject: Subject, point: Point, shapes: Shapes) -> int:
    """Of the largest tensor."""
    operands = [subject.operand_shape(point, i) for i in subject.tensors]
    return max((math.prod(shape) for shape in (*operands, *shapes) if shape is not None), default=0)


def plain_arrays(subject: Subject, point: Point, integer: int) -> dict[int, Array]:
    """Data operands of ones; integers are `integer`."""
    arrays: dict[int, Array] = {}
    for i in subject.tensors:
        shape, kind = subject.operand_shape(point, i), subject.kind(i)
        if kind == "integer":
            arrays[i] = np.full(shape, integer, subject.integer_dtype(i))
        else:
            arrays[i] = np.ones(shape, np.float64 if kind == "float" else np.bool_)
    return arrays


def runs(subject: Subject, point: Point) -> Shapes | None:
    """The result shapes at a point if the op runs there and agrees with type inference."""
    shapes = subject.infer(point)
    if shapes is None or any(0 in shape for shape in shapes if shape is not None):
        return None
    if _elements(subject, point, shapes) > 50 * LARGEST_STAND_IN:
        return None
    for integer in (0, 1):
        try:
            results = subject.evaluate(point, plain_arrays(subject, point, integer))
        except Exception:
            continue
        if tuple(None if result is None else result.shape for result in results) == shapes:
            return shapes
    return None


def _readings(subject: Subject) -> Iterator[_Reading]:
    """Stricter and stricter: as inferred; elements conserved; equal extents tied; small extents (of kernels) kept."""
    yield _Reading(subject.infer)

    def conserving(point: Point) -> Shapes | None:
        shapes = subject.infer(point)
        before = math.prod(subject.operand_shape(point, subject.tensors[0]))
        return shapes if shapes and shapes[0] is not None and math.prod(shapes[0]) == before else None

    if subject.tensors and conserving(subject.point) is not None:
        yield _Reading(conserving)
    yield _Reading(subject.infer, tied=True)
    yield _Reading(subject.infer, tied=True, smallest=LARGEST_LEFTOVER + 1)


def stand_in(subject: Subject) -> StandIn | None:
    """The small op that stands for the subject's class; None if nothing small enough runs."""
    for reading in _readings(subject):
        scalings = co_scalings(subject.slots, subject.point, reading.types)
        found = factorizations(subject, subject.point, scalings, reading.smallest)
        for (factors, left), by_size in product(found, (False, True)):
            small = _shrunk(subject.point, factors, left, reading, by_size)
            small = _without_large_leftovers(subject, small) if small else None
            if small is not None and runs(subject, small.point) is not None:
                return small
    return None


def _without_large_leftovers(subject: Subject, small: StandIn) -> StandIn | None:
    """The stand-in with leftovers that no factor explains made small too, if it would be too large with them."""
    if _elements(subject, small.point, small.shapes) <= LARGEST_STAND_IN:
        return small
    leftovers = list(small.leftovers)
    point = list(small.point)
    for i, leftover in enumerate(small.leftovers):
        for smaller in _SMALL_LEFTOVERS if leftover > LARGEST_LEFTOVER else ():
            trial = [*point]
            trial[i] = point[i] // leftover * smaller
            if subject.infer(tuple(trial)) is not None:
                point, leftovers[i] = trial, smaller
                break
    shapes = subject.infer(tuple(point))
    if shapes is None or _elements(subject, tuple(point), shapes) > LARGEST_STAND_IN:
        return None
    return StandIn(tuple(point), shapes, small.factors, tuple(leftovers), small.tied)


def refined(subject: Subject, small: StandIn) -> StandIn | None:
    """The stand-in with factors told apart by running the op: what ties of equal extents had joined."""
    reading = _Reading(cache(lambda point: runs(subject, point)))
    scalings = co_scalings(subject.slots, small.point, reading.types)
    for (factors, left), by_size in product(factorizations(subject, small.point, scalings), (False, True)):
        apart = _shrunk(small.point, factors, left, reading, by_size)
        apart = _without_large_leftovers(subject, apart) if apart else None
        if apart is not None:
            return apart
    return None
