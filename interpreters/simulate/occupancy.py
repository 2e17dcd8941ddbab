"""What each device's time goes to when its streams run side by side: the union of what they do, found from the spans of each
function once per entry clocks. Communication is told apart by the axis of the machine's devices that it is along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from distir.interpreters.simulate.axes import Axes
from distir.interpreters.simulate.bodies import Call
from distir.interpreters.simulate.expansion import COMPUTE, Expansion, Scope

Intervals = list[tuple[int, int]]
"""Of picoseconds, apart from each other, in order."""


class AxisTime(NamedTuple):
    """Picoseconds of a device in communication along one axis."""

    exposed: int
    """The device computes on no stream."""
    hidden: int


class DeviceTime(NamedTuple):
    """Picoseconds of a device; compute, communication and idle add up to the makespan."""

    compute: int
    """Any stream computes."""
    communication: int
    """None computes, and one communicates: communication that shows."""
    idle: int
    hidden: int
    """Communication while another stream computes, part of `compute`."""
    by_axis: Mapping[str, AxisTime]
    """Communication along each axis. Where streams communicate along two at a time, that counts for both."""


class Busy(NamedTuple):
    """Per device of a body, when it computes and when it communicates."""

    compute: list[Intervals]
    communication: list[dict[str, Intervals]]
    """By axis."""


@dataclass
class Occupancy:
    """Unions of intervals; those of calls are remembered by their relative entry clocks."""

    expansion: Expansion
    axes: Axes
    _known: dict[tuple[object, ...], Busy] = field(default_factory=dict[tuple[object, ...], Busy])

    def of(self, scope: Scope, entry: tuple[int, ...]) -> Busy:
        key = (scope.frame, scope.function.name, entry, self.axes.pattern(scope.devices))
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._run(scope, list(entry))
        return known

    def _run(self, scope: Scope, clocks: list[int]) -> Busy:
        expansion, body = self.expansion, scope.body
        found = Busy([[] for _ in range(body.devices)], [{} for _ in range(body.devices)])
        for stage, step in zip(expansion.stages(scope), body.steps, strict=True):
            before = [clocks[s] for s in stage.streams]
            busy = expansion.advance(scope, stage, step, clocks)
            if isinstance(step, Call):
                if not busy:
                    continue
                inside = expansion.inside(scope, step, stage.op)
                inner = self.of(inside, tuple([clock - before[0] for clock in before]))
                for device, computing, communicating in zip(step.devices, *inner, strict=False):
                    found.compute[device] += _later(computing, before[0])
                    for axis, intervals in communicating.items():
                        found.communication[device].setdefault(axis, []).extend(_later(intervals, before[0]))
            elif busy:
                axis = None if stage.kind in COMPUTE else self.axes.of_step(stage.op, step, scope)
                for device in {body.streams[s][0] for s, _, _ in busy if s not in stage.slows}:
                    mine = found.compute[device] if axis is None else found.communication[device].setdefault(axis, [])
                    mine.append(busy[0][1:])
                for s, start, end in busy:
                    if s in stage.slows:
                        found.compute[body.streams[s][0]].append((start, end))
        communication = [{axis: merged(each) for axis, each in by_axis.items()} for by_axis in found.communication]
        return Busy([merged(intervals) for intervals in found.compute], communication)


def _later(intervals: Intervals, by: int) -> Intervals:
    return [(start + by, end + by) for start, end in intervals]


def merged(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """The union."""
    union: Intervals = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def device_times(expansion: Expansion) -> list[DeviceTime]:
    """Of every device of the program; those that are not simulated do what another does."""
    scope, summary = expansion.entry(), expansion.program.summary()
    makespan = summary.makespan_picoseconds
    busy = Occupancy(expansion, Axes.of_module(expansion.program.reader.module)).of(scope, (0,) * len(scope.streams))
    times = [DeviceTime(0, 0, makespan, 0, {})] * len(scope.devices)
    for device, (compute, by_axis) in enumerate(zip(*busy, strict=True)):
        computing = _length(compute)
        shown = {axis: _length(merged([*compute, *each])) - computing for axis, each in by_axis.items()}
        along = {axis: AxisTime(shown[axis], _length(each) - shown[axis]) for axis, each in by_axis.items()}
        communication = merged(chain.from_iterable(by_axis.values()))
        occupied = _length(merged([*compute, *communication]))
        shows = occupied - computing
        times[device] = DeviceTime(computing, shows, makespan - occupied, _length(communication) - shows, along)
    return [times[summary.stand_in.get(device, device)] for device in range(len(times))]


def by_axis(times: Sequence[DeviceTime]) -> dict[str, AxisTime]:
    """The sums over devices."""
    found: dict[str, AxisTime] = {}
    for axis, time in chain.from_iterable(each.by_axis.items() for each in times):
        known = found.get(axis, AxisTime(0, 0))
        found[axis] = AxisTime(known.exposed + time.exposed, known.hidden + time.hidden)
    return found


def _length(intervals: Intervals) -> int:
    return sum(end - start for start, end in intervals)
