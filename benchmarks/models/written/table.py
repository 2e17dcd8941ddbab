"""The table of training steps that are written by hand, and what several of them are made of."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from benchmarks.models.plain import BATCH
from distir.frontends.pytorch import WrittenStep

WRITTEN: dict[str, Callable[[], WrittenStep]] = {}


def written(make: Callable[[], WrittenStep]) -> Callable[[], WrittenStep]:
    """Puts a function into the table."""
    WRITTEN[make.__name__.replace("_", "-")] = make
    return make


def rows(*shape: int) -> Tensor:
    return torch.randn(BATCH, *shape)


def classes(most: int) -> Tensor:
    return torch.randint(0, most, (BATCH,))


def layers(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    found: list[nn.Module] = []
    for a, b in pairwise(widths):
        found += [nn.Linear(a, b), activation()]
    return nn.Sequential(*found[:-1])


def adam(*modules: nn.Module, rate: float = 1e-3) -> torch.optim.Optimizer:
    return torch.optim.Adam([p for m in modules for p in m.parameters() if p.requires_grad], lr=rate)
