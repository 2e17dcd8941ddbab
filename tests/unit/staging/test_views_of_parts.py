"""The parts of a split tensor lie in its memory, all of them: the search counts them so, in functions, in stages, and within limits."""

from pathlib import Path

import pytest
import torch
from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp

from distir.dialects.sharding import MeshOp
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.simulate import simulate
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.ilp_shard import IlpShardPass
from tests.slow_machine import written


class Gated(torch.nn.Module):
    """Products of parts that were all made before the first of them is used."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 72)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b, c = self.up(x).split(24, dim=-1)
        return torch.tanh(torch.tanh(torch.tanh(x.repeat(1, 3)) * a) * b) * c


@pytest.fixture(scope="module")
def step() -> ModuleOp:
    torch.manual_seed(0)
    model = Gated()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.functional.mse_loss
    example = (torch.randn(8, 8), torch.randn(8, 24))
    return import_step(training_step(model, loss, optimizer, example_args=example))


@pytest.mark.parametrize(
    "options", [{"tp": 2}, {"dp": 2, "pp": 2, "microbatches": 2}, {"tp": 2, "memory_limit": "7KB"}]
)
def test_the_search_counts_what_is_held(step: ModuleOp, options: dict[str, object], tmp_path: Path) -> None:
    module, machine = step.clone(), written(tmp_path)
    said = 0
    for each in DtpParallelizePass(sharding="ilp", restrict="", machine=machine, **options).pipeline():  # pyright: ignore
        each.apply(Context(), module)
        if isinstance(each, IlpShardPass):
            (mesh,) = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
            peak = mesh.attributes["dist.peak_memory_bytes"]
            assert isinstance(peak, IntegerAttr)
            said = peak.value.data
    assert max(simulate(module, machine).peak_memory_bytes.values()) == said
