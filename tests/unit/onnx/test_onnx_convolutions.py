"""What the reference executor computes of `onnx.Conv` and `onnx.ConvTranspose` is what torch computes, with any groups, bias and padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser

from distir.dialects.onnx import Onnx
from distir.interpreters.onnx.reference import run_onnx
from tests.unit.convolutions import ONNX_KINDS, TRANSPOSED, Convolution, drawn

Array = np.ndarray[Any, Any]


def by_torch(convolution: Convolution, operands: list[Array]) -> Array:
    spatial = convolution.spatial
    stride, padding, dilation, more = (
        [getattr(d, name) for d in spatial] for name in ("stride", "padding", "dilation", "more")
    )
    x, w, *bias = map(torch.tensor, operands)
    b = bias[0] if bias else None
    is_transposed = convolution.kind == TRANSPOSED
    return torch.convolution(x, w, b, stride, padding, dilation, is_transposed, more, convolution.groups).numpy()


def test_drawn_convolutions_compute_what_torch_does() -> None:
    rng, in_groups = np.random.default_rng(0), set[str]()
    for _ in range(60):
        convolution = drawn(rng, ONNX_KINDS)
        op, operands = convolution.onnx_operation(), convolution.operands(rng)
        (found,) = run_onnx(op, [*operands, *[None] * (len(op.operands) - len(operands))])
        np.testing.assert_allclose(found, by_torch(convolution, operands), rtol=0, atol=1e-11, err_msg=str(convolution))
        if convolution.groups > 1 and convolution.bias:
            in_groups.add(convolution.kind)
    assert in_groups == set(ONNX_KINDS)


@pytest.mark.parametrize(
    ("rows", "first", "options"),
    [
        (11, 0, ""),  # 2 * (5 - 1) + 3
        (9, 0, "pads = [0 : si64, 2 : si64]"),
        (10, 2, "pads = [2 : si64, 0 : si64], output_padding = [1 : si64]"),
        (10, 0, 'auto_pad = "SAME_UPPER"'),  # 2 * 5; the row that is left out is the last
        (10, 1, 'auto_pad = "SAME_LOWER"'),
        (8, 1, 'auto_pad = "SAME_UPPER", output_shape = [8 : si64]'),
        (8, 2, "output_shape = [8 : si64]"),
        (12, 0, "output_shape = [12 : si64]"),
        (11, 0, 'auto_pad = "VALID"'),
    ],
)
def test_rows_that_a_transposed_convolution_leaves_out(rows: int, first: int, options: str) -> None:
    """By the formulas of the specification: so many rows of the result, from this one of those without padding; beyond them are zeros."""
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((2, 4, 5)), rng.standard_normal((4, 3, 3)), rng.standard_normal(6)
    whole = torch.conv_transpose1d(torch.tensor(x), torch.tensor(w), stride=2, groups=2)
    expected = torch.nn.functional.pad(whole, (0, 2))[..., first : first + rows].numpy() + b[:, None]
    properties = ", ".join(["strides = [2 : si64]", "group = 2 : si64", *[options] * bool(options)])
    types = f"(tensor<2x4x5xf32>, tensor<4x3x3xf32>, tensor<6xf32>) -> tensor<2x6x{rows}xf32>"
    text = f"""func.func @main(%x: tensor<2x4x5xf32>, %w: tensor<4x3x3xf32>, %b: tensor<6xf32>) {{
        %y = "onnx.ConvTranspose"(%x, %w, %b) <{{{properties}}}> : {types}
        func.return
    }}"""
    context = Context()
    for dialect in (Builtin, func.Func, Onnx):
        context.load_dialect(dialect)
    op = next(op for op in Parser(context, text).parse_module().walk() if op.name == "onnx.ConvTranspose")
    (found,) = run_onnx(op, [x, w, b])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
