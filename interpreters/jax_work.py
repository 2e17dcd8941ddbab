"""The work of contractions of the `jax` dialect, as XLA's HloCostAnalysis counts it: two flops per multiply-add."""

from __future__ import annotations

from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.jax.parameters import decode
from distir.interpreters.work import Kind, Work, moved_bytes


def jax_work(op: Operation) -> Work | None:
    """The work of a matrix product or a convolution; None for what has no flops of its own."""
    match op.name:
        case "jax.dot_general":
            (contracted, _), _ = decode(op.properties["dimension_numbers"])
            flops = 2 * prod(_shape(op.results[0])) * prod(_shape(op.operands[0])[d] for d in contracted)
        case "jax.conv_general_dilated":
            filters = _shape(op.operands[1])
            flops = 2 * prod(_shape(op.results[0])) * prod(filters) // filters[_filter_dim(op)]
        case "jax.constant":
            return Work(Kind.NOTHING)
        case _:
            return None
    return Work(Kind.MATMUL, flops, moved_bytes(op))


def _shape(value: SSAValue) -> tuple[int, ...]:
    return cast(TensorType[Any], value.type).get_shape()


def _filter_dim(op: Operation) -> int:
    """The dim of the second operand that counts filters: the first of `rhs_spec`."""
    numbers = cast(DictionaryAttr, op.properties["dimension_numbers"])
    members = cast(DictionaryAttr, numbers.data["value"])
    return int(decode(cast(ArrayAttr[Attribute], members.data["rhs_spec"]))[0])
