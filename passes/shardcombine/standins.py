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
from distir.passes.shardcombine.scaling import CoScaling, Types, co_scalings, scaled_dims
from distir.passes.shardcombine.subject import Point, Shape, Shapes, Subject

_EXTENTS = (4, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 19)
"""Distinct, and all allow two and three uneven shards."""
LARGEST_LEFTOVER = 8
LARGEST_STAND_IN = 20_000
"""Elements of any one tensor."""
_MOST_RUN = 200_000
"""Elements of any tensor of an op that is run to see whether it can."""
_SMALL_LEFTOVERS = (3, 4)
_SMALL_ENOUGH = 2_000
_DIVISORS = (2, 3, 5, 7)
"""Of an op without factors: its elements, and what its sizes are divided by until it has so few."""
_LARGEST_SHRUNK = 24
_LARGEST_JOINT = 2
"""Of leftovers that are made small together: sizes, and how many different ones."""
_IRRATIONAL = (5**0.5 - 1) / 2


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
    evident: bool
    """Whether it is of an `evident` reading."""
    altered: frozenset[int] = frozenset()
    """The slots whose leftovers are not those of the op: they say nothing of pieces."""

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
            return (not scaling.results, *first, apart(scaling, side), -math.gcd(*values), -len(values), scaling.slots)

        return rank

    def by_place(side: int) -> Rank:
        def rank(scaling: CoScaling, left: Sequence[int]) -> tuple[object, ...]:
            sizes = sum(subject.slots[i].is_size for i in scaling.slots)
            return (not scaling.results, not sizes, sum(places(scaling)[side]), scaling.slots)

        return rank

    likeness = [by_likeness(first, side) for first, side in product((False, True), ("either", "right", "left"))]
    return [*likeness, by_place(0), by_place(1)]


def _take_factors(
    point: Point, shapes: Shapes, scalings: Sequence[CoScaling], rank: Rank, smallest: int
) -> tuple[list[Factor], Point]:
    """Factors at their extents of the point and of the results' `shapes`, and the leftovers."""
    left, factors, open_ = list(point), list[Factor](), list(scalings)
    results = {(r, d): dim for r, shape in enumerate(shapes) for d, dim in enumerate(shape or ())}
    while open_:
        scaling = min(open_, key=lambda s: rank(s, left))
        open_.remove(scaling)
        extent = math.gcd(*(left[i] for i in scaling.slots), *(results[dim] for dim in scaling.results))
        used_before = any(left[i] != point[i] for i in scaling.slots)
        if extent < smallest or (used_before and not scaling.results and extent <= LARGEST_LEFTOVER):
            continue
        factors.append(Factor(scaling.slots, scaling.results, extent))
        for i in scaling.slots:
            left[i] //= extent
        for dim in scaling.results:
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


def _view_factors(
    subject: Subject, point: Point, shapes: Shapes, scalings: Sequence[CoScaling], smallest: int
) -> tuple[list[Factor], Point] | None:
    """The factors of an op if it is a view (its operand's elements in row-major order); None if it can be none."""
    if len(subject.tensors) != 1 or len(shapes) != 1 or shapes[0] is None:
        return None
    (operand,) = subject.tensors
    source = subject.operand_shape(point, operand)
    if math.prod(source) != math.prod(shapes[0]) or 0 in source:
        return None
    left, factors = list(point), list[Factor]()
    for extent, dim, result in _row_major(source, shapes[0]):
        scaling = next(
            (s for s in scalings if _carries(subject, s, operand, dim) and s.results == ((0, result),)), None
        )
        if scaling is None or extent < smallest or any(left[i] % extent for i in scaling.slots):
            return None
        factors.append(Factor(scaling.slots, scaling.results, extent))
        for i in scaling.slots:
            left[i] //= extent
    return factors, tuple(left)


def _carries(subject: Subject, scaling: CoScaling, operand: int, dim: int) -> bool:
    """Whether this dim is the only one that grows, with any sizes."""
    dims = [s for s in (subject.slots[i] for i in scaling.slots) if not s.is_size]
    return [(s.owner, s.position) for s in dims] == [(operand, dim)]


def factorizations(
    subject: Subject, point: Point, shapes: Shapes, scalings: Sequence[CoScaling], smallest: int = 2
) -> list[tuple[list[Factor], Point]]:
    """Ways to read the slots as leftovers times factors: small leftovers (of sizes that grow with three dims, such as a
    number of groups, before others), few factors and few crossings first."""

    def crossings(factors: Sequence[Factor]) -> int:
        """Pairs of factors in one order in one operand and in the other order in another."""
        count = 0
        for one, other in combinations(factors, 2):
            a, b = ({subject.slots[i].owner: subject.slots[i].position for i in f.slots} for f in (one, other))
            signs = {a[owner] < b[owner] for owner in a.keys() & b.keys() if a[owner] != b[owner]}
            count += len(signs) > 1
        return count

    found = [_take_factors(point, shapes, scalings, rank, smallest) for rank in _ranks(subject)]
    larger = {i for scaling in scalings if len(scaling.slots) > 3 for i in scaling.slots if subject.slots[i].is_size}
    found.sort(key=lambda f: (math.prod(f[1][i] for i in larger), math.prod(f[1]), len(f[0]), crossings(f[0])))
    return [each for i, each in enumerate(found) if each not in found[:i]]


@dataclass(frozen=True)
class _Reading:
    """One way to trust type inference."""

    types: Types
    tied: bool = False
    """Factors of equal extent that are not told apart by results are one."""
    ties_results: bool = False
    """So are those that are told apart by results."""
    smallest: int = 2
    """Factors of smaller extents are not taken."""
    with_sizes: bool = False
    """Whether size entries of a factor's extent belong to it, though types do not need them."""
    evident: bool = False
    """Whether a factor of size entries and at most one dim must show in a result dim in which no other factor does: types may
    let a stride grow with what it strides over. If so, leftovers may be made small together."""
    likely: tuple[tuple[int, ...], ...] = ()
    """Sets of slots that may grow together."""
    of_operands: bool = False
    """Whether a factor must be carried by a data operand: a size alone may have to stay above another (the end of a slice)."""
    of_dims: bool = False
    """Whether a factor may have no size entry: types may let a stride grow with what it strides over, where the op does not
    run."""

    def kept(self, subject: Subject, factors: Sequence[Factor]) -> list[Factor]:
        """Without those that no result shows and that could be one only with others of the same operand (a kernel's):
        types say nothing of them, so their sizes stay."""
        if self.evident:
            dims = [[i for i in f.slots if not subject.slots[i].is_size] for f in factors]
            plain = [f for f, of_dims in zip(factors, dims, strict=True) if len(of_dims) == len(f.slots)]
            shown = {dim for f in plain for dim in f.results}
            factors = [
                f
                for f, of_dims in zip(factors, dims, strict=True)
                if f in plain or len(of_dims) > 1 or set(f.results) - shown
            ]
        if not self.tied or self.ties_results:
            return list(factors)

        def owners(factor: Factor) -> set[int | str]:
            alike = [f for f in factors if not f.results and f.extent == factor.extent]
            return {subject.slots[i].owner for f in alike for i in f.slots}

        return [f for f in factors if f.results or len(owners(f)) > 1]

    def ties(self, factors: Sequence[Factor]) -> list[object]:
        """Factors with equal keys are one."""
        return [
            f.extent if self.tied and (self.ties_results or not f.results) else (i, f.results)
            for i, f in enumerate(factors)
        ]


def _shrunk(point: Point, factors: Sequence[Factor], left: Point, reading: _Reading, by_size: bool) -> StandIn | None:
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
    return StandIn(small_point, shapes, tuple(chosen), left, len(extents) < len(factors), reading.evident)


def _elements(subject: Subject, point: Point, shapes: Shapes) -> int:
    """Of the largest tensor."""
    operands = [subject.operand_shape(point, i) for i in subject.tensors]
    return max((math.prod(shape) for shape in (*operands, *shapes) if shape is not None), default=0)


def plain_arrays(subject: Subject, point: Point, integer: int, distinct: bool = False) -> dict[int, Array]:
    """Data operands of ones, or of distinct numbers around one (an invertible matrix); integers are `integer`."""
    arrays: dict[int, Array] = {}
    for i in subject.tensors:
        shape, kind = subject.operand_shape(point, i), subject.kind(i)
        if kind == "integer":
            arrays[i] = np.full(shape, integer, subject.integer_dtype(i))
        else:
            arrays[i] = np.ones(shape, np.float64 if kind == "float" else np.bool_)
            if distinct and kind == "float":
                arrays[i] += np.modf(np.arange(1, arrays[i].size + 1) * _IRRATIONAL)[0].reshape(shape)
    return arrays


def runs(subject: Subject, point: Point) -> Shapes | None:
    """The result shapes at a point if the op runs there and agrees with type inference."""
    shapes = subject.infer(point)
    if shapes is None or any(0 in shape for shape in shapes if shape is not None):
        return None
    if _elements(subject, point, shapes) > _MOST_RUN:
        return None
    for integer, distinct in product((0, 1), (False, True)):
        try:
            arrays = plain_arrays(subject, point, integer, distinct)
            results = subject.evaluate(point, subject.consistent(point, arrays))
        except Exception:
            continue
        if tuple(None if result is None else result.shape for result in results) == shapes:
            return shapes
    return None


def _readings(subject: Subject) -> Iterator[_Reading]:
    """Stricter and stricter: as inferred; elements conserved; equal extents tied, first those that no result shows (of
    contractions); small extents (of kernels) kept."""
    yield _Reading(subject.infer)

    def conserving(point: Point) -> Shapes | None:
        shapes = subject.infer(point)
        before = math.prod(subject.operand_shape(point, subject.tensors[0]))
        return shapes if shapes and shapes[0] is not None and math.prod(shapes[0]) == before else None

    if subject.tensors and conserving(subject.point) is not None:
        yield _Reading(conserving)
    yield _Reading(subject.infer, tied=True)
    yield _Reading(subject.infer, tied=True, ties_results=True)
    yield _Reading(subject.infer, of_operands=True)
    yield _Reading(subject.infer, tied=True, ties_results=True, smallest=LARGEST_LEFTOVER + 1)
    yield _Reading(subject.infer, evident=True)
    yield _Reading(subject.infer, tied=True, ties_results=True, evident=True)
    yield _Reading(subject.infer, of_dims=True)


def stand_in(subject: Subject) -> StandIn | None:
    """The small op that stands for the subject's class, with factors if any reading has some; None if nothing small enough
    runs."""
    readings = [*_readings(subject)]
    without_factors: StandIn | None = None
    for reading in (*readings, *(replace(each, with_sizes=True) for each in readings)):
        for small in _stand_ins(subject, subject.point, reading):
            if small.factors or without_factors is None:
                if runs(subject, small.point) is not None:
                    if small.factors:
                        return small
                    without_factors = small
    return without_factors or _divided(subject)


def _divided(subject: Subject) -> StandIn | None:
    """The op with its sizes divided, all that are equal together and those of two values where types want it, until it is
    small; without factors, which running it will show. None if it does not run there."""
    point = subject.point
    while (smaller := _divided_once(subject, point)) is not None:
        point = smaller
    shapes = subject.infer(point)
    if shapes is None or _elements(subject, point, shapes) > LARGEST_STAND_IN or runs(subject, point) is None:
        return None
    altered = frozenset(i for i, (old, new) in enumerate(zip(subject.point, point, strict=True)) if old != new)
    return StandIn(point, shapes, (), point, tied=True, evident=False, altered=altered)


def _divided_once(subject: Subject, point: Point) -> Point | None:
    """None if it is small, or types want nothing divided."""
    shapes = subject.infer(point)
    if shapes is None or _elements(subject, point, shapes) <= _SMALL_ENOUGH:
        return None

    def of(values: set[int]) -> tuple[int, ...]:
        return tuple(i for i, value in enumerate(point) if value in values)

    large = sorted({value for value in point if value > LARGEST_LEFTOVER}, reverse=True)
    others = sorted(set(point), reverse=True)
    together = [of({value, other}) for value in large for other in (value, *others)]
    together += [s.slots for s in co_scalings(subject.slots, point, subject.infer) if len(s.slots) > 1]
    for slots, divisor in product(together, _DIVISORS):
        if any(point[i] % divisor or point[i] == divisor for i in slots):
            continue
        smaller = tuple(each // divisor if i in slots else each for i, each in enumerate(point))
        if subject.infer(smaller) is not None:
            return smaller
    return None


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


def _stand_ins(subject: Subject, point: Point, reading: _Reading) -> Iterator[StandIn]:
    """Candidates in the order of their likelihood; that of a view is certain."""
    shapes = reading.types(point)
    if shapes is None:
        return
    scalings = co_scalings(subject.slots, point, reading.types, reading.likely)
    if reading.of_operands:
        scalings = [s for s in scalings if not all(subject.slots[i].is_size for i in s.slots)]
    if reading.of_dims:
        scalings = [s for s in scalings if not any(subject.slots[i].is_size for i in s.slots)]
    if reading.with_sizes:
        scalings = _with_equal_sizes(subject, scalings, reading.types)
    if (view := _view_factors(subject, point, shapes, scalings, reading.smallest)) is not None:
        small = _shrunk(point, *view, reading, by_size=False)
        small = _without_large_leftovers(subject, small, reading.evident) if small else None
        if small is not None and _is_view(subject, small):
            yield small
    found = factorizations(subject, point, shapes, scalings, reading.smallest)
    for (factors, left), by_size in product(found, (False, True)):
        factors, left = _only(factors, reading.kept(subject, factors), left)
        small = _shrunk(point, factors, left, reading, by_size)
        small = _without_large_leftovers(subject, small, reading.evident) if small else None
        if small is not None:
            yield small


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
    dtype = {"float": np.dtype(np.float64), "bool": np.dtype(np.bool_)}.get(subject.kind(operand))
    numbers = np.arange(math.prod(shape)).astype(dtype or subject.integer_dtype(operand))
    try:
        (result,) = subject.evaluate(small.point, {operand: numbers.reshape(shape)})
    except Exception:
        return False
    return result is not None and np.array_equal(result.reshape(-1), numbers)


def _without_large_leftovers(subject: Subject, small: StandIn, jointly: bool) -> StandIn | None:
    """The stand-in with leftovers that no factor explains made small too, if it would be too large with them: each alone;
    or, jointly, all of one value together with those of others (the rows of an image and of its convolution)."""
    if _elements(subject, small.point, small.shapes) <= LARGEST_STAND_IN:
        return small
    leftovers = list(small.leftovers)
    for i, leftover in enumerate(small.leftovers):
        for smaller in _SMALL_LEFTOVERS if leftover > LARGEST_LEFTOVER else ():
            trial = [*leftovers]
            trial[i] = smaller
            if subject.infer(_with_leftovers(small, trial)) is not None:
                leftovers = trial
                break
    if (found := _if_small(subject, small, leftovers)) is not None:
        return found
    if not jointly:
        return None
    values = sorted({leftover for leftover in small.leftovers if leftover > LARGEST_LEFTOVER}, reverse=True)
    for count in range(1, min(len(values), _LARGEST_JOINT) + 1):
        choices = combinations(range(_LARGEST_SHRUNK, 1, -1), count)
        for chosen in sorted(choices, key=sum):
            smaller = dict(zip(values, chosen, strict=False))
            if all(new < old for old, new in smaller.items()):
                if (found := _if_small(subject, small, [smaller.get(n, n) for n in small.leftovers])) is not None:
                    return found
    return None


def _with_leftovers(small: StandIn, leftovers: Sequence[int]) -> Point:
    return tuple(value // old * new for value, old, new in zip(small.point, small.leftovers, leftovers, strict=True))


def _if_small(subject: Subject, small: StandIn, leftovers: Sequence[int]) -> StandIn | None:
    """The stand-in with these leftovers, if types accept it and it is small."""
    point = _with_leftovers(small, leftovers)
    shapes = subject.infer(point)
    if shapes is None or _elements(subject, point, shapes) > LARGEST_STAND_IN:
        return None
    altered = {i for i, (old, new) in enumerate(zip(small.leftovers, leftovers, strict=True)) if old != new}
    return replace(
        small, point=point, shapes=shapes, leftovers=tuple(leftovers), altered=small.altered | frozenset(altered)
    )


def has_strides(subject: Subject, small: StandIn) -> bool:
    """Whether a size grows along with a dim that it is not the extent of, in an op of several operands (one that merges or
    splits dims has one): what overlaps in the op (the windows of a pooling's gradient) may lie apart in the stand-in."""

    def strides(factor: Factor) -> bool:
        sizes = {subject.point[i] for i in factor.slots if subject.slots[i].is_size}
        dims = {subject.point[i] for i in factor.slots if not subject.slots[i].is_size}
        return bool(sizes and dims and sizes != dims)

    return len(subject.tensors) > 1 and any(map(strides, small.factors))


def is_unexplained(subject: Subject, small: StandIn) -> bool:
    """Whether a size that no factor explains must fit other sizes, which types did not say: a number of groups."""
    for i, leftover in enumerate(small.leftovers):
        if leftover > 1 and subject.slots[i].is_size:
            larger = tuple(3 * value if i == j else value for j, value in enumerate(small.point))
            if runs(subject, larger) is None:
                return True
    return False


def refined(subject: Subject, small: StandIn) -> StandIn | None:
    """The stand-in with the factors that running the op shows: those that ties of equal extents had joined, and those that
    type inference does not see."""
    tied: dict[int, set[int]] = {}
    for factor in small.factors:
        tied.setdefault(factor.extent, set()).update(factor.slots)
    likely = tuple(tuple(sorted(each)) for each in tied.values())
    reading = _Reading(cache(lambda point: runs(subject, point)), evident=small.evident, likely=likely)
    if (found := next(_stand_ins(subject, small.point, reading), None)) is None:
        return None
    moved = {i for i, leftover in enumerate(found.leftovers) if leftover != small.leftovers[i]}
    return replace(found, altered=found.altered | small.altered | moved)
