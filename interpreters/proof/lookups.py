"""Lookups in a shard of a table (a gather of some of its rows). In: the operands of an operation. Out: what they are without
what was done to the indices and operands for the shard's positions, and how the results are to be masked."""

from __future__ import annotations

from xdsl.interpreter import PythonValues

from distir.dialects.sharding import OutsideKind
from distir.interpreters.proof.indices import Mismatch
from distir.interpreters.proof.matching import Application, Lookup
from distir.interpreters.proof.values import Inside, LocalIndex, Outside, Shard, expect_shards


def without_lookups(operands: PythonValues) -> tuple[list[Shard], Lookup | None]:
    """The operands as they are without what was done for a lookup, and what was."""
    indices = [(i, v) for i, v in enumerate(operands) if isinstance(v, LocalIndex)]
    masks = [(i, v) for i, v in enumerate(operands) if isinstance(v, Inside)]
    if not indices:
        return expect_shards(operands), None
    if len(indices) > 1:
        raise Mismatch("several operands are indices of a shard's positions")
    ((place, index),) = indices
    dims: tuple[int, ...] = ()
    for _, mask in masks:
        if (mask.indices, mask.positions) != (index.indices, index.positions):
            raise Mismatch("an operand is masked by other indices than those that are looked up")
        dims = mask.dims
    values = [v.indices if isinstance(v, LocalIndex) else v.value if isinstance(v, Inside) else v for v in operands]
    return expect_shards(values), Lookup(place, index.positions, index.ignored, tuple(i for i, _ in masks), dims)


def masked(application: Application) -> Lookup | None:
    """How results of a lookup must be masked; checks how operands were."""
    if application.lookup is None:
        return None
    outside = application.outside
    if outside.kind is OutsideKind.ZERO and application.lookup.masked_dims != application.masked_dims():
        raise Mismatch("an operand is masked along other dims than those of the indices")
    if outside.kind not in (OutsideKind.RESULT, OutsideKind.KEPT):
        return None
    kept = outside.number if outside.kind is OutsideKind.KEPT else -1
    return Lookup(application.lookup.index, application.lookup.positions, None, (kept,), application.masked_dims())


def looked_up(result: Shard, operands: PythonValues, mask: Lookup) -> Outside:
    """A result of which only the rows of these positions are meant."""
    kept = mask.masked[0]
    return Outside(
        result,
        operands[mask.index].indices,
        mask.positions,
        mask.masked_dims,
        operands[kept] if kept >= 0 else None,
    )
