"""From the IR to the tables of `kernel`, and the run of a program by them (`run`).

Reads functions on its own, apart from the summaries' reader (`distir.interpreters.simulate.reading`), which is part of what is
checked. What single operations cost is asked of the same `Costs` that the interpreter asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TupleType
from xdsl.ir import Attribute, Operation, SSAValue

from benchmarks.oracle.kernel import ABSENT, CALL, MOVE, RUN, Storages, Tables, compiled
from distir.dialects.dist import CallOp, MoveOp, PackOp, UnpackOp
from distir.interpreters.cost_models import CostModel, make_cost_model
from distir.interpreters.costs import Costs
from distir.interpreters.machines import Machine
from distir.interpreters.simulate import simulate
from distir.interpreters.simulate.result import Stream
from distir.interpreters.simulate.schedule import Frame, entry_devices, slowed_streams, updating
from distir.interpreters.walk import Walk
from distir.interpreters.work import shares_memory, type_bytes

Slots = tuple[int, ...]
Devices = tuple[int, ...]


@dataclass
class Function:
    """A function on its own devices, 0, 1, ..."""

    frame: Frame
    """Where its values are, at these devices."""
    slots: int = 0
    kind: list[int] = field(default_factory=list[int])
    detail: list[int] = field(default_factory=list[int])
    streams: list[Sequence[int]] = field(default_factory=list[Sequence[int]])
    slows: list[Sequence[int]] = field(default_factory=list[Sequence[int]])
    uses: list[Slots] = field(default_factory=list[Slots])
    makes: list[Slots] = field(default_factory=list[Slots])
    buffers: list[Sequence[tuple[int, int]]] = field(default_factory=list[Sequence[tuple[int, int]]])
    results: list[Slots] = field(default_factory=list[Slots])
    stream_numbers: dict[Stream, int] = field(default_factory=dict[Stream, int])
    costly: list[tuple[Operation, Devices, bool]] = field(default_factory=list[tuple[Operation, Devices, bool]])
    """Operations of which each cost is asked, and whether each is a message beside computation; others cost the same as one
    of these."""
    callees: dict[tuple[str, Devices | None], int] = field(
        default_factory=lambda: dict[tuple[str, tuple[int, ...] | None], int]()
    )
    """And on which devices; None is all."""
    depth: int = 1
    """Functions on the stack, this one included; and their slots."""
    stack: int = 0


@dataclass(frozen=True)
class Outcome:
    """What was executed."""

    steps: int
    makespan_picoseconds: int
    peak_memory_bytes: list[int]
    """Per device."""


class Lowering:
    """The tables of one program."""

    def __init__(self, module: ModuleOp, machine: Machine, cost_model: str | type[CostModel], entry: str = "main"):
        self.walk = Walk(module)
        self.costs = Costs(make_cost_model(cost_model, machine))
        self.devices = entry_devices(module, self.walk.function(entry))
        machine.check_devices(self.devices)
        self.functions: dict[str, Function] = {}
        self.function_numbers: dict[str, int] = {}
        self.streams: dict[Stream, int] = {}
        self.frames: dict[tuple[str, Devices], int] = {}
        self.frame_rows: list[tuple[int, Devices, list[int], list[int], list[int], list[int]]] = []
        """Function, devices, streams, costs, slowdowns, callees."""
        self.executed: list[tuple[int, int]] = []
        """Per frame, the steps and the storages of one run of it."""
        self.function = self.function_of(entry)
        self.entry = self.frame_of(entry, tuple(range(self.devices)))

    # Functions.

    def function_of(self, name: str) -> Function:
        if (function := self.functions.get(name)) is None:
            op = self.walk.function(name)
            frame = Frame.of(op, tuple(range(self.devices)))
            function = Function(frame)
            _Reader(self, function).read(op)
            self.functions[name] = function
            self.function_numbers[name] = len(self.function_numbers)
        return function

    # Frames.

    def frame_of(self, name: str, devices: Devices) -> int:
        """The number of the function on these machine devices; callees have lower numbers."""
        if (number := self.frames.get((name, devices))) is not None:
            return number
        function = self.function_of(name)
        streams = [self.stream(devices[d], stream) for d, stream in function.stream_numbers]
        asked = [self.asked(op, _on(local, devices), beside) for op, local, beside in function.costly]
        costs, slowdowns = [cost for cost, _ in asked], [slowdown for _, slowdown in asked]
        callees = [self.frame_of(callee, _on(local, devices)) for callee, local in function.callees]
        steps, storages = 0, 0
        for kind, detail, buffers in zip(function.kind, function.detail, function.buffers, strict=True):
            if kind == CALL:
                inner = self.executed[callees[detail]]
                steps, storages = steps + inner[0], storages + inner[1]
            else:
                steps, storages = steps + 1, storages + sum(device != ABSENT for device, _ in buffers)
        number = self.frames[name, devices] = len(self.frames)
        self.frame_rows.append((self.function_numbers[name], devices, streams, costs, slowdowns, callees))
        self.executed.append((steps, storages))
        return number

    def asked(self, op: Operation, devices: Devices, is_beside: bool) -> tuple[int, int]:
        """Picoseconds of an operation, and what it adds to each stream that it slows."""
        cost = self.costs.of(op, devices)
        if not is_beside:
            return cost.picoseconds, 0
        beside = self.costs.beside(cost)
        return beside.cost.picoseconds, beside.slowdown_picoseconds

    def stream(self, device: int, name: str) -> int:
        return self.streams.setdefault((device, name), len(self.streams))

    # Tables.

    def tables(self) -> Tables:
        functions = list(self.functions.values())
        operations = list(accumulate((len(f.kind) for f in functions), initial=0))
        frame_functions, devices, streams, costs, slowdowns, callees = zip(*self.frame_rows, strict=True)

        def rows(name: str) -> Iterable[Sequence[int]]:
            return chain.from_iterable(getattr(f, name) for f in functions)

        buffers = list(chain.from_iterable(chain.from_iterable(f.buffers) for f in functions))
        return Tables(
            _array(chain.from_iterable(f.kind for f in functions)),
            _array(chain.from_iterable(f.detail for f in functions)),
            *_ranges(rows("streams")),
            *_ranges(rows("slows")),
            *_ranges(rows("uses")),
            *_ranges(rows("makes")),
            _array(device for device, _ in buffers),
            np.array([bytes_ for _, bytes_ in buffers], np.int64),
            _array(operations),
            _array(f.slots for f in functions),
            *_ranges(tuple(chain.from_iterable(f.results)) for f in functions),
            _array(frame_functions),
            *_ranges(devices),
            *_ranges(streams),
            *_ranges(costs, np.int64),
            np.fromiter(chain.from_iterable(slowdowns), np.int64),
            *_ranges(callees),
        )


class _Reader:
    """Reads one function."""

    def __init__(self, lowering: Lowering, function: Function):
        self.lowering, self.function, self.frame = lowering, function, function.frame
        self.slots: dict[SSAValue, Slots] = {}
        self.costs: dict[tuple[object, ...], int] = {}

    def read(self, op: func.FuncOp) -> None:
        function, block = self.function, op.body.block
        for argument in block.args:
            self.slots[argument] = self.new(argument.type)
        for each in block.ops:
            operands = [self.slots[v] for v in each.operands]
            match each:
                case func.ReturnOp():
                    function.results = operands
                    break
                case CallOp():
                    self.call(each, each.callee_name, each.devices, operands)
                case func.CallOp():
                    self.call(each, each.callee.string_value(), None, operands)
                case _:
                    self.run(each, operands)
        function.stack += function.slots

    def new(self, type_: Attribute) -> Slots:
        """Slots for a value of this type."""
        if isinstance(type_, TupleType):
            return tuple(s for element in type_.types.data for s in self.new(element))
        self.function.slots += 1
        return (self.function.slots - 1,)

    def call(self, op: Operation, name: str, devices: Devices | None, operands: list[Slots]) -> None:
        function, callee = self.function, self.lowering.function_of(name)
        function.depth = max(function.depth, callee.depth + 1)
        function.stack = max(function.stack, callee.stack)
        made = [self.new(v.type) for v in op.results]
        assert list(map(len, made)) == list(map(len, callee.results))
        callees = function.callees
        self.add(CALL, callees.setdefault((name, devices), len(callees)), (), (), operands, made, [])
        self.slots.update(zip(op.results, made, strict=True))

    def run(self, op: Operation, operands: list[Slots]) -> None:
        found = [self.frame.stream(v.type) for v in (*op.operands, *op.results)]
        places = dict.fromkeys(stream for stream in found if stream is not None)
        numbers = self.function.stream_numbers
        streams = [numbers.setdefault(place, len(numbers)) for place in places]
        slows = [numbers.setdefault(place, len(numbers)) for place in slowed_streams(op, tuple(places))]
        made: list[Slots] = []
        buffers: list[tuple[int, int]] = []
        match op:
            case PackOp():
                results = [tuple(chain.from_iterable(operands))]
            case UnpackOp():
                results = [(slot,) for slot in operands[0]]
            case _ if shares_memory(op):
                results = [operands[0]] * len(op.results)
            case _:
                results = made = [self.new(v.type) for v in op.results]
                on = [self.frame.stream(v.type) for v in op.results]
                buffers = [
                    (ABSENT, 0) if s is None else (s[0], type_bytes(v.type))
                    for s, v in zip(on, op.results, strict=True)
                ]
        self.slots.update(zip(op.results, results, strict=True))
        cost = self.cost(op, tuple(dict.fromkeys(device for device, _ in places)), bool(slows))
        self.add(MOVE if isinstance(op, MoveOp) else RUN, cost, streams, slows, operands, made, buffers)

    def cost(self, op: Operation, devices: Devices, is_beside: bool) -> int:
        """Operations of one kind with the same types (which say the devices) and attributes cost the same."""
        attributes = [(name, id(value)) for given in (op.properties, op.attributes) for name, value in given.items()]
        types = [*(id(v.type) for v in op.operands), None, *(id(v.type) for v in op.results)]
        key = (op,) if op.regions else (type(op), *types, *attributes)
        if (number := self.costs.get(key)) is None:
            number = self.costs[key] = len(self.function.costly)
            self.function.costly.append((op, devices, is_beside))
        return number

    def add(
        self,
        kind: int,
        detail: int,
        streams: Sequence[int],
        slows: Sequence[int],
        operands: Sequence[Slots],
        made: Sequence[Slots],
        buffers: Sequence[tuple[int, int]],
    ) -> None:
        function = self.function
        function.kind.append(kind)
        function.detail.append(detail)
        function.streams.append(streams)
        function.slows.append(slows)
        function.uses.append(tuple(chain.from_iterable(operands)))
        function.makes.append(tuple(chain.from_iterable(made)))
        function.buffers.append(buffers if kind != CALL else [(ABSENT, 0)] * len(function.makes[-1]))


def run(module: ModuleOp, machine: Machine, cost_model: str | type[CostModel], entry: str = "main") -> Outcome:
    """Executes every operation of the program."""
    lowering = Lowering(module, machine, cost_model, entry)
    execute, peaks = compiled()
    function, op = lowering.function, lowering.walk.function(entry)
    steps, made = lowering.executed[lowering.entry]
    buffers = [buffer for argument in op.body.block.args for buffer in _buffers(argument.type, function.frame)]
    held = [buffer for buffer in buffers if buffer is not None]
    count = len(held) + made
    device, bytes_, born, last_use = (np.full(count, -1, dtype) for dtype in (np.int32, np.int64, np.int32, np.int32))
    storages = Storages(device, bytes_, born, last_use)
    storages.device[: len(held)] = [on for on, _ in held]
    storages.bytes[: len(held)] = [size for _, size in held]
    numbers = iter(range(len(held)))
    stack = np.full(max(function.stack, 1), ABSENT, np.int64)
    stack[: len(buffers)] = [ABSENT if buffer is None else next(numbers) for buffer in buffers]
    clocks = np.zeros(max(len(lowering.streams), 1), np.int64)
    ran = execute(lowering.tables(), lowering.entry, function.depth, stack, len(held), clocks, storages)
    assert ran == steps
    slots = iter(range(len(buffers)))
    arguments = [tuple(next(slots) for _ in _buffers(a.type, function.frame)) for a in op.body.block.args]
    _keep(op, _held(arguments, stack), _held(function.results, stack), storages, steps)
    return Outcome(steps, int(clocks.max()), peaks(storages, steps, lowering.devices).tolist())


def interpret(module: ModuleOp, machine: Machine, cost_model: str | type[CostModel], entry: str = "main") -> Outcome:
    """The same by the interpreter. Peaks are counted here, since the interpreter's own count, which the tests compare, takes a
    dictionary over all steps."""
    found = simulate(module, machine, cost_model, entry)
    columns = ((s.device, s.bytes, s.born, s.last_use) for s in found.storages)
    device, bytes_, born, last_use = np.fromiter(columns, np.dtype((np.int64, 4)), len(found.storages)).T
    storages = Storages(device, bytes_, born, last_use)
    steps = len(found.steps)
    return Outcome(steps, found.makespan_picoseconds, compiled()[1](storages, steps, found.devices).tolist())


def _keep(
    entry: func.FuncOp, arguments: Sequence[Slots], results: Sequence[Slots], storages: Storages, steps: int
) -> None:
    """Arguments and results of the entry stay to the end; a result that updates an argument is in its memory."""
    for storage in chain.from_iterable((*arguments, *results)):
        storages.last_use[storage] = steps
    places = [[int(storages.device[storage]) for storage in value] for value in arguments]
    found = updating(entry, places, results, storages.device)  # pyright: ignore[reportArgumentType]
    for storage in found.difference(chain.from_iterable(arguments)):
        storages.bytes[storage] = 0


def _held(values: Sequence[Slots], stack: np.ndarray) -> list[Slots]:
    """The storages of values that are in these slots."""
    return [tuple(int(stack[slot]) for slot in slots if stack[slot] != ABSENT) for slots in values]


def _buffers(type_: Attribute, frame: Frame) -> list[tuple[int, int] | None]:
    """Device and bytes of each slot of an argument."""
    if isinstance(type_, TupleType):
        return [buffer for element in type_.types.data for buffer in _buffers(element, frame)]
    stream = frame.stream(type_)
    return [None if stream is None else (stream[0], type_bytes(type_))]


def _on(local: Devices | None, devices: Devices) -> Devices:
    """A function's own devices as the machine's; None is all."""
    return devices if local is None else tuple(devices[d] for d in local)


def _array(numbers: Iterable[int], dtype: type[np.integer[Any]] = np.int32) -> np.ndarray:
    return np.fromiter(numbers, dtype)


def _ranges(rows: Iterable[Sequence[int]], dtype: type[np.integer[Any]] = np.int32) -> tuple[np.ndarray, np.ndarray]:
    """Where each row starts, and at the end all of them; the rows one after the other."""
    rows = list(rows)
    return _array(accumulate(map(len, rows), initial=0)), _array(chain.from_iterable(rows), dtype)
