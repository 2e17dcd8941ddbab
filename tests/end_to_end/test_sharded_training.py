"""Training steps of a GPT, a graph attention network and a ResNet as `ilp-shard` shards them, on one axis and on two: the plan's
program computes what the step computes, in this process and as processes over gloo."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, TensorType, TupleType

from benchmarks.gpt_training import gpt_step
from benchmarks.training_workloads import gat_step, wide_resnet_step
from distir.backends.torch import execute
from distir.backends.torch import run as run_processes
from distir.dialects.dist import AccumulateOp, AllGatherOp
from distir.dialects.sharding import MeshOp, StrategyAttr, UseFactor
from distir.interpreters.entry import entry_function
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.reference import run
from distir.interpreters.simulate import simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.pipeline.streams import stream_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.ilp_shard import IlpShardPass
from distir.tools.commands.values import values_for
from tests.slow_machine import written

WORKLOADS: dict[str, Callable[[], ModuleOp]] = {
    "gpt": lambda: gpt_step(layers=2, width=32, heads=4, vocabulary=64, batch=4, sequence=8),
    "odd-gpt": lambda: gpt_step(layers=2, width=30, heads=6, vocabulary=61, batch=5, sequence=7),
    "gat": lambda: gat_step(nodes=16, width=8, heads=4, classes=4),
    "resnet": lambda: wide_resnet_step(8, 4, blocks=(2, 1), classes=8, channels=8, image=32),
}


@cache
def step(workload: str) -> tuple[ModuleOp, dict[str, Any], dict[str, Any]]:
    """A step, values for it, and what it computes on them."""
    module = WORKLOADS[workload]()
    values = values_for(module, 0, None)
    return module, values, run(module, values, dtype=np.float64)


def plan(workload: str, tmp_path: Path, **options: str) -> ModuleOp:
    module = step(workload)[0].clone()
    IlpShardPass(machine=written(tmp_path), **options).apply(Context(), module)
    return module


def strategies(module: ModuleOp, operation: str) -> Iterator[dict[str, Any]]:
    """What all operations of this name choose along each axis."""
    for op in module.walk():
        if op.name == operation and isinstance(strategy := op.attributes.get("dist.strategy"), StrategyAttr):
            yield strategy.choices


ONE_AXIS, TWO_AXES = {"mesh": "tp=4"}, {"mesh": "dp=2,tp=2"}
TWO_ROLES = {**TWO_AXES, "restrict": "dp=batch,tp=model"}
"""Data parallelism on one axis, Megatron's cuts on the other. For the ResNet; its search over all cuts by both axes takes half a minute."""


@pytest.mark.parametrize(
    ("workload", "options"),
    [
        pytest.param("gpt", TWO_AXES, marks=pytest.mark.long),
        pytest.param("odd-gpt", ONE_AXIS, marks=pytest.mark.long),
        ("gat", ONE_AXIS),
        pytest.param("odd-gpt", TWO_AXES, marks=pytest.mark.long),
        pytest.param("gpt", ONE_AXIS, marks=pytest.mark.long),
        pytest.param("gat", TWO_AXES, marks=pytest.mark.long),
        pytest.param("resnet", ONE_AXIS, marks=pytest.mark.long),
        pytest.param("resnet", TWO_ROLES, marks=pytest.mark.long),
    ],
)
def test_plans_compute_what_the_step_computes(workload: str, options: dict[str, str], tmp_path: Path):
    _, values, expected = step(workload)
    module = plan(workload, tmp_path, **options)
    ApplyShardingPass().apply(Context(), module)
    module.verify()
    found = run(module, values, dtype=np.float64)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-10, err_msg=name)


def test_attention_is_cut_by_heads_within_the_rows_of_a_replica(tmp_path: Path):
    """Data parallelism on one axis and Megatron's cut on the other (Shoeybi et al., 2019, section 3), which PyTorch's batched
    products of [batch * heads, ...] have inside one dim: 4 rows of 4 heads."""
    module = plan("gpt", tmp_path, mesh="dp=2,tp=2", restrict="dp=batch,tp=model")
    products = list(strategies(module, "aten.bmm"))
    assert products
    assert all(choices == {"dp": UseFactor("S1"), "tp": UseFactor("S1", (4,) * 4)} for choices in products)
    _, values, expected = step("gpt")
    ApplyShardingPass().apply(Context(), module)
    found = run(module, values, dtype=np.float64)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("workload", "options"),
    [
        ("gpt", ONE_AXIS),
        ("gpt", TWO_AXES),
        ("odd-gpt", ONE_AXIS),
        ("odd-gpt", TWO_AXES),
        ("gat", ONE_AXIS),
        ("gat", TWO_AXES),
        ("resnet", ONE_AXIS),
        ("resnet", TWO_ROLES),
        ("resnet", TWO_AXES),
    ],
    ids=str,
)
def test_processes_compute_what_the_step_computes(workload: str, options: dict[str, str], tmp_path: Path):
    _, values, expected = step(workload)
    module = plan(workload, tmp_path, **options)
    ApplyShardingPass().apply(Context(), module)
    found = run_processes(module, values, backend="gloo")
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_processes_gather_in_buckets():
    """Parameters stored in parts, gathered in messages of up to 16 KiB on streams of their own: ZeRO 3 beside computation."""
    sequential, values, expected = step("gpt")
    module = sequential.clone()
    options: dict[str, Any] = {"sharding": "ilp", "zero": 3, "divide": True, "overlap": True, "bucket": 1 << 14}
    DtpParallelizePass(dp=2, machine="local-cpu", **options).apply(Context(), module)
    gathers = [op for op in module.walk() if isinstance(op, AllGatherOp)]
    assert any(isinstance(op.operands[0].type, TupleType) for op in gathers)
    found = run_processes(module, values, backend="gloo")
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("zero", "stages"), [(2, 1), (3, 2), pytest.param(2, 2, marks=pytest.mark.long)])
def test_processes_add_up_gradients_beside_computation(zero: int, stages: int, tmp_path: Path):
    """Each microbatch's gradients are reduced, and added to those before, on a stream of their own: parameters after three steps."""
    sequential, values, _ = step("gpt")
    module = sequential.clone()
    options: dict[str, Any] = {"sharding": "ilp", "restrict": "dp=batch", "zero": zero, "overlap": True, "pp": stages}
    DtpParallelizePass(dp=2, microbatches=2, machine=written(tmp_path), **options).apply(Context(), module)
    sums = [op.results[0] for op in module.walk() if isinstance(op, AccumulateOp)]
    assert sum(stream_of(value) == "reduce" for value in sums) > len(sums) / 2
    batches = [{name: draw_inputs(sequential, seed)[name] for name in ("tokens", "label")} for seed in (1, 2, 3)]
    alone = dict(values)
    for batch in batches:
        alone |= run(sequential, alone | batch, dtype=np.float64)
    found = execute(module, values | batches[0], following=batches[1:], dtype=np.float64).outputs
    for name, value in found.items():
        np.testing.assert_allclose(value, alone[name], rtol=1e-9, atol=1e-10, err_msg=name)


def test_the_vocabulary_and_heads_are_cut_unevenly(tmp_path: Path):
    """61 tokens and 6 heads over 4 devices; the time is that of the program."""
    module = plan("odd-gpt", tmp_path, **ONE_AXIS)
    (mesh,) = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
    seconds = mesh.attributes["dist.seconds"]
    assert isinstance(seconds, FloatAttr)
    ApplyShardingPass().apply(Context(), module)
    shapes = {
        tuple(v.type.get_shape()) for v in entry_function(module).body.block.args if isinstance(v.type, TensorType)
    }
    assert {(15, 30), (16, 30)} <= shapes
    simulated = simulate(module, written(tmp_path)).makespan_seconds
    assert round(simulated * 1e12) == round(seconds.value.data * 1e12)


@pytest.mark.long
@pytest.mark.parametrize("workload", ["gpt", "gat"])
def test_processes_within_a_limit_of_memory_compute_what_the_step_computes(workload: str, tmp_path: Path):
    """Nine tenths of what the fastest plan needs: another plan, whose program stays within it and computes the same."""
    (free,) = [op for op in plan(workload, tmp_path, **ONE_AXIS).body.block.ops if isinstance(op, MeshOp)]
    peak = free.attributes["dist.peak_memory_bytes"]
    assert isinstance(peak, IntegerAttr)
    limit = peak.value.data * 9 // 10
    module = plan(workload, tmp_path, **ONE_AXIS, memory_limit=str(limit))
    ApplyShardingPass().apply(Context(), module)
    assert max(simulate(module, written(tmp_path)).peak_memory_bytes.values()) <= limit
    _, values, expected = step(workload)
    found = run_processes(module, values, backend="gloo")
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
