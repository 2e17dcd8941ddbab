"""Steps that remember something in Python where no program sees it (iterators, caches, slots, sets): importing compares two steps of the
program with two of the user's, or imports twice, and refuses them. Caches that remember nothing of a run are no reason to."""

# pyright: basic

from __future__ import annotations

import array
import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from distir.dialects.errors import DistirError
from distir.frontends import eager
from distir.frontends.eager import check_imported, verify_against_eager
from distir.frontends.pytorch import import_step, tracing, training_step, written_step
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


def of_packed_numbers(model: nn.Module) -> Callable[[Tensor], Tensor]:
    calls = array.array("l", [1])

    def scaled(loss: Tensor) -> Tensor:
        calls[0] += 1
        return loss / calls[0]

    return scaled


def of_packed_constants(model: nn.Module) -> Callable[[Tensor], Tensor]:
    scaled = of_packed_numbers(model)
    return lambda loss: loss * torch.tensor([scaled(1.0)] * 2).sum()  # pyright: ignore


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
    with pytest.raises(
        DistirError,
        match=r"results of two steps differ|first one left something in Python|changes .*, (of )?which ",
    ):
        check_imported(import_step(step_with(make)))


def test_a_step_that_is_too_large_to_run_is_imported_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "CHECK_SECONDS", 0.0)
    with pytest.raises(DistirError, match="a second import gives another program"):
        check_imported(import_step(step_with(of_packed_numbers)))
    with pytest.raises(DistirError, match="a second import has other values of "):
        check_imported(import_step(step_with(of_packed_constants)))
    assert check_imported(import_step(step_with(lambda model: lambda loss: loss * 2))).startswith("not compared")


class Shared:
    calls = 0


def of_accumulated_gradients(model: nn.Module) -> Callable[[Tensor], Tensor]:
    calls = [0]

    def scaled(loss: Tensor) -> Tensor:
        calls[0] += 1
        return loss if calls[0] % 32 == 0 else 0 * loss

    return scaled


def of_a_class(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def scaled(loss: Tensor) -> Tensor:
        Shared.calls += 1
        return loss * max(0.5, 1 - Shared.calls / 10) if Shared.calls > 200 else loss

    return scaled


def of_a_milestone(model: nn.Module) -> Callable[[Tensor], Tensor]:
    calls = {"all": 0}

    def scaled(loss: Tensor) -> Tensor:
        calls["all"] += 1
        return loss * 0.1 if calls["all"] in {300, 600} else loss

    return scaled


def of_an_array(model: nn.Module) -> Callable[[Tensor], Tensor]:
    calls = np.zeros(1, int)

    def scaled(loss: Tensor) -> Tensor:
        calls[0] += 1
        return loss * 0.1 if calls[0] > 3 else loss

    return scaled


def of_a_list(model: nn.Module, losses: list[float] = []) -> Callable[[Tensor], Tensor]:
    def scaled(loss: Tensor) -> Tensor:
        losses.append(0.0)
        return loss * 0.1 if len(losses) > 100 else loss

    return scaled


def of_a_shrinking_list(model: nn.Module) -> Callable[[Tensor], Tensor]:
    first = [True] * 6
    return lambda loss: loss * 0.1 if first and first.pop() else loss


def of_a_tuple(model: nn.Module) -> Callable[[Tensor], Tensor]:
    calls: list[Any] = [(0, 0)]

    def scaled(loss: Tensor) -> Tensor:
        calls[0] = calls[0][0] + 1, calls[0][1]
        return loss * 0.1 if calls[0][0] > 500 else loss

    return scaled


def of_a_generator(model: nn.Module) -> Callable[[Tensor], Tensor]:
    factors = (1.0 if n < 5 else 0.1 for n in itertools.count())
    return lambda loss: loss * next(factors)


def of_a_hook(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def hook(module: Any, args: Any, output: Tensor) -> Tensor:
        hook.calls += 1
        return output if hook.calls < 50 else output * 2

    hook.calls = 0
    model.get_submodule("0").register_forward_hook(hook)
    return lambda loss: loss


def of_numbers_drawn(model: nn.Module) -> Callable[[Tensor], Tensor]:
    dice = random.Random(0)
    return lambda loss: loss if dice.random() < 0.99 else loss * 2


@pytest.mark.parametrize(
    "make",
    [
        *(of_accumulated_gradients, of_a_class, of_a_milestone, of_an_array),
        *(of_a_list, of_a_shrinking_list, of_a_tuple, of_a_generator, of_a_hook, of_numbers_drawn),
    ],
)
def test_what_a_much_later_run_reads_is_seen(make: Callable[[Any], Any]) -> None:
    """The first two runs are alike."""
    torch.manual_seed(0)
    with pytest.raises(
        DistirError, match=r"changes .*(reads|is read|decides by \(test_hidden_memory.py|each run gets another part)"
    ):
        import_step(step_with(make))
    assert not Shared.calls


def test_a_schedule_that_acts_later_is_seen() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 60])

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    with pytest.raises(DistirError, match=r"changes .*last_epoch, .*read"):
        import_step(written_step(step, model, optimizer, example_args=classes()))
    assert schedule.last_epoch == 0


@pytest.mark.parametrize("says", [lambda n: f"step {n}", lambda n: n % 100 == 0 and str(n)])
def test_a_count_that_is_only_told_does_not_matter(says: Callable[[int], Any]) -> None:
    def make(model: nn.Module) -> Callable[[Tensor], Tensor]:
        calls, told = [0], list[Any]()

        def scaled(loss: Tensor) -> Tensor:
            calls[0] += 1
            told.append(says(calls[0]))
            return loss

        return scaled

    assert check_imported(import_step(step_with(make))).startswith("two steps")


class Asked:
    """What answers to any name, and tells."""

    def __init__(self) -> None:
        self.names = list[str]()

    def __getattr__(self, name: str) -> str:
        self.names.append(name)
        return name


def test_objects_are_not_asked_for_what_they_do_not_have() -> None:
    asked = Asked()

    def make(model: nn.Module) -> Callable[[Tensor], Tensor]:
        return lambda loss: loss if asked is not None else -loss

    assert check_imported(import_step(step_with(make))).startswith("two steps")
    assert asked.names == []


class Loading(dict[str, int]):
    """A table whose entries are loaded when they are asked for, if they can be."""

    def items(self) -> Any:
        raise ImportError("an optional package is missing")


def test_tables_are_not_asked_for_what_they_do_not_have() -> None:
    table = Loading(scale=2)
    step = step_with(lambda model: lambda loss: loss * table["scale"])
    assert check_imported(import_step(step)).startswith("two steps")


def test_a_step_that_seeds_its_draws_draws_the_same_each_time() -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)).double()

    def output(x: Tensor) -> Tensor:
        torch.manual_seed(7)
        return model(x)

    with pytest.raises(DistirError, match=r"seeds PyTorch's generator \(torch.manual_seed\)"):
        import_step(written_step(output, model), classes()[:1])


class Leaving(nn.Module):
    """A layer that leaves what `left` says: its weight, and a list of it made anew, its input, or nothing."""

    def __init__(self, left: str) -> None:
        super().__init__()
        self.left, self.layer = left, nn.Linear(6, 3).double()
        self.weights, self.seen = [self.layer.weight], None

    def forward(self, x: Tensor) -> Tensor:
        if self.left == "weight":
            self.seen = self.seen if self.seen is not None else self.layer.weight
            self.weights = [self.layer.weight]
            return F.linear(x, self.seen + self.weights[0], self.layer.bias)
        if self.left == "input":
            self.seen = x
        return self.layer(x)


class Recurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 3, batch_first=True).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[:, None])[0][:, -1]


@pytest.mark.parametrize(
    ("make", "traces"),
    [
        (Recurrence, 1),
        *((functools.partial(Leaving, left), n) for left, n in (("nothing", 1), ("weight", 2), ("input", 2))),
    ],
)
def test_what_cannot_differ_is_not_traced_again(
    make: Callable[[], nn.Module], traces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parameter that a run leaves is the parameter in the next; what a run leaves and the next does not read is left by all."""
    torch.manual_seed(0)
    traced: list[object] = []
    monkeypatch.setattr(tracing, "make_fx", lambda run, *args, **how: traced.append(run) or make_fx(run, *args, **how))
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    module = import_step(training_step(model, F.cross_entropy, optimizer, example_args=classes()))
    assert len(traced) == traces
    assert check_imported(module).startswith("two steps")


class Delayed(nn.Module):
    """What a buffer was before the step is read by the next, as a tensor or by its shape only."""

    def __init__(self, *, grows: bool) -> None:
        super().__init__()
        self.grows = grows
        self.register_buffer("mean", torch.ones(()).double())
        self.last = torch.ones(()).double() if not grows else torch.ones(1)

    def forward(self, x: Tensor) -> Tensor:
        if self.grows:
            self.last = torch.ones(len(self.last) + 1)
            return x if len(self.last) < 5 else 2 * x
        x = x * self.last
        self.last, self.mean = self.mean, x.detach().mean()
        return x


@pytest.mark.parametrize("grows", [False, True])
def test_what_a_buffer_was_is_no_buffer(grows: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 3).double(), Delayed(grows=grows))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with pytest.raises(DistirError, match=r"changes .*last, which "):
        import_step(training_step(model, F.cross_entropy, optimizer, example_args=classes()))


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
