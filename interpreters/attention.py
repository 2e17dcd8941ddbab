"""The `attention` operators on arrays. In go queries, keys, values and a mask; out come results and gradients, their
types, and the work: matrix products that read and write no scores. The numpy functions also run on arrays of exact
scalars."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np
from xdsl.dialects.builtin import Float64Type, TensorType, f32
from xdsl.ir import Attribute, Operation

from distir.dialects.attention import UNSEEN, AttentionOp, BackwardOp, CombineOp, ForwardOp, is_grouped
from distir.interpreters.exact.ndarray import ExactArray, exact_array, from_exact
from distir.interpreters.random import bernoulli
from distir.interpreters.work import Kind, Work, attention_products, attention_work, moved_bytes

Array = np.ndarray[Any, np.dtype[Any]]


class Kept(NamedTuple):
    """Which weights dropout leaves, and their factor."""

    where: np.ndarray[Any, np.dtype[np.bool_]]
    factor: float

    def of(self, weights: Array) -> Array:
        return _where(self.where, weights * self.factor, 0)


def forward(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    scale: float,
    diagonal: int | None,
    kept: Kept | None = None,
) -> tuple[Array, Array]:
    """The result and the logarithm of each row's sum."""
    scores, seen = _scores(query, key, mask, scale, diagonal)
    # Exact scalars have no order that subtraction keeps, nor do they overflow.
    largest = np.zeros_like(scores[..., :1]) if isinstance(scores, ExactArray) else _largest(scores, seen)
    weights = _where(seen, np.exp(scores - largest), 0)
    sums = weights.sum(-1, keepdims=True)
    result = np.matmul(weights if kept is None else kept.of(weights), _per_group(value, query))
    any_seen = np.broadcast_to(seen.any(-1, keepdims=True), sums.shape)
    result = _where(any_seen, result / _where(any_seen, sums, 1), 0)
    logarithms = np.log(_where(any_seen, sums, 1)) + largest
    return result, _where(any_seen, logarithms, 0 if isinstance(scores, ExactArray) else UNSEEN)[..., 0]


def backward(
    gradient: Array,
    output: Array,
    logsumexp: Array,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    scale: float,
    diagonal: int | None,
    kept: Kept | None = None,
) -> tuple[Array, Array, Array]:
    """Gradients by queries, keys and values (Dao et al., FlashAttention, 2022, algorithm 4)."""
    scores, seen = _scores(query, key, mask, scale, diagonal)
    weights = _where(seen, np.exp(scores - logsumexp[..., None]), 0)
    of_weights = np.matmul(gradient, np.swapaxes(_per_group(value, query), -1, -2))
    of_weights = of_weights if kept is None else kept.of(of_weights)
    of_scores = weights * (of_weights - (gradient * output).sum(-1, keepdims=True)) * scale
    of_query = np.matmul(of_scores, _per_group(key, query))
    of_key = np.matmul(np.swapaxes(of_scores, -1, -2), query)
    of_value = np.matmul(np.swapaxes(weights if kept is None else kept.of(weights), -1, -2), gradient)
    if is_grouped(query.ndim, key.ndim):
        of_key, of_value = of_key.sum(-3), of_value.sum(-3)
    return of_query, of_key, of_value


def combine(output: Array, logsumexp: Array, other_output: Array, other_logsumexp: Array) -> tuple[Array, Array]:
    """The forward's results for the keys of both."""
    largest = np.zeros_like(logsumexp) if isinstance(logsumexp, ExactArray) else np.maximum(logsumexp, other_logsumexp)
    weights = np.exp(logsumexp - largest), np.exp(other_logsumexp - largest)
    total = weights[0] + weights[1]
    result = output * (weights[0] / total)[..., None] + other_output * (weights[1] / total)[..., None]
    return result, np.log(total) + largest


def _scores(
    query: Array, key: Array, mask: Array | None, scale: float, diagonal: int | None
) -> tuple[Array, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Scores, and which of them are seen."""
    scores = np.matmul(query, np.swapaxes(_per_group(key, query), -1, -2)) * scale
    seen = np.ones(scores.shape, np.bool_)
    if diagonal is not None:
        rows, keys = scores.shape[-2:]
        seen &= np.arange(keys) <= np.arange(rows)[:, None] + diagonal
    if mask is not None and mask.dtype.kind == "b":
        seen &= mask
    elif mask is not None:
        scores = scores + mask
        seen &= np.ones(scores.shape, np.bool_) if isinstance(scores, ExactArray) else scores != -np.inf
    return scores, seen


def _per_group(keys: Array, query: Array) -> Array:
    """Keys or values, for every query head of a group."""
    return np.expand_dims(keys, -3) if is_grouped(query.ndim, keys.ndim) else keys


def _largest(scores: Array, seen: Array) -> Array:
    largest = np.where(seen, scores, -np.inf).max(-1, keepdims=True, initial=-np.inf)
    return np.where(np.isfinite(largest), largest, 0).astype(scores.dtype)


def _where(condition: Array, array: Array, otherwise: float) -> Array:
    return np.where(condition, array, np.asarray(otherwise, array.dtype)).view(type(array))


def run_exactly(op: Operation, operands: Sequence[Any]) -> tuple[Array, ...]:
    """The results of one op on arrays of exact scalars, of type `EXACT`."""
    assert isinstance(op, AttentionOp | CombineOp)
    return tuple(map(from_exact, _results(op, [exact_array(np.asarray(each)) for each in operands])))


def run_attention(op: Operation, operands: Sequence[Any], floats: np.dtype[Any] | None = None) -> tuple[Array, ...]:
    """The results of one op. Halves are computed in single precision, as kernels do; with `floats`, everything is of that type."""
    assert isinstance(op, AttentionOp | CombineOp)
    arrays = [np.asarray(each) for each in operands]
    own = [each.dtype for each in arrays]
    width = max((each.itemsize for each in own if each.kind not in "bi"), default=4)
    wide = floats or np.dtype(np.float64 if width > 4 else np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        found = _results(op, [a if a.dtype.kind in "bi" else a.astype(wide) for a in arrays])
    if floats is not None:
        return found
    types = own[3:6] if isinstance(op, BackwardOp) else [own[0], wide]
    return tuple(result.astype(type_) for result, type_ in zip(found, types, strict=True))


def _results(op: AttentionOp | CombineOp, arrays: list[Array]) -> tuple[Array, ...]:
    if isinstance(op, CombineOp):
        first, second, third, fourth = arrays
        return combine(first, second, third, fourth)
    given, drawn_by = arrays[: len(arrays) - len(op.draw)], arrays[len(arrays) - len(op.draw) :]
    mask = given.pop() if op.mask is not None else None
    function: Any = forward if isinstance(op, ForwardOp) else backward
    return function(*given, mask, float(op.scale.value.data), _diagonal(op), _kept(op, drawn_by))


def _kept(op: AttentionOp, drawn_by: list[Array]) -> Kept | None:
    if op.dropout is None:
        return None
    probability = 1 - float(op.dropout.value.data)
    key, *positions = drawn_by
    return Kept(bernoulli(key, positions, probability), 1 / probability)


def _diagonal(op: AttentionOp) -> int | None:
    return None if op.diagonal is None else int(op.diagonal.value.data)


def attention_types(op: Operation, operand_types: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """The types of the results for these types of the operands. Raises VerifyException where operands do not fit."""
    assert isinstance(op, AttentionOp | CombineOp)
    if isinstance(op, CombineOp):
        return tuple(operand_types[:2])
    if isinstance(op, BackwardOp):
        return tuple(operand_types[3:6])
    query, _, value, *_ = (cast(TensorType[Any], type_) for type_ in operand_types)
    rows, element = query.get_shape()[:-1], query.element_type
    return (
        TensorType(element, [*rows, value.get_shape()[-1]]),
        TensorType(element if isinstance(element, Float64Type) else f32, rows),
    )


def work_of_attention(op: Operation) -> Work:
    """As one kernel."""
    assert isinstance(op, AttentionOp | CombineOp)
    if isinstance(op, CombineOp):
        return Work(Kind.ELEMENTWISE, 3 * prod(cast(TensorType[Any], op.output.type).get_shape()), moved_bytes(op))
    *batch, rows, depth = cast(TensorType[Any], op.query.type).get_shape()
    keys, columns = cast(TensorType[Any], op.value.type).get_shape()[-2:]
    is_backward = isinstance(op, BackwardOp)
    kind = Kind.ATTENTION_GRADIENT if is_backward else Kind.ATTENTION
    return attention_work(
        op, kind, attention_products(prod(batch), rows, keys, depth, columns, is_backward), _diagonal(op)
    )
