"""`dtp-parallelize`: the paper's D/T/P transform for any program: data x tensor x pipeline parallelism and microbatches.

Where it stands: from a level 1 program to level 3. It is the composition of `onnx-fold-shapes`, `outline-repeats`,
`shardcombine-annotate` (each where missing), stages, the batch axis, the tensor axis and a schedule."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class DtpParallelizePass(ModulePass):
    """Distributes the entry over `dp * tp * pp` devices in `microbatches` microbatches.

    With `overlap`, messages between stages and the reduction of gradients run on streams of their own, beside computation.

    The tensor axis is chosen by minimising communication over the rules, as `machine` has it. Requires: level 1 or 2 with
    static shapes (or shapes that fold). Ensures: level 3, `dist.devices` = dp * tp * pp, equal semantics. Raises DistirError
    naming the op and the rule, or the batch, that forbids what was asked."""

    name = "dtp-parallelize"
    dp: int = 1
    tp: int = 1
    pp: int = 1
    microbatches: int = 1
    schedule: str = "1f1b"
    batch: str = ""
    machine: str = "dgx-a100"
    overlap: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.interpreters.entry import entry_function
        from distir.interpreters.machines import load_machine
        from distir.passes.distribution.batch.batch_axis import parse_batch
        from distir.passes.distribution.pipeline.layout import Layout
        from distir.passes.distribution.pipeline.streams import overlap_communication
        from distir.passes.distribution.plan import distribute

        _check_degrees(self)
        machine = load_machine(self.machine)
        machine.check_devices(self.dp * self.tp * self.pp)
        prepare(ctx, op)
        batch = parse_batch(self.batch, entry_function(op))
        layout = Layout(self.dp, self.tp, self.pp, self.microbatches)
        distribute(op, batch, layout, self.schedule, machine, outline_replicas=not self.overlap)
        if self.overlap:
            overlap_communication(op, entry_function(op))


def prepare(ctx: Context, module: ModuleOp) -> None:
    """Folds shapes, outlines repeats and finds rules, unless the module has rules already."""
    from distir.passes.distribution.plan import is_annotated
    from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
    from distir.passes.outline_repeats import OutlineRepeatsPass
    from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass

    if is_annotated(module):
        return
    OnnxFoldShapesPass().apply(ctx, module)
    OutlineRepeatsPass().apply(ctx, module)
    ShardcombineAnnotatePass().apply(ctx, module)


def _check_degrees(options: DtpParallelizePass) -> None:
    from distir.dialects.errors import DistirError

    for name in ("dp", "tp", "pp", "microbatches"):
        if (value := getattr(options, name)) < 1:
            raise DistirError(f"{name}: expected at least 1, got {value}")
