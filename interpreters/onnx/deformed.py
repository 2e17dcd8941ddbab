"""Deformable convolution of the `onnx` dialect. In go arrays; out comes the result that onnx defines, all places of
the kernel at once. The reference evaluator of the onnx package (1.23.2) samples place by place in Python, which
takes a second for a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


class DeformConv(OpRun):
    """Of two spatial dims."""

    op_domain = ""

    def _run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Array,
        w: Array,
        offset: Array,
        b: Array | None = None,
        mask: Array | None = None,
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        offset_group: int = 1,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array]:
        if x.ndim != 4 or (kernel_shape and tuple(kernel_shape) != w.shape[2:]):
            raise NotImplementedError(f"a deformed convolution of {list(x.shape)} by {list(w.shape)}")
        kernel, shape, shared = w.shape[2:], offset.shape[2:], (len(x), offset_group)
        places = offset.reshape(*shared, *kernel, 2, *shape)
        numbers = zip(kernel, shape, dilations or (1, 1), strides or (1, 1), pads or (0, 0), strict=False)
        rows, columns = (
            places[..., d, :, :]
            + np.expand_dims(np.add.outer(n * np.arange(k), step * np.arange(count) - pad), (1 - d, 3 - d))
            for d, (k, count, n, step, pad) in enumerate(numbers)
        )
        read = _sampled(x.reshape(*shared, -1, *x.shape[2:]), rows, columns)
        if mask is not None:
            read = read * mask.reshape(*shared, 1, *kernel, *shape)
        read = read.reshape(len(x), group, -1, *kernel, *shape)
        sums = np.einsum("ngcklhw,gockl->ngohw", read, w.reshape(group, -1, *w.shape[1:]))
        result = sums.reshape(len(x), len(w), *shape).astype(x.dtype)
        return (result if b is None else result + b[:, None, None],)


def _sampled(x: Array, rows: Array, columns: Array) -> Array:
    """The channels `[batch, groups, channels, rows, columns]` at these places of each group, between pixels linearly, and zero beyond."""
    height, width = x.shape[3:]
    flat, total = x.reshape(*x.shape[:3], -1), np.zeros((*x.shape[:3], *rows.shape[2:]), x.dtype)
    top, left = np.floor(rows), np.floor(columns)
    for down, right in product((0, 1), repeat=2):
        r, c = top + down, left + right
        inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
        weight = np.where(inside, (1 - np.abs(rows - r)) * (1 - np.abs(columns - c)), 0)
        place = np.where(inside, r * width + c, 0).astype(np.int64)
        pixels = np.take_along_axis(flat, place.reshape(*x.shape[:2], 1, -1), 3).reshape(total.shape)
        total = total + pixels * weight[:, :, None]
    return total
