"""What an optimizer writes in place takes no memory of its own: the simulator, plans and the search say the same."""

from typing import Any

import pytest
import torch
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate
from distir.interpreters.work import IN_PLACE
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_schedule import PipelineSchedulePass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from tests.slow_machine import written
from tests.unit.staging.test_staged import planned

WIDTH = 96
WEIGHT = 4 * WIDTH * WIDTH


def step(optimizer: Any, layers: int = 1, **options: Any) -> ModuleOp:
    """Linear layers without bias, on few rows: memory is of weights."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    batch = torch.randn(4, WIDTH), torch.randn(4, WIDTH)
    made = optimizer(model.parameters(), lr=1e-3, **options)
    return import_step(training_step(model, nn.functional.mse_loss, made, example_args=batch), batch)


@pytest.mark.parametrize(
    ("optimizer", "options", "weights"),
    [
        (torch.optim.AdamW, {}, 4),  # weight, two moments; the gradient, then the root of the second
        (torch.optim.Adam, {}, 4),
        (torch.optim.SGD, {}, 2),
        (torch.optim.SGD, {"momentum": 0.9}, 3),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, 3),
        (torch.optim.RMSprop, {}, 4),  # weight, mean of squares, gradient, its root
    ],
)
def test_weights_at_the_peak(optimizer: Any, options: dict[str, Any], weights: int):
    (peak,) = simulate(step(optimizer, **options), "local-cpu").peak_memory_bytes.values()
    assert weights * WEIGHT < peak < (weights + 0.5) * WEIGHT


@pytest.mark.parametrize(("stages", "count", "mesh"), [(1, 1, "dp=2"), (1, 2, "dp=2"), (2, 2, "dp=2")])
@pytest.mark.parametrize("is_tight", [False, True])
def test_a_plan_takes_what_it_says(stages: int, count: int, mesh: str, is_tight: bool, tmp_path: Any):
    machine = written(tmp_path)
    module = step(torch.optim.AdamW, 2)
    ShardcombineAnnotatePass().apply(Context(), module)
    if stages * count > 1:
        PipelineStagesPass(stages=stages, microbatches=count).apply(Context(), module)
        MicrobatchPass(count=count).apply(Context(), module)
    limit: dict[str, Any] = {"memory_limit": f"{(8 if stages == 1 else 6) * WEIGHT}B"} if is_tight else {}
    _, peak = planned(module, machine, mesh=mesh, **limit)
    ApplyShardingPass().apply(Context(), module)
    if stages * count > 1:
        PipelineSchedulePass().apply(Context(), module)
    assert IN_PLACE in str(module)
    assert max(simulate(module, load_machine(machine)).peak_memory_bytes.values()) == peak
