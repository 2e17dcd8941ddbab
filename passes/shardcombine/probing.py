"""Probes: cut the operands of a stand-in, run the shards, compare with the whole. In goes a cut; out comes how each
result combines, or None.

Every candidate is tried with two and with three uneven shards. Local types are inferred first and must be what the
combine expects; only then does anything run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
from xdsl.dialects.builtin import TensorType

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import NO_HALO, Combine, Gather, Identity, Reduce
from distir.passes.shardcombine.arithmetic import Arithmetic, Exact, reduces
from distir.passes.shardcombine.cuts import (
    Cut,
    Layout,
    Survivor,
    cuts,
    expected_shapes,
    factor_name,
    local_point,
    pieces_of,
    portions,
    shard_indices,
)
from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.draws import Draw, Draws, Trial
from distir.passes.shardcombine.factors import Factor
from distir.passes.shardcombine.probe_op import FLOATING, Point, ProbeOp
from distir.passes.shardcombine.standins import StandIn


class Probe(Draws):
    """Runs a probe op at its stand-in, whole and in shards."""

    def __init__(self, probe_op: ProbeOp, small: StandIn, seed: int = 0):
        super().__init__(probe_op, small, seed)
        self.named = {factor_name(factor): factor for factor in small.factors}

    def cuts(self, factor: Factor, survivors: Sequence[Survivor] = ()) -> Iterator[Cut]:
        """Ways to cut the operands along a factor, as `cuts.cuts` has them."""
        return cuts(self.probe_op, self.small, factor, survivors)

    def combines(
        self, cut: Cut, partial: Sequence[int] = (), survivors: Sequence[Survivor] = ()
    ) -> tuple[Combine, ...] | None:
        """How results combine when operands are cut and these others are partial sums; None if they do not. Results may
        lie inside those of survivors."""
        dims = [len([d for result, d in cut.factor.results if result == r]) for r in range(len(self.kinds))]
        if any(count > 1 for count in dims):
            return None
        if (candidates := self.candidates(cut, survivors)) is None:
            return None
        for trial in self.trials(candidates):
            draw, shards = trial.draw, trial.shards
            parts = portions(cut.factor.extent, shards)
            points = [local_point(self.small, cut.factor, part) for part in parts]
            for part, point in zip(parts, points, strict=True):
                if (shapes := self.probe_op.infer(point)) is None or list(shapes) != expected_shapes(
                    self.small, cut.factor, part
                ):
                    return None
            operands = [self.shard(draw, cut, parts, shard) for shard in range(shards)]
            for i in partial:
                addends = trial.arithmetic.addends(draw.arrays[i], shards, Reduction.SUM, self.rng)
                for shard, addend in enumerate(addends):
                    operands[shard][i] = addend
            if (results := self.run_shards(points, operands, trial.arithmetic)) is None:
                return None
            weights = [Fraction(part, cut.factor.extent) for part in parts]
            candidates[:] = self.holding(trial, results, candidates, parts, weights)
            if not all(candidates):
                return None
        return tuple(each[0] for each in candidates)

    def candidates(self, cut: Cut, survivors: Sequence[Survivor]) -> list[list[Combine]] | None:
        """Per result, the combines that its dims allow, preferred first. None where the result was seen to depend on
        nothing: that shards agree says nothing then."""
        candidates: list[list[Combine]] = []
        for r in range(len(self.kinds)):
            dim = next((d for result, d in cut.factor.results if result == r), None)
            if dim is None:
                if self.constant[r] and self.drawn[0].results[r] is not None:
                    return None
                candidates.append([Identity(), *map(Reduce, self._reductions(r))])
            else:
                known = not self.small.altered
                pieces = (
                    pieces_of(self.probe_op, self.small, cut.factor, self.small.result_leftover(r, dim))
                    if known
                    else []
                )
                candidates.append([Gather(dim), *(Gather(dim, NO_HALO, p) for p in pieces)])
                gathers = [(s, c) for s in survivors if isinstance(c := s.combines[r], Gather) and c.dim == dim]
                if gathers and not any(c.pieces for _, c in gathers):
                    gathers.sort(key=lambda pair: len(pair[1].outer))
                    outer = tuple(factor_name(s.cut.factor) for s, _ in gathers)
                    candidates[-1].append(Gather(dim, NO_HALO, (), outer))
        return candidates

    def _reductions(self, result: int) -> list[Reduction]:
        """Sums of floats are not accepted where the op casts: rounding to fewer bits does not commute with them."""
        type_ = self.probe_op.op.result_types[result]
        element = type_.element_type if isinstance(type_, TensorType) else None
        casts = self.kinds[result] in FLOATING and all(
            self.probe_op.element_type(i) != element for i in self.probe_op.tensors
        )
        if casts and not isinstance(self.arithmetic, Exact):
            return [Reduction.MAX, Reduction.MIN]
        return [Reduction.SUM, Reduction.MEAN, Reduction.MAX, Reduction.MIN, Reduction.PROD]

    def shard(self, draw: Draw, cut: Cut, parts: Sequence[int], shard: int) -> dict[int, Array]:
        """The operands of one shard of the cut."""
        arrays = dict(draw.arrays)
        for i, layout in cut.layouts.items():
            slot = self.probe_op.slots[i]
            assert isinstance(slot.owner, int)
            array = arrays[slot.owner]
            indices = shard_indices(self.small.point[i], layout.segments, parts, shard)
            arrays[slot.owner] = np.take(array, indices, slot.position)
        return arrays

    def run_shards(
        self, points: Sequence[Point], operands: Sequence[dict[int, Array]], arithmetic: Arithmetic
    ) -> list[list[Array | None]] | None:
        """The results of each shard; None if one raises, or would meet integers that no kernel checks."""
        try:
            for point, arrays in zip(points, operands, strict=True):
                kept = self.probe_op.kept(point, arrays)
                if not all(np.array_equal(arrays[i], integers) for i, integers in kept.items()):
                    return None  # no kernel checks those
            return [self.run(point, arrays, arithmetic) for point, arrays in zip(points, operands, strict=True)]
        except Exception:
            return None

    def holding(
        self,
        trial: Trial,
        results: Sequence[Sequence[Array | None]],
        candidates: Sequence[Sequence[Combine]],
        parts: Sequence[int],
        weights: Sequence[Fraction],
    ) -> list[list[Combine]]:
        """Of each result, the candidates that make the whole of what the shards gave."""
        holding: list[list[Combine]] = []
        for r, whole in enumerate(trial.draw.results):
            shards = [shard[r] for shard in results]
            if whole is None:
                holding.append([Identity()])
                continue
            present = [shard for shard in shards if shard is not None]
            holds = _combined(whole, present, parts, weights, trial.arithmetic, self.kinds[r], self.named)
            holding.append([c for c in candidates[r] if len(present) == len(shards) and holds(c)])
        return holding


def _combined(
    whole: Array,
    shards: Sequence[Array],
    parts: Sequence[int],
    weights: Sequence[Fraction],
    arithmetic: Arithmetic,
    kind: str,
    factors: Mapping[str, Factor],
) -> Callable[[Combine], bool]:
    """Whether a combine makes the whole of the shards."""
    alike = all(shard.shape == whole.shape for shard in shards)

    def holds(combine: Combine) -> bool:
        match combine:
            case Identity():
                return alike and all(arithmetic.equal(shard, whole) for shard in shards)
            case Reduce(reduction):
                return alike and reduces(arithmetic, whole, shards, reduction, weights, kind)
            case Gather(dim, _, pieces, outer):
                segments = Layout(pieces, tuple(factors[name] for name in outer)).segments
                for i, shard in enumerate(shards):
                    indices = shard_indices(whole.shape[dim], segments, parts, i)
                    if not arithmetic.equal(shard, np.take(whole, indices, dim)):
                        return False
                return True

    return holds
