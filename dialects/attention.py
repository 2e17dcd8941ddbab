"""The `attention` dialect: softmax attention and its gradient as single operators, as fused kernels compute them: what comes in are
queries, keys, values and a mask, what comes out is the result and the logarithm of each row's sum. Scores are never a value.

Dims before the last two are shared by all operands; queries may have one more, the last of them, which counts the query heads of one
key head (grouped-query attention). With dropout, weights are drawn as the `random` dialect draws, by a key and positions. Shapes are
checked here; what the operators compute is in `distir.interpreters.attention`.

Lifecycle: frontends create them at level 1 where a model states attention as one operation, `recognise-attention` where it is spelled
out, `ring-attention` that of chunks; every pass treats them like any operator.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from xdsl.dialects.builtin import Float64Type, FloatAttr, IntegerAttr, TensorType, f64, i64
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
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


class Dropout(NamedTuple):
    """Which weights are zero: with this probability, as `random.bernoulli` with the contrary's draws what is kept."""

    probability: float
    key: SSAValue
    positions: Sequence[SSAValue]
    """One vector for each dim of the scores."""


class AttentionOp(IRDLOperation, ABC):
    """Base: softmax(scale query key^T + mask) value. A row of queries sees the keys whose position is at most its own plus
    `diagonal`, or all without one; a mask of truths says which it sees of these, a mask of numbers is added to the scores."""

    query = operand_def(TensorType)
    """(..., [group,] rows, depth)"""
    key = operand_def(TensorType)
    """(..., keys, depth)"""
    value = operand_def(TensorType)
    """(..., keys, columns)"""
    rest = var_operand_def(TensorType)
    """The mask, if there is one; with dropout the key of its draw, and positions for each dim of the scores."""
    scale = prop_def(FloatAttr[Float64Type])
    diagonal = opt_prop_def(IntegerAttr)
    dropout = opt_prop_def(FloatAttr[Float64Type])
    """The probability with which a weight is zero; the others are divided by that of the contrary."""
    traits = traits_def(Pure())

    @property
    def mask(self) -> SSAValue | None:
        """Broadcasts to (..., [group,] rows, keys), with as many dims."""
        return self.rest[0] if len(self.rest) > self._drawn_by else None

    @property
    def draw(self) -> Sequence[SSAValue]:
        """With dropout, the key and positions by which `random.bernoulli` draws what is kept."""
        return self.rest[len(self.rest) - self._drawn_by :]

    @property
    def before_keys(self) -> Sequence[SSAValue]:
        """The operands before keys and values, each with a row, or a number, for each query."""
        return self.operands[: len(self.operands) - len(self.rest) - 2]

    @property
    def _drawn_by(self) -> int:
        return 0 if self.dropout is None else 1 + len(_shape(self.query))

    def verify_(self) -> None:
        query, key, value = _shape(self.query), _shape(self.key), _shape(self.value)
        shared = query[:-3] if is_grouped(len(query), len(key)) else query[:-2]
        if len(key) < 2 or key[:-2] != shared or key[-1] != query[-1]:
            raise VerifyException(f"expected keys of shape {[*shared, 'keys', query[-1]]}, got {key}")
        if len(value) < 2 or value[:-1] != key[:-1]:
            raise VerifyException(f"expected values of shape {[*key[:-1], 'columns']}, got {value}")
        scores = [*query[:-1], key[-2]]
        if (others := len(self.rest) - self._drawn_by) not in (0, 1):
            raise VerifyException(
                f"expected a mask at most, and with dropout a key and {len(scores)} vectors of positions, got {len(self.rest)} operands "
                "after the values"
            )
        if others:
            mask = _shape(self.rest[0])
            if len(mask) != len(scores) or any(m not in (1, n) for m, n in zip(mask, scores, strict=True)):
                raise VerifyException(f"expected a mask that broadcasts to {scores}, got {mask}")
        self._verify_draw(scores)
        self.verify_rest([*query[:-1], value[-1]])

    def _verify_draw(self, scores: list[int]) -> None:
        if self.dropout is None:
            return
        if not 0 < (p := self.dropout.value.data) < 1:
            raise VerifyException(f"expected a dropout of more than 0 and less than 1, got {p}")
        for value, expected in zip(self.draw, [[], *([n] for n in scores)], strict=True):
            type_ = cast(TensorType[Any], value.type)
            if type_.element_type != i64 or _shape(value) != expected:
                raise VerifyException(f"expected a key of i64, and positions of the dims of {scores}, got {type_}")

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
        dropout: Dropout | None = None,
    ):
        super().__init__(
            operands=[query, key, value, _rest(mask, dropout)],
            result_types=result_types,
            properties=_properties(scale, diagonal, dropout),
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
        dropout: Dropout | None = None,
    ):
        super().__init__(
            operands=[gradient, output, logsumexp, query, key, value, _rest(mask, dropout)],
            result_types=[query.type, key.type, value.type],
            properties=_properties(scale, diagonal, dropout),
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


def _rest(mask: SSAValue | None, dropout: Dropout | None) -> list[SSAValue]:
    return [*([] if mask is None else [mask]), *([] if dropout is None else [dropout.key, *dropout.positions])]


def _properties(scale: float, diagonal: int | None, dropout: Dropout | None) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {"scale": FloatAttr(scale, f64)}
    if diagonal is not None:
        found["diagonal"] = IntegerAttr(diagonal, i64)
    if dropout is not None:
        found["dropout"] = FloatAttr(dropout.probability, f64)
    return found


Attention = Dialect("attention", [ForwardOp, BackwardOp, CombineOp])
