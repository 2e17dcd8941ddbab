"""Dims whose shards overlap: the rows and columns of a convolution or pooling (MetaDist, appendix A.3.1).

A result row depends on a window of the operand's rows that moves on by a stride, so the dim does not grow in proportion to the
result (which is what other factors are found by) but by `stride` for each new row. Shards take parts of the operand
that overlap, the op runs on each as it is, with its padding, and rows that feel that a part ends where the whole does not are
discarded. How many there are at either end is seen by running the op on the first and on the last part of the whole; that
it is all there is to it is then checked on shards like any other cut: two and three, uneven, of single rows too, at every
remainder of the extent by the stride.

What type inference says of the extents holds for every instance and is checked there; what cannot be seen at one extent is a
reach beyond it. Rows are therefore as many as the op's own numbers can span (dilation times kernel), and more, and those of
the op as it was found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from distir.dialects.sharding import Gather, Identity
from distir.passes.shardcombine.cuts import Cut, Layout, Survivor
from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.draws import Trial
from distir.passes.shardcombine.factors import Factor
from distir.passes.shardcombine.probing import Probe
from distir.passes.shardcombine.standins import LARGEST_STAND_IN, StandIn
from distir.passes.shardcombine.subject import Point, Shapes, Subject
from distir.passes.shardcombine.trial_runs import runs

LARGEST_STRIDE = 8
MOST_ROWS = 96
FEWEST_ROWS = 12
_FEW, _NARROW = 2, 6
_FAR = math.lcm(*range(1, LARGEST_STRIDE + 1)) * 8


@dataclass(frozen=True)
class Window:
    """How a dim of an operand (a slot) goes with one dim of every result: `extent` is `stride * rows` and what is over."""

    slot: int
    stride: int
    dims: tuple[int | None, ...]
    """Of each result, the dim that has the rows; None for one that is absent."""

    @property
    def results(self) -> list[tuple[int, int]]:
        """The results that there are, with their dims."""
        return [(r, d) for r, d in enumerate(self.dims) if d is not None]


def altered(subject: Subject, small: StandIn, survivors: Sequence[Survivor] = ()) -> frozenset[int | str]:
    """The operands and properties of which the stand-in has other numbers than the op, not counting dims that scale, and sizes that
    scale with what survivors cut: at its own size (all groups of a convolution), the op is what they make of smaller ones."""
    scaled = {i for factor in small.factors for i in factor.slots}
    cut = {i for s in survivors if s.offset is None for i in s.cut.factor.slots if small.leftovers[i] == 1}
    both = zip(subject.slots, subject.point, small.point, strict=True)
    return frozenset(
        slot.owner
        for i, (slot, own, theirs) in enumerate(both)
        if own != theirs and i not in cut and (slot.is_size or i not in scaled)
    )


def windows(probe: Probe, survivors: Sequence[Survivor]) -> list[Survivor]:
    """The dims that no survivor carries and that can be cut with a halo. Other numbers than theirs must be the op's own: how far
    a window reaches depends on them."""
    subject, small = probe.subject, probe.small
    others = altered(subject, small, survivors)
    carried = {slot for s in survivors for slot in s.cut.factor.slots}
    gathered = {(r, c.dim) for s in survivors for r, c in enumerate(s.combines) if isinstance(c, Gather)}
    found: list[Survivor] = []
    for i, slot in enumerate(subject.slots):
        if slot.is_size or i in carried or not others <= {slot.owner}:
            continue
        window = window_of(subject, small.point, i)
        if window is None or gathered & set(window.results):
            continue
        if (survivor := _Windowed(probe, window, survivors).survivor()) is not None:
            found.append(survivor)
            gathered |= set(window.results)
    return found


def window_of(subject: Subject, point: Point, slot: int) -> Window | None:
    """How results grow with a slot, by type inference: one dim of each, by one row for every `stride`."""

    def grown(by: int) -> list[tuple[int, int] | None] | None:
        """Of each result that there is, the one dim that grows and by how much."""
        before, after = subject.infer(point), subject.infer(_moved(point, slot, by))
        if before is None or after is None:
            return None
        changes: list[tuple[int, int] | None] = []
        for old, new in zip(before, after, strict=True):
            if old is None and new is None:
                changes.append(None)
                continue
            if old is None or new is None or len(old) != len(new):
                return None
            changed = [(d, b - a) for d, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
            if len(changed) != 1:
                return None
            changes += changed
        return changes

    far = grown(_FAR) or []
    counts = {change[1] for change in far if change is not None}
    count = counts.pop() if len(counts) == 1 else 0
    if count < 1 or _FAR % count or (stride := _FAR // count) > LARGEST_STRIDE:
        return None
    dims = tuple(change[0] if change is not None else None for change in far)
    if any(grown(stride * n) != [(d, n) if d is not None else None for d in dims] for n in (1, 2, 3)):
        return None
    return Window(slot, stride, dims)


def _moved(point: Point, slot: int, by: int) -> Point:
    return (*point[:slot], point[slot] + by, *point[slot + 1 :])


class _Windowed:
    """One candidate: probes of the op with enough rows, one for every remainder of the extent by the stride."""

    def __init__(self, probe: Probe, window: Window, survivors: Sequence[Survivor]):
        self.subject, self.small, self.window, self.found = probe.subject, probe.small, window, probe.arithmetic.found
        self.slot = probe.subject.slots[window.slot]
        self.before = self.after = 0
        self._known = {i for s in survivors for i in s.cut.factor.slots}
        self.narrow = self._narrowed(survivors)

    def survivor(self) -> Survivor | None:
        """The cut and its combines; None if it does not hold."""
        probes = [Probe(self.subject, small) for small in self._stand_ins()]
        if not probes or not all(self._measure(probe) for probe in (*probes, *self._as_found(), *self._widened())):
            return None
        if not all(self._is_sound(probe) for probe in probes):
            return None
        stride = self.window.stride
        beyond = max(p.small.point[self.window.slot] - stride * self._rows(p.small.shapes) for p in probes)
        halo = stride * self.before, beyond + stride * self.after
        slots = (self.window.slot,)
        factor = Factor(slots, tuple(self.window.results), self._rows(probes[0].small.shapes))
        halos = -self.before, -self.after
        combines = tuple(Identity() if d is None else Gather(d, halos) for d in self.window.dims)
        return Survivor(Cut(factor, {self.window.slot: Layout((), (), halo, stride, is_windowed=True)}), combines)

    def _rows(self, shapes: Shapes) -> int:
        result, dim = self.window.results[0]
        shape = shapes[result]
        assert shape is not None
        return shape[dim]

    def _narrowed(self, survivors: Sequence[Survivor]) -> Point:
        """The stand-in's point with little in all other dims that may shrink: what is known to be cut, and the other dims of
        the operand. A window does not depend on them."""
        point = self.small.point
        for survivor in survivors:
            factor = survivor.cut.factor
            if any(layout != Layout() for layout in survivor.cut.layouts.values()):
                continue
            trial = tuple(v // factor.extent * _FEW if i in factor.slots else v for i, v in enumerate(point))
            point = trial if self.subject.infer(trial) is not None else point
        for i, (slot, value) in enumerate(zip(self.subject.slots, self.small.point, strict=True)):
            known = any(i in s.cut.factor.slots for s in survivors)
            if slot.owner == self.slot.owner and i != self.window.slot and not known and value > _NARROW:
                trial = _moved(point, i, _NARROW - value)
                point = trial if self.subject.infer(trial) is not None else point
        return point if runs(self.subject, point) is not None else self.small.point

    def _stand_ins(self) -> Iterator[StandIn]:
        """The op with enough rows, at every remainder; none if that is too large."""
        point, shapes = self.narrow, self.subject.infer(self.narrow)
        assert shapes is not None
        rows = self._span() // self.window.stride + FEWEST_ROWS
        more = self.window.stride * (rows - self._rows(shapes))
        for remainder in range(self.window.stride if rows <= MOST_ROWS else 0):
            moved = _moved(point, self.window.slot, more + remainder)
            inferred = self.subject.infer(moved)
            operands = [self.subject.operand_shape(moved, i) for i in self.subject.tensors]
            if inferred is None or max(math.prod(s) for s in (*operands, *inferred) if s) > LARGEST_STAND_IN:
                return
            yield replace(self.small, point=moved, shapes=inferred, factors=())

    def _as_found(self) -> Iterator[Probe]:
        """The op with all of the rows that it was found with: numbers in a callable's code are not stated."""
        slot, small = self.window.slot, self.small
        point = _moved(self.narrow, slot, self.subject.point[slot] - self.narrow[slot])
        if (shapes := self.subject.infer(point)) is None or self._rows(shapes) < FEWEST_ROWS:
            return
        operands = [self.subject.operand_shape(point, i) for i in self.subject.tensors]
        if max(math.prod(s) for s in (*operands, *shapes) if s) <= 50 * LARGEST_STAND_IN:
            yield Probe(self.subject, replace(small, point=point, shapes=shapes, factors=()))

    def _widened(self) -> Iterator[Probe]:
        """The op with each other dim of the operand that is not known to be cut longer than its rows: rows that depend on where
        they are with respect to columns are no windows."""
        for i, slot in enumerate(self.subject.slots):
            if slot.owner != self.slot.owner or i == self.window.slot or i in self._known:
                continue
            small = next(self._stand_ins(), None)
            if small is None:
                return
            point = _moved(small.point, i, 2 * small.point[self.window.slot] - small.point[i])
            if (shapes := self.subject.infer(point)) is None:
                continue
            operands = [self.subject.operand_shape(point, k) for k in self.subject.tensors]
            if max(math.prod(s) for s in (*operands, *shapes) if s) <= 50 * LARGEST_STAND_IN:
                yield Probe(self.subject, replace(small, point=point, shapes=shapes))

    def _span(self) -> int:
        """How far a window may reach: the product of the two largest numbers that the op states, or that are dims of its other
        operands and no factors (a kernel's)."""
        scaled = {i for factor in self.small.factors for i in factor.slots}
        numbers = [1, 1]
        for i, (slot, value) in enumerate(zip(self.subject.slots, self.small.point, strict=True)):
            if slot.is_size or (i not in scaled and slot.owner != self.slot.owner):
                numbers.append(value)
        return math.prod(sorted(numbers)[-2:])

    # --- runs ---

    def _part(self, probe: Probe, trial: Trial, low: int, high: int) -> list[Array] | None:
        """What the op makes of the part of the dim that gives the rows from low to high; None if it does not."""
        point, window = probe.small.point, self.window
        start = window.stride * low
        stop = point[window.slot] - window.stride * (self._rows(probe.small.shapes) - high)
        if stop <= start:
            return None
        local = _moved(point, window.slot, stop - start - point[window.slot])
        arrays = dict(trial.draw.arrays)
        assert isinstance(self.slot.owner, int)
        arrays[self.slot.owner] = np.take(arrays[self.slot.owner], range(start, stop), self.slot.position)
        expected = [
            None if shape is None else tuple(high - low if d == dim else n for d, n in enumerate(shape))
            for dim, shape in zip(window.dims, probe.small.shapes, strict=True)
        ]
        if (shapes := self.subject.infer(local)) is None or list(shapes) != expected:
            return None
        results = probe.run_shards([local], [arrays], trial.arithmetic)
        if results is None or [None if r is None else r.shape for r in results[0]] != expected:
            return None
        return [array for r, _ in window.results if (array := results[0][r]) is not None]

    def _wrong(self, trial: Trial, parts: Sequence[Array], low: int) -> list[int]:
        """The rows of a part, counted in the part, that are not those of the whole."""
        found: set[int] = set()
        for (result, dim), part in zip(self.window.results, parts, strict=True):
            whole = trial.draw.results[result]
            assert whole is not None
            for row in range(part.shape[dim]):
                if not trial.arithmetic.equal(np.take(part, row, dim), np.take(whole, low + row, dim)):
                    found.add(row)
        return sorted(found)

    def _measure(self, probe: Probe) -> bool:
        """Raises the numbers of rows that are wrong at either end of a part to what is seen; False if they are too many for
        the op to be local."""
        trials = list(probe.float_trials())
        rows = self._rows(probe.small.shapes)
        middle = rows // 2
        for trial in trials:
            first, last = self._part(probe, trial, 0, middle), self._part(probe, trial, middle, rows)
            if first is None or last is None:
                return False
            self.before = max(self.before, 1 + max(self._wrong(trial, last, middle), default=-1))
            self.after = max(self.after, middle - min(self._wrong(trial, first, 0), default=middle))
            if max(self.before, self.after) > middle // 2:
                return False
        return bool(trials)

    def _is_sound(self, probe: Probe) -> bool:
        """Whether the cut holds by the arithmetic that the rest of the rule is found with."""
        is_like = probe.start() and probe.arithmetic.found == self.found and not probe.is_constant
        return is_like and self._holds(probe)

    def _holds(self, probe: Probe) -> bool:
        """Whether shards without their margins are the parts of the whole."""
        rows = self._rows(probe.small.shapes)
        third = rows // 3
        cuts = ((0, third, rows), (0, 1, 1 + third, rows), (0, third, third + 1, rows - 1, rows))
        for trial in probe.draws_tried():
            for first, last in {shard for cut in cuts for shard in pairwise(cut)}:
                low, high = max(0, first - self.before), min(rows, last + self.after)
                parts = self._part(probe, trial, low, high)
                if parts is None:
                    return False
                own = range(first - low, last - low)
                kept = [np.take(p, own, d) for (_, d), p in zip(self.window.results, parts, strict=True)]
                if self._wrong(trial, kept, first):
                    return False
        return True
