"""What one value is along one mesh axis: replicated, sharded or partial."""

from __future__ import annotations

from dataclasses import dataclass

from distir.dialects.reductions import Reduction


@dataclass(frozen=True)
class Replicated:
    """Every shard holds the whole value."""


@dataclass(frozen=True)
class Sharded:
    """Dim `dim` is a sequence of pieces, each cut as evenly as its blocks allow; shard i holds the i-th part of every piece.

    Where the shards cannot be even, the first ones have one block more than the others."""

    dim: int
    pieces: tuple[int, ...]
    blocks: tuple[int, ...] = ()
    """Of how many equal blocks each piece is, none of which is cut; empty: of its elements."""

    @property
    def counts(self) -> tuple[int, ...]:
        """How many blocks each piece has."""
        return self.blocks or self.pieces


@dataclass(frozen=True)
class Partial:
    """Every shard holds an addend of the whole shape; the reduction of all is the value."""

    reduction: Reduction


State = Replicated | Sharded | Partial
REPLICATED = Replicated()
