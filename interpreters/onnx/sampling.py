"""Samples of a grid of the `onnx` dialect. In go arrays; out comes the result that onnx defines, all places at once. The reference evaluator
of the onnx package (1.23.2) samples place by place in Python, which takes seconds for a few volumes."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]
Tap = tuple[Array, Array | int]
"""What is read along one dim for every place: where, and how much of it counts."""

_CUBIC = -0.75


class GridSample(OpRun):
    """Of any number of spatial dims."""

    op_domain = ""

    def _run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Array,
        grid: Array,
        mode: str = "linear",
        padding_mode: str = "zeros",
        align_corners: int = 0,
    ) -> tuple[Array]:
        extents, shape = x.shape[2:], grid.shape[1:-1]
        if grid.shape[-1] != len(extents):
            raise ValueError(f"expected {len(extents)} coordinates of each place, got {grid.shape[-1]}")
        along = [
            _taps(_coordinate(grid[..., -1 - d], n, align_corners), n, mode, padding_mode, align_corners)
            for d, n in enumerate(extents)
        ]
        flat, nothing = x.reshape(*x.shape[:2], prod(extents)), np.zeros((), x.dtype)
        total: Array | None = None
        for taps in product(*along):
            inside = np.ones(grid.shape[:-1], bool)
            place = np.zeros(grid.shape[:-1], np.int64)
            weight: Array | int = 1
            for (where, share), n in zip(taps, extents, strict=True):
                found = _inside(where, n, padding_mode, align_corners)
                inside &= (found >= 0) & (found < n)
                place = place * n + np.clip(found, 0, n - 1)
                weight = weight * share
            pixels = np.take_along_axis(flat, place.reshape(len(x), 1, -1), 2).reshape(*x.shape[:2], *shape)
            read = np.where(inside[:, None], pixels, nothing)
            read = read if isinstance(weight, int) else read * weight[:, None]
            total = read if total is None else total + read
        assert total is not None
        return (total.astype(x.dtype, copy=False),)


def _coordinate(of_one: Array, n: int, align_corners: int) -> Array:
    """From -1 to 1 over the centres of the first and last pixel, or over their outer edges, in pixels."""
    return (of_one + 1) / 2 * (n - 1) if align_corners else ((of_one + 1) * n - 1) / 2


def _taps(at: Array, n: int, mode: str, padding_mode: str, align_corners: int) -> list[Tap]:
    at = np.rint(at) if mode == "nearest" else at
    low, high = _edges(n, align_corners)
    outside = (at < low) | (at > high)
    if padding_mode == "border":
        at = np.where(outside, np.clip(at, 0, n - 1), at)
    elif padding_mode == "reflection":
        at = np.where(outside, _reflected(at, low, high), at)
    first = np.floor(at)
    if mode == "nearest":
        return [(at, 1)]
    beyond = at - first
    if mode in ("linear", "bilinear"):
        return [(first, 1 - beyond), (first + 1, beyond)]
    if mode in ("cubic", "bicubic"):
        return [(first + i, _cubic(np.abs(beyond - i))) for i in (-1, 0, 1, 2)]
    raise ValueError(f"no mode {mode}")


def _cubic(far: Array) -> Array:
    near = ((_CUBIC + 2) * far - (_CUBIC + 3)) * far * far + 1
    return np.where(far <= 1, near, ((_CUBIC * far - 5 * _CUBIC) * far + 8 * _CUBIC) * far - 4 * _CUBIC)


def _edges(n: int, align_corners: int) -> tuple[float, float]:
    return (0.0, n - 1.0) if align_corners else (-0.5, n - 0.5)


def _inside(where: Array, n: int, padding_mode: str, align_corners: int) -> Array:
    """The pixel that is read there; one that is none for zero."""
    if padding_mode == "border":
        where = np.clip(where, 0, n - 1)
    elif padding_mode == "reflection":
        where = _reflected(where, *_edges(n, align_corners))
    return where.astype(np.int64)


def _reflected(at: Array, low: float, high: float) -> Array:
    """Back from the edges, as often as it is beyond them."""
    width = high - low
    if width <= 0:
        return np.full_like(at, low)
    beyond = np.where(at < low, low - at, np.where(at > high, at - high, 0))
    times = np.floor(beyond / width)
    left = beyond - times * width
    even = times % 2 == 0
    from_low, from_high = np.where(even, low + left, high - left), np.where(even, high - left, low + left)
    return np.where(at < low, from_low, np.where(at > high, from_high, at))
