"""What each device's time goes to when its streams run side by side: the union of what they do, found from the spans of each
function once per entry clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from distir.interpreters.simulate.bodies import Call
from distir.interpreters.simulate.expansion import COMPUTE, Expansion, Scope
from distir.interpreters.simulate.timing import Frame

Intervals = list[tuple[int, int]]
"""Of picoseconds, apart from each other, in order."""


class DeviceTime(NamedTuple):
    """Picoseconds of a device; compute, communication and idle add up to the makespan."""

    compute: int
    """Any stream computes."""
    communication: int
    """None computes, and one communicates: communication that shows."""
    idle: int
    hidden: int
    """Communication while another stream computes, part of `compute`."""


class Busy(NamedTuple):
    """Per device of a body, when it computes and when it communicates."""

    compute: list[Intervals]
    communication: list[Intervals]


@dataclass
class Occupancy:
    """Unions of intervals; those of calls are remembered by their relative entry clocks."""

    expansion: Expansion
    _known: dict[tuple[Frame, str, tuple[int, ...]], Busy] = field(
        default_factory=dict[tuple[Frame, str, "tuple[int, ...]"], Busy]
    )

    def of(self, scope: Scope, entry: tuple[int, ...]) -> Busy:
        key = (scope.frame, scope.function.name, entry)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._run(scope, list(entry))
        return known

    def _run(self, scope: Scope, clocks: list[int]) -> Busy:
        expansion, body = self.expansion, scope.body
        found = Busy([[] for _ in range(body.devices)], [[] for _ in range(body.devices)])
        for stage, step in zip(expansion.stages(scope), body.steps, strict=True):
            before = [clocks[s] for s in stage.streams]
            busy = expansion.advance(scope, stage, step, clocks)
            if isinstance(step, Call):
                if not busy:
                    continue
                inside = expansion.inside(scope, step, stage.op)
                inner = self.of(inside, tuple([clock - before[0] for clock in before]))
                for mine, theirs in zip(found, inner, strict=True):
                    for device, intervals in zip(step.devices, theirs, strict=False):
                        mine[device] += [(start + before[0], end + before[0]) for start, end in intervals]
            else:
                mine = found.compute if stage.kind in COMPUTE else found.communication
                for device in {body.streams[s][0] for s, _, _ in busy if s not in stage.slows}:
                    mine[device].append(busy[0][1:])
                for s, start, end in busy:
                    if s in stage.slows:
                        found.compute[body.streams[s][0]].append((start, end))
        return Busy(*([merged(intervals) for intervals in kind] for kind in found))


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
    """Of every device of the program."""
    scope, makespan = expansion.entry(), expansion.program.summary().makespan_picoseconds
    busy = Occupancy(expansion).of(scope, (0,) * len(scope.streams))
    times: list[DeviceTime] = []
    for compute, communication in zip(*busy, strict=True):
        computing, communicating = _length(compute), _length(communication)
        occupied = _length(merged([*compute, *communication]))
        shows = occupied - computing
        times.append(DeviceTime(computing, shows, makespan - occupied, communicating - shows))
    idle = DeviceTime(0, 0, makespan, 0)
    return times + [idle] * (len(scope.devices) - len(times))


def _length(intervals: Intervals) -> int:
    return sum(end - start for start, end in intervals)
