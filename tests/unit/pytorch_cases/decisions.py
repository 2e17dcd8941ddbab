"""Steps of the user's that count, decide and follow schedules: what they do depends on values or on earlier steps."""

# pyright: basic, reportIncompatibleMethodOverride=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportReturnType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from distir.frontends.pytorch import written_step
from tests.unit.pytorch_cases.registry import case, classes, mlp, quick, refused


@case
@quick
def a_condition_on_what_no_argument_changes() -> Any:
    """A mask that is written to, made and compared inside of the step; one on a parameter is refused."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        mask = torch.zeros(3)
        mask[1:].fill_(1.0)
        scale = 2.0 if bool((mask == torch.tensor([0.0, 1.0, 1.0])).all()) else 1.0
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x) * scale, label)
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@refused("it reads the value of a tensor as a number")
def a_condition_on_what_an_argument_was_written_to() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        mask = torch.zeros(3)
        mask[1:].copy_(x[0, :2])
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x) * (2.0 if bool((mask > 0).any()) else 1.0), label)
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@refused("closure cell|changes .*")
def a_count_of_the_users() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    count = 0

    def step(x: Tensor, label: Tensor) -> Tensor:
        nonlocal count
        count += 1
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label) * (2.0 if count > 1 else 1.0)
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@quick
@refused("lr")
def a_schedule_inside() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
def a_schedule_inside_that_is_given() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes(), schedules={schedule: 5})


@case
@refused("reads the value of a tensor")
def a_decision_by_the_loss() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        if loss.item() > 1:
            loss = loss * 2
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


class Trainer:
    """A step that is a method."""

    def __init__(self, warms_up: bool) -> None:
        self.model, self.steps, self.warms_up = mlp(), 0, warms_up
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.losses: list[Tensor] = []

    def train(self, x: Tensor, label: Tensor) -> Tensor:
        self.steps += 1
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), label)
        (loss * (min(1.0, self.steps / 10) if self.warms_up else 1.0)).backward()
        self.optimizer.step()
        self.losses.append(loss.detach())
        return loss


@case
def a_method_that_counts() -> Any:
    trainer = Trainer(False)
    return written_step(trainer.train, trainer.model, trainer.optimizer, example_args=classes())


@case
@refused(r"changes Trainer\.steps, .*which its next run reads")
def a_method_that_warms_up() -> Any:
    trainer = Trainer(True)
    return written_step(trainer.train, trainer.model, trainer.optimizer, example_args=classes())


global_count = 0


@case
@refused(r"changes global_count, which its next run reads")
def a_global_count() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        global global_count
        global_count += 1
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        (loss / global_count).backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
def a_step_that_leaves_out_what_is_no_number() -> Any:
    """Values are taken to be numbers."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        found = model(x)
        loss = F.cross_entropy(found, label)
        optimizer.zero_grad()
        if torch.isnan(loss) or not torch.isfinite(found).all():
            return loss * 0
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        if not (norm.isnan() | norm.isinf()):
            optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@quick
@refused("reads the value of a tensor as a number or a condition")
def a_step_that_asks_whether_a_mask_is_infinite() -> Any:
    model = mlp()

    def step(x: Tensor, label: Tensor) -> Tensor:
        mask = torch.where(x > 0, x, -torch.inf)
        return model(x).sum() if torch.isinf(mask).any() else model(x).mean()

    return written_step(step, model, example_args=classes())


@case
def a_step_that_raises_errors_by_values() -> Any:
    """Nothing else depends on what is asked: the program is that of a run that ends."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        if label is None or not (label >= 0).all():
            raise ValueError("a label is missing")
        found = model(x)
        loss = F.cross_entropy(found, label) + F.gaussian_nll_loss(found[:, 0], x[:, 0], found[:, 1].exp())
        torch._assert(loss.abs() >= 0, "no number")  # pyright: ignore[reportPrivateUsage]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@quick
@refused("reads the value of a tensor as a number or a condition")
def a_step_that_catches_its_own_error() -> Any:
    model = mlp()

    def strict(x: Tensor) -> Tensor:
        if (x > 3).any():
            raise ValueError("too large")
        return model(x).mean()

    def step(x: Tensor, label: Tensor) -> Tensor:
        try:
            return strict(x)
        except ValueError:
            return model(x.clamp(max=3)).mean()

    return written_step(step, model, example_args=classes())


@case
@refused("reads the value of a tensor as a number or a condition")
def an_error_that_is_suppressed() -> Any:
    """The step goes on without what the error ended."""
    model = mlp()

    def step(x: Tensor, label: Tensor) -> Tensor:
        with suppress(ValueError):
            if (x > 3).any():
                raise ValueError("too large")
            return model(x).mean()
        return model(x.clamp(max=3)).mean()

    return written_step(step, model, example_args=classes())


@case
@quick
@refused("reads the value of a tensor as a number or a condition")
def a_step_that_raises_after_it_has_done_something() -> Any:
    """What a condition decides beside an error."""
    model = mlp()

    def step(x: Tensor, label: Tensor) -> Tensor:
        loss = model(x).mean() if (x > 0).any() else model(-x).mean()
        if (wrong := (x > 3).any()) and bool(wrong):
            raise ValueError("too large")
        return loss

    return written_step(step, model, example_args=classes())
