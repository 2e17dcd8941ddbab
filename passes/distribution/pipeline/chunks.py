"""Collectives cut in chunks with an operation beside them. In goes a block of a placed program; out comes the block
with several collectives, one per chunk, in place of each for which its devices would wait. The contraction that
makes its operand, or uses its result, runs between them in as many parts.

What an operation may do in parts is what its rule says, so that any operator is cut: space and time are the same thing. Where costs are known, a collective is
cut only if that is faster, in as many chunks as are fastest: small parts take longer, and what is made of chunks is joined again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Protocol

from xdsl.dialects.builtin import TensorType, UnitAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.traits import Pure

from distir.dialects.dist.attributes import MAIN_STREAM, placement, placements
from distir.dialects.dist.communication import AllGatherOp, AllReduceOp, AllToAllOp, CollectiveOp, ReduceScatterOp
from distir.dialects.dist.groups import BY_RANK
from distir.dialects.dist.local import ConcatOp, SliceOp
from distir.dialects.sharding import REPLICATED, Rule, Sharded, State
from distir.interpreters.costs import CHUNKED
from distir.interpreters.walk import uses_of
from distir.interpreters.work import Kind, is_view, work_of
from distir.passes.distribution.conversions import Insert, join_shards, take_shard, with_extent
from distir.passes.distribution.options import Option, factor_option
from distir.passes.distribution.shards import state_on
from distir.passes.distribution.sizes import changes_of, local_constants, local_properties
from distir.passes.shardcombine_annotate import is_operator
from distir.passes.structure import shape_of

LONGEST = 4
"""How many operations may be between a collective and a contraction, with the contraction."""
MOST_PIECES = 16
"""Of how many pieces a dim is that is still worth cutting."""


@dataclass(frozen=True)
class _Step:
    """An operation, and what it does on a chunk."""

    op: Operation
    rule: Rule
    option: Option
    factor: str


@dataclass
class Cut:
    """A way to cut a collective."""

    op: CollectiveOp
    lines: list[list[_Step]]
    """For each device, the operations from the collective to a contraction."""
    given: Sharded
    state: Sharded
    """What chunks of its operands and of its results are."""
    parts: int
    makes: bool
    """Whether these operations make its operands; otherwise they use its results."""

    @property
    def last(self) -> Operation:
        """Of the last operations of all devices, the one that comes last."""
        ends = {line[-1].op for line in self.lines}
        return [each for each in following(self.op.results[0]) if each in ends][-1]

    @property
    def is_used_together(self) -> bool:
        """Whether nothing else needs its results, or what is made of them, before the last of these operations."""
        own = {step.op for line in self.lines for step in line}
        made = {*self.op.results, *[step.op.results[0] for line in self.lines for step in line]}
        between = takewhile(lambda each: each is not self.last, following(self.op.results[0]))
        return all(each in own or made.isdisjoint(operands_of(each)) for each in between)

    def write(self) -> list[CollectiveOp]:
        """Puts it into the program; returns the collectives of chunks."""
        return _written_after(self) if self.makes else _written_before(self)

    def chunk(self, insert: Insert) -> tuple[CollectiveOp, list[tuple[SSAValue, Sharded]]]:
        """Its first chunk: the collective, and what the first device joins of it and all others, with what chunks these are."""
        op, parts = self.op, self.parts
        if self.makes:
            values = [_on_chunk(line[::-1], {}, 0, parts, insert) for line in self.lines]
            message = _collective(op, values, self.state, 0, parts, insert)
            return message, [(message.results[0], self.state)]
        values = [take_shard(value, self.given, 0, parts, insert) for value in op.operands]
        message = _collective(op, values, self.state, 0, parts, insert)
        results = zip(self.lines, op.results, message.results, strict=True)
        used = [_on_chunk(line, {whole: own}, 0, parts, insert) for line, whole, own in results]
        last = self.lines[0][-1]
        joined = [(used[0], _state(last, last.op.results[0]))]
        if len({use.operation for use in op.results[0].uses}) > 1:
            joined.append((message.results[0], self.state))
        return message, joined


class Prices(Protocol):
    """What chunks are worth (`chunk_prices`)."""

    def waited(self, op: CollectiveOp) -> int:
        """How much longer a collective takes than what is computed before its result is used."""
        ...

    def gain(self, cut: Cut) -> int:
        """How much sooner all is done if a collective is cut so."""
        ...


@dataclass
class Chunks:
    """Cuts collectives in so many chunks, or in fewer where a dim does not divide; where there are prices, in those that are fastest, if that is faster at
    all."""

    count: int
    prices: Prices | None = None
    in_place: bool = False
    """Whether chunks are read and written where they lie."""

    def cut(self, block: Block, lingers: Callable[[SSAValue], bool]) -> list[CollectiveOp]:
        """Cuts every collective of a block whose results are waited for, and returns the collectives of chunks: not those of which one `lingers`, unless
        what is computed meanwhile is known to take less time."""
        found: list[CollectiveOp] = []
        for op in [op for op in block.ops if isinstance(op, AllReduceOp | AllGatherOp | ReduceScatterOp | AllToAllOp)]:
            if self.count > 1 and _is_plain(op) and (not any(map(lingers, op.results)) or self._is_waited_for(op)):
                if (best := self._best(op)) is not None:
                    known = set(block.ops) if self.in_place else set[Operation]()
                    found += best.write()
                    for each in block.ops if self.in_place else ():
                        if isinstance(each, SliceOp | ConcatOp) and each not in known:
                            each.attributes[CHUNKED] = UnitAttr()
        return found

    def _is_waited_for(self, op: CollectiveOp) -> bool:
        """Whether it is known to take longer than what is computed before its result is used; of one that is only returned, callers decide."""
        is_used = any(not isinstance(use.operation, ReturnOp) for result in op.results for use in result.uses)
        return self.prices is not None and is_used and self.prices.waited(op) > 0

    def _best(self, op: CollectiveOp) -> Cut | None:
        if self.prices is None:
            return next(self._cuts(op), None)
        gains = [(self.prices.gain(cut), cut) for cut in self._cuts(op)]
        gain, best = max(gains, key=lambda each: each[0], default=(0, None))
        return best if gain > 0 else None

    def _cuts(self, op: CollectiveOp) -> Iterator[Cut]:
        for given, result in _states(op):
            for parts in (n for n in range(self.count, 1, -1) if given.is_even(n)):
                if (made := self._lines(op.operands, given, parts, self._maker)) is not None:
                    yield Cut(op, made, given, result, parts, True)
                elif (used := self._lines(op.results, result, parts, self._user)) is not None:
                    cut = Cut(op, used, given, result, parts, False)
                    if self.prices is None or cut.is_used_together:
                        yield cut

    def _lines(
        self,
        values: Sequence[SSAValue],
        state: Sharded,
        parts: int,
        step: Callable[[SSAValue, Sharded, int], _Step | None],
    ) -> list[list[_Step]] | None:
        """For the value of each device, the operations from it to a contraction; None unless all have one, in as many steps."""
        lines = [self._line(value, state, parts, step) for value in values]
        alike = {tuple([(type(step.op), step.factor) for step in line]) for line in lines}
        return lines if len(alike) == 1 and lines[0] else None

    def _line(
        self, value: SSAValue, state: Sharded, parts: int, step: Callable[[SSAValue, Sharded, int], _Step | None]
    ) -> list[_Step]:
        line: list[_Step] = []
        while len(line) < LONGEST and (found := step(value, state, parts)) is not None:
            line.append(found)
            if work_of(found.op).kind in (Kind.MATMUL, Kind.ATTENTION, Kind.ATTENTION_GRADIENT):
                return line
            if step == self._user:
                value = found.op.results[0]
            elif (latest := _latest(found)) is not None:
                value = latest
            else:
                return []
            state = _state(found, value)
        return []

    def _maker(self, value: SSAValue, state: Sharded, parts: int) -> _Step | None:
        """What makes a value for one use, in parts of it."""
        if not isinstance(value, OpResult) or not value.has_one_use():
            return None
        return self._step(value.op, lambda option: option.results == (state,), state, parts)

    def _user(self, value: SSAValue, state: Sharded, parts: int) -> _Step | None:
        """What first uses a value, by parts of it; of a value that an operation made, all that uses it."""
        users = {use.operation for use in uses_of(value)}
        first = next((op for op in following(value) if op in users), None)
        if first is None or (len(users) > 1 and not isinstance(value.owner, CollectiveOp)):
            return None
        if not (indices := [i for i, v in enumerate(first.operands) if v is value]):
            return None  # in its graphs
        return self._step(first, lambda option: all(option.operands[i] == state for i in indices), state, parts)

    def _step(self, op: Operation, fits: Callable[[Option], bool], state: Sharded, parts: int) -> _Step | None:
        if (
            not is_operator(op)
            or not op.has_trait(Pure)
            or op.regions
            or len(op.results) != 1
            or BY_RANK in op.attributes
        ):
            return None
        rule = self._discovery.rule(op)
        for factor in (f for f in rule.factors if f not in rule.windowed):
            for pieces in (None, state.pieces) if len(state.pieces) > 1 else (None,):
                option = factor_option(op, rule, factor, parts, pieces)
                if option is not None and not option.means and fits(option) and all(map(_is_cheap, option.operands)):
                    if isinstance(option.results[0], Sharded) and _is_cheap(option.results[0]):
                        return _Step(op, rule, option, factor)
        return None

    @cached_property
    def _discovery(self):
        from distir.passes.shardcombine.cache import RuleCache
        from distir.passes.shardcombine.discovery import Discovery
        from distir.passes.shardcombine.domains import InterpreterDomains

        return Discovery(InterpreterDomains(), RuleCache.on_disk())


def _is_cheap(state: State) -> bool:
    return state == REPLICATED or (isinstance(state, Sharded) and len(state.pieces) <= MOST_PIECES)


def _is_plain(op: CollectiveOp) -> bool:
    """Whether its devices are given and get tensors of one shape, on their main streams."""
    values = [*op.operands, *op.results]
    if not all(isinstance(v.type, TensorType) for v in values) or len(op.operands) != len(op.results):
        return False
    on_main = all((on := placement(v.type)) is not None and on.stream == MAIN_STREAM for v in values)
    return on_main and all(len({shape_of(v) for v in each}) == 1 for each in (op.operands, op.results))


def _states(op: CollectiveOp) -> Iterator[tuple[Sharded, Sharded]]:
    """The ways to cut a collective: a chunk of what it is given, and what chunk of its result that gives. A dim that it joins, or cuts, is in
    pieces: those of the devices."""
    given, result = shape_of(op.operands[0]), shape_of(op.results[0])
    joined = {op.dim.value.data} if isinstance(op, AllGatherOp) else set[int]()
    split = {op.dim.value.data} if isinstance(op, ReduceScatterOp) else set[int]()
    if isinstance(op, AllToAllOp):
        joined, split = {op.concat.value.data}, {op.split.value.data}
        if joined == split:
            return
    for dim, (before, after) in enumerate(zip(given, result, strict=True)):
        pieces = (before,), (after,)
        if dim in joined:
            pieces = (before,), (before,) * (after // before)
        elif dim in split:
            pieces = (after,) * (before // after), (after,)
        yield Sharded(dim, pieces[0]), Sharded(dim, pieces[1])


def _latest(step: _Step) -> SSAValue | None:
    """The operand that was made last, of those of which it takes chunks."""
    cut = [v for v, state in zip(step.op.operands, step.option.operands, strict=True) if isinstance(state, Sharded)]
    owners = {v.owner: v for v in cut if isinstance(v, OpResult) and v.op.parent is step.op.parent}
    op = step.op.prev_op
    while op is not None and op not in owners:
        op = op.prev_op
    return None if op is None else owners[op]


def _state(step: _Step, value: SSAValue) -> Sharded:
    """What chunks of one of its values a step has."""
    states = zip((*step.op.operands, *step.op.results), (*step.option.operands, *step.option.results), strict=True)
    state = next(state for v, state in states if v is value)
    assert isinstance(state, Sharded)
    return state


def is_computed_beside(value: SSAValue) -> bool:
    """Whether its device computes anything between a value and its first use, or the end of its block."""
    return any(computed_beside(value))


def computed_beside(value: SSAValue) -> Iterator[Operation]:
    """What its device computes between a value and its first use, or the end of its block."""
    users, own = {use.operation for use in uses_of(value)}, placement(value.type)
    for op in takewhile(lambda op: op not in users, following(value)):
        if not is_view(op) and any(own is not None and on.device == own.device for on in placements(op.result_types)):
            yield op


def operands_of(op: Operation) -> Iterator[SSAValue]:
    """What an operation is given, and what those in its regions are."""
    return (value for each in op.walk() for value in each.operands)


def following(value: SSAValue) -> Iterator[Operation]:
    """The operations of its block after a value."""
    op = value.op.next_op if isinstance(value, OpResult) else block_of(value).first_op
    while op is not None:
        yield op
        op = op.next_op


def block_of(value: SSAValue) -> Block:
    """The block that a value is made in."""
    block = value.op.parent if isinstance(value, OpResult) else value.owner
    assert isinstance(block, Block)
    return block


def _written_after(cut: Cut) -> list[CollectiveOp]:
    """Replaces a collective, and what makes its operands, by those of chunks, one after the other."""
    op, lines, state, parts = cut.op, cut.lines, cut.state, cut.parts
    insert = _inserting(op)
    chunks: list[CollectiveOp] = []
    for part in range(parts):
        values = [_on_chunk(line[::-1], {}, part, parts, insert) for line in lines]
        chunks.append(_collective(op, values, state, part, parts, insert))
    _join(op, chunks, state, insert)
    for line in lines:
        for step in line:
            _block(step.op).erase_op(step.op)
    return chunks


def _written_before(cut: Cut) -> list[CollectiveOp]:
    """Replaces a collective by those of chunks, and what first uses its results by as many. A device that waits for a chunk waits for all that was sent before, so each
    chunk is sent after the wait for the one before, and is on its way while that one is used; unless devices use them far apart."""
    op, lines, given, state, parts = cut.op, cut.lines, cut.given, cut.state, cut.parts
    taken = [[take_shard(v, given, part, parts, _inserting(op)) for v in op.operands] for part in range(parts)]
    together = _inserting(cut.last) if cut.is_used_together else None
    chunks = [
        _collective(op, values, state, part, parts, _inserting(op))
        for part, values in enumerate(taken[: 1 if together else parts])
    ]
    found = [list[SSAValue]() for _ in lines]
    for part in range(parts):
        for line, own, result, new in zip(lines, found, op.results, chunks[part].results, strict=True):
            own.append(_on_chunk(line, {result: new}, part, parts, together or _inserting(line[-1].op)))
        if together and part + 1 < parts:
            chunks.append(_collective(op, taken[part + 1], state, part + 1, parts, together))
    for line, own in zip(lines, found, strict=True):
        old = line[-1].op.results[0]
        whole = join_shards(own, _state(line[-1], old), together or _inserting(line[-1].op))
        whole.name_hint = old.name_hint
        old.replace_all_uses_with(whole)
    for line in lines:
        for step in line[::-1]:
            _block(step.op).erase_op(step.op)
    results = set(op.results)
    first = next((each for each in following(chunks[-1].results[0]) if not results.isdisjoint(operands_of(each))), op)
    _join(op, chunks, state, _inserting(first))
    return chunks


def _join(op: CollectiveOp, chunks: Sequence[CollectiveOp], state: Sharded, insert: Insert) -> None:
    """Has the results of chunks take the place of those of the whole."""
    for number, result in enumerate(op.results):
        if result.first_use is not None:
            whole = join_shards([chunk.results[number] for chunk in chunks], state, insert)
            whole.name_hint = result.name_hint
            result.replace_all_uses_with(whole)
    _block(op).erase_op(op)


def _collective(
    op: CollectiveOp, values: Sequence[SSAValue], state: Sharded, part: int, parts: int, insert: Insert
) -> CollectiveOp:
    """A collective of one chunk."""
    types = [with_extent(r, state.dim, sum(state.pieces) // parts) for r in op.results]
    chunk = type(op).create(
        operands=values, result_types=types, properties=dict(op.properties), attributes=dict(op.attributes)
    )
    insert(chunk)
    return chunk


def _on_chunk(line: Sequence[_Step], made: dict[SSAValue, SSAValue], part: int, parts: int, insert: Insert) -> SSAValue:
    """The last result of operations on one chunk, of which `made` has what was made of the chunk so far."""
    for step in line:
        op, option = step.op, step.option
        changes = changes_of(step.rule, {step.factor: parts})
        constants = local_constants(op, changes)
        operands: list[SSAValue] = []
        for i, (value, state) in enumerate(zip(op.operands, option.operands, strict=True)):
            if i in constants:
                on = placement(op.results[0].type)
                assert on is not None
                value = state_on(constants[i], on, insert)
            elif value in made:
                value = made[value]
            elif isinstance(state, Sharded):
                value = take_shard(value, state, part, parts, insert)
            operands.append(value)
        (result,), (state,) = op.results, option.results
        assert isinstance(state, Sharded)
        copy = type(op).create(
            operands=operands,
            result_types=[with_extent(result, state.dim, sum(state.pieces) // parts)],
            properties=local_properties(op, changes),
            attributes=dict(op.attributes),
            location=op.location,
        )
        insert(copy)
        copy.results[0].name_hint = result.name_hint
        made[result] = copy.results[0]
    return made[line[-1].op.results[0]]


def _inserting(before: Operation) -> Insert:
    return lambda op: _block(before).insert_op_before(op, before)


def _block(op: Operation) -> Block:
    assert op.parent is not None
    return op.parent
