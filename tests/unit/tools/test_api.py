"""What Python programs call: `distir.import_model`, `search`, `simulate`, `verify`, `prove`, `run`; and that the commands say the same."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import distir
from distir.interpreters import reference
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.weights import attach, weights_of
from distir.tools.distir import main
from examples import mlp_onnx


@pytest.fixture(scope="module")
def model() -> ModuleOp:
    return distir.import_model(mlp_onnx.build([16] * 4, batch=32))


@pytest.fixture(scope="module")
def plans(model: ModuleOp) -> distir.Plans:
    return distir.search(model, "dgx-2", 4, microbatches=[2], schedules=["1f1b"], exhaustive=True, overlap=False)


def test_names_are_there_and_nothing_is_imported_before():
    assert set(distir.__all__) <= set(dir(distir))
    assert distir.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = distir.nonsense  # pyright: ignore


def test_a_model_that_is_an_object_is_copied_with_its_values(model: ModuleOp):
    attach(given := model.clone(), {"w": np.ones(3, np.float32)})
    copy = distir.import_model(given)
    assert copy is not given
    assert str(copy) == str(given)
    assert weights_of(copy)["w"].sum() == 3


def test_shapes_bind_and_mistakes_are_one_line(tmp_path: Path):
    bound = distir.import_model(mlp_onnx.build([16] * 3, batch=None), {"x": (4, 16), "z": (4, 16)})
    assert "tensor<4x16xf32>" in str(bound)
    with pytest.raises(distir.DistirError, match=r"^no/such.onnx: cannot be read"):
        distir.import_model(Path("no/such.onnx"))
    with pytest.raises(distir.DistirError, match=r"^the model: expected an xDSL ModuleOp, an onnx ModelProto"):
        distir.import_model(3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"devices": "4"}, "devices: expected a whole number, got '4'"),
        ({"devices": True}, "devices: expected a whole number, got True"),
        ({"devices": 0}, "devices and top: expected at least 1"),
        ({"jobs": 1.5}, "jobs: expected a whole number, got 1.5"),
        ({"time_limit": "1"}, "time_limit: expected a number, got '1'"),
        ({"batch_sizes": 4}, "batch_sizes: expected a list, got 4"),
        ({"schedules": "1f1b"}, "schedules: expected a list, got '1f1b'"),
        ({"microbatches": [0]}, "microbatches: expected positive numbers"),
        ({"matmul_keep": "lm_head"}, "matmul_keep: give matmul_type too, which it leaves modules out of"),
    ],
)
def test_a_mistake_in_a_search_names_the_argument(model: ModuleOp, arguments: dict[str, Any], said: str):
    with pytest.raises(distir.DistirError, match=f"^{re.escape(said)}"):
        distir.search(model, "dgx-2", **{"devices": 4, **arguments})


def test_a_mistake_in_a_simulation_ends_the_call(model: ModuleOp):
    with pytest.raises(distir.DistirError, match="unknown cost model x"):
        distir.simulate(model, "dgx-2", cost_model="x")


def test_plans_are_ranked_and_are_what_they_say(model: ModuleOp, plans: distir.Plans):
    figures = [plan.throughput_per_second for plan in plans]
    assert figures == sorted(figures, reverse=True)
    assert plans.best is plans[0]
    assert len(plans) == plans.planned
    for plan in (plans[0], plans[-1]):
        simulated = distir.simulate(plan, "dgx-2")
        assert simulated.makespan_seconds == plan.figures.latency_seconds
        assert max(simulated.peak_memory_bytes.values()) == plan.figures.peak_memory_bytes
    assert distir.verify(model, plans[0]).holds
    assert distir.prove(model, plans[0])
    with pytest.raises(
        distir.DistirError, match=r"^expected a program, which is a file, an xDSL ModuleOp or a plan, got 3$"
    ):
        distir.simulate(3, "dgx-2")  # pyright: ignore


def test_communication_is_told_by_axis(model: ModuleOp, plans: distir.Plans):
    """What a search says from one replica and one tensor rank is what the whole program takes; with streams, part of it is hidden."""
    overlapping = distir.search(model, "dgx-2", 4, microbatches=[2], schedules=["1f1b"], overlap=True)
    for plan in (*plans, *overlapping):
        assert sum(plan.exposed_shares.values()) == pytest.approx(plan.figures.communication_share)
        found = distir.simulate(plan.program, "dgx-2").figures["communication_by_axis"]
        for axis, degree in (
            ("dp", plan.configuration.dp),
            ("tp", plan.configuration.tp),
            ("pp", plan.configuration.pp),
        ):
            seconds = found.get(axis, {"exposed_seconds": 0.0, "hidden_seconds": 0.0})
            assert axis not in found or degree > 1
            assert plan.exposed_shares[axis] == pytest.approx(seconds["exposed_seconds"] / plan.figures.latency_seconds)
            assert plan.hidden_shares[axis] == pytest.approx(seconds["hidden_seconds"] / plan.figures.latency_seconds)
    assert not any(sum(plan.hidden_shares.values()) for plan in plans)
    assert any(plan.hidden_shares["dp"] > 0 for plan in overlapping)
    assert "hidden" in overlapping.table().columns
    assert "hidden" not in plans.table().columns


def test_tables(plans: distir.Plans, monkeypatch: pytest.MonkeyPatch):
    lines = str(plans).splitlines()
    assert lines[0].split()[:3] == ["rank", "batch", "D"]
    assert lines[-1] == f"{len(plans)} of {len(plans)} plans simulated"
    assert plans._repr_html_().count("<tr>") == 1 + len(plans)
    compared = plans.compare(1, 3)
    assert compared.columns == ("figure", "plan 1", "plan 3", "last against first")
    by_figure = {row[0]: row for row in compared.rows}
    change = plans[2].throughput_per_second / plans[0].throughput_per_second - 1
    assert by_figure["throughput_per_second"][3] == f"{change:+.1%}"
    second = replace(plans[1], configuration=replace(plans[1].configuration, overlap=True))
    assert ("overlap", "True", "False", "") in plans.compare(second, 1).rows
    with pytest.raises(distir.DistirError, match="at least two plans"):
        plans.compare(1)
    frames: list[Any] = []
    pandas = ModuleType("pandas")
    pandas.DataFrame = frames.append  # pyright: ignore
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    plans.to_pandas()
    assert frames == [[plan.as_dict() for plan in plans]]


def test_nothing_fits(model: ModuleOp):
    none = distir.search(model, "dgx-2", 2, memory_limit="1KB")
    assert not none
    with pytest.raises(distir.DistirError, match="no plan fits: the leanest needs"):
        _ = none.best
    with pytest.raises(TypeError, match="unexpected argument 'divices'"):
        distir.search(model, "dgx-2", 2, divices=3)


def test_the_command_says_the_same(
    model: ModuleOp, plans: distir.Plans, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "model.mlir").write_text(str(model))
    options = "--machine dgx-2 --devices 4 --microbatches 2 --schedules 1f1b --exhaustive --json --no-overlap".split()
    best = str(tmp_path / "best.mlir")
    assert main(["search", str(tmp_path / "model.mlir"), *options, "-o", best]) == 0
    assert json.loads(capsys.readouterr().out)["plans"] == [plan.as_dict() for plan in plans][:10]
    assert main(["simulate", best, "--machine", "dgx-2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    figures = {"program": best, **distir.simulate(best, "dgx-2").figures}
    assert figures == {name: found[name] for name in figures}
    assert found.keys() - figures.keys() == {"by", "parts"}


def test_run(model: ModuleOp):
    values = draw_inputs(model, 0)
    outputs, expected = distir.run(model, values).outputs, reference.run(model, values)
    assert outputs.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, rtol=1e-5, atol=1e-6)
    with pytest.raises(distir.DistirError, match="no input 'y0'; the inputs are"):
        distir.run(model, {"y0": np.ones(1)})


def test_versions(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"distir {distir.__version__}\n"


MISSPELT = {
    "option": (["simulate", "x.mlir", "--machine", "dgx-2", "--jsn"], "arguments: --jsn (did you mean --json?)"),
    "two options": (["machines", "--jsn", "--stes", "x"], "(did you mean --json and --set?)"),
    "command": (["serach", "x.mlir"], "(did you mean search?); see distir --help"),
    "action": (["plan", "shwo", "x.json"], "(did you mean show?); see distir plan --help"),
    "choice": (["run", "x.mlir", "--backend", "glo"], "(did you mean gloo?); see distir run --help"),
    "nothing near": (["zzz"], "'completion'); see distir --help"),
}


@pytest.mark.parametrize(("arguments", "expected"), MISSPELT.values(), ids=MISSPELT)
def test_a_misspelt_word_is_met_by_the_nearest(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 1
    assert expected in capsys.readouterr().err
