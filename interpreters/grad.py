"""The `grad` operators on arrays, once for every domain. In go arrays, or object arrays of exact scalars; out come
results, and from operand types result types. The numpy functions use only arithmetic and order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from xdsl.ir import Attribute, Operation

from distir.dialects.grad import LossGradOp, LossOp, MatmulGradOp, ReluGradOp, SgdOp

Array = np.ndarray[Any, np.dtype[Any]]


def matmul_grad(x: Array, w: Array, dy: Array) -> tuple[Array, Array]:
    """Gradients of `y = x @ w`; the leading dims of x are samples."""
    samples, gradients = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    return (gradients @ w.T).reshape(x.shape), samples.T @ gradients


def relu_grad(x: Array, dy: Array) -> tuple[Array]:
    """`dy` where x > 0, else 0."""
    return (np.where(x > 0, dy, 0 * dy),)


def loss(prediction: Array, label: Array, count: Array) -> tuple[Array]:
    """Squared error per element, over the number of samples."""
    error = prediction - label
    return (error * error / count,)


def loss_grad(prediction: Array, label: Array, count: Array) -> tuple[Array]:
    """Gradient of the sum of `loss`."""
    return (2 * (prediction - label) / count,)


def sgd(weight: Array, gradient: Array, learning_rate: float) -> tuple[Array]:
    """One step of gradient descent."""
    return (weight - learning_rate * gradient,)


FUNCTIONS: dict[type[Operation], Callable[..., tuple[Array, ...]]] = {
    MatmulGradOp: matmul_grad,
    ReluGradOp: relu_grad,
    LossOp: loss,
    LossGradOp: loss_grad,
    SgdOp: sgd,
}

RESULT_LIKE: dict[type[Operation], tuple[int, ...]] = {
    MatmulGradOp: (0, 1),
    ReluGradOp: (0,),
    LossOp: (0,),
    LossGradOp: (0,),
    SgdOp: (0,),
}
"""Result i of each operator has the type of this operand."""


def run_grad(op: Operation, operands: Sequence[Any], floats: np.dtype[Any] | None = None) -> tuple[Array, ...]:
    """The results of one op on concrete arrays, or on object arrays of exact scalars. They are of the operands' type, so
    `floats` changes nothing."""
    constants = (op.learning_rate.value.data,) if isinstance(op, SgdOp) else ()
    return FUNCTIONS[type(op)](*(cast(Array, np.asarray(v)) for v in operands), *constants)


def grad_types(op: Operation, operand_types: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """The types of the results for these types of the operands."""
    return tuple(operand_types[i] for i in RESULT_LIKE[type(op)])
