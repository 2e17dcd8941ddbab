"""Inputs that always have one value: conditions on them are known, and they are no inputs of the program."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from xdsl.context import Context

from distir.dialects.errors import DistirError
from distir.frontends.onnx import import_model
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.reference import run
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
from distir.tools.distir import main

RATES = """<ir_version: 10, opset_import: ["" : 20]> g (float[4] x, int64 sr, bool[2] flags, int8[n] open) => (float[4] y) {
  k = Constant<value = int64 {16000}>()  c = Equal(sr, k)  used = Cast<to = 1>(flags)  z = ReduceSum<keepdims = 0>(used)
  w = If(c) <then_branch = a () => (float[4] p) { p = Relu(x) }, else_branch = b () => (float[4] q) { q = Neg(x) }>
  y = Add(w, z) }"""


def model() -> ModelProto:
    return onnx.parser.parse_model(RATES)


@pytest.mark.parametrize(("rate", "sign"), [(16000, 1.0), (8000, -1.0)])
def test_a_condition_on_a_fixed_input_is_known(rate: int, sign: float) -> None:
    module = import_model(model(), {"open": (1,)}, values={"sr": rate, "flags": True})
    OnnxFoldShapesPass().apply(Context(), module)
    assert [port.name for port in arguments_of(entry_function(module))] == ["x", "open"]
    assert "onnx.If" not in {op.name for op in module.walk()}
    (y,) = run(module, {"x": np.ones(4, np.float32), "open": np.zeros(1, np.int8)}).values()
    np.testing.assert_array_equal(y, np.full(4, sign + 2, np.float32))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"rate": 1}, "--value rate: no input of this name; the inputs are x, sr, flags, open"),
        ({"fla": 1}, "did you mean 'flags'?"),
        ({"open": 1}, "--value open: the input has an open dimension"),
        ({"sr": 0.5}, "--value sr: 0.5 is not a number of type int64"),
        ({"flags": 7}, "--value flags: 7 is not a number of type bool"),
        ({"sr": float("nan")}, "--value sr: nan is not a number of type int64"),
    ],
)
def test_what_cannot_be_fixed(values: dict[str, float], says: str) -> None:
    with pytest.raises(DistirError) as error:
        import_model(model(), values=values)
    assert says in str(error.value)


def test_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), "rates.onnx")
    assert main(["import", "rates.onnx", "--shape", "open=1", "--value", "sr=8000", "--value", "flags=true"]) == 0
    assert "onnx.Neg" in capsys.readouterr().out
    assert main(["import", "rates.onnx", "--value", "sr"]) == 1
    assert (
        capsys.readouterr().err == "distir: error: --value sr: expected INPUT=NUMBER, as in sr=16000, or INPUT=true\n"
    )
    Path("program.mlir").write_text("func.func @main() { func.return }")
    assert main(["import", "program.mlir", "--value", "sr=1"]) == 1
    assert "is for ONNX models" in capsys.readouterr().err
