"""Attention by chunks of keys that go around: in goes an attention over a group whose keys and values are gathered along an axis, out comes one attention
for each chunk, which every device passes on to the next (Liu et al., "Ring Attention with Blockwise Transformers", 2023)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from distir.dialects.attention import AttentionOp, BackwardOp, CombineOp, ForwardOp
from distir.dialects.dist.communication import AllGatherOp, ReduceScatterOp
from distir.dialects.dist.groups import BY_RANK, by_rank, vary
from distir.dialects.dist.local import AccumulateOp, SliceOp
from distir.dialects.dist.windows import ExchangeOp
from distir.dialects.reductions import Reduction
from distir.interpreters.ranks import Group


@dataclass
class Ring:
    """An attention whose keys and values are gathered along an axis, whose gradients by them, if it makes these, are summed and cut along it."""

    op: AttentionOp
    group: Group
    gathers: tuple[AllGatherOp, AllGatherOp]
    scatters: tuple[ReduceScatterOp | None, ...] = ()

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
        results: Sequence[SSAValue] = ()
        for chunk in self._chunks(rewriter):
            own = self._attention(chunk, rewriter).results
            results = _insert(CombineOp(results, own), rewriter) if results else own
        return results

    def _backward(self, rewriter: PatternRewriter) -> Sequence[SSAValue]:
        """Gradients by keys and values go around with the chunk that they are of, one step more than it does."""
        of_query: SSAValue | None = None
        going: Sequence[SSAValue] = ()
        for chunk in self._chunks(rewriter):
            going = [self._passed(value, rewriter) for value in going]
            by_query, *by_chunk = self._attention(chunk, rewriter).results
            of_query = by_query if of_query is None else _sum(of_query, by_query, rewriter)
            going = [_sum(a, b, rewriter) for a, b in zip(going, by_chunk, strict=True)] if going else by_chunk
        assert of_query is not None
        return [of_query, *(self._passed(value, rewriter) for value in going)]

    def _chunks(self, rewriter: PatternRewriter) -> Iterator[_Chunk]:
        """Those that every device has, one after the other; the next is on its way while one is used."""
        key, value = (gather.operands[0] for gather in self.gathers)
        for step in range(self.size):
            own = _Chunk(step, key, value)
            if step + 1 < self.size:
                shared = value is key
                key = self._passed(key, rewriter)
                value = key if shared else self._passed(value, rewriter)
            yield own

    def _passed(self, value: SSAValue, rewriter: PatternRewriter) -> SSAValue:
        """What every device gets from the one before it along the axis."""
        dim = len(_shape(value)) - 2
        extent = _shape(value)[dim]
        starts = [(i - 1) % self.size * extent for i in range(self.size)]
        exchange = ExchangeOp([value], dim, starts, [value.type])
        exchange.properties["over"] = StringAttr(cast(str, self.axis))
        (passed,) = _insert(exchange, rewriter)
        passed.name_hint = value.name_hint
        return passed

    def _attention(self, chunk: _Chunk, rewriter: PatternRewriter) -> Operation:
        """The operation for one chunk."""
        mask = () if self.op.mask is None else (self._mask(self.op.mask, chunk.step, rewriter),)
        before = self.op.operands[: len(self.op.operands) - len(mask) - 2]
        operands = [*before, chunk.key, chunk.value, *mask]
        of_keys = [chunk.key.type, chunk.value.type] if isinstance(self.op, BackwardOp) else []
        types = [*self.op.result_types[: len(self.op.results) - len(of_keys)], *of_keys]
        kept = {name: each for name, each in self.op.attributes.items() if name != BY_RANK}
        op = type(self.op).create(
            operands=operands,
            result_types=types,
            properties=dict(self.op.properties),
            attributes=kept,
            location=self.op.location,
        )
        if (diagonals := self._diagonals(chunk)) is not None:
            op.properties["diagonal"] = _integer(diagonals[0])
            vary(op, self.group.sizes, [{"diagonal": _integer(each)} for each in diagonals])
        for result, old in zip(op.results, self.op.results, strict=True):
            result.name_hint = old.name_hint
        _insert(op, rewriter)
        return op

    def _diagonals(self, chunk: _Chunk) -> list[int] | None:
        """Of every device of the group: its own, from the first key of the chunk that it has."""
        if self.op.diagonal is None:
            return None
        varies, found = by_rank(self.op), list[int]()
        for at in self.group.coordinates():
            own: Any = varies.at(at, self.group.sizes)["diagonal"] if varies is not None else self.op.diagonal
            found.append(own.value.data - self._start(at, chunk.step))
        return found

    def _mask(self, mask: SSAValue, step: int, rewriter: PatternRewriter) -> SSAValue:
        """That of the chunk's keys."""
        shape = _shape(mask)
        if shape[-1] == 1:
            return mask
        starts = [self._start(at, step) for at in self.group.coordinates()]
        slices = [SliceOp(mask, [*((0, n) for n in shape[:-1]), (start, start + self.length)]) for start in starts]
        vary(slices[0], self.group.sizes, [each.properties for each in slices])
        for other in slices[1:]:
            other.erase()
        (found,) = _insert(slices[0], rewriter)
        return found

    def _start(self, at: Mapping[str, int], step: int) -> int:
        """The first key of the chunk that a device has at a step."""
        return (at[cast(str, self.axis)] - step) % self.size * self.length


@dataclass(frozen=True)
class _Chunk:
    """Keys and values as they are passed on: at each step a device has those of the one that many places before it."""

    step: int
    key: SSAValue
    value: SSAValue


def _sum(a: SSAValue, b: SSAValue, rewriter: PatternRewriter) -> SSAValue:
    (found,) = _insert(AccumulateOp([a, b]), rewriter)
    found.name_hint = a.name_hint
    return found


def _insert(op: Operation, rewriter: PatternRewriter) -> Sequence[SSAValue]:
    rewriter.insert(op)
    return op.results


def _shape(value: SSAValue) -> tuple[int, ...]:
    return cast(TensorType[Any], value.type).get_shape()


def _integer(number: int) -> IntegerAttr[Any]:
    return IntegerAttr(number, i64)
