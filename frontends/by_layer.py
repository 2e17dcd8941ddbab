"""Arrays in which one dim tells layers apart, and the parts of each layer. In go arrays by name, and out come the same with
such an array `w` in parts `w[0]`, `w[1]`, ... of shape [1, ...], or the other way round. Where it is dim 1 that tells layers
apart, parts are named `w[:,0]`, `w[:,1]`, ..."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from distir.dialects.errors import DistirError

Layers = Mapping[str, tuple[int, int]]
"""Of arrays, by name: the dim that tells layers apart, and how many there are."""

_PART = re.compile(r"(.+)\[((?::,)*)(\d+)\]")


def part_names(name: str, dim: int, count: int) -> list[str]:
    """The names of the parts of an array."""
    return [f"{name}[{':,' * dim}{i}]" for i in range(count)]


def layers_of(names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """The arrays of which these names are parts."""
    found: dict[str, tuple[int, int]] = {}
    for match in filter(None, map(_PART.fullmatch, names)):
        dim, number = match[2].count(":"), int(match[3])
        found[match[1]] = dim, max(number + 1, found.get(match[1], (dim, 0))[1])
    return found


def split_layers(arrays: Mapping[str, Any], layers: Layers) -> dict[str, Any]:
    """The arrays, with parts in the place of those that have layers."""
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        if name in layers:
            before = (slice(None),) * layers[name][0]
            names = part_names(name, *layers[name])
            found |= {part: array[(*before, slice(i, i + 1))] for i, part in enumerate(names)}
        else:
            found[name] = array
    return found


def join_layers(arrays: Mapping[str, Any], layers: Layers | None = None) -> dict[str, Any]:
    """The arrays, with whole ones in the place of parts: of those with these `layers`, or that names say. Raises DistirError where
    some parts of an array are missing and others are not."""
    found = dict(arrays)
    for name, (dim, count) in (layers_of(arrays) if layers is None else layers).items():
        parts = part_names(name, dim, count)
        missing = [part for part in parts if part not in found]
        if missing and len(missing) < count:
            raise DistirError(f"no value for '{missing[0]}', one of {count} parts of '{name}'")
        if not missing:
            found[name] = np.concatenate([np.asarray(found.pop(part)) for part in parts], axis=dim)
    return found
