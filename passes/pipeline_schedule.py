"""`pipeline-schedule`: cuts the batch into microbatches and writes the order in which stages run them.

Where it stands: after `pipeline-stages`; the result is level 3, one device per stage."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class PipelineSchedulePass(ModulePass):
    """Unrolls the loop over `microbatches` in the order of `schedule` (gpipe, 1f1b or pipedream).

    Requires: an entry of stage calls, rules on ops, a batch that `microbatches` divides. Ensures: level 3 on one device
    per stage; values cross stages by `dist.send`; gradients are accumulated; outputs concatenated. Rules are gone."""

    name = "pipeline-schedule"
    schedule: str = "1f1b"
    microbatches: int = 1
    batch: str = ""
    overlap: bool = False
    """Messages on streams of their own, beside computation."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.errors import DistirError
        from distir.interpreters.entry import entry_function
        from distir.passes.distribution.batch.batch_axis import parse_batch
        from distir.passes.distribution.pipeline.layout import Layout
        from distir.passes.distribution.pipeline.stages import stage_calls, stage_of
        from distir.passes.distribution.pipeline.streams import overlap_communication
        from distir.passes.distribution.plan import assemble, lower_tensors
        from distir.passes.distribution.tensor.local_program import localize

        if self.microbatches < 1:
            raise DistirError(f"microbatches: expected at least 1, got {self.microbatches}")
        entry = entry_function(op)
        batch = parse_batch(self.batch, entry)
        stages = 1 + max((stage_of(call) for call in stage_calls(entry)), default=0)
        program = localize(op, batch, self.microbatches)
        lowering = lower_tensors(program, 1, None)
        assemble(op, program, lowering, Layout(1, 1, stages, self.microbatches), self.schedule)
        if self.overlap:
            overlap_communication(op, entry_function(op))
