"""Inlines `func.call`, where a call hides operations that a pass has to separate. In goes a function with calls; out
comes the function with the bodies of its callees in their place."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from distir.passes.structure import calls_first, functions


def inline_call(call: CallOp, callee: FuncOp) -> list[Operation]:
    """Replaces one call by a copy of the callee's body, which it returns."""
    mapping: dict[SSAValue, SSAValue] = dict(zip(callee.body.block.args, call.operands, strict=True))
    block = call.parent
    assert block is not None
    copies = list[Operation]()
    for op in callee.body.block.ops:
        if isinstance(op, ReturnOp):
            for result, value in zip(call.results, op.operands, strict=True):
                result.replace_all_uses_with(mapping[value])
        else:
            copies.append(op.clone(mapping))
    block.insert_ops_before(copies, call)
    block.erase_op(call)
    return copies


def inline_calls(module: ModuleOp, function: FuncOp, callees: frozenset[str] | None = None) -> None:
    """Inlines all calls of a function (of these callees only, if given), once, and erases what is no longer called."""
    table = functions(module)
    for op in list(function.body.block.ops):
        if isinstance(op, CallOp) and (callees is None or op.callee.string_value() in callees):
            inline_call(op, table[op.callee.string_value()])
    erase_unreached(module, function.sym_name.data)


def erase_unreached(module: ModuleOp, entry: str) -> None:
    """Erases functions that the entry does not reach."""
    reached = {f.sym_name.data for f in calls_first(module, entry)}
    for name, function in functions(module).items():
        if name not in reached:
            module.body.block.erase_op(function)
