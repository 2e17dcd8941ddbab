"""`distir search --execute-top`: plans run here, measured beside simulated, and what was measured is not measured again."""

import json
from pathlib import Path

import pytest

from distir.dialects.errors import DistirError
from distir.interpreters.machines import load_machine
from distir.tools import execute_top
from distir.tools.agreement import Agreement
from distir.tools.distir import main
from distir.tools.plans import Plan

STEP = str(Path(__file__).parents[1] / "filecheck" / "paper" / "figure_sequential.mlir")


def search(*words: str) -> int:
    return main(["search", STEP, "--machine", "local-cpu", "--devices", "2", *words])


def test_what_was_measured_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third of three plans fails; the two before it are kept, and only it is run the next time."""
    ran: list[str] = []
    times = iter([0.3, 0.1])

    def measure(plan: object, name: str, runs: int, backend: str) -> float:
        ran.append(name)
        if (seconds := next(times, None)) is None:
            raise DistirError("rank 1 was killed by SIGKILL")
        return seconds

    monkeypatch.setattr(execute_top, "_measure", measure)
    kept = str(tmp_path / "kept.json")
    assert search("--execute-top", "3", "--executions", kept) == 1
    assert "rank 1 was killed" in capsys.readouterr().err
    assert len(json.loads(Path(kept).read_text())) == 2
    times = iter([0.2])
    assert search("--execute-top", "3", "--executions", kept, "--json") == 0
    assert len(ran) == 4
    assert ran[2] == ran[3]
    found = json.loads(capsys.readouterr().out)["executed"]
    assert [row["measured_seconds"] for row in found["plans"]] == [0.1, 0.2, 0.3]
    assert [row["rank"] for row in found["plans"]] == [2, 3, 1]
    assert found["spearman"] == pytest.approx(-0.5)  # ranks 1, 2, 3 against 3, 1, 2
    errors = [abs(row["simulated_seconds"] / row["measured_seconds"] - 1) for row in found["plans"]]
    assert found["mape"] == pytest.approx(sum(errors) / 3)


def test_a_machine_is_fitted_to_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans that take as long as on a machine whose matmuls reach a quarter: a search that is calibrated from them says these times, and so does a machine file."""
    true = ("--set", "device.matmul_efficiency=0.25x")

    def measure(plan: Plan, name: str, runs: int, backend: str) -> float:
        return plan.figures.latency_seconds

    monkeypatch.setattr(execute_top, "_measure", measure)
    kept, found = str(tmp_path / "kept.json"), str(tmp_path / "found.toml")
    assert search("--execute-top", "3", "--executions", kept, *true) == 0
    capsys.readouterr()
    assert search("--execute-top", "3", "--executions", kept, "--calibrate-from", kept, "--json") == 0
    said = capsys.readouterr()
    assert "fitted to 3 plans" in said.err
    assert json.loads(said.out)["executed"]["mape"] < 0.01
    command = ["calibrate", "-o", found, "--machine", "local-cpu", "--fit", kept]
    assert main(command) == 0
    expected = 0.25 * load_machine("local-cpu").device.matmul_efficiency
    assert load_machine(found).device.matmul_efficiency == pytest.approx(expected, rel=0.02)


@pytest.mark.long
def test_plans_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert search("--execute-top", "2", "--measure", "2") == 0
    assert "2 plans run here: MAPE" in capsys.readouterr().out


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text("[1]")
    assert search("--execute-top", "2", "--executions", str(tmp_path / "other.json")) == 1
    assert "holds no measurements of search --execute-top" in capsys.readouterr().err
    assert search("--calibrate-from", str(tmp_path / "other.json")) == 1
    assert "holds no measurements of search --execute-top" in capsys.readouterr().err
    assert search("--execute-top", "0") == 1
    assert "--execute-top" in capsys.readouterr().err


def test_agreement() -> None:
    found = Agreement.of([1.0, 2.0, 3.0], [2.0, 4.0, 3.0])
    assert (found.mape, found.spearman) == (pytest.approx(1 / 3), pytest.approx(0.5))
