"""Dims through changes of shape. In goes a value; out come the value before these changes, and each dim as parts of
that value's dims. Out come also operations that give a value with its parts in another order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

from xdsl.ir import Operation, SSAValue

from distir.interpreters.formulas import formula_of
from distir.interpreters.moves import Move, element, move_of, permute, reshape, shape


class Part(NamedTuple):
    """A range of one dim, taken in steps."""

    origin: Any
    """The dim; a tuple where elements are repeated."""
    stride: int
    size: int

    @property
    def is_repeated(self) -> bool:
        return isinstance(self.origin, tuple)


Dim = tuple[Part, ...]
"""Parts, the last of which moves fastest; none for a dim of one element."""


def whole(sizes: Sequence[int]) -> list[Dim]:
    """The dims of a value, each as it is."""
    return [(Part(i, 1, n),) if n > 1 else () for i, n in enumerate(sizes)]


def regroup(parts: Iterable[Part], sizes: Iterable[int]) -> list[Dim] | None:
    """The parts, row by row, as dims of these sizes; None where a dim would begin within a part."""
    rest, found = list(parts), list[Dim]()
    for size in sizes:
        dim: list[Part] = []
        while size > 1:
            if not rest:
                return None
            origin, stride, length = rest.pop(0)
            if size % length == 0:
                dim.append(Part(origin, stride, length))
                size //= length
            elif length % size == 0:
                dim.append(Part(origin, stride * (length // size), size))
                rest.insert(0, Part(origin, stride, length // size))
                size = 1
            else:
                return None
        found.append(tuple(dim))
    return None if rest else found


def after(dims: Sequence[Dim], op: Operation, move: Move) -> list[Dim] | None:
    """The dims of the result of a change of shape."""
    sizes = shape(op.results[0])
    if move.kind == "reshape":
        return regroup(chain.from_iterable(dims), sizes)
    if move.kind == "permute":
        return [dims[d] for d in move.dims]
    if move.kind == "tile":
        before = [1] * (len(sizes) - len(dims)) + list(shape(op.operands[0]))
        times = [
            (Part((op, i), 1, n // m),) if n > m else () for i, (n, m) in enumerate(zip(sizes, before, strict=True))
        ]
        return [(*new, *old) for new, old in zip(times, [*[()] * (len(sizes) - len(dims)), *dims], strict=True)]
    found: list[Dim] = [(Part((op, i), 1, n),) if n > 1 else () for i, n in enumerate(sizes)]
    for dim, i in zip(dims, move.dims, strict=True):
        found[i] = dim or found[i]
    return found


def is_same(op: Operation) -> bool:
    """Whether the result is the operand, in its element type or another."""
    formula = formula_of(op)
    return formula is not None and formula.kind == "same"


def copies(op: Operation) -> int | None:
    """The operand that an operation copies, in its element type."""
    return 0 if is_same(op) and element(op.operands[0]) == element(op.results[0]) else None


def converts(op: Operation) -> int | None:
    """The operand that is the result, in its element type or another."""
    return 0 if is_same(op) else None


def traced(
    value: SSAValue, through: Callable[[Operation], int | None] = copies
) -> tuple[SSAValue, list[Dim], list[Operation]]:
    """What a value was before its shape was changed, the value's dims as parts of that one's, and the operations between. Operations of which
    `through` says the operand are gone through too."""
    ops: list[Operation] = []
    while isinstance(op := value.owner, Operation):
        operand = 0 if move_of(op) is not None else through(op)
        if operand is None:
            break
        ops.append(op)
        value = op.operands[operand]
    dims = whole(shape(value))
    for i, op in reversed(list(enumerate(ops))):
        moved = after(dims, op, move) if (move := move_of(op)) is not None else dims
        if moved is None:
            value, moved = op.results[0], whole(shape(op.results[0]))
            del ops[i:]
        dims = moved
    return value, dims, ops


class Named(NamedTuple):
    """A value whose dims, or parts of them, have names: what is matched by another value's."""

    source: SSAValue
    parts: Mapping[Any, Dim]
    """Of each name the parts of the source's dims."""
    plain: Callable[[], Named | None] = lambda: None
    """The same value, not followed to where it was before its shape was changed."""

    def same(self, other: Named) -> bool:
        """Whether both are one tensor."""
        return self.source is other.source and self.parts == other.parts

    def without_repeats(self) -> Named:
        """Where elements are repeated, none of them."""
        kept = {name: dim for name, dim in self.parts.items() if not any(part.is_repeated for part in dim)}
        return Named(self.source, kept)

    def without(self, names: Collection[Any]) -> Named:
        """Where elements are one along these names, without these."""
        return Named(self.source, {name: dim for name, dim in self.parts.items() if name not in names})

    def arranged(self, target: Sequence[Sequence[Any]], dialect: str) -> tuple[list[Operation], SSAValue] | None:
        """Operations, and what they give: the value with dims that are these names together; a name that it has not is a dim of one element. None
        where it has elements that are in none of them."""
        wanted = [self.parts.get(name, ()) for names in target for name in names]
        flat = list(chain.from_iterable(wanted))
        if any(part.is_repeated for part in flat):
            return None if (plain := self.plain()) is None else plain.arranged(target, dialect)
        if prod(p.size for p in flat) != prod(shape(self.source)):
            return None
        order = sorted(flat, key=lambda part: (part.origin, -part.stride))
        sizes = [prod(p.size for name in names for p in self.parts.get(name, ())) for names in target]
        ops: list[Operation] = []
        value = self.source
        if order != flat:
            if [p.size for p in order] != list(shape(value)):
                ops += reshape(dialect, value, [p.size for p in order])
                value = ops[-1].results[0]
            ops += permute(dialect, value, [order.index(part) for part in flat])
            value = ops[-1].results[0]
        if sizes != list(shape(value)):
            ops += reshape(dialect, value, sizes)
        return ops, ops[-1].results[0] if ops else self.source


def named(value: SSAValue, names: Sequence[Sequence[tuple[Any, int]]], trace: bool = True) -> Named | None:
    """A value whose dims have these names, each with its size. None where they do not fit."""
    source, dims, _ = traced(value) if trace else (value, whole(shape(value)), [])
    found: dict[Any, Dim] = {}
    for dim, inside in zip(dims, names, strict=True):
        if not dim:
            continue
        if (parts := regroup(dim, [size for _, size in inside])) is None:
            return named(value, names, False) if trace else None
        found |= {name: part for (name, _), part in zip(inside, parts, strict=True)}
    return Named(source, found, lambda: named(value, names, False) if trace else None)
