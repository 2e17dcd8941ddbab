"""The values of a distributed program. In: terms, the values of the sequential program as expressions. Out: shards
of terms, and slices, joins and reductions of shards.

A term is an operation of the sequential program on terms; equal expressions are one object, so a value that is computed twice has one
term. A shard has some indices of each dim of a term, and is the value there or an addend of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, cast

import numpy as np

from distir.dialects.reductions import Reduction
from distir.interpreters.proof import indices, weights
from distir.interpreters.proof.indices import FREE, ZEROS, Base, Indices, Mismatch, agreed, concat, full, special
from distir.interpreters.proof.weights import Addend, Symbol

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Kind:
    """The type of a value: shape (None: no tensor) and element type, as text. Interned: compared by identity."""

    shape: tuple[int, ...] | None
    element: str

    def __str__(self) -> str:
        return self.element if self.shape is None else f"{'x'.join(map(str, (*self.shape, self.element)))}"


@cache
def kind_of(shape: tuple[int, ...] | None, element: str) -> Kind:
    """The interned kind."""
    return Kind(shape, element)


class Head:
    """What terms are of: an operation of the sequential program (a `Template`)."""

    def filled(self, other: Any, operands: Sequence[Term]) -> Head | None:
        """Which of two heads a term of these operands has, where holes of terms of one were filled by operands of the other; None if they are
        of two operations."""
        return self if other is self else None


@dataclass(eq=False, repr=False)
class Term:
    """A value of the sequential program, or what an operation of it gives on other values. Interned: compared by identity."""

    kind: Kind
    head: Any
    """The operation (a `Template`), or what names the value."""
    operands: tuple[Term, ...] = ()
    result: int = 0
    factors: tuple[tuple[Any, Term], ...] = ()
    """Numbers by which the value is scaled, outermost last; `plain` is without them."""
    array: Array | None = field(default=None, repr=False)
    """The value of a constant."""
    origin: str = ""
    """The operation of the distributed program that gave it first; empty for values of the sequential program."""
    is_sequential: bool = False
    is_open: bool = False
    """Whether it depends on an argument that a function is not told."""
    otherwise: Term | None = None
    """Of an open one: the same value as a scaled one, which it is if the sequential program does not have it as it is."""

    @property
    def plain(self) -> Term:
        """Without the numbers by which it is scaled."""
        return self if not self.factors else _interned(self.kind, self.head, self.operands, self.result, ())

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        name = str(self.head)
        if self.array is not None:
            name = f"constant of {self.kind}"
        return name + "".join(f" / {by}" for _, by in self.factors)


_terms: dict[Any, Term] = {}


def _interned(
    kind: Kind, head: Any, operands: tuple[Term, ...], result: int, factors: tuple[tuple[Any, Term], ...]
) -> Term:
    key = (kind, head, operands, result, factors)
    if (found := _terms.get(key)) is None:
        is_open = any(o.is_open for o in operands) or any(by.is_open for _, by in factors)
        found = _terms[key] = Term(kind, head, operands, result, factors, is_open=is_open)
    return found


def term_of(kind: Kind, head: Any, operands: tuple[Term, ...] = (), result: int = 0, factors: Any = ()) -> Term:
    """The one term of this expression."""
    return _interned(kind, head, operands, result, factors)


def constant(array: Array, kind: Kind) -> Term:
    """The term of a constant; equal ones are one."""
    data = array.tobytes() if array.dtype != object else repr(array.tolist()).encode()
    found = _interned(kind, ("constant", str(array.dtype), array.shape, data), (), 0, ())
    if found.array is None:
        found.array = array
    found.is_sequential = True
    return found


def argument(number: int, kind: Kind) -> Term:
    """What stands for a value that a function is not told."""
    found = _interned(kind, ("argument", number), (), 0, ())
    found.is_open = True
    return found


def is_argument(term: Term) -> bool:
    return isinstance(term.head, tuple) and term.head[0] == "argument" and not term.factors


assumed: list[tuple[Term, Term | None]] = []
"""Terms that the walk of a function took to be equal, or to be values of the sequential program (None); each call shows that they are, of
what it gives."""


def taken_as_one(a: Term, b: Term) -> Term | None:
    """The term that both are, once holes are filled, or if an argument is what it would have to be."""
    if a is b:
        return a
    found = unified(a, b)
    if found is None and a.kind == b.kind and (is_argument(a) or is_argument(b)):
        assumed.append((a, b))
        return b if is_argument(a) else a
    return found


@cache
def hole(kind: Kind) -> Term:
    """What stands in a term where zeros were taken instead of a value: an addend of what the value gives."""
    return term_of(kind, "zeros")


HOLE = "zeros"


def is_hole(term: Term) -> bool:
    return term.head is HOLE


def is_zero(term: Term) -> bool:
    """Whether it is a constant of zeros."""
    return term.array is not None and term.array.dtype.kind in "fiucV" and not term.array.any()  # V: bf16


def unified(a: Term, b: Term) -> Term | None:
    """The term that both are once holes are filled."""
    if a is b or is_hole(b):
        return a
    if is_hole(a):
        return b
    return _unified(a, b)


@cache
def _unified(a: Term, b: Term) -> Term | None:
    if (a.kind, a.result, a.factors, len(a.operands)) != (b.kind, b.result, b.factors, len(b.operands)):
        return None
    if not a.operands or (a.head != b.head and not isinstance(a.head, Head)):
        return None
    unions = [unified(x, y) for x, y in zip(a.operands, b.operands, strict=True)]
    operands = tuple([x for x in unions if x is not None])
    if len(operands) < len(unions) or (head := a.head if a.head == b.head else a.head.filled(b.head, operands)) is None:
        return None
    found = _interned(a.kind, head, operands, a.result, a.factors)
    found.origin = found.origin or a.origin
    return found


class Value:
    """What a walk has for an SSA value."""

    @property
    def shards(self) -> tuple[Shard, ...]:
        """All that it is made of."""
        return ()

    def mapped(self, change: Callable[[Shard], Shard]) -> Value:
        """The same, with each of its shards changed."""
        return self


@dataclass(frozen=True)
class Failure:
    """Where a claim breaks first."""

    operation: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operation}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Unknown(Value):
    """A value of which nothing is shown, because of an operation before."""

    failure: Failure


@dataclass(frozen=True)
class Number(Value):
    """Which microbatch a loop is at."""

    value: int


@dataclass(frozen=True, eq=False)
class Shard(Value):
    """Some indices of each dim of a term, and which addend of it. Interned: compared by identity."""

    term: Term
    indices: tuple[Indices, ...]
    addend: Addend | None = None

    @property
    def shards(self) -> tuple[Shard, ...]:
        return (self,)

    def mapped(self, change: Callable[[Shard], Shard]) -> Shard:
        return change(self)

    @property
    def bases(self) -> frozenset[Base]:
        found: frozenset[Base] = frozenset[Base]().union(*[each.bases for each in self.indices])
        return found | self.addend.bases if self.addend is not None else found

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset() if self.addend is None else self.addend.symbols

    @cached_property
    def level(self) -> int:
        """The highest level of what is opaque in it; 0 where all is known."""
        level = max([each.level for each in self.indices], default=0)
        return level if self.addend is None else max(level, self.addend.level)

    @property
    def is_zero(self) -> bool:
        return is_hole(self.term)

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the term."""
        shape = self.term.kind.shape or ()
        return self.addend is None and all(i.is_full(n) for i, n in zip(self.indices, shape, strict=True))

    def __str__(self) -> str:
        what = "" if self.addend is None else f", {self.addend}"
        return f"[{', '.join(map(str, self.indices))}] of {self.term}{what}"


_shards: dict[Any, Shard] = {}


def shard(term: Term, indices: tuple[Indices, ...], addend: Addend | None = None) -> Shard:
    """The interned shard."""
    key = (term, indices, addend)
    if (found := _shards.get(key)) is None:
        found = _shards[key] = Shard(term, indices, addend)
    return found


def whole(term: Term) -> Shard:
    """All of a value."""
    return shard(term, tuple([full(n) for n in term.kind.shape or ()]))


def zeros(kind: Kind) -> Shard:
    """Zeros of this local shape: an addend of anything."""
    element = kind_of((), kind.element)
    return shard(hole(element), tuple([special(FREE, n) for n in kind.shape or ()]))


def forget() -> None:
    """Drops what is interned: between proofs."""
    _terms.clear()
    _shards.clear()
    indices.forget()
    weights.forget()
    hole.cache_clear()
    _unified.cache_clear()
    _packed.clear()
    _level_of_indices.cache_clear()
    _level_of_addends.cache_clear()
    assumed.clear()


Columns = tuple[tuple[Term, ...], tuple[tuple[Indices, ...], ...], tuple[Addend | None, ...]]
"""Several shards: their terms, their index sets, their addends."""


@dataclass(frozen=True, eq=False)
class Packed(Value):
    """A tuple. Interned: compared by identity."""

    columns: Columns | None
    """Of the elements, if all are shards: what changes index sets changes those of all that have the same at once."""
    others: tuple[Value, ...] = ()
    """The elements otherwise."""

    @cached_property
    def elements(self) -> tuple[Value, ...]:
        return self.others if self.columns is None else tuple(map(shard, *self.columns))

    @property
    def shards(self) -> tuple[Shard, ...]:
        return self._shards

    @cached_property
    def _shards(self) -> tuple[Shard, ...]:
        if self.columns is not None:
            return cast("tuple[Shard, ...]", self.elements)
        return tuple([each for element in self.elements for each in element.shards])

    @cached_property
    def level(self) -> int:
        """The highest level of what is opaque in it; 0 where all is known."""
        if self.columns is None:
            return max(map(level_of, self.others), default=0)
        return max(_level_of_indices(self.columns[1]), _level_of_addends(self.columns[2]))


_packed: dict[Any, Packed] = {}


def packed(elements: tuple[Value, ...]) -> Packed:
    """The interned tuple."""
    if not elements or {*map(type, elements)} != {Shard}:
        if (found := _packed.get(elements)) is None:
            found = _packed[elements] = Packed(None, elements)
        return found
    own = cast("tuple[Shard, ...]", elements)
    return of_columns((tuple([s.term for s in own]), tuple([s.indices for s in own]), tuple([s.addend for s in own])))


def of_columns(columns: Columns) -> Packed:
    """The interned tuple of shards."""
    if (found := _packed.get(columns)) is None:
        found = _packed[columns] = Packed(columns)
    return found


def level_of(value: Value) -> int:
    """The highest level of what is opaque in a value; 0 where all is known."""
    if isinstance(value, Shard | Packed):
        return value.level
    return max([each.level for each in value.shards], default=0)


@cache
def _level_of_indices(column: tuple[tuple[Indices, ...], ...]) -> int:
    return max([each.level for indices in column for each in indices], default=0)


@cache
def _level_of_addends(column: tuple[Addend | None, ...]) -> int:
    return max([each.level for each in column if each is not None], default=0)


@dataclass(frozen=True)
class Positions:
    """The positions in [start, stop) of `extent`."""

    start: int
    stop: int
    extent: int


@dataclass(frozen=True)
class LocalIndex(Value):
    """Indices as a shard counts them that has some positions; those outside became `ignored`, or the nearest position."""

    indices: Shard
    positions: Positions
    ignored: int | None

    @property
    def shards(self) -> tuple[Shard, ...]:
        return (self.indices,)

    def mapped(self, change: Callable[[Shard], Shard]) -> LocalIndex:
        return LocalIndex(change(self.indices), self.positions, self.ignored)


@dataclass(frozen=True)
class Inside(Value):
    """A shard where its indices are of these positions, zero elsewhere. `dims`: of the value, for each dim of the indices."""

    value: Shard
    indices: Shard
    positions: Positions
    dims: tuple[int, ...]

    @property
    def shards(self) -> tuple[Shard, ...]:
        return self.value, self.indices

    def mapped(self, change: Callable[[Shard], Shard]) -> Inside:
        return Inside(change(self.value), change(self.indices), self.positions, self.dims)


@dataclass(frozen=True)
class Outside(Value):
    """What a lookup gave in a shard that has some positions: right only where the indices are of these. Elsewhere it is zero in the
    shard's addend (`otherwise` None), or what is in `otherwise`."""

    value: Shard
    indices: Shard
    positions: Positions
    dims: tuple[int, ...]
    otherwise: Shard | None

    @property
    def shards(self) -> tuple[Shard, ...]:
        return (self.value, self.indices) if self.otherwise is None else (self.value, self.indices, self.otherwise)

    def mapped(self, change: Callable[[Shard], Shard]) -> Outside:
        otherwise = self.otherwise and change(self.otherwise)
        return Outside(change(self.value), change(self.indices), self.positions, self.dims, otherwise)


@dataclass(frozen=True)
class Part(Value):
    """A result of an attention for some of the keys, as if it were an addend over them: others join it (`attention.combine`), and no sum."""

    shard: Shard

    @property
    def shards(self) -> tuple[Shard, ...]:
        return (self.shard,)

    def mapped(self, change: Callable[[Shard], Shard]) -> Part:
        return Part(change(self.shard))


def expect_shards(values: Sequence[Any]) -> list[Shard]:
    """The values, if all are shards."""
    for value in values:
        if isinstance(value, Part):
            raise Mismatch(f"a result for some of the keys is used otherwise than by attention.combine: {value.shard}")
        if not isinstance(value, Shard):
            raise Mismatch("what a lookup needs or gives is used otherwise")
    return list(values)


def sliced(value: Shard, ranges: Sequence[tuple[int, int]]) -> Shard:
    """A slice of a shard."""
    indices = tuple([i.slice(start, stop) for i, (start, stop) in zip(value.indices, ranges, strict=True)])
    return shard(value.term, indices, value.addend)


def joined(values: Sequence[Shard], dim: int) -> Shard:
    """Shards one after the other along a dim: parts of one value, or zeros beside it."""
    first = next((value for value in values if not value.is_zero), values[0])
    if all(v.term.array is not None and v.addend is None for v in values) and any(
        v.term is not first.term for v in values
    ):
        return _joined_constants(values, dim)
    parts: list[Indices] = []
    term: Term | None = first.term
    for value in values:
        if value.is_zero and not first.is_zero:
            parts.append(special(ZEROS, value.indices[dim].size))
            continue
        if value.is_zero:
            parts.append(value.indices[dim])
            continue
        if value.addend is not first.addend or (term := taken_as_one(term, value.term)) is None:
            apart = _apart(first.term, value.term)
            raise Mismatch(f"parts of {first} and of {value} are joined{apart}", first.bases | value.bases)
        others = zip(value.indices, first.indices, strict=True)
        if any(d != dim and i is not j for d, (i, j) in enumerate(others)):
            raise Mismatch(
                f"parts that differ in other dims are joined: {first} and {value}", first.bases | value.bases
            )
        parts.append(value.indices[dim])
    indices = (*first.indices[:dim], concat(parts), *first.indices[dim + 1 :])
    return shard(term, indices, first.addend)


def _joined_constants(values: Sequence[Shard], dim: int) -> Shard:
    """Constants one after the other are a constant."""
    arrays: list[Array] = []
    for value in values:
        array = value.term.array
        assert array is not None
        for d, each in enumerate(value.indices):
            if any(base is not None for base, *_ in each.segments):
                raise Mismatch(f"which part of a constant {each} is, is not known", each.bases)
            array = np.concatenate([array.take(range(s[3], s[4]), d) for s in each.segments], d)
        arrays.append(array)
    joined = np.concatenate(arrays, dim)
    return whole(constant(joined, kind_of(joined.shape, values[0].term.kind.element)))


def _apart(a: Term, b: Term) -> str:
    """Where two values that look alike are computed from different ones first."""
    start = a
    while a is not b and (a.head, a.result, a.factors, len(a.operands)) == (
        b.head,
        b.result,
        b.factors,
        len(b.operands),
    ):
        pairs = [(x, y) for x, y in zip(a.operands, b.operands, strict=True) if x is not y]
        if not pairs:
            break
        a, b = pairs[0]
    return "" if a is start or a is b else f": of {a} and of {b}"


def reduced(reduction: Reduction, values: Sequence[Shard]) -> Shard:
    """The reduction of shards: addends of one value, at the same indices."""
    if reduction is Reduction.MEAN:
        return scaled(reduced(Reduction.SUM, values), Fraction(1, len(values)))
    if reduction is not Reduction.SUM and any(value.is_zero for value in values):
        raise Mismatch(f"zeros are combined by {reduction}")
    addends = [value for value in values if not value.is_zero]
    if not addends:
        return values[0]
    first = addends[0]
    term, places = first.term, first.indices
    bases = frozenset[Base]().union(*[value.bases for value in addends])
    for value in addends[1:]:
        common = [agreed(a, b) for a, b in zip(places, value.indices, strict=True)]
        places = tuple([each for each in common if each is not None])
        if len(places) != len(common):
            raise Mismatch(f"other parts are combined than those of the first: {first} and {value}", bases)
        found = taken_as_one(term, value.term)
        if found is None:
            raise Mismatch(f"addends of two values are combined: {first} and {value}{_apart(term, value.term)}", bases)
        term = found
    if reduction in (Reduction.MAX, Reduction.MIN) and all(value.addend is None for value in addends):
        return shard(term, places)
    try:
        return shard(term, places, weights.total(reduction, tuple([value.addend for value in addends])))
    except Mismatch as mismatch:
        raise Mismatch(mismatch.reason, mismatch.bases or bases) from None


def scaled(value: Shard, by: Fraction) -> Shard:
    """A shard times a number."""
    return value if value.is_zero else shard(value.term, value.indices, weights.weighted(value.addend, by))
