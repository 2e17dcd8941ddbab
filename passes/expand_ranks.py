"""`expand-ranks`: writes out what is said of a group whose devices do the same. In goes level 3 over groups (`#dist.on<0:8>`), out
comes level 3 in which every device has operations of its own."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class ExpandRanksPass(ModulePass):
    """Requires: a module that holds together. Ensures: no value is on a group, and no mesh is left; equal semantics. A module without
    groups stays as it is."""

    name = "expand-ranks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.interpreters.ranks import write_out

        write_out(op)
