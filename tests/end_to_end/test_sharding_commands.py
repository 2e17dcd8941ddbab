"""Sharding as a user types it: `distir-opt` with a search within a limit of memory, then `distir simulate`, `verify` and `run`."""

import json
import re
from itertools import product
from pathlib import Path

import pytest

from benchmarks.gpt_training import gpt_step
from benchmarks.training_workloads import gat_step, wide_resnet_step
from distir.tools.distir import main
from distir.tools.distir_opt import main as distir_opt
from tests.slow_machine import written

WORKLOADS = {
    "gpt": lambda: gpt_step(layers=2, width=30, heads=6, vocabulary=61, batch=4, sequence=7),
    "gat": lambda: gat_step(nodes=17, width=8, heads=4, classes=4),
    "resnet": lambda: wide_resnet_step(8, 4, blocks=(1, 1), classes=9, channels=8, image=32),
}


def opt(model: Path, passes: str, output: Path) -> str:
    """Runs `distir-opt`; what it wrote."""
    distir_opt([str(model), "-p", passes, "-o", str(output)])
    return output.read_text()


def number(text: str, name: str) -> float:
    found = re.search(rf"{name} = ([0-9.e+-]+)", text)
    assert found is not None
    return float(found[1])


MESHES = ("tp=2", "tp=4", "dp=2,tp=2", "tp=8", "dp=2,tp=4")
IN_MAKE_TEST = ("gat", "tp=2", "ilp", True)
EVERY = [
    pytest.param(*case, marks=() if case == IN_MAKE_TEST else pytest.mark.long)
    for case in product(WORKLOADS, MESHES, ("ilp", "beam"), (False, True))
]


@pytest.mark.parametrize(("workload", "mesh", "search", "is_limited"), EVERY)
def test_plans_are_verified_and_run(
    workload: str, mesh: str, search: str, is_limited: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A limit is one byte less than the plan without one needs (for a beam, which may find no other, just that); uneven shards among others."""
    machine, model, sharded = written(tmp_path), tmp_path / "model.mlir", tmp_path / "sharded.mlir"
    model.write_text(str(WORKLOADS[workload]()))
    passes = f'{search}-shard{{mesh="{mesh}" machine="{machine}"'
    annotated = opt(model, passes + "}", tmp_path / "annotated.mlir")
    peak = int(number(annotated, "dist.peak_memory_bytes"))
    if is_limited:
        limit = peak - 1 if search == "ilp" else peak
        annotated = opt(model, passes + f' memory-limit="{limit}"}}', tmp_path / "annotated.mlir")
        assert number(annotated, "dist.peak_memory_bytes") <= limit
    assert search == "beam" or number(annotated, "dist.gap") == 0
    opt(tmp_path / "annotated.mlir", "apply-sharding", sharded)
    capsys.readouterr()
    assert main(["simulate", str(sharded), "--machine", machine, "--json"]) == 0
    simulated = json.loads(capsys.readouterr().out)
    assert round(simulated["makespan_seconds"] * 1e12) == round(number(annotated, "dist.seconds") * 1e12)
    assert max(simulated["peak_memory_bytes"]) == number(annotated, "dist.peak_memory_bytes")
    assert main(["verify", str(model), str(sharded)]) == 0
    assert main(["run", str(sharded), "--check", str(model)]) == 0
    assert "every output agrees" in capsys.readouterr().out
