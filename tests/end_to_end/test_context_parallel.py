"""Devices that share a sequence, as users ask for them: plans of a search, their files, and what they compute."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from distir.frontends.pytorch import import_step, training_step
from distir.frontends.weights import load, save
from distir.interpreters.simulate import simulate
from distir.tools.distir import main
from tests.slow_machine import written

ROWS, TOKENS, WIDTH, WORDS = 2, 8, 8, 16


class Model(nn.Module):
    """A causal attention whose two groups of queries share a key and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.q, self.k, self.v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH // 2), nn.Linear(WIDTH, WIDTH // 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        q, k, v = (made(x).unflatten(-1, (-1, 2)).transpose(1, 2) for made in (self.q, self.k, self.v))
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        seen = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.head(x + seen).transpose(1, 2)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.manual_seed(0)
    model, tokens = Model(), torch.randint(0, WORDS, (ROWS, TOKENS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = training_step(model, cross_entropy, optimizer, example_args=(tokens, tokens))
    save(import_step(step), tmp_path / "step.mlir")
    written(tmp_path)  # where models this small are worth cutting
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_search_plans_them(model: Path, capsys: pytest.CaptureFixture[str]):
    search = ("search", "step.mlir", "--machine", "machine.toml", "--devices", "4", "--cp", "2")
    assert main([*search, "--pp", "1", "--microbatches", "2", "--json", "-o", "best.json"]) == 0
    found = json.loads(capsys.readouterr().out)
    plans = {(p["dp"], p["cp"], p["tp"], p["microbatches"]): p for p in found["plans"]}
    assert set(plans) == {(2, 2, 1, 1), (1, 2, 2, 1), (1, 2, 2, 2)}
    best = found["plans"][0]
    assert best["cp_exposed_share"] + best["cp_hidden_share"] > 0
    assert main(["plan", "apply", "best.json", "-o", "best.mlir"]) == 0
    program = load("best.mlir")
    assert "attention.combine" in str(program)
    assert simulate(program, "machine.toml").makespan_seconds == best["latency_seconds"]
    assert main(["verify", "step.mlir", "best.mlir", "--proof"]) == 0
    assert main(["run", "best.mlir", "--steps", "2", "--check", "step.mlir"]) == 0


def test_they_are_tried_where_there_are_fewer_rows_than_devices(model: Path, capsys: pytest.CaptureFixture[str]):
    search = ("search", "step.mlir", "--machine", "machine.toml", "--pp", "1", "--microbatches", "2", "--json")
    for devices, tried in (("2", {1}), ("4", {1, 2})):
        assert main([*search, "--devices", devices]) == 0
        plans = json.loads(capsys.readouterr().out)["plans"]
        assert {p["cp"] for p in plans} == tried
        assert all(p["cp"] == 1 or p["dp"] * p["microbatches"] == ROWS for p in plans)


def test_what_is_run_today_is_simulated_so(model: Path, capsys: pytest.CaptureFixture[str]):
    (model / "today.toml").write_text(
        "[parallelism]\ncontext_parallel_degree = 2\n[training]\nlocal_batch_size = 2\n[activation_checkpoint]\nmode = 'none'\n"
    )
    search = ("search", "step.mlir", "--machine", "machine.toml", "--devices", "2", "--sharding", "ilp")
    assert main([*search, "--microbatches", "2", "--from-config", "torchtitan:today.toml"]) == 0
    said = capsys.readouterr().out
    assert "today: D=1 C=2 T=1 P=1 K=1: " in said
    assert "context_parallel" not in said


def test_where_they_cannot(model: Path, capsys: pytest.CaptureFixture[str]):
    search = ("search", "step.mlir", "--machine", "machine.toml", "--devices", "4", "--cp")
    assert main([*search, "3"]) == 1
    assert "--cp 3: no plan for 4 devices" in capsys.readouterr().err
