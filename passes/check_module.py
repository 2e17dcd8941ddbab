"""`check-module`: what `distir-opt` checks on every module, as a pass for other drivers (`xdsl-opt`), and the result types of operators."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class CheckModulePass(ModulePass):
    """Requires nothing, changes nothing; ensures dominance, callees, no recursion, call types, one place per op, and that operators have the result
    types that their meaning infers; those whose library (torch for `aten`) is not installed are left out."""

    name = "check-module"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.interpreters.module_check import check_module

        check_module(op)
