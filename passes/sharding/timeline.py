"""What the devices of a staged program do, one after the other: in goes a plan and the order of its stages' calls; out come the calls,
conversions and messages of every microbatch as `apply-sharding` and `pipeline-schedule` write them, without writing them.

Where something happens is a position: of item n of the schedule (a call, or a message after it), its i-th operand is brought about at
(2n, i, ...), converted at (2n, i, 1) and sent at (2n, i, 2), and the item runs at (2n + 1,). Positions do not depend on the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, cast

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue

from distir.dialects.dist import PutRowsOp, TakeRowsOp
from distir.interpreters.walk import values_read
from distir.passes.distribution.mesh import AxisStates
from distir.passes.distribution.pipeline.stages import phase_of, stage_of
from distir.passes.sharding.plans import ShardingPlan, needed_by, produced, returned
from distir.passes.sharding.prices import Conversion
from distir.passes.sharding.problem import Problem
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


class Instance(NamedTuple):
    """A value in some state, of a microbatch, on a stage."""

    value: SSAValue
    states: AxisStates
    microbatch: int | None
    stage: int


@dataclass
class Timeline:
    """Of one plan."""

    problem: Problem
    plan: ShardingPlan
    order: Order
    events: list[Event] = field(default_factory=list[Event])
    instances: list[Instance] = field(default_factory=list[Instance])
    given: list[int] = field(default_factory=list[int])
    """The numbers of the arguments of the entry, on each stage that holds them, and of what arrives from ranks that are not there."""
    returned: list[list[int]] = field(default_factory=list[list[int]])
    """Of each result of the entry, its numbers."""
    _made: dict[tuple[int, int | None, int], int] = field(default_factory=dict[tuple[int, "int | None", int], int])
    """By value in some state, microbatch and stage."""
    _forms: dict[tuple[SSAValue, AxisStates], int] = field(default_factory=dict[tuple[SSAValue, AxisStates], int])
    """Numbers of values in some state."""
    _needed: dict[Operation, Sequence[AxisStates]] = field(default_factory=dict[Operation, Sequence[AxisStates]])
    _results: dict[Operation, list[tuple[SSAValue, AxisStates, int]]] = field(
        default_factory=dict[Operation, "list[tuple[SSAValue, AxisStates, int]]"]
    )
    _repeated: dict[Operation, list[tuple[int, int] | None]] = field(
        default_factory=dict[Operation, "list[tuple[int, int] | None]"]
    )
    """Of each operand of a call of the loop, what it is from the third microbatch on, as in the second: the number of a value in some state,
    and whether it is that of no microbatch, of the same (1) or of the one before (2)."""
    _found: tuple[int, SSAValue, int | None] = field(init=False)
    """What was last found: the number of a value in some state, the value, and of which microbatch."""
    _settled: set[Operation] = field(default_factory=set[Operation])
    """Calls whose results are left to the next microbatch as they are."""
    _item: int = 0

    def __post_init__(self) -> None:
        order = self.order
        for argument, stages in order.places.items():
            states = self.plan.arguments[argument]
            self.given += [self._define(Instance(argument, states, None, stage)) for stage in stages]
        for op in order.main.ops:
            if op is order.loop:
                self._add_loop()
            elif is_stage_call(op) and order.rank(op) in order.there:
                self._call(op, None)
        self._return()

    # --- the order of `pipeline-schedule` ---------------------------------------------------------------------------

    def _add_loop(self) -> None:
        order = self.order
        for step in order.steps:
            called = order.called(step)
            for op, microbatch in called:
                self._call(op, microbatch)
                self._keep(op, microbatch)
            for op, microbatch in called:
                for _, use, stage in order.remote[op]:
                    self._bring(use, microbatch, stage)

    def _keep(self, op: Operation, microbatch: int) -> None:
        """What a microbatch leaves to the next, as far as a call makes it; once that is there with no more ado, so it is in later microbatches."""
        order, known = self.order, (len(self.events), len(self._made))
        if op in self._settled:
            self._item += len(order.kept[op])
            return
        for i in order.kept[op]:
            assert order.last is not None
            self._bring((order.last, i), microbatch, cast(int, order.home(order.left[i])))
        if self._before(op, microbatch) is not None and known == (len(self.events), len(self._made)):
            self._settled.add(op)

    def _bring(self, use: Use, microbatch: int | None, stage: int) -> int:
        """An item that only makes a value be on a stage."""
        op, i = use
        found = self._get(op.operands[i], self.needs(op)[i], microbatch, stage, (2 * self._item, 0), use)
        self._item += 1
        return found

    def _call(self, op: Operation, microbatch: int | None) -> None:
        stage, item = self.order.rank(op), self._item
        repeated, before = self._repeated.get(op, ()), self._before(op, microbatch)
        of, operands, keys = (None, microbatch, before), list[int](), list[tuple[int, int] | None]()
        for i, (value, states) in enumerate(zip(op.operands, self.needs(op), strict=True)):
            number = None
            if repeated and (key := repeated[i]) is not None:
                number = self._made.get((key[0], of[key[1]], stage))
            if number is None:
                number = self._get(value, states, microbatch, stage, (2 * item, i), (op, i))
                if before is not None and not repeated:
                    keys.append(self._repeatable(op, of))
            operands.append(number)
        if keys:
            self._repeated[op] = keys
        self._run(op, operands, microbatch, stage, (2 * item + 1,))
        self._item += 1

    def _before(self, op: Operation, microbatch: int | None) -> int | None:
        """The microbatch before one on the stage of a call; None of the first."""
        if microbatch is None:
            return None
        order = self._order_of(op)
        at = order.index(microbatch)
        return order[at - 1] if at else None

    def _order_of(self, op: Operation) -> Sequence[int]:
        return self.order.orders[stage_of(op), str(phase_of(op))]

    def _repeatable(self, op: Operation, of: Sequence[int | None]) -> tuple[int, int] | None:
        """What a call has just found for an operand, as those of later microbatches look for it; None if these may have another."""
        form, value, microbatch = self._found
        if microbatch not in of or (microbatch is not None and self.order.runs_in(value) != self._order_of(op)):
            return None
        return form, of.index(microbatch)

    def _return(self) -> None:
        order = self.order
        last = cast(ReturnOp, order.main.last_op)
        for i, value, stages in order.returned():
            states = returned(self.problem, self.plan, order.entry, i, value)
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
        key = self._form(value, states), microbatch, stage
        if (known := self._made.get(key)) is None:
            known = self._bring_about(instance, position, use)
        self._found = key[0], value, microbatch
        return known

    def _bring_about(self, instance: Instance, position: Position, use: Use) -> int:
        """The number of a value in some states that is not on a stage yet."""
        value, states, microbatch, stage = instance
        source = self.order.origin(value, stage)
        if source != stage:
            if source in self.order.there:
                sent = self._get(value, states, microbatch, source, position, use)
            else:
                sent = self._arriving(instance._replace(stage=source))
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
        return self._made[self._form(value, states), microbatch, stage]

    def _arriving(self, instance: Instance) -> int:
        """The number of a value on a rank that is not there."""
        key = self._form(instance.value, instance.states), instance.microbatch, instance.stage
        if key not in self._made:
            self.given.append(self._define(instance))
        return self._made[key]

    def _make(self, op: Operation, microbatch: int | None, stage: int, position: Position) -> None:
        """An operation beside the stage calls."""
        if self.problem.starts_sum(op):
            for value in op.results:
                self._note(Instance(value, produced(self.problem, self.plan, value), microbatch, stage), ZERO)
            return
        found = {
            i: self._get(values_read(op)[i], self.needs(op)[i], microbatch, stage, (*position, 0, k), (op, i))
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
        if op not in self._results:
            states = [(value, produced(self.problem, self.plan, value)) for value in op.results]
            self._results[op] = [(*each, self._form(*each)) for each in states]
        results: list[int] = []
        for value, states, form in self._results[op]:
            results.append(len(self.instances))
            self._made[form, microbatch, stage] = len(self.instances)
            self.instances.append(Instance(value, states, microbatch, stage))
        if is_constant(op):
            position = position[: -len(RUN)]
        self.events.append(Event(position, stage, (op, -1), tuple(operands), tuple(results), microbatch))

    def _define(self, instance: Instance) -> int:
        self.instances.append(instance)
        return self._note(instance, len(self.instances) - 1)

    def _note(self, instance: Instance, number: int) -> int:
        self._made[self._form(instance.value, instance.states), instance.microbatch, instance.stage] = number
        return number

    def _form(self, value: SSAValue, states: AxisStates) -> int:
        return self._forms.setdefault((value, states), len(self._forms))


def timeline_of(problem: Problem, plan: ShardingPlan) -> Timeline:
    """That of a plan of a staged program; the last one is kept."""
    known = problem.known.get("timeline")
    if isinstance(known, Timeline) and known.plan is plan:
        return known
    assert problem.order is not None
    found = problem.known["timeline"] = Timeline(problem, plan, problem.order)
    return found


def read_by(op: Operation) -> Sequence[int]:
    """Which operands an operation beside the stage calls reads, in the order in which they are brought about: the number of the microbatch
    is known when the schedule is written."""
    if isinstance(op, PutRowsOp):
        return [list(op.operands).index(op.rows), list(op.operands).index(op.input)]
    return [list(op.operands).index(op.input)] if isinstance(op, TakeRowsOp) else range(len(values_read(op)))
