"""Side effects of a step. In go the Python objects that it uses (modules, optimizers, what its function reaches by
closure, globals and attributes); out comes what a run left in them beside tensors that a program returns. Afterwards they are as they were."""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import random
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.optim.lr_scheduler import LRScheduler

from distir.frontends.pytorch.watched_numbers import Decisions, is_number, is_watched, plain

LARGE, DEEP = 100_000, 12
"""Containers of more entries, and objects behind more others, are not looked at."""
FAR = 1_000_003
"""Runs that a far later one is behind."""
_MANY = 1009
"""Entries that a growing list has more by then."""

Contents = list[dict[Any, Any]]


class Surroundings:
    """What the objects were when this was made. `original` says which tensor of theirs it is that a tensor stood for in the last run."""

    def __init__(self, objects: Sequence[object], original: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> None:
        self._caches: list[Any] = []
        self._places = list(_places(objects, self._caches))
        self._original = original
        self._before = self._last = self.state()
        self._found: list[tuple[int, Any]] = []
        self._grew = False

    def state(self) -> Contents:
        """What the objects are now, for `restore`."""
        return [dict(place.items()) for place in self._places]

    def changes(self) -> list[str]:
        """What is not as it was before the last run, in words. Tensors that were left are others from now on (`like_left`)."""
        return [self._places[number].named(key) for number, key in self._changed()]

    def advanced(self) -> list[str]:
        """Of the last `changes`, those of which each run gets another part: iterators, and generators of random numbers."""
        return [self._places[number].named(key) for number, key in self._found if self._places[number].is_position]

    def only_numbers(self) -> bool:
        """Whether the last `changes` were of numbers that are watched, and of tensors in the place of tensors like them."""
        return not self._grew

    def _changed(self) -> list[tuple[int, Any]]:
        self._found = found = list[tuple[int, Any]]()
        self._grew = False
        for number, (place, then) in enumerate(zip(self._places, self._last, strict=True)):
            now = dict(place.items())
            for key in {**then, **now}:
                if key not in then or key not in now or not self._is_same(then[key], now[key]):
                    found.append((number, key))
                elif _mark(then[key]) != _mark(now[key]):  # what stands for it
                    place[key] = then[key]
        for number, key in found:
            place, then = self._places[number], self._last[number].get(key)
            value = dict(place.items()).get(key)
            self._grew |= not _are_watched(value) and not _are_alike(value, then)
            if isinstance(value, Tensor):
                original = self._original(value)
                place[key] = like_left(value) if original is value else original
        self._last = self.state()
        return found

    def _is_same(self, then: Any, now: Any) -> bool:
        """Whether a value is what it was: itself, or made anew of the same."""
        if _mark(then) == _mark(now):
            return True
        if isinstance(then, Tensor) and isinstance(now, Tensor):
            return self._original(now) is then
        if isinstance(then, weakref.ref) and isinstance(now, weakref.ref):
            return then() is not None and self._is_same(then(), now())
        if type(then) is type(now) and isinstance(then, list | tuple):
            pair = cast("tuple[list[Any], list[Any]]", (then, now))
            return len(pair[0]) == len(pair[1]) and all(map(self._is_same, *pair))
        return False

    def watch(self, decisions: Decisions) -> None:
        """Numbers that are not what they were at first tell from now on what is decided by them."""
        for place, key, _, now in self._moved():
            place[key] = _each(lambda number: decisions.watched(plain(number)), now)

    def go_far(self) -> bool:
        """Numbers are what they would be after many more runs, lists that grow are long, and those that shrink are empty. Whether
        there are any."""

        def far(now: Any, then: Any) -> Any:
            value = plain(now) + (plain(now) - plain(then)) * FAR
            return now.decisions.watched(value) if is_watched(now) else value

        moved = list(self._moved())
        for place, key, then, now in moved:
            place[key] = _each(far, now, then)
        went = [place.go_far(len(before)) for place, before in zip(self._places, self._before, strict=True)]
        return bool(moved) or any(went)

    def _moved(self) -> Iterator[tuple[_Place, Any, Any, Any]]:
        """Place, key, and the numbers, or tuples of numbers, that are not what they were."""
        for place, before in zip(self._places, self._before, strict=True):
            for key, now in list(place.items()):
                then = before.get(key)
                if place.has_numbers and _are_numbers(now, then) and _mark(now) != _mark(then):
                    yield place, key, then, now

    def restore(self, state: Contents | None = None) -> None:
        """Attributes and entries are what they were, at first or then; caches of functions are empty, since what they have may be of
        a run."""
        for cache in self._caches:
            cache.cache_clear()
        for place, before in zip(self._places, self._before if state is None else state, strict=True):
            now = dict(place.items())
            if list(now) != list(before) or any(now[key] is not before[key] for key in before):
                place.restore(before)
        self._last = self.state()


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

    is_position = False
    """Whether it says how far something has come that cannot be put back."""
    has_numbers = True
    """Whether other numbers can be put in their places."""

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
        kind = next((each for each in type(mapping).__mro__ if each.__module__ in ("builtins", "collections")), dict)
        return list(cast("Any", kind).items(mapping))  # a class of its own may load what it has not

    def __setitem__(self, key: Any, value: Any) -> None:
        mapping = self._mapping()
        if isinstance(self._owner, types.CellType):
            self._owner.cell_contents = value
        elif mapping is None:
            self._owner[key] = value
        else:
            mapping[key] = value

    def go_far(self, before: int) -> bool:
        """A list that has more entries than `before` has many more, one that has fewer has none. Whether it is one of them."""
        if not isinstance(self._owner, list | deque) or len(self._owner) == before:
            return False
        if len(self._owner) > before:
            self._owner.extend([self._owner[-1]] * _MANY)
        else:
            self._owner.clear()
        return True

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


class _ClassPlace(_Place):
    """Attributes of a class that are no code."""

    def items(self) -> list[tuple[Any, Any]]:
        found = vars(self._owner).items()
        return [(k, v) for k, v in found if not (k.startswith("__") or callable(v) or hasattr(v, "__get__"))]

    def __setitem__(self, key: Any, value: Any) -> None:
        setattr(self._owner, key, value)

    def restore(self, before: dict[Any, Any]) -> None:
        for key, _ in self.items():
            if key not in before:
                delattr(self._owner, key)
        for key, value in before.items():
            setattr(self._owner, key, value)


class _SlotsPlace(_Place):
    """Attributes of an object without a dictionary."""

    def items(self) -> list[tuple[Any, Any]]:
        return [(name, getattr(self._owner, name)) for name in _slots(self._owner) if hasattr(self._owner, name)]

    def __setitem__(self, key: Any, value: Any) -> None:
        object.__setattr__(self._owner, key, value)

    def restore(self, before: dict[Any, Any]) -> None:
        for key, value in before.items():
            self[key] = value


class _Members(_Place):
    """Members of a set, and numbers of an array."""

    has_numbers = False

    def items(self) -> list[tuple[Any, Any]]:
        if isinstance(self._owner, set):
            return [(each, each) for each in cast("set[Any]", self._owner)]
        return list(enumerate(np.asarray(self._owner).ravel().tolist()))

    def __setitem__(self, key: Any, value: Any) -> None:
        """What is here cannot be replaced."""

    def go_far(self, before: int) -> bool:
        if not isinstance(self._owner, set) or len(cast("set[Any]", self._owner)) <= before:
            return False
        cast("set[Any]", self._owner).update(range(-_MANY, 0))
        return True

    def restore(self, before: dict[Any, Any]) -> None:
        if isinstance(self._owner, set):
            self._owner.clear()
            self._owner.update(before)
        else:
            self._owner[...] = np.reshape([*before.values()], self._owner.shape)

    def named(self, key: Any) -> str:
        return self.where


class _Position(_Members):
    """How far an iterator, or a generator of random numbers, has come."""

    is_position = True

    def items(self) -> list[tuple[Any, Any]]:
        return [("", _position(self._owner))]

    def go_far(self, before: int) -> bool:
        """It goes on by itself."""
        return False

    def restore(self, before: dict[Any, Any]) -> None:
        """It does not go back."""


_DRAWING = random.Random | np.random.Generator | np.random.RandomState


def _position(owner: Any) -> object:
    """What changes when an iterator goes on."""
    if isinstance(owner, types.GeneratorType):
        frame = owner.gi_frame
        inner = _position(owner.gi_yieldfrom) if isinstance(owner.gi_yieldfrom, Iterator) else None
        own = None if frame is None else (frame.f_lasti, tuple(_mark(v) for v in frame.f_locals.values()))
        return own, inner
    if isinstance(owner, random.Random):
        return owner.getstate()
    if isinstance(owner, np.random.Generator):
        return str(owner.bit_generator.state)
    if isinstance(owner, np.random.RandomState):
        return str(owner.get_state())
    if isinstance(owner, itertools.count):
        return repr(owner)
    try:
        how = owner.__reduce__()
    except TypeError:
        how = ()
    numbers = tuple(each for each in _flat(how) if isinstance(each, int | float))
    inside = [each for each in gc.get_referents(owner) if isinstance(each, Iterator)]
    return numbers, tuple(_position(each) for each in inside if each is not owner)


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        for each in cast("tuple[object, ...]", value):
            yield from _flat(each)
    else:
        yield value


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
        if inspect.getattr_static(owner, "cache_clear", None) is not None and not isinstance(owner, type):
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
            defaults = (*(owner.__defaults__ or ()), *(owner.__kwdefaults__ or {}).values())
            pending.extend((f"a default of {owner.__name__}", value, depth + 1) for value in defaults)
        elif isinstance(owner, types.ModuleType):
            continue
        elif isinstance(owner, type):
            if not _is_librarys(owner.__module__):
                pending.extend((each.__name__, each, depth) for each in _methods(owner))
                classes = [each for each in owner.__mro__ if not _is_librarys(each.__module__)]
                for place in (_ClassPlace(each.__name__, each) for each in classes):
                    yield place
                    pending.extend((place.named(key), value, depth + 1) for key, value in place.items())
        elif isinstance(owner, set) or (isinstance(owner, np.ndarray) and owner.dtype.kind in "biuf"):
            if len(cast("set[Any]", owner) if isinstance(owner, set) else owner.ravel()) < LARGE:
                yield _Members(where, owner)
        elif isinstance(owner, _DRAWING) or (isinstance(owner, Iterator) and _is_builtin(owner)):
            yield _Position(where, owner)
        elif _is_looked_at(owner):
            pending.append((type(owner).__name__, type(owner), depth))
            kinds = [_Place] if isinstance(owner, dict | list | deque) or hasattr(owner, "__dict__") else []
            for place in (kind(where, owner) for kind in kinds + [_SlotsPlace] * bool(_slots(owner))):
                yield place
                pending.extend((place.named(key), value, depth + 1) for key, value in place.items())


def _slots(owner: object) -> list[str]:
    """What an object of the user's own classes has without a dictionary."""
    found = [vars(each).get("__slots__", ()) for each in type(owner).__mro__ if not _is_librarys(each.__module__)]
    return [name for names in found for name in ([names] if isinstance(names, str) else names) if name[:2] != "__"]


def _methods(kind: type) -> list[types.FunctionType]:
    """What a class of the user's has of its own, and of its own bases."""
    classes = [each for each in kind.__mro__ if not _is_librarys(each.__module__)]
    return [value for each in classes for value in vars(each).values() if isinstance(value, types.FunctionType)]


def _variables(function: types.FunctionType) -> Iterator[_Place]:
    """What a function has of its closure, of globals, of modules of the user's, and as attributes."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield _Place(name, cell)
    named = _names(function.__code__)
    names = [name for name in named if name in function.__globals__]
    modules = [each for name in names if isinstance(each := function.__globals__[name], types.ModuleType)]
    names = [name for name in names if not _is_code(function.__globals__[name])]
    if names:
        yield _Place("", function.__globals__, names)
    for module in modules:
        inside = [
            name for name in named if name in vars(module) and not isinstance(vars(module)[name], types.ModuleType)
        ]
        if inside and not _is_librarys(module.__name__):
            yield _Place("", vars(module), inside)
    if vars(function):
        yield _Place(function.__name__, function)


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*inner)


def _is_code(value: object) -> bool:
    if isinstance(value, type | types.FunctionType):
        return _is_librarys(value.__module__)
    return isinstance(value, types.ModuleType | types.BuiltinFunctionType)


_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "distir", "_pytest"}
"""Packages whose own state no step reads; pytest's is behind each `assert`, which it writes anew."""


def _is_librarys(module: object) -> bool:
    return str(module).split(".")[0] in _LIBRARIES


def _is_builtin(owner: object) -> bool:
    return type(owner).__module__ in ("builtins", "itertools")


def _is_looked_at(owner: object) -> bool:
    """Containers that are not large, cells, modules, optimizers, schedulers, iterators, and objects of the user's own classes."""
    if isinstance(owner, dict | list | deque):
        return len(cast("list[Any]", owner)) < LARGE
    if isinstance(owner, nn.Module | torch.optim.Optimizer | LRScheduler | Iterator):
        return hasattr(owner, "__dict__")
    if isinstance(owner, types.SimpleNamespace | threading.local):
        return True
    if isinstance(owner, Tensor) or _is_librarys(type(owner).__module__):
        return False
    return hasattr(owner, "__dict__") or bool(_slots(owner))


def _are_numbers(a: Any, b: Any) -> bool:
    """Whether both are numbers, or tuples of as many."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        pair = cast("tuple[tuple[Any, ...], tuple[Any, ...]]", (a, b))
        return len(pair[0]) == len(pair[1]) and all(map(is_number, (*pair[0], *pair[1])))
    return is_number(a) and is_number(b)


def _are_watched(value: Any) -> bool:
    return any(map(is_watched, cast("tuple[Any, ...]", value))) if isinstance(value, tuple) else is_watched(value)


def _are_alike(a: Any, b: Any) -> bool:
    """Whether both are tensors of one shape and type."""
    return isinstance(a, Tensor) and isinstance(b, Tensor) and (a.shape, a.dtype) == (b.shape, b.dtype)


def _each(function: Callable[..., Any], *values: Any) -> Any:
    """The function of a number, or of each number of a tuple."""
    return tuple(map(function, *values)) if isinstance(values[0], tuple) else function(*values)


def _mark(value: Any) -> object:
    """What tells one value from another: numbers by what they are, other things by which they are."""
    value = plain(value)
    if isinstance(value, bool | int | float | str | None):
        return type(value), value
    if isinstance(value, tuple):
        return tuple(_mark(each) for each in cast("tuple[Any, ...]", value))
    return Tensor if isinstance(value, Tensor) and not value.numel() else id(value)
