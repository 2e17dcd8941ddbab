"""Programs over groups whose devices do the same (`#dist.on<0:8>`), written out: in goes a module over groups, out comes one in which
every device has operations of its own. What runs, checks or projects a program asks for that (`explicit`); the simulator does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp, TensorType, TupleType
from xdsl.dialects.func import CallOp as FuncCallOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from distir.dialects.dist import CallOp, FirstOnlyOp, MicrobatchesOp, PartAttr, SendOp, ZerosOp
from distir.dialects.dist.attributes import OnAttr, on_device, placed, placement
from distir.dialects.dist.calls import is_grouped
from distir.dialects.dist.communication import CollectiveOp
from distir.dialects.dist.groups import BY_RANK, by_rank
from distir.dialects.sharding import MeshOp
from distir.interpreters.costs import kernel_of
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


def explicit(module: ModuleOp) -> ModuleOp:
    """The module itself if no function is over a group; otherwise a new one in which every device has operations of its own."""
    if (group := group_of(module)) is None:
        return module
    written = ModuleOp([], dict(module.attributes))
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and is_grouped(op):
            written.body.block.add_op(_Expansion(group).function(op))
        elif not isinstance(op, MeshOp):
            written.body.block.add_op(op.clone())
    return written


def write_out(module: ModuleOp) -> None:
    """Gives every device of the groups of a module operations of its own, in place."""
    if (written := explicit(module)) is not module:
        module.body.detach_block(0)
        module.body.add_block(written.body.detach_block(0))


class _Expansion:
    """One function."""

    def __init__(self, group: Group):
        self.group, self.count = group, group.count
        self.coordinates = list(group.coordinates())
        self.block = Block()
        self.values: dict[SSAValue, list[SSAValue]] = {}
        """For each device of the group; one that is on no device is repeated."""

    def function(self, source: FuncOp) -> FuncOp:
        block = source.body.block
        self.block = Block(arg_types=[t for argument in block.args for t in self.types(argument.type)])
        for i, argument in enumerate(block.args):
            self.define(argument, self.block.args[i * self.count : (i + 1) * self.count])
        for op in block.ops:
            self.write(op)
        last = cast(ReturnOp, self.block.last_op)
        function = FuncOp.create(
            properties=dict(source.properties),
            attributes=dict(source.attributes),
            regions=[Region(self.block)],
            location=source.location,
        )
        function.function_type = FunctionType.from_lists(self.block.arg_types, [v.type for v in last.operands])
        function.arg_attrs, function.res_attrs = self.ports(source.arg_attrs), self.ports(source.res_attrs)
        return function

    def ports(self, attributes: ArrayAttr[DictionaryAttr] | None) -> ArrayAttr[DictionaryAttr] | None:
        """The attributes of each device's arguments or results."""
        if attributes is None:
            return None
        return ArrayAttr([each for port in attributes for each in self.port(port)])

    def port(self, port: DictionaryAttr) -> list[DictionaryAttr]:
        part = port.data.get(PART)
        if not isinstance(part, PartAttr) or not part.steps:
            return [port] * self.count
        return [DictionaryAttr({**port.data, PART: part.at(at)}) for at in self.coordinates]

    def types(self, type_: Attribute) -> list[Attribute]:
        """A type on each device."""
        if (on := placement(type_)) is None:
            return [type_] * self.count
        return [placed(type_, on_device(device, on.stream)) for device in on.devices]

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
            sends = zip(self.values[op.input], self.types(op.output.type), strict=True)
            made = [SendOp(value, type_) for value, type_ in sends]
            self.block.add_ops(made)
            self.define(op.output, [send.output for send in made])
        elif isinstance(op, CallOp) and kernel_of(op) is not None:
            self.local(op)
        elif isinstance(op, (CallOp, FuncCallOp, MicrobatchesOp, ReturnOp)):
            operands = [each for value in op.operands for each in self.values[value]]
            made = self.add(op, type(op), operands, [t for r in op.results for t in self.types(r.type)])
            for i, result in enumerate(op.results):
                self.define(result, made.results[i * self.count : (i + 1) * self.count])
        elif all(placement(v.type) is None for v in (*op.operands, *op.results)):
            copy = op.clone({value: own[0] for value, own in self.values.items() if value in op.operands})
            self.block.add_op(copy)
            for result, own in zip(op.results, copy.results, strict=True):
                self.define(result, [own] * self.count)
        else:
            self.local(op)

    def first_only(self, op: FirstOnlyOp) -> None:
        values, types = list(self.values[op.input]), self.types(op.output.type)
        for line in self.group.lines(op.over.data):
            for device in line[1:]:
                zeros = ZerosOp(types[device])
                self.block.add_op(zeros)
                values[device] = zeros.output
        named = {id(value) for value in self.values[op.input]}
        self.values[op.output] = values
        for value in values:
            if id(value) not in named:
                value.name_hint = op.output.name_hint

    def collective(self, op: CollectiveOp) -> None:
        assert op.axis is not None
        operands, types = self.values[op.operands[0]], self.types(op.results[0].type)
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
        for i, (device, at) in enumerate(zip(on.devices, self.coordinates, strict=True)):
            own = {value: self.values[value][i] for value in read}
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


def _copy_on(region: Region, captured: Mapping[SSAValue, SSAValue], on: OnAttr) -> Region:
    """A copy of a region whose placed values are there; `captured` stand for what it uses from outside."""
    copy = Region()
    region.clone_into(copy, None, dict(captured))
    inner = [b for op in copy.walk() for r in op.regions for b in r.blocks]
    for value in (*(a for b in (*copy.blocks, *inner) for a in b.args), *(r for op in copy.walk() for r in op.results)):
        if isinstance(value.type, TensorType | TupleType) and placement(value.type) is not None:
            Rewriter.replace_value_with_new_type(value, placed(value.type, on))
    return copy
