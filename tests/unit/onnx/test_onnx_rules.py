"""Rules of operators of ONNX whose types say less than their definition, or depend on constants."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import Builtin, TensorType
from xdsl.ir import Operation
from xdsl.parser import Parser

from distir.dialects.onnx import Constant, Onnx
from distir.interpreters.onnx.reference import run_onnx
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.unit.shard_executor import violations


def operation(shapes: list[str], line: str, constants: str = "") -> Operation:
    """The operation of a line that takes arguments of these shapes, `%0` and so on."""
    context = Context()
    for dialect in (Builtin, func.Func, Onnx):
        context.load_dialect(dialect)
    arguments = ", ".join(f"%{i}: tensor<{shape}xf32>" for i, shape in enumerate(shapes))
    none = '%none = "onnx.NoValue"() <{value}> : () -> none'
    text = f"func.func @main({arguments}) {{\n{none}\n{constants}\n{line}\nfunc.return\n}}"
    (function,) = Parser(context, text).parse_module().ops
    assert isinstance(function, func.FuncOp)
    return [*function.body.block.ops][-2]


def rule_that_holds(op: Operation) -> str:
    """The rule, after it has held on random operands."""
    rule, rng = Discovery(InterpreterDomains()).rule(op), np.random.default_rng(0)
    operands = [
        run_onnx(value.owner, [])[0]
        if isinstance(value.owner, Constant)
        else rng.standard_normal(value.type.get_shape())
        if isinstance(value.type, TensorType)
        else None
        for value in op.operands
    ]
    assert not violations(op, rule, operands, rng).violations
    return str(rule)


@pytest.mark.parametrize(
    ("shapes", "heads", "result", "expected"),
    [
        (["2x8x6x16", "2x8x10x16", "2x8x10x16"], None, "2x8x6x16", "[S1, S2, S3, _], [S1, S2, _, _], [S1, S2, _, S4]"),
        (
            ["2x8x6x16", "2x4x10x16", "2x4x10x16"],
            None,
            "2x8x6x16",
            "[S1, S2 * S3, S4, _], [S1, S2, _, _], [S1, S2, _, S5]",
        ),
        (["2x6x128", "2x10x128", "2x10x128"], (8, 8), "2x6x128", "[S1, S2, S3], [S1, _, S3], [S1, _, S3 * S4]"),
        (["2x6x128", "2x10x64", "2x10x96"], (8, 4), "2x6x192", "[S1, S2, S3 * S4], [S1, _, S3], [S1, _, S3 * S5]"),
        (["2x6x128", "2x10x16", "2x10x16"], (8, 1), "2x6x128", "[S1, S2, S3], [S1, _, _], [S1, _, S4]"),
    ],
    ids=["heads", "shared", "columns", "shared columns", "one of keys"],
)
def test_attention(shapes: list[str], heads: tuple[int, int] | None, result: str, expected: str) -> None:
    stated = "" if heads is None else f"q_num_heads = {heads[0]} : si64, kv_num_heads = {heads[1]} : si64"
    types = ", ".join([*(f"tensor<{shape}xf32>" for shape in shapes), *["none"] * 4])
    line = f"""%y, %k, %v, %s = "onnx.Attention"(%0, %1, %2, %none, %none, %none, %none) <{{{stated}}}>
        : ({types}) -> (tensor<{result}xf32>, none, none, none)"""
    assert expected in rule_that_holds(operation(shapes, line))


def test_attention_with_a_mask_and_keys_of_before() -> None:
    """Four heads of keys, of which as many are kept, for eight of queries; the mask is for all heads."""
    shapes = ["2x8x3x16", "2x4x3x16", "2x4x3x12", "3x10", "2x4x7x16", "2x4x7x12"]
    results = "2x8x3x12", "2x4x10x16", "2x4x10x12"
    line = f"""%y, %k, %v, %s = "onnx.Attention"(%0, %1, %2, %3, %4, %5, %none)
        : ({", ".join(f"tensor<{shape}xf32>" for shape in shapes)}, none)
        -> ({", ".join(f"tensor<{shape}xf32>" for shape in results)}, none)"""
    expected = "[S1, S2 * S3, S4, _], [S1, S2, _, _], [S1, S2, _, S5], [S4, _], [S1, S2, _, _], [S1, S2, _, S5]"
    assert expected in rule_that_holds(operation(shapes, line))


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        ("PRelu", ["2x4x6x5", "4x1x1"], "[S1, S2, S3, S4], [S2, _, _]"),
        (
            "RotaryEmbedding",
            ["2x4x3x8", "2x3x4", "2x3x4"],
            "[S1, S2, S3, S4(pieces = [1, 1])], [S1, S3, S4], [S1, S3, S4]",
        ),
        ("LRN", ["2x24x6x5"], "[S1, S4(halo = 2), S2, S3]"),
    ],
)
def test_operands_that_types_do_not_compare(operator: str, shapes: list[str], expected: str) -> None:
    names = [*(f"%{i}" for i in range(len(shapes))), *["%none"] * (operator == "RotaryEmbedding")]
    types = ", ".join([*(f"tensor<{shape}xf32>" for shape in shapes), *["none"] * (len(names) - len(shapes))])
    properties = "<{size = 5 : si64}>" if operator == "LRN" else ""
    line = f'%y = "onnx.{operator}"({", ".join(names)}) {properties} : ({types}) -> tensor<{shapes[0]}xf32>'
    assert expected in rule_that_holds(operation(shapes, line))


@pytest.mark.parametrize(
    ("mode", "by", "expected"),
    [
        ("nearest", "scales", "[S1, S2, S3, S4]"),
        ("linear", "scales", "[S1, S2, S3(halo = 1), S4(halo = 1)]"),
        ("nearest", "sizes", "[S1, S2, S3, S4]"),
        ("linear", "sizes", "[S1, S2, _, _]"),
    ],
)
def test_resize(mode: str, by: str, expected: str) -> None:
    by_two, to_16 = "dense<[1.0, 1.0, 2.0, 2.0]> : tensor<4xf32>", "dense<[4, 6, 16, 16]> : tensor<4xi64>"
    value, type_ = (by_two, "tensor<4xf32>") if by == "scales" else (to_16, "tensor<4xi64>")
    constant = f'%c = "onnx.Constant"() <{{value = #onnx.tensor<{value}>}}> : () -> {type_}'
    given, types = (
        ("%none, %c, %none", f"none, {type_}, none") if by == "scales" else ("%none, %none, %c", f"none, none, {type_}")
    )
    line = f"""%y = "onnx.Resize"(%0, {given}) <{{mode = "{mode}"}}>
        : (tensor<4x6x8x8xf32>, {types}) -> tensor<4x6x16x16xf32>"""
    assert expected in rule_that_holds(operation(["4x6x8x8"], line, constant))


def test_a_number_of_numpy_is_as_wide_as_an_array_of_it() -> None:
    """What arithmetic on arrays without dims gives is none: results were rounded to the declared 32 bits."""
    (result,) = run_onnx(
        operation(["5", "1"], '%r = "onnx.Mul"(%0, %1) : (tensor<5xf32>, tensor<1xf32>) -> tensor<5xf32>'),
        [np.full(5, 3, np.float32), np.float64(0.1)],
    )
    assert result.dtype == np.float64
    assert result[0] == 3 * 0.1
