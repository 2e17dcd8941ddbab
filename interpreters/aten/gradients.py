"""Checks operands of ATen's gradient operators, since their own inference of shapes may not. In go an operator and
its arguments; out comes an error where they do not fit together, and the integers among the forward's results
(places of maxima).

`foo_backward` takes the gradient of the first result of `foo` first, then the operands of `foo`, under the same
names, and results of `foo` that were kept. So `foo` on meta tensors gives the right shapes of all. The gradient of a
convolution itself takes any, and its kernel then reads outside of the smaller batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from xdsl.ir import Operation

from distir.dialects.aten import AtenOperation
from distir.interpreters.aten.calls import compile_call, overload
from distir.interpreters.aten.reference import array_of, tensor_of
from distir.interpreters.exact.residues import EXACT, unpacked
from distir.interpreters.exact.scalars import PRIME

Array = np.ndarray[Any, Any]

_SUFFIX = "_backward"


_SIZES = "input_sizes"
"""What gradients of views have in the place of `self`."""


@cache
def forward_of(gradient: Any) -> Any:
    """The operator of which this one is the gradient; None if there is none of that name, or none of its overloads takes
    what the gradient does."""
    name = gradient.overloadpacket.__name__
    if gradient.namespace != "aten" or not name.endswith(_SUFFIX):
        return None
    stem = name.removesuffix(_SUFFIX)
    packet = getattr(torch.ops.aten, stem, getattr(torch.ops.aten, f"{stem}_forward", None))
    if packet is None or hasattr(packet, gradient._overloadname):
        return getattr(packet, gradient._overloadname, None)
    taken = {argument.name: str(argument.type) for argument in gradient._schema.arguments}
    for candidate in (getattr(packet, name) for name in packet.overloads()):
        first, *others = candidate._schema.arguments
        if _SIZES in taken and str(first.type) == "Tensor":
            if all(taken.get(a.name) == str(a.type).replace("Optional[int]", "int") for a in others):
                return candidate
    return None


def _arguments_of(forward: Any, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the operator took, from what its gradient takes; None if that does not say. A tensor may be there as its sizes,
    and no shape depends on a number that is left out."""
    found: dict[str, Any] = {}
    for position, argument in enumerate(forward._schema.arguments):
        name, kind = argument.name, str(argument.type)
        sizes = given.get(_SIZES if position == 0 and _SIZES in given else f"{name}_sizes")
        if name in given or f"saved_{name}" in given:
            found[name] = given[name] if name in given else given[f"saved_{name}"]
        elif "Tensor" in kind and sizes is not None:
            found[name] = torch.empty(sizes, device="meta") if prod(sizes) else None
        elif kind.startswith("Optional"):
            found[name] = None
        elif kind in ("float", "number"):
            found[name] = 1.0
        elif name == "output_size":  # of a pooling or resampling: the last dims of what it gives
            found[name] = list(next(iter(given.values())).shape[-argument.N :])
        elif not argument.has_default_value():
            return None
    return found


def part_fits(function: Any, given: Mapping[str, Any]) -> bool:
    """Whether what replaces a part of an operand has the shape of the part, which `foo` of `foo_scatter` gives. Raises what that
    raises."""
    name, overload_name = function.overloadpacket.__name__, function._overloadname
    part = getattr(torch.ops.aten, name.removesuffix("_scatter"), None) if name.endswith("_scatter") else None
    if part is None or not isinstance(given.get("src"), Tensor):
        return True
    for taker in (
        getattr(part, each) for each in {overload_name: 0, **dict.fromkeys(part.overloads())} if hasattr(part, each)
    ):
        names = {argument.name for argument in taker._schema.arguments}
        if names == {each.name for each in function._schema.arguments} - {"src"}:
            return taker(**{name: given[name] for name in names & given.keys()}).shape == given["src"].shape
    return True


def convolution_fits(x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> bool:
    """What a convolution does not look at without data: whether its weight divides into groups, its bias has the channels of the
    result, and a transposed one has the channels of its weight (the convolution that it transposes gives what it takes). Raises
    what that raises."""
    stride, padding, dilation, transposed, more, groups = options
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if weight.shape[0] % groups or (bias is not None and tuple(bias.shape) != (channels,)):
        return False
    if not transposed:
        return True
    convolution, plain = torch.ops.aten.convolution, [0] * len(stride)
    given = convolution(x, weight, None, stride, padding, dilation, True, more, groups)
    return convolution(given, weight, None, stride, padding, dilation, False, plain, groups).shape[:2] == x.shape[:2]


def check_extents(function: Any, given: Mapping[str, Any]) -> None:
    """Raises ValueError where what replaces a part has not its shape, a convolution has channels that its weight has not, a
    transform has not the frequencies of its length, or numbers of samples, channels and pixels (of a norm by groups) are not the
    operands'; other operators are not looked at."""
    if not part_fits(function, given):
        raise ValueError(f"{function}: the part that is replaced has another shape")
    if function is torch.ops.aten._fft_c2r.default:
        x, dims, _, length = (given[argument.name] for argument in function._schema.arguments)
        if x.shape[dims[-1]] != length // 2 + 1:
            raise ValueError(f"{function}: {x.shape[dims[-1]]} frequencies, which are not those of {length} samples")
    if function is torch.ops.aten.convolution.default:
        x, weight, bias, *options = (given.get(argument.name) for argument in function._schema.arguments)
        if not convolution_fits(cast(Tensor, x), cast(Tensor, weight), bias, *options):
            raise ValueError(f"{function}: operands of other channels than its weight")
    if {"N", "C", "HxW"} <= given.keys():
        samples, channels, *pixels = cast(Tensor, given["input"]).shape
        by_channel = [each for name in ("weight", "bias") if (each := given.get(name)) is not None]
        if (samples, channels, prod(pixels)) != (given["N"], given["C"], given["HxW"]) or any(
            cast(Tensor, each).shape != (channels,) for each in by_channel
        ):
            raise ValueError(f"{function}: operands of other sizes than its numbers")


def _on_meta(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _given_by_operator(
    function: Any, given: Mapping[str, Any], ready: Callable[[Tensor], Tensor]
) -> dict[str, Tensor] | None:
    """By argument of the gradient operator, the result of its operator on `ready` tensors: the first by the gradient of it,
    others by what was kept of them. None where nothing says so; raises what the operator raises."""
    names = [argument.name for argument in function._schema.arguments]
    forward = forward_of(function)
    if forward is None or not isinstance(given.get(names[0]), Tensor):
        return None
    if (taken := _arguments_of(forward, given)) is None:
        return None
    taken = {name: ready(value) if isinstance(value, Tensor) else value for name, value in taken.items()}
    check_extents(forward, taken)
    results = forward(**taken)
    made: list[Tensor] = [results] if isinstance(results, Tensor) else list(results)
    kept = [name for name in names[1:] if name not in taken and isinstance(given.get(name), Tensor)]
    matched = {len(made): made, len(made) - 1: made[1:]}.get(len(kept), [])
    return {names[0]: made[0], **dict(zip(kept, matched, strict=False))}


def gradient_fits(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool | None:
    """Whether the gradient and the kept results among these arguments have the shapes that the operator gave; None where
    nothing says so."""
    names = [argument.name for argument in function._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    try:
        results = _given_by_operator(function, given, _on_meta)
    except Exception:
        return False
    return None if results is None else all(given[name].shape == each.shape for name, each in results.items())


def kept_integers(op: Operation, operands: Sequence[Array | None]) -> dict[int, Array]:
    """By operand of a gradient operation, the integers that its operator gave, on these operands: the places of maxima,
    which no kernel checks. Exact scalars count as floats."""
    assert isinstance(op, AtenOperation)
    function = overload(op.schema)
    if forward_of(function) is None:
        return {}
    tensors = [tensor_of(machine_numbers(np.asarray(operand))) for operand in operands]
    found: dict[int, Array] = {}

    def find(**given: Any) -> list[None]:
        for name, result in (_given_by_operator(function, given, lambda tensor: tensor) or {}).items():
            if not result.dtype.is_floating_point:
                found[next(i for i, tensor in enumerate(tensors) if tensor is given[name])] = array_of(result)
        return [None] * len(op.results)

    with torch.no_grad():
        compile_call(op, function=find)(tensors)
    return found


def machine_numbers(array: Array) -> Array:
    """Exact scalars as floats around zero."""
    return unpacked(array) / PRIME - 0.5 if array.dtype == EXACT else array


def _plain(tensor: Tensor) -> Tensor:
    """The tensor with machine numbers in place of exact scalars."""
    exact = getattr(tensor, "exact", None)
    return tensor if exact is None else tensor_of(exact / PRIME - 0.5)


class KeptIntegers(TorchDispatchMode):
    """While active, a gradient operator on integers that its operator does not give on the others (the places of maxima, which
    no kernel checks) raises ValueError; where those are one of `operands` themselves, it goes on with what its operator gives, and
    `found` has that, by operand."""

    def __init__(self, operands: Sequence[Tensor] = ()):
        super().__init__()
        self.operands, self.found = operands, dict[int, Array]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = {**dict(zip((a.name for a in func._schema.arguments), args, strict=False)), **(kwargs or {})}
        if forward_of(func) is not None:
            for name, result in (_given_by_operator(func, given, _plain) or {}).items():
                if result.dtype.is_floating_point:
                    continue
                place = next((i for i, operand in enumerate(self.operands) if operand is given[name]), None)
                if place is not None:
                    self.found[place] = array_of(result)
                    given[name] = result
                elif not torch.equal(result, given[name]):
                    raise ValueError(f"{func}: {name} is not what its operator gives")
            return func(**given)
        return func(*args, **(kwargs or {}))


class FittingGradients(TorchDispatchMode):
    """While active, an operator on a gradient that does not fit raises ValueError, but for those in `excused`; an example
    excuses what does not fit in it (operators that broadcast gradients). So does a convolution of other channels than its
    weight's."""

    def __init__(self, excused: set[Any], is_example: bool):
        super().__init__()
        self.excused, self.is_example = excused, is_example

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        check_extents(
            func, {**dict(zip((a.name for a in func._schema.arguments), args, strict=False)), **(kwargs or {})}
        )
        if gradient_fits(func, args, kwargs or {}) is False:
            if self.is_example:
                self.excused.add(func)
            if func not in self.excused:
                raise ValueError(f"{func}: the gradient has not the shape of what it is the gradient of")
        return func(*args, **(kwargs or {}))
