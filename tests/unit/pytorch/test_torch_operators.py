"""The torch operator table against onnx: each entry against the reference evaluation, and all of onnx's own node tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import Block, Operation
from xdsl.parser import Parser

from distir.backends.torch import operators
from distir.backends.torch.elements import ElementTypes, plain_array
from distir.backends.torch.exchange import load_arrays, save_arrays
from distir.backends.torch.program import Program
from distir.backends.torch.recurrent import TABLE
from distir.backends.torch.source import source_of
from distir.dialects.errors import DistirError
from distir.dialects.grad import LossGradOp, LossOp, MatmulGradOp, ReluGradOp, SgdOp
from distir.dialects.registry import program_context
from distir.frontends.onnx import import_model
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.aten.types import infer_aten
from distir.interpreters.equivalence import verify
from distir.interpreters.grad import run_grad
from distir.interpreters.onnx.reference import run_onnx
from distir.interpreters.reference import run
from distir.interpreters.walk import Walk
from distir.passes.dtp_parallelize import DtpParallelizePass

Array = np.ndarray[Any, Any]
CPU = torch.device("cpu")
RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return np.abs(floats(*shape)) + np.float32(0.1)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def scalar(value: int) -> Array:
    return np.array(value, np.int64)


def truths(*shape: int) -> Array:
    return RNG.integers(0, 2, shape).astype(bool)


ABSENT = None


@dataclass
class Case:
    operator: str
    operands: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    results: int = 1
    by_table: bool = True
    """False where the entry leaves the case to the reference evaluation."""


def case(operator: str, *operands: Array | None, results: int = 1, by_table: bool = True, **attributes: Any) -> Case:
    return Case(operator, operands, attributes, results, by_table)


X, Y, ROW = floats(3, 4), floats(3, 4), floats(4)
IMAGE, KERNEL = floats(2, 4, 7, 6), floats(6, 2, 3, 2)
CUBE = floats(2, 3, 5)

TWICE: dict[str, Any] = {"direction": "bidirectional", "hidden_size": 4}
GRU = [floats(2, 5, 3), floats(1, 12, 3), floats(1, 12, 4), ABSENT, ABSENT, floats(2, 1, 4)]
LSTM = [floats(5, 2, 3), floats(2, 16, 3), floats(2, 16, 4), floats(2, 32), np.array([5, 2], np.int32)]
GROUPED = {"q_num_heads": 6, "kv_num_heads": 2, "is_causal": 1}

CASES = [
    *(case(name, X) for name in ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Identity", "IsNaN", "Neg", "Relu")),
    *(case(name, X) for name in ("Reciprocal", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Tanh")),
    *(case(name, positive(3, 4)) for name in ("Log", "Sqrt")),
    case("IsNaN", np.array([np.nan, np.inf, 1], np.float32)),
    case("Round", np.array([0.5, 1.5, 2.5, -0.5], np.float32)),
    *(case(name, X, ROW) for name in ("Add", "Sub", "Mul", "Div", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")),
    case("Equal", ints(1, 2, 3), ints(1, 3, 3)),
    case("Div", ints(7, -7, 7, -7), ints(2, 2, -2, -2)),
    *(case(name, truths(3, 4), truths(4)) for name in ("And", "Or", "Xor")),
    case("Not", truths(5)),
    case("Where", truths(3, 1), X, ROW),
    case("Mod", ints(7, -7, 7, -7), ints(3, 3, -3, -3)),
    case("Mod", X, Y, fmod=1),
    case("Pow", positive(3, 4), Y),
    case("Pow", ints(2, 3), np.array([2.0, 3.0], np.float32)),
    *(case(name, X, ROW, floats(3, 1)) for name in ("Max", "Min", "Sum")),
    case("Clip", X, np.float32(-0.5), np.float32(0.5)),
    case("Clip", X, ABSENT, np.float32(0.5)),
    case("Cast", X * 3, to=TensorProto.INT64),
    case("Cast", X, to=TensorProto.FLOAT16),
    case("Cast", X, to=TensorProto.BFLOAT16),
    case("CastLike", ints(1, 2), floats(1)),
    case("LeakyRelu", X, alpha=0.3),
    case("Gelu", X),
    case("Gelu", X, approximate="tanh"),
    case("Swish", X, alpha=1.7),
    case("MatMul", floats(2, 3, 4), floats(4, 5)),
    case("Gemm", floats(4, 3), floats(5, 4), floats(5), alpha=0.5, beta=2.0, transA=1, transB=1),
    case("Gemm", floats(3, 4), floats(4, 5), alpha=0.5),
    case("Einsum", floats(2, 3, 4), floats(2, 5, 4), equation="bik,bjk->bij"),
    *(case(f"Reduce{n}", CUBE, ints(0, -1), keepdims=0) for n in ("Sum", "Mean", "Max", "Min", "Prod", "L2")),
    *(case(f"Reduce{n}", CUBE, ints(1)) for n in ("Sum", "Mean", "Max", "Min", "Prod", "SumSquare")),
    *(case(f"Reduce{n}", CUBE, ints(1)) for n in ("L1", "LogSumExp")),
    case("ReduceLogSum", np.abs(CUBE), ints(1, 2), keepdims=0),
    case("ReduceSum", CUBE),
    case("ReduceSum", CUBE, ABSENT, noop_with_empty_axes=1, by_table=False),
    case("ReduceMean", np.array(3.0, np.float32), keepdims=0),
    case("Softmax", CUBE, axis=1),
    case("LogSoftmax", CUBE),
    case("ArgMax", CUBE, axis=1, keepdims=0),
    case("ArgMax", ints(1, 3, 3), select_last_index=1, by_table=False),
    case("CumSum", CUBE, scalar(1)),
    case("CumSum", CUBE, scalar(-1), exclusive=1, reverse=1),
    case("TopK", CUBE, ints(2), axis=1, results=2),
    case("TopK", CUBE, ints(3), largest=0, results=2),
    case("Reshape", CUBE, ints(0, -1)),
    case("Reshape", floats(0, 3), ints(3, 0), allowzero=1),
    case("Transpose", CUBE, perm=[2, 0, 1]),
    case("Transpose", CUBE),
    case("Squeeze", floats(1, 3, 1), ints(0)),
    case("Squeeze", floats(1, 3, 1)),
    case("Unsqueeze", X, ints(-1, 1)),
    case("Flatten", CUBE, axis=2),
    case("Flatten", CUBE, axis=-1),
    case("Flatten", CUBE, axis=0),
    case("Expand", floats(3, 1), ints(2, 1, 4)),
    case("Tile", X, ints(2, 3)),
    case("Shape", CUBE, start=1),
    case("Shape", CUBE, end=-1),
    case("Concat", X, floats(3, 2), axis=-1),
    case("Split", floats(5, 2), ints(1, 4), results=2),
    case("Split", floats(2, 7), axis=1, num_outputs=3, results=3),
    case("Slice", CUBE, ints(1, -4), ints(9, -1), ints(1, 2)),
    case("Slice", CUBE, ints(-1, 4), ints(-99, 0), ints(1, -1), ints(-1, -2)),
    case("Slice", X, ints(0), ints(0)),
    case("Pad", X, ints(0, 1, 2, 3), np.float32(7)),
    case("Pad", X, ints(1, 2), ABSENT, ints(-1)),
    case("Pad", X, ints(1, 1, 1, 1), mode="reflect", by_table=False),
    case("Trilu", X, scalar(1)),
    case("Trilu", CUBE, upper=0),
    case("Range", scalar(10), scalar(3), scalar(-2)),
    case("ConstantOfShape", ints(2, 3)),
    case("ConstantOfShape", ints(2), value=numpy_helper.from_array(ints(7))),
    case("Gather", CUBE, np.array([[0, -1], [2, 1]]), axis=1),
    case("Gather", X, scalar(-1)),
    case("Gather", ROW, scalar(1)),
    case("GatherElements", CUBE, np.array([[[0, -1, 1]], [[2, 1, 0]]]), axis=1),
    case("GatherND", CUBE, np.array([[0, 1], [-1, -1]])),
    case("GatherND", CUBE, np.array([[2, 0], [1, -1]]), batch_dims=1),
    case("ScatterElements", X, np.array([[0, -1], [2, 1]]), floats(2, 2), axis=1),
    case("ScatterElements", X, np.array([[0, 0]]), floats(1, 2), reduction="add"),
    case("ScatterND", CUBE, np.array([[0, 1], [-1, -1]]), floats(2, 5)),
    case("ScatterND", X, np.array([[0], [0]]), floats(2, 4), reduction="max"),
    case("Conv", IMAGE, KERNEL, floats(6), group=2, strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2]),
    case("Conv", IMAGE, floats(3, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", floats(1, 2, 6), floats(3, 2, 2), auto_pad="SAME_LOWER"),
    case("Conv", floats(1, 2, 5, 5), floats(3, 2, 2, 2), auto_pad="VALID"),
    case("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], results=2, by_table=False),
    case("AveragePool", IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    case("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case(
        "AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1
    ),
    case("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[3, 2], pads=[0, 1, 0, 1], ceil_mode=1),
    case("MaxPool", floats(1, 1, 4, 4), kernel_shape=[1, 1], strides=[2, 2], pads=[0, 0, 0, 0], ceil_mode=1),
    case("GlobalAveragePool", IMAGE),
    case("BatchNormalization", IMAGE, floats(4), floats(4), floats(4), positive(4), epsilon=1e-3),
    case("LayerNormalization", CUBE, floats(5), floats(5)),
    case("LayerNormalization", CUBE, floats(3, 5), axis=1, epsilon=1e-2, results=3),
    case("RMSNormalization", CUBE, floats(5)),
    case("Dropout", X, results=2),
    case("Attention", floats(2, 4, 3, 8), floats(2, 4, 5, 8), floats(2, 4, 5, 6), floats(3, 5), scale=0.3),
    case("Attention", floats(2, 4, 5, 8), floats(2, 2, 5, 8), floats(2, 2, 5, 8), is_causal=1),
    case("Attention", floats(2, 3, 24), floats(2, 3, 8), floats(2, 3, 8), truths(3, 3), **GROUPED),
    *(case(name, X) for name in ("Atan", "Asinh", "Cosh", "HardSwish", "Mish", "Sinh", "Softsign", "Tan", "Selu")),
    *(case(name, np.tanh(X)) for name in ("Acos", "Asin", "Atanh")),
    case("Acosh", 1 + positive(3, 4)),
    *(case(name, 3 * X, alpha=0.7) for name in ("Elu", "Celu", "ThresholdedRelu")),
    case("PRelu", floats(2, 4, 3), floats(4, 1)),
    case("HardSigmoid", 5 * X),
    case("HardSigmoid", 5 * X, alpha=0.3, beta=0.4),
    case("Shrink", X, lambd=0.6, bias=0.2),
    case("Mean", X, ROW, floats(3, 1)),
    case("OneHot", np.array([[0, -1], [2, 5]]), scalar(3), np.array([0.5, 2], np.float32)),
    case("OneHot", ints(1, 0), scalar(2), ints(3, 7), axis=0),
    case("InstanceNormalization", IMAGE, floats(4), floats(4), epsilon=1e-3),
    case("GroupNormalization", IMAGE, floats(4), floats(4), num_groups=2),
    *(case("LRN", IMAGE, size=size, alpha=0.5) for size in (2, 3)),
    *(case("LpNormalization", CUBE, p=p, axis=1) for p in (1, 2)),
    case("MeanVarianceNormalization", IMAGE),
    *(case("NegativeLogLikelihoodLoss", X, ints(1, 3, 0), floats(4), reduction=r) for r in ("none", "sum", "mean")),
    case("NegativeLogLikelihoodLoss", CUBE, RNG.integers(0, 3, (2, 5)), ignore_index=1),
    case("SoftmaxCrossEntropyLoss", X, ints(1, 3, 0), results=2, ignore_index=3),
    case(
        "RotaryEmbedding",
        floats(2, 3, 5, 8),
        floats(6, 3),
        floats(6, 3),
        RNG.integers(0, 6, (2, 5)),
        rotary_embedding_dim=6,
    ),
    case("RotaryEmbedding", floats(2, 5, 12), floats(2, 5, 2), floats(2, 5, 2), num_heads=3, interleaved=1),
    case(
        "ConvTranspose",
        IMAGE,
        floats(4, 3, 3, 2),
        floats(6),
        group=2,
        strides=[2, 1],
        pads=[1, 0, 2, 1],
        dilations=[1, 2],
    ),
    case("ConvTranspose", IMAGE, floats(4, 3, 3, 3), strides=[2, 3], output_padding=[1, 2]),
    case("ConvTranspose", floats(1, 2, 5), floats(2, 3, 3), strides=[2], auto_pad="SAME_UPPER"),
    case("ConvTranspose", floats(1, 2, 5), floats(2, 3, 3), strides=[2], auto_pad="SAME_LOWER"),
    case("ConvTranspose", floats(1, 2, 5), floats(2, 3, 3), strides=[3], output_shape=[16]),
    case("ConvTranspose", floats(1, 2, 5), floats(2, 3, 3), strides=[3], output_shape=[12]),
    case("GlobalMaxPool", IMAGE),
    case("DFT", floats(2, 6, 1), ABSENT, scalar(1)),
    case("DFT", floats(2, 6, 2), scalar(8), scalar(1), inverse=1),
    case("DFT", floats(2, 6, 3, 1), scalar(5), scalar(1), onesided=1),
    case("STFT", floats(2, 20, 1), scalar(4), floats(8)),
    case("STFT", floats(2, 20, 1), scalar(3), ABSENT, scalar(8), onesided=0),
    *(case("DepthToSpace", floats(2, 8, 3, 2), blocksize=2, mode=mode) for mode in ("DCR", "CRD")),
    case("SpaceToDepth", floats(2, 3, 4, 6), blocksize=2),
    *(
        case(
            "GridSample",
            IMAGE,
            1.2 * np.tanh(floats(2, 3, 5, 2)),
            mode=mode,
            padding_mode=padding,
            align_corners=aligned,
        )
        for mode, padding, aligned in (("linear", "zeros", 0), ("nearest", "border", 0), ("cubic", "reflection", 1))
    ),
    case("Resize", IMAGE, ABSENT, np.array([1, 1, 2, 1.5], np.float32), mode="linear"),
    case(
        "Resize",
        IMAGE,
        ABSENT,
        np.array([1, 1, 2, 2], np.float32),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    case(
        "Resize", IMAGE, ABSENT, ABSENT, ints(2, 4, 3, 9), mode="cubic", coordinate_transformation_mode="align_corners"
    ),
    case("Resize", IMAGE, ABSENT, ABSENT, ints(3, 8), mode="linear", axes=[2, 3], antialias=1),
    case(
        "Resize", IMAGE, ABSENT, ABSENT, ints(3, 8), axes=[2, 3], keep_aspect_ratio_policy="not_larger", by_table=False
    ),
    case(
        "RNN",
        floats(5, 2, 3),
        floats(2, 4, 3),
        floats(2, 4, 4),
        **TWICE,
        activations=["Relu", "HardSigmoid"],
        results=2,
    ),
    case(
        "GRU",
        floats(5, 2, 3),
        floats(1, 12, 3),
        floats(1, 12, 4),
        floats(1, 24),
        np.array([5, 2], np.int32),
        hidden_size=4,
        results=2,
    ),
    case("GRU", *GRU, hidden_size=4, linear_before_reset=1, direction="reverse", layout=1, results=2),
    case("LSTM", *LSTM, floats(2, 2, 4), floats(2, 2, 4), floats(2, 12), **TWICE, clip=0.9, results=3),
    case("LSTM", *LSTM, **TWICE, input_forget=1, results=3),
]


def model_of(case: Case) -> onnx.ModelProto:
    names = ["" if value is None else f"i{n}" for n, value in enumerate(case.operands)]
    outputs = [f"o{n}" for n in range(case.results)]
    node = helper.make_node(case.operator, names, outputs, **case.attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value))
        for name, value in zip(names, case.operands, strict=True)
        if value is not None
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", onnx.defs.onnx_opset_version())])
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def run_torch(module: ModuleOp, operands: Sequence[Any], types: ElementTypes | None = None) -> list[Any]:
    types = types or ElementTypes()
    tensors = [types.tensor(value, CPU) if isinstance(value, np.ndarray) else value for value in operands]
    results = Program(module, types, CPU).function("main")(tensors)
    return [plain_array(r) if isinstance(r, torch.Tensor) else r for r in results]


def run_reference(module: ModuleOp, operands: Sequence[Any]) -> Sequence[Any]:
    return Walk(module, default=lambda op, values: tuple(run_onnx(op, values))).call("main", tuple(operands))


def assert_close(got: Array, expected: Array, rtol: float, name: str) -> None:
    assert got.dtype == expected.dtype, name
    assert got.shape == expected.shape, name
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(kind), expected.astype(kind), rtol, rtol / 10, err_msg=name)


def test_every_entry_has_a_case():
    assert {case.operator for case in CASES} == set(TABLE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.operator)
def test_entry_equals_the_reference_evaluation(case: Case):
    module = import_model(model_of(case))
    operands = [np.asarray(value) for value in case.operands if value is not None]
    expected = run_reference(module, operands)
    fallbacks: list[Operation] = []

    def spy(op: Operation, *rest: Any) -> Any:
        fallbacks.append(op)
        return run_onnx(op, *rest)

    with patch("distir.backends.torch.operators.run_operator", spy):
        results = run_torch(module, operands)
    assert (not fallbacks) == case.by_table
    half = any(np.asarray(r).dtype.itemsize == 2 for r in results)
    for got, want in zip(results, expected, strict=True):
        assert_close(got, np.asarray(want), 1e-2 if half else 2e-5, case.operator)


def test_float64_widens_constants_casts_and_results():
    case_ = Case("Cast", [X.astype(np.float16)], {"to": TensorProto.FLOAT})
    module = import_model(model_of(case_))
    third = np.full((3, 4), 1 / 3)
    (result,) = run_torch(module, [third], ElementTypes(in_float64=True))
    np.testing.assert_array_equal(result, third)
    zeros = import_model(model_of(case("ConstantOfShape", ints(2, 3))))
    assert run_torch(zeros, [ints(2, 3)], ElementTypes(in_float64=True))[0].dtype == np.float64


def test_float64_is_pairs_of_doubles_in_complex_numbers(tmp_path: Path):
    """A filter in the frequencies, whose weight is an argument and whose turn is a literal."""

    def filtered(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * weight.to(torch.complex64) * 0.1j, n=8)

    x, weight = RNG.standard_normal((3, 8)), RNG.standard_normal(5) + 1j * RNG.standard_normal(5)
    module = import_step(filtered, (torch.zeros(3, 8), torch.zeros(5, dtype=torch.complex64)))
    expected = np.fft.irfft(np.fft.rfft(x) * weight * 0.1j, 8)
    found = run(module, {"x": x, "weight": weight}, dtype=np.float64)["output"]
    np.testing.assert_allclose(found, expected, atol=1e-14)
    (found,) = run_torch(module, [x, weight], ElementTypes(in_float64=True))
    np.testing.assert_allclose(found, expected, atol=1e-14)
    written = [np.array(1 + 2j), weight, weight.astype(np.complex64)]
    save_arrays(tmp_path / "arrays", written)
    for before, after in zip(written, load_arrays(tmp_path / "arrays")[0], strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


def test_a_step_with_an_operator_without_a_meta_kernel_is_cut():
    """The gradient of the loss with margins has kernels for devices alone."""
    model = torch.nn.Linear(5, 3)
    step = training_step(model, torch.nn.functional.multi_margin_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    module = import_step(step, (torch.randn(4, 5), torch.tensor([0, 2, 1, 1])))
    assert "aten.multi_margin_loss_backward" in str(module)
    distributed = module.clone()
    DtpParallelizePass(dp=2).apply(Context(), distributed)
    assert verify(module, distributed, count=1).holds


def test_shapes_that_depend_on_values_are_not_those_of_zeros():
    text = 'func.func @main(%x: tensor<4xf32>) {\n%0 = "aten.nonzero"(%x) : (tensor<4xf32>) -> tensor<0x1xi64>\nfunc.return\n}'
    module = Parser(program_context(), text).parse_module()
    (operation,) = (op for op in module.walk() if op.name == "aten.nonzero")
    with pytest.raises(DistirError, match=r"aten\.nonzero cannot work on"):
        infer_aten(operation, [value.type for value in operation.operands])


def test_bfloat16_crosses_to_torch_and_back():
    x = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    tensor = ElementTypes().tensor(x, CPU)
    assert tensor.dtype == torch.bfloat16
    assert tensor.tolist() == [[1.5, -2.0]]
    assert plain_array(tensor).dtype == x.dtype
    assert plain_array(tensor).tolist() == x.tolist()


def test_grad_operators():
    x, w, dy, count = CUBE, floats(5, 2), floats(2, 3, 2), np.array(6, np.float32)
    arguments = Block(arg_types=[TensorType(f32, value.shape) for value in (x, w, dy, count)])
    vx, vw, vdy, vcount = arguments.args
    samples = {
        MatmulGradOp.create(operands=[vx, vw, vdy], result_types=[vx.type, vw.type]): (x, w, dy),
        ReluGradOp.create(operands=[vx, vx], result_types=[vx.type]): (x, x),
        LossOp.create(operands=[vx, vx, vcount], result_types=[vx.type]): (x, x - 1, count),
        LossGradOp.create(operands=[vx, vx, vcount], result_types=[vx.type]): (x, x - 1, count),
        SgdOp(vw, vw, 0.1): (w, w * 3),
    }
    for op, operands in samples.items():
        compute = operators.compile_operator(op, ElementTypes(), CPU)
        results = compute([torch.from_numpy(value) for value in operands])
        for got, want in zip(results, run_grad(op, operands), strict=True):
            assert_close(plain_array(got), want.astype(np.float32), 1e-5, op.name)


def test_an_operator_that_writes_to_its_operands_is_given_copies():
    """Running statistics, of which torch's schema does not say that they are written."""
    c = "tensor<2xf64>"
    text = f"""
func.func @main(%x: tensor<3x2x4xf64> {{dist.name = "x"}}, %m: {c} {{dist.name = "m"}}, %v: {c} {{dist.name = "v"}})
    -> (tensor<3x2x4xf64> {{dist.name = "y"}}, {c} {{dist.name = "w"}}) {{
  %y, %a, %b = "aten.native_batch_norm"(%x, %m, %v) <{{operandSegmentSizes = array<i32: 1, 0, 0, 1, 1>, training = true, momentum = 0.5 : f64, eps = 0.1 : f64}}> :
    (tensor<3x2x4xf64>, {c}, {c}) -> (tensor<3x2x4xf64>, {c}, {c})
  %w = "aten.mul.Tensor"(%m, %v) : ({c}, {c}) -> {c}
  func.return %y, %w : tensor<3x2x4xf64>, {c}
}}"""
    module = Parser(program_context(), text).parse_module()
    arrays = {"x": RNG.standard_normal((3, 2, 4)), "m": np.array([3.0, 4.0]), "v": np.array([5.0, 6.0])}
    assert run(module, arrays, dtype=np.float64)["w"].tolist() == [15, 24]
    assert run_torch(module, [*arrays.values()])[1].tolist() == [15, 24]
    source = source_of(module, ElementTypes())
    assert "m.clone(), v.clone()" in source.render({0: source})[0]


def test_an_operator_that_torch_has_not_in_doubles_runs_in_its_own_type():
    """Fake quantisation by channels: `verify` runs in doubles."""
    x = "tensor<3x4xf32>"
    text = f"""
func.func @main(%x: {x} {{dist.name = "x"}}, %s: tensor<3xf32> {{dist.name = "s"}}, %z: tensor<3xi32> {{dist.name = "z"}})
    -> ({x} {{dist.name = "y"}}) {{
  %y, %m = "aten.fake_quantize_per_channel_affine_cachemask"(%x, %s, %z) <{{axis = 0 : i64, quant_min = -8 : i64, quant_max = 7 : i64}}> :
    ({x}, tensor<3xf32>, tensor<3xi32>) -> ({x}, tensor<3x4xi1>)
  func.return %y : {x}
}}"""
    module = Parser(program_context(), text).parse_module()
    given = {"x": RNG.standard_normal((3, 4)), "s": np.array([0.5, 0.25, 0.125]), "z": np.array([0, 1, 2], np.int32)}
    found = run(module, given, dtype=np.float64)["y"]
    scale, zero = given["s"][:, None], given["z"][:, None]
    assert found.dtype == np.float64
    assert found.tolist() == ((np.clip(np.rint(given["x"] / scale) + zero, -8, 7) - zero) * scale).tolist()
    assert verify(module, module.clone()).holds
    with pytest.raises(DistirError, match="quant_min"):
        run(Parser(program_context(), text.replace("-8", "9")).parse_module(), given, dtype=np.float64)
