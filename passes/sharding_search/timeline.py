"""What the devices of a staged program do, one after the other: in goes a plan and the order of its stages' calls; out come the calls,
conversions and messages of every microbatch as `apply-sharding` and `pipeline-schedule` write them, without writing them.

Where something happens is a position: of item n of the schedule (a call, or a message after it), its i-th operand is brought about at
(2n, i, ...), converted at (2n, i, 1) and sent at (2n, i, 2), and the item runs at (2n + 1,). Positions do not depend on the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import cast

from xdsl.dialects.func import ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.dist import PutRowsOp, TakeRowsOp
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding_search.plans import Plan, needed_by, produced, returned
from distir.passes.sharding_search.prices import Conversion
from distir.passes.sharding_search.problem import Problem
from distir.passes.staging.order import Order, Use, is_stage_call
from distir.passes.staging.zeros import ZERO, left_of_sum
from distir.passes.structure import is_constant

Position = tuple[float, ...]

CONVERTED, SENT, RUN = (1,), (2,), (0, inf)
"""Behind the position of an operand: where it is converted, where it is sent, and where an operation beside the calls runs for it."""


@dataclass(frozen=True)
class Event:
    """Something that happens on one stage, or, a message, on two."""

    position: Position
    stage: int
    """Of a message, the sender's."""
    use: Use
    """For which it happens; of an operation that runs, itself and no operand (-1)."""
    operands: tuple[int, ...]
    """By number: values in some state, of some microbatch, on some stage."""
    results: tuple[int, ...]
    microbatch: int | None = None
    conversion: Conversion | None = None
    receiver: int | None = None


@dataclass(frozen=True)
class Instance:
    """A value in some state, of a microbatch, on a stage."""

    value: SSAValue
    states: AxisStates
    microbatch: int | None
    stage: int


@dataclass
class Timeline:
    """Of one plan."""

    problem: Problem
    plan: Plan
    order: Order
    events: list[Event] = field(default_factory=list[Event])
    instances: list[Instance] = field(default_factory=list[Instance])
    given: list[int] = field(default_factory=list[int])
    """The numbers of the arguments of the entry, on each stage that holds them."""
    returned: list[list[int]] = field(default_factory=list[list[int]])
    """Of each result of the entry, its numbers."""
    _made: dict[Instance, int] = field(default_factory=dict[Instance, int])
    _needed: dict[Operation, Sequence[AxisStates]] = field(default_factory=dict[Operation, Sequence[AxisStates]])
    _item: int = 0

    def __post_init__(self) -> None:
        order = self.order
        for argument, stages in order.places.items():
            states = self.plan.arguments[argument]
            self.given += [self._define(Instance(argument, states, None, stage)) for stage in stages]
        for op in order.main.ops:
            if op is order.loop:
                self._add_loop()
            elif is_stage_call(op):
                self._call(op, None)
        self._return()

    # --- the order of `pipeline-schedule` ---------------------------------------------------------------------------

    def _add_loop(self) -> None:
        order = self.order
        for step in order.steps:
            called = order.called(step)
            for op, microbatch in called:
                self._call(op, microbatch)
                for i in order.kept[op]:
                    assert order.last is not None
                    self._bring((order.last, i), microbatch, cast(int, order.home(order.left[i])))
            for op, microbatch in called:
                for _, use, stage in order.remote[op]:
                    self._bring(use, microbatch, stage)

    def _bring(self, use: Use, microbatch: int | None, stage: int) -> int:
        """An item that only makes a value be on a stage."""
        op, i = use
        found = self._get(op.operands[i], self.needs(op)[i], microbatch, stage, (2 * self._item, 0), use)
        self._item += 1
        return found

    def _call(self, op: Operation, microbatch: int | None) -> None:
        stage, item = self.order.rank(op), self._item
        operands = [
            self._get(value, states, microbatch, stage, (2 * item, i), (op, i))
            for i, (value, states) in enumerate(zip(op.operands, self.needs(op), strict=True))
        ]
        self._run(op, operands, microbatch, stage, (2 * item + 1,))
        self._item += 1

    def _return(self) -> None:
        order = self.order
        last = cast(ReturnOp, order.main.last_op)
        for i, value in enumerate(last.operands):
            states = returned(self.problem, self.plan, order.entry, i, value)
            home = order.home(value)
            stages = [0] if home is None else [home]
            if home is None and isinstance(value, BlockArgument):
                stages = order.places[value]
            position = (2 * self._item, i)
            self.returned.append([self._get(value, states, None, stage, position, (last, i)) for stage in stages])

    # --- values -----------------------------------------------------------------------------------------------------

    def needs(self, op: Operation) -> Sequence[AxisStates]:
        if op not in self._needed:
            function = self.order.function if op.parent is self.order.body else self.order.entry
            assert function is not None
            self._needed[op] = needed_by(self.problem, self.plan, function, op)
        return self._needed[op]

    def _get(
        self, value: SSAValue, states: AxisStates, microbatch: int | None, stage: int, position: Position, use: Use
    ) -> int:
        """The number of a value in some states on a stage: brought about at this position, if it is not there."""
        order = self.order
        while states == produced(self.problem, self.plan, value):
            if (same := order.passed_as(value, microbatch)) is None:
                break
            value, microbatch, use = same
        microbatch = microbatch if order.is_inside(value) else None
        instance = Instance(value, states, microbatch, stage)
        if (known := self._made.get(instance)) is not None:
            return known
        source = order.origin(value, stage)
        if source != stage:
            sent = self._get(value, states, microbatch, source, position, use)
            number = ZERO if sent == ZERO else self._define(instance)
            if sent != ZERO:
                self.events.append(
                    Event((*position, *SENT), source, use, (sent,), (number,), microbatch, receiver=stage)
                )
            return self._note(instance, number)
        own = produced(self.problem, self.plan, value)
        if states != own:
            before = self._get(value, own, microbatch, stage, position, use)
            conversion = self.problem.prices.conversion(value.type, own, states)
            assert conversion is not None
            number = ZERO if before == ZERO else self._define(instance)
            if before != ZERO:
                made = Event((*position, *CONVERTED), stage, use, (before,), (number,), microbatch, conversion)
                self.events.append(made)
            return self._note(instance, number)
        self._make(cast(OpResult, value).op, microbatch, stage, position)
        return self._made[instance]

    def _make(self, op: Operation, microbatch: int | None, stage: int, position: Position) -> None:
        """An operation beside the stage calls."""
        if self.problem.starts_sum(op):
            for value in op.results:
                self._note(Instance(value, produced(self.problem, self.plan, value), microbatch, stage), ZERO)
            return
        found = {
            i: self._get(op.operands[i], self.needs(op)[i], microbatch, stage, (*position, 0, k), (op, i))
            for k, i in enumerate(read_by(op))
        }
        operands = [found[i] for i in sorted(found)]
        if (left := left_of_sum(op, operands)) is not None:
            own = produced(self.problem, self.plan, op.results[0])
            self._note(Instance(op.results[0], own, microbatch, stage), left)
            return
        self._run(op, operands, microbatch, stage, (*position, *RUN))

    def _run(
        self, op: Operation, operands: Sequence[int], microbatch: int | None, stage: int, position: Position
    ) -> None:
        results = [
            self._define(Instance(value, produced(self.problem, self.plan, value), microbatch, stage))
            for value in op.results
        ]
        if is_constant(op):
            position = position[: -len(RUN)]
        self.events.append(Event(position, stage, (op, -1), tuple(operands), tuple(results), microbatch))

    def _define(self, instance: Instance) -> int:
        self.instances.append(instance)
        return self._note(instance, len(self.instances) - 1)

    def _note(self, instance: Instance, number: int) -> int:
        self._made[instance] = number
        return number


def read_by(op: Operation) -> Sequence[int]:
    """Which operands an operation beside the stage calls reads, in the order in which they are brought about: the number of the microbatch
    is known when the schedule is written."""
    if isinstance(op, PutRowsOp):
        return [list(op.operands).index(op.rows), list(op.operands).index(op.input)]
    return [list(op.operands).index(op.input)] if isinstance(op, TakeRowsOp) else range(len(op.operands))
