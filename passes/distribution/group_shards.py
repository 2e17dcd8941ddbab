"""Lowering to groups, where the devices of a mesh do the same. In go the values of one function and their states;
out comes one operation over the group for what `Shards` writes device by device, and `dist.by_rank` says what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple, cast

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from distir.dialects.dist import FirstOnlyOp, PartAttr
from distir.dialects.dist.attributes import OnAttr, on_device, placed, placement
from distir.dialects.dist.communication import CollectiveOp
from distir.dialects.dist.groups import BY_RANK, ByRankAttr, vary
from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Partial, Replicated, State
from distir.passes.distribution.conversions import Insert, convert, reshard_steps
from distir.passes.distribution.mesh import AxisStates, Mesh
from distir.passes.distribution.reshard_plans import reshard_plan
from distir.passes.distribution.shards import Shards
from distir.passes.structure import shape_of


class DevicesDiffer(DistirError):
    """Devices of the mesh do not do the same."""


class _Step(NamedTuple):
    """An operation of a conversion, over a group; operands are numbers of values, of which 0 is what is converted. Types are on no device."""

    kind: type[Operation]
    operands: list[int]
    types: list[Attribute]
    properties: dict[str, Attribute]
    attributes: dict[str, Attribute]


class GroupShards(Shards):
    """The devices of the mesh as one group."""

    def __init__(self, mesh: Mesh):
        super().__init__(mesh)
        self.devices = range(1)

    @property
    def calls_on(self) -> range:
        return range(self.mesh.devices)

    def on(self, device: int) -> OnAttr:
        return on_device(0, count=self.mesh.devices)

    def placed_types(self, type_: Attribute, states: AxisStates) -> list[Attribute]:
        return [_on_group(type_, self.mesh, states)]

    def vary(self, op: Operation, properties: Callable[[int], Mapping[str, Attribute]]) -> None:
        vary(op, dict(self.mesh.axes), [properties(device) for device in range(self.mesh.devices)])

    def parts(self, shape: tuple[int, ...], states: AxisStates) -> list[PartAttr]:
        return [_part(self.mesh, shape, states)]

    def same(self, of_device: Callable[[int], object], what: str) -> None:
        first = of_device(0)
        if any(of_device(device) != first for device in range(1, self.mesh.devices)):
            raise DevicesDiffer(f"{what} differs from device to device")

    def _converted(self, value: SSAValue, needed: AxisStates, insert: Insert) -> list[SSAValue]:
        (own,), here = self._held[value, self._states[value]], list(self._states[value])
        for axis, target in reshard_plan(self.mesh, prod(shape_of(value)), self._states[value], needed):
            before, after = (self.mesh.local_state(axis, state, here) for state in (here[axis], target))
            for there in reshard_steps(before, after):
                own = self._reshard_step(own, axis, before, there, insert)
                before = there
            here[axis] = target
        return [own]

    def _reshard_step(self, value: SSAValue, axis: int, here: State, there: State, insert: Insert) -> SSAValue:
        name, size = self.mesh.axes[axis]
        if size == 1:
            return value
        if isinstance(here, Replicated) and there == Partial(Reduction.SUM):
            first = FirstOnlyOp(value, name)
            insert(first)
            return first.output
        steps, result = _steps(placed(value.type, None), name, size, here, there)
        values = [value]
        for step in steps:
            op = step.kind.create(
                operands=[values[number] for number in step.operands],
                result_types=[placed(t, self.on(0)) for t in step.types],
                properties=step.properties,
                attributes=step.attributes,
            )
            insert(op)
            values += op.results
        return values[result]


@cache
def _on_group(type_: Attribute, mesh: Mesh, states: AxisStates) -> Attribute:
    if not isinstance(type_, TensorType):
        return type_
    tensor = cast("TensorType[Any]", type_)
    if not mesh.is_uniform(states):
        raise DevicesDiffer(f"shards of {type_} differ from device to device")
    local = TensorType(tensor.element_type, mesh.local_shape(tensor.get_shape(), states))
    return placed(local, on_device(0, count=mesh.devices))


@cache
def _part(mesh: Mesh, shape: tuple[int, ...], states: AxisStates) -> PartAttr:
    """The first device's part, and how far the next along each axis is from it."""
    first, steps = mesh.part(shape, states, 0), dict[str, tuple[int, ...]]()
    for i, (axis, size) in enumerate(mesh.axes):
        if size > 1:
            beside = mesh.part(shape, states, mesh.device([int(a == i) for a in range(len(mesh.axes))]))
            step = tuple(b[0][0] - a[0][0] for a, b in zip(first.dims, beside.dims, strict=True))
            if any(step):
                steps[axis] = step
    found = PartAttr(first.dims, shape, first.reduction, steps)
    names = [axis for axis, _ in mesh.axes]
    for device in range(mesh.devices):
        if found.at(dict(zip(names, mesh.coordinates(device), strict=True))) != mesh.part(shape, states, device):
            raise DevicesDiffer(f"parts of an array of shape {list(shape)} are not evenly spaced")
    return found


@cache
def _steps(type_: Attribute, axis: str, size: int, here: State, there: State) -> tuple[list[_Step], int]:
    """How a line of devices along an axis converts a value of this local type, and the number of the result: what `convert` writes for
    each of them, as one operation."""
    scratch = Block(arg_types=[placed(type_, on_device(device)) for device in range(size)])
    results = convert(list(scratch.args), here, there, scratch.add_op)
    lines: list[list[Operation]] = [[] for _ in range(size)]
    numbers: dict[SSAValue, int] = dict.fromkeys(scratch.args, 0)
    counts = [1] * size

    def define(device: int, values: Sequence[SSAValue]) -> None:
        for value in values:
            numbers[value] = counts[device]
            counts[device] += 1

    for op in scratch.ops:
        if isinstance(op, CollectiveOp):
            for device in range(size):
                define(device, [op.results[device]])
                lines[device].append(op)
            continue
        on = placement(op.results[0].type)
        assert on is not None
        define(on.device, op.results)
        lines[on.device].append(op)
    if len({len(line) for line in lines}) > 1 or len({numbers[v] for v in results}) > 1:
        raise DevicesDiffer(f"devices differ in the conversion from {here} to {there}")
    steps = [_joined(ops, numbers, axis, f"{here} to {there}") for ops in zip(*lines, strict=True)]
    return steps, numbers[results[0]]


def _joined(ops: Sequence[Operation], numbers: Mapping[SSAValue, int], axis: str, what: str) -> _Step:
    """The operations of all devices as one."""
    first = ops[0]
    if isinstance(first, CollectiveOp):
        if any(op is not first for op in ops) or "over" not in type(first).get_irdl_definition().properties:
            raise DevicesDiffer(f"devices differ in the conversion from {what}")
        sources, types = {numbers[v] for v in first.operands}, {placed(r.type, None) for r in first.results}
        if len(sources) > 1 or len(types) > 1:
            raise DevicesDiffer(f"devices differ in the conversion from {what}")
        return _Step(type(first), [*sources], [*types], {**first.properties, "over": StringAttr(axis)}, {})
    operands, types = [numbers[v] for v in first.operands], [placed(r.type, None) for r in first.results]
    for op in ops:
        is_same = type(op) is type(first) and [numbers[v] for v in op.operands] == operands
        if not is_same or [placed(r.type, None) for r in op.results] != types:
            raise DevicesDiffer(f"devices differ in the conversion from {what}")
    names = [name for name in first.properties if any(op.properties[name] != first.properties[name] for op in ops)]
    varying = [{name: op.properties[name] for name in names} for op in ops]
    attributes: dict[str, Attribute] = {BY_RANK: ByRankAttr([axis], varying)} if names else {}
    return _Step(type(first), operands, types, dict(first.properties), attributes)
