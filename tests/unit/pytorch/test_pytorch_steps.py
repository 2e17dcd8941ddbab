"""PyTorch steps as programs: three consecutive steps of the program are those of eager PyTorch."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.frontends.eager import check_imported
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of

Example = tuple[torch.Tensor, torch.Tensor]


def mlp(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).to(dtype)


def classes(dtype: torch.dtype = torch.float64) -> Example:
    return torch.randn(8, 6, dtype=dtype), torch.randint(0, 3, (8,))


def steps_agree(
    model: nn.Module,
    loss: Any,
    optimizer: Callable[[Any], torch.optim.Optimizer],
    example: Any,
    tolerance: float = 1e-9,
    autocast: torch.dtype | None = None,
) -> ModuleOp:
    """Runs three steps by the program and eagerly, and compares losses, parameters and buffers."""
    eager = copy.deepcopy(model)
    made = optimizer(eager.parameters())
    module = import_step(training_step(model, loss, optimizer, autocast=autocast), example)
    module.verify()
    state = dict(weights_of(module))
    inputs = {p.name for p in arguments_of(entry_function(module)) if p.role in ("input", "label")}
    for number in range(3):
        torch.manual_seed(number)
        x, y = (torch.randn_like(e) if e.is_floating_point() else torch.randint_like(e, 0, 3) for e in example)
        made.zero_grad()
        with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
            eager_loss = loss(eager(x), y)
        eager_loss.backward()
        made.step()
        given = dict(zip(sorted(inputs, key="label".__eq__), (x.numpy(), y.numpy()), strict=True))
        results = run(module, state | given)
        np.testing.assert_allclose(results["loss"], eager_loss.detach().numpy(), rtol=tolerance)
        for name, value in eager.state_dict().items():
            np.testing.assert_allclose(results.get(name, state[name]), value.numpy(), rtol=tolerance, atol=tolerance)
        state |= {name: value for name, value in results.items() if name != "loss"}
    return module


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, lr_decay=0.1, initial_accumulator_value=0.5),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01, t0=1),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_three_steps_of_an_optimizer(name: str) -> None:
    steps_agree(mlp(), cross_entropy, OPTIMIZERS[name], classes())


def test_three_steps_in_single_precision() -> None:
    steps_agree(mlp(torch.float32), cross_entropy, OPTIMIZERS["adam"], classes(torch.float32), 1e-5)


def test_master_weights_stay_float32_under_autocast() -> None:
    module = steps_agree(
        mlp(torch.float32), cross_entropy, OPTIMIZERS["sgd"], classes(torch.float32), 2e-2, torch.bfloat16
    )
    types = {p.name: str(p.type) for p in results_of(entry_function(module))}
    assert types["0.weight"] == "tensor<10x6xf32>"
    assert "xbf16>" in str(module)


class Checkpointed(nn.Module):
    """Keeps its input alone, and runs what is inside again in the backward pass."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inside, x, use_reentrant=False, preserve_rng_state=False)  # pyright: ignore


def test_checkpointed_modules_run_again_in_the_backward_pass() -> None:
    """The matmul inside is there once more than without."""
    torch.manual_seed(0)

    def model(inside: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 6), inside, nn.Linear(6, 3)).double()

    def inside() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6), nn.Tanh())

    again = steps_agree(model(Checkpointed(inside())), cross_entropy, OPTIMIZERS["sgd"], classes())
    once = steps_agree(model(inside()), cross_entropy, OPTIMIZERS["sgd"], classes())
    counts = [sum(op.name == "aten.addmm" for op in module.walk()) for module in (again, once)]
    assert counts[1] == 4
    assert counts[0] > 4


def test_running_statistics_of_batch_norm_are_updated() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    module = steps_agree(model, cross_entropy, OPTIMIZERS["sgd"], classes())
    roles = {p.name: p.role for p in results_of(entry_function(module))}
    assert roles["1.running_mean"] == "buffer"
    assert roles["1.num_batches_tracked"] == "buffer"


class Tied(nn.Module):
    """One weight, used by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def test_a_tied_weight_is_one_argument() -> None:
    torch.manual_seed(0)
    module = import_step(training_step(Tied(), mse_loss, OPTIMIZERS["sgd"]), (torch.randn(4, 6), torch.randn(4, 6)))
    names = [p.name for p in arguments_of(entry_function(module)) if p.role == "parameter"]
    assert names == ["first.weight"]


def test_state_is_named_as_in_checkpoints() -> None:
    module = import_step(training_step(mlp(), cross_entropy, OPTIMIZERS["adam"]), classes())
    names = [p.name for p in arguments_of(entry_function(module)) if p.role == "state"]
    assert names[:3] == ["state.0.weight.step", "state.0.weight.exp_avg", "state.0.weight.exp_avg_sq"]


def test_parameters_may_have_no_values() -> None:
    with torch.device("meta"):
        model = nn.Linear(1 << 20, 1 << 20)
    module = import_step(
        training_step(model, mse_loss, OPTIMIZERS["adam"]), tuple(torch.empty(2, 1 << 20) for _ in "xy")
    )
    assert weights_of(module).get("weight") is None


def test_a_caller_may_make_all_tensors_on_the_meta_device() -> None:
    plain = import_step(training_step(mlp(), cross_entropy, OPTIMIZERS["adam"]), classes())
    with torch.device("meta"):
        within = import_step(training_step(mlp(), cross_entropy, OPTIMIZERS["adam"]), classes())
    assert [str(op) for op in within.ops] == [str(op) for op in plain.ops]


def test_state_that_does_not_start_at_zero_is_refused() -> None:
    optimizer = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5)  # noqa: E731
    with pytest.raises(DistirError, match="does not start at zero"):
        import_step(training_step(mlp(), cross_entropy, optimizer), classes())


class Deciding(torch.optim.SGD):
    """Takes no step where gradients are small."""

    def step(self, closure: Any = None) -> Any:
        if self.param_groups[0]["params"][0].grad.norm() > 1:
            return super().step(closure)


def test_an_optimizer_that_reads_values_is_refused() -> None:
    with pytest.raises(
        DistirError, match=r"Deciding has no program.* it reads the value of a tensor .*grad\.norm\(\)"
    ) as raised:
        import_step(training_step(mlp(), cross_entropy, lambda p: Deciding(p, lr=0.1)), classes())
    assert "\n" not in str(raised.value)


def test_a_loss_of_several_elements_is_refused() -> None:
    with pytest.raises(DistirError, match=r"expected a loss of one element, got a tensor of shape \[8, 3\]"):
        import_step(training_step(mlp(), lambda y, label: y, OPTIMIZERS["sgd"]), classes())


class Whitened(torch.optim.Optimizer):
    """Shampoo (Gupta et al., 2018) of one side: its state and what it makes name no type."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-2})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for p in group["params"]:
                state, rows = self.state[p], len(p)
                if len(state) == 0:
                    state["outer"] = torch.zeros(rows, rows)
                gradient = p.grad.reshape(rows, -1)
                state["outer"].lerp_(gradient @ gradient.T, 0.1)
                way = torch.linalg.solve(state["outer"] + torch.eye(rows), gradient)
                p.sub_(way.view_as(p), alpha=group["lr"])


def test_an_optimizer_may_name_no_type() -> None:
    model = nn.Linear(4, 3)
    step = training_step(model, nn.functional.cross_entropy, Whitened(model.parameters()))
    module = import_step(step, (torch.randn(8, 4), torch.randint(0, 3, (8,))))
    states = [port.type for port in arguments_of(entry_function(module)) if port.role == "state"]
    assert states
    assert all("f32" in str(each) for each in states)
    assert check_imported(module).startswith("two steps are the framework's own")
