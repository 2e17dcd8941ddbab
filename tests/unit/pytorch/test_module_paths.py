"""The modules of a PyTorch model are named by the operations that they become: forward, backward, in layers, through passes, in tables and traces."""

from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.machines import load_machine
from distir.interpreters.model_names import model_name
from distir.interpreters.simulate import simulate
from distir.interpreters.simulate.analysis import Analysis
from distir.interpreters.simulate.breakdown import breakdown
from distir.passes.dtp_parallelize import DtpParallelizePass


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)])
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Clipping(torch.optim.AdamW):
    """Clips by the norm of all gradients."""

    def step(self, closure: Any = None) -> Any:
        nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 1.0)
        return super().step(closure)


def step() -> ModuleOp:
    model = Net()
    made = training_step(
        model,
        nn.MSELoss(),
        torch.optim.SGD(model.parameters(), 0.1),
        example_args=(torch.randn(4, 8), torch.randn(4, 4)),
    )
    return import_step(made)


def modules_of(module: ModuleOp) -> dict[str, set[str]]:
    """Operations by the module that they are of."""
    found: dict[str, set[str]] = defaultdict(set)
    for op in module.walk():
        if op.name.startswith("aten"):
            found[model_name(op)].add(op.name)
    return found


def test_forward_and_backward():
    found = modules_of(step())
    for path in ("blocks.0.0", "blocks.1.0", "head"):
        assert {"aten.addmm", "aten.mm"} <= found[path]
    assert {"aten.tanh", "aten.tanh_backward"} <= found["blocks.1.1"]
    assert not any("mm" in name for name in found[""])


@pytest.mark.parametrize("clips", [False, True])
def test_updates_are_of_the_module_whose_parameter_they_update(clips: bool):
    model = Net()
    optimizer = (Clipping if clips else torch.optim.AdamW)(model.parameters(), 0.1)
    rows = torch.randn(4, 8), torch.randn(4, 4)
    made = import_step(training_step(model, nn.MSELoss(), optimizer, example_args=rows))
    found = modules_of(made)
    for path in ("blocks.0.0", "blocks.1.0", "head"):
        assert {"aten.lerp.Scalar", "aten.addcdiv", "aten.sqrt"} <= found[path]
    assert not {"aten.lerp.Scalar", "aten.addcdiv"} & found[""]
    assert ("aten.clamp" in found[""]) == clips  # of the norm of all gradients
    DtpParallelizePass(dp=2).apply(Context(), made)
    analysis = Analysis(made, load_machine("dgx-2"))
    parts = breakdown(analysis.expansion, None, "layer")
    reduced = {part.name for part in parts if part.communication_picoseconds}
    assert {"blocks.0", "blocks.1", "head"} <= reduced
    assert sum(part.picoseconds for part in parts if part.name.startswith("(")) < 0.3 * sum(
        part.picoseconds for part in parts
    )


def test_through_passes_into_tables_and_traces():
    module = step()
    DtpParallelizePass(dp=2).apply(Context(), module)
    assert "aten.mm" in modules_of(module)["head"]
    analysis = Analysis(module, load_machine("dgx-2"))
    assert {"blocks.0.0", "blocks.0.1", "head"} <= {span.module for span in analysis.expansion.spans()}
    assert any(held.module for held in analysis.peak(0).live_tensors)
    spans = {(s.label, s.module) for s in simulate(module, "dgx-2").spans()}
    assert spans == {(s.label, s.module) for s in analysis.expansion.spans()}


class Layer(nn.Module):
    """Computes beside its modules, before and after one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.inner(torch.sin(x)))


class Recomputed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)  # pyright: ignore
        return x


def test_what_is_recomputed_and_what_lies_before_inner_modules_has_its_path():
    model = Recomputed()
    args = torch.randn(4, 8), torch.randn(4, 8)
    found = modules_of(import_step(training_step(model, nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1)), args))
    for layer in ("layers.0", "layers.1"):
        assert {"aten.sin", "aten.sigmoid", "aten.sigmoid_backward"} <= found[layer]
    assert "aten.cos" in found["layers.1"]
    assert "aten.addmm" in found["layers.0.inner"]
    assert not {"inner", ""} & {path for path, names in found.items() if {"aten.addmm", "aten.sin"} & names}


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(nn.functional.scaled_dot_product_attention(x, x, x))


def test_draws_and_attention_are_of_their_modules() -> None:
    """What recomputation by the name of a module repeats, and what is shown by module."""
    model = nn.Sequential(nn.Linear(4, 4), Mixing())
    values = torch.randn(2, 1, 3, 4)
    made = training_step(model, nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1), example_args=(values, values))
    paths = {op.name: model_name(op) for op in import_step(made).walk()}
    assert paths["random.bernoulli"] == "1.drop"
    assert paths["attention.forward"] == paths["attention.backward"] == "1"
