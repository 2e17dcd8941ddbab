"""Plans inside other people's loops: in go a model and data, out come the losses of a loop like Hugging Face's Trainer, which takes a model, an optimizer and a
scheduler, and of one like Lightning's, which asks a module for them. Where they run forward, backward and update, `distir.parallelize` gives one step.

torchrun --nproc-per-node=2 examples/trainer_loops.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

import distir

Batch = tuple[Tensor, Tensor]


@dataclass
class Trainer:
    """As Hugging Face's: it is given everything."""

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    data: list[Batch]
    optimizers: tuple[Optimizer, LRScheduler]
    plan: dict[str, Any]

    def train(self) -> list[float]:
        optimizer, scheduler = self.optimizers
        step = distir.parallelize(self.model, optimizer, self.loss, self.plan, self.data[0])
        losses: list[float] = []
        for batch in self.data:
            losses.append(float(step(*batch)))  # instead of loss.backward(), optimizer.step() and optimizer.zero_grad()
            scheduler.step()
        step.copy_to(self.model)
        return losses


class Module(nn.Module):
    """As Lightning's: it says what its loop asks for."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, labels)

    def configure_optimizers(self) -> tuple[Optimizer, LRScheduler]:
        optimizer = AdamW(self.parameters(), lr=torch.tensor(0.02))  # a tensor, so that it may change
        return optimizer, LambdaLR(optimizer, lambda step: 0.9**step)


def fit(module: Module, data: Iterable[Batch], plan: dict[str, Any]) -> list[float]:
    """A loop like that of Lightning's Trainer."""
    batches = list(data)
    optimizer, scheduler = module.configure_optimizers()
    step = distir.parallelize(module, optimizer, module.loss, plan, batches[0])
    losses: list[float] = []
    for batch in batches:
        losses.append(float(step(*batch)))
        scheduler.step()
    step.copy_to(module)
    return losses


def batches(count: int) -> list[Batch]:
    """Global batches: every process draws the same."""
    draw = torch.Generator().manual_seed(1)
    found = [torch.randn(32, 16, generator=draw) for _ in range(count)]
    return [(x, x[:, :4].argmax(1)) for x in found]


def main(steps: int = 20) -> None:
    plan = {"dp": 2} if torch.distributed.is_torchelastic_launched() else {}
    lightning, model = Module(), Module()
    fitted = fit(lightning, batches(steps), plan)
    trained = Trainer(model, model.loss, batches(steps), model.configure_optimizers(), plan).train()
    if os.environ.get("RANK", "0") == "0":
        for number, (one, other) in enumerate(zip(fitted, trained, strict=True), 1):
            print(f"step {number}  loss {one:.6f} {other:.6f}", flush=True)


if __name__ == "__main__":
    main()
