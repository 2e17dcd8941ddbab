"""Reshards of a value along one mesh axis. In go a source and a target state; out come the steps, the collective of
each, and the operations that do them. The search charges for exactly the steps that lowering emits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from distir.dialects.dist import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    ConcatOp,
    ExchangeOp,
    ReduceScatterOp,
    SliceOp,
    ZerosOp,
)
from distir.dialects.dist.checks import replaced
from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Partial, Replicated, Sharded, State, Windowed, share

Insert = Callable[[Operation], object]


def reshard_steps(source: State, target: State) -> list[State]:
    """The states on the way from source (exclusive) to target: one step, or through the replicated value."""
    if source == target:
        return []
    if isinstance(target, Windowed):
        is_part = isinstance(source, Sharded) and source.dim == target.dim and len(source.pieces) == 1
        near = is_part or isinstance(source, Replicated)
        return [target] if near else [*reshard_steps(source, target.base), target]
    direct = (
        isinstance(source, Replicated)
        or isinstance(target, Replicated)
        or (isinstance(source, Partial) and isinstance(target, Sharded))
        or (isinstance(source, Sharded) and isinstance(target, Sharded) and _exchangeable(source, target))
    )
    return [target] if direct else [REPLICATED, target]


def _exchangeable(source: Sharded, target: Sharded) -> bool:
    return source.dim != target.dim and len(source.pieces) == 1 and len(target.pieces) == 1


def collective(source: State, target: State) -> str | None:
    """The collective of one step; None for a local one."""
    match source, target:
        case Partial(), Replicated():
            return "allreduce"
        case Partial(), Sharded():
            return "reducescatter"
        case Sharded(), Replicated():
            return "allgather"
        case Sharded(), Sharded():
            return "alltoall"
        case Sharded(), Windowed():
            return None if target.filled else "exchange"
        case _:
            return None


def convert(
    values: Sequence[SSAValue], source: State, target: State, insert: Insert, only: int | None = None
) -> list[SSAValue]:
    """Emits the conversion of a value held by the members of one group (in axis order); returns the converted values.
    `only` leaves out what other members than this one do on their own, to see what the conversion takes on one device: the
    values returned for them are not theirs then."""
    held = list(values)
    here = source
    for there in reshard_steps(source, target):
        held = _reshard_step(held, here, there, insert, range(len(held)) if only is None else (only,))
        here = there
    return held


def _reshard_step(
    values: list[SSAValue], source: State, target: State, insert: Insert, members: Collection[int]
) -> list[SSAValue]:
    n = len(values)

    def each(values: list[SSAValue], step: Callable[[int, SSAValue], SSAValue]) -> list[SSAValue]:
        return [step(i, v) if i in members else v for i, v in enumerate(values)]

    match source, target:
        case Replicated() | Sharded(), Windowed(filled=True):
            return each(values, lambda i, v: _filled(v, source, target, i, n, insert))
        case Replicated(), Windowed(dim):
            return each(values, lambda i, v: _cut(v, dim, *target.range(i, n), insert))
        case Sharded(), Windowed():
            return exchange(values, source, target, insert)
        case Replicated(), Sharded():
            return each(values, lambda i, v: take_shard(v, target, i, n, insert))
        case Replicated(), Partial(Reduction.SUM):
            return each(values, lambda i, v: _add(ZerosOp.create(result_types=[v.type]), insert) if i else v)
        case Replicated(), Partial(Reduction.MAX | Reduction.MIN):
            return values
        case Replicated(), Partial(reduction):
            raise DistirError(f"a whole value cannot be made partial {reduction}: only partial sum, max and min can")
        case Partial(reduction), Replicated():
            return _add_all(AllReduceOp(values, reduction), insert)
        case Partial(reduction), Sharded(dim):
            ordered = each(values, lambda i, v: _in_shard_order(v, target, n, insert))
            types = _with_extents(ordered, dim, [shard_extent(target, i, n) for i in range(n)])
            return _add_all(ReduceScatterOp(ordered, dim, types, reduction), insert)
        case Sharded(dim, pieces), Replicated():
            types = _with_extents(values, dim, [sum(pieces)] * n)
            gathered = _add_all(AllGatherOp(values, dim, types), insert)
            return each(gathered, lambda i, v: _in_piece_order(v, source, n, insert))
        case Sharded(concat, pieces), Sharded(split):
            shape = cast(TensorType[Any], values[0].type).get_shape()
            whole = replaced(shape, concat, sum(pieces))
            types = _with_shapes(values, [replaced(whole, split, shard_extent(target, i, n)) for i in range(n)])
            return _add_all(AllToAllOp(values, split, concat, types), insert)
        case _:
            raise AssertionError(f"no direct step from {source} to {target}")


def _add(op: Operation, insert: Insert) -> SSAValue:
    insert(op)
    return op.results[0]


def _add_all(op: Operation, insert: Insert) -> list[SSAValue]:
    insert(op)
    return list(op.results)


def _with_shape(value: SSAValue, shape: Sequence[int]) -> TensorType[Any]:
    type_ = cast(TensorType[Any], value.type)
    return TensorType(type_.element_type, shape, type_.encoding)


def _with_shapes(values: Sequence[SSAValue], shapes: Sequence[Sequence[int]]) -> list[TensorType[Any]]:
    """The types of values with other shapes: those of like values are one object."""
    made: dict[tuple[int, tuple[int, ...]], TensorType[Any]] = {}
    found: list[TensorType[Any]] = []
    for value, shape in zip(values, shapes, strict=True):
        key = (id(value.type), tuple(shape))
        if key not in made:
            made[key] = _with_shape(value, shape)
        found.append(made[key])
    return found


def _with_extents(values: Sequence[SSAValue], dim: int, extents: Sequence[int]) -> list[TensorType[Any]]:
    """The types of values with other extents of one dim."""
    shape = cast(TensorType[Any], values[0].type).get_shape()
    return _with_shapes(values, [replaced(shape, dim, extent) for extent in extents])


def with_extent(value: SSAValue, dim: int, extent: int) -> TensorType[Any]:
    """The type of a value with another extent of one dim."""
    return _with_shape(value, replaced(cast(TensorType[Any], value.type).get_shape(), dim, extent))


def _cut(value: SSAValue, dim: int, start: int, stop: int, insert: Insert) -> SSAValue:
    shape = cast(TensorType[Any], value.type).get_shape()
    if (start, stop) == (0, shape[dim]):
        return value
    ranges = [(start, stop) if d == dim else (0, extent) for d, extent in enumerate(shape)]
    return _add(SliceOp(value, ranges), insert)


def _join(parts: list[SSAValue], dim: int, insert: Insert) -> SSAValue:
    return parts[0] if len(parts) == 1 else _add(ConcatOp(parts, dim), insert)


def shard_ranges(state: Sharded, shard: int, shards: int) -> list[tuple[int, int]]:
    """The half-open ranges of a dim that one shard holds: its part of every piece; touching ranges are joined."""
    found: list[tuple[int, int]] = []
    for start, stop in _parts(state, shard, shards):
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def _parts(state: Sharded, shard: int, shards: int) -> list[tuple[int, int]]:
    """One shard's range of every piece."""
    found: list[tuple[int, int]] = []
    offset = 0
    for piece, count in zip(state.pieces, state.counts, strict=True):
        first, last = share(count, shard, shards)
        found.append((offset + first * piece // max(count, 1), offset + last * piece // max(count, 1)))
        offset += piece
    return found


def shard_extent(state: Sharded, shard: int, shards: int) -> int:
    """How much of the dim one shard holds."""
    return sum(stop - start for start, stop in _parts(state, shard, shards))


def _filled(
    value: SSAValue, source: Replicated | Sharded, target: Windowed, shard: int, shards: int, insert: Insert
) -> SSAValue:
    """A shard's own rows of the dim, with zeros in the place of the others that its window has."""
    first, last = share(target.extent, shard, shards)
    low, high = target.range(shard, shards)
    held = first if isinstance(source, Sharded) else 0
    start, stop = max(first, low), min(last, high)
    if start >= stop:
        return _add(ZerosOp.create(result_types=[with_extent(value, target.dim, high - low)]), insert)
    zeros = [with_extent(value, target.dim, rows) for rows in (start - low, high - stop)]
    before, after = (
        [_add(ZerosOp.create(result_types=[type_]), insert)] if rows else []
        for type_, rows in zip(zeros, (start - low, high - stop), strict=True)
    )
    own = _cut(value, target.dim, start - held, stop - held, insert)
    return _join([*before, own, *after], target.dim, insert)


def exchange(values: Sequence[SSAValue], source: Sharded, target: Windowed, insert: Insert) -> list[SSAValue]:
    """Every shard's window of the dim; what it lacks comes from those that hold it."""
    n, dim = len(values), target.dim
    windows = [target.range(i, n) for i in range(n)]
    if windows == [range_ for i in range(n) for range_ in shard_ranges(source, i, n)]:
        return list(values)
    types = [with_extent(value, dim, stop - start) for value, (start, stop) in zip(values, windows, strict=True)]
    return _add_all(ExchangeOp(values, dim, [start for start, _ in windows], types), insert)


def take_shard(value: SSAValue, state: Sharded, shard: int, shards: int, insert: Insert) -> SSAValue:
    """One shard of a whole value, locally."""
    ranges = shard_ranges(state, shard, shards)
    return _join([_cut(value, state.dim, start, stop, insert) for start, stop in ranges], state.dim, insert)


def join_shards(values: Sequence[SSAValue], state: Sharded, insert: Insert) -> SSAValue:
    """The whole value of its shards, locally."""
    pieces: list[list[SSAValue]] = [[] for _ in state.pieces]
    for shard, value in enumerate(values):
        offset = 0
        for piece, (start, stop) in zip(pieces, _parts(state, shard, len(values)), strict=True):
            piece.append(_cut(value, state.dim, offset, offset + stop - start, insert))
            offset += stop - start
    return _join([part for piece in pieces for part in piece], state.dim, insert)


def _in_shard_order(value: SSAValue, state: Sharded, n: int, insert: Insert) -> SSAValue:
    """A whole value with the parts of shard 0 first, then those of shard 1, ...: what a reduce-scatter cuts."""
    if len(state.pieces) == 1:
        return value
    ranges = [r for shard in range(n) for r in shard_ranges(state, shard, n)]
    return _join([_cut(value, state.dim, start, stop, insert) for start, stop in ranges], state.dim, insert)


def _in_piece_order(value: SSAValue, state: Sharded, n: int, insert: Insert) -> SSAValue:
    """The inverse: a gathered value whose parts came in shard order, back in the order of the whole."""
    if len(state.pieces) == 1:
        return value
    found: list[list[tuple[int, int]]] = []
    offset = 0
    for shard in range(n):
        found.append([])
        for start, stop in _parts(state, shard, n):
            found[-1].append((offset, offset + stop - start))
            offset += stop - start
    in_order = [r for ranges in zip(*found, strict=True) for r in ranges]
    return _join([_cut(value, state.dim, start, stop, insert) for start, stop in in_order], state.dim, insert)
