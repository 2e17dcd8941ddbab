"""A PyTorch training step through the whole system: imported, distributed, verified, trained by several processes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step, training_step
from distir.frontends.weights import weights_of
from distir.interpreters.reference import run
from distir.passes.dtp_parallelize import DtpParallelizePass


def step_with_ignored_labels() -> tuple[ModuleOp, dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """The program, its memory, and three batches, in which the number of labels that count differs between rows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    step = training_step(model, nn.functional.cross_entropy, torch.optim.AdamW(model.parameters(), lr=1e-2))
    batches: list[dict[str, np.ndarray]] = []
    for _ in range(3):
        label = torch.randint(0, 4, (16,))
        label[:5] = -100
        batches.append({"input": torch.randn(16, 8).numpy(), "label": label.numpy()})
    example = tuple(torch.from_numpy(array) for array in batches[0].values())
    module = import_step(step, example)
    return module, dict(weights_of(module)), batches


PLANS = [
    {"dp": 2, "tp": 2},
    {"pp": 2, "microbatches": 4},
    {"dp": 2, "tp": 2, "pp": 2, "microbatches": 2},
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_three_steps_of_a_plan_are_those_of_the_step(plan: dict[str, int]) -> None:
    module, state, batches = step_with_ignored_labels()
    distributed = module.clone()
    DtpParallelizePass(**plan).apply(Context(), distributed)
    distributed.verify()
    alone, together = dict(state), dict(state)
    for batch in batches:
        expected = run(module, alone | batch, dtype=np.float64)
        found = run(distributed, together | batch, dtype=np.float64)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
        alone, together = alone | expected, together | found


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS[:2], ids=str)
def test_processes_train_three_steps(plan: dict[str, int], tmp_path: Path) -> None:
    from distir.backends.torch import run as run_processes

    module, state, batches = step_with_ignored_labels()
    distributed = module.clone()
    DtpParallelizePass(**plan).apply(Context(), distributed)
    alone, together = dict(state), dict(state)
    for batch in batches:
        alone |= run(module, alone | batch)
        together |= run_processes(distributed, together | batch, backend="gloo")
    for name in state:
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-5, atol=1e-5, err_msg=name)
