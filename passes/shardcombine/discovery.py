"""From an op to its rule: find its class, and on a first meeting probe the class's stand-in."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Combine, InputDim, PartialRule, Reduce, Rule
from distir.passes.shardcombine.cache import RuleCache
from distir.passes.shardcombine.domains import Domains
from distir.passes.shardcombine.probing import Cut, Probe
from distir.passes.shardcombine.standins import Factor, StandIn, refined, stand_in
from distir.passes.shardcombine.subject import Shape, Subject


@dataclass
class Discovery:
    """Finds rules; each class is probed once, whatever the number of ops."""

    domains: Domains
    cache: RuleCache = field(default_factory=RuleCache.in_memory)
    probed: int = 0
    """Classes probed so far, those that the cache knew not counted."""

    def rule(self, op: Operation) -> Rule:
        """The rule of an op with tensor operands and results; one without factors if nothing was found."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return self._rule(op)

    def _rule(self, op: Operation) -> Rule:
        try:
            subject = Subject(op, self.domains)
        except Exception:  # a value that is no tensor, or a constant that does not evaluate
            return _rule_without_factors(op)
        instance = subject.text(subject.point)
        if (known := self.cache.get(instance)) is not None:
            return known
        subject, small = _small(subject)
        if small is None:
            rule = _rule_without_factors(subject.op)
        else:
            key = "class: " + subject.text(small.point)
            rule = self.cache.get(key)
            if rule is None:
                self.probed += 1
                rule = discover(subject, small)
                self.cache.put(key, rule)
        self.cache.put(instance, rule)
        return rule


def _small(subject: Subject) -> tuple[Subject, StandIn | None]:
    """The stand-in; if none runs with the integer constants as they are, one in which they are drawn."""
    small = stand_in(subject)
    if small is None and (drawn := subject.with_drawn_constants()) is not None:
        return drawn, stand_in(drawn)
    return subject, small


def discover(subject: Subject, small: StandIn) -> Rule:
    """The rule of a class, found at its stand-in."""
    if small.tied and (apart := refined(subject, small)) is not None:
        small = apart
    probe = Probe(subject, small)
    if not probe.start():
        return _rule_without_factors(subject.op)
    survivors: list[tuple[Cut, tuple[Combine, ...], int | None]] = []
    taken: set[int] = set()
    for factor in small.factors:
        if taken & {i for i in factor.slots}:
            continue
        if (found := _try_factor(probe, factor)) is not None:
            survivors.append(found)
            taken |= set(factor.slots)
    rule = _named(subject, survivors)
    return replace(rule, partials=(*_partials(probe), *rule.partials), found=probe.arithmetic.found)


def _try_factor(probe: Probe, factor: Factor) -> tuple[Cut, tuple[Combine, ...], int | None] | None:
    """The first cut of a factor that combines, with the operand that must then be a partial sum if there is one."""
    for cut in probe.cuts(factor):
        if (combines := probe.combines(cut)) is not None:
            return cut, combines, None
    carrying = {probe.subject.slots[i].owner for i in factor.slots}
    for operands in probe.partial_candidates():
        if len(operands) == 1 and operands[0] not in carrying:
            cut = next(probe.cuts(factor))
            combines = probe.combines(cut, partial=operands)
            if combines is not None and Reduce(Reduction.SUM) in combines:
                return cut, combines, operands[0]
    return None


def _partials(probe: Probe) -> list[PartialRule]:
    """Which partial operands give partial results: sums first; max and min where sums pass, or of the only operand."""

    def passing(reduction: Reduction, candidates: list[tuple[int, ...]]) -> list[PartialRule]:
        found: list[PartialRule] = []
        for operands in candidates:
            if (results := probe.passes_partial(operands, reduction)) is not None:
                found.append(PartialRule(reduction, operands, results))
        return found

    candidates = probe.partial_candidates()
    sums = passing(Reduction.SUM, candidates)
    found = list(sums)
    moved = [each for each in sums if probe.copies(each.operands, each.results)]
    others = [each.operands for each in sums if each not in moved]
    if not sums and len(candidates) == 1:
        others = candidates
    for reduction in (Reduction.MAX, Reduction.MIN):
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


def _named(subject: Subject, survivors: list[tuple[Cut, tuple[Combine, ...], int | None]]) -> Rule:
    """The rule with factors named in the order in which operands, then sizes, show them."""
    inputs = [[InputDim()] * len(shape) for shape in _operand_shapes(subject.op)]
    sizes: dict[tuple[str, int], str] = {}
    combines: dict[str, tuple[Combine, ...]] = {}
    partials: list[PartialRule] = []
    in_order = sorted(survivors, key=lambda s: min((subject.slots[i].is_size, i) for i in s[0].factor.slots))
    for number, (cut, found, partner) in enumerate(in_order, 1):
        name = f"S{number}"
        combines[name] = found
        for i in cut.factor.slots:
            slot = subject.slots[i]
            if slot.is_size:
                sizes[subject.slot_name(slot), slot.position] = name
                continue
            for operand in subject.uses((slot.owner,)) if isinstance(slot.owner, int) else ():
                inputs[operand][slot.position] = InputDim(name, 0, cut.pieces[i])
        if partner is not None:
            reduced = tuple(r for r, combine in enumerate(found) if combine == Reduce(Reduction.SUM))
            partials.append(PartialRule(Reduction.SUM, subject.uses((partner,)), reduced, name))
    return Rule(tuple(map(tuple, inputs)), combines, sizes, tuple(partials))
