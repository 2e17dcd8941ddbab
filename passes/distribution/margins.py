"""Rows that a device computes beside its shard, where a halo cuts an operation. In go options and a device; out come
the rows of each result to compute, and to keep: a row that may feel the end of its window is sliced off, unless the dim ends there too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from distir.dialects.dist import SliceOp
from distir.dialects.dist.checks import replaced
from distir.dialects.sharding import Sharded, Windowed, share
from distir.passes.distribution.conversions import Insert
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.options import Option


@dataclass(frozen=True)
class Margin:
    """Of one result along one dim: the rows that a device computes, and which of them it keeps."""

    dim: int
    computed: int
    kept: tuple[int, int]

    def widened(self, type_: Attribute) -> Attribute:
        """The type of the result with its margins."""
        tensor = cast(TensorType[Any], type_)
        return TensorType(tensor.element_type, replaced(tensor.get_shape(), self.dim, self.computed), tensor.encoding)

    def trimmed(self, value: SSAValue, insert: Insert) -> SSAValue:
        """The result without its margins."""
        if self.kept == (0, self.computed):
            return value
        shape = cast(TensorType[Any], value.type).get_shape()
        op = SliceOp(value, [self.kept if d == self.dim else (0, extent) for d, extent in enumerate(shape)])
        insert(op)
        return op.output


def margins_of(options: Sequence[Option], mesh: Mesh, device: int, result: int) -> list[Margin]:
    """What a device computes of a result beyond its shard, for the axes that cut the operation with a halo."""
    found: list[Margin] = []
    for option, size, coordinate in zip(options, mesh.sizes, mesh.coordinates(device), strict=True):
        state = option.results[result] if option.results else None
        reads = next((s for s in option.operands if isinstance(s, Windowed)), None)
        if reads is not None and isinstance(state, Sharded):
            anchor = reads.steps.anchors[sum(isinstance(s, Sharded) for s in option.results[:result])]
            first, last = share(anchor.extent, coordinate, size)
            low, high = reads.steps.rows(anchor.extent, anchor.stride, coordinate, size)
            found.append(Margin(state.dim, high - low, (first - low, last - low)))
    return found
