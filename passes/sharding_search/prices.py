"""What an option of an operation costs, and a conversion of a value: the operations that `apply-sharding` emits for them are
built and priced by the simulator's cost domain, so that a plan's price is the simulated time of its program.

Times are integer picoseconds on the device whose coordinates along all axes are last: the others never take longer (where
a replicated value becomes addends, the first device of a group keeps it and the others state zeros)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation

from distir.dialects.dist import ScaleOp
from distir.dialects.dist.attributes import on_device, placed, placement
from distir.dialects.errors import DistirError
from distir.dialects.sharding import REPLICATED, Replicated, Sharded, State, UseFactor
from distir.interpreters.cost_models import make_cost_model
from distir.interpreters.costs import Costs
from distir.interpreters.machines import Machine
from distir.interpreters.work import type_bytes
from distir.passes.distribution.conversions import convert, take_shard
from distir.passes.distribution.mesh import AxisStates, Mesh
from distir.passes.distribution.options import Option, rule_of
from distir.passes.distribution.sizes import divisors_of, local_constants, local_properties


@dataclass(frozen=True)
class Conversion:
    """A conversion of one value."""

    picoseconds: int
    route: tuple[tuple[int, State, State], ...]
    """Its hops: the axis, and the states along it before and after."""
    transient_bytes: int
    """The most memory on the way, beside the source and the target."""


class Prices:
    """Prices on one machine; each is computed once."""

    def __init__(self, mesh: Mesh, machine: Machine, cost_model: str = "analytic"):
        machine.check_devices(mesh.devices)
        self.mesh, self.machine = mesh, machine
        self.whole: AxisStates = (REPLICATED,) * len(mesh.axes)
        self._costs = Costs(make_cost_model(cost_model, machine))
        self._groups = [self._distinct_groups(axis) for axis in range(len(mesh.axes))]
        self._shards: dict[tuple[Attribute, AxisStates], tuple[Attribute, int]] = {}
        self._hops: dict[tuple[Attribute, int, State, State], tuple[int, int]] = {}
        self._conversions: dict[tuple[Attribute, AxisStates, AxisStates], Conversion | None] = {}
        self._operations: dict[object, int] = {}

    def _distinct_groups(self, axis: int) -> list[list[int]]:
        """The groups along an axis that differ in how they lie on the machine's levels."""
        found: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for group in reversed(self.mesh.groups(axis)):
            units = (tuple(self.machine.units(level, group)) for level in range(len(self.machine.levels)))
            found.setdefault(tuple(units), group)
        return list(found.values())

    def local_type(self, type_: Attribute, states: AxisStates) -> Attribute:
        """The type of one shard."""
        return self._local(type_, states)[0]

    def bytes(self, type_: Attribute, states: AxisStates) -> int:
        """Memory of one shard."""
        return self._local(type_, states)[1]

    def _local(self, type_: Attribute, states: AxisStates) -> tuple[Attribute, int]:
        key = (type_, states)
        if key not in self._shards:
            local = type_
            if isinstance(type_, TensorType):
                tensor = cast(TensorType[Any], type_)
                local = TensorType(tensor.element_type, self.mesh.local_shape(tensor.get_shape(), states))
            self._shards[key] = local, type_bytes(local)
        return self._shards[key]

    def conversion(self, type_: Attribute, source: AxisStates, target: AxisStates) -> Conversion | None:
        """A conversion of a value of this (global) type; None if no collectives do it."""
        key = (type_, source, target)
        if key not in self._conversions:
            self._conversions[key] = self._conversion(type_, source, target)
        return self._conversions[key]

    def _conversion(self, type_: Attribute, source: AxisStates, target: AxisStates) -> Conversion | None:
        if source == target or not isinstance(type_, TensorType):
            return Conversion(0, (), 0)
        tensor = cast(TensorType[Any], type_)
        try:
            hops = self.mesh.route(prod(tensor.get_shape()), source, target)
        except DistirError:
            return None
        seconds, here, route = 0, list(source), list[tuple[int, State, State]]()
        most, ends = 0, self.bytes(type_, source) + self.bytes(type_, target)
        for axis, after in hops:
            before = here[axis]
            local = self.local_type(type_, tuple(here))
            ends_of_axis = [self.mesh.local_state(axis, state, here) for state in (before, after)]
            added, memory = self._hop(local, axis, *ends_of_axis)
            entering = self.bytes(type_, source) if tuple(here) != source else 0
            seconds, most = seconds + added, max(most, entering + memory - ends)
            here[axis] = after
            route.append((axis, before, after))
        return Conversion(seconds, tuple(route), most)

    def _hop(self, local: Attribute, axis: int, before: State, after: State) -> tuple[int, int]:
        """Time, and memory at its most with the source, of one hop from shards of this type."""
        key = (local, axis, before, after)
        if key not in self._hops:
            found = [self._emitted(local, group, before, after) for group in self._groups[axis]]
            self._hops[key] = max(time for time, _ in found), max(memory for _, memory in found)
        return self._hops[key]

    def _emitted(self, local: Attribute, group: Sequence[int], before: State, after: State) -> tuple[int, int]:
        block = Block(arg_types=[placed(local, on_device(device)) for device in group])
        last = group[-1]
        if isinstance(before, Replicated) and isinstance(after, Sharded):  # local: the last device's is enough
            take_shard(block.args[-1], after, len(group) - 1, len(group), block.add_op)
        else:
            convert(list(block.args), before, after, block.add_op)
        steps = [op for op in block.ops if last in _devices(op)]
        last_use = {value: op for op in steps for value in op.operands}
        seconds, held, most = 0, type_bytes(local), 0
        for op in steps:
            seconds += self._costs.of(op, _devices(op)).picoseconds
            held += sum(type_bytes(r.type) for r in op.results if _device(r.type) == last)
            most = max(most, held)
            freed = [v for v in dict.fromkeys(op.operands) if not isinstance(v, BlockArgument) and last_use[v] is op]
            held -= sum(type_bytes(v.type) for v in freed if _device(v.type) == last)
        return seconds, most

    def operation(self, op: Operation, options: Sequence[Option]) -> int | None:
        """An op that takes one option per axis, on one device; None if its sizes cannot be rewritten for it."""
        states = [tuple(option.operands[i] for option in options) for i in range(len(op.operands))]
        operands = [self.local_type(v.type, s) for v, s in zip(op.operands, states, strict=True)]
        states = [tuple(option.results[i] for option in options) for i in range(len(op.results))]
        results = [self.local_type(r.type, s) for r, s in zip(op.results, states, strict=True)]
        factors: dict[str, int] = {}
        for option, size in zip(options, self.mesh.sizes, strict=True):
            if isinstance(option.choice, UseFactor):
                factors[option.choice.factor] = factors.get(option.choice.factor, 1) * size
        divisors = divisors_of(rule_of(op), factors)
        try:
            local_constants(op, divisors)
            properties = local_properties(op, divisors)
        except DistirError:
            return None
        means = tuple({i for option in options for i in option.means})
        key = (type(op), frozenset(properties.items()), tuple(operands), tuple(results), means)
        if key not in self._operations:
            block = Block(arg_types=operands)
            copy = type(op).create(
                operands=list(block.args),
                result_types=results,
                properties=properties,
                regions=[region.clone() for region in op.regions],
            )
            block.add_op(copy)
            for i in means:
                block.add_op(ScaleOp(copy.results[i], 1, 2))
            self._operations[key] = sum(self._costs.of(step, (0,)).picoseconds for step in block.ops)
        return self._operations[key]


def _device(type_: Attribute) -> int | None:
    on = placement(type_)
    return None if on is None else on.device


def _devices(op: Operation) -> tuple[int, ...]:
    """The devices of an op's values, operands' before results'."""
    found = [_device(v.type) for v in (*op.operands, *op.results)]
    return tuple(dict.fromkeys(device for device in found if device is not None))
