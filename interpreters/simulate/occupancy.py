"""The time of each device when its streams run side by side. In goes a program opened on a machine; out come a
device's times of compute, of communication along each axis, and idle. They are unions of spans, found for each
function once per entry clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from distir.interpreters.simulate.axes import Axes
from distir.interpreters.simulate.bodies import Call
from distir.interpreters.simulate.expansion import COMPUTE, Expansion, Scope

if TYPE_CHECKING:
    import numpy as np

    Intervals = np.ndarray[Any, Any]
    """Starts and ends in picoseconds, apart from each other, in order; in two columns."""

LONG = 1 << 62
"""Picoseconds that machine integers hold; what takes longer is counted in Python's."""


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

    compute: Sequence[Intervals]
    communication: Sequence[Mapping[str, Intervals]]
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
        import numpy as np

        expansion, body = self.expansion, scope.body
        whole = np.int64 if expansion.program.summary().makespan_picoseconds < LONG else object
        compute: list[list[Intervals]] = [[] for _ in range(body.devices)]
        communication: list[dict[str, list[Intervals]]] = [{} for _ in range(body.devices)]
        for stage, step in zip(expansion.stages(scope), body.steps, strict=True):
            before = [clocks[s] for s in stage.streams]
            busy = expansion.advance(scope, stage, step, clocks)
            if isinstance(step, Call):
                if not busy:
                    continue
                inside = expansion.inside(scope, step, stage.op)
                inner = self.of(inside, tuple([clock - before[0] for clock in before]))
                for device, computing, communicating in zip(step.devices, *inner, strict=False):
                    compute[device].append(computing + before[0])
                    for axis, intervals in communicating.items():
                        communication[device].setdefault(axis, []).append(intervals + before[0])
            elif busy:
                axis = None if stage.kind in COMPUTE else self.axes.of_step(stage.op, step, scope)
                for device in {body.streams[s][0] for s, _, _ in busy if s not in stage.slows}:
                    mine = compute[device] if axis is None else communication[device].setdefault(axis, [])
                    mine.append(np.array([busy[0][1:]], whole))
                for s, start, end in busy:
                    if s in stage.slows:
                        compute[body.streams[s][0]].append(np.array([(start, end)], whole))
        return Busy(
            [merged(each) for each in compute],
            [{axis: merged(each) for axis, each in by_axis.items()} for by_axis in communication],
        )


def merged(parts: Sequence[Intervals]) -> Intervals:
    """The union of all."""
    import numpy as np

    every = np.concatenate([np.empty((0, 2), np.int64), *parts])
    if len(every) < 2:
        return every
    every = every[np.argsort(every[:, 0], kind="stable")]
    until = np.maximum.accumulate(every[:, 1])
    begins = np.flatnonzero(np.append(True, every[1:, 0] > until[:-1]))
    return np.stack((every[begins, 0], until[np.append(begins[1:], len(every)) - 1]), axis=1)


def device_times(expansion: Expansion) -> list[DeviceTime]:
    """Of every device of the program; those that are not simulated do what another does."""
    scope, summary = expansion.entry(), expansion.program.summary()
    makespan = summary.makespan_picoseconds
    busy = Occupancy(expansion, Axes.of_module(expansion.program.reader.module)).of(scope, (0,) * len(scope.streams))
    times = [DeviceTime(0, 0, makespan, 0, {})] * len(scope.devices)
    for device, (compute, by_axis) in enumerate(zip(*busy, strict=True)):
        computing = _length(compute)
        shown = {axis: _length(merged([compute, each])) - computing for axis, each in by_axis.items()}
        along = {axis: AxisTime(shown[axis], _length(each) - shown[axis]) for axis, each in by_axis.items()}
        communication = merged(list(by_axis.values()))
        occupied = _length(merged([compute, communication]))
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
    return int((intervals[:, 1] - intervals[:, 0]).sum())
