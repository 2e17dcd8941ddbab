"""Lookups: an operand that is a table of which each shard has some positions, so that it needs the start of its own.

Results of shifted indices, zero where the index lies outside, add up to the whole."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from xdsl.dialects.builtin import TensorType

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Combine, Gather, Reduce
from distir.passes.shardcombine.cuts import Cut, Survivor, expected_shapes, local_point, portions
from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.probing import Probe


def looks_up(probe: Probe, cut: Cut, survivors: Sequence[Survivor]) -> bool:
    """Whether the cut operand is a table of which shards have some positions each: results of shifted indices, zero
    where the index lies outside, add up to the whole."""
    operands = enumerate(probe.subject.op.operands)
    indices = [i for i, v in operands if isinstance(v.type, TensorType) and probe.subject.kind(i) == "integer"]
    if (
        len(indices) != 1
        or indices[0] not in probe.subject.tensors
        or len(probe.kinds) != 1
        or cut.factor.results
        or any(o.pieces for o in cut.layouts.values())
    ):
        return False
    (index,) = indices
    slots = [probe.subject.slots[i] for i in cut.factor.slots]
    if any(s.is_size or s.owner == index for s in slots) or probe.bounds[index] != (0, cut.factor.extent):
        return False
    dims = _dims_of_indices(probe, index, survivors)
    if dims is None or not _counts_negatives(probe, index, cut.factor.extent):
        return False
    candidates: list[list[Combine]] = [[Reduce(Reduction.SUM)]]
    for trial in probe.trials(candidates):
        parts = portions(cut.factor.extent, trial.shards)
        points = [local_point(probe.small, cut.factor, part) for part in parts]
        if any(
            list(probe.subject.infer(p) or ()) != expected_shapes(probe.small, cut.factor, n)
            for n, p in zip(parts, points, strict=True)
        ):
            return False
        starts = [sum(parts[:shard]) for shard in range(trial.shards)]
        operands = [probe.shard(trial.draw, cut, parts, shard) for shard in range(trial.shards)]
        shifted = [arrays[index] - start for arrays, start in zip(operands, starts, strict=True)]
        for arrays, local, part in zip(operands, shifted, parts, strict=True):
            arrays[index] = np.clip(local, 0, part - 1)
        if (results := probe.run_shards(points, operands, trial.arithmetic)) is None:
            return False
        for shard, local, part in zip(results, shifted, parts, strict=True):
            if (value := shard[0]) is None:
                return False
            extents = dict(zip(dims, local.shape, strict=True))
            mask = ((local >= 0) & (local < part)).reshape([extents.get(d, 1) for d in range(value.ndim)])
            shard[0] = np.where(mask, value, np.zeros((), value.dtype))
        weights = [Fraction(part, cut.factor.extent) for part in parts]
        candidates[:] = probe.holding(trial, results, candidates, parts, weights)
        if not all(candidates):
            return False
    return True


def _dims_of_indices(probe: Probe, index: int, survivors: Sequence[Survivor]) -> list[int] | None:
    """The result dim that each dim of the indices is, -1 for one of extent 1; None if they are not dims of the result."""
    found: list[int] = []
    for d, extent in enumerate(probe.shapes[index]):
        slot = next((i for i, s in enumerate(probe.subject.slots) if (s.owner, s.position) == (index, d)), None)
        combine = next((s.combines[0] for s in survivors if slot in s.cut.layouts), None)
        match combine:
            case Gather(dim, (0, 0), (), ()):
                found.append(dim)
            case None if extent == 1:
                found.append(-1)
            case _:
                return None
    kept = [d for d in found if d >= 0]
    return found if kept == sorted(set(kept)) else None


def _counts_negatives(probe: Probe, index: int, extent: int) -> bool:
    """Whether a negative index is an error or counts from the end, whatever it is (no index is one to ignore)."""
    arrays = dict(probe.drawn[0].arrays)

    def results(value: int) -> list[Array | None] | None:
        arrays[index] = np.full_like(arrays[index], value)
        return (probe.run_shards([probe.small.point], [arrays], probe.arithmetic) or [None])[0]

    for value in (-100, *range(-extent - 1, 0)):
        if (got := results(value)) is None or got[0] is None:
            continue
        counted = results(value + extent) if value + extent >= 0 else None
        if counted is None or counted[0] is None or not probe.arithmetic.equal(got[0], counted[0]):
            return False
    return True
