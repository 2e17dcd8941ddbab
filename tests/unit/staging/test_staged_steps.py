"""Staged programs of training steps in PyTorch: a weight that two stages use, and a loss whose divisor only the whole batch knows."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.module_check import check_module
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass

TOKENS = 12


class Tied(nn.Module):
    """An embedding that is the last weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.inner = nn.Embedding(TOKENS, 8), nn.Linear(8, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(self.embedding(tokens))) @ self.embedding.weight.T


def ignoring(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over the labels that count."""
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=3)


@pytest.fixture(scope="module")
def step() -> ModuleOp:
    model = Tied()
    tokens = torch.randint(0, TOKENS, (8, 4), generator=torch.Generator().manual_seed(0))
    made = training_step(model, ignoring, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    return import_step(made, (tokens, tokens))


@pytest.mark.parametrize(
    ("stages", "count", "dp", "tp", "schedule"),
    [
        (2, 4, 1, 1, "gpipe"),
        (3, 2, 1, 1, "1f1b"),
        pytest.param(2, 2, 2, 2, "1f1b", marks=pytest.mark.long),
        pytest.param(1, 4, 2, 1, "1f1b", marks=pytest.mark.long),
    ],
)
def test_a_step_computes_the_same(step: ModuleOp, stages: int, count: int, dp: int, tp: int, schedule: str):
    module = step.clone()
    values = {**weights_of(step), **draw_inputs(step, 0)}
    DtpParallelizePass(dp=dp, tp=tp, pp=stages, microbatches=count, schedule=schedule, sharding="ilp").apply(
        Context(), module
    )
    module.verify()
    check_module(module)
    expected, found = run(step, values, dtype=np.float64), run(module, values, dtype=np.float64)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
