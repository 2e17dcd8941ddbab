"""Object arrays of exact scalars (`exact.scalars`). In go numbers; out come such arrays. For primitives of JAX
(`jax.arrays`): in goes an operator; if it only moves elements, out come its results on the scalars. Operators of
ATen have residues in place of scalars (`aten.exact`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from distir.interpreters.exact.residues import EXACT, unpacked
from distir.interpreters.exact.scalars import PRIME, Scalar
from distir.interpreters.labels import labelled, places_among

Array = np.ndarray[Any, Any]


def scalars(array: Array) -> Array:
    """An array of numbers, or of exact scalars of any kind, as an object array of exact scalars."""
    if array.dtype == EXACT:
        return from_list([Scalar(number) for number in unpacked(array).reshape(-1).tolist()], array.shape)
    if array.dtype == object and (not array.size or isinstance(array.flat[0], Scalar)):
        return array
    return from_list([Scalar.of(number) for number in array.astype(object).reshape(-1).tolist()], array.shape)


def with_scalars(arrays: Sequence[Any]) -> list[Any]:
    """Arrays of exact scalars as object arrays of them, which numpy code runs on; others as they are."""
    return [scalars(a) if isinstance(a, np.ndarray) and a.dtype == EXACT else a for a in arrays]


def from_list(items: Sequence[Any], shape: Sequence[int]) -> Array:
    """An object array of these items."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(tuple(shape))


def opaque(name: str, *arrays: Any) -> Array:
    """A function of elements of which nothing is known but its name."""
    code = crc32(name.encode())

    def function(*numbers: Any) -> Scalar:
        return Scalar(hash((code, *(Scalar.of(number).value for number in numbers))) % PRIME)

    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), dtype=object)


def moved(exact: Sequence[Array], run: Callable[[Sequence[Array]], Sequence[Array]]) -> list[Array | None] | None:
    """What an operator that moves elements, and puts in constants, makes of exact scalars; None if it is not one. `run`
    has its results on doubles, in doubles. Of a result of integers or truths, which are the same whatever the elements
    are, None.

    It runs on distinct numbers three times. An operator that looks at values moves differently where their order is
    another, or their sign; one that rounds gives none of the numbers, which are fractions."""
    total = sum(array.size for array in exact)
    numbers = np.random.default_rng(total).choice(2**40, total, replace=False) + 2.0**41 + 0.25
    runs = [numbers, 2.0**43 + 0.5 - numbers, -numbers]
    try:
        results = [run(labelled(exact, labels)) for labels in runs]
    except Exception:
        return None
    source = from_list([x for array in exact for x in array.reshape(-1).tolist()], (total,))
    found: list[Array | None] = []
    for arrays in zip(*results, strict=True):
        if arrays[0].dtype.kind != "f":
            if not all(np.array_equal(arrays[0], array) for array in arrays[1:]):
                return None
            found.append(None)
            continue
        places = [places_among(array, labels) for array, labels in zip(arrays, runs, strict=True)]
        fixed = places[0] < 0
        for array, place in zip(arrays[1:], places[1:], strict=True):
            if not np.array_equal(place, places[0]):
                return None
            if not np.array_equal(array[fixed], arrays[0][fixed], equal_nan=True):
                return None
        result = np.asarray(source[np.where(fixed, 0, places[0])], dtype=object)
        if fixed.any():
            constants, which = np.unique(arrays[0][fixed], return_inverse=True)
            result[fixed] = from_list([Scalar.of(number) for number in constants.tolist()], constants.shape)[which]
        found.append(result)
    return found
