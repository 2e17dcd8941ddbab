"""Gradients of a convolution. In go two operations of the program of one rank, out comes whether torch computes them as one.

A program has an operation for each gradient, since each has a way of its own to be cut (`frontends.pytorch.decompositions`): that of the input is the convolution
transposed. Where both are computed one after the other, the operator of both takes less time."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, BoolAttr
from xdsl.ir import Operation

from distir.dialects.aten import AtenOperation
from distir.dialects.rank import STREAM

_OF_WEIGHT = ArrayAttr([BoolAttr.from_bool(wanted) for wanted in (False, True, False)])


def are_of_one_convolution(of_input: Operation, of_weight: Operation | None) -> bool:
    """Whether these are the gradients of the input and of the weight of a convolution."""
    if not isinstance(of_input, AtenOperation) or not isinstance(of_weight, AtenOperation):
        return False
    if (of_input.name, of_weight.name) != ("aten.convolution", "aten.convolution_backward"):
        return False
    if len(of_input.operands) != 2 or STREAM in of_input.attributes or STREAM in of_weight.attributes:
        return False
    one, other = of_input.properties, of_weight.properties
    gradient, x, weight = of_weight.operands
    return (
        tuple(of_input.operands) == (gradient, weight)
        and of_input.results[0].type == x.type
        and all(one[name] == other[name] for name in ("stride", "padding", "dilation", "groups"))
        and one["transposed"] != other["transposed"]
        and other["output_mask"] == _OF_WEIGHT
        and of_weight.results[0].first_use is None
    )
