"""Kernels of operators that torch has for one kind of device only. In go tensors of any device; out come results, by
operators that torch has for all devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch.library import Library


@cache
def registered() -> Library:
    """Registers them with torch, for tensors without data too. They stay as long as the result does."""
    library = Library("aten", "IMPL")
    library.impl("max_pool2d_backward", _max_pool2d_backward, "CompositeImplicitAutograd")
    return library


def _max_pool2d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The gradient of `max_pool2d` by its operand, which finds the places of maxima anew: of equal ones the first."""
    aten, window = torch.ops.aten, (kernel_size, stride, padding, dilation, ceil_mode)
    _, places = aten.max_pool2d_with_indices(self, *window)
    return aten.max_pool2d_with_indices_backward(grad_output, self, *window, places)
