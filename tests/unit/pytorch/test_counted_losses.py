"""Losses that divide by how many labels count, beside other terms on the same logits: the count is made of labels alone, so it is known before the loop over
microbatches, and the backward part stays in it."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from xdsl.context import Context

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.equivalence import verify
from distir.interpreters.proof import prove
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "label smoothing": lambda y, t: functional.cross_entropy(y, t, label_smoothing=0.1),
    "z-loss": lambda y, t: functional.cross_entropy(y, t) + 0.01 * torch.logsumexp(y, -1).pow(2).mean(),
    "distillation": lambda y, t: (
        functional.cross_entropy(y, t)
        + functional.kl_div(
            functional.log_softmax(y / 2, -1), functional.softmax(0.3 * y.detach(), -1), reduction="batchmean"
        )
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_backward_stays_in_the_loop(loss: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
    step = training_step(model, LOSSES[loss], torch.optim.SGD(model.parameters(), lr=0.1))
    module = import_step(step, (torch.randn(8, 6), torch.arange(8) % 5))
    distributed = module.clone()
    DtpParallelizePass(pp=2, microbatches=2).apply(Context(), distributed)
    said = capsys.readouterr().err
    assert "runs after the loop" not in said
    assert verify(module, distributed, count=1).holds


class SequenceFirst(nn.Module):
    """Rows of tokens that are merged with the sequence outside and the batch inside."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(12, 8), nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens).transpose(0, 1)
        x = x + self.down(functional.gelu(self.up(self.norm(x))))
        return functional.linear(x, self.tokens.weight)


@pytest.mark.parametrize("plan", [{"microbatches": 2}, {"dp": 2}, {"dp": 2, "pp": 2, "microbatches": 2}])
def test_the_sequence_comes_first(plan: dict[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = SequenceFirst()
    step = training_step(
        model,
        lambda y, t: functional.cross_entropy(y.flatten(0, 1), t.t().flatten()),
        torch.optim.SGD(model.parameters(), lr=0.1),
    )
    module = import_step(step, (torch.randint(12, (8, 4)), torch.randint(12, (8, 4))))
    distributed = module.clone()
    DtpParallelizePass(sharding="ilp", **plan).apply(Context(), distributed)
    assert "runs after the loop" not in capsys.readouterr().err
    assert verify(module, distributed, count=1).holds
    prepare(Context(), module)
    assert prove(module, distributed)
