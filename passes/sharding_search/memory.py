"""How much memory a plan needs, as the simulator counts it on the program that the plan becomes.

The walk follows `apply-sharding` without building anything: every conversion allocates its result where it is first needed
and holds it until its last use, calls are entered, views share their operand's memory, and a result that updates an
argument shares the argument's. Cost: one step per executed operation, on one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from distir.interpreters.work import is_view, type_bytes
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding_search.plans import Plan, produced, returned
from distir.passes.sharding_search.problem import JointOption, Problem
from distir.passes.structure import argument_attributes, text

FOREVER = 1 << 62


@dataclass(frozen=True)
class Point:
    """A place in an execution: the calls entered, the operation, and which of its operands is being converted (None: the
    operation runs)."""

    path: tuple[CallOp, ...]
    operation: Operation
    operand: int | None

    @property
    def place(self) -> tuple[Operation, int | None]:
        return self.operation, self.operand


@dataclass
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
    """Memory of what an operation computes beside its results: local means, beside the addends that they are scaled to, and
    results with the margins that are then sliced off."""

    running: int = 0
    """While it runs, beside its operands and results."""
    after: int = 0
    """While results are scaled and sliced, beside them; operands that nothing else needs are gone by then."""

    def at_most(self, freed: int = 0) -> int:
        """The larger of both, where operands of so many bytes are gone."""
        return max(self.running, self.after - freed)


def extra_memory(problem: Problem, op: Operation, option: JointOption) -> Extra:
    """What an operation needs for a moment by one option."""
    prices, running, after = problem.prices, 0, 0
    means, margins = {i for o in option.options for i in o.means}, prices.margins(op, option.options)
    for i, result in enumerate(op.results):
        if i not in means and i not in margins:
            continue
        type_, kept = result.type, prices.bytes(result.type, option.results[i])
        wide = prices.local_type(type_, option.results[i])
        for margin in margins.get(i, ()):
            wide = margin.widened(wide)
        running += type_bytes(wide) - kept
        after += type_bytes(wide)
    return Extra(running, after)


def footprint(problem: Problem, plan: Plan) -> Footprint:
    """Walks one run of the entry."""
    walk = _Walk(problem, plan)
    entry = problem.entry
    arguments = [walk.allocate(a, plan.arguments[a]) for a in entry.body.block.args]
    for number in arguments:
        walk.storages[number].last_use = FOREVER
    results = walk.run(entry, arguments, ())
    for number in results:
        walk.storages[number].last_use = FOREVER
    attributes = argument_attributes(entry)
    for index, argument in problem.tied.items():
        role = text(attributes[argument.index], "dist.role", "input")
        if role in ("parameter", "state") and results[index] not in arguments:
            walk.storages[results[index]].bytes = 0
    return walk.footprint()


@dataclass
class _Walk:
    problem: Problem
    plan: Plan
    storages: list[Storage] = field(default_factory=list[Storage])
    points: list[Point] = field(default_factory=list[Point])
    transients: list[int] = field(default_factory=list[int])
    extras: dict[int, Extra] = field(default_factory=dict[int, Extra])

    def allocate(self, value: SSAValue, states: AxisStates) -> int:
        now = len(self.points)
        self.storages.append(Storage(self.problem.prices.bytes(value.type, states), now, now, value))
        return len(self.storages) - 1

    def step(self, path: tuple[CallOp, ...], op: Operation, operand: int | None, transient: int) -> None:
        self.points.append(Point(path, op, operand))
        self.transients.append(transient)

    def use(self, number: int) -> None:
        self.storages[number].last_use = max(self.storages[number].last_use, len(self.points))

    def run(self, function: FuncOp, arguments: Sequence[int], path: tuple[CallOp, ...]) -> list[int]:
        """Executes a body; returns the storages of its results."""
        problem, plan = self.problem, self.plan
        held: dict[tuple[SSAValue, AxisStates], int] = {
            (argument, plan.arguments[argument]): number
            for argument, number in zip(function.body.block.args, arguments, strict=True)
        }
        for op in function.body.block.ops:
            operands: list[int] = []
            for i, value in enumerate(op.operands):
                needed = self.needed(function, op, i, value)
                if (value, needed) not in held:
                    source = produced(problem, plan, value)
                    conversion = problem.prices.conversion(value.type, source, needed)
                    assert conversion is not None
                    self.use(held[value, source])
                    held[value, needed] = self.allocate(value, needed)
                    self.step(path, op, i, conversion.transient_bytes)
                operands.append(held[value, needed])
            if isinstance(op, ReturnOp):
                return operands
            if isinstance(op, CallOp):
                results = self.run(problem.callee(op), operands, (*path, op))
                states = plan.results[op.callee.string_value()]
                held.update(((r, s or ()), n) for r, s, n in zip(op.results, states, results, strict=True))
                continue
            option = plan.options[op]
            for number in operands:
                self.use(number)
            for i, (result, states) in enumerate(zip(op.results, option.results, strict=True)):
                held[result, states] = operands[0] if is_view(op) and i == 0 else self.allocate(result, states)
            self.extras[len(self.points)] = extra_memory(problem, op, option)
            self.step(path, op, None, 0)
        return []

    def needed(self, function: FuncOp, op: Operation, index: int, value: SSAValue) -> AxisStates:
        if isinstance(op, ReturnOp):
            return returned(self.problem, self.plan, function, index, value)
        if isinstance(op, CallOp):
            return self.plan.arguments[self.problem.callee(op).body.block.args[index]]
        return self.plan.options[op].operands[index]

    def footprint(self) -> Footprint:
        changes, freed = [0] * (len(self.points) + 1), [0] * len(self.points)
        for storage in self.storages:
            changes[min(storage.birth, len(self.points))] += storage.bytes
            if storage.last_use < len(self.points):
                changes[storage.last_use + 1] -= storage.bytes
                freed[storage.last_use] += storage.bytes if storage.birth < storage.last_use else 0
        for step, extra in self.extras.items():
            self.transients[step] = extra.at_most(freed[step])
        totals: list[int] = []
        live = 0
        for change, transient in zip(changes, self.transients, strict=False):
            live += change
            totals.append(live + transient)
        return Footprint(self.points, totals, self.storages)
