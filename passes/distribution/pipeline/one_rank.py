"""What the first tensor rank does, where all ranks do the same at the same time: a search that simulates this rank alone knows
what all of them take, and its programs are as narrow as with one rank.

Ranks are alike if their operations are the same one by one: of the same kind, on the same of their own values, at the same
types, and at equal costs where properties differ (a slice takes other rows on every rank). They wait for each other
in collectives of all ranks only, which keep one operand and say who takes part (`interpreters/costs`). From equal clocks,
equal costs lead to equal clocks, so the first rank is where all are.

Between stage functions, the first rank may be spared something: of a whole value that becomes addends, it has the addend,
and the others make zeros. What is simulated then is another rank. The first is never later, and never fuller: it goes on
with a value of the same size that the others need not drop before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from xdsl.dialects.builtin import UNKNOWN_LOC, DenseArrayBase, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from distir.dialects.dist import CallOp as DistCallOp
from distir.dialects.dist import ExchangeOp
from distir.dialects.dist.attributes import on_device, placed, placement
from distir.dialects.dist.communication import CollectiveOp, CommunicationOp
from distir.dialects.errors import DistirError
from distir.dialects.sharding import State
from distir.interpreters.costs import PARTICIPANTS, Costs, detached
from distir.interpreters.machines import Machine
from distir.passes.distribution.conversions import Insert, convert
from distir.passes.distribution.mesh import AxisStates, Mesh
from distir.passes.distribution.pipeline.bundles import packed, unpacked
from distir.passes.distribution.shards import Shards
from distir.passes.structure import give_body, name_alike, shape_of

Devices = tuple[int, ...]


class _Step(NamedTuple):
    """An operation of a conversion: operands are numbers of values, of which 0 is what is converted; results have types on no
    device."""

    kind: type[Operation]
    operands: list[int]
    types: list[Attribute]
    properties: dict[str, Attribute]
    attributes: dict[str, Attribute]


@dataclass
class _Recipe:
    """One rank's part of a conversion."""

    steps: list[_Step]
    result: int
    is_spared: bool
    """Whether the first rank has nothing to do."""
    placed: dict[int | None, list[list[Attribute]]] = field(default_factory=dict[int | None, list[list[Attribute]]])
    """Types of the results, by device."""


class RanksDiffer(DistirError):
    """What the first tensor rank does is not what all of them do."""


class ShardsOfFirst(Shards):
    """Values on the first rank of a mesh of one axis, where all ranks do the same by the way it is cut: in even shards, nothing of which
    depends on where they are."""

    def __init__(self, mesh: Mesh, first: FirstRank):
        super().__init__(mesh)
        self.first, self.devices = first, range(1)

    def placed_types(self, type_: Attribute, states: AxisStates) -> list[Attribute]:
        return super().placed_types(type_, states)[:1]

    def check(self, op: Operation, are_alike: Callable[[], bool]) -> None:
        if op.regions or not are_alike():
            raise RanksDiffer(f"{op.name} is another one on each tensor rank")

    def _converted(self, value: SSAValue, needed: AxisStates, insert: Insert) -> list[SSAValue]:
        (own,), (here,) = self._held[value, self._states[value]], self._states[value]
        for _, target in self.mesh.route(prod(shape_of(value)), (here,), needed):
            own, spared = self.first.converted(own, here, target, insert)
            if spared:
                raise RanksDiffer(f"the first tensor rank is spared the conversion from {here} to {target}")
            here = target
        return [own]


class FirstRank:
    """Takes the first rank's part of operations over the devices 0 to n - 1, which are tensor ranks."""

    def __init__(self, ranks: int, costs: Costs):
        self.ranks, self.costs = ranks, costs
        self._plain: dict[int, tuple[Attribute, Attribute]] = {}
        self._canonical: dict[Attribute, Attribute] = {}
        self._cost_alike: dict[tuple[object, ...], bool] = {}
        self._compared: list[tuple[tuple[Operation, Devices], tuple[Operation, Devices]]] = []
        """Copies of the operations whose costs were compared, with participants."""
        self._recipes: dict[tuple[int, State, State], _Recipe] = {}

    @property
    def lie_alike(self) -> bool:
        """Whether groups of so many devices lie alike in the machine, as far as the cost model asks."""
        return self.costs.model.is_by_levels and lie_alike(self.costs.model.machine, self.ranks)

    def holds_at(self, costs: Costs, at: Callable[[Operation], Operation]) -> bool:
        """Whether what was found to cost the same does so for what these operations are elsewhere."""
        return all([costs.of(at(a), on) == costs.of(at(b), beside) for (a, on), (b, beside) in self._compared])

    def stands_for_all(self, functions: Sequence[FuncOp]) -> bool:
        """Whether ranks are alike in all these functions, and lie alike in the machine wherever a group of them is."""
        return self.lie_alike and all([self.alike(f.body.block.args, list(f.body.block.ops)) for f in functions])

    def keep(self, function: FuncOp) -> None:
        """Leaves of a function, whose arguments and results are listed value by value and for each device by device, what the
        first rank does."""
        old = function.body.block
        given = old.args[:: self.ranks]
        new = Block(arg_types=[argument.type for argument in given])
        values: dict[SSAValue, SSAValue] = {}
        for argument, own in zip(given, new.args, strict=True):
            name_alike([own], argument.name_hint)
            values[argument] = own
        for op in list(old.ops):
            op.detach()
            if (own := self._own(op, values)) is not None:
                new.add_op(own)
        give_body(function, new)

    def converted(
        self, value: SSAValue, source: State, target: State, insert: Insert
    ) -> tuple[SSAValue, list[Operation]]:
        """One rank's part of a conversion of a value that it holds a part of, and the operations that the first rank is
        spared. Raises DistirError if ranks differ otherwise."""
        if source == target:
            return value, []
        recipe, on = self._recipe(value, source, target), placement(value.type)
        device = None if on is None else on.device
        if (types := recipe.placed.get(device)) is None:
            types = recipe.placed[device] = [[placed(t, on) for t in step.types] for step in recipe.steps]
        values, spared = [value], list[Operation]()
        for step, result_types in zip(recipe.steps, types, strict=True):
            op = step.kind.create(
                operands=[values[number] for number in step.operands],
                result_types=result_types,
                properties=step.properties,
                attributes=step.attributes,
                location=UNKNOWN_LOC,
            )
            values += op.results
            insert(op)
            spared.append(op)
        return values[recipe.result], spared if recipe.is_spared else []

    def _recipe(self, value: SSAValue, source: State, target: State) -> _Recipe:
        """How a rank converts values like this one."""
        key = (id(self._type(value)), source, target)
        if (known := self._recipes.get(key)) is None:
            known = self._recipes[key] = self._written(value, source, target)
        return known

    def _written(self, value: SSAValue, source: State, target: State) -> _Recipe:
        scratch = Block(arg_types=[placed(value.type, on_device(rank)) for rank in range(self.ranks)])
        results = convert(list(scratch.args), source, target, scratch.add_op)
        ops = list(scratch.ops)
        first_goes_on = results[0] is scratch.args[0]
        if not self.alike(scratch.args, ops, results, since=1 if first_goes_on else 0):
            raise RanksDiffer(f"tensor ranks differ in the conversion from {source} to {target}")
        rank = self.ranks - 1 if first_goes_on else 0
        own = Block(arg_types=[value.type])
        values: dict[SSAValue, SSAValue] = {scratch.args[rank]: own.args[0]}
        numbers: dict[SSAValue, int] = {own.args[0]: 0}
        steps: list[_Step] = []
        for op in ops:
            op.detach()
            if (part := self._own(op, values, rank)) is not None:
                operands = [numbers[v] for v in part.operands]
                types = [placed(t, None) for t in part.result_types]
                steps.append(_Step(type(part), operands, types, dict(part.properties), dict(part.attributes)))
                for result in part.results:
                    numbers[result] = len(numbers)
                own.add_op(part)
        last = results[rank]
        return _Recipe(steps, numbers[values.get(last, last)], first_goes_on)

    # --- one operation ---------------------------------------------------------------------------------------------

    def _own(self, op: Operation, values: dict[SSAValue, SSAValue], rank: int = 0) -> Operation | None:
        """A rank's part of a detached operation, on what stands for its operands; None if it has none."""
        if isinstance(op, CommunicationOp | DistCallOp | ReturnOp):
            operands = [values.get(v, v) for v in op.operands[rank :: self.ranks]]
            results = op.results[rank :: self.ranks]
            own = type(op).create(
                operands=operands,
                result_types=[r.type for r in results],
                properties=dict(op.properties),
                attributes=dict(op.attributes),
            )
            if isinstance(own, CommunicationOp):
                own.attributes[PARTICIPANTS] = DenseArrayBase.from_list(i64, range(self.ranks))
            elif isinstance(own, DistCallOp):
                own.on = DenseArrayBase.from_list(i64, [0])
            for result, mine in zip(results, own.results, strict=True):
                name_alike([mine], result.name_hint)
                values[result] = mine
            op.drop_all_references()
            return own
        if self._rank(op) not in (None, rank):
            op.drop_all_references()
            return None
        for i, value in enumerate(op.operands):
            if value in values:
                op.operands[i] = values[value]
        return op

    def _rank(self, op: Operation) -> int | None:
        """The rank that runs a local operation; None if it is on no device, for all."""
        for value in (*op.results, *op.operands):
            if (on := placement(value.type)) is not None:
                return on.device
        return None

    # --- whether ranks are alike -----------------------------------------------------------------------------------

    def alike(
        self,
        arguments: Sequence[SSAValue],
        ops: Sequence[Operation],
        returned: Sequence[SSAValue] = (),
        since: int = 0,
    ) -> bool:
        """Whether all ranks do the same, or those from `since` on do, and those before it nothing. Arguments, and what is
        returned, are listed value by value, and for each device by device."""
        n = self.ranks
        numbers: dict[SSAValue, int] = {}
        """Of each rank's values, in the order in which it makes them; those on no device are below zero."""
        counts = [0] * n
        own: list[list[Operation]] = [[] for _ in range(n)]

        def define(values: Sequence[SSAValue]) -> bool:
            for i, value in enumerate(values):
                if self._device(value) != i % n:
                    return False
                numbers[value] = counts[i % n]
                counts[i % n] += 1
            return self._repeat([self._type(v) for v in values])

        if not define(arguments):
            return False
        for op in ops:
            if op.regions:
                return False
            if isinstance(op, CommunicationOp | DistCallOp | ReturnOp):
                if since or not self._is_of_all(op) or not self._repeat([numbers[v] for v in op.operands]):
                    return False
                if not define(op.results):
                    return False
                for mine in own:
                    mine.append(op)
            elif (rank := self._rank(op)) is None:
                for result in op.results:
                    numbers[result] = -1 - len(numbers)
            else:
                for result in op.results:
                    numbers[result] = counts[rank]
                    counts[rank] += 1
                own[rank].append(op)
        given = [numbers[v] for v in returned]
        if any(own[:since]) or not all([given[rank::n] == given[since::n] for rank in range(since, n)]):
            return False
        first, *others = own[since:]
        if not all([len(mine) == len(first) for mine in others]):
            return False
        return all([self._same(one, op, numbers) for mine in others for one, op in zip(first, mine, strict=True)])

    def _repeat(self, items: Sequence[object]) -> bool:
        """Whether items listed thing by thing, and for each device by device, are the same for all devices."""
        n = self.ranks
        return len(items) % n == 0 and all([items[rank::n] == items[::n] for rank in range(1, n)])

    def _is_of_all(self, op: Operation) -> bool:
        """Whether an operation over devices is over all ranks, and costs what its first rank's part says."""
        if isinstance(op, DistCallOp):
            return op.devices == tuple(range(self.ranks))
        if isinstance(op, ReturnOp):
            return True
        if not isinstance(op, CollectiveOp) or isinstance(op, ExchangeOp) or len(op.operands) != self.ranks:
            return False
        first = self._key(op, [op.operands[0], op.results[0]])
        if (known := self._cost_alike.get(first)) is None:
            whole = detached(op, op.operands, op.results)
            part = detached(op, op.operands[:1], op.results[:1])
            part.attributes[PARTICIPANTS] = DenseArrayBase.from_list(i64, range(self.ranks))
            together = self.costs.of(whole, tuple(range(self.ranks)))
            known = self._cost_alike[first] = together == self.costs.of(part, (0,))
            self._compared.append(((whole, tuple(range(self.ranks))), (part, (0,))))
        return known

    def _same(self, one: Operation, other: Operation, numbers: Mapping[SSAValue, int]) -> bool:
        """Whether two ranks' operations do the same at the same cost."""
        if one is other:
            return True
        if type(one) is not type(other) or len(one.operands) != len(other.operands):
            return False
        if [numbers[v] for v in one.operands] != [numbers[v] for v in other.operands]:
            return False
        if list(map(self._type, one.results)) != list(map(self._type, other.results)):
            return False
        if one.properties is other.properties or one.properties == other.properties:
            return True
        keys = [self._key(op, [*op.operands, *op.results]) for op in (one, other)]
        if (known := self._cost_alike.get((*keys,))) is None:
            copies = [detached(op, op.operands, op.results) for op in (one, other)]
            found = [self.costs.of(copy, (0,)) for copy in copies]
            known = self._cost_alike[(*keys,)] = found[0] == found[1]
            self._compared.append(((copies[0], (0,)), (copies[1], (0,))))
        return known

    def _key(self, op: Operation, values: Sequence[SSAValue]) -> tuple[object, ...]:
        return (type(op), *[id(self._type(v)) for v in values], *op.properties.items())

    def _type(self, value: SSAValue) -> Attribute:
        """A value's type without its place; equal ones are one object."""
        if (known := self._plain.get(id(value.type))) is None:
            plain = placed(value.type, None)
            known = self._plain[id(value.type)] = value.type, self._canonical.setdefault(plain, plain)
        return known[1]

    @staticmethod
    def _device(value: SSAValue) -> int | None:
        on = placement(value.type)
        return None if on is None else on.device


def converting(
    name: str, types: Sequence[Attribute], members: Sequence[tuple[State, State]], first_rank: FirstRank | None
) -> tuple[FuncOp, list[Operation]]:
    """A function that converts the members of a tuple, of which every rank has one of these types, each from one state to another.
    Also what the first rank is spared, if that stands for all."""
    block = Block(arg_types=types)
    tuples = [unpacked(argument, len(members), block) for argument in block.args]
    converted: list[Sequence[SSAValue]] = []
    spared: list[Operation] = []
    for values, (source, target) in zip(zip(*tuples, strict=True), members, strict=True):
        if first_rank is None:
            converted.append(convert(list(values), source, target, block.add_op))
            continue
        value, ops = first_rank.converted(values[0], source, target, block.add_op)
        converted.append([value])
        spared += ops
    block.add_op(ReturnOp(*[packed(own, block) for own in zip(*converted, strict=True)]))
    assert isinstance(block.last_op, ReturnOp)
    results = [v.type for v in block.last_op.operands]
    return FuncOp(name, (types, results), Region(block), visibility="private"), spared


def lie_alike(machine: Machine, ranks: int) -> bool:
    """Whether groups of so many devices, counted from the first, lie alike in a machine, and so do the devices that are
    the same rank of each: every level's units have whole groups, or every group whole units."""
    sizes = [level.devices for level in machine.levels if level.devices is not None]
    return machine.is_uniform and all([size % ranks == 0 or ranks % size == 0 for size in sizes])
