"""The last check of a rule: an op and a rule go in, and the rule comes out without what does not hold when the op is run in shards.

Whatever found a cut (a stand-in, windows, a lookup, the class of another op), the op is run here with its own numbers: all that it
states, and all dims that no factor divides, as they are. Of what factors divide there is as little as allows uneven shards; then, one
factor at a time, as much as reaches beyond every number that the op states, or all that it has. Floats are drawn at several scales, those
of the op's own numbers among them, and as small whole numbers, many of them equal."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Combine, Gather, Identity, Outside, PartialRule, Reduce, Rule
from distir.passes.shardcombine.arithmetic import TIES, Arithmetic, Exact, Floats, PartlyFinite
from distir.passes.shardcombine.cuts import Survivor, local_point, portions
from distir.passes.shardcombine.draws import MANY_DRAWS, SHARDS, Trial
from distir.passes.shardcombine.lookups import Lookup
from distir.passes.shardcombine.probe_op import ProbeOp
from distir.passes.shardcombine.probing import Probe
from distir.passes.shardcombine.rule_forms import RuleAt, rule_without_factors
from distir.passes.shardcombine.shifts import Shifted
from distir.passes.shardcombine.standins import StandIn
from distir.passes.shardcombine.stated_numbers import stated
from distir.passes.shardcombine.time_limits import OutOfTime, limited_time
from distir.passes.shardcombine.trial_runs import LARGEST_STAND_IN, elements
from distir.passes.shardcombine.window_candidates import Window
from distir.passes.shardcombine.window_shards import WindowShards

_EXTENTS = (5, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14, 17)
_STEPS, _STEPS_PER_MARGIN = 11, 3
_SMALLER = (24, 12, 6, 4)
MOST_ELEMENTS = 4_000_000
"""Of any tensor."""
_SCALES = (1.0, TIES, 30.0, 0.03)
_MET = (0.02, 8.0)
"""Numbers between these are met at the scales above."""
_BEYOND = 1.5
_MOSTLY_BELOW_ONE = 0.4
"""With large numbers stated: as exponents they leave of numbers below one nothing, and of those beyond nothing finite."""
_LARGEST_NUMBER = 1e100
_MOST_NUMBERS = 3
_ENOUGH = 100_000
"""Elements of the largest tensor, in all draws together."""
_FEWEST_DRAWS = 2
_MORE_DRAWS = 3 * MANY_DRAWS
"""Where results are seen that are not finite."""
_MANY_NUMBERS, _MOST_DRAWS = 2_000, 200
"""Of results, in the draws by which an operator is seen to be of extremes; and those draws."""
_FEW = 8
"""Elements of an operand with which it takes many draws."""


class LastCheck:
    """Checks rules, those of ops that are one at the sizes that are tried only once."""

    def __init__(self) -> None:
        self._refuted: dict[Hashable, tuple[set[str], set[int], bool]] = {}

    def holding(self, probe_op: ProbeOp, rule: Rule, seconds: float = math.inf) -> tuple[Rule, bool]:
        """The rule without the factors and partial operands that do not hold, without any if the op cannot be run; after so much time,
        without those that have not been seen to hold. And whether all were looked at."""
        if not rule.combines and not rule.partials:
            return rule, True
        own = RuleAt.of(probe_op, rule, probe_op.point)
        if own is None or (small := smaller(own)) is None:
            return rule_without_factors(probe_op.op), True
        sizes = [small, *beyond_numbers(own, small)]
        key = (rule, *(probe_op.text(each.point) for each in sizes))
        if key not in self._refuted:
            self._refuted[key] = _refuted(rule, sizes, seconds)
        factors, partials, is_complete = self._refuted[key]
        return own.without(factors, partials) if factors or partials else rule, is_complete


def _refuted(rule: Rule, sizes: Sequence[RuleAt], seconds: float) -> tuple[set[str], set[int], bool]:
    """The factors, and the entries of partial operands, that do not hold at one of these sizes, the first for the latter, and whether
    all were looked at in so much time: those that were not are among them."""
    unfactored = {i: entry for i, entry in enumerate(rule.partials) if entry.factor is None}
    factors, partials = {*rule.combines}, {*unfactored}
    try:
        with limited_time(seconds):
            checks = [*map(_Check, sizes)]
            for name in rule.combines:
                if all(check.factor_holds(name) for check in checks):
                    factors.discard(name)
            for i, entry in unfactored.items():
                if checks[0].partial_holds(entry):
                    partials.discard(i)
    except OutOfTime:
        return factors, partials, False
    return factors, partials, True


def smaller(own: RuleAt) -> RuleAt | None:
    """The op with as little of every factor as allows uneven shards; None if it is too large even so."""
    found = own
    for name, most in zip(own.rule.combines, _EXTENTS * len(own.rule.combines), strict=False):
        margin = max((max(map(abs, c.halo)) for c in own.rule.combines[name] if isinstance(c, Gather)), default=0)
        margin = max([margin, *(max(dim.halo) for dims in own.rule.inputs for dim in dims if name in dim.factors)])
        enough = _STEPS + _STEPS_PER_MARGIN * margin if name in own.rule.windowed else most
        if found.extent(name) > enough:
            found = found.with_extent(name, enough) or found
    return _with_smaller_rest(found)


def _with_smaller_rest(at: RuleAt) -> RuleAt | None:
    """The op with less in what no factor divides, all that is equal together, where it is too large; None if it stays so."""
    carried = {i for slots in at.slots.values() for i in slots}
    for value in sorted({n for i, n in enumerate(at.point) if i not in carried}, reverse=True):
        if _elements(at) <= MOST_ELEMENTS:
            return at
        for less in (n for n in _SMALLER if n < value):
            point = tuple(less if n == value and i not in carried else n for i, n in enumerate(at.point))
            if (found := RuleAt.of(at.probe_op, at.rule, point)) is not None:
                at = found
                break
    return at if _elements(at) <= MOST_ELEMENTS else None


def _elements(at: RuleAt) -> int:
    return elements(at.probe_op, at.point, at.results)


def beyond_numbers(own: RuleAt, small: RuleAt) -> Iterator[RuleAt]:
    """The op with one factor at a time that reaches beyond all numbers that the op states, or all that it has of it."""
    carried = frozenset(i for slots in own.slots.values() for i in slots)
    least = min((small.point[i] for i in carried if not own.probe_op.slots[i].is_size), default=0)
    largest = max(stated(own.probe_op, carried), default=0)
    if largest < least - 1:
        return
    for name in own.rule.combines:
        here = small.extent(name)
        most = MOST_ELEMENTS // max(1, _elements(small)) * here
        wanted = min(own.extent(name), largest + here, most)
        if wanted > here and (found := small.with_extent(name, wanted)) is not None:
            yield found


class _Check:
    """The op at one size, whole and in shards."""

    def __init__(self, at: RuleAt):
        self.at, self.probe_op = at, at.probe_op
        small = StandIn(at.point, at.results, (), at.point, tied=False, evident=False, shown=False)
        self.probe = Probe(self.probe_op, small)
        self.probe.named = dict(at.factors)
        self.trials = self._draw()

    def _draw(self) -> list[Trial]:
        """Draws of the first arithmetic that the op's code accepts; none if it runs on none."""
        numbers = [n for n in self.probe_op.stated_floats if n <= _LARGEST_NUMBER and not _MET[0] <= n <= _MET[1] and n]
        near = [scale for n in numbers[-_MOST_NUMBERS:] for scale in (_BEYOND * n, _BEYOND / n)]
        if any(n > _MET[1] for n in numbers[-_MOST_NUMBERS:]):
            near.append(_MOSTLY_BELOW_ONE)
        scales = (*_SCALES[:2], *near, *_SCALES[2:])
        shapes = [self.probe_op.operand_shape(self.at.point, i) for i in self.probe_op.tensors]
        sizes = [_size(shape) for shape in shapes] or [0]
        wanted = MANY_DRAWS if min(sizes) <= _FEW else len(scales)
        if max(sizes) <= _FEW:  # there must be enough of each scale
            wanted *= 1 + len(near)
        count = max(_FEWEST_DRAWS, min(wanted, _ENOUGH // max(1, _elements(self.at))))
        kinds: list[Arithmetic] = [Floats(False, scales), Floats(True, scales)]
        if _elements(self.at) <= LARGEST_STAND_IN:
            kinds.append(Exact())
        for arithmetic in kinds:
            try:
                draws = [self.probe.draw(arithmetic, number) for number in range(count)]
            except Exception:
                continue
            self.probe.drawn = draws
            return [Trial(draw, SHARDS[n % 2], arithmetic) for n, draw in enumerate([draws[0], *draws])]
        return []

    @cached_property
    def _more(self) -> list[Trial]:
        """Draws of as many numbers as show that an operator, of which few results depend on which operand is extreme, is none of extremes; and
        that one number in place of many, which may by chance be on one side of a bound in each, is none of addends."""
        found = list[Trial]()
        if not self.trials or isinstance(self.trials[0].arithmetic, Exact):
            return found
        arithmetic, seen = self.trials[0].arithmetic, 0
        for number in range(len(self.trials) - 1, _MOST_DRAWS):
            if seen >= _MANY_NUMBERS:
                break
            try:
                draw = self.probe.draw(arithmetic, number)
            except Exception:
                break
            found.append(Trial(draw, SHARDS[number % 2], arithmetic))
            seen += max((r.size for r in draw.results if r is not None), default=1)
        return found

    @cached_property
    def _partly_finite(self) -> list[Trial]:
        """Draws, if some have results that are not finite: an operator may be a sum over addends only where all are, and a whole may be finite
        of which no addend is."""
        arithmetic, found, is_finite = PartlyFinite(), list[Trial](), True
        for number in range(_MORE_DRAWS):
            if number == MANY_DRAWS and is_finite:
                break
            try:
                draw = self.probe.draw(arithmetic, number)
            except Exception:
                break
            finite = [np.isfinite(r) for r in draw.results if r is not None and r.dtype.kind in "fc"]
            is_finite = is_finite and all(each.all() for each in finite)
            if any(each.any() for each in finite):
                found.append(Trial(draw, SHARDS[0], arithmetic))
        return [] if is_finite else found

    def factor_holds(self, name: str) -> bool:
        """Whether shards of the factor make the whole, where it can be cut."""
        if (survivor := self.at.survivors.get(name)) is None:
            return True
        if not self.trials:
            return False
        if isinstance(survivor.offset, Outside):
            lookup = Lookup(self.probe, survivor.cut, [*self.at.survivors.values()])
            return lookup.holds(survivor.offset, survivor.combines, self.trials)
        if survivor.offset is not None:
            shifted = Shifted.of(self.probe, survivor.cut, survivor.offset)
            return shifted is not None and shifted.holds(survivor.offset, survivor.combines, self.trials)
        if name in self.at.rule.windowed:
            return self._window(name, survivor).holds(self.probe, self.trials)
        return all(self._shards_hold(survivor, trial) for trial in self.trials)

    def _shards_hold(self, survivor: Survivor, trial: Trial) -> bool:
        extent, probe = survivor.cut.factor.extent, self.probe
        shards = min(trial.shards, extent)
        parts = portions(extent, shards)
        operands = [probe.shard(trial.draw, survivor.cut, parts, shard) for shard in range(shards)]
        for i in survivor.partners:
            addends = trial.arithmetic.addends(trial.draw.arrays[i], shards, Reduction.SUM, probe.rng)
            for arrays, addend in zip(operands, addends, strict=True):
                arrays[i] = addend
        points = [local_point(probe.small, survivor.cut.factor, part) for part in parts]
        results = probe.run_shards(points, operands, trial.arithmetic)
        if results is None:
            return False
        weights = [Fraction(part, extent) for part in parts]
        return all(probe.holding(trial, results, [[each] for each in survivor.combines], parts, weights))

    def _window(self, name: str, survivor: Survivor) -> WindowShards:
        layouts, combines = survivor.cut.layouts, survivor.combines
        filled = frozenset(i for i, layout in layouts.items() if layout.filled)
        dims = tuple((c.dim, c.stride) if isinstance(c, Gather) else None for c in combines)
        window = WindowShards(self.probe_op, Window(self.at.strides(name), dims, filled))
        margins = [(-c.halo[0], -c.halo[1]) for c in combines if isinstance(c, Gather)]
        window.margins = margins or [layout.halo for layout in layouts.values() if layout.filled]
        return window

    def partial_holds(self, entry: PartialRule) -> bool:
        """Whether addends (or extremes) of these operands give those of these results, and the others as they are."""
        probe, operands = self.probe, {self.probe_op.source[i] for i in entry.operands}
        combines: list[Combine] = [
            Reduce(entry.reduction) if r in entry.results else Identity() for r in range(len(probe.kinds))
        ]
        is_one = any(_size(self.probe_op.operand_shape(self.at.point, i)) <= 1 for i in operands)
        more = self._more if is_one or entry.reduction is not Reduction.SUM else ()
        trials = [(trial, False) for trial in (*self.trials, *more, *self._partly_finite)]
        if entry.reduction is Reduction.SUM:  # a value that all ranks have is made partial by zeros
            trials += [(trial, True) for trial in self.trials[:1]]
        for trial, has_zeros in trials:
            shards, draw = trial.shards, trial.draw
            locals_ = [dict(draw.arrays) for _ in range(shards)]
            for i in operands:
                addends = trial.arithmetic.addends(draw.arrays[i], shards, entry.reduction, probe.rng)
                if has_zeros:
                    addends = [draw.arrays[i], *(np.zeros_like(draw.arrays[i]) for _ in addends[1:])]
                for arrays, addend in zip(locals_, addends, strict=True):
                    arrays[i] = addend
            results = probe.run_shards([probe.small.point] * shards, locals_, trial.arithmetic)
            weights = [Fraction(1, shards)] * shards
            if results is None:
                return False
            if not all(probe.holding(trial, results, [[each] for each in combines], (1,) * shards, weights)):
                return False
        return bool(self.trials)


def _size(shape: Sequence[int]) -> int:
    size = 1
    for dim in shape:
        size *= dim
    return size
