"""Wrong programs that a person would write: none is proven, beside a right one that is."""

import re

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.interpreters.proof import Proof, prove
from distir.passes.dtp_parallelize import prepare
from tests.unit.equivalence.test_random_models import parse


def proof_of(sequential: str, distributed: str) -> Proof:
    model = parse(generic(sequential))
    prepare(Context(), model)
    return prove(model, placed(distributed))


def generic(text: str) -> str:
    """Operators as xDSL prints them."""
    return re.sub(r"= onnx\.(?!Constant)(\w+) (%\w+(?:, %\w+)*)", r'= "onnx.\1"(\2)', text)


def placed(text: str) -> ModuleOp:
    """`4x6@1` is a tensor on device 1."""
    devices = max(map(int, re.findall(r"@(\d)\b", text))) + 1
    text = re.sub(r"\b((?:\d+x)*)@(\d)\b", r"tensor<\1f32, #dist.on<\2>>", text)
    return parse(f"builtin.module attributes {{dist.devices = {devices} : i64}} {{\n{generic(text)}\n}}")


def attack(text: str, old: str, new: str) -> str:
    assert text.count(old) >= 1, old
    return text.replace(old, new)


def check(sequential: str, right: str, wrong: list[tuple[str, str]]) -> None:
    """The right program is proven; with any of these changes it is not, and the reason names an operation or a result."""
    proof = proof_of(sequential, right)
    assert proof, proof.failures
    for old, new in wrong:
        proof = proof_of(sequential, attack(right, old, new))
        assert not proof, (old, new)
        assert proof.failures[0].operation
        assert proof.failures[0].reason


MEAN = """
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<6xf32> {dist.name = "y", dist.role = "output"}) {
  %axes = onnx.Constant dense<[0]> : tensor<1xi64>
  %y = onnx.ReduceMean %x, %axes <{keepdims = 0 : i64}> : (tensor<4x6xf32>, tensor<1xi64>) -> tensor<6xf32>
  func.return %y : tensor<6xf32>
}"""
MEAN_OF_UNEVEN_SHARDS = """
func.func @main(%a: 1x6x@0 {dist.name = "x", dist.role = "input", dist.part = #dist.part<[0:1, 0:6] of [4, 6]>},
                %b: 3x6x@1 {dist.name = "x", dist.role = "input", dist.part = #dist.part<[1:4, 0:6] of [4, 6]>})
    -> (6x@0 {dist.name = "y", dist.role = "output"}, 6x@1 {dist.name = "y", dist.role = "output"}) {
  %axes = onnx.Constant dense<[0]> : tensor<1xi64, #dist.on<0>>
  %axes1 = onnx.Constant dense<[0]> : tensor<1xi64, #dist.on<1>>
  %0 = onnx.ReduceMean %a, %axes <{keepdims = 0 : i64}> : (1x6x@0, tensor<1xi64, #dist.on<0>>) -> 6x@0
  %1 = onnx.ReduceMean %b, %axes1 <{keepdims = 0 : i64}> : (3x6x@1, tensor<1xi64, #dist.on<1>>) -> 6x@1
  %s0 = dist.scale %0 by 1/4 : 6x@0
  %s1 = dist.scale %1 by 3/4 : 6x@1
  %r0, %r1 = dist.allreduce sum %s0, %s1 : (6x@0, 6x@1) -> (6x@0, 6x@1)
  func.return %r0, %r1 : 6x@0, 6x@1
}"""


def test_a_mean_is_weighted_by_what_a_shard_has():
    check(
        MEAN,
        MEAN_OF_UNEVEN_SHARDS,
        [
            ("by 3/4", "by 1/2"),
            ("by 1/4", "by 1/2"),
            ("by 1/4", "by 3/4"),
            ("dist.allreduce sum %s0, %s1", "dist.allreduce mean %s0, %s1"),
            ("dist.allreduce sum %s0, %s1", "dist.allreduce mean %0, %1"),
            ("dist.allreduce sum %s0, %s1", "dist.allreduce sum %0, %1"),
            ("func.return %r0, %r1", "func.return %s0, %r1"),
            ("func.return %r0, %r1", "func.return %r0, %s1"),
        ],
    )


CONTRACTION = """
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<6x8xf32> {dist.name = "w", dist.role = "parameter"},
                %b: tensor<8xf32> {dist.name = "b", dist.role = "parameter"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %0 = onnx.MatMul %x, %w : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  %1 = onnx.Add %0, %b : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %2 = onnx.Relu %1 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %2 : tensor<4x8xf32>
}"""
ON_A_MESH = """
func.func @main(%x0: 2x3x@0 {dist.name = "x", dist.role = "input", dist.part = #dist.part<[0:2, 0:3] of [4, 6]>},
                %x1: 2x3x@1 {dist.name = "x", dist.role = "input", dist.part = #dist.part<[0:2, 3:6] of [4, 6]>},
                %x2: 2x3x@2 {dist.name = "x", dist.role = "input", dist.part = #dist.part<[2:4, 0:3] of [4, 6]>},
                %x3: 2x3x@3 {dist.name = "x", dist.role = "input", dist.part = #dist.part<[2:4, 3:6] of [4, 6]>},
                %w0: 3x8x@0 {dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[0:3, 0:8] of [6, 8]>},
                %w1: 3x8x@1 {dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[3:6, 0:8] of [6, 8]>},
                %w2: 3x8x@2 {dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[0:3, 0:8] of [6, 8]>},
                %w3: 3x8x@3 {dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[3:6, 0:8] of [6, 8]>},
                %b0: 8x@0 {dist.name = "b", dist.role = "parameter"}, %b1: 8x@1 {dist.name = "b", dist.role = "parameter"},
                %b2: 8x@2 {dist.name = "b", dist.role = "parameter"}, %b3: 8x@3 {dist.name = "b", dist.role = "parameter"})
    -> (2x8x@0 {dist.name = "y", dist.role = "output", dist.part = #dist.part<[0:2, 0:8] of [4, 8]>},
        2x8x@3 {dist.name = "y", dist.role = "output", dist.part = #dist.part<[2:4, 0:8] of [4, 8]>}) {
  %m0 = onnx.MatMul %x0, %w0 : (2x3x@0, 3x8x@0) -> 2x8x@0
  %m1 = onnx.MatMul %x1, %w1 : (2x3x@1, 3x8x@1) -> 2x8x@1
  %m2 = onnx.MatMul %x2, %w2 : (2x3x@2, 3x8x@2) -> 2x8x@2
  %m3 = onnx.MatMul %x3, %w3 : (2x3x@3, 3x8x@3) -> 2x8x@3
  %r0, %r1 = dist.allreduce sum %m0, %m1 : (2x8x@0, 2x8x@1) -> (2x8x@0, 2x8x@1)
  %r2, %r3 = dist.allreduce sum %m2, %m3 : (2x8x@2, 2x8x@3) -> (2x8x@2, 2x8x@3)
  %a0 = onnx.Add %r0, %b0 : (2x8x@0, 8x@0) -> 2x8x@0
  %a3 = onnx.Add %r3, %b3 : (2x8x@3, 8x@3) -> 2x8x@3
  %y0 = onnx.Relu %a0 : (2x8x@0) -> 2x8x@0
  %y3 = onnx.Relu %a3 : (2x8x@3) -> 2x8x@3
  func.return %y0, %y3 : 2x8x@0, 2x8x@3
}"""


def test_collectives_run_over_their_axis_once_and_before_what_is_not_linear():
    over_rows = (
        "%r0, %r2 = dist.allreduce sum %m0, %m2 : (2x8x@0, 2x8x@2) -> (2x8x@0, 2x8x@2)\n"
        "  %r1, %r3 = dist.allreduce sum %m1, %m3 : (2x8x@1, 2x8x@3) -> (2x8x@1, 2x8x@3)\n  %a0"
    )
    twice = "%q0, %q1 = dist.allreduce sum %r0, %r1 : (2x8x@0, 2x8x@1) -> (2x8x@0, 2x8x@1)\n  %a0 = onnx.Add %q0, %b0"
    reductions = ON_A_MESH[ON_A_MESH.index("%r0, %r1 =") : ON_A_MESH.index("%a0 =")]
    assert reductions
    early = (
        "%e0 = onnx.Relu %m0 : (2x8x@0) -> 2x8x@0\n  %e1 = onnx.Relu %m1 : (2x8x@1) -> 2x8x@1\n"
        "  %r0, %r1 = dist.allreduce sum %e0, %e1"
    )
    biased = (
        "%c0 = onnx.Add %m0, %b0 : (2x8x@0, 8x@0) -> 2x8x@0\n  %c1 = onnx.Add %m1, %b1 : (2x8x@1, 8x@1) -> 2x8x@1\n"
        "  %r0, %r1 = dist.allreduce sum %c0, %c1"
    )
    check(
        CONTRACTION,
        ON_A_MESH,
        [
            (reductions + "%a0", over_rows),
            ("%a0 = onnx.Add %r0, %b0", twice),
            ("onnx.Add %r0, %b0", "onnx.Add %m0, %b0"),
            ("%r0, %r1 = dist.allreduce sum %m0, %m1", early),
            ("%r0, %r1 = dist.allreduce sum %m0, %m1", biased),
            ("dist.allreduce sum %m2, %m3", "dist.allreduce max %m2, %m3"),
            ("[0:3, 0:8] of [6, 8]", "[1:4, 0:8] of [6, 8]"),
            ("[2:4, 0:8] of [4, 8]", "[0:2, 0:8] of [4, 8]"),
        ],
    )


EXPERTS = """
func.func @main(%x: tensor<2x4x6xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<2x6x8xf32> {dist.name = "w", dist.role = "parameter"},
                %m: tensor<2x6x8xf32> {dist.name = "m", dist.role = "state"})
    -> (tensor<2x4x8xf32> {dist.name = "y", dist.role = "output"}, tensor<2x6x8xf32> {dist.name = "m", dist.role = "state"},
        tensor<2x6x8xf32> {dist.name = "w", dist.role = "parameter"}) {
  %0 = onnx.MatMul %x, %w : (tensor<2x4x6xf32>, tensor<2x6x8xf32>) -> tensor<2x4x8xf32>
  %1 = onnx.Add %m, %w : (tensor<2x6x8xf32>, tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
  %2 = onnx.Sub %w, %1 : (tensor<2x6x8xf32>, tensor<2x6x8xf32>) -> tensor<2x6x8xf32>
  func.return %0, %1, %2 : tensor<2x4x8xf32>, tensor<2x6x8xf32>, tensor<2x6x8xf32>
}"""


def one_each() -> str:
    def part(e: int, rest: str) -> str:
        return f"dist.part = #dist.part<[{e}:{e + 1}, {rest}>"

    arguments = [
        f'%x{e}: 1x4x6x@{e} {{dist.name = "x", dist.role = "input", {part(e, "0:4, 0:6] of [2, 4, 6]")}}}, '
        f'%w{e}: 1x6x8x@{e} {{dist.name = "w", dist.role = "parameter", {part(e, "0:6, 0:8] of [2, 6, 8]")}}}, '
        f'%m{e}: 1x6x8x@{e} {{dist.name = "m", dist.role = "state", {part(e, "0:6, 0:8] of [2, 6, 8]")}}}'
        for e in (0, 1)
    ]
    results = [
        f'1x4x8x@{e} {{dist.name = "y", dist.role = "output", {part(e, "0:4, 0:8] of [2, 4, 8]")}}}, '
        f'1x6x8x@{e} {{dist.name = "m", dist.role = "state", {part(e, "0:6, 0:8] of [2, 6, 8]")}}}, '
        f'1x6x8x@{e} {{dist.name = "w", dist.role = "parameter", {part(e, "0:6, 0:8] of [2, 6, 8]")}}}'
        for e in (0, 1)
    ]
    body = "".join(
        f"  %y{e} = onnx.MatMul %x{e}, %w{e} : (1x4x6x@{e}, 1x6x8x@{e}) -> 1x4x8x@{e}\n"
        f"  %n{e} = onnx.Add %m{e}, %w{e} : (1x6x8x@{e}, 1x6x8x@{e}) -> 1x6x8x@{e}\n"
        f"  %v{e} = onnx.Sub %w{e}, %n{e} : (1x6x8x@{e}, 1x6x8x@{e}) -> 1x6x8x@{e}\n"
        for e in (0, 1)
    )
    types = ", ".join(f"1x4x8x@{e}, 1x6x8x@{e}, 1x6x8x@{e}" for e in (0, 1))
    return (
        f"func.func @main({', '.join(arguments)}) -> ({', '.join(results)}) {{\n{body}"
        f"  func.return %y0, %n0, %v0, %y1, %n1, %v1 : {types}\n}}"
    )


def test_experts_state_and_weights_keep_their_places():
    right = one_each()
    w1 = right[right.index("%w1:") : right.index("%m1:")]
    m0 = right[right.index("%m0:") : right.index("%x1:")]
    sent = "%t = dist.send %w1 to 0 : 1x6x8x@1 -> 1x6x8x@0\n  %y0 = onnx.MatMul %x0, %t"
    check(
        EXPERTS,
        right,
        [
            (w1, attack(w1, "[1:2,", "[0:1,")),  # a device has the other's expert
            (m0, attack(m0, "[0:1,", "[1:2,")),  # or the other's state
            ("%y0 = onnx.MatMul %x0, %w0", sent),
            ("%v0 = onnx.Sub %w0, %n0", "%v0 = onnx.Sub %w0, %m0"),  # state of the step before
            ("func.return %y0, %n0", "func.return %y0, %m0"),
            ("%v0, %y1", "%w0, %y1"),  # a weight that is not updated
            ("func.return %y0, %n0, %v0", "func.return %y0, %v0, %n0"),
            ("onnx.Sub %w1, %n1", "onnx.Sub %n1, %w1"),
        ],
    )


LAYERS = """
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"},
                %v: tensor<6x6xf32> {dist.name = "v", dist.role = "parameter"},
                %w: tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<6x6xf32> {dist.name = "g", dist.role = "output"}, tensor<4x6xf32> {dist.name = "y", dist.role = "output"}) {
  %0 = onnx.MatMul %x, %v : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %1 = onnx.Relu %0 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = onnx.MatMul %1, %w : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %3 = onnx.Relu %2 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %4 = onnx.Transpose %1 <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %5 = onnx.MatMul %4, %3 : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  func.return %5, %3 : tensor<6x6xf32>, tensor<4x6xf32>
}"""
MICROBATCHES = """
func.func @layer(%x: 2x6x@0, %w: 6x6x@0) -> 2x6x@0 {
  %0 = onnx.MatMul %x, %w : (2x6x@0, 6x6x@0) -> 2x6x@0
  %1 = onnx.Relu %0 : (2x6x@0) -> 2x6x@0
  func.return %1 : 2x6x@0
}
func.func @adding(%g: 6x6x@0, %h: 2x6x@0, %y: 2x6x@0) -> 6x6x@0 {
  %0 = onnx.Transpose %h <{perm = [1, 0]}> : (2x6x@0) -> 6x2x@0
  %1 = onnx.MatMul %0, %y : (6x2x@0, 2x6x@0) -> 6x6x@0
  %2 = dist.accumulate sum %g, %1 : (6x6x@0, 6x6x@0) -> 6x6x@0
  func.return %2 : 6x6x@0
}
func.func @main(%x: 4x6x@0 {dist.name = "x", dist.role = "input"}, %v: 6x6x@0 {dist.name = "v", dist.role = "parameter"},
                %w: 6x6x@0 {dist.name = "w", dist.role = "parameter"})
    -> (6x6x@0 {dist.name = "g", dist.role = "output"}, 4x6x@0 {dist.name = "y", dist.role = "output"}) {
  %a = dist.slice %x [0:2, 0:6] : 4x6x@0 -> 2x6x@0
  %b = dist.slice %x [2:4, 0:6] : 4x6x@0 -> 2x6x@0
  %a1 = dist.call @layer(%a, %v) on [0] : (2x6x@0, 6x6x@0) -> 2x6x@0
  %a2 = dist.call @layer(%a1, %w) on [0] : (2x6x@0, 6x6x@0) -> 2x6x@0
  %b1 = dist.call @layer(%b, %v) on [0] : (2x6x@0, 6x6x@0) -> 2x6x@0
  %b2 = dist.call @layer(%b1, %w) on [0] : (2x6x@0, 6x6x@0) -> 2x6x@0
  %none = dist.zeros : 6x6x@0
  %g1 = dist.call @adding(%none, %a1, %a2) on [0] : (6x6x@0, 2x6x@0, 2x6x@0) -> 6x6x@0
  %g2 = dist.call @adding(%g1, %b1, %b2) on [0] : (6x6x@0, 2x6x@0, 2x6x@0) -> 6x6x@0
  %y = dist.concat %a2, %b2 dim 0 : (2x6x@0, 2x6x@0) -> 4x6x@0
  func.return %g2, %y : 6x6x@0, 4x6x@0
}"""


def test_functions_that_are_proven_for_all_arguments_are_given_the_right_ones():
    """One body stands for both layers and for every microbatch: which values it is given is looked at in each call."""
    check(
        LAYERS,
        MICROBATCHES,
        [
            ("@layer(%a1, %w)", "@layer(%a1, %v)"),  # a layer with the other's weight
            ("@layer(%b, %v)", "@layer(%b, %w)"),
            ("@layer(%b, %v)", "@layer(%a, %v)"),  # a microbatch twice, another never
            ("@adding(%g1, %b1, %b2)", "@adding(%g1, %a1, %a2)"),
            ("@adding(%g1, %b1, %b2)", "@adding(%none, %b1, %b2)"),
            ("@adding(%g1, %b1, %b2)", "@adding(%g1, %b1, %a2)"),  # rows of two microbatches meet
            ("@adding(%g1, %b1, %b2)", "@adding(%v, %b1, %b2)"),  # the sum is begun with something else
            ("@adding(%g1, %b1, %b2)", "@adding(%g1, %b2, %b1)"),
            ("@adding(%none, %a1, %a2)", "@adding(%none, %a, %a2)"),
            ("func.return %g2, %y", "func.return %g1, %y"),
            ("dist.concat %a2, %b2", "dist.concat %b2, %a2"),
            ("dist.concat %a2, %b2", "dist.concat %a1, %b2"),
            ("[2:4, 0:6]", "[1:3, 0:6]"),
            ("dist.accumulate sum", "dist.accumulate max"),
        ],
    )


@pytest.mark.parametrize("wrong", ["%g1", "%none"])
def test_a_sum_that_goes_through_a_function_twice(wrong: str):
    """What has been added already is not added again through another path."""
    again = MICROBATCHES.replace(
        "func.return %g2, %y",
        f"%g3 = dist.accumulate sum %g2, {wrong} : (6x6x@0, 6x6x@0) -> 6x6x@0\n  func.return %g3, %y",
    )
    assert bool(proof_of(LAYERS, again)) == (wrong == "%none")


TANH = """
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x6xf32> {dist.name = "y", dist.role = "output"}) {
  %y = onnx.Tanh %x : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}"""
ROWS_OF_MICROBATCHES = """
func.func @main(%x: 4x6x@0 {dist.name = "x", dist.role = "input"}) -> (4x6x@0 {dist.name = "y", dist.role = "output"}) {
  %z = dist.zeros : 4x6x@0
  %a = dist.slice %x [0:2, 0:6] : 4x6x@0 -> 2x6x@0
  %b = dist.slice %x [2:4, 0:6] : 4x6x@0 -> 2x6x@0
  %0 = onnx.Tanh %a : (2x6x@0) -> 2x6x@0
  %1 = onnx.Tanh %b : (2x6x@0) -> 2x6x@0
  %r = dist.insert %0 into %z dim 0 at 0 : 2x6x@0, 4x6x@0 -> 4x6x@0
  %s = dist.insert %1 into %r dim 0 at 2 : 2x6x@0, 4x6x@0 -> 4x6x@0
  func.return %s : 4x6x@0
}"""


def test_rows_of_outputs_are_inserted_where_they_belong():
    check(
        TANH,
        ROWS_OF_MICROBATCHES,
        [
            ("insert %0 into %z", "insert %1 into %z"),
            ("at 2 ", "at 0 "),
            ("at 2 ", "at 1 "),
            ("return %s", "return %r"),
            ("%1 into %r", "%1 into %z"),
            ("%1 into %r", "%b into %r"),
        ],
    )


ROOTS = """
func.func @main(%x: tensor<4xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<4xf32> {dist.name = "w", dist.role = "input"})
    -> (tensor<4xf32> {dist.name = "n", dist.role = "output"}, tensor<4xf32> {dist.name = "y", dist.role = "output"}) {
  %n = onnx.Neg %x : (tensor<4xf32>) -> tensor<4xf32>
  %s = onnx.Sqrt %x : (tensor<4xf32>) -> tensor<4xf32>
  %y = onnx.Mul %s, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %n, %y : tensor<4xf32>, tensor<4xf32>
}"""
ROOTS_BY_ADDENDS = """
func.func @f(%x: 4x@0, %n: 4x@0, %w: 4x@0) -> 4x@0 {
  %s = onnx.Sqrt %x : (4x@0) -> 4x@0
  %y = onnx.Mul %s, %w : (4x@0, 4x@0) -> 4x@0
  func.return %y : 4x@0
}
func.func @main(%x: 4x@0 {dist.name = "x", dist.role = "input"}, %w: 4x@0 {dist.name = "w", dist.role = "input"},
                %x1: 4x@1 {dist.name = "x", dist.role = "input"})
    -> (4x@0 {dist.name = "n", dist.role = "output"}, 4x@0 {dist.name = "y", dist.role = "output"}, 4x@1 {dist.name = "y", dist.role = "output"}) {
  %n = onnx.Neg %x : (4x@0) -> 4x@0
  %n1 = onnx.Neg %x1 : (4x@1) -> 4x@1
  %w1 = dist.zeros : 4x@1
  %s = onnx.Sqrt %x : (4x@0) -> 4x@0
  %y = onnx.Mul %s, %w : (4x@0, 4x@0) -> 4x@0
  %y1 = dist.call @f(%x1, %n1, %w1) on [1] : (4x@1, 4x@1, 4x@1) -> 4x@1
  %r0, %r1 = dist.allreduce sum %y, %y1 : (4x@0, 4x@1) -> (4x@0, 4x@1)
  func.return %n, %r0, %r1 : 4x@0, 4x@0, 4x@1
}"""


def test_what_zeros_are_multiplied_by_is_a_value_of_the_program():
    """The root of what is negative is no number, and zero times it neither."""
    wrong = [("onnx.Sqrt %x : (4x@0) -> 4x@0\n  %y = onnx.Mul %s, %w : (4x@0, 4x@0) -> 4x@0\n  func", "onnx.Sqrt %n : (4x@0) -> 4x@0\n  %y = onnx.Mul %s, %w : (4x@0, 4x@0) -> 4x@0\n  func"),
             ("@f(%x1, %n1", "@f(%n1, %n1")]  # fmt: skip
    check(ROOTS, ROOTS_BY_ADDENDS, wrong)


QUOTIENT = """
func.func @main(%x: tensor<4xf32> {dist.name = "x"}, %n: tensor<4xf32> {dist.name = "n"}, %w: tensor<4xf32> {dist.name = "w"})
    -> (tensor<4xf32> {dist.name = "y"}) {
  %m = onnx.Mul %n, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %y = onnx.Div %x, %m : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}"""
QUOTIENT_BY_ADDENDS = """
func.func @main(%x: 4x@0 {dist.name = "x"}, %n: 4x@0 {dist.name = "n"}, %n1: 4x@1 {dist.name = "n"}, %w: 4x@0 {dist.name = "w"})
    -> (4x@0 {dist.name = "y"}, 4x@1 {dist.name = "y"}) {
  %z1 = dist.zeros : 4x@1
  %m = onnx.Mul %n, %w : (4x@0, 4x@0) -> 4x@0
  %m1 = onnx.Mul %n1, %z1 : (4x@1, 4x@1) -> 4x@1
  %s, %s1 = dist.allreduce sum %m, %m1 : (4x@0, 4x@1) -> (4x@0, 4x@1)
  %y = onnx.Div %x, %s : (4x@0, 4x@0) -> 4x@0
  %y1 = onnx.Div %z1, %s1 : (4x@1, 4x@1) -> 4x@1
  %r, %r1 = dist.allreduce sum %y, %y1 : (4x@0, 4x@1) -> (4x@0, 4x@1)
  func.return %r, %r1 : 4x@0, 4x@1
}"""


def test_zeros_are_not_divided_by_an_addend():
    """What device 1 has of the divisor is zero."""
    check(QUOTIENT, QUOTIENT_BY_ADDENDS, [("Div %z1, %s1", "Div %z1, %m1"), ("Div %z1, %s1", "Div %z1, %z1")])


def repeated(x: str, four: str, three: str) -> tuple[str, str]:
    """A row that is repeated four times is added to a weight; and in parts, where it is repeated three times, of which two count. `x` is the type of
    the row, the others say how `%r` is made of it."""
    sequential = f"""
func.func @main(%x: tensor<{x}xf32> {{dist.name = "x", dist.role = "input"}}, %w: tensor<12xf32> {{dist.name = "w", dist.role = "parameter"}})
    -> (tensor<12xf32> {{dist.name = "y", dist.role = "output"}}) {{
  {four}
  %y = onnx.Add %r, %w : (tensor<12xf32>, tensor<12xf32>) -> tensor<12xf32>
  func.return %y : tensor<12xf32>
}}"""
    parts = f"""
func.func @main(%x: {x}x@0 {{dist.name = "x", dist.role = "input"}},
                %u: 6x@0 {{dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[0:6] of [12]>}},
                %v: 6x@0 {{dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[6:12] of [12]>}})
    -> (12x@0 {{dist.name = "y", dist.role = "output"}}) {{
  {three}
  %s = dist.slice %r [3:9] : 9x@0 -> 6x@0
  %a = onnx.Add %s, %u : (6x@0, 6x@0) -> 6x@0
  %b = onnx.Add %s, %v : (6x@0, 6x@0) -> 6x@0
  %y = dist.concat %a, %b dim 0 : (6x@0, 6x@0) -> 12x@0
  func.return %y : 12x@0
}}"""
    return sequential, parts


EXPANDED = repeated(
    "1x3",
    """%n = onnx.Constant dense<[4, 3]> : tensor<2xi64>
  %flat = onnx.Constant dense<[12]> : tensor<1xi64>
  %e = onnx.Expand %x, %n : (tensor<1x3xf32>, tensor<2xi64>) -> tensor<4x3xf32>
  %r = onnx.Reshape %e, %flat : (tensor<4x3xf32>, tensor<1xi64>) -> tensor<12xf32>""",
    """%n = onnx.Constant dense<[3, 3]> : tensor<2xi64, #dist.on<0>>
  %flat = onnx.Constant dense<[9]> : tensor<1xi64, #dist.on<0>>
  %e = onnx.Expand %x, %n : (1x3x@0, tensor<2xi64, #dist.on<0>>) -> 3x3x@0
  %r = onnx.Reshape %e, %flat : (3x3x@0, tensor<1xi64, #dist.on<0>>) -> 9x@0""",
)
TILED = repeated(
    "3",
    """%n = onnx.Constant dense<[4]> : tensor<1xi64>
  %r = onnx.Tile %x, %n : (tensor<3xf32>, tensor<1xi64>) -> tensor<12xf32>""",
    """%n = onnx.Constant dense<[3]> : tensor<1xi64, #dist.on<0>>
  %r = onnx.Tile %x, %n : (3x@0, tensor<1xi64, #dist.on<0>>) -> 9x@0""",
)


@pytest.mark.parametrize(("sequential", "parts"), [EXPANDED, TILED])
def test_rows_that_are_repeated_may_be_any_of_them_and_their_columns_may_not(sequential: str, parts: str):
    check(sequential, parts, [("%r [3:9]", "%r [1:7]"), ("%r [3:9]", "%r [2:8]")])
    assert proof_of(sequential, attack(parts, "%r [3:9]", "%r [0:6]"))


FIRST_STEP = """
func.func @main(%w: tensor<4x3xf32> {dist.name = "w", dist.role = "parameter"}, %b: tensor<3xf32> {dist.name = "b", dist.role = "parameter"})
    -> (tensor<2x3xf32> {dist.name = "y", dist.role = "output"}) {
  %h = onnx.Constant dense<0.0> : tensor<2x4xf32>
  %g = onnx.Gemm %h, %w, %b : (tensor<2x4xf32>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %y = onnx.Relu %g : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}"""
FIRST_STEP_IN_PARTS = """
func.func @main(%w: 2x3x@0 {dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[0:2, 0:3] of [4, 3]>},
                %w1: 2x3x@1 {dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[2:4, 0:3] of [4, 3]>},
                %b: 3x@0 {dist.name = "b", dist.role = "parameter"}, %b1: 3x@1 {dist.name = "b", dist.role = "parameter"})
    -> (2x3x@0 {dist.name = "y", dist.role = "output"}, 2x3x@1 {dist.name = "y", dist.role = "output"}) {
  %z1 = dist.zeros : 3x@1
  %h = onnx.Constant dense<0.0> : tensor<2x2xf32, #dist.on<0>>
  %h1 = onnx.Constant dense<0.0> : tensor<2x2xf32, #dist.on<1>>
  %g = onnx.Gemm %h, %w, %b : (2x2x@0, 2x3x@0, 3x@0) -> 2x3x@0
  %g1 = onnx.Gemm %h1, %w1, %z1 : (2x2x@1, 2x3x@1, 3x@1) -> 2x3x@1
  %s, %s1 = dist.allreduce sum %g, %g1 : (2x3x@0, 2x3x@1) -> (2x3x@0, 2x3x@1)
  %y = onnx.Relu %s : (2x3x@0) -> 2x3x@0
  %y1 = onnx.Relu %s1 : (2x3x@1) -> 2x3x@1
  func.return %y, %y1 : 2x3x@0, 2x3x@1
}"""


def test_a_sum_over_a_state_of_zeros_beside_a_bias_that_one_device_adds():
    check(FIRST_STEP, FIRST_STEP_IN_PARTS, [("%w1, %z1", "%w1, %b1"), ("onnx.Relu %s1", "onnx.Relu %g1")])


BY_CONSTANT = """
func.func @main(%x: tensor<2x3xf32> {dist.name = "x"}) -> (tensor<2x4xf32> {dist.name = "y"}) {
  %c = onnx.Constant dense<[[0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 4.0, 9.0], [2.0, 1.0, 8.0, 27.0]]> : tensor<3x4xf32>
  %y = onnx.MatMul %x, %c : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}"""
BY_PARTS_OF_IT = """
func.func @main(%x: 2x3x@0 {dist.name = "x"}) -> (2x4x@0 {dist.name = "y"}) {
  %c = onnx.Constant dense<[[3.0, 0.0], [9.0, 1.0], [27.0, 2.0]]> : tensor<3x2xf32, #dist.on<0>>
  %d = onnx.Constant dense<[[1.0, 2.0], [1.0, 4.0], [1.0, 8.0]]> : tensor<3x2xf32, #dist.on<0>>
  %a = onnx.MatMul %x, %c : (2x3x@0, tensor<3x2xf32, #dist.on<0>>) -> 2x2x@0
  %b = onnx.MatMul %x, %d : (2x3x@0, tensor<3x2xf32, #dist.on<0>>) -> 2x2x@0
  %last = dist.slice %a [0:2, 0:1] : 2x2x@0 -> 2x1x@0
  %first = dist.slice %a [0:2, 1:2] : 2x2x@0 -> 2x1x@0
  %y = dist.concat %first, %b, %last dim 1 : (2x1x@0, 2x2x@0, 2x1x@0) -> 2x4x@0
  func.return %y : 2x4x@0
}"""


def test_which_part_of_a_constant_a_device_has_is_read_off_its_entries():
    check(BY_CONSTANT, BY_PARTS_OF_IT, [("27.0, 2.0", "27.0, 2.5"), ("%first, %b, %last", "%last, %b, %first")])


SCALED_CONSTANT = """
func.func @main(%x: tensor<4x3xf32> {dist.name = "x"}, %e: tensor<f32> {dist.name = "e"}) -> (tensor<4x3xf32> {dist.name = "y"}) {
  %c = onnx.Constant dense<[[1.0], [2.0], [3.0], [4.0]]> : tensor<4x1xf32>
  %s = onnx.Mul %c, %e : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
  %y = onnx.Mul %s, %x : (tensor<4x1xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return %y : tensor<4x3xf32>
}"""
SCALED_CONSTANT_OF_ROWS = """
func.func @main(%x: 2x3x@0 {dist.name = "x", dist.part = #dist.part<[0:2, 0:3] of [4, 3]>},
                %x1: 2x3x@1 {dist.name = "x", dist.part = #dist.part<[2:4, 0:3] of [4, 3]>},
                %e: tensor<f32, #dist.on<0>> {dist.name = "e"}, %e1: tensor<f32, #dist.on<1>> {dist.name = "e"})
    -> (2x3x@0 {dist.name = "y", dist.part = #dist.part<[0:2, 0:3] of [4, 3]>}, 2x3x@1 {dist.name = "y", dist.part = #dist.part<[2:4, 0:3] of [4, 3]>}) {
  %c = onnx.Constant dense<[[1.0], [2.0]]> : tensor<2x1xf32, #dist.on<0>>
  %c1 = onnx.Constant dense<[[3.0], [4.0]]> : tensor<2x1xf32, #dist.on<1>>
  %s = onnx.Mul %c, %e : (tensor<2x1xf32, #dist.on<0>>, tensor<f32, #dist.on<0>>) -> 2x1x@0
  %s1 = onnx.Mul %c1, %e1 : (tensor<2x1xf32, #dist.on<1>>, tensor<f32, #dist.on<1>>) -> 2x1x@1
  %y = onnx.Mul %s, %x : (2x1x@0, 2x3x@0) -> 2x3x@0
  %y1 = onnx.Mul %s1, %x1 : (2x1x@1, 2x3x@1) -> 2x3x@1
  func.return %y, %y1 : 2x3x@0, 2x3x@1
}"""


def test_a_part_of_a_constant_that_a_number_scales():
    wrong = [("[4.0]]> : tensor<2x1", "[5.0]]> : tensor<2x1"), ("Mul %s1, %x1", "Mul %c1, %x1")]
    check(SCALED_CONSTANT, SCALED_CONSTANT_OF_ROWS, wrong)


SCALED_BY_CONSTANTS = """
func.func @main(%x: tensor<4xf32> {dist.name = "x"}) -> (tensor<4xf32> {dist.name = "y"}) {
  %k = onnx.Constant dense<6.0> : tensor<f32>
  %y = onnx.Mul %x, %k : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}"""
ZERO_ON_ONE_DEVICE = """
func.func @main(%x: 4x@0 {dist.name = "x"}, %x1: 4x@1 {dist.name = "x"}) -> (4x@0 {dist.name = "y"}, 4x@1 {dist.name = "y"}) {
  %a = onnx.Constant dense<2.0> : tensor<f32, #dist.on<0>>
  %b = onnx.Constant dense<3.0> : tensor<f32, #dist.on<0>>
  %a1 = onnx.Constant dense<2.0> : tensor<f32, #dist.on<1>>
  %b1 = dist.zeros : tensor<f32, #dist.on<1>>
  %k = onnx.Mul %a, %b : (tensor<f32, #dist.on<0>>, tensor<f32, #dist.on<0>>) -> tensor<f32, #dist.on<0>>
  %k1 = onnx.Mul %a1, %b1 : (tensor<f32, #dist.on<1>>, tensor<f32, #dist.on<1>>) -> tensor<f32, #dist.on<1>>
  %y = onnx.Mul %x, %k : (4x@0, tensor<f32, #dist.on<0>>) -> 4x@0
  %y1 = onnx.Mul %x1, %k1 : (4x@1, tensor<f32, #dist.on<1>>) -> 4x@1
  %s, %s1 = dist.allreduce sum %y, %y1 : (4x@0, 4x@1) -> (4x@0, 4x@1)
  func.return %s, %s1 : 4x@0, 4x@1
}"""


SCALED_AND_ADDED = """
func.func @main(%x: tensor<4x3xf32> {dist.name = "x"}, %a: tensor<3xf32> {dist.name = "a"}, %n: tensor<f32> {dist.name = "n"}) -> (tensor<3xf32> {dist.name = "y"}) {
  %c = onnx.Constant dense<2.0> : tensor<f32>
  %axes = onnx.Constant dense<[0]> : tensor<1xi64>
  %s = onnx.Div %c, %n : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %m = onnx.Mul %x, %s : (tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
  %r = onnx.ReduceSum %m, %axes <{keepdims = 0 : i64}> : (tensor<4x3xf32>, tensor<1xi64>) -> tensor<3xf32>
  %y = onnx.Add %a, %r : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  func.return %y : tensor<3xf32>
}"""
ADDED_ON_ONE_DEVICE = """
func.func @main(%x: 2x3x@0 {dist.name = "x", dist.part = #dist.part<[0:2, 0:3] of [4, 3]>}, %x1: 2x3x@1 {dist.name = "x", dist.part = #dist.part<[2:4, 0:3] of [4, 3]>},
                %a: 3x@0 {dist.name = "a"}, %n: tensor<f32, #dist.on<0>> {dist.name = "n"}, %n1: tensor<f32, #dist.on<1>> {dist.name = "n"}) -> (3x@0 {dist.name = "y"}, 3x@1 {dist.name = "y"}) {
  %c = onnx.Constant dense<2.0> : tensor<f32, #dist.on<0>>
  %c1 = onnx.Constant dense<2.0> : tensor<f32, #dist.on<1>>
  %axes = onnx.Constant dense<[0]> : tensor<1xi64, #dist.on<0>>
  %axes1 = onnx.Constant dense<[0]> : tensor<1xi64, #dist.on<1>>
  %a1 = dist.zeros : 3x@1
  %s = onnx.Div %c, %n : (tensor<f32, #dist.on<0>>, tensor<f32, #dist.on<0>>) -> tensor<f32, #dist.on<0>>
  %s1 = onnx.Div %c1, %n1 : (tensor<f32, #dist.on<1>>, tensor<f32, #dist.on<1>>) -> tensor<f32, #dist.on<1>>
  %m = onnx.Mul %x, %s : (2x3x@0, tensor<f32, #dist.on<0>>) -> 2x3x@0
  %m1 = onnx.Mul %x1, %s1 : (2x3x@1, tensor<f32, #dist.on<1>>) -> 2x3x@1
  %r = onnx.ReduceSum %m, %axes <{keepdims = 0 : i64}> : (2x3x@0, tensor<1xi64, #dist.on<0>>) -> 3x@0
  %r1 = onnx.ReduceSum %m1, %axes1 <{keepdims = 0 : i64}> : (2x3x@1, tensor<1xi64, #dist.on<1>>) -> 3x@1
  %y = onnx.Add %a, %r : (3x@0, 3x@0) -> 3x@0
  %y1 = onnx.Add %a1, %r1 : (3x@1, 3x@1) -> 3x@1
  %t, %t1 = dist.allreduce sum %y, %y1 : (3x@0, 3x@1) -> (3x@0, 3x@1)
  func.return %t, %t1 : 3x@0, 3x@1
}"""


def test_an_addend_that_a_number_scales_is_added_to_zeros():
    """Beside a device that adds it to what the number does not scale."""
    wrong = [("Mul %x1, %s1", "Mul %x1, %c1"), ("Add %a1, %r1", "Add %r1, %r1"), ("Add %a1, %r1", "Mul %a1, %r1")]
    check(SCALED_AND_ADDED, ADDED_ON_ONE_DEVICE, wrong)


def test_zeros_and_constants_give_zeros():
    wrong = [("%k1 = onnx.Mul %a1, %b1", "%k1 = onnx.Add %a1, %b1"), ("%x1, %k1 :", "%x1, %a1 :")]
    check(SCALED_BY_CONSTANTS, ZERO_ON_ONE_DEVICE, wrong)
