"""How long a plan of a staged program takes: in goes its timeline; out come its makespan, as the simulator has it, and the path through calls
and messages that is the longest.

A path is on one stage at a time, from one message to another on the next. It says which operations follow each other, whatever the plan, so
its sum is a lower bound of the makespan of every plan; the makespan is the largest of these sums."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import OpResult, SSAValue

from distir.passes.sharding.lifetimes import Position
from distir.passes.sharding.memory import Body, Reshard, Run, body_of
from distir.passes.sharding.occurrences import occurrences_of
from distir.passes.sharding.plans import ShardingPlan
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.timeline import Event, Timeline, timeline_of
from distir.passes.staging.order import is_stage_call
from distir.passes.staging.zeros import ZERO, left_of_sum
from distir.passes.structure import AnyCall, is_constant


@dataclass(frozen=True)
class Path:
    """From which position on a path is on which stage, in order; the first is from the start."""

    turns: tuple[tuple[Position, int], ...]

    def before(self, position: Position) -> int:
        """The stage on which the path is just before a position."""
        return self.turns[max(0, bisect_left(self.turns, (position, -1)) - 1)][1]

    def after(self, position: Position) -> int:
        """The stage on which it is from there on."""
        return self.turns[max(0, bisect_right(self.turns, (position, 1 << 30)) - 1)][1]

    def has(self, position: Position, stage: int, receiver: int | None = None) -> bool:
        """Whether something that happens on a stage, or is sent to another, is on the path."""
        if receiver is None:
            return self.before(position) == stage
        ends = (stage, receiver)
        return self.before(position) in ends or self.after(position) in ends


@dataclass
class PipelineTime:
    """Of one plan."""

    problem: Problem
    plan: ShardingPlan
    timeline: Timeline = field(init=False)
    picoseconds: list[int] = field(default_factory=list[int])
    """Of each event of the timeline."""
    _bodies: dict[str, Body] = field(default_factory=dict[str, Body])
    _functions: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict[tuple[str, tuple[int, ...]], int])

    def __post_init__(self) -> None:
        self.timeline = timeline_of(self.problem, self.plan)
        self.picoseconds = [self._time(event) for event in self.timeline.events]

    def longest(self) -> tuple[int, Path]:
        """The makespan, and the path that takes so long."""
        clocks: dict[int, int] = {}
        last: dict[int, int] = {}
        """By stage, the number of what happened there last."""
        before: list[tuple[int, int]] = []
        """Of each event the stage for which it waited, and what happened there before."""
        there = self.timeline.order.there
        for number, (event, time) in enumerate(zip(self.timeline.events, self.picoseconds, strict=True)):
            stages = [event.stage] if event.receiver is None else [event.stage, event.receiver]
            stages = [stage for stage in stages if stage in there]
            start, on = max((clocks.get(stage, 0), -i) for i, stage in enumerate(stages))
            before.append((stages[-on], last.get(stages[-on], -1)))
            for stage in stages:
                clocks[stage], last[stage] = start + time, number
        if not clocks:
            return 0, Path((((), 0),))
        stage = max(clocks, key=lambda stage: clocks[stage])
        makespan, number = clocks[stage], last[stage]
        turns: list[tuple[Position, int]] = []
        while number >= 0:
            waited, previous = before[number]
            if waited != stage:
                position = self._crossing(self.timeline.events[number])
                if position is None:
                    break
                turns.append((position, stage))
                stage = waited
            number = previous
        return makespan, Path((((), stage), *reversed(turns)))

    def along(self, path: Path) -> int:
        """What is on a path takes so long."""
        return sum(
            time
            for event, time in zip(self.timeline.events, self.picoseconds, strict=True)
            if path.has(event.position, event.stage, event.receiver)
        )

    def _crossing(self, event: Event) -> Position | None:
        """Where a path may cross to another stage in every plan: at the first message of what a call makes, which may leave the loop. None if that is
        not known."""
        instance, order = self.timeline.instances[event.operands[0]], self.timeline.order
        of: tuple[SSAValue, int | None] = instance.value, instance.microbatch
        results: Sequence[SSAValue] = order.loop.results if order.loop is not None else ()
        given: dict[SSAValue, tuple[SSAValue, int | None]] = {
            result: passed[:2] for result in results if (passed := order.passed_as(result, None)) is not None
        }
        of = given.get(instance.value, of)
        if not isinstance(of[0], OpResult) or not is_stage_call(of[0].op):
            return None
        same: list[tuple[SSAValue, int | None]] = [of]
        same += ((result, None) for result, passed in given.items() if passed == of)
        occurrences = occurrences_of(self.problem)
        assert occurrences is not None
        assert event.receiver is not None
        messages = [occurrences.messages.get((*each, event.stage, event.receiver), ()) for each in same]
        return min((use.start for uses in messages for use in uses), default=None)

    def _time(self, event: Event) -> int:
        if event.conversion is not None:
            return event.conversion.picoseconds
        if event.receiver is not None:
            sent = self.timeline.instances[event.operands[0]]
            return self.problem.prices.message(sent.value.type, sent.states, event.stage, event.receiver)
        op = event.use[0]
        if isinstance(op, AnyCall):
            zeros = tuple(i for i, number in enumerate(event.operands) if number == ZERO)
            return self._function(self.problem.callee(op), zeros)
        return 0 if is_constant(op) else self.plan.options[op].picoseconds

    def _function(self, function: FuncOp, zeros: tuple[int, ...]) -> int:
        """One run of a function, of whose arguments these are zeros that go."""
        key = function.sym_name.data, zeros
        if key not in self._functions:
            self._functions[key] = self._body(function, zeros)
        return self._functions[key]

    def _body(self, function: FuncOp, zeros: tuple[int, ...]) -> int:
        name = function.sym_name.data
        if name not in self._bodies:
            self._bodies[name] = body_of(self.problem, self.plan, function)
        held = {number: ZERO for number in zeros}
        total = 0
        for step in self._bodies[name].steps:
            if isinstance(step, Reshard):
                if held.get(step.source) == ZERO:
                    held[step.target] = ZERO
                else:
                    total += step.conversion.picoseconds
            elif isinstance(step, Run):
                op, operands = step.operation, [held.get(number, number) for number in step.operands]
                if isinstance(op, AnyCall):
                    gone = tuple(i for i, number in enumerate(operands) if number == ZERO)
                    total += self._function(self.problem.callee(op), gone)
                elif (left := left_of_sum(op, operands)) is not None:
                    held[step.results[0][0]] = left
                else:
                    total += self.plan.options[op].picoseconds
        return total
