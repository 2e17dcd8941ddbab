"""Integers of an op, in attributes and constant operands. In go an op and the shards of each factor; out come its
properties and constants for one shard.

A rule's `sizes` say which entries scale with which factor (a reshape's target, a split's sizes); those entries are divided by the
number of shards. A `Shift` says that an entry counts positions from its own (a diagonal); it is moved by the start of the shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.onnx import TensorAttr
from distir.dialects.sharding import Rule, Shift
from distir.passes.distribution.literals import resized
from distir.passes.distribution.size_entries import operand_names


@dataclass(frozen=True)
class Change:
    """Of one integer: what divides it, and what is then added."""

    divisor: int | Fraction = 1
    added: int = 0

    def of(self, number: int) -> int:
        return int(number // self.divisor) + self.added


Changes = Mapping[tuple[str, int], Change]
"""By name of the property or operand, and position."""


def changes_of(
    rule: Rule | None, factors: Mapping[str, int | Fraction], starts: Mapping[str, int] | None = None
) -> dict[tuple[str, int], Change]:
    """How a rule's integers change when these factors are cut into so many shards, and where the positions of a shard start of
    those factors that shift one."""
    if rule is None or not (factors or starts):
        return {}
    divisors = {slot: prod(factors.get(f, 1) for f in carried) for slot, carried in rule.sizes.items()}
    changes = {slot: Change(divisor) for slot, divisor in divisors.items() if divisor != 1}
    for factor, start in (starts or {}).items():
        if isinstance(shift := rule.offsets[factor], Shift):
            known = changes.get(slot := (shift.name, shift.position), Change())
            changes[slot] = replace(known, added=known.added + shift.by(start))
    return changes


def local_properties(op: Operation, changes: Changes) -> dict[str, Attribute]:
    """The op's properties with these entries changed."""
    properties = dict(op.properties)
    for (name, index), change in changes.items():
        if name in properties:
            properties[name] = _changed(properties[name], index, change, op)
    return properties


def _changed(attribute: Attribute, index: int, change: Change, op: Operation) -> Attribute:
    if isinstance(attribute, TensorAttr):
        return resized(attribute, index, change.of(attribute.type.get_shape()[index]))
    if isinstance(attribute, ArrayAttr):
        items = list(cast(ArrayAttr[Attribute], attribute).data)
        items[index] = _changed(items[index], 0, change, op)
        return ArrayAttr(items)
    if isinstance(attribute, DenseArrayBase):
        values = [int(v) for v in cast("DenseArrayBase[Any]", attribute).get_values()]
        values[index] = change.of(values[index])
        return DenseArrayBase.from_list(cast(Any, attribute).elt_type, values)
    if isinstance(attribute, IntegerAttr):
        integer = cast("IntegerAttr[Any]", attribute)
        return IntegerAttr(change.of(integer.value.data), integer.type)
    raise DistirError(f"{op.name}: a size in an attribute of kind {attribute.name} cannot be rewritten")


def local_constants(op: Operation, changes: Changes) -> dict[int, Operation]:
    """Per operand index, a new constant op in place of a constant operand of which entries change; the caller inserts it."""
    replaced: dict[int, Operation] = {}
    if not changes:
        return replaced
    for index, name in enumerate(operand_names(op)):
        entries = {i: change for (slot, i), change in changes.items() if slot == name and slot not in op.properties}
        if entries:
            replaced[index] = _changed_constant(op, op.operands[index], entries)
    return replaced


def _changed_constant(op: Operation, value: SSAValue, entries: Mapping[int, Change]) -> Operation:
    from distir.dialects.onnx import Constant

    if not isinstance(value, OpResult) or not isinstance(value.op, Constant):
        raise DistirError(f"{op.name}: the size operand %{value.name_hint} is no constant: run onnx-fold-shapes first")
    literal = _rewritten(TensorAttr.of(value.op.value), tuple(entries.items()))
    constant = Constant.create(result_types=[literal.type], properties={**value.op.properties, "value": literal})
    constant.results[0].name_hint = value.name_hint
    return constant


@lru_cache(maxsize=1 << 12)
def _rewritten(literal: TensorAttr, entries: tuple[tuple[int, Change], ...]) -> TensorAttr:
    array = literal.to_numpy().copy()
    for index, change in entries:
        array.flat[index] = change.of(int(array.flat[index]))
    return TensorAttr.from_numpy(array)
