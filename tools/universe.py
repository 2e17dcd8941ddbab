"""The registry: names to lazy factories of dialects and passes, for `distir-opt` and (as entry point) `xdsl-opt`.

Every xDSL tool in the environment imports this module, so it imports nothing heavy itself.
"""

from collections.abc import Callable
from importlib import import_module

from xdsl.passes import ModulePass
from xdsl.universe import Universe

from distir.dialects.registry import DIALECTS

PASSES = {
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


def _pass_factory(name: str, class_name: str) -> Callable[[], type[ModulePass]]:
    def found() -> type[ModulePass]:
        from distir.tools.pass_options import reading_options

        return reading_options(getattr(import_module(f"distir.passes.{name.replace('-', '_')}"), class_name))

    return found


DISTIR_UNIVERSE = Universe(
    all_dialects=DIALECTS,
    all_passes={name: _pass_factory(name, class_name) for name, class_name in PASSES.items()},
)
