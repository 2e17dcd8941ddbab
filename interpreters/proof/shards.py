"""Communication and local operations on shards. In: shards of terms. Out: shards, by the functions of
`distir.interpreters.collectives` over shards instead of arrays, and by the operations before and after a lookup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from distir.dialects.dist.windows import overlaps
from distir.dialects.reductions import Reduction
from distir.interpreters.proof.indices import Mismatch
from distir.interpreters.proof.values import (
    Inside,
    LocalIndex,
    Outside,
    Packed,
    Positions,
    Shard,
    expect_shards,
    joined,
    packed,
    reduced,
    sliced,
)


def reduce(reduction: Reduction, values: Sequence[Any]) -> Shard:
    """The reduction of addends."""
    return reduced(reduction, expect_shards(values))


def concatenate(values: Sequence[Any], axis: int) -> Shard:
    """Parts one after the other."""
    return joined(expect_shards(values), axis)


def by_element(happen: Callable[[int, Sequence[Any]], Sequence[Any]], values: Sequence[Any]) -> list[Any]:
    """What happens to the values; of tuples, to the elements of each place."""
    if not all(isinstance(value, Packed) for value in values):
        return list(happen(0, values))
    columns = [happen(place, c) for place, c in enumerate(zip(*[value.elements for value in values], strict=True))]
    return [packed(tuple(row)) for row in zip(*columns, strict=True)]


def allreduce(reduction: Reduction, values: Sequence[Any]) -> list[Shard]:
    return [reduce(reduction, values)] * len(values)


def allgather(dim: int, values: Sequence[Any]) -> list[Shard]:
    return [concatenate(values, dim)] * len(values)


def taken(value: Shard, dim: int, start: int, stop: int) -> Shard:
    """Entries of one dim."""
    return sliced(value, [(start, stop) if d == dim else (0, i.size) for d, i in enumerate(value.indices)])


def inserted(value: Any, part: Any, dim: int, start: int) -> Shard:
    """A value with this part in place of what it has from `start` on."""
    found, entered = expect_shards([value, part])
    stop, size = start + entered.indices[dim].size, found.indices[dim].size
    around = [(0, start, None), (start, stop, entered), (stop, size, None)]
    return joined([each or taken(found, dim, a, b) for a, b, each in around if a < b], dim)


def scatter(dim: int, value: Any, extents: Sequence[int]) -> list[Shard]:
    """Consecutive parts of these extents; the last has the rest."""
    (whole,) = expect_shards([value])
    ends = [*accumulate(extents[:-1]), whole.indices[dim].size]
    return [taken(whole, dim, start, stop) for start, stop in zip([0, *ends], ends, strict=False)]


def reducescatter(reduction: Reduction, dim: int, values: Sequence[Any], extents: Sequence[int]) -> list[Shard]:
    return scatter(dim, reduce(reduction, values), extents)


def exchange(dim: int, values: Sequence[Any], windows: Sequence[tuple[int, int]]) -> list[Shard]:
    """Ranges of the concatenation: what lies in one part stays an addend, whatever others are."""
    extents = [value.indices[dim].size for value in expect_shards(values)]
    pieces: list[list[Shard]] = [[] for _ in windows]
    for holder, reader, start, stop in overlaps(extents, windows):
        pieces[reader].append(taken(values[holder], dim, start, stop))
    return [concatenate(each, dim) if len(each) > 1 else each[0] for each in pieces]


def alltoall(split: int, concat: int, values: Sequence[Any], extents: Sequence[int]) -> list[Shard]:
    """`extents` are those of the results' dim `split`."""
    if split == concat:
        extents = [extent // len(values) for extent in extents]
    parts = [scatter(split, value, extents) for value in values]
    return [concatenate([part[i] for part in parts], concat) for i in range(len(values))]


def local_index(indices: Any, positions: Positions, ignored: int | None) -> LocalIndex:
    """Indices as a shard counts them that has these positions."""
    (found,) = expect_shards([indices])
    if found.addend is not None or found.is_zero:
        raise Mismatch(f"indices are an addend: {found}", found.bases)
    return LocalIndex(found, positions, ignored)


def inside(value: Any, indices: Any, otherwise: Any, positions: Positions, dims: tuple[int, ...]) -> Shard | Inside:
    """A value where the indices are of these positions: what a lookup gave becomes an addend, another value is masked."""
    (found,) = expect_shards([indices])
    if isinstance(value, Outside):
        if (value.indices, value.positions, value.dims) != (found, positions, dims):
            raise Mismatch(
                "the result of a lookup is masked by other indices or positions than it was looked up with", found.bases
            )
        if value.otherwise is not otherwise:
            raise Mismatch("the result of a lookup is replaced by another value than the operation's own")
        return value.value
    (plain,) = expect_shards([value])
    if otherwise is not None:
        raise Mismatch("a value that was not looked up is replaced outside its positions")
    return Inside(plain, found, positions, dims)


def trimmed(value: Any, ranges: Sequence[tuple[int, int]]) -> Any:
    """A slice; of what a lookup gave, where its indices are sliced alike."""
    if not isinstance(value, Outside):
        return sliced(expect_shards([value])[0], ranges)
    found = sliced(value.value, ranges)
    bounds = [ranges[d] if d >= 0 else (0, i.size) for d, i in zip(value.dims, value.indices.indices, strict=True)]
    otherwise = None if value.otherwise is None else sliced(value.otherwise, ranges)
    return Outside(found, sliced(value.indices, bounds), value.positions, value.dims, otherwise)
