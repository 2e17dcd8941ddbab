"""Simulates many programs: every distinct function once, instead of every operation. In go a program and a machine;
out comes a `Summary`.

`summarize` gives the numbers of `simulate`, bit for bit, without its timeline. Functions are read into bodies
(`bodies`). Their time (`timing`) and memory (`liveness`) are computed once per difference in their surroundings that
matters. A `SummaryMemo` keeps all of it between programs: a grid of configurations shares the layers that are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.interpreter import InterpreterFunctions

from distir.interpreters.cost_models import CostModel, make_cost_model
from distir.interpreters.costs import PICOSECONDS, Costs
from distir.interpreters.machines import Machine, load_machine
from distir.interpreters.simulate.bodies import Body, Devices, Library
from distir.interpreters.simulate.groups import DevicesDiffer
from distir.interpreters.simulate.liveness import Liveness
from distir.interpreters.simulate.reading import Entry, Reader
from distir.interpreters.simulate.result import Stream
from distir.interpreters.simulate.schedule import entry_devices, updating
from distir.interpreters.simulate.timing import TimedBodies, TimedBody
from distir.interpreters.walk import Walk


@dataclass(frozen=True)
class Summary:
    """What a `Simulation` of the program says, without its steps."""

    devices: int
    clocks: dict[Stream, int]
    """Picoseconds at which each stream finishes."""
    peak_memory_bytes: dict[int, int]
    """The most that each device holds at a time: after an operation's results, before its operands are freed."""
    executions: list[tuple[Body, Devices, TimedBody, int]]
    """Every function on the devices where it runs, and how often."""
    stand_in: Mapping[int, int] = field(default_factory=dict[int, int])
    """For devices that are not simulated, the one that does the same."""

    @property
    def makespan_picoseconds(self) -> int:
        return max(self.clocks.values(), default=0)

    @property
    def makespan_seconds(self) -> float:
        return self.makespan_picoseconds / PICOSECONDS

    @cached_property
    def counts(self) -> dict[str, int]:
        """Executed operations by name, calls not included; one over several devices counts once."""
        counts: Counter[str] = Counter()
        for body, _, _, times in self.executions:
            for name, count in body.counts.items():
                counts[name] += count * times
        return dict(counts)

    @cached_property
    def busy_picoseconds(self) -> dict[int, Counter[str]]:
        """Per device, the time that its streams spend on each kind of work (`matmul`) or message (`allreduce`)."""
        busy: dict[int, Counter[str]] = {device: Counter() for device in range(self.devices)}
        for _, devices, frame, times in self.executions:
            for device, kinds in zip(devices, frame.busy, strict=False):
                for kind, picoseconds in kinds.items():
                    busy[device][kind] += picoseconds * times
        return {device: busy[self.stand_in.get(device, device)] for device in busy}

    @property
    def busy_seconds(self) -> dict[int, dict[str, float]]:
        """The same in seconds."""
        return in_seconds(self.busy_picoseconds)


def in_seconds(busy: Mapping[int, Mapping[str, int]]) -> dict[int, dict[str, float]]:
    """Picoseconds of devices by kind, in seconds."""
    return {device: {kind: ps / PICOSECONDS for kind, ps in kinds.items()} for device, kinds in busy.items()}


class FunctionMemo:
    """What is known of functions on one machine under one cost model."""

    def __init__(self, machine: Machine, cost_model: str | type[CostModel], functions: Sequence[InterpreterFunctions]):
        costs = Costs(make_cost_model(cost_model, machine), functions)
        self.machine = machine
        self.library = Library(costs)
        self.frames = TimedBodies(costs)
        self.liveness = Liveness()


@dataclass
class SummaryMemo:
    """Keeps what is learned about functions for later programs. Hold it as long as programs are alike; it only grows."""

    _known: dict[tuple[object, ...], tuple[FunctionMemo, object]] = field(
        default_factory=dict[tuple[object, ...], tuple[FunctionMemo, object]]
    )

    def known(
        self, machine: Machine | str, cost_model: str | type[CostModel], functions: Sequence[InterpreterFunctions]
    ) -> FunctionMemo:
        """What was learned on this machine under these costs; all are compared by identity, names as text."""
        key = (machine if isinstance(machine, str) else id(machine), cost_model, *map(id, functions))
        if key not in self._known:
            loaded = load_machine(machine) if isinstance(machine, str) else machine
            self._known[key] = FunctionMemo(loaded, cost_model, functions), (machine, *functions)
        return self._known[key][0]


def summarize(
    module: ModuleOp,
    machine: Machine | str,
    cost_model: str | type[CostModel] = "analytic",
    entry: str = "main",
    functions: Sequence[InterpreterFunctions] = (),
    memo: SummaryMemo | None = None,
    reader: Reader | None = None,
) -> Summary:
    """The time and memory of the program, equal to those of `simulate`, which accepts the same modules and raises the
    same errors. With a `memo`, functions equal to those of earlier programs are not simulated again; with a `reader` of this module
    and memo, those that it has read are not read again."""
    return open_program(module, machine, cost_model, entry, functions, memo, reader).summary()


@dataclass(frozen=True)
class OpenProgram:
    """A program read for simulation: its entry as a body placed on the machine, and what is known of its functions."""

    known: FunctionMemo
    reader: Reader
    entry: str
    read: Entry
    devices: Devices
    frame: TimedBody
    sharing: set[int]
    """Slots of results that are in the memory of the arguments that they update."""

    @property
    def body(self) -> Body:
        return self.read.body

    def bytes_left(self) -> int:
        """What the program has made and its first device holds at the end."""
        return self.known.liveness.entry(self.body, self.sharing).net[0]

    def summary(self) -> Summary:
        """Time and memory of the whole."""
        return self._summary

    @cached_property
    def _summary(self) -> Summary:
        body, devices, frame = self.body, self.devices, self.frame
        clocks = dict(zip(body.streams, frame.run([0] * len(body.streams)), strict=True))
        executions = [(body, devices, frame, 1), *self.known.frames.executions(body, devices)]
        memory = self.known.liveness.entry(body, self.sharing)
        peaks = dict.fromkeys(range(len(devices)), 0)
        peaks.update(self.read.bytes)
        for device, peak in zip(devices, memory.peak, strict=False):
            peaks[device] += peak
        stand_in = self._stand_in()
        followers: dict[int, list[int]] = {}
        for device, simulated in stand_in.items():
            followers.setdefault(simulated, []).append(device)
        for (device, stream), clock in list(clocks.items()):
            clocks.update({(follower, stream): clock for follower in followers.get(device, ())})
        peaks.update({device: peaks[simulated] for device, simulated in stand_in.items()})
        return Summary(len(devices), clocks, peaks, executions, stand_in)

    def _stand_in(self) -> dict[int, int]:
        """For devices of groups that are not simulated, the one that does the same."""
        if (group := self.reader.representatives) is None:
            return {}
        of, count = group.stand_in(), group.group.count
        pairs = [(device, device - device % count + of[device % count]) for device in range(len(self.devices))]
        return {device: simulated for device, simulated in pairs if device != simulated}


def open_program(
    module: ModuleOp,
    machine: Machine | str,
    cost_model: str | type[CostModel] = "analytic",
    entry: str = "main",
    functions: Sequence[InterpreterFunctions] = (),
    memo: SummaryMemo | None = None,
    reader: Reader | None = None,
) -> OpenProgram:
    """Reads a program; the same arguments and errors as `summarize`."""
    known = (memo or SummaryMemo()).known(machine, cost_model, functions)
    each = frozenset[str]()
    while True:
        try:
            return _opened(known, reader or Reader(module, known.library, each), entry)
        except DevicesDiffer as differing:
            each, reader = each | differing.axes, None


def _opened(known: FunctionMemo, reader: Reader, entry: str) -> OpenProgram:
    assert reader.library is known.library
    module, function = reader.module, Walk(reader.module).function(entry)
    count = entry_devices(module, function)
    known.machine.check_devices(count)
    read, devices = reader.entry(entry, count), tuple(range(count))
    frame = known.frames.entry(read.body, devices)
    return OpenProgram(known, reader, entry, read, devices, frame, sharing(function, read))


def sharing(entry: FuncOp, read: Entry) -> set[int]:
    """Slots of results that are in the memory of the arguments that they update."""
    body = read.body
    places = {id(buffers): [device for device, _ in buffers] for buffers in read.buffers}
    return updating(
        entry, list(map(places.__getitem__, map(id, read.buffers))), body.results, [device for device, _ in body.slots]
    )
