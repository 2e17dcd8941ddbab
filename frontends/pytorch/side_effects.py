"""Takes the Python objects that a step uses (modules, optimizers, its closure), and says what a run of it left in them beside
tensors that a program returns; afterwards they are as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily


class Surroundings:
    """What the objects were when this was made."""

    def __init__(self, objects: Sequence[object]) -> None:
        self._objects = list(_with_members(objects))
        self._before = [(where, owner, dict(_entries(owner))) for where, owner in self._objects]

    def changes(self) -> list[str]:
        """What is not as it was, in words. Tensors that were left are others from now on (`like_left`)."""
        found: list[str] = []
        for where, owner, before in self._before:
            now = _entries(owner)
            for key in {**before, **now}:
                if _mark(before.get(key)) != _mark(now.get(key)):
                    named = isinstance(owner, dict | list)
                    found.append(where if _is_cell(owner) else f"{where}[{key!r}]" if named else f"{where}.{key}")
                    if key in now:
                        _set(owner, key, like_left(now[key]))
        return found

    def restore(self) -> None:
        """Attributes and entries are what they were."""
        for _, owner, before in self._before:
            if _is_cell(owner):
                (value,) = before.values()
                cast(Any, owner).cell_contents = value
            elif isinstance(owner, list):
                owner[:] = before.values()
            else:
                entries = cast("dict[Any, Any]", owner if isinstance(owner, dict) else vars(owner))
                entries.clear()
                entries.update(before)


def _with_members(objects: Sequence[object]) -> Iterator[tuple[str, object]]:
    """The objects, modules inside of modules, what closures hold, and lists and dictionaries in attributes."""
    seen: set[int] = set()
    pending: list[tuple[str, object]] = [(type(each).__name__, each) for each in objects]
    while pending:
        where, owner = pending.pop(0)
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        if isinstance(owner, nn.Module):
            pending += [(f"{where}.{name}", inner) for name, inner in owner.named_modules() if name]
        if hasattr(owner, "__closure__") and owner.__closure__:  # type: ignore[union-attr]
            names = cast(Any, owner).__code__.co_freevars
            pending += list(zip(names, cast(Any, owner).__closure__, strict=True))
        if isinstance(owner, dict | list) or _is_cell(owner) or hasattr(owner, "__dict__"):
            yield where, owner
            if not isinstance(owner, dict | list):
                for key, value in _entries(owner).items():
                    if type(value) in (list, dict) and len(value) < _LARGE:
                        pending.append((f"{where}.{key}" if not _is_cell(owner) else where, value))
                    elif _is_cell(owner) and isinstance(value, nn.Module | torch.optim.Optimizer):
                        pending.append((where, value))


def like_left(value: Any) -> Any:
    """What stands for a tensor that a run left, in the next: a tensor of its shape from outside of it, so that reading it shows."""
    if not isinstance(value, Tensor):
        return value
    with unset_fake_temporarily():
        return torch.zeros((), dtype=value.dtype).expand(value.shape)


def _set(owner: object, key: Any, value: Any) -> None:
    if _is_cell(owner):
        cast(Any, owner).cell_contents = value
    elif isinstance(owner, dict | list):
        cast(Any, owner)[key] = value
    else:
        vars(owner)[key] = value


_LARGE = 10_000
"""Lists and dictionaries of more entries are not looked at."""


def _entries(owner: object) -> dict[Any, Any]:
    if _is_cell(owner):
        try:
            return {"contents": cast(Any, owner).cell_contents}
        except ValueError:
            return {"contents": None}
    if isinstance(owner, list):
        return dict(enumerate(cast("list[Any]", owner)))
    return dict(cast("dict[Any, Any]", owner if isinstance(owner, dict) else vars(owner)))


def _is_cell(owner: object) -> bool:
    return type(owner).__name__ == "cell"


def _mark(value: Any) -> object:
    """What tells one value from another: numbers by what they are, other things by which they are."""
    if isinstance(value, bool | int | float | str | None):
        return type(value), value
    if type(value) in (tuple,):
        return tuple(_mark(each) for each in value)
    return Tensor if isinstance(value, Tensor) and not value.numel() else id(value)
