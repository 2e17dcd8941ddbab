"""Gradients of a training step. In go an entry with rules and its batch dims; out comes the entry with its gradients
in another type, or as sums that devices may reduce where they are made. A gradient is a sum over the batch that an
update depends on, and that is whole only after the loop over microbatches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import gcd
from typing import Any, cast

from xdsl.dialects.builtin import AnyFloat, ModuleOp, TensorType, UnitAttr
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Operation, OpResult, SSAValue

from distir.dialects.dist import BatchRowsOp, CastOp
from distir.dialects.errors import DistirError
from distir.dialects.sharding import Gather, InputDim, Rule, RuleAttr
from distir.interpreters.walk import values_read
from distir.passes.distribution.batch.batch_axis import BatchPropagation, FunctionAxis, Phase
from distir.passes.distribution.batch.entry_axis import BatchAxis, axis_of_entry
from distir.passes.distribution.options import ADDENDS, RULE, SUM
from distir.passes.staging.accumulators import added, sum_rule
from distir.passes.structure import functions, result_attributes, shape_of, text, user_of


def cast_gradients(module: ModuleOp, entry: FuncOp, batch: Mapping[int, int], element: AnyFloat) -> None:
    """Rewrites the entry. Raises DistirError where rules do not let the batch be cut."""
    if (shards := _shards(entry, batch)) == 1:
        return
    axis = axis_of_entry(module, entry, batch, shards, gathers=True)
    for value, users in _gradients_of(entry, axis).items():
        _keep_addends(value, axis.body, axis.propagation)
        if _element(value) != element:
            _cast(value, users, element)
    for op in [op for op in entry.body.block.ops if isinstance(op, BatchRowsOp)]:
        op.output.replace_all_uses_with(op.input)
        entry.body.block.erase_op(op)


def sum_gradients(module: ModuleOp, entry: FuncOp, batch: Mapping[int, int]) -> None:
    """Has what uses a gradient after the loop use a sum of it alone (`dist.accumulate`). Nothing else of the program changes: where rules do not let the batch be cut,
    nothing does."""
    if (shards := _shards(entry, batch)) == 1:
        return
    copy = module.clone()
    copied = functions(copy)[entry.sym_name.data]
    operations = dict(zip(copied.body.block.ops, entry.body.block.ops, strict=True))
    values = {
        theirs: own for op, same in operations.items() for theirs, own in zip(op.results, same.results, strict=True)
    }
    try:
        found = _gradients_of(copied, axis_of_entry(copy, copied, batch, shards, gathers=True))
    except DistirError:
        return
    for gradient, users in found.items():
        if gradient in values:  # otherwise inside a function
            _sum(values[gradient], [operations[user] for user in users if user in operations])


def _sum(value: OpResult, users: Collection[Operation]) -> None:
    """Has these operations use a sum of one addend in place of a value."""
    block = value.op.parent
    assert block is not None
    if users:
        there = added([], value, block)
        value.replace_uses_with_if(there, lambda use: user_of(value, use) in users)


def _shards(entry: FuncOp, batch: Mapping[int, int]) -> int:
    """Into how many parts the batch can be cut at least; 1: not at all, nothing is summed over it."""
    rows = gcd(*(shape_of(entry.body.block.args[i])[dim] for i, dim in batch.items()))
    return next((n for n in range(2, rows + 1) if rows % n == 0), 1)


def _gradients_of(entry: FuncOp, axis: BatchAxis) -> dict[OpResult, dict[Operation, None]]:
    """The gradients of an entry, and what uses each."""
    updates = _leading_to_updates(entry)
    found: dict[OpResult, dict[Operation, None]] = {}
    for op in entry.body.block.ops:
        for value in dict.fromkeys(values_read(op)):
            if axis.phases.get(op) is Phase.AFTER and op in updates and _is_gradient(value, axis.body):
                for gradient, user in _gradients(cast(OpResult, value), op, axis.body):
                    found.setdefault(gradient, {})[user] = None
    return found


def _leading_to_updates(entry: FuncOp) -> set[Operation]:
    """The operations on which updates of parameters and state depend."""
    last = entry.body.block.last_op
    returned = zip(last.operands if last is not None else (), result_attributes(entry), strict=True)
    todo = [v for v, known in returned if text(known, "dist.role", "output") in ("parameter", "state")]
    found = set[Operation]()
    while todo:
        if isinstance(value := todo.pop(), OpResult) and value.op not in found:
            found.add(value.op)
            todo += values_read(value.op)
    return found


def _is_gradient(value: SSAValue, axis: FunctionAxis) -> bool:
    type_ = value.type
    is_float = isinstance(type_, TensorType) and isinstance(_element(value), AnyFloat)
    return is_float and isinstance(value, OpResult) and axis.states.get(value) == SUM


def _keep_addends(value: SSAValue, axis: FunctionAxis, propagation: BatchPropagation) -> None:
    """Marks what hands addends on up to a gradient, in the functions that make it too."""
    if not isinstance(value, OpResult):
        return
    op = value.op
    if isinstance(op, CallOp):
        callee = op.callee.string_value()
        body = propagation.function(callee, [axis.states[v] for v in op.operands])
        last = propagation.table[callee].body.block.last_op
        assert last is not None
        _keep_addends(last.operands[value.index], body, propagation)
    elif ADDENDS not in op.attributes and (sums := [v for v in values_read(op) if axis.states.get(v) == SUM]):
        op.attributes[ADDENDS] = UnitAttr()
        for each in sums:
            _keep_addends(each, axis, propagation)


def _gradients(value: OpResult, user: Operation, axis: FunctionAxis) -> Iterator[tuple[OpResult, Operation]]:
    """The gradients that a sum over the batch is made of, and what uses each: itself, or of one that several make together (a weight that is used
    twice, maybe on stages of their own) each of these."""
    if isinstance(value.op, CallOp) or sum(axis.states.get(v) == SUM for v in value.op.operands) < 2:
        yield value, user
        return
    for each in dict.fromkeys(value.op.operands):
        if isinstance(each, OpResult) and axis.states.get(each) == SUM:
            yield from _gradients(each, value.op, axis)


def _cast(value: OpResult, users: Collection[Operation], element: AnyFloat) -> None:
    """Casts a gradient where it is made, and back for those that use it whole."""
    there = CastOp(value, element)
    back = CastOp(there.output, cast(AnyFloat, _element(value)))
    rank = len(shape_of(value))
    there.attributes |= {RULE: RuleAttr(sum_rule(rank, 1)), ADDENDS: UnitAttr()}
    dims = tuple(InputDim(f"S{i + 1}") for i in range(rank))
    back.attributes[RULE] = RuleAttr(Rule((dims,), {f"S{i + 1}": (Gather(i),) for i in range(rank)}))
    value.replace_uses_with_if(back.output, lambda use: user_of(value, use) in users)
    block = value.op.parent
    assert block is not None
    for op in (back, there):
        op.output.name_hint = value.name_hint
        block.insert_op_after(op, value.op)


def _element(value: SSAValue) -> Any:
    return cast("TensorType[Any]", value.type).element_type
