"""Lowering of chosen options to devices: every function becomes a template over the devices of the mesh.

Each op becomes one op per device on local shapes, each mismatch between what a value is and what a consumer needs becomes
the conversion's collectives, each call a `dist.call` over all devices. Arguments and results are listed value by value,
and for each value device by device (row-major over the mesh, last axis fastest)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from distir.dialects.dist import CallOp as DistCallOp
from distir.dialects.dist import PartAttr, ScaleOp
from distir.dialects.dist.attributes import on_device, placed
from distir.dialects.errors import DistirError
from distir.dialects.sharding import REPLICATED, Partial, Sharded, State, UseFactor
from distir.passes.distribution.conversions import convert, shard_ranges
from distir.passes.distribution.options import RULE, Option, rule_of
from distir.passes.distribution.sizes import divisors_of, local_constants, local_properties
from distir.passes.structure import is_constant, shape_of

AxisStates = tuple[State, ...]
"""What a value is along each axis of the mesh, in mesh order."""

STRATEGY, SHARDING, SITE = "dist.strategy", "dist.sharding", "dist.site"
"""`dist.site` marks an op of the annotated module, so that its copies in stages and local functions are recognised."""


@dataclass(frozen=True)
class Mesh:
    """Axis sizes, last axis fastest."""

    axes: tuple[tuple[str, int], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.axes)

    @property
    def devices(self) -> int:
        return prod(self.sizes)

    def coordinates(self, device: int) -> tuple[int, ...]:
        found: list[int] = []
        for size in reversed(self.sizes):
            device, coordinate = divmod(device, size)
            found.append(coordinate)
        return tuple(reversed(found))

    def groups(self, axis: int) -> list[list[int]]:
        """The devices of each group along one axis, in axis order."""
        others = [range(size) for i, size in enumerate(self.sizes) if i != axis]
        return [
            [self._device((*rest[:axis], i, *rest[axis:])) for i in range(self.sizes[axis])]
            for rest in product(*others)
        ]

    def _device(self, coordinates: Sequence[int]) -> int:
        device = 0
        for size, coordinate in zip(self.sizes, coordinates, strict=True):
            device = device * size + coordinate
        return device

    def local_shape(self, shape: Sequence[int], states: AxisStates) -> tuple[int, ...]:
        """The shape of one shard; raises DistirError where two axes cut one dim."""
        local = list(shape)
        cut: set[int] = set()
        for (axis, size), state in zip(self.axes, states, strict=True):
            if isinstance(state, Sharded):
                if state.dim in cut:
                    raise DistirError(
                        f"axis {axis!r} cuts dim {state.dim} of {list(shape)}, which another axis cuts already"
                    )
                cut.add(state.dim)
                local[state.dim] //= size
        return tuple(local)

    def part(self, shape: Sequence[int], states: AxisStates, device: int) -> PartAttr:
        """Which part of the global array a device holds."""
        dims: list[list[tuple[int, int]]] = [[(0, n)] for n in shape]
        partial = None
        for size, coordinate, state in zip(self.sizes, self.coordinates(device), states, strict=True):
            if isinstance(state, Sharded):
                dims[state.dim] = shard_ranges(state.pieces, coordinate, size)
            elif isinstance(state, Partial):
                if partial not in (None, state.reduction):
                    raise DistirError(
                        f"a result is partial {partial} on one axis and partial {state.reduction} on another"
                    )
                partial = state.reduction
        return PartAttr(dims, shape, partial)


class Lowering:
    """Lowers functions, callees first. `chosen` gives each op's option per axis, `arguments` each argument's states, and
    `returned` those of a function's results (otherwise they are returned as they were produced)."""

    def __init__(
        self,
        module: ModuleOp,
        mesh: Mesh,
        chosen: Mapping[Operation, Sequence[Option]],
        arguments: Mapping[BlockArgument, AxisStates],
        returned: Mapping[str, Sequence[AxisStates]] | None = None,
    ):
        self.module, self.mesh, self.chosen, self.arguments = module, mesh, chosen, arguments
        self.returned = returned or {}
        self.results: dict[str, list[AxisStates]] = {}
        self.argument_states: dict[str, list[AxisStates]] = {}

    def lower(self, function: FuncOp) -> FuncOp:
        """Replaces a function by its placed template of the same name; callees must have been lowered before."""
        body = _Body(self, function)
        lowered = body.build()
        self.module.body.block.insert_op_before(lowered, function)
        self.module.body.block.erase_op(function)
        name = lowered.sym_name.data
        self.results[name] = body.result_states
        self.argument_states[name] = [self.arguments[a] for a in body.source_arguments]
        return lowered

    def placed_type(self, type_: Attribute, states: AxisStates, device: int) -> Attribute:
        if not isinstance(type_, TensorType):
            return type_
        tensor = cast(TensorType[Any], type_)
        local = TensorType(tensor.element_type, self.mesh.local_shape(tensor.get_shape(), states))
        return placed(local, on_device(device))


class _Body:
    """One function being lowered."""

    def __init__(self, lowering: Lowering, function: FuncOp):
        self.lowering, self.function, self.mesh = lowering, function, lowering.mesh
        self.source_arguments = list(function.body.block.args)
        self.whole = (REPLICATED,) * len(self.mesh.axes)
        self.block = Block()
        self.states: dict[SSAValue, AxisStates] = {}
        self.held: dict[tuple[SSAValue, AxisStates], list[SSAValue]] = {}
        self.result_states: list[AxisStates] = []

    def build(self) -> FuncOp:
        for argument in self.source_arguments:
            states = self.lowering.arguments[argument]
            values: list[SSAValue] = []
            for device in range(self.mesh.devices):
                type_ = self.lowering.placed_type(argument.type, states, device)
                values.append(self.block.insert_arg(type_, len(self.block.args)))
            self.define(argument, states, values)
        returned: list[SSAValue] = []
        for op in self.function.body.block.ops:
            if isinstance(op, ReturnOp):
                produced = [self.states_of(v) for v in op.operands]
                self.result_states = list(self.lowering.returned.get(self.function.sym_name.data, produced))
                returned = [
                    value
                    for v, states in zip(op.operands, self.result_states, strict=True)
                    for value in self.get(v, states)
                ]
            elif isinstance(op, CallOp):
                self.call(op)
            elif not is_constant(op):
                self.operation(op)
        self.block.add_op(ReturnOp(*returned))
        types = list(self.block.arg_types), [v.type for v in returned]
        name, visibility = self.function.sym_name.data, self.function.sym_visibility
        return FuncOp(name, types, Region(self.block), visibility)

    def define(self, value: SSAValue, states: AxisStates, values: list[SSAValue]) -> None:
        self.states[value] = states
        self.held[value, states] = values
        for device, new in enumerate(values):
            new.name_hint = f"{value.name_hint}_{device}" if value.name_hint else None

    def states_of(self, value: SSAValue) -> AxisStates:
        return self.states.get(value, self.whole)

    def get(self, value: SSAValue, needed: AxisStates) -> list[SSAValue]:
        """The value in the states that a consumer needs, on every device; converted at most once per states."""
        if (value, needed) in self.held:
            return self.held[value, needed]
        if value not in self.states:
            self.constant(value)
            return self.get(value, needed)
        values, here = list(self.held[value, self.states[value]]), list(self.states[value])
        for axis, target in sorted(enumerate(needed), key=lambda item: isinstance(item[1], Sharded)):
            if here[axis] != target:
                for group in self.mesh.groups(axis):
                    converted = convert([values[d] for d in group], here[axis], target, self.block.add_op)
                    for device, new in zip(group, converted, strict=True):
                        values[device] = new
                here[axis] = target
        self.held[value, needed] = values
        return values

    def constant(self, value: SSAValue) -> None:
        """A constant is stated on every device where it is first used."""
        source = value.owner
        assert isinstance(source, Operation)
        if not isinstance(value.type, TensorType):
            op = source.clone()
            self.block.add_op(op)
            self.define(value, self.whole, [op.results[0]] * self.mesh.devices)
            return
        self.define(value, self.whole, [self.state(source, device) for device in range(self.mesh.devices)])

    def state(self, constant: Operation, device: int) -> SSAValue:
        op = constant.clone()
        placed_op = type(op).create(
            result_types=[placed(r.type, on_device(device)) for r in op.results],
            properties=op.properties,
            attributes=op.attributes,
        )
        self.block.add_op(placed_op)
        return placed_op.results[0]

    def operation(self, op: Operation) -> None:
        chosen = self.lowering.chosen[op]
        results = [tuple(option.results[i] for option in chosen) for i in range(len(op.results))]
        factors: dict[str, int] = {}
        for option, size in zip(chosen, self.mesh.sizes, strict=True):
            if isinstance(option.choice, UseFactor):
                factors[option.choice.factor] = factors.get(option.choice.factor, 1) * size
        divisors = divisors_of(rule_of(op), factors)
        rewritten = local_constants(op, divisors)
        operands = [
            [] if i in rewritten else self.get(v, tuple(option.operands[i] for option in chosen))
            for i, v in enumerate(op.operands)
        ]
        copies = [self.copy(op, device, operands, rewritten, results, divisors) for device in range(self.mesh.devices)]
        for i, (result, states) in enumerate(zip(op.results, results, strict=True)):
            values: list[SSAValue] = [copy.results[i] for copy in copies]
            means = prod(size for option, size in zip(chosen, self.mesh.sizes, strict=True) if i in option.means)
            if means > 1:
                scales = [ScaleOp(v, 1, means) for v in values]
                self.block.add_ops(scales)
                values = [scale.output for scale in scales]
            self.define(result, states, values)

    def copy(
        self,
        op: Operation,
        device: int,
        operands: Sequence[Sequence[SSAValue]],
        rewritten: Mapping[int, Operation],
        results: Sequence[AxisStates],
        divisors: Mapping[tuple[str, int], int],
    ) -> Operation:
        own = [
            self.state(rewritten[index], device) if index in rewritten else values[device]
            for index, values in enumerate(operands)
        ]
        types = [self.lowering.placed_type(r.type, s, device) for r, s in zip(op.results, results, strict=True)]
        copy = type(op).create(
            operands=own,
            result_types=types,
            properties=local_properties(op, divisors),
            attributes={k: v for k, v in op.attributes.items() if k not in (RULE, STRATEGY, SITE)},
            regions=[region.clone() for region in op.regions],
        )
        self.block.add_op(copy)
        return copy

    def call(self, op: CallOp) -> None:
        name = op.callee.string_value()
        arguments = self.lowering.argument_states[name]
        operands = [value for v, states in zip(op.operands, arguments, strict=True) for value in self.get(v, states)]
        results = self.lowering.results[name]
        types = [
            self.lowering.placed_type(r.type, states, device)
            for r, states in zip(op.results, results, strict=True)
            for device in range(self.mesh.devices)
        ]
        call = DistCallOp(name, operands, list(range(self.mesh.devices)), types)
        call.attributes.update(op.attributes)
        self.block.add_op(call)
        n = self.mesh.devices
        for i, (result, states) in enumerate(zip(op.results, results, strict=True)):
            self.define(result, states, list(call.results[i * n : (i + 1) * n]))


def entry_ports(
    mesh: Mesh, values: Sequence[SSAValue], states: Sequence[AxisStates], attributes: Sequence[Mapping[str, Attribute]]
) -> list[dict[str, Attribute]]:
    """Attributes of an entry's arguments or results after lowering: those of the value, and its part, per device."""
    ports: list[dict[str, Attribute]] = []
    for value, state, known in zip(values, states, attributes, strict=True):
        for device in range(mesh.devices):
            kept = {k: v for k, v in known.items() if k != SHARDING}
            ports.append({**kept, "dist.part": mesh.part(shape_of(value), state, device)})
    return ports
