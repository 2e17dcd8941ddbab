"""Functions as the simulator sees them: which streams each operation occupies, for how long, which storages it uses and
which it makes. A body is read from the IR once per module; bodies that are equal, under whatever name and in whatever
module, become one object, so that everything learned about one (`liveness`, `timing`) holds for all.

Devices and streams are the function's own. What an operation costs on one device is part of the body; what a message
costs depends on where a call places the function, so a body only names the message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import NamedTuple

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TupleType
from xdsl.ir import Attribute, Block, Operation

from distir.dialects.dist import CallOp, MoveOp, PackOp, UnpackOp
from distir.dialects.dist.attributes import placed
from distir.dialects.dist.calls import function_devices
from distir.dialects.errors import DistirError
from distir.interpreters.costs import Cost, Costs
from distir.interpreters.simulate.result import Stream
from distir.interpreters.simulate.schedule import Frame, check_level, check_placed
from distir.interpreters.walk import Walk
from distir.interpreters.work import is_view, type_bytes

SAME = range(1 << 31)
"""The devices of a call that stays where its caller is: device i is i."""

Slots = tuple[int, ...]
"""Numbers of a body's storages: what a value is held in, as in the schedule."""

Room = tuple[int, int]
"""A storage: (device, bytes)."""


class Message(NamedTuple):
    """An operation over several devices. Its cost is asked of `op`, a copy that no module holds."""

    op: Operation
    participants: tuple[int, ...]


class Run(NamedTuple):
    """One operation other than a call."""

    name: str
    cost: Cost | Message
    streams: tuple[int, ...]
    moves: bool
    """A `dist.move`: the second stream waits for the first."""
    uses: Slots
    makes: Slots


class Call(NamedTuple):
    """A call. Argument slots of the callee are `uses`, those that it makes and returns are `makes`."""

    callee: Body
    devices: tuple[int, ...]
    streams: tuple[int, ...]
    """For each stream of the callee, the caller's."""
    uses: Slots
    makes: Slots


@dataclass(eq=False, slots=True)
class Body:
    """A function. Compared by identity: equal functions are the same object."""

    number: int
    """Callees have lower numbers than their callers."""
    arity: tuple[int, ...]
    """Slots of each argument; those of all arguments come first, in order."""
    slots: list[Room]
    streams: list[Stream]
    steps: list[Run | Call]
    results: list[Slots]
    arguments: int = 0
    made: Slots = ()
    """The slots that it makes and returns, once each."""
    used: tuple[bool, ...] = ()
    """Per argument slot, whether any operation uses it, also inside calls."""
    devices: int = 0
    messages: tuple[Message, ...] = ()
    """Each once."""
    calls: Counter[tuple[Body, tuple[int, ...]]] = field(default_factory=Counter["tuple[Body, tuple[int, ...]]"])
    """How often it calls each function on each of its devices."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """Its own operations by name."""

    def __post_init__(self) -> None:
        self.arguments = sum(self.arity)
        self.made = tuple(s for s in dict.fromkeys(chain.from_iterable(self.results)) if s >= self.arguments)
        used: set[int] = set()
        self.messages = tuple(
            dict.fromkeys([s.cost for s in self.steps if isinstance(s, Run) and isinstance(s.cost, Message)])
        )
        devices = {device for device, _ in chain(self.slots, self.streams)}
        for step in self.steps:
            if isinstance(step, Run):
                used.update(step.uses)
                self.counts[step.name] += 1
            else:
                used.update(compress(step.uses, step.callee.used))
                devices.update(step.devices)
                self.calls[step.callee, step.devices] += 1
        self.used = tuple(slot in used for slot in range(self.arguments))
        self.devices = 1 + max(devices, default=0)

    def signature(self) -> tuple[object, ...]:
        """Everything that a simulation depends on."""
        return (self.arity, *map(tuple, (self.slots, self.streams, self.steps, self.results)))


class Placing(NamedTuple):
    """What a type says: the type without its placement (as a number), its stream, and its bytes."""

    plain: int
    stream: Stream | None
    bytes: int


@dataclass
class Library:
    """Bodies, and what single operations cost, of any number of modules."""

    costs: Costs
    bodies: dict[tuple[object, ...], Body] = field(default_factory=dict[tuple[object, ...], Body])
    _numbers: dict[Attribute, int] = field(default_factory=dict[Attribute, int])
    _known: dict[tuple[object, ...], Cost | Operation] = field(
        default_factory=dict[tuple[object, ...], Cost | Operation]
    )
    _bodies_made: int = 0

    def body(
        self,
        arity: tuple[int, ...],
        slots: list[Room],
        streams: list[Stream],
        steps: list[Run | Call],
        results: list[Slots],
    ) -> Body:
        """A new body."""
        self._bodies_made += 1
        return Body(self._bodies_made, arity, slots, streams, steps, results)

    def number(self, attribute: Attribute) -> int:
        """Equal attributes have one number."""
        return self._numbers.setdefault(attribute, len(self._numbers))

    def cost(self, op: Operation, key: tuple[object, ...], participants: tuple[int, ...]) -> Cost | Message:
        """What the operation costs, or the message that it is. Operations with equal keys cost the same on the same
        devices, and devices are alike."""
        count = min(len(participants), 2)
        if (known := self._known.get((key, count))) is None:
            copy = op if op.regions else _detached(op)
            known = self._known[key, count] = copy if count == 2 else self.costs.of(copy, (0,) * count)
        return known if isinstance(known, Cost) else Message(known, participants)


def _detached(op: Operation) -> Operation:
    """The operation on values that nothing makes, so that remembering it does not keep its module."""
    operands = Block(arg_types=[v.type for v in op.operands]).args
    return type(op).create(
        operands=operands,
        result_types=op.result_types,
        properties=dict(op.properties),
        attributes=dict(op.attributes),
    )


class Reader:
    """Reads the functions of one module into a library."""

    def __init__(self, module: ModuleOp, library: Library):
        self.walk = Walk(module)
        self.library = library
        self._bodies: dict[tuple[str, tuple[Room, ...], tuple[int, ...] | None], Body] = {}
        self.placings: dict[bool, dict[int, Placing]] = {True: {}, False: {}}
        """By the identity of types, of functions with and without placements. The module keeps the types alive."""
        self._attributes: dict[int, int] = {}
        self._devices: dict[bytes, tuple[int, ...]] = {}

    def body(self, name: str) -> Body:
        """A function called by this module; equal ones are one object."""
        return self._function(name, (), None)

    def entry(self, name: str) -> Body:
        """The entry. It is read once and rarely equals another, so it is not compared."""
        return FunctionReader(self, name, None).read()

    def _function(self, name: str, rooms: tuple[Room, ...], arity: tuple[int, ...] | None) -> Body:
        key = (name, rooms, arity)
        if (body := self._bodies.get(key)) is None:
            body = FunctionReader(self, name, None if arity is None else (rooms, arity)).read()
            body = self._bodies[key] = self.library.bodies.setdefault(body.signature(), body)
        return body

    def callee(self, name: str, devices: Sequence[int], arguments: Sequence[Slots], rooms: Sequence[Room]) -> Body:
        """The function as called with these arguments. Where a value is not held as the callee's type says (it has no
        placement, but was made on a device), the callee is read as it is held."""
        body = self.body(name)
        arity = tuple(map(len, arguments))
        if arity == body.arity:
            return body
        local = tuple((devices.index(rooms[s][0]), rooms[s][1]) for s in chain.from_iterable(arguments))
        return self._function(name, local, arity)

    def devices(self, call: CallOp) -> tuple[int, ...]:
        data = call.on.data.data
        if (devices := self._devices.get(data)) is None:
            devices = self._devices[data] = call.devices
        return devices

    def attributes(self, op: Operation) -> tuple[object, ...]:
        """What an operation's cost may depend on beside its types. What passes note on it (`dist.rule`) is not."""
        if op.regions:
            return (op,)
        given = [*op.properties.items()]
        if op.attributes:
            given += [(name, value) for name, value in op.attributes.items() if not name.startswith("dist.")]
        return tuple([(name, self._number(value)) for name, value in given])

    def _number(self, attribute: Attribute) -> int:
        if (number := self._attributes.get(id(attribute))) is None:
            number = self._attributes[id(attribute)] = self.library.number(attribute)
        return number


class FunctionReader:
    """Reads one function. `held` are the storages of its arguments, and how many each argument has, where types do not
    say it."""

    def __init__(self, reader: Reader, name: str, held: tuple[tuple[Room, ...], tuple[int, ...]] | None):
        self.reader, self.library = reader, reader.library
        self.function = reader.walk.function(name)
        self.frame = Frame.of(self.function, tuple(range(function_devices(self.function))))
        self.slots: list[Room] = []
        self.streams: dict[Stream, int] = {}
        self.steps: list[Run | Call] = []
        self.values: dict[int, Slots] = {}
        self._placings = reader.placings[self.frame.is_placed]
        self._maps: dict[tuple[Body, tuple[int, ...]], tuple[int, ...]] = {}
        self.held = held

    def read(self) -> Body:
        block = self.function.body.block
        inputs = self.function.function_type.inputs.data
        if self.held is None:
            arguments = [self._allocate(type_) for type_ in inputs]
        else:
            rooms, arity = self.held
            self.slots += rooms
            numbers = iter(range(len(rooms)))
            arguments = [tuple(next(numbers) for _ in range(count)) for count in arity]
        for argument, slots in zip(block.args, arguments, strict=True):
            self.values[id(argument)] = slots
        results = self._steps(block)
        return self.library.body(tuple(map(len, arguments)), self.slots, list(self.streams), self.steps, results)

    def _allocate(self, type_: Attribute) -> Slots:
        """New storage for a value of this type, and of each element of a tuple."""
        if isinstance(type_, TupleType):
            return tuple(s for element in type_.types.data for s in self._allocate(element))
        placing = self._placing(type_)
        return () if placing.stream is None else self._new([(placing.stream[0], placing.bytes)])

    def _new(self, rooms: Sequence[Room]) -> Slots:
        first = len(self.slots)
        self.slots += rooms
        return tuple(range(first, len(self.slots)))

    def _placing(self, type_: Attribute) -> Placing:
        if (placing := self._placings.get(id(type_))) is None:
            plain = self.library.number(placed(type_, None))
            placing = self._placings[id(type_)] = Placing(plain, self.frame.stream(type_), type_bytes(type_))
        return placing

    def _stream(self, stream: Stream) -> int:
        return self.streams.setdefault(stream, len(self.streams))

    def _steps(self, block: Block) -> list[Slots]:
        """Reads all operations; returns what the function returns."""
        values = self.values
        for op in block.ops:
            operands = [values[id(v)] for v in op.operands]
            if isinstance(op, func.ReturnOp):
                return operands
            if isinstance(op, CallOp):
                results = self._call(op.callee_name, self.reader.devices(op), operands)
            elif isinstance(op, func.CallOp):
                results = self._call(op.callee.string_value(), SAME, operands)
            else:
                results = self._run(op, operands)
            for value, slots in zip(op.results, results, strict=True):
                values[id(value)] = slots
        raise DistirError(f"@{self.frame.name} does not return")

    def _call(self, name: str, devices: Sequence[int], operands: list[Slots]) -> list[Slots]:
        callee = self.reader.callee(name, devices, operands, self.slots)
        devices = tuple(devices[: callee.devices])
        uses = tuple(chain.from_iterable(operands))
        rooms = callee.slots
        makes = self._new([(devices[device], bytes_) for device, bytes_ in [rooms[s] for s in callee.made]])
        if (streams := self._maps.get((callee, devices))) is None:
            streams = tuple(self._stream((devices[device], stream)) for device, stream in callee.streams)
            self._maps[callee, devices] = streams
        self.steps.append(Call(callee, devices, streams, uses, makes))
        held = dict(zip(callee.made, makes, strict=True))
        count = callee.arguments
        return [tuple([uses[s] if s < count else held[s] for s in slots]) for slots in callee.results]

    def _run(self, op: Operation, operands: list[Slots]) -> list[Slots]:
        check_level(op, self.frame.name)
        results = [self._placing(v.type) for v in op.results]
        placings = [*[self._placing(v.type) for v in op.operands], *results]
        streams = tuple(dict.fromkeys([p.stream for p in placings if p.stream is not None]))
        participants = tuple(dict.fromkeys([device for device, _ in streams]))
        key = (type(op), len(results), *[p.plain for p in placings], *self.reader.attributes(op))
        cost = self.library.cost(op, key, participants)
        if isinstance(cost, Cost):
            check_placed(op, self.frame.name, streams, cost)
        uses = tuple(chain.from_iterable(operands))
        makes: Slots = ()
        match op:
            case PackOp():
                made = [uses]
            case UnpackOp():
                made = [(slot,) for slot in uses]
            case _ if is_view(op):
                made = [operands[0] for _ in results]
            case _:
                made = [() if p.stream is None else self._new([(p.stream[0], p.bytes)]) for p in results]
                makes = tuple(chain.from_iterable(made))
        numbers = tuple([self._stream(stream) for stream in streams])
        self.steps.append(Run(op.name, cost, numbers, isinstance(op, MoveOp), uses, makes))
        return made
