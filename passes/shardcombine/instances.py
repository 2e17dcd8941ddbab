"""A rule at the shapes of one op. In go a rule, a factor and shapes; out comes the state of every operand and result
when the op runs on shards along one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import (
    REPLICATED,
    Anchor,
    Combine,
    Gather,
    Identity,
    InputDim,
    Partial,
    Pieces,
    Reduce,
    Rule,
    Sharded,
    State,
    Steps,
    Windowed,
    different,
    extent_of,
    mapped,
    repeated,
)

Shape = Sequence[int]
SizeEntries = Mapping[tuple[str, int], int]
"""What stands in an op's sizes, by name and position, as in `Rule.sizes`."""
NO_SIZES: SizeEntries = {}


@dataclass(frozen=True)
class Instance:
    """One way to run an op on shards."""

    operands: tuple[State, ...]
    results: tuple[State, ...]
    means: tuple[int, ...] = ()
    """Results whose shards are means of their parts: a partial sum once each is scaled by its share."""


@dataclass(frozen=True)
class _Carrier:
    """A dim of this extent that carries the factor in these relative segments, inside other factors."""

    dim: int
    extent: int
    segments: tuple[int, ...]
    outer: tuple[str, ...] = ()

    def cut(self, factor_extent: int, factor_pieces: Pieces, repeats: int) -> Sharded | None:
        """The dim when the factor is cut in these pieces and repeats for every index of the factors outside it; None for
        segments of a factor in several pieces."""
        block = self.extent // repeats
        if not self.segments:
            pieces, counts = mapped(factor_pieces, lambda piece: piece * block // factor_extent), factor_pieces
        elif len(factor_pieces) > 1:
            return None
        else:
            pieces = tuple(segment * block // sum(self.segments) for segment in self.segments)
            counts = repeated(factor_pieces, len(pieces))
        return Sharded(self.dim, repeated(pieces, repeats), repeated(counts, repeats) if counts != pieces else ())


class _Reading:
    """A rule at the shapes of one op."""

    def __init__(self, rule: Rule, operand_shapes: Sequence[Shape], result_shapes: Sequence[Shape], sizes: SizeEntries):
        self.rule, self.operand_shapes, self.result_shapes, self.sizes = rule, operand_shapes, result_shapes, sizes
        self._extents: dict[str, int | None] = {}

    def extent(self, factor: str) -> int | None:
        """How many equal blocks the factor has; None if a dim does not split into its segments, or for factors that lie
        inside each other."""
        if factor not in self._extents:
            self._extents[factor] = None
            self._extents[factor] = self._common_extent(factor)
        return self._extents[factor]

    def _common_extent(self, factor: str) -> int | None:
        blocks: list[int] = []
        outside: set[str] = set()
        for carrier in (
            *_operand_carriers(self.rule, factor, self.operand_shapes),
            *_result_carriers(self.rule, factor, self.result_shapes),
        ):
            if carrier is not None:
                outside |= {*carrier.outer}
                parts = self.repeats(carrier) * sum(carrier.segments or (1,))
                if parts == 0 or carrier.extent % parts:
                    return None
                blocks.append(carrier.extent // parts)
        for slot, factors in self.rule.sizes.items():
            if factor in factors and (entry := self.sizes.get(slot, 0)) > 0:
                parts = math.prod(self.extent(each) or 0 for each in factors if each in outside)
                if parts == 0 or entry % parts:
                    return None
                blocks.append(entry // parts)
        return math.gcd(*blocks) or None

    def repeats(self, carrier: _Carrier) -> int:
        """The extent of the factors outside; 0 if it is not known."""
        return math.prod(self.extent(outer) or 0 for outer in carrier.outer)


def factor_extent(
    rule: Rule,
    factor: str,
    operand_shapes: Sequence[Shape],
    result_shapes: Sequence[Shape],
    sizes: SizeEntries = NO_SIZES,
) -> int | None:
    """How many equal blocks the factor has in this op; None if a dim does not split into its segments.

    `sizes` are the op's entries of the rule's sizes: 768 columns in 12 heads have 12 blocks."""
    return _Reading(rule, operand_shapes, result_shapes, sizes).extent(factor)


def instantiate(
    rule: Rule,
    factor: str,
    operand_shapes: Sequence[Shape],
    result_shapes: Sequence[Shape],
    shards: int,
    pieces: Pieces | None = None,
    sizes: SizeEntries = NO_SIZES,
    uneven: bool = False,
) -> Instance | None:
    """The op cut along a factor into `shards` shards, the factor itself in `pieces` (default: one).

    `pieces` sum to `factor_extent`. None if some piece of some dim or size does not divide by the number of shards (with
    `uneven`, if it has fewer blocks than there are shards), or if an operand carries the factor twice."""
    if factor in rule.windowed:
        return _windowed(rule, factor, operand_shapes, result_shapes, shards, uneven) if pieces is None else None
    reading = _Reading(rule, operand_shapes, result_shapes, sizes)
    extent = reading.extent(factor)
    if extent is None:
        return None
    pieces = pieces or (extent,)
    if extent_of(pieces) != extent or any(piece < shards if uneven else piece % shards for piece in different(pieces)):
        return None

    def sharded(carrier: _Carrier) -> Sharded | None:
        cut = carrier.cut(extent, pieces, reading.repeats(carrier))
        if cut is None or uneven:
            return cut
        if any(piece == 0 or piece % shards for piece in different(cut.pieces)):
            return None
        return Sharded(cut.dim, cut.pieces)

    partner = rule.partner(factor)
    operands: list[State] = []
    for i, dims in enumerate(rule.inputs):
        carriers = _carriers(dims, factor, operand_shapes[i])
        if len(carriers) > 1:
            return None
        state = sharded(carriers[0]) if carriers else REPLICATED
        if state is None:
            return None
        operands.append(Partial(partner.reduction) if partner is not None and i in partner.operands else state)
    results: list[State] = []
    means: list[int] = []
    for r, (combine, carrier) in enumerate(
        zip(rule.combines[factor], _result_carriers(rule, factor, result_shapes), strict=True)
    ):
        state = sharded(carrier) if carrier is not None else _uncut_state(combine)
        if state is None:
            return None
        if combine == Reduce(Reduction.MEAN):
            means.append(r)
        results.append(state)
    return Instance(tuple(operands), tuple(results), tuple(means))


def _windowed(
    rule: Rule, factor: str, operand_shapes: Sequence[Shape], result_shapes: Sequence[Shape], shards: int, uneven: bool
) -> Instance | None:
    """The op cut along a factor whose shards overlap: results are cut as any other, or addends, and operands are read in
    windows. None if these extents are not related as the rule says, or if there are fewer rows than shards."""
    carried = [(i, d, dim) for i, dims in enumerate(rule.inputs) for d, dim in enumerate(dims) if factor in dim.factors]
    steps = _steps(rule.combines[factor], [(dim, operand_shapes[i][d]) for i, d, dim in carried], result_shapes)
    if steps is None or len({i for i, _, _ in carried}) < len(carried):
        return None
    if any(a.extent < shards if uneven else a.extent % shards for a in steps.anchors):
        return None
    before = max(-(-a.before // a.stride) for a in steps.anchors)
    after = max(-(-a.after // a.stride) for a in steps.anchors)
    operands: list[State] = [REPLICATED] * len(operand_shapes)
    margins = [replace(a, before=max(a.before, a.after), after=max(a.before, a.after)) for a in steps.anchors]
    run = replace(steps, anchors=tuple(margins))
    for i, d, dim in carried:
        extent = operand_shapes[i][d]
        beyond = extent - dim.stride * (steps.count - after)
        if dim.pieces or dim.inner or dim.halo[0] != dim.stride * before:
            return None
        if not dim.halo[1] - dim.stride < beyond <= dim.halo[1]:
            return None
        operands[i] = Windowed(d, extent, dim.stride, run, dim.filled)
    results = tuple(
        Sharded(c.dim, (result_shapes[r][c.dim],)) if isinstance(c, Gather) else _uncut_state(c)
        for r, c in enumerate(rule.combines[factor])
    )
    return Instance(tuple(operands), results)


def _steps(
    combines: Sequence[Combine], operands: Sequence[tuple[InputDim, int]], result_shapes: Sequence[Shape]
) -> Steps | None:
    """How the factor is cut: by rows of the results that are concatenated; if they are added up, by those of operands that
    are filled with zeros. Some dim has as many rows as there are steps: that with the fewest of those with one for each."""
    gathers = [(c, result_shapes[r][c.dim]) for r, c in enumerate(combines) if isinstance(c, Gather)]
    if any(isinstance(c, Reduce) for c in combines):
        filled = [(dim, extent) for dim, extent in operands if dim.filled]
        if gathers or len(filled) != 1 or filled[0][0].stride != 1:
            return None
        ((dim, extent),) = filled
        return Steps(extent, (Anchor(extent, 1, *dim.halo),))
    rows = [extent for c, extent in gathers if c.stride == 1]
    rows += [extent for dim, extent in operands if dim.stride == 1]
    if not rows or not gathers or max(max(c.halo) for c, _ in gathers) > 0:
        return None
    return Steps(min(rows), tuple(Anchor(extent, c.stride, -c.halo[0], -c.halo[1]) for c, extent in gathers))


def partial_instance(rule: Rule, index: int, result_count: int) -> Instance | None:
    """Entry `index` of the rule's `partial` list; None for one that belongs to a factor."""
    entry = rule.partials[index]
    if entry.factor is not None:
        return None

    def states(count: int, partial: Sequence[int]) -> tuple[State, ...]:
        return tuple(Partial(entry.reduction) if i in partial else REPLICATED for i in range(count))

    return Instance(states(len(rule.inputs), entry.operands), states(result_count, entry.results))


def _carriers(dims: Sequence[InputDim], factor: str, shape: Shape) -> list[_Carrier]:
    """The dims of one operand that carry the factor."""
    return [
        _Carrier(d, shape[d], dim.pieces, dim.factors[: dim.factors.index(factor)])
        for d, dim in enumerate(dims)
        if factor in dim.factors
    ]


def _operand_carriers(rule: Rule, factor: str, shapes: Sequence[Shape]) -> list[_Carrier]:
    found: list[_Carrier] = []
    for dims, shape in zip(rule.inputs, shapes, strict=True):
        found += _carriers(dims, factor, shape)
    return found


def _result_carriers(rule: Rule, factor: str, shapes: Sequence[Shape]) -> list[_Carrier | None]:
    """Per result, the dim along which shards' results are concatenated."""
    return [
        _Carrier(combine.dim, shape[combine.dim], combine.pieces, combine.outer)
        if isinstance(combine, Gather)
        else None
        for combine, shape in zip(rule.combines[factor], shapes, strict=True)
    ]


def _uncut_state(combine: Combine) -> State:
    match combine:
        case Identity() | Gather():
            return REPLICATED
        case Reduce(reduction):
            return Partial(Reduction.SUM if reduction is Reduction.MEAN else reduction)
