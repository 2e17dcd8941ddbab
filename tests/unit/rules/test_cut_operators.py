"""Operators of which everybody knows how they are cut, and whose rules were once lost: what their rules divide, and that it holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from xdsl.ir import Operation

from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.unit.aten_instances import Call, operation
from tests.unit.onnx_operations import onnx_operation
from tests.unit.rule_record import parts
from tests.unit.shard_executor import violations

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int, dtype: type = np.uint8) -> Any:
    return RANDOM.integers(0, high, shape).astype(dtype)


def rms_norm() -> tuple[Operation, list[Any]]:
    """Torch adds the epsilon in place."""
    x, weight = (torch.from_numpy(floats(*shape)) for shape in ((4, 5, 6), (5, 6)))
    return operation(Call(torch.ops.aten.rms_norm.default, (x, [5, 6], weight, 1e-5), {}))


def regions() -> tuple[Operation, list[Any]]:
    """Of regions without extent, no image is read; of others, that of an index out of range raises."""
    op = onnx_operation(
        "RoiAlign",
        ["2x3x8x9xf32", "3x4xf32", "3xi64"],
        ["3x3x2x2xf32"],
        "output_height = 2 : si64, output_width = 2 : si64",
    )
    boxes = np.array([[0, 0, 4, 4], [2, 2, 7, 7], [1, 1, 5, 5]], np.float32)
    return op, [floats(2, 3, 8, 9), boxes, integers(2, 3, dtype=np.int64)]


def product_of_integers() -> tuple[Operation, list[Any]]:
    """Types do not say that there is a zero point for each column, or one for all."""
    op = onnx_operation("MatMulInteger", ["4x5xui8", "5x6xui8", "ui8", "6xui8"], ["4x6xi32"])
    return op, [integers(255, 4, 5), integers(255, 5, 6), integers(9), integers(9, 6)]


def convolution_of_integers() -> tuple[Operation, list[Any]]:
    """Types do not say that there is a scale for each channel, of which there are few where there are few rows."""
    numbers = ["f32", "ui8", "6x4x3x3xui8", "6xf32", "6xui8", "f32", "ui8"]
    op = onnx_operation("QLinearConv", ["2x4x9x9xui8", *numbers], ["2x6x7x7xui8"])
    scales = [np.float32(0.1), integers(9), integers(255, 6, 4, 3, 3), np.abs(floats(6)), integers(9, 6)]
    return op, [integers(255, 2, 4, 9, 9), *scales, np.float32(3), np.uint8(100)]


@pytest.mark.parametrize(
    ("made", "cut"),
    [
        (rms_norm, ["0.0", "sum(1)"]),
        (regions, ["0.1", "1.0+2.0", "offset(0.0)", "sum(0)"]),
        (product_of_integers, ["0.0", "0.1+1.0", "1.1+3.0"]),
        (convolution_of_integers, ["0.0", "3.0+4.0+5.0", "halo(0.2)", "halo(0.3)"]),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_operators_are_cut_as_everybody_knows(made: Callable[[], tuple[Operation, list[Any]]], cut: list[str]) -> None:
    op, operands = made()
    rule = Discovery(InterpreterDomains()).rule(op)
    assert parts(rule) == cut
    tried = violations(op, rule, operands, np.random.default_rng(0))
    assert not tried.violations
    assert tried.factors


@pytest.mark.filterwarnings("ignore")
def test_decimals_beyond_all_digits_take_no_time() -> None:
    """Ten to their number is an integer that Python takes minutes for."""
    op, _ = operation(Call(torch.ops.aten.round.decimals, (torch.randn(5, 6),), {"decimals": 2**31 - 1}))
    before = sum(os.times()[:4])
    assert not Discovery(InterpreterDomains()).rule(op).factors
    assert sum(os.times()[:4]) - before < 8
