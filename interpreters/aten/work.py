"""The work of `aten` contractions. In goes an operation; out come its matrix products, or flops by the formulas of
torch.utils.flop_counter where a product has no rows and columns. Every other operator moves bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import NoneType, TensorType
from xdsl.ir import Operation, SSAValue

from distir.dialects.aten import AtenOperation
from distir.interpreters.aten.properties import python_value
from distir.interpreters.work import Contraction, Kind, Work, moved_bytes

Shape = Sequence[int]


def aten_work(op: Operation) -> Work | None:
    """The work of an operator that is a contraction; None for any other. Only what is no matrix product takes torch."""
    assert isinstance(op, AtenOperation)
    products = PRODUCTS.get(op.schema.packet)
    if products is None and not op.schema.has_flops:
        return None
    made = [None if isinstance(type_, NoneType) else _shape(type_) for type_ in op.result_types]
    if products is None:
        from distir.interpreters.aten.flop_formulas import flops

        return Work(Kind.MATMUL, flops(op, [_shape(v.type) for v in op.operands], made), moved_bytes(op))
    found = products(_arguments(op), made)
    return Work(Kind.MATMUL, sum(each.flops for each in found), moved_bytes(op), tuple(found))


def is_loops(op: Operation) -> bool:
    """Whether an operator that is no contraction does a few flops for each element."""
    return isinstance(op, AtenOperation) and op.schema.is_loops


def _arguments(op: AtenOperation) -> dict[str, Any]:
    """By name: the shapes of tensors, and properties; None of what is absent."""
    found: dict[str, Any] = {}
    for argument, value in op.values():
        if isinstance(value, SSAValue):
            found[argument.name] = _shape(value.type)
        elif not isinstance(value, list):
            found[argument.name] = None if value is None else python_value(value, str)
    return found


def _matrix_product(first: str, second: str) -> Callable[..., list[Contraction]]:
    """Of two matrices, or of batches of them."""

    def products(arguments: dict[str, Any], made: Sequence[Shape | None]) -> list[Contraction]:
        *batch, m, k = arguments[first]
        return [Contraction(prod(batch), m, arguments[second][-1], k)]

    return products


def _convolution(arguments: dict[str, Any], made: Sequence[Shape | None]) -> list[Contraction]:
    (result,) = made
    assert result is not None
    return [_of_filters(arguments["input"], arguments["weight"], result, arguments["groups"], arguments["transposed"])]


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
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
"""By an operator's arguments, tensors given as shapes, and the shapes of its results. Flops are torch's, but with groups (torch counts
each as if it had all filters)."""


def _shape(type_: Any) -> Shape:
    assert isinstance(type_, TensorType)
    return cast(TensorType[Any], type_).get_shape()
