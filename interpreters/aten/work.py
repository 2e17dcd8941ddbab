"""The work of `aten` contractions. In goes an operation; out come its matrix products, or those of an attention kernel. Every other
operator moves bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import NoneType, TensorType
from xdsl.ir import Operation, SSAValue

from distir.dialects.aten import AtenOperation, Schema
from distir.interpreters.aten.properties import python_value
from distir.interpreters.work import Contraction, Kind, Work, attention_products, attention_work, moved_bytes

Shape = Sequence[int]


def aten_work(op: Operation) -> Work | None:
    """The work of an operator that is a contraction; None for any other."""
    assert isinstance(op, AtenOperation)
    if is_attention(op.schema):
        return _attention(op, _arguments(op))
    products = PRODUCTS.get(op.schema.packet)
    if products is None:
        return None
    made = [None if isinstance(type_, NoneType) else _shape(type_) for type_ in op.result_types]
    found = products(_arguments(op), made)
    return Work(Kind.MATMUL, sum(each.flops for each in found), moved_bytes(op), tuple(found))


def is_attention(schema: Schema) -> bool:
    """Whether an operator is a kernel of queries, keys and values, without projections of these."""
    names = {argument.name for argument in schema.arguments}
    return names >= {"query", "key", "value"} and "embed_dim" not in names


def _attention(op: AtenOperation, arguments: dict[str, Any]) -> Work:
    """Queries are [..., heads, positions, size], and [..., positions, heads, size] in what `scaled_dot_product_attention` calls. There,
    samples of different lengths are one after the other: each is taken to be as long as the longest."""
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    positions, others = (-2, -3) if "scaled_dot_product" in op.schema.packet else (-3, -2)
    batch, rows, keys = prod(query[:-3]), query[positions], key[positions]
    offsets = _of_names(arguments, "cum_seq_q", "cu_seqlens_q")
    if positions == -3 and offsets is not None:
        batch = offsets[0] - 1
        rows, keys = (_of_names(arguments, f"max_{each}", f"max_seqlen_{each}") for each in "qk")
    is_backward = op.schema.packet.endswith("_backward")
    products = attention_products(batch * query[others], rows, keys, query[-1], value[-1], is_backward)
    # PyTorch's masks begin at the first key; flash attention's own, and the second kind of the efficient kernel, end at the last.
    mask = arguments.get("custom_mask_type", int(bool(arguments.get("is_causal"))) * (1 if positions == -2 else 2))
    diagonal = {0: None, 1: 0, 2: keys - rows}[mask]
    return attention_work(op, Kind.ATTENTION_GRADIENT if is_backward else Kind.ATTENTION, products, diagonal)


def is_loops(op: Operation) -> bool:
    """Whether an operator that is no contraction does a few flops for each element."""
    return isinstance(op, AtenOperation) and op.schema.is_loops


def _arguments(op: AtenOperation) -> dict[str, Any]:
    """By name: the shapes of tensors, and properties; None of what is absent."""
    found: dict[str, Any] = {}
    for argument, value in op.values():
        if isinstance(value, SSAValue):
            found[argument.name] = None if isinstance(value.type, NoneType) else _shape(value.type)
        elif not isinstance(value, list):
            found[argument.name] = None if value is None else python_value(value, str)
    return found


def _of_names(arguments: dict[str, Any], *names: str) -> Any:
    """The argument that has one of these names; None if it is absent."""
    return next((arguments[name] for name in names if name in arguments), None)


def _matrix_product(first: str, second: str) -> Callable[..., list[Contraction]]:
    """Of two matrices, or of batches of them."""

    def products(arguments: dict[str, Any], made: Sequence[Shape | None]) -> list[Contraction]:
        *batch, m, k = arguments[first]
        return [Contraction(prod(batch), m, arguments[second][-1], k)]

    return products


def _convolution(arguments: dict[str, Any], made: Sequence[Shape | None]) -> list[Contraction]:
    (result,) = made
    assert result is not None
    x, groups = _of_names(arguments, "input", "self"), arguments.get("groups", 1)
    return [_of_filters(x, arguments["weight"], result, groups, arguments.get("transposed", False))]


def _convolution_backward(arguments: dict[str, Any], made: Sequence[Shape | None]) -> list[Contraction]:
    """That of the input is the convolution transposed; that of the weight has a row per filter, and contracts what the forward's
    rows are."""
    x, gradient, weight = arguments["input"], arguments["grad_output"], arguments["weight"]
    groups, transposed = arguments["groups"], arguments["transposed"]
    of_input, of_weight, _ = arguments["output_mask"]
    found: list[Contraction] = []
    if of_input:
        found.append(_of_filters(gradient, weight, x, groups, not transposed))
    if of_weight:
        forward = _of_filters(x, weight, gradient, groups, transposed)
        found.append(Contraction(groups, forward.n, forward.k, forward.m))
    return found


def _of_filters(x: Shape, weight: Shape, result: Shape, groups: int, transposed: bool) -> Contraction:
    """As an implicit matrix product (cuDNN's implicit GEMM): a row per result position, a column per filter, and the elements of one filter
    contracted; transposed, every input position meets every weight of its channel."""
    if transposed:
        return Contraction(groups, x[0] * prod(x[2:]), prod(weight[1:]), x[1] // groups)
    return Contraction(groups, result[0] * prod(result[2:]), weight[0] // groups, prod(weight[1:]))


PRODUCTS: dict[str, Callable[[dict[str, Any], Sequence[Shape | None]], list[Contraction]]] = {
    "mm": _matrix_product("self", "mat2"),
    "addmm": _matrix_product("mat1", "mat2"),
    "bmm": _matrix_product("self", "mat2"),
    "baddbmm": _matrix_product("batch1", "batch2"),
    "_scaled_mm": _matrix_product("self", "mat2"),
    "_int_mm": _matrix_product("self", "mat2"),
    **dict.fromkeys(
        ("convolution", "_convolution", "cudnn_convolution", "convolution_overrideable", "_slow_conv2d_forward"),
        _convolution,
    ),
    "convolution_backward": _convolution_backward,
}
"""By an operator's arguments, tensors given as shapes, and the shapes of its results. Flops are torch's, but with groups (torch counts
each as if it had all filters)."""


def _shape(type_: Any) -> Shape:
    assert isinstance(type_, TensorType)
    return cast(TensorType[Any], type_).get_shape()
