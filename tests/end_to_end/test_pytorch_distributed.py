"""A PyTorch training step through the whole system: imported, distributed, verified, trained by several processes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
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


def step_with_batch_norm(training: bool) -> ModuleOp:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).train(training)
    step = training_step(model, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    return import_step(step, (torch.randn(8, 6), torch.arange(8) % 3))


def test_statistics_of_the_batch_are_not_those_of_its_parts() -> None:
    """Batch norm in training mode: refused, with the operator, the value and what was cut; other axes may be cut."""
    for plan in ({"dp": 2}, {"pp": 2, "microbatches": 2}):
        with pytest.raises(
            DistirError, match=r"aten\.var_mean\S* needs the whole of %\S+ \[8, 4\], which the batch"
        ) as raised:
            DtpParallelizePass(**plan).apply(Context(), step_with_batch_norm(training=True))
        assert "\n" not in str(raised.value)
    DtpParallelizePass(tp=2).apply(Context(), step_with_batch_norm(training=True))


@pytest.mark.parametrize("plan", [{"dp": 2}, {"pp": 2, "microbatches": 2}], ids=str)
def test_batch_norm_that_only_scales_is_cut(plan: dict[str, int]) -> None:
    step = step_with_batch_norm(training=False)
    distributed = step.clone()
    DtpParallelizePass(**plan).apply(Context(), distributed)
    batch = {"input": np.linspace(-1, 1, 48).reshape(8, 6), "label": np.arange(8) % 3}
    values = {name: np.asarray(value) for name, value in weights_of(step).items()} | batch
    expected, found = (run(module, values, dtype=np.float64) for module in (step, distributed))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
