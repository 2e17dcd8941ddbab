"""Factors: extents that are cut. In go the slots of an op and its dim groups; out come readings of each slot as a
leftover times factors.

Each dim group takes a *factor* out of its slots: the greatest common divisor of what is left of them. A slot is then
its leftover (the 3 of a fused `3 d`, the 4 and 1 of grouped queries) times its factors. Several readings are possible, and
they come in the order of their likelihood; which of them stands, `classes` finds out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TypeAlias

from distir.passes.shardcombine.dim_groups import DimGroup
from distir.passes.shardcombine.probe_op import Point, ProbeOp, Shape, Shapes

LARGEST_LEFTOVER = 8


@dataclass(frozen=True)
class Factor:
    """Slots (by index) and result dims whose sizes are multiples of one extent that is cut."""

    slots: tuple[int, ...]
    results: tuple[tuple[int, int], ...]
    extent: int


Rank: TypeAlias = Callable[[DimGroup, Sequence[int]], tuple[object, ...]]
"""Which of several dim groups takes its factor next, given what is left of the slots: the least."""


def _ranks(probe_op: ProbeOp) -> list[Rank]:
    """Orders in which factors may be taken; all begin with dim groups that are seen in results.

    Slots of equal size belong together, or those that explain a size entry do, or those at close positions; a view is
    read from one end, place by place."""

    def places(group: DimGroup) -> tuple[list[int], list[int]]:
        slots = [probe_op.slots[i] for i in group.slots]
        return [s.position for s in slots], [s.length - s.position for s in slots]

    def apart(group: DimGroup, side: str) -> int:
        left, right = (max(positions) - min(positions) for positions in places(group))
        return {"left": left, "right": right}.get(side, min(left, right))

    def by_likeness(sizes_first: bool, side: str) -> Rank:
        def rank(group: DimGroup, left: Sequence[int]) -> tuple[object, ...]:
            values = [left[i] for i in group.slots]
            unequal, sizes = len(set(values)) > 1, sum(probe_op.slots[i].is_size for i in group.slots)
            first = (not sizes, unequal) if sizes_first else (unequal, not sizes)
            return (not group.results, *first, apart(group, side), -math.gcd(*values), -len(values), group.slots)

        return rank

    def by_place(side: int) -> Rank:
        def rank(group: DimGroup, left: Sequence[int]) -> tuple[object, ...]:
            sizes = sum(probe_op.slots[i].is_size for i in group.slots)
            return (not group.results, not sizes, sum(places(group)[side]), group.slots)

        return rank

    def by_number(group: DimGroup, left: Sequence[int]) -> tuple[object, ...]:
        """What only grows together before what also grows alone: heads that share keys, before heads."""
        return (not group.results, -len(group.slots), group.slots)

    likeness = [by_likeness(first, side) for first, side in product((False, True), ("either", "right", "left"))]
    return [*likeness, by_place(0), by_place(1), by_number]


def _take_factors(
    probe_op: ProbeOp,
    point: Point,
    shapes: Shapes,
    groups: Sequence[DimGroup],
    rank: Rank,
    smallest: int,
    with_sums: bool,
) -> tuple[list[Factor], Point]:
    """Factors at their extents of the point and of the results' `shapes`, and the leftovers. What is left of dims, no result shows
    and is small is a kernel's, or, of several operands and `with_sums`, summed over."""
    left, factors, open_ = list(point), list[Factor](), list(groups)
    results = {(r, d): dim for r, shape in enumerate(shapes) for d, dim in enumerate(shape or ())}
    while open_:
        group = min(open_, key=lambda s: rank(s, left))
        open_.remove(group)
        extent = math.gcd(*(left[i] for i in group.slots), *(results[dim] for dim in group.results))
        used_before = any(left[i] != point[i] for i in group.slots)
        dims = {probe_op.slots[i].owner for i in group.slots if not probe_op.slots[i].is_size}
        is_seen = group.results or (with_sums and len(dims) > 1)
        if extent < smallest or (used_before and not is_seen and extent <= LARGEST_LEFTOVER):
            continue
        factors.append(Factor(group.slots, group.results, extent))
        for i in group.slots:
            left[i] //= extent
        for dim in group.results:
            results[dim] //= extent
    return sorted(factors, key=lambda f: f.slots), tuple(left)


def _row_major(source: Shape, target: Shape) -> list[tuple[int, int, int]]:
    """The extents that two shapes of equal sizes have in common when both are read in row-major order, each with its dim
    in the source and in the target: those of `[4, 6, 32]` and `[24, 4, 8]` are 4, 6, 4 and 8. Where a dim of one
    straddles dims of the other, only what they share at the left."""
    atoms: list[tuple[int, int, int]] = []
    dims, left = [0, 0], [source[0], target[0]] if source and target else [0, 0]
    shapes = (source, target)

    def advance(side: int) -> int:
        dims[side] += 1
        return shapes[side][dims[side]] if dims[side] < len(shapes[side]) else 1

    while all(d < len(shape) for d, shape in zip(dims, shapes, strict=True)):
        if (shared := math.gcd(*left)) > 1:
            atoms.append((shared, dims[0], dims[1]))
            left = [n // shared for n in left]
        elif 1 not in left:  # to the next place where dims of both end
            while left[0] != left[1]:
                side = int(left[1] < left[0])
                left[side] *= advance(side)
            left = [1, 1]
        for side in (0, 1):
            if left[side] == 1:
                left[side] = advance(side)
    return atoms


def view_factors(
    probe_op: ProbeOp, point: Point, shapes: Shapes, groups: Sequence[DimGroup], smallest: int
) -> tuple[list[Factor], Point] | None:
    """The factors of an op if it is a view (its operand's elements in row-major order); None if it can be none."""
    if len(probe_op.tensors) != 1 or len(shapes) != 1 or shapes[0] is None:
        return None
    (operand,) = probe_op.tensors
    source = probe_op.operand_shape(point, operand)
    if math.prod(source) != math.prod(shapes[0]) or 0 in source:
        return None
    left, factors = list(point), list[Factor]()
    for extent, dim, result in _row_major(source, shapes[0]):
        group = next((s for s in groups if _carries(probe_op, s, operand, dim) and s.results == ((0, result),)), None)
        if group is None or extent < smallest or any(left[i] % extent for i in group.slots):
            return None
        factors.append(Factor(group.slots, group.results, extent))
        for i in group.slots:
            left[i] //= extent
    return factors, tuple(left)


def _carries(probe_op: ProbeOp, group: DimGroup, operand: int, dim: int) -> bool:
    """Whether this dim is the only one that grows, with any sizes."""
    dims = [s for s in (probe_op.slots[i] for i in group.slots) if not s.is_size]
    return [(s.owner, s.position) for s in dims] == [(operand, dim)]


def factorizations(
    probe_op: ProbeOp,
    point: Point,
    shapes: Shapes,
    groups: Sequence[DimGroup],
    smallest: int = 2,
    with_sums: bool = True,
) -> list[tuple[list[Factor], Point]]:
    """Ways to read the slots as leftovers times factors: small leftovers (of sizes that grow with three dims, such as a
    number of groups, before others), few factors and few crossings first."""

    def crossings(factors: Sequence[Factor]) -> int:
        """Pairs of factors in one order in one operand and in the other order in another."""
        count = 0
        for one, other in combinations(factors, 2):
            a, b = ({probe_op.slots[i].owner: probe_op.slots[i].position for i in f.slots} for f in (one, other))
            signs = {a[owner] < b[owner] for owner in a.keys() & b.keys() if a[owner] != b[owner]}
            count += len(signs) > 1
        return count

    found = [_take_factors(probe_op, point, shapes, groups, rank, smallest, with_sums) for rank in _ranks(probe_op)]
    larger = {i for group in groups if len(group.slots) > 3 for i in group.slots if probe_op.slots[i].is_size}
    found.sort(key=lambda f: (math.prod(f[1][i] for i in larger), math.prod(f[1]), len(f[0]), crossings(f[0])))
    return [each for i, each in enumerate(found) if each not in found[:i]]
