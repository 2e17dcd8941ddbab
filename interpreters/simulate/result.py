"""The result of a simulation. In go the executed steps and storages; out come clocks, memory, counts, and the
timeline as a Chrome/Perfetto trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation

from distir.dialects.dist.communication import CommunicationOp
from distir.interpreters.costs import PICOSECONDS, SLOWDOWN, Cost
from distir.interpreters.model_names import Renamings, inside, model_name
from distir.interpreters.simulate.labels import call_text, labels_of
from distir.interpreters.simulate.spans import CALL, Level, Span, Stream, trace_events


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """An operation of a function, on the machine devices that a call placed it on. Compared by identity."""

    op: Operation
    function: str
    streams: tuple[Stream, ...]
    cost: Cost
    allocates: tuple[tuple[tuple[int, int], ...], ...]
    """Per result, (device, bytes) of its new storage, or of that of each element of a tuple; nothing where it is on no device."""
    shares_memory: bool
    """Allocates nothing: results are the operands' storage."""
    slows: tuple[Stream, ...] = ()
    """Streams that compute more slowly beside it, each by `slowdown_picoseconds`."""
    slowdown_picoseconds: int = 0

    @property
    def communicates(self) -> bool:
        return isinstance(self.op, CommunicationOp) or len({device for device, _ in self.streams}) > 1


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of an operation."""

    placed: Placed
    start_picoseconds: int
    slowed: tuple[int, ...] = ()
    """Where the time that it costs each of `placed.slows` starts there."""

    @property
    def end_picoseconds(self) -> int:
        return self.start_picoseconds + self.placed.cost.picoseconds


@dataclass(frozen=True, slots=True)
class CallSpan:
    """One execution of a call: the steps `first` to `last - 1`."""

    call: Operation
    function: str
    first: int
    last: int


@dataclass(slots=True)
class Storage:
    """Memory on a device, from step `born` (-1: before the run) to the end of step `last_use`."""

    device: int
    bytes: int
    born: int
    last_use: int


@dataclass(frozen=True)
class Simulation:
    """A finished run. Devices are machine devices; those of the program that do nothing are listed too."""

    devices: int
    steps: list[Step]
    calls: list[CallSpan]
    storages: list[Storage]
    clocks: dict[Stream, int]
    """Picoseconds at which each stream finishes."""

    @property
    def makespan_picoseconds(self) -> int:
        return max(self.clocks.values(), default=0)

    @property
    def makespan_seconds(self) -> float:
        return self.makespan_picoseconds / PICOSECONDS

    @cached_property
    def peak_memory_bytes(self) -> dict[int, int]:
        """The most that each device holds at a time: after an operation's results, before its operands are freed."""
        return {device: max(live for _, _, live in self.memory_profile(device)) for device in range(self.devices)}

    @cached_property
    def executions(self) -> Counter[Placed]:
        """How often each operation was executed on each tuple of devices."""
        return Counter(step.placed for step in self.steps)

    @property
    def counts(self) -> dict[str, int]:
        """Executed operations by name, calls not included; one over several devices counts once."""
        counts: Counter[str] = Counter()
        for placed, times in self.executions.items():
            counts[placed.op.name] += times
        return dict(counts)

    def collectives_in(self, function: str) -> dict[str, int]:
        """Executed communication operations by name, of those that stand in this function's body."""
        counts: Counter[str] = Counter()
        for placed, times in self.executions.items():
            if placed.function == function and placed.communicates:
                counts[placed.op.name] += times
        return dict(counts)

    @property
    def busy_seconds(self) -> dict[int, dict[str, float]]:
        """Per device, the time that its streams spend on each kind of work (`matmul`) or message (`allreduce`)."""
        busy: dict[int, Counter[str]] = {device: Counter() for device in range(self.devices)}
        for placed, times in self.executions.items():
            if placed.cost.picoseconds:
                for device, _ in placed.streams:
                    busy[device][placed.cost.kind] += times * placed.cost.picoseconds
                for device, _ in placed.slows:
                    busy[device][SLOWDOWN] += times * placed.slowdown_picoseconds
        return {device: {kind: ps / PICOSECONDS for kind, ps in kinds.items()} for device, kinds in busy.items()}

    def memory_profile(self, device: int) -> Iterator[tuple[int, bool, int]]:
        """(step, after, live bytes) in program order wherever the device's memory changes: `after` is False for the
        moment when the step's results have joined, True for when storage that it used last is free. Step -1 is the
        arguments."""
        live = 0
        for (step, after), change in sorted(self._memory_changes[device].items()):
            live += change
            yield step, after, live

    @cached_property
    def _memory_changes(self) -> dict[int, dict[tuple[int, bool], int]]:
        changes: dict[int, dict[tuple[int, bool], int]] = {
            device: defaultdict(int, {(-1, False): 0}) for device in range(self.devices)
        }
        for storage in self.storages:
            changes[storage.device][storage.born, False] += storage.bytes
            changes[storage.device][storage.last_use, True] -= storage.bytes
        return changes

    def trace(self) -> dict[str, Any]:
        """The timeline as Chrome trace events, JSON-able, for Perfetto: a process per device, a thread per stream, a slice
        per operation inside the slices of its calls, and each device's live memory."""
        devices = range(self.devices)
        records = [*self.spans(), *(level for device in devices for level in self.levels(device))]
        return {"traceEvents": list(trace_events(records, devices, self.clocks)), "displayTimeUnit": "ms"}

    def spans(self) -> Iterator[Span]:
        """All spans, calls before what is inside them. An operation's are those of its streams; a call is on a stream from
        its first operation there to its last."""
        labels: dict[Block, Mapping[Operation, str]] = {}
        calls = iter(self.calls)
        coming = next(calls, None)
        around: list[tuple[CallSpan, tuple[str, ...], Renamings]] = []
        for number, step in enumerate(self.steps):
            while around and around[-1][0].last <= number:
                around.pop()
            while coming is not None and coming.first <= number:
                path, names = around[-1][1:] if around else ((), ())
                if coming.last > number:
                    label = _label(coming.call, labels)
                    for stream, (start, end) in self._extent(coming).items():
                        where = stream, start, end, path, label, coming.function, coming.function
                        yield Span(*where, CALL, False, model_name(coming.call, names))
                    around.append((coming, (*path, call_text(coming.call, label)), inside(coming.call, names)))
                coming = next(calls, None)
            placed = step.placed
            if placed.cost.picoseconds:
                path, names = around[-1][1:] if around else ((), ())
                label = _label(placed.op, labels)
                for stream in placed.streams:
                    yield Span(
                        stream,
                        step.start_picoseconds,
                        step.end_picoseconds,
                        path,
                        label,
                        placed.op.name,
                        placed.function,
                        placed.cost.kind,
                        placed.communicates,
                        model_name(placed.op, names),
                    )
                for stream, start in zip(placed.slows, step.slowed, strict=True):
                    end = start + placed.slowdown_picoseconds
                    where = stream, start, end, path, label, placed.op.name, placed.function
                    yield Span(*where, SLOWDOWN, False, model_name(placed.op, names))

    def _extent(self, call: CallSpan) -> dict[Stream, tuple[int, int]]:
        """From the first operation of a call on a stream to its last."""
        extents: dict[Stream, tuple[int, int]] = {}
        for step in self.steps[call.first : call.last]:
            if step.placed.cost.picoseconds:
                for stream in step.placed.streams:
                    start, _ = extents.get(stream, (step.start_picoseconds, 0))
                    extents[stream] = (start, step.end_picoseconds)
                for stream, clock in zip(step.placed.slows, step.slowed, strict=True):
                    start, _ = extents.get(stream, (clock, 0))
                    extents[stream] = (start, clock + step.placed.slowdown_picoseconds)
        return extents

    def levels(self, device: int) -> Iterator[Level]:
        """Live memory of a device wherever it changes, in program order. Streams of one device may run out of that order;
        time then stands still."""
        time = 0
        for step, after, live in self.memory_profile(device):
            if 0 <= step < len(self.steps):
                at = self.steps[step].end_picoseconds if after else self.steps[step].start_picoseconds
                time = max(time, at)
            elif after:
                continue  # what the run leaves: nothing is freed after it
            yield Level(device, time, live)


def _label(op: Operation, known: dict[Block, Mapping[Operation, str]]) -> str:
    """The operation's label in its function."""
    block, function = op.parent, op.parent_op()
    assert block is not None
    assert isinstance(function, FuncOp)
    if block not in known:
        known[block] = labels_of(function)
    return known[block][op]
