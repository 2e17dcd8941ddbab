"""From an op to its rule: find its class, and on a first meeting probe the class's stand-in."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Combine, Gather, InputDim, PartialRule, Reduce, Rule
from distir.interpreters.shared import Shared
from distir.passes.shardcombine.cache import RuleCache
from distir.passes.shardcombine.classes import is_unexplained, refined, stand_in, stands_for
from distir.passes.shardcombine.cuts import Survivor, factor_name
from distir.passes.shardcombine.domains import Domains
from distir.passes.shardcombine.factors import Factor
from distir.passes.shardcombine.lookups import Lookup
from distir.passes.shardcombine.own_stand_ins import own_stand_ins
from distir.passes.shardcombine.partial_operands import copies, partial_candidates, passes_partial
from distir.passes.shardcombine.probing import Probe
from distir.passes.shardcombine.reach import confirmed, reaching
from distir.passes.shardcombine.shifts import shifted
from distir.passes.shardcombine.standins import StandIn, strided
from distir.passes.shardcombine.subject import Shape, Subject
from distir.passes.shardcombine.trial_runs import LARGEST_STAND_IN, elements
from distir.passes.shardcombine.window_stand_ins import own_numbers
from distir.passes.shardcombine.windows import windows


@dataclass
class Discovery:
    """Finds rules; each class is probed once, whatever the number of ops."""

    domains: Domains
    cache: RuleCache = field(default_factory=RuleCache.in_memory)
    probed: int = 0
    """Classes probed so far, those that the cache knew not counted."""

    _rules: dict[Hashable, Rule] = field(default_factory=dict[Hashable, Rule])
    _shared: Shared = field(default_factory=Shared)
    _stand_ins: dict[str, list[StandIn]] = field(default_factory=dict[str, list[StandIn]])
    """Of ops that differ in numbers only."""

    def rule(self, op: Operation) -> Rule:
        """The rule of an op with tensor operands and results; one without factors if nothing was found."""
        form = None if op.regions else self._form(op)
        if (known := self._rules.get(form)) is not None:
            return known
        with warnings.catch_warnings(), np.errstate(all="ignore"), one_thread(), no_collection():
            warnings.simplefilter("ignore")
            rule = self._rule(op)
        if form is not None:
            self._rules[form] = rule
        return rule

    def _form(self, op: Operation) -> Hashable:
        """Equal for ops of one class with equal properties and types, wired alike, of which constants are equal."""
        number, first = self._shared.number, {value: i for i, value in reversed(list(enumerate(op.operands)))}
        form: list[Hashable] = [type(op), *(number(result.type) for result in op.results)]
        form += [(name, number(each)) for name, each in op.properties.items()]
        for value in op.operands:
            form += [first[value], number(value.type)]
            owner = value.owner
            if isinstance(owner, Operation) and not owner.operands:
                form.append((type(owner), *((name, number(each)) for name, each in owner.properties.items())))
        return tuple(form)

    def _rule(self, op: Operation) -> Rule:
        try:
            subject = Subject(op, self.domains)
        except Exception:  # a value that is no tensor, or a constant that does not evaluate
            return _rule_without_factors(op)
        instance = subject.text(subject.point)
        if (known := self.cache.get(instance)) is not None:
            return known
        subject, small = self._small(subject)
        if small is None:
            rule = _rule_without_factors(subject.op)
        else:
            stated = own_numbers(subject, small)
            own = [f"{i}={subject.point[i]}" for i in sorted(stated)]
            key = " ".join(["class:", subject.text(small.point), *map(str, sorted(small.altered)), *own])
            rule = self.cache.get(key)
            if rule is None:
                self.probed += 1
                rule, is_of_class = discover(subject, small, stated)
                if is_of_class:
                    self.cache.put(key, rule)
        self.cache.put(instance, rule)
        return rule

    def _small(self, subject: Subject) -> tuple[Subject, StandIn | None]:
        """The stand-in; if none runs with the integer constants as they are, one in which they are drawn."""
        alike = self._stand_ins.setdefault(subject.text((0,) * len(subject.point)), [])
        if (known := next((each for each in alike if stands_for(subject, each)), None)) is not None:
            return subject, known
        small = stand_in(subject)
        if small is None and (drawn := subject.with_drawn_constants()) is not None:
            return drawn, stand_in(drawn)
        if small is not None:
            alike.append(small)
        return subject, small


@contextmanager
def one_thread() -> Generator[None]:
    """Torch on one thread, if it is loaded: what is probed is small, and threads that wait take more time than the work."""
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def no_collection() -> Generator[None]:
    """Python's collector of garbage paused: probing makes many small objects, and looking through all of a program for each few
    hundred of them takes a sixth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def discover(subject: Subject, small: StandIn, stated: frozenset[int]) -> tuple[Rule, bool]:
    """The rule of an op, found at the stand-in of its class, and whether it is that of the class: one that needs more numbers than the
    class says is the op's own. `stated` are the slots of which the class says what the op has."""
    probed = small
    if small.tied or is_unexplained(subject, small):
        apart = refined(subject, small)
        if apart is not None and (small.tied or len(apart.factors) >= len(small.factors)):
            probed = apart
    probe = Probe(subject, probed)
    if not probe.start():
        return _rule_without_factors(subject.op), True
    survivors = _survivors(probe, probed)
    if probed is small and (separate := _separated(subject, small, survivors)) is not None:
        probe, survivors = separate
    survivors = reaching(probe, survivors)
    seen = windows(probe, survivors, small, stated)
    rule = _rule_of(probe, [*survivors, *seen.found])
    if seen.left_out or (seen.tried and _states_other_sizes(probe)):
        tried = {factor.slots for factor in probe.small.factors}
        for own in own_stand_ins(subject):
            if seen.left_out or not tried.issuperset(factor.slots for factor in own.factors):
                alone = _alone(subject, own)
                gained = len(alone.combines) - len(rule.combines)
                if gained > 0 or (gained == 0 and seen.left_out):
                    return alone, False
    return rule, small.altered.isdisjoint(slot for survivor in survivors for slot in survivor.cut.factor.slots)


def _alone(subject: Subject, small: StandIn) -> Rule:
    """The rule of an op that is a class of its own, with all numbers that it states."""
    probe = Probe(subject, small)
    if not probe.start(exact=elements(subject, small.point, small.shapes) <= LARGEST_STAND_IN):
        return _rule_without_factors(subject.op)
    survivors = reaching(probe, _survivors(probe, small))
    found = windows(probe, survivors, small, frozenset(range(len(subject.slots)))).found
    return _rule_of(probe, [*survivors, *found])


def _states_other_sizes(probe: Probe) -> bool:
    """Whether the op states sizes that no factor explains: channels may be in groups, which types do not say."""
    scaled = {i for factor in probe.small.factors for i in factor.slots}
    return any(slot.is_size and i not in scaled for i, slot in enumerate(probe.subject.slots))


def _rule_of(probe: Probe, survivors: Sequence[Survivor]) -> Rule:
    """The rule of these cuts and of those that need a shift, with partial operands."""
    rule = _named(probe.subject, [*survivors, *shifted(probe, survivors)])
    return replace(rule, partials=(*_partials(probe), *rule.partials), found=probe.arithmetic.found)


def _separated(subject: Subject, small: StandIn, survivors: Sequence[Survivor]) -> tuple[Probe, list[Survivor]] | None:
    """The probe and the survivors of more factors, where dims of several operands that have one extent, and cannot be cut together,
    can be apart: they are equal by accident (as many indices as there are entries). None if they cannot."""
    cut = {s.cut.factor.slots for s in survivors}
    owners = (
        {subject.slots[i].owner for i in f.slots if not subject.slots[i].is_size}
        for f in small.factors
        if f.slots not in cut
    )
    if not any(len(each) > 1 for each in owners):
        return None
    apart = refined(subject, small)
    if apart is None or len(apart.factors) <= len(small.factors):
        return None
    probe = Probe(subject, apart)
    if not probe.start() or len(found := _survivors(probe, apart)) <= len(survivors):
        return None
    return probe, found


def _survivors(probe: Probe, small: StandIn) -> list[Survivor]:
    """All factors that can be cut. One that cannot is tried again when another is found in one of its dims: it may lie
    inside that."""
    survivors: list[Survivor] = []
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
    carrying = {probe.subject.slots[i].owner for i in factor.slots}
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
    overlaps = strided(probe.subject, probe.small)  # which adds, where the stand-in moves
    for reduction in () if overlaps else (Reduction.MAX, Reduction.MIN):
        found += [replace(each, reduction=reduction) for each in moved]
        found += passing(reduction, others)
    return [replace(each, operands=probe.subject.uses(each.operands)) for each in found]


def _operand_shapes(op: Operation) -> list[Shape]:
    shapes: list[Shape] = []
    for value in op.operands:
        shapes.append(tuple(value.type.get_shape()) if isinstance(value.type, TensorType) else ())
    return shapes


def _rule_without_factors(op: Operation) -> Rule:
    return Rule(tuple((InputDim(),) * len(shape) for shape in _operand_shapes(op)), {})


def _named(subject: Subject, survivors: list[Survivor]) -> Rule:
    """The rule with factors named in the order in which operands, then sizes, show them; those whose shards overlap, and
    those that need an offset, last."""

    def first_shown(survivor: Survivor) -> tuple[bool, bool, tuple[bool, int], int]:
        slots = survivor.cut.factor.slots
        is_windowed = any(layout.is_windowed for layout in survivor.cut.layouts.values())
        depth = max((len(layout.outer) for layout in survivor.cut.layouts.values()), default=0)
        return survivor.offset is not None, is_windowed, min((subject.slots[i].is_size, i) for i in slots), depth

    in_order = sorted(survivors, key=first_shown)
    names = {factor_name(s.cut.factor): f"S{number}" for number, s in enumerate(in_order, 1)}
    inputs = [[InputDim()] * len(shape) for shape in _operand_shapes(subject.op)]
    sizes: dict[tuple[str, int], tuple[str, ...]] = {}
    partials: list[PartialRule] = []
    for survivor in in_order:
        cut, name = survivor.cut, names[factor_name(survivor.cut.factor)]
        for i in cut.factor.slots:
            slot = subject.slots[i]
            if slot.is_size:
                where = subject.slot_name(slot), slot.position
                sizes[where] = (*sizes.get(where, ()), name)
                continue
            layout = cut.layouts[i]
            factors = (*(names[factor_name(outer)] for outer in layout.outer), name)
            for operand in subject.uses((slot.owner,)) if isinstance(slot.owner, int) else ():
                if len(factors) > len(inputs[operand][slot.position].factors):
                    inputs[operand][slot.position] = InputDim(
                        factors[0], layout.halo, layout.pieces, factors[1:], layout.stride, layout.filled
                    )
        if survivor.partners:
            reduced = tuple(r for r, combine in enumerate(survivor.combines) if combine == Reduce(Reduction.SUM))
            partials.append(PartialRule(Reduction.SUM, subject.uses(survivor.partners), reduced, name))

    def renamed(combine: Combine) -> Combine:
        if isinstance(combine, Gather) and combine.outer:
            return replace(combine, outer=tuple(names[outer] for outer in combine.outer))
        return combine

    combines = {names[factor_name(s.cut.factor)]: tuple(map(renamed, s.combines)) for s in in_order}
    offsets = {names[factor_name(s.cut.factor)]: s.offset for s in in_order if s.offset is not None}
    return Rule(tuple(map(tuple, inputs)), combines, sizes, tuple(partials), offsets)
