"""Changes of the shards that values are made of. In go values; out come the same with other terms, index sets and addends, each changed once."""

from __future__ import annotations

from typing import Any

from distir.interpreters.proof.indices import Indices
from distir.interpreters.proof.values import Columns, Kind, Packed, Shard, Term, Value, of_columns, packed, shard
from distir.interpreters.proof.weights import Addend


class Change:
    """How shards of values are changed: terms, index sets and addends, each by themselves. What was changed once is remembered."""

    def __init__(self) -> None:
        self._shards: dict[Shard, Shard] = {}
        self._terms: dict[Any, Any] = {}
        self._indices: dict[Any, Any] = {}
        self._addends: dict[Any, Any] = {}

    def term(self, term: Term) -> Term:
        """A term as it is then."""
        return term

    def indices(self, indices: tuple[Indices, ...], kind: Kind) -> tuple[Indices, ...]:
        """Index sets of a term of this kind as they are then."""
        return indices

    def addend(self, addend: Addend) -> Addend | None:
        """An addend as it is then."""
        return addend

    def term_column(self, terms: tuple[Term, ...]) -> tuple[Term, ...]:
        """The terms of a tuple as they are then."""
        if (found := self._terms.get(terms)) is None:
            found = self._terms[terms] = tuple(map(self.term, terms))
        return found

    def value(self, value: Value) -> Value:
        """A value as it is then."""
        if isinstance(value, Shard):
            return self._shard(value)
        if not isinstance(value, Packed):
            return value.mapped(self._shard)
        if value.columns is None:
            return packed(tuple(map(self.value, value.others)))
        return of_columns(self._columns(value.columns))

    def _columns(self, columns: Columns) -> Columns:
        terms, indices, addends = columns
        key = indices, tuple([term.kind for term in terms])
        if (new := self._indices.get(key)) is None:
            new = self._indices[key] = tuple(map(self._index_sets, *key))
        if addends not in self._addends:
            self._addends[addends] = tuple(map(self._addend, addends))
        return self.term_column(terms), new, self._addends[addends]

    def _shard(self, value: Shard) -> Shard:
        if (new := self._shards.get(value)) is None:
            indices, addend = self._index_sets(value.indices, value.term.kind), self._addend(value.addend)
            new = self._shards[value] = shard(self.term(value.term), indices, addend)
        return new

    def _index_sets(self, indices: tuple[Indices, ...], kind: Kind) -> tuple[Indices, ...]:
        if (new := self._indices.get(key := (indices, kind))) is None:
            new = self._indices[key] = self.indices(indices, kind)
        return new

    def _addend(self, addend: Addend | None) -> Addend | None:
        if addend is None:
            return None
        if addend not in self._addends:
            self._addends[addend] = self.addend(addend)
        return self._addends[addend]
