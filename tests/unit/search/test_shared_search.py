"""`distir search --jobs N`: processes find what one finds."""

import json
import os
import signal
from pathlib import Path

import pytest

import distir
from distir.dialects.errors import DistirError
from distir.frontends.pytorch import import_step
from distir.passes.search.configurations import Configuration, grid
from distir.passes.search.search import ENOUGH, Search
from distir.passes.search.shared_search import SharedSearch
from distir.tools.distir import main
from examples import mlp_pytorch


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("--top 3 --recompute full,none", marks=pytest.mark.long),
        pytest.param("--exhaustive --top 99", marks=pytest.mark.long),
        "--top 2 --dp 1,2",
    ],
)
def test_processes_find_the_same(
    mlp_step: Path, tmp_path: Path, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A best plan as fast, but for what a search leaves open, whose program has its figures."""
    found: list[float] = []
    for jobs in ("1", "2" if "99" in options else "9" * 20):
        command = [
            "search",
            str(mlp_step),
            *"--machine dgx-a100 --devices 4 --microbatches 2 --json".split(),
            *options.split(),
        ]
        assert main([*command, "--jobs", jobs, "-o", str(tmp_path / "best.mlir")]) == 0
        best = json.loads(capsys.readouterr().out)["plans"][0]["latency_seconds"]
        assert distir.simulate(str(tmp_path / "best.mlir"), "dgx-a100").makespan_seconds == best
        found.append(best)
    assert found[0] == pytest.approx(found[1], rel=ENOUGH)


def test_a_process_that_is_killed_is_said(mlp_step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_step(mlp_pytorch.step())
    search = Search(lambda _: module.clone(), "dgx-a100", "analytic", 80 * 10**9, wanted=3)
    configurations = grid(4, [16], (2,), ["1f1b"])
    search.prepare(configurations)

    def killed(configurations: list[Configuration]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(search, "outcomes", killed)
    with pytest.raises(DistirError, match="a process ended before its time"):
        list(SharedSearch(search, 2).outcomes(configurations))


def test_a_mistake_is_one_line(mlp_step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(mlp_step), "--machine", "dgx-a100", "--devices", "4", "--jobs", "0"]) == 1
    assert "--row and --jobs: expected at least 1" in capsys.readouterr().err
