"""An annotated program at another batch size: the batch is followed through the rules, and every dim and size that grows with
it is scaled. One model at one batch size then serves all batch sizes of a search."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from distir.dialects.sharding import REPLICATED
from distir.interpreters.entry import entry_function
from distir.passes.distribution.batch.batch_axis import Phase
from distir.passes.distribution.batch.entry_axis import axis_of_entry
from distir.passes.distribution.batch.localize import Localizer
from distir.passes.distribution.inline import erase_unreached
from distir.passes.structure import cloned, functions, shape_of


def rebatch(module: ModuleOp, batch: Mapping[int, int], rows: int) -> ModuleOp:
    """A copy of an annotated module whose batch, cut along the dims `batch` (argument index -> dim), has `rows` rows. Raises
    DistirError where the rules forbid to cut the batch into single rows: such a program has no other batch size."""
    copy = ModuleOp([cloned(function) for function in functions(module).values()], dict(module.attributes))
    entry = entry_function(copy)
    index, dim = next(iter(batch.items()))
    size = shape_of(entry.body.block.args[index])[dim]
    axis = axis_of_entry(copy, entry, batch, size)
    localizer = Localizer(copy, axis.propagation, Fraction(size, rows))
    states = axis.body.states
    arguments = entry.body.block.args
    types = [localizer.local_type(v.type, states[v]) for v in arguments]
    body = Block(arg_types=types)
    mapping: dict[SSAValue, SSAValue] = dict(zip(arguments, body.args, strict=True))
    for old, new in mapping.items():
        new.name_hint = old.name_hint
    for op in entry.body.block.ops:
        if isinstance(op, ReturnOp):
            body.add_op(ReturnOp(*(mapping[v] for v in op.operands)))
        elif isinstance(op, CallOp):
            after = axis.phases[op] is Phase.AFTER
            localizer.copy_call(op, [REPLICATED if after else states[v] for v in op.operands], body, mapping)
        else:
            localizer.copy_op(op, axis.body.chosen[op], body, mapping)
    assert body.last_op is not None
    name = entry.sym_name.data
    scaled = FuncOp(name, (types, [v.type for v in body.last_op.operands]), Region(body))
    scaled.arg_attrs, scaled.res_attrs = entry.arg_attrs, entry.res_attrs
    copy.body.block.insert_op_before(scaled, entry)
    entry.detach()
    erase_unreached(copy, name)
    return copy
