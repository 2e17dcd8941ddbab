"""`dtp-parallelize`: the paper's D/T/P transform for any program: data x tensor x pipeline parallelism and microbatches.

Where it stands: from a level 1 program to level 3. It is a pipeline of passes, the first of which run where what they do is missing."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from distir.dialects.errors import DistirError
from distir.passes.solver.deadline import USUAL_SECONDS

if TYPE_CHECKING:
    from distir.passes.overlap_communication import OverlapCommunicationPass

ANY_MEMORY = "1000000TB"
"""As a limit: none."""


@dataclass(frozen=True)
class DtpParallelizePass(ModulePass):
    """Distributes the entry over `dp * cp * tp * pp` devices in `microbatches` microbatches.

    With `overlap`, messages between stages and the reduction of gradients run on streams of their own, beside computation.

    The pass is a pipeline of passes, which `distir-opt --print-pipeline` prints: `ilp-shard` chooses
    both axes of each stage together, within `memory-limit` and what `restrict` lets them cut, for `time-limit` seconds at most; `zero` pins what
    is stored in parts; with `grouped`, what the devices of a stage do alike is written once (`apply-sharding`). With `sharding=auto`, the default,
    plans divide first, as with `divide`; where rules do not let the batch be cut in time, it is one microbatch, and where nothing fits the machine, memory has no
    limit; a note on stderr says so. Requires: level 1 or 2 with
    static shapes (or shapes that fold). Ensures: level 3, `dist.devices` = dp * cp * tp * pp, equal semantics. Raises DistirError
    naming the op and the rule, or the batch, that forbids what was asked."""

    name = "dtp-parallelize"
    dp: int = 1
    """Replicas, each with its rows of the batch."""
    tp: int = 1
    """Devices that share each operation."""
    pp: int = 1
    """Ranks of the pipeline."""
    microbatches: int = 1
    """Microbatches that the batch of a replica is cut into."""
    dp_replicate: int = 1
    """Groups of the `dp` replicas: state is cut within a group, and each holds all of it (hybrid sharding, HSDP)."""
    cp: int = 1
    """Devices that share the sequence of each row, whose attention passes keys and values around (`context-parallel`, `ring-attention`)."""
    schedule: str = "1f1b"
    """As for `pipeline-schedule`."""
    virtual: int = 0
    """Stages on each of the `pp` ranks of the pipeline; 0: as many as the schedule has unless told."""
    batch: str = ""
    """Batch dims, as in "x:0,label:0"; none: dim 0 of inputs and labels."""
    machine: str = "dgx-a100"
    """A machine of `distir machines`, or a .toml file: whose costs count."""
    overlap: bool = False
    """Whether messages have streams of their own, beside computation."""
    bucket: int = 25 * 2**20
    """As for `overlap-communication`."""
    prefetch: int = 1
    """As for `overlap-communication`."""
    chunks: int = 1
    """As for `overlap-communication`, where that is faster."""
    chunk_all: bool = False
    """Whether collectives are cut in chunks also where that is slower."""
    in_place: bool = False
    """Whether kernels read and write chunks where they lie, as for `overlap-communication`."""
    sharding: str = "auto"
    """auto, or ilp: the fastest plan, or an error."""
    zero: int | None = None
    """What is stored in parts over replicas: 1 optimizer state, 2 gradients too, 3 parameters too, 0 nothing; none: what the search chooses."""
    memory_limit: str = ""
    """What a device may hold, as in "28GB"; none: what the machine has."""
    restrict: str = "dp=batch,tp=model"
    """What an axis may cut, as in "dp=batch,tp=model"; none: anything."""
    time_limit: float | None = USUAL_SECONDS
    """As for `ilp-shard`."""
    divide: bool = False
    """As for `ilp-shard` and `pipeline-stages`."""
    cost_model: str = "analytic"
    """As for `simulate`."""
    recompute: str = "none"
    """As for `recompute-activations`."""
    grouped: bool = False
    """Whether what the devices of a stage do alike is written once (`apply-sharding`)."""
    gradient_type: str = ""
    """The type in which gradients are added up over microbatches and reduced, as for `gradient-type`; none: their own."""
    matmul_type: str = ""
    """The type in which devices multiply by weights, as for `matmul-type`; none: their own."""
    matmul_keep: str = ""
    """Modules that `matmul-type` leaves as they are."""

    def pipeline(self) -> tuple[ModulePass, ...]:
        """The passes that this one is."""
        return *preparing(self.cp > 1), *self.planning()

    def planning(self) -> tuple[ModulePass, ...]:
        """Those of the pipeline that take an annotated program."""
        from distir.passes.apply_sharding import ApplyShardingPass
        from distir.passes.context_parallel import ContextParallelPass
        from distir.passes.distribution.pipeline.tasks import splits_backward, stages_of
        from distir.passes.expand_ranks import ExpandRanksPass
        from distir.passes.ilp_shard import IlpShardPass
        from distir.passes.merge_functions import MergeFunctionsPass
        from distir.passes.microbatch import MicrobatchPass
        from distir.passes.pipeline_schedule import PipelineSchedulePass
        from distir.passes.pipeline_stages import PipelineStagesPass
        from distir.passes.recompute_activations import RecomputeActivationsPass
        from distir.passes.ring_attention import RingAttentionPass
        from distir.passes.zero_partition import ZeroPartitionPass

        is_ring = self.cp > 1
        is_hybrid = self.dp_replicate > 1
        axes = {"dp_replicate": self.dp_replicate} if is_hybrid else {}
        axes |= {"dp": self.dp // self.dp_replicate, **({"cp": self.cp} if is_ring else {}), "tp": self.tp}
        stages = stages_of(self.schedule, self.pp, self.virtual)
        virtual = stages // self.pp if stages % self.pp == 0 else 1
        splits = splits_backward(self.schedule)
        search = IlpShardPass(
            mesh=",".join(f"{axis}={size}" for axis, size in axes.items()),
            machine=self.machine,
            cost_model=self.cost_model,
            batch=self.batch,
            restrict=",".join(filter(None, ("dp_replicate=batch" * is_hybrid, self.restrict, "cp=sequence" * is_ring))),
            shards="even" if is_ring else "any",
            memory_limit=self.memory_limit,
            time_limit=self.time_limit,
            divide=self._divides,
            schedule=self.schedule,
        )
        return (
            *self._typing,
            *self._decomposing,
            PipelineStagesPass(
                stages // virtual, self.batch, self.machine, self.microbatches, virtual, splits, self.divide
            ),
            *(
                (RecomputeActivationsPass(self.recompute, self.machine, self.cost_model),)
                if self.recompute != "none"
                else ()
            ),
            MicrobatchPass(self.microbatches, self.batch),
            MergeFunctionsPass(),
            *((ZeroPartitionPass(0, "dp_replicate"),) if is_hybrid else ()),
            *((ZeroPartitionPass(self.zero, "dp,cp" if is_ring else "dp"),) if self.zero is not None else ()),
            *((ContextParallelPass(size=self.cp),) if is_ring else ()),
            search,
            ApplyShardingPass(grouped=self.grouped or is_ring),
            *((RingAttentionPass(machine=self.machine, cost_model=self.cost_model),) if is_ring else ()),
            *((ExpandRanksPass(),) if is_ring and not self.grouped else ()),
            PipelineSchedulePass(self.schedule),
            *((self._overlapping,) if self.overlap else ()),
        )

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.interpreters.entry import entry_function
        from distir.interpreters.machines import load_machine
        from distir.passes.distribution.batch.batch_axis import left_out, parse_batch

        _check(self)
        load_machine(self.machine).check_devices(self.dp * self.cp * self.tp * self.pp)
        prepare(ctx, op, self.cp > 1)
        batch = parse_batch(self.batch, entry_function(op))
        if not self.batch and self.dp * self.microbatches > 1 and (whole := left_out(batch, entry_function(op))):
            print(f"distir: note: dtp-parallelize: {whole}", file=sys.stderr)
        self._plan(ctx, op)

    def _plan(self, ctx: Context, op: ModuleOp) -> None:
        """Runs the passes on an annotated program; with `sharding=auto` in one microbatch where rules allow no more, or leave too few operations to the loop over
        them, and beyond the machine's memory where nothing fits that."""
        from distir.passes.distribution.batch.batch_axis import BatchRefused
        from distir.passes.distribution.pipeline.stages import TooManyStages
        from distir.passes.sharding.search import NothingFits

        untouched = op.clone() if self.sharding == "auto" else None
        try:
            for each in self.planning():
                each.apply(ctx, op)
        except (BatchRefused, TooManyStages, NothingFits) as refusal:
            of_batch = not isinstance(refusal, NothingFits)
            if untouched is None or (self.microbatches == 1 if of_batch else self.memory_limit):
                raise
            changed = replace(self, microbatches=1) if of_batch else replace(self, memory_limit=ANY_MEMORY)
            changed._plan(ctx, untouched)
            _replace(op, untouched)
            what = (
                f"one microbatch instead of {self.microbatches}" if of_batch else f"more memory than {self.machine} has"
            )
            print(f"distir: note: dtp-parallelize: {what}: {refusal}", file=sys.stderr)

    @property
    def _divides(self) -> bool:
        return self.divide or self.sharding == "auto"

    @property
    def _overlapping(self) -> OverlapCommunicationPass:
        """Messages beside computation; collectives in chunks where that is faster."""
        from distir.passes.overlap_communication import OverlapCommunicationPass

        decides = self.chunks > 1 and not self.chunk_all
        costs = {"machine": self.machine, "cost_model": self.cost_model} if decides else {}
        return OverlapCommunicationPass(
            bucket=self.bucket, prefetch=self.prefetch, chunks=self.chunks, in_place=self.in_place, **costs
        )

    @property
    def _typing(self) -> tuple[ModulePass, ...]:
        """What has gradients reduced where they are made, and weights multiplied, maybe in a type of their own."""
        from distir.passes.gradient_type import GradientTypePass
        from distir.passes.matmul_type import MatmulTypePass
        from distir.passes.sum_gradients import SumGradientsPass

        gradients = (GradientTypePass(self.gradient_type, self.batch),) if self.gradient_type else ()
        sums = (SumGradientsPass(self.batch),) if self.microbatches == 1 < self.dp * self.cp else ()
        return (*gradients, *sums, *((MatmulTypePass(self.matmul_type, self.matmul_keep),) if self.matmul_type else ()))

    @property
    def _decomposing(self) -> tuple[ModulePass, ...]:
        """What makes operations cut by more dims, where there are tensor ranks."""
        from distir.passes.decompose import DecomposePass

        return (DecomposePass(self.batch),) if self.tp > 1 else ()


def _replace(module: ModuleOp, other: ModuleOp) -> None:
    """Puts the contents of another module into a module."""
    module.attributes.update(other.attributes)
    for function in list(module.body.block.ops):
        module.body.block.erase_op(function, safe_erase=False)
    for function in list(other.body.block.ops):
        function.detach()
        module.body.block.add_op(function)


def prepare(ctx: Context, module: ModuleOp, shares_sequences: bool = False) -> None:
    """Folds shapes, outlines repeats and finds rules, unless the module has rules already. Where devices are to share sequences, attention that is spelled
    out is recognised before."""
    from distir.passes.structure import is_annotated

    known = is_annotated(module)
    for each in preparing(shares_sequences):
        if not known or (shares_sequences and each.name in ("recognise-attention", "shardcombine-annotate")):
            each.apply(ctx, module)


def preparing(shares_sequences: bool = False) -> tuple[ModulePass, ...]:
    """The passes from level 1 to an annotated program."""
    from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
    from distir.passes.outline_repeats import OutlineRepeatsPass
    from distir.passes.recognise_attention import RecogniseAttentionPass
    from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass

    recognising = (RecogniseAttentionPass(),) if shares_sequences else ()
    return OnnxFoldShapesPass(), *recognising, OutlineRepeatsPass(), ShardcombineAnnotatePass()


def _check(options: DtpParallelizePass) -> None:
    if options.sharding not in ("auto", "ilp"):
        raise DistirError(f"sharding: expected auto or ilp, got '{options.sharding}'")
    for name in ("dp", "dp_replicate", "cp", "tp", "pp", "microbatches"):
        if (value := getattr(options, name)) < 1:
            raise DistirError(f"{name}: expected at least 1, got {value}")
    if options.dp % options.dp_replicate:
        raise DistirError(f"dp_replicate: {options.dp_replicate} groups do not divide {options.dp} replicas")
    if options.virtual < 0:
        raise DistirError(f"virtual: expected at least 1, or 0 for what the schedule has, got {options.virtual}")
