"""The operators as functions of torch tensors, for `distir run`. Only workers import this module, and torch with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional
from xdsl.ir import Operation

from distir_example.dialect import NormMatmulOp


def compile_kernel(op: Operation, types: Any, device: torch.device) -> Callable[[list[Any]], Sequence[Any]]:
    """The operation as a function of its operands, made once and run often."""
    assert isinstance(op, NormMatmulOp)
    epsilon = op.epsilon.value.data

    def norm_matmul(operands: list[Any]) -> Sequence[Any]:
        x, scale, weight = operands
        return (functional.rms_norm(x, scale.shape, scale, epsilon) @ weight,)

    return norm_matmul
