"""`verify` cannot be fooled: wrong programs whose faults are small, rare or on one device are told from right ones, and rounding is
told from faults."""

import re
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.errors import DistirError
from distir.dialects.onnx import Onnx
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.comparison import compare, disturbed, whole_pieces
from distir.interpreters.equivalence import drawings, expectations, verify
from distir.interpreters.inputs import index_limit, special_indices
from distir.interpreters.reference import _is_moved, run_pieces  # pyright: ignore[reportPrivateUsage]
from distir.interpreters.weights import attach
from distir.passes.dtp_parallelize import DtpParallelizePass


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Dist, Func, Onnx):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def elementwise(*ops: str) -> str:
    """`Mul %a %b` and so on as text, results %0, %1, ..."""
    lines = [op.split() for op in ops]
    return "\n".join(
        f'%{i} = "onnx.{name}"({", ".join(values)}) : ({", ".join(["T"] * len(values))}) -> T'
        for i, (name, *values) in enumerate(lines)
    )


PORTS = '{{dist.name = "{}", dist.role = "{}"{}}}'
TRAINING = """
func.func @main(%x: T {x}, %w: T {w}) -> (T {w}) {{
  %rate = onnx.Constant dense<{rate:.9e}> : T
  {body}
  func.return %1 : T
}}
"""
REPLICAS = """
builtin.module attributes {{dist.devices = 2 : i64}} {{
  func.func @update(%x: T, %w: T) -> T {{
    %rate = onnx.Constant dense<{rate:.9e}> : T
    {body}
    func.return %1 : T
  }}
  func.func @other(%x: T, %w: T) -> T {{
    {other}
    func.return %0 : T
  }}
  func.func @main(%x0: T0 {x}, %x1: T1 {x}, %w0: T0 {w}, %w1: T1 {w}) -> (T0 {w}, T1 {w}) {{
    %a = dist.call @{first}(%x0, %w0) on [0] : (T0, T0) -> T0
    %b = dist.call @{second}(%x1, %w1) on [1] : (T1, T1) -> T1
    func.return %a, %b : T0, T1
  }}
}}
"""
STEP = elementwise("Mul %x %rate", "Sub %w %0")


def training(rate: float, type_: str = "tensor<4xf32>") -> ModuleOp:
    text = TRAINING.format(rate=rate, body=STEP, x=PORTS.format("x", "input", ""), w=PORTS.format("w", "parameter", ""))
    return parse(text.replace("T", type_))


def replicas(rate: float, first: str, second: str, other: str) -> ModuleOp:
    part = ", dist.part = #dist.part<[0:4] of [4]>"
    x, w = PORTS.format("x", "input", part), PORTS.format("w", "parameter", part)
    text = REPLICAS.format(rate=rate, body=STEP, first=first, second=second, other=other, x=x, w=w)
    for device in "01":
        text = text.replace(f"T{device}", f"tensor<4xf32, #dist.on<{device}>>")
    return parse(text.replace("T", "tensor<4xf32>"))


@pytest.mark.parametrize(("first", "second"), [("other", "update"), ("update", "other")])
@pytest.mark.parametrize("rate", [0.1, 1e-9, 1e-12])
def test_a_replica_that_ignores_its_gradient(first: str, second: str, rate: float):
    """However small the learning rate, and whichever the device."""
    stays = elementwise("Identity %w")
    found = verify(training(rate), replicas(rate, first, second, stays))
    assert not found.holds
    assert verify(training(rate), replicas(rate, "update", "update", stays)).holds


def test_replicas_are_equal_to_rounding_whatever_the_tolerance():
    near = "%s = onnx.Constant dense<1.000001> : T\n" + elementwise("Mul %w %s")
    (comparison,) = verify(training(0.0), replicas(0.0, "update", "other", near), tolerance=1.0).comparisons
    assert "the replicas of devices 0 and 1 disagree" in comparison.says


def test_small_values_are_compared():
    """An output of 1e-12 that is twice what it should be."""

    def scaled(by: float) -> ModuleOp:
        body = elementwise("Mul %x %c")
        text = f"func.func @main(%x: T) -> T {{ %c = onnx.Constant dense<{by:.9e}> : T\n {body}\n func.return %0 : T }}"
        return parse(text.replace("T", "tensor<4xf32>"))

    assert verify(scaled(1e-12), scaled(1e-12)).holds
    assert not verify(scaled(1e-12), scaled(2e-12)).holds
    assert not verify(scaled(1e-12), scaled(1.000001e-12)).holds


def test_results_of_other_element_types():
    """All is computed in f64: what a program rounds to would not be seen."""
    cast = '%h = "onnx.Cast"(%x) <{to = f16}> : (tensor<4xf32>) -> tensor<4xf16>'
    a = parse(
        'func.func @main(%x: T) -> T { %0 = "onnx.Relu"(%x) : (T) -> T func.return %0 : T }'.replace(
            "T", "tensor<4xf32>"
        )
    )
    b = parse(
        f'func.func @main(%x: tensor<4xf32>) -> tensor<4xf16> {{ {cast} %0 = "onnx.Relu"(%h) : (H) -> H func.return %0 : H }}'.replace(
            "H", "tensor<4xf16>"
        )
    )
    comparison = next(c for c in verify(a, b).comparisons if not c.holds)
    assert comparison.says == "elements of f32 and f16"


CAST = """
func.func @main(%x: tensor<4xf32> {dist.name = "x"}) -> (tensor<4xf32> {dist.name = "y"}) {
  %0 = "onnx.Cast"(%x) <{to = TYPE}> : (tensor<4xf32>) -> tensor<4xTYPE>
  %1 = "onnx.Mul"(%0, %0) : (tensor<4xTYPE>, tensor<4xTYPE>) -> tensor<4xTYPE>
  %2 = "onnx.Cast"(%1) <{to = f32}> : (tensor<4xTYPE>) -> tensor<4xf32>
  func.return %2 : tensor<4xf32>
}
"""
WHOLE, HALF, BRAIN, DOUBLE = (CAST.replace("TYPE", type_) for type_ in ("f32", "f16", "bf16", "f64"))


@pytest.mark.parametrize(
    ("first", "second", "differs"),
    [
        (WHOLE, HALF, True),
        (WHOLE, BRAIN, True),
        (WHOLE, DOUBLE, False),
        (HALF, WHOLE, False),
        (BRAIN, HALF, True),  # its range is smaller
        (HALF, BRAIN, True),  # it has fewer digits
        (HALF, HALF, False),
    ],
)
def test_values_inside_that_are_rounded_more(first: str, second: str, differs: bool):
    found = verify(parse(first), parse(second))
    assert found.holds is not differs
    assert [c.name for c in found.comparisons if not c.holds] == (["onnx.Cast", "onnx.Mul"] if differs else [])


def test_an_argument_of_its_own_is_refused():
    """Its value would come from nowhere."""
    a = parse("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { func.return %x : tensor<4xf32> }")
    b = parse("func.func @main(%y: tensor<4xf32>) -> tensor<4xf32> { func.return %y : tensor<4xf32> }")
    attach(b, {"y": np.zeros(4, np.float32)})
    with pytest.raises(DistirError, match=r"has an argument 'y'"):
        verify(a, b)


LOSS = """
func.func @main(%s: tensor<12x5xf32> {{dist.name = "s", dist.role = "input"}},
                %l: tensor<12xi64> {{dist.name = "l", dist.role = "label"}}) -> tensor<f32> {{
  %y, %p = "onnx.SoftmaxCrossEntropyLoss"(%s, %l) <{{{ignored}reduction = "mean"}}>
    : (tensor<12x5xf32>, tensor<12xi64>) -> (tensor<f32>, tensor<12x5xf32>)
  func.return %y : tensor<f32>
}}
"""


PADDED = """
func.func @main(%t: tensor<3x7xf32> {dist.name = "t", dist.role = "input"}, %l: tensor<3x4xi64> {dist.name = "l", dist.role = "label"},
                %n: tensor<3x1xi64> {dist.name = "n", dist.role = "input"}) -> (tensor<3x4xf32>, tensor<3x4xi1>) {
  %zero = onnx.Constant dense<[0]> : tensor<1xi64>
  %special = onnx.Constant dense<[-8]> : tensor<1xi64>
  %places = onnx.Constant dense<[0, 1, 2, 3]> : tensor<4xi64>
  %inside = "onnx.Less"(%places, %n) : (tensor<4xi64>, tensor<3x1xi64>) -> tensor<3x4xi1>
  %is_special = "onnx.Equal"(%l, %special) : (tensor<3x4xi64>, tensor<1xi64>) -> tensor<3x4xi1>
  %known = "onnx.Where"(%inside, %l, %zero) : (tensor<3x4xi1>, tensor<3x4xi64>, tensor<1xi64>) -> tensor<3x4xi64>
  %y = "onnx.GatherElements"(%t, %known) <{axis = 1 : si64}> : (tensor<3x7xf32>, tensor<3x4xi64>) -> tensor<3x4xf32>
  func.return %y, %is_special : tensor<3x4xf32>, tensor<3x4xi1>
}
"""


def test_a_number_that_only_padding_hides_is_no_label():
    """With all lengths 0 the program reads no label, and any number would do."""
    assert special_indices(parse(PADDED), "l") == []


def test_labels_have_what_a_loss_ignores_and_the_edge_classes():
    module = parse(LOSS.format(ignored="ignore_index = -7 : si64, "))
    assert special_indices(module, "l") == [-7]
    assert special_indices(parse(LOSS.format(ignored="")), "l") == []
    for expectation in expectations(module, drawings(module)):
        labels = set(expectation.values["l"].tolist())
        assert -7 in labels
        assert labels - {-7} <= set(range(5))
    every = [set(e.values["l"].tolist()) for e in expectations(module, drawings(module))]
    assert any({0, 4} <= labels for labels in every)


def test_no_label_is_ignored_where_each_has_a_mean_of_its_own():
    """Gradients of single samples: a mean over one label that is ignored is no number."""
    rows = "\n".join(
        f"""%i{i} = onnx.Constant dense<[{i}]> : tensor<1xi64>
        %s{i} = "onnx.Gather"(%s, %i{i}) <{{axis = 0 : si64}}> : (tensor<2x5xf32>, tensor<1xi64>) -> tensor<1x5xf32>
        %l{i} = "onnx.Gather"(%l, %i{i}) <{{axis = 0 : si64}}> : (tensor<2xi64>, tensor<1xi64>) -> tensor<1xi64>
        %y{i}, %p{i} = "onnx.SoftmaxCrossEntropyLoss"(%s{i}, %l{i}) <{{ignore_index = -7 : si64, reduction = "mean"}}>
          : (tensor<1x5xf32>, tensor<1xi64>) -> (tensor<f32>, tensor<1x5xf32>)"""
        for i in range(2)
    )
    module = parse(f"""
      func.func @main(%s: tensor<2x5xf32> {{dist.name = "s", dist.role = "input"}},
                      %l: tensor<2xi64> {{dist.name = "l", dist.role = "label"}}) -> (tensor<f32>, tensor<f32>) {{
        {rows}
        func.return %y0, %y1 : tensor<f32>, tensor<f32>
      }}""")
    assert special_indices(module, "l") == [-7]
    found = [expectation.values["l"].tolist() for expectation in expectations(module, drawings(module))]
    assert found
    assert all(-7 not in labels for labels in found)


@pytest.mark.parametrize("lacks", ["Min", "Max"])
def test_both_sides_of_what_clips_a_gradient_are_met(lacks: str):
    """A norm that is above and below what it is clipped to."""
    text = """func.func @main(%x: tensor<6x3xf32> {dist.name = "x", dist.role = "input"},
        %w: tensor<6x3xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<6x3xf32> {dist.name = "w"}) {
      %g = "onnx.Mul"(%x, %w) : (tensor<6x3xf32>, tensor<6x3xf32>) -> tensor<6x3xf32>
      %n = "onnx.ReduceL2"(%g) <{keepdims = 0 : si64}> : (tensor<6x3xf32>) -> tensor<f32>
      %half = onnx.Constant dense<0.5> : tensor<f32>
      %one = onnx.Constant dense<1.0> : tensor<f32>
      %least = onnx.Constant dense<0.3> : tensor<f32>
      %c = "onnx.Div"(%half, %n) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      %d = "onnx.Min"(%c, %one) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      %e = "onnx.Max"(%d, %least) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      %s = "onnx.Mul"(%g, %e) : (tensor<6x3xf32>, tensor<f32>) -> tensor<6x3xf32>
      %v = "onnx.Sub"(%w, %s) : (tensor<6x3xf32>, tensor<6x3xf32>) -> tensor<6x3xf32>
      func.return %v : tensor<6x3xf32>
    }"""
    wrong = re.sub(rf'"onnx.{lacks}"\((%\w), %\w+\)', rf'"onnx.{lacks}"(\1, \1)', text)
    assert verify(parse(text), parse(text)).holds
    assert not verify(parse(text), parse(wrong)).holds


def test_every_value_is_another_and_none_is_zero_or_one():
    text = """func.func @main(%x: tensor<6x3xf32> {dist.name = "x", dist.role = "input"},
        %a: tensor<6xf32> {dist.name = "a", dist.role = "parameter"}, %b: tensor<6xf32> {dist.name = "b", dist.role = "parameter"},
        %v: tensor<6x3xf32> {dist.name = "v", dist.role = "state"}, %n: tensor<i64> {dist.name = "n", dist.role = "state"})
        -> (tensor<6x3xf32> {dist.name = "v"}, tensor<i64> {dist.name = "n"}) {
      %w = "onnx.Abs"(%x) : (tensor<6x3xf32>) -> tensor<6x3xf32>
      %u = "onnx.Add"(%v, %w) : (tensor<6x3xf32>, tensor<6x3xf32>) -> tensor<6x3xf32>
      %one = onnx.Constant dense<1> : tensor<i64>
      %m = "onnx.Add"(%n, %one) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      func.return %u, %m : tensor<6x3xf32>, tensor<i64>
    }"""
    module = parse(text)
    attach(module, {"a": np.ones(6, np.float32), "b": np.zeros(6, np.float32)})
    found = {e.says: e.values for e in expectations(module, drawings(module))}
    assert list(found) == ["seed 0", "the model's own values", "seed 1", "seed 2"]
    own = found.pop("the model's own values")
    assert own["a"].tolist() == [1.0] * 6
    for values in found.values():
        assert not np.isin(np.concatenate([values["a"], values["b"]]), [0, 1]).any()
        assert not np.array_equal(values["a"], values["b"])
        assert values["n"] > 0
        assert values["v"].min() > 0
    assert found["seed 2"]["v"].max() < 0.01


NOISE = (
    """
func.func @main(%x: tensor<64xf32> {dist.name = "x", dist.role = "input"}, %w: T {dist.name = "w", dist.role = "parameter"})
    -> (T {dist.name = "w", dist.role = "parameter"} MORE) {
  %y = "onnx.Sigmoid"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %m = "onnx.ReduceMean"(%y) <{keepdims = 1 : si64}> : (tensor<64xf32>) -> T
  %c = "onnx.Sub"(%y, %m) : (tensor<64xf32>, T) -> tensor<64xf32>
  %g = "onnx.ReduceSum"(%c) <{keepdims = 1 : si64}> : (tensor<64xf32>) -> T
  %a = "onnx.Abs"(%g) : (T) -> T
  %e = onnx.Constant dense<1.0e-12> : T
  %d = "onnx.Add"(%a, %e) : (T, T) -> T
  %u = "onnx.Div"(%g, %d) : (T, T) -> T
  %n = "onnx.Sub"(%w, %u) : (T, T) -> T
  func.return %n RESULT
}
""".replace("T ", "tensor<1xf32> ")
    .replace("T)", "tensor<1xf32>)")
    .replace("T,", "tensor<1xf32>,")
)


def noise(more: bool, reverse: bool) -> ModuleOp:
    """The sum of what is centred is zero but for rounding, and an update like Adam's divides it by its size."""
    text = NOISE.replace("MORE", ", tensor<64xf32>" if more else "").replace("-> T\n", "-> tensor<1xf32>\n")
    text = text.replace(": T\n", ": tensor<1xf32>\n")
    text = text.replace("RESULT", ", %c : tensor<1xf32>, tensor<64xf32>" if more else ": tensor<1xf32>")
    if reverse:  # the same sum in another order
        text = text.replace('"onnx.ReduceSum"(%c)', '"onnx.ReduceSum"(%q)').replace(
            "  %g =",
            """  %s = onnx.Constant dense<[8, 8]> : tensor<2xi64>
  %o = onnx.Constant dense<[64]> : tensor<1xi64>
  %f = "onnx.Reshape"(%c, %s) : (tensor<64xf32>, tensor<2xi64>) -> tensor<8x8xf32>
  %t = "onnx.Transpose"(%f) <{perm = [1 : si64, 0 : si64]}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %q = "onnx.Reshape"(%t, %o) : (tensor<8x8xf32>, tensor<1xi64>) -> tensor<64xf32>
  %g =""",
        )
    return parse(text)


def test_what_rounding_decides_is_not_called_a_fault():
    found = verify(noise(True, False), noise(True, True))
    assert found.holds, found.comparisons
    assert found.comparisons[0].says.endswith("; rounding decides 1 of 1 elements")


def test_a_program_of_which_rounding_decides_all_is_not_called_right():
    (comparison,) = verify(noise(False, False), noise(False, True)).comparisons
    assert not comparison.holds
    assert comparison.says == "rounding decides all of it: a wrong value would not be seen"


def test_a_tolerance_finer_than_rounding_is_meant():
    """f32 to 1e-10: no allowance for rounding."""
    assert not verify(noise(True, False), noise(True, True), dtype=np.float32).holds


def test_moves_widen_what_they_move_only():
    expected = {"w": np.array([1.0, 1.0]), "y": np.ones(2)}
    got = whole_pieces({"w": np.array([1.3, 1.0]), "y": np.ones(2)})
    arguments = {"w": np.array([0.0, 0.0])}
    moves = {"w": np.array([0.2, 0.0]), "y": np.zeros(2)}
    assert all(c.holds for c in compare(expected, got, 1e-10, arguments, [moves]))
    moves = {"w": np.array([0.0, 0.2]), "y": np.zeros(2)}
    assert not all(c.holds for c in compare(expected, got, 1e-10, arguments, [moves]))


@pytest.mark.parametrize(
    ("flipped", "by", "dtype", "holds"),
    [(3, 2, np.float32, True), (4, 2, np.float32, False), (3, 25, np.float32, False), (3, 2, np.float64, False)],
    ids=["as many", "more", "further", "in f64"],
)
def test_rounding_decides_for_other_elements_in_each_run(flipped: int, by: int, dtype: type, holds: bool):
    """Adam's first step is the sign of a gradient. In f64 only one that is zero but for rounding has no sign."""
    expected, moves, before = np.ones(100, dtype), np.zeros(100), np.zeros(100, dtype)
    got = expected.copy()
    got[:flipped] -= by
    moves[50:53] = 2
    (found,) = compare({"w": expected}, whole_pieces({"w": got}), 1e-5, {"w": before}, [{"w": moves}])
    assert found.holds == holds
    assert not holds or found.says.endswith("; rounding decides 6 of 100 elements")


def test_only_as_many_runs_are_made_as_explain_what_differs():
    expected = {"w": np.array([1.0, 1.0]), "y": np.ones(2), "z": np.ones(2)}
    got = whole_pieces({"w": np.array([1.3, 1.0]), "y": np.array([1.0, 1.3]), "z": np.ones(2)})
    made: list[int] = []

    def runs() -> Iterator[dict[str, np.ndarray]]:
        distance = {name: np.zeros(2) for name in expected}
        for i, (name, at) in enumerate((("w", 1), ("w", 0), ("z", 0), ("y", 1), ("y", 0))):
            made.append(i)
            distance[name][at] = 0.2
            yield distance

    assert all(c.holds for c in compare(expected, got, 1e-10, {}, runs()))
    assert made == [0, 1, 2, 3]
    got = whole_pieces({"w": np.array([1.0, 1.0]), "y": np.ones(2), "z": np.array([1.0, 1.3])})
    made.clear()
    assert [c.name for c in compare(expected, got, 1e-10, {}, runs()) if not c.holds] == ["z"]
    assert made == [0, 1, 2, 3, 4]  # what they do not explain is asked of all


@pytest.mark.parametrize(("steps", "holds"), [(1, True), (-3, True), (5, False)])
def test_numbers_near_zero_are_compared_to_their_last_digit(steps: int, holds: bool):
    """Below 1e-38 numbers of f32 have fewer digits, and all have the same last one."""
    step = np.finfo(np.float32).smallest_subnormal
    expected = {"y": np.array([0.0, 64.0], np.float32) * step}
    got = whole_pieces({"y": expected["y"] + np.float32(steps) * step})
    (found,) = compare(expected, got, 1e-5, {}, [{"y": np.zeros(2)}])
    assert found.holds == holds, found.says


def test_numbers_near_zero_get_another_last_digit():
    step = np.finfo(np.float32).smallest_subnormal
    value = np.full(1000, 64, np.float32) * step
    moved = disturbed(value, 2, value.dtype, np.random.default_rng(0)) - value
    assert set(np.round(moved / step)) == {-2, -1, 0, 1, 2}
    assert not disturbed(np.zeros(9, np.float32), 2, value.dtype, np.random.default_rng(0)).any()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_noise_makes_no_infinity_and_leaves_those_there_are(dtype: str):
    """A mask is minus infinity or the smallest number: noise that is no number says nothing about rounding."""
    numbers = np.dtype(dtype)
    value = np.array([-np.inf, np.inf, 0.0, 1.0, *[ml_dtypes.finfo(numbers).min] * 20], numbers)
    moved = disturbed(value, 4, numbers, np.random.default_rng(0))
    assert moved.dtype == numbers
    assert [*moved[:3]] == [-np.inf, np.inf, 0.0]
    assert np.isfinite(moved[3:].astype(np.float64)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_noise_leaves_what_is_chosen_and_moves_what_is_computed(dtype: str):
    random = np.random.default_rng(0)
    x, y = (random.standard_normal((4, 50)).astype(np.dtype(dtype)) for _ in range(2))
    computed_at_the_end = x.copy()
    computed_at_the_end[-1, -1] = 9
    for moved in (x.T.copy(), np.maximum(x, y), x[:, ::2].repeat(3), np.concatenate((x, y)), x[:0].copy()):
        assert _is_moved(moved, [x, y])
    for computed in (x + y, np.maximum(x, np.zeros_like(x)), computed_at_the_end):
        assert not _is_moved(computed, [x, y])
    assert not _is_moved(x.copy(), [np.ones(3, np.int64)])


def test_whether_a_value_is_computed_takes_no_sorting(monkeypatch: pytest.MonkeyPatch):
    """It is asked at every operation, of values of millions of numbers."""
    x = np.random.default_rng(0).standard_normal(4_000_000).astype(np.float32)
    monkeypatch.setattr(np, "unique", None)
    assert not _is_moved(x + np.float32(1), [x])


def test_addends_of_an_argument_are_none_of_them_zero():
    """A program that takes the first addend for the sum."""
    text = """builtin.module attributes {dist.devices = 2 : i64} {
      func.func @main(%x0: T0 PORT, %x1: T1 PORT) -> (T0 {dist.name = "y"}) {
        func.return %x0 : T0
      }
    }"""
    text = text.replace("PORT", '{dist.name = "x", dist.part = #dist.part<[0:4] of [4], partial sum>}')
    for device in "01":
        text = text.replace(f"T{device}", f"tensor<4xf32, #dist.on<{device}>>")
    whole = 'func.func @main(%x: T {dist.name = "x"}) -> (T {dist.name = "y"}) { func.return %x : T }'
    assert not verify(parse(whole.replace("T", "tensor<4xf32>")), parse(text)).holds


def test_pieces_are_what_devices_have():
    program = replicas(0.5, "update", "update", elementwise("Identity %w"))
    values = {"x": np.ones(4), "w": np.arange(4.0)}
    found = run_pieces(program, values, dtype=np.float64)["w"]
    assert [piece.device for piece in found] == [0, 1]
    assert all(piece.value.tolist() == [-0.5, 0.5, 1.5, 2.5] for piece in found)


def test_no_two_counts_are_equal_in_the_first_draw():
    """What takes the count of another is seen, however many there are."""
    names = [f"state.{number}.step" for number in range(9)]
    arguments = ", ".join(f'%s{i}: tensor<f64> {{dist.name = "{n}", dist.role = "state"}}' for i, n in enumerate(names))
    results = ", ".join(f'tensor<f64> {{dist.name = "{n}"}}' for n in names)
    values, types = ", ".join(f"%s{i}" for i in range(9)), ", ".join(["tensor<f64>"] * 9)
    module = parse(f"func.func @main({arguments}) -> ({results}) {{ func.return {values} : {types} }}")
    first = drawings(module)[0].candidates[0]()
    assert first is not None
    assert sorted(float(first[name]) for name in names) == list(range(1, 10))


class Columns(nn.Module):
    """Categories of three columns in one table, each at an offset of its own."""

    offsets: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Parameter(torch.randn(18, 8)), nn.Linear(24, 4)
        self.register_buffer("offsets", torch.tensor([0, 5, 11]))

    def forward(self, categories: torch.Tensor) -> torch.Tensor:
        return self.out(self.table[categories + self.offsets].flatten(1))


def test_tables_of_integers_are_what_they_are() -> None:
    """Drawn offsets would lead out of the table, and indices are drawn as far as the model's offsets let them be."""
    batch = torch.randint(0, 5, (4, 3)), torch.randn(4, 4)
    model = Columns()
    module = import_step(
        training_step(model, mse_loss, torch.optim.SGD(model.parameters(), lr=0.1), example_args=batch)
    )
    assert index_limit(module, "categories") == 7
    distributed = module.clone()
    DtpParallelizePass(dp=2, tp=2).apply(Context(), distributed)
    assert verify(module, distributed)
