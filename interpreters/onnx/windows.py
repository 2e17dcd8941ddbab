"""Operators of the `onnx` dialect that slide a window: convolution and pooling. In go arrays of any number type,
exact scalars (objects) included; out comes the result that onnx defines. It is computed one place of the window at a
time, so that memory is that of the result.

They replace those of the reference evaluator of the onnx package (1.23.2), which unfolds whole convolutions, and takes other extents than
onnx infers where windows are dilated or padded to the same size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]
Region = tuple[slice, ...]


@dataclass(frozen=True)
class Windows:
    """Where windows lie over an array, per spatial dim."""

    extents: Sequence[int]
    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    begins: Sequence[int]
    """Padding before the first position."""
    shape: tuple[int, ...]
    """How many windows there are."""

    def places(self) -> Iterator[tuple[tuple[int, ...], Region, Region]]:
        """For each place of the window: which windows have it inside the array, and the positions that it has in them."""
        for place in product(*map(range, self.kernel)):
            windows: list[slice] = []
            positions: list[slice] = []
            for p, n, stride, dilation, begin, count in zip(
                place, self.extents, self.strides, self.dilations, self.begins, self.shape, strict=True
            ):
                offset = p * dilation - begin
                first, last = max(0, -(offset // stride)), min(count - 1, (n - 1 - offset) // stride)
                windows.append(slice(first, last + 1))
                positions.append(slice(first * stride + offset, last * stride + offset + 1, stride))
            if all(each.start < each.stop for each in windows):
                yield place, tuple(windows), tuple(positions)

    def along(self, dim: int, extents: Sequence[int]) -> Windows:
        """The same along one dim of an array of these extents, of a single position in all others."""
        count = len(extents)

        def only(numbers: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
            return tuple(n if i == dim else other for i, (n, other) in enumerate(zip(numbers, others, strict=True)))

        ones, zeros = [1] * count, [0] * count
        return Windows(
            extents,
            only(self.kernel, ones),
            only(self.strides, ones),
            only(self.dilations, ones),
            only(self.begins, zeros),
            only(self.shape, extents),
        )


def windows_over(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    pads: Sequence[int] | None,
    ceil_mode: int = 0,
) -> Windows:
    """The windows that these attributes of ONNX describe."""
    count = len(kernel)
    strides, dilations = strides or [1] * count, dilations or [1] * count
    reached = [(k - 1) * dilation + 1 for k, dilation in zip(kernel, dilations, strict=True)]
    begins, ends = [0] * count, [0] * count
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        shape = [-(-n // stride) for n, stride in zip(extents, strides, strict=True)]
        for i, n in enumerate(extents):
            total = max(0, (shape[i] - 1) * strides[i] + reached[i] - n)
            begins[i] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        return Windows(extents, kernel, strides, dilations, begins, tuple(shape))
    if auto_pad == "NOTSET" and pads:
        begins, ends = list(pads[:count]), list(pads[count:])
    shape: list[int] = []
    for n, stride, begin, end, reach in zip(extents, strides, begins, ends, reached, strict=True):
        spare = n + begin + end - reach
        steps = -(-spare // stride) if ceil_mode else spare // stride
        shape.append(max(0, steps if ceil_mode and steps * stride >= n + begin else steps + 1))
    return Windows(extents, kernel, strides, dilations, begins, tuple(shape))


class Conv(OpRun):
    """Sums of products of a window and each filter."""

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
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array]:
        batch, channels, *extents = x.shape
        filters, taken, *kernel = w.shape
        if len(kernel) != len(extents) or list(kernel_shape or kernel) != kernel:
            raise ValueError(f"expected a kernel of {len(extents)} dims like kernel_shape, got {list(w.shape)}")
        if taken * group != channels or filters % group:
            raise ValueError(f"expected {channels} input channels in {group} groups, got weights {list(w.shape)}")
        over = windows_over(extents, kernel, strides, dilations, auto_pad, pads)
        dtype = x.dtype if x.dtype.itemsize >= 4 or x.dtype.kind not in "fV" else np.dtype(np.float32)
        rows = x.astype(dtype, copy=False).reshape(batch, group, taken, *extents)
        weights = w.astype(dtype, copy=False).reshape(group, filters // group, taken, *kernel)
        sums = np.zeros((batch, group, filters // group, *over.shape), dtype)
        for place, windows, positions in over.places():
            part = rows[(..., *positions)]
            products = np.matmul(weights[(..., *place)], part.reshape(*part.shape[:3], prod(part.shape[3:])))
            sums[(..., *windows)] += products.reshape(batch, group, filters // group, *part.shape[3:])
        y = sums.reshape(batch, filters, *over.shape).astype(x.dtype, copy=False)
        return (y if b is None else y + b.reshape(filters, *[1] * len(kernel)),)


class MaxPool(OpRun):
    """The largest element of each window, and where in the array it is."""

    op_domain = ""

    def _run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Array,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: Sequence[int] | None = None,
        kernel_shape: Sequence[int] = (),
        pads: Sequence[int] | None = None,
        storage_order: int = 0,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array, ...]:
        extents = x.shape[2:]
        over = windows_over(extents, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
        if len(self.onnx_node.output) > 1:
            return _largest(x, over, _numbers(x.shape, storage_order))
        for i in range(len(extents)):  # maxima of rows, of which those of columns are taken
            x = _largest(x, over.along(i, x.shape[2:]))[0]
        return (x,)


def _largest(x: Array, over: Windows, numbers: Array | None = None) -> tuple[Array, ...]:
    """The largest element of each window, and, of these numbers of all elements, its."""
    largest = np.full((*x.shape[:2], *over.shape), _least(x.dtype), x.dtype)
    seen = np.zeros(over.shape, np.bool_)
    where = None if numbers is None else np.zeros(largest.shape, np.int64)
    for _, windows, positions in over.places():
        part, before = x[(..., *positions)], largest[(..., *windows)]
        is_first = ~seen[windows]
        if where is not None and numbers is not None:
            further = is_first | (part > before)
            where[(..., *windows)] = np.where(further, numbers[(..., *positions)], where[(..., *windows)])
        largest[(..., *windows)] = np.where(is_first, part, np.maximum(part, np.where(is_first, part, before)))
        seen[windows] = True
    return (largest,) if where is None else (largest, where)


def _least(dtype: np.dtype[Any]) -> Any:
    """What a window without an element has."""
    if dtype.kind == "O":
        return 0
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _numbers(shape: tuple[int, ...], storage_order: int) -> Array:
    """The number of each element; with `storage_order`, the spatial dims are counted from the last."""
    if not storage_order:
        return np.arange(prod(shape)).reshape(shape)
    spatial = np.arange(prod(shape[2:])).reshape(shape[:1:-1]).transpose()
    images = np.arange(prod(shape[:2])).reshape(*shape[:2], *[1] * spatial.ndim)
    return images * spatial.size + spatial


class AveragePool(OpRun):
    """The mean of each window: of the elements in it, or with the padding as zeros."""

    op_domain = ""

    def _run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Array,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        count_include_pad: int = 0,
        dilations: Sequence[int] | None = None,
        kernel_shape: Sequence[int] = (),
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array]:
        extents = x.shape[2:]
        over = windows_over(extents, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
        sums = np.zeros((*x.shape[:2], *over.shape), x.dtype)
        counts = np.zeros(over.shape, np.int64)
        for _, windows, positions in over.places():
            sums[(..., *windows)] += x[(..., *positions)]
            counts[windows] += 1
        if count_include_pad:
            counts[...] = 0
            for _, windows, _ in _with_padding(over, auto_pad, pads).places():
                counts[windows] += 1
        return ((sums / np.maximum(counts, 1)).astype(x.dtype, copy=False),)


def _with_padding(over: Windows, auto_pad: str, pads: Sequence[int] | None) -> Windows:
    """The same windows over an array that has the padding as elements."""
    count = len(over.kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):  # as large as the windows reach
        whole = [(m - 1) * s + (k - 1) * d + 1 for m, s, k, d in zip(over.shape, over.strides, over.kernel, over.dilations, strict=True)]  # fmt: skip
        extents = [max(n, each) for n, each in zip(over.extents, whole, strict=True)]
    else:
        both = list(pads) if pads and auto_pad == "NOTSET" else [0] * (2 * count)
        extents = [n + both[i] + both[count + i] for i, n in enumerate(over.extents)]
    return Windows(extents, over.kernel, over.strides, over.dilations, [0] * count, over.shape)


class LpPool(OpRun):
    """The p-norm of each window."""

    op_domain = ""

    def _run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Array,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: Sequence[int] | None = None,
        kernel_shape: Sequence[int] = (),
        p: int = 2,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array]:
        over = windows_over(x.shape[2:], kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
        powers, sums = abs(x) ** p, np.zeros((*x.shape[:2], *over.shape), x.dtype)
        for _, windows, positions in over.places():
            sums[(..., *windows)] += powers[(..., *positions)]
        return ((sums ** (1 / p)).astype(x.dtype, copy=False),)


class GlobalMaxPool(OpRun):
    """The largest element of each channel, with any number of spatial dims."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


WINDOWS: list[type[OpRun]] = [AveragePool, Conv, GlobalMaxPool, LpPool, MaxPool]
