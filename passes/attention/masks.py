"""Masks of a spelled-out attention. In goes a matched attention; out come one mask and a diagonal, as the attention
operation takes them: a row sees keys up to the diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Operation, SSAValue

from distir.interpreters.formulas import Array, known
from distir.interpreters.moves import element, is_negation, negation, shape
from distir.passes.attention.layouts import Dim, Named, Part, named
from distir.passes.attention.spelled import HIDDEN, Mask, Spelled


class Seen(NamedTuple):
    """Which scores count."""

    mask: Named | None
    is_hidden: bool
    """Whether the mask is true for those that do not."""
    diagonal: int | None

    def placed(self, target: Sequence[Sequence[Any]], dialect: str) -> tuple[list[Operation], SSAValue] | None:
        """Operations, and what they give: the mask."""
        assert self.mask is not None
        if (placed := self.mask.arranged(target, dialect)) is None or not self.is_hidden:
            return placed
        ops, value = placed
        return [*ops, (negated := negation(dialect, value))], negated.results[0]


def seen_by(found: Spelled) -> Seen | None:
    """None where the masks are none that one operation has."""
    diagonal: int | None = None
    rest: list[Mask] = []
    for mask in found.masks:
        constant = _constant(mask, found.rows, found.keys)
        if constant is None:
            rest.append(mask)
            continue
        seen, number = constant
        if np.isfinite(number) and not seen.any(1).all():
            return None  # a row that sees nothing is the mean of all there, and zero here
        if seen.all():
            continue
        last = int((np.arange(seen.shape[1]) - np.arange(seen.shape[0])[:, None])[seen].max(initial=-seen.shape[0]))
        if np.array_equal(seen, np.tri(found.rows.size, found.keys.size, last, np.bool_)):
            diagonal = last if diagonal is None else min(diagonal, last)
        else:
            rest.append(mask._replace(number=-np.inf if mask.kind != "add" else 0.0))
    if not rest:
        return Seen(None, False, diagonal)
    (mask, *others) = rest
    if others or (mask.kind != "add" and np.isfinite(mask.number)):
        return None
    if (mask.kind == "add") == (element(mask.value) == IntegerType(1)):
        return None
    value, hidden = mask.value, mask.kind == "hidden"
    if hidden and isinstance(value.owner, Operation) and is_negation(value.owner):
        value, hidden = value.owner.operands[0], False
    placed = _named(value, mask.dims)
    return None if placed is None else Seen(placed, hidden, diagonal)


def _named(value: SSAValue, dims: Sequence[Dim]) -> Named | None:
    sizes = shape(value)
    own = dims[len(dims) - len(sizes) :] if len(sizes) <= len(dims) else ()
    if len(own) < len(sizes):
        return None
    names = [[(part, part.size) for part in dim] if n > 1 else [] for dim, n in zip(own, sizes, strict=True)]
    found = named(value, names)
    return None if found is None else found.without_repeats()


def _constant(mask: Mask, rows: Part, keys: Part) -> tuple[Array, float] | None:
    """Of a constant that depends on row and key alone, which are seen, and what the scores of others are."""
    array = known(mask.value)
    if array is None or array.ndim > len(mask.dims) or not array.size:
        return None
    number = mask.number
    if mask.kind == "add":
        hidden = array[array != 0].astype(np.float64)
        if hidden.size and not (hidden <= HIDDEN).all():
            return None
        number = float(hidden.max(initial=-np.inf))
    elif array.dtype != np.bool_:
        return None
    seen = array == 0 if mask.kind in ("add", "hidden") else array
    seen = seen.reshape((1,) * (len(mask.dims) - seen.ndim) + seen.shape)
    places = {part: i for i, dim in enumerate(mask.dims) for part in dim}
    if any(len(mask.dims[places[part]]) != 1 for part in (rows, keys)):
        return None
    order = [places[rows], places[keys]]
    seen = seen.transpose([*(i for i in range(seen.ndim) if i not in order), *order])
    seen = seen.reshape(-1, *seen.shape[-2:])
    if not (seen == seen[:1]).all():
        return None
    return np.broadcast_to(seen[0], (rows.size, keys.size)), number
