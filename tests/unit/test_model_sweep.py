"""The sweep over architectures measures what it says."""

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from benchmarks.models.measure import DIFFERS, PLANS, REFUSED, VERIFIED, WHOLE, Row, measure
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
