"""Ring attention: keys and values go around the devices in chunks (Liu et al., "Ring Attention with Blockwise
Transformers", 2023). In goes an attention over a group whose keys and values are gathered along an axis; out come
one attention per chunk, and messages that pass each chunk on to the next device. With two pieces, each device has a
piece from the start of the sequence and one from its end, so that a diagonal hides as much on each device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from distir.dialects.attention import AttentionOp, BackwardOp, CombineOp, ForwardOp
from distir.dialects.dist.communication import AllGatherOp, ReduceScatterOp
from distir.dialects.dist.groups import BY_RANK, by_rank, vary
from distir.dialects.dist.local import AccumulateOp, ConcatOp, SliceOp
from distir.dialects.dist.windows import ExchangeOp
from distir.dialects.reductions import Reduction
from distir.interpreters.ranks import Group


@dataclass
class Ring:
    """An attention whose keys and values are gathered along an axis, whose gradients by them, if it makes these, are summed and cut along it. With two
    `pieces`, device i of n computes with the pieces i and 2 n - 1 - i of 2 n, of queries and of the keys that go around."""

    op: AttentionOp
    group: Group
    gathers: tuple[AllGatherOp, AllGatherOp]
    scatters: tuple[ReduceScatterOp | None, ...] = ()
    pieces: int = 1
    """Of the sequence, on each device."""

    @classmethod
    def of(cls, op: Operation, group: Group) -> Ring | None:
        if not isinstance(op, AttentionOp):
            return None
        gathers = op.key.owner, op.value.owner
        if not isinstance(gathers[0], AllGatherOp) or not isinstance(gathers[1], AllGatherOp):
            return None
        found = cls(op, group, (gathers[0], gathers[1]))
        if found.axis is None or gathers[1].axis != found.axis or not all(map(found._is_along_keys, gathers)):
            return None
        if isinstance(op, BackwardOp):
            made = op.key_gradient, op.value_gradient
            if not all(result.first_use is None or found._scatter(result) is not None for result in made):
                return None
            found.scatters = tuple(map(found._scatter, made))
        return found

    @property
    def axis(self) -> str | None:
        return self.gathers[0].axis

    @property
    def size(self) -> int:
        """Devices along the axis."""
        return self.group.sizes[cast(str, self.axis)]

    @property
    def length(self) -> int:
        """Keys of a chunk."""
        return _shape(self.gathers[0].operands[0])[-2]

    def _is_along_keys(self, op: Any) -> bool:
        return isinstance(op.operands[0].type, TensorType) and op.dim.value.data == len(_shape(op.operands[0])) - 2

    def _scatter(self, gradient: SSAValue) -> ReduceScatterOp | None:
        """What sums a gradient and cuts it as keys are, if that is all that uses it."""
        use = gradient.get_user_of_unique_use()
        if not isinstance(use, ReduceScatterOp) or use.axis != self.axis or not self._is_along_keys(use):
            return None
        return use if use.reduction.data is Reduction.SUM else None

    @property
    def zigzag(self) -> Ring | None:
        """The same in two pieces, if a diagonal hides something, shards have halves, and devices along the axis have rows that follow one another."""
        if self.op.diagonal is None or self._rows % 2 or self.length % 2:
            return None
        firsts: dict[tuple[int, ...], int] = {}
        for at in self.group.coordinates():
            others = tuple(i for name, i in at.items() if name != self.axis)
            if firsts.setdefault(others, self._diagonal(at)) != self._diagonal(at):
                return None
        return replace(self, pieces=2)

    def write(self, rewriter: PatternRewriter) -> None:
        """Puts what goes around in the place of the attention."""
        if isinstance(self.op, ForwardOp):
            results = self._forward(rewriter)
        else:
            results = self._backward(rewriter)
        for result, new in zip(self.op.results, results, strict=True):
            new.name_hint = result.name_hint
            if result.first_use is not None:
                result.replace_all_uses_with(new)
        for scatter in self.scatters:
            if scatter is not None:
                scatter.outputs[0].replace_all_uses_with(scatter.operands[0])
                rewriter.erase(scatter)
        rewriter.erase(self.op)
        for gather in dict.fromkeys(self.gathers):
            if gather.outputs[0].first_use is None:
                rewriter.erase(gather)

    def _forward(self, rewriter: PatternRewriter) -> Sequence[SSAValue]:
        queries, results = self._queries(rewriter), [list[SSAValue]() for _ in range(self.pieces)]
        for chunk in self._chunks(rewriter):
            for row, column in product(range(self.pieces), repeat=2):
                own = self._attention(_Block(queries[row], chunk, column), rewriter).results
                results[row] = [*(_insert(CombineOp(results[row], own), rewriter) if results[row] else own)]
        found = [[piece[i] for piece in results] for i in range(len(self.op.results))]
        is_used = [result.first_use is not None for result in self.op.results]
        return [
            self._joined(v, self._dim_of_rows(_shape(v[0])), rewriter) if used else v[0]
            for v, used in zip(found, is_used, strict=True)
        ]

    def _backward(self, rewriter: PatternRewriter) -> Sequence[SSAValue]:
        """Gradients by keys and values go around with the chunk that they are of, one step more than it does."""
        queries, of_query = self._queries(rewriter), dict[int, SSAValue]()
        going = dict[int, SSAValue](), dict[int, SSAValue]()
        for chunk in self._chunks(rewriter):
            self._pass_on(going, rewriter)
            for row, column in product(range(self.pieces), repeat=2):
                by_query, *own = self._attention(_Block(queries[row], chunk, column), rewriter).results
                _add(by_query, of_query, row, rewriter)
                for sums, value in zip(going, own, strict=True):
                    _add(value, sums, column, rewriter)
        self._pass_on(going, rewriter)
        return [self._joined([sums[i] for i in range(self.pieces)], -2, rewriter) for sums in (of_query, *going)]

    def _pass_on(self, going: Sequence[dict[int, SSAValue]], rewriter: PatternRewriter) -> None:
        for sums in going:
            sums.update({i: self._passed(value, rewriter) for i, value in sums.items()})

    @property
    def _rows(self) -> int:
        """Queries of each device."""
        return _shape(self.op.query)[-2]

    def _queries(self, rewriter: PatternRewriter) -> list[_Queries]:
        """The queries of each piece."""
        mask = self.op.mask
        masks = [mask] * self.pieces if mask is None or _shape(mask)[-2] == 1 else self._cut(mask, -2, rewriter)
        by_row = [*self.op.before_keys, *self.op.draw[-2:-1]]
        rows = zip(*(self._cut(v, self._dim_of_rows(_shape(v)), rewriter) for v in by_row), strict=True)
        return [_Queries(i, own, mask) for i, (own, mask) in enumerate(zip(rows, masks, strict=True))]

    def _chunks(self, rewriter: PatternRewriter) -> Iterator[_Chunk]:
        """Those that every device has, one after the other; the next is on its way while one is used."""
        key, value = (gather.operands[0] for gather in self.gathers)
        keys = self._cut(key, -2, rewriter)
        values = keys if value is key else self._cut(value, -2, rewriter)
        for step in range(self.size):
            own = _Chunk(step, keys, values)
            if step + 1 < self.size:
                shared = values is keys
                keys = [self._passed(each, rewriter) for each in keys]
                values = keys if shared else [self._passed(each, rewriter) for each in values]
            yield own

    def _places(self, device: int) -> Sequence[int]:
        """Which pieces of the sequence a device along the axis has."""
        return [device] if self.pieces == 1 else [device, 2 * self.size - 1 - device]

    def _cut(self, value: SSAValue, dim: int, rewriter: PatternRewriter) -> list[SSAValue]:
        """Each of the pieces, of what devices have one after the other."""
        if self.pieces == 1:
            return [value]
        extent = _shape(value)[dim] // self.pieces
        places = [self._places(device) for device in range(self.size)]
        return [
            self._exchanged(value, dim, extent, [own[i] * extent for own in places], rewriter)
            for i in range(self.pieces)
        ]

    def _joined(self, pieces: Sequence[SSAValue], dim: int, rewriter: PatternRewriter) -> SSAValue:
        """What devices have one after the other, of the pieces."""
        if self.pieces == 1:
            return pieces[0]
        extent, held = _shape(pieces[0])[dim], [piece for i in range(self.size) for piece in self._places(i)]
        whole = _concatenated(pieces, dim, rewriter)
        starts = [[held.index(i * self.pieces + n) * extent for i in range(self.size)] for n in range(self.pieces)]
        return _concatenated([self._exchanged(whole, dim, extent, each, rewriter) for each in starts], dim, rewriter)

    def _passed(self, value: SSAValue, rewriter: PatternRewriter) -> SSAValue:
        """What every device gets from the one before it along the axis."""
        extent = _shape(value)[-2]
        return self._exchanged(value, -2, extent, [(i - 1) % self.size * extent for i in range(self.size)], rewriter)

    def _exchanged(
        self, value: SSAValue, dim: int, extent: int, starts: Sequence[int], rewriter: PatternRewriter
    ) -> SSAValue:
        """As long a window as that of each device along the axis, of what all have together."""
        type_, shape = cast(TensorType[Any], value.type), list(_shape(value))
        shape[dim] = extent
        result = TensorType(type_.element_type, shape, type_.encoding)
        exchange = ExchangeOp([value], dim % len(shape), starts, [result])
        exchange.properties["over"] = StringAttr(cast(str, self.axis))
        (passed,) = _insert(exchange, rewriter)
        passed.name_hint = value.name_hint
        return passed

    def _attention(self, block: _Block, rewriter: PatternRewriter) -> Operation:
        """The operation for some queries and some keys."""
        queries, key, value = block.queries, block.key, block.value
        masks = () if queries.mask is None else (self._of_keys(queries.mask, block, rewriter),)
        by_row, draw = queries.by_row, self.op.draw
        if draw:
            *by_row, rows = by_row
            draw = [*draw[:-2], rows, self._of_keys(draw[-1], block, rewriter)]
        of_keys = [key.type, value.type] if isinstance(self.op, BackwardOp) else []
        types = self.op.result_types[: len(self.op.results) - len(of_keys)]
        types = [self._with_rows(cast("TensorType[Any]", t), self._rows // self.pieces) for t in types]
        kept = {name: each for name, each in self.op.attributes.items() if name != BY_RANK}
        op = type(self.op).create(
            operands=[*by_row, key, value, *masks, *draw],
            result_types=[*types, *of_keys],
            properties=dict(self.op.properties),
            attributes=kept,
            location=self.op.location,
        )
        if self.op.diagonal is not None:
            starts = [(self._first_row(block, at), self._first_key(block, at)) for at in self.group.coordinates()]
            diagonals = [
                self._diagonal(at) + row - key for at, (row, key) in zip(self.group.coordinates(), starts, strict=True)
            ]
            op.properties["diagonal"] = _integer(diagonals[0])
            vary(op, self.group.sizes, [{"diagonal": _integer(each)} for each in diagonals])
        for result, old in zip(op.results, self.op.results, strict=True):
            result.name_hint = old.name_hint
        _insert(op, rewriter)
        return op

    def _diagonal(self, at: Mapping[str, int]) -> int:
        """Of a device: for the first of the queries that devices along the axis have together, beside the first of all keys."""
        varies = by_rank(self.op)
        own: Any = varies.at(at, self.group.sizes)["diagonal"] if varies is not None else self.op.diagonal
        return own.value.data - at[cast(str, self.axis)] * self._rows

    def _first_row(self, block: _Block, at: Mapping[str, int]) -> int:
        """The first query of a device, of those that devices along the axis have together."""
        return self._places(at[cast(str, self.axis)])[block.queries.piece] * (self._rows // self.pieces)

    def _first_key(self, block: _Block, at: Mapping[str, int]) -> int:
        """The first key that a device has."""
        holder = (at[cast(str, self.axis)] - block.chunk.step) % self.size
        return self._places(holder)[block.column] * (self.length // self.pieces)

    def _dim_of_rows(self, shape: Sequence[int]) -> int:
        """That of queries: the last but one, and of what is one number for each the last."""
        return -2 if len(shape) == len(_shape(self.op.query)) else -1

    def _with_rows(self, type_: TensorType[Any], rows: int) -> Attribute:
        """The type of a result for so many queries."""
        shape = list(type_.get_shape())
        shape[self._dim_of_rows(shape)] = rows
        return TensorType(type_.element_type, shape, type_.encoding)

    def _of_keys(self, value: SSAValue, block: _Block, rewriter: PatternRewriter) -> SSAValue:
        """What a mask, or positions, have for the block's keys."""
        shape, keys = _shape(value), _shape(block.key)[-2]
        if shape[-1] == 1:
            return value
        starts = [self._first_key(block, at) for at in self.group.coordinates()]
        slices = [SliceOp(value, [*((0, n) for n in shape[:-1]), (first, first + keys)]) for first in starts]
        vary(slices[0], self.group.sizes, [each.properties for each in slices])
        for other in slices[1:]:
            other.erase()
        (found,) = _insert(slices[0], rewriter)
        return found


@dataclass(frozen=True)
class _Queries:
    """Queries of a piece, and what else has a row for each: operands before keys and values, positions of dropout, and the mask."""

    piece: int
    by_row: Sequence[SSAValue]
    mask: SSAValue | None


@dataclass(frozen=True)
class _Chunk:
    """Keys and values of each piece as they are passed on: at each step a device has those of the one that many places before it."""

    step: int
    keys: Sequence[SSAValue]
    values: Sequence[SSAValue]


@dataclass(frozen=True)
class _Block:
    """Queries of one piece beside keys of one piece."""

    queries: _Queries
    chunk: _Chunk
    column: int
    """The piece of the keys."""

    @property
    def key(self) -> SSAValue:
        return self.chunk.keys[self.column]

    @property
    def value(self) -> SSAValue:
        return self.chunk.values[self.column]


def _add(value: SSAValue, sums: dict[int, SSAValue], place: int, rewriter: PatternRewriter) -> None:
    if (known := sums.get(place)) is not None:
        (value,) = _insert(AccumulateOp([known, value]), rewriter)
        value.name_hint = known.name_hint
    sums[place] = value


def _concatenated(values: Sequence[SSAValue], dim: int, rewriter: PatternRewriter) -> SSAValue:
    (found,) = _insert(ConcatOp(values, dim % len(_shape(values[0]))), rewriter)
    found.name_hint = values[0].name_hint
    return found


def _insert(op: Operation, rewriter: PatternRewriter) -> Sequence[SSAValue]:
    rewriter.insert(op)
    return op.results


def _shape(value: SSAValue) -> tuple[int, ...]:
    return cast(TensorType[Any], value.type).get_shape()


def _integer(number: int) -> IntegerAttr[Any]:
    return IntegerAttr(number, i64)
