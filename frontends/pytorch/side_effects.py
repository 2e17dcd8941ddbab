"""Takes the Python objects that a step uses (modules, optimizers, what its function reaches by closure, globals and attributes), and
says what a run of it left in them beside tensors that a program returns; afterwards they are as they were."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

LARGE, DEEP = 10_000, 6
"""Containers of more entries, and objects behind more others, are not looked at."""


class Surroundings:
    """What the objects were when this was made."""

    def __init__(self, objects: Sequence[object]) -> None:
        self._caches: list[Any] = []
        self._places = list(_places(objects, self._caches))
        self._before = [dict(place.items()) for place in self._places]

    def changes(self) -> list[str]:
        """What is not as it was, in words. Tensors that were left are others from now on (`like_left`)."""
        found: list[str] = []
        for place, before in zip(self._places, self._before, strict=True):
            now = dict(place.items())
            for key in {**before, **now}:
                if _mark(before.get(key)) != _mark(now.get(key)):
                    found.append(place.named(key))
                    if isinstance(now.get(key), Tensor):
                        place[key] = like_left(now[key])
        return found

    def restore(self) -> None:
        """Attributes and entries are what they were; caches of functions are empty, since what they have may be of the run."""
        for cache in self._caches:
            cache.cache_clear()
        for place, before in zip(self._places, self._before, strict=True):
            now = dict(place.items())
            if list(now) != list(before) or any(now[key] is not before[key] for key in before):
                place.restore(before)


def like_left(value: Any) -> Any:
    """What stands for a tensor that a run left, in the next: a tensor of its shape from outside of it, so that reading it shows."""
    if not isinstance(value, Tensor):
        return value
    with unset_fake_temporarily():
        tensor = torch.zeros((), dtype=value.dtype).expand(value.shape)
    setattr(tensor, _LEFT, True)
    return tensor


def is_left(tensor: Tensor) -> bool:
    """Whether a tensor is one of `like_left`."""
    return hasattr(tensor, _LEFT)


_LEFT = "_left_by_a_run"


class _Place:
    """Attributes of an object, entries of a container, variables of a function: values by keys."""

    def __init__(self, where: str, owner: Any, names: Sequence[str] | None = None) -> None:
        self.where, self._owner, self._names = where, owner, names

    def _mapping(self) -> MutableMapping[Any, Any] | None:
        if isinstance(self._owner, dict):
            return cast("dict[Any, Any]", self._owner)
        return None if isinstance(self._owner, list | deque | types.CellType) else vars(self._owner)

    def items(self) -> list[tuple[Any, Any]]:
        mapping = self._mapping()
        if isinstance(self._owner, types.CellType):
            try:
                return [("", self._owner.cell_contents)]
            except ValueError:
                return []
        if mapping is None:
            return list(enumerate(self._owner))
        if self._names is not None:
            return [(name, mapping[name]) for name in self._names if name in mapping]
        return list(mapping.items())

    def __setitem__(self, key: Any, value: Any) -> None:
        mapping = self._mapping()
        if isinstance(self._owner, types.CellType):
            self._owner.cell_contents = value
        elif mapping is None:
            self._owner[key] = value
        else:
            mapping[key] = value

    def restore(self, before: dict[Any, Any]) -> None:
        mapping = self._mapping()
        if isinstance(self._owner, types.CellType) or self._names is not None:
            for key, value in before.items():
                self[key] = value
        elif mapping is None:
            self._owner.clear()
            self._owner.extend(before.values())
        else:
            mapping.clear()
            mapping.update(before)

    def named(self, key: Any) -> str:
        """How the user would write it."""
        if isinstance(self._owner, types.CellType) or self._names is not None:
            return self.where or str(key)
        return f"{self.where}[{key!r}]" if isinstance(self._owner, dict | list | deque) else f"{self.where}.{key}"


def _places(objects: Sequence[object], caches: list[Any]) -> Iterator[_Place]:
    seen: set[int] = set()
    pending: deque[tuple[str, object, int]] = deque(
        (getattr(each, "__name__", type(each).__name__), each, 0) for each in objects
    )
    while pending:
        where, owner, depth = pending.popleft()
        if id(owner) in seen or depth > DEEP:
            continue
        seen.add(id(owner))
        if isinstance(owner, nn.Module):
            pending.extend((f"{where}.{name}", inner, 1) for name, inner in owner.named_modules() if name)
        if hasattr(owner, "cache_clear") and not isinstance(owner, type):
            caches.append(owner)
            pending.append((where, getattr(owner, "__wrapped__", None), depth))
        elif isinstance(owner, functools.partial):
            pending.extend((where, each, depth) for each in (owner.func, *owner.args, *owner.keywords.values()))
        elif isinstance(owner, types.MethodType):
            pending.extend([(type(owner.__self__).__name__, owner.__self__, depth), (where, owner.__func__, depth)])
        elif isinstance(owner, types.FunctionType):
            for place in _variables(owner):
                yield place
                pending.extend((place.where or str(key), value, depth + 1) for key, value in place.items())
        elif _is_looked_at(owner):
            pending.extend((each.__name__, each, depth) for each in _methods(type(owner)))
            place = _Place(where, owner)
            yield place
            pending.extend((place.named(key), value, depth + 1) for key, value in place.items())


def _methods(kind: type) -> list[types.FunctionType]:
    """What a class of the user's has of its own, and of its own bases."""
    classes = [each for each in kind.__mro__ if not _is_librarys(each.__module__)]
    return [value for each in classes for value in vars(each).values() if isinstance(value, types.FunctionType)]


def _variables(function: types.FunctionType) -> Iterator[_Place]:
    """What a function has of its closure, and of globals."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield _Place(name, cell)
    names = [name for name in _names(function.__code__) if name in function.__globals__]
    names = [name for name in names if not _is_code(function.__globals__[name])]
    if names:
        yield _Place("", function.__globals__, names)


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*inner)


def _is_code(value: object) -> bool:
    kinds = types.ModuleType, type, types.BuiltinFunctionType
    return isinstance(value, kinds) or (isinstance(value, types.FunctionType) and _is_librarys(value.__module__))


def _is_librarys(module: object) -> bool:
    return str(module).split(".")[0] in ("torch", "numpy", "builtins", "distir", "functools", "collections")


def _is_looked_at(owner: object) -> bool:
    """Containers that are not large, cells, modules, optimizers, and objects of the user's own classes."""
    if isinstance(owner, dict | list | deque):
        return len(cast("list[Any]", owner)) < LARGE
    if isinstance(owner, nn.Module | torch.optim.Optimizer):
        return True
    if isinstance(owner, Tensor | type | types.ModuleType) or not hasattr(owner, "__dict__"):
        return False
    return not _is_librarys(type(owner).__module__)


def _mark(value: Any) -> object:
    """What tells one value from another: numbers by what they are, other things by which they are."""
    if isinstance(value, bool | int | float | str | None):
        return type(value), value
    if isinstance(value, tuple):
        return tuple(_mark(each) for each in cast("tuple[Any, ...]", value))
    return Tensor if isinstance(value, Tensor) and not value.numel() else id(value)
