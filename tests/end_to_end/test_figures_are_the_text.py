"""What a search says of a plan is what `distir simulate` says of the text that it writes: plans drawn at random from four models, by options of
`distir search` that are drawn too. The tests know nothing of how a search works. `make check-long` looks at some 300 plans."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import distir
from distir.frontends.pytorch import training_step
from distir.frontends.weights import save
from distir.tools.distir import main
from tests.end_to_end.commands import example
from tests.slow_machine import written

QUICK = (22,)
MANY = [number for number in range(108) if number not in QUICK]
PLANS = 3
"""Of one search, that are looked at."""


class Layer(nn.Module):
    """Attention and a feed-forward block, of which experts may do the second half."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = (nn.Parameter(torch.randn(max(experts, 1), width, width) / width) for _ in range(2))
        self.router = nn.Linear(width, experts) if experts else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.unflatten(-1, (2, -1)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        y = torch.einsum("bsw,ewv->ebsv", x, self.up).relu()
        y = torch.einsum("ebsv,evw->ebsw", y, self.down)
        if self.router is None:
            return x + y[0]
        return x + torch.einsum("ebsw,bse->bsw", y, self.router(x).softmax(-1))


def _training(experts: int, layers: int = 2, width: int = 32) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(width, experts) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    examples = torch.randn(8, 4, width), torch.randn(8, 4, width)
    return training_step(model, nn.functional.mse_loss, optimizer, example_args=examples)


def _mlp() -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(48, 48), nn.Tanh())))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return training_step(
        model, nn.functional.mse_loss, optimizer, autocast=torch.bfloat16, example_args=(torch.ones(16, 48),) * 2
    )


def _gpt2() -> Any:
    return example("gpt2_onnx")(n_layer=2, d_model=16, n_head=2, vocab=24, n_ctx=8)


MODELS: dict[str, tuple[Callable[[], Any], bool]] = {
    "transformer": (lambda: _training(0), True),
    "experts": (lambda: _training(4), True),
    "mlp": (_mlp, True),
    "gpt2": (_gpt2, False),
}
"""What makes each, and whether it trains."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("models")
    written(found)  # a machine where models this small are worth cutting
    return found


def _file(folder: Path, name: str) -> Path:
    """The model, imported once."""
    path = folder / f"{name}.mlir"
    if not path.exists():
        made = MODELS[name][0]()
        if isinstance(made, onnx.ModelProto):
            save(distir.import_model(made, {"input1": (8, 1, 8)}), path)
        else:
            save(distir.import_model(made), path)
    return path


def _options(draw: random.Random, trains: bool) -> dict[str, Any]:
    """Arguments of a search."""
    found: dict[str, Any] = {
        "devices": draw.choice([2, 4, 8]),
        "microbatches": [draw.choice([1, 2, 4]), 2],
        "schedules": [draw.choice(["1f1b", "gpipe"])],
        "time_limit": 20.0,
        "cost_model": draw.choice(["analytic", "analytic", "distir"]),
    }
    if trains:
        found["overlap"] = draw.choice([True, False, None])
        found["recompute"] = draw.choice(["none", "full", "selective", "all"])
        if draw.random() < 0.3:
            found["gradient_type"] = "bf16"
        if draw.random() < 0.5:
            found["schedules"] = [draw.choice(["1f1b", "gpipe", "interleaved", "looped-bfs", "zb-h1", "zbv"])]
            found["zero"] = draw.choice([None, 0, 1, 2, 3])
    return found


@pytest.mark.parametrize("number", [*QUICK, *(pytest.param(each, marks=pytest.mark.long) for each in MANY)])
def test_figures_of_a_plan_are_those_of_its_text(
    number: int, folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    draw = random.Random(number)
    name = [*MODELS][number % len(MODELS)]
    options = _options(draw, MODELS[name][1])
    machine = str(folder / "machine.toml") if draw.random() < 0.7 else "dgx-a100"
    plans = distir.search(str(_file(folder, name)), machine, top=30, **options)
    for plan in draw.sample([*plans], min(PLANS, len(plans))):
        said = plan.as_dict()
        path = tmp_path / f"{plan.rank}.mlir"
        plan.save(path)
        capsys.readouterr()
        assert main(["simulate", str(path), "--machine", machine, "--cost-model", options["cost_model"], "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        what = f"{name}, {options}: {said}"
        assert found["makespan_seconds"] == said["latency_seconds"], what
        assert max(found["peak_memory_bytes"]) == said["peak_memory_bytes"], what
        assert found["devices"] == said["dp"] * said["tp"] * said["pp"] == options["devices"], what
        assert found["batch_size"] in (said["batch_size"], None), what
        for share, of in found["share"].items():
            np.testing.assert_allclose(said[f"{share}_share"], of, rtol=1e-12, atol=1e-12, err_msg=what)
        for axis in ("dp", "tp", "pp"):
            times = found["communication_by_axis"].get(axis, {"exposed_seconds": 0.0, "hidden_seconds": 0.0})
            for kind in ("exposed", "hidden"):
                share = times[f"{kind}_seconds"] / found["makespan_seconds"]
                np.testing.assert_allclose(said[f"{axis}_{kind}_share"], share, rtol=1e-9, atol=1e-12, err_msg=what)
