"""The batch axis of a whole program: what hides in called functions and is no part of the microbatch loop comes into the entry first."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp

from distir.passes.distribution.batch.batch_axis import BatchAxis, NeedsWhole, explain, follow_batch
from distir.passes.distribution.batch.deferred_scale import defer_scales
from distir.passes.distribution.inline import inline_calls
from distir.passes.structure import callee_of, calls_first


def axis_of_entry(module: ModuleOp, entry: FuncOp, batch: Mapping[int, int], shards: int) -> BatchAxis:
    """The batch axis of the entry; calls inside which a value leaves the axis are inlined until none is."""
    while True:
        if shards > 1:
            defer_scales(module, entry, batch)
        try:
            return follow_batch(module, entry, batch, shards)
        except NeedsWhole as error:
            hidden = _callees_with(module, error)
            if not hidden:
                raise explain(error, shards) from None
            inline_calls(module, entry, hidden)


def _callees_with(module: ModuleOp, error: NeedsWhole) -> frozenset[str]:
    """The functions that reach the op of an error, other than the entry itself; of a call, the one that it names."""
    if isinstance(error.op, CallOp):
        return frozenset({error.op.callee.string_value()})
    holder = error.op.parent_op()
    reaching = {holder.sym_name.data} if isinstance(holder, FuncOp) else set[str]()
    for function in calls_first(module):
        if any(callee_of(op) in reaching for op in function.body.block.ops):
            reaching.add(function.sym_name.data)
    return (
        frozenset() if isinstance(holder, FuncOp) and holder.sym_name.data == "main" else frozenset(reaching - {"main"})
    )
