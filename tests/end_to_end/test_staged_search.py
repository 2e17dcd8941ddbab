"""`distir search --sharding ilp`: what is printed is the simulation of the text that the pipeline of passes writes for each plan."""

import csv
import json
import runpy
from math import prod
from pathlib import Path

import onnx
import pytest
from xdsl.context import Context

from distir.frontends.onnx import import_model
from distir.frontends.weights import load
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.ranks import group_of
from distir.interpreters.simulate import simulate
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.search.configurations import Configuration, ranked
from distir.passes.search.search import Search
from distir.tools.distir import main
from tests.slow_machine import written
from tests.small_models import mlp

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    build = runpy.run_path(str(ROOT / "examples" / "mlp_onnx.py"))["build"]
    onnx.save(build([64] * 5, learning_rate=0.5), tmp_path / "mlp.onnx")
    written(tmp_path)  # where models this small are worth cutting
    monkeypatch.chdir(tmp_path)
    return tmp_path


SHAPES = ("--shape", "x=32,64", "--shape", "z=32,64")
SEARCH = ("search", "mlp.onnx", *SHAPES, "--machine", "machine.toml", "--devices", "4", "--sharding", "ilp")


def test_figures_are_those_of_the_text(model: Path, capsys: pytest.CaptureFixture[str]):
    assert main([*SEARCH, "--microbatches", "2", "--schedules", "1f1b", "--csv", "plans.csv", "-o", "best.mlir"]) == 0
    rows = [row for row in csv.DictReader((model / "plans.csv").read_text().splitlines()) if not row["dropped"]]
    assert {row["pp"] for row in rows} == {"1", "2", "4"}
    assert ("1", "2") in {(row["pp"], row["microbatches"]) for row in rows}  # accumulation without a pipeline
    best = load("best.mlir")
    assert group_of(best) is not None
    assert simulate(best, load_machine("machine.toml")).makespan_seconds == float(rows[0]["latency_seconds"])
    assert main(["import", "mlp.onnx", *SHAPES, "-o", "mlp.mlir"]) == 0
    assert main(["verify", "mlp.mlir", "best.mlir"]) == 0
    for row in rows:
        module = import_model("mlp.onnx", shapes={"x": (32, 64), "z": (32, 64)})
        parallelize = DtpParallelizePass(
            dp=int(row["dp"]),
            tp=int(row["tp"]),
            pp=int(row["pp"]),
            microbatches=int(row["microbatches"]),
            sharding="ilp",
            restrict="dp=batch",
            machine="machine.toml",
            overlap=row["overlap"] == "True",
        )
        parallelize.apply(Context(), module)
        found = simulate(module, load_machine("machine.toml"))  # device by device
        assert found.makespan_seconds == float(row["latency_seconds"])
        assert max(found.peak_memory_bytes.values()) == int(row["peak_memory_bytes"])


def test_others_are_slower_and_what_does_not_fit_says_so():
    """The fastest plans are those of all plans, and a bound is no more than the time."""
    model = mlp()
    batch = 8

    def search(wanted: int, limit: int = 1 << 40) -> Search:
        return Search(lambda _: model.module.clone(), "dgx-a100", "analytic", limit, wanted=wanted)

    grid = [Configuration(batch, d, 1, p, k, "1f1b") for d, p, k in ((4, 1, 1), (2, 2, 2), (2, 1, 2), (1, 4, 4))]
    every = list(search(0).outcomes(grid))
    for outcome in every:
        if (figures := outcome.figures) is not None:
            least = [*search(1).bounds.of(outcome.configuration)]
            assert least == sorted(least)
            assert 0 < least[0] <= least[-1] <= figures.latency_seconds
            assert 0 < search(1).bounds.least_bytes(outcome.configuration) <= figures.peak_memory_bytes
    found = list(search(1).outcomes(grid))
    assert len(found) == len(grid)
    assert ranked(found)[0] == ranked(every)[0]
    (small,) = search(1, 1000).outcomes(grid[:1])
    assert small.dropped is not None
    assert small.dropped.startswith("needs at least")
    assert small.least_memory_bytes > 1000


def test_divide_prefers_what_divides(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a model as small as this one, tensor ranks hold all parameters where that is not asked: the fastest plan cuts rows alone."""
    plan = Configuration(4, 1, 2, 1, 1, "1f1b")
    build = runpy.run_path(str(ROOT / "examples" / "gpt2_onnx.py"))["build"]
    small = import_model(build(n_layer=1, d_model=16, n_head=2, vocab=24, n_ctx=8), {"input1": (4, 1, 8)})

    def share(divides: bool) -> float:
        search = Search(lambda _: small.clone(), "dgx-2", "analytic", 1 << 40, divides=divides)
        parts = [
            p.part
            for p in arguments_of(entry_function(search.program(plan)))
            if p.role == "parameter" and p.part is not None
        ]
        return sum(prod(part.local_shape) for part in parts) / sum(prod(part.global_shape) for part in parts)

    assert share(divides=False) == 1
    assert share(divides=True) < 0.6
    assert (
        main([*SEARCH[:-4], "--devices", "2", "--divide", "--microbatches", "2", "--schedules", "1f1b", "--top", "1"])
        == 0
    )
    assert "plans simulated" in capsys.readouterr().out


def test_numbers_of_the_machine_may_be_set(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The passes that write a plan see them too."""
    options = [*SEARCH[:-4], "--devices", "2", "--sharding", "ilp", "--microbatches", "2", "--top", "1", "--json"]

    def seconds(*settings: str) -> float:
        assert main([*options, *settings]) == 0
        return json.loads(capsys.readouterr().out)["plans"][0]["latency_seconds"]

    usual = seconds()
    assert seconds("--set", "device.memory_bandwidth_bytes_per_second=1e7") > 2 * usual
