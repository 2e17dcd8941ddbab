"""Staged programs: every level from the cut into stages to the schedule computes what the sequential program does, and takes the time
and the memory that the search says."""

from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp
from xdsl.passes import ModulePass

from distir.dialects.sharding import MeshOp
from distir.interpreters.machines import load_machine
from distir.interpreters.module_check import check_module
from distir.interpreters.reference import run
from distir.interpreters.simulate import simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_schedule import PipelineSchedulePass
from distir.passes.pipeline_stages import PipelineStagesPass
from tests.long_cases import also_long
from tests.slow_machine import written
from tests.small_models import Model, gpt2, mlp

MODELS = {"mlp": mlp, "gpt2": gpt2}


def check_equal(model: Model, module: ModuleOp) -> None:
    module.verify()
    check_module(module)
    expected, found = model.sequential(np.float64), run(module, model.inputs, dtype=np.float64)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)


def applied(model: Model, *passes: ModulePass) -> ModuleOp:
    """The program after these passes; after each it computes what it did."""
    module = model.module.clone()
    for each in passes:
        each.apply(Context(), module)
        check_equal(model, module)
    return module


@pytest.mark.parametrize(
    ("name", "stages", "count", "mesh", "schedule"),
    [
        ("mlp", 1, 4, "dp=2", "1f1b"),
        ("mlp", 2, 4, "dp=2", "gpipe"),
        ("mlp", 3, 2, "", "pipedream"),
        ("mlp", 2, 1, "dp=2,tp=2", "1f1b"),
        ("gpt2", 1, 2, "dp=2,tp=3", "1f1b"),
        pytest.param("gpt2", 2, 4, "tp=2", "gpipe", marks=pytest.mark.long),
    ],
)
def test_every_level_computes_the_same(name: str, stages: int, count: int, mesh: str, schedule: str):
    """Over a mesh the batch is cut by the first axis, whatever that costs, so that means, sums and rows are all met."""
    sharding = [IlpShardPass(mesh=mesh, restrict="dp=batch" * ("dp" in mesh)), ApplyShardingPass()] if mesh else []
    applied(
        MODELS[name](),
        PipelineStagesPass(stages=stages, microbatches=count),
        MicrobatchPass(count=count),
        *sharding,
        PipelineSchedulePass(schedule=schedule),
    )


def planned(module: ModuleOp, machine: str, **options: Any) -> tuple[float, int]:
    """The seconds and the bytes that the search says, of what it writes into the module."""
    IlpShardPass(machine=machine, **options).apply(Context(), module)
    (mesh,) = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
    seconds, peak = mesh.attributes["dist.seconds"], mesh.attributes["dist.peak_memory_bytes"]
    assert isinstance(seconds, FloatAttr)
    assert isinstance(peak, IntegerAttr)
    return seconds.value.data, peak.value.data


@pytest.mark.parametrize(("count", "mesh"), [(1, "dp=2"), (2, "dp=2"), (4, "dp=2,tp=2")])
def test_a_plan_of_accumulation_takes_what_it_says(count: int, mesh: str, tmp_path: Any):
    """On a machine so slow that sharding pays."""
    machine = written(tmp_path)
    module = mlp(widths=(12, 24, 24, 24, 12)).module.clone()
    PipelineStagesPass(microbatches=count).apply(Context(), module)
    MicrobatchPass(count=count).apply(Context(), module)
    seconds, peak = planned(module, machine, mesh=mesh)
    ApplyShardingPass().apply(Context(), module)
    PipelineSchedulePass().apply(Context(), module)
    found = simulate(module, load_machine(machine))
    assert found.makespan_seconds == pytest.approx(seconds, rel=1e-12)
    assert max(found.peak_memory_bytes.values()) == peak
    assert "dist.allreduce" in found.counts or "dist.reducescatter" in found.counts


SEVERAL = ("interleaved", "dualpipev", "looped-bfs", "zb-h1", "zbv")


@pytest.mark.parametrize("schedule", also_long(SEVERAL, ["dualpipev"]))
def test_several_stages_on_a_rank(schedule: str, tmp_path: Any):
    """Two ranks, and the search says what the written program takes."""
    machine, model, virtual = written(tmp_path), mlp((12,) * 5, 16), 1 if schedule == "zb-h1" else 2
    stages = PipelineStagesPass(stages=2, microbatches=4, virtual=virtual)
    module = applied(model, stages, MicrobatchPass(count=4))
    seconds, peak = planned(module, machine, mesh="dp=2", restrict="dp=batch", schedule=schedule)
    for each in (ApplyShardingPass(), PipelineSchedulePass(schedule=schedule)):
        each.apply(Context(), module)
        check_equal(model, module)
    found = simulate(module, load_machine(machine))
    assert found.makespan_seconds == pytest.approx(seconds, rel=1e-12)
    assert len(found.peak_memory_bytes) == 4
    assert max(found.peak_memory_bytes.values()) == peak
