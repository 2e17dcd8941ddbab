"""`gradient-type`: gradients in a type of their own. In goes a training step with rules; out comes the same with each gradient cast to the type where
it is made and back where it is used, so that it is added up over microbatches and reduced over replicas in that type.

Where it stands: after `shardcombine-annotate`, before `pipeline-stages` or `ilp-shard`."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, Float64Type, ModuleOp
from xdsl.passes import ModulePass

TYPES = {"bf16": BFloat16Type, "f16": Float16Type, "f32": Float32Type, "f64": Float64Type}


@dataclass(frozen=True)
class GradientTypePass(ModulePass):
    """Casts each gradient to `type` (`dist.cast`), and back for what follows. A gradient is a sum over the batch that is whole only after the loop over
    microbatches, and that an updated parameter or state depends on. A gradient that has the type already is not cast.

    Requires: rules, a batch (`batch`, "x:0": by default dim 0 of inputs and labels). Ensures: equal values, but for rounding. Along axes that may cut
    the batch alone (`restrict`), what makes a gradient hands addends on (`dist.addends`), so that they are not reduced before the cast."""

    name = "gradient-type"
    type: str = "f32"
    """bf16, f16, f32 or f64."""
    batch: str = ""
    """Batch dims, as in "x:0,label:0"; none: dim 0 of inputs and labels."""
    entry: str = "main"
    """The function that the program begins with."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.errors import DistirError
        from distir.interpreters.entry import entry_function
        from distir.passes.distribution.batch.batch_axis import parse_batch
        from distir.passes.staging.gradients import cast_gradients

        if self.type not in TYPES:
            raise DistirError(f"type: expected one of {', '.join(TYPES)}, got '{self.type}'")
        entry = entry_function(op, self.entry)
        cast_gradients(op, entry, parse_batch(self.batch, entry), TYPES[self.type]())
