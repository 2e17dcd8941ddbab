"""One program at many batch sizes at once: times and bytes are vectors, one entry per batch size, and everything else (which
operation follows which, what dies where) is found once.

The program is given at a batch of `MARK` rows per microbatch, more than any other dim has: every dim is then
`a + q * MARK`, and at r rows it is `a + q * r` (`dim_at`). What an operation costs at r rows is asked of the operation with
such types, so every number is the one that the program at r rows would have. Functions are max-plus maps over vectors
(`timing` says which), memory is (net, peak) over vectors (`liveness`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, ModuleOp, TensorType, TupleType
from xdsl.ir import Attribute, Block, Operation, TypeAttribute

from distir.dialects.onnx import TensorAttr
from distir.interpreters.cost_models import CostModel, make_cost_model
from distir.interpreters.costs import PICOSECONDS, Beside, Cost, Costs
from distir.interpreters.machines import Machine
from distir.interpreters.simulate.bodies import Body, Call, Library
from distir.interpreters.simulate.liveness import SHARES, Context, Liveness, Memory, step_context, surviving
from distir.interpreters.simulate.reading import Reader
from distir.interpreters.simulate.schedule import entry_devices
from distir.interpreters.simulate.summaries import sharing
from distir.interpreters.simulate.timing import Enter, Frame, Frames, Joint, Local, Wait
from distir.interpreters.walk import Walk
from distir.interpreters.work import element_bytes, type_bytes

MARK = 1 << 40
"""Rows of a microbatch that stand for any number of rows."""
LARGEST = 1 << 62
"""What no sum of times or bytes may reach: beyond, 64-bit integers could overflow."""

Vector = NDArray[np.int64]


class Columns:
    """Integers, one per batch size; stands where programs of one batch size have an integer."""

    __slots__ = ("_content", "_hash", "_is_some", "data")

    def __init__(self, data: Vector):
        self.data = data
        self._content = data.tobytes()  # comparing these takes less than comparing vectors
        self._hash, self._is_some = hash(self._content), any(self._content)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Columns) and self._content == other._content)

    def __bool__(self) -> bool:
        return self._is_some

    def __add__(self, other: Columns | int) -> Columns:
        return Columns(self.data + (other.data if isinstance(other, Columns) else other))

    __radd__ = __add__

    def __mul__(self, times: int) -> Columns:
        return Columns(self.data * times)


def dim_at(dim: int, rows: int) -> int:
    """A dim, or a size, at so many rows."""
    batch, rest = divmod(dim, MARK)
    return rest + batch * rows


def grows(attribute: Attribute) -> bool:
    """Whether a type or a property is another one at other numbers of rows."""
    match attribute:
        case TensorType():
            return any([dim >= MARK for dim in cast("TensorType[Any]", attribute).get_shape()])
        case TupleType():
            return any(map(grows, attribute.types.data))
        case TensorAttr():
            return grows(attribute.type)
        case IntegerAttr():
            return cast("IntegerAttr[Any]", attribute).value.data >= MARK
        case DenseArrayBase():
            values = cast("Sequence[int | float]", cast("DenseArrayBase[Any]", attribute).get_values())
            return any([isinstance(v, int) and v >= MARK for v in values])
        case ArrayAttr():
            return any(map(grows, attribute.data))
        case _:
            return False


@lru_cache(maxsize=1 << 14)
def attribute_at(attribute: Attribute, rows: int) -> Attribute:
    """A type or a property, at so many rows."""
    if not grows(attribute):
        return attribute
    match attribute:
        case TensorType():
            tensor = cast("TensorType[Any]", attribute)
            shape = [dim_at(dim, rows) for dim in tensor.get_shape()]
            return TensorType(tensor.element_type, shape, tensor.encoding)
        case TupleType():
            return TupleType(tuple(cast(TypeAttribute, attribute_at(t, rows)) for t in attribute.types.data))
        case TensorAttr():
            return TensorAttr(cast("TensorType[Any]", attribute_at(attribute.type, rows)), attribute.data)
        case IntegerAttr():
            integer = cast("IntegerAttr[Any]", attribute)
            return IntegerAttr(dim_at(integer.value.data, rows), integer.type)
        case DenseArrayBase():
            array = cast("DenseArrayBase[Any]", attribute)
            return DenseArrayBase.from_list(array.elt_type, [dim_at(int(v), rows) for v in array.get_values()])
        case ArrayAttr():
            return ArrayAttr([attribute_at(a, rows) for a in attribute.data])
        case _:
            return attribute


def operations_at(op: Operation, rows: Sequence[int]) -> Iterator[Operation]:
    """The operation at each number of rows, on values that nothing makes: one, whose types and properties change."""
    here = type(op).create(
        operands=Block(arg_types=[v.type for v in op.operands]).args,
        result_types=op.result_types,
        properties=dict(op.properties),
        attributes=dict(op.attributes),
        regions=[region.clone() for region in op.regions],
    )
    values = [
        (own, v.type) for own, v in zip((*here.operands, *here.results), (*op.operands, *op.results), strict=True)
    ]
    changing = [(own, type_) for own, type_ in values if grows(type_)]
    properties = [(name, value) for name, value in op.properties.items() if grows(value)]
    for each in rows:
        for value, type_ in changing:
            value._type = attribute_at(type_, each)  # pyright: ignore[reportPrivateUsage] (a new value would take longer)
        for name, attribute in properties:
            here.properties[name] = attribute_at(attribute, each)
        yield here


def operation_at(op: Operation, rows: int) -> Operation:
    """The operation at so many rows."""
    return next(operations_at(op, [rows]))


class BatchCosts(Costs):
    """Costs as columns."""

    def __init__(self, model: CostModel, rows: Sequence[int]):
        super().__init__(model)
        self.rows = rows

    def ask(self, op: Operation, participants: tuple[int, ...]) -> Cost:
        parts = (*[v.type for v in op.operands], *op.result_types, *op.properties.values())
        if any(map(grows, parts)):
            costs = [super(BatchCosts, self).ask(each, participants) for each in operations_at(op, self.rows)]
        else:
            costs = [super().ask(op, participants)] * len(self.rows)
        picoseconds = np.array([cost.picoseconds for cost in costs], np.int64)
        return Cost(costs[0].kind, cast(int, Columns(picoseconds)))

    def beside(self, cost: Cost) -> Beside:
        overlap, alone = self.model.machine.overlap, _data(cost.picoseconds)
        picoseconds = alone + _rounded(alone * overlap.communication_slowdown)
        slowdown = Columns(_rounded(picoseconds * overlap.compute_slowdown))
        return Beside(Cost(cost.kind, cast(int, Columns(picoseconds))), cast(int, slowdown))


class BatchLibrary(Library):
    """Bodies whose storages have columns of bytes."""

    def __init__(self, costs: BatchCosts):
        super().__init__(costs)
        self.rows = costs.rows
        self._every_rows = np.array(costs.rows, np.int64)
        self._sizes: dict[Columns, Columns] = {}
        self._bytes_of: dict[Attribute, Columns] = {}

    def bytes(self, type_: Attribute) -> int:
        """Equal sizes are one object, so that storages are compared by identity."""
        if (known := self._bytes_of.get(type_)) is None:
            found = Columns(np.broadcast_to(self._bytes(type_), len(self.rows)))
            known = self._bytes_of[type_] = self._sizes.setdefault(found, found)
        return cast(int, known)

    def _bytes(self, type_: Attribute) -> Vector | int:
        if not grows(type_):
            return type_bytes(type_)
        if isinstance(type_, TupleType):
            return sum(map(self._bytes, type_.types.data))
        tensor = cast("TensorType[Any]", type_)
        dims = [rest + batch * self._every_rows for batch, rest in [divmod(dim, MARK) for dim in tensor.get_shape()]]
        bytes_of_element = element_bytes(tensor.element_type)
        if max(np.prod(np.array(dims, np.float64), axis=0), default=0) * bytes_of_element >= LARGEST:
            raise OverflowError("bytes")
        return np.prod(dims, axis=0) * bytes_of_element


Row = tuple[dict[int, Vector | int], Vector | int]
"""As in `timing`, over vectors."""


class BatchTiming:
    """Moves clocks that are vectors."""

    def __init__(self) -> None:
        self._maps: dict[Frame, list[Row]] = {}

    def run(self, frame: Frame, clocks: list[Vector]) -> list[Vector]:
        for step in frame.program:
            match step:
                case Local(stream, cost):
                    clocks[stream] = clocks[stream] + _data(cost)
                case Joint(streams, cost):
                    end = _latest([clocks[s] for s in streams]) + _data(cost)
                    for s in streams:
                        clocks[s] = end
                case Wait(source, target):
                    clocks[target] = np.maximum(clocks[source], clocks[target])
                case Enter(inner, streams):
                    for s, clock in zip(streams, self._applied(inner, [clocks[s] for s in streams]), strict=True):
                        clocks[s] = clock
        return clocks

    def _applied(self, frame: Frame, entry: list[Vector]) -> list[Vector]:
        ends: dict[int, Vector] = {}
        exits: list[Vector] = []
        for start, offset in self.map(frame):
            if (end := ends.get(id(start))) is None:
                end = ends[id(start)] = _latest([entry[j] + added for j, added in start.items()])
            exits.append(end + offset)
        return exits

    def map(self, frame: Frame) -> list[Row]:
        """The max-plus map that a frame is."""
        if (known := self._maps.get(frame)) is not None:
            return known
        rows: list[Row] = [({stream: 0}, 0) for stream in range(len(frame.body.streams))]
        for step in frame.program:
            match step:
                case Local(stream, cost):
                    start, offset = rows[stream]
                    rows[stream] = (start, offset + _data(cost))
                case Joint(streams, cost):
                    start, offset = _merged([rows[s] for s in streams])
                    for s in streams:
                        rows[s] = (start, offset + _data(cost))
                case Wait(source, target):
                    rows[target] = _merged([rows[source], rows[target]])
                case Enter(inner, streams):
                    starts: dict[int, Row] = {}
                    lines = self.map(inner)
                    for start, _ in lines:
                        if id(start) not in starts:
                            entered = [(rows[streams[j]], added) for j, added in start.items()]
                            starts[id(start)] = _merged([(s, offset + added) for (s, offset), added in entered])
                    for s, (start, added) in zip(streams, lines, strict=True):
                        outer, offset = starts[id(start)]
                        rows[s] = (outer, offset + added)
        self._maps[frame] = rows
        return rows


def _rounded(numbers: NDArray[np.floating[Any]]) -> Vector:
    """To whole numbers as `round` does."""
    return np.rint(numbers).astype(np.int64)


def _data(cost: object) -> Vector:
    assert isinstance(cost, Columns)
    return cost.data


def _latest(clocks: Sequence[Any]) -> Any:
    latest = clocks[0]
    for clock in clocks[1:]:
        if clock is not latest:
            latest = np.maximum(latest, clock)
    return latest


def _merged(rows: Sequence[Row]) -> Row:
    (first, most), *others = rows
    if all(start is first for start, _ in others):
        return first, _latest([most, *(offset for _, offset in others)])
    merged: dict[int, Vector | int] = {stream: added + most for stream, added in first.items()}
    for start, offset in others:
        for stream, added in start.items():
            later = added + offset
            merged[stream] = np.maximum(merged[stream], later) if stream in merged else later
    return merged, 0


class BatchLiveness(Liveness):
    """Memory over vectors."""

    def __init__(self, columns: int):
        super().__init__()
        self.columns = columns

    def run(self, body: Body, context: Context) -> Memory:
        slots = cast(list[tuple[int, Columns]], body.slots)
        kept, fates = surviving(body, context)
        net = np.zeros((body.devices, self.columns), np.int64)
        peak = np.zeros((body.devices, self.columns), np.int64)
        for step, life in zip(body.steps, self.lives(body, context.aliases), strict=True):
            if isinstance(step, Call):
                inner = life.context or step_context(step, life, kept, fates)
                for device, change, height in zip(step.devices, *self.of(step.callee, inner), strict=True):
                    np.maximum(peak[device], net[device] + height, out=peak[device])
                    net[device] += change
                continue
            for slot in step.makes:
                if fates.get(slot) != SHARES:
                    device, size = slots[slot]
                    net[device] += size.data
                    np.maximum(peak[device], net[device], out=peak[device])
            for slot in life.dying:
                if slot not in kept:
                    device, size = slots[slot]
                    net[device] -= size.data
        return Memory(cast(list[int], list(net)), cast(list[int], list(peak)))


class BatchSummary:
    """What a `Summary` says, at one batch size."""

    def __init__(self, makespan: int, peaks: dict[int, int], busy: dict[int, dict[str, int]]):
        self.makespan_picoseconds = makespan
        self.peak_memory_bytes = peaks
        self.busy_picoseconds = busy
        """By device and kind."""

    @property
    def makespan_seconds(self) -> float:
        return self.makespan_picoseconds / PICOSECONDS

    @property
    def busy_seconds(self) -> dict[int, dict[str, float]]:
        return {d: {k: each / PICOSECONDS for k, each in kinds.items()} for d, kinds in self.busy_picoseconds.items()}

    def without(self, spent: Mapping[tuple[int, str], int]) -> BatchSummary:
        """The same, where devices do not spend so many picoseconds on a kind."""
        if not spent:
            return self
        busy = {
            d: {k: each - spent.get((d, k), 0) for k, each in kinds.items()}
            for d, kinds in self.busy_picoseconds.items()
        }
        return BatchSummary(self.makespan_picoseconds, self.peak_memory_bytes, busy)


class BatchSummaries:
    """Summaries of programs at several rows per microbatch, and what is known of their functions."""

    def __init__(self, machine: Machine, cost_model: str | type[CostModel], rows: Sequence[int]):
        self.machine, self.rows = machine, tuple(rows)
        costs = BatchCosts(make_cost_model(cost_model, machine), self.rows)
        self.library, self.frames = BatchLibrary(costs), Frames(costs)
        self.liveness, self.timing = BatchLiveness(len(self.rows)), BatchTiming()
        self._reader: Reader | None = None
        self._ceilings: dict[Frame, NDArray[np.float64]] = {}

    def _ceiling(self, frame: Frame) -> NDArray[np.float64]:
        """No less than the time of a frame's own operations, and than the bytes of its storages."""
        if (known := self._ceilings.get(frame)) is None:
            costs = [step.picoseconds for step in frame.program if isinstance(step, Local | Joint)]
            known = np.maximum(_total(costs), _total([size for _, size in frame.body.slots]))
            self._ceilings[frame] = known
        return known

    def function(self, module: ModuleOp, name: str, stays: Sequence[Sequence[bool]]) -> Body:
        """A function of the module that the next summary is of; `stays` says of each argument which of its storages stay."""
        return self._reader_of(module).function(name, stays)

    def spent(self, ops: Sequence[tuple[Operation, int]]) -> dict[tuple[int, str], Vector]:
        """Picoseconds that operations of one device each take, by device and kind: at each number of rows."""
        return {key: _data(spent) for key, spent in self.library.costs.spent(ops).items()}

    def _reader_of(self, module: ModuleOp) -> Reader:
        if self._reader is None or self._reader.module is not module:
            self._reader = Reader(module, self.library)
        return self._reader

    def of(self, module: ModuleOp, wanted: Sequence[int] | None = None, entry: str = "main") -> list[BatchSummary]:
        """The summary of a program of `MARK` rows at each number of rows, or at those that are wanted, equal to that of the
        program with so many rows.
        Raises OverflowError where 64 bits may not hold its times or bytes. Where the last program was another entry of the
        same module, its functions are known."""
        reader = self._reader_of(module)
        function = Walk(module).function(entry)
        count = entry_devices(module, function)
        self.machine.check_devices(count)
        read, devices = reader.entry(entry, count), tuple(range(count))
        body = read.body
        frame = self.frames.entry(body, devices)
        executions = [(body, devices, frame, 1), *self.frames.executions(body, devices)]
        columns = [self.rows.index(rows) for rows in wanted or self.rows]
        runs: Counter[Frame] = Counter()
        for _, _, each, times in executions:
            runs[each] += times
        held = _total(list(read.bytes.values()))
        ceiling = sum([self._ceiling(each) * times for each, times in runs.items()], held)
        if max(ceiling[columns]) >= LARGEST:
            raise OverflowError("times or bytes")
        clocks = self.timing.run(frame, [np.zeros(len(self.rows), np.int64) for _ in body.streams])
        memory = self.liveness.entry(body, sharing(function, read))
        peaks = np.zeros((count, len(self.rows)), np.int64)
        for device, size in read.bytes.items():
            peaks[device] += _data(size)
        for device, peak in zip(devices, memory.peak, strict=False):
            peaks[device] += peak
        busy: list[Counter[str]] = [Counter() for _ in devices]
        for _, on, each, times in executions:
            for device, kinds in zip(on, each.busy, strict=False):
                for kind, cost in kinds.items():
                    busy[device][kind] += cast(Any, Columns(_data(cost) * times))
        makespan = _latest(clocks) if clocks else np.zeros(len(self.rows), np.int64)
        return [
            BatchSummary(
                int(makespan[i]),
                {device: int(peaks[device, i]) for device in devices},
                {d: {k: int(_data(c)[i]) for k, c in kinds.items()} for d, kinds in enumerate(busy)},
            )
            for i in columns
        ]


def _total(columns: Sequence[int]) -> Any:
    """Their sum, as floating-point numbers; equal objects are added once."""
    by_identity = {id(each): each for each in columns}
    counts = Counter(map(id, columns))
    return sum([_data(each).astype(np.float64) * counts[key] for key, each in by_identity.items()], np.zeros(1))
