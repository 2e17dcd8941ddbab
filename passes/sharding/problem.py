"""The problem of a search. In go an annotated module and prices; out come each operation's options over all mesh
axes jointly, with prices, and the states in which each function argument and result may be passed. Repeated layers
are one function, so they are chosen once and weighted by how often they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.dist import AccumulateOp, MicrobatchesOp
from distir.dialects.errors import DistirError
from distir.dialects.sharding import REPLICATED, Partial, Sharded, State, UseFactor, UsePartial, Windowed
from distir.interpreters.entry import entry_function
from distir.interpreters.shared import Shared
from distir.interpreters.walk import uses_of, values_read
from distir.passes.distribution.lower import canonical_options
from distir.passes.distribution.mesh import AxisStates, Mesh, as_addends
from distir.passes.distribution.options import ADDENDS, RULE, Option, rule_of
from distir.passes.distribution.pins import Pins
from distir.passes.distribution.pipeline.stages import LOOPED, STAGE, phase_of
from distir.passes.distribution.space import AxisSpace, Reach, made_of_model
from distir.passes.sharding.prices import Price, Prices, is_fine
from distir.passes.solver.deadline import NEVER, Deadline
from distir.passes.staging.order import Order, is_staged
from distir.passes.staging.zeros import StartingSum, starting_sums
from distir.passes.structure import (
    AnyCall,
    argument_attributes,
    calls_first,
    executions,
    functions,
    is_constant,
    result_attributes,
    shape_of,
    text,
)

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MOST_DIFFERENT = 32
"""Along an axis of more devices, or replicas of a mesh of more, what can be cut evenly is not cut otherwise, and state stays whole that cannot: what devices do differently is
written for each of them (of 96, 12 replicas with layers of 14,336: 30 minutes and 18 GB)."""
MOST_WRITTEN = 128
"""In a mesh of more devices shards are even wherever they can be: rows that replicas cut evenly, and tensor ranks of each unevenly, had a program of GPT-3 written
for each of 1,024 devices, in more than 14 GB."""
MOST_CALLS = 2000
"""Of longer pipelines only ranks that do not do the same are looked at."""
SOUGHT = 1 / 3
"""Where a plan will do of which the bound is short by some share, it is sought on until that is this share of it, as long as that is easy: better plans are found on
the way. To close the rest takes most of the time."""

RESTRICTIONS = ("any", "batch", "sequence", "model", "none")
"""What an axis may cut: every factor; those of the batch; those of neither the batch nor weights, such as the sequence; those of weights that are not the
batch's; nothing."""


@dataclass(frozen=True)
class JointOption:
    """One option per axis."""

    options: tuple[Option, ...]
    operands: tuple[AxisStates, ...]
    results: tuple[AxisStates, ...]
    price: Price
    work_picoseconds: int = 0
    """What its work costs beside its time (`division`)."""

    @property
    def picoseconds(self) -> int:
        return self.price.picoseconds

    @property
    def cost(self) -> int:
        """What a search minimises."""
        return self.price.picoseconds + self.work_picoseconds


@dataclass(frozen=True)
class Division:
    """What stored values cost beside time."""

    picoseconds_per_byte: float
    stored: frozenset[BlockArgument]
    """Parameters and state, as arguments of the entry."""


@dataclass
class Problem:
    """The choices of one module over one mesh."""

    module: ModuleOp
    entry: FuncOp
    prices: Prices
    functions: list[FuncOp]
    """Callees first."""
    counts: Mapping[str, int]
    """How often each function runs."""
    zeros: Sequence[StartingSum] = ()
    """Of a staged program, sums to which the first microbatch adds nothing."""
    options: dict[Operation, list[JointOption]] = field(default_factory=dict[Operation, list[JointOption]])
    arguments: dict[BlockArgument, list[AxisStates]] = field(default_factory=dict[BlockArgument, list[AxisStates]])
    results: dict[str, list[list[AxisStates]]] = field(default_factory=dict[str, list[list[AxisStates]]])
    """Per function, for each result, the states in which it may be returned; of the entry, none for a result that leaves
    as it was produced."""
    tied: dict[int, BlockArgument] = field(default_factory=dict[int, BlockArgument])
    """Results of the entry that update an argument, and so leave in its states."""

    order: Order | None = None
    """Of a staged program, which is scheduled."""
    known: dict[str, object] = field(default_factory=dict[str, object])
    """What is derived from a staged program and kept (`occurrences_of`)."""
    carried: dict[str, dict[int, BlockArgument]] = field(default_factory=dict[str, dict[int, BlockArgument]])
    """Of functions that run once per microbatch, by result, the argument as which it is given to the next."""
    model_axes: tuple[bool, ...] = ()
    """Which axes may cut what parameters are cut by."""
    cutoff: float = float("inf")
    """Seconds: a plan that takes longer is not sought."""
    enough: float = 1e-9
    """A plan will do if no other is faster by more than this share."""
    division: Division | None = None
    """Where dividing counts first, what stored values cost."""

    @property
    def stored(self) -> frozenset[BlockArgument]:
        """The arguments of the entry that cost something themselves."""
        return self.division.stored if self.division is not None else frozenset()

    def callee(self, call: AnyCall) -> FuncOp:
        return self._table[call.callee.string_value()]

    def tied_in(self, function: FuncOp) -> Mapping[int, BlockArgument]:
        """The results of a function that leave in the states of an argument."""
        return self.tied if function is self.entry else self.carried.get(function.sym_name.data, {})

    def __post_init__(self) -> None:
        self._table = functions(self.module)
        self._alike: dict[BlockArgument, BlockArgument] = {}
        self._zeros = {zero.zeros for zero in self.zeros}
        self._spared = Counter(op for zero in self.zeros for op in (zero.zeros, zero.adding))
        for function in self.functions:
            for op in function.body.block.ops:
                if isinstance(op, MicrobatchesOp):
                    callee = self.callee(op)
                    arguments = callee.body.block.args[len(op.same) : len(op.operands)]
                    self.carried[callee.sym_name.data] = dict(enumerate(arguments))

    def passed_on(self, argument: BlockArgument) -> tuple[BlockArgument, ...] | None:
        """The arguments of other functions that take an argument's value; None if anything but calls uses it. Arguments of one type
        that are alike in this (one parameter of each layer) are passed alike; of such arguments the first is named."""
        uses = list(argument.uses)
        if not all(isinstance(use.operation, AnyCall) for use in uses):
            return None
        given = (self.callee(cast(AnyCall, use.operation)).body.block.args[use.index] for use in uses)
        return tuple(self._alike.get(each, each) for each in given)

    def runs(self, op: Operation, function: FuncOp) -> int:
        """How often an operation of a function runs."""
        return self.counts[function.sym_name.data] - self._spared[op]

    def starts_sum(self, op: Operation) -> bool:
        """Whether an operation makes zeros that go once the program is scheduled."""
        return op in self._zeros

    def is_scheduled(self, function: FuncOp) -> bool:
        """Whether a function is the entry or the loop of a staged program: a schedule says when each of its operations runs."""
        return self.order is not None and (function is self.entry or function is self.order.function)

    def note_same_as(self, argument: BlockArgument, first: BlockArgument) -> None:
        """Says that an argument is passed as another of its function is."""
        self._alike[argument] = first

    def needs_of(self, op: Operation, index: int) -> list[AxisStates]:
        """The states in which an op may need an operand."""
        if isinstance(op, AnyCall):
            return self.arguments[self.callee(op).body.block.args[index]]
        return list(dict.fromkeys(option.operands[index] for option in self.options[op]))

    def passed(self, needed: Iterable[AxisStates]) -> list[AxisStates]:
        """The states in which functions pass a value that is needed in these: parts that do not overlap."""
        found = (tuple(s.base if isinstance(s, Windowed) else s for s in states) for states in needed)
        return [states for states in dict.fromkeys(found) if not self.prices.mesh.conflict(states)]

    def leaving(self, states: AxisStates) -> AxisStates | None:
        """How an untied result of the entry leaves when it was produced in these states; None if it cannot."""
        left = as_addends(states)
        return None if self.prices.mesh.conflict(left) else left


def without_fine_pieces(problem: Problem) -> Problem:
    """The choices in which every value can be resharded: a search that does not look ahead never ends there before the program does."""

    def resharded(found: list[AxisStates]) -> list[AxisStates]:
        return [states for states in found if not any(map(is_fine, states))] or found

    found = copy(problem)
    found.options = {
        op: [o for o in options if not any(is_fine(s) for states in (*o.operands, *o.results) for s in states)]
        or options
        for op, options in problem.options.items()
    }
    found.arguments = {argument: resharded(states) for argument, states in problem.arguments.items()}
    found.results = {name: [*map(resharded, each)] for name, each in problem.results.items()}
    return found


def build(
    module: ModuleOp,
    entry: str,
    prices: Prices,
    batch: Mapping[int, int],
    restrictions: Mapping[str, str] | None = None,
    deadline: Deadline = NEVER,
    schedule: str = "1f1b",
) -> Problem:
    """All choices of an annotated module. `batch` is the batch dim of each batch argument; `schedule` the order of microbatches of a staged
    one. Raises DistirError if a pin
    leaves an operation no option, OutOfTime at the deadline."""
    main = entry_function(module, entry)
    ordered = calls_first(module, entry)
    problem = Problem(module, main, prices, ordered, executions(ordered, main), starting_sums(module, main))
    restrictions = restrictions or {}
    problem.model_axes = tuple(restrictions.get(axis, "any") in ("any", "model") for axis, _ in prices.mesh.axes)
    if is_staged(main):
        problem.order = Order(module, main, 1, schedule, MOST_CALLS)
    pins = Pins(prices.mesh)
    per_axis = _axis_options(module, main, prices, batch, restrictions)
    shared, known = Shared(), dict[Hashable, list[JointOption]]()
    for function in ordered:
        for op in function.body.block.ops:
            deadline.check()
            if not isinstance(op, (AnyCall, ReturnOp)):
                found = [options[op] for options in per_axis]
                key = _form(op, shared), *map(tuple, found)
                if key not in known:
                    known[key] = _joint_options(op, found, prices, pins)
                problem.options[op] = [*known[key]]
    _tie_updates(problem)
    stored = made_of_model(main, functions(module))
    for function in ordered:
        deadline.check()
        _add_arguments(problem, function, stored, pins)
        _add_results(problem, function, pins)
    return problem


def _form(op: Operation, shared: Shared) -> Hashable:
    """Equal for operations of which all options cost the same: the steps of a recurrence are many. What has regions is like no other."""
    if op.regions:
        return op
    number = shared.number
    form: list[Hashable] = [type(op), id(rule_of(op)), *(number(value.type) for value in (*op.operands, *op.results))]
    form += [(name, number(each)) for name, each in (*op.properties.items(), *op.attributes.items()) if name != RULE]
    for value in op.operands:  # sizes
        owner = value.owner
        if isinstance(owner, Operation) and not owner.operands:
            form += [(name, number(each)) for name, each in owner.properties.items()]
        form.append(None)
    return tuple(form)


def _axis_options(
    module: ModuleOp, main: FuncOp, prices: Prices, batch: Mapping[int, int], restrictions: Mapping[str, str]
) -> list[Mapping[Operation, list[Option]]]:
    reach = Reach(module, main, batch)
    allowed = {
        "any": lambda value, dim: True,
        "batch": reach.is_batch,
        "sequence": reach.is_sequence,
        "model": reach.is_weight,
        "none": lambda value, dim: False,
    }
    loop = _only_in_loop(module, main)
    if loop is not None:
        loop = {op for op in loop if _has_rows(op, reach)}
    found: dict[tuple[str, int], Mapping[Operation, list[Option]]] = {}
    keys: list[tuple[str, int]] = []
    for axis, size in prices.mesh.axes:
        kind = "none" if size == 1 else restrictions.get(axis, "any")
        keys.append((kind, size))
        if (kind, size) not in found:
            inside = (
                allowed[kind]
                if kind != "any"
                else lambda value, dim: reach.is_weight(value, dim) or reach.is_batch(value, dim)
            )
            space = _Space(module, main, size, allowed[kind], inside, prices.mesh.uneven)
            space.restricted = None if kind == "none" else loop
            space.close()
            found[kind, size] = _without_idle_blocks(_without_idle_addends(space.options), prices.mesh)
            if (prices.mesh.devices if kind == "batch" else size) > MOST_DIFFERENT:
                found[kind, size] = {
                    op: _evenly(each, size, kind == "batch" and not _has_rows(op, reach))
                    for op, each in found[kind, size].items()
                }
            if kind in ("batch", "sequence"):
                found[kind, size] = _keeping_addends(found[kind, size])
    return [found[key] for key in keys]


class _Space(AxisSpace):
    """Options along an axis that is restricted in what the loop over microbatches computes of the batch, and free in all else: what is made of
    parameters alone, what is added up, and updates. State may be cut over replicas."""

    restricted: set[Operation] | None = None
    """The operations that are restricted; without, all."""

    def is_allowed(self, op: Operation, option: Option) -> bool:
        return (self.restricted is not None and op not in self.restricted) or super().is_allowed(op, option)


def _only_in_loop(module: ModuleOp, main: FuncOp) -> set[Operation] | None:
    """The operations of the forward and the backward part of a staged program, but those that add up; None if it has no stages."""
    table = functions(module)
    bodies = [main, *(table[op.callee.string_value()] for op in main.body.block.ops if isinstance(op, MicrobatchesOp))]
    calls = [op for body in bodies for op in body.body.block.ops if isinstance(op, CallOp) and STAGE in op.attributes]
    if not calls:
        return None
    looped = [op.callee.string_value() for op in calls if phase_of(op) in LOOPED]
    reached = {f for name in dict.fromkeys(looped) for f in calls_first(module, name)}
    return {op for f in reached for op in f.body.block.ops if not isinstance(op, AccumulateOp)}


def _has_rows(op: Operation, reach: Reach) -> bool:
    """Whether an operation takes or gives a value with a dim of the batch."""
    return any(reach.is_batch(v, d) for v in (*values_read(op), *op.results) for d in range(len(shape_of(v))))


def _without_idle_addends(options: Mapping[Operation, list[Option]]) -> dict[Operation, list[Option]]:
    """Leaves out options on partial values of a reduction that no operation of the program does: they would only pass on
    what a whole value was made into."""
    made = {
        state.reduction
        for found in options.values()
        for option in found
        if isinstance(option.choice, UseFactor)
        for state in option.results
        if isinstance(state, Partial)
    }

    def useful(option: Option) -> bool:
        states = (*option.operands, *option.results)
        return all(s.reduction in made for s in states if isinstance(s, Partial))

    return {op: [option for option in found if useful(option)] for op, found in options.items()}


def _keeping_addends(options: Mapping[Operation, list[Option]]) -> dict[Operation, list[Option]]:
    """Of operations that take addends of gradients as they are, only the options that do, if there are any."""

    def kept(op: Operation, found: list[Option]) -> list[Option]:
        return [o for o in found if ADDENDS in op.attributes and isinstance(o.choice, UsePartial)] or found

    return {op: kept(op, found) for op, found in options.items()}


def _evenly(options: list[Option], size: int, may_be_whole: bool) -> list[Option]:
    """Only the options in even shards, if some of them cut, or all may be whole."""
    states = {o: [s for s in (*o.operands, *o.results) if isinstance(s, Sharded | Windowed)] for o in options}
    even = [o for o in options if all(isinstance(s, Sharded) and s.is_even(size) for s in states[o])]
    return even if may_be_whole or any(states[o] for o in even) else options


def _without_idle_blocks(options: Mapping[Operation, list[Option]], mesh: Mesh) -> dict[Operation, list[Option]]:
    """Leaves out the blocks of cuts that are even however many axes make them."""

    def plain(state: State) -> State:
        is_even = isinstance(state, Sharded) and state.blocks and state.is_even(mesh.devices)
        return replace(state, blocks=()) if is_even else state

    def without(option: Option) -> Option:
        if not _has_blocks(option):
            return option
        return replace(option, operands=tuple(map(plain, option.operands)), results=tuple(map(plain, option.results)))

    return {op: [without(option) for option in found] for op, found in options.items()}


def _has_blocks(option: Option) -> bool:
    return any(isinstance(s, Sharded) and s.blocks for s in (*option.operands, *option.results))


def _joint_options(op: Operation, per_axis: Sequence[list[Option]], prices: Prices, pins: Pins) -> list[JointOption]:
    """All combinations of one option per axis whose shards exist, even ones first; of those with the same states, the cheapest."""
    mesh = prices.mesh
    best: dict[tuple[tuple[AxisStates, ...], tuple[AxisStates, ...]], JointOption] = {}
    rejected = False
    has_blocks = any(_has_blocks(option) for found in per_axis for option in found)
    for combination in product(*per_axis):
        if not pins.allows(op, combination):
            rejected = True
            continue
        if has_blocks:
            combination = tuple(canonical_options(combination, mesh))
        operands = tuple(tuple(o.operands[i] for o in combination) for i in range(len(values_read(op))))
        results = tuple(tuple(o.results[i] for o in combination) for i in range(len(op.results)))
        if any(mesh.conflict(states) for states in (*operands, *results)):
            continue
        price = prices.operation(op, combination)
        if price is None:
            continue
        option = JointOption(combination, operands, results, price)
        known = best.get((operands, results))
        if known is None or option.picoseconds < known.picoseconds:
            best[operands, results] = option
    if not best:
        what = "no option that its pins allow" if rejected else "no option"
        raise DistirError(f"{op.name} of {[list(shape_of(v)) for v in op.operands]} has {what} over {dict(mesh.axes)}")
    found = sorted(best.values(), key=lambda option: not option.price.is_uniform)
    alike = [option for option in found if option.price.is_uniform]
    if mesh.devices > MOST_WRITTEN and any(s != prices.whole for o in alike for s in (*o.operands, *o.results)):
        return alike
    return found


def _tie_updates(problem: Problem) -> None:
    """A result that updates an argument leaves in the argument's states."""
    entry = problem.entry
    named = {
        text(a, "dist.name", ""): v
        for a, v in zip(argument_attributes(entry), entry.body.block.args, strict=True)
        if text(a, "dist.role", "input") in ("parameter", "state", "buffer")
    }
    for i, attributes in enumerate(result_attributes(entry)):
        argument = named.get(text(attributes, "dist.name", ""))
        if argument is not None:
            problem.tied[i] = argument


def stored_states(prices: Prices, type_: Attribute) -> list[AxisStates]:
    """All even ways to store a tensor: whole or cut as one piece, along each axis; where no dim divides, all uneven ones, in meshes that are not large."""
    if not isinstance(type_, TensorType):
        return [prices.whole]
    shape: tuple[int, ...] = type_.get_shape()
    mesh, per_axis = prices.mesh, list[list[State]]()
    for size in mesh.sizes:
        cuts = [Sharded(d, (n,)) for d, n in enumerate(shape) if 1 < size <= n]
        even = [cut for cut in cuts if cut.is_even(size)]
        per_axis.append([REPLICATED, *(even or (cuts if mesh.uneven and mesh.devices <= MOST_DIFFERENT else []))])

    def is_stored(states: AxisStates) -> bool:
        is_uneven = any(isinstance(s, Sharded) and not s.is_even(n) for s, n in zip(states, mesh.sizes, strict=True))
        return not mesh.conflict(states) and (is_uneven or mesh.is_uniform(states))

    return [states for states in product(*per_axis) if is_stored(states)]


def _add_arguments(problem: Problem, function: FuncOp, stored: set[SSAValue], pins: Pins) -> None:
    """An argument is passed whole or as a consumer needs it; parameters, state, what is made of these alone (cast before a loop, it is held
    throughout) and what enters the program also in any even cut.
    Arguments of the entry are never addends (replicas could not tell theirs apart)."""
    is_entry = function is problem.entry
    carried = {*problem.tied_in(function).values()}
    known: dict[object, list[AxisStates]] = {}
    """Of arguments that are alike: parameters of repeated layers are many."""
    first: dict[object, BlockArgument] = {}
    for argument, attributes in zip(function.body.block.args, argument_attributes(function), strict=True):
        is_stored = argument in stored or is_entry or argument in carried
        passed_on = problem.passed_on(argument)
        key = argument if passed_on is None else (argument.type, is_stored, passed_on)
        if key not in known:
            found: dict[AxisStates, None] = {problem.prices.whole: None}
            for use in uses_of(argument):
                if not isinstance(use.operation, ReturnOp):
                    found.update(dict.fromkeys(problem.passed(problem.needs_of(use.operation, use.index))))
            if is_stored:
                found.update(dict.fromkeys(stored_states(problem.prices, argument.type)))
            known[key] = [s for s in found if not (is_entry and any(isinstance(state, Partial) for state in s))]
        states = pins.states(known[key], attributes, argument.type, f"argument {argument.index}")
        problem.arguments[argument] = states
        problem.note_same_as(argument, first.setdefault((key, tuple(states)), argument))


def _add_results(problem: Problem, function: FuncOp, pins: Pins) -> None:
    """A result of a called function is returned as it was produced or as the body has it anyway, or, where the caller
    passes an update on, in any even cut."""
    last = function.body.block.last_op
    returned: Sequence[SSAValue] = last.operands if last is not None else ()
    attributes = result_attributes(function)
    found: list[list[AxisStates]] = []
    for i, value in enumerate(returned):
        states: dict[AxisStates, None] = {}
        if (argument := problem.tied_in(function).get(i)) is not None:
            states.update(dict.fromkeys(problem.arguments[argument]))
        elif function is problem.entry:
            if pins.is_pinned(attributes[i]):
                states.update(dict.fromkeys(stored_states(problem.prices, value.type)))
        else:
            states.update(dict.fromkeys(produced_states(problem, value)))
            for use in uses_of(value):
                if not isinstance(use.operation, ReturnOp):
                    states.update(dict.fromkeys(problem.passed(problem.needs_of(use.operation, use.index))))
        found.append(pins.states(list(states), attributes[i], value.type, f"result {i}") if states else [])
    problem.results[function.sym_name.data] = found


def produced_states(problem: Problem, value: SSAValue) -> list[AxisStates]:
    """The states in which a value may come to be."""
    if isinstance(value, BlockArgument):
        return problem.arguments[value]
    assert isinstance(value, OpResult)
    op, index = value.op, value.index
    if isinstance(op, AnyCall):
        return problem.results[op.callee.string_value()][index]
    if is_constant(op):
        return [problem.prices.whole]
    return list(dict.fromkeys(option.results[index] for option in problem.options[op]))
