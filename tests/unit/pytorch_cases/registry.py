"""Small training steps by name, which the other files here add to: each is made by a function without arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distir.frontends.pytorch import training_step

CASES: dict[str, Callable[[], Any]] = {}
QUICK: set[str] = set()
REFUSED: dict[str, str] = {}
"""What the refusal of a step says."""


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def quick(function: Callable[[], Any]) -> Callable[[], Any]:
    QUICK.add(function.__name__)
    return function


def refused(says: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def mark(function: Callable[[], Any]) -> Callable[[], Any]:
        REFUSED[function.__name__] = says
        return function

    return mark


def mlp(*, width: int = 10, outputs: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, outputs)).double()


def classes(rows: int = 8) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, 6).double(), torch.arange(rows) % 3


def values(rows: int = 8, outputs: int = 3) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, 6).double(), torch.randn(rows, outputs).double()


def classifier(optimizer: Callable[[Any], Any], model: nn.Module | None = None, **options: Any) -> Any:
    return training_step(model or mlp(), F.cross_entropy, optimizer, example_args=classes(), **options)
