"""What one value is along one mesh axis: replicated, sharded or partial."""

from __future__ import annotations

from dataclasses import dataclass

from distir.dialects.reductions import Reduction


@dataclass(frozen=True)
class Replicated:
    """Every shard holds the whole value."""


@dataclass(frozen=True)
class Sharded:
    """Dim `dim` is a sequence of pieces, each cut evenly over the axis; shard i holds the i-th part of every piece."""

    dim: int
    pieces: tuple[int, ...]


@dataclass(frozen=True)
class Partial:
    """Every shard holds an addend of the whole shape; the reduction of all is the value."""

    reduction: Reduction


State = Replicated | Sharded | Partial
REPLICATED = Replicated()
