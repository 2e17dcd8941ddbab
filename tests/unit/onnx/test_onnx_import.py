"""ONNX files as level 1 programs: what is imported computes what the file computes, and mistakes are one line."""

import runpy
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp, TensorType
from xdsl.dialects.func import Func, FuncOp
from xdsl.parser import Parser
from xdsl.printer import Printer

from distir.dialects.errors import DistirError
from distir.dialects.grad import Grad
from distir.dialects.onnx import Constant, Onnx
from distir.frontends.onnx import import_model
from distir.frontends.weights import load, save
from distir.interpreters.onnx.reference import run_onnx
from distir.interpreters.reference import run
from distir.interpreters.walk import Walk
from distir.interpreters.weights import attach, weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass

EXAMPLES = Path(__file__).parents[3] / "examples"
LIGHT_MODELS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def example(name: str) -> Callable[..., ModelProto]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["build"]


def main_of(module: ModuleOp) -> FuncOp:
    (function,) = module.ops
    assert isinstance(function, FuncOp)
    return function


def signature(module: ModuleOp) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(name, role) of the arguments and of the results of @main."""
    function = main_of(module)
    assert function.arg_attrs is not None
    assert function.res_attrs is not None
    return tuple(
        [(str(a.data["dist.name"].data), str(a.data["dist.role"].data)) for a in attributes]
        for attributes in (function.arg_attrs, function.res_attrs)
    )


def execute(module: ModuleOp, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run @main operation by operation, parameters from the module's weights."""
    values = {**weights_of(module), **inputs}
    arguments, _ = signature(module)
    walk = Walk(module, default=lambda op, operands: tuple(run_onnx(op, operands)))
    return list(walk.call("main", tuple(values[name] for name, _ in arguments)))


def small_model(opset: int = 13, **initializers: np.ndarray) -> ModelProto:
    """y = x @ w + shift."""
    values = {"w": np.arange(6, dtype=np.float32).reshape(3, 2), "shift": np.float32(0.5)} | initializers
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "shift"], ["y"], name="add")],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


# Signatures.


def test_weights_are_parameters_and_other_tensors_constants() -> None:
    model = small_model(ids=np.arange(3), names=np.array(["a", "b"], dtype=object), one=np.ones((1,), np.float64))
    module = import_model(model)
    module.verify()
    arguments, results = signature(module)
    assert arguments == [("x", "input"), ("w", "parameter")]
    assert results == [("y", "output")]
    constants = [op.value.to_numpy().tolist() for op in module.walk() if isinstance(op, Constant)]
    assert constants == [[0, 1, 2], ["a", "b"], 0.5, [1.0]]
    assert list(weights_of(module)) == ["w"]
    np.testing.assert_array_equal(weights_of(module)["w"], np.arange(6).reshape(3, 2))


def test_open_dimensions_keep_their_names_until_bound() -> None:
    text = str(import_model(small_model()))
    assert 'tensor<?x3xf32> {dist.name = "x", dist.role = "input", onnx.dim_params = "0:batch"}' in text
    text = str(import_model(small_model(), {"x": (5, 3)}))
    assert "dim_params" not in text
    assert "-> (tensor<5x2xf32>" in text


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1,)}, "no input 'z' to give a shape; the inputs are x"),
        ({"x": (1,)}, "input 'x' has 2 dimensions, but the given shape [1] has 1"),
        ({"x": (1, 4)}, "input 'x' has size 3 in dimension 1, but the given shape says 4"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(DistirError) as caught:
        import_model(small_model(), shapes)
    assert str(caught.value) == message


def test_unbound_dimension_is_named() -> None:
    with pytest.raises(DistirError) as caught:
        OnnxFoldShapesPass().apply(Context(), import_model(small_model()))
    assert str(caught.value) == "input 'x' has unbound dimension 'batch' (dim 0): give --shape x=..."


def test_training_step_says_what_its_results_update() -> None:
    module = import_model(example("mlp_onnx")([4, 8, 2], batch=6))
    module.verify()
    arguments, results = signature(module)
    assert arguments == [("x", "input"), ("z", "label"), ("n", "input"), ("w0", "parameter"), ("w1", "parameter")]
    assert results == [("loss", "output"), ("w0", "parameter"), ("w1", "parameter")]
    names = [op.name for op in main_of(module).body.block.ops]
    assert names[:5] == ["onnx.MatMul", "onnx.Relu", "onnx.MatMul", "onnx.Relu", "grad.loss"]
    assert names.count("grad.matmul_grad") == names.count("grad.relu_grad") == names.count("grad.sgd") == 2


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("dist.update:y", "x", "which is no parameter"),
        ("dist.update:q", "w", "names no output"),
        ("dist.role:x", "weights", "expected one of input, label"),
    ],
)
def test_metadata_that_makes_no_sense_is_refused(key: str, value: str, message: str) -> None:
    model = small_model()
    helper.set_model_props(model, {key: value})
    with pytest.raises(DistirError, match=message):
        import_model(model)


# What is imported computes what the file computes.


def test_gpt2_with_dynamic_shapes_folds_to_a_static_program_that_computes_the_same() -> None:
    model = example("gpt2_onnx")(n_layer=2, d_model=32, n_head=4, vocab=64, n_ctx=32)
    ids = np.random.default_rng(0).integers(0, 64, (3, 1, 8))
    (expected,) = ReferenceEvaluator(model).run(None, {"input1": ids})
    module = import_model(model, {"input1": ids.shape})
    OnnxFoldShapesPass().apply(Context(), module)
    module.verify()
    text = str(module)
    assert "?" not in text
    assert not any(op.name in ("onnx.Shape", "onnx.Unsqueeze", "onnx.NonZero") for op in module.walk())
    (actual,) = execute(module, {"input1": ids})
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
    # The same program in float64: every floating-point value is one, and the result is near.
    wide = {name: value.astype(np.float64) for name, value in weights_of(module).items()}
    (precise,) = execute(module, {"input1": ids, **wide})
    assert precise.dtype == np.float64
    np.testing.assert_allclose(precise, expected, rtol=0, atol=1e-5)


def round_trip(module: ModuleOp) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Onnx, Grad):
        context.load_dialect(dialect)
    stream = StringIO()
    Printer(stream).print_op(module)
    copy = Parser(context, stream.getvalue()).parse_module()
    copy.verify()
    return copy


def check_light_model(name: str) -> None:
    """Text round trip, and the expected output that onnx ships beside the model. In doubles: where all classes are equal and large
    (squeezenet), rounding would tell them apart on machines whose kernels sum in different orders."""
    module = import_model(LIGHT_MODELS / f"light_{name}.onnx")
    module.verify()
    assert round_trip(module).is_structurally_equivalent(module)
    (argument, _), *_ = signature(module)[0]
    shape = main_of(module).args[0].type.get_shape()
    size = int(np.prod(shape))
    ramp = (np.arange(size, dtype=np.float64) / size).reshape(shape)
    expected = numpy_helper.to_array(onnx.load_tensor(str(LIGHT_MODELS / f"light_{name}_output_0.pb")))
    weights = {
        name: value.astype(np.float64) for name, value in weights_of(module).items() if value.dtype == np.float32
    }
    (actual,) = execute(module, {argument: ramp, **weights})
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_light_squeezenet() -> None:
    check_light_model("squeezenet")


@pytest.mark.parametrize("name", ["shufflenet", "resnet50"])
def test_light_models_round_trip(name: str) -> None:
    module = import_model(LIGHT_MODELS / f"light_{name}.onnx")
    assert round_trip(module).is_structurally_equivalent(module)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "vgg19", "zfnet512"],
)
def test_light_models_compute_what_onnx_expects(name: str) -> None:
    check_light_model(name)


def test_functions_are_inlined_and_bodies_become_regions() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        main (float[2,3] x, bool c) => (float[2,3] y) {
          h = local.twice (x)
          y = If (c) <then_branch = yes () => (float[2,3] a) { a = Neg (h) },
                      else_branch = no () => (float[2,3] b) { b = Identity (x) }>
        }
        <opset_import: ["" : 17], domain: "local">
        twice (v) => (r) { r = Add (v, v) }
        """
    )
    module = import_model(model)
    module.verify()
    (branch,) = [op for op in module.walk() if op.name == "onnx.If"]
    assert [[op.name for op in region.block.ops] for region in branch.regions] == [
        ["onnx.Identity", "onnx.Yield"],
        ["onnx.Neg", "onnx.Yield"],
    ]
    assert round_trip(module).is_structurally_equivalent(module)


def test_operators_without_type_inference_are_imported_as_their_definition() -> None:
    """GroupNormalization: onnx 1.23.2 has a body for it, but no inference; a chain of two needs the first one's types."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        main (float[N,4,3,3] x) => (float[N,4,3,3] y)
        <float[4] scale = {1.0, 2.0, 3.0, 4.0}, float[4] bias = {0.0, 1.0, 0.0, 1.0}> {
          h = GroupNormalization <num_groups = 2> (x, scale, bias)
          r = Relu (h)
          y = GroupNormalization <num_groups = 4> (r, scale, bias)
        }
        """
    )
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 3)).astype(np.float32)
    module = import_model(model, {"x": x.shape})
    OnnxFoldShapesPass().apply(Context(), module)
    module.verify()
    assert "?" not in str(module)

    def group_norm(value: np.ndarray, groups: int) -> np.ndarray:
        grouped = value.reshape(2, groups, -1)
        mean, variance = grouped.mean(2, keepdims=True), grouped.var(2, keepdims=True)
        normal = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(value.shape)
        return normal * np.array([1, 2, 3, 4]).reshape(1, 4, 1, 1) + np.array([0, 1, 0, 1]).reshape(1, 4, 1, 1)

    (actual,) = execute(module, {"x": x})
    np.testing.assert_allclose(actual, group_norm(np.maximum(group_norm(x, 2), 0), 4), atol=1e-5)


def test_shapes_inside_a_definition_are_known_at_import() -> None:
    """The definition gives the logarithms the shape of the logits by `Shape` and `Reshape`: of known extents they are known."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        main (float[8,5,2] x, int64[8,2] label) => (float loss, float[8,5,2] log_prob) {
          loss, log_prob = SoftmaxCrossEntropyLoss (x, label)
        }
        """
    )
    module = import_model(model)
    assert any(op.name == "onnx.LogSoftmax" for op in module.walk())
    assert "?" not in str(module)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_an_average_over_labels_that_are_not_ignored_is_cut_by_batch(reduction: str) -> None:
    """Of the two thirds, one ignores most of its labels: what each would average alone is not what the batch does."""
    model = onnx.parser.parse_model(
        f"""
        <ir_version: 10, opset_import: ["" : 21]>
        main (float[8,5] x, int64[8] label) => (float loss) <float[5] weight = {{1.0, 2.0, 3.0, 4.0, 5.0}}> {{
          loss = SoftmaxCrossEntropyLoss <ignore_index = 1, reduction = "{reduction}"> (x, label, weight)
        }}
        """
    )
    values = {
        "x": np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32),
        "label": np.array([0, 1, 1, 1, 2, 4, 3, 0]),
    }
    (expected,) = ReferenceEvaluator(model).run(None, values)
    module = import_model(model)
    names = {op.name for op in module.walk()}
    assert ("onnx.SoftmaxCrossEntropyLoss" in names, "onnx.Div" in names) == (reduction == "sum", reduction == "mean")
    DtpParallelizePass(dp=2).apply(Context(), module)
    found = run(module, values | {n: np.asarray(v) for n, v in weights_of(module).items()}, dtype=np.float64)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-6)
    thirds = {tuple(a.type.get_shape()) for op in module.walk() for a in op.operands if isinstance(a.type, TensorType)}
    assert (4, 5) in thirds


# Files.


def test_external_data_is_mapped_not_read(tmp_path: Path) -> None:
    onnx.save(small_model(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    weights = weights_of(import_model(tmp_path / "m.onnx"))
    assert isinstance(weights["w"], np.memmap)
    np.testing.assert_array_equal(weights["w"], np.arange(6).reshape(3, 2))


def external(tmp_path: Path, location: str) -> Path:
    model = small_model()
    for initializer in model.graph.initializer:
        initializer.ClearField("raw_data")
        initializer.data_location = TensorProto.EXTERNAL
        initializer.external_data.add(key="location", value=location)
    path = tmp_path / "model" / "m.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def broken_files(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    def write(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    (tmp_path / "secret").write_bytes(bytes(64))
    unknown = small_model()
    unknown.graph.node[1].domain = "com.example"
    unknown.graph.node[1].op_type = "Fused"
    misspelt = small_model()
    misspelt.graph.node[0].op_type = "Matmul"
    short = external(tmp_path, "short")
    (tmp_path / "model" / "short").write_bytes(b"1234")
    outside = short.with_name("outside.onnx")
    outside.write_bytes(external(tmp_path, "../secret").read_bytes())
    missing = short.with_name("missing.onnx")
    missing.write_bytes(external(tmp_path, "none").read_bytes())
    short = external(tmp_path, "short")
    tensor = helper.make_tensor_value_info
    gather = helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=-6)
    absurd = helper.make_graph(
        [gather], "g", [tensor("x", 1, [2, 3, 4]), tensor("i", 7, [2, 1])], [tensor("y", 1, None)]
    )
    thirds = helper.make_node("Split", ["x"], ["a", "b", "c", "d"], num_outputs=3)
    outputs = [tensor(name, 1, None) for name in thirds.output]
    few = helper.make_graph([thirds], "g", [tensor("x", 1, [7])], outputs)
    return {
        "absent": (tmp_path / "no.onnx", "cannot be read"),
        "empty": (write("empty.onnx", b""), "the file is empty"),
        "truncated": (write("cut.onnx", small_model().SerializeToString()[:-40]), "not an ONNX model, or cut short"),
        "not ONNX": (write("text.onnx", b"hello, world\n" * 20), "not an ONNX model"),
        "too new": (write("new.onnx", small_model(99).SerializeToString()), "opset 99 is newer than 28"),
        "unknown domain": (
            write("domain.onnx", unknown.SerializeToString()),
            "operator Fused of node 'add' is in the unknown domain 'com.example'",
        ),
        "unknown operator": (write("op.onnx", misspelt.SerializeToString()), "no operator Matmul"),
        "absurd number": (
            write("absurd.onnx", helper.make_model(absurd).SerializeToString()),
            "onnx's inference of shapes crashes on the attributes of GatherND",
        ),
        "a count below that of results": (
            write("few.onnx", helper.make_model(few).SerializeToString()),
            "onnx's inference of shapes crashes on the attributes of Split",
        ),
        "data outside": (outside, "lies outside the model's folder"),
        "data missing": (missing, "is missing: no file"),
        "data cut short": (short, "needs 24 bytes at 0"),
    }


def test_every_broken_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    for case, (path, message) in broken_files(tmp_path).items():
        with pytest.raises(DistirError) as caught:
            import_model(path)
        text = str(caught.value)
        assert message in text, case
        assert text.startswith(str(path)), case
        assert "\n" not in text, case


# Weights.


def test_program_and_weights_are_saved_side_by_side_and_loaded(tmp_path: Path) -> None:
    module = import_model(small_model(), {"x": (2, 3)})
    save(module, tmp_path / "p.mlir")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.mlir", "p.safetensors"]
    loaded = load(tmp_path / "p.mlir")
    assert loaded.is_structurally_equivalent(module)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(execute(loaded, {"x": x})[0], execute(module, {"x": x})[0])


def test_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    save(import_model(small_model()), tmp_path / "p.mlir")
    moved = tmp_path / "in" / "p.mlir"
    moved.write_text((tmp_path / "p.mlir").read_text().replace('"p.safetensors"', '"../p.safetensors"'))
    with pytest.raises(DistirError, match="outside the program's folder"):
        weights_of(load(moved))
    moved.write_text((tmp_path / "p.mlir").read_text())
    with pytest.raises(DistirError, match="weights are missing: no file"):
        weights_of(load(moved))


def test_weights_that_cannot_be_written_leave_no_file(tmp_path: Path) -> None:
    module = import_model(small_model())
    attach(module, {"w": np.ones(3, np.complex128)})
    with pytest.raises(DistirError, match="parameter 'w' is complex128, which no weights file can hold"):
        save(module, tmp_path / "p.mlir")
    assert list(tmp_path.iterdir()) == []


ELEMENT_TYPES = (
    "float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e4m3fnuz float6_e2m3fn float4_e2m1fn"
).split()


def test_parameters_of_any_type_are_written_and_read(tmp_path: Path) -> None:
    import ml_dtypes
    from safetensors import safe_open

    module = import_model(small_model())
    values = np.array([[0.5, 1, 2], [1, 4, 1]])
    weights = {name: values.astype(getattr(ml_dtypes, name, name)) for name in ELEMENT_TYPES}
    attach(module, weights | {"scalar": np.float32(3), "turned": np.arange(6, dtype=np.float32).reshape(3, 2).T})
    save(module, tmp_path / "p.mlir")
    read = weights_of(load(tmp_path / "p.mlir"))
    for name, array in weights.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(np.asarray(read[name], np.float64), values)
    assert read["scalar"].shape == ()
    np.testing.assert_array_equal(read["turned"], [[0, 2, 4], [1, 3, 5]])
    with safe_open(tmp_path / "p.safetensors", framework="numpy") as file:  # others read it too
        np.testing.assert_array_equal(file.get_tensor("float32"), values)
    modes = {(tmp_path / name).stat().st_mode for name in ("p.mlir", "p.safetensors")}
    assert len(modes) == 1
