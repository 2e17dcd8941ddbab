"""Writes out groups whose devices do the same (`#dist.on<0:8>`). In goes a module over groups; out comes one in
which every device has operations of its own. Executors, checks and projection ask for it (`explicit`); the simulator
does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby, product
from math import prod
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    ModuleOp,
    TensorType,
    TupleType,
    UnrealizedConversionCastOp,
)
from xdsl.dialects.func import CallOp as FuncCallOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, TypeAttribute
from xdsl.rewriter import Rewriter

from distir.dialects.dist import CallOp, FirstOnlyOp, MicrobatchesOp, PartAttr, SendOp, SliceOp, ZerosOp
from distir.dialects.dist.attributes import OnAttr, on_device, placed, placement
from distir.dialects.dist.calls import is_grouped
from distir.dialects.dist.communication import CollectiveOp
from distir.dialects.dist.groups import BY_RANK, by_rank
from distir.dialects.sharding import MeshOp
from distir.interpreters.costs import kernel_of
from distir.interpreters.shared import texts_of_regions
from distir.interpreters.walk import values_read

PART = "dist.part"


@dataclass(frozen=True)
class Group:
    """The devices of a mesh, in its order: the last axis is fastest."""

    sizes: Mapping[str, int]

    @property
    def count(self) -> int:
        return prod(self.sizes.values())

    def coordinates(self) -> Iterator[dict[str, int]]:
        """Of every device."""
        for at in product(*map(range, self.sizes.values())):
            yield dict(zip(self.sizes, at, strict=True))

    def stride(self, axis: str) -> int:
        """How far a device is from the next along an axis."""
        names = list(self.sizes)
        return prod([self.sizes[name] for name in names[names.index(axis) + 1 :]])

    def without(self, axes: Collection[str]) -> Group:
        """The devices at the start of these axes."""
        return Group({axis: size for axis, size in self.sizes.items() if axis not in axes})

    def across(self, axes: Collection[str]) -> list[list[int]]:
        """The devices at each place along these axes."""
        found: dict[tuple[int, ...], list[int]] = {}
        for device, at in enumerate(self.coordinates()):
            found.setdefault(tuple([n for axis, n in at.items() if axis in axes]), []).append(device)
        return list(found.values())

    def lines(self, axis: str) -> list[list[int]]:
        """The devices that lie along an axis, line by line."""
        stride, size = self.stride(axis), self.sizes[axis]
        first = [device for device in range(self.count) if device // stride % size == 0]
        return [[start + i * stride for i in range(size)] for start in first]


def group_of(module: ModuleOp) -> Group | None:
    """The group that a module's functions are over, if any is over one."""
    meshes = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
    functions = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    return Group(meshes[0].axis_sizes) if meshes and any(map(is_grouped, functions)) else None


@dataclass(frozen=True)
class Lines:
    """Axes along which devices do not meet in some functions over a group, and these functions."""

    axes: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()

    def has(self, op: Operation) -> bool:
        """Whether devices along these axes do not meet in an operation, and do the same."""
        if name := called_by(op):
            return name in self.functions
        return not isinstance(op, ReturnOp) and self.axes.isdisjoint(axes_of(op))

    def runs(self, ops: Iterable[Operation]) -> Iterator[tuple[bool, list[Operation]]]:
        """All operations, in runs in which devices meet or in which they do not; and whether they do not, and functions are called."""
        for is_apart, run in groupby(ops, self.has):
            found = list(run)
            yield is_apart and any(map(called_by, found)), found


def explicit(module: ModuleOp, lines: Lines | None = None) -> ModuleOp:
    """The module itself if no function is over a group; otherwise a new one in which every device has operations of its own. With `lines`, what devices do
    that do not meet is a function for the devices of one line, which is called for each: with tuples of what these devices have, which
    `builtin.unrealized_conversion_cast` makes and opens."""
    if (group := group_of(module)) is None:
        return module
    written, lines = ModuleOp([], dict(module.attributes)), lines or Lines()
    taken = {op.sym_name.data for op in module.body.block.ops if isinstance(op, FuncOp)}
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and is_grouped(op):
            own = group.without(lines.axes) if op.sym_name.data in lines.functions else group
            written.body.block.add_op(_Expansion(group, own, lines, written, taken).function(op))
        elif not isinstance(op, MeshOp):
            written.body.block.add_op(op.clone())
    return written


def write_out(module: ModuleOp) -> None:
    """Gives every device of the groups of a module operations of its own, in place."""
    if (written := explicit(module)) is not module:
        module.body.detach_block(0)
        module.body.add_block(written.body.detach_block(0))


def called_by(op: Operation) -> str | None:
    """The function that an operation runs; one that a device executes as one kernel is an operation like others."""
    if isinstance(op, CallOp | FuncCallOp | MicrobatchesOp) and kernel_of(op) is None:
        return op.callee.string_value()
    return None


def axes_of(op: Operation) -> frozenset[str]:
    """The axes along which devices of a group meet in an operation, or along which it differs."""
    if isinstance(op, FirstOnlyOp):
        return frozenset([op.over.data])
    if isinstance(op, CollectiveOp):
        return frozenset() if op.axis is None else frozenset([op.axis])
    varies = by_rank(op)
    return frozenset() if varies is None else frozenset(varies.axes)


class _Expansion:
    """One function, for the devices of a group `own`, which are some of each `whole` group."""

    def __init__(self, whole: Group, own: Group, lines: Lines, module: ModuleOp, taken: set[str]):
        """Functions of lines are added to the module, and their names to those that are taken."""
        self.whole, self.group, self.count, self.lines = whole, own, own.count, lines
        self.module, self.taken, self.name = module, taken, ""
        self.is_line = own is not whole
        self.line_devices = [list(range(own.count))] if self.is_line else whole.across(lines.axes)
        """The devices of each line, as this function numbers them."""
        self.coordinates = list(own.coordinates())
        self.block = Block()
        self._types: dict[int, list[Attribute]] = {}
        """By the object that a type is: its content takes long to compare."""
        self._bundle_types: dict[tuple[int, int], Attribute] = {}
        """By the object that a type is, and the line."""
        self._parts: dict[PartAttr, list[PartAttr]] = {}
        self.values: dict[SSAValue, list[SSAValue]] = {}
        """For each device of the group; one that is on no device is repeated."""
        self.bundles: dict[tuple[SSAValue, int], SSAValue] = {}
        """Of a value and a line, what its devices have as one."""
        self.runs: dict[Hashable, str] = {}
        """The functions of runs of operations, by what these do."""

    def function(self, source: FuncOp) -> FuncOp:
        self.name = source.sym_name.data
        block = source.body.block
        self.take(block.args)
        runs = list(self.lines.runs(block.ops))
        times = Counter([_content(_first_slices(ops)[1]) for is_apart, ops in runs if is_apart])
        for is_apart, ops in runs:
            if is_apart and not self.is_line:
                self.run(ops, times)
                continue
            for op in ops:
                self.write(op)
        last = cast(ReturnOp, self.block.last_op)
        function = FuncOp.create(
            properties=dict(source.properties),
            attributes=dict(source.attributes),
            regions=[Region(self.block)],
            location=source.location,
        )
        function.function_type = FunctionType.from_lists(self.block.arg_types, [v.type for v in last.operands])
        ports = (None, None) if self.is_line else (self.ports(source.arg_attrs), self.ports(source.res_attrs))
        function.arg_attrs, function.res_attrs = ports
        return function

    def take(self, arguments: Sequence[SSAValue]) -> None:
        """Begins the block, whose arguments stand for these."""
        self.block = Block(arg_types=[t for value in arguments for t in self.passed_types(value)])
        self.left_by(arguments, self.block.args)

    def ports(self, attributes: ArrayAttr[DictionaryAttr] | None) -> ArrayAttr[DictionaryAttr] | None:
        """The attributes of each device's arguments or results."""
        if attributes is None:
            return None
        return ArrayAttr([each for port in attributes for each in self.port(port)])

    def port(self, port: DictionaryAttr) -> list[DictionaryAttr]:
        part = port.data.get(PART)
        if not isinstance(part, PartAttr) or not part.steps:
            return [port] * self.count
        if part not in self._parts:
            self._parts[part] = [part.at(at) for at in self.coordinates]
        return [DictionaryAttr({**port.data, PART: own}) for own in self._parts[part]]

    def types(self, type_: Attribute) -> list[Attribute]:
        """A type on each device."""
        if id(type_) not in self._types:
            on = placement(type_)
            devices = [] if on is None else [on_device(device, on.stream) for device in self.devices(on.devices)]
            self._types[id(type_)] = [placed(type_, each) for each in devices] or [type_] * self.count
        return self._types[id(type_)]

    def devices(self, given: Sequence[int]) -> list[int]:
        """Devices of whole groups as this function numbers them."""
        if not self.is_line:
            return list(given)
        firsts = given[:: self.whole.count]
        return [first // self.whole.count * self.count + i for first in firsts for i in range(self.count)]

    def passed_types(self, value: SSAValue) -> list[Attribute]:
        """The types of what a function takes or gives for a value."""
        return [self.bundle_type(value, 0)] if self.is_line else self.types(value.type)

    def passed(self, value: SSAValue) -> list[SSAValue]:
        """What a function takes or gives for a value."""
        return [self.bundle(value, 0)] if self.is_line else self.each(value)

    def left_by(self, values: Sequence[SSAValue], passed: Sequence[SSAValue]) -> None:
        """Values are what was passed for them."""
        for i, value in enumerate(values):
            if self.is_line:
                self.define_bundle(value, 0, passed[i])
            else:
                self.define(value, passed[i * self.count : (i + 1) * self.count])

    def each(self, value: SSAValue) -> list[SSAValue]:
        """What each device has of a value."""
        if value not in self.values:
            types, found = self.types(value.type), [value] * self.count
            for k, line in enumerate(self.line_devices):
                bundle = self.bundles[value, k]
                is_bundled = self.is_bundled(value, line)
                parts = self.cast([bundle], [types[i] for i in line]) if is_bundled else [bundle] * len(line)
                for i, part in zip(line, parts, strict=True):
                    found[i] = part
            self.define(value, found)
        return self.values[value]

    def bundle(self, value: SSAValue, k: int) -> SSAValue:
        """What the devices of a line have of a value, as one."""
        if (value, k) not in self.bundles:
            line, values = self.line_devices[k], self.values[value]
            is_bundled, own = self.is_bundled(value, line), [values[i] for i in line]
            self.define_bundle(value, k, self.cast(own, [self.bundle_type(value, k)])[0] if is_bundled else own[0])
        return self.bundles[value, k]

    def is_bundled(self, value: SSAValue, line: Sequence[int]) -> bool:
        """Whether the devices of a line are several, each with its own."""
        return len(line) > 1 and placement(value.type) is not None

    def bundle_type(self, value: SSAValue, k: int) -> Attribute:
        """The type of what the devices of a line have of a value as one."""
        if (found := self._bundle_types.get(key := (id(value.type), k))) is None:
            line = self.line_devices[k]
            own = [self.types(value.type)[i] for i in line]
            is_bundled = self.is_bundled(value, line)
            found = TupleType(cast("tuple[TypeAttribute, ...]", tuple(own))) if is_bundled else own[0]
            self._bundle_types[key] = found
        return found

    def cast(self, values: Sequence[SSAValue], types: Sequence[Attribute]) -> Sequence[SSAValue]:
        """Several values as a tuple of them, or a tuple as what is in it."""
        self.block.add_op(made := UnrealizedConversionCastOp.create(operands=values, result_types=types))
        return made.results

    def define_bundle(self, value: SSAValue, k: int, bundle: SSAValue) -> None:
        self.bundles[value, k] = bundle
        bundle.name_hint = value.name_hint

    def define(self, value: SSAValue, values: Sequence[SSAValue]) -> None:
        self.values[value] = list(values)
        for each in values:
            each.name_hint = value.name_hint

    def add(
        self,
        op: Operation,
        kind: type[Operation],
        operands: Sequence[SSAValue],
        types: Sequence[Attribute],
        **kept: Attribute,
    ) -> Operation:
        """A new operation like another, which drops what is said of the group."""
        properties = {k: v for k, v in {**op.properties, **kept}.items() if k != "over"}
        attributes = {k: v for k, v in op.attributes.items() if k != BY_RANK}
        made = kind.create(
            operands=operands, result_types=types, properties=properties, attributes=attributes, location=op.location
        )
        self.block.add_op(made)
        return made

    def write(self, op: Operation) -> None:
        """Adds what each device does of an operation."""
        if isinstance(op, FirstOnlyOp):
            self.first_only(op)
        elif isinstance(op, CollectiveOp):
            self.collective(op)
        elif isinstance(op, SendOp):
            sends = zip(self.each(op.input), self.types(op.output.type), strict=True)
            made = [SendOp(value, type_) for value, type_ in sends]
            self.block.add_ops(made)
            self.define(op.output, [send.output for send in made])
        elif isinstance(op, CallOp) and kernel_of(op) is not None:
            self.local(op)
        elif isinstance(op, (CallOp, FuncCallOp, MicrobatchesOp, ReturnOp)):
            on = CallOp.stating(op.callee_name, tuple(self.devices(op.devices))) if isinstance(op, CallOp) else {}
            operands = [each for value in op.operands for each in self.passed(value)]
            made = self.add(op, type(op), operands, [t for r in op.results for t in self.passed_types(r)], **on)
            self.left_by(op.results, made.results)
        elif all(placement(v.type) is None for v in (*op.operands, *op.results)):
            copy = op.clone({value: self.each(value)[0] for value in values_read(op)})
            self.block.add_op(copy)
            for result, own in zip(op.results, copy.results, strict=True):
                self.define(result, [own] * self.count)
        else:
            self.local(op)

    def run(self, ops: Sequence[Operation], times: Mapping[Hashable, int]) -> None:
        """Operations in which devices of different lines do not meet: a function that is called for each line. `times` says how often something is
        done but for the first slices: these stay outside where that is done again, as for all microbatches."""
        slices, inside = _first_slices(ops)
        if times[_content(inside)] > 1:
            for op in slices:
                self.write(op)
            ops = inside
        read, left = _interface(ops)
        if (done := _content(ops)) not in self.runs:
            self.runs[done] = self._function_of(ops, read, left)
        placements = [on for v in (*read, *_results(ops)) if (on := placement(v.type)) is not None]
        firsts = range(0, 1 + max([on.device for on in placements], default=0), self.whole.count)
        for k, line in enumerate(self.line_devices):
            called = CallOp.create(
                operands=[self.bundle(value, k) for value in read],
                result_types=[self.bundle_type(value, k) for value in left],
                properties=CallOp.stating(self.runs[done], tuple([first + i for first in firsts for i in line])),
            )
            self.block.add_op(called)
            for value, result in zip(left, called.results, strict=True):
                self.define_bundle(value, k, result)

    def _function_of(self, ops: Sequence[Operation], read: Sequence[SSAValue], left: Sequence[SSAValue]) -> str:
        """The name of a new function that does these operations on the devices of one line."""
        line = _Expansion(self.whole, self.whole.without(self.lines.axes), self.lines, self.module, self.taken)
        line.take(read)
        for op in ops:
            line.write(op)
        returned = [each for value in left for each in line.passed(value)]
        line.block.add_op(ReturnOp(*returned))
        name = next(each for n in count() if (each := f"{self.name}_line_{n}") not in self.taken)
        self.taken.add(name)
        types = line.block.arg_types, [v.type for v in returned]
        self.module.body.block.add_op(FuncOp(name, types, Region(line.block), visibility="private"))
        return name

    def first_only(self, op: FirstOnlyOp) -> None:
        values, types = list(self.each(op.input)), self.types(op.output.type)
        for line in self.group.lines(op.over.data):
            for device in line[1:]:
                zeros = ZerosOp(types[device])
                self.block.add_op(zeros)
                values[device] = zeros.output
        named = {id(value) for value in self.each(op.input)}
        self.values[op.output] = values
        for value in values:
            if id(value) not in named:
                value.name_hint = op.output.name_hint

    def collective(self, op: CollectiveOp) -> None:
        assert op.axis is not None
        operands, types = self.each(op.operands[0]), self.types(op.results[0].type)
        results: dict[int, SSAValue] = {}
        for line in self.group.lines(op.axis):
            made = self.add(op, type(op), [operands[d] for d in line], [types[d] for d in line])
            results.update(zip(line, made.results, strict=True))
        self.define(op.results[0], [results[device] for device in range(self.count)])

    def local(self, op: Operation) -> None:
        """An operation on every device."""
        varies, read = by_rank(op), values_read(op)
        on = next(o for v in (*op.operands, *op.results) if (o := placement(v.type)) is not None)
        types = [self.types(r.type) for r in op.results]
        made: list[Operation] = []
        for i, (device, at) in enumerate(zip(self.devices(on.devices), self.coordinates, strict=True)):
            own = {value: self.each(value)[i] for value in read}
            changes = varies.at(at, self.group.sizes) if varies is not None else {}
            if isinstance(op, CallOp):  # of a kernel
                changes = CallOp(op.callee_name, [], [device], []).properties
            each = self.add(op, type(op), [own[v] for v in op.operands], [t[i] for t in types], **changes)
            captured = {value: own[value] for value in read[len(op.operands) :]}
            for region in op.regions:
                each.add_region(_copy_on(region, captured, on_device(device)))
            made.append(each)
        for k, result in enumerate(op.results):
            self.define(result, [each.results[k] for each in made])


def _first_slices(ops: Sequence[Operation]) -> tuple[list[Operation], list[Operation]]:
    """The slices of what was before these operations, and the rest."""
    found: tuple[list[Operation], list[Operation]] = [], []
    own = _results(ops)
    for op in ops:
        found[not (isinstance(op, SliceOp) and own.isdisjoint(op.operands))].append(op)
    return found


def _results(ops: Sequence[Operation]) -> set[SSAValue]:
    return {result for op in ops for result in op.results}


def _interface(ops: Sequence[Operation]) -> tuple[list[SSAValue], list[SSAValue]]:
    """What operations read of others, and what others read of theirs."""
    inside, own = set(ops), _results(ops)
    read = list(dict.fromkeys(v for op in ops for v in values_read(op) if v not in own))
    results: list[SSAValue] = [result for op in ops for result in op.results]
    return read, [v for v in results if any(_outer(each.operation) not in inside for each in v.uses)]


def _content(ops: Sequence[Operation]) -> Hashable:
    """Equal for runs of operations that do the same, whatever their values are called."""
    read, left = _interface(ops)
    numbers = {value: i for i, value in enumerate(read)}
    found: list[Hashable] = [value.type for value in read]
    for op in ops:
        numbers.update({result: len(numbers) + i for i, result in enumerate(op.results)})
        operands = [numbers[value] for value in values_read(op)]
        stated = frozenset({**op.properties, **op.attributes}.items())
        results = [result.type for result in op.results]
        found.append((op.name, *operands, stated, *results, *texts_of_regions(op)))
    return *found, *[numbers[value] for value in left]


def _outer(op: Operation) -> Operation:
    """The operation of a function's own block in which an operation is."""
    while not isinstance(parent := op.parent_op(), FuncOp):
        assert parent is not None
        op = parent
    return op


def _copy_on(region: Region, captured: Mapping[SSAValue, SSAValue], on: OnAttr) -> Region:
    """A copy of a region whose placed values are there; `captured` stand for what it uses from outside."""
    copy = Region()
    region.clone_into(copy, None, dict(captured))
    inner = [b for op in copy.walk() for r in op.regions for b in r.blocks]
    for value in (*(a for b in (*copy.blocks, *inner) for a in b.args), *(r for op in copy.walk() for r in op.results)):
        if isinstance(value.type, TensorType | TupleType) and placement(value.type) is not None:
            Rewriter.replace_value_with_new_type(value, placed(value.type, on))
    return copy
