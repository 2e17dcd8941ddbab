"""The memory of a plan, as the simulator counts it on the plan's program. In go a problem and a plan; out come bytes at each step.

The walk follows `apply-sharding` without building anything: every conversion allocates its result where it is first needed
and holds it until its last use, calls are entered, views share their operand's memory, and a result that updates an
argument shares the argument's. Cost: one step per executed operation, on one device."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue

from distir.dialects.sharding import Windowed
from distir.interpreters.walk import uses_of, values_read
from distir.interpreters.work import shares_memory, type_bytes
from distir.passes.distribution.mesh import AxisStates
from distir.passes.distribution.positions import positions_of
from distir.passes.sharding.plans import ShardingPlan, needed_by, produced
from distir.passes.sharding.prices import Conversion
from distir.passes.sharding.problem import JointOption, Problem
from distir.passes.staging.zeros import ZERO, left_of_sum
from distir.passes.structure import AnyCall, argument_attributes, is_constant, text

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

FOREVER = 1 << 62


class Point(NamedTuple):
    """A place in an execution: the calls entered, the operation, and which of its operands is being converted (None: the
    operation runs)."""

    path: tuple[AnyCall, ...]
    operation: Operation
    operand: int | None
    stage: int = 0
    """Of a staged program."""
    position: tuple[float, ...] = ()
    """In the timeline of a staged program, where the first of the calls, or else the operation, is (`timeline`)."""

    @property
    def place(self) -> tuple[Operation, int | None, int]:
        return self.operation, self.operand, self.stage


@dataclass(slots=True)
class Storage:
    """Bytes on one device from a step to a step."""

    bytes: int
    birth: int
    last_use: int
    what: SSAValue
    stage: int = 0
    """On the devices of which stage."""


@dataclass
class Footprint:
    """Memory over the steps of one run."""

    points: Sequence[Point]
    totals: Array
    storages: list[Storage]
    """At least those that are there at the peak."""

    @property
    def peak_bytes(self) -> int:
        return int(self.totals.max()) if len(self.totals) else 0

    def worst(self, above: int, count: int) -> list[Point]:
        """The points that need more than `above` bytes, the worst first, each place of the program once."""
        found: dict[tuple[Operation, int | None, int], Point] = {}
        import numpy as np

        order = np.argsort(-self.totals, kind="stable")
        for i in map(int, order[: int((self.totals > above).sum())]):
            found.setdefault(self.points[i].place, self.points[i])
            if len(found) == count:
                break
        return list(found.values())

    def live_at_peak(self) -> list[Storage]:
        """What the peak consists of, the largest first."""
        step = int(self.totals.argmax())
        stage = self.points[step].stage
        live = [s for s in self.storages if s.birth <= step <= s.last_use and s.bytes and s.stage == stage]
        return sorted(live, key=lambda s: -s.bytes)


@dataclass(frozen=True)
class Extra:
    """Memory of what an operation computes beside its results: local means, beside the addends that they are scaled to; results with
    the margins that are then sliced off, axis by axis; what is looked up, with indices of its own."""

    running: int = 0
    """While it runs, beside its operands and results."""
    after: int = 0
    """While results are made of what it computes, beside them; operands that nothing else needs are gone by then."""

    def at_most(self, freed: int = 0) -> int:
        """The larger of both, where operands of so many bytes are gone."""
        return max(self.running, self.after - freed)


def extra_memory(problem: Problem, op: Operation, option: JointOption, restated: Collection[int]) -> Extra:
    """What an operation needs for a moment by one option, these operands with sizes of its own."""
    found = _computed(problem, op, option)
    return replace(found, running=found.running + sum(type_bytes(values_read(op)[i].type) for i in restated))


def _computed(problem: Problem, op: Operation, option: JointOption) -> Extra:
    prices = problem.prices
    means, margins = {i for o in option.options for i in o.means}, prices.margins(op, option.options)
    positions = positions_of(op, option.options, prices.mesh)
    stages: list[list[int]] = []
    """Per result the sizes of what is computed, of what is left of that step by step, and its own."""
    for i, (result, states) in enumerate(zip(op.results, option.results, strict=True)):
        types = [prices.local_type(result.type, states)]
        for margin in reversed([m for m in margins.get(i, ()) if m.kept != (0, m.computed)]):
            types.append(margin.widened(types[-1]))
        stages.append([type_bytes(t) for t in reversed(types)])
        stages[-1] += stages[-1][-1:] * ((i in means) + (positions is not None and positions.masks_results))
    kept = sum(sizes[-1] for sizes in stages)
    held = sum(sizes[0] for sizes in stages)
    running, most = held - kept, 0
    for sizes in stages:
        for before, after in pairwise(sizes):
            most = max(most, held + after)
            held += after - before
    after = max(0, most - kept)
    if positions is None:
        return Extra(running, after)
    replaced = sum(prices.bytes(values_read(op)[i].type, option.operands[i]) for i in positions.replaces)
    return Extra(max(running + replaced, after))  # what is masked afterwards needs the operands


def surely_freed(op: Operation, option: JointOption) -> dict[int, AxisStates]:
    """The operands, with their states, of which nothing is left after an operation whatever other operations do: results, or windows
    on anything, that it alone uses."""
    found: dict[int, AxisStates] = {}
    for i, (value, states) in enumerate(zip(values_read(op), option.operands, strict=True)):
        is_copy = any(isinstance(s, Windowed) for s in states)
        if len(uses_of(value)) == 1 and (is_copy or has_own_memory(value)):
            found[i] = states
    return found


def has_own_memory(value: SSAValue) -> bool:
    """Whether a value is what an operation computes, and no view of another."""
    return isinstance(value, OpResult) and not isinstance(value.op, AnyCall) and not shares_memory(value.op)


def least_extra(problem: Problem, op: Operation, option: JointOption) -> int:
    """What an operation needs for a moment, as far as one option tells."""
    freed = surely_freed(op, option)
    sizes = [problem.prices.bytes(values_read(op)[i].type, states) for i, states in freed.items()]
    beside = [i for i in option.price.restated if len(uses_of(values_read(op)[i])) > 1]
    return extra_memory(problem, op, option, beside).at_most(sum(sizes))


def footprint(problem: Problem, plan: ShardingPlan, limit: int | None = None) -> Footprint:
    """Walks one run of the entry: on the device in the middle of the mesh, which has the largest shard of everything, and on others
    where conversions differ in whether they need a value any more; unless the first exceeds a limit, if one is given."""
    import numpy as np

    walk = _walk(problem, plan)
    found = walk.entry()
    if limit is not None and found.peak_bytes > limit:
        return found
    others: dict[int, set[int]] = {axis: {middle} for axis, middle in enumerate(problem.prices.coordinates)}
    conversions = walk.conversions.values() if isinstance(walk, Walk) else walk.conversions
    for axis, coordinate in (apart for conversion in conversions for apart in conversion.apart):
        others[axis].add(coordinate)
    for coordinates in product(*others.values()):
        if coordinates != problem.prices.coordinates:
            there = _walk(replace(problem, prices=problem.prices.at(coordinates)), plan).entry()
            totals = np.maximum(found.totals, there.totals)
            found = Footprint(found.points, totals, max(found, there, key=lambda one: one.peak_bytes).storages)
    return found


def _walk(problem: Problem, plan: ShardingPlan) -> Any:
    if problem.order is None:
        return Walk(problem, plan)
    from distir.passes.sharding.staged_memory import StagedWalk
    from distir.passes.sharding.timeline import timeline_of

    return StagedWalk(problem, plan, timeline_of(problem, plan))


@dataclass(frozen=True)
class Reshard:
    """Of an operand, where it is first needed so; values in some states are numbered within a body."""

    operation: Operation
    operand: int
    value: SSAValue
    source: int
    target: int
    bytes: int
    conversion: Conversion


@dataclass(frozen=True)
class Statement:
    """A constant, where it is first used."""

    value: SSAValue
    number: int
    bytes: int


@dataclass(frozen=True)
class Run:
    """An operation or a call."""

    operation: Operation
    operands: tuple[int, ...]
    """Without constants that it restates."""
    results: tuple[tuple[int, int, SSAValue], ...]
    """The number of each, its bytes (none of a call's), and what it is."""
    shares_memory: bool
    extra: Extra


@dataclass
class Body:
    """A function as a plan executes it, the same at every call."""

    steps: list[Reshard | Statement | Run] = field(default_factory=list["Reshard | Statement | Run"])
    numbers: dict[tuple[SSAValue, AxisStates], int] = field(default_factory=dict[tuple[SSAValue, AxisStates], int])
    returned: tuple[int, ...] = ()

    def number(self, value: SSAValue, states: AxisStates) -> int:
        return self.numbers.setdefault((value, states), len(self.numbers))


def body_of(problem: Problem, plan: ShardingPlan, function: FuncOp) -> Body:
    found, prices = Body(), problem.prices
    for argument in function.body.block.args:
        found.number(argument, plan.arguments[argument])
    for op in function.body.block.ops:
        if is_constant(op):
            continue
        operands: list[int] = []
        restated = plan.options[op].price.restated if op in plan.options else ()
        for i, (value, needed) in enumerate(zip(values_read(op), needed_by(problem, plan, function, op), strict=True)):
            if i in restated:
                continue
            source = produced(problem, plan, value)
            if (value, source) not in found.numbers:
                number = found.number(value, source)
                found.steps.append(Statement(value, number, prices.bytes(value.type, source)))
            if (value, needed) not in found.numbers:
                conversion = prices.conversion(value.type, source, needed)
                assert conversion is not None
                ends = found.number(value, source), found.number(value, needed)
                found.steps.append(Reshard(op, i, value, *ends, prices.bytes(value.type, needed), conversion))
            operands.append(found.number(value, needed))
        if isinstance(op, ReturnOp):
            found.returned = tuple(operands)
        elif isinstance(op, AnyCall):
            states = plan.results[op.callee.string_value()]
            numbers = tuple((found.number(r, s or ()), 0, r) for r, s in zip(op.results, states, strict=True))
            found.steps.append(Run(op, tuple(operands), numbers, False, Extra()))
        else:
            option = plan.options[op]
            numbers = tuple(
                (found.number(r, s), prices.bytes(r.type, s), r)
                for r, s in zip(op.results, option.results, strict=True)
            )
            extra = extra_memory(problem, op, option, restated)
            found.steps.append(Run(op, tuple(operands), numbers, shares_memory(op), extra))
    return found


@dataclass
class Walk:
    """Of one run of a program."""

    problem: Problem
    plan: ShardingPlan
    storages: list[Storage] = field(default_factory=list[Storage])
    points: list[Point] = field(default_factory=list[Point])
    extras: dict[int, Extra] = field(default_factory=dict[int, Extra])
    conversions: dict[int, Conversion] = field(default_factory=dict[int, Conversion])
    bodies: dict[str, Body] = field(default_factory=dict[str, Body])
    stated: set[int] = field(default_factory=set[int])
    """Storages of constants, which are there before the step that states them: it may also be their last."""

    def allocate(self, value: SSAValue, size: int) -> int:
        now = len(self.points)
        self.storages.append(Storage(size, now, now, value))
        return len(self.storages) - 1

    def add_point(self, path: tuple[AnyCall, ...], operation: Operation, operand: int | None) -> None:
        self.points.append(Point(path, operation, operand))

    def use(self, number: int) -> None:
        if number == ZERO:
            return
        storage = self.storages[number]
        storage.last_use = max(storage.last_use, len(self.points))

    def entry(self) -> Footprint:
        """Executes the entry, whose arguments and results stay."""
        entry, prices = self.problem.entry, self.problem.prices
        arguments = [self.allocate(a, prices.bytes(a.type, self.plan.arguments[a])) for a in entry.body.block.args]
        results = self.run(entry, arguments, ())
        for number in (*arguments, *results):
            self.storages[number].last_use = FOREVER
        attributes = argument_attributes(entry)
        for index, argument in self.problem.tied.items():
            role = text(attributes[argument.index], "dist.role", "input")
            if role in ("parameter", "state") and results[index] not in arguments:
                self.storages[results[index]].bytes = 0
        return self.footprint()

    def run(self, function: FuncOp, arguments: Sequence[int], path: tuple[AnyCall, ...]) -> list[int]:
        """Executes a body; returns the storages of its results."""
        name = function.sym_name.data
        if name not in self.bodies:
            self.bodies[name] = body_of(self.problem, self.plan, function)
        body = self.bodies[name]
        held = [*arguments, *(-1 for _ in range(len(body.numbers) - len(arguments)))]
        for step in body.steps:
            if isinstance(step, Statement):
                held[step.number] = self.allocate(step.value, step.bytes)
                self.stated.add(held[step.number])
                continue
            op = step.operation
            if isinstance(step, Reshard):
                if held[step.source] == ZERO:
                    held[step.target] = ZERO
                    continue
                if step.conversion.uses_source:
                    self.use(held[step.source])
                is_alias = step.conversion.keeps_source
                held[step.target] = held[step.source] if is_alias else self.allocate(step.value, step.bytes)
                self.conversions[len(self.points)] = step.conversion
                self.add_point(path, op, step.operand)
            elif isinstance(op, AnyCall):
                given = [held[number] for number in step.operands]
                results = self.run(self.problem.callee(op), given, (*path, op))
                for (number, _, _), storage in zip(step.results, results, strict=True):
                    held[number] = storage
            elif (left := left_of_sum(op, [held[number] for number in step.operands])) is not None:
                held[step.results[0][0]] = left
            else:
                for number in step.operands:
                    self.use(held[number])
                for number, size, value in step.results:
                    held[number] = held[step.operands[0]] if step.shares_memory else self.allocate(value, size)
                self.extras[len(self.points)] = step.extra
                self.add_point(path, op, None)
        return [held[number] for number in body.returned]

    def footprint(self) -> Footprint:
        return Footprint(self.points, self.bytes_over(self.storages), self.storages)

    def bytes_over(self, storages: Iterable[Storage], already: int = 0) -> Array:
        """Bytes at each step, with so many that are there in any case. What is there from before the first step has a birth less than 0."""
        import numpy as np

        count = len(self.points)
        changes, freed = np.zeros(count + 2, dtype=np.int64), np.zeros(count + 1, dtype=np.int64)
        stated = {id(self.storages[number]) for number in self.stated}
        for storage in storages:
            changes[min(max(storage.birth, 0), count)] += storage.bytes
            if storage.last_use < count:
                changes[storage.last_use + 1] -= storage.bytes
                if storage.birth < storage.last_use or id(storage) in stated:
                    freed[storage.last_use] += storage.bytes
        found = changes[:count].cumsum() + already
        for step, extra in self.extras.items():
            found[step] += extra.at_most(int(freed[step]))
        for step, conversion in self.conversions.items():
            found[step] += conversion.last_bytes if freed[step] else conversion.transient_bytes
        return found
