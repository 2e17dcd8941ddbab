"""What is a parameter of an ONNX model is said by what it does, whatever node holds it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.backends.onnx import export_model
from distir.dialects.errors import DistirError
from distir.frontends.onnx import import_model
from distir.frontends.onnx.computed import Origin, origin_of
from distir.frontends.weights import load, save
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
node = helper.make_node


def drawn(*shape: int) -> Array:
    return RANDOM.standard_normal(shape, np.float32)


def value(name: str, *shape: int | None, type: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, type, shape or None)


X, IDS = value("x", 2, 5, 8), value("ids", 2, 5, type=TensorProto.INT64)


def model(
    nodes: Sequence[NodeProto], tensors: Mapping[str, Any], inputs: Sequence[ValueInfoProto] = (X,)
) -> ModelProto:
    protos = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph(
        nodes, "m", inputs, [helper.make_value_info("y", helper.make_tensor_type_proto(1, None))], protos
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


def roles(proto: ModelProto, **options: Any) -> dict[str, str]:
    """The role of everything that is no input."""
    ports = arguments_of(entry_function(import_model(proto, **options)))
    return {port.name: str(port.role) for port in ports if port.role != "input"}


def as_constants(proto: ModelProto) -> ModelProto:
    """The model with its initializers written as Constant nodes."""
    for tensor in reversed(proto.graph.initializer):
        proto.graph.node.insert(0, node("Constant", [], [tensor.name], value=tensor))
    del proto.graph.initializer[:]
    return proto


TOEPLITZ = RANDOM.standard_normal(23).astype(np.float32)[np.subtract.outer(np.arange(12), np.arange(12)) + 11]
ANGLES = np.outer(np.arange(64), 1e4 ** -(np.arange(4) / 4))
SLOPES = (2.0 ** -np.arange(1, 9)).astype(np.float32)
CASES: dict[str, tuple[list[NodeProto], dict[str, Any], list[str]]] = {
    "matrix": ([node("MatMul", ["x", "w"], ["y"])], {"w": drawn(8, 3)}, ["w"]),
    "matrix on the left": ([node("MatMul", ["w", "x"], ["y"])], {"w": drawn(3, 5)}, ["w"]),
    "matrix of zeros": ([node("MatMul", ["x", "w"], ["y"])], {"w": np.zeros((8, 3), np.float32)}, ["w"]),
    "transposed, half precision": (
        [
            node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
            node("Transpose", ["f"], ["t"]),
            node("Mul", ["t", "two"], ["s"]),
            node("MatMul", ["x", "s"], ["y"]),
        ],
        {"w": drawn(3, 8).astype(np.float16), "two": np.float32(2)},
        ["w"],
    ),
    "weight norm": (
        [
            node("ReduceL2", ["v"], ["n"]),
            node("Div", ["v", "n"], ["d"]),
            node("Mul", ["g", "d"], ["w"]),
            node("MatMul", ["x", "w"], ["y"]),
        ],
        {"v": drawn(8, 3), "g": np.ones((8, 1), np.float32)},
        ["v", "g"],
    ),
    "quantised": (
        [node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1), node("MatMul", ["x", "w"], ["y"])],
        {"q": RANDOM.integers(-9, 9, (8, 3)).astype(np.int8), "s": np.array([1, 2, 4.5], np.float32), "z": np.zeros(3, np.int8)},
        ["s", "q"],
    ),
    "bias and scale": (
        [node("Mul", ["x", "scale"], ["h"]), node("Add", ["h", "bias"], ["y"])],
        {"scale": np.ones(8, np.float32), "bias": np.zeros(8, np.float32)},
        ["scale", "bias"],
    ),
    "bias of one result": (
        [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "b"], ["y"])],
        {"w": drawn(8, 1), "b": np.array([0.1], np.float32)},
        ["w", "b"],
    ),
    "numbers": (
        [node("Mul", ["x", "a"], ["h"]), node("Add", ["h", "b"], ["y"])],
        {"a": np.float32(0.5), "b": np.array([1e-6], np.float32)},
        [],
    ),
    "bounds": ([node("Clip", ["x", "low", "high"], ["y"])], {"low": np.float32(0), "high": np.float32(6)}, []),
    "learned positions": ([node("Add", ["x", "p"], ["y"])], {"p": drawn(1, 5, 8)}, ["p"]),
    "learned positions, not trained yet": ([node("Add", ["x", "p"], ["y"])], {"p": np.zeros((1, 5, 8), np.float32)}, ["p"]),
    "sinusoids": (
        [node("Add", ["x", "p"], ["y"])],
        {"p": np.concatenate([np.sin(ANGLES), np.cos(ANGLES)], 1)[None, :5].astype(np.float32)},
        ["p"],  # five rows of them say too little
    ),
    "more sinusoids": (
        [node("Slice", ["p", "zero", "five"], ["s"]), node("Add", ["x", "s"], ["y"])],
        {
            "p": np.concatenate([np.sin(ANGLES), np.cos(ANGLES)], 1).astype(np.float32),
            "zero": np.array([0]),
            "five": np.array([5]),
        },
        [],
    ),
    "token beside data": (
        [node("Expand", ["t", "shape"], ["e"]), node("Concat", ["e", "x"], ["y"], axis=1)],
        {"t": drawn(1, 1, 8), "shape": np.array([2, 1, 8])},
        ["t"],
    ),
    "padding beside data": ([node("Concat", ["z", "x"], ["y"], axis=1)], {"z": np.zeros((2, 1, 8), np.float32)}, []),
    "slopes of a square": ([node("PRelu", ["x", "s"], ["y"])], {"s": np.array([0.25], np.float32)}, ["s"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("hold", [lambda proto: proto, as_constants], ids=["initializers", "constants"])
def test_a_tensor_that_learned_is_a_parameter(case: str, hold: Callable[[ModelProto], ModelProto]) -> None:
    nodes, tensors, expected = CASES[case]
    proto = hold(model(nodes, tensors))
    found = roles(proto)
    assert sorted(found) == sorted(expected)
    assert set(found.values()) <= {"parameter"}


def test_masks_distances_and_slopes_on_scores_are_constants() -> None:
    masked = np.triu(np.full((12, 12), -np.inf, np.float32), 1)
    tensors = {
        "mask": masked,
        "low": np.where(masked < 0, np.finfo(np.float32).min, 0).astype(np.float32),
        "distance": TOEPLITZ,
        "slopes": SLOPES.reshape(8, 1, 1),
        "zeros": np.zeros((12, 12), np.float32),
        "table": drawn(30, 8),  # of relative positions: looked up by numbers of the file
        "buckets": RANDOM.integers(0, 30, (12, 12)),
    }
    nodes = [
        node("MatMul", ["q", "k"], ["s0"]),
        node("Mul", ["s0", "slopes"], ["s1"]),
        *(
            node("Add", [f"s{i}", name], [f"s{i + 1}"])
            for i, name in enumerate(["mask", "low", "distance", "zeros"], 1)
        ),
        node("Gather", ["table", "buckets"], ["bias"]),
        node("Transpose", ["bias"], ["t"], perm=[2, 0, 1]),
        node("Add", ["s5", "t"], ["y"]),
    ]
    inputs = [value("q", 2, 8, 12, 4), value("k", 2, 8, 4, 12)]
    assert roles(model(nodes, tensors, inputs)) == {"table": "parameter"}


def test_tables_of_angles_multiply_positions() -> None:
    """Rotary angles: an outer product of positions that come in is no contraction, and what comes of it meets the data."""
    inputs = [X, IDS]
    nodes = [
        node("Cast", ["ids"], ["f"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["f", "last"], ["p"]),
        node("MatMul", ["p", "inverse"], ["angles"]),
        node("Cos", ["angles"], ["cos"]),
        node("Mul", ["x", "cos"], ["y"]),
    ]
    tensors = {"inverse": (1e4 ** -(np.arange(8) / 8)).astype(np.float32)[None], "last": np.array([-1])}
    assert roles(model(nodes, tensors, inputs)) == {}
    cached = [node("Gather", ["cos_cache", "ids"], ["cos"]), node("Mul", ["x", "cos"], ["y"])]
    table = np.cos(np.concatenate([ANGLES, ANGLES], 1)).astype(np.float32)
    assert roles(model(cached, {"cos_cache": table}, inputs)) == {}
    assert roles(model(cached, {"cos_cache": drawn(64, 8)}, inputs)) == {"cos_cache": "parameter"}
    # With one feature, data is multiplied by a matrix of one row all the same.
    one = [node("MatMul", ["x", "w"], ["y"])]
    assert roles(model(one, {"w": drawn(1, 8)}, [value("x", 2, 5, 1)])) == {"w": "parameter"}


def test_statistics_are_buffers() -> None:
    nodes = [node("BatchNormalization", ["x", "scale", "b", "mean", "var"], ["y"])]
    tensors = {name: np.ones(5, np.float32) for name in ("scale", "b", "mean", "var")}
    assert roles(model(nodes, tensors)) == {"scale": "parameter", "b": "parameter", "mean": "buffer", "var": "buffer"}


def test_weights_inside_graphs_are_parameters() -> None:
    """Two branches that call different weights alike, in a file whose condition comes in."""
    branches = [
        helper.make_graph(
            [
                node("Constant", [], ["w"], value=numpy_helper.from_array(np.full((8, 3), i, np.float32))),
                node("MatMul", ["x", "w"], ["z"]),
            ],
            f"branch{i}", [], [value("z", 2, 5, 3)],
        )
        for i in (1, 2)
    ]  # fmt: skip
    nodes = [node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])]
    proto = model(nodes, {}, [X, value("c", type=TensorProto.BOOL)])
    proto.graph.input[1].type.tensor_type.shape.SetInParent()
    module = import_model(proto)
    assert roles(proto) == {"w": "parameter", "w_": "parameter"}
    x = drawn(2, 5, 8)
    for taken in (True, False):
        (y,) = run(module, {"x": x, "c": np.array(taken)}).values()
        np.testing.assert_allclose(y, np.repeat(x.sum(-1, keepdims=True), 3, -1) * (1 if taken else 2), rtol=1e-5)


def test_weights_of_functions_are_parameters() -> None:
    weight = node("Constant", [], ["w"], value=numpy_helper.from_array(drawn(8, 3)))
    function = helper.make_function(
        "local", "Dense", ["a"], ["b"], [weight, node("MatMul", ["a", "w"], ["b"])], [helper.make_opsetid("", 22)]
    )
    proto = model([node("Dense", ["x"], ["y"], domain="local")], {})
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    assert list(roles(proto).values()) == ["parameter"]


def test_large_constants_are_beside_the_program(tmp_path: Path) -> None:
    mask = np.triu(np.full((300, 300), -np.inf, np.float32), 1)
    proto = as_constants(model([node("Add", ["x", "mask"], ["y"])], {"mask": mask}, [value("x", 300, 300)]))
    assert roles(proto) == {"mask": "buffer"}
    save(import_model(proto), tmp_path / "m.mlir")
    assert (tmp_path / "m.mlir").stat().st_size < 1000
    (y,) = run(load(tmp_path / "m.mlir"), {"x": np.zeros((300, 300), np.float32)}).values()
    np.testing.assert_array_equal(y, mask)


def test_a_number_folds_with_the_mask_that_it_is_spread_to() -> None:
    nodes = [
        node("Expand", ["one", "shape"], ["ones"]),
        node("Sub", ["one", "ones"], ["zeros"]),
        node("Mul", ["zeros", "low"], ["mask"]),
        node("Add", ["x", "mask"], ["y"]),
    ]
    tensors = {"one": np.float32(1), "low": np.float32(-1e4), "shape": np.array([2, 5, 8])}
    module = import_model(model(nodes, tensors))
    OnnxFoldShapesPass().apply(Context(), module)
    assert [op.name for op in entry_function(module).body.block.ops] == ["onnx.Constant", "onnx.Add", "func.return"]


def test_names_correct_what_a_tensor_looks_like() -> None:
    nodes = [node("Mul", ["x", "scale"], ["h"]), node("MatMul", ["h", "w.0"], ["y"])]
    proto = model(nodes, {"scale": np.float32(2), "w.0": drawn(8, 3)})
    assert roles(proto, parameters=["sc*"]) == {"scale": "parameter", "w.0": "parameter"}
    assert roles(proto, constants=["w.0"]) == {}
    with pytest.raises(
        DistirError, match=r"--constants w\.1: the model holds no floating-point tensor .* mean 'w.0'\?"
    ):
        import_model(proto, constants=["w.1"])


def test_roles_survive_export() -> None:
    """What the importer would take for something else is said in metadata."""
    nodes = [
        node("Mul", ["x", "scale"], ["h"]),
        node("BatchNormalization", ["h", "s", "b", "mean", "var"], ["n"]),
        node("MatMul", ["n", "w"], ["y"]),
    ]
    tensors = {name: np.ones(5, np.float32) for name in ("s", "b", "mean", "var")}
    module = import_model(model(nodes, tensors | {"scale": np.float32(2), "w": drawn(8, 3)}), parameters=["scale"])
    again = import_model(export_model(module))
    assert ports(again) == ports(module)
    x = drawn(2, 5, 8)
    assert sorted(weights_of(again)) == sorted(weights_of(module))
    for name, array in run(module, {"x": x}).items():
        np.testing.assert_array_equal(run(again, {"x": x})[name], array)


def ports(module: ModuleOp) -> dict[str, str | None]:
    return {port.name: port.role for port in arguments_of(entry_function(module))}


# Where values come from.


@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64, np.float16]), st.integers(1, 3))
def test_drawn_values_are_learned(seed: int, dtype: type[Any], rank: int) -> None:
    random = np.random.default_rng(seed)
    array = random.standard_normal(random.integers(4, 40, rank)).astype(dtype)
    assert origin_of(array) is Origin.LEARNED


COMPUTED: dict[str, Array] = {
    "arange": np.arange(9.0),
    "linspace of rows": np.linspace([0, 1.5], [4, 3], 20),
    "geometric": 1e4 ** -(np.arange(0, 16) / 16),
    "hann window": np.hanning(64),
    "hann window in half precision": np.hanning(64).astype(np.float16),
    "cosines": np.cos(ANGLES),
    "sines in half precision": np.sin(ANGLES[:32]).astype(np.float16),
    "padded sinusoids": np.concatenate([np.zeros((2, 8)), np.concatenate([np.sin(ANGLES), np.cos(ANGLES)], 1)]),
    "causal mask": np.tril(np.ones((16, 16))),
    "additive mask": np.triu(np.full((6, 6), -1e9), 1),
    "minus infinity": np.triu(np.full((6, 6), -np.inf), 1),
    "distances": TOEPLITZ,
    "slopes by distances": SLOPES[:, None, None] * -np.abs(np.subtract.outer(np.arange(12), np.arange(12))),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_formulas_are_recognised(name: str) -> None:
    array = COMPUTED[name]
    assert origin_of(array if array.dtype == np.float16 else array.astype(np.float32)) is Origin.COMPUTED
