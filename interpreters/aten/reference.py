"""Runs one operation of the `aten` dialect. In go the operation and arrays; out come arrays, by the operator in
torch, or on exact scalars by `aten.exact`.

A program has values, not memory, so operators are given contiguous operands.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from xdsl.ir import Operation

from distir.dialects.errors import DistirError
from distir.interpreters.aten.calls import Compute, binding_of, in_floats, torch_dtype

Array = np.ndarray[Any, Any]

_OF_TYPE = re.compile(r"Double|scalar ?type", re.IGNORECASE)
"""In what torch says where it does not have an operator in a type."""


def run_aten(
    op: Operation, operands: Sequence[Array | None], floats: np.dtype[Any] | None = None
) -> tuple[Array | None, ...]:
    """The results of one operation. With `floats`, or when a floating operand has another type than the operation
    declares, that type stands for every floating type that the operation names; of an operator that torch does not have in that
    type, for those of what goes in and comes out alone.

    Raises DistirError where the operator does."""
    tensors = [tensor_of(np.asarray(operand)) for operand in operands]
    wide = _torch_float(floats) if floats is not None else _wider_floats(op, tensors)
    if wide is not None:
        tensors = [t.to(in_floats(t.dtype, wide)) for t in tensors]
    with torch.no_grad():
        try:
            results = call_on_any_layout(op, binding_of(op, wide).compute(), tensors)
        except DistirError as error:
            if wide is None or not _OF_TYPE.search(str(error)):
                raise
            declared = [t.to(torch_dtype(v.type.element_type)) for t, v in zip(tensors, op.operands, strict=True)]  # pyright: ignore
            results = call_on_any_layout(op, binding_of(op).compute(), declared)
            results = [None if each is None else each.to(in_floats(each.dtype, wide)) for each in results]
    return tuple(None if result is None else array_of(result) for result in results)


def call_on_any_layout(op: Operation, compute: Compute, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """The results on tensors of any strides, which some kernels do not look at. Raises DistirError, one line, where the operator raises."""
    try:
        return compute([tensor.contiguous() for tensor in tensors])
    except Exception as error:
        message = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DistirError(f"{op.name}: {message}") from error


def _torch_float(floats: np.dtype[Any]) -> torch.dtype:
    return getattr(torch, floats.name)


def _wider_floats(op: Operation, tensors: Sequence[Tensor]) -> torch.dtype | None:
    """The floating type that the operands have in place of the declared ones."""
    for operand, tensor in zip(op.operands, tensors, strict=True):
        declared = torch_dtype(operand.type.element_type)  # pyright: ignore
        if declared == tensor.dtype:
            continue
        if declared.is_floating_point and tensor.dtype.is_floating_point:
            return tensor.dtype
        if declared.is_complex and tensor.dtype.is_complex:
            return tensor.dtype.to_real()
    return None


def tensor_of(array: Array) -> Tensor:
    """The array as a tensor, of the same memory where torch can have it; types of ml_dtypes cross as integers."""
    native = array.dtype.kind in "biufc" and hasattr(np, array.dtype.name)
    plain = array if native else array.view(np.dtype(f"i{array.dtype.itemsize}"))
    if any(stride < 0 for stride in plain.strides):
        plain = plain.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a read-only array: operators of the dialect do not write to operands
        tensor = torch.from_numpy(np.asarray(plain))
    return tensor if native else tensor.view(getattr(torch, array.dtype.name))


def array_of(tensor: Tensor) -> Array:
    """The tensor as an array; types that numpy does not have come out as ml_dtypes."""
    name = str(tensor.dtype).removeprefix("torch.")
    tensor = tensor.detach()
    if hasattr(np, name):
        return tensor.resolve_conj().numpy()
    import ml_dtypes

    bits = tensor.contiguous().view({1: torch.uint8, 2: torch.int16}[tensor.element_size()])
    return bits.numpy().view(np.dtype(getattr(ml_dtypes, name)))
