"""The sharding state of one value along one mesh axis: replicated, sharded, windowed or partial. In go a state, a
shard's number and the count of shards; out comes the shard's range of a dim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import overload

from distir.dialects.reductions import Reduction


@dataclass(frozen=True)
class Replicated:
    """Every shard holds the whole value."""


LISTED = 1024
"""Of longer lists of pieces only a period is written."""


@dataclass(frozen=True)
class Repeated(Sequence[int]):
    """A long list of pieces: the shortest period, and how often it comes (`repeated`)."""

    period: tuple[int, ...]
    times: int

    def __len__(self) -> int:
        return len(self.period) * self.times

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(repeat(self.period, self.times))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.period[range(len(self))[index] % len(self.period)]


Pieces = tuple[int, ...] | Repeated
"""The extents of the segments of a dim."""


def repeated(pieces: Pieces, times: int) -> Pieces:
    """These pieces so often; equal lists are equal."""
    if isinstance(pieces, Repeated):
        pieces, times = pieces.period, pieces.times * times
    if len(pieces) * times <= LISTED:
        return pieces * times
    shortest = next(
        n for n in range(1, len(pieces) + 1) if len(pieces) % n == 0 and pieces == pieces[:n] * (len(pieces) // n)
    )
    return Repeated(pieces[:shortest], times * len(pieces) // shortest)


def different(pieces: Pieces) -> tuple[int, ...]:
    """Every extent that is among the pieces, at least once."""
    return pieces.period if isinstance(pieces, Repeated) else pieces


def extent_of(pieces: Pieces) -> int:
    """How long all pieces are together."""
    return sum(different(pieces)) * (pieces.times if isinstance(pieces, Repeated) else 1)


def mapped(pieces: Pieces, change: Callable[[int], int]) -> Pieces:
    """Each piece changed."""
    times = pieces.times if isinstance(pieces, Repeated) else 1
    return repeated(tuple([change(piece) for piece in different(pieces)]), times)


@dataclass(frozen=True)
class Sharded:
    """Dim `dim` is a sequence of pieces, each cut as evenly as its blocks allow; shard i holds the i-th part of every piece.

    Where the shards cannot be even, those in the middle have one block more than the others."""

    dim: int
    pieces: Pieces
    blocks: Pieces = ()
    """Of how many equal blocks each piece is, none of which is cut; empty: of its elements."""

    @cached_property
    def _hash(self) -> int:
        return hash((self.dim, self.pieces, self.blocks))

    def __hash__(self) -> int:
        """Computed once: there may be many pieces."""
        return self._hash

    @property
    def counts(self) -> Pieces:
        """How many blocks each piece has."""
        return self.blocks or self.pieces

    def is_even(self, shards: int) -> bool:
        """Whether so many shards have equal extents."""
        return all(count % shards == 0 for count in different(self.counts))


def begins(count: int, shards: int) -> tuple[int, ...]:
    """The shards from which on shards of so many blocks have one more than those before, or one less."""
    more = count % shards
    first = shards // 2 - max(0, more - 1) // 2
    return tuple(shard for shard in (first, first + more) if more and shard < shards)


def share(count: int, shard: int, shards: int) -> tuple[int, int]:
    """The half-open range that one shard has of so many blocks: as many as the others, or one more. Those in the middle have one more,
    so that the shard in the middle is the largest of any dim (where windows overlap, it also has the widest margins)."""
    each, more = divmod(count, shards)
    first = shards // 2 - max(0, more - 1) // 2

    def start(shard: int) -> int:
        return shard * each + min(max(shard - first, 0), more)

    return start(shard), start(shard + 1)


@dataclass(frozen=True)
class Anchor:
    """A dim each of whose rows is for one shard to get right: of a result, which shards make part by part, or of an operand that
    each shard has some rows of, and zeros around them.

    It has `stride` rows for every step of the operation. Of the rows `[stride * low, stride * high)` of a shard that runs the steps
    `[low, high)`, the first `before` and the last `after` may feel that the shard's part of the operands ends; at the ends of the
    dim, none does."""

    extent: int
    stride: int
    before: int
    after: int

    def steps(self, first: int, last: int) -> tuple[int, int]:
        """The steps that a shard must run, at least, which is to get these rows right."""
        return (first - self.before) // self.stride, -((-last - self.after) // self.stride)


@dataclass(frozen=True)
class Steps:
    """How shards share `count` steps of an operation: each runs those that its rows of the anchors need, so that shards overlap."""

    count: int
    anchors: tuple[Anchor, ...]
    """Those of results stand in the order of the results."""

    def run(self, shard: int, shards: int) -> tuple[int, int]:
        """The half-open range of steps that one shard runs."""
        return self.covering([share(anchor.extent, shard, shards) for anchor in self.anchors])

    def covering(self, rows: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Those that a shard runs which has these rows of the anchors."""
        needed = [anchor.steps(*each) for anchor, each in zip(self.anchors, rows, strict=True)]
        low, high = min(low for low, _ in needed), max(high for _, high in needed)
        return max(0, min(low, self.count - 1)), max(1, min(high, self.count))

    def rows(self, extent: int, stride: int, shard: int, shards: int) -> tuple[int, int]:
        """What the shard has of a dim that goes with them, of so many rows for every step."""
        low, high = self.run(shard, shards)
        return stride * low, extent - stride * (self.count - high)


@dataclass(frozen=True)
class Windowed:
    """What shards that overlap read of dim `dim` for their steps: `stride` rows for each, and what the dim has more than all steps.
    Rows beyond a shard's own are those of other shards or, if `filled`, zeros. Only operands are windowed."""

    dim: int
    extent: int
    stride: int
    steps: Steps
    filled: bool = False

    @cached_property
    def _hash(self) -> int:
        return hash((self.dim, self.extent, self.stride, self.steps, self.filled))

    def __hash__(self) -> int:
        """Computed once, as of `Sharded`."""
        return self._hash

    @property
    def base(self) -> Sharded:
        """The dim in parts that do not overlap, from which the others are one exchange away."""
        return Sharded(self.dim, (self.extent,))

    @property
    def beyond(self) -> int:
        """About how many rows a shard reads beside its own."""
        return self.stride + max(self.stride * (a.before + a.after) // a.stride for a in self.steps.anchors)

    def range(self, shard: int, shards: int) -> tuple[int, int]:
        """What one shard reads of the dim."""
        return self.steps.rows(self.extent, self.stride, shard, shards)


@dataclass(frozen=True)
class Partial:
    """Every shard holds an addend of the whole shape; the reduction of all is the value."""

    reduction: Reduction


State = Replicated | Sharded | Windowed | Partial
REPLICATED = Replicated()
