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

    Where the shards cannot be even, those in the middle have one block more than the others."""

    dim: int
    pieces: tuple[int, ...]
    blocks: tuple[int, ...] = ()
    """Of how many equal blocks each piece is, none of which is cut; empty: of its elements."""

    @property
    def counts(self) -> tuple[int, ...]:
        """How many blocks each piece has."""
        return self.blocks or self.pieces

    def is_even(self, shards: int) -> bool:
        """Whether so many shards have equal extents."""
        return all(count % shards == 0 for count in self.counts)


@dataclass(frozen=True)
class Windowed:
    """What the shards of a result of `steps` rows read of dim `dim`: parts that overlap. Only operands are windowed.

    A shard that has the rows `[first, last)` computes, beside them, `before` rows to the left and `after` to the right (fewer
    where the result ends), which it discards: they may feel that its part of the dim ends where the dim does not. For the rows
    `[low, high)` that makes it reads `[stride * low, extent - stride * (steps - high))`."""

    dim: int
    extent: int
    steps: int
    stride: int
    before: int
    after: int

    @property
    def base(self) -> Sharded:
        """The dim in parts that do not overlap, from which the others are one exchange away."""
        return Sharded(self.dim, (self.extent,))

    def rows(self, first: int, last: int) -> tuple[int, int]:
        """The rows that a shard computes which is to have these."""
        return max(0, first - self.before), min(self.steps, last + self.after)

    def range(self, first: int, last: int) -> tuple[int, int]:
        """What of the dim it reads for that."""
        low, high = self.rows(first, last)
        return self.stride * low, self.extent - self.stride * (self.steps - high)


@dataclass(frozen=True)
class Partial:
    """Every shard holds an addend of the whole shape; the reduction of all is the value."""

    reduction: Reduction


State = Replicated | Sharded | Windowed | Partial
REPLICATED = Replicated()
