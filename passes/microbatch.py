"""`microbatch`: the batch of a staged program cut into microbatches, and the loop over them as one operation.

Where it stands: after `pipeline-stages`, before `ilp-shard`, `apply-sharding` and `pipeline-schedule`."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class MicrobatchPass(ModulePass):
    """Makes the calls of the forward and the backward part one function at the rows of one of `count` microbatches, which
    `dist.microbatches` runs for each; what is summed over the batch is added up where it is made, what has its rows is put together.

    Requires: an entry of stage calls, rules on operations, a batch (`batch`, "x:0": by default dim 0 of inputs and labels) that
    `count` divides. Ensures: equal semantics; with `count=1` the program stays as it is."""

    name = "microbatch"
    count: int = 1
    """Microbatches."""
    batch: str = ""
    """Batch dims, as in "x:0,label:0"; none: dim 0 of inputs and labels."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.errors import DistirError
        from distir.interpreters.entry import entry_function
        from distir.passes.distribution.batch.batch_axis import parse_batch
        from distir.passes.distribution.pipeline.stages import stage_calls
        from distir.passes.staging.loop import loop_over_microbatches

        if self.count < 1:
            raise DistirError(f"count: expected at least 1, got {self.count}")
        entry = entry_function(op)
        stage_calls(entry)
        if self.count > 1:
            loop_over_microbatches(op, parse_batch(self.batch, entry), self.count)
