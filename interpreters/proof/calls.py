"""Abstracts the arguments of a call, so that calls for other rows (of another microbatch, of another replica) and
for another layer's weights are one. In: the values of a call's operands. Out: values with opaque terms, index sets
and weights, and the meaning of each opaque one.

What the function was found to need stays, or is told by half (`Told`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from distir.interpreters.proof import weights
from distir.interpreters.proof.indices import Base, Indices, Mismatch, full
from distir.interpreters.proof.terms import replayed
from distir.interpreters.proof.values import Shard, Term, Value, argument, is_hole, mapped, shard
from distir.interpreters.proof.weights import Addend, Leaf, Symbol, Weights

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
class Abstraction:
    """What opaque bases, symbols and terms of one call stand for."""

    arguments: tuple[Value, ...] = ()
    """As the function sees them."""
    bases: dict[Base, Indices] = field(default_factory=dict[Base, Indices])
    symbols: dict[Symbol, Weights] = field(default_factory=dict[Symbol, Weights])
    terms: dict[Term, Term] = field(default_factory=dict[Term, Term])
    """The number of each is its place."""
    _shards: dict[Shard, Shard] = field(default_factory=dict[Shard, Shard])
    _addends: dict[Addend, Addend | None] = field(default_factory=dict[Addend, "Addend | None"])
    _indices: dict[tuple[Indices, ...], tuple[Indices, ...]] = field(default_factory=dict[Any, Any])

    def places_of(self, needed: Collection[Base | Symbol]) -> set[Place]:
        """Where the arguments have these; none for those of a caller."""
        own = {each for each in needed if each in self.bases or each in self.symbols}
        places = dict[Any, list[Place]]()
        found = set[Any]()
        for number, value in enumerate(_flat(self.arguments)) if own else ():
            for d, indices in enumerate(value.indices):
                places.setdefault((value.term, d), []).append((number, d))
                if indices.bases & own:
                    found.add((value.term, d))
            for k, leaf in enumerate(value.addend.leaves if value.addend is not None else ()):
                places.setdefault((value.term, leaf.path, leaf.axes), []).append((number, -1 - k))
                if any(symbol in own for symbol, _ in leaf.weights.symbols):
                    found.add((value.term, leaf.path, leaf.axes))
        return {place for key in found for place in places[key]}

    def restored(self, results: Sequence[Value], known: dict[Term, Term]) -> tuple[Value, ...]:
        """Results of the function, with what the call's bases, symbols and terms are; `known` are terms of these arguments."""

        def change(each: Shard) -> Shard:
            if (found := self._shards.get(each)) is None:
                found = self._shards[each] = self._restored(each, known)
            return found

        return mapped(results, change) if self.bases or self.symbols or self.terms else tuple(results)

    def _restored(self, value: Shard, known: dict[Term, Term]) -> Shard:
        term, addend, indices = value.term, value.addend, value.indices
        if self.terms and term.is_open:
            term = known[term] if term in known else replayed(term, known)
        if addend is not None:
            if addend not in self._addends:
                self._addends[addend] = weights.substituted(addend, self.bases, self.symbols)
            addend = self._addends[addend]
        if self.bases:
            if indices not in self._indices:
                self._indices[indices] = tuple([i.substituted(self.bases) for i in indices])
            indices = self._indices[indices]
        return shard(term, indices, addend)


def abstracted(arguments: Sequence[Value], told: Told, hides_terms: bool) -> Abstraction:
    """The arguments with opaque index sets and weights, but for what the function is told of them; with `hides_terms`, with opaque terms
    too."""
    flat = _flat(arguments)
    rows, sums, related = set[Any](), set[Any](), set[Any]()
    for number, dim in told.places:
        if number < len(flat):  # what is unknown is not among them
            _add_known(flat[number], dim, rows, sums)
    for number, dim in told.nested if len(told.nested) > 1 else ():
        if number < len(flat):
            _add_known(flat[number], dim, related, set())
    outer = sorted(related - rows, key=lambda each: (each[1], str(each[0])))
    found = Abstraction()
    level = 1 + max((value.level for value in flat), default=0)
    opaque: dict[Any, Base] = {}
    summed: dict[Any, Symbol] = {}
    hidden: dict[Term, Term] = {}
    sets: dict[tuple[tuple[Indices, ...], tuple[int, ...]], tuple[Indices, ...]] = {}
    addends: dict[Addend, Addend | None] = {}
    shards: dict[Shard, Shard] = {}

    def of_indices(indices: Indices, extent: int) -> Indices:
        minimal = _minimal(indices, extent)
        if minimal is None or minimal[0] in rows:
            return indices
        own, block = minimal
        within = ((each, parts) for each in outer if own in related and (parts := _parts_of(own, each)))
        of, parts = next(within, (own, [(0, own[0].size)]))
        if (base := opaque.get(of)) is None:
            base = opaque[of] = _base(level, len(opaque), of[0].size, of[1])
            found.bases[base] = of[0]
        return Indices.of((base, own[1] // of[1], 0, start, stop) for start, stop in parts).scaled(block)

    def of_leaf(leaf: Leaf) -> Leaf:
        key = leaf.weights, leaf.axes
        if key in sums:
            return leaf
        if (symbol := summed.get(key)) is None:
            symbol = summed[key] = _symbol(level, len(summed))
            found.symbols[symbol] = leaf.weights
        nothing = weights.region(NOTHING, weights.ONE) if leaf.axes else weights.ONE * 0
        return Leaf(leaf.path, leaf.axes, Weights(nothing, ((symbol, weights.ONE),)))

    def of_term(term: Term) -> Term:
        if not hides_terms or term.array is not None or is_hole(term):
            return term
        if (new := hidden.get(term)) is None:
            new = hidden[term] = argument(len(hidden), term.kind)
        return new

    def change(value: Shard) -> Shard:
        if (new := shards.get(value)) is not None:
            return new
        indices, addend = value.indices, value.addend
        if not value.is_zero:
            key = indices, value.term.kind.shape or ()
            if key not in sets:
                sets[key] = tuple([of_indices(*each) for each in zip(*key, strict=True)])
            indices = sets[key]
        if addend is not None:
            if addend not in addends:
                addends[addend] = weights.addend(addend.reduction, map(of_leaf, addend.leaves))
            addend = addends[addend]
        new = shards[value] = shard(of_term(value.term), indices, addend)
        return new

    found.arguments = mapped(arguments, change)
    found.terms = {new: term for term, new in hidden.items()}
    return found


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


def _flat(values: Sequence[Value]) -> list[Shard]:
    return [each for value in values for each in value.shards]


def _add_known(value: Shard, dim: int, rows: set[Any], sums: set[Any]) -> None:
    """What stands at a place that the function needs to know."""
    if value.is_zero:
        return
    shape = value.term.kind.shape or ()
    leaves = () if value.addend is None else value.addend.leaves
    if 0 <= dim < len(shape) and (minimal := _minimal(value.indices[dim], shape[dim])) is not None:
        rows.add(minimal[0])
    elif dim < 0 and -1 - dim < len(leaves):
        sums.add((leaves[-1 - dim].weights, leaves[-1 - dim].axes))


def forget() -> None:
    """Drops what is interned."""
    for known in (_base, _symbol, _minimal):
        known.cache_clear()
