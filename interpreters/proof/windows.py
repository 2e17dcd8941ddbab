"""Operations with overlapping shards. In: the windows that a shard reads of its operands' dims. Out: the steps of
the operation that it runs, the rows of the results that it computes rightly, and the rows whose partial sum it has.

A window has `stride` rows for each step, and the rows that the dim has beyond all steps. At an end that is not the
dim's, the outermost rows of a result may be wrong: as many as the rule discards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distir.dialects.sharding import Gather, InputDim, Reduce
from distir.interpreters.proof.indices import JUNK, ZEROS, Indices, Mismatch, concat, ranges, special

if TYPE_CHECKING:
    from distir.interpreters.proof.templates import Template

Carried = Sequence[tuple[int, int, InputDim, int, Indices]]


@dataclass(frozen=True)
class Run:
    """The steps `[low, high)` of `count` that a shard runs."""

    low: int
    high: int
    count: int
    filled: tuple[int, int, int] | None
    """Of the operand with zeros around its own rows: those rows, and the extent."""

    def computed(self, extent: int, combine: Gather) -> Indices:
        """The rows of a result: those at inner ends that the rule discards are not right."""
        start, stop = combine.stride * self.low, extent - combine.stride * (self.count - self.high)
        before = -combine.halo[0] if self.low > 0 else 0
        after = -combine.halo[1] if self.high < self.count else 0
        if start + before > stop - after:
            return special(JUNK, stop - start)
        return concat([special(JUNK, before), ranges([(start + before, stop - after)]), special(JUNK, after)])

    def own_rows(self) -> tuple[Indices, int]:
        """The rows of the filled operand whose addend the shard computes, and how many there are."""
        if self.filled is None:
            raise Mismatch("an operation whose shards are added up has no operand with rows of its own")
        start, stop, extent = self.filled
        return ranges([(start, stop)]), extent


def runs(template: Template, carried: Carried) -> dict[str, Run]:
    """The steps that a shard runs of each factor that is cut and whose shards overlap."""
    rule = template.rule
    if rule is None:
        return {}
    found: dict[str, Run] = {}
    for factor in rule.windowed:
        dims = [(i, dim, extent, indices) for i, _, dim, extent, indices in carried if factor in dim.factors]
        if all(indices.is_full(extent) for _, _, extent, indices in dims):
            continue
        bases = frozenset(base for _, _, _, indices in dims for base in indices.bases)
        if bases:
            raise Mismatch("where a window is, is not known", bases)
        if any(dim.inner or dim.pieces for _, dim, _, _ in dims) or len({i for i, *_ in dims}) < len(dims):
            raise Mismatch(f"{factor} has windows within other factors")
        found[factor] = _run(template, factor, [(dim, extent, indices) for _, dim, extent, indices in dims])
    return found


def _run(template: Template, factor: str, dims: Sequence[tuple[InputDim, int, Indices]]) -> Run:
    rule = template.rule
    assert rule is not None
    gathers = [
        (combine, kind.shape[combine.dim])
        for combine, kind in zip(rule.combines[factor], template.results, strict=True)
        if isinstance(combine, Gather) and kind.shape is not None
    ]
    is_sum = any(isinstance(combine, Reduce) for combine in rule.combines[factor])
    if is_sum:
        own = [(dim, extent) for dim, extent, _ in dims if dim.filled]
        if gathers or len(own) != 1 or own[0][0].stride != 1:
            raise Mismatch(f"{factor} is summed over windows of no one operand")
        count, margins = own[0][1], [(own[0][0].halo, 1)]
    else:
        rows = [extent for c, extent in gathers if c.stride == 1] + [
            extent for dim, extent, _ in dims if dim.stride == 1
        ]
        if not rows or not gathers or max(max(c.halo) for c, _ in gathers) > 0:
            raise Mismatch(f"{factor} has no steps")
        count, margins = min(rows), [((-c.halo[0], -c.halo[1]), c.stride) for c, _ in gathers]
    before = max(-(-margin[0] // stride) for margin, stride in margins)
    after = max(-(-margin[1] // stride) for margin, stride in margins)
    steps: set[tuple[int, int]] = set()
    filled: tuple[int, int, int] | None = None
    for dim, extent, indices in dims:
        beyond = extent - dim.stride * (count - after)
        if dim.halo[0] != dim.stride * before or not dim.halo[1] - dim.stride < beyond <= dim.halo[1]:
            raise Mismatch(f"{factor} has windows of other extents than the rule's")
        start, stop, rows_of = _window(dim, indices, extent)
        if rows_of is not None and is_sum:
            filled = rows_of
        if start % dim.stride or (extent - stop) % dim.stride:
            raise Mismatch(f"the window {start}:{stop} of {extent} does not begin and end with a step of {dim.stride}")
        steps.add((start // dim.stride, count - (extent - stop) // dim.stride))
    if len(steps) != 1:
        raise Mismatch(f"operands have windows for different steps: {sorted(steps)}")
    ((low, high),) = steps
    if not 0 <= low < high <= count:
        raise Mismatch(f"steps {low}:{high} of {count}")
    if filled is not None:
        (left, right), (start, stop, extent) = margins[0][0], filled
        if start < stop and not (low <= max(0, start - left) and min(count, stop + right) <= high):
            raise Mismatch(f"rows {start}:{stop} need more than the steps {low}:{high}")
    return Run(low, high, count, filled)


def _window(dim: InputDim, indices: Indices, extent: int) -> tuple[int, int, tuple[int, int, int] | None]:
    """The rows that a window is of, and of a filled one, those that are not zero."""
    if not dim.filled:
        if (bounds := indices.range) is None:
            raise Mismatch(f"{indices} is no window")
        return bounds[0], bounds[1], None
    before = after = 0
    own = (0, 0)
    for position, (base, _, _, start, stop) in enumerate(indices.segments):
        if base is ZEROS and position == 0:
            before = stop - start
        elif base is ZEROS and position == len(indices.segments) - 1:
            after = stop - start
        elif base is None and own == (0, 0):
            own = (start, stop)
        else:
            raise Mismatch(f"{indices} is no window of rows and zeros")
    if own == (0, 0):
        raise Mismatch(f"{indices} is no window of rows and zeros")
    return own[0] - before, own[1] + after, (own[0], own[1], extent)
