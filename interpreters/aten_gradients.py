"""Whether the operands of a gradient operator of ATen fit together, which its own inference of shapes may not look at.

`foo_backward` takes the gradient of the first result of `foo` first, then what `foo` took, under the same names, and
results of `foo` that were kept. So `foo` on meta tensors says what shapes those must have: the gradient of a convolution
takes any there, and its kernel then reads outside of the smaller batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_SUFFIX = "_backward"


_SIZES = "input_sizes"
"""What gradients of views have in the place of `self`."""


@cache
def _forward(gradient: Any) -> Any:
    """The operator of which this one is the gradient; None if there is none of that name, or none of its overloads takes
    what the gradient does."""
    name = gradient.overloadpacket.__name__
    if gradient.namespace != "aten" or not name.endswith(_SUFFIX):
        return None
    packet = getattr(torch.ops.aten, name.removesuffix(_SUFFIX), None)
    if packet is None or hasattr(packet, gradient._overloadname):
        return getattr(packet, gradient._overloadname, None)
    taken = {argument.name: str(argument.type) for argument in gradient._schema.arguments}
    for overload in (getattr(packet, name) for name in packet.overloads()):
        first, *others = overload._schema.arguments
        if _SIZES in taken and str(first.type) == "Tensor":
            if all(taken.get(a.name) == str(a.type).replace("Optional[int]", "int") for a in others):
                return overload
    return None


def _arguments_of(forward: Any, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the operator took, from what its gradient takes; None if that does not say. A tensor may be there as its sizes,
    and no shape depends on a number that is left out."""
    found: dict[str, Any] = {}
    for position, argument in enumerate(forward._schema.arguments):
        name, kind = argument.name, str(argument.type)
        sizes = given.get(_SIZES if position == 0 and _SIZES in given else f"{name}_sizes")
        if name in given:
            found[name] = given[name]
        elif "Tensor" in kind and sizes is not None:
            found[name] = torch.empty(sizes, device="meta") if prod(sizes) else None
        elif kind.startswith("Optional"):
            found[name] = None
        elif kind in ("float", "number"):
            found[name] = 1.0
        elif not argument.has_default_value():
            return None
    return found


def _on_meta(value: Any) -> Any:
    return torch.empty(value.shape, dtype=value.dtype, device="meta") if isinstance(value, Tensor) else value


def gradient_fits(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool | None:
    """Whether the gradient and the kept results among these arguments have the shapes that the operator gave; None where
    nothing says so."""
    if (forward := _forward(function)) is None:
        return None
    names = [argument.name for argument in function._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    gradient = given.get(names[0])
    if not isinstance(gradient, Tensor) or (taken := _arguments_of(forward, given)) is None:
        return None
    try:
        results = forward(**{name: _on_meta(value) for name, value in taken.items()})
    except Exception:
        return False
    made: list[Any] = [results] if isinstance(results, Tensor) else list(results)
    kept = [value for name, value in given.items() if name not in (names[0], *taken) and isinstance(value, Tensor)]
    expected = [made[0], *{len(made): made, len(made) - 1: made[1:]}.get(len(kept), [])]
    return len(expected) <= 1 + len(kept) and all(
        tensor.shape == result.shape for tensor, result in zip((gradient, *kept), expected, strict=False)
    )


class FittingGradients(TorchDispatchMode):
    """While active, an operator on a gradient that does not fit raises ValueError, but for those in `excused`; an example
    excuses what does not fit in it (operators that broadcast gradients)."""

    def __init__(self, excused: set[Any], is_example: bool):
        super().__init__()
        self.excused, self.is_example = excused, is_example

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if gradient_fits(func, args, kwargs or {}) is False:
            if self.is_example:
                self.excused.add(func)
            if func not in self.excused:
                raise ValueError(f"{func}: the gradient has not the shape of what it is the gradient of")
        return func(*args, **(kwargs or {}))
