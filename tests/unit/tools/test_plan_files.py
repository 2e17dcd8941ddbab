"""Plan files: what search writes is what apply simulates and compare explains; and files that are no plans are refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distir
from distir.dialects.errors import DistirError
from distir.tools.distir import main
from distir.tools.plan_files import SETTINGS, PlanFile, read_plan

COMMON = "--machine dgx-a100 --devices 4 --microbatches 2 --schedules 1f1b,gpipe"


def search(mlp_step: Path, out: Path, *options: str) -> Any:
    assert main(["search", str(mlp_step), *COMMON.split(), *options, "-o", str(out)]) == 0
    return json.loads(out.read_text())


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("--row 3", marks=pytest.mark.long),
        pytest.param("--dp 2 --pp 1", marks=pytest.mark.long),
        "--zero 3 --dp 4 --pp 1",
        pytest.param("--overlap --pp 2 --dp 2", marks=pytest.mark.long),
        pytest.param("--recompute all --pp 2 --row 2", marks=pytest.mark.long),
    ],
)
def test_a_plan_has_the_figures_that_its_program_has(
    mlp_step: Path, tmp_path: Path, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a search printed, what its plan file says, what apply finds, and the simulation of the program that apply writes."""
    plan, program = tmp_path / "plan.json", str(tmp_path / "plan.mlir")
    said = search(mlp_step, plan, *options.split())
    capsys.readouterr()
    assert main(["plan", "apply", str(plan), "--json", "-o", program]) == 0
    found = json.loads(capsys.readouterr().out)["plan"]
    assert {name: found[name] for name in said["figures"]} == said["figures"]
    simulated = distir.simulate(program, "dgx-a100")
    assert simulated.makespan_seconds == said["figures"]["latency_seconds"]
    assert max(simulated.peak_memory_bytes.values()) == said["figures"]["peak_memory_bytes"]
    assert main(["verify", str(mlp_step), program]) == 0


def test_show_and_pin(mlp_step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = search(mlp_step, tmp_path / "plan.json", "--row", "2", "--dp", "2")
    assert main(["plan", "show", str(tmp_path / "plan.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("to " + str(tmp_path / "plan.json"))[2]) == said
    assert main(["plan", "show", str(tmp_path / "plan.json")]) == 0
    assert "latency_seconds" in capsys.readouterr().out
    pins = {"distir_plan": 1, "settings": {"tp": 2, "microbatches": 2}}
    (tmp_path / "pins.json").write_text(json.dumps(pins))
    assert main(["search", str(mlp_step), *COMMON.split(), "--json", "--pin", str(tmp_path / "pins.json")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(p["dp"], p["tp"], p["pp"]) for p in found["plans"] + found["dropped"]} == {(1, 2, 2), (2, 2, 1)}
    assert main(["search", str(mlp_step), *COMMON.split(), "--pin", str(tmp_path / "pins.json"), "--tp", "4"]) == 1
    assert "--tp 4 and --pin" in capsys.readouterr().err


def test_compare_goes_from_one_plan_to_the_other(
    mlp_step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = search(mlp_step, tmp_path / "one.json", "--dp", "4")
    other = search(mlp_step, tmp_path / "other.json", "--tp", "2", "--pp", "2", "--schedules", "gpipe")
    capsys.readouterr()
    assert main(["plan", "compare", str(tmp_path / "one.json"), str(tmp_path / "other.json"), "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)
    assert [step["seconds"] for step in (steps[0], steps[-1])] == [
        p["figures"]["latency_seconds"] for p in (one, other)
    ]
    assert [s["name"] for s in steps[1:]] == [
        "dp 4 to 1, tp 1 to 2, pp 1 to 2, schedule None to gpipe",
        "microbatches 1 to 2",
    ]
    assert main(["plan", "compare", str(tmp_path / "one.json"), str(tmp_path / "one.json")]) == 0
    assert "no setting differs" in capsys.readouterr().out


def test_a_plan_is_for_its_model_and_runs_no_code(
    mlp_step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = search(mlp_step, tmp_path / "plan.json", "--dp", "2", "--pp", "1")
    changed = tmp_path / "changed.mlir"
    changed.write_text(mlp_step.read_text() + "\n")
    for named, wrong in [
        (str(changed), "is not the model that the plan was made for"),
        ("os:getcwd", "its model os:getcwd is code, which a plan cannot ask to run: give --model os:getcwd"),
        ("no.mlir", "its model no.mlir is no file here"),
        (None, "does not say of which model"),
    ]:
        plan = {**said, "model": {**said["model"], "path": named}}
        (tmp_path / "other.json").write_text(json.dumps(plan))
        assert main(["plan", "apply", str(tmp_path / "other.json")]) == 1
        assert wrong in capsys.readouterr().err
    assert main(["plan", "apply", str(tmp_path / "other.json"), "--model", str(changed)]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "distir_plan: expected 1, which makes it a plan, got nothing"),
        ('{"distir_plan": 2}', "distir_plan: expected one of 1, got 2"),
        ('{"distir_plan": true}', "distir_plan: expected one of 1, got true"),
        ('{"distir_plan": 1, "setings": {}}', "no field 'setings' in a plan (did you mean settings?)"),
        ('{"distir_plan": 1, "settings": {"tensor": 2}}', "no field 'settings.tensor' in a plan"),
        ('{"distir_plan": 1, "settings": {"tp": 0}}', "settings.tp: expected a whole number of at least 1, got 0"),
        ('{"distir_plan": 1, "settings": {"tp": 1e400}}', "settings.tp: expected a whole number of at least 1"),
        ('{"distir_plan": 1, "settings": {"tp": "2"}}', 'settings.tp: expected a whole number of at least 1, got "2"'),
        ('{"distir_plan": 1, "settings": {"tp": 2, "tp": 3}}', "'tp' is there twice"),
        ('{"distir_plan": 1, "settings": {"schedule": "1f1b\\n\\u001b[31m"}}', "settings.schedule: expected a text, or null"),
        ('{"distir_plan": 1, "settings": {"sharding": 5}}', 'settings.sharding: expected one of "dtp", "ilp", got 5'),
        ('{"distir_plan": 1, "settings": {"zero": true}}', "settings.zero: expected one of 0, 1, 2, 3, or null, got true"),
        ('{"distir_plan": 1, "settings": []}', "settings: expected an object, got []"),
        ('{"distir_plan": 1, "figures": {"mfu": NaN}}', "figures.mfu: expected a number, or null"),
        ('{"distir_plan": 1, "model": {"shapes": {"x": [1, -1]}}}', "model.shapes.x: expected a list of sizes"),
        ('{"distir_plan": 1, "machine": {"settings": "a=1"}}', "machine.settings: expected a list of texts"),
        ("[" * 100_000, "is no plan"),
        ("\x00\xff", "is no plan"),
        (" " * (1 << 21), "more than 1,048,576 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_plan_is_refused_in_one_line(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_bytes(text.encode("latin-1", "surrogateescape"))
    assert main(["plan", "show", str(tmp_path / "plan.json")]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


SAID = st.fixed_dictionaries(
    {}, optional={"tp": st.integers(1, 99), "zero": st.integers(0, 3), "overlap": st.booleans()}
)


@given(SAID)
@settings(max_examples=30, deadline=None)
def test_files_come_back(tmp_path_factory: pytest.TempPathFactory, said: dict[str, Any]) -> None:
    path = str(tmp_path_factory.mktemp("plans") / "plan.json")
    PlanFile(said).save(path)
    again = read_plan(path)
    assert again.settings == said
    assert all(again.setting(name) == said.get(name, SETTINGS[name].default) for name in SETTINGS)


def test_a_folder_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(DistirError, match="cannot be read: Is a directory"):
        read_plan(str(tmp_path))


@pytest.mark.parametrize(
    ("said", "zero"),
    [({"sharding": "dtp"}, 0), ({"sharding": "ilp", "zero": 0}, None), ({"sharding": "ilp", "zero": 3}, 3), ({}, None)],
)
def test_files_from_when_there_were_two_planners(said: dict[str, object], zero: int | None, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"distir_plan": 1, "settings": said}))
    plan = read_plan(str(path))
    assert plan.setting("zero") == zero
    assert "sharding" not in plan.settings
