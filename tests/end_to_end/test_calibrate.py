"""`distir calibrate`: mistakes are one line; the file that it writes is a machine to simulate on."""

import json
from pathlib import Path

import pytest

from distir.interpreters.machines import load_machine
from distir.tools.distir import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "machine.json"], "machine.json: a machine file's name ends in .toml"),
        (["-o", "nowhere/machine.toml"], "nowhere/machine.toml: cannot be written: no folder nowhere"),
        (["-o", "machine.toml", "--processes", "0"], "expected a number of processes from 1 to 64, got 0"),
    ],
)
def test_mistakes(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        assert main(["calibrate", *arguments]) == 1
    except SystemExit as stopped:
        assert stopped.code  # noqa: PT017
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_calibrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "here.toml"
    assert main(["calibrate", "-o", str(path), "--quick", "--json"]) == 0
    machine = load_machine(path)
    assert machine.name == "here"
    assert {"date", "processes", "host", "libraries", "shared"} <= machine.provenance.keys()
    assert {"allreduce", "send"} <= machine.levels[0].fitted.keys()
    assert all(figure.source for figure in machine.figures.values())
    found = json.loads(capsys.readouterr().out)
    assert found["machine"] == str(path)
    assert {"reducescatter", "matmul"} <= {
        each["kind"] for each in found["errors"] if 0 <= each["median"] <= each["worst"]
    }
