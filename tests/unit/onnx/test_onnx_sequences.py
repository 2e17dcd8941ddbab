"""Sequences of known elements are written out when shapes are folded: programs of tensors are left, which can be cut."""

import numpy as np
import onnx
from onnx import ModelProto
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.onnx import import_model
from distir.interpreters.reference import run
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass


def model(body: str) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{body}')


def folded(body: str) -> ModuleOp:
    module = import_model(model(body))
    OnnxFoldShapesPass().apply(Context(), module)
    module.verify()
    assert "?" not in str(module)
    assert "Seq" not in str(module)
    return module


def results(body: str, **feeds: np.ndarray) -> list[np.ndarray]:
    """Of the folded program, which are those of the program as it is."""
    after, before = (list(run(module, feeds).values()) for module in (folded(body), import_model(model(body))))
    for one, other in zip(after, before, strict=True):
        np.testing.assert_array_equal(one, other)
    return after


X = np.arange(10, dtype=np.float32).reshape(2, 5)


def test_parts_of_equal_size_and_a_rest() -> None:
    body = """main (float[2,5] x) => (float[2,1] last, float[2,3] first, int64 n) {
      two = Constant <value = int64 {2}> ()
      parts = SplitToSequence <axis = -1> (x, two)
      end = Constant <value = int64 {-1}> ()
      last = SequenceAt (parts, end)
      one = Constant <value = int64 {1}> ()
      fewer = SequenceErase (parts, one)
      first = ConcatFromSequence <axis = 1> (fewer)
      n = SequenceLength (fewer)
    }"""
    last, first, n = results(body, x=X)
    np.testing.assert_array_equal(last, X[:, 4:])
    np.testing.assert_array_equal(first, X[:, [0, 1, 4]])
    assert n == 2


def test_rows_without_their_dim_are_stacked_along_another() -> None:
    body = """main (float[2,5] x, float[5] r) => (float[5,3] y) {
      rows = SplitToSequence <axis = 0, keepdims = 0> (x)
      first = Constant <value = int64 {-2}> ()
      more = SequenceInsert (rows, r, first)
      y = ConcatFromSequence <axis = -1, new_axis = 1> (more)
    }"""
    row = np.full(5, 7, np.float32)
    (y,) = results(body, x=X, r=row)
    np.testing.assert_array_equal(y, np.stack([row, *X], -1))


def test_parts_of_given_sizes() -> None:
    body = """main (float[2,5] x) => (float[2,5] y) {
      sizes = Constant <value = int64[3] {1, 3, 1}> ()
      parts = SplitToSequence <axis = 1, keepdims = 0> (x, sizes)
      zero = Constant <value = int64 {0}> ()
      one = SequenceAt (parts, zero)
      last = SequenceErase (parts)
      all = SequenceInsert (last, one)
      y = ConcatFromSequence <axis = 1> (all)
    }"""
    (y,) = results(body, x=X)
    np.testing.assert_array_equal(y, X[:, [0, 1, 2, 3, 0]])


def test_list_that_a_loop_appends_to() -> None:
    """How scripted modules are exported: by hand, s is x, 2x, 4x before each iteration."""
    body = """main (float[2,5] x) => (float[3,2,5] y) {
      n = Constant <value = int64 {3}> ()
      go = Constant <value = bool {1}> ()
      none = SequenceEmpty ()
      s, all = Loop (n, go, x, none) <body = step (int64 i, bool c, float[2,5] t, seq(float[2,5]) l)
                                            => (bool d, float[2,5] u, seq(float[2,5]) m) {
        d = Identity (c)
        m = SequenceInsert (l, t)
        u = Add (t, t)
      }>
      y = ConcatFromSequence <axis = 0, new_axis = 1> (all)
    }"""
    (y,) = results(body, x=X)
    np.testing.assert_array_equal(y, np.stack([X, 2 * X, 4 * X]))


def test_optional_values_are_what_they_are_made_of() -> None:
    body = """main (float[2,5] x) => (float[2,5] y, float[2,5] z, bool b) {
      h = Neg (x)
      o = Optional (h)
      b = OptionalHasElement (o)
      g = OptionalGetElement (o)
      y = Relu (g)
      z = OptionalGetElement (h)
    }"""
    y, z, b = run(folded(body), {"x": -X}).values()
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(z, X)
    assert b
