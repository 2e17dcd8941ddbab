"""Why a plan is as it is. In go a problem, its result and names of values; out comes text: the best cost of each
alternative, the memory constraints that bind, and how two plans differ.

An alternative's cost is that of the best plan that takes it: the problem is solved again with the choice fixed, so what it
forces elsewhere is in the figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.sharding import Partial, Replicate, Replicated, Sharded, UseFactor, UsePartial, Windowed
from distir.passes.distribution.mesh import AxisStates
from distir.passes.distribution.options import Option
from distir.passes.sharding.beam import Beam
from distir.passes.sharding.plans import ShardingPlan, conversions
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.result import Result
from distir.passes.sharding.search import best_plan
from distir.passes.solver.deadline import NEVER, Deadline, OutOfTime
from distir.passes.structure import argument_attributes, shape_of

EXPLANATION = "dist.explanation"
"""The module attribute that keeps a plan's explanation, for reports of the program that the plan becomes: its lines."""
OTHER_WIDTH = 16
"""Of the beam search whose plan is compared where no limit binds."""


def explanation(
    problem: Problem,
    result: Result,
    names: Sequence[str],
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
) -> list[str]:
    """Why a plan is what it is, in lines: the alternatives of values, what binds, and what another plan does differently: the
    fastest without a limit where the limit shaped this one, else that of a beam search; what is not known by the deadline is left out.
    Raises DistirError for unknown names."""
    lines: list[str] = []
    for name in names:
        lines += alternatives(problem, result, name, memory_limit, deadline)
    lines += memory_lines(problem, result, memory_limit)
    try:
        if result.binding:
            what, other = "the fastest plan without a limit", best_plan(problem, None, deadline)
        else:
            what = f"the plan of a beam search of width {OTHER_WIDTH}"
            other = Beam(problem, OTHER_WIDTH, deadline=deadline).search()
    except (DistirError, OutOfTime):
        return [*lines, "no other plan was found in time"]
    more = (other.seconds - result.seconds) * 1e6
    lines.append(f"this plan | {what}, {more:+.3f} us, {other.memory.peak_bytes} bytes")
    return [*lines, *(f"  {line}" for line in difference(problem, result.plan, other.plan).splitlines())]


def explain(problem: Problem, result: Result, name: str, memory_limit: int | None = None) -> str:
    """The alternatives of a value, and what binds."""
    return "\n".join([*alternatives(problem, result, name, memory_limit), *memory_lines(problem, result, memory_limit)])


def alternatives(
    problem: Problem, result: Result, name: str, memory_limit: int | None = None, deadline: Deadline = NEVER
) -> list[str]:
    """The alternatives of the value of this name (an argument's `dist.name`, or how the text calls it), cheapest first. Raises
    DistirError if no value has the name."""
    value = find(problem, name)
    lines = [f"{name}: {value.type}, {result.seconds * 1e6:.3f} us a run as chosen"]
    lines += _argument_lines(problem, result, value, memory_limit, deadline) if isinstance(value, BlockArgument) else []
    if not isinstance(value, BlockArgument) and isinstance(value.owner, Operation):
        lines += _operation_lines(problem, result, value.owner, memory_limit, deadline)
    return lines


def find(problem: Problem, name: str) -> SSAValue:
    """The value of a name: an argument of the entry, then any argument or result."""
    entry = problem.entry
    for argument, attributes in zip(entry.body.block.args, argument_attributes(entry), strict=True):
        given = attributes.get("dist.name")
        if isinstance(given, StringAttr) and given.data == name:
            return argument
    names: list[str] = []
    for value in _values(problem):
        if value.name_hint == name:
            return value
        names += [value.name_hint] if value.name_hint else []
    raise DistirError(f"explain: no value is called '{name}'; some are {', '.join(list(dict.fromkeys(names))[:8])}")


def _values(problem: Problem) -> Iterator[SSAValue]:
    for function in reversed(problem.functions):
        yield from function.body.block.args
        for op in function.body.block.ops:
            if op in problem.options:
                yield from op.results


def _operation_lines(
    problem: Problem, result: Result, op: Operation, limit: int | None, deadline: Deadline
) -> list[str]:
    kept = problem.options[op]
    found: list[tuple[float, str]] = []
    for option in kept:
        problem.options[op] = [option]
        text = describe_choices(problem, option.options) + f", {option.picoseconds * 1e-6:.3f} us of its own"
        found.append((_seconds(problem, limit, deadline), text + _mark(option is result.plan.options[op])))
    problem.options[op] = kept
    where = f"{op.name} of {[list(shape_of(v)) for v in op.operands]}, run {_count(problem, op)} times"
    return [where, *_ranked(found, result.seconds)]


def _argument_lines(
    problem: Problem, result: Result, argument: BlockArgument, limit: int | None, deadline: Deadline
) -> list[str]:
    kept = problem.arguments[argument]
    found: list[tuple[float, str]] = []
    for states in kept:
        problem.arguments[argument] = [states]
        size = problem.prices.bytes(argument.type, states)
        text = f"{describe(problem, states)}, {size} bytes per device" + _mark(
            states == result.plan.arguments[argument]
        )
        found.append((_seconds(problem, limit, deadline), text))
    problem.arguments[argument] = kept
    return _ranked(found, result.seconds)


def _seconds(problem: Problem, limit: int | None, deadline: Deadline) -> float:
    """The time of the best plan of a narrowed problem; infinite if there is none (that is found in time)."""
    try:
        return float("inf") if deadline.is_over else best_plan(problem, limit, deadline).seconds
    except DistirError:
        return float("inf")


def _mark(is_chosen: bool) -> str:
    return " (chosen)" if is_chosen else ""


def _ranked(found: list[tuple[float, str]], best: float) -> list[str]:
    lines: list[str] = []
    for seconds, text in sorted(found, key=lambda item: item[0]):
        more = "no plan found" if seconds == float("inf") else f"+{max(0.0, seconds - best) * 1e6:.3f} us"
        lines.append(f"  {more:>16}  {text}")
    return lines


def _count(problem: Problem, op: Operation) -> int:
    function = op.parent_op()
    assert isinstance(function, FuncOp)
    return problem.runs(op, function)


def memory_lines(problem: Problem, result: Result, limit: int | None) -> list[str]:
    """What the peak consists of, and the program points at which the limit shaped the plan."""
    (worst,) = result.memory.worst(-1, 1)
    lines = [f"memory: {result.memory.peak_bytes} bytes at {worst.operation.name}"]
    if limit is not None:
        lines[0] += f" of {limit}"
    for storage in result.memory.live_at_peak()[:5]:
        called = f"%{storage.what.name_hint} " if storage.what.name_hint else ""
        lines.append(f"  {storage.bytes:>12} bytes  {called}{storage.what.type}")
    for i, point in enumerate(result.binding):
        worth = f": a MB more saves about {result.prices[i] * 1e12:.3f} us" if any(result.prices[i : i + 1]) else ""
        lines.append(f"  binding at {point.operation.name}, {len(point.path)} calls deep{worth}")
    if not result.binding:
        lines.append("  no memory constraint binds: the plan is the fastest without one")
    return lines


def difference(problem: Problem, one: ShardingPlan, other: ShardingPlan) -> str:
    """What two plans of a problem do differently: operations, arguments, and what conversions each of them pays."""
    lines: list[str] = []
    for op, option in one.options.items():
        if option.options != other.options[op].options:
            name = f"%{op.results[0].name_hint} " if op.results and op.results[0].name_hint else ""
            here, there = (describe_choices(problem, p.options[op].options) for p in (one, other))
            lines.append(f"{name}{op.name}: {here} | {there}")
    for argument, states in one.arguments.items():
        if states != other.arguments[argument]:
            here, there = describe(problem, states), describe(problem, other.arguments[argument])
            lines.append(f"%{argument.name_hint or argument.index}: {here} | {there}")
    paid = [
        sum(
            problem.counts[f.sym_name.data] * c.picoseconds
            for f in problem.functions
            for _, _, c in conversions(problem, p, f)
        )
        for p in (one, other)
    ]
    return "\n".join([*lines, f"conversions: {paid[0] * 1e-6:.3f} us | {paid[1] * 1e-6:.3f} us"])


def describe(problem: Problem, states: AxisStates) -> str:
    """States in words, axis by axis."""
    words: list[str] = []
    for (axis, _), state in zip(problem.prices.mesh.axes, states, strict=True):
        match state:
            case Replicated():
                words.append(f"whole on {axis}")
            case Sharded(dim, pieces):
                words.append(f"dim {dim} cut by {axis}" + (f" in pieces {list(pieces)}" if len(pieces) > 1 else ""))
            case Partial(reduction):
                words.append(f"partial {reduction} on {axis}")
            case Windowed(dim):
                words.append(f"dim {dim} cut by {axis} with halos")
    return ", ".join(words)


def describe_choices(problem: Problem, chosen: tuple[Option, ...]) -> str:
    """An operation's choices in words, axis by axis."""
    words: list[str] = []
    for (axis, _), option in zip(problem.prices.mesh.axes, chosen, strict=True):
        match option.choice:
            case Replicate():
                words.append(f"{axis}: whole")
            case UseFactor(factor, pieces):
                words.append(f"{axis}: {factor}" + (f" in pieces {list(pieces)}" if len(pieces) > 1 else ""))
            case UsePartial(index):
                words.append(f"{axis}: partial({index})")
    return ", ".join(words)
