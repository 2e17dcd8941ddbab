"""`pipeline-schedule`: writes the order in which stages run their microbatches, with messages between stages.

Where it stands: after `pipeline-stages`, `microbatch` and, where stages have several devices, `apply-sharding`; the result is level 3."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class PipelineSchedulePass(ModulePass):
    """Writes out the loop over microbatches in the order of `schedule`, each rank (one stage, or several) on devices of its own.

    Requires: a staged entry, placed over the devices of one stage (one device, if it is not placed). Ensures: level 3 on as many devices
    for each rank; values go to other ranks by `dist.send`; the first microbatch adds to no sums; no loop, rule, stage or phase is left. Equal semantics."""

    name = "pipeline-schedule"
    schedule: str = "1f1b"
    """In which order ranks do what: 1f1b, gpipe, interleaved, looped-bfs, zb-h1, zbv, dualpipev, pipedream, 1f1b-eager, forward-only, a plug-in's, or
    a FILE.csv as PyTorch writes them."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.dist.calls import is_placed
        from distir.interpreters.entry import entry_function
        from distir.passes.distribution.pipeline.tasks import check_schedule
        from distir.passes.staging.placing import check_is_staged, place_on_one_device
        from distir.passes.staging.schedule import write_schedule
        from distir.passes.staging.zeros import remove_zeros

        check_schedule(self.schedule)
        entry = entry_function(op)
        if not is_placed(entry):
            place_on_one_device(ctx, op, entry)
        check_is_staged(op, entry)
        starting = write_schedule(op, entry, self.schedule)
        remove_zeros(op, entry, starting)
