"""Backward parts in two, and the schedules that run the second later: what other stages wait for does not wait for gradients of weights."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp
from xdsl.ir import Operation

from distir.dialects.sharding import MeshOp
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.module_check import check_module
from distir.interpreters.reference import run
from distir.interpreters.simulate import simulate
from distir.passes.distribution.pipeline.stages import phase_of, stage_calls, stage_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_schedule import PipelineSchedulePass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.structure import functions
from tests.slow_machine import written
from tests.small_models import Model, mlp, residual_step

SPLIT = ("zb-h1", "zbv", "dualpipev")


def check_equal(module: ModuleOp, model: Model) -> None:
    module.verify()
    check_module(module)
    expected, found = model.sequential(np.float64), run(module, model.inputs, dtype=np.float64)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def executed(module: ModuleOp, name: str) -> Iterator[Operation]:
    """The operations that a function runs."""
    for op in functions(module)[name].body.block.ops:
        if op.name == "func.call":
            yield from executed(module, op.callee.string_value())  # pyright: ignore
        else:
            yield op


def test_gradients_of_weights_are_a_phase_of_their_own() -> None:
    """Of the products in the backward part of a layer, two make gradients of activations, and two those of weights. No stage waits for the
    first one, so all that it does backwards is of the second kind."""
    module = residual_step().module.clone()
    PipelineStagesPass(stages=4, split_backward=True).apply(Context(), module)
    check_equal(module, residual_step())
    calls = {
        (phase_of(call), stage_of(call)): call.callee.string_value() for call in stage_calls(entry_function(module))
    }
    found = {key: sum(op.name == "aten.mm" for op in executed(module, name)) for key, name in calls.items()}
    assert [found["weights", stage] for stage in (1, 2, 3)] == [2, 2, 2]
    assert [found["backward", stage] for stage in (1, 2, 3)] == [2, 2, 2]
    assert found["weights", 0] == 4
    assert ("backward", 0) not in calls


def test_an_operation_that_makes_both_is_not_split() -> None:
    """The gradient of ONNX's matmul is one operation here: nothing is left for later but what the first stage does."""
    module = mlp().module.clone()
    PipelineStagesPass(stages=2, split_backward=True).apply(Context(), module)
    check_equal(module, mlp())
    calls = [(phase_of(call), stage_of(call)) for call in stage_calls(entry_function(module))]
    assert ("weights", 1) not in calls
    assert ("weights", 0) in calls


LONG = [pytest.param(each, marks=pytest.mark.long) for each in ("zbv", "1f1b")]


@pytest.mark.parametrize("schedule", ["zb-h1", "dualpipev", *LONG])
def test_every_level_computes_the_same(schedule: str) -> None:
    module, virtual = residual_step().module.clone(), 2 if schedule in ("zbv", "dualpipev") else 1
    for each in (
        PipelineStagesPass(stages=2, virtual=virtual, microbatches=4, split_backward=True),
        MicrobatchPass(count=4),
        PipelineSchedulePass(schedule=schedule),
    ):
        each.apply(Context(), module)
        check_equal(module, residual_step())


@pytest.mark.long
@pytest.mark.parametrize("schedule", SPLIT)
def test_the_search_says_what_the_written_program_takes(schedule: str, tmp_path: Path) -> None:
    machine, module = written(tmp_path), residual_step().module.clone()
    asked = DtpParallelizePass(
        dp=2, pp=2, microbatches=4, schedule=schedule, machine=machine, restrict="dp=batch", time_limit=20
    )
    told: list[tuple[float, int]] = []
    for each in asked.planning():
        each.apply(Context(), module)
        if isinstance(each, IlpShardPass):
            (mesh,) = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
            seconds, peak = mesh.attributes["dist.seconds"], mesh.attributes["dist.peak_memory_bytes"]
            assert isinstance(seconds, FloatAttr)
            assert isinstance(peak, IntegerAttr)
            told.append((seconds.value.data, peak.value.data))
    found = simulate(module, load_machine(machine))
    assert told == [(pytest.approx(found.makespan_seconds, rel=1e-12), max(found.peak_memory_bytes.values()))]
    check_equal(module, residual_step())
