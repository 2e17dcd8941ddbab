"""`zero-partition`: says that state, gradients or parameters are stored in parts, as ZeRO does: 1, 2 or 3 of these, or none.

Where it stands: after `microbatch` (or on a program without stages), before `ilp-shard`, which chooses the rest."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class ZeroPartitionPass(ModulePass):
    """Pins what each device stores (Rajbhandari et al., "ZeRO", SC 2020): with `stage` 1 the optimizer's state is cut along the axes `axis` ("dp",
    several as "pod,dp"), with 0 nothing is, with 2 the sums of gradients too, with 3 the parameters too: functions take these in parts, so that forward and backward parts each
    gather what they use. What a stage does not cut is whole along them, and sums are addends. What no dim of divides stays whole.

    Requires: level 1 or 2. Ensures: `dist.stored` on the entry's parameters and state, and on what the loop over microbatches adds
    up. Nothing moves yet: `ilp-shard` chooses the dims, and gathers and reduces where that costs least."""

    name = "zero-partition"
    stage: int = 1
    """0, 1, 2 or 3: what is stored in parts."""
    axis: str = "dp"
    """The axis of the mesh."""
    entry: str = "main"
    """The function that the program begins with."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.errors import DistirError
        from distir.passes.staging.zero import pin_stored

        if self.stage not in (0, 1, 2, 3):
            raise DistirError(f"stage: expected 0, 1, 2 or 3, got {self.stage}")
        axes = [axis.strip() for axis in self.axis.split(",")]
        if not all(axes) or len(set(axes)) < len(axes):
            raise DistirError(f'axis: expected distinct names of axes such as "dp", got "{self.axis}"')
        pin_stored(op, self.entry, self.stage, axes)
