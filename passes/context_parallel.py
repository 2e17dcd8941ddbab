"""`context-parallel`: says that an axis cuts the sequence of attention.

Where it stands: level 1 or 2, before `ilp-shard`, which chooses the rest; `ring-attention` follows `apply-sharding`."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class ContextParallelPass(ModulePass):
    """Pins every attention to cut its queries along the sequence over `axis`, and what makes its keys and values, and uses their gradients, to have them so
    cut: they are gathered, and summed, right at the attention, where `ring-attention` passes them around instead.

    Requires: level 1 or 2. Ensures: `dist.strategy` on these operations, `dist.stored` on arguments of functions. Raises DistirError
    if no attention of the program can be cut so (`recognise-attention` finds what is spelled out)."""

    name = "context-parallel"
    axis: str = "cp"
    """The axis of the mesh."""
    size: int = 1
    """Devices along it, which have to divide every sequence; 1: not known yet."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.errors import DistirError
        from distir.passes.attention.sequence import pin_sequences

        if self.size < 1:
            raise DistirError(f"size: expected at least 1, got {self.size}")
        if not self.axis.strip():
            raise DistirError('axis: expected the name of an axis such as "cp", got ""')
        if not pin_sequences(op, self.axis.strip(), self.size):
            raise DistirError(
                "context-parallel: the program has no attention whose queries can be cut along their sequence: where weights are used "
                "for anything else than their product with values, or a mask is trained, attention stays spelled out"
            )
