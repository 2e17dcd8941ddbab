"""Losses over a vocabulary that is cut: tensor ranks exchange a maximum and sums of each row, and have their part of the logits alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import distir
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.machines import with_settings
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.decompose import DecomposePass
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.ilp_shard import IlpShardPass

VOCABULARY, WIDTH, TOKENS = 512, 16, 6
AT_ONCE = with_settings(
    "dgx-2",
    [
        *(
            f"levels.node.{key}_seconds=1e-12"
            for key in ("latency", "hop", "fitted.allreduce.2.latency", "fitted.allreduce.4.latency")
        ),
        "device.kernel_floor_seconds=1e-12",
    ],
)
"""A machine on which bytes alone take time, as of large models."""


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.embedding(tokens))
        attended = (x @ x.transpose(1, 2)).softmax(-1) @ x
        return self.head(x + attended).flatten(0, 1)


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels.flatten(), label_smoothing=0.1)


def distilled(logits: Tensor, labels: Tensor) -> Tensor:
    hard = functional.cross_entropy(logits, labels.flatten())
    soft = functional.softmax(logits.detach() / 2, -1)
    return hard + functional.kl_div(functional.log_softmax(logits, -1), soft, reduction="batchmean")


def step(loss: Callable[[Tensor, Tensor], Tensor]) -> ModuleOp:
    torch.manual_seed(0)
    model = Model()
    tokens = torch.randint(VOCABULARY, (4, TOKENS))
    return import_step(training_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1)), (tokens, tokens))


@pytest.mark.parametrize(
    ("loss", "sharding"), [pytest.param(smoothed, "auto", marks=pytest.mark.long), (distilled, "ilp")]
)
def test_logits_of_a_tensor_rank_are_its_part(loss: Callable[[Tensor, Tensor], Tensor], sharding: str) -> None:
    sequential = step(loss)
    distributed = sequential.clone()
    DtpParallelizePass(dp=1, tp=4, sharding=sharding, machine=AT_ONCE).apply(Context(), distributed)
    text = str(distributed)
    assert f"x{VOCABULARY // 4}xf32" in text
    assert not re.search(rf"tensor<(24|4x6)x{VOCABULARY}xf32", text)
    assert "dist.allreduce max" in text
    assert distir.verify(sequential, distributed)
    assert distir.prove(sequential, distributed)


@pytest.mark.long
def test_a_mesh_without_names_for_its_axes() -> None:
    """`ilp-shard` finds the vocabulary where it may cut nothing else."""
    sequential = step(smoothed)
    distributed = sequential.clone()
    IlpShardPass(mesh="a=2,b=2", restrict="a=batch,b=model", machine=AT_ONCE).apply(Context(), distributed)
    ApplyShardingPass().apply(Context(), distributed)
    assert not re.search(rf"tensor<(12|2x6)x{VOCABULARY}xf32", str(distributed))
    assert distir.verify(sequential, distributed)


def test_what_has_no_dim_of_a_weight_stays() -> None:
    """The softmax of attention and the norm are as they were; that of the loss is not."""
    module = step(smoothed)
    prepare(Context(), module)
    DecomposePass().apply(Context(), module)
    names = [op.name for op in module.walk()]
    assert {"aten._softmax", "aten._softmax_backward_data", "aten.native_layer_norm"} < set(names)
    assert not {"aten._log_softmax", "aten._log_softmax_backward_data"} & set(names)
