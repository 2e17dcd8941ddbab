"""The figures of a plan. In goes its program; out come the simulated time, peak memory, and shares of communication."""

from __future__ import annotations

from math import fsum

from distir.interpreters.simulate import Summary
from distir.interpreters.simulate.expansion import Expansion
from distir.interpreters.simulate.kinds import by_kind
from distir.interpreters.simulate.live_tensors import peak_of
from distir.interpreters.simulate.occupancy import by_axis, device_times
from distir.interpreters.simulate.summaries import OpenProgram
from distir.interpreters.work import Kind
from distir.passes.search.configurations import Details, Figures


def details_of(program: OpenProgram) -> Details:
    """Memory of the fullest device at its peak, by kind, and communication by axis, on average over all devices."""
    expansion, summary = Expansion(program), program.summary()
    peaks = summary.peak_memory_bytes
    memory = by_kind(peak_of(expansion, max(peaks, key=lambda device: peaks[device])).live_tensors)
    total = max(summary.makespan_picoseconds * summary.devices, 1)
    along = by_axis(device_times(expansion))
    return Details(memory, {axis: (time.exposed / total, time.hidden / total) for axis, time in along.items()})


def figures_of_program(program: OpenProgram, overlap: bool) -> Figures:
    """The figures of a program; with `overlap`, of one whose streams run side by side."""
    summary = program.summary()
    if not overlap:
        return _figures_of(summary)
    times = device_times(Expansion(program))  # times of streams do not add up
    total = max(summary.makespan_picoseconds * summary.devices, 1)
    shares = [sum(time.compute for time in times) / total, sum(time.communication for time in times) / total]
    return Figures(summary.makespan_seconds, max(summary.peak_memory_bytes.values(), default=0), shares[0], shares[1])


def _figures_of(summary: Summary) -> Figures:
    makespan = summary.makespan_seconds
    total = max(makespan * max(1, len(summary.peak_memory_bytes)), 1e-30)
    busy = [each for kinds in summary.busy_seconds.values() for each in kinds.items()]
    computing = {kind.value for kind in Kind}
    compute = fsum(seconds for kind, seconds in busy if kind in computing)  # in whatever order they come
    communication = fsum(seconds for kind, seconds in busy if kind not in computing)
    peak = max(summary.peak_memory_bytes.values(), default=0)
    return Figures(makespan, peak, compute / total, communication / total)
