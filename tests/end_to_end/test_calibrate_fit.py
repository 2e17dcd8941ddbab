"""`distir calibrate --fit` finds the numbers of a machine that step times were simulated with, says how far rows are off that were left out, and refuses mistakes
in one line."""

import json
from pathlib import Path

import pytest
from xdsl.context import Context

from distir.frontends.onnx import import_model
from distir.frontends.weights import save
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import summarize
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.tools.distir import main
from examples import mlp_onnx

TRUE = ("device.matmul_efficiency=0.37", "node.bandwidth=0.6x")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps of four plans, as a machine with other numbers has them."""
    folder = tmp_path_factory.mktemp("runs")
    lines = ["program,seconds,name"]
    for i, (dp, tp, width) in enumerate([(1, 1, 2048), (2, 1, 2048), (1, 4, 2048), (2, 2, 1024), (4, 1, 512)]):
        module = import_model(mlp_onnx.build([width] * 3, 4096))
        DtpParallelizePass(dp=dp, tp=tp).apply(Context(), module)
        save(module, folder / f"{i}.mlir")
        lines.append(f"{i}.mlir,{summarize(module, load_machine('dgx-a100', TRUE)).makespan_seconds!r},D={dp} T={tp}")
    (folder / "runs.csv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder / "runs.csv"


def test_it_finds_the_numbers(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tmp_path / "tuned.toml"
    scalars = "device.matmul_efficiency,node.bandwidth"
    command = ["calibrate", "-o", str(found), "--machine", "dgx-a100", "--fit", str(runs), "--scalars", scalars]
    assert main(command) == 0
    machine, true = load_machine(found), load_machine("dgx-a100", TRUE)
    assert machine.name == "tuned"
    assert machine.device.matmul_efficiency == pytest.approx(0.37, rel=1e-3)
    link, expected = machine.levels[0], true.levels[0]
    assert link.bandwidth_bytes_per_second == pytest.approx(expected.bandwidth_bytes_per_second, rel=1e-3)
    assert "fit runs.csv" in machine.figures["device.matmul_efficiency"].source
    said = capsys.readouterr().out
    assert "left out" in said
    assert "fitted 0.0%, of rows left out 0.0%" in said
    assert "D=2 T=1" in said


def test_rows_that_are_left_out_show_what_does_not_fit(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row was measured with something else: the others do not say its time."""
    lines = runs.read_text("utf-8").splitlines()
    program, seconds, name = lines[1].split(",")
    (runs.parent / "odd.csv").write_text("\n".join([lines[0], f"{program},{2 * float(seconds)},{name}", *lines[2:]]))
    found = tmp_path / "tuned.toml"
    command = ["calibrate", "-o", str(found), "--machine", "dgx-a100", "--fit", str(runs.parent / "odd.csv"), "--json"]
    assert main(command) == 0
    said = json.loads(capsys.readouterr().out)
    (row,) = (row for row in said["runs"] if row["name"] == "D=1 T=1")
    assert row["left_out"] < row["fitted"] < -0.01
    assert said["scalars"][0]["key"] == "device.matmul_efficiency"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("program,seconds\n", [], "expected at least 2 rows for 1 numbers, got 0"),
        ("", [], "expected columns program, seconds, got no program"),
        ("name,seconds\na,1\n", [], "expected columns program, seconds, got no program"),
        ("program,seconds\na.mlir,fast\n", [], "line 2: seconds: expected a positive number, got 'fast'"),
        ("program,seconds\n,1\n", [], "line 2: program: expected a file, got nothing"),
        ("program,seconds\nnone.mlir,1\n", [], "none.mlir"),
        ("program,seconds\n", ["--scalars", "device.speed"], "the machine has no"),
        ("program,seconds\n", ["--scalars", "a,b,c,d"], "expected 1 to 3 different keys"),
        ("program,seconds\n", ["--scalars", "node.bandwidth,levels.node.bandwidth"], "expected different numbers"),
        ("program,seconds\n", ["--machine", "cray"], "unknown machine cray"),
    ],
)
def test_mistakes(
    text: str, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs.csv").write_text(text, "utf-8")
    out = tmp_path / "tuned.toml"
    command = ["calibrate", "-o", str(out), "--machine", "dgx-a100", "--fit", str(tmp_path / "runs.csv"), *options]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1
    assert not out.exists()


def test_a_number_that_nothing_depends_on(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["calibrate", "-o", str(tmp_path / "tuned.toml"), "--machine", "dgx-a100", "--fit", str(runs)]
    assert main([*command, "--scalars", "cluster.bandwidth"]) == 1
    assert "the time of no row depends on it" in capsys.readouterr().err
