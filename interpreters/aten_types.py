"""Types of the results of an `aten` operation, by running its operator on meta tensors: shapes without data.

Kept by (operator, properties, types of the operands), because many operators infer in Python, in milliseconds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, cast

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from distir.dialects.aten import AtenOperation
from distir.dialects.errors import DistirError
from distir.interpreters.aten_calls import compile_call, overload, result_types, torch_dtype

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
        with torch.device("meta"), torch.no_grad():
            found = tuple(result_types(op, compile_call(op)(tensors)))
            if list(operand_types) != [value.type for value in op.operands]:
                _check_by_definition(op, tensors)
            return found
    except DistirError:
        raise
    except Exception as error:
        message = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DistirError(f"{op.name} cannot work on {', '.join(map(str, operand_types))}: {message}") from error


def _check_by_definition(op: Operation, tensors: Sequence[torch.Tensor]) -> None:
    """Raises where the decomposition of the operator cannot work on these shapes. Some operators do not check them on meta
    tensors, and their kernels then read outside their operands (backward of a layer norm). A decomposition that does not
    work on the declared types either says nothing."""
    from torch._decomp import decomposition_table

    assert isinstance(op, AtenOperation)
    if (decomposition := decomposition_table.get(overload(op.schema))) is None:
        return
    definition = compile_call(op, function=decomposition)
    try:
        definition(tensors)
    except Exception:
        try:
            definition([_meta(op, cast(TensorType[Any], value.type)) for value in op.operands])
        except Exception:
            return
        raise


def _meta(op: Operation, type_: TensorType[Any]) -> torch.Tensor:
    if not type_.has_static_shape():
        raise DistirError(f"{op.name}: {type_} has no static shape")
    return torch.empty(type_.get_shape(), dtype=torch_dtype(type_.element_type), device="meta")
