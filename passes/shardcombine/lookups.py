"""Lookups: an operator takes indices of positions, and each shard has some of the positions. In go a probe and a
factor that no plain cut carries; out comes a cut with what to do about indices of other shards, or None.

Shards shift the indices by the start of their own positions. For indices of other shards, one of these makes the
whole: results are zero there (and add up: rows of a table), or equal an operand (an operand is overwritten there);
an operand is made zero there (it is added somewhere); or the index becomes a number of the operator that it ignores
(a class, a padding index)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from xdsl.dialects.builtin import TensorType

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Combine, Gather, Outside, OutsideKind, Reduce
from distir.passes.shardcombine.arithmetic import Floats
from distir.passes.shardcombine.cuts import Cut, Layout, Survivor, expected_shapes, local_point, portions
from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.draws import Draw, Trial
from distir.passes.shardcombine.probe_op import Slot, integers_of
from distir.passes.shardcombine.probing import Probe


class Lookup:
    """One candidate: a factor that no shards carry as they are."""

    def __init__(self, probe: Probe, cut: Cut, survivors: Sequence[Survivor]):
        self.probe, self.cut, self.survivors = probe, cut, survivors
        self.extent = cut.factor.extent

    def survivor(self) -> Survivor | None:
        """The cut with its combines and what is done about indices outside; None if it is no lookup."""
        if (index := self._index()) is None:
            return None
        for outside in self._ways():
            if self.probe.bounds[index] is None and outside.ignored is None:
                continue
            dims = self._dims(index, outside)
            if dims is None or not self._is_read(index, outside.ignored):
                continue
            if (combines := self._combines(index, outside, dims)) is not None:
                return Survivor(self.cut, combines, offset=outside)
        return None

    def _index(self) -> int | None:
        """The only operand of integers, if its indices are of the positions that are cut, in one piece."""
        probe, cut = self.probe, self.cut
        operands = enumerate(probe.probe_op.op.operands)
        found = [i for i, v in operands if isinstance(v.type, TensorType) and probe.probe_op.kind(i) == "integer"]
        if (
            len(found) != 1
            or found[0] not in probe.probe_op.tensors
            or any(o != Layout() for o in cut.layouts.values())
        ):
            return None
        is_carrier = any(probe.probe_op.slots[i].owner == found[0] for i in cut.factor.slots)
        return None if is_carrier or probe.bounds[found[0]] not in ((0, self.extent), None) else found[0]

    def _ways(self) -> Iterator[Outside]:
        """What may be done about indices outside; of numbers that are no positions whatever the extent, the negative ones."""
        probe, results = self.probe, self.cut.factor.results
        floats = [i for i in probe.probe_op.tensors if probe.probe_op.kind(i) == "float"]
        if not results and len(probe.kinds) == 1 and not any(s.is_size for s in self._slots()):
            yield Outside()
        if len(results) == 1 == len(probe.kinds):
            for i in floats:
                owned = [(s.owner, s.position) for s in self._slots()]
                if probe.shapes[i] == probe.small.shapes[0] and (i, results[0][1]) in owned:
                    yield Outside(OutsideKind.KEPT, i)
        if results:
            yield from (Outside(OutsideKind.ZERO, i) for i in floats)
        stated = {n for attribute in probe.probe_op.op.properties.values() for n in integers_of(attribute) or ()}
        yield from (Outside(OutsideKind.IGNORED, n) for n in sorted(stated) if n < 0)

    def _slots(self) -> list[Slot]:
        return [self.probe.probe_op.slots[i] for i in self.cut.factor.slots]

    def _dims(self, index: int, outside: Outside) -> list[int] | None:
        """The dim of what is masked that each dim of the indices is, -1 for one of extent 1; None if some is none."""
        found: list[int] = []
        if outside.kind is OutsideKind.IGNORED:
            return found
        probe_op = self.probe.probe_op
        for d, extent in enumerate(self.probe.shapes[index]):
            slot = next((i for i, s in enumerate(probe_op.slots) if (s.owner, s.position) == (index, d)), None)
            survivor = next((s for s in self.survivors if slot in s.cut.layouts), None)
            dim = None if survivor is None else self._masked_dim(survivor, outside)
            if dim is None and extent != 1:
                return None
            found.append(-1 if dim is None else dim)
        kept = [d for d in found if d >= 0]
        return found if kept == sorted(set(kept)) else None

    def _masked_dim(self, survivor: Survivor, outside: Outside) -> int | None:
        if outside.kind is OutsideKind.ZERO:
            for i, layout in survivor.cut.layouts.items():
                slot = self.probe.probe_op.slots[i]
                if slot.owner == outside.number and layout == Layout():
                    return slot.position
            return None
        combine = survivor.combines[0]
        return combine.dim if isinstance(combine, Gather) and combine == Gather(combine.dim) else None

    def _is_read(self, index: int, ignored: int | None) -> bool:
        """Whether a negative index is an error or what we take it for, whatever it is: one from the end, or ignored (by
        kernels, if there are any: exact code may know less of what they accept). A type without negative numbers has none for
        what is before a shard."""
        probe, extent = self.probe, self.extent
        arithmetic = probe.arithmetic if ignored is None else Floats(positive=True)
        try:
            arrays = dict(probe.drawn[0].arrays if ignored is None else probe.draw(arithmetic, 0).arrays)
        except Exception:
            return False
        if arrays[index].dtype.kind == "u":
            return False

        def results(value: int) -> list[Array | None] | None:
            arrays[index] = np.full_like(arrays[index], value)
            return (probe.run_shards([probe.small.point], [arrays], arithmetic) or [None])[0]

        def agree(got: list[Array | None], expected: list[Array | None] | None) -> bool:
            pairs = zip(got, expected or [None] * len(got), strict=True)
            return all(a is not None and b is not None and arithmetic.equal(a, b) for a, b in pairs)

        for value in (-100, *range(-extent - 1, 0)):
            if (got := results(value)) is None or got[0] is None:
                continue
            if ignored is None and not (value + extent >= 0 and agree(got, results(value + extent))):
                return False
            if ignored is not None and not agree(got, results(ignored)):
                return False
        return True

    def _combines(self, index: int, outside: Outside, dims: list[int]) -> tuple[Combine, ...] | None:
        """How results combine; None if they do not, or where one does not depend on anything: that shards agree says
        nothing then."""
        probe = self.probe
        if outside == Outside():
            candidates: list[list[Combine]] | None = [[Reduce(Reduction.SUM)]]
        elif outside.ignored is None:
            candidates = probe.candidates(self.cut, self.survivors)
        else:
            rows = dict(self.cut.factor.results)
            candidates = [[Gather(rows[r])] if r in rows else [Reduce(Reduction.SUM)] for r in range(len(probe.kinds))]
        if candidates is None:
            return None
        wholes: list[list[Array | None]] = []
        for trial in probe.trials(candidates):
            if outside.ignored is not None and (trial := self._with_ignored(trial, index, outside.ignored)) is None:
                return None
            wholes.append(trial.draw.results)
            if not self._narrows(trial, index, outside, dims, candidates):
                return None
        if outside.ignored is not None and any(_all_equal(each) for each in zip(*wholes, strict=True)):
            return None
        return tuple(each[0] for each in candidates)

    def holds(self, outside: Outside, combines: Sequence[Combine], trials: Sequence[Trial]) -> bool:
        """Whether these combines make the whole on these trials."""
        index = self._index()
        dims = None if index is None else self._dims(index, outside)
        for trial in trials:
            if index is None or dims is None:
                return False
            if outside.ignored is not None and (given := self._with_ignored(trial, index, outside.ignored)) is not None:
                trial = given
            trial = replace(trial, shards=min(trial.shards, self.extent))
            if not self._narrows(trial, index, outside, dims, [[each] for each in combines]):
                return False
        return bool(trials)

    def _narrows(
        self, trial: Trial, index: int, outside: Outside, dims: list[int], candidates: list[list[Combine]]
    ) -> bool:
        """Keeps the candidates that make the whole of what shards give; False if none is left."""
        parts = portions(self.extent, trial.shards)
        if (results := self._results(trial, parts, index, outside, dims)) is None:
            return False
        weights = [Fraction(part, self.extent) for part in parts]
        candidates[:] = self.probe.holding(trial, results, candidates, parts, weights)
        return all(candidates)

    def _with_ignored(self, trial: Trial, index: int, ignored: int) -> Trial | None:
        """The trial with indices of all positions, and some that are ignored already; None if the op does not take them."""
        arrays, rng = dict(trial.draw.arrays), self.probe.rng
        drawn = rng.integers(0, self.extent, arrays[index].shape)
        arrays[index] = np.where(rng.random(drawn.shape) < 0.25, ignored, drawn).astype(arrays[index].dtype)
        try:
            results = self.probe.run(self.probe.small.point, arrays, trial.arithmetic)
        except Exception:
            return None
        return replace(trial, draw=Draw(arrays, results))

    def _results(
        self, trial: Trial, parts: Sequence[int], index: int, outside: Outside, dims: list[int]
    ) -> list[list[Array | None]] | None:
        """What shards of these extents make of their operands; None if one does not run."""
        probe = self.probe
        points = [local_point(probe.small, self.cut.factor, part) for part in parts]
        for n, point in zip(parts, points, strict=True):
            if list(probe.probe_op.infer(point) or ()) != expected_shapes(probe.small, self.cut.factor, n):
                return None
        whole = [probe.shard(trial.draw, self.cut, parts, shard) for shard in range(trial.shards)]
        operands, insides = [dict(arrays) for arrays in whole], list[Array]()
        for shard, arrays in enumerate(operands):
            local = arrays[index] - sum(parts[:shard])
            inside = (local >= 0) & (local < parts[shard])
            insides.append(inside)
            if outside.ignored is not None:
                arrays[index] = np.where(inside, local, outside.ignored)
                continue
            arrays[index] = np.clip(local, 0, parts[shard] - 1)
            if outside.kind is OutsideKind.ZERO:
                masked = arrays[outside.number]
                arrays[outside.number] = np.where(_spread(inside, dims, masked), masked, np.zeros_like(masked))
        if (results := probe.run_shards(points, operands, trial.arithmetic)) is None:
            return None
        if outside.kind in (OutsideKind.RESULT, OutsideKind.KEPT):
            for shard, arrays, inside in zip(results, whole, insides, strict=True):
                if (value := shard[0]) is None:
                    return None
                kept: Array = np.zeros((), value.dtype)
                if outside.kind is OutsideKind.KEPT:
                    kept = trial.arithmetic.readable(arrays[outside.number])
                shard[0] = np.where(_spread(inside, dims, value), value, kept)
        return results


def _all_equal(arrays: Sequence[Array | None]) -> bool:
    first = arrays[0]
    return all(a is None or (first is not None and np.array_equal(a, first)) for a in arrays)


def _spread(inside: Array, dims: Sequence[int], value: Array) -> Array:
    """A mask of the indices as one of the value."""
    extents = dict(zip(dims, inside.shape, strict=True))
    return inside.reshape([extents.get(d, 1) for d in range(value.ndim)])
