"""How much memory a plan of a staged program needs: in goes the plan; out come bytes at each point of its timeline, on the devices of each
stage, as the simulator counts them on the scheduled program.

A call of a stage is walked once for each way in which it is called: what it holds beside what was there before is the same in every microbatch
in which the same operands go with it and the same results stay."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, cast

from distir.interpreters.work import shares_memory
from distir.passes.sharding.memory import Body, Footprint, Point, Storage, Walk, extra_memory
from distir.passes.sharding.plans import ShardingPlan, made_by
from distir.passes.sharding.prices import Conversion
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.timeline import Event, Timeline
from distir.passes.staging.zeros import ZERO
from distir.passes.structure import AnyCall, argument_attributes, is_constant, text

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MOST_KNOWN = 4
"""Plans of a function whose calls are kept."""

Left = tuple[tuple[int, int], ...]
"""Steps of a call, or storages of its results, each with bytes."""


@dataclass
class Inside:
    """A call by itself: a walk that it begins, with the storages there of its arguments and results."""

    walk: Walk
    arguments: list[int]
    results: list[int]
    used: list[int]
    """The last step that uses each argument; -1 if none does."""
    made_by: list[object]
    """What it depends on of the plan (`plans.made_by`)."""
    totals: dict[tuple[Left, Left], Array] = field(default_factory=dict[tuple[Left, Left], "Array"])

    def over(self, freed: Left, kept: Left) -> Array:
        """Bytes at each step beside those before, where operands go after these steps, and these results stay."""
        if (freed, kept) not in self.totals:
            count, storages = len(self.walk.points), dict(enumerate(self.walk.storages))
            for number in self.arguments:
                storages.pop(number, None)
            for number, size in kept:
                storages[number] = Storage(size, storages[number].birth, count, storages[number].what)
            before = -sum(size for _, size in freed)
            gone = [Storage(size, -1, step, self.walk.storages[0].what) for step, size in freed]
            self.totals[freed, kept] = self.walk.bytes_over([*storages.values(), *gone], before)
        return self.totals[freed, kept]


@dataclass(slots=True)
class LiveStorage:
    """A storage beside those that calls have to themselves."""

    storage: Storage
    last_event: float
    stated: bool = False


@dataclass
class Segment:
    """The points of one event."""

    event: Event
    first: int
    """The number of the first."""
    points: Sequence[Point]


class StagedPoints(Sequence[Point]):
    """The points of all events, in order, made when they are looked at."""

    def __init__(self, segments: Sequence[Segment]):
        self._segments = segments
        self._firsts = [segment.first for segment in segments]

    def __len__(self) -> int:
        return self._firsts[-1] + len(self._segments[-1].points) if self._firsts else 0

    def segment(self, index: int) -> Segment:
        return self._segments[bisect_right(self._firsts, index) - 1]

    def __getitem__(self, index: Any) -> Any:
        segment = self.segment(index)
        event, point = segment.event, segment.points[index - segment.first]
        is_there = event.receiver is not None and index > segment.first
        stage = event.receiver if is_there else event.stage
        path = (event.use[0], *point.path[1:]) if point.path else ()
        return point._replace(path=path, stage=stage, position=event.position)


@dataclass
class StagedWalk:
    """Of one run of the scheduled program."""

    problem: Problem
    plan: ShardingPlan
    timeline: Timeline
    conversions: list[Conversion] = field(default_factory=list[Conversion])
    """All that are made, in calls and beside."""
    _converted: dict[int, Conversion] = field(default_factory=dict[int, Conversion])
    """By event."""
    _held: list[LiveStorage] = field(default_factory=list[LiveStorage])
    _numbers: dict[int, int] = field(default_factory=dict[int, int])
    """The storage of each instance of a value."""
    _bodies: dict[str, Body] = field(default_factory=dict[str, Body])
    _inside: dict[tuple[str, tuple[int, ...]], Inside] = field(
        default_factory=dict[tuple[str, "tuple[int, ...]"], Inside]
    )
    """By function, and which of its arguments are zeros that go."""
    _made_by: dict[str, list[object]] = field(default_factory=dict[str, list[object]])
    """By function."""
    _calls: dict[int, Inside] = field(default_factory=dict[int, Inside])
    """By event."""
    _made: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The storages that each event makes."""

    def entry(self) -> Footprint:
        """Walks the timeline."""
        timeline = self.timeline
        for number in timeline.given:
            self._allocate(-1, number)
        for number, event in enumerate(timeline.events):
            if event.receiver is not None:
                self._use(number, event.operands[0])
                self._allocate(number, event.results[0])
            elif event.conversion is not None:
                self._convert(number, event)
            else:
                self._run(number, event)
        for number in (*timeline.given, *(number for numbers in timeline.returned for number in numbers)):
            if number != ZERO:
                self._of(number).last_event = inf
        self._tie()
        self.conversions += self._converted.values()
        return self._footprint()

    # --- which storages there are -----------------------------------------------------------------------------------

    def _of(self, number: int) -> LiveStorage:
        return self._held[self._numbers[number]]

    def _allocate(self, at: int, number: int) -> None:
        """Memory of an instance, from an event on."""
        instance = self.timeline.instances[number]
        is_there = instance.stage in self.timeline.order.there
        size = self.problem.prices.bytes(instance.value.type, instance.states) if is_there else 0
        self._numbers[number] = self._hold(at, Storage(size, 0, 0, instance.value, instance.stage))

    def _hold(self, at: int, storage: Storage) -> int:
        self._made[at].append(len(self._held))
        self._held.append(LiveStorage(storage, at))
        return len(self._held) - 1

    def _use(self, at: int, number: int) -> None:
        if number != ZERO:
            self._of(number).last_event = at

    def _convert(self, at: int, event: Event) -> None:
        (source,), (target,) = event.operands, event.results
        before, after = self.timeline.instances[source], self.timeline.instances[target]
        conversion = self.problem.prices.conversion(before.value.type, before.states, after.states)
        assert conversion is not None
        if conversion.uses_source:
            self._use(at, source)
        if conversion.keeps_source:
            self._numbers[target] = self._numbers[source]
        else:
            self._allocate(at, target)
        self._converted[at] = conversion

    def _run(self, at: int, event: Event) -> None:
        op = event.use[0]
        if isinstance(op, AnyCall):
            self._call(at, op, event)
            return
        for number in event.operands:
            self._use(at, number)
        for number in event.results:
            if shares_memory(op):
                self._numbers[number] = self._numbers[event.operands[0]]
            else:
                self._allocate(at, number)
                self._of(number).stated = is_constant(op)

    def _call(self, at: int, op: AnyCall, event: Event) -> None:
        zeros = tuple(i for i, number in enumerate(event.operands) if number == ZERO)
        key = op.callee.string_value(), zeros
        if key not in self._inside:
            self._inside[key] = self._as_before(op, event, zeros)
        inside = self._calls[at] = self._inside[key]
        held, numbers = self._held, self._numbers
        for number, used in zip(event.operands, inside.used, strict=True):
            if used >= 0:
                held[numbers[number]].last_event = at
        there = {each: number for each, number in zip(inside.arguments, event.operands, strict=True) if each != ZERO}
        own: dict[int, int] = {}
        for each, number in zip(inside.results, event.results, strict=True):
            if each in there:
                self._numbers[number] = self._numbers[there[each]]
                continue
            if each not in own:
                storage = inside.walk.storages[each]
                own[each] = self._hold(at, Storage(storage.bytes, each, 0, storage.what, event.stage))
            self._numbers[number] = own[each]

    def _as_before(self, op: AnyCall, event: Event, zeros: tuple[int, ...]) -> Inside:
        """A call by itself, which may be known from another plan."""
        name, coordinates = op.callee.string_value(), self.problem.prices.coordinates
        if name not in self._made_by:
            self._made_by[name] = made_by(self.problem, self.plan, self.problem.callee(op))
        every = cast(dict[object, list[Inside]], self.problem.known.setdefault("calls", {}))
        known = every.setdefault((name, zeros, coordinates), [])
        found = next((inside for inside in known if inside.made_by == self._made_by[name]), None)
        if found is None:
            known.append(found := self._alone(op, event))
            del known[:-MOST_KNOWN]
        self.conversions += found.walk.conversions.values()
        return found

    def _alone(self, op: AnyCall, event: Event) -> Inside:
        walk, function = Walk(self.problem, self.plan, bodies=self._bodies), self.problem.callee(op)
        arguments: list[int] = []
        for argument, number in zip(function.body.block.args, event.operands, strict=True):
            arguments.append(ZERO if number == ZERO else walk.allocate(argument, 0))
        for storage in walk.storages:
            storage.birth = storage.last_use = -1
        results = walk.run(function, arguments, (op,))
        used = [-1 if number == ZERO else walk.storages[number].last_use for number in arguments]
        return Inside(walk, arguments, results, used, self._made_by[op.callee.string_value()])

    def _tie(self) -> None:
        """Updates of parameters and state are in their memory."""
        problem, timeline = self.problem, self.timeline
        attributes = argument_attributes(problem.entry)
        given = {self._numbers[number] for number in timeline.given}
        for index, argument in problem.tied.items():
            if text(attributes[argument.index], "dist.role", "input") not in ("parameter", "state"):
                continue
            for number in timeline.returned[index]:
                is_there = timeline.instances[number].stage in timeline.order.places[argument]
                if self._numbers[number] not in given and is_there:
                    self._of(number).storage.bytes = 0

    # --- bytes ------------------------------------------------------------------------------------------------------

    def _footprint(self) -> Footprint:
        import numpy as np

        live = defaultdict[int, int](int)
        for number in self._made[-1]:
            live[self._held[number].storage.stage] += self._held[number].storage.bytes
        segments: list[Segment] = []
        totals: list[Array] = []
        count = 0
        for at, event in enumerate(self.timeline.events):
            if at in self._calls:
                points, over = self._over_call(at, event, live)
            else:
                points, over = self._over_step(at, event, live)
            segments.append(Segment(event, count, points))
            totals.append(over)
            count += len(points)
        found = np.concatenate(totals) if count else np.zeros(0, dtype=np.int64)
        points = StagedPoints(segments)
        return Footprint(points, found, self._live_at(points, int(found.argmax())) if count else [])

    def _over_call(self, at: int, event: Event, live: dict[int, int]) -> tuple[Sequence[Point], Array]:
        inside, before = self._calls[at], live[event.stage]
        freed: dict[int, int] = {}
        for i, number in enumerate(event.operands):
            if number != ZERO and self._of(number).last_event == at:
                held = self._numbers[number]
                freed[held] = max(freed.get(held, -1), inside.used[i])
        steps = tuple((step, self._held[held].storage.bytes) for held, step in freed.items())
        made = (self._held[number] for number in self._made.get(at, ()))
        kept = tuple((each.storage.birth, each.storage.bytes) for each in made if each.last_event > at)
        live[event.stage] += sum(size for _, size in kept) - sum(size for _, size in steps)
        return inside.walk.points, before + inside.over(steps, kept)

    def _over_step(self, at: int, event: Event, live: dict[int, int]) -> tuple[Sequence[Point], Array]:
        import numpy as np

        (op, operand), stage = event.use, event.stage
        used = {self._numbers[number] for number in event.operands if number != ZERO}
        gone = [self._held[number] for number in used if self._held[number].last_event == at]
        gone = [each for each in gone if each.storage.stage == stage]
        made = [self._held[number] for number in self._made.get(at, ())]
        added, freed = sum(each.storage.bytes for each in made), sum(each.storage.bytes for each in gone)
        if event.receiver is not None:
            over = [live[stage], live[event.receiver] + added]
            live[stage] -= freed
            live[event.receiver] += added
            return [Point((), op, operand)] * 2, np.array(over, dtype=np.int64)
        live[stage] += added
        if is_constant(op) and operand < 0:
            return [], np.zeros(0, dtype=np.int64)
        if (conversion := self._converted.get(at)) is not None:
            transient = conversion.last_bytes if freed else conversion.transient_bytes
            point = Point((), op, operand)
        else:
            option = self.plan.options[op]
            transient = extra_memory(self.problem, op, option, option.price.restated).at_most(freed)
            point = Point((), op, None)
        over = [live[stage] + transient]
        live[stage] -= freed + sum(each.storage.bytes for each in made if each.last_event == at)
        return [point], np.array(over, dtype=np.int64)

    def _live_at(self, points: StagedPoints, index: int) -> list[Storage]:
        """What is held at a point, on its stage."""
        segment, point = points.segment(index), points[index]
        at, step = self.timeline.events.index(segment.event), index - segment.first
        found: list[Storage] = []
        births = {number: event for event, numbers in self._made.items() for number in numbers}
        inside = self._calls.get(at)
        ends: dict[int, int] = {}
        if inside is not None:
            for i, number in enumerate(segment.event.operands):
                if number != ZERO:
                    ends[self._numbers[number]] = max(ends.get(self._numbers[number], -1), inside.used[i])
        for number, held in enumerate(self._held):
            if held.storage.stage != point.stage or births[number] > at or held.last_event < at:
                continue
            if births[number] == at and inside is not None:
                continue
            if held.last_event > at or ends.get(number, step) >= step:
                found.append(Storage(held.storage.bytes, index, index, held.storage.what, point.stage))
        if inside is not None:
            kept = {self._held[n].storage.birth: self._held[n] for n in self._made.get(at, ())}
            given = set(inside.arguments)
            for number, storage in enumerate(inside.walk.storages):
                stays = number in kept and kept[number].last_event > at
                if number not in given and storage.birth <= step and (stays or storage.last_use >= step):
                    size = kept[number].storage.bytes if stays else storage.bytes
                    found.append(Storage(size, index, index, storage.what, point.stage))
        return found
