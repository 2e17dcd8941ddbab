"""Infers the result types of an `aten` operation. In go the operation and its operand types; out come result types,
by running the operator on meta tensors: shapes without data.

Results are kept by (operator, properties, types of the operands), because many operators infer in Python, in
milliseconds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from functools import cache
from math import prod
from typing import Any, cast

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from distir.dialects.errors import DistirError
from distir.interpreters.aten.calls import Binding, binding_of, overload, result_types, torch_dtype
from distir.interpreters.aten.gradients import check_extents, forward_of, gradient_fits

FEW = 200_000
"""Elements that a shape is checked with: as many as discovery runs an operator on at most."""
MOST_ZEROS = 1 << 24
"""Elements of operands that an operator without a meta kernel is run on."""
OF_VALUES = torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output, torch.Tag.nondeterministic_seeded
"""What an operator is whose results on zeros say nothing of those on others, or which changes the state of random numbers."""

_decomposed: set[type[Operation]] = set()
"""Operators whose decomposition has worked."""

_fitted: set[type[Operation]] = set()
"""Gradient operators whose operands have fitted together."""

_known: dict[Hashable, tuple[Attribute, ...]] = {}


def infer_aten(op: Operation, operand_types: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """The types of the results for these types of the operands. Raises DistirError where the operator does."""
    same = {value: i for i, value in reversed(list(enumerate(op.operands)))}
    places = tuple(same[value] for value in op.operands)
    key = (type(op), tuple(sorted(op.properties.items())), tuple(operand_types), places, tuple(op.result_types))
    if key not in _known:
        _known[key] = _infer(op, operand_types)
    return _known[key]


def _infer(op: Operation, operand_types: Sequence[Attribute]) -> tuple[Attribute, ...]:
    tensors = [_meta(op, cast(TensorType[Any], type_)) for type_ in operand_types]
    try:
        binding = binding_of(op)
        with nullcontext() if tensors else torch.device("meta"), torch.no_grad():
            found = tuple(result_types(op, _computed(binding, tensors)))
        if list(operand_types) != [value.type for value in op.operands] or found != tuple(op.result_types):
            _check_by_definition(op, binding, operand_types, found)
            _check_by_forward(op, binding, operand_types)
            _check_extents(op, binding, operand_types)
        return found
    except DistirError:
        raise
    except Exception as error:
        message = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DistirError(f"{op.name} cannot work on {', '.join(map(_text, operand_types))}: {message}") from error


def _computed(binding: Binding, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """The results on meta tensors; of an operator without a meta kernel, on zeros. Raises NotImplementedError where shapes depend on values."""
    compute = binding.compute()
    try:
        return compute(tensors)
    except NotImplementedError:
        of_values = not {*OF_VALUES}.isdisjoint(overload(binding.schema).tags)
        if of_values or sum(tensor.numel() for tensor in tensors) > MOST_ZEROS:
            raise
        return compute([torch.zeros(tensor.shape, dtype=tensor.dtype) for tensor in tensors])


def _text(type_: Attribute) -> str:
    """As the type prints, in less time: most of what discovery asks for is rejected."""
    if not isinstance(type_, TensorType):
        return str(type_)
    tensor = cast(TensorType[Any], type_)
    return f"tensor<{''.join(f'{dim}x' for dim in tensor.get_shape())}{_element_text(tensor.element_type)}>"


_element_text = cache(str)


def _check_by_definition(
    op: Operation, binding: Binding, types: Sequence[Attribute], results: Sequence[Attribute]
) -> None:
    """Raises where the decomposition of the operator cannot work on these shapes. Some operators do not check them on meta
    tensors (backward of a slice), and their kernels then may read outside their operands (backward of a layer norm). It
    runs on zeros where those are few, since what a decomposition is made of may not check meta tensors either. One that
    has not worked before says nothing, elementwise operators check that their operands broadcast, and what takes one tensor and is
    no gradient has nothing to fit together."""
    from torch._decomp import decomposition_table

    function = overload(binding.schema)
    if len(types) == 1 and forward_of(function) is None:
        return
    if torch.Tag.pointwise in function.tags or (decomposition := decomposition_table.get(function)) is None:
        return
    device = "cpu" if all(map(_is_small, (*types, *results))) else "meta"
    tensors = [_meta(op, cast(TensorType[Any], type_)) for type_ in types]
    if device == "cpu":
        tensors = [torch.zeros(tensor.shape, dtype=tensor.dtype) for tensor in tensors]
    try:
        with nullcontext() if device == "cpu" else torch.device(device), torch.no_grad():
            binding.compute(decomposition)(tensors)
        _decomposed.add(type(op))
    except Exception:
        if type(op) in _decomposed:
            raise


def _check_by_forward(op: Operation, binding: Binding, types: Sequence[Attribute]) -> None:
    """Raises where a gradient has not the shape of what it is the gradient of. An operator whose gradients have not had it
    before (it broadcasts them) is not held to it."""
    function, found = overload(binding.schema), list[bool | None]()
    if forward_of(function) is None:
        return

    def check(**arguments: Any) -> list[None]:
        found.append(gradient_fits(function, (), arguments))
        return [None] * len(op.results)

    binding.compute(check)([_meta(op, cast(TensorType[Any], type_)) for type_ in types])
    if found == [True]:
        _fitted.add(type(op))
    if found == [False] and type(op) in _fitted:
        raise DistirError(f"{op.name}: the gradient has not the shape of what it is the gradient of")


def _check_extents(op: Operation, binding: Binding, types: Sequence[Attribute]) -> None:
    """Raises where operands do not go together in a way that neither meta tensors nor a definition shows."""

    def check(**arguments: Any) -> list[None]:
        check_extents(overload(binding.schema), arguments)
        return [None] * len(op.results)

    binding.compute(check)([_meta(op, cast(TensorType[Any], type_)) for type_ in types])


def _is_small(type_: Attribute) -> bool:
    if not isinstance(type_, TensorType):
        return True
    shape = cast(TensorType[Any], type_).get_shape()
    return all(dim >= 0 for dim in shape) and prod(shape) <= FEW


def _meta(op: Operation, type_: TensorType[Any]) -> torch.Tensor:
    if not type_.has_static_shape():
        raise DistirError(f"{op.name}: {type_} has no static shape")
    return torch.empty(type_.get_shape(), dtype=torch_dtype(type_.element_type), device="meta")
