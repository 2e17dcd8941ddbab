"""The `attention` dialect: softmax attention and its gradient as single operators, as fused kernels compute them: what comes in are
queries, keys, values and a mask, what comes out is the result and the logarithm of each row's sum. Scores are never a value.

Dims before the last two are shared by all operands; queries may have one more, the last of them, which counts the query heads of one
key head (grouped-query attention). Shapes are checked here; what the operators compute is in `distir.interpreters.attention`.

Lifecycle: frontends create them at level 1 where a model states attention as one operation, `recognise-attention` where it is spelled
out, `ring-attention` that of chunks; every pass treats them like any operator.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import Float64Type, FloatAttr, IntegerAttr, TensorType, f64, i64
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

UNSEEN = -1e30
"""The logarithm of a sum of nothing: so little that no sum with another has a part of it, and a number."""


def _shape(value: SSAValue) -> list[int]:
    return list(cast(TensorType[Any], value.type).get_shape())


def is_grouped(query: int, key: int) -> bool:
    """Whether queries of this rank have a dim for the heads of one group, which keys of this rank have not."""
    return query == key + 1


class AttentionOp(IRDLOperation, ABC):
    """Base: softmax(scale query key^T + mask) value. A row of queries sees the keys whose position is at most its own plus
    `diagonal`, or all without one; a mask of truths says which it sees of these, a mask of numbers is added to the scores."""

    query = operand_def(TensorType)
    """(..., [group,] rows, depth)"""
    key = operand_def(TensorType)
    """(..., keys, depth)"""
    value = operand_def(TensorType)
    """(..., keys, columns)"""
    mask = opt_operand_def(TensorType)
    """Broadcasts to (..., [group,] rows, keys), with as many dims."""
    scale = prop_def(FloatAttr[Float64Type])
    diagonal = opt_prop_def(IntegerAttr)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        query, key, value = _shape(self.query), _shape(self.key), _shape(self.value)
        shared = query[:-3] if is_grouped(len(query), len(key)) else query[:-2]
        if len(key) < 2 or key[:-2] != shared or key[-1] != query[-1]:
            raise VerifyException(f"expected keys of shape {[*shared, 'keys', query[-1]]}, got {key}")
        if len(value) < 2 or value[:-1] != key[:-1]:
            raise VerifyException(f"expected values of shape {[*key[:-1], 'columns']}, got {value}")
        if self.mask is not None:
            mask, scores = _shape(self.mask), [*query[:-1], key[-2]]
            if len(mask) != len(scores) or any(m not in (1, n) for m, n in zip(mask, scores, strict=True)):
                raise VerifyException(f"expected a mask that broadcasts to {scores}, got {mask}")
        self.verify_rest([*query[:-1], value[-1]])

    def verify_rest(self, result: list[int]) -> None:
        """Subclass hook: the other values, where the forward's result has this shape."""


def _expect(value: SSAValue, expected: list[int], what: str) -> None:
    if _shape(value) != expected:
        raise VerifyException(f"expected {what} of shape {expected}, got {_shape(value)}")


@irdl_op_definition
class ForwardOp(AttentionOp):
    """The result, in the queries' element type, and per row the logarithm of the sum of the exponentials of its scores. Of a row that sees no key,
    the result is zero and the logarithm is `UNSEEN`."""

    name = "attention.forward"
    output = result_def(TensorType)
    logsumexp = result_def(TensorType)

    def __init__(
        self,
        query: SSAValue,
        key: SSAValue,
        value: SSAValue,
        mask: SSAValue | None,
        scale: float,
        diagonal: int | None,
        result_types: list[Attribute],
    ):
        super().__init__(
            operands=[query, key, value, [mask] if mask is not None else []],
            result_types=result_types,
            properties=_properties(scale, diagonal),
        )

    def verify_rest(self, result: list[int]) -> None:
        _expect(self.output, result, "a result")
        _expect(self.logsumexp, result[:-1], "logarithms of sums")


@irdl_op_definition
class BackwardOp(AttentionOp):
    """Gradients of a loss by queries, keys and values, from its gradient by the result. Scores are computed again."""

    name = "attention.backward"
    gradient = operand_def(TensorType)
    output = operand_def(TensorType)
    logsumexp = operand_def(TensorType)
    query_gradient = result_def(TensorType)
    key_gradient = result_def(TensorType)
    value_gradient = result_def(TensorType)

    def __init__(
        self,
        gradient: SSAValue,
        output: SSAValue,
        logsumexp: SSAValue,
        query: SSAValue,
        key: SSAValue,
        value: SSAValue,
        mask: SSAValue | None,
        scale: float,
        diagonal: int | None,
    ):
        super().__init__(
            operands=[gradient, output, logsumexp, query, key, value, [mask] if mask is not None else []],
            result_types=[query.type, key.type, value.type],
            properties=_properties(scale, diagonal),
        )

    def verify_rest(self, result: list[int]) -> None:
        _expect(self.gradient, result, "a gradient")
        _expect(self.output, result, "a result")
        _expect(self.logsumexp, result[:-1], "logarithms of sums")
        for made, of in zip(self.results, (self.query, self.key, self.value), strict=True):
            _expect(made, _shape(of), "a gradient")


@irdl_op_definition
class CombineOp(IRDLOperation):
    """The forward's results for keys of which it was computed in two parts, from its results for each: rows of the two are weighed by the
    exponentials of their logarithms."""

    name = "attention.combine"
    output = operand_def(TensorType)
    logsumexp = operand_def(TensorType)
    other_output = operand_def(TensorType)
    other_logsumexp = operand_def(TensorType)
    combined = result_def(TensorType)
    combined_logsumexp = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, first: Sequence[SSAValue], second: Sequence[SSAValue]):
        super().__init__(operands=[*first, *second], result_types=[value.type for value in first])

    def verify_(self) -> None:
        shape = _shape(self.output)
        for value in (self.other_output, self.combined):
            _expect(value, shape, "a result")
        for value in (self.logsumexp, self.other_logsumexp, self.combined_logsumexp):
            _expect(value, shape[:-1], "logarithms of sums")


def _properties(scale: float, diagonal: int | None) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {"scale": FloatAttr(scale, f64)}
    return found if diagonal is None else found | {"diagonal": IntegerAttr(diagonal, i64)}


Attention = Dialect("attention", [ForwardOp, BackwardOp, CombineOp])
