"""Plans: the option of every operation, and the states in which functions pass values. In goes a plan; out come its
uses and reshards, its cost without a solver, and the program annotated with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.sharding import MeshOp, ShardingAttr, StrategyAttr
from distir.interpreters.walk import values_read
from distir.passes.distribution.lower import SHARDING, STRATEGY
from distir.passes.distribution.mesh import AxisStates
from distir.passes.distribution.pins import FORBID, STORED
from distir.passes.sharding.division import stored_picoseconds
from distir.passes.sharding.prices import Conversion
from distir.passes.sharding.problem import JointOption, Problem
from distir.passes.structure import AnyCall, argument_attributes, is_constant, parameters, result_attributes, shape_of

MESH = "mesh"


@dataclass
class ShardingPlan:
    """One solution of a problem."""

    options: dict[Operation, JointOption]
    arguments: dict[BlockArgument, AxisStates]
    results: dict[str, list[AxisStates | None]]
    """Per function; of the entry, None for a result that leaves as it was produced."""


def made_by(problem: Problem, plan: ShardingPlan, function: FuncOp) -> list[object]:
    """What tells a plan of a function, and of those that it calls, from another one's: options, and states that are passed."""
    found: list[object] = [plan.arguments[argument] for argument in function.body.block.args]
    for op in function.body.block.ops:
        if isinstance(op, AnyCall):
            found += made_by(problem, plan, problem.callee(op))
        elif (option := plan.options.get(op)) is not None:
            found.append(option)
    return [*found, plan.results[function.sym_name.data]]


@dataclass(frozen=True)
class Need:
    """One use of a value: the states in which an operation needs it."""

    operation: Operation
    index: int
    states: AxisStates


def produced(problem: Problem, plan: ShardingPlan, value: SSAValue) -> AxisStates:
    """The states in which a value comes to be."""
    if isinstance(value, BlockArgument):
        return plan.arguments[value]
    assert isinstance(value, OpResult)
    op, index = value.op, value.index
    if isinstance(op, AnyCall):
        states = plan.results[op.callee.string_value()][index]
        assert states is not None
        return states
    return problem.prices.whole if is_constant(op) else plan.options[op].results[index]


def needs(problem: Problem, plan: ShardingPlan, function: FuncOp) -> Iterator[tuple[SSAValue, Need]]:
    """Every use in a body, in program order."""
    for op in function.body.block.ops:
        for i, (value, states) in enumerate(zip(values_read(op), needed_by(problem, plan, function, op), strict=True)):
            yield value, Need(op, i, states)


def needed_by(problem: Problem, plan: ShardingPlan, function: FuncOp, op: Operation) -> Sequence[AxisStates]:
    """The states in which an operation of a function needs its operands."""
    if isinstance(op, ReturnOp):
        return [returned(problem, plan, function, i, value) for i, value in enumerate(op.operands)]
    if isinstance(op, AnyCall):
        return [plan.arguments[argument] for argument in parameters(op, problem.callee(op))]
    return plan.options[op].operands if values_read(op) else ()


def returned(problem: Problem, plan: ShardingPlan, function: FuncOp, index: int, value: SSAValue) -> AxisStates:
    """The states in which a function returns a result."""
    states = plan.results[function.sym_name.data][index]
    if states is None:
        states = problem.leaving(produced(problem, plan, value))
        assert states is not None, "a search leaves no result of the entry that cannot leave"
    return states


def conversions(problem: Problem, plan: ShardingPlan, function: FuncOp) -> Iterator[tuple[SSAValue, Need, Conversion]]:
    """Every conversion in a body, at the use for which it is made."""
    held: dict[SSAValue, set[AxisStates]] = defaultdict(set)
    for value, need in needs(problem, plan, function):
        source = produced(problem, plan, value)
        if need.states == source or need.states in held[value]:
            continue
        held[value].add(need.states)
        conversion = problem.prices.conversion(value.type, source, need.states)
        if conversion is None:
            raise DistirError(f"no collectives take a value of type {value.type} from {source} to {need.states}")
        yield value, need, conversion


def picoseconds(problem: Problem, plan: ShardingPlan) -> int:
    """The time of one run of the entry, each stage on one stream: options and conversions, as often as their functions run; of several stages,
    those on the longest path."""
    if problem.order is not None:
        return _pipeline_time(problem, plan).longest()[0]
    total = 0
    for function in problem.functions:
        operations = [op for op in function.body.block.ops if op in plan.options]
        total += sum(problem.runs(op, function) * plan.options[op].picoseconds for op in operations)
        once = sum(conversion.picoseconds for _, _, conversion in conversions(problem, plan, function))
        total += problem.counts[function.sym_name.data] * once
    return total


def cost(problem: Problem, plan: ShardingPlan) -> int:
    """What adds up in a search: that time, of several stages that of all together; and where dividing counts first, what the work and the stored
    values of a device cost."""
    total = picoseconds(problem, plan) if problem.order is None else _every_stage(problem, plan)
    for function in problem.functions:
        operations = [op for op in function.body.block.ops if op in plan.options]
        total += sum(problem.runs(op, function) * plan.options[op].work_picoseconds for op in operations)
    return total + sum(stored_picoseconds(problem, a, plan.arguments[a]) for a in problem.stored)


def _every_stage(problem: Problem, plan: ShardingPlan) -> int:
    from distir.passes.sharding.path_weights import every_stage

    time = _pipeline_time(problem, plan)
    stages: Any = every_stage
    return sum(times * time.along(path) for path, times in stages(problem))


def _pipeline_time(problem: Problem, plan: ShardingPlan) -> Any:
    """A `PipelineTime`, which is made of plans."""
    from distir.passes.sharding import pipeline_time

    time: Any = pipeline_time.PipelineTime
    return time(problem, plan)


def annotate(problem: Problem, plan: ShardingPlan) -> None:
    """Writes a plan into the program: `dist.mesh`, `dist.strategy` on operations, `dist.sharding` on arguments and
    results. Pins are part of it or satisfied, and go."""
    mesh = problem.prices.mesh
    block = problem.module.body.block
    for op in list(block.ops):
        if isinstance(op, MeshOp):
            block.erase_op(op)
    first = block.first_op
    mesh_op = MeshOp(MESH, dict(mesh.axes))
    if first is None:
        block.add_op(mesh_op)
    else:
        block.insert_op_before(mesh_op, first)
    for op, option in plan.options.items():
        op.attributes.pop(FORBID, None)
        if values_read(op) or not is_constant(op):
            choices = {axis: o.choice for (axis, _), o in zip(mesh.axes, option.options, strict=True)}
            op.attributes[STRATEGY] = StrategyAttr.of(MESH, choices)
    for function in problem.functions:
        arguments = [dict(known) for known in argument_attributes(function)]
        for attributes, argument in zip(arguments, function.body.block.args, strict=True):
            attributes.pop(FORBID, None)
            attributes.pop(STORED, None)
            attributes[SHARDING] = _sharding(problem, argument, plan.arguments[argument])
        function.arg_attrs = ArrayAttr([DictionaryAttr(a) for a in arguments])
        last = function.body.block.last_op
        values: Sequence[SSAValue] = last.operands if last is not None else ()
        results = [dict(known) for known in result_attributes(function)]
        for i, (attributes, value) in enumerate(zip(results, values, strict=True)):
            attributes.pop(FORBID, None)
            attributes[SHARDING] = _sharding(problem, value, returned(problem, plan, function, i, value))
        function.res_attrs = ArrayAttr([DictionaryAttr(a) for a in results])


def _sharding(problem: Problem, value: SSAValue, states: AxisStates) -> ShardingAttr:
    axes = (axis for axis, _ in problem.prices.mesh.axes)
    return ShardingAttr.of(MESH, len(shape_of(value)), dict(zip(axes, states, strict=True)))
