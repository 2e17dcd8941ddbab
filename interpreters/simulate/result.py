"""What a simulation found: clocks, memory, counts, and the timeline as a Chrome/Perfetto trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from xdsl.ir import Operation

from distir.dialects.dist.communication import CommunicationOp
from distir.interpreters.costs import PICOSECONDS, Cost

Stream = tuple[int, str]
"""A machine device, and the name of one of its streams (`""` is the main one)."""

PER_MICROSECOND = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """An operation of a function, on the machine devices that a call placed it on. Compared by identity."""

    op: Operation
    function: str
    streams: tuple[Stream, ...]
    cost: Cost
    allocates: tuple[tuple[int, int] | None, ...]
    """Per result, (device, bytes) of its new storage; None where it is on no device."""
    is_view: bool
    """Allocates nothing: results are the operands' storage."""

    @property
    def communicates(self) -> bool:
        return isinstance(self.op, CommunicationOp) or len({device for device, _ in self.streams}) > 1


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of an operation."""

    placed: Placed
    start_picoseconds: int

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
        """The timeline as Chrome trace events, JSON-able, for Perfetto or chrome://tracing: a process per device, a
        thread per stream, a slice per operation inside the slices of its calls, and each device's live memory."""
        threads = {stream: i for i, stream in enumerate(sorted(self.clocks))}
        events = [*self._names(threads), *self._call_slices(threads), *self._slices(threads)]
        for device in range(self.devices):
            events += self._memory_counters(device)
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def _names(self, threads: dict[Stream, int]) -> Iterator[dict[str, Any]]:
        for device in range(self.devices):
            yield {"ph": "M", "name": "process_name", "pid": device, "args": {"name": f"device {device}"}}
        for (device, stream), thread in threads.items():
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": device,
                "tid": thread,
                "args": {"name": stream or "main"},
            }

    def _slices(self, threads: dict[Stream, int]) -> Iterator[dict[str, Any]]:
        for step in self.steps:
            placed = step.placed
            if placed.cost.picoseconds == 0:
                continue
            for stream in placed.streams:
                yield {
                    "ph": "X",
                    "name": _label(placed.op),
                    "cat": "communication" if placed.communicates else "compute",
                    "pid": stream[0],
                    "tid": threads[stream],
                    "ts": step.start_picoseconds / PER_MICROSECOND,
                    "dur": placed.cost.picoseconds / PER_MICROSECOND,
                    "args": {"op": placed.op.name, "function": placed.function, "kind": placed.cost.kind},
                }

    def _call_slices(self, threads: dict[Stream, int]) -> Iterator[dict[str, Any]]:
        """A call is on a stream from its first operation there to its last; slices nest because calls do."""
        for call in self.calls:
            spans: dict[Stream, tuple[int, int]] = {}
            for step in self.steps[call.first : call.last]:
                if step.placed.cost.picoseconds == 0:
                    continue
                for stream in step.placed.streams:
                    start, _ = spans.get(stream, (step.start_picoseconds, 0))
                    spans[stream] = (start, step.end_picoseconds)
            for stream, (start, end) in spans.items():
                yield {
                    "ph": "X",
                    "name": _label(call.call),
                    "cat": "call",
                    "pid": stream[0],
                    "tid": threads[stream],
                    "ts": start / PER_MICROSECOND,
                    "dur": (end - start) / PER_MICROSECOND,
                    "args": {"function": call.function},
                }

    def _memory_counters(self, device: int) -> Iterator[dict[str, Any]]:
        """Live bytes in program order. Streams of one device may run out of that order; time then stands still."""
        time = 0
        for step, after, live in self.memory_profile(device):
            if 0 <= step < len(self.steps):
                at = self.steps[step].end_picoseconds if after else self.steps[step].start_picoseconds
                time = max(time, at)
            elif after:
                continue  # what the run leaves: nothing is freed after it
            counter = {"ph": "C", "name": "live memory", "pid": device, "ts": time / PER_MICROSECOND}
            yield {**counter, "args": {"bytes": live}}


def _label(op: Operation) -> str:
    """What a reader knows an operation by: its first result's name in the text, else the operation's."""
    return next((v.name_hint for v in op.results if v.name_hint), None) or op.name
