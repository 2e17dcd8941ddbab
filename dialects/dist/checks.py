"""Checks that the verifiers of placed operations share. In go operands and results; out comes an error where shapes,
element types or placements do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType, TupleType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.attributes import OnAttr, placed, placement


Typed = SSAValue | Attribute
"""A value, or its type."""


def tensor_type(value: Typed) -> TensorType[Any]:
    return cast("TensorType[Any]", value.type if isinstance(value, SSAValue) else value)


def device_on(value: SSAValue, what: str) -> OnAttr:
    """Placement of a value that must have one."""
    on = placement(value.type)
    if on is None:
        example = "tensor<4xf32, #dist.on<0>>"
        raise VerifyException(f"{what} is not placed: expected a type such as {example}, got {value.type}")
    return on


def verify_shape(value: Typed, expected: Sequence[int], element_type: Attribute, what: str) -> None:
    got = tensor_type(value)
    if got.get_shape() != tuple(expected):
        raise VerifyException(f"expected {what} of shape {list(expected)}, got {list(got.get_shape())}")
    if got.element_type != element_type:
        raise VerifyException(f"expected {what} of element type {element_type}, got {got.element_type}")


def elements(types: Sequence[Attribute]) -> list[tuple[Attribute, ...]]:
    """The types; of tuples, which are in one place each and equally long, those of their first elements, of their second and so on."""
    if not any(isinstance(type_, TupleType) for type_ in types):
        return [tuple(types)]
    for i, type_ in enumerate(types):
        if not isinstance(type_, TupleType) or placed(type_, placement(type_)) != type_:
            raise VerifyException(f"expected value {i} of a tuple type in one place, got {type_}")
    tuples = [cast(TupleType, type_).types.data for type_ in types]
    if len({len(each) for each in tuples}) > 1:
        raise VerifyException(f"expected tuples of as many elements, got {[len(each) for each in tuples]}")
    return list(zip(*tuples, strict=True))


def verify_same_types(values: Sequence[Typed], what: str) -> None:
    """All tensors have the first one's shape and element type; of tuples, all elements in one place."""
    for types in elements([v.type if isinstance(v, SSAValue) else v for v in values]):
        first = tensor_type(types[0])
        for i, type_ in enumerate(types[1:], start=1):
            verify_shape(type_, first.get_shape(), first.element_type, f"{what} {i}")


def verify_concatenable(values: Sequence[Typed], dim: int, what: str) -> int:
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
