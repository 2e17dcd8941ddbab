"""The passes by name. In goes a name; out comes the pass, for the drivers, their help and the reference. A pass of
another package joins by `register_pass`."""

from xdsl.passes import ModulePass

from distir.dialects.plugins import Registry

_CLASSES = {
    "apply-sharding": "ApplyShardingPass",
    "batch-shard": "BatchShardPass",
    "beam-shard": "BeamShardPass",
    "check-module": "CheckModulePass",
    "context-parallel": "ContextParallelPass",
    "decompose": "DecomposePass",
    "dtp-parallelize": "DtpParallelizePass",
    "expand-ranks": "ExpandRanksPass",
    "fuse-kernels": "FuseKernelsPass",
    "gradient-type": "GradientTypePass",
    "ilp-shard": "IlpShardPass",
    "matmul-type": "MatmulTypePass",
    "merge-functions": "MergeFunctionsPass",
    "microbatch": "MicrobatchPass",
    "onnx-fold-shapes": "OnnxFoldShapesPass",
    "outline-repeats": "OutlineRepeatsPass",
    "overlap-communication": "OverlapCommunicationPass",
    "pipeline-schedule": "PipelineSchedulePass",
    "pipeline-stages": "PipelineStagesPass",
    "project-to-rank": "ProjectToRankPass",
    "recognise-attention": "RecogniseAttentionPass",
    "recompute-activations": "RecomputeActivationsPass",
    "ring-attention": "RingAttentionPass",
    "shardcombine-annotate": "ShardcombineAnnotatePass",
    "simulate": "SimulatePass",
    "sum-gradients": "SumGradientsPass",
    "zero-partition": "ZeroPartitionPass",
}


PASSES: Registry[type[ModulePass]] = Registry(
    "pass",
    {name: f"distir.passes.{name.replace('-', '_')}:{class_name}" for name, class_name in _CLASSES.items()},
    subclass_of=ModulePass,
)
