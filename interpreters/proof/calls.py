"""Abstracts the arguments of a call, so that calls for other rows (of another microbatch, of another replica) and
for another layer's weights are one. In: the values of a call's operands. Out: values with opaque terms, index sets
and weights, and the meaning of each opaque one.

What the function was found to need stays, or is told by half (`Told`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from distir.interpreters.proof import weights
from distir.interpreters.proof.changes import Change
from distir.interpreters.proof.indices import Base, Indices, Mismatch, full
from distir.interpreters.proof.terms import Library, replayed
from distir.interpreters.proof.values import (
    Kind,
    Packed,
    Term,
    Value,
    argument,
    is_hole,
    level_of,
)
from distir.interpreters.proof.weights import Addend, Leaf, Symbol, Weights

Entry = tuple[Term, tuple[Indices, ...], "Addend | None"]
"""The term, index sets and addend of a shard."""

Place = tuple[int, int]
"""The number of an operand's shard, and its dim; -1 - leaf for weights."""

NOTHING = Indices.of([])


class Told(NamedTuple):
    """What a function is told of its arguments."""

    places: frozenset[Place]
    """Whose index sets and weights it knows."""
    nested: frozenset[Place]
    """Of whose index sets it knows which part of another one they are: the rows of a replica, of those of a microbatch."""
    terms: bool
    """Whether it knows which values they are."""


NOTHING_TOLD = Told(frozenset(), frozenset(), False)


class NeedsToKnow(Exception):
    """A function needs the content of index sets or weights that it was not told, or which values its arguments are."""

    def __init__(self, needed: Collection[Base | Symbol] = (), is_named: bool = False):
        super().__init__(f"{len(needed)} index sets")
        self.needed = needed
        """None: which values they are."""
        self.is_named = is_named
        """Whether what does not follow names them; otherwise they are all that its operands have, and knowing the values might do."""


@cache
def _base(level: int, number: int, size: int, extent: int) -> Base:
    return Base(f"rows{number}" + ("'" * (level - 1)), size, extent, level)


@cache
def _symbol(level: int, number: int) -> Symbol:
    return Symbol(f"sum{number}", level)


@cache
def _minimal(indices: Indices, extent: int) -> tuple[tuple[Indices, int], int] | None:
    """The indices of blocks and how many there are, and the size of a block; None where nothing is to be hidden."""
    if indices is full(extent) or indices.is_special:
        return None
    try:
        blocks, count, block = indices.minimal(extent)
    except Mismatch:
        return None
    return (blocks, count), block


@dataclass
class Replay:
    """What terms of a function are in calls of the same arguments."""

    terms: dict[Term, Term]
    library: Library
    columns: dict[tuple[Term, ...], tuple[Term, ...]] = field(default_factory=dict[Any, Any])

    def of(self, term: Term) -> Term:
        """The term of the caller."""
        if not term.is_open:
            return term
        return self.terms[term] if term in self.terms else replayed(term, self.terms, self.library)

    def column(self, terms: tuple[Term, ...]) -> tuple[Term, ...]:
        """The same of several."""
        if (found := self.columns.get(terms)) is None:
            found = self.columns[terms] = tuple(map(self.of, terms))
        return found


@dataclass
class Abstraction:
    """What opaque bases, symbols and terms of one call stand for."""

    arguments: tuple[Value, ...] = ()
    """The arguments as the function sees them."""
    bases: dict[Base, Indices] = field(default_factory=dict[Base, Indices])
    symbols: dict[Symbol, Weights] = field(default_factory=dict[Symbol, Weights])
    terms: dict[Term, Term] = field(default_factory=dict[Term, Term])
    """The number of each is its place."""

    def places_of(self, needed: Collection[Base | Symbol]) -> set[Place]:
        """Where the arguments have these; none for those of a caller."""
        own = {each for each in needed if each in self.bases or each in self.symbols}
        places = dict[Any, list[Place]]()
        found = set[Any]()
        for number, (term, sets, addend) in enumerate(_entries(self.arguments)) if own else ():
            for d, indices in enumerate(sets):
                places.setdefault((term, d), []).append((number, d))
                if indices.bases & own:
                    found.add((term, d))
            for k, leaf in enumerate(addend.leaves if addend is not None else ()):
                places.setdefault((term, leaf.path, leaf.axes), []).append((number, -1 - k))
                if any(symbol in own for symbol, _ in leaf.weights.symbols):
                    found.add((term, leaf.path, leaf.axes))
        return {place for key in found for place in places[key]}

    def restored(self, results: Sequence[Value], replay: Replay) -> tuple[Value, ...]:
        """Results of the function, with what the call's bases, symbols and terms are."""
        if not (self.bases or self.symbols or self.terms):
            return tuple(results)
        return tuple(map(_Restoring(self, replay).value, results))


class _Restoring(Change):
    """Of a function's results, what they are where it is called."""

    def __init__(self, abstraction: Abstraction, replay: Replay):
        super().__init__()
        self.bases, self.symbols = abstraction.bases, abstraction.symbols
        if abstraction.terms:  # otherwise an open term is the caller's
            self.term, self.term_column = replay.of, replay.column

    def indices(self, indices: tuple[Indices, ...], kind: Kind) -> tuple[Indices, ...]:
        return tuple([i.substituted(self.bases) for i in indices]) if self.bases else indices

    def addend(self, addend: Addend) -> Addend | None:
        return weights.substituted(addend, self.bases, self.symbols)


class _Hiding(Change):
    """Opaque index sets, weights and terms for those of arguments."""

    def __init__(self, told: _Content, level: int, hides_terms: bool):
        super().__init__()
        self.told, self.level, self.hides_terms = told, level, hides_terms
        self.outer = sorted(told.related - told.rows, key=lambda each: (each[1], str(each[0])))
        self.opaque: dict[Any, Base] = {}
        self.summed: dict[Any, Symbol] = {}
        self.hidden: dict[Term, Term] = {}
        self.found = Abstraction()

    def indices(self, indices: tuple[Indices, ...], kind: Kind) -> tuple[Indices, ...]:
        return tuple(map(self._of_dim, indices, kind.shape)) if kind.shape else indices  # zeros have those of no dims

    def _of_dim(self, indices: Indices, extent: int) -> Indices:
        minimal = _minimal(indices, extent)
        if minimal is None or minimal[0] in self.told.rows:
            return indices
        own, block = minimal
        related = own in self.told.related
        within = ((each, parts) for each in self.outer if related and (parts := _parts_of(own, each)))
        of, parts = next(within, (own, [(0, own[0].size)]))
        if (base := self.opaque.get(of)) is None:
            base = self.opaque[of] = _base(self.level, len(self.opaque), of[0].size, of[1])
            self.found.bases[base] = of[0]
        return Indices.of((base, own[1] // of[1], 0, start, stop) for start, stop in parts).scaled(block)

    def addend(self, addend: Addend) -> Addend | None:
        return weights.addend(addend.reduction, map(self._of_leaf, addend.leaves))

    def _of_leaf(self, leaf: Leaf) -> Leaf:
        key = leaf.weights, leaf.axes
        if key in self.told.sums:
            return leaf
        if (symbol := self.summed.get(key)) is None:
            symbol = self.summed[key] = _symbol(self.level, len(self.summed))
            self.found.symbols[symbol] = leaf.weights
        nothing = weights.region(NOTHING, weights.ONE) if leaf.axes else weights.ONE * 0
        return Leaf(leaf.path, leaf.axes, Weights(nothing, ((symbol, weights.ONE),)))

    def term(self, term: Term) -> Term:
        if not self.hides_terms or term.array is not None or is_hole(term):
            return term
        if (new := self.hidden.get(term)) is None:
            new = self.hidden[term] = argument(len(self.hidden), term.kind)
            self.found.terms[new] = term
        return new


@dataclass
class _Content:
    """What a function is told: index sets that it knows, those of which it knows what part of another they are, and weights."""

    rows: set[Any] = field(default_factory=set[Any])
    related: set[Any] = field(default_factory=set[Any])
    sums: set[Any] = field(default_factory=set[Any])

    @staticmethod
    def of(arguments: Sequence[Value], told: Told) -> _Content:
        """What arguments have at the places that are told."""
        found, nested = _Content(), told.nested if len(told.nested) > 1 else frozenset[Place]()
        entries = list(_entries(arguments)) if told.places or nested else []
        for number, dim in told.places:
            if number < len(entries):  # what is unknown is not among them
                _add_known(entries[number], dim, found.rows, found.sums)
        for number, dim in nested:
            if number < len(entries):
                _add_known(entries[number], dim, found.related, set())
        return found


def abstracted(arguments: Sequence[Value], told: Told, hides_terms: bool) -> Abstraction:
    """The arguments with opaque index sets and weights, but for what the function is told of them; with `hides_terms`, with opaque terms
    too."""
    change = _Hiding(_Content.of(arguments, told), 1 + max(map(level_of, arguments), default=0), hides_terms)
    change.found.arguments = tuple(map(change.value, arguments))
    return change.found


def _parts_of(inner: tuple[Indices, int], outer: tuple[Indices, int]) -> list[tuple[int, int]]:
    """Which entries of fewer and larger blocks of a dim these blocks are; none if some are not among them."""
    (blocks, count), (larger, fewer) = inner, outer
    if count <= fewer or count % fewer:
        return []
    position, entries = 0, dict[Any, tuple[int, int, int]]()
    for *key, start, stop in larger.scaled(count // fewer).segments:
        entries[tuple(key)] = position, start, stop
        position += stop - start
    parts: list[tuple[int, int]] = []
    for *key, start, stop in blocks.segments:
        position, first, last = entries.get(tuple(key), (0, 0, 0))
        if not first <= start < stop <= last:
            return []
        parts.append((position + start - first, position + stop - first))
    return parts


def _entries(values: Sequence[Value]) -> Iterator[Entry]:
    """All shards that values are made of."""
    for value in values:
        if isinstance(value, Packed) and value.columns is not None:
            yield from zip(*value.columns, strict=True)
        else:
            yield from ((each.term, each.indices, each.addend) for each in value.shards)


def _add_known(entry: Entry, dim: int, rows: set[Any], sums: set[Any]) -> None:
    """What stands at a place that the function needs to know."""
    term, indices, addend = entry
    if is_hole(term):
        return
    shape = term.kind.shape or ()
    leaves = () if addend is None else addend.leaves
    if 0 <= dim < len(shape) and (minimal := _minimal(indices[dim], shape[dim])) is not None:
        rows.add(minimal[0])
    elif dim < 0 and -1 - dim < len(leaves):
        sums.add((leaves[-1 - dim].weights, leaves[-1 - dim].axes))


def forget() -> None:
    """Drops what is interned."""
    for known in (_base, _symbol, _minimal):
        known.cache_clear()
