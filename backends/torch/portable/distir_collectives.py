"""The collectives of a rank's program, on torch.distributed. In go tensors of this rank; out come this rank's
results.

A collective in the program is an object, made once; its `start` communicates beside the following operations, until
`wait`. torch.distributed has no parts of unequal extents. They are made of its operations: allgather pads to the
largest part, reducescatter is an allreduce and each rank keeps its part, scatter and gather are messages. On CPUs
allgather and reducescatter are messages too, each rank to each other, of any extents: gloo's own reducescatter is an
allreduce, and its allgather copies more. The members of a collective tell each other their extents at its first run;
it is one operation in every member's program, so all of them do that at the same point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import distir_runtime
import torch
import torch.distributed as dist
from distir_runtime import Pending, as_bytes, empty, replaced
from torch import Tensor

_REDUCE = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}
_REDUCIBLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64)


class Collective:
    """One collective operation. `ranks` are its members in participant order, a torch group has them in ascending order:
    `place[j]` is the position, in participant order, of the group's j-th rank."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self.participants = list(ranks)
        self.ranks = sorted(ranks)
        self.place = [self.participants.index(r) for r in self.ranks]
        self.own = distir_runtime.RANK
        self.group = distir_runtime.group_of(self.ranks)
        self.alone = len(self.ranks) == 1
        self._extents: dict[int, tuple[int, ...]] | None = None

    def __call__(self, *operands: Tensor) -> Any:
        return self.run(operands, False)

    def start(self, *operands: Tensor) -> Any:
        """Communicates beside what follows, where torch.distributed does that for this collective; else now."""
        return self.run(operands, True)

    def run(self, operands: tuple[Tensor, ...], beside: bool) -> Any:
        """The result on this rank; with `beside` it may be a `Pending` one."""
        raise NotImplementedError

    def told(self, *own: int) -> dict[int, tuple[int, ...]]:
        """What every member says of itself, by rank; asked for once."""
        if self._extents is None:
            if self.alone:
                return {self.own: own}
            mine = torch.tensor(own, device=distir_runtime.DEVICE)
            told = [torch.empty_like(mine) for _ in self.ranks]
            dist.all_gather(told, mine, self.group)
            self._extents = {r: tuple(map(int, each.tolist())) for r, each in zip(self.ranks, told, strict=True)}
        return self._extents

    def extents(self, own: int) -> dict[int, int]:
        """Every member's extent of the dim that differs, by rank."""
        return {rank: extent for rank, (extent,) in self.told(own).items()}


_LARGE = 1 << 17
"""Bytes from which on a copy costs more than a message."""

Message = tuple[Sequence[Any], Callable[[], list[Tensor]]]
"""What to wait for, and what then gives the results."""


def exchanged(sent: Sequence[Tensor], received: Sequence[Tensor], ranks: Sequence[int], group: Any) -> list[Any]:
    """Begins messages to these ranks and from them, the two of each at once: no order can deadlock."""
    pairs = [(dist.isend, sent), (dist.irecv, received)]
    return [
        post(as_bytes(x), r, group) for post, given in pairs for x, r in zip(given, ranks, strict=True) if x.numel()
    ]


class OfTuples(Collective):
    """A collective of a tensor, or of a tuple of tensors: one message for those of each element type; between CPUs a large one has its own, which
    costs less than a copy."""

    def run(self, operands: tuple[Any, ...], beside: bool) -> Any:
        if self.alone:
            return operands[0]
        is_tuple = isinstance(operands[0], tuple)
        tensors: Sequence[Tensor] = operands[0] if is_tuple else operands
        count, types = len(tensors), [each.dtype for each in tensors]
        own = [i for i in range(count) if distir_runtime.DEVICE.type == "cpu" and self.most_bytes(tensors, i) >= _LARGE]
        small = [i for i in range(count) if i not in own]
        groups = [[i for i in small if types[i] == dtype] for dtype in dict.fromkeys(types[i] for i in small)]
        groups += [[i] for i in own]
        messages = [self.message(tensors, alike) for alike in groups]

        def end() -> Any:
            results: list[Any] = [None] * count
            for alike, (_, finish) in zip(groups, messages, strict=True):
                for i, result in zip(alike, finish(), strict=True):
                    results[i] = result
            return tuple(results) if is_tuple else results[0]

        sent_bytes = sum(each.nbytes for each in tensors)
        pending = Pending([work for works, _ in messages for work in works], end, sent_bytes)
        return pending if beside else pending.wait()

    def most_bytes(self, tensors: Sequence[Tensor], i: int) -> int:
        """Of the tensor at this place on all members together, as each of them says it; 0 where it needs no message of its own."""
        return 0

    def message(self, tensors: Sequence[Tensor], alike: Sequence[int]) -> Message:
        """Begins the message of those of the tensors at these places, which are of one element type."""
        raise NotImplementedError


class AllReduce(OfTuples):
    def __init__(self, reduction: str, ranks: Sequence[int]) -> None:
        super().__init__(ranks)
        self.reduction = reduction

    def message(self, tensors: Sequence[Tensor], alike: Sequence[int]) -> Message:
        given = [tensors[i] for i in alike]
        dtype, count = given[0].dtype, len(self.ranks)
        flat = empty([sum(each.numel() for each in given)], dtype if dtype in _REDUCIBLE else torch.int32)
        parts = _filled(flat, given)
        work = dist.all_reduce(flat, _REDUCE[self.reduction], self.group, async_op=True)
        return [work], lambda: [_finished(part, self.reduction, count).to(dtype) for part in parts]


class AllGather(OfTuples):
    def __init__(self, dim: int, ranks: Sequence[int]) -> None:
        super().__init__(ranks)
        self.dim = dim
        self.order = [self.ranks.index(r) for r in self.participants]

    def message(self, tensors: Sequence[Tensor], alike: Sequence[int]) -> Message:
        dim, order, given = self.dim, self.order, [tensors[i] for i in alike]
        told = self.told(*(each.shape[dim] for each in tensors))
        shapes = [[replaced(tensors[i].shape, dim, told[r][i]) for i in alike] for r in self.ranks]
        sizes = [[math.prod(shape) for shape in row] for row in shapes]
        totals = [sum(row) for row in sizes]
        place = self.ranks.index(self.own)
        is_whole = len(alike) == 1 and math.prod(given[0].shape[:dim]) == 1 and order == sorted(order)
        if distir_runtime.DEVICE.type == "cpu":
            received = empty([sum(totals)] if is_whole else [0], given[0].dtype)
            if is_whole:
                rows = list(received.split(totals))
                _filled(rows[place], given)
            else:
                rows = [_flat(given) if j == place else empty([n], given[0].dtype) for j, n in enumerate(totals)]
            mine = rows[place]
            others = [j for j in range(len(totals)) if j != place]
            ranks = [self.ranks[j] for j in others]
            works = exchanged([mine] * len(ranks), [rows[j] for j in others], ranks, self.group)
        else:
            is_whole = is_whole and len(set(totals)) == 1
            received = empty([len(totals), max(totals)], given[0].dtype)
            rows = [row[:total] for row, total in zip(received, totals, strict=True)]
            _filled(rows[place], given)
            mine = as_bytes(received[place])
            works = [dist.all_gather_single(as_bytes(received), mine, self.group, async_op=True)]
        whole = replaced(given[0].shape, dim, sum(told[r][alike[0]] for r in self.ranks))

        def end() -> list[Tensor]:
            if is_whole:
                return [received.view(whole)]
            split = [row.split(each) for row, each in zip(rows, sizes, strict=True)]
            columns = [[split[j][k].view(shapes[j][k]) for j in order] for k in range(len(sizes[0]))]
            return [torch.cat(column, dim) for column in columns]

        return works, end

    def most_bytes(self, tensors: Sequence[Tensor], i: int) -> int:
        told = self.told(*(each.shape[self.dim] for each in tensors))
        shape = replaced(tensors[i].shape, self.dim, sum(each[i] for each in told.values()))
        return math.prod(shape) * tensors[i].element_size()


class ReduceScatter(OfTuples):
    """`extent` is how much of the dim this rank keeps, of a tuple of each tensor."""

    def __init__(self, reduction: str, dim: int, extent: int | Sequence[int], ranks: Sequence[int]) -> None:
        super().__init__(ranks)
        self.dim, self.reduction = dim, reduction
        self.kept = [extent] if isinstance(extent, int) else list(extent)
        self.whole = AllReduce(reduction, ranks)

    def message(self, tensors: Sequence[Tensor], alike: Sequence[int]) -> Message:
        told, given, kept = self.told(*self.kept), [tensors[i] for i in alike], [self.kept[i] for i in alike]
        dim, dtype, count = self.dim, given[0].dtype, len(self.ranks)
        if distir_runtime.DEVICE.type == "cpu":
            return self._among_cpus(given, {r: [told[r][i] for i in alike] for r in self.participants})
        if dtype not in _REDUCIBLE or any(told[r][i] != self.kept[i] for r in self.ranks for i in alike):
            before = self.participants[: self.participants.index(self.own)]
            first = [sum(told[r][i] for r in before) for i in alike]
            works, whole = self.whole.message(tensors, alike)
            return works, lambda: [
                x.narrow(dim, start, extent).clone() for x, start, extent in zip(whole(), first, kept, strict=True)
            ]
        shapes = [replaced(each.shape, dim, extent) for each, extent in zip(given, kept, strict=True)]
        sizes = [math.prod(shape) for shape in shapes]
        source, result = empty([count, sum(sizes)], dtype), empty([sum(sizes)], dtype)
        for place, row in zip(self.place, source, strict=True):
            _filled(row, [x.narrow(dim, place * extent, extent) for x, extent in zip(given, kept, strict=True)])
        work = dist.reduce_scatter_single(result, source.view(-1), _REDUCE[self.reduction], self.group, async_op=True)
        parts = [part.view(shape) for part, shape in zip(result.split(sizes), shapes, strict=True)]
        return [work], lambda: [_finished(part, self.reduction, count).to(dtype) for part in parts]

    def _among_cpus(self, given: Sequence[Tensor], extents: dict[int, list[int]]) -> Message:
        """Each rank sends each other what that one keeps, and reduces what it gets, in the order of participants."""
        columns = [
            x.split(list(each), self.dim) for x, each in zip(given, zip(*extents.values(), strict=True), strict=True)
        ]
        parts = dict(
            zip(self.participants, zip(*columns, strict=True), strict=True)
        )  # of every tensor, by who keeps it
        mine, others = parts[self.own], [r for r in self.ranks if r != self.own]
        sent = [_flat(parts[r]) for r in others]
        received = [empty([sum(x.numel() for x in mine)], mine[0].dtype) for _ in others]

        def end() -> list[Tensor]:
            sizes = [x.numel() for x in mine]
            from_all = dict(zip(others, (flat.split(sizes) for flat in received), strict=True))
            values = [
                [x if r == self.own else from_all[r][i].view(x.shape) for r in self.participants]
                for i, x in enumerate(mine)
            ]
            return [distir_runtime.accumulate(self.reduction, *each) for each in values]

        return exchanged(sent, received, others, self.group), end

    def most_bytes(self, tensors: Sequence[Tensor], i: int) -> int:
        return tensors[i].nbytes


def _flat(values: Sequence[Tensor]) -> Tensor:
    """The values one after the other, in memory of their own if they are several, or not contiguous."""
    if len(values) == 1:
        return values[0].reshape(-1)
    flat = empty([sum(value.numel() for value in values)], values[0].dtype)
    _filled(flat, values)
    return flat


def _filled(flat: Tensor, values: Sequence[Tensor]) -> list[Tensor]:
    """Copies the values into a flat buffer, one after the other; where each of them is there."""
    parts = flat.split([value.numel() for value in values])
    return [part.view(value.shape).copy_(value) for part, value in zip(parts, values, strict=True)]


class AllToAll(Collective):
    """`extent` is that of this rank's result along the dim that is split."""

    def __init__(self, split: int, concat: int, extent: int, ranks: Sequence[int]) -> None:
        super().__init__(ranks)
        self.split, self.concat = split, concat
        self.extent = extent // len(self.ranks) if split == concat else extent

    def run(self, operands: tuple[Tensor, ...], beside: bool) -> Any:
        x = operands[0]
        if self.alone:
            return x
        told = self.told(self.extent, x.shape[self.concat])
        parts = list(x.split([told[r][0] for r in self.participants], self.split))
        sent = [as_bytes(parts[position]) for position in self.place]
        mine = parts[self.participants.index(self.own)]
        shapes = [list(mine.shape) for _ in self.ranks]
        if self.split != self.concat:
            for shape, r in zip(shapes, self.ranks, strict=True):
                shape[self.concat] = told[r][1]
        sizes = [math.prod(shape) * x.element_size() for shape in shapes]
        received = torch.empty(sum(sizes), dtype=torch.uint8, device=x.device)
        dist.all_to_all_single(received, torch.cat(sent), sizes, [s.numel() for s in sent], group=self.group)
        for position, part, shape in zip(self.place, received.split(sizes), shapes, strict=True):
            parts[position] = part.view(x.dtype).reshape(shape)
        return torch.cat(parts, self.concat)


class Exchange(Collective):
    """This rank gets `extent` of the dim of all members' parts together, from index `first`. Messages between those that hold and those
    that read are posted together: no order of them can deadlock."""

    def __init__(self, dim: int, first: int, extent: int, ranks: Sequence[int]) -> None:
        super().__init__(ranks)
        self.dim, self.first, self.extent = dim, first, extent

    def run(self, operands: tuple[Tensor, ...], beside: bool) -> Any:
        x = operands[0]
        if self.alone:
            return x
        own = self.participants.index(self.own)
        all_told = self.told(x.shape[self.dim], self.first, self.extent)
        told = [all_told[r] for r in self.participants]
        parts: list[Tensor] = []
        messages: list[Any] = []
        for reader, (_, low, length) in enumerate(told):
            start = 0
            for holder, (extent, _, _) in enumerate(told):
                first, last = max(low - start, 0), min(low + length - start, extent)
                start += extent
                if first >= last or own not in (holder, reader):
                    continue
                part = x.narrow(self.dim, first, last - first) if holder == own else None
                part = x.new_empty(replaced(x.shape, self.dim, last - first)) if part is None else part.contiguous()
                if reader == own:
                    parts.append(part)
                if holder != reader:
                    post, peer = (dist.isend, reader) if holder == own else (dist.irecv, holder)
                    messages.append(dist.P2POp(post, as_bytes(part), self.participants[peer]))
        for message in dist.batch_isend_irecv(messages) if messages else ():
            message.wait()
        return torch.cat(parts, self.dim)


class Broadcast(Collective):
    """The root gives the operand; who receives has a shape and an element type."""

    def __init__(self, root: int, ranks: Sequence[int], shape: Sequence[int] | None, dtype: torch.dtype | None) -> None:
        super().__init__(ranks)
        self.root, self.shape, self.dtype = root, shape, dtype

    def run(self, operands: tuple[Tensor, ...], beside: bool) -> Any:
        if self.alone:
            return operands[0]
        value = operands[0].contiguous() if operands else empty(self.shape or (), self.dtype)
        dist.broadcast(as_bytes(value), self.root, self.group)
        return value


class Scatter(Collective):
    """The root gives the operand; who receives has the shape and element type of its part, `receivers` are in the order of parts."""

    def __init__(
        self,
        dim: int,
        root: int,
        receivers: Sequence[int],
        ranks: Sequence[int],
        shape: Sequence[int] | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__(ranks)
        self.dim, self.root, self.receivers, self.shape, self.dtype = dim, root, list(receivers), shape, dtype

    def run(self, operands: tuple[Tensor, ...], beside: bool) -> Any:
        if self.alone:
            return operands[0]
        extents = self.extents(0 if self.shape is None else self.shape[self.dim])
        if not operands:
            received = empty(self.shape or (), self.dtype)
            dist.recv(as_bytes(received), self.root)
            return received
        kept = None
        for receiver, part in zip(
            self.receivers, operands[0].split([extents[r] for r in self.receivers], self.dim), strict=True
        ):
            if receiver == self.own:
                kept = part.clone()
            else:
                dist.send(as_bytes(part), receiver)
        return kept


class Gather(Collective):
    """The root, which has a shape and an element type, gets the contributors' parts, joined."""

    def __init__(
        self,
        dim: int,
        root: int,
        contributors: Sequence[int],
        ranks: Sequence[int],
        shape: Sequence[int] | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__(ranks)
        self.dim, self.root, self.contributors, self.shape, self.dtype = dim, root, list(contributors), shape, dtype

    def run(self, operands: tuple[Tensor, ...], beside: bool) -> Any:
        if self.alone:
            return operands[0]
        extents = self.extents(operands[0].shape[self.dim] if operands else 0)
        if self.shape is None:
            dist.send(as_bytes(operands[0]), self.root)
            return None
        result = empty(self.shape, self.dtype)
        parts: list[Tensor] = []
        for contributor, place in zip(
            self.contributors, result.split([extents[r] for r in self.contributors], self.dim), strict=True
        ):
            part = operands[0] if contributor == self.own else torch.empty_like(place).contiguous()
            if contributor != self.own:
                dist.recv(as_bytes(part), contributor)
            parts.append(part)
        return torch.cat(parts, self.dim, out=result)


class Reduce(Collective):
    """The root gets the contributors' values, reduced; one that contributes nothing has a shape and an element type."""

    def __init__(
        self,
        reduction: str,
        root: int,
        contributors: Sequence[int],
        ranks: Sequence[int],
        shape: Sequence[int] | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__(ranks)
        self.reduction, self.root, self.contributors = reduction, root, list(contributors)
        self.shape, self.dtype = shape, dtype

    def run(self, operands: tuple[Tensor, ...], beside: bool) -> Any:
        if self.alone:
            return operands[0]
        dtype = operands[0].dtype if operands else self.dtype
        assert dtype is not None
        wide = dtype if dtype in _REDUCIBLE else torch.int32
        if operands:
            value = operands[0].to(wide, copy=True).contiguous()
        else:
            value = torch.full(
                tuple(self.shape or ()), _identity(self.reduction, wide), dtype=wide, device=distir_runtime.DEVICE
            )
        dist.reduce(value, self.root, _REDUCE[self.reduction], self.group)
        return _finished(value, self.reduction, len(self.contributors)).to(dtype)


def _finished(reduced: Tensor, reduction: str, count: int) -> Tensor:
    """A mean is the sum over the count."""
    return reduced / count if reduction == "mean" else reduced


def _identity(reduction: str, dtype: torch.dtype) -> float | int:
    """What changes nothing when it is reduced with other values."""
    if reduction in ("sum", "mean", "prod"):
        return int(reduction == "prod")
    lowest, highest = (
        (-math.inf, math.inf) if dtype.is_floating_point else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    )
    return lowest if reduction == "max" else highest
