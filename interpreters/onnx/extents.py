"""Checks extents that an operator's definition wants equal. In go an ONNX operation and its operand shapes; out
comes the disagreement in words, or None. onnx's own inference of types (1.23.2) does not compare them: without this
check a program that cannot run has types, and rules are looked for at shapes at which nothing runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from math import prod
from typing import TypeAlias

from xdsl.dialects.builtin import IntegerAttr, NoneType

from distir.dialects.onnx import OnnxOperation

Shape: TypeAlias = Sequence[int]
"""An extent that is not known is negative."""

Shapes: TypeAlias = Sequence[Shape | None]
"""Of operands: None for one that is absent or of unknown rank."""

_CONVOLUTIONS: Mapping[str, tuple[int, int, int | None]] = {
    "Conv": (0, 1, 2),
    "ConvInteger": (0, 1, None),
    "ConvTranspose": (0, 1, 2),
    "QLinearConv": (0, 3, 8),
}
"""Which operands are the input, the weights and the bias."""

_LOSS = ("batch classes ...", "batch ...", "classes")
_SEQUENCE = ("steps batch inputs", "batch steps inputs")
"""As the attribute `layout` says."""
_STATE = ("directions batch hidden", "batch directions hidden")

_SIGNATURES: Mapping[str, Sequence[str | tuple[str, str]]] = {
    "NegativeLogLikelihoodLoss": _LOSS,
    "SoftmaxCrossEntropyLoss": _LOSS,
    "InstanceNormalization": ("batch channels ...", "channels", "channels"),
    "AffineGrid": ("batch rows columns", "batch channels ..."),
    "RNN": (
        _SEQUENCE,
        "directions hidden inputs",
        "directions hidden hidden",
        "directions 2*hidden",
        "batch",
        _STATE,
    ),
    "GRU": (
        _SEQUENCE,
        "directions 3*hidden inputs",
        "directions 3*hidden hidden",
        "directions 6*hidden",
        "batch",
        _STATE,
    ),
    "LSTM": (
        _SEQUENCE,
        "directions 4*hidden inputs",
        "directions 4*hidden hidden",
        "directions 8*hidden",
        "batch",
        _STATE,
        _STATE,
        "directions 3*hidden",
    ),
}
"""What the dims of each operand are, in the words of the definition; equal words are equal extents."""

_SHAPES_BY_VALUE: Mapping[str, int] = {"AffineGrid": 1}
"""The operand that is a shape, as integers: its words are of those."""


def disagreement(op: OnnxOperation, shapes: Shapes, integers: Shapes) -> str | None:
    """What does not fit in operands of these shapes, in words; None if nothing is known to be wrong. `integers` are the values of operands
    that are vectors of known integers."""
    if op.schema.domain or (check := _CHECKS.get(op.schema.name)) is None:
        return None
    by_value = _SHAPES_BY_VALUE.get(op.schema.name)
    both = enumerate(zip(shapes, integers, strict=True))
    return next(check(op, [value if i == by_value else shape for i, (shape, value) in both]), None)


def _is_present(op: OnnxOperation, place: int) -> bool:
    """Whether an operation has this operand, of whatever shape."""
    return place < len(op.operands) and not isinstance(op.operands[place].type, NoneType)


def _stated(op: OnnxOperation, name: str) -> int | None:
    attribute = op.properties.get(name)
    return attribute.value.data if isinstance(attribute, IntegerAttr) else None


# --- operators of which words say all ---


def _of_signature(op: OnnxOperation, shapes: Shapes) -> Iterator[str]:
    layout = _stated(op, "layout") or 0
    known: dict[str, int] = {}
    for place, (shape, dims) in enumerate(zip(shapes, _SIGNATURES[op.schema.name], strict=False)):
        if shape is not None:
            yield from _compared(shape, dims if isinstance(dims, str) else dims[layout == 1], place, known)


def _compared(shape: Shape, dims: str, place: int, known: dict[str, int]) -> Iterator[str]:
    """Where the extents of one operand are not those that others have (`known`, to which its own are added)."""
    words = dims.split()
    rest = len(shape) - len(words) + 1
    if words[-1] == "...":
        words = [*words[:-1], *(f"spatial {i}" for i in range(rest))]
    if len(words) != len(shape):
        yield f"operand {place} of {len(shape)} dims is not [{', '.join(dims.split())}]"
        return
    for word, extent in zip(words, shape, strict=True):
        times, name = _multiple(word)
        if extent < 0:
            continue
        one, left = divmod(extent, times)
        if left:
            yield f"{extent} in operand {place} are not {word}"
        elif known.setdefault(name, one) != one:
            yield f"operand {place} is for {one} {name}, and there are {known[name]}"


@cache
def _multiple(word: str) -> tuple[int, str]:
    """How many times what: `4*hidden`, `hidden`."""
    times, _, name = word.rpartition("*")
    return int(times or 1), name


# --- convolutions ---


def _of_convolution(op: OnnxOperation, shapes: Shapes) -> Iterator[str]:
    places = _CONVOLUTIONS[op.schema.name]
    x, w, bias = (None if place is None or place >= len(shapes) else shapes[place] for place in places)
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


# --- operators that broadcast one way ---


def _of_slope(op: OnnxOperation, shapes: Shapes) -> Iterator[str]:
    """A slope is broadcast to what it is for, and not the other way round."""
    x, slope = shapes
    if x is not None and slope is not None:
        yield from _broadcast("a slope", slope, x)


def _of_scale(op: OnnxOperation, shapes: Shapes) -> Iterator[str]:
    """Scale and bias are broadcast to what is normalised, and not the other way round."""
    x = shapes[0]
    for shape, name in zip(shapes[1:], ("a scale", "a bias"), strict=False):
        if x is not None and shape is not None:
            yield from _broadcast(name, shape, x)


def _broadcast(what: str, shape: Shape, to: Shape) -> Iterator[str]:
    pairs = list(zip_longest(reversed(shape), reversed(to)))
    if len(shape) > len(to) or any(a is not None and a not in (1, b) and a >= 0 <= b for a, b in pairs):
        yield f"{what} of shape {list(shape)} is not broadcast to {list(to)}"


# --- attention ---


def _of_attention(op: OnnxOperation, shapes: Shapes) -> Iterator[str]:
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
    mask, *pasts, lengths = (*shapes[3:], None, None, None, None)[:4]
    known = {"batch": k[0], "heads": k[1], "key-columns": k[3], "value-columns": v[3]}
    for place, (shape, name) in enumerate(zip(pasts, ("key-columns", "value-columns"), strict=True), 4):
        if shape is not None:
            yield from _compared(shape, f"batch heads past {name}", place, known)
    if mask is not None and mask:
        total = k[2] + known.get("past", -1 - k[2] if _is_present(op, 4) else 0)
        if 0 <= total < mask[-1]:  # a shorter one hides the keys that follow
            yield f"a mask of {mask[-1]} keys is not one of {total}"
        yield from _broadcast("a mask", mask[:-1], q[:3])
    if lengths is not None and lengths and 0 <= lengths[0] != q[0]:
        yield f"there are {lengths[0]} lengths for a batch of {q[0]}"


def _of_rotary(op: OnnxOperation, shapes: Shapes) -> Iterator[str]:
    """What is turned is `[batch, heads, positions, width]`, or `[batch, positions, heads * width]`; angles are `[positions, width / 2]`
    of all positions, or `[batch, positions, width / 2]` of these. One batch or position may stand for all, which kernels allow."""
    x, *angles, positions = (*shapes, None, None, None, None)[:4]
    heads = _stated(op, "num_heads") or 1
    if x is None or len(x) not in (3, 4) or min(x) < 0 or heads < 1:
        return
    batch, here = x[0], x[-2]
    width, left = divmod(x[-1], heads if len(x) == 3 else 1)
    turned = _stated(op, "rotary_embedding_dim") or width
    if left or turned % 2 or turned > width:
        yield f"{x[-1]} columns are not {heads} heads of which {turned} columns are turned"
    known = {"batch": batch, "positions": here, "angles": turned // 2}
    dims = f"{'all' if _is_present(op, 3) else 'batch positions'} angles"
    for place, (shape, words) in enumerate(zip((*angles, positions), (dims, dims, "batch positions"), strict=True), 1):
        if shape is not None:
            yield from _compared([-1 if n == 1 else n for n in shape], words, place, known)


# --- operators that are told where, or how far ---


def _of_lengths(op: OnnxOperation, shapes: Shapes) -> Iterator[str]:
    """A sequence of each entry of the batch has a length."""
    x, lengths = shapes
    axis = _stated(op, "batch_axis")
    if x is not None and lengths is not None and len(lengths) == 1 and len(x) > 1:
        if 0 <= lengths[0] != x[1 if axis is None else axis] >= 0:
            yield f"there are {lengths[0]} lengths for a batch of {x[1 if axis is None else axis]}"


def _of_scatter_nd(op: OnnxOperation, shapes: Shapes) -> Iterator[str]:
    """Updates are one for each index, of the dims of the data that an index leaves."""
    data, indices, updates = shapes
    if data is None or not indices or indices[-1] < 0:
        return
    if indices[-1] > len(data):
        yield f"an index of {indices[-1]} numbers is none of {len(data)} dims"
    elif updates is not None:
        wanted = (*indices[:-1], *data[indices[-1] :])
        if any(a is None or b is None or 0 <= a != b >= 0 for a, b in zip_longest(updates, wanted)):
            yield f"updates of shape {list(updates)} are not {list(wanted)}"


def _of_deformed(op: OnnxOperation, shapes: Shapes) -> Iterator[str]:
    """Places of every row and column of the kernel, and what counts there, are those of as many entries of the batch, for groups of
    channels that share them."""
    x, w, offsets, bias, mask = (*shapes, None, None)[:5]
    if x is None or w is None or len(x) < 2 or len(w) != len(x):
        return
    shared = _stated(op, "offset_group") or 1
    yield from _channels(x[1], w, bias[0] if bias else -1, _stated(op, "group") or 1, False)
    if x[1] % shared:
        yield f"{x[1]} channels are not {shared} groups"
    known = {"batch": x[0], "places": prod(w[2:]) if min(w[2:]) >= 0 else -1}
    known = {name: extent for name, extent in known.items() if extent >= 0}
    for place, (shape, times) in enumerate(((offsets, shared * (len(x) - 2)), (None, 1), (mask, shared)), 2):
        if shape is not None:
            yield from _compared(shape, f"batch {times}*places ...", place, known)


_CHECKS: Mapping[str, Callable[[OnnxOperation, Shapes], Iterator[str]]] = {
    **dict.fromkeys(_SIGNATURES, _of_signature),
    **dict.fromkeys(_CONVOLUTIONS, _of_convolution),
    "DeformConv": _of_deformed,
    "PRelu": _of_slope,
    "ReverseSequence": _of_lengths,
    "ScatterND": _of_scatter_nd,
    "LayerNormalization": _of_scale,
    "RMSNormalization": _of_scale,
    "Attention": _of_attention,
    "RotaryEmbedding": _of_rotary,
}
