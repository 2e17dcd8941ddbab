"""Steps of the user's that keep averages of weights."""

# pyright: basic, reportIncompatibleMethodOverride=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportReturnType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distir.frontends.pytorch import written_step
from tests.unit.pytorch_cases.registry import case, classes, mlp, quick, refused


@case
@quick
def an_average_of_weights() -> Any:
    model = mlp()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.no_grad():
            teacher = average(x).softmax(-1)
        loss = F.cross_entropy(model(x), label) + F.mse_loss(model(x).softmax(-1), teacher)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.mul_(0.9).add_(fast, alpha=0.1)
        return loss

    return written_step(step, {"model": model, "average": average}, optimizer, example_args=classes())


@case
def an_average_by_data() -> Any:
    """The way of classes that keep and swap `.data`."""
    model = mlp()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> dict[str, Tensor]:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        kept = []
        for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
            slow.data = 0.9 * slow.data + 0.1 * fast.data
            kept.append(fast.data)
            fast.data = slow.data
        with torch.no_grad():
            averaged = F.cross_entropy(model(x), label)
        for data, fast in zip(kept, model.parameters(), strict=True):
            fast.data = data
        return {"loss": loss, "averaged": averaged}

    return written_step(step, {"model": model, "average": average}, optimizer, example_args=classes())


@case
def averaged_model_of_swa_utils() -> Any:
    """The first run copies, all others average."""
    return _averaged(multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))


@case
def averaged_model_with_equal_weights() -> Any:
    return _averaged(use_buffers=True)


def _averaged(**options: Any) -> Any:
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        return loss

    return written_step(step, {"model": model, "average": average}, optimizer, example_args=classes())


@case
@refused("writes to a tensor of shape .* that is no parameter")
@quick
def an_average_in_plain_tensors() -> Any:
    model = mlp()
    average = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average, model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
def averages_by_state_dict() -> Any:
    model = mlp()
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        slow, fast = average.state_dict(), model.state_dict()
        average.load_state_dict({name: slow[name] * 0.9 + fast[name] * 0.1 for name in slow})
        return loss

    return written_step(step, {"model": model, "average": average}, optimizer, example_args=classes())


class Shadow:
    """An average as many have it in a class of their own, which is no module."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.calls = 0

    def update(self, model: nn.Module) -> None:
        self.calls += 1
        for name, p in model.named_parameters():
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * p.detach()

    def distance(self, model: nn.Module) -> Any:
        return sum((p - self.shadow[name]).square().sum() for name, p in model.named_parameters())


@case
@refused(r"changes average\.calls, average\.shadow\['0.weight'\], .*which its next run reads")
def an_average_in_a_class() -> Any:
    model = mlp()
    average = Shadow(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label) + 0.1 * average.distance(model)
        loss.backward()
        optimizer.step()
        average.update(model)
        return loss

    return written_step(step, model, optimizer, example_args=classes())
