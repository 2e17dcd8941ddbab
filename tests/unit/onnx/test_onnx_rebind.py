"""A file whose batch is fixed is brought to others where its graph allows it, and computes for each row what it computed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from xdsl.context import Context

from distir.dialects.errors import DistirError
from distir.frontends.onnx import import_model
from distir.interpreters.reference import run
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass

node = helper.make_node
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RANDOM.standard_normal(shape, np.float32)


def model(nodes: Sequence[NodeProto], tensors: dict[str, Any], shape: Sequence[int]) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "fixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_value_info("y", helper.make_tensor_type_proto(1, None))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


def vision(batch: int) -> ModelProto:
    """Patches, a token before them, positions, attention over heads: reshapes of all kinds, written as numbers."""
    nodes = [
        node("Conv", ["x", "patches"], ["c"], strides=[4, 4]),
        node("Reshape", ["c", "flat"], ["f"]),
        node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        *([node("Expand", ["token", "tokens"], ["first"])] if batch > 1 else [node("Identity", ["token"], ["first"])]),
        node("Concat", ["first", "t"], ["s"], axis=1),
        node("Add", ["s", "positions"], ["h"]),
        node("Reshape", ["h", "rows"], ["r"]),
        node("Gemm", ["r", "w"], ["g"]),
        node("Reshape", ["g", "heads"], ["q"]),
        node("Transpose", ["q"], ["p"], perm=[0, 2, 1, 3]),
        node("Reshape", ["p", "merged"], ["m"]),
        node("Transpose", ["m"], ["k"], perm=[0, 2, 1]),
        node("MatMul", ["m", "k"], ["a"]),
        node("Reshape", ["a", "split"], ["z"]),
        node("ReduceMean", ["z", "last"], ["y"], keepdims=0),
    ]
    tensors = {
        "patches": drawn(8, 3, 4, 4),
        "token": drawn(1, 1, 8),
        "positions": drawn(1, 5, 8),
        "w": drawn(8, 8),
        "tokens": np.array([batch, 1, 8]),
        "flat": np.array([batch, 8, -1]),
        "rows": np.array([-1, 8]),
        "heads": np.array([batch, 5, 2, 4]),
        "merged": np.array([2 * batch, 5, 4]),
        "split": np.array([batch, 2, 5, 5]),
        "last": np.array([-1]),
    }
    return model(nodes, tensors, [batch, 3, 8, 8])


@pytest.mark.parametrize(("fixed", "wanted"), [(1, 3), (2, 6), (4, 2), (2, 1)])
def test_rows_are_computed_as_in_the_file(fixed: int, wanted: int) -> None:
    proto = vision(fixed)
    x = drawn(12, 3, 8, 8)
    before, after = import_model(proto), import_model(proto)
    OnnxFoldShapesPass(shape=f"x={wanted},3,8,8").apply(Context(), after)
    after.verify()
    rows = [
        np.concatenate([next(iter(run(module, {"x": part}).values())) for part in np.split(x, 12 // batch)])
        for module, batch in ((before, fixed), (after, wanted))
    ]
    np.testing.assert_allclose(rows[1], rows[0], rtol=1e-5, atol=1e-5)


def test_states_of_zeros_grow() -> None:
    nodes = [node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["y"], hidden_size=3)]
    zeros = np.zeros((1, 1, 3), np.float32)
    proto = model(nodes, {"w": drawn(1, 12, 4), "r": drawn(1, 12, 3), "h": zeros, "c": zeros}, [5, 1, 4])
    module = import_model(proto)
    OnnxFoldShapesPass(shape="x=5,3,4").apply(Context(), module)
    x = drawn(5, 3, 4)
    (found,) = run(module, {"x": x}).values()
    parts = [next(iter(run(import_model(proto), {"x": x[:, i : i + 1]}).values())) for i in range(3)]
    np.testing.assert_allclose(found, np.concatenate(parts, 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Gather", ["x", "zero"], ["y"], axis=0)], r"result 0 keeps its shape \[4\] at the new sizes of x"),
        ([node("Add", ["x", "rows"], ["y"])], r"sizes written in it: onnx.Add does not accept"),
    ],
)
def test_what_ties_a_file_to_its_batch_is_named(nodes: list[NodeProto], message: str) -> None:
    module = import_model(model(nodes, {"zero": np.array(0), "rows": drawn(2, 4)}, [2, 4]))
    with pytest.raises(DistirError, match=message):
        OnnxFoldShapesPass(shape="x=6,4").apply(Context(), module)


def test_sizes_below_zero_are_open() -> None:
    proto = model([node("Neg", ["x"], ["y"])], {}, [2, 4])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert "tensor<?x4xf32>" in str(import_model(proto))
    assert "tensor<?x" not in str(import_model(proto, {"x": (3, 4)}))
