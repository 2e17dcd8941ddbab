"""Partial operands. In go a probe and some operands; out come the results that are partial sums (or extremes) when these operands are."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from xdsl.dialects.builtin import ComplexType, TensorType
from xdsl.ir import Attribute

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Combine, Identity, Reduce
from distir.passes.shardcombine.arithmetic import Exact
from distir.passes.shardcombine.draws import Draw
from distir.passes.shardcombine.probe_op import FLOATING
from distir.passes.shardcombine.probing import Probe


def passes_partial(probe: Probe, operands: Sequence[int], reduction: Reduction) -> tuple[int, ...] | None:
    """The results that are partial when these operands are; the others are whole. None if no result is."""
    candidates: list[list[Combine]] = [[Identity(), Reduce(reduction)] for _ in probe.kinds]
    if not any(kind in FLOATING for kind in probe.kinds):
        return None
    if reduction is not Reduction.SUM and any(probe.probe_op.kind(i) == "complex" for i in operands):
        return None  # which have no order
    for trial in probe.trials(candidates):
        draw, shards = trial.draw, trial.shards
        locals_ = [dict(draw.arrays) for _ in range(shards)]
        for i in operands:
            addends = trial.arithmetic.addends(draw.arrays[i], shards, reduction, probe.rng)
            for local, addend in zip(locals_, addends, strict=True):
                local[i] = addend
        if (results := probe.run_shards([probe.small.point] * shards, locals_, trial.arithmetic)) is None:
            return None
        weights = [Fraction(1, shards)] * shards
        candidates[:] = probe.holding(trial, results, candidates, (1,) * shards, weights)
        if not all(candidates):
            return None
    partial = tuple(r for r, each in enumerate(candidates) if isinstance(each[0], Reduce))
    return partial or None


def copies(probe: Probe, operands: Sequence[int], results: Sequence[int]) -> bool:
    """Whether every element of these results is one of these operands or zero, in every draw. An op that copies and passes sums
    moves elements from fixed places to fixed places, so it passes every reduction."""
    if not isinstance(arithmetic := probe.arithmetic, Exact):
        return False

    def copied(draw: Draw) -> bool:
        known = np.concatenate([[0], *(arithmetic.readable(draw.arrays[i]).reshape(-1) for i in operands)])
        made = [draw.results[r] for r in results]
        return all(result is not None and np.isin(result, known).all() for result in made)

    return all(map(copied, probe.drawn))


def partial_candidates(probe: Probe) -> list[tuple[int, ...]]:
    """Sets of operands that may be partial together: one, two or all floats; if rounded, of the results' type or of complex numbers of it. One or two
    are not tried where all may be and every result is made of more than two: the others, which are whole, would be added once for each addend."""
    types = {_real(t.element_type) for t in probe.probe_op.op.result_types if isinstance(t, TensorType)}
    floats = [
        i
        for i in probe.probe_op.tensors
        if probe.probe_op.kind(i) in FLOATING
        and (isinstance(probe.arithmetic, Exact) or types == {_real(probe.probe_op.element_type(i))})
    ]
    is_sum_of_many = len(floats) > 2 and passes_partial(probe, floats, Reduction.SUM) == tuple(range(len(probe.kinds)))
    if is_sum_of_many and _is_made_of_more_than_two(probe, floats):
        return [tuple(floats)]
    sets = [*combinations(floats, 1), *combinations(floats, 2), tuple(floats)]
    return [s for s in dict.fromkeys(sets) if s]


def _is_made_of_more_than_two(probe: Probe, operands: Sequence[int]) -> bool:
    """Whether every result is another if one of three of these operands is, or of more."""
    count = np.zeros(len(probe.kinds), int)
    for trial in probe.trials([[Identity()] for _ in probe.kinds]):
        for i in operands:
            addend, *_ = trial.arithmetic.addends(trial.draw.arrays[i], 2, Reduction.SUM, probe.rng)
            changed = probe.run_shards([probe.small.point], [trial.draw.arrays | {i: addend}], trial.arithmetic)
            if changed is None:
                return False
            count += [
                a is not None and b is not None and not trial.arithmetic.equal(a, b)
                for a, b in zip(changed[0], trial.draw.results, strict=True)
            ]
            if (count > 2).all():
                return True
        return False
    return False


def _real(type_: Attribute) -> Attribute:
    """The type of the parts of complex numbers; another type as it is."""
    return type_.element_type if isinstance(type_, ComplexType) else type_
