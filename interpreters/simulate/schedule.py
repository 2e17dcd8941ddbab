"""The domain of the simulator: simulates op by op. In go a program and a machine; out comes a `Simulation`. A value
is its storages, and running an operation moves the clocks of its streams. Only calls, moves and tuples need an
`@impl` here. Every other operation allocates its results and occupies the streams in its types, for the time that
the cost domain gives (`distir.interpreters.costs`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, TensorType, TupleType
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Attribute, Operation

from distir.dialects.dist import CallOp, MoveOp, PackOp, UnpackOp
from distir.dialects.dist.attributes import MAIN_STREAM, placement
from distir.dialects.dist.calls import function_devices, is_kernel, is_placed
from distir.dialects.dist.communication import CommunicationOp
from distir.dialects.errors import DistirError
from distir.interpreters.cost_models import CostModel, make_cost_model
from distir.interpreters.costs import Cost, Costs
from distir.interpreters.machines import Machine, load_machine
from distir.interpreters.ranks import explicit
from distir.interpreters.simulate.result import CallSpan, Placed, Simulation, Step, Storage, Stream
from distir.interpreters.walk import Walk
from distir.interpreters.work import shares_memory, type_bytes

Value = tuple[int, ...]
"""Numbers of storages: one for a tensor, one per element for a tuple, none for an absent operand."""


def simulate(
    module: ModuleOp,
    machine: Machine | str,
    cost_model: str | type[CostModel] = "analytic",
    entry: str = "main",
    functions: Sequence[InterpreterFunctions] = (),
) -> Simulation:
    """Runs the entry on the machine's clocks. `functions` say what further operations cost (see `CostFunctions`).

    The module must hold together (`check-module`); a sequential program runs on device 0. Raises DistirError if it is
    the program of one rank, needs more devices than the machine has, or has shapes that are not static."""
    machine = load_machine(machine) if isinstance(machine, str) else machine
    module = explicit(module)
    run = Schedule(module, Costs(make_cost_model(cost_model, machine), functions))
    devices = entry_devices(module, run.function(entry))
    machine.check_devices(devices)
    return run.simulation(entry, devices)


def entry_devices(module: ModuleOp, entry: func.FuncOp) -> int:
    """How many machine devices a program has: the module's `dist.devices`, else one more than the highest it names."""
    declared = module.attributes.get("dist.devices")
    return declared.value.data if isinstance(declared, IntegerAttr) else function_devices(entry)


@dataclass
class Frame:
    """A function on the devices that a call gave it, and its operations placed there so far."""

    name: str
    devices: tuple[int, ...]
    is_placed: bool
    operations: dict[Operation, Placed] = field(default_factory=dict[Operation, Placed])

    @classmethod
    def of(cls, function: func.FuncOp, devices: tuple[int, ...]) -> Frame:
        """Raises DistirError if there is nothing to run."""
        if function.is_declaration:
            raise DistirError(f"@{function.sym_name.data} has no body: nothing to simulate")
        return cls(function.sym_name.data, devices, is_placed(function))

    def stream(self, type_: Attribute) -> Stream | None:
        """Where a value of this type lives on the machine; None if it is on no device in particular."""
        if not self.is_placed:
            return (self.devices[0], MAIN_STREAM) if isinstance(type_, TensorType | TupleType) else None
        on = placement(type_)
        return None if on is None else (self.devices[on.device], on.stream)


class Schedule(Walk):
    """One run."""

    def __init__(self, module: ModuleOp, costs: Costs):
        super().__init__(module, default=self.execute)
        self.register([ScheduleFunctions()])
        self.costs = costs
        self.clocks: dict[Stream, int] = {}
        self.steps_done: list[Step] = []
        self.calls: list[CallSpan] = []
        self.storages: list[Storage] = []
        self.frames: dict[tuple[str, tuple[int, ...]], Frame] = {}
        self.frame = Frame("", (), False)

    def simulation(self, entry: str, devices: int) -> Simulation:
        function = self.function(entry)
        self.frame = self.frame_of(entry, tuple(range(devices)))
        arguments = [self.allocate(type_, -1) for type_ in function.function_type.inputs.data]
        results = self.call(entry, tuple(arguments))
        end = len(self.steps_done)
        for storage in {number for value in (*arguments, *results) for number in value}:
            self.storages[storage].last_use = end
        devices_of = [s.device for s in self.storages]
        places = [[devices_of[storage] for storage in value] for value in arguments]
        for storage in updating(function, places, results, devices_of).difference(chain.from_iterable(arguments)):
            self.storages[storage].bytes = 0
        return Simulation(devices, self.steps_done, self.calls, self.storages, self.clocks)

    def execute(self, op: Operation, operands: PythonValues) -> PythonValues:
        """Any operation but calls, moves and tuples."""
        placed = self.placed(op)
        number = self.occupy(placed, operands)
        if placed.shares_memory:
            return tuple(operands[0] for _ in placed.allocates)
        results: list[Value] = []
        for allocations in placed.allocates:
            results.append(tuple(range(len(self.storages), len(self.storages) + len(allocations))))
            self.storages += [Storage(*allocation, number, number) for allocation in allocations]
        return tuple(results)

    def occupy(self, placed: Placed, operands: PythonValues) -> int:
        """All streams of the operation are busy from when the last of them is free; returns the step's number."""
        clocks, start = self.clocks, 0
        for stream in placed.streams:
            start = max(start, clocks.get(stream, 0))
        for stream in placed.streams:
            clocks[stream] = start + placed.cost.picoseconds
        slowed = tuple([clocks.get(stream, 0) for stream in placed.slows])
        for stream, clock in zip(placed.slows, slowed, strict=True):
            clocks[stream] = clock + placed.slowdown_picoseconds
        return self.record(placed, start, operands, slowed)

    def record(self, placed: Placed, start: int, operands: PythonValues, slowed: tuple[int, ...] = ()) -> int:
        """Notes that an operation ran and used its operands; returns the step's number."""
        number = len(self.steps_done)
        self.steps_done.append(Step(placed, start, slowed))
        for value in operands:
            for storage in value:
                self.storages[storage].last_use = number
        return number

    def placed(self, op: Operation) -> Placed:
        """The operation on the current frame's devices."""
        if (placed := self.frame.operations.get(op)) is None:
            placed = self.frame.operations[op] = self.place(op)
        return placed

    def place(self, op: Operation) -> Placed:
        frame = self.frame
        check_level(op, frame.name)
        found = [frame.stream(v.type) for v in (*op.operands, *op.results)]
        streams = tuple(dict.fromkeys(stream for stream in found if stream is not None))
        cost = self.costs.of(op, tuple(dict.fromkeys(device for device, _ in streams)))
        check_placed(op, frame.name, streams, cost)
        memory = tuple([tuple(self.memory(v.type)) for v in op.results])
        if (slows := slowed_streams(op, streams)) and cost.picoseconds:
            beside = self.costs.beside(cost)
            slows = slows if beside.slowdown_picoseconds else ()
            return Placed(op, frame.name, streams, beside.cost, memory, False, slows, beside.slowdown_picoseconds)
        return Placed(op, frame.name, streams, cost, memory, shares_memory(op))

    def allocate(self, type_: Attribute, number: int) -> Value:
        """New storage for a value of this type, and of each element of a tuple."""
        first = len(self.storages)
        self.storages += [Storage(*memory, number, number) for memory in self.memory(type_)]
        return tuple(range(first, len(self.storages)))

    def memory(self, type_: Attribute) -> list[tuple[int, int]]:
        """What a value of this type is held in, (device, bytes): several of a tuple, nothing if it is on no device."""
        if isinstance(type_, TupleType):
            return [memory for element in type_.types.data for memory in self.memory(element)]
        stream = self.frame.stream(type_)
        return [] if stream is None else [(stream[0], type_bytes(type_))]

    def frame_of(self, name: str, devices: tuple[int, ...]) -> Frame:
        if (frame := self.frames.get((name, devices))) is None:
            frame = self.frames[name, devices] = Frame.of(self.function(name), devices)
        return frame

    def enter(self, call: Operation, name: str, devices: tuple[int, ...], arguments: PythonValues) -> PythonValues:
        """Runs a function on these machine devices, in place of the call."""
        caller, first = self.frame, len(self.steps_done)
        span = len(self.calls)
        self.calls.append(CallSpan(call, name, first, first))
        self.frame = self.frame_of(name, devices)
        results = self.call(name, arguments)
        self.frame = caller
        self.calls[span] = CallSpan(call, name, first, len(self.steps_done))
        return results


def slowed_streams(op: Operation, streams: Sequence[Stream]) -> tuple[Stream, ...]:
    """The main streams beside which a message runs: those of the devices where it is on another stream only."""
    if not isinstance(op, CommunicationOp):
        return ()
    mains = dict.fromkeys((device, MAIN_STREAM) for device, _ in streams)
    return tuple(stream for stream in mains if stream not in streams)


def check_level(op: Operation, function: str) -> None:
    """Raises DistirError if the operation is one rank's."""
    if op.name.startswith("rank."):
        raise DistirError(f"@{function} is the program of one rank: simulate the distributed program it is from")


def check_placed(op: Operation, function: str, streams: Sequence[object], cost: Cost) -> None:
    """Raises DistirError if an operation takes time on no device."""
    if not streams and cost.picoseconds:
        raise DistirError(f"{op.name} in @{function} is on no device: its types must say where it runs")


def updating(
    entry: func.FuncOp, places: Sequence[Sequence[int]], results: Sequence[Value], device_of: Sequence[int]
) -> set[int]:
    """The storages of results that are written into an argument's memory: those that update one on the same device, on
    which arguments are as `places` says. Storages below 0 are left out."""
    returned = _dictionaries(entry.res_attrs, len(results))
    named = {_text(attributes, "dist.name") for attributes in returned} - {""}  # what has no name updates nothing
    given = _dictionaries(entry.arg_attrs, len(places))
    distinct = {id(each): each for each in given}.values()  # replicas share theirs
    names = {id(each): _text(each, "dist.name") for each in distinct}
    persistent = {
        id(each) for each in distinct if _text(each, "dist.role") in ("parameter", "state") and names[id(each)] in named
    }
    if not persistent:
        return set()
    updated = {
        (names[id(attributes)], device)
        for devices, attributes in zip(places, given, strict=True)
        if id(attributes) in persistent
        for device in devices
    }
    return {
        storage
        for value, attributes in zip(results, returned, strict=True)
        for storage in value
        if storage >= 0 and (_text(attributes, "dist.name"), device_of[storage]) in updated
    }


def _dictionaries(attributes: ArrayAttr[DictionaryAttr] | None, count: int) -> Sequence[DictionaryAttr]:
    return [DictionaryAttr({})] * count if attributes is None else attributes.data


def _text(attributes: DictionaryAttr, key: str) -> str:
    value = attributes.data.get(key)
    return value.data if isinstance(value, StringAttr) else ""


@register_impls
class ScheduleFunctions(InterpreterFunctions):
    """Calls, moves and tuples."""

    @impl(CallOp)
    def call(self, interpreter: Interpreter, op: CallOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, Schedule)
        if is_kernel(interpreter.function(op.callee_name)):
            return interpreter.execute(op, args)
        devices = interpreter.frame.devices
        return interpreter.enter(op, op.callee_name, tuple(devices[d] for d in op.devices), args)

    @impl(func.CallOp)
    def call_in_place(self, interpreter: Interpreter, op: func.CallOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, Schedule)
        if is_kernel(interpreter.function(op.callee.string_value())):
            return interpreter.execute(op, args)
        return interpreter.enter(op, op.callee.string_value(), interpreter.frame.devices, args)

    @impl(MoveOp)
    def move(self, interpreter: Interpreter, op: MoveOp, args: PythonValues) -> PythonValues:
        """The target stream waits for the source."""
        assert isinstance(interpreter, Schedule)
        placed = interpreter.placed(op)
        source, target = placed.streams
        time = max(interpreter.clocks.get(source, 0), interpreter.clocks.get(target, 0))
        interpreter.clocks[target] = time
        interpreter.record(placed, time, args)
        return args

    @impl(PackOp)
    def pack(self, interpreter: Interpreter, op: PackOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, Schedule)
        interpreter.occupy(interpreter.placed(op), args)
        return (tuple(storage for value in args for storage in value),)

    @impl(UnpackOp)
    def unpack(self, interpreter: Interpreter, op: UnpackOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, Schedule)
        interpreter.occupy(interpreter.placed(op), args)
        return tuple((storage,) for storage in args[0])
