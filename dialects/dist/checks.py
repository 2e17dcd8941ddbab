"""What verifiers of placed operations share: shapes, element types and placements of operands and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType, TupleType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.attributes import OnAttr, placed, placement


def tensor_type(value: SSAValue) -> TensorType[Any]:
    return cast("TensorType[Any]", value.type)


def device_on(value: SSAValue, what: str) -> OnAttr:
    """Placement of a value that must have one."""
    on = placement(value.type)
    if on is None:
        example = "tensor<4xf32, #dist.on<0>>"
        raise VerifyException(f"{what} is not placed: expected a type such as {example}, got {value.type}")
    return on


def verify_shape(value: SSAValue, expected: Sequence[int], element_type: Attribute, what: str) -> None:
    got = tensor_type(value)
    if got.get_shape() != tuple(expected):
        raise VerifyException(f"expected {what} of shape {list(expected)}, got {list(got.get_shape())}")
    if got.element_type != element_type:
        raise VerifyException(f"expected {what} of element type {element_type}, got {got.element_type}")


def verify_same_types(values: Sequence[SSAValue], what: str) -> None:
    """All tensors have the first one's shape and element type; of tuples, which are in one place each, all elements do."""
    if any(isinstance(v.type, TupleType) for v in values):
        first = placed(values[0].type, None)
        for i, value in enumerate(values):
            if placed(first, placement(value.type)) != value.type:
                raise VerifyException(f"expected {what} {i} of type {first} in one place, got {value.type}")
        return
    first = tensor_type(values[0])
    for i, value in enumerate(values[1:], start=1):
        verify_shape(value, first.get_shape(), first.element_type, f"{what} {i}")


def verify_concatenable(values: Sequence[SSAValue], dim: int, what: str) -> int:
    """All tensors agree but for the extent of `dim`; returns the sum of those extents."""
    first = tensor_type(values[0])
    if not 0 <= dim < first.get_num_dims():
        raise VerifyException(f"expected a dim in 0..{first.get_num_dims() - 1}, got {dim}")
    total = 0
    for i, value in enumerate(values):
        type_ = tensor_type(value)
        if type_.get_num_dims() != first.get_num_dims():
            raise VerifyException(f"expected {what} {i} of rank {first.get_num_dims()}, got {type_.get_num_dims()}")
        extent = type_.get_shape()[dim]
        verify_shape(value, replaced(first.get_shape(), dim, extent), first.element_type, f"{what} {i}")
        total += extent
    return total


def replaced(shape: Sequence[int], dim: int, extent: int) -> tuple[int, ...]:
    """The shape with the extent of one dim replaced."""
    return (*shape[:dim], extent, *shape[dim + 1 :])


def dim_property(dim: int) -> IntegerAttr[Any]:
    return IntegerAttr(dim, i64)


def device_array(types: Sequence[Attribute]) -> DenseArrayBase[Any]:
    ons = [placement(t) for t in types]
    return DenseArrayBase.from_list(i64, [-1 if on is None else on.device for on in ons])
