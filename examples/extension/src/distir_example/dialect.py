"""The `example` dialect: an operator, which a model may contain, and a collective, which a distributed program may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import Float64Type, FloatAttr, StringAttr, TensorType, f64
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.communication import CollectiveOp


@irdl_op_definition
class NormMatmulOp(IRDLOperation):
    """`rms_norm(x) * scale @ weight` in one kernel, the norm over the last dim.

    Lifecycle: `example-fuse` and importers make them at level 1; every pass treats them like any operator."""

    name = "example.norm_matmul"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    weight = operand_def(TensorType)
    epsilon = prop_def(FloatAttr[Float64Type])
    y = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$x `,` $scale `,` $weight `epsilon` $epsilon attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, scale: SSAValue, weight: SSAValue, epsilon: float):
        super().__init__(
            operands=[x, scale, weight],
            result_types=[result_type(x.type, scale.type, weight.type)],
            properties={"epsilon": FloatAttr(epsilon, f64)},
        )

    def verify_(self) -> None:
        result_type(*(value.type for value in self.operands))


def result_type(x: Any, scale: Any, weight: Any) -> TensorType[Any]:
    """The type of the result; VerifyException where the operands do not fit."""
    x, scale, weight = (cast("TensorType[Any]", each) for each in (x, scale, weight))
    columns, shape = weight.get_shape(), x.get_shape()
    if len(columns) != 2 or not shape or scale.get_shape() != shape[-1:] or columns[0] != shape[-1]:
        got = " and ".join(str(list(each.get_shape())) for each in (x, scale, weight))
        raise VerifyException(f"expected x [..., k], scale [k] and weight [k, n], got {got}")
    return TensorType(x.element_type, [*shape[:-1], columns[1]], x.encoding)


@irdl_op_definition
class RingExchangeOp(CollectiveOp):
    """Participant i gets the operand of participant i - 1, and the first that of the last, all at once.

    Lifecycle: `example-ring` makes them of sends at level 3; `project-to-rank` writes `rank.exchange` for them."""

    name = "example.ring_exchange"
    over = opt_prop_def(StringAttr)

    def __init__(self, values: Sequence[SSAValue]):
        super().__init__(operands=[values], result_types=[[value.type for value in values]])

    def verify_shapes(self) -> None:
        self.verify_pairwise()

    def shape_over(self, shape: Sequence[int], size: int) -> tuple[int, ...]:
        return tuple(shape)


Example = Dialect("example", [NormMatmulOp, RingExchangeOp])
