"""Dims whose shards overlap: the rows and columns of convolutions, poolings and their gradients (MetaDist, appendix A.3.1).

A result row depends on a window of the operands' rows that moves on by so many of each for every step of the operator
(`window_candidates`). Shards run parts of the steps, on parts of the operands that overlap, with the operator as it is, with its
padding, and rows that feel that a part ends where the whole does not are discarded. How many there are at either end is seen by
running the op on the first and on the last part of the whole; that it is all there is to it is then checked on shards like any
other cut: two and three, uneven, of single rows too, at every remainder of the extents by the strides.

Where no result grows, shards' results are addends (a convolution's gradient by its weight), and rows of one operand must each
count once: a shard has its own, and zeros in the place of those beside them. How many those must be, so that no row of its own
meets the end of a part, is seen in the same way.

What type inference says of the extents holds for every instance and is checked there; what cannot be seen at one extent is a
reach beyond it. Rows are therefore as many as the op's own numbers can span (dilation times kernel), and more, and those of
the op as it was found."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Anchor, Combine, Gather, Identity, Reduce, Steps
from distir.passes.shardcombine.arithmetic import reduces
from distir.passes.shardcombine.cuts import Cut, Layout, Survivor
from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.draws import Trial
from distir.passes.shardcombine.factors import Factor
from distir.passes.shardcombine.probing import Probe
from distir.passes.shardcombine.standins import LARGEST_STAND_IN, StandIn
from distir.passes.shardcombine.subject import Point, Shapes, Subject
from distir.passes.shardcombine.trial_runs import runs
from distir.passes.shardcombine.window_candidates import Window, altered, window_candidates, with_own_strides

MOST_ROWS = 96
FEWEST_ROWS = 12
_FEW, _NARROW = 2, 6
_MOST_ELEMENTS = 50 * LARGEST_STAND_IN
Range = tuple[int, int]


def windows(probe: Probe, survivors: Sequence[Survivor]) -> list[Survivor]:
    """The dims that no survivor carries and that can be cut with a halo. Other numbers than theirs must be the op's own: how far
    a window reaches depends on them."""
    carried = {slot for s in survivors for slot in s.cut.factor.slots}
    subject, small = probe.subject, with_own_strides(probe.subject, probe.small, carried)
    others = altered(subject, small, survivors)
    gathered = {(r, c.dim) for s in survivors for r, c in enumerate(s.combines) if isinstance(c, Gather)}
    candidates = window_candidates(subject, small.point, carried)
    found: list[Survivor] = []
    for window in candidates:
        dims = {(r, d) for r, d, _ in window.results}
        if gathered & dims or not others <= {subject.slots[i].owner for i in window.strides}:
            continue
        if (
            survivor := _cut(_Windowed(subject, small, window, survivors, candidates, probe.arithmetic.found))
        ) is not None:
            found.append(survivor)
            gathered |= dims
    return found


def _cut(window: _Windowed) -> Survivor | None:
    """The cut of a candidate with zeros where they do, else with what others have: of an operand of which only the shape counts,
    or of the first that can be filled so that shards' results are addends."""
    idle = window.idle() if len(window.window.strides) > 1 else set[int]()
    if window.window.gathers:
        return window.filling(idle).survivor()
    for slot, stride in window.window.strides.items():
        if stride == 1 and slot not in idle and (survivor := window.filling({slot}).survivor()) is not None:
            return survivor
    return None


def _equal(trial: Trial, results: Sequence[Array | None], expected: Sequence[Array | None]) -> bool:
    both = zip(results, expected, strict=True)
    return all(a is None or b is None or trial.arithmetic.equal(a, b) for a, b in both)


class _Windowed:
    """One candidate: probes of the op with enough rows, one for every remainder of the extents by the strides."""

    def __init__(
        self,
        subject: Subject,
        small: StandIn,
        window: Window,
        survivors: Sequence[Survivor],
        candidates: Sequence[Window],
        found: str,
    ):
        self.subject, self.small, self.window, self.found = subject, small, window, found
        self.owners: dict[int, int] = {}
        for slot in window.strides:
            owner = subject.slots[slot].owner
            assert isinstance(owner, int)
            self.owners[slot] = owner
        count = len(window.results) if window.gathers else 1
        self.margins: list[Range] = [(0, 0)] * count
        """Of every result, or of the operand that is filled: how many rows before and after do not count."""
        self._known = {i for s in survivors for i in s.cut.factor.slots}
        self._beside = [each for each in candidates if self._is_beside(each)]
        self.narrow = self._narrowed(survivors)

    def _is_beside(self, other: Window) -> bool:
        """Whether another candidate is of other dims of these operands (a kernel's are not)."""
        owners = {self.subject.slots[i].owner for i in other.strides}
        return owners <= set(self.owners.values()) and not set(other.strides) & set(self.window.strides)

    def filling(self, slots: Collection[int]) -> _Windowed:
        """The candidate with zeros beyond a shard's own rows of these slots."""
        other = copy(self)
        other.window = self.window.filling(slots)
        return other

    def idle(self) -> set[int]:
        """The slots of operands of which only the shape counts."""
        if (small := next(self._stand_ins(), None)) is None:
            return set()
        probe = Probe(self.subject, small)
        trials = [*probe.float_trials()]
        if len(trials) < 2:
            return set()
        first, *others = trials

        def is_idle(owner: int) -> bool:
            for other in others:
                arrays = {**first.draw.arrays, owner: other.draw.arrays[owner]}
                results = probe.run_shards([small.point], [arrays], first.arithmetic)
                if results is None or not _equal(first, results[0], first.draw.results):
                    return False
            return True

        return {slot for slot, owner in self.owners.items() if is_idle(owner)}

    def survivor(self) -> Survivor | None:
        """The cut and its combines; None if it does not hold."""
        probes = [Probe(self.subject, small) for small in self._stand_ins()]
        if not probes or not all(self._measure(probe) for probe in (*probes, *self._as_found(), *self._widened())):
            return None
        first, *others = probes
        if not self._is_sound(first) or not all(self._holds(probe, list(probe.float_trials())) for probe in others):
            return None
        window = self.window
        steps = self._steps(first.small.point, first.small.shapes)
        before = max(-(-a.before // a.stride) for a in steps.anchors)
        after = max(-(-a.after // a.stride) for a in steps.anchors)
        layouts: dict[int, Layout] = {}
        for slot, stride in window.strides.items():
            beyond = max(window.leftovers(p.small.point, p.small.shapes)[slot] for p in probes)
            halo = stride * before, beyond + stride * after
            layouts[slot] = Layout((), (), halo, stride, is_windowed=True, filled=slot in window.filled)
        slots = tuple(sorted(window.strides))
        factor = Factor(slots, tuple((r, d) for r, d, _ in window.results), steps.count)
        return Survivor(Cut(factor, layouts), self._combines())

    def _combines(self) -> tuple[Combine, ...]:
        window = self.window
        if not window.gathers:
            present = self.small.shapes
            return tuple(Identity() if shape is None else Reduce(Reduction.SUM) for shape in present)
        combines: list[Combine] = [Identity()] * len(window.dims)
        for (result, dim, stride), (before, after) in zip(window.results, self.margins, strict=True):
            combines[result] = Gather(dim, (-before, -after), stride=stride)
        return tuple(combines)

    def _steps(self, point: Point, shapes: Shapes) -> Steps:
        """How the op at a point is cut, by what is known of margins."""
        window, count = self.window, self.window.steps(point, shapes)
        if not window.gathers:
            ((before, after),) = self.margins
            return Steps(count, (Anchor(count, 1, before, after),))
        extents = [shape[d] for r, d, _ in window.results if (shape := shapes[r]) is not None]
        of_results = zip(extents, window.results, self.margins, strict=True)
        return Steps(count, tuple(Anchor(extent, result[2], *margins) for extent, result, margins in of_results))

    # --- the op with enough rows ---

    def _narrowed(self, survivors: Sequence[Survivor]) -> Point:
        """The stand-in's point with little in all other dims that may shrink: what is known to be cut, and the other dims of
        the operands. A window does not depend on them."""
        point, subject = self.small.point, self.subject

        def shrink(trial: Point) -> None:
            nonlocal point
            point = trial if subject.infer(trial) is not None else point

        for survivor in survivors:
            factor = survivor.cut.factor
            if all(layout == Layout() for layout in survivor.cut.layouts.values()):
                shrink(tuple(v // factor.extent * _FEW if i in factor.slots else v for i, v in enumerate(point)))
        for window in self._beside:
            if (shapes := subject.infer(point)) is not None:
                shrink(window.moved(point, min(0, _NARROW - window.steps(point, shapes))))
        for i, slot in enumerate(subject.slots):
            if slot.owner in self.owners.values() and i not in self.owners and i not in self._known:
                shrink(_with(point, {i: min(point[i], _NARROW)}))
        return point if runs(subject, point) is not None else self.small.point

    def _stand_ins(self) -> Iterator[StandIn]:
        """The op with enough rows, at every remainder; none if that is too large."""
        window, shapes = self.window, self.subject.infer(self.narrow)
        assert shapes is not None
        rows = self._span() // max(window.strides.values()) + FEWEST_ROWS
        if rows > MOST_ROWS:
            return
        point = window.moved(self.narrow, rows - window.steps(self.narrow, shapes))
        trials = [point]
        for slot, stride in window.strides.items():
            trials += [_with(point, {slot: point[slot] + by}) for by in (*range(1, stride), *range(1 - stride, 0))]
        seen: list[object] = []
        for trial in trials:
            if (inferred := self.subject.infer(trial)) is None:
                continue
            leftovers = (
                window.leftovers(trial, inferred),
                [
                    shape[d] - stride * window.steps(trial, inferred)
                    for r, d, stride in window.results
                    if (shape := inferred[r]) is not None
                ],
            )
            if leftovers in seen:
                continue
            seen.append(leftovers)
            if self._elements(trial, inferred) > LARGEST_STAND_IN:
                return
            yield replace(self.small, point=trial, shapes=inferred, factors=())

    def _as_found(self) -> Iterator[Probe]:
        """The op with all of the rows that it was found with: numbers in a callable's code are not stated."""
        point = _with(self.narrow, {i: self.subject.point[i] for i in self.owners})
        if (shapes := self.subject.infer(point)) is None or self.window.steps(point, shapes) < FEWEST_ROWS:
            return
        if self._elements(point, shapes) <= _MOST_ELEMENTS:
            yield Probe(self.subject, replace(self.small, point=point, shapes=shapes, factors=()))

    def _widened(self) -> Iterator[Probe]:
        """The op with each other dim of the operands that is not known to be cut longer than its rows: rows that depend on where
        they are with respect to columns are no windows."""
        small = next(self._stand_ins(), None)
        if small is None:
            return
        longest = 2 * max(small.point[i] for i in self.owners)
        wider = [w.moved(small.point, longest - w.steps(small.point, small.shapes)) for w in self._beside]
        beside = {i for w in self._beside for i in w.strides}
        for i, slot in enumerate(self.subject.slots):
            if slot.owner in self.owners.values() and i not in {*self.owners, *self._known, *beside}:
                wider.append(_with(small.point, {i: longest}))
        for point in wider:
            if (shapes := self.subject.infer(point)) is not None and self._elements(point, shapes) <= _MOST_ELEMENTS:
                yield Probe(self.subject, replace(small, point=point, shapes=shapes))

    def _elements(self, point: Point, shapes: Shapes) -> int:
        operands = [self.subject.operand_shape(point, i) for i in self.subject.tensors]
        return max(math.prod(shape) for shape in (*operands, *shapes) if shape is not None)

    def _span(self) -> int:
        """How far a window may reach: the product of the two largest numbers that the op states, or that are dims of its other
        operands and no factors (a kernel's)."""
        scaled = {i for factor in self.small.factors for i in factor.slots}
        owners = self.owners.values()
        numbers = [1, 1]
        for i, (slot, value) in enumerate(zip(self.subject.slots, self.small.point, strict=True)):
            if slot.is_size or (i not in scaled and slot.owner not in owners):
                numbers.append(value)
        return math.prod(sorted(numbers)[-2:])

    # --- runs ---

    def _arrays(self, probe: Probe, trial: Trial, own: Range) -> dict[int, Array]:
        """The operands, with zeros beyond a shard's own steps in those that are filled; of which only the shape counts: everywhere."""
        arrays = dict(trial.draw.arrays)
        for slot in self.window.filled:
            owner, position = self.owners[slot], self.subject.slots[slot].position
            zeros = np.zeros_like(arrays[owner])
            if not self.window.gathers:
                index = (slice(None),) * position + (slice(*own),)
                zeros[index] = arrays[owner][index]
            arrays[owner] = zeros
        return arrays

    def _part(self, probe: Probe, trial: Trial, low: int, high: int, own: Range) -> list[Array] | None:
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
            arrays[owner] = np.take(arrays[owner], rows, self.subject.slots[slot].position)
        expected = window.expected(shapes, fewer)
        if (inferred := self.subject.infer(local)) is None or list(inferred) != expected:
            return None
        results = probe.run_shards([local], [arrays], trial.arithmetic)
        if results is None or [None if r is None else r.shape for r in results[0]] != expected:
            return None
        return [array for array in results[0] if array is not None]

    def _wrong(self, trial: Trial, parts: Sequence[Array], starts: Sequence[int]) -> list[list[int]]:
        """Of each result that grows, the rows of a part, counted in the part, that are not those of the whole."""
        found: list[list[int]] = []
        for (result, dim, _), part, start in zip(self.window.results, parts, starts, strict=True):
            whole = trial.draw.results[result]
            assert whole is not None
            rows = ((row, np.take(part, row, dim), np.take(whole, start + row, dim)) for row in range(part.shape[dim]))
            found.append([row for row, got, wanted in rows if not trial.arithmetic.equal(got, wanted)])
        return found

    def _measure(self, probe: Probe) -> bool:
        """Raises the numbers of rows that do not count at either end of a part to what is seen; False if they are too many for
        the op to be local."""
        trials = list(probe.float_trials())
        measure = self._measure_results if self.window.gathers else self._measure_filled
        return bool(trials) and all(measure(probe, trial) for trial in trials)

    def _measure_results(self, probe: Probe, trial: Trial) -> bool:
        """Rows that are wrong at the inner end of the first and of the last half."""
        steps = self.window.steps(probe.small.point, probe.small.shapes)
        middle = steps // 2
        first = self._part(probe, trial, 0, middle, (0, middle))
        last = self._part(probe, trial, middle, steps, (middle, steps))
        if first is None or last is None:
            return False
        begin = [stride * middle for _, _, stride in self.window.results]
        wrong = zip(self._wrong(trial, last, begin), self._wrong(trial, first, [0] * len(begin)), first, strict=True)
        for i, ((before, after), (_, dim, _), (of_last, of_first, part)) in enumerate(
            zip(self.margins, self.window.results, wrong, strict=True)
        ):
            right = min([begin[i], part.shape[dim], *of_first])
            self.margins[i] = max(before, 1 + max(of_last, default=-1)), max(after, begin[i] - right)
            if max(self.margins[i]) > begin[i] // 2:
                return False
        return True

    def _measure_filled(self, probe: Probe, trial: Trial) -> bool:
        """Rows of the operand that is filled which count for something else at the inner end of a half than in the whole."""
        steps = self.window.steps(probe.small.point, probe.small.shapes)
        middle = steps // 2

        def agrees(low: int, high: int, own: Range) -> bool:
            whole, part = (self._part(probe, trial, *ends, own) for ends in ((0, steps), (low, high)))
            return whole is not None and part is not None and _equal(trial, part, whole)

        ((before, after),) = self.margins
        while before <= middle // 2 and not agrees(middle, steps, (middle + before, steps)):
            before += 1
        while after <= middle // 2 and not agrees(0, middle, (0, middle - after)):
            after += 1
        self.margins = [(before, after)]
        return max(before, after) <= middle // 2

    def _is_sound(self, probe: Probe) -> bool:
        """Whether the cut holds by the arithmetic that the rest of the rule is found with."""
        is_like = probe.start() and probe.arithmetic.found == self.found and not probe.is_constant
        return is_like and self._holds(probe, probe.draws_tried())

    def _holds(self, probe: Probe, trials: Iterable[Trial]) -> bool:
        """Whether shards without their margins are the parts of the whole, or their results its addends."""
        steps = self._steps(probe.small.point, probe.small.shapes)
        of_anchors = [_cuts(anchor.extent) for anchor in steps.anchors]
        for trial in trials:
            seen: dict[object, list[Array] | None] = {}
            for cuts in zip(*of_anchors, strict=True):
                shards = list(zip(*(pairwise(cut) for cut in cuts), strict=True))
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
        parts = self._part(probe, trial, low, high, own[0])
        if parts is None or not self.window.gathers:
            return parts
        kept: list[Array] = []
        for (first, last), (_, dim, stride), part in zip(own, self.window.results, parts, strict=True):
            if not 0 <= first - stride * low < last - stride * low <= part.shape[dim]:
                return None
            kept.append(np.take(part, range(first - stride * low, last - stride * low), dim))
        return None if any(self._wrong(trial, kept, [first for first, _ in own])) else kept

    def _add_up(self, probe: Probe, trial: Trial, shards: Sequence[Sequence[Array]]) -> bool:
        weights = [Fraction(1, len(shards))] * len(shards)
        wholes = [
            (whole, kind) for whole, kind in zip(trial.draw.results, probe.kinds, strict=True) if whole is not None
        ]
        return all(
            kind == "float" and reduces(trial.arithmetic, whole, [s[i] for s in shards], Reduction.SUM, weights, kind)
            for i, (whole, kind) in enumerate(wholes)
        )


def _cuts(extent: int) -> tuple[tuple[int, ...], ...]:
    third = extent // 3
    return (0, third, extent), (0, 1, 1 + third, extent), (0, third, third + 1, extent - 1, extent)


def _with(point: Point, values: Mapping[int, int]) -> Point:
    return tuple(values.get(i, value) for i, value in enumerate(point))
