"""What the operators of the dialect mean, one function for each question. In goes an operation, with its operands; out come arrays, types
or work. How it can be cut is not said: distir finds that by running it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from distir.dialects.errors import DistirError
from distir.interpreters.work import Contraction, Kind, Work, moved_bytes
from distir_example.dialect import NormMatmulOp, result_type


def run(op: Operation, operands: Sequence[Any], floats: np.dtype[Any] | None = None) -> tuple[Any, ...]:
    """The results on arrays. Only arithmetic and `np.sqrt` are used, so that it also runs on arrays of exact scalars, by which rules are found."""
    assert isinstance(op, NormMatmulOp)
    x, scale, weight = (np.asarray(value) for value in operands)
    mean_square = (x * x).sum(-1, keepdims=True) / x.shape[-1]
    return ((x / np.sqrt(mean_square + op.epsilon.value.data) * scale) @ weight,)


def infer(op: Operation, types: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """The types of the results for these types of the operands."""
    try:
        return (result_type(*types),)
    except VerifyException as error:
        raise DistirError(f"{op.name}: {error}") from error


def work(op: Operation) -> Work:
    """What a device does: the flops of the product; each operand is read and the result written once."""
    (*rows, k), (_, n) = (cast("TensorType[Any]", op.operands[i].type).get_shape() for i in (0, 2))
    product = Contraction(batch=1, m=prod(rows), n=n, k=k)
    return Work(Kind.MATMUL, product.flops, moved_bytes(op), (product,))
