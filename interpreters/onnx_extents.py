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
    if op.schema.domain:
        return None
    if (places := _CONVOLUTIONS.get(op.schema.name)) is not None:
        x, w, bias = (None if place is None or place >= len(shapes) else shapes[place] for place in places)
        return next(_of_convolution(op, x, w, bias), None)
    return next(_of_attention(op, shapes), None) if op.schema.name == "Attention" else None


def _stated(op: OnnxOperation, name: str) -> int | None:
    attribute = op.properties.get(name)
    return attribute.value.data if isinstance(attribute, IntegerAttr) else None


def _of_convolution(op: OnnxOperation, x: Shape | None, w: Shape | None, bias: Shape | None) -> Iterator[str]:
    groups = _stated(op, "group") or 1
    if w is not None and len(w) > 1 and groups > 0:
        channels = x[1] if x is not None and len(x) > 1 else -1
        biases = bias[0] if bias is not None and len(bias) == 1 else -1
        yield from _channels(channels, w, biases, groups, op.schema.name == "ConvTranspose")


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


def _of_attention(op: OnnxOperation, shapes: Sequence[Shape | None]) -> Iterator[str]:
    """Queries, keys and values are `[batch, heads, positions, width]`, or `[batch, positions, heads * width]`. Of extents that are not
    known nothing is said."""
    if any(shape is None or len(shape) not in (3, 4) or min(shape) < 0 for shape in shapes[:3]):
        return
    heads = _stated(op, "q_num_heads"), *(_stated(op, "kv_num_heads"),) * 2
    apart: list[tuple[int, int, int, int]] = []
    for shape, count, name in zip(shapes[:3], heads, ("queries", "keys", "values"), strict=True):
        assert shape is not None
        if len(shape) == 4:
            apart.append((shape[0], shape[1], shape[2], shape[3]))
        elif not count or count < 0 or shape[2] % count:
            yield f"{shape[2]} columns of {name} are not {count or 'any number of'} heads"
            return
        else:
            apart.append((shape[0], count, shape[1], shape[2] // count))
    q, k, v = apart
    if not q[0] == k[0] == v[0]:
        yield f"batches of {q[0]} queries, {k[0]} keys and {v[0]} values are not one"
    if k[2] != v[2]:
        yield f"there are {k[2]} keys and {v[2]} values"
    if k[1] != v[1] or q[1] % max(k[1], 1):
        yield f"{q[1]} heads of queries do not share {k[1]} of keys and {v[1]} of values"
    if q[3] != k[3]:
        yield f"a head of queries is {q[3]} wide, one of keys {k[3]}"
