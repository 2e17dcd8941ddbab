"""Dims whose shards overlap: the rows and columns of convolutions, poolings and their gradients (MetaDist, appendix
A.3.1). In go a probe and its cuts so far; out come cuts with a halo.

A result row depends on a window of the operands' rows that moves on by so many of each for every step of the operator
(`window_candidates`). Shards run parts of the steps, on parts of the operands that overlap, with the operator as it is, with its
padding, and rows that feel that a part ends where the whole does not are discarded. How many there are at either end is seen by
running the op on the first and on the last part of the whole; that it is all there is to it is then checked on shards like any
other cut: two and three, uneven, of single rows too, at every remainder of the extents by the strides.

Where no result grows, shards' results are addends (a convolution's gradient by its weight), and rows of one operand must each
count once: a shard has its own, and zeros in the place of those beside them. How many those must be, so that no row of its own
meets the end of a part, is seen in the same way.

Which rows those are may depend on values (where the largest is), and few of them might not show it: an op whose results are not affine
in its operands is run on many samples of what is independent.

What type inference says of the extents holds for every instance and is checked there; what cannot be seen at one extent is a
reach beyond it. How far a window reaches is therefore measured first, with the op's own numbers and more rows than those can span
(dilation times kernel); all else is checked with as many rows as that takes, and with those of the op as it was found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain, islice

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Combine, Gather, Identity, Reduce
from distir.passes.shardcombine.arithmetic import Exact
from distir.passes.shardcombine.cuts import Cut, Layout, Survivor
from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.draws import FLOAT_DRAWS, Trial
from distir.passes.shardcombine.factors import Factor
from distir.passes.shardcombine.probing import Probe
from distir.passes.shardcombine.standins import StandIn
from distir.passes.shardcombine.trial_runs import LARGEST_STAND_IN
from distir.passes.shardcombine.window_candidates import Window, window_candidates
from distir.passes.shardcombine.window_shards import Range, WindowShards, equal
from distir.passes.shardcombine.window_stand_ins import (
    FEWEST_ROWS,
    WindowStandIns,
    undetermined,
    with_own_numbers,
)

_ROWS_PER_MARGIN = 4
"""Rows for each that does not count at an end, so that halves have others."""


@dataclass(frozen=True)
class Windows:
    """Cuts with a halo, and what is known of other dims."""

    found: list[Survivor] = field(default_factory=list[Survivor])
    tried: bool = False
    """Whether there was any candidate."""
    left_out: bool = False
    """Whether there is one, of dims that none before it cuts, whose other numbers the class does not say."""


def windows(
    probe: Probe,
    survivors: Sequence[Survivor],
    small: StandIn,
    stated: frozenset[int],
    tell: Callable[[Survivor], object] = lambda _: None,
) -> Windows:
    """The dims that no survivor carries and that can be cut with a halo. How far a window reaches depends on the op's own numbers:
    other operands have those that all ops of the class share, which is known by the stand-in `small` and by what the op has of
    `stated` slots. Each is told as soon as it is found. None overlap of an op that takes indices, which say what
    rows it reads."""
    probe_op = probe.probe_op
    if probe_op.recurrent:
        return Windows()
    takes_indices = any(bounds is not None for bounds in probe.bounds.values())
    if (own := with_own_numbers(probe_op, probe.small, survivors)) is None:
        return Windows(
            left_out=any(slot.is_size and i not in _slots_of(survivors) for i, slot in enumerate(probe_op.slots))
        )
    carried = _slots_of(survivors)
    others = undetermined(probe_op, small, probe.small, survivors, stated)
    gathered = {(r, c.dim) for s in survivors for r, c in enumerate(s.combines) if isinstance(c, Gather)}
    candidates = window_candidates(probe_op, own.point, carried)
    if probe_op.recurrent:
        return Windows()
    found: list[Survivor] = []
    left_out: list[Window] = []
    for window in candidates:
        dims = {(r, d) for r, d, _ in window.results}
        if gathered & dims:
            continue
        if not others <= {probe_op.slots[i].owner for i in window.strides}:
            left_out.append(window)
            continue
        stand_ins = WindowStandIns.of(probe_op, own, window, candidates, survivors)
        survivor = None if stand_ins is None else _cut(_Windowed(stand_ins, probe.arithmetic.found))
        if survivor is not None and not (takes_indices and _overlaps(survivor)):
            found.append(survivor)
            tell(survivor)
            gathered |= dims
    taken = _slots_of(found)
    still_open = [w for w in left_out if w.gathers or taken.isdisjoint(w.strides)]
    return Windows(found, bool(candidates), bool(still_open))


def _slots_of(survivors: Sequence[Survivor]) -> set[int]:
    return {slot for survivor in survivors for slot in survivor.cut.factor.slots}


def _overlaps(survivor: Survivor) -> bool:
    return any(any(layout.halo) for layout in survivor.cut.layouts.values())


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


class _Windowed(WindowShards):
    """One candidate, and what is known of it."""

    def __init__(self, stand_ins: WindowStandIns, found: str):
        super().__init__(stand_ins.probe_op, stand_ins.window)
        self.stand_ins, self.found = stand_ins, found
        self.is_affine = self._is_affine()

    def filling(self, slots: Collection[int]) -> _Windowed:
        """The candidate with zeros beyond a shard's own rows of these slots."""
        other = copy(self)
        other.window = self.window.filling(slots)
        return other

    def idle(self) -> set[int]:
        """The slots of operands of which only the shape counts."""
        probe = Probe(self.probe_op, self.stand_ins.narrow)
        trials = [*probe.float_trials()]
        if len(trials) < 2:
            return set()
        first, *others = trials

        def is_idle(owner: int) -> bool:
            for other in others:
                arrays = {**first.draw.arrays, owner: other.draw.arrays[owner]}
                results = probe.run_shards([probe.small.point], [arrays], first.arithmetic)
                if results is None or not equal(first, results[0], first.draw.results):
                    return False
            return True

        return {slot for slot, owner in self.owners.items() if is_idle(owner)}

    def _is_affine(self) -> bool:
        """Whether results are in each operand of the window: which rows they depend on does not depend on values then."""
        probe = Probe(self.probe_op, self.stand_ins.narrow)
        trials = [*probe.float_trials()]
        if len(trials) < 2:
            return False
        first, second, *_ = trials

        def is_affine(owner: int) -> bool:
            one, other = (trial.draw.arrays[owner] for trial in (first, second))
            found: list[list[Array]] = []
            for array in (one, other, one + other, 0 * one):
                results = probe.run_shards([probe.small.point], [{**first.draw.arrays, owner: array}], first.arithmetic)
                if results is None:
                    return False
                found.append([result for result in results[0] if result is not None])
            return all(first.arithmetic.equal(a + b, both + none) for a, b, both, none in zip(*found, strict=True))

        return all(self.probe_op.kind(owner) == "float" and is_affine(owner) for owner in {*self.owners.values()})

    def survivor(self) -> Survivor | None:
        """The cut and its combines; None if it does not hold."""
        stand_ins = self.stand_ins
        far = next((far for far in map(self._once, stand_ins.reaching()) if all(map(self._measure, far))), None)
        if far is None:
            return None
        if self.window.gathers and not all(self._reaches_ends(each) for each in far):
            return None
        if (small := stand_ins.at(FEWEST_ROWS + _ROWS_PER_MARGIN * max(self._margin_steps()))) is None:
            return None
        if stand_ins.elements(small) > LARGEST_STAND_IN:
            return None
        first = _Tried(Probe(self.probe_op, small))
        remainders, most = stand_ins.remainders(small)
        others = [*self._once(small)[1:], *chain.from_iterable(map(self._once, remainders))]
        wider = chain.from_iterable(map(self._once, stand_ins.wider(small, far[0].probe.small)))
        if not all(self._measure(each) for each in (first, *others, *wider)):
            return None
        if self._seems_plain(small, most):
            self.margins = [(before, 1) for before, _ in self.margins]
        if not self._is_sound(first.probe):
            return None
        if not all(self.holds(each.probe, each.trials[:1]) for each in (*far, *others)):
            return None
        before, after = self._margin_steps()
        layouts: dict[int, Layout] = {}
        for slot, stride in self.window.strides.items():
            halo = stride * before, most[slot] + stride * after
            layouts[slot] = Layout((), (), halo, stride, is_windowed=True, filled=slot in self.window.filled)
        slots = tuple(sorted(self.window.strides))
        extent = self.window.steps(small.point, small.shapes)
        factor = Factor(slots, tuple((r, d) for r, d, _ in self.window.results), extent)
        return Survivor(Cut(factor, layouts), self._combines())

    def _seems_plain(self, small: StandIn, most: Mapping[int, int]) -> bool:
        """Whether nothing but a result's rows beyond all steps (of an output padding) tells the cut from one without overlap."""
        window, steps = self.window, self.window.steps(small.point, small.shapes)
        rows = (shape[dim] for r, dim, _ in window.results if (shape := small.shapes[r]) is not None)
        is_plain = not (any(map(any, self.margins)) or any(most.values()) or window.filled)
        return is_plain and {*window.strides.values()} == {1} and any(n != steps for n in rows)

    def _once(self, small: StandIn) -> list[_Tried]:
        """With one draw, and one of many samples if values may matter."""
        tried = [small] if self.is_affine else self.stand_ins.sampled(small)
        return [_Tried(Probe(self.probe_op, each), draws=1) for each in tried]

    def _margin_steps(self) -> tuple[int, int]:
        """The steps before and after its own that a shard runs."""
        strides = [stride for _, _, stride in self.window.results] or [1]
        both = [*zip(self.margins, strides, strict=True)]
        return max(-(-before // n) for (before, _), n in both), max(-(-after // n) for (_, after), n in both)

    def _combines(self) -> tuple[Combine, ...]:
        window = self.window
        if not window.gathers:
            present = self.stand_ins.narrow.shapes
            return tuple(Identity() if shape is None else Reduce(Reduction.SUM) for shape in present)
        combines: list[Combine] = [Identity()] * len(window.dims)
        for (result, dim, stride), (before, after) in zip(window.results, self.margins, strict=True):
            combines[result] = Gather(dim, (-before, -after), stride=stride)
        return tuple(combines)

    # --- runs ---

    def _measure(self, tried: _Tried) -> bool:
        """Raises the numbers of rows that do not count at either end of a part to what is seen; False if they are too many for
        the op to be local."""
        measure = self._measure_results if self.window.gathers else self._measure_filled
        return bool(tried.trials) and all(measure(tried.probe, trial) for trial in tried.trials)

    def _measure_results(self, probe: Probe, trial: Trial) -> bool:
        """Rows that are wrong at the inner end of the first and of the last half."""
        steps = self.window.steps(probe.small.point, probe.small.shapes)
        middle = steps // 2
        first = self.part(probe, trial, 0, middle, (0, middle))
        last = self.part(probe, trial, middle, steps, (middle, steps))
        if first is None or last is None:
            return False
        begin = [stride * middle for _, _, stride in self.window.results]
        wrong = zip(self.wrong(trial, last, begin), self.wrong(trial, first, [0] * len(begin)), first, strict=True)
        for i, ((before, after), (_, dim, _), (of_last, of_first, part)) in enumerate(
            zip(self.margins, self.window.results, wrong, strict=True)
        ):
            right = min([begin[i], part.shape[dim], *of_first])
            seen = 1 + max(of_last, default=-1), begin[i] - right
            self.margins[i] = max(before, seen[0]), max(after, seen[1])
            if max(seen) > begin[i] // 2:
                return False
        return True

    def _reaches_ends(self, tried: _Tried) -> bool:
        """Raises the numbers of rows that do not count until shards of the first and of the last row are right: a pad that reflects has
        rows there that lie further inside. False if it takes too many."""
        probe, trial = tried.probe, tried.trials[0]
        most = self.window.steps(probe.small.point, probe.small.shapes) // 2
        while max(self._margin_steps()) <= most:
            steps = self.steps(probe.small.point, probe.small.shapes)
            first = self._shard(probe, trial, steps, tuple((0, 1) for _ in steps.anchors))
            last = self._shard(probe, trial, steps, tuple((each.extent - 1, each.extent) for each in steps.anchors))
            if first is not None and last is not None:
                return True
            self.margins = [(before + (last is None), after + (first is None)) for before, after in self.margins]
        return False

    def _measure_filled(self, probe: Probe, trial: Trial) -> bool:
        """Rows of the operand that is filled which count for something else at the inner end of a half than in the whole."""
        steps = self.window.steps(probe.small.point, probe.small.shapes)
        middle = steps // 2

        def agrees(low: int, high: int, own: Range) -> bool:
            whole, part = (self.part(probe, trial, *ends, own) for ends in ((0, steps), (low, high)))
            return whole is not None and part is not None and equal(trial, part, whole)

        ((before, after),) = self.margins
        before = _least(before, middle // 2, lambda rows: agrees(middle, steps, (middle + rows, steps)))
        after = _least(after, middle // 2, lambda rows: agrees(0, middle, (0, middle - rows)))
        self.margins = [(before, after)]
        return max(before, after) <= middle // 2

    def _is_sound(self, probe: Probe) -> bool:
        """Whether the cut holds by the arithmetic that the rest of the rule is found with."""
        is_like = probe.start() and probe.arithmetic.found in (self.found, Exact.found) and not probe.is_constant
        return is_like and self.holds(probe, probe.draws_tried())


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The least number from low to high from which on it holds; one more than high if there is none."""
    if low > high or holds(low):
        return low
    step = 1
    while not holds(min(low + step, high)):
        if low + step >= high:
            return high + 1
        low, step = low + step, 2 * step
    high = min(low + step, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


class _Tried:
    """A probe with a few draws of floats."""

    def __init__(self, probe: Probe, draws: int = FLOAT_DRAWS):
        self.probe, self.trials = probe, [*islice(probe.float_trials(), draws)]
