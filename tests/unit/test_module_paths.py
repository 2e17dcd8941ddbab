"""The modules of a PyTorch model are named by the operations that they become: forward, backward, in layers, through passes, in tables and traces."""

from collections import defaultdict

import torch
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate
from distir.interpreters.simulate.analysis import Analysis
from distir.interpreters.walk import model_name
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


def test_through_passes_into_tables_and_traces():
    module = step()
    DtpParallelizePass(dp=2).apply(Context(), module)
    assert "aten.mm" in modules_of(module)["head"]
    analysis = Analysis(module, load_machine("dgx-2"))
    assert {"blocks.0.0", "blocks.0.1", "head"} <= {span.module for span in analysis.expansion.spans()}
    assert any(held.module for held in analysis.peak(0).holdings)
    spans = {(s.label, s.module) for s in simulate(module, "dgx-2").spans()}
    assert spans == {(s.label, s.module) for s in analysis.expansion.spans()}
