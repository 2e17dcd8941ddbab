"""Readings of the types: ways to trust type inference. In goes a probe op; out come readings, each stricter than the last.

Where what types say gives no stand-in that runs, stricter readings are tried: no elements appear or vanish (views), factors of
equal extent are one (contractions), sizes alone do not grow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distir.passes.shardcombine.dim_groups import Types
from distir.passes.shardcombine.factors import LARGEST_LEFTOVER, Factor
from distir.passes.shardcombine.probe_op import Point, ProbeOp, Shapes


@dataclass(frozen=True)
class Reading:
    """One way to trust type inference."""

    types: Types
    tied: bool = False
    """Factors of equal extent that are not told apart by results are one."""
    ties_results: bool = False
    """So are those that are told apart by results."""
    smallest: int = 2
    """Factors of smaller extents are not taken."""
    with_sizes: bool = False
    """Whether size entries of a factor's extent belong to it, though types do not need them."""
    evident: bool = False
    """Whether a factor of size entries and at most one dim must show in a result dim in which no other factor does: types may
    let a stride grow with what it strides over. If so, leftovers may be made small together."""
    with_sums: bool = True
    """Whether what other factors leave of dims of several operands is a factor, however small."""
    shown: bool = False
    """Whether a factor of sizes must show in some result: types may let a stride grow with what it strides over, and no result
    with them."""
    likely: tuple[tuple[int, ...], ...] = ()
    """Sets of slots that may grow together."""
    of_operands: bool = False
    """Whether a factor must be carried by a data operand: a size alone may have to stay above another (the end of a slice)."""
    of_dims: bool = False
    """Whether a factor may have no size entry: types may let a stride grow with what it strides over, where the op does not
    run."""

    grouping: bool = False
    """Whether a factor of sizes must show in a result and have dims of several operands, as a number of groups has: other numbers
    stay as they are."""
    one_by_one: bool = False
    """Whether a factor is left out that, with those before it, changes a result dim that does not grow with it: the lesser of two dims."""
    with_large: bool = False
    """Whether a stand-in may be larger than one that is run on exact scalars."""

    def kept(self, probe_op: ProbeOp, factors: Sequence[Factor]) -> list[Factor]:
        """Without those that no result shows and that could be one only with others of the same operand (a kernel's):
        types say nothing of them, so their sizes stay."""
        if self.shown:
            factors = [f for f in factors if f.results or not any(probe_op.slots[i].is_size for i in f.slots)]
        if self.grouping:
            factors = [
                f for f in factors if _has_no_sizes(probe_op, f) or (f.results and len(_carriers(probe_op, f)) > 1)
            ]
        if self.evident:
            dims = [[i for i in f.slots if not probe_op.slots[i].is_size] for f in factors]
            plain = [f for f, of_dims in zip(factors, dims, strict=True) if len(of_dims) == len(f.slots)]
            shown = {dim for f in plain for dim in f.results}
            factors = [
                f
                for f, of_dims in zip(factors, dims, strict=True)
                if f in plain or len(of_dims) > 1 or set(f.results) - shown
            ]
        if not self.tied or self.ties_results:
            return list(factors)

        def owners(factor: Factor) -> set[int | str]:
            alike = [f for f in factors if not f.results and f.extent == factor.extent]
            return {probe_op.slots[i].owner for f in alike for i in f.slots}

        return [f for f in factors if f.results or len(owners(f)) > 1]

    def ties(self, factors: Sequence[Factor]) -> list[object]:
        """Factors with equal keys are one."""
        return [
            f.extent if self.tied and (self.ties_results or not f.results) else (i, f.results)
            for i, f in enumerate(factors)
        ]


def _has_no_sizes(probe_op: ProbeOp, factor: Factor) -> bool:
    return not any(probe_op.slots[i].is_size for i in factor.slots)


def _carriers(probe_op: ProbeOp, factor: Factor) -> set[int | str]:
    """The operands that have a dim of the factor."""
    return {probe_op.slots[i].owner for i in factor.slots if not probe_op.slots[i].is_size}


def readings(probe_op: ProbeOp) -> Iterator[Reading]:
    """Stricter and stricter: as inferred; elements conserved; without strides that grow with what they stride over; equal extents
    tied, first those that no result shows (of contractions); small extents (of kernels) kept."""
    yield Reading(probe_op.infer)

    def conserving(point: Point) -> Shapes | None:
        shapes = probe_op.infer(point)
        before = math.prod(probe_op.operand_shape(point, probe_op.tensors[0]))
        return shapes if shapes and shapes[0] is not None and math.prod(shapes[0]) == before else None

    if probe_op.tensors and conserving(probe_op.point) is not None:
        yield Reading(conserving)
    yield Reading(probe_op.infer, shown=True)
    yield Reading(probe_op.infer, tied=True)
    yield Reading(probe_op.infer, tied=True, ties_results=True)
    yield Reading(probe_op.infer, of_operands=True)
    yield Reading(probe_op.infer, evident=True)
    yield Reading(probe_op.infer, tied=True, ties_results=True, evident=True)
    yield Reading(probe_op.infer, tied=True, ties_results=True, smallest=LARGEST_LEFTOVER + 1)
    yield Reading(probe_op.infer, of_dims=True)
