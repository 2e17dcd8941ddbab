"""`If`, `Loop`, `Scan` and `SequenceMap`: what they compute, and how what is known of them is written out."""

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.frontends.onnx import import_model
from distir.interpreters.reference import run
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass


def model(body: str) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{body}')


def names(module: ModuleOp) -> list[str]:
    return [op.name.removeprefix("onnx.") for op in module.walk() if op.name.startswith("onnx.")]


def fold(module: ModuleOp) -> ModuleOp:
    OnnxFoldShapesPass().apply(Context(), module)
    module.verify()
    return module


# The trip count is an input: the loop multiplies by a value from outside, and collects matrices.
COUNTED = """
    main (float[2,3] x, int64 n) => (float[2,3] y, float[k,2,3] all) {
      y, all = Loop (n, , x) <body = step (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t, float[2,3] u) {
        d = Identity (c)
        f = Cast <to = 1> (i)
        t = Add (s, x)
        u = Mul (t, f)
      }>
    }
"""


ENDS = """
    main (float[2,3] x, int64 n) => (float[2,3] y) {
      y = Loop (n, , x) <body = step (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t) {
        d = Identity (c)
        t = Add (s, x)
      }>
    }
"""


def test_loop_collects_matrices_and_an_absent_condition_is_true() -> None:
    """By hand: s is 2x, 3x, 4x; times the iteration it is 0, 3x, 8x."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    results = run(import_model(model(COUNTED)), {"x": x, "n": np.array(3)})
    np.testing.assert_array_equal(results["y"], 4 * x)
    np.testing.assert_array_equal(results["all"], np.stack([0 * x, 3 * x, 8 * x]))
    nothing = run(import_model(model(COUNTED)), {"x": x, "n": np.array(0)})
    np.testing.assert_array_equal(nothing["y"], x)
    assert nothing["all"].shape == (0, 2, 3)


def test_loop_in_float64_is_in_float64_inside() -> None:
    x = np.full((2, 3), 1 / 3)
    results = run(import_model(model(COUNTED)), {"x": x, "n": np.array(3)}, dtype=np.float64)
    assert results["all"].dtype == np.float64
    np.testing.assert_array_equal(results["y"], x + x + x + x)


def test_loop_of_unknown_length_stays_one_operation_and_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    module = fold(import_model(model(ENDS)))
    (loop,) = [op for op in module.walk() if op.name == "onnx.Loop"]
    assert '"its trip count is not known"' in str(loop.attributes["onnx.opaque"])
    assert "onnx.Loop stays one operation on one device: its trip count is not known" in capsys.readouterr().err
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(module, {"x": x, "n": np.array(5)})["y"], 6 * x)


def test_collected_dim_of_a_loop_of_unknown_length_is_refused_by_name() -> None:
    with pytest.raises(DistirError, match=r"onnx.Loop in @main: dimension 0 of result 1 is unknown"):
        fold(import_model(model(COUNTED)))


def test_loop_of_known_length_is_unrolled() -> None:
    counted = COUNTED.replace("int64 n)", "float[3] m)").replace("y, all", "n = Size (m)\n y, all")
    module = fold(import_model(model(counted)))
    assert "Loop" not in names(module)
    assert "?" not in str(module)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    results = run(module, {"x": x, "m": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(results["all"], np.stack([0 * x, 3 * x, 8 * x]))


def test_while_loop_whose_condition_is_known_is_unrolled() -> None:
    """The state doubles while a counter, which starts at the number of columns, is positive: 3 times."""
    module = import_model(
        model("""
        main (float[2,3] x) => (float[2,3] y) {
          shape = Shape <start = 1> (x)
          zero = Constant <value = int64[1] {0}> ()
          go = Constant <value = bool {1}> ()
          k, y = Loop (, go, shape, x) <body = step (int64 i, bool c, int64[1] n, float[2,3] s)
                                          => (bool d, int64[1] m, float[2,3] t) {
            one = Constant <value = int64[1] {1}> ()
            m = Sub (n, one)
            more = Greater (m, zero)
            empty = Constant <value = int64[0] {}> ()
            d = Reshape (more, empty)
            t = Add (s, s)
          }>
        }""")
    )
    assert names(fold(module)) == ["Add", "Add", "Add"]
    np.testing.assert_array_equal(run(module, {"x": np.ones((2, 3), np.float32)})["y"], np.full((2, 3), 8))


def test_loop_without_end_is_not_followed() -> None:
    endless = """
    main (float[2] x) => (float[2] y) {
      go = Constant <value = bool {1}> ()
      y = Loop (, go, x) <body = step (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
        d = Identity (c)
        t = Add (s, s)
      }>
    }"""
    module = fold(import_model(model(endless)))
    (loop,) = [op for op in module.walk() if op.name == "onnx.Loop"]
    assert "more than 20000 operations" in str(loop.attributes["onnx.opaque"])


def test_types_inside_a_graph_become_static_and_its_open_dims_are_refused() -> None:
    branches = """
    main (float[N,3] x, bool c) => (float[N,3] y) {{
      y = If (c) <then_branch = yes () => (float[N,3] a) {{ {then} a = Identity (h) }},
                  else_branch = no () => (float[N,3] b) {{ b = Neg (x) }}>
    }}"""
    known = import_model(model(branches.format(then="h = Relu (x)")), {"x": (4, 3)})
    assert "?" not in str(fold(known))
    assert names(known) == ["Neg", "Relu", "Identity", "Where"]
    x = -np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(run(known, {"x": x, "c": np.array(True)})["y"], 0 * x)
    unknown = "t = NonZero (x) u = Shape (t) k = Slice (u, u, u) f = Cast <to = 1> (t) r = ReduceSum (f) h = Mul (x, r)"
    with pytest.raises(DistirError, match=r"onnx.NonZero in @main: dimension 1 of result 0 is unknown"):
        fold(import_model(model(branches.format(then=unknown)), {"x": (4, 3)}))


@pytest.mark.parametrize("condition", [True, False])
def test_branches_of_one_type_are_both_computed(condition: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """The condition comes in, with a dim of 1; the second `If` is inside a branch of the first."""
    module = import_model(
        model("""
        main (float[2] x, bool[1] c) => (float[2] y, float z) {
          y, z = If (c) <then_branch = yes () => (float[2] a, float b) {
                           n = Not (c)
                           a = If (n) <then_branch = never () => (float[2] i) { i = Neg (x) },
                                       else_branch = always () => (float[2] j) { j = Add (x, x) }>
                           b = ReduceSum <keepdims = 0> (x)
                         },
                         else_branch = no () => (float[2] f, float g) {
                           f = Exp (x)
                           g = ReduceMax <keepdims = 0> (x)
                         }>
        }""")
    )
    x = np.array([1, 2], np.float32)
    feeds = {"x": x, "c": np.array([condition])}
    before, after = run(module, feeds), run(fold(module), feeds)
    assert "If" not in names(module)
    np.testing.assert_array_equal(after["y"], 2 * x if condition else np.exp(x))
    np.testing.assert_array_equal(before["z"], after["z"])
    assert after["z"].shape == ()
    assert after["z"] == (3 if condition else 2)
    assert "onnx.If: both branches are computed: its condition is not known" in capsys.readouterr().err


def test_scan_is_unrolled() -> None:
    """By hand: the state is 1, 3, 6; what is collected is the state before, times a value from outside."""
    module = import_model(
        model("""
        main (float[2,3] x, float[2] z, float[2] f) => (float[2] y, float[2,3] all) {
          y, all = Scan <num_scan_inputs = 1, scan_input_axes = [-1], scan_output_axes = [-1],
                         body = step (float[2] s, float[2] v) => (float[2] t, float[2] u) {
            t = Add (s, v)
            u = Mul (s, f)
          }> (z, x)
        }""")
    )
    x = np.array([[1, 2, 3], [10, 20, 30]], np.float32)
    feeds = {"x": x, "z": np.zeros(2, np.float32), "f": np.array([1, -1], np.float32)}
    results = run(fold(module), feeds)
    assert names(module).count("Add") == 3
    assert "Scan" not in names(module)
    np.testing.assert_array_equal(results["y"], [6, 60])
    np.testing.assert_array_equal(results["all"], [[0, 1, 3], [0, -10, -30]])


def test_scan_of_no_slices_keeps_its_state() -> None:
    module = import_model(
        model("""
        main (float[2] z, float[0,2] x) => (float[2] y, float[0,2] all) {
          y, all = Scan <num_scan_inputs = 1, body = step (float[2] s, float[2] v) => (float[2] t, float[2] u) {
            t = Add (s, v)
            u = Identity (t)
          }> (z, x)
        }""")
    )
    feeds = {"z": np.ones(2, np.float32), "x": np.zeros((0, 2), np.float32)}
    results = run(fold(module), feeds)
    assert "Scan" not in names(module)
    np.testing.assert_array_equal(results["y"], [1, 1])
    assert results["all"].shape == (0, 2)


def test_scan_along_any_axis_in_any_direction() -> None:
    """Running sums of the columns from the last to the first, stacked along axis 1 with the newest first."""
    module = import_model(
        model("""
        main (float[2] z, float[2,3] x) => (float[2] y, float[2,3] all) {
          y, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
                         scan_output_axes = [1], scan_output_directions = [1],
                         body = step (float[2] s, float[2] v) => (float[2] t, float[2] u) {
            t = Add (s, v)
            u = Identity (t)
          }> (z, x)
        }""")
    )
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    results = run(fold(module), {"z": np.zeros(2, np.float32), "x": x})
    np.testing.assert_array_equal(results["y"], [6, 15])
    np.testing.assert_array_equal(results["all"], [[6, 5, 3], [15, 11, 6]])


KNOWN = """
    main (float[2,3] x) => (float[2,3] y, float[n,m] z) <bool yes = {1}, float[3] w = {1, 2, 3}> {
      no = Constant <value = bool[1] {0}> ()
      flat, t = If (no) <
        then_branch = first () => (float[6] a, float[2,3] b) {
          shape = Constant <value = int64[1] {6}> ()
          a = Reshape (x, shape)
          b = Identity (x)
        },
        else_branch = second () => (float[2,3] a, float[2,3] b) {
          t = Neg (x)
          a = Add (t, w)
          b = If (yes) <
            then_branch = third () => (float[2,3] c) { shape = Mul (a, t)  c = Sub (shape, x) },
            else_branch = fourth () => (float[6] c) { c = Flatten (x) }
          >
        }
      >
      y = Identity (t)
      columns = Transpose <perm = [1, 0]> (x)
      z = MatMul (flat, columns)
    }
"""


def test_a_branch_on_a_constant_is_taken_before_types_are_inferred() -> None:
    """As exporters write what depends on a rank: the other branch is of another rank. Names inside are those of another branch and of outside; by hand:
    flat is w - x, t is (w - x) (-x) - x."""
    module = import_model(model(KNOWN))
    assert "If" not in names(module)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    w = np.array([1, 2, 3], np.float32)
    results = run(module, {"x": x})
    np.testing.assert_array_equal(results["y"], (w - x) * -x - x)
    np.testing.assert_array_equal(results["z"], (w - x) @ x.T)


@pytest.mark.parametrize("missing", ["then_branch", "else_branch"])
def test_an_if_without_a_branch_is_refused(missing: str) -> None:
    proto = model(KNOWN)
    node = next(each for each in proto.graph.node if each.op_type == "If")
    kept = [each for each in node.attribute if each.name != missing]
    del node.attribute[:]
    node.attribute.extend(kept)
    with pytest.raises(DistirError, match=f"If has no attribute '{missing}', which it needs"):
        import_model(proto)
