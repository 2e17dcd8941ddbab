"""The batch axis of function bodies, found by rules. In go the batch dims of arguments; out come the state of every
value along the axis, and the option of every operation.

Data parallelism and microbatches cut the same dims, so one analysis serves both: an operation of the entry runs *before*
the microbatch loop (it does not depend on the batch), *inside* it, or *after* it (it needs a whole value that the loop
leaves in parts: the optimizer, after the gradients were accumulated). No choice is made here: parameters stay
replicated, and a value leaves the axis only by accumulation or concatenation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from xdsl.dialects.builtin import BytesAttr, IntegerType, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.traits import ConstantLike

from distir.dialects.dist import BatchRowsOp
from distir.dialects.errors import DistirError
from distir.dialects.plugins import expected
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Partial, Replicate, Replicated, Rule, Sharded, State
from distir.interpreters.walk import values_read
from distir.passes.distribution.literals import rule_with_literals
from distir.passes.distribution.options import SUM, Option, dividing, options, replicate, rule_of, whole_pieces
from distir.passes.structure import argument_attributes, functions, is_constant, shape_of, text, user_of


class Phase(Enum):
    """When an operation of the entry runs, relative to the loop over microbatches."""

    BEFORE = "before"
    INSIDE = "inside"
    AFTER = "after"


@dataclass
class FunctionAxis:
    """A function body along the batch axis, for given states of its arguments."""

    states: dict[SSAValue, State] = field(default_factory=dict[SSAValue, State])
    chosen: dict[Operation, Option] = field(default_factory=dict[Operation, Option])
    results: tuple[State, ...] = ()
    outside: dict[Operation, Phase] | None = None
    """Of the entry of a program whose loop takes rows of what is the same in every microbatch: what runs when, as far as it is followed."""
    early: Collection[Operation] = ()
    """What runs before the loop on the whole batch."""
    again: Collection[tuple[Operation, int]] = ()
    """Operands that were computed before the loop, and are computed again for the operation."""
    taken: dict[tuple[SSAValue, State], BatchRowsOp] = field(default_factory=dict[tuple[SSAValue, State], BatchRowsOp])
    """Values of which it does."""


class NeedsWhole(Exception):
    """An operation needs a whole value where the axis holds parts: `beside` the whole of what all parts were reduced to, or
    by its rule."""

    def __init__(self, op: Operation, operand: int, state: State, beside: SSAValue | None = None):
        super().__init__(op.name)
        self.op, self.operand, self.state, self.beside = op, operand, state, beside


class RowsApart(Exception):
    """An operand that is computed before the loop over microbatches, and of which the operation needs rows that do not lie together."""

    def __init__(self, op: Operation, operand: int):
        super().__init__()
        self.op, self.operand = op, operand


class BatchRefused(DistirError):
    """Rules do not let every operation follow the batch."""


ROLES = ("input", "label", "seed")
"""Of arguments that may have rows of the batch."""


def parse_batch(text_: str, entry: FuncOp) -> dict[int, int]:
    """`x:0,y:1` as argument index -> dim. Empty: dim 0 of every `input`, `label` and `seed` (numbers of rows) that has one, but for those whose
    extent is no multiple of that of most (a list of edges of a graph, beside features and labels of its nodes). Where most have no extent in
    common there: the dim of the one extent that is first in one and in each, other than as its last (features; of whole numbers, there are none):
    labels of sequences whose first dim is time."""
    if not text_:
        rows = _first_dims(entry)
        (usual, count), *_ = Counter(rows.values()).most_common(1) or [(0, 0)]
        is_told = 2 * count > len(rows) and usual > 0
        shapes = {i: _maybe_rows(entry.body.block.args[i]) for i in rows}
        common = {n for n in rows.values() if n > 1 and all(n in shape for shape in shapes.values())}
        if not is_told and len(common) == 1:
            (extent,) = common
            return {i: shape.index(extent) for i, shape in shapes.items()}
        return {i: 0 for i, extent in rows.items() if not is_told or extent % usual == 0}
    attributes = argument_attributes(entry)
    names = {text(a, "dist.name", f"arg{i}"): i for i, a in enumerate(attributes)}
    batch: dict[int, int] = {}
    for item in text_.split(","):
        name, _, dim = item.strip().partition(":")
        if name not in names:
            given = [known for known, i in names.items() if text(attributes[i], "dist.role", "input") in ROLES]
            raise DistirError(f"batch: no argument '{name}': {expected(name, given)}")
        index = names[name]
        if not dim.isdecimal() or int(dim) >= len(shape_of(entry.body.block.args[index])):
            raise DistirError(f"batch: expected {name}:DIM with a dim of '{name}', got '{item.strip()}'")
        batch[index] = int(dim)
    return batch


def left_out(batch: Mapping[int, int], entry: FuncOp) -> str:
    """What to say of arguments that could have rows of the batch, and are taken whole; nothing if there is none."""
    attributes = argument_attributes(entry)
    others = {text(attributes[i], "dist.name", f"arg{i}"): n for i, n in _first_dims(entry).items() if i not in batch}
    if not others or not batch:
        return ""
    whole = ", ".join(f"'{name}' ({rows})" for name, rows in others.items())
    return f"not cut with the batch, as the first dim is no multiple of that of other inputs: {whole}"


def _first_dims(entry: FuncOp) -> dict[int, int]:
    """Of each argument that may have some, those of its first dim."""
    arguments = enumerate(zip(argument_attributes(entry), entry.body.block.args, strict=True))
    return {
        i: shape_of(arg)[0]
        for i, (attributes, arg) in arguments
        if text(attributes, "dist.role", "input") in ROLES and len(shape_of(arg)) > 0
    }


def _maybe_rows(argument: SSAValue) -> Sequence[int]:
    """Dims that may be of rows: features are last."""
    shape = list(shape_of(argument))
    counts = isinstance(argument.type, TensorType) and isinstance(argument.type.element_type, IntegerType)
    return shape if counts else shape[:1] + shape[1:-1]


def batch_states(entry: FuncOp, batch: Mapping[int, int], shards: int) -> list[State]:
    """States of the entry's arguments; raises DistirError if a batch dim has no rows, or does not divide."""
    attributes = argument_attributes(entry)
    states: list[State] = []
    for i, argument in enumerate(entry.body.block.args):
        if i not in batch:
            states.append(REPLICATED)
            continue
        extent = shape_of(argument)[batch[i]]
        name = text(attributes[i], "dist.name", f"arg{i}")
        if not extent:
            raise DistirError(f"the batch of '{name}' (dim {batch[i]}) has no rows")
        if extent % shards:
            raise DistirError(
                f"the batch of '{name}' (dim {batch[i]}, {extent} rows) is not divisible by {shards} "
                f"(data parallel replicas x microbatches): choose a batch, dp and microbatches that divide"
            )
        states.append(whole_pieces(argument, batch[i]))
    return states


class BatchPropagation:
    """Follows the batch through functions; bodies are analysed once per states of their arguments."""

    def __init__(self, module: ModuleOp, shards: int):
        self.table = functions(module)
        self.shards = shards
        self._memo: dict[tuple[str, tuple[State, ...]], FunctionAxis] = {}
        self._refused: set[tuple[SSAValue, State]] = set()
        """What cannot be produced cut, so that shared values are traced back once."""

    def function(self, name: str, states: Sequence[State]) -> FunctionAxis:
        """The body of a called function; raises NeedsWhole if a value would have to leave the axis inside."""
        key = (name, tuple(states))
        if key not in self._memo:
            block = self.table[name].body.block
            axis = FunctionAxis(dict(zip(block.args, states, strict=True)))
            for op in block.ops:
                if isinstance(op, ReturnOp):
                    axis.results = tuple(axis.states[v] for v in op.operands)
                else:
                    self.follow(op, axis)
            self._memo[key] = axis
        return self._memo[key]

    def follow(self, op: Operation, axis: FunctionAxis) -> None:
        """Chooses the option of an op that takes its operands as they are, and records what its results are."""
        if isinstance(op, BatchRowsOp):
            axis.states[op.output] = _rows(op)
            return
        operands = [axis.states[v] for v in values_read(op)]
        if isinstance(op, CallOp):
            results = self.function(op.callee.string_value(), operands).results
        else:
            option = self.matching(op, axis)
            axis.chosen[op] = option
            results = option.results
        axis.states.update(zip(op.results, results, strict=True))

    def matching(self, op: Operation, axis: FunctionAxis) -> Option:
        operands = tuple(axis.states[v] for v in values_read(op))
        if all(isinstance(s, Replicated) for s in operands):
            return replicate(op)
        cuts = {s.pieces for s in operands if isinstance(s, Sharded) and len(s.pieces) > 1}
        available: list[Option] = []
        rule = rule_of(op)
        carried = None if rule is None else _carried(rule, operands)
        for option in dividing(op, self.shards, cuts, rule, offsets=False, of=carried):
            if option.operands == operands:
                return option
            available.append(option)
        for option in available:
            if self._obtain(op, option, operands, axis):
                return option
        for option in available:
            for i, (value, have, need) in enumerate(zip(op.operands, operands, option.operands, strict=False)):
                is_apart = isinstance(have, Replicated) and isinstance(need, Sharded) and len(need.pieces) > 1
                if is_apart and axis.early and isinstance(value, OpResult) and (op, i) not in axis.again:
                    raise RowsApart(op, i)
        addends = [i for i, s in enumerate(operands) if isinstance(s, Partial)]
        if self.shards == 1 and not addends:  # one part is the whole
            return Option(Replicate(), operands, replicate(op).results)
        first = next(i for i, s in enumerate(operands) if not isinstance(s, Replicated))
        index = addends[0] if self.shards == 1 else first
        beside = values_read(op)[addends[0]] if addends and index not in addends else None
        raise NeedsWhole(op, index, operands[index], beside)

    def _obtain(self, op: Operation, option: Option, operands: Sequence[State], axis: FunctionAxis) -> bool:
        """Whether replicated operands can be had cut instead, and has them so: produced cut (an expand to the batch, a literal that repeats, what is
        computed from those), if no other operation has taken them whole before, or else taken by rows."""
        for may_produce in (True, False):
            plan: dict[Operation, Option] = {op: option}
            taken: list[tuple[int, Sharded]] = []
            self._refused.clear()
            for i, (value, have, need) in enumerate(zip(values_read(op), operands, option.operands, strict=True)):
                if have == need or (isinstance(have, Replicated) and need == SUM and is_zero(value)):
                    continue
                if may_produce and self._cut(value, need, axis, plan):
                    continue
                if i >= len(op.operands) or not self._can_take(value, need, axis):
                    return False
                taken.append((i, cast(Sharded, need)))
            producers = [(producer, cut) for producer, cut in plan.items() if producer is not op]
            if not all(self._takers_agree(producer, cut, axis, plan) for producer, cut in producers):
                continue
            for producer, cut in producers:
                axis.chosen[producer] = cut
                axis.states.update(zip(producer.results, cut.results, strict=True))
            for index, need in taken:
                op.operands[index] = _taken(op.operands[index], need, op, axis)
            return True
        return False

    def _can_take(self, value: SSAValue, need: State, axis: FunctionAxis) -> bool:
        """Whether the loop over microbatches can take rows of a value that is there before it."""
        if axis.outside is None or self.shards == 1 or not isinstance(need, Sharded) or len(need.pieces) > 1:
            return False
        if not isinstance(axis.states[value], Replicated) or shape_of(value)[need.dim] % self.shards:
            return False
        return not isinstance(value, OpResult) or axis.outside.get(value.op) is Phase.BEFORE

    def _cut(self, value: SSAValue, need: State, axis: FunctionAxis, plan: dict[Operation, Option]) -> bool:
        """Adds to the plan what gives a replicated value cut, with all that it takes cut for that."""
        if not isinstance(need, Sharded) or not isinstance(axis.states[value], Replicated):
            return False
        if not isinstance(value, OpResult) or isinstance(value.op, CallOp):
            return False
        producer = value.op
        if producer in plan:
            return plan[producer].results[value.index] == need
        if (value, need) in self._refused or producer in axis.early:
            return False
        for option in options(producer, self.shards, [need.pieces], rule_with_literals(producer), offsets=False):
            if option.results[value.index] != need:
                continue
            trial = {**plan, producer: option}
            if all(
                state == axis.states[v] or self._cut(v, state, axis, trial)
                for v, state in zip(values_read(producer), option.operands, strict=True)
            ):
                plan.update(trial)
                return True
        self._refused.add((value, need))
        return False

    @staticmethod
    def _takers_agree(
        producer: Operation, option: Option, axis: FunctionAxis, plan: Mapping[Operation, Option]
    ) -> bool:
        """Whether nothing that is not planned anew took a result that changes its state."""
        for result, state in zip(producer.results, option.results, strict=True):
            if state == axis.states[result]:
                continue
            for user in {user_of(result, use) for use in result.uses}:
                if user in plan:
                    taken = zip(values_read(user), plan[user].operands, strict=True)
                    if any(value is result and needed != state for value, needed in taken):
                        return False
                elif _is_followed(user, axis):
                    return False
        return True


def _carried(rule: Rule, operands: Sequence[State]) -> tuple[str, ...] | None:
    """The factors that the first dim which is cut carries; no other can have cut it. None if no dim is cut."""
    for index, state in enumerate(operands[: len(rule.inputs)]):
        if isinstance(state, Sharded):
            return rule.inputs[index][state.dim].factors
    return None


def is_zero(value: SSAValue) -> bool:
    """Whether a value is zero throughout, so that it is also an addend of itself: a constant, or what is linear in one."""
    if not isinstance(value, OpResult):
        return False
    op = value.op
    if is_constant(op) and op.has_trait(ConstantLike):
        return _is_zero_constant(op)
    rule = rule_of(op)
    linear = [] if rule is None else [p for p in rule.partials if p.factor is None and p.reduction is Reduction.SUM]
    return any(value.index in p.results and all(is_zero(op.operands[i]) for i in p.operands) for p in linear)


def _is_zero_constant(op: Operation) -> bool:
    from distir.dialects.onnx import TensorAttr

    literal = op.properties.get("value")
    return isinstance(literal, TensorAttr) and isinstance(literal.data, BytesAttr) and not any(literal.data.data)


def _is_followed(op: Operation, axis: FunctionAxis) -> bool:
    """Whether an operation took its operands as they were."""
    return any(result in axis.states for result in op.results)


def _rows(op: BatchRowsOp) -> Sharded:
    dim = op.dim.value.data
    return Sharded(dim, (shape_of(op.input)[dim],))


def _taken(value: SSAValue, need: Sharded, before: Operation, axis: FunctionAxis) -> SSAValue:
    """The value as one of which each microbatch has its rows."""
    if (op := axis.taken.get((value, need))) is None:
        op = axis.taken[value, need] = BatchRowsOp(value, need.dim)
        op.output.name_hint = value.name_hint
        block = before.parent_block()
        assert block is not None
        block.insert_op_before(op, before)
        axis.states[op.output] = need
        if axis.outside is not None:
            axis.outside[op] = Phase.BEFORE
    return op.output


def explain(error: NeedsWhole, shards: int, gathers: bool = False) -> BatchRefused:
    """The user's view of a program whose batch cannot be cut: the op and the rule that forbids it. Where the loop over microbatches `gathers`, or not
    (`follow_batch`), something else helps."""
    value = values_read(error.op)[error.operand]
    name = _name(value)
    converting = "microbatches=1" if gathers else "sharding=ilp with microbatches=1"
    if error.beside is not None:
        whole = f"%{error.beside.name_hint or 'value'} {list(shape_of(error.beside))}"
        return BatchRefused(
            f"{error.op.name}{_module_of(error.op)} takes %{name} {list(shape_of(value))}, of which each of {shards} parts of the batch has its own, "
            f"together with {whole}, to which all parts are reduced: statistics of a batch are not those of its parts"
            " (such as a loss over pairs of rows, or a batch norm in training mode, which model.eval() ends); use "
            f"{converting}, where they are made of the whole batch",
        )
    rule = rule_of(error.op)
    known = (
        "it has no rule (shardcombine-annotate finds them)"
        if rule is None
        else f"its rule cuts {', '.join(rule.factors) or 'nothing'}"
    )
    return BatchRefused(
        f"{describe_need(error)}, which the batch axis of {shards} parts holds as {_describe(error.state)}: {known}"
        f"; choose other batch dims, or {converting}, where values are converted",
    )


def _module_of(op: Operation) -> str:
    """Where the model has the operation, if it says so."""
    module = op.attributes.get("dist.module")
    return f" of module {module.data}" if isinstance(module, StringAttr) else ""


def describe_need(error: NeedsWhole) -> str:
    """The operation and the value that it needs whole."""
    value = values_read(error.op)[error.operand]
    captured = " inside its graphs" if error.operand >= len(error.op.operands) else ""
    return f"{error.op.name}{_module_of(error.op)} needs the whole of %{_name(value)} {list(shape_of(value))}{captured}"


def _name(value: SSAValue) -> str:
    return value.name_hint or (f"argument {value.index}" if isinstance(value, BlockArgument) else "value")


def _describe(state: State) -> str:
    return f"parts of dim {state.dim}" if isinstance(state, Sharded) else "addends"
