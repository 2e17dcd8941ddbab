"""Where the values of an array come from. In goes an array; out comes whether someone learned its values or a
formula gave them: a table of positions, a mask, a number repeated."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BLOCK = 32
"""As many positions along each dim are looked at: formulas show on a few."""

LARGEST_BLOCK = 1 << 16

LEAST_EVIDENCE = 8
"""Fewer numbers may follow a formula by chance, or because someone wrote them so."""

HUGE = 1e30
"""Numbers beyond this, and the largest of a narrow type, stand for minus infinity in masks."""


class Origin(Enum):
    """Where values come from."""

    LEARNED = "learned"
    FILLED = "filled"
    """One number repeated: as a parameter begins, or a mask that lets everything through."""
    COMPUTED = "computed"


def origin_of(array: Array) -> Origin:
    """What the values look like. Integers are taken for quantised weights: learned."""
    sizes = [size for size in array.shape if size > 1]
    if array.dtype.kind in "biu" or "int" in array.dtype.name or not array.size:
        return Origin.LEARNED
    block = _block(array.reshape(sizes))
    if block is None:
        return Origin.LEARNED
    if bool((block == block.flat[0]).all()):
        return Origin.FILLED
    if not np.isfinite(block).all() or float(np.abs(block).max()) >= min(HUGE, _largest(array.dtype)):
        return Origin.COMPUTED
    if _has_few_values(block, array.dtype) or any(_follows_position(block, d, array.dtype) for d in range(block.ndim)):
        return Origin.COMPUTED
    return Origin.LEARNED


def _block(array: Array) -> Array | None:
    """The first positions along each dim, but for the first four where there are enough: rows of a table that mean padding."""
    size = BLOCK
    while size > 4 and size**array.ndim > LARGEST_BLOCK:
        size //= 2
    starts = [4 if n >= size + 4 else 0 for n in array.shape]
    part = array[tuple(slice(start, start + size) for start in starts)]
    return part.astype(np.float64) if part.size <= LARGEST_BLOCK else None


def _largest(dtype: np.dtype[Any]) -> float:
    return float(np.finfo(np.float16).max) if dtype.itemsize < 4 else HUGE


def _resolution(dtype: np.dtype[Any]) -> float:
    """The relative distance between numbers of the type, which tables are computed with at best."""
    from ml_dtypes import finfo

    return max(float(finfo(dtype).eps), 1e-6)


def _has_few_values(block: Array, dtype: np.dtype[Any]) -> bool:
    """Whether the same numbers come again and again: masks, coordinates, what depends on the distance of two positions."""
    share = 3 if dtype.itemsize >= 4 else 8  # narrow types have few numbers
    return block.size >= 4 and len(np.unique(block)) * share <= block.size


def _follows_position(block: Array, dim: int, dtype: np.dtype[Any]) -> bool:
    """Whether all lines along a dim are of the form that formulas of positions have: straight, a power of one number, or a
    sinusoid, each with something added. Their steps s have one k with s[i-1] + s[i+1] = k s[i]."""
    if block.size < LEAST_EVIDENCE:
        return False
    lines = np.moveaxis(block, dim, -1).reshape(-1, block.shape[dim])
    scale = np.abs(lines).max(axis=1, keepdims=True)
    tolerance = 16 * _resolution(dtype) * scale
    steps = np.diff(lines, axis=1)
    if lines.shape[1] >= 3 and bool((np.abs(np.diff(steps, axis=1)) <= tolerance).all()):
        return bool((np.abs(steps) > tolerance).any())  # straight, and not all level
    if lines.shape[1] >= 4 and bool((lines != 0).all()):
        ratios = lines[:, 1:] / lines[:, :-1]
        if bool((np.abs(ratios - ratios[:, :1]) <= 16 * _resolution(dtype) * np.abs(ratios)).all()):
            return True
    if lines.shape[1] < 6:
        return False
    middle, around = steps[:, 1:-1], steps[:, :-2] + steps[:, 2:]
    squares = (middle * middle).sum(axis=1, keepdims=True)
    k = (middle * around).sum(axis=1, keepdims=True) / np.where(squares == 0, 1, squares)
    fits = (np.abs(around - k * middle) <= 4 * tolerance).all(axis=1)
    return float(fits.mean()) >= 0.9


def is_zero(array: Array) -> bool:
    """Whether the values, all equal, are zero."""
    return not array.size or float(array.flat[0]) == 0
