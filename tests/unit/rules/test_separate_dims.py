"""Dims that are equal by accident, and dims that are too many for a stand-in with an extent of its own for each."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Operation
from xdsl.parser import Parser

from distir.dialects.onnx import Onnx
from distir.dialects.sharding import Rule
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.unit.shard_executor import violations


def operation(arguments: str, text: str) -> Operation:
    context = Context()
    for dialect in (Builtin, func.Func, Onnx):
        context.load_dialect(dialect)
    module = Parser(context, f"func.func @main({arguments}) {{\n{text}\nfunc.return\n}}").parse_module()
    return next(op for op in module.walk() if op.name.startswith("onnx."))


def rule_that_holds(op: Operation, operands: list[np.ndarray]) -> Rule:
    rule = Discovery(InterpreterDomains()).rule(op)
    assert not violations(op, rule, operands, np.random.default_rng(0)).violations
    return rule


def test_as_many_indices_as_entries() -> None:
    """The entries that are gathered from are no factor with the indices that gather them."""
    op = operation(
        "%x: tensor<6x8xf32>, %i: tensor<6x8xi64>",
        '%0 = "onnx.GatherElements"(%x, %i) <{axis = 1 : si64}> : (tensor<6x8xf32>, tensor<6x8xi64>) -> tensor<6x8xf32>',
    )
    rng = np.random.default_rng(0)
    rule = rule_that_holds(op, [rng.random((6, 8), np.float32), rng.integers(-8, 8, (6, 8))])
    (rows, entries), (rows_of_indices, indices) = ([dim.factor for dim in dims] for dims in rule.inputs)
    assert rows == rows_of_indices is not None
    assert indices is not None
    assert indices != entries


@pytest.mark.parametrize("indices", [1, 3])
def test_fewer_indices_than_entries(indices: int) -> None:
    """Types do not say that there are no more rows of indices than of entries: both are cut together all the same."""
    op = operation(
        f"%x: tensor<8x5xf32>, %i: tensor<8x{indices}xi64>",
        f'%0 = "onnx.GatherElements"(%x, %i) <{{axis = 1 : si64}}> : (tensor<8x5xf32>, tensor<8x{indices}xi64>) '
        f"-> tensor<8x{indices}xf32>",
    )
    rng = np.random.default_rng(0)
    rule = rule_that_holds(op, [rng.random((8, 5), np.float32), rng.integers(-5, 5, (8, indices))])
    (rows, entries), (rows_of_indices, _) = ([dim.factor for dim in dims] for dims in rule.inputs)
    assert rows == rows_of_indices is not None
    assert entries in rule.offsets


@pytest.mark.long
def test_more_dims_than_a_stand_in_has_extents_for() -> None:
    """With an extent of its own for each of seven dims there are too many elements; one dim after another is shown local."""
    shape, target = "3x5x6x6x5x3x4", "3x6x6x5x3x4"
    op = operation(
        f"%x: tensor<{shape}xf32>, %t: tensor<{target}xi64>",
        '%0 = "onnx.NegativeLogLikelihoodLoss"(%x, %t) <{reduction = "none"}> : '
        f"(tensor<{shape}xf32>, tensor<{target}xi64>) -> tensor<{target}xf32>",
    )
    rng = np.random.default_rng(0)
    operands = [rng.random((3, 5, 6, 6, 5, 3, 4), np.float32), rng.integers(0, 5, (3, 6, 6, 5, 3, 4))]
    rule = rule_that_holds(op, operands)
    assert [dim.factor for dim in rule.inputs[0][2:]] == [dim.factor for dim in rule.inputs[1][1:]]
    assert all(dim.factor for dim in rule.inputs[1])


def test_rows_where_padding_follows_from_the_kernel() -> None:
    """No result shows the kernel's rows then, which still say how far a window reaches."""
    op = operation(
        "%x: tensor<1x1x9x8xf32>, %w: tensor<1x2x3x3xf32>",
        '%0 = "onnx.ConvTranspose"(%x, %w) <{auto_pad = "SAME_UPPER", strides = [2 : i64, 2 : i64]}> : '
        "(tensor<1x1x9x8xf32>, tensor<1x2x3x3xf32>) -> tensor<1x2x18x16xf32>",
    )
    rng = np.random.default_rng(0)
    rule = rule_that_holds(op, [rng.random((1, 1, 9, 8), np.float32), rng.random((1, 2, 3, 3), np.float32)])
    assert all(dim.factor for dim in rule.inputs[0][2:])


@pytest.mark.long
def test_rows_under_a_dilation_that_goes_with_a_padding_are_windows() -> None:
    """Paddings, a dilation and a kernel of four rows all grow together: with nine for four, six rows would not meet."""
    numbers = (
        "dilations = [4 : i64, 2 : i64], kernel_shape = [3 : i64, 4 : i64], pads = [4 : i64, 4 : i64, 4 : i64, 4 : i64]"
    )
    op = operation(
        "%x: tensor<2x5x22x24xf32>, %w: tensor<4x5x3x4xf32>",
        f'%b = "onnx.NoValue"() <{{value}}> : () -> none\n%0 = "onnx.Conv"(%x, %w, %b) <{{{numbers}}}> : '
        "(tensor<2x5x22x24xf32>, tensor<4x5x3x4xf32>, none) -> tensor<2x4x22x26xf32>",
    )
    conv = next(other for other in op.parent.ops if other.name == "onnx.Conv")  # pyright: ignore
    rng = np.random.default_rng(0)
    rule = Discovery(InterpreterDomains()).rule(conv)
    operands = [rng.standard_normal((2, 5, 22, 24)), rng.standard_normal((4, 5, 3, 4)), None]
    assert not violations(conv, rule, operands, rng).violations
    assert rule.inputs[0][2].halo == (4, 4)
