"""The rule of a class of ops. In go an op and the stand-in of its class; out comes the rule, after every kind of probe that there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import PartialRule, Reduce, Rule
from distir.passes.shardcombine.classes import is_unexplained, refined
from distir.passes.shardcombine.cuts import Survivor
from distir.passes.shardcombine.factors import Factor
from distir.passes.shardcombine.lookups import Lookup
from distir.passes.shardcombine.own_stand_ins import own_stand_ins
from distir.passes.shardcombine.partial_operands import copies, partial_candidates, passes_partial
from distir.passes.shardcombine.probe_op import ProbeOp
from distir.passes.shardcombine.probing import Probe
from distir.passes.shardcombine.rule_forms import rule_of, rule_without_factors
from distir.passes.shardcombine.shifts import shifted
from distir.passes.shardcombine.standins import StandIn, strided
from distir.passes.shardcombine.stated_numbers import confirmed, reaching
from distir.passes.shardcombine.time_limits import OutOfTime, limited_time
from distir.passes.shardcombine.trial_runs import LARGEST_STAND_IN, elements, runs
from distir.passes.shardcombine.windows import windows


@dataclass(frozen=True)
class Found:
    """A rule, whether it is that of the op's class (one that needs more numbers than the class says is the op's own), and whether the
    search for it came to its end."""

    rule: Rule
    is_of_class: bool
    is_complete: bool = True


@dataclass
class _SoFar:
    """What a search has found, for when it ends early."""

    probe: Probe | None = None
    survivors: list[Survivor] = field(default_factory=list[Survivor])

    def rule(self, probe_op: ProbeOp) -> Rule:
        if self.probe is None:
            return rule_without_factors(probe_op.op)
        return replace(rule_of(probe_op, self.survivors), found=self.probe.arithmetic.found)


def discover(probe_op: ProbeOp, small: StandIn, stated: frozenset[int], seconds: float) -> Found:
    """The rule of an op, found at the stand-in of its class; after so much time, what of it was found until then. `stated` are the slots
    of which the class says what the op has."""
    so_far = _SoFar()
    try:
        with limited_time(seconds):
            return Found(*_discover(probe_op, small, stated, so_far))
    except OutOfTime:
        return Found(so_far.rule(probe_op), is_of_class=False, is_complete=False)


def _discover(probe_op: ProbeOp, small: StandIn, stated: frozenset[int], so_far: _SoFar) -> tuple[Rule, bool]:
    probed = small
    if small.tied or is_unexplained(probe_op, small):
        apart = refined(probe_op, small)
        if apart is not None and (small.tied or len(apart.factors) >= len(small.factors)):
            probed = apart
    probe = Probe(probe_op, probed)
    if not probe.start():
        return rule_without_factors(probe_op.op), True
    so_far.probe = probe
    survivors = _survivors(probe, probed, so_far.survivors)
    if probed is small and (separate := _separated(probe_op, small, survivors)) is not None:
        probe, survivors = separate
    so_far.probe, so_far.survivors = probe, reaching(probe, survivors)
    survivors = [*so_far.survivors]
    seen = windows(probe, survivors, small, stated, so_far.survivors.append)
    rule = _rule_of(probe, [*survivors, *seen.found])
    if seen.left_out or (seen.tried and _states_other_sizes(probe)):
        tried = {factor.slots for factor in probe.small.factors}
        for own in own_stand_ins(probe_op):
            if seen.left_out or not tried.issuperset(factor.slots for factor in own.factors):
                alone = _alone(probe_op, own)
                gained = _dims_cut(alone) - _dims_cut(rule) or len(alone.combines) - len(rule.combines)
                if gained > 0 or (gained == 0 and seen.left_out):
                    return alone, False
    return rule, small.altered.isdisjoint(slot for survivor in survivors for slot in survivor.cut.factor.slots)


def _dims_cut(rule: Rule) -> int:
    """How many dims of operands some factor divides."""
    return sum(bool(dim.factors) for dims in rule.inputs for dim in dims)


def _alone(probe_op: ProbeOp, small: StandIn) -> Rule:
    """The rule of an op that is a class of its own, with all numbers that it states."""
    probe = Probe(probe_op, small)
    if not probe.start(exact=elements(probe_op, small.point, small.shapes) <= LARGEST_STAND_IN):
        return rule_without_factors(probe_op.op)
    survivors = reaching(probe, _survivors(probe, small))
    found = windows(probe, survivors, small, frozenset(range(len(probe_op.slots)))).found
    return _rule_of(probe, [*survivors, *found])


def _states_other_sizes(probe: Probe) -> bool:
    """Whether the op states sizes that no factor explains: channels may be in groups, which types do not say."""
    scaled = {i for factor in probe.small.factors for i in factor.slots}
    return any(slot.is_size and i not in scaled for i, slot in enumerate(probe.probe_op.slots))


def _rule_of(probe: Probe, survivors: Sequence[Survivor]) -> Rule:
    """The rule of these cuts and of those that need a shift, with partial operands."""
    rule = rule_of(probe.probe_op, [*survivors, *shifted(probe, survivors)])
    return replace(rule, partials=(*_partials(probe), *rule.partials), found=probe.arithmetic.found)


def _separated(probe_op: ProbeOp, small: StandIn, survivors: Sequence[Survivor]) -> tuple[Probe, list[Survivor]] | None:
    """The probe and the survivors of more factors, where dims of several operands that have one extent, and cannot be cut together,
    can be apart: they are equal by accident (as many indices as there are entries); or where a dim that types let grow alone grows with
    others only (rows of a product, with those of its addend). None if they cannot."""
    cut = {s.cut.factor.slots for s in survivors}
    left = [factor for factor in small.factors if factor.slots not in cut]
    owners = ({probe_op.slots[i].owner for i in f.slots if not probe_op.slots[i].is_size} for f in left)
    is_apart = any(len(each) > 1 for each in owners)
    lacks_partners = any(factor.results and not _grows(probe_op, small, factor) for factor in left)
    if not is_apart and not lacks_partners:
        return None
    apart = refined(probe_op, small)
    if apart is None or len(apart.factors) < len(small.factors) + (not lacks_partners):
        return None
    probe = Probe(probe_op, apart)
    if not probe.start() or len(found := _survivors(probe, apart)) <= len(survivors):
        return None
    return probe, found


def _grows(probe_op: ProbeOp, small: StandIn, factor: Factor) -> bool:
    """Whether the op runs where this factor is larger."""
    return runs(probe_op, tuple(n * 3 if i in factor.slots else n for i, n in enumerate(small.point))) is not None


def _survivors(probe: Probe, small: StandIn, survivors: list[Survivor] | None = None) -> list[Survivor]:
    """All factors that can be cut, one after the other in this list. One that cannot is tried again when another is found in one of its
    dims: it may lie inside that."""
    survivors = [] if survivors is None else survivors
    failed: list[Factor] = []
    untried = list(small.factors)
    while untried:
        factor = untried.pop(0)
        if (found := _try_factor(probe, factor, survivors)) is None or not confirmed(probe, found, survivors):
            failed.append(factor)
            continue
        survivors.append(found)
        again = [f for f in failed if _share_a_dim(f, factor)]
        failed = [f for f in failed if f not in again]
        untried += again
    for factor in failed:
        if any(set(factor.slots) & set(s.cut.factor.slots) for s in survivors):
            continue
        cut = next(probe.cuts(factor, survivors), None)
        if cut is not None and (found := Lookup(probe, cut, survivors).survivor()) is not None:
            survivors.append(found)
    return survivors


def _share_a_dim(one: Factor, other: Factor) -> bool:
    return bool(set(one.slots) & set(other.slots) or set(one.results) & set(other.results))


def _try_factor(probe: Probe, factor: Factor, survivors: Sequence[Survivor]) -> Survivor | None:
    """The first cut of a factor that combines."""
    for cut in probe.cuts(factor, survivors):
        if (combines := probe.combines(cut, survivors=survivors)) is not None:
            return Survivor(cut, combines)
    if (cut := next(probe.cuts(factor, survivors), None)) is None:
        return None
    carrying = {probe.probe_op.slots[i].owner for i in factor.slots}
    for operands in partial_candidates(probe):
        if not carrying.intersection(operands):
            combines = probe.combines(cut, operands, survivors)
            if combines is not None and Reduce(Reduction.SUM) in combines:
                return Survivor(cut, combines, operands)
    return None


def _partials(probe: Probe) -> list[PartialRule]:
    """Which partial operands give partial results: sums first; max and min where sums pass, or of the only operand."""

    def passing(reduction: Reduction, candidates: list[tuple[int, ...]]) -> list[PartialRule]:
        found: list[PartialRule] = []
        for operands in candidates:
            if (results := passes_partial(probe, operands, reduction)) is not None:
                found.append(PartialRule(reduction, operands, results))
        return found

    candidates = partial_candidates(probe)
    sums = passing(Reduction.SUM, candidates)
    found = list(sums)
    moved = [each for each in sums if copies(probe, each.operands, each.results)]
    others = [each.operands for each in sums if each not in moved]
    if not sums and len(candidates) == 1:
        others = candidates
    overlaps = strided(probe.probe_op, probe.small)  # which adds, where the stand-in moves
    for reduction in () if overlaps else (Reduction.MAX, Reduction.MIN):
        found += [replace(each, reduction=reduction) for each in moved]
        found += passing(reduction, others)
    return [replace(each, operands=probe.probe_op.uses(each.operands)) for each in found]
