"""Candidates for shards that overlap, by type inference alone. In goes a probe op at a point; out come windows. The
operand dims of a window grow together by whole steps of the operator, each by its own rows per step; one dim of
every result does the same, or no result changes.

A row of a convolution's result is a step, which takes `stride` rows of its operand; in its gradient the operand's gradient has as many
rows for each of the result's. That windows are local and how far they reach is seen by running the operator (`windows`)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, product
from time import process_time

from distir.passes.shardcombine.probe_op import Point, ProbeOp, Shape, Shapes

LARGEST_STRIDE = 64
_FAR = 20_160
"""Steps so many that rows per step are told apart: a multiple of most strides, more than twice the square of the largest."""
_MOST_TOGETHER = 3
_SOME, _MOST_SECONDS = 192, 0.1
"""Steps more by which it is seen how long types take with far more, and how long they may take with those."""


@dataclass(frozen=True)
class Window:
    """Dims of operands (by slot) and of results with the rows that each has for every step."""

    strides: Mapping[int, int]
    dims: tuple[tuple[int, int] | None, ...]
    """Of each result, the dim that grows and its rows per step; None where none does."""
    filled: frozenset[int] = field(default_factory=frozenset[int])
    """Slots whose rows beyond a shard's own are zeros."""

    @property
    def results(self) -> list[tuple[int, int, int]]:
        """The results that grow, each with its dim and rows per step."""
        return [(r, *each) for r, each in enumerate(self.dims) if each is not None]

    @property
    def gathers(self) -> bool:
        """Whether results grow; else shards' results are addends."""
        return bool(self.results)

    def filling(self, slots: Collection[int]) -> Window:
        """The window with zeros beyond a shard's own rows of these slots."""
        return replace(self, filled=frozenset(slots))

    def moved(self, point: Point, steps: int) -> Point:
        """The point with so many more steps."""
        return _moved(point, self.strides, steps)

    def steps(self, point: Point, shapes: Shapes) -> int:
        """How many steps there are: the fewest rows of a dim that has one for each, so that every step has rows of all."""
        if not self.gathers:
            return point[next(i for i in (*self.filled, *self.strides) if self.strides[i] == 1)]
        rows = [_shape(shapes, result)[dim] for result, dim, stride in self.results if stride == 1]
        return min([*rows, *(point[i] for i, stride in self.strides.items() if stride == 1)])

    def leftovers(self, point: Point, shapes: Shapes) -> dict[int, int]:
        """What each slot has more than all steps."""
        steps = self.steps(point, shapes)
        return {i: point[i] - stride * steps for i, stride in self.strides.items()}

    def expected(self, shapes: Shapes, fewer: int) -> list[Shape | None]:
        """The shapes of results with so many steps fewer."""
        return [
            None
            if shape is None
            else tuple(n - fewer * each[1] if each is not None and d == each[0] else n for d, n in enumerate(shape))
            for each, shape in zip(self.dims, shapes, strict=True)
        ]


def _shape(shapes: Shapes, result: int) -> Shape:
    shape = shapes[result]
    assert shape is not None
    return shape


def window_candidates(probe_op: ProbeOp, point: Point, carried: Collection[int]) -> list[Window]:
    """Of the dims that no factor carries: those that grow alone with results, and those that only grow together. Of several
    operands, dims at the same place of the shape are tried together, with strides that their extents suggest. None of a recurrence."""
    found: list[Window] = []
    rejected: list[int] = []
    for i, slot in enumerate(probe_op.slots):
        if probe_op.recurrent:
            return []
        if slot.is_size or i in carried:
            continue
        if (window := window_of(probe_op, point, {i: 1})) is not None:
            found.append(window)
        elif _growth(probe_op, point, {i: 1}, _FAR) is None:
            rejected.append(i)
    for count in range(2, _MOST_TOGETHER + 1):
        for members in combinations(rejected, count):
            taken = {i for window in found for i in window.strides}
            if taken & set(members) or not _at_one_place(probe_op, members):
                continue
            for strides in _likely_strides(probe_op, members):
                if probe_op.recurrent:
                    return []
                if (window := window_of(probe_op, point, strides)) is not None:
                    found.append(window)
                    break
    return found


def _at_one_place(probe_op: ProbeOp, members: Sequence[int]) -> bool:
    """Whether these are dims of different operands at the same place from the left or from the right."""
    slots = [probe_op.slots[i] for i in members]
    places = ({slot.position for slot in slots}, {slot.length - slot.position for slot in slots})
    return len({slot.owner for slot in slots}) == len(slots) and min(map(len, places)) == 1


def _likely_strides(probe_op: ProbeOp, members: Sequence[int]) -> Iterator[dict[int, int]]:
    """Rows per step, such that the fewest have one: about as many as the others have more of them, fewer, or a number that the op
    states (where padding is most of the rows)."""
    extents = [probe_op.point[i] for i in members]
    sizes = {n for n, slot in zip(probe_op.point, probe_op.slots, strict=True) if slot.is_size and n <= LARGEST_STRIDE}
    most = [min(LARGEST_STRIDE, math.ceil(extent / min(extents))) for extent in extents]
    likely = [[*range(n, 0, -1), *sorted(size for size in sizes if size > n)] for n in most]
    for strides in product(*likely):
        if min(strides) == 1:
            yield dict(zip(members, strides, strict=True))


def window_of(probe_op: ProbeOp, point: Point, strides: Mapping[int, int]) -> Window | None:
    """The window of slots that have these rows per step, or a multiple of them; None if results do not grow as those of one do."""
    far = _growth(probe_op, point, strides, _FAR)
    if far is None:
        return None
    grown = [change for change in far if change is not None]
    present = sum(shape is not None for shape in probe_op.infer(point) or ())
    if len(grown) not in (0, present) or (not grown and len(strides) == 1):
        return None
    rates = [Fraction(by, _FAR).limit_denominator(LARGEST_STRIDE) for _, by in grown]
    finer = math.lcm(*(rate.denominator for rate in rates))
    strides = {i: stride * finer for i, stride in strides.items()}
    each_rate = iter(rates)
    dims = tuple(None if change is None else (change[0], int(next(each_rate) * finer)) for change in far)
    window = Window(strides, dims)
    every = [*strides.values(), *(stride for _, _, stride in window.results)]
    if max(every) > LARGEST_STRIDE or 1 not in every or min(every) < 1:
        return None
    for steps in (1, 2, 3, _FAR):
        expected = [None if each is None else (each[0], each[1] * steps) for each in dims]
        if _growth(probe_op, point, strides, steps) != expected:
            return None
    return window


def _goes_step_by_step(probe_op: ProbeOp, point: Point, strides: Mapping[int, int]) -> bool:
    """Whether types take so long to infer with more rows that they cannot be with very many: those of a recurrence, in which no row
    depends on a window."""
    if probe_op.recurrent & strides.keys():
        return True
    start = process_time()
    probe_op.infer(_moved(point, strides, _SOME))
    if process_time() - start < _MOST_SECONDS:
        return False
    probe_op.recurrent |= strides.keys()
    return True


def _moved(point: Point, strides: Mapping[int, int], steps: int) -> Point:
    return tuple(value + strides.get(i, 0) * steps for i, value in enumerate(point))


def _growth(
    probe_op: ProbeOp, point: Point, strides: Mapping[int, int], steps: int
) -> list[tuple[int, int] | None] | None:
    """Of each result, the one dim that grows with so many more steps, and by how much; None for one that is absent or stays.
    None if types reject it, or if several dims of a result grow."""
    if steps > _SOME and _goes_step_by_step(probe_op, point, strides):
        return None
    before, after = probe_op.infer(point), probe_op.infer(_moved(point, strides, steps))
    if before is None or after is None:
        return None
    changes: list[tuple[int, int] | None] = []
    for old, new in zip(before, after, strict=True):
        if old is None or new is None:
            if old is not new:
                return None
            changes.append(None)
            continue
        if len(old) != len(new):
            return None
        changed = [(d, b - a) for d, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        if len(changed) > 1:
            return None
        changes.append(changed[0] if changed else None)
    return changes
