"""The sweep over architectures measures what it says."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from benchmarks.models.examine import Architecture, Examination, State
from benchmarks.models.measure import DIFFERS, PLANS, REFUSED, VERIFIED, WHOLE, Row, measure
from benchmarks.models.table import END, START, STEPS, SUMMARY, architectures, read_results, summary, write_results
from distir.dialects.errors import DistirError
from distir.passes.dtp_parallelize import DtpParallelizePass
from tests.unit.sharding_problems import parsed

LAYERS = """
func.func @main(%x: tensor<8x12xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<12x12xf32> {dist.name = "w", dist.role = "parameter"},
                %v: tensor<12x12xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<8x12xf32> {dist.name = "y", dist.role = "output"}) {
  %0 = "onnx.MatMul"(%x, %w) : (tensor<8x12xf32>, tensor<12x12xf32>) -> tensor<8x12xf32>
  %1 = "onnx.Relu"(%0) : (tensor<8x12xf32>) -> tensor<8x12xf32>
  %2 = "onnx.MatMul"(%1, %v) : (tensor<8x12xf32>, tensor<12x12xf32>) -> tensor<8x12xf32>
  func.return %2 : tensor<8x12xf32>
}
"""


class _Refuses(ModulePass):
    name = "refuses"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise DistirError("no")


class _ForgetsRelu(ModulePass):
    name = "forgets-relu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for each in [each for each in op.walk() if each.name == "onnx.Relu"]:
            each.results[0].replace_all_uses_with(each.operands[0])


def measured(plan: str) -> Row:
    return measure(parsed(LAYERS), plan)


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_that_divides_has_its_shares(plan: str) -> None:
    row = measured(plan)
    assert (row.state, row.why, row.share) == (VERIFIED, "", 0.5)
    assert 0.2 < row.work < 0.3


def test_a_plan_that_divides_nothing_is_no_pass() -> None:
    row = measured("dp=1")
    assert (row.state, row.share, row.work) == (WHOLE, 1.0, 1.0)


def test_a_search_over_a_mesh_is_a_plan_too() -> None:
    assert measured("ilp-shard mesh=dp=2,tp=2").state in (VERIFIED, WHOLE)


def test_another_result_and_a_refusal_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.models.measure.passes_of", lambda plan: (DtpParallelizePass(dp=2), _ForgetsRelu()))
    assert measured("dp=2").state == DIFFERS
    monkeypatch.setattr("benchmarks.models.measure.passes_of", lambda plan: (_Refuses(),))
    assert (measured("dp=2").state, measured("dp=2").why) == (REFUSED, "no")


# --- the sweep itself ---


def examined(architecture: Architecture, folder: Path) -> dict[str, State]:
    found: dict[str, State] = {}
    Examination(architecture, folder, 60.0, found.__setitem__).run()
    return found


def states_of(found: dict[str, State]) -> dict[str, str]:
    return {step: state["state"] for step, state in found.items()}


@pytest.mark.filterwarnings("ignore")
def test_a_training_step_goes_through_every_step(tmp_path: Path) -> None:
    states = states_of(examined(Architecture("step", "plain:mlp"), tmp_path))
    assert states.pop("ilp-shard") in (VERIFIED, WHOLE)
    assert states == {step: "ok" for step in STEPS[:5]} | dict.fromkeys(PLANS, VERIFIED)


def test_a_file_goes_through_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[4, 12] x) => (float[4, 12] y) '
        "<float[12, 12] w = {" + ", ".join(["0.5"] * 144) + "}> { h = MatMul(x, w)  a = Relu(h)  y = MatMul(a, w) }"
    )
    onnx.save(layers, tmp_path / "layers.onnx")
    monkeypatch.setattr("benchmarks.models.examine.file_of", lambda source: tmp_path / "layers.onnx")
    monkeypatch.setattr(
        "benchmarks.models.examine._by_onnxruntime", lambda path, feeds, values: 0.5 * np.zeros((4, 12))
    )
    found = examined(Architecture("file", "package:layers"), tmp_path)
    states = states_of(found)
    assert states.pop("equal") == "differs"  # zeros are not what it computes
    assert states.pop("ilp-shard") in (VERIFIED, WHOLE)
    assert states == {step: "ok" for step in STEPS[:5] if step != "equal"} | dict.fromkeys(PLANS, VERIFIED)


def test_a_model_of_which_the_package_is_missing_is_a_row(tmp_path: Path) -> None:
    found = examined(Architecture("file", "package:no_such_package/model.onnx"), tmp_path)
    assert found == {"export": {"state": "missing", "why": "package no_such_package", "seconds": 0.0}}


def test_the_table_lists_each_architecture_once_and_the_summary_is_that_of_the_results() -> None:
    names = [architecture.name for architecture in architectures()]
    assert len(names) == len(set(names))
    assert len({architecture.source for architecture in architectures()}) >= 150
    results = read_results()
    assert set(results) <= set(names)
    assert START + summary(results) + END in SUMMARY.read_text()


def test_results_are_written_in_the_order_of_the_table(tmp_path: Path) -> None:
    last, first = architectures()[-1].name, architectures()[0].name
    write_results({last: {}, first: {"import": {"state": "ok"}}}, tmp_path / "results.json")
    assert list(read_results(tmp_path / "results.json")) == [first, last]
