"""`distir.parallelize` in loops of people's own, in one process: schedulers count as in PyTorch, and what would be without effect is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import distir
from distir.backends.torch.parallel import DistributedStep
from distir.dialects.errors import DistirError
from examples.trainer_loops import Module, Trainer, batches, fit


def eager(steps: int) -> list[float]:
    model = Module()
    optimizer, scheduler = model.configure_optimizers()
    losses: list[float] = []
    for x, labels in batches(steps):
        loss = model.loss(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


@pytest.mark.filterwarnings("error:Detected call of")
def test_a_scheduler_counts_as_in_pytorch() -> None:
    """In a loop like Hugging Face's and in one like Lightning's."""
    model, expected = Module(), eager(4)
    trained = Trainer(model, model.loss, batches(4), model.configure_optimizers(), {}).train()
    assert trained == pytest.approx(expected, abs=1e-6)
    assert fit(Module(), batches(4), {}) == pytest.approx(expected, abs=1e-6)


def step_of(lr: float | torch.Tensor) -> tuple[DistributedStep, torch.optim.Optimizer]:
    model = Module()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    return distir.parallelize(model, optimizer, model.loss, {}, batches(1)[0]), optimizer


@pytest.mark.parametrize(("name", "lr"), [("lr", 0.1), ("momentum", 0.1), ("momentum", torch.tensor(0.1))], ids=str)
def test_a_number_that_the_program_has_as_a_constant_may_not_change(name: str, lr: Any) -> None:
    step, optimizer = step_of(lr)
    step(*batches(1)[0])
    optimizer.param_groups[0][name] = 0.5
    with pytest.raises(DistirError, match=rf"param_groups\.0\.{name} of the optimizer was .* and is 0.5"):
        step(*batches(1)[0])


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (lambda loss, optimizer: loss.backward(), "leave out loss.backward"),
        (lambda loss, optimizer: optimizer.step(), "leave out optimizer.step"),
    ],
    ids=["backward", "step"],
)
def test_what_the_step_has_done_is_refused(left: Callable[[Any, Any], None], why: str) -> None:
    step, optimizer = step_of(0.1)
    with pytest.raises(DistirError, match=why):
        left(step(*batches(1)[0]), optimizer)
    assert nn.Module.state_dict(Module()).keys() == step.state_dict().keys()


def test_state_is_taken_up_again() -> None:
    """By a step that has made steps of its own: it goes on as the one whose state it was, with the optimizer's state or, from a model's, without."""
    (one, _), (other, _) = step_of(0.1), step_of(0.1)
    first, second, third = batches(3)
    one(*first)
    state = one.state_dict(optimizer=True)
    other(*third)
    other.load_state_dict(state)
    assert [float(other(*batch)) for batch in (second, third)] == [float(one(*batch)) for batch in (second, third)]
    model = Module()
    one.load_state_dict(model.state_dict())
    assert float(one(*first)) == pytest.approx(model.loss(model(first[0]), first[1]).item(), abs=1e-6)
    assert not any(value.is_inference() for value in state.values())
    weight = "layers.0.weight"
    with pytest.raises(DistirError, match=f"no value for {weight}"):
        one.load_state_dict({name: value for name, value in state.items() if name != weight})
    with pytest.raises(DistirError, match=rf"{weight} has shape \[64\], expected \[64, 16\]"):
        one.load_state_dict(state | {weight: state[weight][:, 0]})
