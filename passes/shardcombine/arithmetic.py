"""Two kinds of probe: exact scalars, and floats for operators whose code needs machine numbers. In go shapes; out
come drawn operands, and partial sums of them. In go a whole result and the results of shards; out comes whether they combine to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, Protocol

import numpy as np

from distir.dialects.reductions import Reduction
from distir.interpreters.exact import residues
from distir.interpreters.exact.residues import EXACT, packed, unpacked
from distir.interpreters.exact.scalars import PRIME, Scalar, field_element
from distir.passes.shardcombine.domains import Array

_INTEGER_BOUND = 2**30
_SMALL = 4
_SCALES = (1.0, 4.0, 0.25)
"""Of floats: mish falls where x < -1.19, and a function may be odd near zero only."""
TIES = 0.0
"""The scale of small whole numbers, of which many are equal and some zero."""
_MIXED_DECADES = 2.0


class Arithmetic(Protocol):
    """How one kind of probe draws and compares."""

    found: str
    """What a rule says about how it was found."""
    draws: int
    """How many independent draws a rule must pass, if results say much and nothing is decided by order."""

    def draw(self, shape: Sequence[int], rng: np.random.Generator, number: int = 0) -> Array:
        """Floats for draw `number`: other draws may be of other magnitudes."""
        ...

    def addends(self, array: Array, shards: int, reduction: Reduction, rng: np.random.Generator) -> list[Array]:
        """Arrays that reduce to `array`; sum, max and min only."""
        ...

    def readable(self, result: Array) -> Array:
        """The result in the form that the comparisons below take. Raises ArithmeticError for one that says nothing."""
        ...

    def equal(self, left: Array, right: Array) -> bool: ...

    def reduces(self, whole: Array, parts: Sequence[Array], reduction: Reduction, weights: Sequence[Fraction]) -> bool:
        """Whether the parts, all of the whole's shape, reduce to it; `weights` are those of a mean."""
        ...


def _machine_reduces(
    whole: Array,
    parts: Sequence[Array],
    reduction: Reduction,
    weights: Sequence[Fraction],
    equal: Callable[[Array, Array], bool],
) -> bool:
    numbers: list[Any] = list(parts)
    with np.errstate(all="ignore"):
        match reduction:
            case Reduction.SUM:
                return _sums_to(whole, numbers, equal)
            case Reduction.MAX:
                return equal(reduce(np.maximum, numbers), whole)
            case Reduction.MIN:
                return equal(reduce(np.minimum, numbers), whole)
            case Reduction.PROD:
                return equal(reduce(np.multiply, numbers), whole)
            case Reduction.MEAN:
                if whole.dtype.kind not in "fc":
                    return False
                return _sums_to(whole, [part * float(w) for part, w in zip(numbers, weights, strict=True)], equal)


def _sums_to(whole: Array, addends: Sequence[Any], equal: Callable[[Array, Array], bool]) -> bool:
    """Whether they sum to the whole, up to the rounding of the largest of them: a whole of zero is rarely met otherwise."""
    total = np.asarray(reduce(np.add, addends))
    if total.dtype.kind != whole.dtype.kind:
        return False
    return equal(np.stack([total, *addends]), np.stack([whole, *addends]))


def _noises(shards: int, reduction: Reduction) -> int:
    """How many arrays of noise become the addends of so many shards."""
    return shards if reduction is Reduction.SUM else 2 * shards


def _addends(
    array: Array, noise: Sequence[Any], shards: int, reduction: Reduction, rng: np.random.Generator
) -> list[Array]:
    """Arrays of noise become addends. For max and min, one shard has the true element and the others
    have less of it: as much as the extreme of two draws."""
    if reduction is Reduction.SUM:
        return [*noise[1:shards], np.asarray(array - reduce(np.add, noise[1:shards]))]
    pick = np.minimum if reduction is Reduction.MAX else np.maximum
    owner = rng.integers(0, shards, array.shape)
    worse = [pick(pick(array, noise[2 * i]), noise[2 * i + 1]) for i in range(shards)]
    return [np.where(owner == i, array, each) for i, each in enumerate(worse)]


class Exact:
    """Arrays of exact scalars; read as integers modulo the prime."""

    found = "exact"
    draws = 1

    def draw(self, shape: Sequence[int], rng: np.random.Generator, number: int = 0) -> Array:
        return packed(self._numbers(shape, rng))

    def _numbers(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        return rng.integers(1, PRIME, tuple(shape))

    def addends(self, array: Array, shards: int, reduction: Reduction, rng: np.random.Generator) -> list[Array]:
        """As `_addends`, on residues."""
        whole = self.readable(array)
        if reduction is Reduction.SUM:
            others = [self._numbers(array.shape, rng) for _ in range(shards - 1)]
            return [packed(each) for each in (*others, reduce(residues.subtract, others, whole))]
        noise = [self._numbers(array.shape, rng) for _ in range(_noises(shards, reduction))]
        pick = residues.lesser if reduction is Reduction.MAX else residues.greater
        owner = rng.integers(0, shards, array.shape)
        worse = [pick(pick(whole, noise[2 * i]), noise[2 * i + 1]) for i in range(shards)]
        return [packed(np.where(owner == i, whole, each)) for i, each in enumerate(worse)]

    def readable(self, result: Array) -> Array:
        if result.dtype == EXACT:
            return unpacked(result)
        if result.dtype.kind in "iub":
            return result
        numbers = [x.value if type(x) is Scalar else field_element(_number(x)) for x in result.reshape(-1).tolist()]
        return np.array(numbers, np.int64).reshape(result.shape)

    def equal(self, left: Array, right: Array) -> bool:
        return np.array_equal(left, right)

    def reduces(self, whole: Array, parts: Sequence[Array], reduction: Reduction, weights: Sequence[Fraction]) -> bool:
        numbers: list[Any] = list(parts)
        match reduction:
            case Reduction.SUM:
                return self.equal(reduce(residues.add, numbers), whole)
            case Reduction.MAX | Reduction.MIN:
                pick = residues.greater if reduction is Reduction.MAX else residues.lesser
                return self.equal(reduce(pick, numbers), whole)
            case Reduction.PROD:
                return self.equal(reduce(residues.multiply, numbers), whole)
            case Reduction.MEAN:
                factors = [np.int64(field_element(weight)) for weight in weights]
                weighted = [residues.multiply(n, f) for n, f in zip(numbers, factors, strict=True)]
                return self.equal(reduce(residues.add, weighted), whole)


def _number(value: Any) -> float | int:
    if isinstance(value, int | float):
        return value
    return Scalar.of(value).value


class Floats:
    """Signed normal doubles, or positive ones for functions that are not defined below zero."""

    found = "probed"
    draws = 3
    may_mix = True
    """Whether a draw of which results say little may have other scales."""

    def __init__(self, positive: bool, scales: Sequence[float] = _SCALES):
        """Draw number n is of scale n, and so on in turn."""
        self.positive, self.scales = positive, scales

    def draw(self, shape: Sequence[int], rng: np.random.Generator, number: int = 0) -> Array:
        scale = self.scales[number % len(self.scales)]
        if scale == TIES:
            return rng.integers(1 if self.positive else -3, 4, tuple(shape)).astype(np.float64)
        return scale * (rng.uniform(0.1, 2.0, tuple(shape)) if self.positive else rng.standard_normal(tuple(shape)))

    def mixed(self, rng: np.random.Generator) -> Floats:
        """Floats of one scale, which is any: those of one operand may have to be far smaller than those of another for results
        that are not all at a bound."""
        return Floats(self.positive, (float(10 ** rng.uniform(-_MIXED_DECADES, _MIXED_DECADES)),))

    def addends(self, array: Array, shards: int, reduction: Reduction, rng: np.random.Generator) -> list[Array]:
        scale = float(np.abs(array).max(initial=0)) or 1.0
        noise = [scale * rng.standard_normal(array.shape) for _ in range(_noises(shards, reduction))]
        if array.dtype.kind == "c":
            noise = [each + 1j * rng.permutation(each.reshape(-1)).reshape(each.shape) for each in noise]
        if reduction is not Reduction.SUM:  # always worse, or a function that falls and rises is rarely seen to fall
            sign = -1 if reduction is Reduction.MAX else 1
            if array.dtype.kind == "f" and np.array_equal(array, np.rint(array)) and array.any():
                noise = [
                    rng.integers(0, _SMALL, array.shape) for _ in noise
                ]  # among which zeros and equal numbers are as usual
            noise = [array + sign * np.abs(each) for each in noise]
        return _addends(array, noise, shards, reduction, rng)

    def readable(self, result: Array) -> Array:
        if result.dtype.kind in "iub":
            return result
        if result.dtype.kind not in "fc" or not np.isfinite(result).all():
            raise ArithmeticError("not finite")
        return result

    def equal(self, left: Array, right: Array) -> bool:
        if left.shape != right.shape or left.dtype.kind != right.dtype.kind:
            return False
        if left.dtype.kind not in "fc":
            return np.array_equal(left, right)
        parts = 2 if left.dtype.kind == "c" else 1
        precision = {8: 1e-9, 4: 1e-5, 2: 4e-3}.get(min(left.dtype.itemsize, right.dtype.itemsize) // parts, 1e-5)
        return bool(np.allclose(left, right, rtol=precision, atol=precision * float(np.abs(right).max(initial=0))))

    def reduces(self, whole: Array, parts: Sequence[Array], reduction: Reduction, weights: Sequence[Fraction]) -> bool:
        return _machine_reduces(whole, parts, reduction, weights, self.equal)


class PartlyFinite(Floats):
    """Small whole numbers, on which results need not be finite everywhere: they are compared where the whole is."""

    may_mix = False

    def __init__(self) -> None:
        super().__init__(positive=False)

    def draw(self, shape: Sequence[int], rng: np.random.Generator, number: int = 0) -> Array:
        return rng.integers(-2, 3, tuple(shape)).astype(np.float64)

    def readable(self, result: Array) -> Array:
        return result

    def equal(self, left: Array, right: Array) -> bool:
        if left.shape != right.shape or right.dtype.kind not in "fc":
            return super().equal(left, right)
        finite = np.isfinite(right)
        return super().equal(left[finite], right[finite])


WITH_ZEROS = Floats(positive=False, scales=(TIES, *_SCALES))
"""For what depends on whether numbers are zero or equal, such as a count of those that are not zero."""


def reduces(
    arithmetic: Arithmetic,
    whole: Array,
    parts: Sequence[Array],
    reduction: Reduction,
    weights: Sequence[Fraction],
    kind: str,
) -> bool:
    """`Arithmetic.reduces` for a result of this element kind; integers are machine integers in every arithmetic."""
    if kind == "float" or (kind == "complex" and reduction in (Reduction.SUM, Reduction.MEAN)):
        return arithmetic.reduces(whole, parts, reduction, weights)
    if kind != "integer":
        return False
    return _machine_reduces(whole, parts, reduction, weights, arithmetic.equal)


def _phrases(table: Array, count: int, rng: np.random.Generator) -> Array:
    """So many integers: pieces of the table one after the other, most of them among the same few."""
    pieces = [table[start : start + rng.integers(1, 4)] for start in rng.integers(0, table.size, 3)]
    chosen = [pieces[i] for i in rng.integers(0, len(pieces), max(count, 1))]
    return np.concatenate(chosen)[:count]


def draw_integers(
    shape: Sequence[int],
    bounds: tuple[int, int] | None,
    dtype: np.dtype[Any],
    rng: np.random.Generator,
    number: int = 0,
    largest: int = 1,
    stated: Sequence[int] = (),
) -> Array:
    """Integers for draw `number`. Indices from `bounds` (the second exclusive): each of them somewhere if there is room;
    in every second draw any of them, so that some are missing and some recur. Without bounds: any integers, half of
    them small (they may be indices whose operator passes over those out of range, as backward of an embedding does); then
    small ones of both signs and small ones of none, up to `largest`, for offsets, lengths and diagonals. With a table of
    integers that the op states (the words that it looks for), every second draw is of pieces of it."""
    count = math.prod(shape)
    if bounds is None:
        if stated and number % 2:
            return _phrases(np.array(stated, dtype), count, rng).reshape(tuple(shape))
        number = number // 2 if stated else number
        limits = np.iinfo(dtype)
        bound = min(_INTEGER_BOUND, int(limits.max))
        low, high = ((-bound, bound), (-largest, largest + 1), (0, largest + 1))[number % 3]
        numbers = rng.integers(low, high, count)
        if number % 3 == 0:
            numbers = np.where(rng.random(count) < 0.5, rng.integers(0, _SMALL, count), numbers)
        return numbers.astype(dtype).reshape(tuple(shape))
    low, high = bounds
    if number % 2:
        numbers = rng.integers(low, high, count)
    elif count <= high - low:
        numbers = low + rng.choice(high - low, count, replace=False)
    else:
        numbers = np.concatenate([np.arange(low, high), rng.integers(low, high, count - (high - low))])
    return rng.permutation(numbers).astype(dtype).reshape(tuple(shape))
