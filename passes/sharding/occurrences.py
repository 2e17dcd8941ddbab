"""Where the values of a staged program's entry and of its loop over microbatches are, whatever their states: in goes the order of its stages;
out come, per value, microbatch and stage, from when it is there and each use with its position, as `timeline` has them. Memory at a point
and how often each conversion and message is on a path are counted from that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import cast

from xdsl.dialects.func import ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.interpreters.walk import values_read
from distir.interpreters.work import shares_memory
from distir.passes.sharding.lifetimes import Lifetimes, Position, root
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.timeline import CONVERTED, RUN, SENT, read_by
from distir.passes.staging.order import Order, Use, is_stage_call
from distir.passes.structure import AnyCall, is_constant

Where = tuple[SSAValue, int | None, int]
"""A value, of a microbatch, on a stage."""


@dataclass(eq=False)
class At:
    """A use: from when it needs the value, in a state that a plan chooses, and until when; of one that passes the value on, until when that
    is used."""

    use: Use
    start: Position
    end: Position = ()
    passed: list[Occurrence] = field(default_factory=list["Occurrence"])


@dataclass(eq=False)
class Occurrence:
    """A value of a microbatch on a stage."""

    value: SSAValue
    microbatch: int | None
    stage: int
    birth: Position = ()
    has_memory: bool = True
    """Whether it is made here; otherwise it is passed, or shares another's memory."""
    is_received: bool = False
    uses: list[At] = field(default_factory=list[At])


@dataclass(frozen=True)
class Run:
    """An operation that runs: a call of a stage, or what is beside."""

    operation: Operation
    microbatch: int | None
    stage: int
    position: Position


class Occurrences:
    """Of one problem."""

    def __init__(self, problem: Problem, order: Order, lifetimes: Lifetimes):
        self.problem, self.order, self.lifetimes = problem, order, lifetimes
        self.found: dict[Where, Occurrence] = {}
        self.by_stage: dict[int, list[Occurrence]] = defaultdict(list)
        self.runs: list[Run] = []
        self.messages: dict[tuple[SSAValue, int | None, int, int], list[At]] = defaultdict(list)
        """By value, microbatch, sender and receiver."""
        self._item = 0
        self._ends: dict[Occurrence, Position] = {}
        self._roots: dict[str, list[tuple[SSAValue, list[int]]]] = {}
        for argument, stages in order.places.items():
            for stage in stages:
                self._add(Occurrence(argument, None, stage))
        for op in order.main.ops:
            if op is order.loop:
                self._add_loop()
            elif is_stage_call(op) and order.rank(op) in order.there:
                self._call(op, None)
        last = cast(ReturnOp, order.main.last_op)
        for i, value, stages in order.returned():
            for stage in stages:
                self._need(value, None, stage, (2 * self._item, i), (last, i)).end = (inf,)

    def end(self, occurrence: Occurrence) -> Position:
        """Until when a value is used in any states."""
        ends, open_, waiting = self._ends, set[Occurrence](), [occurrence]
        while occurrence not in ends:  # a sum is passed on from microbatch to microbatch: too deep for calls
            last = waiting[-1]
            before = [] if last in open_ else [p for at in last.uses for p in at.passed if p not in ends]
            open_.add(last)
            waiting += (each for each in before if each not in open_)
            if waiting[-1] is last:
                ends[last] = max(
                    (max([at.end, at.start, *(ends.get(p, ()) for p in at.passed)]) for at in last.uses), default=()
                )
                waiting.pop()
        return ends[occurrence]

    def end_of_use(self, at: At) -> Position:
        """Until when a use holds what it needs."""
        return max([at.end, at.start, *map(self.end, at.passed)])

    def holder(self, occurrence: Occurrence) -> SSAValue | None:
        """What a call's result shares its memory with, if nothing is converted: an argument of the function, or the result of the call that
        is held longest on the stage."""
        value = occurrence.value
        if not isinstance(value, OpResult) or not is_stage_call(value.op):
            return None
        source, alike = self._shared(cast(AnyCall, value.op))[value.index]
        if isinstance(source, BlockArgument):
            return source
        of = occurrence.microbatch, occurrence.stage
        return max((value.op.results[i] for i in alike), key=lambda other: self.end(self.found[other, *of]))

    def _shared(self, call: AnyCall) -> list[tuple[SSAValue, list[int]]]:
        """Per result of a call's function, the value in whose memory it lies, and all results that lie there."""
        if (name := call.callee.string_value()) not in self._roots:
            last = self.problem.callee(call).body.block.last_op
            assert last is not None
            roots, alike = [root(v) for v in last.operands], defaultdict[SSAValue, list[int]](list)
            for i, source in enumerate(roots):
                alike[source].append(i)
            self._roots[name] = [(source, alike[source]) for source in roots]
        return self._roots[name]

    def remaining(self, at: At, position: Position) -> set[Use] | None:
        """What still needs what a use takes at a position, as `Lifetimes.remaining`."""
        if at.start >= position or at.end == (inf,):
            return None
        found: set[Use] = set()
        if not at.end:  # it is passed on
            for other in self._used_later(at, position):
                if (rest := self.remaining(other, position)) is None:
                    return None
                found |= rest
            return found
        if any(self.end(passed) >= position for passed in at.passed):
            return None
        if at.end >= position:
            if not is_stage_call(at.use[0]):
                return {at.use}
            if position[0] != at.end[0] or len(position) == 1:
                return None
            return self.lifetimes.remaining(*at.use, position[1:])
        return found

    def _used_later(self, at: At, position: Position) -> Iterator[At]:
        """The uses after a position of what a use passes on, but for those that pass it on again."""
        waiting = [at]
        while waiting:
            for other in (other for passed in waiting.pop().passed for other in passed.uses):
                if self.end_of_use(other) >= position:
                    if other.end or other.start >= position:
                        yield other
                    else:
                        waiting.append(other)

    # --- the order of `timeline` ------------------------------------------------------------------------------------

    def _add_loop(self) -> None:
        order = self.order
        for step in order.steps:
            called = order.called(step)
            for op, microbatch in called:
                self._call(op, microbatch)
                for i in order.kept[op]:
                    assert order.last is not None
                    home = cast(int, order.home(order.left[i]))
                    self._need(order.left[i], microbatch, home, (2 * self._item, 0), (order.last, i))
                    self._item += 1
            for op, microbatch in called:
                for value, use, stage in order.remote[op]:
                    self._need(value, microbatch, stage, (2 * self._item, 0), use)
                    self._item += 1

    def _call(self, op: Operation, microbatch: int | None) -> None:
        assert isinstance(op, AnyCall)
        stage, item = self.order.rank(op), self._item
        found = [self._need(v, microbatch, stage, (2 * item, i), (op, i)) for i, v in enumerate(op.operands)]
        position = (2 * item + 1,)
        inside = self.order.is_inside(op.results[0]) if op.results else False
        results = [self._add(Occurrence(r, microbatch if inside else None, stage, (2 * item + 2,))) for r in op.results]
        callee = self.problem.callee(op).body.block
        last = callee.last_op
        for at, argument in zip(found, callee.args, strict=False):
            end = self.lifetimes.end(argument)
            if end == (inf,):
                returned = last.operands if last is not None else ()
                aliases = [r for r, v in zip(results, returned, strict=True) if root(v) is argument]
                at.passed += aliases
                at.end = (*position, *(() if aliases else (inf,)))
            else:
                at.end = (*position, *end)
        self.runs.append(Run(op, microbatch, stage, position))
        self._item += 1

    def _need(self, value: SSAValue, microbatch: int | None, stage: int, position: Position, use: Use) -> At:
        """A use of a value on a stage, which is brought about there if it is not there yet."""
        microbatch = microbatch if self.order.is_inside(value) else None
        known = self.found.get((value, microbatch, stage))
        is_here = known is not None and not known.is_received
        home = stage if is_here else self.order.origin(value, stage)
        there = self._at(value, microbatch, home, position)
        at = At(use, (*position, *CONVERTED))
        there.uses.append(at)
        if home == stage:
            return at
        at.end = (*position, *SENT)
        received = At(use, (*position, *SENT))
        if known is None:
            known = self._add(Occurrence(value, microbatch, stage, has_memory=False, is_received=True))
        known.uses.append(received)
        self.messages[value, microbatch, home, stage].append(received)
        return received

    def _at(self, value: SSAValue, microbatch: int | None, stage: int, position: Position) -> Occurrence:
        """A value where it is made."""
        if (known := self.found.get((value, microbatch, stage))) is not None:
            return known
        if stage not in self.order.there:
            return self._add(Occurrence(value, microbatch, stage, position, has_memory=False))
        if (passed := self.order.passed_as(value, microbatch)) is not None:
            found = self._add(Occurrence(value, microbatch, stage, position, has_memory=False))
            same, of, use = passed
            if not self._is_zero(same):
                self._need(same, of, stage, position, use).passed.append(found)
            return found
        self._make(cast(OpResult, value).op, microbatch, stage, position)
        return self.found[value, microbatch, stage]

    def _is_zero(self, value: SSAValue) -> bool:
        """Whether a value is zeros that go."""
        return isinstance(value, OpResult) and self.problem.starts_sum(value.op)

    def _make(self, op: Operation, microbatch: int | None, stage: int, position: Position) -> None:
        """An operation beside the stage calls."""
        read = [
            (i, self._need(values_read(op)[i], microbatch, stage, (*position, 0, k), (op, i)))
            for k, i in enumerate(read_by(op))
        ]
        here = position if is_constant(op) else (*position, *RUN)
        results = [
            self._add(Occurrence(r, microbatch, stage, here, has_memory=not shares_memory(op))) for r in op.results
        ]
        for i, at in read:
            at.end = here
            if shares_memory(op) and i == 0:
                at.passed += results
        if not self._is_zero(op.results[0]):
            self.runs.append(Run(op, microbatch, stage, here))

    def _add(self, occurrence: Occurrence) -> Occurrence:
        self.found[occurrence.value, occurrence.microbatch, occurrence.stage] = occurrence
        self.by_stage[occurrence.stage].append(occurrence)
        return occurrence


def occurrences_of(problem: Problem) -> Occurrences | None:
    """Those of a problem, found once; None if it is not staged."""
    if problem.order is None:
        return None
    found = problem.known.get("occurrences")
    if not isinstance(found, Occurrences):
        found = problem.known["occurrences"] = Occurrences(problem, problem.order, Lifetimes(problem))
    return found
