"""Functions that the program of one rank calls beside torch. In go tensors of this rank; out come messages for other
ranks and the results of a few local functions. It comes with every program that `distir run --emit` writes, and
`distir run` itself runs programs on it.

`start` says which rank this is, before a program is imported. Everything happens in the order of the program, so ranks meet as the
program says. Tensors that only move go as flat bytes, since gloo does not carry every element type.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import reduce as fold
from operator import attrgetter
from sys import getrefcount
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

RANK = 0
DEVICE = torch.device("cpu")
KERNELS: Sequence[Callable[[list[Any]], list[Any]]] = ()
"""What the program has no text for in torch, by number: `distir.backends.torch.kernels` makes them."""

COMPILE: str | None = None
"""The backend of torch.compile by which functions of a program are compiled (`compiled`), if they are."""

_groups: dict[tuple[int, ...], Any] = {}
_sent: list[tuple[Any, Tensor]] = []
"""Messages on their way, with what they send."""
_MOST_SENT = 64
_COMBINE: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add,
    "mean": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "prod": torch.mul,
}


def start(rank: int, device: torch.device, groups: Sequence[Sequence[int]] = ()) -> None:
    """This process is that rank. All ranks make the process groups here, once, in the same order."""
    globals().update(RANK=rank, DEVICE=device)
    _groups.clear()
    _groups.update({tuple(group): dist.new_group(list(group)) for group in groups if len(group) > 1})


def step(main: Callable[[list[Any]], list[Any]], arguments: list[Any], updates: Mapping[int, int]) -> list[Any]:
    """Runs a program once. What it updates is handed over, so that an update may be in its argument's memory, and is in the list afterwards;
    `updates` says which result each such argument becomes. Nobody else may have these tensors still, or they are copied."""
    given = list(arguments)
    for argument in updates:
        arguments[argument] = None
    results = main(given)
    all_sent()
    while _late:
        _late[0].wait()
    for argument, result in updates.items():
        arguments[argument] = results[result]
    return results


def compiled(program: Any, entry: str) -> Callable[[list[Any]], list[Any]]:
    """The entry of a program whose stages, which are the functions that the entry calls, are compiled, but for communication. An entry that calls none is
    compiled itself."""
    from distir_collectives import Collective

    for name in ("__call__", "start"):
        setattr(Collective, name, torch.compiler.disable(getattr(Collective, name)))
    for function in (send, send_beside, receive, receive_beside, wait, after, elements, kernel):
        if hasattr(program, function.__name__):
            setattr(program, function.__name__, torch.compiler.disable(function))
    main = getattr(program, entry)
    own = [
        name
        for name in main.__code__.co_names
        if getattr(vars(program).get(name), "__module__", "") == program.__name__
    ]
    for name in own or [entry]:
        setattr(program, name, torch.compile(getattr(program, name), backend=COMPILE or "inductor", dynamic=False))
    return getattr(program, entry)


def kernel(number: int) -> Callable[[list[Any]], list[Any]]:
    return KERNELS[number]


def group_of(ranks: Sequence[int]) -> Any:
    """The process group of these ranks, in ascending order; None where one rank is alone."""
    return _groups.get(tuple(ranks))


# --- messages ---------------------------------------------------------------------------------------------------------


class Pending:
    """A result on its way; what is sent for it, so many bytes, is kept until then."""

    def __init__(self, works: Sequence[Any], result: Callable[[], Any], sent_bytes: int = 0) -> None:
        self._works, self._result, self.sent_bytes = works, result, sent_bytes
        self._value: Any = None
        self._is_there = False

    def wait(self) -> Any:
        if not self._is_there:
            for work in self._works:
                work.wait()
            self._value, self._is_there = self._result(), True
            del self._works, self._result
            if self in _late:
                _late.remove(self)
        return self._value


_late: list[Pending] = []
"""What is made of results on their way, and is not waited for yet, oldest first."""
_MOST_LATE = 25 * 2**20
"""Bytes that are kept for these: as many as a bucket of gradients has."""


def wait(value: Any) -> Any:
    """The value, once it is there."""
    return value.wait() if isinstance(value, Pending) else value


def after(made: Callable[..., Any], *operands: Any) -> Any:
    """What is made of results on their way, once they are there: when it is waited for."""
    if COMPILE is not None:
        return made(*map(wait, operands))
    return _left(lambda: made(*map(wait, operands)), operands)


def elements(value: Any, count: int) -> list[Any]:
    """The elements of a tuple on its way."""
    if COMPILE is not None:
        return list(wait(value))
    tuples, parts = [value], list[Any]()

    def element(i: int) -> Any:
        if tuples:
            parts.extend(wait(tuples.pop()))
        part, parts[i] = parts[i], None  # whoever has it frees it
        return part

    return [_left(lambda i=i: element(i), [value]) for i in range(count)]


def _left(result: Callable[[], Any], operands: Sequence[Any]) -> Pending:
    """A result that is made when it is waited for, or when what is sent for all of these is too much to keep."""
    left = Pending((), result)
    for x in operands:
        if isinstance(x, Pending):
            left.sent_bytes, x.sent_bytes = left.sent_bytes + x.sent_bytes, 0
    _late.append(left)
    while sum(each.sent_bytes for each in _late) > _MOST_LATE:
        _late[0].wait()
    return left


def send(x: Tensor, peer: int) -> None:
    dist.send(as_bytes(x), peer)


def send_beside(x: Tensor, peer: int) -> None:
    """Sends beside what follows."""
    data = as_bytes(x)  # kept until it is sent: nothing is written where it is
    _sent.append((dist.isend(data, peer), data))
    if len(_sent) > _MOST_SENT:
        _sent.pop(0)[0].wait()


def receive_beside(peer: int, shape: Sequence[int], dtype: torch.dtype) -> Pending:
    """Receives beside what follows, until `wait`."""
    result = empty(shape, dtype)
    return Pending([dist.irecv(as_bytes(result), peer)], lambda: result)


def all_sent() -> None:
    """Waits for what was sent beside other things."""
    while _sent:
        _sent.pop(0)[0].wait()


def receive(peer: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    result = empty(shape, dtype)
    dist.recv(as_bytes(result), peer)
    return result


# --- local ------------------------------------------------------------------------------------------------------------


def empty(shape: Sequence[int], dtype: torch.dtype | None) -> Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device=DEVICE)


def as_bytes(value: Tensor) -> Tensor:
    """The elements as flat bytes; the memory is shared if the tensor is contiguous."""
    return value.contiguous().reshape(-1).view(torch.uint8)


def replaced(shape: Sequence[int], dim: int, extent: int) -> tuple[int, ...]:
    """The shape with the extent of one dim replaced."""
    return (*shape[:dim], extent, *shape[dim + 1 :])


def constant(text: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The tensor of these bytes: zlib, then base64."""
    raw = bytearray(zlib.decompress(base64.b64decode(text)))
    if not raw:
        return empty(shape, dtype)
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype).reshape(tuple(shape)).to(DEVICE)


def any_layout(operator: Callable[..., Any]) -> Callable[..., Any]:
    """A program has values, not memory: an operator that insists on a layout, or takes any for contiguous, is given contiguous operands."""

    def laid(x: Any) -> Any:
        return x.contiguous() if isinstance(x, Tensor) else x

    def contiguous(*operands: Any, **named: Any) -> Any:
        return operator(*map(laid, operands), **{name: laid(x) for name, x in named.items()})

    if getattr(operator, "overloadpacket", None) in _AS_IF_CONTIGUOUS:
        return contiguous
    if COMPILE is not None:
        return torch.ops.aten.reshape.default if operator in _VIEWS else operator

    def call(*operands: Any, **named: Any) -> Any:
        try:
            return operator(*operands, **named)
        except RuntimeError:
            if all(x.is_contiguous() for x in (*operands, *named.values()) if isinstance(x, Tensor)):
                raise
            return contiguous(*operands, **named)

    return call


_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
_AS_IF_CONTIGUOUS = {
    getattr(torch.ops.aten, name)
    for name in (
        "_embedding_bag _linalg_det _linalg_slogdet adaptive_max_pool2d_backward adaptive_max_pool3d_backward as_strided "
        "as_strided_copy as_strided_scatter fractional_max_pool2d_backward fractional_max_pool3d_backward max_pool2d_with_indices_backward "
        "max_pool3d_with_indices_backward native_group_norm native_group_norm_backward native_layer_norm_backward"
    ).split()
}
"""Operators with kernels that read operands as if they were contiguous (autograd, which calls them, sees to it), or whose results are of the layout.
`tests/unit/pytorch/test_layouts.py` finds them, and those of a kind that few samples show are with them."""


def reusing(operator: Callable[..., Any], in_place: Callable[..., Any]) -> Callable[..., Any]:
    """An operator whose first operand nobody uses after it: the result takes its memory, if the tensor and the memory are nobody else's."""
    fresh = any_layout(operator)
    if COMPILE is not None:
        return fresh  # memory is the compiler's

    def call(x: Tensor, *operands: Any, **named: Any) -> Any:
        if getrefcount(x) == _ALONE and x.is_inference() and x.numel() >= _WORTHWHILE:
            storage = x.untyped_storage()
            if _storage_uses(_address(storage)) == _STORAGE_ALONE and storage.nbytes() == x.nbytes:
                return in_place(x, *operands, **named)
        return fresh(x, *operands, **named)

    return call


def _of_nobody_else(f: Callable[[Tensor], Any]) -> Any:
    """What `f` says of a tensor that only a variable of its caller has."""
    x = torch.empty(1)
    return f(x)


_WORTHWHILE = 1 << 10
"""Elements from which on looking whose the memory is costs less than new memory."""
_storage_uses: Callable[[int], int] = vars(torch)["_C"]._storage_Use_Count
_address: Callable[[Any], int] = attrgetter("_cdata")


def _references(x: Tensor, *operands: Any, **named: Any) -> int:
    return getrefcount(x)


def _uses(x: Tensor, *operands: Any, **named: Any) -> int:
    storage = x.untyped_storage()
    return _storage_uses(_address(storage))


_ALONE: int = _of_nobody_else(_references)
_STORAGE_ALONE: int = _of_nobody_else(_uses)


def here(operator: Callable[..., Any]) -> Callable[..., Any]:
    """An operator without operands creates its result on this rank's device."""
    if DEVICE.type == "cpu":
        return operator

    def call(*arguments: Any, **named: Any) -> Any:
        with torch.device(DEVICE):
            return operator(*arguments, **named)

    return call


def flat(results: Sequence[Any]) -> list[Any]:
    """The results of an operator that gives lists among others."""
    return [each for r in results for each in (r if isinstance(r, list | tuple) else (r,))]


def accumulate(reduction: str, *values: Tensor) -> Tensor:
    total = fold(_COMBINE[reduction], values)
    return (total / len(values)).to(total.dtype) if reduction == "mean" else total


def scale(x: Tensor, numerator: int, denominator: int) -> Tensor:
    return (x * numerator / denominator).to(x.dtype)


def local_index(indices: Tensor, start: int, stop: int, extent: int, ignored: int | None = None) -> Tensor:
    """Indices as the shard that has [start, stop) counts them; those of other shards become the nearest inside, or `ignored`."""
    if ignored is None:
        return (_counted(indices, extent) - start).clamp(0, stop - start - 1)
    return (indices - start).masked_fill((indices < start) | (indices >= stop), ignored)


def inside(
    x: Tensor,
    indices: Tensor,
    start: int,
    stop: int,
    extent: int,
    shape: Sequence[int],
    otherwise: Tensor | None = None,
) -> Tensor:
    """The value where the index is one of the shard's, else zero or what is there in `otherwise`."""
    counted = _counted(indices, extent).reshape(tuple(shape))
    outside = (counted < start) | (counted >= stop)
    return x.masked_fill(outside, 0) if otherwise is None else torch.where(outside, otherwise, x)


def matmul_grad(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    samples, gradients = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    return dy @ w.T, samples.T @ gradients


def _counted(indices: Tensor, extent: int) -> Tensor:
    """Indices with those from the end counted from the start."""
    return torch.where(indices < 0, indices + extent, indices)
