"""The `grad` dialect: the gradient and optimizer operators of DistIR's instantiation (paper, section 2), at the
granularity at which the paper builds its MLP training step. Shapes are checked here; what the operators compute is in
`distir.interpreters.grad`, once, for every domain.

Lifecycle: training-step frontends and examples create them at level 1; every pass treats them like any operator.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import Float64Type, FloatAttr, TensorType, f64
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException


def _shape(value: SSAValue) -> tuple[int, ...]:
    return cast(TensorType[Any], value.type).get_shape()


def _expect_shape(value: SSAValue, expected: Sequence[int], what: str) -> None:
    if _shape(value) != tuple(expected):
        raise VerifyException(f"expected {what} of shape {list(expected)}, got {list(_shape(value))}")


class GradOp(IRDLOperation, ABC):
    """Base: pure, all tensors of one element type and placement."""

    traits = traits_def(Pure())

    def verify_(self) -> None:
        first = cast(TensorType[Any], self.operands[0].type)
        for i, value in enumerate([*self.operands, *self.results]):
            type_ = cast(TensorType[Any], value.type)
            if type_.element_type != first.element_type:
                raise VerifyException(
                    f"value {i}: expected element type {first.element_type}, got {type_.element_type}"
                )
            if type_.encoding != first.encoding:
                raise VerifyException(f"value {i}: expected placement {first.encoding}, got {type_.encoding}")
        self.verify_shapes()

    def verify_shapes(self) -> None:
        """Subclass hook."""


@irdl_op_definition
class MatmulGradOp(GradOp):
    """Gradients of `y = x @ w` for x of shape (..., k) and w of shape (k, n): `dx = dy @ w.T`, `dw = x.T @ dy` with the
    leading dims of x flattened."""

    name = "grad.matmul_grad"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    dy = operand_def(TensorType)
    dx = result_def(TensorType)
    dw = result_def(TensorType)
    assembly_format = "$x `,` $w `,` $dy attr-dict `:` functional-type(operands, results)"

    def verify_shapes(self) -> None:
        x, w = _shape(self.x), _shape(self.w)
        if len(w) != 2 or not x or x[-1] != w[0]:
            raise VerifyException(f"expected x of shape (..., k) and w of shape (k, n), got {list(x)} and {list(w)}")
        _expect_shape(self.dy, (*x[:-1], w[1]), "dy")
        _expect_shape(self.dx, x, "dx")
        _expect_shape(self.dw, w, "dw")


@irdl_op_definition
class ReluGradOp(GradOp):
    """Gradient of `y = relu(x)`: dy where x > 0, else 0."""

    name = "grad.relu_grad"
    x = operand_def(TensorType)
    dy = operand_def(TensorType)
    dx = result_def(TensorType)
    assembly_format = "$x `,` $dy attr-dict `:` functional-type(operands, results)"

    def verify_shapes(self) -> None:
        _expect_shape(self.dy, _shape(self.x), "dy")
        _expect_shape(self.dx, _shape(self.x), "dx")


class PredictionOp(GradOp, ABC):
    """An elementwise function of prediction, label and the number of samples (a scalar: the whole batch's)."""

    prediction = operand_def(TensorType)
    label = operand_def(TensorType)
    count = operand_def(TensorType)
    output = result_def(TensorType)
    assembly_format = "$prediction `,` $label `,` $count attr-dict `:` functional-type(operands, results)"

    def verify_shapes(self) -> None:
        _expect_shape(self.label, _shape(self.prediction), "label")
        _expect_shape(self.count, (), "count")
        _expect_shape(self.output, _shape(self.prediction), "the result")


@irdl_op_definition
class LossOp(PredictionOp):
    """Squared error, elementwise and not reduced: `(prediction - label)^2 / count`."""

    name = "grad.loss"


@irdl_op_definition
class LossGradOp(PredictionOp):
    """Gradient of `grad.loss` summed over its elements: `2 (prediction - label) / count`."""

    name = "grad.loss_grad"


@irdl_op_definition
class SgdOp(GradOp):
    """Stochastic gradient descent, one parameter: `updated = weight - learning_rate * gradient`."""

    name = "grad.sgd"
    weight = operand_def(TensorType)
    gradient = operand_def(TensorType)
    learning_rate = prop_def(FloatAttr[Float64Type])
    updated = result_def(TensorType)
    assembly_format = (
        "$weight `,` $gradient `learning_rate` $learning_rate attr-dict `:` functional-type(operands, results)"
    )

    def __init__(self, weight: SSAValue, gradient: SSAValue, learning_rate: float):
        super().__init__(
            operands=[weight, gradient],
            result_types=[weight.type],
            properties={"learning_rate": FloatAttr(learning_rate, f64)},
        )

    def verify_shapes(self) -> None:
        _expect_shape(self.gradient, _shape(self.weight), "gradient")
        _expect_shape(self.updated, _shape(self.weight), "the result")


Grad = Dialect("grad", [MatmulGradOp, ReluGradOp, LossOp, LossGradOp, SgdOp])
