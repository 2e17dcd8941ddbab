"""Builds ONNX operations that passes insert. In go arrays or values; out come constants, and values stacked along a new dim."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import IntegerAttr, IntegerType, Signedness, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from distir.dialects.onnx import OPERATORS, Constant, TensorAttr

Values = Mapping[SSAValue, Any]
"""What is known of values: arrays or types (`interpreters.mixed`)."""


def known_type(value: SSAValue, values: Values) -> Attribute:
    """What is known of the type of a value."""
    from distir.interpreters.mixed import abstract, type_of

    known = values.get(value)
    return cast(Attribute, abstract(value.type) if known is None else type_of(known))


def constant(array: Any, rewriter: PatternRewriter) -> SSAValue:
    made = Constant(TensorAttr.from_numpy(array))
    rewriter.insert(made)
    return made.output


def stacked(values: Sequence[SSAValue], type: Attribute, axis: int, rewriter: PatternRewriter) -> SSAValue:
    """The values along a new dim; `type` is that of the result, whose extent there may be open."""
    import numpy as np

    from distir.dialects.onnx import numpy_dtype

    whole = cast(TensorType[Attribute], type)
    before, after = whole.get_shape()[:axis], whole.get_shape()[axis + 1 :]
    if not values:
        return constant(np.zeros(whole.get_shape(), numpy_dtype(whole.element_type)), rewriter)
    axes = constant(np.array([axis]), rewriter)
    rows = [
        OPERATORS["Unsqueeze"].create(
            operands=[value, axes], result_types=[TensorType(whole.element_type, [*before, 1, *after])]
        )
        for value in values
    ]
    joined = OPERATORS["Concat"].create(
        operands=[row.results[0] for row in rows],
        result_types=[TensorType(whole.element_type, [*before, len(values), *after])],
        properties={"axis": axis_attribute(axis)},
    )
    rewriter.insert([*rows, joined])
    return joined.results[0]


def axis_attribute(value: int) -> IntegerAttr[IntegerType]:
    return IntegerAttr(value, IntegerType(64, Signedness.SIGNED))
