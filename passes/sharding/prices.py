"""Prices of options and reshards. In go an operation with an option, or a value with two states; out come
picoseconds and bytes. The operations that `apply-sharding` emits are built and priced by the simulator's cost
domain, so a plan's price is the simulated time of its program.

Times are integer picoseconds, memory is that of the device in the middle of all axes, of whose shards none is larger (`at`: of another one). Where a replicated value
becomes addends, the first device of a group keeps it and the others state zeros (`Conversion.apart`); where shards overlap, those at the ends lack
the rows beyond; where extents do not divide, shards in the middle have one block more. A smaller shard may still take longer, where its
extents are not aligned, or where it is of another position (rows of a triangle): an operation costs what the slowest device takes, and it is known what others `wait` for it then (`makespan`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from distir.dialects.dist import ScaleOp, SendOp
from distir.dialects.dist.attributes import on_device, placed
from distir.dialects.errors import DistirError
from distir.dialects.sharding import REPLICATED, Partial, Replicated, Rule, Sharded, State, Windowed, begins, different
from distir.interpreters.cost_models import CostModel, make_cost_model
from distir.interpreters.costs import SAID, Costs
from distir.interpreters.machines import Machine
from distir.interpreters.walk import values_read
from distir.interpreters.work import Kind, type_bytes, work_of
from distir.passes.distribution.conversions import convert
from distir.passes.distribution.lower import cut_factors, fraction_of
from distir.passes.distribution.margins import Margin, margins_of
from distir.passes.distribution.mesh import AxisStates, Mesh
from distir.passes.distribution.options import Option, rule_of
from distir.passes.distribution.positions import positions_of, starts_of
from distir.passes.distribution.reshard_plans import TARGET, ReshardPlans, reshard_plan
from distir.passes.distribution.sizes import changes_of, local_constants, local_properties
from distir.passes.structure import copied

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MOST_PIECES = 8
"""Finer pieces are not resharded: gathering the heads of each row would copy as many slices as there are heads and rows."""


@dataclass(frozen=True)
class Price:
    """Of an operation."""

    picoseconds: int
    """On the device that takes longest."""
    is_uniform: bool = True
    """Whether all devices have shards of one shape."""
    waits: tuple[int, int] = (0, 0)
    """By how much the time is more than on the device in the middle of the mesh, and on its first one."""
    restated: frozenset[int] = frozenset()
    """Operands that are sizes: constants which the operation is given as its shards have them."""
    flops: int = 0
    """Of its contractions, on the device in the middle of the mesh."""


@dataclass(frozen=True)
class Conversion:
    """A conversion of one value."""

    picoseconds: int
    transient_bytes: int
    """The most memory on the way, beside the source and the target."""
    last_bytes: int
    """The same if nothing else needs the source, which goes on the way: less than 0 if source and target are never held together."""
    keeps_source: bool = False
    """Whether the target is the source's memory."""
    uses_source: bool = True
    """Whether the source is held until then for it: zeros are stated without."""
    apart: tuple[tuple[int, int], ...] = ()
    """Axes along which devices differ in this, each with the coordinate of one that does otherwise."""


@dataclass(eq=False)
class _Shard:
    """One shard of a value in some states, and the steps from there."""

    states: AxisStates
    type: Attribute
    bytes: int
    reshard_steps: dict[tuple[int, State], _ReshardStep] = field(
        default_factory=dict[tuple[int, State], "_ReshardStep"]
    )


class _Emitted(NamedTuple):
    """What the operations of one step take on one device."""

    picoseconds: int
    memory: int
    """At its most, with the source."""
    last: int
    """The same, if the source goes at its last use."""
    keeps_source: bool
    uses_source: bool
    other: int | None
    """The coordinate of a device that keeps the source if this one does not, or the other way round."""


class _ReshardStep(NamedTuple):
    emitted: _Emitted
    reached: _Shard


def _nothing() -> Array:
    import numpy as np

    return np.empty((0, 0))


@dataclass(eq=False)
class _Value:
    """What is known of all values of one type."""

    type: Attribute
    shards: dict[AxisStates, _Shard] = field(default_factory=dict[AxisStates, _Shard])
    conversions: dict[tuple[AxisStates, AxisStates], Conversion | None] = field(
        default_factory=dict[tuple[AxisStates, AxisStates], "Conversion | None"]
    )
    numbers: dict[AxisStates, int] = field(default_factory=dict[AxisStates, int])
    """Of states from and to which conversions are priced together."""
    between: Array = field(default_factory=_nothing)
    """Picoseconds from each of these to each, as far as they were asked for; not a number elsewhere."""

    def numbered(self, states: Collection[AxisStates]) -> Array:
        """The numbers of states, which new ones get."""
        import numpy as np

        numbers, known = self.numbers, len(self.numbers)
        found = np.array([numbers.setdefault(each, len(numbers)) for each in states])
        if new := len(numbers) - known:
            self.between = np.pad(self.between, (0, new), constant_values=np.nan)
        return found

    @cached_property
    def elements(self) -> int:
        return prod(cast(TensorType[Any], self.type).get_shape())


class Prices:
    """Prices on one machine; each is computed once."""

    def __init__(
        self,
        mesh: Mesh,
        machine: Machine,
        cost_model: str = "analytic",
        coordinates: tuple[int, ...] | None = None,
        stages: int = 1,
    ):
        """`coordinates` are those of the device whose memory is counted: without, in the middle of the mesh. There are so many `stages`, each on
        devices of its own."""
        machine.check_devices(mesh.devices * stages)
        self.mesh, self.machine, self.cost_model, self.stages = mesh, machine, cost_model, stages
        self.groups_differ = False
        """Whether some collective takes longer in one group along an axis than in another."""
        self.whole: AxisStates = (REPLICATED,) * len(mesh.axes)
        self.coordinates = tuple(size // 2 for size in mesh.sizes) if coordinates is None else coordinates
        self._device = mesh.device(self.coordinates)
        self._model = make_cost_model(cost_model, machine)
        self._sees_shapes = type(self._model).operation_seconds is not CostModel.operation_seconds
        self._costs = Costs(self._model)
        self._groups = [self._distinct_groups(axis) for axis in range(len(mesh.axes))]
        self._by_type: dict[Attribute, _Value] = {}
        self._values: dict[int, _Value] = {}
        self._alive: list[Attribute] = []
        self._elements: dict[Attribute, int] = {}
        self._reshard_steps: dict[tuple[int, tuple[int, ...], int, tuple[State, ...]], _Emitted] = {}
        self._operations: dict[object, tuple[int, int]] = {}
        self._others: dict[tuple[int, ...], Prices] = {}
        self._messages: dict[tuple[Attribute, int, int], int] = {}
        self._ends: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def are_those_of(self, other: Prices) -> bool:
        """Whether others on the same machine are the same."""
        same = self.mesh == other.mesh and self.stages == other.stages and self.coordinates == other.coordinates
        return same and self.machine == other.machine and type(self._model) is type(other._model)

    def at(self, coordinates: tuple[int, ...]) -> Prices:
        """The same with the memory of the device at these coordinates."""
        if coordinates == self.coordinates:
            return self
        if (found := self._others.get(coordinates)) is None:
            found = self._others[coordinates] = Prices(
                self.mesh, self.machine, self.cost_model, coordinates, self.stages
            )
        return found

    def _distinct_groups(self, axis: int) -> list[list[int]]:
        """The groups along an axis that differ in how they lie on the machine's levels."""
        found: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        moved = [
            [stage * self.mesh.devices + device for device in group]
            for stage in reversed(range(self.stages))
            for group in reversed(self.mesh.groups(axis))
        ]
        for group in moved:
            units = (tuple(self.machine.units(level, group)) for level in range(len(self.machine.levels)))
            found.setdefault(tuple(units), group)
        return list(found.values())

    def local_type(self, type_: Attribute, states: AxisStates) -> Attribute:
        """The type of one shard."""
        return self._shard(self._value(type_), states).type

    def bytes(self, type_: Attribute, states: AxisStates) -> int:
        """Memory of one shard."""
        return self._shard(self._value(type_), states).bytes

    def conversion(self, type_: Attribute, source: AxisStates, target: AxisStates) -> Conversion | None:
        """A conversion of a value of this (global) type; None if no collectives do it, or only with more copies than pay."""
        value = self._value(type_)
        key = (source, target)
        if key not in value.conversions:
            value.conversions[key] = self._conversion(value, source, target)
        return value.conversions[key]

    def between(self, type_: Attribute, states: Sequence[AxisStates], sources: Collection[AxisStates]) -> Array:
        """Picoseconds of the conversions of a value from each state that is a source to each; infinite where `conversion` has none, and from other states."""
        import numpy as np

        value = self._value(type_)
        columns, rows = (value.numbered(each) for each in (states, dict.fromkeys(sources)))
        if (unknown := np.isnan(value.between[rows[:, None], columns])).any():
            row, column = np.nonzero(unknown)
            value.between[rows[row], columns[column]] = self._priced(value, rows[row], columns[column])
        found = value.between[columns[:, None], columns]
        found[np.isnan(found)] = inf
        return found

    def _priced(self, value: _Value, sources: Array, targets: Array) -> Array:
        """Picoseconds from states to others, by their numbers: the steps of many conversions are the same."""
        import numpy as np

        if not isinstance(value.type, TensorType):
            return np.zeros(len(sources))
        reshard_plans = ReshardPlans(self.mesh, [*value.numbers])
        codes, found = reshard_plans.between(value.elements, sources, targets), np.full(len(sources), inf)
        prices = [np.full((*reshard_plans.shape, len(along)), np.nan) for along in reshard_plans.along]
        for code in (int(each) for each in np.unique(codes) if each >= 0):
            pairs = np.flatnonzero(codes == code)
            here, total = reshard_plans.places[:, TARGET, sources[pairs]], np.zeros(len(pairs))
            for axis, kind in reshard_plans.reshard_steps(code):
                to = reshard_plans.places[axis, kind, targets[pairs]]
                reshard_steps = (*here, to)
                for reshard_step in np.unique(
                    np.stack(reshard_steps)[:, np.isnan(prices[axis][reshard_steps])], axis=1
                ).T:
                    states = tuple(along[i] for along, i in zip(reshard_plans.along, reshard_step[:-1], strict=True))
                    prices[axis][tuple(reshard_step)] = self._picoseconds(
                        value, states, axis, reshard_plans.along[axis][reshard_step[-1]]
                    )
                total += prices[axis][reshard_steps]
                here[axis] = to
            found[pairs] = total
        return found

    def _picoseconds(self, value: _Value, states: AxisStates, axis: int, after: State) -> float:
        """Of one step; infinite if it takes more copies than pay."""
        if is_fine(states[axis]) or is_fine(after):
            return inf
        return self._reshard_step(value, self._shard(value, states), axis, after)[0].picoseconds

    def message(self, type_: Attribute, states: AxisStates, sender: int, receiver: int) -> int:
        """Picoseconds to send the shards of a value from one stage to another."""
        local = self.local_type(type_, states)
        key = local, sender, receiver
        if key not in self._messages:
            found: list[int] = []
            for ends in self._distinct_ends(sender, receiver):
                block = Block(arg_types=[placed(local, on_device(ends[0]))])
                sent = SendOp(block.args[0], placed(local, on_device(ends[1])))
                found.append(self._costs.of(sent, ends).picoseconds)
            self._messages[key] = max(found)
            self.groups_differ |= min(found) != max(found)
        return self._messages[key]

    def _distinct_ends(self, sender: int, receiver: int) -> list[tuple[int, int]]:
        """The devices of two stages that send each other, of those that differ in how they lie on the machine's levels."""
        if (sender, receiver) not in self._ends:
            count = self.mesh.devices
            pairs = [(sender * count + device, receiver * count + device) for device in range(count)]
            self._ends[sender, receiver] = list({self.machine.pattern(ends): ends for ends in reversed(pairs)}.values())
        return self._ends[sender, receiver]

    def _value(self, type_: Attribute) -> _Value:
        """Types are looked up by identity first: hashing one takes as long as all the rest."""
        if (found := self._values.get(id(type_))) is None:
            found = self._by_type.setdefault(type_, _Value(type_))
            self._values[id(type_)] = found
            self._alive.append(type_)
        return found

    def _shard(self, value: _Value, states: AxisStates) -> _Shard:
        if (found := value.shards.get(states)) is None:
            local = value.type
            if isinstance(local, TensorType):
                tensor = cast(TensorType[Any], local)
                local = TensorType(tensor.element_type, self.mesh.local_shape(tensor.get_shape(), states, self._device))
            found = value.shards[states] = _Shard(states, local, type_bytes(local))
        return found

    def _conversion(self, value: _Value, source: AxisStates, target: AxisStates) -> Conversion | None:
        if source == target or not isinstance(value.type, TensorType):
            return Conversion(0, 0, 0)
        try:
            reshard_steps = reshard_plan(self.mesh, value.elements, source, target)
        except DistirError:
            return None
        first = here = self._shard(value, source)
        ends = first.bytes + self._shard(value, target).bytes
        picoseconds, most, last, keeps_source, uses_source = 0, 0, -ends, True, False
        apart: list[tuple[int, int]] = []
        for axis, after in reshard_steps:
            if is_fine(here.states[axis]) or is_fine(after):
                return None
            reshard_step, reached = self._reshard_step(value, here, axis, after)
            entering = 0 if keeps_source else first.bytes
            picoseconds, most = picoseconds + reshard_step.picoseconds, max(most, entering + reshard_step.last - ends)
            if keeps_source:
                most = max(most, reshard_step.memory - ends)
                uses_source = reshard_step.uses_source
            last = max(last, reshard_step.last - ends)
            keeps_source &= reshard_step.keeps_source
            if reshard_step.other is not None:
                apart.append((axis, reshard_step.other))
            here = reached
        return Conversion(picoseconds, most, last, keeps_source, uses_source, tuple(apart))

    def _reshard_step(self, value: _Value, here: _Shard, axis: int, after: State) -> _ReshardStep:
        key = (axis, after)
        if (found := here.reshard_steps.get(key)) is None:
            before = here.states[axis]
            ends = [self.mesh.local_state(axis, state, here.states, self._device) for state in (before, after)]
            price = self._reshard_step_price(cast(TensorType[Any], here.type), axis, *ends)
            states = (*here.states[:axis], after, *here.states[axis + 1 :])
            found = here.reshard_steps[key] = _ReshardStep(price, self._shard(value, states))
        return found

    def _reshard_step_price(self, local: TensorType[Any], axis: int, before: State, after: State) -> _Emitted:
        """One step from shards of this type. Unless the cost model looks at shapes, dims that the step does not change are merged with those that it does, or with each other: what counts is of
        which of them others are outside."""
        shape, states = local.get_shape(), (before, after)
        if not self._sees_shapes:
            cuts = [s for s in states if isinstance(s, Sharded | Windowed)]
            dims = sorted({s.dim for s in cuts})
            rest = prod(n for d, n in enumerate(shape) if d not in dims)
            size = self.mesh.sizes[axis]
            outside = [prod(n for d, n in enumerate(shape[:dim]) if d not in dims) for dim in dims]
            at = next((i for i, n in enumerate(outside) if n > 1), len(dims))  # from there on parts do not lie together
            is_even = all(isinstance(s, Sharded) and s.is_even(size) and len(s.pieces) == 1 for s in cuts)
            if at == len(dims) == 1 and is_even:
                shape = (rest * shape[dims[0]],)
                states = tuple(Sharded(0, (s.pieces[0] * rest,)) if isinstance(s, Sharded) else s for s in states)
            else:
                cut = [shape[d] for d in dims]
                shape = (*cut[:at], rest, *cut[at:])
                places = {dim: i + (i >= at) for i, dim in enumerate(dims)}
                states = tuple(replace(s, dim=places[s.dim]) if s in cuts else s for s in states)
        key = (self._element_number(local.element_type), shape, axis, states)
        if (price := self._reshard_steps.get(key)) is None:
            type_ = TensorType(local.element_type, shape)
            found = [self._emitted(type_, axis, group, *states) for group in self._groups[axis]]
            price = self._reshard_steps[key] = max(found, key=lambda one: one.picoseconds)
            self.groups_differ |= any(one.picoseconds != price.picoseconds for one in found)
        return price

    def _element_number(self, type_: Attribute) -> int:
        return self._elements.setdefault(type_, len(self._elements))

    def _emitted(self, local: Attribute, axis: int, group: Sequence[int], before: State, after: State) -> _Emitted:
        """What one member of a group does: values of all have one type here, and results of a collective are in the order of the group."""
        member, others, other = self.coordinates[axis], range(len(group)), None
        block = Block(arg_types=[local] * len(group))
        values = list(block.args)
        if isinstance(after, Partial | Windowed):
            made = convert(values, before, after, Block(arg_types=[]).add_op)
            keeps = made[member] is values[member]
            differ = (i for i in others if (made[i] is values[i]) != keeps)
            other = min(differ, key=lambda i: abs(i - member), default=None)
        made = convert(values, before, after, block.add_op, only=member)
        keeps = made[member] is values[member]

        def own(op: Operation, values: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return values if len(op.results) < len(group) else (values[member],)

        last_use = {value: op for op in block.ops for value in own(op, op.operands)}
        uses = values[member] in last_use
        seconds, held, most, last = 0, type_bytes(local), 0, 0
        source = held if uses else 0
        for op in block.ops:
            devices = (group[member],) if len(op.results) < len(group) else tuple(group)
            seconds += self._costs.ask(op, devices).picoseconds
            held += sum(type_bytes(r.type) for r in own(op, op.results))
            most, last = max(most, held), max(last, held - type_bytes(local) + source)
            freed = [v for v in dict.fromkeys(own(op, op.operands)) if last_use[v] is op]
            held -= sum(type_bytes(v.type) for v in freed if not isinstance(v, BlockArgument))
            source = 0 if any(isinstance(v, BlockArgument) for v in freed) else source
        return _Emitted(seconds, most, last, keeps, uses, other)

    def operation(self, op: Operation, options: Sequence[Option]) -> Price | None:
        """An op that takes one option per axis; None if its sizes cannot be rewritten for it."""
        states = [tuple(o.operands[i] for o in options) for i in range(len(values_read(op)))]
        states += [tuple(o.results[i] for o in options) for i in range(len(op.results))]
        try:
            largest, restated, flops = self._on_device(op, options, states, self._device)
            is_by_place = bool(starts_of(op, options, self.mesh, 0))
            if all(map(self.mesh.is_uniform, states)) and not is_by_place:
                return Price(largest, restated=restated, flops=flops)
            devices = self._differing(states, is_by_place)
            found = {device: self._on_device(op, options, states, device)[0] for device in devices}
        except DistirError:
            return None
        most = max(largest, *found.values())
        return Price(most, False, (most - largest, most - found[0]), restated, flops)

    def _differing(self, states: Sequence[AxisStates], is_by_place: bool) -> list[int]:
        """Devices that stand for all in the shapes of such shards, the first one of the mesh among them; if what an operation does differs by place
        too, all that differ in what they hold."""
        ranges = [self._places(axis, states, is_by_place) for axis in range(len(self.mesh.sizes))]
        return [self.mesh.device(coordinates) for coordinates in product(*ranges)]

    def _places(self, axis: int, states: Sequence[AxisStates], is_by_place: bool) -> Sequence[int]:
        """Along an axis, the places where shards of other extents begin."""
        size, begin = self.mesh.sizes[axis], {0}
        for every in dict.fromkeys(states):
            state = every[axis]
            if isinstance(state, Replicated | Partial):
                continue
            beside = [
                s for s in every if not isinstance(s, Replicated | Partial) and s.dim == getattr(state, "dim", None)
            ]
            if is_by_place or not isinstance(state, Sharded) or any(s != state for s in beside):
                return range(size)
            counts = {*different(state.counts)}
            for outer, of_outer in zip(every[:axis], self.mesh.sizes, strict=False):
                if outer == state:
                    counts = {each for count in counts for each in (count // of_outer, -(-count // of_outer))}
            for count in counts:
                begin.update(begins(count, size))
        return sorted(begin)

    def _on_device(
        self, op: Operation, options: Sequence[Option], states: Sequence[AxisStates], device: int
    ) -> tuple[int, frozenset[int], int]:
        """Picoseconds on one device, the operands that are sizes, and flops of contractions. Raises DistirError for sizes that cannot be rewritten."""
        read = values_read(op)
        types = [self._type_on(v.type, s, device) for v, s in zip((*read, *op.results), states, strict=True)]
        operands, results = types[: len(op.operands)], types[len(read) :]
        rule = rule_of(op)
        starts = starts_of(op, options, self.mesh, device)
        changes = changes_of(rule, self._divisors(rule, options, states, device), starts)
        restated = frozenset(local_constants(op, changes))
        properties = local_properties(op, changes)
        means = tuple({i for option in options for i in option.means})
        positions = positions_of(op, options, self.mesh)
        looked_up = None if positions is None else (positions.index, positions.outside, positions.dims)
        margins = self._margins(op, options, device)
        for i, of_result in margins.items():
            for margin in of_result:
                results[i] = margin.widened(results[i])
        trimmed = tuple((i, m.dim, m.kept) for i, of_result in margins.items() for m in of_result)
        said = {k: v for k, v in op.attributes.items() if k in SAID}
        told = frozenset(properties.items()), frozenset(said.items())
        key = (op if op.regions else type(op), told, tuple(operands), tuple(results), means, looked_up, trimmed)
        if key not in self._operations:
            captured = read[len(op.operands) :]
            block = Block(arg_types=[*operands, *(value.type for value in captured)])
            own: list[SSAValue] = list(block.args[: len(operands)])
            outside = dict[SSAValue, SSAValue](zip(captured, block.args[len(operands) :], strict=True))
            if positions is not None:
                own = positions.before(own, (0, positions.extent, positions.extent), block.add_op)
            copy = type(op).create(
                operands=own,
                result_types=results,
                properties=properties,
                attributes=said,
                regions=[copied(region, outside) for region in op.regions],
            )
            block.add_op(copy)
            if positions is not None:
                for result in copy.results:
                    positions.after(result, block.args, (0, positions.extent, positions.extent), block.add_op)
            for i, of_result in margins.items():
                value: SSAValue = copy.results[i]
                for margin in of_result:
                    value = margin.trimmed(value, block.add_op)
            for i in means:
                block.add_op(ScaleOp(copy.results[i], 1, 2))
            work = work_of(copy)
            flops = work.flops if work.kind is Kind.MATMUL else 0
            self._operations[key] = sum(self._costs.of(step, (0,)).picoseconds for step in block.ops), flops
        picoseconds, flops = self._operations[key]
        return picoseconds, restated, flops

    def _type_on(self, type_: Attribute, states: AxisStates, device: int) -> Attribute:
        """The type of a device's shard."""
        if device == self._device or not isinstance(type_, TensorType):
            return self.local_type(type_, states)
        tensor = cast(TensorType[Any], type_)
        return TensorType(tensor.element_type, self.mesh.local_shape(tensor.get_shape(), states, device))

    def _divisors(
        self, rule: Rule | None, options: Sequence[Option], states: Sequence[AxisStates], device: int
    ) -> dict[str, int | Fraction]:
        """What divides each factor that is cut and that sizes carry."""
        if all(map(self.mesh.is_uniform, states)):
            return dict[str, int | Fraction](cut_factors(options, self.mesh))
        carried = {factor for factors in rule.sizes.values() for factor in factors} if rule is not None else set[str]()
        cut = carried & cut_factors(options, self.mesh).keys()
        return {f: 1 / fraction_of(options, self.mesh, device, factor=f) for f in sorted(cut)}

    def margins(self, op: Operation, options: Sequence[Option]) -> dict[int, list[Margin]]:
        """What is computed beside a shard, for each result of which some is."""
        return self._margins(op, options, self._device)

    def _margins(self, op: Operation, options: Sequence[Option], device: int) -> dict[int, list[Margin]]:
        found = {i: margins_of(options, self.mesh, device, i) for i in range(len(op.results))}
        return {i: margins for i, margins in found.items() if any(m.kept != (0, m.computed) for m in margins)}


MOST_KEPT = 4
"""Meshes of which prices are kept: plans that a search looks at one after another are of few."""
_kept: list[Prices] = []


def prices_of(mesh: Mesh, machine: Machine, cost_model: str = "analytic", stages: int = 1) -> Prices:
    """Prices on a machine, those of before where they were asked for lately."""
    prices = Prices(mesh, machine, cost_model, stages=stages)
    found = next((each for each in _kept if each.are_those_of(prices)), prices)
    _kept[:] = [found, *(each for each in _kept if each is not found)][:MOST_KEPT]
    return found


def is_fine(state: State) -> bool:
    """Whether a value in this state is resharded no more."""
    return isinstance(state, Sharded) and len(state.pieces) > MOST_PIECES
