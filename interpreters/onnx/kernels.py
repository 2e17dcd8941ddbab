"""Replaces operators that the reference evaluator of the onnx package (1.23.2) computes wrongly, or in part. In go
arrays of any number type, exact scalars (objects) included; out come the results that ONNX defines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, cast

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_reverse_sequence

from distir.interpreters.onnx.deformed import DeformConv
from distir.interpreters.onnx.losses import LOSSES
from distir.interpreters.onnx.recurrent import RECURRENT
from distir.interpreters.onnx.sampling import GridSample
from distir.interpreters.onnx.windows import WINDOWS

Array = np.ndarray[Any, Any]


class ReverseSequence(op_reverse_sequence.ReverseSequence):
    """The evaluator's own takes any number of lengths; the operator takes one for each entry of the batch."""

    op_domain = ""

    def _run(self, data: Array, sequence_lens: Array, batch_axis: int = 1, time_axis: int = 0) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if sequence_lens.shape != (data.shape[batch_axis],):
            raise ValueError(f"expected {data.shape[batch_axis]} lengths, got {list(sequence_lens.shape)}")
        return super()._run(data, sequence_lens, batch_axis=batch_axis, time_axis=time_axis)


class GatherElements(OpRun):
    """The evaluator's own wants equal sizes off the axis, which the operator does not (fixed after onnx 1.23.2)."""

    op_domain = ""

    def _run(self, data: Array, indices: Array, axis: int = 0) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        axis %= data.ndim
        region = [slice(None) if i == axis else slice(size) for i, size in enumerate(indices.shape)]
        return (np.take_along_axis(data[tuple(region)], indices, axis),)


class ConvTranspose(OpRun):
    """The evaluator's own has one channel of each group, takes a bias of any length, and adds element by element in Python."""

    op_domain = ""

    def _run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Array,
        w: Array,
        b: Array | None = None,
        auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array]:
        batch, channels, *extents = x.shape
        kernel = w.shape[2:]
        if len(kernel) != len(extents) or tuple(kernel_shape or kernel) != kernel:
            raise ValueError(f"expected a kernel of {len(extents)} dims like kernel_shape, got {list(w.shape)}")
        if w.shape[0] != channels or channels % group:
            raise ValueError(f"expected {channels} input channels in {group} groups, got weights {list(w.shape)}")
        results = w.shape[1] * group
        if b is not None and b.shape != (results,):
            raise ValueError(f"expected {results} biases, got {list(b.shape)}")
        strides, dilations = strides or [1] * len(kernel), dilations or [1] * len(kernel)
        full = [
            (n - 1) * stride + (k - 1) * dilation + 1 + beyond
            for n, stride, k, dilation, beyond in zip(
                extents, strides, kernel, dilations, output_padding or [0] * len(kernel), strict=True
            )
        ]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            output_shape = output_shape or [min(n * s, most) for n, s, most in zip(extents, strides, full, strict=True)]
        begins, shape = _kept(full, auto_pad, output_shape, pads)
        room = [max(n, begin + kept) for n, begin, kept in zip(full, begins, shape, strict=True)]
        whole = np.zeros((batch, group, w.shape[1], *room), x.dtype)
        rows = x.reshape(batch, group, channels // group, prod(extents))
        weights = w.reshape(group, channels // group, w.shape[1], *kernel).swapaxes(1, 2)
        for place in product(*map(range, kernel)):
            reached = tuple(
                slice(p * dilation, p * dilation + (n - 1) * stride + 1, stride)
                for p, dilation, n, stride in zip(place, dilations, extents, strides, strict=True)
            )
            addend = np.matmul(weights[(..., *place)], rows)
            whole[(..., *reached)] += addend.reshape(batch, group, w.shape[1], *extents)
        kept = tuple(slice(begin, begin + n) for begin, n in zip(begins, shape, strict=True))
        y = whole[(..., *kept)].reshape(batch, results, *shape)
        return (y if b is None else y + b.reshape(results, *[1] * len(kernel)),)


def _kept(
    full: Sequence[int], auto_pad: str, output_shape: Sequence[int] | None, pads: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """Where the result begins in all that a transposed convolution gives, and its extents, which may go beyond that: with zeros."""
    if output_shape is not None:
        spare = [max(0, n - kept) for n, kept in zip(full, output_shape, strict=True)]
        return [n // 2 if auto_pad == "SAME_UPPER" else n - n // 2 for n in spare], list(output_shape)
    pads = pads or [0] * (2 * len(full))
    begins, ends = pads[: len(full)], pads[len(full) :]
    return list(begins), [n - begin - end for n, begin, end in zip(full, begins, ends, strict=True)]


class LRN(OpRun):
    """The evaluator's own normalises as many channels as there are images, and takes two spatial dims only."""

    op_domain = ""

    def _run(self, x: Array, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        channels, squares, summed = x.shape[1], x * x, np.zeros_like(x)
        for away in range(max(-((size - 1) // 2), 1 - channels), min(size // 2, channels - 1) + 1):
            start, stop = max(0, -away), min(channels, channels - away)
            summed[:, start:stop] += squares[:, start + away : stop + away]
        return ((x / (bias + alpha / size * summed) ** beta).astype(x.dtype),)


class LpNormalization(OpRun):
    """The evaluator's own adds signed numbers for odd norms, and takes the first dim for the last."""

    op_domain = ""

    def _run(self, x: Array, axis: int = -1, p: int = 2) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        norm = (abs(x) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
        return (np.where(norm == 0, 0, x / norm).astype(x.dtype),)


class Flatten(OpRun):
    """The evaluator's own cannot tell the columns of an array without elements."""

    op_domain = ""

    def _run(self, x: Array, axis: int = 1) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        axis += x.ndim if axis < 0 else 0
        return (x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:])),)


class GlobalAveragePool(OpRun):
    """The evaluator's own takes no batch without elements."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        sums = x.sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return ((sums / max(1, prod(x.shape[2:]))).astype(x.dtype, copy=False),)


class GlobalLpPool(OpRun):
    """The evaluator has none."""

    op_domain = ""

    def _run(self, x: Array, p: int = 2) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        sums = (abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return ((sums ** (1 / p)).astype(x.dtype, copy=False),)


class OneHot(OpRun):
    """The evaluator's own takes no depth that is a vector of one, and gives no number beside infinite ones."""

    op_domain = ""

    def _run(self, indices: Array, depth: Array, values: Array, axis: int = -1) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        classes, dim = int(np.asarray(depth).reshape(())), axis % (indices.ndim + 1)
        places = np.expand_dims(np.where(indices < 0, indices + classes, indices), dim)
        chosen = places == np.arange(classes).reshape(-1, *[1] * (indices.ndim - dim))
        return (np.where(chosen, values[1], values[0]),)


class Mean(OpRun):
    """The evaluator's own adds in place, where the sum may be larger than its first operand."""

    op_domain = ""

    def _run(self, *operands: Array) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        total = operands[0]
        for operand in operands[1:]:
            total = total + operand
        return (np.asarray(total / len(operands)).astype(operands[0].dtype),)


class Softsign(OpRun):
    """The evaluator's own takes no number without dims."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (np.asarray(x / (1 + abs(x))),)


class Slice(OpRun):
    """The evaluator's own starts before the first element where a backward slice starts too far to the left."""

    op_domain = ""

    def _run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, data: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
    ) -> tuple[Array]:
        places = [slice(None)] * data.ndim
        firsts, lasts = np.atleast_1d(starts).tolist(), np.atleast_1d(ends).tolist()
        dims = range(len(firsts)) if axes is None else np.atleast_1d(axes).tolist()
        strides = [1] * len(firsts) if steps is None else np.atleast_1d(steps).tolist()
        for dim, start, end, step in zip(dims, firsts, lasts, strides, strict=True):
            n = data.shape[dim]
            start, end = (place + n if place < 0 else place for place in (start, end))
            if step > 0:
                places[dim] = slice(min(max(start, 0), n), min(max(end, 0), n), step)
            else:
                start, end = min(max(start, 0), n - 1), min(max(end, -1), n - 1)
                places[dim] = slice(start, None if end < 0 else end, step) if n else slice(0)
        return (data[tuple(places)],)


class Pad(OpRun):
    """The evaluator's own cannot take away, which negative pads do, before the rest is padded."""

    op_domain = ""

    def _run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        data: Array,
        pads: Array,
        constant_value: Array | None = None,
        axes: Array | None = None,
        mode: str = "constant",
    ) -> tuple[Array]:
        dims = range(data.ndim) if axes is None else [axis % data.ndim for axis in np.atleast_1d(axes).tolist()]
        sizes = [int(pad) for pad in pads]
        if len(sizes) != 2 * len(dims):
            raise ValueError(f"expected two pads for each of {len(dims)} dims, got {len(sizes)}")
        kept, widths = [slice(None)] * data.ndim, [(0, 0)] * data.ndim
        for i, dim in enumerate(dims):
            begin, end = sizes[i], sizes[len(dims) + i]
            kept[dim] = slice(max(-begin, 0), max(data.shape[dim] + min(end, 0), max(-begin, 0)))
            widths[dim] = (max(begin, 0), max(end, 0))
        data = data[tuple(kept)]
        if mode != "constant":
            return (np.pad(data, widths, mode=cast(Any, mode)),)
        value = 0 if constant_value is None else np.asarray(constant_value).reshape(()).item()
        return (np.pad(data, widths, constant_values=value).astype(data.dtype, copy=False),)


REPLACED: list[type[OpRun]] = [
    *(
        ConvTranspose,
        DeformConv,
        Flatten,
        GatherElements,
        GlobalAveragePool,
        GlobalLpPool,
        GridSample,
        LRN,
        LpNormalization,
        Mean,
        OneHot,
        Pad,
        ReverseSequence,
        Slice,
        Softsign,
    ),
    *LOSSES,
    *RECURRENT,
    *WINDOWS,
]
