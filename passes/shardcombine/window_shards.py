"""Shards of a window. In go a window and a draw; out come the results of parts of the operator's steps, without
their margins, and whether they make the whole.

`windows` looks for windows by it, and the last check tries those of a rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Anchor, Steps
from distir.passes.shardcombine.arithmetic import reduces
from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.draws import Trial
from distir.passes.shardcombine.probe_op import Point, ProbeOp, Shapes
from distir.passes.shardcombine.probing import Probe
from distir.passes.shardcombine.window_candidates import Window

Range = tuple[int, int]


class WindowShards:
    """A window of an op, with how many rows at either end of a part do not count."""

    def __init__(self, probe_op: ProbeOp, window: Window):
        self.probe_op, self.window = probe_op, window
        owners = {i: probe_op.slots[i].owner for i in window.strides}
        self.owners = {i: owner for i, owner in owners.items() if isinstance(owner, int)}
        """The operand of every slot of the window."""
        self.margins: list[Range] = [(0, 0)] * (len(window.results) or 1)
        """Of every result, or of the operand that is filled: how many rows before and after do not count."""

    def steps(self, point: Point, shapes: Shapes) -> Steps:
        """How the op at a point is cut, by what is known of margins."""
        window, count = self.window, self.window.steps(point, shapes)
        if not window.gathers:
            ((before, after),) = self.margins
            return Steps(count, (Anchor(count, 1, before, after),))
        extents = [shape[d] for r, d, _ in window.results if (shape := shapes[r]) is not None]
        of_results = zip(extents, window.results, self.margins, strict=True)
        return Steps(count, tuple(Anchor(extent, result[2], *margins) for extent, result, margins in of_results))

    def _arrays(self, probe: Probe, trial: Trial, own: Range) -> dict[int, Array]:
        """The operands, with zeros beyond a shard's own steps in those that are filled; of which only the shape counts: everywhere."""
        arrays = dict(trial.draw.arrays)
        for slot in self.window.filled:
            owner, position = self.owners[slot], self.probe_op.slots[slot].position
            zeros = np.zeros_like(arrays[owner])
            if not self.window.gathers:
                index = (slice(None),) * position + (slice(*own),)
                zeros[index] = arrays[owner][index]
            arrays[owner] = zeros
        return arrays

    def part(self, probe: Probe, trial: Trial, low: int, high: int, own: Range) -> list[Array] | None:
        """What the op makes of the steps from low to high, of which a shard has its own; None if it does not."""
        window, point, shapes = self.window, probe.small.point, probe.small.shapes
        fewer = window.steps(point, shapes) - (high - low)
        local = window.moved(point, -fewer)
        arrays = self._arrays(probe, trial, own)
        for slot, stride in window.strides.items():
            owner, start = self.owners[slot], stride * low
            if local[slot] < 1:
                return None
            rows = range(start, start + local[slot])
            arrays[owner] = np.take(arrays[owner], rows, self.probe_op.slots[slot].position)
        expected = window.expected(shapes, fewer)
        if (inferred := self.probe_op.infer(local)) is None or list(inferred) != expected:
            return None
        results = probe.run_shards([local], [arrays], trial.arithmetic)
        if results is None or [None if r is None else r.shape for r in results[0]] != expected:
            return None
        return [array for array in results[0] if array is not None]

    def wrong(self, trial: Trial, parts: Sequence[Array], starts: Sequence[int]) -> list[list[int]]:
        """Of each result that grows, the rows of a part, counted in the part, that are not those of the whole."""
        found: list[list[int]] = []
        for (result, dim, _), part, start in zip(self.window.results, parts, starts, strict=True):
            whole = trial.draw.results[result]
            assert whole is not None
            rows = ((row, np.take(part, row, dim), np.take(whole, start + row, dim)) for row in range(part.shape[dim]))
            found.append([row for row, got, wanted in rows if not trial.arithmetic.equal(got, wanted)])
        return found

    def holds(self, probe: Probe, trials: Iterable[Trial]) -> bool:
        """Whether shards without their margins are the parts of the whole, or their results its addends, and some runs less than all steps."""
        steps = self.steps(probe.small.point, probe.small.shapes)
        ways = [_parts(cuts) for cuts in zip(*(_cuts(anchor.extent) for anchor in steps.anchors), strict=True)]
        if all(steps.covering(own) == (0, steps.count) for shards in ways for own in shards):
            return False
        for trial in trials:
            seen: dict[object, list[Array] | None] = {}
            for shards in ways:
                for own in shards:
                    if own not in seen:
                        seen[own] = self._shard(probe, trial, steps, own)
                    if seen[own] is None:
                        return False
                if not self.window.gathers and not self._add_up(probe, trial, [seen[own] or [] for own in shards]):
                    return False
        return True

    def _shard(self, probe: Probe, trial: Trial, steps: Steps, own: tuple[Range, ...]) -> list[Array] | None:
        """What a shard that has these rows of each anchor gives; None if they are not those of the whole."""
        low, high = steps.covering(own)
        parts = self.part(probe, trial, low, high, own[0])
        if parts is None or not self.window.gathers:
            return parts
        kept: list[Array] = []
        for (first, last), (_, dim, stride), part in zip(own, self.window.results, parts, strict=True):
            if not 0 <= first - stride * low < last - stride * low <= part.shape[dim]:
                return None
            kept.append(np.take(part, range(first - stride * low, last - stride * low), dim))
        return None if any(self.wrong(trial, kept, [first for first, _ in own])) else kept

    def _add_up(self, probe: Probe, trial: Trial, shards: Sequence[Sequence[Array]]) -> bool:
        weights = [Fraction(1, len(shards))] * len(shards)
        wholes = [
            (whole, kind) for whole, kind in zip(trial.draw.results, probe.kinds, strict=True) if whole is not None
        ]
        return all(
            kind == "float" and reduces(trial.arithmetic, whole, [s[i] for s in shards], Reduction.SUM, weights, kind)
            for i, (whole, kind) in enumerate(wholes)
        )


def equal(trial: Trial, results: Sequence[Array | None], expected: Sequence[Array | None]) -> bool:
    both = zip(results, expected, strict=True)
    return all(a is None or b is None or trial.arithmetic.equal(a, b) for a, b in both)


def _parts(cuts: Sequence[Sequence[int]]) -> list[tuple[Range, ...]]:
    """The ranges between cuts of several extents, those that have rows of each: a third of three rows is one, and between may be none."""
    every = zip(*(pairwise(cut) for cut in cuts), strict=True)
    return [own for own in every if all(first < last for first, last in own)]


def _cuts(extent: int) -> tuple[tuple[int, ...], ...]:
    third = extent // 3
    return (0, third, extent), (0, 1, 1 + third, extent), (0, third, third + 1, extent - 1, extent)
