"""ZeRO's stages, pinned and found: what each device holds between the loop over microbatches and the update is what the paper says, and
three steps end with the parameters of one device."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Attribute

from distir.backends.torch import run as run_processes
from distir.dialects.dist.attributes import placement
from distir.dialects.sharding import MeshOp, Sharded, ShardingAttr
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.entry import entry_function
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.machines import load_machine
from distir.interpreters.reference import run
from distir.interpreters.simulate import simulate
from distir.interpreters.weights import weights_of
from distir.interpreters.work import type_bytes
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.dtp_parallelize import prepare
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_schedule import PipelineSchedulePass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.structure import argument_attributes, text
from distir.passes.zero_partition import ZeroPartitionPass

DEVICES, WIDTH, LAYERS, BATCH, COUNT = 4, 32, 2, 16, 2
COUNTER = 8
"""Bytes of Adam's number of steps; the loss has fewer."""
PARAMETERS = LAYERS * (WIDTH * WIDTH + WIDTH)


@pytest.fixture(scope="module")
def step() -> ModuleOp:
    """An MLP with Adam; every dim of a parameter is cut evenly."""
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = nn.Sequential(*layers)
    made = training_step(model, mse_loss, torch.optim.Adam(model.parameters(), lr=0.01))
    module = import_step(made, (torch.zeros(BATCH, WIDTH), torch.zeros(BATCH, WIDTH)))
    prepare(Context(), module)
    return module


def staged(step: ModuleOp, count: int = COUNT) -> ModuleOp:
    module = step.clone()
    PipelineStagesPass(microbatches=count).apply(Context(), module)
    MicrobatchPass(count=count).apply(Context(), module)
    return module


def planned(module: ModuleOp, **options: Any) -> int:
    """The peak that the search says, of what it writes into the module."""
    IlpShardPass(mesh=f"dp={DEVICES}", restrict="dp=batch", **options).apply(Context(), module)
    (mesh,) = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
    peak = mesh.attributes["dist.peak_memory_bytes"]
    assert isinstance(peak, IntegerAttr)
    return peak.value.data


def lowered(module: ModuleOp) -> ModuleOp:
    ApplyShardingPass().apply(Context(), module)
    PipelineSchedulePass().apply(Context(), module)
    return module


def held_bytes(module: ModuleOp) -> int:
    """On device 0 of a scheduled program, when the loop is over: parameters, state of their shapes, and sums of gradients."""
    simulation = simulate(module, load_machine("dgx-a100"))
    looped = [i for i, step in enumerate(simulation.steps) if step.placed.function.startswith(("backward", "layer"))]
    over = max(i for i in looped if not _is_update(simulation, i))
    held = [s.bytes for s in simulation.storages if s.device == 0 and s.born <= over < s.last_use]
    entry = entry_function(module)
    ports = zip(entry.body.block.args, argument_attributes(entry), strict=True)
    given = [v.type for v, a in ports if text(a, "dist.role", "") in ("input", "label") and on_device_0(v.type)]
    return sum(size for size in held if size > COUNTER) - sum(map(type_bytes, given))


def on_device_0(type_: Attribute) -> bool:
    on = placement(type_)
    return on is not None and on.device == 0


def _is_update(simulation: Any, index: int) -> bool:
    return any(span.function.startswith("update") and span.first <= index < span.last for span in simulation.calls)


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (1, 4 * PARAMETERS + 4 * PARAMETERS + 8 * PARAMETERS // DEVICES),
        (2, 4 * PARAMETERS + (4 + 8) * PARAMETERS // DEVICES),
        (3, (4 + 4 + 8) * PARAMETERS // DEVICES),
    ],
)
def test_a_pinned_stage_holds_what_the_paper_says(step: ModuleOp, stage: int, expected: int):
    """Rajbhandari et al., "ZeRO", SC 2020, section 3.1: parameters and gradients of 4 bytes here, Adam's state of 8, each over the
    number of devices where it is cut."""
    module = staged(step)
    ZeroPartitionPass(stage=stage).apply(Context(), module)
    planned(module)
    sequential, scheduled = step.clone(), lowered(module)
    assert held_bytes(scheduled) == expected
    inputs = {**weights_of(step), **draw_inputs(step, 0)}
    expected_values, values = dict(inputs), dict(inputs)
    for _ in range(3):
        expected_values |= run(sequential, expected_values, dtype=np.float64)
        values |= run(scheduled, values, dtype=np.float64)
    for name in inputs:
        np.testing.assert_allclose(values[name], expected_values[name], rtol=1e-9, atol=1e-12)


def cut_roles(module: ModuleOp) -> set[str]:
    """The roles of entry arguments of which some are cut."""
    entry = entry_function(module)
    found = set[str]()
    for attributes in argument_attributes(entry):
        sharding = attributes["dist.sharding"]
        assert isinstance(sharding, ShardingAttr)
        if any(isinstance(state, Sharded) for state in sharding.states.values()):
            found.add(text(attributes, "dist.role", "input"))
    return found


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.long)])
def test_less_memory_cuts_more(step: ModuleOp, count: int):
    """Without a limit parameters stay whole, within one they are cut as state is; each plan needs what it says."""
    peaks: list[int] = []
    seen: list[set[str]] = []
    for share in (1.0, 0.6):
        module = staged(step, count)
        limit = {"memory_limit": str(int(share * peaks[0]))} if peaks else {}
        peaks.append(planned(module, **limit))
        seen.append(cut_roles(module) & {"parameter", "state"})
        needed = max(simulate(lowered(module), load_machine("dgx-a100")).peak_memory_bytes.values())
        assert needed == peaks[-1]
    assert peaks[0] > peaks[1]
    assert seen[-1] == {"parameter", "state"}
    assert seen[0] < seen[1]


@pytest.mark.long
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_processes_train_as_one_does(step: ModuleOp, stage: int):
    """Three steps on four processes; Adam divides by roots of tiny numbers, so single precision is compared loosely."""
    module = staged(step)
    ZeroPartitionPass(stage=stage).apply(Context(), module)
    planned(module)
    scheduled = lowered(module)
    inputs = {**weights_of(step), **draw_inputs(step, 0)}
    expected, values = dict(inputs), dict(inputs)
    for _ in range(3):
        expected |= run(step, expected)
        values |= run_processes(scheduled, values, backend="gloo")
    for name in inputs:
        np.testing.assert_allclose(values[name], expected[name], rtol=1e-3, atol=1e-4)
