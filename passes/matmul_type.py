"""`matmul-type`: products with weights in a type of their own. In goes a training step or a model with rules; out comes the same, of which each such
product says in which type a device computes it (`dist.matmul_type`).

Where it stands: after `shardcombine-annotate`, before `pipeline-stages` or `ilp-shard`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

TYPES = ("f8E4M3FN", "f8E5M2", "bf16", "f16")


@dataclass(frozen=True)
class MatmulTypePass(ModulePass):
    """Marks the products of weights: contractions of what is computed from inputs with what is computed from parameters alone, and those that make the
    gradients of parameters. Attention, which has no weights, stays in its own type.

    Requires: rules. Ensures: the same program. What is marked is a cost alone: a device multiplies at the rate that the machine file has for `type`, and what is of
    inputs, or of their gradients, is rounded for it by a kernel that writes it twice, as it is and transposed (`dist.rounded`). Values are not rounded."""

    name = "matmul-type"
    type: str = "f8E4M3FN"
    """f8E4M3FN, f8E5M2, bf16 or f16."""
    keep: str = ""
    """Modules of the model whose products stay as they are, as in "lm_head,layers.0": of a function that several layers are, theirs becomes one of its own."""
    entry: str = "main"
    """The function that the program begins with."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.errors import DistirError
        from distir.interpreters.entry import entry_function
        from distir.passes.staging.weight_products import mark_products
        from distir.passes.structure import is_annotated

        if self.type not in TYPES:
            raise DistirError(f"type: expected one of {', '.join(TYPES)}, got '{self.type}'")
        if not is_annotated(op):
            raise DistirError("matmul-type: the program has no rules: run shardcombine-annotate first")
        kept = list(dict.fromkeys(name for each in self.keep.split(",") if (name := each.strip())))
        for name in mark_products(op, entry_function(op, self.entry), self.type, kept):
            print(f"distir: note: matmul-type: no product with a weight is of a module {name!r}", file=sys.stderr)
