"""Control flow that stays one operation, when it is distributed: it runs whole on every device of its stage, and what its
graphs use from outside is whole there; the batch does not pass through it."""

import numpy as np
import onnx
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.onnx import import_model
from distir.interpreters.reference import run
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.outline_repeats import OutlineRepeatsPass


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def initializer(name: str, seed: int, *shape: int) -> str:
    numbers = ", ".join(f"{x:.4f}" for x in floats(seed, *shape).reshape(-1))
    return f"float[{','.join(map(str, shape))}] {name} = {{{numbers}}}"


def model(signature: str, body: str, *initializers: str) -> ModuleOp:
    text = f'<ir_version: 10, opset_import: ["" : 21]>\nmain {signature} <{", ".join(initializers)}> {{ {body} }}'
    return import_model(onnx.parser.parse_model(text))


WEIGHTS = initializer("w", 1, 8, 16), initializer("v", 2, 16, 8), initializer("u", 3, 8, 8)


def loop_and_branch() -> ModuleOp:
    """An MLP, a loop whose graph uses a parameter and the MLP's result, a branch with a loop inside that uses the first loop's, an MLP. Nothing
    says that `x` is a batch: `z` keeps its rows together."""
    body = """
      h = MatMul (x, w)
      r = Relu (h)
      g = MatMul (r, v)
      z = Loop (n, , g) <body = step (int64 i, bool k, float[4,8] s) => (bool d, float[4,8] t) {
        d = Identity (k)
        m = MatMul (s, u)
        a = Add (m, g)
        t = Tanh (a)
      }>
      e = If (c) <then_branch = yes () => (float[4,8] a) { a = Mul (z, x) },
                  else_branch = no () => (float[4,8] b) {
        b = Loop (n, , z) <body = inner (int64 i, bool k, float[4,8] s) => (bool d, float[4,8] t) {
          d = Identity (k)
          t = Sub (s, g)
        }>
      }>
      p = MatMul (e, w)
      y = MatMul (p, v)"""
    return model("(float[4,8] x, int64 n, bool c) => (float[4,8] y)", body, *WEIGHTS)


def distributed(source: ModuleOp, **options: int | str) -> ModuleOp:
    module = source.clone()
    DtpParallelizePass(**options).apply(Context(), module)  # pyright: ignore[reportArgumentType]
    module.verify()
    return module


def assert_equal(one: ModuleOp, other: ModuleOp, inputs: dict[str, np.ndarray]) -> None:
    parameters = {"w": floats(1, 8, 16), "v": floats(2, 16, 8), "u": floats(3, 8, 8), "p": floats(4, 8, 8)}
    expected, got = (run(module, parameters | inputs, dtype=np.float64) for module in (one, other))
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-12, atol=1e-12)


def test_copies_made_to_find_rules_use_nothing_of_the_model():
    module = loop_and_branch()
    prepare(Context(), module)
    of_model = set(module.walk())
    users = [use.operation for op in module.walk() for result in op.results for use in result.uses]
    assert users
    assert of_model.issuperset(users)


def opaque(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk() if "onnx.opaque" in op.attributes]


@pytest.mark.parametrize("options", [{"tp": 2}, {"pp": 2}, {"tp": 2, "pp": 2}], ids=str)
@pytest.mark.parametrize("branch", [True, False])
def test_each_device_of_the_stage_runs_it_on_whole_values(options: dict[str, int], branch: bool) -> None:
    source = loop_and_branch()
    module = distributed(source, batch="", **options)
    assert opaque(module) == ["onnx.Loop"] * options.get("tp", 1) + ["onnx.If", "onnx.Loop"] * options.get("tp", 1)
    inputs = {"x": floats(0, 4, 8), "n": np.array(3), "c": np.array(branch)}
    assert_equal(source, module, inputs)


def test_batch_that_enters_an_operand_is_gathered() -> None:
    source = loop_and_branch()
    module = distributed(source, dp=2, batch="x:0")
    inputs = {"x": floats(0, 4, 8), "n": np.array(3), "c": np.array(True)}
    assert_equal(source, module, inputs)
    assert any(op.name == "dist.allgather" for op in module.walk())


def test_batch_that_enters_a_graph() -> None:
    """It is whole inside."""
    body = """
      e = If (c) <then_branch = yes () => (float[4,8] a) { a = Relu (x) },
                  else_branch = no () => (float[4,8] b) {
        b = Loop (n, , x) <body = step (int64 i, bool k, float[4,8] s) => (bool d, float[4,8] t) {
          d = Identity (k)
          t = Neg (s)
        }>
      }>
      y = MatMul (e, w)"""
    source = model("(float[4,8] x, int64 n, bool c) => (float[4,16] y)", body, WEIGHTS[0])
    inputs = {"x": floats(0, 4, 8), "n": np.array(3), "c": np.array(False)}
    assert_equal(source, distributed(source, dp=2, batch="x:0"), inputs)


def test_what_graphs_take_may_come_from_a_stream() -> None:
    """A collective's result is needed inside a graph first, which waits for it."""
    body = """
      h = MatMul (x, u)
      z = Loop (n, , h) <body = step (int64 i, bool k, float[4,8] s) => (bool d, float[4,8] t) {
        d = Identity (k)
        m = MatMul (s, u)
        t = Add (m, h)
      }>
      y = MatMul (z, w)"""
    source = model("(float[4,8] x, int64 n) => (float[4,16] y)", body, *WEIGHTS)
    module = distributed(source, dp=2, tp=2, overlap=True, chunks=2, chunk_all=True, batch="x:0")
    assert any('"prefetch"' in str(op) or '"collective"' in str(op) for op in module.walk())
    assert_equal(source, module, {"x": floats(0, 4, 8), "n": np.array(2)})


def test_batch_beside_it_is_cut() -> None:
    """The loop works on parameters only: it runs once, before the microbatches."""
    body = """
      z = Loop (n, , u) <body = step (int64 i, bool k, float[8,8] s) => (bool d, float[8,8] t) {
        d = Identity (k)
        m = MatMul (s, u)
        t = Tanh (m)
      }>
      h = MatMul (x, z)
      r = MatMul (h, w)
      y = MatMul (r, v)"""
    source = model("(float[4,8] x, int64 n) => (float[4,8] y)", body, *WEIGHTS)
    module = distributed(source, dp=2, tp=2, microbatches=2, batch="x:0")
    assert opaque(module) == ["onnx.Loop"] * 4  # once on each device
    assert_equal(source, module, {"x": floats(0, 4, 8), "n": np.array(2)})


def test_what_differs_only_inside_is_not_repeated() -> None:
    """Two layers whose loops use different parameters, and a third whose loop computes something else."""

    def layer(i: int, function: str, weight: str) -> str:
        return f"""
      h{i} = MatMul (x{i}, u)
      z{i} = Loop (n, , h{i}) <body = step{i} (int64 i, bool k, float[8,8] s) => (bool d, float[8,8] t) {{
        d = Identity (k)
        m = MatMul (s, {weight})
        t = {function} (m)
      }}>
      x{i + 1} = Relu (z{i})"""

    body = layer(0, "Tanh", "u") + layer(1, "Tanh", "p") + layer(2, "Sigmoid", "p") + "\n y = Identity (x3)"
    source = model("(float[8,8] x0, int64 n) => (float[8,8] y)", body, WEIGHTS[2], initializer("p", 4, 8, 8))
    module = source.clone()
    OutlineRepeatsPass().apply(Context(), module)
    module.verify()
    assert_equal(source, module, {"x0": floats(0, 8, 8), "n": np.array(2)})
