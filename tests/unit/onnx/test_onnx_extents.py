"""Operands that an operator's definition does not allow together, and onnx's own inference of types does."""

from __future__ import annotations

import re

import pytest
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.interpreters.mixed import infer
from tests.unit.onnx_operations import onnx_operation

SCORES = ["2x4x6xf32", "2x6xi64", "4xf32"]
LSTM = ["5x2x3xf32", "1x28x3xf32", "1x28x7xf32", "1x56xf32", "2xi32", "1x2x7xf32", "1x2x7xf32", "1x21xf32"]
CACHED = ["2x8x3x16xf32", "2x4x3x16xf32", "2x4x3x12xf32", "2x8x3x10xf32", "2x4x7x16xf32", "2x4x7x12xf32"]
ROTARY = ["2x8x3x16xf32", "2x3x8xf32", "2x3x8xf32"]
ROTARY_OF_ALL = ["2x3x128xf32", "50x8xf32", "50x8xf32", "2x3xi64"]
NORMALISED = ["2x4x6xf32", "4x6xf32", "1x6xf32"]
SEQUENCES = ["6x5x4xf32", "5xi64"]
SCATTERED = ["5x6x7xf32", "3x2x2xi64", "3x2x7xf32"]
DEFORMED = ["2x4x8x9xf32", "6x4x3x2xf32", "2x24x6x8xf32", "6xf32", "2x12x6x8xf32"]
HEADS = "num_heads = 8 : si64"

COUNTS = {"LSTM": (8, 3), "Attention": (7, 4), "LayerNormalization": (3, 3), "RotaryEmbedding": (4, 1)}
"""Operands and results; of others, as many operands as are given and one result."""
STATED = {
    "LSTM": "hidden_size = 7 : si64",
    "DeformConv": "offset_group = 2 : si64",
    "LayerNormalization": "axis = 1 : si64",
}


def infer_one(operator: str, operands: list[str], properties: str = "") -> None:
    """Infers the types of one operation."""
    taken, made = COUNTS.get(operator, (len(operands), 1))
    given = [*operands, *["none"] * (taken - len(operands))]
    results = ["*xf32"] * made if operator == "LSTM" else ["*xf32", *["none"] * (made - 1)]
    op = onnx_operation(operator, given, results, properties or STATED.get(operator, ""))
    module = op.parent_op()
    assert module is not None
    module = module.parent_op()
    assert isinstance(module, ModuleOp)
    infer(module)


def test_what_fits_has_types() -> None:
    for operator in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        infer_one(operator, SCORES)
    infer_one("LSTM", LSTM)
    infer_one("LSTM", ["2x5x3xf32", *LSTM[1:5], "2x1x7xf32"], "hidden_size = 7 : si64, layout = 1 : si64")
    infer_one("InstanceNormalization", ["2x4x6xf32", "4xf32", "4xf32"])
    infer_one("PRelu", ["2x4x6xf32", "4x1xf32"])
    infer_one("LayerNormalization", NORMALISED)
    infer_one(
        "LayerNormalization", ["2x4x6xf32", "2x1x6xf32", "2x4x6xf32"], "axis = 2 : si64"
    )  # of each sample its own
    infer_one("Attention", CACHED)
    infer_one("Attention", [*CACHED[:3], "2x1x3x9xf32", *CACHED[4:]])  # the mask hides the last key
    infer_one("Attention", [*CACHED[:4], "2x4x?x16xf32", "2x4x?x12xf32"])
    infer_one("Attention", [*CACHED[:4], "*xf32", "*xf32"])
    infer_one("RotaryEmbedding", ROTARY)
    infer_one("RotaryEmbedding", ROTARY_OF_ALL, HEADS)
    infer_one("RotaryEmbedding", [*ROTARY_OF_ALL[:3], "1x3xi64"], HEADS)
    infer_one("RotaryEmbedding", [*ROTARY_OF_ALL[:3], "*xi64"], HEADS)
    infer_one("BatchNormalization", ["6xf32", *["1xf32"] * 4])
    infer_one("ReverseSequence", SEQUENCES)
    infer_one("ScatterND", SCATTERED)
    infer_one("DeformConv", DEFORMED)


@pytest.mark.parametrize(
    ("operator", "operands", "place", "other", "reason"),
    [
        ("NegativeLogLikelihoodLoss", SCORES, 2, "5xf32", "operand 2 is for 5 classes, and there are 4"),
        ("ReverseSequence", SEQUENCES, 1, "6xi64", "there are 6 lengths for a batch of 5"),
        ("ScatterND", SCATTERED, 2, "3x2x6xf32", "updates of shape [3, 2, 6] are not [3, 2, 7]"),
        ("ScatterND", SCATTERED, 2, "3x7xf32", "updates of shape [3, 7] are not [3, 2, 7]"),
        ("ScatterND", SCATTERED, 1, "3x2x4xi64", "an index of 4 numbers is none of 3 dims"),
        ("DeformConv", DEFORMED, 2, "3x24x6x8xf32", "operand 2 is for 3 batch, and there are 2"),
        ("DeformConv", DEFORMED, 4, "2x18x6x8xf32", "operand 4 is for 9 places, and there are 6"),
        ("SoftmaxCrossEntropyLoss", SCORES, 1, "2x7xi64", "operand 1 is for 7 spatial 0, and there are 6"),
        ("InstanceNormalization", ["2x4x6xf32", "4xf32", "4xf32"], 2, "2xf32", "operand 2 is for 2 channels"),
        ("LSTM", LSTM, 1, "1x27x3xf32", "27 in operand 1 are not 4*hidden"),
        ("LSTM", LSTM, 2, "1x24x6xf32", "operand 2 is for 6 hidden, and there are 7"),
        ("LSTM", LSTM, 4, "5xi32", "operand 4 is for 5 batch, and there are 2"),
        ("LSTM", LSTM, 7, "1x20xf32", "20 in operand 7 are not 3*hidden"),
        ("PRelu", ["2x4x6xf32", "4x1xf32"], 1, "3x1xf32", "a slope of shape [3, 1] is not broadcast to [2, 4, 6]"),
        ("PRelu", ["4x6xf32", "6xf32"], 1, "1x1x6xf32", "a slope of shape [1, 1, 6] is not broadcast to [4, 6]"),
        ("LayerNormalization", NORMALISED, 1, "3x1x6xf32", "a scale of shape [3, 1, 6] is not broadcast to [2, 4, 6]"),
        ("LayerNormalization", NORMALISED, 2, "5xf32", "a bias of shape [5] is not broadcast to [2, 4, 6]"),
        ("Attention", CACHED, 3, "2x8x3x11xf32", "a mask of 11 keys is not one of 10"),
        ("Attention", CACHED, 3, "4x3x10xf32", "a mask of shape [4, 3] is not broadcast to [2, 8, 3]"),
        ("Attention", CACHED, 4, "2x8x7x16xf32", "operand 4 is for 8 heads, and there are 4"),
        ("Attention", CACHED, 5, "2x4x6x12xf32", "operand 5 is for 6 past, and there are 7"),
        ("RotaryEmbedding", ROTARY, 1, "2x4x8xf32", "operand 1 is for 4 positions, and there are 3"),
        ("RotaryEmbedding", ROTARY, 2, "2x3x6xf32", "operand 2 is for 6 angles, and there are 8"),
    ],
)
def test_operands_that_do_not_fit(operator: str, operands: list[str], place: int, other: str, reason: str) -> None:
    wrong = [*operands[:place], other, *operands[place + 1 :]]
    with pytest.raises(DistirError, match=rf"onnx.{operator} does not accept .*: {re.escape(reason)}"):
        infer_one(operator, wrong)


@pytest.mark.parametrize(
    ("operator", "group", "x", "w", "b", "reason"),
    [
        ("Conv", 1, 4, (6, 5), 6, "weights are for 5 input channels, and there are 4"),
        ("Conv", 2, 4, (6, 4), 6, "weights are for 8 input channels, and there are 4"),
        ("Conv", 4, 4, (6, 1), 6, "6 output channels are not 4 groups"),
        ("Conv", 1, 4, (6, 4), 5, "there are 5 biases for 6 output channels"),
        ("ConvTranspose", 1, 4, (6, 5), 5, "weights are for 6 input channels, and there are 4"),
        ("ConvTranspose", 4, 6, (6, 5), 20, "6 input channels are not 4 groups"),
        ("ConvTranspose", 2, 4, (4, 3), 3, "there are 3 biases for 6 output channels"),
    ],
)
def test_channels_of_convolutions_fit(
    operator: str, group: int, x: int, w: tuple[int, int], b: int, reason: str
) -> None:
    with pytest.raises(DistirError, match=rf"onnx.{operator} does not accept .*: {reason}"):
        infer_one(operator, [f"2x{x}x8xf32", f"{w[0]}x{w[1]}x3xf32", f"{b}xf32"], f"group = {group} : si64")
