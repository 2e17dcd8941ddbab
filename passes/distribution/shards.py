"""The values of one function on every device of the mesh, while its operations are replaced one by one. In go a
value and the states that a consumer needs; out comes its shard on each device, converted where it is in other states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from distir.dialects.dist import PartAttr
from distir.dialects.dist.attributes import OnAttr, on_device, placed
from distir.dialects.sharding import REPLICATED
from distir.passes.distribution.conversions import Insert, convert
from distir.passes.distribution.mesh import AxisStates, Mesh
from distir.passes.distribution.reshard_plans import reshard_plan
from distir.passes.structure import copied, shape_of, share_name_hint


@cache
def _placed_shards(type_: Attribute, mesh: Mesh, states: AxisStates) -> list[Attribute]:
    if not isinstance(type_, TensorType):
        return [type_] * mesh.devices
    tensor = cast("TensorType[Any]", type_)
    shapes = [mesh.local_shape(tensor.get_shape(), states, device) for device in range(mesh.devices)]
    locals_ = {shape: TensorType(tensor.element_type, shape) for shape in dict.fromkeys(shapes)}
    return [placed(locals_[shape], on_device(device)) for device, shape in enumerate(shapes)]


class Shards:
    """For every value of a function, what it is along each axis and the value on each device, per states asked for."""

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self.whole = (REPLICATED,) * len(mesh.axes)
        self._states: dict[SSAValue, AxisStates] = {}
        self._held: dict[tuple[SSAValue, AxisStates], list[SSAValue]] = {}
        self.devices: Sequence[int] = range(mesh.devices)
        """Those for which operations are written: all."""

    @property
    def calls_on(self) -> Sequence[int]:
        """The devices of a call."""
        return self.devices

    def on(self, device: int) -> OnAttr:
        """Where what is written for a device is."""
        return on_device(device)

    def vary(self, op: Operation, properties: Callable[[int], Mapping[str, Attribute]]) -> None:
        """Says of an operation that is written for several devices what properties each of them has."""

    def same(self, of_device: Callable[[int], object], what: str) -> None:
        """Raises DistirError where devices for which one operation is written differ."""

    def check(self, op: Operation, are_uniform: Callable[[], bool]) -> None:
        """Raises DistirError where what is written for these devices does not say what others do. `are_uniform` says whether the op is the
        same on all devices but for its operands."""

    def placed_types(self, type_: Attribute, states: AxisStates) -> list[Attribute]:
        """The type of each device's shard."""
        return _placed_shards(type_, self.mesh, states)

    def parts(self, shape: tuple[int, ...], states: AxisStates) -> list[PartAttr]:
        """Which parts of a global array of this shape there are, in the order of devices."""
        return [self.mesh.part(shape, states, device) for device in range(self.mesh.devices)]

    def define(self, value: SSAValue, states: AxisStates, values: list[SSAValue]) -> None:
        """Records what replaces a value, device by device."""
        self._states[value] = states
        self._held[value, states] = values
        share_name_hint(values, value.name_hint)

    def states_of(self, value: SSAValue) -> AxisStates:
        """What a value is as it was produced; a constant is whole everywhere."""
        return self._states.get(value, self.whole)

    def get(self, value: SSAValue, needed: AxisStates, insert: Insert) -> list[SSAValue]:
        """The value in the states that a consumer needs, on every device; converted at most once per states."""
        if (value, needed) in self._held:
            return self._held[value, needed]
        if value not in self._states:
            self._state_everywhere(value, insert)
            return self.get(value, needed, insert)
        self.mesh.local_shape(shape_of(value), needed)
        values = self._held[value, needed] = self._converted(value, needed, insert)
        return values

    def _converted(self, value: SSAValue, needed: AxisStates, insert: Insert) -> list[SSAValue]:
        values, here = list(self._held[value, self._states[value]]), list(self._states[value])
        for axis, target in reshard_plan(self.mesh, prod(shape_of(value)), self._states[value], needed):
            for group in self.mesh.groups(axis):
                ends = here[axis], target
                before, after = (self.mesh.local_state(axis, state, here, group[0]) for state in ends)
                converted = convert([values[d] for d in group], before, after, insert)
                for device, new in zip(group, converted, strict=True):
                    values[device] = new
            here[axis] = target
        return values

    def _state_everywhere(self, value: SSAValue, insert: Insert) -> None:
        """A constant is stated on every device where it is first used."""
        source = value.owner
        assert isinstance(source, Operation)
        if isinstance(value.type, TensorType):
            self.define(value, self.whole, [state_on(source, self.on(d), insert) for d in self.devices])
            return
        op = source.clone()
        insert(op)
        self.define(value, self.whole, [op.results[0]] * len(self.devices))


def placed_copy(region: Region, captured: Mapping[SSAValue, SSAValue], on: OnAttr) -> Region:
    """A copy of a region whose values are there; `captured` stand for what it uses from outside."""
    copy = copied(region, captured)
    blocks = [*copy.blocks, *(b for op in copy.walk() for inner in op.regions for b in inner.blocks)]
    for value in (*(a for b in blocks for a in b.args), *(r for op in copy.walk() for r in op.results)):
        if isinstance(value.type, TensorType):
            Rewriter.replace_value_with_new_type(value, placed(value.type, on))
    return copy


def state_on(constant: Operation, on: OnAttr, insert: Insert) -> SSAValue:
    """A copy of a constant there."""
    op = type(constant).create(
        result_types=[placed(r.type, on) for r in constant.results],
        properties=dict(constant.properties),
        attributes=dict(constant.attributes),
    )
    insert(op)
    return op.results[0]
