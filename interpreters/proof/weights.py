"""The share of a reduced value that a partial sum (addend) has. In: the indices of reduced dims that a shard has
summed over. Out: weights over all of them, which add where partial sums are added; one whose weights are one
everywhere is the value.

A value reaches its sums along paths: `dw = matmul(x, dy)` sums over rows itself; `d = add(dw1, dw2)` has the sums of
its two operands. `Addend` has weights for each such leaf. A scale multiplies them, a mean is a sum with weights n/r,
zeros have none. The caller's sums may be unknown in a function (a symbol), to which the function adds. A value that is used
several times in each step of a recurrence is reached along exponentially many paths: of many leaves, those of equal
weights are one (`_grouped`), which is several paths."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

from distir.dialects.reductions import Reduction
from distir.interpreters.proof.indices import SPECIAL, Base, Indices, Mismatch

Path = tuple[int, ...]
"""From a value to an operand of the operation that made it, and on; MAIN is what an operation computes itself, and a number below it,
at the end, a group of paths."""
MAIN = -1

Axis = tuple[Path, str, int]
"""A reduced factor of the operation at a path, and its extent."""


class Symbol:
    """Weights that a function is not told."""

    __slots__ = ("level", "name")

    def __init__(self, name: str, level: int):
        self.name, self.level = name, level

    def __repr__(self) -> str:
        return self.name


Key = tuple[Base | None, int, int]
Function = Any
"""Over no axes, a number; over several, for ranges of the first, functions of the others: ((key, ((start, stop, function), ...)), ...)."""


@dataclass(frozen=True)
class Weights:
    """A function of the axes' indices, and multiples of symbols."""

    explicit: Function
    symbols: tuple[tuple[Symbol, Fraction], ...] = ()

    def __hash__(self) -> int:
        if (known := self.__dict__.get("hash")) is None:
            known = self.__dict__["hash"] = hash((self.explicit, self.symbols))
        return known


def _combined(a: Function, b: Function, axes: int, union: bool) -> Function:
    if axes == 0:
        return max(a, b) if union else a + b
    groups: dict[Key, list[tuple[int, int, Function]]] = {}
    for key, pieces in (*a, *b):
        groups.setdefault(key, []).extend(pieces)
    found: list[tuple[Key, tuple[tuple[int, int, Function], ...]]] = []
    for key, pieces in groups.items():
        bounds = sorted({bound for start, stop, _ in pieces for bound in (start, stop)})
        joined: list[tuple[int, int, Function]] = []
        for low, high in pairwise(bounds):
            there = [f for start, stop, f in pieces if start <= low and high <= stop]
            if not there:
                continue
            total = there[0]
            for other in there[1:]:
                total = _combined(total, other, axes - 1, union)
            if _is_zero(total, axes - 1):
                continue
            if joined and joined[-1][1] == low and joined[-1][2] == total:
                joined[-1] = (joined[-1][0], high, total)
            else:
                joined.append((low, high, total))
        if joined:
            found.append((key, tuple(joined)))
    found.sort(key=lambda each: (each[0][0] is not None, id(each[0][0]), each[0][1:]))
    return tuple(found)


def _is_zero(function: Function, axes: int) -> bool:
    return function == 0 if axes == 0 else not function


def _scaled(function: Function, axes: int, by: Fraction) -> Function:
    if axes == 0:
        return function * by
    return tuple([(k, tuple([(i, j, _scaled(f, axes - 1, by)) for i, j, f in pieces])) for k, pieces in function])


def _is_one(function: Function, extents: Sequence[int]) -> bool:
    if not extents:
        return function == 1
    if len(function) != 1:
        return False
    (key, pieces) = function[0]
    return (
        key == (None, 1, 0)
        and len(pieces) == 1
        and pieces[0][:2] == (0, extents[0])
        and _is_one(pieces[0][2], extents[1:])
    )


def _over(function: Function, axes: Sequence[Axis], wider: Sequence[Axis]) -> Function:
    """The same function over more axes, on which it does not depend."""
    if not wider:
        return function
    if axes and axes[0] == wider[0]:
        return tuple([(k, tuple([(i, j, _over(f, axes[1:], wider[1:])) for i, j, f in ps])) for k, ps in function])
    return (((None, 1, 0), ((0, wider[0][2], _over(function, axes, wider[1:])),)),)


def _bases(function: Function, axes: Sequence[Axis], but: Collection[Axis] = ()) -> Iterable[Base]:
    """The opaque index sets of a function's axes, but those of some axes."""
    if axes:
        for (base, _, _), pieces in function:
            if base is not None and axes[0] not in but:
                yield base
            for _, _, inner in pieces:
                yield from _bases(inner, axes[1:], but)


def _substituted(function: Function, axes: int, known: Mapping[Base, Indices]) -> Function:
    if axes == 0:
        return function
    total: Function = ()
    for (base, scale, offset), pieces in function:
        for start, stop, inner in pieces:
            inner = _substituted(inner, axes - 1, known)
            segments = ((base, scale, offset, start, stop),)
            part = Indices.of(segments).substituted(known) if base in known else None
            for b, s, o, i, j in segments if part is None else part.segments:
                total = _combined(total, (((b, s, o), ((i, j, inner),)),), axes, False)
    return total


def region(indices: Indices, weight: Fraction, inner: Function = None, inner_axes: int = 0) -> Function:
    """Weights over one axis of these indices (and others inside it)."""
    total: Function = ()
    for base, scale, offset, start, stop in indices.segments:
        if base in SPECIAL:
            raise Mismatch(f"a sum over {indices} is over no known indices")
        here = weight if inner is None else _scaled(inner, inner_axes, weight)
        total = _combined(total, (((base, scale, offset), ((start, stop, here),)),), inner_axes + 1, False)
    return total


@dataclass(frozen=True)
class Leaf:
    """The weights of what is reached along a path."""

    path: Path
    axes: tuple[Axis, ...]
    weights: Weights


@dataclass(frozen=True, eq=False)
class Addend:
    """What an addend has of a value. Interned: compared by identity."""

    reduction: Reduction
    leaves: tuple[Leaf, ...]

    @property
    def is_nothing(self) -> bool:
        """Whether it is zero: of a sum, it has nothing."""
        explicit = all(_is_zero(leaf.weights.explicit, len(leaf.axes)) for leaf in self.leaves)
        return explicit and not self.symbols and self.reduction is Reduction.SUM

    @cached_property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset(symbol for leaf in self.leaves for symbol, _ in leaf.weights.symbols)

    @cached_property
    def bases(self) -> frozenset[Base]:
        return frozenset(base for leaf in self.leaves for base in _bases(leaf.weights.explicit, leaf.axes))

    @cached_property
    def level(self) -> int:
        """The highest level of what is opaque in it; 0 where all is known."""
        return max([each.level for each in (*self.bases, *self.symbols)], default=0)

    def __repr__(self) -> str:
        parts = [f"{_path_text(leaf.path)}{_function_text(leaf.weights.explicit, leaf.axes)}" for leaf in self.leaves]
        return f"partial {self.reduction} ({'; '.join(parts)})"


def _path_text(path: Path) -> str:
    return "".join("several: " if step < MAIN else f"operand {step}: " for step in path if step != MAIN)


def _function_text(function: Function, axes: Sequence[Axis]) -> str:
    if not axes:
        return "whole" if function == 1 else f"{function} times"
    pieces = [
        f"{'' if b is None else b}{i}:{j} of {axes[0][2]}"
        + ("" if len(axes) == 1 and f == 1 else f" [{_function_text(f, axes[1:])}]")
        for (b, _, _), ps in function
        for i, j, f in ps
    ]
    return " + ".join(pieces) or "nothing"


MOST_LEAVES = 1 << 12
"""An addend that has more is not followed."""
FEW = 16
"""So many leaves are not grouped."""

_members: list[tuple[tuple[Path, tuple[Axis, ...]], ...]] = []
"""Of each group, the paths and axes of its leaves."""
_groups: dict[tuple[tuple[Path, tuple[Axis, ...]], ...], int] = {}
"""The number of each."""


def _grouped(leaves: Sequence[Leaf]) -> Sequence[Leaf]:
    """Leaves, of which those are one that have equal weights over axes of equal extents."""
    alike: dict[Any, list[Leaf]] = {}
    for leaf in leaves:
        alike.setdefault((leaf.weights, tuple([axis[1:] for axis in leaf.axes])), []).append(leaf)
    return [_group(each) if len(each) > 1 else each[0] for each in alike.values()]


def _group(leaves: Sequence[Leaf]) -> Leaf:
    members = tuple([(leaf.path, leaf.axes) for leaf in leaves])
    if (number := _groups.get(members)) is None:
        number = _groups[members] = len(_members)
        _members.append(members)
    step, first = MAIN - 1 - number, leaves[0]
    axes = tuple([((step, k), factor, extent) for k, (_, factor, extent) in enumerate(first.axes)])
    return Leaf((step,), axes, first.weights)


def _opened(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Leaves, with those of a group in its place."""
    found: list[Leaf] = []
    pending = list(leaves)
    while pending:
        leaf = pending.pop()
        if not leaf.path or leaf.path[-1] >= MAIN:
            found.append(leaf)
            continue
        *before, step = leaf.path
        members = _members[MAIN - 1 - step]
        if len(found) + len(pending) + len(members) > MOST_LEAVES:
            raise Mismatch(f"addends of over {MOST_LEAVES} sums are combined that were computed in different ways")
        place = len(before) + 1
        for path, own in members:
            axes = [
                ((*before, *own[axis[0][place]][0]), *axis[1:]) if axis[0][:place] == leaf.path else axis
                for axis in leaf.axes
            ]
            pending.append(Leaf((*before, *path), tuple(axes), leaf.weights))
    return found


def _by_path(leaf: Leaf) -> Path:
    return leaf.path


_known: dict[tuple[Reduction, tuple[Leaf, ...]], Addend] = {}


def addend(reduction: Reduction, leaves: Iterable[Leaf]) -> Addend | None:
    """The interned addend; None if it has everything."""
    found = sorted(leaves, key=_by_path)
    ordered = tuple(found if len(found) <= FEW else sorted(_grouped(found), key=_by_path))
    if len(ordered) > MOST_LEAVES:
        raise Mismatch(f"an addend of over {MOST_LEAVES} sums")
    if all(not leaf.weights.symbols and _is_one(leaf.weights.explicit, [a[2] for a in leaf.axes]) for leaf in ordered):
        return None
    key = (reduction, ordered)
    if (known := _known.get(key)) is None:
        known = _known[key] = Addend(reduction, ordered)
    return known


ONE = Fraction(1)
WHOLE = Leaf((), (), Weights(ONE))


def leaves_of(value: Addend | None) -> tuple[Leaf, ...]:
    """A value that is whole has one leaf, of weight one."""
    return (WHOLE,) if value is None else value.leaves


def weighted(value: Addend | None, by: Fraction) -> Addend | None:
    """The addend times a number."""
    reduction = Reduction.SUM if value is None else value.reduction
    if reduction is not Reduction.SUM:
        raise Mismatch(f"a partial {reduction} is scaled")
    return addend(reduction, [_times(leaf, by) for leaf in leaves_of(value)])


def _times(leaf: Leaf, by: Fraction) -> Leaf:
    symbols = tuple((symbol, number * by) for symbol, number in leaf.weights.symbols if by)
    explicit = _scaled(leaf.weights.explicit, len(leaf.axes), by) if by or not leaf.axes else ()
    return Leaf(leaf.path, leaf.axes, Weights(explicit, symbols))


@cache
def total(reduction: Reduction, addends: tuple[Addend | None, ...]) -> Addend | None:
    """What the reduction of these addends of one value has of it. Mismatch for addends of several kinds."""
    for each in addends:
        if each is not None and each.reduction is not reduction:
            raise Mismatch(f"addends of a {each.reduction} are combined by {reduction}")
    found = list(leaves_of(addends[0]))
    for other in addends[1:]:
        found = _sum(found, list(leaves_of(other)), reduction)
    return addend(reduction, found)


def _sum(a: list[Leaf], b: list[Leaf], reduction: Reduction) -> list[Leaf]:
    if [(leaf.path, leaf.axes) for leaf in a] != [(leaf.path, leaf.axes) for leaf in b]:
        a, b = _opened(a), _opened(b)
        a, b = _refined(a, b), _refined(b, a)
    if [(leaf.path, leaf.axes) for leaf in a] != [(leaf.path, leaf.axes) for leaf in b]:
        raise Mismatch("addends of the value were computed in different ways")
    union = reduction in (Reduction.MAX, Reduction.MIN)
    found: list[Leaf] = []
    for x, y in zip(a, b, strict=True):
        explicit = _combined(x.weights.explicit, y.weights.explicit, len(x.axes), union)
        symbols: dict[Symbol, Fraction] = dict(x.weights.symbols)
        for symbol, number in y.weights.symbols:
            symbols[symbol] = (
                max(symbols.get(symbol, number), number) if union else symbols.get(symbol, Fraction(0)) + number
            )
        found.append(Leaf(x.path, x.axes, Weights(explicit, _ordered(symbols))))
    return found


def _ordered(symbols: Mapping[Symbol, Fraction]) -> tuple[tuple[Symbol, Fraction], ...]:
    return tuple(sorted(((s, n) for s, n in symbols.items() if n), key=lambda each: (each[0].level, each[0].name)))


def _refined(leaves: list[Leaf], finer: list[Leaf]) -> list[Leaf]:
    """Leaves in terms of those that the other addend has: a leaf is the same part of all that is reached through it."""
    found: list[Leaf] = []
    for leaf in leaves:
        below = [
            f for f in finer if f.path[: len(leaf.path)] == leaf.path and (f.path, f.axes) != (leaf.path, leaf.axes)
        ]
        if not below or not all(set(leaf.axes) <= set(f.axes) for f in below):
            found.append(leaf)
            continue
        if leaf.weights.symbols:
            finer_bases = {base for f in below for base in _bases(f.weights.explicit, f.axes, leaf.axes)}
            symbols = [symbol for symbol, _ in leaf.weights.symbols]
            reason = "what a caller has summed is combined with what was computed otherwise"
            raise Mismatch(reason, finer_bases or symbols)  # over all that they may be, a finer sum is whole
        found += [Leaf(f.path, f.axes, Weights(_over(leaf.weights.explicit, leaf.axes, f.axes))) for f in below]
    return sorted(found, key=_by_path)


def substituted(value: Addend, known: Mapping[Base, Indices], symbols: Mapping[Symbol, Weights]) -> Addend | None:
    """With what the bases and symbols are."""
    union = value.reduction in (Reduction.MAX, Reduction.MIN)
    found: list[Leaf] = []
    for leaf in value.leaves:
        explicit = _substituted(leaf.weights.explicit, len(leaf.axes), known)
        kept: dict[Symbol, Fraction] = {}
        for symbol, number in leaf.weights.symbols:
            if symbol not in symbols:
                kept[symbol] = kept.get(symbol, Fraction(0)) + number
                continue
            known_part = _scaled(symbols[symbol].explicit, len(leaf.axes), number)
            explicit = _combined(explicit, known_part, len(leaf.axes), union)
            for outer, times in symbols[symbol].symbols:
                kept[outer] = kept.get(outer, Fraction(0)) + times * number
        found.append(Leaf(leaf.path, leaf.axes, Weights(explicit, _ordered(kept))))
    return addend(value.reduction, found)


def forget() -> None:
    """Drops what is interned."""
    _known.clear()
    _members.clear()
    _groups.clear()
    total.cache_clear()
