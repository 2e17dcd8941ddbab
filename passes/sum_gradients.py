"""`sum-gradients`: says where the gradients of a training step are sums. In goes a training step with rules; in what comes out, updates use each gradient as a sum of one
addend (`dist.accumulate`), which devices that hold addends of it may reduce there.

Where it stands: after `shardcombine-annotate`, before `pipeline-stages` or `ilp-shard`, of a program with one microbatch. Of more, `microbatch` makes sums itself."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class SumGradientsPass(ModulePass):
    """Makes a sum of each gradient right after it. Addends that are reduced there are not held until the updates: by FSDP and DDP gradients are reduced as soon as they are made. A gradient
    is what `gradient-type` casts.

    Requires: rules, a batch (`batch`, "x:0": by default dim 0 of inputs and labels). Ensures: equal values. Where rules do not let the batch be cut, the program
    stays as it is. `apply-sharding` removes the sums."""

    name = "sum-gradients"
    batch: str = ""
    """Batch dims, as in "x:0,label:0"; none: dim 0 of inputs and labels."""
    entry: str = "main"
    """The function that the program begins with."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.interpreters.entry import entry_function
        from distir.passes.distribution.batch.batch_axis import parse_batch
        from distir.passes.staging.gradients import sum_gradients

        entry = entry_function(op, self.entry)
        sum_gradients(op, entry, parse_batch(self.batch, entry))
