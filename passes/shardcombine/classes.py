"""The search for the stand-in of an op. In goes a probe op; out comes the small op that stands for its class, or None.

A stand-in counts only if the op runs at it and gives the inferred shapes. Readings of the types are tried until one has such a
stand-in with factors; what the op accepts at the small sizes then says which slots go together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np

from distir.passes.shardcombine.dim_groups import DimGroup, Types, dim_groups, scaled_dims
from distir.passes.shardcombine.factors import Factor, factorizations, view_factors
from distir.passes.shardcombine.probe_op import Point, ProbeOp
from distir.passes.shardcombine.readings import Reading, readings
from distir.passes.shardcombine.standins import StandIn, divided, shrunk, without_large_leftovers
from distir.passes.shardcombine.trial_runs import runs


def stand_in(probe_op: ProbeOp) -> StandIn | None:
    """The small op that stands for the probe op's class, with factors if any reading has some, and none that is likely one with a dim
    that has none; None if nothing small enough runs."""
    in_order = [*readings(probe_op)]
    without_factors: StandIn | None = None
    without_partner: StandIn | None = None
    for reading in (*in_order, *(replace(each, with_sizes=True) for each in in_order)):
        for small in stand_ins(probe_op, probe_op.point, reading):
            if small.factors or without_factors is None:
                if runs(probe_op, small.point) is not None:
                    if small.factors and not _lacks_partner(probe_op, small):
                        return small
                    if small.factors:
                        without_partner = without_partner or small
                        break
                    without_factors = small
    if without_partner is None:
        for small in stand_ins(probe_op, probe_op.point, Reading(probe_op.infer, one_by_one=True)):
            if small.factors and runs(probe_op, small.point) is not None:
                return small
    return without_partner or without_factors or divided(probe_op)


def _lacks_partner(probe_op: ProbeOp, small: StandIn) -> bool:
    """Whether a dim of one operand is a factor, and one at its place in another operand, of the same extent, is none: types may not
    say that indices can be no more than what they are in."""
    scaled = {i for factor in small.factors for i in factor.slots}
    alone = [factor.slots[0] for factor in small.factors if len(factor.slots) == 1 and factor.results]

    def places(i: int) -> Iterator[tuple[bool, int, int, int]]:
        """Of the shape, and of a shape of fewer dims that is aligned with its end."""
        slot = probe_op.slots[i]
        yield slot.is_size, slot.position, slot.length, probe_op.point[i]
        yield slot.is_size, slot.position - slot.length, 0, probe_op.point[i]

    left = {place for i in range(len(probe_op.slots)) if i not in scaled for place in places(i)}
    return any(place in left for i in alone for place in places(i))


def stands_for(probe_op: ProbeOp, known: StandIn) -> bool:
    """Whether the stand-in of another op, which differs in numbers only, is one of this op too: the same slots grow together with
    the same result dims, and without them the same is left of every slot and result. Searching again would ask types
    hundreds of times."""
    shapes, left = probe_op.infer(probe_op.point), list(probe_op.point)
    if not known.factors or known.altered or shapes is None or len(shapes) != len(known.shapes):
        return False
    if len(left) != len(known.point) or 0 in left:  # a stand-in beside empty tensors, which have no factor
        return False
    results = {(r, d): dim for r, shape in enumerate(shapes) for d, dim in enumerate(shape or ())}
    extents: dict[int, int] = {}
    for factor in known.factors:
        extent = math.gcd(*(left[i] for i in factor.slots), *(results[dim] for dim in factor.results))
        if extents.setdefault(factor.extent, extent) != extent:  # tied at small sizes, and not here
            return False
        for i in factor.slots:
            left[i] //= extent
        for dim in factor.results:
            results[dim] //= extent
    ranks = [shape is None or len(shape) == len(other or ()) for shape, other in zip(shapes, known.shapes, strict=True)]
    if tuple(left) != known.leftovers or 1 in extents.values() or not all(ranks):
        return False
    if any(known.result_leftover(r, d) != leftover for (r, d), leftover in results.items()):
        return False
    return all(scaled_dims(probe_op.infer, probe_op.point, f.slots) == f.results for f in known.factors)


def _with_equal_sizes(probe_op: ProbeOp, groups: Sequence[DimGroup], types: Types) -> list[DimGroup]:
    """The dim groups with the size entries of their extent that types let grow along: an op may insist on a size that its
    type inference does not look at (the normalized shape of a layer norm's backward)."""
    point = probe_op.point

    def completed(group: DimGroup) -> DimGroup:
        slots = group.slots
        for i, slot in enumerate(probe_op.slots):
            if slot.is_size and i not in slots and point[i] == point[slots[0]]:
                if scaled_dims(types, point, (*slots, i)) == group.results:
                    slots = (*slots, i)
        return replace(group, slots=tuple(sorted(slots)))

    return [completed(group) if group.results else group for group in groups]


def stand_ins(probe_op: ProbeOp, point: Point, reading: Reading) -> Iterator[StandIn]:
    """Candidates in the order of their likelihood; that of a view is certain. Sizes that grow without any dim are numbers that the
    op states (a dilation that its padding balances): they stay as they are."""
    shapes = reading.types(point)
    if shapes is None:
        return
    groups = [
        s
        for s in dim_groups(probe_op.slots, point, reading.types, reading.likely)
        if s.results or any(not probe_op.slots[i].is_size for i in s.slots)
    ]
    if reading.of_operands:
        groups = [s for s in groups if not all(probe_op.slots[i].is_size for i in s.slots)]
    if reading.of_dims:
        groups = [s for s in groups if not any(probe_op.slots[i].is_size for i in s.slots)]
    if reading.with_sizes:
        groups = _with_equal_sizes(probe_op, groups, reading.types)
    if (view := view_factors(probe_op, point, shapes, groups, reading.smallest)) is not None:
        small = shrunk(point, *view, reading, by_size=False)
        small = without_large_leftovers(probe_op, small, reading.evident) if small else None
        if small is not None and _is_view(probe_op, small):
            yield small
    found = factorizations(probe_op, point, shapes, groups, reading.smallest, reading.with_sums)
    for (factors, left), by_size in product(found, (False, True)):
        factors, left = _only(factors, reading.kept(probe_op, factors), left)
        if reading.one_by_one:
            factors, left = _only(factors, _shrinking(point, factors, left, reading, by_size), left)
        small = shrunk(point, factors, left, reading, by_size)
        if not reading.with_large:
            small = without_large_leftovers(probe_op, small, reading.evident) if small else None
        if small is not None:
            yield small


def _shrinking(point: Point, factors: Sequence[Factor], left: Point, reading: Reading, by_size: bool) -> list[Factor]:
    """The factors that, with those before them, change no result dim but their own."""
    chosen: list[Factor] = []
    for factor in factors:
        if shrunk(point, *_only(factors, [*chosen, factor], left), reading, by_size) is not None:
            chosen.append(factor)
    return chosen


def _only(factors: Sequence[Factor], kept: list[Factor], left: Point) -> tuple[list[Factor], Point]:
    """The kept factors; the extents of the others go back to the leftovers."""
    leftovers = list(left)
    for factor in factors:
        for i in factor.slots if factor not in kept else ():
            leftovers[i] *= factor.extent
    return kept, tuple(leftovers)


def _is_view(probe_op: ProbeOp, small: StandIn) -> bool:
    """Whether the result is the only operand's elements in row-major order."""
    (operand,) = probe_op.tensors
    shape = probe_op.operand_shape(small.point, operand)
    dtype = {"float": np.dtype(np.float64), "complex": np.dtype(np.complex128), "bool": np.dtype(np.bool_)}.get(
        probe_op.kind(operand)
    )
    numbers = np.arange(math.prod(shape)).astype(dtype or probe_op.integer_dtype(operand))
    try:
        (result,) = probe_op.evaluate(small.point, {operand: numbers.reshape(shape)})
    except Exception:
        return False
    return result is not None and np.array_equal(result.reshape(-1), numbers)


def is_unexplained(probe_op: ProbeOp, small: StandIn) -> bool:
    """Whether a size that no factor explains must fit other sizes, which types did not say: a number of groups. That nothing is left of a
    result (of a stride beyond its rows) says nothing of that."""
    for i, leftover in enumerate(small.leftovers):
        if leftover > 1 and probe_op.slots[i].is_size:
            larger = tuple(3 * value if i == j else value for j, value in enumerate(small.point))
            is_empty = any(0 in shape for shape in probe_op.infer(larger) or () if shape is not None)
            if not is_empty and runs(probe_op, larger) is None:
                return True
    return False


def refined(probe_op: ProbeOp, small: StandIn) -> StandIn | None:
    """The stand-in with the factors that running the op shows: those that ties of equal extents had joined, and those that
    type inference does not see."""
    tied: dict[int, set[int]] = {}
    for factor in small.factors:
        tied.setdefault(factor.extent, set()).update(factor.slots)
    likely = tuple(tuple(sorted(each)) for each in tied.values())
    reading = Reading(
        cache(lambda point: runs(probe_op, point)), evident=small.evident, shown=small.shown, likely=likely
    )
    found = next(stand_ins(probe_op, small.point, reading), None)
    if found is None:
        found = next(stand_ins(probe_op, small.point, replace(reading, with_sums=False)), None)
    if found is None:
        return None
    moved = {i for i, leftover in enumerate(found.leftovers) if leftover != small.leftovers[i]}
    return replace(found, altered=found.altered | small.altered | moved)
