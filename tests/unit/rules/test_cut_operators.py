"""Operators of which everybody knows how they are cut, and whose rules were once lost: what their rules divide, and that it holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper
from xdsl.ir import Operation

from distir.interpreters.exact.residues import packed, residues
from distir.passes.shardcombine import discovery
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.unit.aten_instances import Call, operation
from tests.unit.onnx_operations import onnx_operation
from tests.unit.rule_record import parts
from tests.unit.rule_sweep import imported
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


def scattered() -> tuple[Operation, list[Any]]:
    """There are half as many indices as rows, so that both might grow together; a vector's types say even less."""
    x, places, values = torch.randn(12), torch.tensor([3, 0, 11, 3, 5, 7]), torch.randn(6)
    return operation(Call(torch.ops.aten.scatter_add.default, (x, 0, places, values), {}))


def reversed_sequences() -> tuple[Operation, list[Any]]:
    """Types do not say that there is a length for each sequence."""
    op = onnx_operation(
        "ReverseSequence", ["5x6x4xf32", "6xi64"], ["5x6x4xf32"], "batch_axis = 1 : si64, time_axis = 0 : si64"
    )
    return op, [floats(5, 6, 4), 1 + integers(5, 6, dtype=np.int64)]


def scattered_slices() -> tuple[Operation, list[Any]]:
    """Types do not say that updates have the columns of the data. Windows of rows are none: indices that are drawn for dims of two extents
    are in both."""
    op = onnx_operation("ScatterND", ["5x6x7x4xf32", "2x3x3xi64", "2x3x4xf32"], ["5x6x7x4xf32"], 'reduction = "add"')
    return op, [floats(5, 6, 7, 4), integers(5, 2, 3, 3, dtype=np.int64), floats(2, 3, 4)]


def powers_of_integers() -> tuple[Operation, list[Any]]:
    """No exponent is negative."""
    op = onnx_operation("Pow", ["4x5xi32", "5xi32"], ["4x5xi32"])
    return op, [integers(9, 4, 5, dtype=np.int32), integers(4, 5, dtype=np.int32)]


def grid() -> tuple[Operation, list[Any]]:
    """Types do not say that the size has the batch of what is affine."""
    theta, size = floats(4, 2, 3), numpy_helper.from_array(np.array([4, 3, 5, 7]), "size")
    node = helper.make_node("AffineGrid", ["theta", "size"], ["grid"])
    given, made = (
        helper.make_tensor_value_info(name, 1, shape) for name, shape in (("theta", theta.shape), ("grid", None))
    )
    model = helper.make_model(helper.make_graph([node], "grid", [given], [made], [size]))
    op, operands = imported(model, [theta])
    return op, [*operands]


def image_of_columns() -> tuple[Operation, list[Any]]:
    """Padded at one side, and of too many elements for a stand-in: divided, sizes do not fit each other."""
    patches = numpy_helper.from_array(np.array([9, 6]), "image"), numpy_helper.from_array(np.array([3, 3]), "block")
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], strides=[2, 1], pads=[1, 1, 0, 0])
    x = floats(3, 45, 20)
    given, made = (helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", x.shape), ("y", None)))
    op, operands = imported(helper.make_model(helper.make_graph([node], "image", [given], [made], patches)), [x])
    return op, [*operands]


def deformed() -> tuple[Operation, list[Any]]:
    """Types do not say that offsets are those of a batch, for channels that share them."""
    types = ["3x4x5x7xf32", "6x2x3x3xf32", "3x18x3x5xf32", "none", "3x9x3x5xf32"]
    op = onnx_operation("DeformConv", types, ["3x6x3x5xf32"], "group = 2 : si64, offset_group = 1 : si64")
    arrays = [floats(3, 4, 5, 7), floats(6, 2, 3, 3), floats(3, 18, 3, 5), None, floats(3, 9, 3, 5)]
    return op, arrays


def transposed_product() -> tuple[Operation, list[Any]]:
    """Types do not say that rows, which are columns before, are as many as those of the addend."""
    op = onnx_operation("Gemm", ["6x4xf32", "6x5xf32", "4x1xf32"], ["4x5xf32"], "transA = 1 : si64")
    return op, [floats(6, 4), floats(6, 5), floats(4, 1)]


def frequent_words() -> tuple[Operation, list[Any]]:
    """The kernel writes wherever indices say; what it is made of masks those out of range."""
    gradient, words = torch.from_numpy(floats(3, 5, 4)), torch.from_numpy(integers(9, 3, 5, dtype=np.int64))
    return operation(Call(torch.ops.aten.embedding_dense_backward.default, (gradient, words, 9, 2, True), {}))


def factored_matrices() -> tuple[Operation, list[Any]]:
    """There are as many pivots as the lesser of rows and columns has."""
    return operation(Call(torch.ops.aten.linalg_lu_factor_ex.default, (torch.from_numpy(floats(5, 8, 8)),), {}))


@pytest.mark.parametrize(
    ("made", "cut"),
    [
        (factored_matrices, ["0.0"]),
        (transposed_product, ["0.0+1.0", "0.1+2.0", "1.1", "sum(0,2)", "sum(1,2)", "sum(2)@0.0+1.0"]),
        (frequent_words, ["0.2", "sum(0)"]),
        (deformed, ["0.0+2.0+4.0", "0.1+1.0", "0.1+1.1", "1.0", "sum(0)", "sum(1)", "sum(4)"]),
        (scattered, ["1.0+2.0", "offset(0.0)", "sum(0)@1.0+2.0", "sum(0,2)"]),
        (reversed_sequences, ["0.1+1.0", "0.2", "max(0)", "min(0)", "sum(0)"]),
        (scattered_slices, ["0.3+2.2", "1.0+2.0", "1.1+2.1", "sum(0)@1.0+2.0", "sum(0)@1.1+2.1", "sum(0,2)"]),
        (powers_of_integers, ["0.0", "0.1+1.0"]),
        (grid, ["0.0"]),
        (image_of_columns, ["0.0", "0.1", "sum(0)"]),
        (rms_norm, ["0.0", "sum(1)"]),
        pytest.param(regions, ["0.1", "1.0+2.0", "offset(0.0)", "sum(0)"], marks=pytest.mark.long),
        (product_of_integers, ["0.0", "0.1+1.0", "1.1+3.0"]),
        pytest.param(convolution_of_integers, ["0.0", "3.0+4.0+5.0", "halo(0.2)", "halo(0.3)"], marks=pytest.mark.long),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_operators_are_cut_as_everybody_knows(
    made: Callable[[], tuple[Operation, list[Any]]], cut: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "CPU_SECONDS", 120.0)  # `regions` takes most of what there is on a slow machine
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


def test_an_operator_that_crashes_is_given_indices_in_range_with_exact_scalars_too() -> None:
    """The gradient of a loss of each pixel writes wherever a label says."""
    labels = torch.tensor([[[0, 2]]])
    arguments = torch.ones(1, 1, 2), torch.ones(1, 3, 1, 2), labels, None, 0, -100, torch.ones(())
    op, operands = operation(Call(torch.ops.aten.nll_loss2d_backward.default, arguments, {}))
    exact = [packed(residues(a)) if a.dtype.kind == "f" else a for a in operands]
    domains = InterpreterDomains().checking(op)
    assert domains is not None
    (found,) = domains.evaluate(op, exact)
    assert found is not None
    assert np.array_equal(found, packed(residues([[[[-1, 0]], [[0, 0]], [[0, -1]]]])))
    exact[2] = np.full_like(operands[2], 2**31 - 1)
    with pytest.raises(Exception, match="out of"):
        domains.evaluate(op, exact)
