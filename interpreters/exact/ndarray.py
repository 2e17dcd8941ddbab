"""Arrays of exact scalars for numpy code. In goes an array of type `EXACT`; out comes an array that computes with
residues in the field's arithmetic, and back. Operations without arithmetic (cuts, moves, concatenations) are
numpy's; functions of one element are opaque."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np

from distir.interpreters.exact import residues
from distir.interpreters.exact.residues import EXACT, packed, unpacked

_FIELD = {
    np.add: residues.add,
    np.subtract: residues.subtract,
    np.multiply: residues.multiply,
    np.true_divide: lambda a, b: residues.multiply(a, residues.reciprocal(b)),
    np.negative: residues.negative,
    np.maximum: residues.greater,
    np.minimum: residues.lesser,
}
_OPAQUE = (np.exp, np.log, np.sqrt, np.tanh)


class ExactArray(np.ndarray[Any, np.dtype[np.int64]]):
    """Residues. Raises TypeError for arithmetic that the field has not."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        given = [_residues(each) for each in inputs]
        if method == "reduce" and ufunc is np.add:
            return _sum(given[0], **options).view(ExactArray)
        if method != "__call__" or any(value is not None for value in options.values()):
            raise TypeError(f"exact scalars have no {ufunc.__name__}.{method}")
        if ufunc is np.matmul:
            products = residues.multiply(given[0][..., None], given[1][..., None, :, :])
            return residues.reduced(residues.total, products, [-2]).view(ExactArray)
        if ufunc in _FIELD:
            return _FIELD[ufunc](*given).view(ExactArray)
        if ufunc in _OPAQUE:
            residues.count_beyond_ring()
            return residues.opaque(crc32(ufunc.__name__.encode()), *given).view(ExactArray)
        raise TypeError(f"exact scalars have no {ufunc.__name__}")


def exact_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of type `EXACT` as one that numpy code runs on; another as it is."""
    return unpacked(array).view(ExactArray) if array.dtype == EXACT else array


def from_exact(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Back to the type `EXACT`."""
    return packed(np.asarray(array)) if isinstance(array, ExactArray) else array


def _residues(value: Any) -> residues.Residues:
    return np.asarray(value) if isinstance(value, ExactArray) else residues.residues(value)


def _sum(array: residues.Residues, axis: int | None, keepdims: bool = False, **_: Any) -> residues.Residues:
    dims = list(range(array.ndim)) if axis is None else [axis % array.ndim]
    found = residues.reduced(residues.total, array, dims)
    return np.expand_dims(found, tuple(dims)) if keepdims else found
