"""Sizes that an operation states and its rule divides. In go an operation and its rule; out come these numbers,
which must divide as the dims do wherever the rule is used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.irdl import IRDLOperation

from distir.dialects.sharding import Rule


def size_entries(op: Operation, rule: Rule) -> dict[tuple[str, int], int]:
    """What stands in the op's sizes that the rule divides; those of operands that are no constants are left out."""
    entries: dict[tuple[str, int], int] = {}
    names = operand_names(op) if rule.sizes else []
    for name, index in rule.sizes:
        if name in op.properties:
            numbers = _integers(op.properties[name])
        else:
            value = next((v for v, n in zip(op.operands, names, strict=True) if n == name), None)
            numbers = _constant(value) if value is not None else []
        if index < len(numbers):
            entries[name, index] = numbers[index]
    return entries


def _integers(attribute: Attribute) -> list[int]:
    match attribute:
        case IntegerAttr():
            return [cast("IntegerAttr[Any]", attribute).value.data]
        case ArrayAttr():
            return [n for item in attribute.data for n in _integers(item)]
        case DenseArrayBase():
            return [int(v) for v in cast("DenseArrayBase[Any]", attribute).get_values()]
        case _:
            return []


def _constant(value: SSAValue) -> Sequence[int]:
    from distir.dialects.onnx import Constant

    return _numbers(value.op.value) if isinstance(value, OpResult) and isinstance(value.op, Constant) else ()


@lru_cache(maxsize=1 << 12)
def _numbers(literal: Attribute) -> tuple[int, ...]:
    from distir.dialects.onnx import TensorAttr

    return tuple(TensorAttr.of(literal).to_numpy().astype(int).reshape(-1).tolist())


def operand_names(op: Operation) -> list[str]:
    """The name of each operand in the op's definition; variadic operands repeat theirs."""
    if not isinstance(op, IRDLOperation):
        return [f"operand{i}" for i in range(len(op.operands))]
    definition = type(op).get_irdl_definition()
    if len(definition.operands) == len(op.operands):
        return [name for name, _ in definition.operands]
    return [definition.operands[0][0]] * len(op.operands)
