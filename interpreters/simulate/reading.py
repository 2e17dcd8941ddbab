"""Reads the IR for the simulator. In goes a module; out comes a body (`bodies`) for each function, read once,
callees before callers.

Operations of one kind on the same types differ only in the storages that they use, so they are understood once per
function (`Pattern`). Types and attributes are recognised by identity first: hashing one costs more than all the rest.

Arguments of the entry stay to the end, so they need no storage that somebody watches: their bytes are counted once
(`Entry.held`). A value in such memory, in whatever function, has `PERSISTENT` in place of a slot. However many
parameters travel through calls, only storages that can die are followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from xdsl.dialects import func
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, TupleType
from xdsl.ir import Attribute, Block, Operation

from distir.dialects.dist import CallOp, FirstOnlyOp, InsertOp, MoveOp, OnAttr, PackOp, SliceOp, UnpackOp, ZerosOp
from distir.dialects.dist.attributes import placed, placement
from distir.dialects.dist.calls import function_devices, is_kernel
from distir.dialects.dist.communication import CollectiveOp, CommunicationOp
from distir.dialects.dist.groups import by_rank
from distir.dialects.errors import DistirError
from distir.interpreters.costs import SAID, Cost, detached
from distir.interpreters.simulate.bodies import Body, Buffer, Call, Devices, Library, Message, Run, Slots
from distir.interpreters.simulate.groups import DevicesDiffer, Representatives
from distir.interpreters.simulate.result import Stream
from distir.interpreters.simulate.schedule import Frame, check_level, check_placed, slowed_streams
from distir.interpreters.walk import Walk
from distir.interpreters.work import IN_PLACE, shares_memory

STATED = frozenset(["to", "devices"])
"""Properties of communication that repeat what the types say."""

RANGES = frozenset(["starts", "stops", "start"])
"""Properties of a slice: what it copies is in its types."""

TUPLES = (PackOp, UnpackOp)

SAME = range(1 << 31)
"""The devices of a call that stays where its caller is: device i is i."""

PERSISTENT = -1
"""Where a value has a slot: the storage of an entry argument, which nothing frees."""

Buffers = tuple["Buffer | None", ...]
"""What a value is held in, slot by slot; None for what stays."""


class Placing(NamedTuple):
    """What a type says: the type without its placement (as a number), its streams, and its bytes on each of them."""

    plain: int
    streams: tuple[Stream, ...]
    """One; of a group's value, one for each device that is simulated; none if it is on no device."""
    bytes: int
    on: OnAttr | None = None


class Pattern(NamedTuple):
    """What all operations of one kind on the same types share, in one function."""

    types: tuple[object, ...]
    """The kind, and the types without placements."""
    participants: Devices
    streams: tuple[int, ...]
    slows: tuple[int, ...]
    buffers: list[tuple[Buffer, ...]]
    """What each result is held in; nothing if it is on no device."""
    shares_memory: bool
    costs: dict[tuple[object, ...], Cost | Message]
    """By attributes."""
    on: OnAttr | None
    """The group, of an operation over one."""


class Entry(NamedTuple):
    """The entry, without the storages of its arguments."""

    body: Body
    buffers: list[tuple[Buffer, ...]]
    """What each argument is held in."""
    bytes: dict[int, int]
    """Of all arguments, by device."""


class Callee(NamedTuple):
    """A function where a caller calls it: what all such calls share."""

    body: Body
    devices: Devices
    streams: tuple[int, ...]
    """For each stream of the callee, the caller's."""
    makes: list[Buffer]
    passes: bool
    """Whether it returns what it is given."""
    results: list[Slots]
    """Where it does not: per result, positions among what it makes."""
    numbers: list[int]
    """And what each is held in, as a number."""


def _of_ranks(slots: Slots, ranks: Sequence[int], count: int) -> list[int]:
    """Those of some ranks: of a value of a group, or of a tuple of several, each of which has one for each rank."""
    return [slots[i + rank] for i in range(0, len(slots), count) for rank in ranks]


class Reader:
    """Reads the functions of one module. Functions may come and go, but not change. Of groups whose devices do the same, those are read
    that stand for all; along `each` of these axes, all."""

    def __init__(self, module: ModuleOp, library: Library, each: frozenset[str] = frozenset()):
        self.module, self.walk = module, Walk(module)
        self.library = library
        self.representatives = library.representatives(module, each)
        self.placings: dict[bool, dict[int, Placing]] = {True: {}, False: {}}
        """By the identity of types, of functions with and without placements. The module and the entries keep the types alive."""
        self.buffers: dict[bool, dict[int, tuple[Buffer, ...]]] = {True: {}, False: {}}
        """What values of a type are held in, likewise."""
        self._counts: dict[int, Counter[Buffer]] = {}
        """How often each room is in these, by their identity."""
        self._entries: list[func.FuncOp] = []
        self._bodies: dict[tuple[object, ...], Body] = {}
        self._attributes: dict[int, int] = {}
        self._stated: dict[type[Operation], frozenset[str]] = {}
        self._devices: dict[bytes, Devices] = {}
        self._kernels: dict[str, bool] = {}
        self._targets: dict[tuple[int, int], tuple[str, Devices]] = {}
        """By the identity of attributes."""
        self.operations: dict[str, list[Operation]] = {}
        """Of functions that were read: for each step of the body, the operation that it is of. One over a group has several."""

    def entry(self, name: str, devices: int) -> Entry:
        """The entry, on so many devices. It rarely equals another, so it is not compared."""
        self.walk = Walk(self.module)
        function = self.walk.function(name)
        self._entries.append(function)
        reader = FunctionReader(self, Frame.of(function, tuple(range(devices))))
        buffers = reader.argument_buffers()
        distinct = {id(held): held for held in buffers}
        counts = Counter[Buffer]()
        for number, times in Counter(map(id, buffers)).items():
            if number not in self._counts:
                self._counts[number] = Counter(distinct[number])
            for buffer, count in self._counts[number].items():
                counts[buffer] += count * times
        bytes_: dict[int, int] = {}
        for (device, size), count in counts.items():
            bytes_[device] = size * count + bytes_.get(device, 0)
        slots = {number: (PERSISTENT,) * len(held) for number, held in distinct.items()}
        return Entry(reader.read(list(map(slots.__getitem__, map(id, buffers))), ()), buffers, bytes_)

    def function(self, name: str, persistent: Sequence[Sequence[bool]]) -> Body:
        """A function by itself, on arguments that are held as their types say; `persistent` says of each which of its storages
        stay."""
        function = self.walk.function(name)
        reader = FunctionReader(self, Frame.of(function, tuple(range(function_devices(function)))))
        arguments = zip(reader.argument_buffers(), persistent, strict=True)
        held = [
            tuple([None if s else buffer for buffer, s in zip(buffers, own, strict=True)]) for buffers, own in arguments
        ]
        return self.callee(name, held)

    def callee(self, name: str, held: Sequence[Buffers]) -> Body:
        """The function as called with arguments that are held in this, on devices of the function's own."""
        function = self.walk.function(name)
        key = (function, *held)
        if (body := self._bodies.get(key)) is None:
            reader = FunctionReader(self, Frame.of(function, tuple(range(function_devices(function)))))
            arguments = [reader.argument(buffers) for buffers in held]
            body = reader.read(arguments, [len(slots) - slots.count(PERSISTENT) for slots in arguments])
            body = self._bodies[key] = self.library.bodies.setdefault(body.signature(), body)
        return body

    def is_kernel(self, name: str) -> bool:
        """Whether a call of the function is one kernel."""
        if (found := self._kernels.get(name)) is None:
            found = self._kernels[name] = is_kernel(self.walk.function(name))
        return found

    def target(self, call: CallOp) -> tuple[str, Devices]:
        """The function that is called, and where."""
        callee, on = call.properties["callee"], call.properties["on"]
        if (target := self._targets.get((id(callee), id(on)))) is None:
            devices = self._devices.setdefault(call.on.data.data, call.devices)
            target = self._targets[id(callee), id(on)] = call.callee_name, devices
        return target

    def attributes(self, op: Operation) -> tuple[object, ...]:
        """What an operation's cost may depend on beside its types. What passes note on it (`dist.rule`) is not."""
        if op.regions:
            return (op,)
        known, given = self._attributes, list[object]()
        if (stated := self._stated.get(type(op))) is None:
            stated = (
                STATED
                if isinstance(op, CommunicationOp)
                else RANGES
                if isinstance(op, SliceOp | InsertOp)
                else frozenset[str]()
            )
            self._stated[type(op)] = stated
        for attributes in (op.properties, op.attributes) if op.attributes else (op.properties,):
            for name, value in attributes.items():
                if name in stated or (name.startswith("dist.") and name not in SAID):
                    continue
                if (number := known.get(id(value))) is None:
                    number = known[id(value)] = self.library.number(value)
                given += (name, number)
        return tuple(given)


class FunctionReader:
    """Reads one function."""

    def __init__(self, reader: Reader, frame: Frame):
        self.reader, self.library, self.frame = reader, reader.library, frame
        self.slots: list[Buffer] = []
        self.streams: dict[Stream, int] = {}
        self.steps: list[Run | Call] = []
        self.operations: list[Operation] = []
        self.values: dict[int, Slots] = {}
        """By the identity of SSA values."""
        self._placings, self._buffers = reader.placings[frame.is_placed], reader.buffers[frame.is_placed]
        self._patterns: dict[tuple[object, ...], Pattern] = {}
        self._callees: dict[tuple[object, ...], Callee] = {}
        self._tuples: dict[int, tuple[int, Slots]] = {}
        """By the identity of slots: a number for what they are held in, and those that do not stay."""

    def argument_buffers(self) -> list[tuple[Buffer, ...]]:
        """What the arguments' types say that each is held in; equal types share it."""
        types, buffers = self.reader.walk.function(self.frame.name).function_type.inputs.data, self._buffers
        for type_ in {id(type_): type_ for type_ in types}.values():
            if id(type_) not in buffers:
                buffers[id(type_)] = self._buffers_of(type_)
        return list(map(buffers.__getitem__, map(id, types)))

    def argument(self, held: Buffers) -> Slots:
        """The slots of an argument; all arguments come before anything else."""
        moving = iter(self._new([buffer for buffer in held if buffer is not None]))
        return tuple([PERSISTENT if buffer is None else next(moving) for buffer in held])

    def read(self, arguments: Sequence[Slots], arity: Sequence[int]) -> Body:
        """The body. `arity` says how many slots each argument has that do not stay; the entry, which nothing calls, has
        none."""
        block = self.reader.walk.function(self.frame.name).body.block
        self.values.update(zip(map(id, block.args), arguments, strict=True))
        results = self._read(block)
        self.reader.operations[self.frame.name] = self.operations
        return self.library.body(tuple(arity), self.slots, list(self.streams), self.steps, results)

    def _buffers_of(self, type_: Attribute) -> tuple[Buffer, ...]:
        if isinstance(type_, TupleType):
            return tuple([buffer for element in type_.types.data for buffer in self._buffers_of(element)])
        placing = self._placing(type_)
        return tuple([(device, placing.bytes) for device, _ in placing.streams])

    def _new(self, buffers: Sequence[Buffer]) -> Slots:
        first = len(self.slots)
        self.slots += buffers
        return (first,) if len(buffers) == 1 else tuple(range(first, len(self.slots)))

    def _placing(self, type_: Attribute) -> Placing:
        if (placing := self._placings.get(id(type_))) is None:
            placing = self._placings[id(type_)] = self._place(type_)
        return placing

    def _place(self, type_: Attribute) -> Placing:
        if not isinstance(type_, TupleType):
            plain = self.library.number(placed(type_, None))
            return Placing(plain, self._streams(type_), self.library.bytes(type_), placement(type_))
        elements = [self._placing(element) for element in type_.types.data]
        plain = self.library.number(tuple([element.plain for element in elements]))
        return Placing(plain, self._streams(type_), sum([element.bytes for element in elements]), placement(type_))

    def _streams(self, type_: Attribute) -> tuple[Stream, ...]:
        """Where a value of this type lives, as far as it is simulated."""
        on, group = placement(type_), self.reader.representatives
        if on is None or on.count == 1 or group is None:
            stream = self.frame.stream(type_)
            return () if stream is None else (stream,)
        return tuple([(self.frame.devices[on.device + number], on.stream) for number in group.numbers])

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
                name, devices = self.reader.target(op)
                results = (
                    self._run(op, operands) if self.reader.is_kernel(name) else self._call(name, devices, operands)
                )
            elif type(op) is func.CallOp:
                name = op.callee.string_value()
                results = self._run(op, operands) if self.reader.is_kernel(name) else self._call(name, SAME, operands)
            else:
                results = self._run(op, operands)
            self.operations += [op] * (len(self.steps) - len(self.operations))
            for value, slots in zip(op.results, results, strict=True):
                values[id(value)] = slots
        raise DistirError(f"@{self.frame.name} does not return")

    def _call(self, name: str, devices: Sequence[int], operands: list[Slots]) -> list[Slots]:
        key = (name, devices, *map(self._held_in, operands))
        if (known := self._callees.get(key)) is None:
            known = self._callees[key] = self._callee(name, devices, operands)
        callee, uses = known.body, tuple(map(self._moving, operands))
        makes = self._new(known.makes)
        self.steps.append(Call(callee, known.devices, known.streams, uses, makes))
        if not known.passes:
            results = [tuple([makes[i] for i in positions]) for positions in known.results]
            for slots, number in zip(results, known.numbers, strict=True):
                if len(slots) > 1:
                    self._tuples[id(slots)] = number, slots
            return results
        held = {**dict(zip(callee.made, makes, strict=True)), PERSISTENT: PERSISTENT}
        held.update(enumerate(chain.from_iterable(uses)))
        return [tuple([held[s] for s in slots]) for slots in callee.results]

    def _callee(self, name: str, devices: Sequence[int], operands: list[Slots]) -> Callee:
        slots = self.slots
        if devices is SAME:
            held = [tuple([None if s < 0 else slots[s] for s in each]) for each in operands]
        else:
            local = {device: number for number, device in enumerate(devices)}
            held = [tuple([None if s < 0 else (local[slots[s][0]], slots[s][1]) for s in each]) for each in operands]
        body = self.reader.callee(name, held)
        on = tuple(devices[: body.devices])
        streams = tuple([self._stream((on[device], stream)) for device, stream in body.streams])
        makes = [(on[device], bytes_) for device, bytes_ in [body.slots[s] for s in body.made]]
        passes = any([s < body.arguments for each in body.results for s in each])
        place_of = {slot: position for position, slot in enumerate(body.made)}
        results = [] if passes else [tuple([place_of[s] for s in each]) for each in body.results]
        numbers = [self.library.number(tuple([makes[i] for i in positions])) for positions in results]
        return Callee(body, on, streams, makes, passes, results, numbers)

    def _held_in(self, slots: Slots) -> object:
        """What tells values apart that are held in different storages."""
        if len(slots) == 1:
            return None if slots[0] < 0 else self.slots[slots[0]]
        return self._tuple(slots)[0]

    def _moving(self, slots: Slots) -> Slots:
        """Those that do not stay."""
        if len(slots) == 1:
            return slots if slots[0] >= 0 else ()
        return self._tuple(slots)[1]

    def _tuple(self, slots: Slots) -> tuple[int, Slots]:
        if (known := self._tuples.get(id(slots))) is None:
            buffers = tuple([None if s < 0 else self.slots[s] for s in slots])
            moving = slots if None not in buffers else tuple([s for s in slots if s >= 0])
            known = self._tuples[id(slots)] = self.library.number(buffers), moving
        return known

    def _run(self, op: Operation, operands: list[Slots]) -> list[Slots]:
        kind = type(op)
        if kind is PackOp:
            key = (kind, id(op.results[0].type))
        elif kind is UnpackOp:
            key = (kind, id(op.operands[0].type))
        else:
            types = (*[id(v.type) for v in op.operands], None, *[id(v.type) for v in op.results])
            key = (kind, IN_PLACE in op.attributes, *types)
        if (pattern := self._patterns.get(key)) is None:
            pattern = self._patterns[key] = self._pattern(op)
        if pattern.on is not None:
            return self._run_group(op, pattern, pattern.on, operands)
        attributes = self.reader.attributes(op)
        if (cost := pattern.costs.get(attributes)) is None:
            cost = pattern.costs[attributes] = self._cost(op, pattern, attributes)
        given = operands[0] if len(operands) == 1 else tuple(chain.from_iterable(operands))
        makes: Slots = ()
        if kind is PackOp:
            made = [given]
        elif kind is UnpackOp:
            made = [(slot,) for slot in given]
        elif pattern.shares_memory:
            made = [operands[0] for _ in pattern.buffers]
        else:
            made = [self._new(buffers) for buffers in pattern.buffers]
            makes = made[0] if len(made) == 1 else tuple(chain.from_iterable(made))
        uses = given if PERSISTENT not in given else tuple([s for s in given if s >= 0])
        self.steps.append(Run(op.name, cost, pattern.streams, kind is MoveOp, uses, makes, pattern.slows))
        return made

    def _pattern(self, op: Operation) -> Pattern:
        check_level(op, self.frame.name)
        if type(op) is PackOp or type(op) is UnpackOp:  # the tuple's type says it all
            results, buffers = [], []
            placings = [self._placing(op.results[0].type if type(op) is PackOp else op.operands[0].type)]
        else:
            results = [self._placing(v.type) for v in op.results]
            buffers = [self._buffers_of(v.type) for v in op.results]
            placings = [*[self._placing(v.type) for v in op.operands], *results]
        streams = dict.fromkeys([stream for p in placings for stream in p.streams])
        return Pattern(
            (type(op), len(results), *[p.plain for p in placings]),
            tuple(dict.fromkeys([device for device, _ in streams])),
            tuple([self._stream(stream) for stream in streams]),
            tuple([self._stream(stream) for stream in slowed_streams(op, tuple(streams))]),
            buffers,
            shares_memory(op),
            {},
            next((p.on for p in placings if p.on is not None and p.on.count > 1), None),
        )

    def _run_group(self, op: Operation, pattern: Pattern, on: OnAttr, operands: list[Slots]) -> list[Slots]:
        """An operation over a group: that of each device that is simulated, or of each line of devices."""
        group, kind = self.reader.representatives, type(op)
        assert group is not None
        values = [*op.operands, *op.results]
        placings = [p for p in map(self._placing, [v.type for v in values]) if p.on is not None]
        starts = tuple(dict.fromkeys([p.on.device for p in placings if p.on is not None]))
        axis = op.axis if isinstance(op, CollectiveOp) else None
        made: list[dict[tuple[int, int], int]] = [{} for _ in op.results]  # of tuples, by element, then by rank
        for number, line in enumerate(group.lines(axis)):
            ranks = line.representatives
            uses = tuple([s for slots in operands if slots for s in _of_ranks(slots, ranks, group.count) if s >= 0])
            if isinstance(op, FirstOnlyOp) and group.coordinate(ranks[0], op.over.data) == 0:
                made[0][0, ranks[0]] = operands[0][ranks[0]]
                continue
            cost, name = self._group_cost(op, pattern, group, number, axis, starts)
            streams = dict.fromkeys([p.streams[rank] for rank in ranks for p in placings])
            slows = slowed_streams(op, tuple(streams))
            makes: list[int] = []
            for result, own in zip(op.results, made, strict=True):
                placing = self._placing(result.type)
                for rank in (
                    ranks if placing.on is not None and not pattern.shares_memory and kind not in TUPLES else ()
                ):
                    buffers = [(placing.streams[rank][0], bytes_) for bytes_ in self._element_bytes(result.type)]
                    slots = self._new(buffers)
                    own.update(((place, rank), slot) for place, slot in enumerate(slots))
                    makes += slots
            self.steps.append(
                Run(
                    name,
                    cost,
                    tuple(map(self._stream, streams)),
                    kind is MoveOp,
                    () if isinstance(op, FirstOnlyOp) else uses,
                    tuple(makes),
                    tuple(map(self._stream, slows)),
                    1 + len(line.others),
                )
            )
        if kind is PackOp:
            return [tuple(chain.from_iterable(operands))]
        if kind is UnpackOp:
            (whole,) = operands
            return [whole[i : i + group.count] for i in range(0, len(whole), group.count)]
        if pattern.shares_memory:
            return [operands[0] for _ in op.results]
        return [tuple([own[key] for key in sorted(own)]) for own in made]

    def _element_bytes(self, type_: Attribute) -> list[int]:
        """Bytes of a tensor; of a tuple, of each of its elements."""
        types = type_.types.data if isinstance(type_, TupleType) else [type_]
        return [self._placing(each).bytes for each in types]

    def _group_cost(
        self,
        op: Operation,
        pattern: Pattern,
        group: Representatives,
        number: int,
        axis: str | None,
        starts: tuple[int, ...],
    ) -> tuple[Cost | Message, str]:
        """What a line of devices takes, and the name of what it does. Raises DevicesDiffer where those it stands for take another time."""
        line = group.lines(axis)[number]
        participants = tuple([start + n for start in starts for n in line.members])
        if isinstance(op, FirstOnlyOp):
            op, types = ZerosOp(op.output.type), (ZerosOp, 1, self._placing(op.output.type).plain)
            return self.library.cost(op, types, participants), op.name
        varies = by_rank(op)
        if varies is None or isinstance(op, SliceOp | InsertOp):
            key = (number, *self.reader.attributes(op))
            if (cost := pattern.costs.get(key)) is None:
                cost = self.library.cost(op, (*pattern.types, *key[1:]), participants)
                if isinstance(cost, Message):
                    cost = cost._replace(symmetry=group.symmetry(axis, number, starts))
                pattern.costs[key] = cost
            return cost, op.name
        found: list[Cost | Message] = []
        entries = varies.entries.data
        if group.has_each(varies.axes):
            entries = [DictionaryAttr(dict(varies.at(group.coordinates(line.representatives[0]), group.group.sizes)))]
        for entry in entries:
            own = detached(op, op.operands, op.results)
            own.properties.update(entry.data)
            found.append(self.library.cost(own, (*pattern.types, *self.reader.attributes(own)), participants))
        if any(cost != found[0] for cost in found):
            raise DevicesDiffer(f"{op.name} does not cost all devices of its group the same", varies.axes)
        return found[0], op.name

    def _cost(self, op: Operation, pattern: Pattern, attributes: tuple[object, ...]) -> Cost | Message:
        cost = self.library.cost(op, (*pattern.types, *attributes), pattern.participants)
        if isinstance(cost, Cost):
            check_placed(op, self.frame.name, pattern.streams, cost)
        return cost
