"""The batch along one mesh axis, as strategies. In go an entry without calls and its batch dims; out comes the
choice of every operation, cut where the batch is. An operation that needs a partial sum as a whole gets the whole
inside the program: `apply-sharding` puts a collective there, and the statistics of batch norm become those of the whole batch."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from distir.dialects.sharding import REPLICATED, Choice, Partial, Sharded, State
from distir.interpreters.walk import values_read
from distir.passes.distribution.batch.batch_axis import (
    BatchPropagation,
    FunctionAxis,
    NeedsWhole,
    batch_states,
    explain,
)
from distir.passes.distribution.options import Option
from distir.passes.structure import is_constant


def batch_choices(module: ModuleOp, entry: FuncOp, batch: Mapping[int, int], shards: int) -> dict[Operation, Choice]:
    """What every operation of an entry without calls does; constants stay whole, and are cut where they are used. Raises
    DistirError for an operation that needs the whole of a value in parts."""
    propagation = BatchPropagation(module, shards)
    states = batch_states(entry, batch, shards)
    axis = FunctionAxis(dict(zip(entry.body.block.args, states, strict=True)))
    for op in entry.body.block.ops:
        if isinstance(op, ReturnOp):
            continue
        try:
            axis.chosen[op] = _option(propagation, op, axis)
        except NeedsWhole as error:
            raise explain(error, shards) from None
        axis.states.update(zip(op.results, axis.chosen[op].results, strict=True))
    return {op: option.choice for op, option in axis.chosen.items() if not is_constant(op)}


def _option(propagation: BatchPropagation, op: Operation, axis: FunctionAxis) -> Option:
    """The option for the operands as they are; if there is none, for what their addends make together."""
    held: dict[SSAValue, State] = {v: axis.states[v] for v in values_read(op) if isinstance(axis.states[v], Partial)}
    try:
        return propagation.matching(op, axis)
    except NeedsWhole as error:
        if not held:
            raise
        if isinstance(error.state, Sharded):
            error.beside = None  # the sum is made here: should that not do either, the rule is why
    axis.states.update((value, REPLICATED) for value in held)
    try:
        return propagation.matching(op, axis)
    finally:
        axis.states.update((value, state) for value, state in held.items() if axis.states[value] == REPLICATED)
