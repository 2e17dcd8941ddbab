"""Calls of ATen operators as nobody samples them: a call goes in; the same call with one or two of its parts changed comes out, which the
operator may refuse.

A part is a number (zero, negative, just within and just beyond the dims, up to 2^31), an extent (none, one, two or three times as long), the
type of an operand's elements, which operand is which (one value twice, one of rank 0, one that is broadcast), indices (negative, all the
last, out of range), a list (empty, reversed, with an entry twice), an argument that is left out, and a word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from tests.unit.aten_instances import Call

INTEGERS = (0, 1, -1, 2, 3, 5, 31, -31, 63, -63, 100, -100, 1025, -1500, 2**31 - 1, 2**31, -(2**31))
FLOATS = (0.0, 1.0, -1.0, 1e-30, 1e-3, 0.5, 7.0, 100.0, -100.0, 1e4, 1e30, -1e30)
_TYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex128,
)
_WORDS = (
    "mean",
    "sum",
    "prod",
    "amax",
    "amin",
    "none",
    "tanh",
    "floor",
    "trunc",
    "linear",
    "lower",
    "midpoint",
    "ij",
    "xy",
)

Change = Callable[[Sequence[Any], np.random.Generator], Sequence[Any]]
"""Of the tensors, numbers and other leaves of a call's arguments."""


def other_number(number: Any, extents: Sequence[int], rng: np.random.Generator) -> Any:
    if isinstance(number, bool):
        return not number
    if isinstance(number, float):
        return float(rng.choice([*FLOATS, 2 * number, -number]))
    near = [n + by for n in (*extents, number) for by in (-1, 0, 1)]
    return int(rng.choice([*INTEGERS, *near, *(-n for n in extents), 2 * number, 3 * number]))


def changed(call: Call, rng: np.random.Generator) -> Call:
    """The call with one or two parts changed; numbers about half of the time."""
    for _ in range(int(rng.integers(1, 3))):
        if rng.random() < 0.2:
            call = Call(call.function, *_lists_changed(call.args, call.kwargs, rng))
            continue
        leaves, structure = tree_flatten((call.args, dict(call.kwargs)))
        change = _CHANGES[int(rng.choice(len(_CHANGES), p=_SHARES))]
        args, kwargs = tree_unflatten(list(change(leaves, rng)), structure)
        call = Call(call.function, args, kwargs)
    return call


def other_operands(arrays: Sequence[Any], rng: np.random.Generator) -> list[Any]:
    """Arrays of which one extent or some indices are others; those of which torch has no type as they are."""
    known = [isinstance(a, np.ndarray) and a.dtype.kind in "biuf" and hasattr(np, a.dtype.name) for a in arrays]
    tensors = [torch.as_tensor(a.copy()) if is_known else a for a, is_known in zip(arrays, known, strict=True)]
    found = (_extent if rng.random() < 0.6 else _indices)(tensors, rng)
    return [each.numpy() if isinstance(each, torch.Tensor) else each for each in found]


def other_list(numbers: Sequence[Any], rng: np.random.Generator) -> list[Any]:
    """Empty, reversed, shorter, with an entry twice, with other signs."""
    i = int(rng.integers(len(numbers)))
    return [
        [],
        [*numbers[::-1]],
        [*numbers[:i], *numbers[i + 1 :]],
        [*numbers, numbers[i]],
        [*numbers[:i], numbers[i - 1], *numbers[i + 1 :]],
        [-n for n in numbers],
        [n - 5 for n in numbers],
    ][int(rng.integers(7))]


def _where(leaves: Sequence[Any], *types: type) -> list[int]:
    return [i for i, leaf in enumerate(leaves) if isinstance(leaf, types)]


def _some(places: Sequence[int], rng: np.random.Generator) -> int | None:
    return places[int(rng.integers(len(places)))] if places else None


def _put(leaves: Sequence[Any], place: int | None, value: Callable[[Any], Any]) -> Sequence[Any]:
    """With another value at this place, if there is one."""
    return [value(leaf) if i == place else leaf for i, leaf in enumerate(leaves)]


def _extents(leaves: Sequence[Any], least: int = 2) -> list[int]:
    return sorted({n for leaf in leaves if isinstance(leaf, torch.Tensor) for n in leaf.shape if n >= least})


def _number(leaves: Sequence[Any], rng: np.random.Generator) -> Sequence[Any]:
    place = _some(_where(leaves, bool, int, float), rng)
    return _put(leaves, place, lambda number: other_number(number, _extents(leaves), rng))


def _extent(leaves: Sequence[Any], rng: np.random.Generator) -> Sequence[Any]:
    """All dims of one extent, and the integers that are equal to it: none, one, twice or three times as long."""
    if not (extents := _extents(leaves)):
        return leaves
    extent, times = int(rng.choice(extents)), int(rng.choice([0, 0, 1, 1, 2, 3, 3]))

    def longer(leaf: Any) -> Any:
        if type(leaf) is int:
            return {0: 0, 1: 1}.get(times, leaf * times) if leaf == extent else leaf
        if not isinstance(leaf, torch.Tensor) or not leaf.dim():
            return leaf
        for d in (d for d, n in enumerate(leaf.shape) if n == extent):
            leaf = leaf.narrow(d, 0, times) if times < 2 else torch.cat([leaf] * times, d)
        return leaf.clone()

    return list(map(longer, leaves))


def _type(leaves: Sequence[Any], rng: np.random.Generator) -> Sequence[Any]:
    """Of one tensor, or of all that have one type."""
    if (place := _some(_where(leaves, torch.Tensor), rng)) is None:
        return leaves
    before, after, alone = leaves[place].dtype, _TYPES[int(rng.integers(len(_TYPES)))], rng.random() < 0.3

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        scaled = tensor * 5 if before.is_floating_point and not after.is_floating_point else tensor
        return scaled.to(after)

    return [
        cast(leaf) if isinstance(leaf, torch.Tensor) and (i == place or (leaf.dtype == before and not alone)) else leaf
        for i, leaf in enumerate(leaves)
    ]


def _operand(leaves: Sequence[Any], rng: np.random.Generator) -> Sequence[Any]:
    """A tensor that is another one too, of rank 0, of one dim less or more, broadcast, or absent."""
    tensors = _where(leaves, torch.Tensor)
    if (place := _some(tensors, rng)) is None:
        return leaves
    alike = [i for i in tensors if i != place and leaves[i].dtype == leaves[place].dtype]
    match int(rng.integers(6)):
        case 0 | 1 if (other := _some(alike, rng)) is not None:
            return _put(leaves, place, lambda _: leaves[other])
        case 2 if leaves[place].numel():
            return _put(leaves, place, lambda tensor: tensor.reshape(-1)[:1].reshape(()).clone())
        case 3:
            return _put(leaves, place, lambda tensor: tensor[0].clone() if tensor.dim() and len(tensor) else tensor)
        case 4:
            return _put(leaves, place, lambda tensor: tensor[None].clone())
        case 5 if leaves[place].dim():
            d = int(rng.integers(leaves[place].dim()))
            return _put(leaves, place, lambda tensor: tensor.narrow(d, 0, 1).clone() if tensor.shape[d] else tensor)
        case _:
            return _put(leaves, place, lambda _: None)


def _indices(leaves: Sequence[Any], rng: np.random.Generator) -> Sequence[Any]:
    """Integers of a tensor: negative ones, all the same, in other order, one beyond."""
    places = [
        i for i in _where(leaves, torch.Tensor) if leaves[i].dtype in (torch.int64, torch.int32) and leaves[i].numel()
    ]
    high = max([1, *_extents(leaves)])

    def other(tensor: torch.Tensor) -> torch.Tensor:
        found = tensor.clone()
        match int(rng.integers(5)):
            case 0:
                found[torch.as_tensor(rng.random(tuple(tensor.shape)) < 0.5)] -= high
            case 1:
                found[...] = found.max()
            case 2:
                found = found.flip(0) if found.dim() else found
            case 3:
                found.reshape(-1)[int(rng.integers(found.numel()))] = int(
                    rng.choice([-1, high, high - 1, -100, 2**31 - 1])
                )
            case _:
                found = torch.as_tensor(rng.integers(0, high, tuple(tensor.shape))).to(tensor.dtype)
        return found

    return _put(leaves, _some(places, rng), other)


def _word(leaves: Sequence[Any], rng: np.random.Generator) -> Sequence[Any]:
    return _put(leaves, _some(_where(leaves, str), rng), lambda _: str(rng.choice(_WORDS)))


_CHANGES: tuple[Change, ...] = (_number, _extent, _type, _operand, _indices, _word)
_SHARES = (0.4, 0.22, 0.1, 0.14, 0.1, 0.04)


def _lists_changed(args: Any, kwargs: Mapping[str, Any], rng: np.random.Generator) -> tuple[Any, Mapping[str, Any]]:
    """One list of numbers: empty, reversed, shorter, with an entry twice, with other signs; or one optional argument left out."""
    places: list[Any] = [*range(len(args)), *kwargs]
    given = {**dict(enumerate(args)), **kwargs}
    lists = [p for p in places if isinstance(given[p], list | tuple) and given[p] and isinstance(given[p][0], int)]
    if lists:
        place = lists[int(rng.integers(len(lists)))]
        given[place] = other_list(given[place], rng)
    elif kwargs:
        del given[list(kwargs)[int(rng.integers(len(kwargs)))]]
    return tuple(given[i] for i in range(len(args))), {name: given[name] for name in kwargs if name in given}
