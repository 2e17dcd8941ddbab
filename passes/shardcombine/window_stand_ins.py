"""Stand-ins for windows. In go a probe op and a window; out comes the op with its own numbers, as many rows as it
takes, and little in all other dims. The numbers stay because the reach of a window depends on them (kernels,
strides, dilations, paddings)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from distir.dialects.sharding import Gather, Identity
from distir.passes.shardcombine.cuts import Survivor
from distir.passes.shardcombine.factors import Factor
from distir.passes.shardcombine.probe_op import Point, ProbeOp
from distir.passes.shardcombine.standins import StandIn, strided
from distir.passes.shardcombine.stated_numbers import LARGEST_NUMBER
from distir.passes.shardcombine.trial_runs import LARGEST_STAND_IN, elements, runs
from distir.passes.shardcombine.window_candidates import LARGEST_STRIDE, Window, window_candidates

FEWEST_ROWS = 12
MOST_ELEMENTS = 1_000_000
"""Of any tensor, where floats suffice."""
_MOST_ROWS = 16_384
_FEW, _NARROW = 2, 6
_WIDTHS = (_NARROW, 4, 2)
_MOST_REMAINDERS = 8
_TIMES_SPAN = (1, 2, 4)


def own_numbers(probe_op: ProbeOp, small: StandIn) -> frozenset[int]:
    """The slots of which an op's class must say what the op has, and not only what its stand-in has: those that the stand-in alters,
    but not rows that windows move over, and sizes that grow with what they stride over."""
    scaled = {i for factor in small.factors for i in factor.slots}
    left = {i for i, (own, n) in enumerate(zip(probe_op.point, small.point, strict=True)) if own != n} - scaled
    own = {i for i in _with_known_extents(probe_op, small) if probe_op.slots[i].is_size}
    own |= _kernels(probe_op, small)
    if not left or not small.factors:
        return frozenset(own)
    return frozenset(own | left - _rows(probe_op, window_candidates(probe_op, probe_op.point, ())))


def _kernels(probe_op: ProbeOp, small: StandIn) -> set[int]:
    """The dims of one operand of several that are factors and that no result shows, in an op that states sizes beside: those of a
    kernel, where padding follows from it."""
    scaled = {i for factor in small.factors for i in factor.slots}
    if len(probe_op.tensors) < 2 or not any(slot.is_size and i not in scaled for i, slot in enumerate(probe_op.slots)):
        return set()
    hidden = (f.slots for f in small.factors if not f.results and len(f.slots) == 1)
    return {i for slots in hidden for i in slots}


def _with_known_extents(probe_op: ProbeOp, small: StandIn) -> set[int]:
    """The slots of factors that have a size which grows with what it strides over, or may be a stride: the class says what the op
    has of that, and so of all."""

    def may_stride(factor: Factor) -> bool:
        return any(probe_op.slots[i].is_size and probe_op.point[i] <= LARGEST_STRIDE for i in factor.slots)

    known = [*strided(probe_op, small), *(f for f in small.factors if len(probe_op.tensors) > 1 and may_stride(f))]
    return {i for factor in known for i in factor.slots}


def _rows(probe_op: ProbeOp, candidates: Sequence[Window]) -> set[int]:
    """The slots of windows; of several over one dim of a result (a kernel's rows make a result longer too), those with most rows."""
    largest: dict[object, Window] = {}
    for window in candidates:
        dims = tuple((r, d) for r, d, _ in window.results) or tuple(window.strides)
        known = largest.setdefault(dims, window)
        if max(probe_op.point[i] for i in window.strides) > max(probe_op.point[i] for i in known.strides):
            largest[dims] = window
    return {i for window in largest.values() for i in window.strides}


def with_own_numbers(probe_op: ProbeOp, small: StandIn, survivors: Sequence[Survivor]) -> StandIn | None:
    """The stand-in with the op's own numbers in all that no survivor cuts, and little in what they do; None if types reject it."""
    carried = {i for s in survivors for i in s.cut.factor.slots}
    both = enumerate(zip(probe_op.point, small.point, strict=True))
    point = tuple(n if i in carried else own for i, (own, n) in both)
    for factor in small.factors:
        if not any(s.cut.factor.slots == factor.slots for s in survivors):
            extent = _own_extent(probe_op, small, factor)
            point = tuple(
                n // factor.extent * extent if i in factor.slots and i in carried else n for i, n in enumerate(point)
            )
    if probe_op.infer(point) is None:
        return None
    for survivor in survivors:
        factor, layouts = survivor.cut.factor, survivor.cut.layouts.values()
        if all(not layout.pieces for layout in layouts):
            fewer = tuple(n // factor.extent * _FEW if i in factor.slots else n for i, n in enumerate(point))
            point = fewer if probe_op.infer(fewer) is not None else point
    shapes = probe_op.infer(point)
    return None if shapes is None else replace(small, point=point, shapes=shapes, factors=())


def _own_extent(probe_op: ProbeOp, small: StandIn, factor: Factor) -> int:
    """The extent that the op has of a factor, by a slot that no other factor shares; that of the stand-in if there is none."""
    shared = {i for other in small.factors if other.slots != factor.slots for i in other.slots}
    alone = [i for i in factor.slots if i not in shared and i not in small.altered]
    return probe_op.point[alone[0]] // small.leftovers[alone[0]] if alone else factor.extent


def undetermined(
    probe_op: ProbeOp, small: StandIn, probed: StandIn, survivors: Sequence[Survivor], stated: frozenset[int]
) -> frozenset[int | str]:
    """The operands and properties with numbers that the ops of a class need not share, or of which `probed` has others, though no
    survivor cuts them. `small` is the stand-in that the class is known by, `stated` the slots of which it says what the op has."""
    carried = {i for s in survivors for i in s.cut.factor.slots}
    determined = _with_known_extents(probe_op, small) | stated
    scaled = {i for factor in small.factors for i in factor.slots}
    both = enumerate(zip(probe_op.point, small.point, strict=True))
    open_ = {i for i, (own, n) in both if own != n or i in scaled} - determined - carried
    beside = {i for i in probed.altered - small.altered if probed.leftovers[i] != 1}  # 1: a factor of it is all of it
    return frozenset(probe_op.slots[i].owner for i in open_ | carried & (small.altered | beside))


@dataclass(frozen=True)
class WindowStandIns:
    """The stand-ins of one window."""

    probe_op: ProbeOp
    narrow: StandIn
    """With few rows, and little in other dims."""
    window: Window
    beside: tuple[Window, ...]
    """Windows of other dims of its operands."""
    known: frozenset[int]
    """Slots that are known to be cut."""
    samples: frozenset[int]
    """Those of a dim of which every shard gives its part of all results, such as the batch; none if there is none."""

    @staticmethod
    def of(
        probe_op: ProbeOp, own: StandIn, window: Window, candidates: Sequence[Window], survivors: Sequence[Survivor]
    ) -> WindowStandIns | None:
        """None where the op does not run with few rows."""
        known = frozenset(i for s in survivors for i in s.cut.factor.slots)
        owners = {probe_op.slots[i].owner for i in window.strides}
        beside = tuple(
            other
            for other in candidates
            if {probe_op.slots[i].owner for i in other.strides} <= owners
            and not set(other.strides) & set(window.strides)
        )
        wide = WindowStandIns(probe_op, own, window, beside, known, _samples(survivors))
        rows = max(-(-(_NARROW - own.point[i]) // stride) for i, stride in window.strides.items())
        if (few := wide.at(max(FEWEST_ROWS, window.steps(own.point, own.shapes) + rows))) is None:
            return None
        found = replace(wide, narrow=few)._narrowed()
        return None if found is None else replace(wide, narrow=found)

    @property
    def owners(self) -> dict[int, int]:
        """The operand of every slot of the window."""
        owners = {i: self.probe_op.slots[i].owner for i in self.window.strides}
        return {i: owner for i, owner in owners.items() if isinstance(owner, int)}

    def _narrowed(self) -> StandIn | None:
        """With little in all other dims that may shrink: those of windows beside, and other dims of the operands; less where the
        fewest rows are too many with that. A window does not depend on them, which `wider` shows."""
        point = self.narrow.point
        for width in _WIDTHS:
            point = self._of_width(point, width)
            if (shapes := self.probe_op.infer(point)) is None:
                break
            if elements(self.probe_op, point, shapes) <= LARGEST_STAND_IN:
                break
        for trial in (point, self.narrow.point):
            if (shapes := runs(self.probe_op, trial)) is not None:
                return replace(self.narrow, point=trial, shapes=shapes)
        return None

    def _of_width(self, point: Point, width: int) -> Point:
        """With no more in the other dims."""
        probe_op = self.probe_op

        def shrink(point: Point, trial: Point) -> Point:
            return trial if probe_op.infer(trial) is not None else point

        for window in self.beside:
            if (shapes := probe_op.infer(point)) is not None:
                point = shrink(point, window.moved(point, min(0, width - window.steps(point, shapes))))
        for i in self._others():
            point = shrink(point, with_numbers(point, {i: min(point[i], width)}))
        return point

    def _others(self) -> list[int]:
        """Dims of the operands that are neither rows nor known to be cut."""
        owners = set(self.owners.values())
        beside = {i for window in self.beside for i in window.strides}
        return [
            i
            for i, slot in enumerate(self.probe_op.slots)
            if slot.owner in owners and i not in {*self.window.strides, *self.known, *beside}
        ]

    def at(self, steps: int) -> StandIn | None:
        """With so many steps; None if types reject it."""
        here = self.window.steps(self.narrow.point, self.narrow.shapes)
        return self._with(self.window.moved(self.narrow.point, steps - here))

    def _with(self, point: Point) -> StandIn | None:
        if any(n < 1 for n in point) or (shapes := self.probe_op.infer(point)) is None:
            return None
        return replace(self.narrow, point=point, shapes=shapes)

    def reaching(self) -> Iterator[StandIn]:
        """With more rows than a window can reach, and with more, of which all that it reaches is less than half; none where
        those are too many."""
        for times in _TIMES_SPAN:
            rows = times * self._span() // max(self.window.strides.values()) + FEWEST_ROWS
            found = self.at(rows) if rows <= _MOST_ROWS else None
            if found is None or self.elements(found) > MOST_ELEMENTS:
                return
            yield found

    def _span(self) -> int:
        """How far a window may reach: the largest product of two numbers that the op states, or that are dims of its other
        operands and no factors (a kernel's); of one operand or property, one number. Negative ones count too (a diagonal)."""
        largest: dict[int | str, int] = {}
        for (owner, _), number in self.probe_op.stated.items():
            if -LARGEST_NUMBER <= number < 0:
                largest[owner] = max(largest.get(owner, 1), -number)
        for i, (slot, value) in enumerate(zip(self.probe_op.slots, self.narrow.point, strict=True)):
            if slot.is_size or (i not in self.known and slot.owner not in self.owners.values()):
                largest[slot.owner] = max(largest.get(slot.owner, 1), value)
        return max((a * b for a, b in combinations([1, *largest.values()], 2)), default=1)

    def remainders(self, first: StandIn) -> tuple[list[StandIn], dict[int, int]]:
        """The stand-in at other remainders of its extents by the strides: the least, the greatest, and some between; and of
        every slot, what it has at most beyond all steps."""
        window = self.window
        kinds: dict[object, tuple[StandIn, dict[int, int]]] = {}
        trials = [{}] + [
            {slot: by} for slot, stride in window.strides.items() for by in (*range(1, stride), *range(1 - stride, 0))
        ]
        for change in trials:
            moved = with_numbers(first.point, {i: first.point[i] + by for i, by in change.items()})
            if (trial := self._with(moved)) is not None:
                leftovers, steps = window.leftovers(trial.point, trial.shapes), window.steps(trial.point, trial.shapes)
                shapes = [(r, d, shape[d] - n * steps) for r, d, n in window.results if (shape := trial.shapes[r])]
                kinds.setdefault((*leftovers.items(), *shapes), (trial, leftovers))
        found = [*kinds.values()]
        most = {i: max(leftovers[i] for _, leftovers in found) for i in window.strides}
        ordered = sorted(found[1:], key=lambda kind: tuple(kind[1].values()))
        if len(ordered) > _MOST_REMAINDERS:
            chosen = {round(n * (len(ordered) - 1) / (_MOST_REMAINDERS - 1)) for n in range(_MOST_REMAINDERS)}
            ordered = [ordered[n] for n in sorted(chosen)]
        return [trial for trial, _ in ordered], most

    def wider(self, small: StandIn, far: StandIn) -> Iterator[StandIn]:
        """With all of the rows that the op was found with, if those are more (numbers in a callable's code are not stated); and with
        each other dim of the operands that is not known to be cut longer than rows beyond all reach are, and those rows where
        that is not too large: rows that depend on where they are with respect to columns are no windows."""
        longest, steps = 2 * max(far.point[i] for i in self.window.strides), self.window.steps
        as_found = self._with(with_numbers(self.narrow.point, {i: self.probe_op.point[i] for i in self.window.strides}))
        if as_found is not None and steps(as_found.point, as_found.shapes) > steps(small.point, small.shapes):
            if self.elements(as_found) <= MOST_ELEMENTS:
                yield as_found
        for wide in zip(self._lengthened(far, longest), self._lengthened(small, longest), strict=True):
            found = next((each for each in wide if each is not None and self.elements(each) <= MOST_ELEMENTS), None)
            if found is not None:
                yield found

    def _lengthened(self, rows: StandIn, longest: int) -> list[StandIn | None]:
        """With each other dim of the operands so long."""
        longer = [w.moved(rows.point, longest - w.steps(rows.point, rows.shapes)) for w in self.beside]
        longer += [with_numbers(rows.point, {i: longest}) for i in self._others()]
        return [*map(self._with, longer)]

    def sampled(self, small: StandIn) -> list[StandIn]:
        """The stand-in, and with as many samples as are run fast."""
        times = LARGEST_STAND_IN // self.elements(small)
        more = self._with(with_numbers(small.point, {i: small.point[i] * times for i in self.samples}))
        return [small] if more is None or times == 1 or not self.samples else [small, more]

    def elements(self, small: StandIn) -> int:
        """Of the largest tensor."""
        return elements(self.probe_op, small.point, small.shapes)


def _samples(survivors: Sequence[Survivor]) -> frozenset[int]:
    """The slots of the first dim of which every shard gives its part of all results."""

    def are_apart(survivor: Survivor) -> bool:
        combines = [c for c in survivor.combines if not isinstance(c, Identity)]
        is_plain = all(isinstance(c, Gather) and not c.pieces and not c.outer for c in combines)
        return bool(combines) and is_plain and not any(each.pieces for each in survivor.cut.layouts.values())

    return next((frozenset(s.cut.factor.slots) for s in survivors if are_apart(s)), frozenset[int]())


def with_numbers(point: Point, values: Mapping[int, int]) -> Point:
    return tuple(values.get(i, value) for i, value in enumerate(point))
