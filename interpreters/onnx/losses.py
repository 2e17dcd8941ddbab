"""Losses of the `onnx` dialect. In go scores, labels and weights; out come losses. The reference evaluator of the
onnx package (1.23.2) takes labels that are no classes, each otherwise (scores from the end, a weight from the next
class), goes through places one by one in Python, and has logarithms of 0 where scores differ by some hundred."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


def _loss(
    x: Array, target: Array, weight: Array | None = None, ignore_index: int | None = None, reduction: str | None = None
) -> Array:
    """Of logarithms of probabilities, `[batch, classes, ...]`. Raises ValueError for a label that is no class and not ignored."""
    classes = x.shape[1]
    counts = np.ones(target.shape, np.bool_) if ignore_index is None else target != ignore_index
    wrong = counts & ((target < 0) | (target >= classes))
    if wrong.any():
        raise ValueError(f"the label {target[wrong][0]} is none of {classes} classes")
    at = np.where(counts, target, 0)
    taken = -np.take_along_axis(x, np.expand_dims(at, 1), 1)[:, 0]
    shares = np.where(counts, 1 if weight is None else weight[at], 0).astype(x.dtype)
    loss = np.where(counts, taken * shares, 0).astype(x.dtype)
    if reduction == "none":
        return loss
    total = loss.sum()
    return np.asarray(total if reduction == "sum" else total / shares.sum(), x.dtype)


class NegativeLogLikelihoodLoss(OpRun):
    op_domain = ""

    def _run(self, x: Array, *operands: Any, **attributes: Any) -> tuple[Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (_loss(x, *operands, **attributes),)


class SoftmaxCrossEntropyLoss(OpRun):
    op_domain = ""

    def _run(self, x: Array, *operands: Any, **attributes: Any) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        above = x - np.max(x, axis=1, keepdims=True)
        logarithms = above - np.log(np.sum(np.exp(above), axis=1, keepdims=True))
        results = _loss(logarithms, *operands, **attributes), logarithms.astype(x.dtype)
        return results[: len(self.onnx_node.output)]


LOSSES: list[type[OpRun]] = [NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss]
