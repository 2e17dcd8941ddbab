"""Extents that the definition of an operator wants equal, and that onnx's own inference of types (1.23.2) does not compare: without
this a program that cannot run has types, and rules are looked for at shapes at which nothing runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import IntegerAttr

from distir.dialects.onnx import OnnxOperation

Shape: TypeAlias = Sequence[int]
"""An extent that is not known is negative."""

_CONVOLUTIONS: Mapping[str, tuple[int, int, int | None]] = {
    "Conv": (0, 1, 2),
    "ConvInteger": (0, 1, None),
    "ConvTranspose": (0, 1, 2),
    "QLinearConv": (0, 3, 8),
}
"""Which operands are the input, the weights and the bias."""


def disagreement(op: OnnxOperation, shapes: Sequence[Shape | None]) -> str | None:
    """What does not fit in operands of these shapes (None for one that is absent or of unknown rank), in words; None if nothing is
    known to be wrong."""
    places = _CONVOLUTIONS.get(op.schema.name)
    if places is None or op.schema.domain:
        return None
    x, w, bias = (None if place is None or place >= len(shapes) else shapes[place] for place in places)
    group = op.properties.get("group")
    groups = group.value.data if isinstance(group, IntegerAttr) else 1
    if w is None or len(w) < 2 or groups < 1:
        return None
    channels = x[1] if x is not None and len(x) > 1 else -1
    biases = bias[0] if bias is not None and len(bias) == 1 else -1
    is_transposed = op.schema.name == "ConvTranspose"
    return next(_channels(channels, w, biases, groups, is_transposed), None)


def _channels(channels: int, w: Shape, biases: int, groups: int, is_transposed: bool) -> Iterator[str]:
    """Weights are `[results, channels / groups, ...]`, or `[channels, results / groups, ...]`."""
    cut, per_group = w[:2]
    wanted, results = (cut, per_group * groups) if is_transposed else (per_group * groups, cut)
    if cut % groups and cut >= 0:
        yield f"{cut} {'input' if is_transposed else 'output'} channels are not {groups} groups"
    if channels >= 0 and 0 <= wanted != channels:
        yield f"weights are for {wanted} input channels, and there are {channels}"
    if biases >= 0 and 0 <= results != biases:
        yield f"there are {biases} biases for {results} output channels"
