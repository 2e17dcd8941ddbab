"""Numbers beyond a stand-in: an operator may state an integer that only larger dims show (the diagonal from which a
triangle is kept). In go a probe and its cuts; out come the cuts that hold beyond these numbers too.

A stand-in has few rows and columns, and where a stated number is not smaller, what it does there says nothing of dims that are
larger than it. Cuts are therefore tried again with each factor grown beyond such numbers, on floats, which kernels run fast."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from distir.dialects.sharding import Gather
from distir.passes.shardcombine.cuts import Cut, Layout, Survivor, local_point
from distir.passes.shardcombine.factors import Factor
from distir.passes.shardcombine.probe_op import ProbeOp
from distir.passes.shardcombine.probing import Probe
from distir.passes.shardcombine.standins import StandIn
from distir.passes.shardcombine.trial_runs import LARGEST_STAND_IN, elements

LARGEST_NUMBER = 1024
"""Numbers above are flags and codes, or do not fit a stand-in."""
_MOST_ELEMENTS = 50 * LARGEST_STAND_IN
_FEWEST_BLOCKS = 4
"""Of a factor that is cut in three uneven shards."""


def stated(probe_op: ProbeOp, scaled: frozenset[int]) -> set[int]:
    """The magnitudes of all integers that the op states, those of slots that factors scale left out."""
    owned = {(probe_op.slots[i].owner, probe_op.slots[i].position) for i in scaled}
    return {abs(n) for entry, n in probe_op.stated.items() if entry not in owned}


def reaching(probe: Probe, survivors: Sequence[Survivor]) -> list[Survivor]:
    """The cuts that hold with dims beyond every stated number too; those in pieces or windows, or inside others, as they are."""
    probe_op, small = probe.probe_op, probe.small
    scaled = frozenset(i for factor in small.factors for i in factor.slots)
    cut = frozenset(i for survivor in survivors for i in survivor.cut.factor.slots)
    least = min((small.point[i] for i in scaled if not probe_op.slots[i].is_size), default=0)
    numbers = stated(probe_op, cut)
    numbers |= {small.point[i] for i in small.altered | scaled - cut if probe_op.slots[i].is_size}
    if (
        not probe_op.domains.states_numbers
    ):  # what it computes with says nothing of dims that are longer than it was found with
        numbers |= {probe_op.point[i] for i in scaled if not probe_op.slots[i].is_size}
    hidden = [n for n in numbers if least - 1 <= n <= LARGEST_NUMBER]
    if not hidden or not survivors:
        return [*survivors]
    left = [*survivors]
    for factor, larger in grown(probe, max(hidden)):
        left = [s for s in left if not _is_plain(s) or _holds(larger, s, factor)]
    return left


def confirmed(probe: Probe, survivor: Survivor, others: Sequence[Survivor]) -> bool:
    """Whether a cut holds with the op's own numbers too, where the stand-in has others in the dims that are cut: what lies side by side
    in a few rows may overlap in more, and is then looked for as windows."""
    probe_op, small, cut = probe.probe_op, probe.small, survivor.cut
    left = _own_leftovers(probe_op, small)
    if all(i not in small.altered or left[i] == small.leftovers[i] for i in cut.factor.slots):
        return True
    elsewhere = {i for other in others for i in other.cut.factor.slots}
    if elsewhere & {*cut.factor.slots}:
        return False
    point = tuple(
        n if i in elsewhere else own for i, (own, n) in enumerate(zip(probe_op.point, small.point, strict=True))
    )
    if (shapes := probe_op.infer(point)) is None:
        return False
    sizes = [point[i] for i in cut.factor.slots]
    sizes += [shape[d] for r, d in cut.factor.results if (shape := shapes[r]) is not None]
    own = replace(cut.factor, extent=math.gcd(*sizes))
    if own.extent < _FEWEST_BLOCKS:
        point, own = local_point(replace(small, point=point), own, cut.factor.extent), cut.factor
    if (shapes := probe_op.infer(point)) is None or elements(probe_op, point, shapes) > _MOST_ELEMENTS:
        return False
    factors = tuple(own if f.slots == own.slots else f for f in small.factors)
    as_found = Probe(probe_op, replace(small, point=point, shapes=shapes, factors=factors))
    return as_found.start(exact=False, draws=1) and _holds(as_found, survivor, own)


def _own_leftovers(probe_op: ProbeOp, small: StandIn) -> list[int]:
    """What the op has of every slot without the factors."""
    left = [*probe_op.point]
    for factor in small.factors:
        extent = math.gcd(*(left[i] for i in factor.slots))
        for i in factor.slots:
            left[i] //= extent
    return left


def grown(probe: Probe, beyond: int) -> Iterator[tuple[Factor, Probe]]:
    """Probes on floats at the stand-in with one factor grown beyond the number, and that factor."""
    probe_op, small = probe.probe_op, probe.small
    for factor in small.factors:
        longer = replace(factor, extent=factor.extent + beyond)
        point = local_point(small, factor, longer.extent)
        if (shapes := probe_op.infer(point)) is None:
            continue
        operands = [probe_op.operand_shape(point, i) for i in probe_op.tensors]
        if max(math.prod(shape) for shape in (*operands, *shapes) if shape is not None) > _MOST_ELEMENTS:
            continue
        factors = tuple(longer if f == factor else f for f in small.factors)
        larger = Probe(probe_op, replace(small, point=point, shapes=shapes, factors=factors))
        if larger.start(exact=False, draws=1):
            yield longer, larger


def _is_plain(survivor: Survivor) -> bool:
    plain = (not isinstance(c, Gather) or c == Gather(c.dim) for c in survivor.combines)
    layouts = survivor.cut.layouts.values()
    return survivor.offset is None and all(layout == Layout() for layout in layouts) and all(plain)


def _holds(larger: Probe, survivor: Survivor, grown: Factor) -> bool:
    cut = survivor.cut
    if cut.factor.slots == grown.slots:
        cut = Cut(grown, cut.layouts)
    return larger.combines(cut, survivor.partners) == survivor.combines
