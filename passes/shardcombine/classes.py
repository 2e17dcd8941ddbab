"""The class of an op: the search for its stand-in.

A stand-in counts only if the op runs at it and gives the inferred shapes. Readings of the types are tried until one has such a
stand-in with factors; what the op accepts at the small sizes then says which slots go together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np

from distir.passes.shardcombine.factors import Factor, factorizations, view_factors
from distir.passes.shardcombine.readings import Reading, readings
from distir.passes.shardcombine.scaling import CoScaling, Types, co_scalings, scaled_dims
from distir.passes.shardcombine.standins import StandIn, divided, shrunk, without_large_leftovers
from distir.passes.shardcombine.subject import Point, Subject
from distir.passes.shardcombine.trial_runs import runs


def stand_in(subject: Subject) -> StandIn | None:
    """The small op that stands for the subject's class, with factors if any reading has some, and none that is likely one with a dim
    that has none; None if nothing small enough runs."""
    in_order = [*readings(subject)]
    without_factors: StandIn | None = None
    without_partner: StandIn | None = None
    for reading in (*in_order, *(replace(each, with_sizes=True) for each in in_order)):
        for small in stand_ins(subject, subject.point, reading):
            if small.factors or without_factors is None:
                if runs(subject, small.point) is not None:
                    if small.factors and not _lacks_partner(subject, small):
                        return small
                    if small.factors:
                        without_partner = without_partner or small
                        break
                    without_factors = small
    if without_partner is None:
        for small in stand_ins(subject, subject.point, Reading(subject.infer, one_by_one=True)):
            if small.factors and runs(subject, small.point) is not None:
                return small
    return without_partner or without_factors or divided(subject)


def _lacks_partner(subject: Subject, small: StandIn) -> bool:
    """Whether a dim of one operand is a factor, and one at its place in another operand, of the same extent, is none: types may not
    say that indices can be no more than what they are in."""
    scaled = {i for factor in small.factors for i in factor.slots}
    alone = [factor.slots[0] for factor in small.factors if len(factor.slots) == 1 and factor.results]

    def places(i: int) -> Iterator[tuple[bool, int, int, int]]:
        """Of the shape, and of a shape of fewer dims that is aligned with its end."""
        slot = subject.slots[i]
        yield slot.is_size, slot.position, slot.length, subject.point[i]
        yield slot.is_size, slot.position - slot.length, 0, subject.point[i]

    left = {place for i in range(len(subject.slots)) if i not in scaled for place in places(i)}
    return any(place in left for i in alone for place in places(i))


def stands_for(subject: Subject, known: StandIn) -> bool:
    """Whether the stand-in of another op, which differs in numbers only, is one of this op too: the same slots grow together with
    the same result dims, and without them the same is left of every slot and result. Searching again would ask types
    hundreds of times."""
    shapes, left = subject.infer(subject.point), list(subject.point)
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
    return all(scaled_dims(subject.infer, subject.point, f.slots) == f.results for f in known.factors)


def _with_equal_sizes(subject: Subject, scalings: Sequence[CoScaling], types: Types) -> list[CoScaling]:
    """The co-scalings with the size entries of their extent that types let grow along: an op may insist on a size that its
    type inference does not look at (the normalized shape of a layer norm's backward)."""
    point = subject.point

    def completed(scaling: CoScaling) -> CoScaling:
        slots = scaling.slots
        for i, slot in enumerate(subject.slots):
            if slot.is_size and i not in slots and point[i] == point[slots[0]]:
                if scaled_dims(types, point, (*slots, i)) == scaling.results:
                    slots = (*slots, i)
        return replace(scaling, slots=tuple(sorted(slots)))

    return [completed(scaling) if scaling.results else scaling for scaling in scalings]


def stand_ins(subject: Subject, point: Point, reading: Reading) -> Iterator[StandIn]:
    """Candidates in the order of their likelihood; that of a view is certain. Sizes that grow without any dim are numbers that the
    op states (a dilation that its padding balances): they stay as they are."""
    shapes = reading.types(point)
    if shapes is None:
        return
    scalings = [
        s
        for s in co_scalings(subject.slots, point, reading.types, reading.likely)
        if s.results or any(not subject.slots[i].is_size for i in s.slots)
    ]
    if reading.of_operands:
        scalings = [s for s in scalings if not all(subject.slots[i].is_size for i in s.slots)]
    if reading.of_dims:
        scalings = [s for s in scalings if not any(subject.slots[i].is_size for i in s.slots)]
    if reading.with_sizes:
        scalings = _with_equal_sizes(subject, scalings, reading.types)
    if (view := view_factors(subject, point, shapes, scalings, reading.smallest)) is not None:
        small = shrunk(point, *view, reading, by_size=False)
        small = without_large_leftovers(subject, small, reading.evident) if small else None
        if small is not None and _is_view(subject, small):
            yield small
    found = factorizations(subject, point, shapes, scalings, reading.smallest, reading.with_sums)
    for (factors, left), by_size in product(found, (False, True)):
        factors, left = _only(factors, reading.kept(subject, factors), left)
        if reading.one_by_one:
            factors, left = _only(factors, _shrinking(point, factors, left, reading, by_size), left)
        small = shrunk(point, factors, left, reading, by_size)
        if not reading.with_large:
            small = without_large_leftovers(subject, small, reading.evident) if small else None
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


def _is_view(subject: Subject, small: StandIn) -> bool:
    """Whether the result is the only operand's elements in row-major order."""
    (operand,) = subject.tensors
    shape = subject.operand_shape(small.point, operand)
    dtype = {"float": np.dtype(np.float64), "complex": np.dtype(np.complex128), "bool": np.dtype(np.bool_)}.get(
        subject.kind(operand)
    )
    numbers = np.arange(math.prod(shape)).astype(dtype or subject.integer_dtype(operand))
    try:
        (result,) = subject.evaluate(small.point, {operand: numbers.reshape(shape)})
    except Exception:
        return False
    return result is not None and np.array_equal(result.reshape(-1), numbers)


def is_unexplained(subject: Subject, small: StandIn) -> bool:
    """Whether a size that no factor explains must fit other sizes, which types did not say: a number of groups. That nothing is left of a
    result (of a stride beyond its rows) says nothing of that."""
    for i, leftover in enumerate(small.leftovers):
        if leftover > 1 and subject.slots[i].is_size:
            larger = tuple(3 * value if i == j else value for j, value in enumerate(small.point))
            is_empty = any(0 in shape for shape in subject.infer(larger) or () if shape is not None)
            if not is_empty and runs(subject, larger) is None:
                return True
    return False


def refined(subject: Subject, small: StandIn) -> StandIn | None:
    """The stand-in with the factors that running the op shows: those that ties of equal extents had joined, and those that
    type inference does not see."""
    tied: dict[int, set[int]] = {}
    for factor in small.factors:
        tied.setdefault(factor.extent, set()).update(factor.slots)
    likely = tuple(tuple(sorted(each)) for each in tied.values())
    reading = Reading(
        cache(lambda point: runs(subject, point)), evident=small.evident, shown=small.shown, likely=likely
    )
    found = next(stand_ins(subject, small.point, reading), None)
    if found is None:
        found = next(stand_ins(subject, small.point, replace(reading, with_sums=False)), None)
    if found is None:
        return None
    moved = {i for i, leftover in enumerate(found.leftovers) if leftover != small.leftovers[i]}
    return replace(found, altered=found.altered | small.altered | moved)
