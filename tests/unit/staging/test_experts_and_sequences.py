"""Expert and context parallelism are states that the rules give: nothing names an expert or a sequence, and the search finds both."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType

from distir.backends.torch import run
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters import reference
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.equivalence import verify
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.proof import prove
from distir.interpreters.simulate import summarize
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from tests.long_cases import also_long
from tests.slow_machine import written

WIDTH, HIDDEN, EXPERTS, CAPACITY, CLASSES = 8, 16, 4, 4, 3


class Experts(nn.Module):
    """Mixtral's two experts of each token, by index, in groups of rows as GShard (Lepikhin et al., 2021) has them: what finds no place is dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN) * 0.3)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) * 0.3)

    def choose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and numbers of each token's experts."""
        found = self.router(x).softmax(-1).topk(2)
        return found.values, found.indices

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.choose(x)
        mask = F.one_hot(chosen, EXPERTS).to(x.dtype)
        order = mask.flatten(1, 2).cumsum(1).unflatten(1, (-1, 2))
        place = ((order - 1) * mask).sum(-1).long().clamp(max=CAPACITY)
        slots = F.one_hot(place, CAPACITY + 1)[..., :-1].to(x.dtype)
        send = torch.einsum("gtke,gtkc->gtec", mask, slots)
        combine = torch.einsum("gtke,gtkc,gtk->gtec", mask, slots, weights / weights.sum(-1, keepdim=True))
        rows = torch.einsum("gtec,gtd->egcd", send, x)
        found = torch.einsum("egch,ehd->egcd", F.silu(torch.einsum("egcd,edh->egch", rows, self.up)), self.down)
        return torch.einsum("gtec,egcd->gtd", combine, found)


class SharedExpert(Experts):
    """DeepSeek's (V3, Liu et al., 2024): one expert sees all tokens, and a bias that no gradient changes is in the choice of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Sequential(
            nn.Linear(WIDTH, HIDDEN, bias=False), nn.SiLU(), nn.Linear(HIDDEN, WIDTH, bias=False)
        )
        self.register_buffer("bias", torch.randn(EXPERTS))

    def choose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.router(x).sigmoid()
        chosen = (scores + self.bias).topk(2).indices
        return scores.gather(-1, chosen), chosen

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.shared(x)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(x)))


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def step(layer: Callable[[], nn.Module], rows: int, length: int) -> ModuleOp:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), layer(), nn.Linear(WIDTH, CLASSES))
    batch = torch.randn(rows, length, WIDTH), torch.randint(0, CLASSES, (rows, length))
    return import_step(training_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1)), batch)


def distributed(module: ModuleOp, folder: Path, **degrees: int) -> ModuleOp:
    planned = module.clone()
    DtpParallelizePass(
        machine=written(folder), sharding="ilp", restrict="", time_limit=60.0, grouped=True, **degrees
    ).apply(Context(), planned)
    return planned


def holds(module: ModuleOp, planned: ModuleOp) -> bool:
    """Whether it computes the same, by running both and by proof."""
    prepared = module.clone()
    prepare(Context(), prepared)
    return verify(module, planned, count=1).holds and bool(prove(prepared, planned))


@pytest.fixture(scope="module", params=also_long([Experts, SharedExpert], [Experts]))
def experts(request: pytest.FixtureRequest) -> ModuleOp:
    return step(request.param, rows=8, length=6)


def test_experts_are_cut_and_tokens_go_to_them(experts: ModuleOp, tmp_path: Path) -> None:
    """Tokens go to the experts and come back, and their gradients do: four exchanges of all with all."""
    planned = distributed(experts, tmp_path, dp=4)
    parts = {port.name: port.part for port in arguments_of(entry_function(planned)) if port.role == "parameter"}
    for name in ("1.up", "1.down"):
        part = parts[name]
        assert part is not None
        assert part.local_shape == (1, *part.global_shape[1:])
    assert summarize(planned, str(tmp_path / "machine.toml")).counts["dist.alltoall"] == 4
    assert holds(experts, planned)


@pytest.mark.long
def test_processes_of_experts_compute_what_the_model_computes(experts: ModuleOp, tmp_path: Path) -> None:
    inputs = {**weights_of(experts), **draw_inputs(experts, 0)}
    got, expected = run(distributed(experts, tmp_path, dp=4), inputs), reference.run(experts, inputs)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-5 * max(1.0, np.abs(value).max()), err_msg=name)


def test_a_sequence_is_cut_with_keys_and_values_gathered(tmp_path: Path) -> None:
    """Of one row there is no batch to cut: each device has a quarter of the queries, and all keys and values."""
    module = step(Attention, rows=1, length=32)
    planned = distributed(module, tmp_path, dp=4)
    shapes: set[tuple[tuple[int, ...], ...]] = set()
    for op in planned.walk():
        if op.name == "attention.forward":
            shapes.add(tuple(v.type.get_shape()[2:3] for v in op.operands[:3] if isinstance(v.type, TensorType)))
    assert shapes == {((8,), (32,), (32,))}
    assert holds(module, planned)
