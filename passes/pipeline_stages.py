"""`pipeline-stages`: cuts the entry into P balanced stages; the entry becomes calls of one function per stage and phase.

Where it stands: after `shardcombine-annotate`, before `pipeline-schedule`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import inf

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class PipelineStagesPass(ModulePass):
    """Cuts the forward part, in program order (what takes a layer's parameters again is put beside what took them first), into `stages` parts
    of balanced cost on `machine`, or `virtual` times as many, of which each rank of the pipeline then has so many; backward operations and
    updates follow the values and parameters they need. Stages begin inside a call only where others take the same parameters, too many for
    one stage. Where a stage has over 1.2 times its share of the parameters, stages may be up to a tenth slower for it to have less; with
    `divide`, as slow as it takes.

    Requires: rules on ops (level 2, no mesh). Ensures: the entry only calls `@forward_p`, `@backward_p`, `@update_p`
    (and `@before_p` for what does not depend on the batch); each call carries `dist.stage` and `dist.phase`. Equal
    semantics."""

    name = "pipeline-stages"
    stages: int = 1
    """Ranks of the pipeline: stages, unless `virtual` says otherwise."""
    batch: str = ""
    """Batch dims, as in "x:0,label:0"; none: dim 0 of inputs and labels."""
    machine: str = "dgx-a100"
    """A machine of `distir machines`, or a .toml file: whose costs count."""
    microbatches: int = 1
    """Into how many parts the batch will be cut: what needs all of them is then no part of the forward and backward calls, nor what functions make of
    parameters alone, where it is no larger than these (a weight that is cast)."""
    virtual: int = 1
    """Stages on each rank."""
    split_backward: bool = False
    """Whether backward parts are in two: what other stages wait for, and what they do not (`@weights_p`: gradients of weights, mostly)."""

    divide: bool = False
    """Whether parameters are even before time is."""
    whole_layers: bool = False
    """Whether more stages than the entry has operations are refused, rather than to begin inside the repeated layers that it calls."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.dist import BatchRowsOp
        from distir.dialects.errors import DistirError
        from distir.interpreters.entry import entry_function
        from distir.interpreters.machines import load_machine
        from distir.passes.distribution.batch.batch_axis import Phase, describe_need, parse_batch
        from distir.passes.distribution.pipeline.cuts import SLOWER
        from distir.passes.distribution.pipeline.local_program import cut_into_stages
        from distir.passes.distribution.pipeline.stages import VIRTUAL
        from distir.passes.staging.before_loop import run_before_loop

        for name in ("stages", "microbatches", "virtual"):
            if (count := getattr(self, name)) < 1:
                raise DistirError(f"{name}: expected at least 1, got {count}")
        batch = parse_batch(self.batch, entry := entry_function(op))
        if self.microbatches > 1:
            run_before_loop(op, entry, batch, self.microbatches)
        machine, stages = load_machine(self.machine), self.stages * self.virtual
        axis = cut_into_stages(
            op,
            batch,
            self.microbatches,
            stages,
            machine,
            whole_layers=self.whole_layers,
            gathers=True,
            splits=self.split_backward,
            slower=inf if self.divide else SLOWER,
        )
        if self.virtual > 1:
            op.attributes[VIRTUAL] = IntegerAttr(self.virtual, i64)
        if axis.gathered is not None:
            phases = [phase for op, phase in axis.phases.items() if not isinstance(op, BatchRowsOp)]
            what = describe_need(axis.gathered)
            print(
                f"distir: note: pipeline-stages: {what}, so it runs after the loop over microbatches, with what follows it "
                f"({phases.count(Phase.AFTER)} of {len(phases)} operations)",
                file=sys.stderr,
            )
