"""Constants of the sequential program and their parts. In: shards of constants, or indices. Out: their arrays."""

from __future__ import annotations

from typing import cast

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from distir.dialects.onnx import numpy_dtype
from distir.interpreters.proof.indices import Indices, Mismatch, ranges
from distir.interpreters.proof.values import Shard


def stated(value: Shard) -> np.ndarray | None:
    """The array of a shard of a constant, without the numbers that scale it; None for others. Mismatch where it is not known which part it is."""
    array = value.term.plain.array
    if array is None or value.addend is not None:
        return None
    for d, indices in enumerate(value.indices):
        if not indices.is_full(array.shape[d]):
            array = taken(array, d, indices)
    return np.ascontiguousarray(array)


def zeros_of(type_: Attribute) -> np.ndarray:
    """Zeros of a tensor type of known shape."""
    tensor = cast("TensorType[Attribute]", type_)
    return np.zeros(tensor.get_shape(), numpy_dtype(tensor.element_type))


def taken(array: np.ndarray, dim: int, indices: Indices) -> np.ndarray:
    """The entries of a constant at these indices; where they are not known, all must be alike."""
    if indices.bases or indices.is_free:
        first = array.take([0], dim)
        if not close(np.broadcast_to(first, array.shape), array):
            raise Mismatch(f"which part of a constant {indices} is, is not known", indices.bases)
        return np.broadcast_to(first, (*array.shape[:dim], indices.size, *array.shape[dim + 1 :]))
    if indices.is_special and indices.equal is None:
        raise Mismatch(f"{indices} of a constant")
    return np.concatenate(
        [array.take(range(start, stop), dim, mode="wrap") for _, _, _, start, stop in indices.segments], dim
    )


def located(part: np.ndarray, array: np.ndarray, dim: int) -> Indices | None:
    """Which entries of a constant a part of it has along a dim; None where several could be meant, or it is no part."""
    columns, wanted = np.moveaxis(array, dim, 0), np.moveaxis(part, dim, 0)
    if columns.shape[1:] != wanted.shape[1:] or columns.dtype != wanted.dtype:
        return None
    found: list[tuple[int, int]] = []
    for column in wanted:
        after = found[-1][1] if found else len(columns)
        if after < len(columns) and close(columns[after], column):
            found[-1] = found[-1][0], after + 1
            continue
        alike = np.flatnonzero(_near(columns, column).reshape(len(columns), -1).all(1))
        if len(alike) != 1:
            return None
        found.append((int(alike[0]), int(alike[0]) + 1))
    return ranges(found)


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether constants are equal, but for the rounding of what was computed of them."""
    return a.shape == b.shape and bool(_near(a, b).all())


def _near(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "fc":
        return np.asarray((a == b) | ((a != a) & (b != b)))  # bfloat16 has no number, too
    return np.isclose(a, b, rtol=4 * float(np.finfo(a.dtype).eps), atol=0, equal_nan=True)
