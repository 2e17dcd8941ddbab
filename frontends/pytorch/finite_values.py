"""Conditions on whether values are finite (`if torch.isnan(loss)`), while a step is traced. In goes such a
condition; out comes its answer for finite values, since a program has one path, and the place in the user's code.
Only losses, norms and values with a gradient: a mask may well be infinite."""

from __future__ import annotations

import traceback
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.overrides import TorchFunctionMode

from distir.frontends.pytorch.reasons import place_of

_ASKING = {torch.isfinite: True, Tensor.isfinite: True} | dict.fromkeys(
    (torch.isnan, Tensor.isnan, torch.isinf, Tensor.isinf), False
)
"""Functions that ask, and what they say of finite values."""
_REDUCING = (torch.all, Tensor.all, torch.any, Tensor.any)
_NEGATING = (torch.logical_not, Tensor.logical_not, Tensor.__invert__, torch.bitwise_not)
_JOINING = {torch.logical_or: any, torch.logical_and: all, Tensor.__or__: any, Tensor.__and__: all}
_READING = ("__bool__", "item")
_KNOWN = "_of_finite_values"


class FiniteValues(TorchFunctionMode):
    """Follows what such functions return through `all`, `any`, not, and, or."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, None] = {}
        """Where the user's code reads one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [each for each in args if isinstance(each, Tensor)]
        known = [getattr(each, _KNOWN, None) for each in tensors]
        try:
            result = func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            if getattr(func, "__name__", "") not in _READING or not known or known[0] is None:
                raise
            self.places[place_of(traceback.extract_stack())] = None
            return known[0]
        says = _ASKING[func] if func in _ASKING and _is_computed(tensors[0]) else _says(func, known)
        if says is not None and isinstance(result, Tensor):
            setattr(result, _KNOWN, says)
        return result


def _is_computed(value: Tensor) -> bool:
    return value.requires_grad or value.numel() == 1


def _says(func: Any, known: list[bool | None]) -> bool | None:
    """What a function says of what others say of finite values."""
    if not known or None in known:
        return None
    if func in _REDUCING:
        return known[0]
    if func in _NEGATING:
        return not known[0]
    return _JOINING[func](known) if func in _JOINING and len(known) == 2 else None
