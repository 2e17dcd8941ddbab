"""Variants of a repeated body: with one body, all layers are cut alike; with two, layers alternate.

A chain of plain layers is best cut alternately (columns, then rows: one allreduce per two layers), a transformer layer is
best cut the same way each time. Which one is better is for the search to say; here the copies are made."""

from __future__ import annotations

from collections import defaultdict

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import BlockArgument

from distir.passes.structure import argument_attributes, functions, text, unique_symbol


def alternate(module: ModuleOp, entry: FuncOp, period: int) -> bool:
    """Splits every function that the entry calls repeatedly into `period` copies, used in turn; calls that share a
    parameter (the forward and the backward of one layer) use copies of the same turn. False if nothing is repeated."""
    calls: dict[str, list[CallOp]] = defaultdict(list)
    for op in entry.body.block.ops:
        if isinstance(op, CallOp):
            calls[op.callee.string_value()].append(op)
    if not any(len(found) > 1 for found in calls.values()):
        return False
    roles = [text(a, "dist.role", "input") for a in argument_attributes(entry)]
    turn_of: dict[BlockArgument, int] = {}
    table = functions(module)
    for name, found in calls.items():
        if len(found) < 2:
            continue
        copies = [table[name], *(_copy(module, table[name]) for _ in range(period - 1))]
        for i, call in enumerate(found):
            parameters = [
                v for v in call.operands if isinstance(v, BlockArgument) and roles[v.index] in ("parameter", "state")
            ]
            turn = next((turn_of[v] for v in parameters if v in turn_of), i % period)
            turn_of.update((v, turn) for v in parameters if v not in turn_of)
            call.callee = SymbolRefAttr(copies[turn].sym_name.data)
    return True


def _copy(module: ModuleOp, function: FuncOp) -> FuncOp:
    copy = function.clone()
    copy.sym_name = StringAttr(unique_symbol(module, function.sym_name.data))
    module.body.block.add_op(copy)
    return copy
