"""Collectives on arrays. In go the participants' arrays, in participant order; out come their results, in the same
order. Reductions go in that order, so every run gives the same bits. Shared by `dist` (level 3) and `rank` (level
4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as fold
from typing import Any

import numpy as np

from distir.dialects.reductions import Reduction

Array = np.ndarray[Any, np.dtype[Any]]

_COMBINE: dict[Reduction, Callable[[Any, Any], Any]] = {
    Reduction.SUM: np.add,
    Reduction.MEAN: np.add,
    Reduction.MAX: np.maximum,
    Reduction.MIN: np.minimum,
    Reduction.PROD: np.multiply,
}


def reduce(reduction: Reduction, values: Sequence[Array]) -> Array:
    """Elementwise, in order, in the values' own type; a mean is the sum over the count."""
    total = fold(_COMBINE[reduction], values)
    return (total / len(values)).astype(values[0].dtype) if reduction == Reduction.MEAN else total


def concatenate(values: Sequence[Array], axis: int) -> Array:
    """One after the other."""
    return np.concatenate(values, axis=axis)


def by_element(happen: Callable[[int, Sequence[Any]], Sequence[Any]], values: Sequence[Any]) -> list[Any]:
    """What happens to the values; of tuples, to the elements of each place."""
    if not isinstance(values[0], tuple):
        return list(happen(0, values))
    columns = [happen(place, column) for place, column in enumerate(zip(*values, strict=True))]
    return [tuple(row) for row in zip(*columns, strict=True)]


def allreduce(reduction: Reduction, values: Sequence[Array]) -> list[Array]:
    return [reduce(reduction, values)] * len(values)


def allgather(dim: int, values: Sequence[Array]) -> list[Array]:
    return [np.concatenate(values, axis=dim)] * len(values)


def scatter(dim: int, value: Array, extents: Sequence[int]) -> list[Array]:
    """Consecutive parts of these extents."""
    return np.split(value, np.cumsum(extents)[:-1], axis=dim)


def reducescatter(reduction: Reduction, dim: int, values: Sequence[Array], extents: Sequence[int]) -> list[Array]:
    return scatter(dim, reduce(reduction, values), extents)


def exchange(dim: int, values: Sequence[Array], windows: Sequence[tuple[int, int]]) -> list[Array]:
    """Ranges of the concatenation."""
    whole = np.concatenate(values, axis=dim)
    return [whole.take(range(start, stop), axis=dim) for start, stop in windows]


def alltoall(split: int, concat: int, values: Sequence[Array], extents: Sequence[int]) -> list[Array]:
    """`extents` are those of the results' dim `split`."""
    if split == concat:
        extents = [extent // len(values) for extent in extents]
    parts = [scatter(split, value, extents) for value in values]
    return [np.concatenate([part[i] for part in parts], axis=concat) for i in range(len(values))]
