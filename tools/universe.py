"""The passes by name, and the dialects and passes as a universe of xDSL: what `distir-opt` and (as entry point) `xdsl-opt` know, those of
plug-ins among them. Every xDSL tool in the environment imports this module, so it imports nothing heavy itself."""

from collections.abc import Callable

from xdsl.passes import ModulePass
from xdsl.universe import Universe

from distir.dialects.plugins import Registry
from distir.dialects.registry import DIALECTS

_CLASSES = {
    "apply-sharding": "ApplyShardingPass",
    "batch-shard": "BatchShardPass",
    "beam-shard": "BeamShardPass",
    "check-module": "CheckModulePass",
    "dtp-parallelize": "DtpParallelizePass",
    "expand-ranks": "ExpandRanksPass",
    "ilp-shard": "IlpShardPass",
    "microbatch": "MicrobatchPass",
    "onnx-fold-shapes": "OnnxFoldShapesPass",
    "outline-repeats": "OutlineRepeatsPass",
    "overlap-communication": "OverlapCommunicationPass",
    "pipeline-schedule": "PipelineSchedulePass",
    "pipeline-stages": "PipelineStagesPass",
    "project-to-rank": "ProjectToRankPass",
    "shardcombine-annotate": "ShardcombineAnnotatePass",
    "simulate": "SimulatePass",
    "zero-partition": "ZeroPartitionPass",
}


PASSES: Registry[type[ModulePass]] = Registry(
    "pass", {name: f"distir.passes.{name.replace('-', '_')}:{class_name}" for name, class_name in _CLASSES.items()}
)


def _pass_factory(name: str) -> Callable[[], type[ModulePass]]:
    def found() -> type[ModulePass]:
        from distir.tools.pass_options import reading_options

        return reading_options(PASSES[name])

    return found


DISTIR_UNIVERSE = Universe(
    all_dialects={name: DIALECTS.factory(name) for name in DIALECTS},
    all_passes={name: _pass_factory(name) for name in PASSES},
)
