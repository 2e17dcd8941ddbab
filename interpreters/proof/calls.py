"""Arguments of a call as its function need not know them. In: the values of a call's operands. Out: values in which index sets and weights
are opaque, so that calls for other rows (of another microbatch, of another replica) are one; and what the opaque ones stand for.

What differs between devices stays as it is, as does what the function was found to need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from distir.interpreters.proof import weights
from distir.interpreters.proof.indices import Base, Indices, Mismatch, full
from distir.interpreters.proof.values import Inside, LocalIndex, Outside, Packed, Shard, packed, shard
from distir.interpreters.proof.weights import Leaf, Symbol, Weights

Place = tuple[int, int]
"""The number of an operand's tensor, and its dim; -1 - leaf for weights."""


@cache
def _base(level: int, number: int, size: int, extent: int) -> Base:
    return Base(f"rows{number}" + ("'" * (level - 1)), size, extent, level)


@cache
def _symbol(level: int, number: int) -> Symbol:
    return Symbol(f"sum{number}", level)


@cache
def _minimal(indices: Indices, extent: int) -> tuple[Indices, int, int] | None:
    if indices is full(extent) or indices.is_special:
        return None
    try:
        return indices.minimal(extent)
    except Mismatch:
        return None


@dataclass
class Abstraction:
    """What opaque bases and symbols of one call stand for."""

    bases: dict[Base, Indices] = field(default_factory=dict[Base, Indices])
    symbols: dict[Symbol, Weights] = field(default_factory=dict[Symbol, Weights])
    places: dict[Base | Symbol, list[Place]] = field(default_factory=dict[Any, list[Place]])
    _inverse: dict[Shard, Shard] = field(default_factory=dict[Shard, Shard])

    def restored(self, value: Any) -> Any:
        """A result of the function, with what the call's bases and symbols are."""
        if not self.bases and not self.symbols:
            return value
        match value:
            case Shard():
                if (found := self._inverse.get(value)) is None:
                    found = self._inverse[value] = self._restored(value)
                return found
            case Packed(elements):
                return packed(tuple([self.restored(each) for each in elements]))
            case LocalIndex(indices, positions, ignored):
                return LocalIndex(self.restored(indices), positions, ignored)
            case Inside(inner, indices, positions, dims):
                return Inside(self.restored(inner), self.restored(indices), positions, dims)
            case Outside(inner, indices, positions, dims, other):
                return Outside(
                    self.restored(inner),
                    self.restored(indices),
                    positions,
                    dims,
                    None if other is None else self.restored(other),
                )
            case _:
                return value

    def _restored(self, value: Shard) -> Shard:
        addend = value.addend and weights.substituted(value.addend, self.bases, self.symbols)
        return shard(value.term, tuple([i.substituted(self.bases) for i in value.indices]), addend)


def abstracted(arguments: Sequence[Any], known: set[Place]) -> tuple[tuple[Any, ...], Abstraction]:
    """The arguments with opaque index sets and weights, but at the places that the function needs to know."""
    flat = [s for argument in arguments for s in _flat(argument)]
    found = Abstraction()
    rows, sums = _differing(flat, known)
    level = 1 + max((base.level for s in flat for base in s.bases), default=0)
    level = max(level, 1 + max((symbol.level for s in flat for symbol in s.symbols), default=0))
    opaque: dict[Any, Base] = {}
    summed: dict[Any, Symbol] = {}

    def of_indices(indices: Indices, extent: int, place: Place) -> Indices:
        minimal = _minimal(indices, extent)
        if minimal is None or minimal[:2] in rows:
            return indices
        blocks, count, block = minimal
        if (base := opaque.get(minimal[:2])) is None:
            base = opaque[minimal[:2]] = _base(level, len(opaque), blocks.size, count)
            found.bases[base] = blocks
        found.places.setdefault(base, []).append(place)
        return Indices.of([(base, 1, 0, 0, blocks.size)]).scaled(block)

    def of_leaf(leaf: Leaf, place: Place) -> Leaf:
        key = leaf.weights, leaf.axes
        if key in sums:
            return leaf
        if (symbol := summed.get(key)) is None:
            symbol = summed[key] = _symbol(level, len(summed))
            found.symbols[symbol] = leaf.weights
        found.places.setdefault(symbol, []).append(place)
        nothing = weights.region(special_nothing(), weights.ONE) if leaf.axes else weights.ONE * 0
        return Leaf(leaf.path, leaf.axes, Weights(nothing, ((symbol, weights.ONE),)))

    abstract: dict[Shard, Shard] = {}

    def of(value: Shard, number: int) -> Shard:
        if value in abstract:
            return abstract[value]
        shape = value.term.kind.shape or ()
        indices = value.indices
        if not value.is_zero:
            indices = tuple(
                [of_indices(i, n, (number, d)) for d, (i, n) in enumerate(zip(indices, shape, strict=True))]
            )
        addend = value.addend
        if addend is not None:
            leaves = [of_leaf(leaf, (number, -1 - k)) for k, leaf in enumerate(addend.leaves)]
            addend = weights.addend(addend.reduction, leaves)
        new = abstract[value] = shard(value.term, indices, addend)
        return new

    numbers = iter(range(len(flat)))

    def rebuilt(value: Any) -> Any:
        match value:
            case Shard():
                return of(value, next(numbers))
            case Packed(elements):
                return packed(tuple([rebuilt(each) for each in elements]))
            case _:
                for _ in _flat(value):
                    next(numbers)
                return value

    return tuple([rebuilt(argument) for argument in arguments]), found


def special_nothing() -> Indices:
    """No index."""
    return Indices.of([])


def _flat(value: Any) -> Iterable[Shard]:
    match value:
        case Shard():
            return (value,)
        case Packed(elements):
            return [s for each in elements for s in _flat(each)]
        case _:
            return ()


def _differing(flat: Sequence[Shard], known: set[Place]) -> tuple[set[Any], set[Any]]:
    """Index sets and weights that differ between the shards of one value, which may have to be put together, and those at the places
    that the function needs to know."""
    rows: set[Any] = set()
    sums: set[Any] = set()
    first: dict[Any, Any] = {}
    for number, value in enumerate(flat):
        if value.is_zero:
            continue
        for d, (indices, extent) in enumerate(zip(value.indices, value.term.kind.shape or (), strict=True)):
            minimal = _minimal(indices, extent)
            if minimal is None:
                continue
            other = first.setdefault((value.term, d), minimal[:2])
            if other != minimal[:2]:
                rows |= {other, minimal[:2]}
            if (number, d) in known:
                rows.add(minimal[:2])
        for k, leaf in enumerate(value.addend.leaves if value.addend is not None else ()):
            weight = leaf.weights, leaf.axes
            other = first.setdefault((value.term, leaf.path, leaf.axes), weight)
            if other != weight:
                sums |= {other, weight}
            if (number, -1 - k) in known:
                sums.add(weight)
    return rows, sums
