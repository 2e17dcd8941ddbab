"""Communication of one rank on torch.distributed: each `rank` op as a function of its operands.

Everything happens in the order of the program, blocking, so ranks meet as the program says. Tensors that only move go
as flat bytes, since gloo does not carry every element type. Collectives over parts of unequal extents, which
torch.distributed does not have, are made of those that it has, here and nowhere else: allgather pads to the largest
part, reducescatter is an allreduce of which each keeps its part, scatter and gather are sends. The members of a
collective tell each other their extents at its first run; it is one operation in every member's program, so all of them
do that at the same point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.operators import Compute
from distir.dialects import rank
from distir.dialects.dist.checks import replaced
from distir.dialects.dist.windows import overlaps
from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction

Members = tuple[int, ...]
"""Ranks in ascending order, which is how torch.distributed orders a group."""

_REDUCE = {
    Reduction.SUM: dist.ReduceOp.SUM,
    Reduction.MEAN: dist.ReduceOp.SUM,
    Reduction.MAX: dist.ReduceOp.MAX,
    Reduction.MIN: dist.ReduceOp.MIN,
    Reduction.PROD: dist.ReduceOp.PRODUCT,
}
_REDUCIBLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64)


def members(ranks: Iterable[int]) -> Members:
    return tuple(sorted(set(ranks)))


class Communicator:
    """This rank's groups. Created on every rank in the same order, as torch.distributed requires."""

    def __init__(self, own: int, groups: Sequence[Members], types: ElementTypes, device: torch.device) -> None:
        self.own, self.types, self.device = own, types, device
        self._groups: dict[Members, Any] = {g: dist.new_group(list(g)) for g in groups if len(g) > 1}

    def compile(self, op: rank.RankOp) -> Compute:
        """The operation as a function of its operands."""
        match op:
            case rank.WaitOp():
                return lambda operands: operands
            case rank.SendOp():
                peer = op.peer.value.data
                return lambda operands: self._send(operands[0], peer)
            case rank.RecvOp():
                return self._receive(op.output, op.peer.value.data)
            case rank.GroupOp():
                return Collective(self, op).compile()
            case _:
                raise DistirError(f"{op.name} does not run on the torch backend")

    def group(self, ranks: Members) -> Any:
        return self._groups[ranks]

    def empty(self, value: SSAValue) -> Tensor:
        """A new tensor of the value's type."""
        type_ = cast(TensorType[Any], value.type)
        return torch.empty(type_.get_shape(), dtype=self.types.of(type_.element_type), device=self.device)

    def _send(self, value: Tensor, peer: int) -> tuple[()]:
        dist.send(as_bytes(value), peer)
        return ()

    def _receive(self, output: SSAValue, peer: int) -> Compute:
        def receive(operands: list[Any]) -> Sequence[Any]:
            result = self.empty(output)
            dist.recv(as_bytes(result), peer)
            return (result,)

        return receive


def as_bytes(value: Tensor) -> Tensor:
    """The elements as flat bytes; the memory is shared if the tensor is contiguous."""
    return value.contiguous().reshape(-1).view(torch.uint8)


class Collective:
    """One collective operation. `place[j]` is the position, in participant order, of the group's j-th rank."""

    def __init__(self, communicator: Communicator, op: rank.GroupOp) -> None:
        self.communicator, self.op = communicator, op
        self.own, self.ranks = communicator.own, members(op.ranks)
        self.alone = len(self.ranks) == 1
        self.place = [op.ranks.index(r) for r in self.ranks]
        self._extents: dict[int, tuple[int, ...]] | None = None

    def compile(self) -> Compute:
        if self.alone:
            return lambda operands: operands[: len(self.op.results)]
        match self.op:
            case rank.AllReduceOp(reduction=reduction):
                return self._one(lambda x: self.allreduce(x, reduction.data))
            case rank.AllGatherOp(dim=dim):
                return self._one(lambda x: self.allgather(x, dim.value.data))
            case rank.ReduceScatterOp(dim=dim, reduction=reduction):
                return self._one(lambda x: self.reducescatter(x, dim.value.data, reduction.data))
            case rank.AllToAllOp(split=split, concat=concat):
                return self._one(lambda x: self.alltoall(x, split.value.data, concat.value.data))
            case rank.ExchangeOp(dim=dim, start=start):
                return self._one(lambda x: self.exchange(x, dim.value.data, start.value.data))
            case rank.BroadcastOp():
                return self.broadcast
            case rank.ScatterOp():
                return self.scatter
            case rank.GatherOp():
                return self.gather
            case rank.ReduceOp():
                return self.reduce
            case _:
                raise DistirError(f"{self.op.name} does not run on the torch backend")

    @staticmethod
    def _one(function: Callable[[Tensor], Tensor]) -> Compute:
        return lambda operands: (function(operands[0]),)

    @property
    def group(self) -> Any:
        return self.communicator.group(self.ranks)

    def extents(self, own: int) -> dict[int, int]:
        """Every member's extent of the dim that differs, by rank; asked for once."""
        return {rank: extent for rank, (extent,) in self._told(own).items()}

    def _told(self, *own: int) -> dict[int, tuple[int, ...]]:
        """What every member says of itself, by rank."""
        if self._extents is None:
            mine = torch.tensor(own, device=self.communicator.device)
            told = [torch.empty_like(mine) for _ in self.ranks]
            dist.all_gather(told, mine, self.group)
            self._extents = {r: tuple(map(int, each.tolist())) for r, each in zip(self.ranks, told, strict=True)}
        return self._extents

    def allreduce(self, x: Tensor, reduction: Reduction) -> Tensor:
        reduced = x.to(x.dtype if x.dtype in _REDUCIBLE else torch.int32, copy=True).contiguous()
        dist.all_reduce(reduced, _REDUCE[reduction], self.group)
        return _finished(reduced, reduction, len(self.ranks)).to(x.dtype)

    def allgather(self, x: Tensor, dim: int) -> Tensor:
        extents = self.extents(x.shape[dim])
        shapes = [(*x.shape[:dim], extents[r], *x.shape[dim + 1 :]) for r in self.ranks]
        sizes = [math.prod(shape) * x.element_size() for shape in shapes]
        mine = as_bytes(x)
        if (padding := max(sizes) - mine.numel()) > 0:
            mine = torch.nn.functional.pad(mine, (0, padding))
        received = [torch.empty_like(mine) for _ in self.ranks]
        dist.all_gather(received, mine, self.group)
        parts: list[Tensor] = [x] * len(self.ranks)
        for position, part, size, shape in zip(self.place, received, sizes, shapes, strict=True):
            parts[position] = part[:size].view(x.dtype).reshape(shape)
        return torch.cat(parts, dim)

    def reducescatter(self, x: Tensor, dim: int, reduction: Reduction) -> Tensor:
        own = cast(TensorType[Any], self.op.results[0].type).get_shape()[dim]
        extents = self.extents(own)
        if len(set(extents.values())) > 1 or x.dtype not in _REDUCIBLE:
            start = sum(extents[r] for r in self.op.ranks[: self.op.ranks.index(self.own)])
            return self.allreduce(x, reduction).narrow(dim, start, own).clone()
        chunks = [x.narrow(dim, position * own, own) for position in self.place]
        result = torch.empty_like(chunks[0], memory_format=torch.contiguous_format)
        source = torch.cat([chunk.reshape(-1) for chunk in chunks])
        dist.reduce_scatter_single(result.view(-1), source, _REDUCE[reduction], self.group)
        return _finished(result, reduction, len(self.ranks)).to(x.dtype)

    def alltoall(self, x: Tensor, split: int, concat: int) -> Tensor:
        own = cast(TensorType[Any], self.op.results[0].type).get_shape()[split]
        if split == concat:
            own //= len(self.ranks)
        told = self._told(own, x.shape[concat])
        parts = list(x.split([told[r][0] for r in self.op.ranks], split))
        sent = [as_bytes(parts[position]) for position in self.place]
        mine = parts[self.op.ranks.index(self.own)]
        shapes = [list(mine.shape) for _ in self.ranks]
        if split != concat:
            for shape, r in zip(shapes, self.ranks, strict=True):
                shape[concat] = told[r][1]
        sizes = [math.prod(shape) * x.element_size() for shape in shapes]
        received = torch.empty(sum(sizes), dtype=torch.uint8, device=x.device)
        dist.all_to_all_single(received, torch.cat(sent), sizes, [s.numel() for s in sent], group=self.group)
        for position, part, shape in zip(self.place, received.split(sizes), shapes, strict=True):
            parts[position] = part.view(x.dtype).reshape(shape)
        return torch.cat(parts, concat)

    def exchange(self, x: Tensor, dim: int, start: int) -> Tensor:
        """Messages between those that hold and those that read, posted together: no order of them can deadlock."""
        own = self.op.ranks.index(self.own)
        told = [self._told(x.shape[dim], start, _extent(self.op.results[0], dim))[r] for r in self.op.ranks]
        windows = [(first, first + length) for _, first, length in told]
        parts: list[Tensor] = []
        messages: list[Any] = []
        for holder, reader, low, high in overlaps([extent for extent, _, _ in told], windows):
            if own not in (holder, reader):
                continue
            part = x.narrow(dim, low, high - low) if holder == own else x.new_empty(replaced(x.shape, dim, high - low))
            if reader == own:
                parts.append(part)
            if holder != reader:
                post, peer = (dist.isend, reader) if holder == own else (dist.irecv, holder)
                messages.append(dist.P2POp(post, as_bytes(part), self.op.ranks[peer]))
        for message in dist.batch_isend_irecv(messages) if messages else ():
            message.wait()
        return torch.cat(parts, dim)

    def broadcast(self, operands: list[Any]) -> Sequence[Any]:
        value = operands[0].contiguous() if operands else self.communicator.empty(self.op.results[0])
        dist.broadcast(as_bytes(value), self._root, self.group)
        return (value,) if self.op.results else ()

    def scatter(self, operands: list[Any]) -> Sequence[Any]:
        op = cast(rank.ScatterOp, self.op)
        dim, result, receivers = op.dim.value.data, op.output, [int(r) for r in op.receivers.get_values()]
        extents = self.extents(0 if result is None else cast(TensorType[Any], result.type).get_shape()[dim])
        if not operands:
            received = self.communicator.empty(cast(SSAValue, result))
            dist.recv(as_bytes(received), self._root)
            return (received,)
        kept: tuple[Tensor, ...] = ()
        for receiver, part in zip(receivers, operands[0].split([extents[r] for r in receivers], dim), strict=True):
            if receiver == self.own:
                kept = (part.clone(),)
            else:
                dist.send(as_bytes(part), receiver)
        return kept

    def gather(self, operands: list[Any]) -> Sequence[Any]:
        op = cast(rank.GatherOp, self.op)
        dim, contributors = op.dim.value.data, [int(r) for r in op.contributors.get_values()]
        extents = self.extents(operands[0].shape[dim] if operands else 0)
        if op.output is None:
            dist.send(as_bytes(operands[0]), self._root)
            return ()
        result = self.communicator.empty(op.output)
        parts: list[Tensor] = []
        for contributor, place in zip(contributors, result.split([extents[r] for r in contributors], dim), strict=True):
            part = operands[0] if contributor == self.own else torch.empty_like(place).contiguous()
            if contributor != self.own:
                dist.recv(as_bytes(part), contributor)
            parts.append(part)
        return (torch.cat(parts, dim, out=result),)

    def reduce(self, operands: list[Any]) -> Sequence[Any]:
        op = cast(rank.ReduceOp, self.op)
        reduction = op.reduction.data
        if operands:
            dtype = operands[0].dtype
            value = operands[0].to(dtype if dtype in _REDUCIBLE else torch.int32, copy=True).contiguous()
        else:
            empty = self.communicator.empty(cast(SSAValue, op.output))
            dtype = empty.dtype
            wide = dtype if dtype in _REDUCIBLE else torch.int32
            value = torch.full_like(empty, _identity(reduction, wide), dtype=wide)
        dist.reduce(value, self._root, _REDUCE[reduction], self.group)
        if op.output is None:
            return ()
        return (_finished(value, reduction, len(op.contributors.get_values())).to(dtype),)

    @property
    def _root(self) -> int:
        return cast(rank.RootedOp, self.op).root.value.data


def _extent(value: SSAValue, dim: int) -> int:
    return cast(TensorType[Any], value.type).get_shape()[dim]


def _finished(reduced: Tensor, reduction: Reduction, count: int) -> Tensor:
    """A mean is the sum over the count."""
    return reduced / count if reduction == Reduction.MEAN else reduced


def _identity(reduction: Reduction, dtype: torch.dtype) -> float | int:
    """What changes nothing when it is reduced with other values."""
    match reduction:
        case Reduction.SUM | Reduction.MEAN:
            return 0
        case Reduction.PROD:
            return 1
        case Reduction.MAX:
            return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min
        case Reduction.MIN:
            return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max
