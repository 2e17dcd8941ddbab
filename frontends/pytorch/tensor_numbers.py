"""Tensors of one element in place of an optimizer's Python numbers that change (a step counter), while its step is
traced. In goes code written for numbers (`math.sqrt(t)`, `max(a, t)`, `value=-lr / t`, `t.item()`); out come
operators on these tensors."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@contextmanager
def tensors_as_numbers(narrow: Sequence[tuple[Tensor, torch.dtype]] = ()) -> Generator[None]:
    """Tensors are accepted where numbers are; optimizers compute with step counters as tensors, as while they are compiled; and
    counters are float64, as Python's numbers are. What is written to a `narrow` one is rounded to the type beside it."""
    if (outer := next((mode for mode in function_modes() if isinstance(mode, _TensorsAsNumbers)), None)) is not None:
        outer.narrow |= {id(tensor): (tensor, dtype) for tensor, dtype in narrow}
        yield
        return
    compiling, default = getattr(torch.compiler, "_is_compiling_flag"), torch.get_default_dtype()
    setattr(torch.compiler, "_is_compiling_flag", True)
    torch.set_default_dtype(torch.float64)
    try:
        with _TensorsAsNumbers(narrow, default), _functions_of_numbers():
            yield
    finally:
        setattr(torch.compiler, "_is_compiling_flag", compiling)
        torch.set_default_dtype(default)


def function_modes() -> list[Any]:
    """The modes that see calls of torch's functions, outermost first."""
    from torch.overrides import _get_current_function_mode_stack  # pyright: ignore[reportPrivateUsage]

    return _get_current_function_mode_stack()


class _TensorsAsNumbers(TorchFunctionMode):
    """A number that scales an operand may be a tensor: `p.addcdiv_(g, s, value=-lr / t)`; `item()` is the tensor; and operators
    that write to a tensor of `narrow` compute in its type. What has dims is made in the `default` type, as where no number is a tensor."""

    def __init__(self, narrow: Sequence[tuple[Tensor, torch.dtype]], default: torch.dtype) -> None:
        super().__init__()
        self.default = default
        self.narrow = {id(tensor): (tensor, dtype) for tensor, dtype in narrow}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if args and (held := self.narrow.get(id(args[0]))) is not None and _writes(func):
            operands = [each.to(held[1]) if isinstance(each, Tensor) else each for each in args]
            return args[0].copy_(func(*operands, **kwargs).to(args[0].dtype))
        if func is Tensor.item:
            return args[0].detach().reshape(()).to(torch.float64 if args[0].is_floating_point() else args[0].dtype)
        key = _SCALES.get(getattr(func, "__name__", "").removesuffix("_"), "")
        if isinstance(kwargs.get(key), Tensor) and len(args) > 1:
            args = (args[0], args[1] * kwargs.pop(key), *args[2:])
        found = func(*args, **kwargs)
        if func in _MAKE and kwargs.get("dtype") is None and found.dim() and found.dtype == torch.float64:
            return found.to(self.default)
        return found


_MAKE = {torch.zeros, torch.ones, torch.full, torch.empty, torch.eye}


def _writes(func: Any) -> bool:
    """Whether a function writes to its first operand: `a.mul_(b)`, `a *= b`."""
    name = getattr(func, "__name__", "")
    return name in _IN_PLACE or (name.endswith("_") and not name.startswith("__"))


_IN_PLACE = {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")}


_SCALES = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}
"""The argument, a number, that scales the first operand after `self`."""


@contextmanager
def _functions_of_numbers() -> Generator[None]:
    """Functions of `math`, and `min` and `max`, of tensors are torch's meanwhile."""
    places = [(cast(Any, math), name, getattr(torch, name)) for name in _OF_ONE]
    places += [(math, "pow", torch.pow), (math, "isfinite", torch.isfinite)]
    places += [(builtins, "max", _larger), (builtins, "min", _smaller)]
    before = [(where, name, getattr(where, name)) for where, name, _ in places]
    for (where, name, of_tensors), (_, _, of_numbers) in zip(places, before, strict=True):
        setattr(where, name, _either(of_numbers, of_tensors))
    try:
        yield
    finally:
        for where, name, function in before:
            setattr(where, name, function)


_OF_ONE = ("sqrt", "exp", "log", "cos", "sin", "tanh", "floor", "ceil", "log2", "log10", "log1p", "expm1")


def _either(of_numbers: Callable[..., Any], of_tensors: Callable[..., Any]) -> Callable[..., Any]:
    """The function of numbers unless one of the arguments is a tensor of one element."""

    def function(*args: Any, **kwargs: Any) -> Any:
        if kwargs or not any(isinstance(each, Tensor) and each.numel() == 1 for each in args):
            return of_numbers(*args, **kwargs)
        found = of_tensors(args[0]) if len(args) == 1 else args[0]
        for each in args[1:]:
            found = of_tensors(found, each)
        return found

    return function


def _larger(a: Any, b: Any) -> Any:
    if isinstance(a, Tensor):
        return torch.maximum(a, b) if isinstance(b, Tensor) else a.clamp(min=b)
    return b.clamp(min=a) if isinstance(b, Tensor) else max(a, b)


def _smaller(a: Any, b: Any) -> Any:
    if isinstance(a, Tensor):
        return torch.minimum(a, b) if isinstance(b, Tensor) else a.clamp(max=b)
    return b.clamp(max=a) if isinstance(b, Tensor) else min(a, b)
