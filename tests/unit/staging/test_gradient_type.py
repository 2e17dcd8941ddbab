"""`gradient-type`: every gradient is reduced over replicas in the stated type and in no other, what is computed stays the same but for rounding, and
processes with gradients in bf16 have what the reference has."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType

from distir.backends.torch import run as run_processes
from distir.dialects.dist import AllReduceOp, CastOp, ReduceScatterOp
from distir.dialects.errors import DistirError
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.equivalence import verify
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.proof import prove
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.gradient_type import GradientTypePass


class Tied(nn.Module):
    """A weight that the first stage and the last one use."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner = nn.Embedding(12, 8), nn.Linear(8, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.inner(self.table(tokens)).relu() @ self.table.weight.t()


def mlp(autocast: torch.dtype | None) -> ModuleOp:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.5), (torch.zeros(8, 16), torch.zeros(8, 8))
    return import_step(training_step(model, mse_loss, optimizer, autocast=autocast, example_args=batch), batch)


def tied() -> ModuleOp:
    model, batch = Tied(), (torch.zeros(8, dtype=torch.long), torch.zeros(8, dtype=torch.long))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return import_step(training_step(model, cross_entropy, optimizer, example_args=batch), batch)


MODELS = {"f32": lambda: mlp(None), "autocast": lambda: mlp(torch.bfloat16), "tied": tied}
PLANS: dict[str, dict[str, Any]] = {
    "pipeline": {"dp": 2, "pp": 2, "microbatches": 2},
    "whole": {"dp": 2, "microbatches": 2, "sharding": "ilp", "divide": True},
    "zero": {"dp": 2, "pp": 2, "microbatches": 2, "sharding": "ilp", "zero": 2, "grouped": True, "time_limit": 5.0},
}


def distributed(sequential: ModuleOp, kind: str, **plan: Any) -> ModuleOp:
    module = sequential.clone()
    DtpParallelizePass(**plan, gradient_type=kind).apply(Context(), module)
    return module


@pytest.mark.parametrize(
    ("model", "kind", "plan"),
    [
        ("f32", "bf16", "zero"),
        ("autocast", "bf16", "whole"),
        ("autocast", "f32", "pipeline"),
        ("autocast", "f32", "whole"),
        pytest.param("tied", "bf16", "pipeline", marks=pytest.mark.long),
    ],
)
def test_gradients_are_reduced_in_their_type(model: str, kind: str, plan: str) -> None:
    sequential = MODELS[model]()
    module = distributed(sequential, kind, **PLANS[plan])
    reduced = [op for op in module.walk() if isinstance(op, AllReduceOp | ReduceScatterOp)]
    types = {
        v.type.element_type
        for op in reduced
        for v in op.results
        if isinstance(v.type, TensorType) and v.type.get_shape()
    }
    assert {str(each) for each in types} == {kind}
    found = verify(sequential, module, count=1)
    assert found.holds
    said = [c.says for c in found.comparisons if c.name == CastOp.name]
    assert all(says.startswith("rounds f32 to bf16") for says in said)
    assert bool(said) == (kind == "bf16")
    prepared = sequential.clone()
    prepare(Context(), prepared)
    assert prove(prepared, module)


def test_processes_have_what_the_reference_has() -> None:
    sequential = mlp(None)
    module = distributed(sequential, "bf16", **PLANS["whole"])
    inputs = {**draw_inputs(sequential, 3), **weights_of(sequential)}
    found, expected = run_processes(module, inputs, backend="gloo"), run(module, inputs)
    exact = run(sequential, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-2, atol=2e-3)
    assert any(not np.allclose(exact[name], expected[name], rtol=1e-6, atol=1e-7) for name in exact)


def test_what_cannot_be_cast_is_said() -> None:
    module = mlp(None)
    with pytest.raises(DistirError, match="type: expected one of bf16"):
        GradientTypePass("f8").apply(Context(), module)
