"""A staged program as one list of operations and back: in goes an entry of stage calls; out comes the entry with their operations in it, and which group
each is of, so that functions of stages are written anew when operations have joined them."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation

from distir.passes.distribution.inline import erase_unreached, inline_call
from distir.passes.distribution.pipeline.stages import Group, build_stages, phase_of, stage_calls, stage_of
from distir.passes.structure import functions, is_constant_expression

Groups = dict[Operation, Group]


def unstage(module: ModuleOp, entry: FuncOp) -> Groups:
    """Puts the operations of stage calls into the entry, in order."""
    table, groups = functions(module), Groups()
    for level, call in enumerate(stage_calls(entry)):
        group = Group(phase_of(call), stage_of(call), level)
        groups.update(dict.fromkeys(inline_call(call, table[call.callee.string_value()]), group))
    erase_unreached(module, entry.sym_name.data)
    return groups


def restage(module: ModuleOp, entry: FuncOp, groups: Groups) -> None:
    """The entry as stage calls again."""
    ops = [op for op in entry.body.block.ops if not is_constant_expression(op) and not isinstance(op, ReturnOp)]
    build_stages(module, entry, ops, groups)
