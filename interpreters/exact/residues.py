"""Arrays of exact scalars: elements of the field of integers modulo 2^61 - 1 as int64 arrays. In go residues or
numbers; out come residues, by the arithmetic, the order and the uninterpreted functions of `exact.scalars` on whole
arrays.

Outside of an operator they have the type `EXACT`, which can be cut, moved and put together like any other, but is taken for numbers by
nobody. Products are put together from halves of 31 and 30 bits, since 2^61 = 1 in the field: no element leaves 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distir.interpreters.exact.scalars import ORDER_FACTORS, PRIME, count_beyond_ring, field_element

Residues = np.ndarray[Any, np.dtype[np.int64]]

EXACT = np.dtype([("residue", np.int64)])
"""Of arrays of exact scalars."""

_BITS = 61
_HALF = np.int64(2**31 - 1)
_LOW = np.int64(2**30 - 1)
_P = np.int64(PRIME)
_MIX = tuple(np.uint64(factor) for factor in ORDER_FACTORS)


def residues(numbers: Any) -> Residues:
    """Numbers, truths or an array of them as field elements, floats exactly; infinities and nan are opaque constants."""
    array = np.asarray(numbers)
    if array.dtype.kind == "b":
        return array.astype(np.int64)
    if array.dtype.kind in "iu" and array.dtype.itemsize <= 8 and array.dtype != np.uint64:
        return np.asarray(array.astype(np.int64) % _P)
    distinct, places = np.unique(array, return_inverse=True)
    elements = np.array([field_element(number) for number in distinct.tolist()], np.int64)
    return elements[places].reshape(array.shape)


def packed(a: Residues) -> np.ndarray[Any, Any]:
    """Residues as an array of exact scalars, of type `EXACT`."""
    return np.asarray(a, np.int64, order="C").view(EXACT)


def unpacked(array: np.ndarray[Any, Any]) -> Residues:
    """The residues of an array of type `EXACT`."""
    return array["residue"]


def _reduced(x: Any) -> Residues:
    """Numbers from 0 to below 2^63 modulo the prime."""
    x = (x & _P) + (x >> _BITS)
    return np.asarray(np.where(x >= _P, x - _P, x), np.int64)


def add(a: Any, b: Any) -> Residues:
    return _reduced(np.asarray(a) + b)


def negative(a: Any) -> Residues:
    return np.asarray(np.where(np.asarray(a) == 0, 0, _P - a), np.int64)


def subtract(a: Any, b: Any) -> Residues:
    return _reduced(np.asarray(a) + (_P - b))


def multiply(a: Any, b: Any) -> Residues:
    """a = a1 2^31 + a0, and so b; 2^62 = 2 in the field."""
    a, b = np.asarray(a), np.asarray(b)
    a1, a0, b1, b0 = a >> 31, a & _HALF, b >> 31, b & _HALF
    middle = a1 * b0 + a0 * b1  # below 2^62
    upper = 2 * (a1 * b1) + (middle >> 30) + ((middle & _LOW) << 31)  # below 3 * 2^61
    return _reduced(_reduced(upper) + _reduced(a0 * b0))


def power(a: Any, exponent: int) -> Residues:
    """For exponents from 0."""
    result, square = np.ones_like(a), np.asarray(a)
    while exponent:
        if exponent & 1:
            result = multiply(result, square)
        exponent >>= 1
        square = multiply(square, square) if exponent else square
    return result


def reciprocal(a: Any) -> Residues:
    """Raises ZeroDivisionError if any element is zero."""
    count_beyond_ring()
    distinct, places = np.unique(a, return_inverse=True)
    if distinct.size and distinct[0] == 0:
        raise ZeroDivisionError("division of an exact scalar by zero")
    return _reciprocals(distinct)[places].reshape(np.shape(a))


def _reciprocals(a: Residues) -> Residues:
    """Of a list: one inverse, and products of the halves (Montgomery, 1987)."""
    if a.size <= 1:
        return np.array([pow(n, -1, PRIME) for n in a.tolist()], np.int64)
    half = (a.size + 1) // 2
    one, other = a[:half], np.concatenate([a[half:], np.ones(2 * half - a.size, np.int64)])
    together = _reciprocals(multiply(one, other))
    return np.concatenate([multiply(together, other), multiply(together, one)])[: a.size]


def order(a: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The place of each element in the total order, as `scalars.order` has it."""
    count_beyond_ring()
    bits = np.asarray(a, np.int64).view(np.uint64)
    with np.errstate(over="ignore"):
        for factor in _MIX:
            bits = bits * factor
            bits = bits ^ (bits >> np.uint64(32))
    return bits.view(np.int64)


def greater(a: Any, b: Any) -> Residues:
    """The greater of each two."""
    return np.where(order(a) >= order(b), a, b)


def lesser(a: Any, b: Any) -> Residues:
    """The lesser of each two."""
    return np.where(order(a) <= order(b), a, b)


def opaque(name: int, *arrays: Any) -> Residues:
    """A function of the elements at each place of which nothing is known but its name."""
    bits = np.uint64(name)
    with np.errstate(over="ignore"):
        for array in arrays:
            bits = (np.asarray(array, np.int64).view(np.uint64) + bits * _MIX[1] + np.uint64(1)) * _MIX[0]
            bits = (bits ^ (bits >> np.uint64(29))) * _MIX[1]
            bits = bits ^ (bits >> np.uint64(32))
    return np.asarray(bits % np.uint64(PRIME)).astype(np.int64)


# --- reductions: of the last dim ---


def total(a: Residues) -> Residues:
    """By halves of the elements, whose sums stay below 2^63."""
    high, low = (a >> 31).sum(-1), (a & _HALF).sum(-1)
    return add(multiply(high % _P, np.int64(2**31)), low % _P)


def product(a: Residues) -> Residues:
    while a.shape[-1] > 1:
        half = a.shape[-1] // 2
        pairs = multiply(a[..., :half], a[..., half : 2 * half])
        a = np.concatenate([pairs, a[..., 2 * half :]], -1)
    return a[..., 0] if a.shape[-1] else np.ones(a.shape[:-1], np.int64)


def greatest(a: Residues) -> Residues:
    return _picked(a, np.argmax)


def least(a: Residues) -> Residues:
    return _picked(a, np.argmin)


def _picked(a: Residues, which: Callable[..., Any]) -> Residues:
    places = np.expand_dims(which(order(a), -1), -1)
    return np.take_along_axis(a, places, -1)[..., 0]


def reduced(combine: Callable[[Residues], Residues], a: Residues, dims: Sequence[int]) -> Residues:
    """The reduction over these dims, which go."""
    if not dims:
        return a
    gone = {dim % a.ndim for dim in dims}
    kept = [d for d in range(a.ndim) if d not in gone]
    shape = [a.shape[d] for d in kept]
    rows = a.transpose([*kept, *sorted(gone)]).reshape(int(np.prod(shape, dtype=int)), -1)
    return combine(rows).reshape(shape)
