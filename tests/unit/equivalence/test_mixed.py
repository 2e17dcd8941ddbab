"""The mixed domain: DistIR's Figure 4, its dispatch, and what it says of values that it cannot know."""

from fractions import Fraction

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp, TensorType, f32, i64
from xdsl.dialects.func import Func, FuncOp
from xdsl.dialects.test import Test
from xdsl.ir import Operation
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.errors import DistirError
from distir.dialects.grad import Grad
from distir.dialects.onnx import Onnx
from distir.interpreters.mixed import infer, require_static
from distir.interpreters.onnx.reference import run_onnx


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Onnx, Grad, Dist, Test):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


FIGURE_4 = """
func.func @main(%x: tensor<256x8x768xf32> {dist.name = "x"}, %shape: tensor<1xi64> {dist.name = "3114"},
                %w: tensor<768x3072xf32>, %b: tensor<3072xf32>) -> tensor<?x?xf32> {
  %v211 = "onnx.Add"(%x, %x) : (tensor<256x8x768xf32>, tensor<256x8x768xf32>) -> tensor<256x8x768xf32>
  %v218 = "onnx.Shape"(%v211) : (tensor<256x8x768xf32>) -> tensor<3xi64>
  %v219 = onnx.Constant dense<2> : tensor<i64>
  %v220 = "onnx.Gather"(%v218, %v219) <{axis = 0 : si64}> : (tensor<3xi64>, tensor<i64>) -> tensor<i64>
  %axes = onnx.Constant dense<[0]> : tensor<1xi64>
  %v223 = "onnx.Unsqueeze"(%v220, %axes) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
  %v224 = "onnx.Concat"(%shape, %v223) <{axis = 0 : si64}> : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
  %v225 = "onnx.Reshape"(%v211, %v224) : (tensor<256x8x768xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  %v226 = "onnx.Gemm"(%v225, %w, %b) : (tensor<?x?xf32>, tensor<768x3072xf32>, tensor<3072xf32>) -> tensor<?x?xf32>
  func.return %v226 : tensor<?x?xf32>
}
"""


def by_name(module: ModuleOp, arguments: dict[str, np.ndarray] | None = None) -> dict[str, object]:
    values = infer(module, arguments=arguments)
    return {value.name_hint or "": known for value, known in values.items()}


def test_figure_4() -> None:
    """The right column of the figure; its Int32 shapes are Int64 in ONNX."""
    values = by_name(parse(FIGURE_4), {"3114": np.array([-1])})
    assert values["v211"] == TensorType(f32, [256, 8, 768])
    expected = {"v218": [256, 8, 768], "v219": 2, "v220": 768, "v223": [768], "v224": [-1, 768]}
    for name, value in expected.items():
        known = values[name]
        assert isinstance(known, np.ndarray)
        assert known.tolist() == value
    assert values["v225"] == TensorType(f32, [2048, 768])
    assert values["v226"] == TensorType(f32, [2048, 3072])


def test_figure_4_with_an_abstract_shape_is_unknown_and_says_why() -> None:
    """The middle column: without the value of %3114 the reshape cannot be known."""
    module = parse(FIGURE_4)
    values = infer(module)
    (function,) = module.ops
    assert isinstance(function, FuncOp)
    with pytest.raises(DistirError) as caught:
        require_static(values, function)
    assert str(caught.value) == (
        "onnx.Reshape in @main: dimension 0 of result 0 is unknown: it depends on the value of 'shape', "
        "which is not known here"
    )


def test_an_operator_that_does_not_accept_its_operands_is_named() -> None:
    module = parse("""
    func.func @main(%x: tensor<2x3xf32>, %y: tensor<4x5xf32>) -> tensor<2x5xf32> {
      %0 = "onnx.MatMul"(%x, %y) : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
      func.return %0 : tensor<2x5xf32>
    }""")
    with pytest.raises(DistirError, match=r"onnx.MatMul does not accept tensor<2x3xf32>, tensor<4x5xf32>: Incompat"):
        infer(module)


def test_other_argument_types_than_declared_flow_through() -> None:
    """Placement is not part of the domain; declared sizes hold only for the declared arguments."""
    module = parse("""
    func.func @main(%x: tensor<4x8xf32, #dist.on<1>> {dist.name = "x"}, %n: tensor<f32, #dist.on<1>>)
        -> tensor<4x8xf32, #dist.on<1>> {
      %y = "onnx.Relu"(%x) : (tensor<4x8xf32, #dist.on<1>>) -> tensor<4x8xf32, #dist.on<1>>
      %z = grad.relu_grad %x, %y : (tensor<4x8xf32, #dist.on<1>>, tensor<4x8xf32, #dist.on<1>>)
                                  -> tensor<4x8xf32, #dist.on<1>>
      func.return %z : tensor<4x8xf32, #dist.on<1>>
    }""")
    assert by_name(module)["z"] == TensorType(f32, [4, 8])
    values = infer(module, arguments={"x": TensorType(f32, [6, 8])})
    assert {value.name_hint: known for value, known in values.items()}["z"] == TensorType(f32, [6, 8])


def test_large_results_of_small_operands_are_not_computed() -> None:
    module = parse("""
    func.func @main() -> tensor<1000000x1000000xf32> {
      %shape = onnx.Constant dense<1000000> : tensor<2xi64>
      %zeros = "onnx.ConstantOfShape"(%shape) : (tensor<2xi64>) -> tensor<1000000x1000000xf32>
      %size = "onnx.Size"(%zeros) : (tensor<1000000x1000000xf32>) -> tensor<i64>
      func.return %zeros : tensor<1000000x1000000xf32>
    }""")
    values = by_name(module)
    assert values["zeros"] == TensorType(f32, [1000000, 1000000])
    assert values["size"] == np.array(10**12)


def test_calls_join_what_holds_for_each() -> None:
    module = parse("""
    func.func @main() -> (tensor<1xi64>, tensor<1xi64>) {
      %one = onnx.Constant dense<[1]> : tensor<1xi64>
      %two = onnx.Constant dense<[2]> : tensor<1xi64>
      %a = func.call @double(%one) : (tensor<1xi64>) -> tensor<1xi64>
      %b = func.call @double(%two) : (tensor<1xi64>) -> tensor<1xi64>
      func.return %a, %b : tensor<1xi64>, tensor<1xi64>
    }
    func.func @double(%x: tensor<1xi64>) -> tensor<1xi64> {
      %y = "onnx.Add"(%x, %x) : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
      func.return %y : tensor<1xi64>
    }""")
    values = by_name(module)
    assert values["a"] == np.array([2])
    assert values["b"] == np.array([4])
    assert values["y"] == TensorType(i64, [1])


# The reference evaluation of one operation, which the concrete implementation uses.


def last_operation(text: str) -> Operation:
    return list(parse(text).ops)[-1]


MATMUL = """
%x, %y = "test.op"() : () -> (tensor<2x3xf16>, tensor<3x2xf16>)
%0 = "onnx.MatMul"(%x, %y) : (tensor<2x3xf16>, tensor<3x2xf16>) -> tensor<2x2xf16>
"""
CAST = """
%x = "test.op"() : () -> tensor<3xf32>
%0 = "onnx.Cast"(%x) <{to = f16}> : (tensor<3xf32>) -> tensor<3xf16>
"""


def test_results_have_the_declared_type_or_the_wider_one_in_its_place() -> None:
    matmul = last_operation(MATMUL)
    x = np.ones((2, 3), np.float16)
    assert run_onnx(matmul, [x, x.T])[0].dtype == np.float16
    assert run_onnx(matmul, [x.astype(np.float64), x.T.astype(np.float64)])[0].dtype == np.float64
    cast = last_operation(CAST)
    third = np.full(3, 1 / 3)
    assert run_onnx(cast, [third.astype(np.float32)])[0].dtype == np.float16
    np.testing.assert_array_equal(run_onnx(cast, [third])[0], third)  # nothing is narrowed on the way
    np.testing.assert_array_equal(run_onnx(cast, [third], floats=np.dtype(np.float64))[0], third)


def test_exact_scalars_stay_exact() -> None:
    x = np.array([[Fraction(i + j, 7) for i in range(3)] for j in range(2)], dtype=object)
    (product,) = run_onnx(last_operation(MATMUL), [x, x.T])
    assert product.tolist() == [[Fraction(5, 49), Fraction(8, 49)], [Fraction(8, 49), Fraction(14, 49)]]


def test_gather_elements_with_fewer_rows() -> None:
    """What the evaluator of onnx 1.23.2 refuses; expected values by hand from the operator's definition."""
    gather = last_operation("""
    %x, %i = "test.op"() : () -> (tensor<3x3xi64>, tensor<2x2xi64>)
    %0 = "onnx.GatherElements"(%x, %i) <{axis = 1 : si64}> : (tensor<3x3xi64>, tensor<2x2xi64>) -> tensor<2x2xi64>
    """)
    (result,) = run_onnx(gather, [np.arange(9).reshape(3, 3), np.array([[2, -3], [0, 1]])])
    assert result.tolist() == [[2, 0], [3, 4]]


def test_response_is_normalised_over_more_channels_than_images() -> None:
    """What the evaluator of onnx 1.23.2 computes wrong; expected values from the operator's definition."""
    for size in (1, 4, 5, 20, 2**31 - 1):
        lrn = last_operation(f"""
        %x = "test.op"() : () -> tensor<2x7x3xf32>
        %0 = "onnx.LRN"(%x) <{{size = {size} : si64, alpha = 0.5 : f32}}> : (tensor<2x7x3xf32>) -> tensor<2x7x3xf32>
        """)
        x = np.random.default_rng(size).standard_normal((2, 7, 3)).astype(np.float32)
        near = [range(max(0, c - (size - 1) // 2), min(6, c + size // 2) + 1) for c in range(7)]
        squares = np.stack([(x[:, list(channels)] ** 2).sum(1) for channels in near], axis=1)
        (result,) = run_onnx(lrn, [x])
        np.testing.assert_allclose(result, x / (1 + 0.5 / size * squares) ** 0.75, rtol=1e-5)


def test_an_operation_that_fails_is_named_with_its_operands() -> None:
    with pytest.raises(DistirError, match=r"onnx.MatMul cannot be evaluated on float16\[2, 3\], float16\[2, 3\]: "):
        run_onnx(last_operation(MATMUL), [np.ones((2, 3), np.float16)] * 2)
