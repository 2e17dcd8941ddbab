"""Groups of replicas that each hold all state, as users ask for them: plans of a search, configurations of other tools, and what they compute."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from distir.frontends.pytorch import import_step, training_step
from distir.frontends.weights import save
from distir.tools.distir import main
from tests.slow_machine import MACHINE, written

SEARCH = ("search", "step.mlir", "--machine", "machine.toml", "--devices", "4", "--tp", "1", "--pp", "1", "--zero", "3")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    rows = torch.randn(8, 8), torch.randint(0, 8, (8,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    save(import_step(training_step(model, cross_entropy, optimizer, example_args=rows)), tmp_path / "step.mlir")
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_search_plans_them(model: Path, capsys: pytest.CaptureFixture[str]):
    assert main([*SEARCH, "--dp-replicate", "1,2", "--microbatches", "2", "--json", "-o", "best.json"]) == 0
    plans = json.loads(capsys.readouterr().out)["plans"]
    assert {(p["dp_replicate"], p["microbatches"]) for p in plans} == {(1, 1), (1, 2), (2, 1), (2, 2)}
    held = {p["dp_replicate"]: p["optimizer_state_bytes"] for p in plans}
    assert 1.9 * held[1] < held[2] <= 2 * held[1]  # cut over two of four, but for numbers of steps
    assert main([*SEARCH, "--dp-replicate", "2", "--microbatches", "2", "-o", "two.json"]) == 0
    assert "D=4 R=2 T=1 P=1" in capsys.readouterr().out
    assert main(["plan", "apply", "two.json", "-o", "two.mlir"]) == 0
    assert main(["verify", "step.mlir", "two.mlir", "--proof"]) == 0
    assert main(["run", "two.mlir", "--steps", "2", "--check", "step.mlir"]) == 0


def test_what_is_run_today_is_simulated_so(model: Path, capsys: pytest.CaptureFixture[str]):
    today = "data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 2"
    checkpoint = "[activation_checkpoint]\nmode = 'none'"
    (model / "today.toml").write_text(f"[parallelism]\n{today}\n[training]\nlocal_batch_size = 2\n{checkpoint}\n")
    assert main([*SEARCH, "--from-config", "torchtitan:today.toml"]) == 0
    said = capsys.readouterr().out
    assert "today: D=4 R=2 T=1 P=1 K=1: " in said
    assert "note" not in said


def test_fsdp_has_a_group_on_each_machine(model: Path, capsys: pytest.CaptureFixture[str]):
    strategy = "fsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
    (model / "today.yaml").write_text(f"distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\n{strategy}")
    assert main(["plan", "import", "accelerate", "today.yaml"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert (settings["dp"], settings["dp_replicate"], settings["zero"]) == (16, 2, 3)


def test_where_they_cannot(model: Path, capsys: pytest.CaptureFixture[str]):
    assert main([*SEARCH, "--dp-replicate", "3"]) == 1
    assert "--dp-replicate 3 --tp 1 --pp 1: no plan for 4 devices" in capsys.readouterr().err
    (model / "wrong.json").write_text(json.dumps({"distir_plan": 1, "settings": {"dp": 4, "dp_replicate": 3}}))
    for words in (["export", "megatron"], ["apply", "--model", "step.mlir", "--machine", "machine.toml"]):
        assert main(["plan", *words, "wrong.json"]) == 1
        wanted = "wrong.json: settings.dp_replicate: expected a number that divides dp, 4, got 3"
        assert wanted in capsys.readouterr().err
    (model / "odd.json").write_text(json.dumps({"distir_plan": 1, "settings": {"dp": 3}}))
    assert main(["plan", "apply", "odd.json", "--model", "step.mlir", "--machine", "machine.toml"]) == 1
    assert "no such plan: dp 3" in capsys.readouterr().err


def test_the_fastest_plans_are_tried_with_a_group_on_each_node(model: Path, capsys: pytest.CaptureFixture[str]):
    head, level, node = MACHINE.rpartition("[[levels]]")
    cluster = (
        node.replace('"node"', '"cluster"')
        .replace("3.0e7", "3.0e6")
        .replace("devices = { value = 64", "devices = { value = 32")
    )
    (model / "nodes.toml").write_text(head + level + node.replace("64", "2") + level + cluster)
    search = ("search", "step.mlir", "--machine", "nodes.toml", "--devices", "4", "--tp", "1", "--pp", "1", "--json")
    assert main([*search, "--microbatches", "1"]) == 0
    plans = {p["dp_replicate"]: p for p in json.loads(capsys.readouterr().out)["plans"]}
    assert set(plans) == {1, 2}
    assert main([*search, "--microbatches", "1", "--zero", "0"]) == 0
    assert {p["dp_replicate"] for p in json.loads(capsys.readouterr().out)["plans"]} == {1}
