"""A PyTorch training step through the whole system: imported, distributed, verified, trained by several processes."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.frontends.pytorch import import_step, training_step
from distir.frontends.pytorch.devices import autocast_on_cpu
from distir.frontends.weights import load
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.batch_shard import BatchShardPass
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.ilp_shard import IlpShardPass


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


@pytest.mark.parametrize("plan", [PLANS[0], pytest.param(PLANS[1], marks=pytest.mark.long)], ids=str)
def test_processes_train_three_steps(plan: dict[str, int]) -> None:
    """In one run: what a step updates stays on its rank for the next."""
    from distir.backends.torch import execute

    module, state, batches = step_with_ignored_labels()
    distributed = module.clone()
    DtpParallelizePass(**plan).apply(Context(), distributed)
    alone = dict(state)
    for batch in batches:
        alone |= run(module, alone | batch)
    together = execute(distributed, state | batches[0], following=batches[1:]).outputs
    assert set(together) == {"loss", *state}
    for name, value in together.items():
        np.testing.assert_allclose(value, alone[name], rtol=1e-5, atol=1e-5, err_msg=name)


def step_in_mixed_precision() -> tuple[ModuleOp, list[dict[str, np.ndarray]], list[dict[str, np.ndarray]]]:
    """A step under autocast to bfloat16 with AdamW on float32 weights, three batches, and loss and parameters of eager
    PyTorch after each, in the element types of an accelerator."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    imported = copy.deepcopy(model)  # the program has the values of its model, which eager steps write to
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = [(torch.randn(16, 8), torch.randint(0, 4, (16,))) for _ in range(3)]
    step = training_step(
        imported, nn.functional.cross_entropy, lambda p: torch.optim.AdamW(p, lr=1e-2), autocast=torch.bfloat16
    )
    module = import_step(step, data[0])
    expected: list[dict[str, np.ndarray]] = []
    for x, label in data:
        optimizer.zero_grad()
        with autocast_on_cpu(), torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        after = {name: value.detach().clone().numpy() for name, value in model.state_dict().items()}
        expected.append({"loss": loss.detach().numpy(), **after})
    return module, [{"input": x.numpy(), "label": label.numpy()} for x, label in data], expected


@pytest.mark.parametrize("plan", [*(pytest.param(p, marks=pytest.mark.long) for p in PLANS[:2]), PLANS[2]], ids=str)
def test_mixed_precision_keeps_float32_weights(plan: dict[str, int]) -> None:
    """The reference computes what eager PyTorch does, bit for bit or nearly; plans agree in float64, where nothing is
    rounded; and parameters and state are float32 on every device."""
    module, data, expected = step_in_mixed_precision()
    state = dict(weights_of(module))
    assert all(array.dtype == np.float32 for name, array in state.items() if not name.endswith(".step"))
    alone = dict(state)
    for given, after in zip(data, expected, strict=True):
        results = run(module, alone | given)
        for name, value in after.items():
            np.testing.assert_allclose(results[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
        alone |= results
    whole = run(module, state | data[0], dtype=np.float64)
    DtpParallelizePass(**plan).apply(Context(), module)
    held = [p for p in arguments_of(entry_function(module)) if p.role == "parameter"]
    assert held
    assert all("xf32" in str(p.type) for p in held)
    parts = run(module, state | data[0], dtype=np.float64)
    for name, value in whole.items():
        np.testing.assert_allclose(parts[name], value, rtol=1e-10, atol=1e-12, err_msg=name)


def test_processes_train_in_mixed_precision() -> None:
    """Two replicas round their own rows' gradients to bfloat16 (8 bits) before they are added: within three steps of AdamW
    at 1e-2, a weight may be off by a part of a step."""
    from distir.backends.torch import execute

    module, data, expected = step_in_mixed_precision()
    state = dict(weights_of(module))
    DtpParallelizePass(dp=2).apply(Context(), module)
    outputs = execute(module, state | data[0], following=data[1:]).outputs
    np.testing.assert_allclose(outputs["loss"], expected[-1]["loss"], rtol=2e-2)
    for name in (name for name in expected[-1] if name != "loss"):
        assert outputs[name].dtype == np.float32
        np.testing.assert_allclose(outputs[name], expected[-1][name], atol=1e-2, err_msg=name)
        assert np.any(outputs[name] != torch.from_numpy(outputs[name]).bfloat16().float().numpy())


def test_parameters_live_where_their_results_are_used(tmp_path: Path) -> None:
    """A weight that only a transposition outside the loop reads, whose gradient a later stage makes: it is updated on the
    stage that holds it."""
    (tmp_path / "step.mlir").write_text("""
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<6x4xf32> {dist.name = "w", dist.role = "parameter"},
                %v: tensor<6x2xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<f32> {dist.name = "loss", dist.role = "output"}, tensor<6x4xf32> {dist.name = "w", dist.role = "parameter"}) {
  %t = "aten.t"(%w) : (tensor<6x4xf32>) -> tensor<4x6xf32>
  %h = "aten.mm"(%x, %t) : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %s = "aten.sum"(%x) : (tensor<8x4xf32>) -> tensor<f32>
  %y = "aten.mm"(%h, %v) : (tensor<8x6xf32>, tensor<6x2xf32>) -> tensor<8x2xf32>
  %r = "aten.sum"(%y) : (tensor<8x2xf32>) -> tensor<f32>
  %loss = "aten.add.Tensor"(%r, %s) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %b = "aten.t"(%h) : (tensor<8x6xf32>) -> tensor<6x8xf32>
  %g = "aten.mm"(%b, %x) : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  %u = "aten.add.Tensor"(%w, %g) : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
  func.return %loss, %u : tensor<f32>, tensor<6x4xf32>
}""")
    module = load(tmp_path / "step.mlir")
    DtpParallelizePass(pp=2, microbatches=2).apply(Context(), module)
    entry = entry_function(module)
    (held,) = (port.type for port in arguments_of(entry) if port.name == "w")
    (updated,) = (port.type for port in results_of(entry) if port.name == "w")
    assert held == updated


def step_with_batch_norm(training: bool) -> ModuleOp:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).train(training)
    step = training_step(model, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    return import_step(step, (torch.randn(8, 6), torch.arange(8) % 3))


def test_statistics_of_the_batch_are_not_those_of_its_parts() -> None:
    """Batch norm in training mode: refused in microbatches, with the operator, the value and what was cut; other axes may be cut."""
    with pytest.raises(
        DistirError,
        match=r"aten\.sub\.Tensor of module 1 takes %\S+ \[8, 4\], of which each of 2 parts .* with %\S+ \[1, 4\], to which all parts are "
        r"reduced: statistics of a batch are not those of its parts \(such as a loss over pairs of rows, or a batch norm",
    ) as raised:
        DtpParallelizePass(pp=2, microbatches=2, sharding="ilp").apply(Context(), step_with_batch_norm(training=True))
    assert "\n" not in str(raised.value)
    DtpParallelizePass(tp=2).apply(Context(), step_with_batch_norm(training=True))


def test_what_the_batch_axis_refuses_is_converted(capsys: pytest.CaptureFixture[str]) -> None:
    """A note says why it is not cut as others are. In microbatches the result would be another one: there is one."""
    step = step_with_batch_norm(training=True)
    for plan in ({"dp": 2}, {"dp": 2, "pp": 2}):
        distributed = step.clone()
        DtpParallelizePass(**plan).apply(Context(), distributed)
        assert "tensor<4x6xf32, #dist.on<1>>" in str(distributed)
        verify_equal(step, distributed)
    distributed = step.clone()
    DtpParallelizePass(dp=2, microbatches=2).apply(Context(), distributed)
    assert "one microbatch instead of 2: aten.sub.Tensor of module 1 takes" in capsys.readouterr().err
    verify_equal(step, distributed)


def verify_equal(step: ModuleOp, distributed: ModuleOp) -> None:
    batch = {"input": np.linspace(-1, 1, 48).reshape(8, 6) ** 3, "label": np.arange(8) % 3}
    values = {name: np.asarray(value) for name, value in weights_of(step).items()} | batch
    expected, found = (run(module, values, dtype=np.float64) for module in (step, distributed))
    assert set(found) == set(expected) >= {"1.running_mean", "1.running_var"}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("mesh", ["dp=2", "dp=2,tp=2"])
def test_batch_norm_is_synchronised_when_asked(mesh: str) -> None:
    """Statistics, gradients and running statistics are those of the whole batch."""
    step = step_with_batch_norm(training=True)
    distributed = step.clone()
    BatchShardPass(mesh=mesh).apply(Context(), distributed)
    if "tp" in mesh:
        IlpShardPass(mesh=mesh, restrict="tp=model").apply(Context(), distributed)
    ApplyShardingPass().apply(Context(), distributed)
    verify_equal(step, distributed)
    assert "tensor<4x6xf32, #dist.on<0>>" in str(distributed)


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
