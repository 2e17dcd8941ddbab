"""Checks the result types of operators. In go operations; out comes an error on the first with other result types
than its meaning infers from its operands."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import prod
from typing import Any, NoReturn, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.traits import ConstantLike

from distir.dialects.errors import DistirError
from distir.interpreters.mixed import MixedValue, abstract, abstract_operator, question, type_of
from distir.interpreters.model_names import model_name, reached_by
from distir.interpreters.module_check import fail
from distir.interpreters.reference import run_operator
from distir.interpreters.shared import Shared

_LARGEST_KNOWN = 64
"""Elements of constants whose values are looked at: result types depend on sizes, axes and scales."""


def check_types(operators: Iterable[Operation]) -> None:
    """Raises VerifyException, as a diagnostic on the operation, where its operands do not fit, and where a result has another element type, rank
    or extent than inferred. Extents that are open on either side are not compared; operations without results, constants and operators with regions
    are left out. Of operators that are alike, one is looked at."""
    shared, right = Shared(), set[Hashable]()
    for op in operators:
        if op.results and not op.regions and not op.has_trait(ConstantLike):
            operands = [_known(operand) for operand in op.operands]
            if (key := question(shared, op, tuple(operands))) not in right:
                _check(op, operands)
                right.add(key)


def _check(op: Operation, operands: Sequence[MixedValue]) -> None:
    try:
        inferred = abstract_operator(op, operands)
    except DistirError as error:
        _fail(op, str(error))
    if len(inferred) != len(op.results):
        _fail(op, f"expected {len(inferred)} results, got {len(op.results)}")
    for i, (result, value) in enumerate(zip(op.results, inferred, strict=True)):
        expected, got = None if value is None else type_of(value), abstract(result.type)
        if not _agree(expected, cast(Attribute | None, got)):
            _fail(op, f"{op.name}: result {i}: expected {expected or 'none'}, got {got or 'none'}")


def _fail(op: Operation, message: str) -> NoReturn:
    name = model_name(op, reached_by(op))
    fail(op, f"{message} (in {name})" if name else message)


def _known(value: SSAValue) -> MixedValue:
    """The value of a small constant, else the type."""
    owner, type_ = value.owner, value.type
    if isinstance(owner, Operation) and not owner.operands and owner.has_trait(ConstantLike):
        if isinstance(type_, TensorType) and prod(cast(TensorType[Any], type_).get_shape()) <= _LARGEST_KNOWN:
            return run_operator(owner, [])[0]
    return abstract(type_)


def _agree(one: Attribute | None, other: Attribute | None) -> bool:
    """Whether a value can be of both types."""
    if not isinstance(one, TensorType) or not isinstance(other, TensorType):
        return (
            one is None or other is None or getattr(one, "element_type", one) == getattr(other, "element_type", other)
        )
    first, second = cast(TensorType[Attribute], one), cast(TensorType[Attribute], other)
    if first.element_type != second.element_type or first.get_num_dims() != second.get_num_dims():
        return False
    return all(m == n or DYNAMIC_INDEX in (m, n) for m, n in zip(first.get_shape(), second.get_shape(), strict=True))
