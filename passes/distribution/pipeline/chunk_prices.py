"""Prices of a collective cut in chunks. In go costs and a way to cut it; out come the picoseconds that it gains.

Chunks are a pipeline of two: a message of one chunk is on its way while the next is computed, or the one before. What is waited for is the longer of the two for
each chunk, and the shorter once; whole, both are waited for. Parts of an operation may take longer than their share, and what is joined again is copied, unless
chunks are in place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.ir import Block, Operation

from distir.dialects.dist.attributes import placements
from distir.dialects.dist.communication import CollectiveOp, CommunicationOp
from distir.dialects.dist.local import ConcatOp, SliceOp
from distir.interpreters.costs import Costs
from distir.interpreters.ranks import Group
from distir.passes.distribution.conversions import join_shards
from distir.passes.distribution.pipeline.chunks import Cut, computed_beside


@dataclass
class ChunkPrices:
    """Prices on one machine. A function's devices are taken as its own numbers say: those of the first stage stand for all."""

    costs: Costs
    group: Group | None
    """That of a program over groups."""
    in_place: bool = False
    """Whether chunks are read and written where they lie."""

    def waited(self, op: CollectiveOp) -> int:
        """How much longer a collective takes than what is computed before its result is used."""
        return max(0, self._message(op) - self._time(computed_beside(op.results[0])))

    def gain(self, cut: Cut) -> int:
        """How much sooner all is done if a collective is cut so."""
        op, parts, chunk, joining = cut.op, cut.parts, Block(), Block()
        message, joined = cut.chunk(chunk.add_op)
        sent = self.costs.beside(self.costs.ask(message, self._members(message)))
        own = (each for each in chunk.ops if each is not message and _device(each) == _device(op))
        own = (each for each in own if not (self.in_place and isinstance(each, SliceOp | ConcatOp)))
        part = self._time(own) + sent.slowdown_picoseconds
        for value, state in joined:
            join_shards(Block(arg_types=[value.type] * parts).args, state, joining.add_op)
        copies = 0 if self.in_place else self._time(joining.ops)
        for each in reversed(list(chunk.ops)):
            chunk.erase_op(each)
        waited = min(self._time(computed_beside(op.results[0])), sent.cost.picoseconds)
        longer, shorter = max(sent.cost.picoseconds, part), min(sent.cost.picoseconds, part)
        whole = self.waited(op) + self._time(step.op for step in cut.lines[0])
        return whole - (parts * longer + shorter - waited + copies)

    def _message(self, op: CollectiveOp) -> int:
        return self.costs.ask(op, self._members(op)).picoseconds

    def _time(self, ops: Iterable[Operation]) -> int:
        """Of what one device computes among operations."""
        computed = (op for op in ops if not isinstance(op, CommunicationOp))
        return sum(self.costs.ask(op, (_device(op),)).picoseconds for op in computed)

    def _members(self, op: CollectiveOp) -> tuple[int, ...]:
        if op.axis is None or self.group is None:
            return tuple(dict.fromkeys(on.device for on in placements(v.type for v in op.operands)))
        return tuple(_device(op) + n for n in self.group.lines(op.axis)[0])


def _device(op: Operation) -> int:
    """The first device that an operation is on."""
    return min((on.device for on in placements([*op.result_types, *[v.type for v in op.operands]])), default=0)
