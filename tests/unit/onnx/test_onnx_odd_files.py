"""Files as they come: odd names, old ways, sparse tensors, orders and domains that exporters leave; and files that no
reading makes right, each refused with the place."""

from io import StringIO
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.printer import Printer

from distir.backends.onnx import export_model
from distir.dialects.errors import DistirError
from distir.dialects.onnx import Onnx
from distir.frontends.onnx import import_model
from distir.frontends.shapes import bind_dims
from distir.frontends.text import parse_program
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass

node = helper.make_node


def tensor(name: str, shape: list[int | str] | None, type: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, type, shape)


def model(
    nodes: list[NodeProto],
    initializers: dict[str, np.ndarray] | None = None,
    x: ValueInfoProto | None = None,
    outputs: list[str] | None = None,
    opset: int = 21,
    **graph: object,
) -> ModelProto:
    """A model with one input x, of two elements by default."""
    made = helper.make_graph(
        nodes,
        "g",
        [tensor("x", [2]) if x is None else x],
        [tensor(name, None) for name in (["y"] if outputs is None else outputs)],
        [numpy_helper.from_array(value, name) for name, value in (initializers or {}).items()],
        **graph,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def through_text(module: ModuleOp) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Onnx):
        context.load_dialect(dialect)
    stream = StringIO()
    Printer(stream).print_op(module)
    return parse_program(context, stream.getvalue(), "program.mlir")


def check(proto: ModelProto, x: np.ndarray, expected: object) -> None:
    """Text and ONNX give the program back, its shapes fold, and it computes what is expected."""
    module = import_model(proto)
    assert through_text(module).is_structurally_equivalent(module)
    exported = export_model(module)
    onnx.checker.check_model(exported)
    assert import_model(exported).is_structurally_equivalent(module)
    for _ in range(2):
        (result,) = run(module, {"x": x}).values()
        np.testing.assert_allclose(result, expected, rtol=1e-6)
        OnnxFoldShapesPass().apply(Context(), module)
    assert "?" not in str(module)


X = np.array([1, -2], np.float32)


# What is read.


@pytest.mark.parametrize("name", ['a "quoted"\nname\t\\ \x01\x7f', "µ::0/é漢🙂", "layers.0/w:0", "__metadata__"])
def test_any_text_is_a_name(name: str) -> None:
    proto = model([node("Add", ["x", name], ["y"], name=name)], {name: np.float32([3, 4])})
    check(proto, X, [4, 2])
    (function,) = through_text(import_model(proto)).ops
    assert [attributes.data["dist.name"].data for attributes in function.arg_attrs] == ["x", name]


def test_names_of_open_dimensions_may_hold_what_separates_them() -> None:
    module = import_model(model([node("Neg", ["x"], ["y"])], x=tensor("x", ["a,b:%2C", "c"])))
    again = import_model(export_model(module))
    assert again.is_structurally_equivalent(module)
    dims = export_model(again).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param for dim in dims] == ["a,b:%2C", "c"]
    assert bind_dims({"x": ["a,b:%2C"]}, {"x": (3,)}) == {"x": [3]}


def test_nodes_in_any_order_are_sorted() -> None:
    check(model([node("Neg", ["b"], ["y"]), node("Exp", ["a"], ["b"]), node("Abs", ["x"], ["a"])]), X, -np.exp([1, 2]))


def test_the_default_domain_has_two_names() -> None:
    proto = model([node("Softmax", ["x"], ["y"], domain="ai.onnx", axis=1)], x=tensor("x", [2, 2, 2]), opset=11)
    proto.opset_import[0].domain = "ai.onnx"
    check(proto, np.zeros((2, 2, 2), np.float32), np.full((2, 2, 2), 0.25))  # opset 11 flattens: 4 elements a row


def test_a_result_without_a_name_may_be_required() -> None:
    check(model([node("TopK", ["x", "k"], ["", "y"])], {"k": np.int64([1])}), X, [0])


def test_programs_without_results_are_programs() -> None:
    module = import_model(model([], outputs=[]))
    assert through_text(module).is_structurally_equivalent(module)


def sparse(name: str, indices: object, dims: list[int], values: object = (1, 2, 3)) -> onnx.SparseTensorProto:
    numbers = numpy_helper.from_array(np.float32(values), name)
    return helper.make_sparse_tensor(numbers, numpy_helper.from_array(np.int64(indices), "i"), dims)


@pytest.mark.parametrize("indices", [[0, 3, 4], [[0, 0], [1, 1], [2, 0]]])
def test_sparse_tensors_become_dense(indices: object) -> None:
    expected = X + np.array([[1, 0], [0, 2], [3, 0]])
    add = node("Add", ["x", "w"], ["y"])
    check(model([add], sparse_initializer=[sparse("w", indices, [3, 2])]), X, expected)
    check(model([node("Constant", [], ["w"], sparse_value=sparse("", indices, [3, 2])), add]), X, expected)
    branch = helper.make_graph([add], "b", [], [tensor("y", [3, 2])], sparse_initializer=[sparse("w", indices, [3, 2])])
    known = {"c": np.array(True)}
    inside = model([node("If", ["c"], ["z"], then_branch=branch, else_branch=branch)], known, outputs=["z"])
    (result,) = run(import_model(inside), {"x": X}).values()
    np.testing.assert_array_equal(result, expected)


def test_a_scan_of_opset_8_runs_over_a_batch() -> None:
    """Sums along the sequence, of two items; backwards along the second input."""
    body = helper.make_graph(
        [node("Add", ["s", "v"], ["t"]), node("Add", ["t", "r"], ["s_out"]), node("Identity", ["s_out"], ["o"])],
        "body",
        [tensor("s", [2]), tensor("v", [2]), tensor("r", [2])],
        [tensor("s_out", [2]), tensor("o", [2])],
    )
    scan = node("Scan", ["", "start", "x", "x"], ["last", "y"], body=body, num_scan_inputs=2, directions=[0, 1])
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    proto = model([scan], {"start": np.zeros((2, 2), np.float32)}, tensor("x", [2, 3, 2]), opset=8)
    check(proto, x, np.cumsum(x + x[:, ::-1], axis=1))


def test_scan_of_opset_8_with_lengths_is_refused() -> None:
    body = helper.make_graph([node("Neg", ["v"], ["o"])], "body", [tensor("v", [2])], [tensor("o", [2])])
    scan = node("Scan", ["n", "x"], ["y"], body=body, num_scan_inputs=1, name="scan")
    with pytest.raises(DistirError, match=r"node 'scan' is a Scan with lengths \('n'\)"):
        import_model(model([scan], {"n": np.int64([1, 3])}, tensor("x", [2, 3, 2]), opset=8))


# Floating-point initializers that shapes depend on.


@pytest.mark.parametrize(
    ("nodes", "initializers", "shape"),
    [
        ([node("Resize", ["x", "", "s"], ["y"])], {"s": np.float32([2.5])}, (5,)),
        ([node("Mul", ["s", "t"], ["u"]), node("Resize", ["x", "", "u"], ["y"])], {"s": np.float32([2]), "t": np.float32(2)}, (8,)),
        ([node("Range", ["a", "b", "c"], ["y"])], {"a": np.float32(0), "b": np.float32(5), "c": np.float32(2)}, (3,)),
        ([node("Cast", ["f"], ["s"], to=TensorProto.INT64), node("Reshape", ["x", "s"], ["y"])], {"f": np.float32([1, 2])}, (1, 2)),
    ],
)  # fmt: skip
def test_initializers_that_shapes_depend_on_are_constants(
    nodes: list[NodeProto], initializers: dict[str, np.ndarray], shape: tuple[int, ...]
) -> None:
    module = import_model(model(nodes, initializers))
    assert not weights_of(module)
    OnnxFoldShapesPass().apply(Context(), module)
    (function,) = module.ops
    assert function.function_type.outputs.data[0].get_shape() == shape
    (result,) = run(module, {"x": X}).values()
    assert result.shape == shape


def test_a_parameter_that_decides_how_often_a_graph_runs_is_a_constant() -> None:
    branches = [helper.make_graph([node(op, ["x"], ["z"])], op, [], [tensor("z", [2])]) for op in ("Neg", "Abs")]
    nodes = [
        node("Less", ["a", "b"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    module = import_model(model(nodes, {"a": np.float32(1), "b": np.float32(2)}))
    OnnxFoldShapesPass().apply(Context(), module)
    assert [op.name for op in next(iter(module.ops)).body.block.ops] == ["onnx.Neg", "func.return"]


def test_what_metadata_names_is_a_parameter() -> None:
    initializers = {"scale": np.float32(0.5), "shift": np.float32([1, 2]), "s": np.float32([2])}
    nodes = [
        node("Mul", ["x", "scale"], ["h"]),
        node("Add", ["h", "shift"], ["z"]),
        node("Resize", ["z", "", "s"], ["y"]),
    ]
    assert sorted(weights_of(import_model(model(nodes, initializers)))) == ["shift"]
    updated = model(nodes, initializers, outputs=["y", "z"])
    helper.set_model_props(updated, {"dist.update:z": "s"})
    assert sorted(weights_of(import_model(updated))) == ["s", "shift"]


@pytest.mark.parametrize(("operator", "opset"), [("Upsample", 9), ("Resize", 10)])
def test_positions_before_opset_11_are_indices_divided_by_the_scale(operator: str, opset: int) -> None:
    """By hand: at 0, 0.5, 1 and 1.5 of two elements, beyond the last of which is the last; at 0, 0.8, 1.6, 2.4 and 3.2 of four the one before."""
    scales = {"s": np.float32([1, 2])}
    proto = model([node(operator, ["x", "s"], ["y"], mode="linear")], scales, x=tensor("x", [1, 2]), opset=opset)
    x = np.array([[0, 8]], np.float32)
    (y,) = run(import_model(proto), {"x": x}).values()
    np.testing.assert_array_equal(y, [[0, 4, 8, 8]])
    scales = {"s": np.float32([1, 1.25])}
    proto = model([node(operator, ["x", "s"], ["y"], mode="nearest")], scales, x=tensor("x", [1, 4]), opset=opset)
    (y,) = run(import_model(proto), {"x": np.array([[1, 2, 3, 4]], np.float32)}).values()
    np.testing.assert_array_equal(y, [[1, 1, 2, 3, 4]])


def of_learning(operator: NodeProto, version: int) -> ModelProto:
    proto = model([operator], x=tensor("x", [2, 2]))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", version))
    return proto


@pytest.mark.parametrize("version", [1, 3])
def test_older_operator_that_lost_nothing_since_is_read(version: int) -> None:
    """Ensembles of trees as converters write them: one tree of one branch. The newest version is deprecated, and otherwise the same."""
    tree = node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[1, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=[3.0, -7.0],
    )
    module = import_model(of_learning(tree, version))
    OnnxFoldShapesPass().apply(Context(), module)
    (y,) = run(module, {"x": np.array([[9, 0], [0, 9]], np.float32)}).values()
    np.testing.assert_array_equal(y, [[3], [-7]])


@pytest.mark.parametrize(
    ("operator", "attributes", "expected"),
    [
        ("Scaler", {"offset": [1.0, 2.0], "scale": [2.0, 1.0]}, [[0, 1], [4, -2]]),
        ("Normalizer", {"norm": "MAX"}, [[1 / 3, 1], [1, 0]]),
        ("Imputer", {"imputed_value_floats": [7.0], "replaced_value_float": 0.0}, [[1, 3], [3, 7]]),
        ("FeatureVectorizer", {"inputdimensions": [3]}, [[1, 3, 0], [3, 0, 0]]),
        ("LinearRegressor", {"coefficients": [1.0, 1.0], "intercepts": [1.0], "post_transform": "NONE"}, [[5], [4]]),
        ("LinearRegressor", {"coefficients": [1.0, 0.0, 0.0, 1.0], "intercepts": [1.0, 0.0], "targets": 2}, [[2, 3], [4, 0]]),
        ("SVMRegressor", {"kernel_type": "LINEAR", "coefficients": [1.0, 2.0], "rho": [1.0], "n_supports": 0}, [[8], [4]]),
    ],
)  # fmt: skip
def test_operators_of_learning_for_which_onnx_infers_nothing_have_types(
    operator: str, attributes: dict[str, Any], expected: object
) -> None:
    first = node(operator, ["x"], ["first"], domain="ai.onnx.ml", **attributes)
    proto = of_learning(first, 1)
    proto.graph.node.append(node("Neg", ["first"], ["y"]))
    module = import_model(proto)
    OnnxFoldShapesPass().apply(Context(), module)
    (y,) = run(module, {"x": np.array([[1, 3], [3, 0]], np.float32)}).values()
    np.testing.assert_allclose(y, -np.array(expected, np.float32), rtol=1e-6)


def test_older_operator_whose_attributes_are_gone_is_refused() -> None:
    labels = node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", classes_strings=["a", "b"])
    with pytest.raises(
        DistirError, match=r"operator LabelEncoder of domain 'ai\.onnx\.ml' needs version 4 of the domain"
    ):
        import_model(of_learning(labels, 1))


# What is refused, and where it is.


def negative() -> ModelProto:
    proto = model([node("Add", ["x", "w"], ["y"])], {"w": np.float32([1, 2])})
    proto.graph.initializer[0].dims[0] = -2
    return proto


def no_opset() -> ModelProto:
    proto = model([node("Neg", ["x"], ["y"])])
    proto.opset_import[0].domain = "ai.onnx.ml"
    return proto


def doubled() -> ModelProto:
    proto = model([node("Add", ["x", "w"], ["y"])], {"w": np.float32([1, 2])})
    proto.graph.initializer.append(proto.graph.initializer[0])
    return proto


REFUSED = {
    "node 'n' needs its own result: the graph has a cycle": lambda: model(
        [node("Add", ["x", "b"], ["a"], name="n"), node("Neg", ["a"], ["b"]), node("Neg", ["b"], ["y"])]
    ),
    "two results have the name 'y'": lambda: model([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])]),
    "two initializers have the name 'w'": doubled,
    "'x' is a result of a node and an input": lambda: model([node("Neg", ["x"], ["x"])], outputs=["x"]),
    "output of graph 'g' has no name": lambda: model([node("Neg", ["x"], ["y"])], outputs=[""]),
    "tensor 'w' has shape [-2]": negative,
    "does not say which opset of ONNX it uses": no_opset,
    "opset 0: expected a number of at least 1": lambda: model([node("Neg", ["x"], ["y"])], opset=0),
    "onnx.Add (node 'n'): 'B' has type tensor(int64)": lambda: model(
        [node("Add", ["x", "w"], ["y"], name="n")], {"w": np.int64([1, 2])}
    ),
    "the node of 'y': Concat has no attribute 'axis', which it needs": lambda: model([node("Concat", ["x"], ["y"])]),
    "onnx.Softmax (the node of 'y'): 1.500000e+00 : f32 should be": lambda: model(
        [node("Softmax", ["x"], ["y"], axis=1.5)]
    ),
    "onnx.Neg (the node of 'y'): Expected 1 operand, but got 2": lambda: model([node("Neg", ["x", "x"], ["y"])]),
    "the node of 'y': Relu of opset 21 has no attribute 'axes' (it has none)": lambda: model(
        [node("Relu", ["x"], ["y"], axes=[1])]
    ),
    "node 'c': Cast of opset 21 has no attribute 'axis' (it has saturate, to)": lambda: model(
        [node("Cast", ["x"], ["y"], to=1, axis=3, name="c")]
    ),
    "is a Constant with values none: expected one": lambda: model([node("Constant", [], ["y"])]),
    "indices of sparse tensor 'w' do not fit its shape [3, 2]": lambda: model(
        [node("Add", ["x", "w"], ["y"])], sparse_initializer=[sparse("w", [0, 3, 6], [3, 2])]
    ),
    "sparse tensor 'w' of shape [1048576, 1048576] is too large": lambda: model(
        [node("Add", ["x", "w"], ["y"])], sparse_initializer=[sparse("w", [0, 3, 6], [1 << 20, 1 << 20])]
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_no_reading_makes_right_is_refused_with_the_place(message: str) -> None:
    with pytest.raises(DistirError) as caught:
        import_model(REFUSED[message]())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# Values whose shapes depend on data.


def test_a_model_is_cut_after_the_last_static_value() -> None:
    unknown = node("Unknown", ["n"], ["z"], domain="custom")
    nodes = [
        node("Mul", ["x", "w"], ["h"]),
        node("NonZero", ["h"], ["n"]),
        node("Cast", ["n"], ["y"], to=TensorProto.FLOAT),
        unknown,
    ]
    proto = model(nodes, {"w": np.float32([1, 2]), "v": np.float32([3])}, outputs=["y", "z"])
    module = import_model(proto, until=["h"])
    OnnxFoldShapesPass().apply(Context(), module)
    assert list(weights_of(module)) == ["w"]
    (result,) = run(module, {"x": X}).items()
    assert result[0] == "h"
    np.testing.assert_array_equal(result[1], X * np.float32([1, 2]))
    with pytest.raises(
        DistirError, match=r"--until hh: no node of the main graph gives a value of this name; did you mean 'h'\?"
    ):
        import_model(proto, until=["hh"])


def test_a_range_of_numbers_ends_where_shapes_say() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        node("Range", ["a", "f", "one"], ["r"]),
        node("Add", ["x", "r"], ["y"]),
    ]
    module = import_model(model(nodes, {"zero": np.int64(0), "a": np.float32(0), "one": np.float32(1)}))  # pyright: ignore[reportArgumentType]
    OnnxFoldShapesPass().apply(Context(), module)
    assert [op.name for op in next(iter(module.ops)).body.block.ops] == ["onnx.Constant", "onnx.Add", "func.return"]


def test_dims_called_by_a_question_mark_are_each_their_own() -> None:
    """As Paddle writes dims that it does not know."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n, m] x) => (float[a, b] y) { y = Relu(x) }'
    )
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = "?"
    module = import_model(model, {"x": (2, 3)})
    assert "tensor<2x3xf32>" in str(module)
