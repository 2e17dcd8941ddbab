"""Of a long pipeline a search looks at one rank of those that do the same: its plan is as fast as that of a search that looks at all."""

from pathlib import Path

import pytest
import torch
from torch import nn
from xdsl.context import Context

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.simulate import simulate
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.sharding import problem
from tests.slow_machine import written


@pytest.mark.parametrize(("schedule", "virtual"), [pytest.param("1f1b", 0, marks=pytest.mark.long), ("interleaved", 2)])
def test_its_plan_is_as_fast(schedule: str, virtual: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(48, 48), nn.ReLU())))
    step = training_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    sequential = import_step(step, (torch.zeros(32, 48), torch.zeros(32, 48)))
    machine = written(tmp_path)
    plan = DtpParallelizePass(
        tp=2, pp=4, microbatches=8, schedule=schedule, virtual=virtual, machine=machine, sharding="ilp"
    )
    seconds: list[float] = []
    for most in (problem.MOST_CALLS, 0):
        monkeypatch.setattr(problem, "MOST_CALLS", most)
        module = sequential.clone()
        plan.apply(Context(), module)
        seconds.append(simulate(module, machine).makespan_seconds)
    assert seconds[1] == pytest.approx(seconds[0], rel=0.01)
