"""Drawn inputs: the same for every program of a model, and inside what the program indexes with them."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.errors import DistirError
from distir.dialects.onnx import Onnx
from distir.frontends.onnx import import_model
from distir.interpreters import reference
from distir.interpreters.inputs import draw_inputs, index_limit
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass

EXAMPLES = Path(__file__).parents[3] / "examples"


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Dist, Func, Onnx):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def test_tokens_of_gpt2_lie_inside_the_vocabulary():
    build = runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"]
    model = build(n_layer=1, d_model=32, n_head=2, vocab=37, n_ctx=16)
    module = import_model(model, {"input1": (4, 1, 16)})
    assert index_limit(module, "input1") == 37
    drawn = draw_inputs(module, 0)
    assert drawn.keys() == {"input1"}  # the file has the weights
    tokens = drawn["input1"]
    assert tokens.dtype == np.int64
    assert tokens.shape == (4, 1, 16)
    assert 0 <= tokens.min() <= 3
    assert 33 <= tokens.max() <= 36
    OnnxFoldShapesPass().apply(Context(), module)
    assert index_limit(module, "input1") == 37
    assert np.isfinite(reference.run(module, drawn)["output1"]).all()


INDEXING = """
func.func @main(%t: tensor<10x3xf32> {dist.name = "t", dist.role = "parameter"}, %i: tensor<2x4xi64> {dist.name = "i"})
    -> tensor<RESULTxf32> {
  %c = onnx.Constant dense<[3]> : tensor<1xi64>
  %s = onnx.Constant dense<[8]> : tensor<1xi64>
  BODY
  func.return %r : tensor<RESULTxf32>
}
"""
GATHER = '%r = "onnx.Gather"(%t, %j) <{{axis = {} : si64}}> : (tensor<10x3xf32>, tensor<2x4xi64>) -> tensor<{}xf32>'


@pytest.mark.parametrize("small", ["i8", "i4"])
def test_rows_of_a_table_of_small_integers_are_followed(small: str):
    """They go on to an operation that has an operand of more elements than their type counts."""
    text = INDEXING.replace("10x3xf32> {dist", f"10x200x{small}> {{dist").replace("RESULT", "2x4x200")
    body = f"""%z = "onnx.Gather"(%t, %i) <{{axis = 0 : si64}}> : (tensor<10x200x{small}>, tensor<2x4xi64>) -> tensor<2x4x200x{small}>
  %f = onnx.Constant dense<0.5> : tensor<200xf32>
  %r = "onnx.DequantizeLinear"(%z, %f) <{{axis = 2 : si64}}> : (tensor<2x4x200x{small}>, tensor<200xf32>) -> tensor<2x4x200xf32>"""
    assert index_limit(parse(text.replace("BODY", body)), "i") == 10


@pytest.mark.parametrize(
    ("body", "result", "limit"),
    [
        ('%j = "onnx.Identity"(%i) : (tensor<2x4xi64>) -> tensor<2x4xi64>', GATHER.format(0, "2x4x3"), 10),
        ('%j = "onnx.Identity"(%i) : (tensor<2x4xi64>) -> tensor<2x4xi64>', GATHER.format(1, "10x2x4"), 3),
        # i + 3 indexes 10 rows: i goes to 6
        ('%j = "onnx.Add"(%i, %c) : (tensor<2x4xi64>, tensor<1xi64>) -> tensor<2x4xi64>', GATHER.format(0, "2x4x3"), 7),
        # 3 i indexes 10 rows: i goes to 3; halving from 10 gives 5, then 2
        ('%j = "onnx.Mul"(%i, %c) : (tensor<2x4xi64>, tensor<1xi64>) -> tensor<2x4xi64>', GATHER.format(0, "2x4x3"), 2),
        # through other shapes and types
        (
            '%k = "onnx.Reshape"(%i, %s) : (tensor<2x4xi64>, tensor<1xi64>) -> tensor<8xi64>'
            '%j = "onnx.Cast"(%k) <{to = i32}> : (tensor<8xi64>) -> tensor<8xi32>',
            '%r = "onnx.Gather"(%t, %j) : (tensor<10x3xf32>, tensor<8xi32>) -> tensor<8x3xf32>',
            10,
        ),
        # a mask indexes nothing
        (
            '%j = "onnx.Cast"(%i) <{to = f32}> : (tensor<2x4xi64>) -> tensor<2x4xf32>',
            '%r = "onnx.MatMul"(%j, %j) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>',
            None,
        ),
    ],
)
def test_index_limit(body: str, result: str, limit: int | None):
    shape = result.rpartition("tensor<")[2].removesuffix("xf32>")
    module = parse(INDEXING.replace("BODY", f"{body}\n{result}").replace("RESULT", shape))
    assert index_limit(module, "i") == limit
    drawn = draw_inputs(module, 0)["i"]
    assert 0 <= drawn.min() < drawn.max() < (limit or 2)


def test_index_limit_through_calls_and_devices():
    module = parse("""
    builtin.module attributes {dist.devices = 2 : i64} {
      func.func @embed(%t: tensor<7x3xf32>, %i: tensor<4xi64>) -> tensor<4x3xf32> {
        %0 = "onnx.Gather"(%t, %i) : (tensor<7x3xf32>, tensor<4xi64>) -> tensor<4x3xf32>
        func.return %0 : tensor<4x3xf32>
      }
      func.func @main(%t: tensor<7x3xf32, #dist.on<1>> {dist.name = "t"},
                      %i: tensor<4xi64, #dist.on<0>> {dist.name = "i"}) -> tensor<4x3xf32, #dist.on<1>> {
        %0 = dist.send %i to 1 : tensor<4xi64, #dist.on<0>> -> tensor<4xi64, #dist.on<1>>
        %1 = dist.call @embed(%t, %0) on [1]
          : (tensor<7x3xf32, #dist.on<1>>, tensor<4xi64, #dist.on<1>>) -> tensor<4x3xf32, #dist.on<1>>
        func.return %1 : tensor<4x3xf32, #dist.on<1>>
      }
    }""")
    assert index_limit(module, "i") == 7


ROLES = """
func.func @main(%x: tensor<{rows}x8xf32> {{dist.name = "x", dist.role = "input"{part}}},
                %w: tensor<400x100xf16> {{dist.name = "w", dist.role = "parameter"}},
                %v: tensor<8xf32> {{dist.name = "v", dist.role = "buffer"}},
                %m: tensor<8x8xbf16> {{dist.name = "m", dist.role = "state"}},
                %n: tensor<f32> {{dist.name = "n", dist.role = "input"}},
                %b: tensor<64xi1> {{dist.name = "b", dist.role = "input"}}) {{
  func.return
}}
"""


def test_values_depend_on_role_seed_and_name_but_not_on_the_part():
    whole = draw_inputs(parse(ROLES.format(rows=4, part="")), 0)
    part = ", dist.part = #dist.part<[0:2, 0:8] of [4, 8]>"
    assert all(np.array_equal(whole[n], v) for n, v in draw_inputs(parse(ROLES.format(rows=2, part=part)), 0).items())
    assert not np.array_equal(whole["x"], draw_inputs(parse(ROLES.format(rows=4, part="")), 1)["x"])
    # 1 / sqrt(sqrt(400 * 100)): a product keeps the size of what goes in, within a factor of sqrt(2)
    assert whole["w"].std() == pytest.approx(0.0707, rel=0.05)
    assert whole["w"].dtype == np.float16
    assert 0.5 <= whole["v"].min() < whole["v"].max() < 1.5
    assert whole["m"].min() >= 0
    assert whole["m"].dtype.name == "bfloat16"
    assert whole["n"].shape == ()
    assert whole["n"] > 0
    assert 0 < whole["b"].sum() < 64


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("tensor<?x4xf32>", r"input x has unbound dimensions"),
        ("tensor<4x!onnx.String>", r"input x is a tensor of strings"),
        ("tuple<tensor<4xf32>>", r"input x is a tuple"),
    ],
)
def test_what_cannot_be_drawn(type_: str, message: str):
    with pytest.raises(DistirError, match=message):
        draw_inputs(parse(f'func.func @main(%x: {type_} {{dist.name = "x"}}) {{ func.return }}'), 0)


def test_numbers_of_rows_count() -> None:
    """Integers of role `seed`: replicas that have other rows draw other masks."""
    module = parse("""
func.func @main(%r: tensor<4xi64> {dist.name = "rows", dist.role = "seed"}) -> tensor<4xi64> {
  func.return %r : tensor<4xi64>
}""")
    assert draw_inputs(module, 3)["rows"].tolist() == [0, 1, 2, 3]


def test_a_table_that_is_gathered_in_a_tuple_has_rows() -> None:
    """Parts of a table and of a vector are gathered in one message: what is unpacked is not known, but how long it is."""
    module = parse(
        """
        func.func @main(%t: tensor<10x3xf32, #dist.on<0>> {dist.name = "t"}, %u: tensor<10x3xf32, #dist.on<1>> {dist.name = "u"},
                        %v: tensor<4xf32, #dist.on<0>> {dist.name = "v"}, %w: tensor<4xf32, #dist.on<1>> {dist.name = "w"},
                        %i: tensor<2xi64, #dist.on<0>> {dist.name = "i"}) -> tensor<2x3xf32, #dist.on<0>> {
          %p = dist.pack %t, %v : (tensor<10x3xf32, #dist.on<0>>, tensor<4xf32, #dist.on<0>>) -> tuple<tensor<10x3xf32, #dist.on<0>>, tensor<4xf32, #dist.on<0>>>
          %q = dist.pack %u, %w : (tensor<10x3xf32, #dist.on<1>>, tensor<4xf32, #dist.on<1>>) -> tuple<tensor<10x3xf32, #dist.on<1>>, tensor<4xf32, #dist.on<1>>>
          %a, %b = dist.allgather %p, %q dim 0 : (tuple<tensor<10x3xf32, #dist.on<0>>, tensor<4xf32, #dist.on<0>>>, tuple<tensor<10x3xf32, #dist.on<1>>, tensor<4xf32, #dist.on<1>>>) -> (tuple<tensor<20x3xf32, #dist.on<0>>, tensor<8xf32, #dist.on<0>>>, tuple<tensor<20x3xf32, #dist.on<1>>, tensor<8xf32, #dist.on<1>>>)
          %table, %rest = dist.unpack %a : (tuple<tensor<20x3xf32, #dist.on<0>>, tensor<8xf32, #dist.on<0>>>) -> (tensor<20x3xf32, #dist.on<0>>, tensor<8xf32, #dist.on<0>>)
          %r = "onnx.Gather"(%table, %i) <{axis = 0 : si64}> : (tensor<20x3xf32, #dist.on<0>>, tensor<2xi64, #dist.on<0>>) -> tensor<2x3xf32, #dist.on<0>>
          func.return %r : tensor<2x3xf32, #dist.on<0>>
        }
        """
    )
    module.verify()
    assert index_limit(module, "i") == 20
