"""Learning rate schedules. In go a scheduler and a number of steps; out come the options that it sets, as tables
with one entry per step, which a program looks up by a counter. After the last step the last entry stays."""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from distir.dialects.errors import DistirError

if TYPE_CHECKING:
    from distir.frontends.pytorch.optimizers import OptimizerMemory


class ScheduleTable:
    """What one scheduler sets."""

    def __init__(self, scheduler: Any, steps: int, memories: Sequence[OptimizerMemory]) -> None:
        what = type(scheduler).__name__
        if not any(scheduler.optimizer is memory.optimizer for memory in memories):
            raise DistirError(f"{what} is of an optimizer that the step does not have: give that one")
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise DistirError(
                f"{what} has no program: it decides by the value of the loss; give a learning rate that is a tensor and set it"
            )
        if steps < 1:
            raise DistirError(f"{what}: expected a number of steps of at least 1, got {steps}")
        self.scheduler, self.name = scheduler, f"schedule{_number(scheduler, memories) or ''}"
        self.tables = self._tables(steps)
        self._entries: dict[tuple[int, Any, Any], Tensor] = {}
        self._counter: Tensor | None = None

    def _tables(self, steps: int) -> dict[tuple[int, Any, Any], Tensor]:
        """By group, option and entry of it (a tuple of `betas` has two), the values in each step."""
        optimizer = copy.copy(self.scheduler.optimizer)
        tensors = {
            id(each): each.clone() for group in optimizer.param_groups for each in group.values() if _is_number(each)
        }
        optimizer.param_groups = [
            {option: tensors.get(id(value), value) for option, value in group.items()}
            for group in optimizer.param_groups
        ]
        optimizer.step = lambda *_, **__: None  # type: ignore[method-assign]
        optimizer._opt_called = True
        scheduler = copy.deepcopy(self.scheduler, {id(self.scheduler.optimizer): optimizer})
        rows: list[dict[tuple[int, Any, Any], float]] = []
        for _ in range(steps):
            rows.append({key: float(value) for key, value in _numbers(optimizer.param_groups)})
            try:
                scheduler.step()
            except ValueError:  # a one-cycle schedule has no more steps than it was made for
                break
        if any(
            not torch.equal(each, tensors[id(each)])
            for group in self.scheduler.optimizer.param_groups
            for each in group.values()
            if _is_number(each)
        ):
            raise DistirError(
                f"{type(self.scheduler).__name__} sets an option that is a tensor: give the optimizer a number instead"
            )
        keys = [key for key in rows[0] if len({row[key] for row in rows}) > 1]
        return {key: torch.tensor([row[key] for row in rows], dtype=torch.float64) for key in keys}

    def ports(self) -> list[tuple[str, str, Tensor]]:
        """Name, role and value of each."""
        found = [(f"{self.name}.step", "state", torch.tensor(0))]
        return found + [(self._name(key), "buffer", table) for key, table in self.tables.items()]

    def _name(self, key: tuple[int, Any, Any]) -> str:
        return ".".join([self.name, "param_groups", *(str(word) for word in key if word is not None)])

    @contextmanager
    def standing(self, tensors: Mapping[str, Tensor]) -> Generator[None]:
        """The optimizer's options are those of the counted step meanwhile; within `OptimizerMemory.remembering`."""
        counter = tensors[f"{self.name}.step"]
        for key, table in self.tables.items():
            group, option, entry = key
            options = self.scheduler.optimizer.param_groups[group]
            value = tensors[self._name(key)].index_select(0, counter.clamp(max=len(table) - 1).reshape(1)).reshape(())
            if entry is None:
                options[option] = value
            else:
                options[option] = tuple(value if i == entry else each for i, each in enumerate(options[option]))
        self._counter, own = counter + 1, dict(vars(self.scheduler))
        self.scheduler.step = lambda *_: None
        try:
            yield
        finally:
            vars(self.scheduler).clear()
            vars(self.scheduler).update(own)

    def updates(self) -> dict[tuple[str, str], Tensor]:
        """The counter after the step."""
        assert self._counter is not None
        return {(f"{self.name}.step", "state"): self._counter}


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.dim()


def _numbers(groups: Sequence[Mapping[str, Any]]) -> list[tuple[tuple[int, Any, Any], float]]:
    found: list[tuple[tuple[int, Any, Any], float]] = []
    for number, group in enumerate(groups):
        for option, value in group.items():
            if type(value) in (int, float):
                found.append(((number, option, None), value))
            elif type(value) is tuple:
                found += [((number, option, i), each) for i, each in enumerate(value) if type(each) in (int, float)]
    return found


def _number(scheduler: Any, memories: Sequence[OptimizerMemory]) -> int:
    return next(i for i, memory in enumerate(memories) if memory.optimizer is scheduler.optimizer)
