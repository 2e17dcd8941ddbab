"""Sharding as a user types it: `distir-opt` with a search within a limit of memory, then `distir simulate`, `verify` and `run`."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.gpt_training import gpt_step
from benchmarks.training_workloads import gat_step
from distir.tools.distir import main
from distir.tools.distir_opt import main as distir_opt
from tests.slow_machine import written

WORKLOADS = {
    "gpt": lambda: gpt_step(layers=2, width=30, heads=6, vocabulary=61, batch=4, sequence=7),
    "gat": lambda: gat_step(nodes=17, width=8, heads=4, classes=4),
}


def opt(model: Path, passes: str, output: Path) -> str:
    """Runs `distir-opt`; what it wrote."""
    distir_opt([str(model), "-p", passes, "-o", str(output)])
    return output.read_text()


def number(text: str, name: str) -> float:
    found = re.search(rf"{name} = ([0-9.e+-]+)", text)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize(
    ("workload", "mesh"),
    [
        ("gat", "tp=2"),
        pytest.param("gpt", "tp=2", marks=pytest.mark.long),
        pytest.param("gpt", "tp=4", marks=pytest.mark.long),
        pytest.param("gat", "tp=4", marks=pytest.mark.long),
        pytest.param("gat", "dp=2,tp=2", marks=pytest.mark.long),
    ],
)
def test_a_plan_within_a_limit_of_memory_is_verified_and_run(
    workload: str, mesh: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """One byte less than the fastest plan needs; uneven shards among others."""
    machine, model, sharded = written(tmp_path), tmp_path / "model.mlir", tmp_path / "sharded.mlir"
    model.write_text(str(WORKLOADS[workload]()))
    search = f'ilp-shard{{mesh="{mesh}" machine="{machine}"'
    free = opt(model, search + "}", tmp_path / "annotated.mlir")
    limit = int(number(free, "dist.peak_memory_bytes")) - 1
    annotated = opt(model, search + f' memory-limit="{limit}"}}', tmp_path / "annotated.mlir")
    opt(tmp_path / "annotated.mlir", "apply-sharding", sharded)
    assert number(annotated, "dist.gap") == 0
    capsys.readouterr()
    assert main(["simulate", str(sharded), "--machine", machine, "--json"]) == 0
    simulated = json.loads(capsys.readouterr().out)
    assert round(simulated["makespan_seconds"] * 1e12) == round(number(annotated, "dist.seconds") * 1e12)
    assert max(simulated["peak_memory_bytes"]) <= limit
    assert main(["verify", str(model), str(sharded)]) == 0
    assert main(["run", str(sharded), "--check", str(model)]) == 0
    assert "every output agrees" in capsys.readouterr().out
