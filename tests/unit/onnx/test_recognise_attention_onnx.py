"""Attention that exported ONNX encoders spell out becomes one operation, with equal values, and takes less time and memory."""

import warnings
from pathlib import Path

import onnx
import pytest
import torch
from onnx import parser
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.onnx import import_model
from distir.interpreters.equivalence import verify
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate.analysis import Analysis
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
from distir.passes.recognise_attention import RecogniseAttentionPass


def folded(model: onnx.ModelProto) -> ModuleOp:
    module = import_model(model)
    OnnxFoldShapesPass().apply(Context(), module)
    return module


def recognised(module: ModuleOp) -> ModuleOp:
    found = module.clone()
    RecogniseAttentionPass().apply(Context(), found)
    found.verify()
    return found


def count(module: ModuleOp, name: str) -> int:
    return sum(op.name == name for op in module.walk())


def test_an_exported_encoder(tmp_path: Path) -> None:
    """Two layers of torch's encoder, heads in the batch of one product."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    path = tmp_path / "encoder.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(encoder, (torch.randn(2, 512, 32),), path, dynamo=False, opset_version=17)
    module = folded(onnx.load(path))
    found = recognised(module)
    assert (count(found, "attention.forward"), count(found, "onnx.Softmax")) == (2, 0)
    assert verify(module, found).holds
    spelled, whole = (Analysis(each, load_machine("dgx-a100")).summary for each in (module, found))
    assert whole.peak_memory_bytes[0] < spelled.peak_memory_bytes[0] / 4
    assert whole.makespan_seconds < spelled.makespan_seconds


BEGIN = '<ir_version: 8, opset_import: ["": 18]>'
TYPES = "float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v"


@pytest.mark.parametrize(
    ("types", "body"),
    [
        (f"{TYPES}, bool[2,1,1,7] m", "h = Constant<value = float {-inf}>() x = Where(m, s, h) p = Softmax(x)"),
        (f"{TYPES}, float[2,1,1,7] m", "x = Add(m, s) p = Softmax<axis = 3>(x)"),
        (TYPES, "r = Constant<value = float {2.0}>() x = Div(s, r) p = Softmax(x)"),
        (TYPES, "e = Exp(s) a = Constant<value = int64[1] {-1}>() u = ReduceSum(e, a) p = Div(e, u)"),
        (
            TYPES,
            "w = Softmax(s) n = IsNaN(w) z = Constant<value = float {0.0}>() p = Where(n, z, w)",
        ),
    ],
)
def test_forms_of_exporters(types: str, body: str) -> None:
    """Masks that are chosen by or added, a softmax of its parts, and what is not a number made zero."""
    graph = f"g ({types}) => (float[2,3,5,6] y) {{ t = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, t) {body} y = MatMul(p, v) }}"
    module = folded(parser.parse_model(f"{BEGIN} {graph}"))
    found = recognised(module)
    assert count(found, "attention.forward") == 1
    assert not count(found, "onnx.MatMul")
    assert verify(module, found).holds


def test_einsum() -> None:
    """The letters say which dims are rows, keys and heads."""
    graph = (
        "g (float[2,5,3,4] q, float[2,7,3,4] k, float[2,7,3,6] v) => (float[2,5,3,6] y) {"
        'c = Constant<value = float {0.5}>() s = Einsum<equation = "bqhd,bkhd->bhqk">(q, k) x = Mul(s, c)'
        'p = Softmax(x) y = Einsum<equation = "bhqk,bkhd->bqhd">(p, v) }'
    )
    module = folded(parser.parse_model(f"{BEGIN} {graph}"))
    found = recognised(module)
    assert count(found, "attention.forward") == 1
    assert verify(module, found).holds
