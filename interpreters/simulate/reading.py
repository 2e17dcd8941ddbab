"""From the IR to bodies (`bodies`): reads each function of a module once, callees before callers.

Operations of one kind on the same types differ only in the storages that they use, so they are understood once per
function (`Pattern`). Types and attributes are recognised by identity first: hashing one costs more than all the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TupleType
from xdsl.ir import Attribute, Block, Operation

from distir.dialects.dist import CallOp, MoveOp, PackOp, UnpackOp
from distir.dialects.dist.attributes import placed
from distir.dialects.dist.calls import function_devices
from distir.dialects.dist.communication import CommunicationOp
from distir.dialects.errors import DistirError
from distir.interpreters.costs import Cost
from distir.interpreters.simulate.bodies import Body, Call, Devices, Library, Message, Room, Run, Slots
from distir.interpreters.simulate.result import Stream
from distir.interpreters.simulate.schedule import Frame, check_level, check_placed, slowed_streams
from distir.interpreters.walk import Walk
from distir.interpreters.work import is_view

STATED = frozenset(["to", "devices"])
"""Properties of communication that repeat what the types say."""

SAME = range(1 << 31)
"""The devices of a call that stays where its caller is: device i is i."""


class Placing(NamedTuple):
    """What a type says: the type without its placement (as a number), its stream, and its bytes."""

    plain: int
    stream: Stream | None
    bytes: int


class Pattern(NamedTuple):
    """What all operations of one kind on the same types share, in one function."""

    types: tuple[object, ...]
    """The kind, and the types without placements."""
    participants: Devices
    streams: tuple[int, ...]
    slows: tuple[int, ...]
    rooms: list[Room | None]
    """What each result is held in; None if it is on no device."""
    is_view: bool
    costs: dict[tuple[object, ...], Cost | Message]
    """By attributes."""


class Reader:
    """Reads the functions of one module. Functions may come and go, but not change."""

    def __init__(self, module: ModuleOp, library: Library):
        self.module, self.walk = module, Walk(module)
        self.library = library
        self.placings: dict[bool, dict[int, Placing]] = {True: {}, False: {}}
        """By the identity of types, of functions with and without placements. The module and the entries keep the types alive."""
        self.rooms: dict[bool, dict[int, tuple[Room, ...]]] = {True: {}, False: {}}
        """What values of a type are held in, likewise."""
        self._entries: list[func.FuncOp] = []
        self._bodies: dict[tuple[func.FuncOp, tuple[Room, ...], tuple[int, ...] | None], Body] = {}
        self._attributes: dict[int, int] = {}
        self._stated: dict[type[Operation], frozenset[str]] = {}
        self._devices: dict[bytes, Devices] = {}

    def entry(self, name: str, devices: int) -> Body:
        """The entry, on so many devices. It rarely equals another, so it is not compared."""
        self.walk = Walk(self.module)
        self._entries.append(self.walk.function(name))
        return FunctionReader(self, Frame.of(self.walk.function(name), tuple(range(devices)))).read(None)

    def callee(self, name: str, devices: Sequence[int], arguments: Sequence[Slots], rooms: Sequence[Room]) -> Body:
        """The function as called with these arguments. Where a value is not held as the callee's type says (it has no
        placement, but was made on a device), the callee is read as it is held."""
        body = self._body(name, (), None)
        arity = tuple(map(len, arguments))
        if arity == body.arity:
            return body
        held = tuple((devices.index(rooms[s][0]), rooms[s][1]) for s in chain.from_iterable(arguments))
        return self._body(name, held, arity)

    def _body(self, name: str, rooms: tuple[Room, ...], arity: tuple[int, ...] | None) -> Body:
        function = self.walk.function(name)
        key = (function, rooms, arity)
        if (body := self._bodies.get(key)) is None:
            frame = Frame.of(function, tuple(range(function_devices(function))))
            body = FunctionReader(self, frame).read(None if arity is None else (rooms, arity))
            body = self._bodies[key] = self.library.bodies.setdefault(body.signature(), body)
        return body

    def devices(self, call: CallOp) -> Devices:
        data = call.on.data.data
        if (devices := self._devices.get(data)) is None:
            devices = self._devices[data] = call.devices
        return devices

    def attributes(self, op: Operation) -> tuple[object, ...]:
        """What an operation's cost may depend on beside its types. What passes note on it (`dist.rule`) is not."""
        if op.regions:
            return (op,)
        known, given = self._attributes, list[object]()
        if (stated := self._stated.get(type(op))) is None:
            stated = self._stated[type(op)] = STATED if isinstance(op, CommunicationOp) else frozenset()
        for attributes in (op.properties, op.attributes) if op.attributes else (op.properties,):
            for name, value in attributes.items():
                if name in stated or name.startswith("dist."):
                    continue
                if (number := known.get(id(value))) is None:
                    number = known[id(value)] = self.library.number(value)
                given += (name, number)
        return tuple(given)


class FunctionReader:
    """Reads one function."""

    def __init__(self, reader: Reader, frame: Frame):
        self.reader, self.library, self.frame = reader, reader.library, frame
        self.slots: list[Room] = []
        self.streams: dict[Stream, int] = {}
        self.steps: list[Run | Call] = []
        self.values: dict[int, Slots] = {}
        """By the identity of SSA values."""
        self._placings, self._rooms = reader.placings[frame.is_placed], reader.rooms[frame.is_placed]
        self._patterns: dict[tuple[object, ...], Pattern] = {}
        self._maps: dict[tuple[Body, Devices], tuple[int, ...]] = {}

    def read(self, held: tuple[tuple[Room, ...], tuple[int, ...]] | None) -> Body:
        """The body. `held` are the storages of the arguments, and how many each has, where types do not say it."""
        function = self.reader.walk.function(self.frame.name)
        block = function.body.block
        if held is None:
            arguments = self._allocate_all(function.function_type.inputs.data)
        else:
            rooms, arity = held
            numbers = iter(self._new(rooms))
            arguments = [tuple([next(numbers) for _ in range(count)]) for count in arity]
        self.values.update(zip(map(id, block.args), arguments, strict=True))
        results = self._read(block)
        return self.library.body(tuple(map(len, arguments)), self.slots, list(self.streams), self.steps, results)

    def _allocate(self, type_: Attribute) -> Slots:
        """New storage for a value of this type, and of each element of a tuple."""
        if (rooms := self._rooms.get(id(type_))) is None:
            rooms = self._rooms[id(type_)] = self._rooms_of(type_)
        return self._new(rooms)

    def _allocate_all(self, types: Sequence[Attribute]) -> list[Slots]:
        """The same for many values, of few types."""
        for type_ in {id(type_): type_ for type_ in types}.values():
            if id(type_) not in self._rooms:
                self._rooms[id(type_)] = self._rooms_of(type_)
        rooms = list(map(self._rooms.__getitem__, map(id, types)))
        ends = list(accumulate(map(len, rooms), initial=len(self.slots)))
        self.slots += chain.from_iterable(rooms)
        return [(start,) if stop - start == 1 else tuple(range(start, stop)) for start, stop in pairwise(ends)]

    def _rooms_of(self, type_: Attribute) -> tuple[Room, ...]:
        if isinstance(type_, TupleType):
            return tuple([room for element in type_.types.data for room in self._rooms_of(element)])
        placing = self._placing(type_)
        return () if placing.stream is None else ((placing.stream[0], placing.bytes),)

    def _new(self, rooms: Sequence[Room]) -> Slots:
        first = len(self.slots)
        self.slots += rooms
        return (first,) if len(rooms) == 1 else tuple(range(first, len(self.slots)))

    def _placing(self, type_: Attribute) -> Placing:
        if (placing := self._placings.get(id(type_))) is None:
            placing = self._placings[id(type_)] = self._place(type_)
        return placing

    def _place(self, type_: Attribute) -> Placing:
        if not isinstance(type_, TupleType):
            plain = self.library.number(placed(type_, None))
            return Placing(plain, self.frame.stream(type_), self.library.bytes(type_))
        elements = [self._placing(element) for element in type_.types.data]
        plain = self.library.number(tuple([element.plain for element in elements]))
        return Placing(plain, self.frame.stream(type_), sum([element.bytes for element in elements]))

    def _stream(self, stream: Stream) -> int:
        return self.streams.setdefault(stream, len(self.streams))

    def _read(self, block: Block) -> list[Slots]:
        """Reads all operations; returns what the function returns."""
        values = self.values
        for op in block.ops:
            operands = list(map(values.__getitem__, map(id, op.operands)))
            if type(op) is func.ReturnOp:
                return operands
            if type(op) is CallOp:
                results = self._call(op.callee_name, self.reader.devices(op), operands)
            elif type(op) is func.CallOp:
                results = self._call(op.callee.string_value(), SAME, operands)
            else:
                results = self._run(op, operands)
            for value, slots in zip(op.results, results, strict=True):
                values[id(value)] = slots
        raise DistirError(f"@{self.frame.name} does not return")

    def _call(self, name: str, devices: Sequence[int], operands: list[Slots]) -> list[Slots]:
        callee = self.reader.callee(name, devices, operands, self.slots)
        devices = tuple(devices[: callee.devices])
        makes = self._new([(devices[device], bytes_) for device, bytes_ in [callee.slots[s] for s in callee.made]])
        if (streams := self._maps.get((callee, devices))) is None:
            streams = tuple([self._stream((devices[device], stream)) for device, stream in callee.streams])
            self._maps[callee, devices] = streams
        self.steps.append(Call(callee, devices, streams, tuple(operands), makes))
        held, count = dict(zip(callee.made, makes, strict=True)), callee.arguments
        if any([s < count for slots in callee.results for s in slots]):
            held.update(enumerate(chain.from_iterable(operands)))
        return [tuple([held[s] for s in slots]) for slots in callee.results]

    def _run(self, op: Operation, operands: list[Slots]) -> list[Slots]:
        kind = type(op)
        key = (kind, *[id(v.type) for v in op.operands], None, *[id(v.type) for v in op.results])
        if (pattern := self._patterns.get(key)) is None:
            pattern = self._patterns[key] = self._pattern(op)
        attributes = self.reader.attributes(op)
        if (cost := pattern.costs.get(attributes)) is None:
            cost = pattern.costs[attributes] = self._cost(op, pattern, attributes)
        uses = operands[0] if len(operands) == 1 else tuple(chain.from_iterable(operands))
        makes: Slots = ()
        if kind is PackOp:
            made = [uses]
        elif kind is UnpackOp:
            made = [(slot,) for slot in uses]
        elif pattern.is_view:
            made = [operands[0] for _ in pattern.rooms]
        else:
            made = [() if room is None else self._new([room]) for room in pattern.rooms]
            makes = made[0] if len(made) == 1 else tuple(chain.from_iterable(made))
        self.steps.append(Run(op.name, cost, pattern.streams, kind is MoveOp, uses, makes, pattern.slows))
        return made

    def _pattern(self, op: Operation) -> Pattern:
        check_level(op, self.frame.name)
        results = [self._placing(v.type) for v in op.results]
        placings = [*[self._placing(v.type) for v in op.operands], *results]
        streams = dict.fromkeys([p.stream for p in placings if p.stream is not None])
        return Pattern(
            (type(op), len(results), *[p.plain for p in placings]),
            tuple(dict.fromkeys([device for device, _ in streams])),
            tuple([self._stream(stream) for stream in streams]),
            tuple([self._stream(stream) for stream in slowed_streams(op, tuple(streams))]),
            [None if p.stream is None else (p.stream[0], p.bytes) for p in results],
            is_view(op),
            {},
        )

    def _cost(self, op: Operation, pattern: Pattern, attributes: tuple[object, ...]) -> Cost | Message:
        cost = self.library.cost(op, (*pattern.types, *attributes), pattern.participants)
        if isinstance(cost, Cost):
            check_placed(op, self.frame.name, pattern.streams, cost)
        return cost
