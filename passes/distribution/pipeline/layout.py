"""Where things are in a D/T/P program: degrees, device groups, places of values, and the calls that are alike.

Device of (stage p, replica d, tensor rank t) = (p * D + d) * T + t: Megatron's order, tp fastest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType, i64
from xdsl.ir import Attribute

from distir.dialects.dist import PartAttr
from distir.dialects.dist.attributes import on_device, placed
from distir.dialects.errors import DistirError
from distir.dialects.sharding import Partial, Sharded, State, mapped
from distir.passes.distribution.conversions import shard_ranges
from distir.passes.distribution.options import local_shape


@dataclass(frozen=True)
class Layout:
    """Degrees of a D/T/P program."""

    dp: int
    tp: int
    pp: int
    microbatches: int

    @property
    def devices(self) -> int:
        return self.dp * self.tp * self.pp

    def group(self, stage: int, replica: int) -> list[int]:
        """The devices of one replica of one stage."""
        first = (stage * self.dp + replica) * self.tp
        return list(range(first, first + self.tp))


@dataclass(frozen=True)
class Tensor:
    """What a value of the staged entry is along the batch and the tensor axis. `type` is that of one microbatch of one replica,
    all tensor ranks joined, and so are the pieces of `batch`."""

    batch: State
    tensor: State
    type: Attribute

    def rows_joined(self, parts: int) -> tuple[int, ...]:
        """The shape of so many parts of the batch together."""
        shape = cast("TensorType[Any]", self.type).get_shape() if isinstance(self.type, TensorType) else ()
        if not isinstance(self.batch, Sharded):
            return shape
        dim = self.batch.dim
        return (*shape[:dim], shape[dim] * parts, *shape[dim + 1 :])


@cache
def local_types(tensor: Tensor, layout: Layout) -> list[Attribute]:
    """For every device, the type of what it holds of a value, all microbatches joined."""
    shape = local_shape(tensor.rows_joined(layout.microbatches), tensor.tensor, layout.tp)
    type_ = TensorType(cast("TensorType[Any]", tensor.type).element_type, shape)
    return [placed(type_, on_device(device)) for device in range(layout.devices)]


@cache
def part_of(tensor: Tensor, layout: Layout, replica: int, rank: int) -> PartAttr:
    """The part of a global array that one rank of a replica holds, all microbatches joined."""
    parts = layout.dp * layout.microbatches
    shape = tensor.rows_joined(parts)
    dims: list[list[tuple[int, int]]] = [[(0, n)] for n in shape]
    reductions = {s.reduction for s in (tensor.batch, tensor.tensor) if isinstance(s, Partial)}
    if len(reductions) > 1:
        raise DistirError("a result is addends of different kinds over replicas and over tensor ranks")
    if isinstance(tensor.batch, Sharded):
        joined = Sharded(tensor.batch.dim, mapped(tensor.batch.pieces, lambda piece: piece * parts))
        dims[tensor.batch.dim] = shard_ranges(joined, replica, layout.dp)
    if isinstance(tensor.tensor, Sharded):
        dim = tensor.tensor.dim
        ranges = shard_ranges(_of_all_parts(tensor.tensor, tensor.batch, parts), rank, layout.tp)
        both = [(max(a, c), min(b, d)) for a, b in dims[dim] for c, d in ranges]
        dims[dim] = [(start, stop) for start, stop in both if start < stop]
    return PartAttr(dims, shape, next(iter(reductions), None))


def _of_all_parts(state: Sharded, batch: State, parts: int) -> Sharded:
    """A state of one part of the batch, for so many parts together: a dim that the batch cuts too has the pieces of each of its rows."""
    if not isinstance(batch, Sharded) or batch.dim != state.dim:
        return state
    if len(state.pieces) < len(batch.pieces):  # the batch is inside
        return Sharded(state.dim, mapped(state.pieces, lambda piece: piece * parts))
    each = len(state.pieces) // len(batch.pieces)
    runs = [tuple(state.pieces[i * each : (i + 1) * each]) * parts for i in range(len(batch.pieces))]
    return Sharded(state.dim, tuple(chain.from_iterable(runs)))


@cache
def sent_to(type_: Attribute, device: int) -> tuple[Attribute, Attribute]:
    """Of a send to a device: the type of its result, and its `to`."""
    there = placed(type_, on_device(device))
    return there, IntegerAttr(device, i64)


@cache
def rows_of(
    type_: Attribute, dim: int, microbatch: int, microbatches: int
) -> tuple[Attribute, tuple[tuple[str, Attribute], ...]]:
    """Of a slice that takes one microbatch's rows: the type of its result, and its properties."""
    tensor = cast("TensorType[Any]", type_)
    shape = tensor.get_shape()
    rows = shape[dim] // microbatches
    starts, stops = [0] * len(shape), list(shape)
    starts[dim], stops[dim] = microbatch * rows, (microbatch + 1) * rows
    result = _with_extent(type_, dim, rows)
    properties = [(name, DenseArrayBase.from_list(i64, at)) for name, at in (("starts", starts), ("stops", stops))]
    return result, tuple(properties)


@cache
def _with_extent(type_: Attribute, dim: int, extent: int) -> Attribute:
    tensor = cast("TensorType[Any]", type_)
    shape = list(tensor.get_shape())
    shape[dim] = extent
    return TensorType(tensor.element_type, shape, tensor.encoding)
