"""Size-carrying attributes and operands (a reshape's target, a split's sizes), rewritten for one shard.

A rule's `sizes` say which entries scale with which factor; those entries are divided by the number of shards."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.onnx import TensorAttr
from distir.dialects.sharding import Rule
from distir.passes.distribution.literals import resized
from distir.passes.distribution.size_entries import operand_names


def divisors_of(rule: Rule | None, factors: Mapping[str, int | Fraction]) -> dict[tuple[str, int], int | Fraction]:
    """Per size slot of a rule, what to divide it by when these factors are cut into so many shards."""
    if rule is None:
        return {}
    divisors = {slot: prod(factors.get(f, 1) for f in carried) for slot, carried in rule.sizes.items()}
    return {slot: divisor for slot, divisor in divisors.items() if divisor != 1}


def local_properties(op: Operation, divisors: Mapping[tuple[str, int], int | Fraction]) -> dict[str, Attribute]:
    """The op's properties with their size entries divided."""
    properties = dict(op.properties)
    for (name, index), divisor in divisors.items():
        if name in properties:
            properties[name] = _divided(properties[name], index, divisor, op)
    return properties


def _divided(attribute: Attribute, index: int, divisor: int | Fraction, op: Operation) -> Attribute:
    if isinstance(attribute, TensorAttr):
        return resized(attribute, index, attribute.type.get_shape()[index] // divisor)
    if isinstance(attribute, ArrayAttr):
        items = list(cast(ArrayAttr[Attribute], attribute).data)
        items[index] = _divided(items[index], 0, divisor, op)
        return ArrayAttr(items)
    if isinstance(attribute, DenseArrayBase):
        values = [int(v) for v in cast(DenseArrayBase[Any], attribute).get_values()]
        values[index] //= divisor
        return DenseArrayBase.from_list(cast(Any, attribute).elt_type, values)
    if isinstance(attribute, IntegerAttr):
        integer = cast(IntegerAttr[Any], attribute)
        return IntegerAttr(integer.value.data // divisor, integer.type)
    raise DistirError(f"{op.name}: a size in an attribute of kind {attribute.name} cannot be rewritten")


def local_constants(op: Operation, divisors: Mapping[tuple[str, int], int | Fraction]) -> dict[int, Operation]:
    """Per operand index, a new constant op in place of a size operand; the caller inserts it."""
    replaced: dict[int, Operation] = {}
    for index, name in enumerate(operand_names(op)):
        entries = {i: divisor for (slot, i), divisor in divisors.items() if slot == name and slot not in op.properties}
        if entries:
            replaced[index] = _divided_constant(op, op.operands[index], entries)
    return replaced


def _divided_constant(op: Operation, value: SSAValue, entries: Mapping[int, int | Fraction]) -> Operation:
    from distir.dialects.onnx import Constant

    if not isinstance(value, OpResult) or not isinstance(value.op, Constant):
        raise DistirError(f"{op.name}: the size operand %{value.name_hint} is no constant: run onnx-fold-shapes first")
    array = TensorAttr.of(value.op.value).to_numpy().copy()
    for index, divisor in entries.items():
        array.flat[index] = int(array.flat[index]) // divisor
    constant = Constant(TensorAttr.from_numpy(array))
    constant.results[0].name_hint = value.name_hint
    return constant
