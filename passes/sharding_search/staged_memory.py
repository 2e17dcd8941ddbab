"""How much memory a plan of a staged program needs: in goes the plan; out come bytes at each point of its timeline, on the devices of each
stage, as the simulator counts them on the scheduled program."""

from __future__ import annotations

from dataclasses import dataclass, field

from distir.interpreters.work import is_view
from distir.passes.sharding_search.memory import FOREVER, Footprint, Walk, extra_memory
from distir.passes.sharding_search.timeline import Event, Timeline
from distir.passes.staging.zeros import ZERO
from distir.passes.structure import AnyCall, argument_attributes, is_constant, text


@dataclass
class StagedWalk(Walk):
    """Of one run of the scheduled program."""

    timeline: Timeline = field(init=False)
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    """The storage of each instance of a value."""

    def __post_init__(self) -> None:
        assert self.problem.order is not None
        self.timeline = Timeline(self.problem, self.plan, self.problem.order)

    def entry(self) -> Footprint:
        timeline = self.timeline
        for number in timeline.given:
            self._allocate(number)
        for event in timeline.events:
            self.stage, self.position = event.stage, event.position
            if event.receiver is not None:
                self._send(event)
            elif event.conversion is not None:
                self._convert(event)
            else:
                self._run(event)
        stay = [*timeline.given, *(number for numbers in timeline.returned for number in numbers)]
        for number in stay:
            if number != ZERO:
                self.storages[self.numbers[number]].last_use = FOREVER
        attributes = argument_attributes(self.problem.entry)
        given = {self.numbers[number] for number in timeline.given}
        for index, argument in self.problem.tied.items():
            if text(attributes[argument.index], "dist.role", "input") not in ("parameter", "state"):
                continue
            for number in timeline.returned[index]:
                if (
                    self.numbers[number] not in given
                    and timeline.instances[number].stage in timeline.order.places[argument]
                ):
                    self.storages[self.numbers[number]].bytes = 0
        return self.footprint()

    def _allocate(self, number: int) -> None:
        """Memory of an instance, from the next point on, on its stage."""
        instance = self.timeline.instances[number]
        size = self.problem.prices.bytes(instance.value.type, instance.states)
        stage, self.stage = self.stage, instance.stage
        self.numbers[number] = self.allocate(instance.value, size)
        self.stage = stage

    def _send(self, event: Event) -> None:
        op, operand = event.use
        self.use(self.numbers[event.operands[0]])
        self.add_point((), op, operand)
        assert event.receiver is not None
        self.stage = event.receiver
        self._allocate(event.results[0])
        self.add_point((), op, operand)

    def _convert(self, event: Event) -> None:
        (source,), (target,), conversion = event.operands, event.results, event.conversion
        assert conversion is not None
        if conversion.uses_source:
            self.use(self.numbers[source])
        if conversion.keeps_source:
            self.numbers[target] = self.numbers[source]
        else:
            self._allocate(target)
        self.conversions[len(self.points)] = conversion
        self.add_point((), *event.use)

    def _run(self, event: Event) -> None:
        op = event.use[0]
        operands = [ZERO if number == ZERO else self.numbers[number] for number in event.operands]
        if isinstance(op, AnyCall):
            results = self.run(self.problem.callee(op), operands, (op,))
            self.numbers.update(zip(event.results, results, strict=True))
            return
        if is_constant(op):
            for number in event.results:
                self._allocate(number)
                self.stated.add(self.numbers[number])
            return
        for storage in operands:
            self.use(storage)
        for i, number in enumerate(event.results):
            if is_view(op) and i == 0:
                self.numbers[number] = operands[0]
            else:
                self._allocate(number)
        option = self.plan.options[op]
        self.extras[len(self.points)] = extra_memory(self.problem, op, option, option.price.restated)
        self.add_point((), op, None)
