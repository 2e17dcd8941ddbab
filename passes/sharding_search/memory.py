"""How much memory a plan needs, as the simulator counts it on the program that the plan becomes.

The walk follows `apply-sharding` without building anything: every conversion allocates its result where it is first needed
and holds it until its last use, calls are entered, views share their operand's memory, and a result that updates an
argument shares the argument's. Cost: one step per executed operation, on one device."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import NamedTuple

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue

from distir.dialects.dist import MicrobatchesOp
from distir.dialects.sharding import Windowed
from distir.interpreters.work import is_view, type_bytes
from distir.passes.distribution.mesh import AxisStates
from distir.passes.distribution.positions import positions_of
from distir.passes.sharding_search.plans import Plan, needed_by, produced
from distir.passes.sharding_search.prices import Conversion
from distir.passes.sharding_search.problem import JointOption, Problem
from distir.passes.structure import AnyCall, argument_attributes, is_constant, text

FOREVER = 1 << 62


class Point(NamedTuple):
    """A place in an execution: the calls entered, the operation, and which of its operands is being converted (None: the
    operation runs)."""

    path: tuple[AnyCall, ...]
    operation: Operation
    operand: int | None

    @property
    def place(self) -> tuple[Operation, int | None]:
        return self.operation, self.operand


@dataclass(slots=True)
class Storage:
    """Bytes on one device from a step to a step."""

    bytes: int
    birth: int
    last_use: int
    what: SSAValue


@dataclass
class Footprint:
    """Memory over the steps of one run."""

    points: list[Point]
    totals: list[int]
    storages: list[Storage]

    @property
    def peak_bytes(self) -> int:
        return max(self.totals, default=0)

    def worst(self, above: int, count: int) -> list[Point]:
        """The points that need more than `above` bytes, the worst first, each place of the program once."""
        found: dict[tuple[Operation, int | None], Point] = {}
        order = sorted((i for i, total in enumerate(self.totals) if total > above), key=lambda i: -self.totals[i])
        for i in order:
            found.setdefault(self.points[i].place, self.points[i])
            if len(found) == count:
                break
        return list(found.values())

    def live_at_peak(self) -> list[Storage]:
        """What the peak consists of, the largest first."""
        step = self.totals.index(self.peak_bytes)
        live = [s for s in self.storages if s.birth <= step <= s.last_use and s.bytes]
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
    return replace(found, running=found.running + sum(type_bytes(op.operands[i].type) for i in restated))


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
    replaced = sum(prices.bytes(op.operands[i].type, option.operands[i]) for i in positions.replaces)
    return Extra(max(running + replaced, after))  # what is masked afterwards needs the operands


def surely_freed(op: Operation, option: JointOption) -> dict[int, AxisStates]:
    """The operands, with their states, of which nothing is left after an operation whatever other operations do: results, or windows
    on anything, that it alone uses."""
    found: dict[int, AxisStates] = {}
    for i, (value, states) in enumerate(zip(op.operands, option.operands, strict=True)):
        is_copy = any(isinstance(s, Windowed) for s in states)
        if value.uses.get_length() == 1 and (is_copy or has_own_memory(value)):
            found[i] = states
    return found


def has_own_memory(value: SSAValue) -> bool:
    """Whether a value is what an operation computes, and no view of another."""
    return isinstance(value, OpResult) and not isinstance(value.op, AnyCall) and not is_view(value.op)


def least_extra(problem: Problem, op: Operation, option: JointOption) -> int:
    """What an operation needs for a moment, as far as one option tells."""
    freed = surely_freed(op, option)
    sizes = [problem.prices.bytes(op.operands[i].type, states) for i, states in freed.items()]
    beside = [i for i in option.price.restated if op.operands[i].uses.get_length() > 1]
    return extra_memory(problem, op, option, beside).at_most(sum(sizes))


def footprint(problem: Problem, plan: Plan) -> Footprint:
    """Walks one run of the entry: on the device in the middle of the mesh, which has the largest shard of everything, and on others
    where conversions differ in whether they need a value any more."""
    walk = _Walk(problem, plan)
    found = walk.entry()
    others: dict[int, set[int]] = {axis: {middle} for axis, middle in enumerate(problem.prices.coordinates)}
    for axis, coordinate in (apart for conversion in walk.conversions.values() for apart in conversion.apart):
        others[axis].add(coordinate)
    for coordinates in product(*others.values()):
        if coordinates != problem.prices.coordinates:
            there = _Walk(replace(problem, prices=problem.prices.at(coordinates)), plan).entry()
            totals = list(map(max, found.totals, there.totals))
            found = Footprint(found.points, totals, max(found, there, key=lambda one: one.peak_bytes).storages)
    return found


@dataclass(frozen=True)
class _Conversion:
    """Of an operand, where it is first needed so; values in some states are numbered within a body."""

    operation: Operation
    operand: int
    value: SSAValue
    source: int
    target: int
    bytes: int
    conversion: Conversion


@dataclass(frozen=True)
class _Statement:
    """A constant, where it is first used."""

    value: SSAValue
    number: int
    bytes: int


@dataclass(frozen=True)
class _Run:
    """An operation or a call."""

    operation: Operation
    operands: tuple[int, ...]
    """Without constants that it restates."""
    results: tuple[tuple[int, int, SSAValue], ...]
    """The number of each, its bytes (none of a call's), and what it is."""
    is_view: bool
    extra: Extra


@dataclass
class _Body:
    """A function as a plan executes it, the same at every call."""

    steps: list[_Conversion | _Statement | _Run] = field(default_factory=list["_Conversion | _Statement | _Run"])
    numbers: dict[tuple[SSAValue, AxisStates], int] = field(default_factory=dict[tuple[SSAValue, AxisStates], int])
    returned: tuple[int, ...] = ()

    def number(self, value: SSAValue, states: AxisStates) -> int:
        return self.numbers.setdefault((value, states), len(self.numbers))


def _body(problem: Problem, plan: Plan, function: FuncOp) -> _Body:
    found, prices = _Body(), problem.prices
    for argument in function.body.block.args:
        found.number(argument, plan.arguments[argument])
    for op in function.body.block.ops:
        if is_constant(op):
            continue
        operands: list[int] = []
        restated = plan.options[op].price.restated if op in plan.options else ()
        for i, (value, needed) in enumerate(zip(op.operands, needed_by(problem, plan, function, op), strict=True)):
            if i in restated:
                continue
            source = produced(problem, plan, value)
            if (value, source) not in found.numbers:
                number = found.number(value, source)
                found.steps.append(_Statement(value, number, prices.bytes(value.type, source)))
            if (value, needed) not in found.numbers:
                conversion = prices.conversion(value.type, source, needed)
                assert conversion is not None
                ends = found.number(value, source), found.number(value, needed)
                found.steps.append(_Conversion(op, i, value, *ends, prices.bytes(value.type, needed), conversion))
            operands.append(found.number(value, needed))
        if isinstance(op, ReturnOp):
            found.returned = tuple(operands)
        elif isinstance(op, AnyCall):
            states = plan.results[op.callee.string_value()]
            numbers = tuple((found.number(r, s or ()), 0, r) for r, s in zip(op.results, states, strict=True))
            found.steps.append(_Run(op, tuple(operands), numbers, False, Extra()))
        else:
            option = plan.options[op]
            numbers = tuple(
                (found.number(r, s), prices.bytes(r.type, s), r)
                for r, s in zip(op.results, option.results, strict=True)
            )
            extra = extra_memory(problem, op, option, restated)
            found.steps.append(_Run(op, tuple(operands), numbers, is_view(op), extra))
    return found


@dataclass
class _Walk:
    problem: Problem
    plan: Plan
    storages: list[Storage] = field(default_factory=list[Storage])
    points: list[Point] = field(default_factory=list[Point])
    transients: list[int] = field(default_factory=list[int])
    extras: dict[int, Extra] = field(default_factory=dict[int, Extra])
    conversions: dict[int, Conversion] = field(default_factory=dict[int, Conversion])
    bodies: dict[str, _Body] = field(default_factory=dict[str, _Body])
    stated: set[int] = field(default_factory=set[int])
    """Storages of constants, which are there before the step that states them: it may also be their last."""

    def allocate(self, value: SSAValue, size: int) -> int:
        now = len(self.points)
        self.storages.append(Storage(size, now, now, value))
        return len(self.storages) - 1

    def use(self, number: int) -> None:
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
            self.bodies[name] = _body(self.problem, self.plan, function)
        body = self.bodies[name]
        held = [*arguments, *(-1 for _ in range(len(body.numbers) - len(arguments)))]
        for step in body.steps:
            if isinstance(step, _Statement):
                held[step.number] = self.allocate(step.value, step.bytes)
                self.stated.add(held[step.number])
                continue
            op = step.operation
            if isinstance(step, _Conversion):
                if step.conversion.uses_source:
                    self.use(held[step.source])
                is_alias = step.conversion.keeps_source
                held[step.target] = held[step.source] if is_alias else self.allocate(step.value, step.bytes)
                self.conversions[len(self.points)] = step.conversion
                self.points.append(Point(path, op, step.operand))
                self.transients.append(0)
            elif isinstance(op, AnyCall):
                given = [held[number] for number in step.operands]
                if isinstance(op, MicrobatchesOp):
                    results = self.loop(op, given, path)
                else:
                    results = self.run(self.problem.callee(op), given, (*path, op))
                for (number, _, _), storage in zip(step.results, results, strict=True):
                    held[number] = storage
            else:
                for number in step.operands:
                    self.use(held[number])
                for i, (number, size, value) in enumerate(step.results):
                    is_alias = step.is_view and i == 0
                    held[number] = held[step.operands[0]] if is_alias else self.allocate(value, size)
                self.extras[len(self.points)] = step.extra
                self.points.append(Point(path, op, None))
                self.transients.append(0)
        return [held[number] for number in body.returned]

    def loop(self, op: MicrobatchesOp, given: Sequence[int], path: tuple[AnyCall, ...]) -> list[int]:
        """Executes one of several microbatches: there is another one after it, for which what it was given is there, and what is carried
        there. The first, which adds to no sums, and the last need no more, and may need less."""
        callee = self.problem.callee(op)
        counter = self.allocate(callee.body.block.args[-1], 0)
        results = self.run(callee, [*given, counter], (*path, op))
        for number in (*given[: len(op.same)], *results):
            storage = self.storages[number]
            storage.last_use = max(storage.last_use, len(self.points) - 1)
        return results

    def footprint(self) -> Footprint:
        changes, freed = [0] * (len(self.points) + 1), [0] * len(self.points)
        for number, storage in enumerate(self.storages):
            changes[min(storage.birth, len(self.points))] += storage.bytes
            if storage.last_use < len(self.points):
                changes[storage.last_use + 1] -= storage.bytes
                is_operand = storage.birth < storage.last_use or number in self.stated
                freed[storage.last_use] += storage.bytes if is_operand else 0
        for step, extra in self.extras.items():
            self.transients[step] = extra.at_most(freed[step])
        for step, conversion in self.conversions.items():
            self.transients[step] = conversion.last_bytes if freed[step] else conversion.transient_bytes
        totals: list[int] = []
        live = 0
        for change, transient in zip(changes, self.transients, strict=False):
            live += change
            totals.append(live + transient)
        return Footprint(self.points, totals, self.storages)
