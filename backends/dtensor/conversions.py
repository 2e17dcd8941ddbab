"""Reshards on one rank. In goes a value in one sharding state; out comes a DTensor in another, by one `redistribute`
where DTensor's placements express both.

A dim in several pieces is a DTensor with that dim in the order of shards (shard 0's part of every piece first), cut
evenly; it is permuted while no axis cuts it. A whole value becomes a partial sum without communication: one shard
keeps it, the others have zeros (for a maximum or minimum, all keep it)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor

from distir.backends.dtensor.plan import placement
from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Partial, Sharded
from distir.passes.distribution.mesh import AxisStates, Mesh

Order = tuple[tuple[int, int], ...]
"""Half-open ranges of a dim, one after the other."""


@dataclass(frozen=True)
class Conversions:
    """On one rank, of values over one mesh."""

    mesh: Mesh
    devices: DeviceMesh

    @property
    def whole(self) -> AxisStates:
        return (REPLICATED,) * len(self.mesh.axes)

    def distribute(self, tensor: torch.Tensor, states: AxisStates) -> DTensor:
        """A tensor that every rank has, in these states; nothing is communicated."""
        cut = tuple(REPLICATED if isinstance(state, Partial) else state for state in states)
        for dim in range(tensor.ndim):
            if (order := self._order(cut, dim)) is not None:
                tensor = tensor.index_select(dim, _elements(order).to(tensor.device))
        placed = distribute_tensor(tensor, self.devices, [placement(s) for s in cut], src_data_rank=None)
        return self._as_addends(placed, cut, states)

    def from_local(self, tensor: torch.Tensor, states: AxisStates) -> DTensor:
        """The value whose part (or addend) on this rank is given."""
        return DTensor.from_local(tensor.contiguous(), self.devices, [placement(s) for s in states], run_check=False)

    def full(self, tensor: DTensor, states: AxisStates) -> torch.Tensor:
        """The whole value, on every rank."""
        return self.convert(tensor, states, self.whole).to_local()

    def convert(self, tensor: DTensor, source: AxisStates, target: AxisStates) -> DTensor:
        """The value in other states."""
        if source == target:
            return tensor
        if (why := self.mesh.conflict(target)) is not None:
            raise DistirError(
                f"a value of shape {list(tensor.shape)} cannot be sharded over {dict(self.mesh.axes)}: {why}"
            )
        reordered = [d for d in range(tensor.ndim) if self._order(source, d) != self._order(target, d)]
        gathered = tuple(
            REPLICATED if self._leaves(before, after, reordered) else before
            for before, after in zip(source, target, strict=True)
        )
        tensor = self._redistribute(tensor, source, gathered)
        for dim in reordered:
            tensor = self._permuted(tensor, gathered, dim, self._order(source, dim), self._order(target, dim))
        cut = tuple(
            before if isinstance(after, Partial) else after for before, after in zip(gathered, target, strict=True)
        )
        return self._as_addends(self._redistribute(tensor, gathered, cut), cut, target)

    def _leaves(self, before: object, after: object, reordered: Sequence[int]) -> bool:
        """Whether an axis is made whole on the way: it cuts a dim that is permuted, or what it makes is addends."""
        if isinstance(before, Sharded) and before.dim in reordered:
            return True
        return isinstance(after, Partial) and before != after

    def _redistribute(self, tensor: DTensor, source: AxisStates, target: AxisStates) -> DTensor:
        return tensor if source == target else tensor.redistribute(self.devices, [placement(s) for s in target])

    def _order(self, states: AxisStates, dim: int) -> Order | None:
        """The elements of a dim in the order of shards, in ranges: the axes that cut it may do so in pieces of their own. None for its
        own order."""
        cut = {axis: s for axis, s in enumerate(states) if isinstance(s, Sharded) and s.dim == dim}
        if all(len(state.pieces) == 1 for state in cut.values()):
            return None
        state, sizes = next(iter(cut.values())), [n if axis in cut else 1 for axis, n in enumerate(self.mesh.sizes)]
        found = [r for at in product(*map(range, sizes)) for r in self.mesh.ranges(state, states, at)]
        return None if all(before[1] == after[0] for before, after in pairwise(found)) else tuple(found)

    def _permuted(
        self, tensor: DTensor, states: AxisStates, dim: int, before: Order | None, after: Order | None
    ) -> DTensor:
        """A dim that no axis cuts, from one order to another."""
        local = tensor.to_local()
        if before is not None:
            local = local.index_select(dim, torch.argsort(_elements(before)).to(local.device))
        if after is not None:
            local = local.index_select(dim, _elements(after).to(local.device))
        return self.from_local(local, states)

    def _as_addends(self, tensor: DTensor, source: AxisStates, target: AxisStates) -> DTensor:
        """Where the target is partial and the source whole, by zeros."""
        if source == target:
            return tensor
        local = tensor.to_local()
        for axis, (before, after) in enumerate(zip(source, target, strict=True)):
            if before == after or not isinstance(after, Partial):
                continue
            if after.reduction not in (Reduction.SUM, Reduction.MAX, Reduction.MIN):
                raise DistirError(f"a whole value cannot be made partial {after.reduction}")
            if after.reduction is Reduction.SUM and self.devices.get_local_rank(axis) != 0:
                local = torch.zeros_like(local)
        return self.from_local(local, target)


def _elements(order: Order) -> torch.Tensor:
    return torch.cat([torch.arange(start, stop) for start, stop in order])
