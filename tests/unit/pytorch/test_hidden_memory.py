"""Steps that remember something in Python where no program sees it (iterators, caches, slots, sets): importing compares two steps of the
program with two of the user's, or imports twice, and refuses them. Caches that remember nothing of a run are no reason to."""

# pyright: basic

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distir.dialects.errors import DistirError
from distir.frontends import eager
from distir.frontends.eager import check_imported, verify_against_eager
from distir.frontends.pytorch import import_step, training_step, written_step
from tests.unit.pytorch_cases.registry import classes, mlp


class Slots:
    __slots__ = ("mean",)


def of_an_iterator(model: nn.Module) -> Callable[[Tensor], Tensor]:
    numbers = itertools.count(1)
    return lambda loss: loss / next(numbers)


def of_a_set(model: nn.Module) -> Callable[[Tensor], Tensor]:
    seen: set[str] = set()

    def scaled(loss: Tensor) -> Tensor:
        first = not seen
        seen.add("once")
        return loss * 0.1 if first else loss

    return scaled


def of_a_cache(model: nn.Module) -> Callable[[Tensor], Tensor]:
    norm = functools.lru_cache(lambda: model[0].weight.detach().norm())
    return lambda loss: loss * norm()


def of_slots(model: nn.Module) -> Callable[[Tensor], Tensor]:
    slots = Slots()
    slots.mean = torch.ones(()).double()

    def scaled(loss: Tensor) -> Tensor:
        found = loss * slots.mean
        slots.mean = loss.detach()
        return found

    return scaled


def step_with(make: Callable[[nn.Module], Callable[[Tensor], Tensor]]) -> Any:
    model = mlp()
    optimizer, scaled = torch.optim.SGD(model.parameters(), lr=0.1), make(model)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = scaled(F.cross_entropy(model(x), label))
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@pytest.mark.parametrize("make", [of_an_iterator, of_a_set, of_a_cache, of_slots])
def test_what_the_next_run_reads_is_seen(make: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    with pytest.raises(DistirError, match=r"results of two steps differ|first one left something in Python"):
        check_imported(import_step(step_with(make)))


def test_a_step_that_is_too_large_to_run_is_imported_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "CHECK_SECONDS", 0.0)
    with pytest.raises(DistirError, match="a second import gives another program"):
        check_imported(import_step(step_with(of_an_iterator)))
    assert check_imported(import_step(step_with(lambda model: lambda loss: loss * 2))).startswith("not compared")


@functools.lru_cache
def triangle(size: int) -> Tensor:
    return torch.ones(size, size).double().tril()


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x @ triangle(6))


def test_a_cache_of_constants_is_the_users_again_afterwards() -> None:
    model = Masked()
    step = training_step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1), example_args=classes())
    module = import_step(step)
    assert model(classes()[0]).isfinite().all()
    assert check_imported(module).startswith("two steps are the framework's own")


def test_a_parameter_that_the_program_forgets_to_update_differs() -> None:
    """A program of the same arguments that does not train the last layer."""
    torch.manual_seed(0)
    model = mlp()
    args = F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1)
    whole = import_step(training_step(model, *args, example_args=classes()))
    model[2].requires_grad_(False)
    part = import_step(training_step(model, *args, example_args=classes()))
    model[2].requires_grad_(True)
    found = verify_against_eager(whole, part)
    assert {c.name for c in found.comparisons if not c.holds} >= {"2.weight", "2.bias"}
