"""Losses of ONNX against torch's, and how they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from xdsl.ir import Operation

from distir.dialects.errors import DistirError
from distir.interpreters.onnx.reference import run_onnx
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.unit.onnx_operations import onnx_operation
from tests.unit.shard_executor import violations

TORCH = {"NegativeLogLikelihoodLoss": functional.nll_loss, "SoftmaxCrossEntropyLoss": functional.cross_entropy}


def loss(operator: str, reduction: str, ignored: int | None = None, is_weighted: bool = True) -> Operation:
    """A loss of scores `[4, 7, 6]`."""
    stated = f'reduction = "{reduction}"' + ("" if ignored is None else f", ignore_index = {ignored} : si64")
    operands = ["4x7x6xf32", "4x6xi64", "7xf32" if is_weighted else "none"]
    results = ["4x6xf32" if reduction == "none" else "f32", *["none"] * (operator == "SoftmaxCrossEntropyLoss")]
    return onnx_operation(operator, operands, results, stated)


def drawn(op: Operation, ignored: int | None = None) -> list[Any]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 7, (4, 6))
    if ignored is not None:
        labels[rng.random(labels.shape) < 0.3] = ignored
    x, weights = rng.standard_normal((4, 7, 6)).astype(np.float32), rng.random(7).astype(np.float32)
    return [x, labels, weights if str(op.operands[2].type) != "none" else None]


@pytest.mark.parametrize("operator", TORCH)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(("ignored", "is_weighted"), [(None, True), (None, False), (-100, True), (3, False)])
def test_losses_are_those_of_torch(operator: str, reduction: str, ignored: int | None, is_weighted: bool) -> None:
    op = loss(operator, reduction, ignored, is_weighted)
    x, labels, weights = drawn(op, ignored)
    result = run_onnx(op, [x, labels, weights])[0]
    expected = TORCH[operator](
        torch.from_numpy(x),
        torch.from_numpy(labels),
        weight=None if weights is None else torch.from_numpy(weights),
        ignore_index=-100 if ignored is None else ignored,
        reduction=reduction,
    )
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-5, atol=1e-6)  # pyright: ignore[reportArgumentType]


def test_far_scores_have_a_finite_loss() -> None:
    op = loss("SoftmaxCrossEntropyLoss", "sum", is_weighted=False)
    x = np.zeros((4, 7, 6), np.float32)
    x[:, 0] = 500
    (total, _) = run_onnx(op, [x, np.full((4, 6), 1), None])
    assert total == 4 * 6 * 500


@pytest.mark.parametrize("label", [-1, 7])
def test_labels_are_classes(label: int) -> None:
    op = loss("NegativeLogLikelihoodLoss", "sum")
    x, labels, weights = drawn(op)
    labels[2, 3] = label
    with pytest.raises(DistirError, match=f"the label {label} is none of 7 classes"):
        run_onnx(op, [x, labels, weights])


@pytest.mark.parametrize(
    ("operator", "reduction", "ignored", "expected"),
    [
        ("NegativeLogLikelihoodLoss", "none", None, "[S1, S3, S2], [S1, S2], [S3]"),
        ("NegativeLogLikelihoodLoss", "sum", -100, "[S1, S3, S2], [S1, S2], [S3]"),
        ("NegativeLogLikelihoodLoss", "sum", None, "[S1, _, S2], [S1, S2], [_]"),
        ("SoftmaxCrossEntropyLoss", "sum", -100, "[S1, _, S2], [S1, S2], [_]"),
    ],
)
def test_batch_places_and_classes_are_cut(operator: str, reduction: str, ignored: int | None, expected: str) -> None:
    """Classes by the start of a shard's own, where results, or labels that are ignored, can say which are of other shards."""
    op = loss(operator, reduction, ignored)
    rule = Discovery(InterpreterDomains()).rule(op)
    assert expected in str(rule)
    assert not violations(op, rule, drawn(op, ignored), np.random.default_rng(0)).violations
