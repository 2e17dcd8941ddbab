"""Pooling of maxima in training: imported without the places of maxima, its gradient finds them anew, of equal ones the first; so
rows and columns are cut in both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.unit.shard_executor import violations

aten = torch.ops.aten
GRADIENT, BY_PLACES = "aten.max_pool2d_backward", "aten.max_pool2d_with_indices_backward"


def few_values(*shape: int) -> torch.Tensor:
    """Integers of which many are equal, as float64."""
    return torch.randint(-2, 3, shape).double()


class Pooled(nn.Module):
    """Integers times integer weights, then any poolings of maxima: most windows have equal ones, of different pixels."""

    def __init__(self, *poolings: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(few_values(4, 3, 1, 1))
        self.poolings = poolings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.conv2d(x, self.weight)
        for pooling in self.poolings:
            x = pooling(x)
        return x


def step_agrees(model: Pooled, rows: int = 9, columns: int = 11) -> ModuleOp:
    """One step of gradient descent by the program and eagerly, with a gradient that differs at every maximum."""
    x = few_values(2, 3, rows, columns)
    label = torch.arange(1.0, 1 + model(x).numel(), dtype=torch.float64).view_as(model(x))

    def loss(y: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return (y * label).sum()

    module = import_step(training_step(model, loss, torch.optim.SGD(model.parameters(), lr=1.0)), (x, label))
    found = run(module, {**weights_of(module), "x": x.numpy(), "label": label.numpy()})
    (gradient,) = torch.autograd.grad(loss(model(x), label), [model.weight])
    np.testing.assert_array_equal(found["weight"], (model.weight - gradient).detach().numpy())
    return module


def names(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk() if "pool" in op.name]


POOLINGS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "dilation": 2},
    {"kernel_size": 3, "stride": (2, 3), "ceil_mode": True},
]


@pytest.mark.parametrize("window", POOLINGS, ids=str)
def test_a_step_is_that_of_pytorch_where_maxima_are_equal(window: dict[str, Any]) -> None:
    assert names(step_agrees(Pooled(nn.MaxPool2d(**window)))) == ["aten.max_pool2d", GRADIENT]


def test_poolings_of_rows_and_of_checkpointed_modules_are_of_the_same_operators() -> None:
    """What is checkpointed need not be pooled again: the gradient does so."""

    def inside(x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool2d(x, 3, 2, 1)

    def again(x: torch.Tensor) -> Any:
        return checkpoint(inside, x, use_reentrant=False)

    module = step_agrees(Pooled(again, lambda x: x.flatten(2), nn.MaxPool1d(3, 2)))
    assert names(module) == ["aten.max_pool2d", "aten.max_pool2d", GRADIENT, GRADIENT]


def test_places_that_something_else_takes_stay() -> None:
    def unpooled(x: torch.Tensor) -> torch.Tensor:
        return functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2)

    module = step_agrees(Pooled(unpooled), 8, 8)
    assert names(module)[0] == "aten.max_pool2d_with_indices"
    assert BY_PLACES in names(module)


def test_volumes_are_pooled_without_places_where_nothing_is_trained() -> None:
    """ATen has no gradient of theirs without places."""

    def volume(x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool3d(x, 3, 2, 1)

    assert names(import_step(volume, (torch.randn(2, 3, 8, 8, 8),))) == ["aten.max_pool3d"]
    assert "aten.max_pool3d_with_indices_backward" in names(step_agrees(Pooled(volume)))


WINDOWS = 1, 2, 3, 3, 4, 5, 7
STRIDES, DILATIONS = (1, 1, 2, 2, 3, 4), (1, 1, 1, 2, 3)


def pooling(operator: Any, operands: list[torch.Tensor], *window: Any) -> Operation:
    module = import_step(lambda *operands: operator(*operands, *window), tuple(operands))
    return next(op for op in module.walk() if op.name == f"aten.{operator.__name__}")


def drawn(rng: np.random.Generator) -> tuple[Operation, list[torch.Tensor]]:
    """A pooling or its gradient, with operands of which many are equal."""
    while True:
        kernel, stride, dilation = (rng.choice(of, 2).tolist() for of in (WINDOWS, STRIDES, DILATIONS))
        padding = [int(rng.integers(0, n // 2 + 1)) for n in kernel]
        ceil_mode, is_gradient = bool(rng.random() < 0.3), bool(rng.random() < 0.7)
        x = few_values(2, 3, *rng.integers(9, 30, 2).tolist())
        window = kernel, stride, padding, dilation, ceil_mode
        reach = [n * (k - 1) + 1 for n, k in zip(dilation, kernel, strict=True)]
        if any(rows + 2 * p < 3 * r for rows, p, r in zip(x.shape[2:], padding, reach, strict=True)):
            continue
        operands = [torch.randn_like(aten.max_pool2d(x, *window)), x] if is_gradient else [x]
        return pooling(aten.max_pool2d_backward if is_gradient else aten.max_pool2d, operands, *window), operands


def check_drawn(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    for _ in range(count):
        op, operands = drawn(rng)
        rule = Discovery(InterpreterDomains()).rule(op)
        assert all(dim.factors for dim in rule.inputs[-1]), (rule, op)
        assert not violations(op, rule, [each.numpy() for each in operands], rng).violations, (rule, op)


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_few_rows_are_cut_like_many(rows: int) -> None:
    x = few_values(2, 3, 4 * rows + 2, 21)
    op = pooling(aten.max_pool2d, [x], [3, 2], [4, 2])
    rule = Discovery(InterpreterDomains()).rule(op)
    assert all(dim.factors for dim in rule.inputs[0]), rule
    assert not violations(op, rule, [x.numpy()], np.random.default_rng(0)).violations


def test_a_cut_in_which_each_shard_runs_all_is_none() -> None:
    """Of three rows, each with two before it that the pooling may have to have seen."""
    x = few_values(2, 3, 3, 21)
    op = pooling(aten.max_pool2d, [x], [5, 2], [1, 2], [2, 0])
    assert not Discovery(InterpreterDomains()).rule(op).inputs[0][2].factors


def test_rows_and_columns_of_drawn_poolings() -> None:
    check_drawn(1, seed=0)


@pytest.mark.long
def test_rows_and_columns_of_many_drawn_poolings() -> None:
    check_drawn(150, seed=1)
