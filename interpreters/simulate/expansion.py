"""Opens a part of a program's timeline. In go a program's summaries and a window; out come its spans, as in the
op-by-op simulation's timeline after filtering. Summaries give the clocks at the entry of every call, exactly. So a
call outside the window, on other devices or below the depth is stepped over; the others are run again, from those
clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from xdsl.ir import Operation

from distir.interpreters.costs import SLOWDOWN
from distir.interpreters.model_names import Renamings, inside, model_name
from distir.interpreters.simulate.bodies import Body, Call, Devices, Message
from distir.interpreters.simulate.labels import call_text, callee_name, labels_of
from distir.interpreters.simulate.liveness import (
    SHARES,
    Context,
    entry_context,
    step_context,
    surviving,
)
from distir.interpreters.simulate.spans import CALL, Level, Span, Stream, Window
from distir.interpreters.simulate.summaries import OpenProgram
from distir.interpreters.simulate.timing import TimedBody, on_devices
from distir.interpreters.work import Kind

COMPUTE = frozenset([*[kind.value for kind in Kind], SLOWDOWN])

Extent = tuple[int, int]
"""From the first operation of a call on a stream to the end of its last."""


class Stage(NamedTuple):
    """A step of a body, with its cost somewhere, or the frame that it enters."""

    op: Operation
    streams: tuple[int, ...]
    picoseconds: int
    kind: str
    moves: bool
    inner: TimedBody | None
    slows: tuple[int, ...] = ()
    slowdown: int = 0


@dataclass(frozen=True)
class Function:
    """The names of a body: those of the function that it was read from."""

    name: str
    operations: list[Operation]
    labels: Mapping[Operation, str]


@dataclass(frozen=True)
class Scope:
    """A body on the machine, inside its callers."""

    body: Body
    frame: TimedBody
    function: Function
    devices: Devices
    path: tuple[str, ...]
    depth: int = 0
    """How many calls it is inside."""
    around: Renamings = ()
    """What these calls say of names."""

    @cached_property
    def streams(self) -> list[Stream]:
        """The machine's, for each of the body's."""
        return [(self.devices[device], name) for device, name in self.body.streams]


@dataclass
class Expansion:
    """Opens a program. Everything that it finds out about a function serves all its calls."""

    program: OpenProgram
    _functions: dict[str, Function] = field(default_factory=dict[str, Function])
    _makers: dict[Body, Mapping[int, int]] = field(default_factory=dict[Body, Mapping[int, int]])
    _stages: dict[tuple[TimedBody, str], list[Stage]] = field(default_factory=dict[tuple[TimedBody, str], list[Stage]])
    _extents: dict[tuple[TimedBody, tuple[int, ...]], tuple[list[int], list[Extent | None]]] = field(
        default_factory=dict[tuple[TimedBody, tuple[int, ...]], tuple[list[int], "list[tuple[int, int] | None]"]]
    )

    def entry(self) -> Scope:
        p = self.program
        return Scope(p.body, p.frame, self.function(p.entry), p.devices, ())

    def function(self, name: str) -> Function:
        """The operations of a function: one per step of the body."""
        if (known := self._functions.get(name)) is None:
            function = self.program.reader.walk.function(name)
            operations = self.program.reader.operations[name]
            known = self._functions[name] = Function(name, operations, labels_of(function))
        return known

    def makers(self, body: Body) -> Mapping[int, int]:
        """By slot, the step that makes it."""
        if (known := self._makers.get(body)) is None:
            steps = enumerate(body.steps)
            known = self._makers[body] = {slot: number for number, step in steps for slot in step.makes}
        return known

    def inside(self, scope: Scope, call: Call, op: Operation) -> Scope:
        """The scope of a call."""
        devices = on_devices(call.devices, scope.devices)
        path = (*scope.path, call_text(op, scope.function.labels[op]))
        frame = self.program.known.frames.of(call.callee, devices)
        function = self.function(callee_name(op))
        return Scope(call.callee, frame, function, devices, path, scope.depth + 1, inside(op, scope.around))

    def opens(self, scope: Scope, op: Operation, depth: int | None) -> bool:
        """Whether a call in a scope is looked into at this depth."""
        return depth is None or scope.depth + 1 < depth

    def stages(self, scope: Scope) -> list[Stage]:
        """The steps of a scope, with costs."""
        key = (scope.frame, scope.function.name)
        if (stages := self._stages.get(key)) is None:
            costs, inner = self.program.known.frames.outside(scope.body, scope.devices)
            stages = self._stages[key] = []
            for op, step in zip(scope.function.operations, scope.body.steps, strict=True):
                if isinstance(step, Call):
                    stages.append(Stage(op, step.streams, 0, CALL, False, inner[step.callee, step.devices]))
                else:
                    cost = costs[step.cost] if isinstance(step.cost, Message) else step.cost
                    slowdown = 0
                    if step.slows:
                        beside = self.program.known.library.costs.beside(cost)
                        cost, slowdown = beside.cost, beside.slowdown_picoseconds
                    slows = step.slows if slowdown else ()
                    stages.append(
                        Stage(op, step.streams, cost.picoseconds, cost.kind, step.moves, None, slows, slowdown)
                    )
        return stages

    def extents(self, scope: Scope, entry: tuple[int, ...]) -> tuple[list[int], list[Extent | None]]:
        """The clocks after a scope, and per stream when it is busy in it; from and in clocks relative to the first."""
        key = (scope.frame, entry)
        if (known := self._extents.get(key)) is None:
            clocks = list(entry)
            found: list[Extent | None] = [None] * len(clocks)
            for stage, step in zip(self.stages(scope), scope.body.steps, strict=True):
                for stream, start, end in self.advance(scope, stage, step, clocks):
                    before = found[stream]
                    found[stream] = (start if before is None else before[0], end)
            known = self._extents[key] = clocks, found
        return known

    def advance(self, scope: Scope, stage: Stage, step: object, clocks: list[int]) -> list[tuple[int, int, int]]:
        """Moves the clocks over a step; which streams it keeps busy, from when to when, then those that it slows."""
        streams = stage.streams
        if not streams:
            return []
        if isinstance(step, Call):
            first = clocks[streams[0]]
            inside = self.inside(scope, step, stage.op)
            exits, extents = self.extents(inside, tuple([clocks[s] - first for s in streams]))
            for s, clock in zip(streams, exits, strict=True):
                clocks[s] = clock + first
            return [(s, e[0] + first, e[1] + first) for s, e in zip(streams, extents, strict=True) if e is not None]
        start = max([clocks[s] for s in streams])
        if stage.moves:
            clocks[streams[-1]] = start
            return []
        end = start + stage.picoseconds
        for s in streams:
            clocks[s] = end
        if not stage.picoseconds:
            return []
        busy = [(s, start, end) for s in streams]
        for s in stage.slows:
            busy.append((s, clocks[s], clocks[s] + stage.slowdown))
            clocks[s] += stage.slowdown
        return busy

    def spans(
        self, window: Window | None = None, devices: frozenset[int] | None = None, depth: int | None = None
    ) -> Iterator[Span]:
        """The spans that meet the window on these devices, calls before what is inside them. Depth 1 is what the entry
        does (and a replica's loop, which is part of it), its calls closed; 2 opens those; None opens everything."""
        scope = self.entry()
        yield from self._spans(scope, [0] * len(scope.streams), window, devices, depth)

    def _spans(
        self, scope: Scope, clocks: list[int], window: Window | None, devices: frozenset[int] | None, depth: int | None
    ) -> Iterator[Span]:
        for stage, step in zip(self.stages(scope), scope.body.steps, strict=True):
            before = [clocks[s] for s in stage.streams]
            busy = self.advance(scope, stage, step, clocks)
            function = callee_name(stage.op) if isinstance(step, Call) else scope.function.name
            label = scope.function.labels[stage.op]
            name = function if isinstance(step, Call) else stage.op.name
            communicates = not isinstance(step, Call) and stage.kind not in COMPUTE
            module = model_name(stage.op, scope.around)
            spans = [
                Span(scope.streams[s], start, end, scope.path, label, name, function, stage.kind, communicates, module)
                if s not in stage.slows
                else Span(scope.streams[s], start, end, scope.path, label, name, function, SLOWDOWN, False, module)
                for s, start, end in busy
            ]
            shown = [span for span in spans if span.meets(window, devices)]
            yield from shown
            if isinstance(step, Call) and shown and self.opens(scope, stage.op, depth):
                yield from self._spans(self.inside(scope, step, stage.op), before, window, devices, depth)

    def levels(
        self, window: Window | None = None, devices: frozenset[int] | None = None, depth: int | None = None
    ) -> Iterator[Level]:
        """Live memory of the devices wherever it changes, in program order; the most inside a closed call stands at its
        start. Times of one device do not go back: where streams run out of program order, time stands still. With a
        window, the last level before it comes first."""
        last: dict[int, Level] = {}
        times: dict[int, int] = {}
        for level in self._levels(window, devices, depth):
            level = level._replace(at=max(level.at, times.get(level.device, 0)))
            times[level.device] = level.at
            if window is None or window[0] <= level.at < window[1]:
                if (before := last.pop(level.device, None)) is not None and window is not None:
                    yield before._replace(at=window[0])
                yield level
            elif level.at < window[0]:
                last[level.device] = level
        for level in last.values():
            yield level if window is None else level._replace(at=window[0])

    def _levels(self, window: Window | None, devices: frozenset[int] | None, depth: int | None) -> Iterator[Level]:
        scope, sharing = self.entry(), self.program.sharing
        live = {**dict.fromkeys(scope.devices, 0), **self.program.read.bytes}
        for device, bytes_ in live.items():
            if devices is None or device in devices:
                yield Level(device, 0, bytes_)
        context = entry_context(scope.body, sharing)
        yield from self._changes(scope, context, [0] * len(scope.streams), live, window, devices, depth)

    def _changes(
        self,
        scope: Scope,
        context: Context,
        clocks: list[int],
        live: dict[int, int],
        window: Window | None,
        devices: frozenset[int] | None,
        depth: int | None,
    ) -> Iterator[Level]:
        """The levels inside a scope; moves `live`."""
        body, liveness = scope.body, self.program.known.liveness
        kept, fates = surviving(body, context)
        steps = zip(self.stages(scope), body.steps, liveness.lives(body, context.aliases), strict=True)
        for stage, step, life in steps:
            before = [clocks[s] for s in stage.streams]
            busy = self.advance(scope, stage, step, clocks)
            if not isinstance(step, Call):
                made = [slot for slot in step.makes if fates.get(slot) != SHARES]
                freed = [slot for slot in life.dying if slot not in kept]
                at = busy[0][1] if busy else max(before, default=0)
                yield from self._change(scope, made, 1, at, live, devices)
                at = busy[0][2] if busy else at
                yield from self._change(scope, freed, -1, at, live, devices)
                continue
            inner = life.context or step_context(step, life, kept, fates)
            inside = on_devices(step.devices, scope.devices)
            shown = [d for d in inside if devices is None or d in devices]
            start, end = min(before, default=0), max([clocks[s] for s in stage.streams], default=0)
            opens = shown and (window is None or (start < window[1] and end >= window[0]))
            if opens and self.opens(scope, stage.op, depth):
                yield from self._changes(
                    self.inside(scope, step, stage.op), inner, before, live, window, devices, depth
                )
                continue
            times = {d: (start, end) for d in inside}
            for s, first, last in busy:
                device = scope.streams[s][0]
                known = times[device] if times[device] != (start, end) else (first, last)
                times[device] = (min(known[0], first), max(known[1], last))
            for device, change, height in zip(inside, *liveness.of(step.callee, inner), strict=False):
                if device in shown and (change or height):
                    yield Level(device, times[device][0], live[device] + height)
                    yield Level(device, times[device][1], live[device] + change)
                live[device] += change

    def _change(
        self, scope: Scope, slots: list[int], sign: int, at: int, live: dict[int, int], devices: frozenset[int] | None
    ) -> Iterator[Level]:
        """Slots that are allocated or freed at once."""
        changed = dict[int, int]()
        for slot in slots:
            local, bytes_ = scope.body.slots[slot]
            device = scope.devices[local]
            changed[device] = changed.get(device, 0) + sign * bytes_
        for device, bytes_ in changed.items():
            live[device] += bytes_
            if bytes_ and (devices is None or device in devices):
                yield Level(device, at, live[device])
