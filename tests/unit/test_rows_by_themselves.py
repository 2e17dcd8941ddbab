"""What a model reads or writes of each row by the row's number, and bags that are rows of a matrix: equal to eager, and cut into microbatches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from xdsl.context import Context

from distir.frontends.eager import verify_against_eager
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.equivalence import verify
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.reference import run
from distir.passes.dtp_parallelize import DtpParallelizePass
from tests.long_cases import also_long

ROWS, PLACES, WIDTH = 4, 6, 8


class Model(nn.Module):
    def __init__(self, middle: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.table, self.last = nn.Embedding(10, WIDTH), nn.Linear(WIDTH, 3)
        self.middle = middle

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        return self.last(self.middle(self.table(x), places))


def one(h: Tensor, places: Tensor) -> Tensor:
    return h[torch.arange(len(h)), places]


def from_the_end(h: Tensor, places: Tensor) -> Tensor:
    return h[torch.arange(len(h)), -1 - places]


def several(h: Tensor, places: Tensor) -> Tensor:
    both = torch.stack([places, (places + 1) % PLACES], 1)
    return h[torch.arange(len(h))[:, None], both]


def written(h: Tensor, places: Tensor) -> Tensor:
    weights = torch.zeros(len(h), PLACES)
    weights[torch.arange(len(h)), places] = 1.0
    return h * weights.unsqueeze(-1)


class Bags(nn.Module):
    def __init__(self, **options: object):
        super().__init__()
        self.bag, self.last = nn.EmbeddingBag(10, WIDTH, **options), nn.Linear(WIDTH, 3)  # pyright: ignore[reportArgumentType]

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.bag(x))


BAGS = [
    Bags(mode="sum"),
    Bags(mode="mean"),
    Bags(mode="max"),
    Bags(mode="mean", padding_idx=2),
    Bags(mode="sum", padding_idx=-1),
]


MODELS = [*map(Model, (one, from_the_end, several, written)), *BAGS]


@pytest.mark.parametrize("model", also_long(MODELS, MODELS[::4]))
def test_rows_are_by_themselves(model: nn.Module):
    torch.manual_seed(0)
    x, places = torch.randint(0, 10, (ROWS, PLACES)), torch.randint(0, PLACES, (ROWS,))
    inputs = (x, places) if isinstance(model, Model) else (x,)
    label = torch.randn_like(model(*inputs))
    module = import_step(
        training_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1)), (*inputs, label)
    )
    assert verify_against_eager(module, steps=2).holds
    distributed = module.clone()
    DtpParallelizePass(dp=2, pp=2, microbatches=2).apply(Context(), distributed)
    assert verify(module, distributed, count=1).holds


@pytest.mark.parametrize("options", [{"mode": "sum", "padding_idx": 2}, {"mode": "mean"}, {"mode": "max"}])
def test_bags_between_offsets_are_lookups(options: dict[str, Any]):
    """The second is empty, and the last offset is where the last bag ends."""
    bag = nn.EmbeddingBag(10, WIDTH, include_last_offset=True, **options)
    x, offsets = torch.randint(0, 10, (9,)), torch.tensor([0, 4, 4, 7, 9])
    optimizer = torch.optim.SGD(bag.parameters(), lr=0.1)
    module = import_step(training_step(bag, F.mse_loss, optimizer), (x, offsets, torch.randn(4, WIDTH)))
    assert verify_against_eager(module, steps=2).holds
    assert run(module, draw_inputs(module, 0))
