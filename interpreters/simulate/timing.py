"""The time of a function. In go a body, its devices and the clocks at its entry; out come the clocks at its exit. A
body does the same on other devices where its messages cost the same, and from clocks that are all later by the same
time. So each part is computed once.

A `TimedBody` is a body with the costs that its messages have somewhere. It remembers exit clocks by entry clocks, both relative
to the first stream: layers in the steady state, and replicas, are found there. Where entry clocks keep differing, it becomes
the max-plus linear map that it is, `exit[i] = max(entry[j] + map[i][j])`, and is applied (Baccelli et al., Synchronization
and Linearity, 1992, chapter 1).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from distir.interpreters.costs import SLOWDOWN, Cost, Costs
from distir.interpreters.simulate.bodies import Body, Call, Devices, Message
from distir.interpreters.simulate.groups import DevicesDiffer, RankSymmetry

DIFFERENT = 8
"""Entry clocks that a frame meets before it is made a map."""
WIDE = 128
"""Streams above which a frame is never made a map: it would have the square of them."""


class Local(NamedTuple):
    """One stream is busy."""

    stream: int
    picoseconds: int


class Joint(NamedTuple):
    """Streams wait for each other, then all are busy."""

    streams: tuple[int, ...]
    picoseconds: int


class Wait(NamedTuple):
    """One stream waits for another."""

    source: int
    target: int


class Enter(NamedTuple):
    """A call: for each stream of the callee, the caller's."""

    frame: TimedBody
    streams: tuple[int, ...]


Row = tuple[dict[int, int], int]
"""One line of a max-plus map: `max(entry[j] + start[j]) + offset`. Streams that met share `start`."""


@dataclass(eq=False, slots=True)
class TimedBody:
    """A body whose messages have costs. Compared by identity."""

    body: Body
    program: list[Local | Joint | Wait | Enter]
    busy: list[Counter[str]]
    """Picoseconds of its own operations by kind, per device of the body."""
    known: dict[tuple[int, ...], list[int]] = field(default_factory=dict[tuple[int, ...], list[int]])
    """Exit clocks by entry clocks, relative to the first stream."""
    rows: list[Row] | None = None

    def exits(self, entry: tuple[int, ...]) -> list[int]:
        """The clocks after it, from clocks relative to the first."""
        if (found := self.known.get(entry)) is None:
            if len(self.known) < DIFFERENT or len(entry) > WIDE:
                found = self.known[entry] = self.run(list(entry))
            else:
                found = self.applied(entry)
        return found

    def run(self, clocks: list[int]) -> list[int]:
        """Moves the clocks, in place."""
        for step in self.program:
            match step:
                case Local(stream, picoseconds):
                    clocks[stream] += picoseconds
                case Joint(streams, picoseconds):
                    end = max([clocks[s] for s in streams]) + picoseconds
                    for s in streams:
                        clocks[s] = end
                case Wait(source, target):
                    clocks[target] = max(clocks[source], clocks[target])
                case Enter(frame, streams):
                    entry = [clocks[s] for s in streams]
                    first = entry[0]
                    for s, clock in zip(streams, frame.exits(tuple([c - first for c in entry])), strict=True):
                        clocks[s] = clock + first
        return clocks

    def applied(self, entry: Sequence[int]) -> list[int]:
        """The same, by its map."""
        ends: dict[int, int] = {}
        exits: list[int] = []
        for start, offset in self.map():
            if (end := ends.get(id(start))) is None:
                end = ends[id(start)] = max([entry[j] + added for j, added in start.items()])
            exits.append(end + offset)
        return exits

    def map(self) -> list[Row]:
        """The max-plus map that it is."""
        if self.rows is not None:
            return self.rows
        rows: list[Row] = [({stream: 0}, 0) for stream in range(len(self.body.streams))]
        for step in self.program:
            match step:
                case Local(stream, picoseconds):
                    start, offset = rows[stream]
                    rows[stream] = (start, offset + picoseconds)
                case Joint(streams, picoseconds):
                    start, offset = latest([rows[s] for s in streams])
                    for s in streams:
                        rows[s] = (start, offset + picoseconds)
                case Wait(source, target):
                    rows[target] = latest([rows[source], rows[target]])
                case Enter(frame, streams):
                    starts: dict[int, Row] = {}
                    inner = frame.map()
                    for start, _ in inner:
                        if id(start) not in starts:
                            entered = [(rows[streams[j]], added) for j, added in start.items()]
                            starts[id(start)] = latest([(s, offset + added) for (s, offset), added in entered])
                    for s, (start, added) in zip(streams, inner, strict=True):
                        outer, offset = starts[id(start)]
                        rows[s] = (outer, offset + added)
        self.rows = rows
        return rows


def latest(rows: Iterable[Row]) -> Row:
    """The latest of several clocks, whatever the entry clocks are."""
    (first, most), *others = rows
    if all(start is first for start, _ in others):
        return first, max([most, *(offset for _, offset in others)])
    merged = {stream: added + most for stream, added in first.items()}
    for start, offset in others:
        for stream, added in start.items():
            if stream not in merged or merged[stream] < added + offset:
                merged[stream] = added + offset
    return merged, 0


@dataclass
class TimedBodies:
    """Bodies placed on machine devices. Equal ones on different devices are one frame."""

    costs: Costs
    _placed: dict[tuple[Body, Devices], TimedBody] = field(default_factory=dict[tuple[Body, Devices], TimedBody])
    _frames: dict[tuple[object, ...], TimedBody] = field(default_factory=dict[tuple[object, ...], TimedBody])
    _messages: dict[Message, Cost] = field(default_factory=dict[Message, Cost])
    _checked: set[tuple[object, Devices]] = field(default_factory=set[tuple[object, Devices]])
    """Who was found to take as long as those who represent them, on which devices."""

    def of(self, body: Body, devices: Devices) -> TimedBody:
        """The body on these devices."""
        if (frame := self._placed.get((body, devices))) is None:
            costs, inner = self.outside(body, devices)
            key = (body, *costs.values(), *inner.values())
            if (frame := self._frames.get(key)) is None:
                frame = self._frames[key] = _frame(self.costs, body, costs, inner)
            self._placed[body, devices] = frame
        return frame

    def entry(self, body: Body, devices: Devices) -> TimedBody:
        """The entry, which is not remembered."""
        return _frame(self.costs, body, *self.outside(body, devices))

    def outside(
        self, body: Body, devices: Devices
    ) -> tuple[dict[Message, Cost], dict[tuple[Body, Devices], TimedBody]]:
        """What the body alone does not say: the costs of its messages, and the frames of its calls."""
        costs = {message: self._cost(message, devices) for message in body.messages}
        inner = {(callee, on): self.of(callee, on_devices(on, devices)) for callee, on in body.calls}
        return costs, inner

    def _cost(self, message: Message, devices: Devices) -> Cost:
        placed = Message(message.op, on_devices(message.participants, devices))
        if (cost := self._messages.get(placed)) is None:
            cost = self._messages[placed] = self.costs.of(placed.op, placed.participants)
        if message.symmetry is not None:
            self._check(message, message.symmetry, placed, cost, devices)
        return cost

    def _check(self, message: Message, symmetry: RankSymmetry, placed: Message, cost: Cost, devices: Devices) -> None:
        """Raises DevicesDiffer unless a message costs all who do the same as much."""
        by_levels, machine = self.costs.model.is_by_levels, self.costs.model.machine
        key = (symmetry, devices) if by_levels else (message, devices)
        if key in self._checked:
            return
        others = [on_devices(each, devices) for each in symmetry.others]
        if by_levels:
            pattern = machine.pattern(placed.participants)
            are_symmetric = all([machine.pattern(each) == pattern for each in others])
        else:
            are_symmetric = all([self.costs.of(message.op, each) == cost for each in others])
        if not are_symmetric:
            raise DevicesDiffer(f"{message.op.name} does not cost all devices of its group the same", symmetry.axes)
        self._checked.add(key)

    def executions(self, entry: Body, devices: Devices) -> Iterator[tuple[Body, Devices, TimedBody, int]]:
        """Every body on the devices where it runs, but for the entry, and how often; callers before callees."""
        times: dict[Body, Counter[Devices]] = defaultdict(Counter)
        waiting = {entry.number: entry}
        times[entry][devices] = 1
        while waiting:
            body = waiting.pop(max(waiting))
            for on, count in times[body].items():
                if body is not entry:
                    yield body, on, self._placed[body, on], count
                for (callee, inner), calls in body.calls.items():
                    waiting[callee.number] = callee
                    times[callee][on_devices(inner, on)] += count * calls


def on_devices(local: Devices, devices: Devices) -> Devices:
    """Local devices of a function on these."""
    return tuple([devices[d] for d in local])


def _frame(
    all_costs: Costs, body: Body, costs: dict[Message, Cost], inner: dict[tuple[Body, Devices], TimedBody]
) -> TimedBody:
    program: list[Local | Joint | Wait | Enter] = []
    spent: Counter[tuple[int, str, int]] = Counter()
    """How often a stream's device spends so long on a kind."""
    for step in body.steps:
        if isinstance(step, Call):
            if step.streams:
                program.append(Enter(inner[step.callee, step.devices], step.streams))
            continue
        cost = costs[step.cost] if isinstance(step.cost, Message) else step.cost
        slowdown = 0
        if step.slows:
            message = all_costs.beside(cost)
            cost, slowdown = message.cost, message.slowdown_picoseconds
        picoseconds = cost.picoseconds
        if picoseconds:
            for stream in step.streams:
                spent[stream, cost.kind, picoseconds] += 1
        if step.moves:
            program.append(Wait(step.streams[0], step.streams[-1]))
        elif len(step.streams) > 1:
            program.append(Joint(step.streams, picoseconds))
        elif step.streams and picoseconds:
            program.append(Local(step.streams[0], picoseconds))
        if slowdown:
            for stream in step.slows:
                spent[stream, SLOWDOWN, slowdown] += 1
                program.append(Local(stream, slowdown))
    busy = [Counter[str]() for _ in range(body.devices)]
    for (stream, kind, picoseconds), times in spent.items():
        busy[body.streams[stream][0]][kind] += picoseconds * times
    return TimedBody(body, program, busy)
