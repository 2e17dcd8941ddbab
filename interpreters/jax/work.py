"""The work of contractions of the `jax` dialect. In goes an operation; out come its matrix products. Flops are those
of XLA's HloCostAnalysis, two per multiply-add."""

from __future__ import annotations

from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.jax.parameters import decode
from distir.interpreters.work import Contraction, Kind, Work, moved_bytes


def jax_work(op: Operation) -> Work | None:
    """The work of a matrix product or a convolution; None for what has no flops of its own."""
    match op.name:
        case "jax.dot_general":
            product = _dot_general(op)
        case "jax.conv_general_dilated":
            product = _convolution(op)
        case "jax.constant":
            return Work(Kind.NOTHING)
        case _:
            return None
    return Work(Kind.MATMUL, product.flops, moved_bytes(op), (product,))


NOT_LOOPS = frozenset(
    """
    approx_top_k cholesky cond custom_linear_solve eig eigh fft hessenberg householder_product lu qr schur
    select_and_gather_add select_and_scatter select_and_scatter_add svd triangular_solve tridiagonal
    tridiagonal_solve ragged_all_to_all stage while
    """.split()
)
"""Primitives that do more than a few flops for each element that they read or write, or how much depends on values."""


def is_loops(op: Operation) -> bool:
    """Whether a primitive that is no contraction does a few flops for each element."""
    return op.name.removeprefix("jax.") not in NOT_LOOPS


def _dot_general(op: Operation) -> Contraction:
    """Free dims of the first operand are rows, of the second columns."""
    contracted, batch = decode(op.properties["dimension_numbers"])
    free: list[int] = []
    for value, summed, shared in zip(op.operands, contracted, batch, strict=True):
        free.append(prod(extent for d, extent in enumerate(_shape(value)) if d not in {*summed, *shared}))
    rows, columns = free
    first = _shape(op.operands[0])
    return Contraction(prod(first[d] for d in batch[0]), rows, columns, prod(first[d] for d in contracted[0]))


def _convolution(op: Operation) -> Contraction:
    """As an implicit matrix product: a row per result position, a column per filter, and the elements of one filter contracted."""
    filters, result = _shape(op.operands[1]), _shape(op.results[0])
    count = filters[_filter_dim(op)]
    groups = decode(op.properties["feature_group_count"]) * decode(op.properties["batch_group_count"])
    return Contraction(groups, prod(result) // count, count // groups, prod(filters) // count)


def _shape(value: SSAValue) -> tuple[int, ...]:
    return cast(TensorType[Any], value.type).get_shape()


def _filter_dim(op: Operation) -> int:
    """The dim of the second operand that counts filters: the first of `rhs_spec`."""
    numbers = cast(DictionaryAttr, op.properties["dimension_numbers"])
    members = cast(DictionaryAttr, numbers.data["value"])
    return int(decode(cast(ArrayAttr[Attribute], members.data["rhs_spec"]))[0])
