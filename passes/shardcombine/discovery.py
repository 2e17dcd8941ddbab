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

_PASSING = (Reduction.SUM, Reduction.MAX, Reduction.MIN)


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
            return Rule((), {})
        instance = subject.text(subject.point)
        if (known := self.cache.get(instance)) is not None:
            return known
        subject, small = _small(subject)
        if small is None:
            rule = _rule_without_factors(subject)
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
        return _rule_without_factors(subject)
    survivors: list[tuple[Cut, tuple[Combine, ...], int | None]] = []
    taken: set[int] = set()
    for factor in small.factors:
        if taken & {i for i in factor.slots}:
            continue
        if (found := _try_factor(probe, factor)) is not None:
            survivors.append(found)
            taken |= set(factor.slots)
    rule = _named(subject, survivors)
    partials = [
        PartialRule(reduction, subject.uses(operands), results)
        for reduction in _PASSING
        for operands in probe.partial_candidates(reduction)
        if (results := probe.passes_partial(operands, reduction)) is not None
    ]
    return replace(rule, partials=(*partials, *rule.partials), found=probe.arithmetic.found)


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


def _operand_shapes(subject: Subject) -> list[Shape]:
    shapes: list[Shape] = []
    for value in subject.op.operands:
        shapes.append(tuple(value.type.get_shape()) if isinstance(value.type, TensorType) else ())
    return shapes


def _rule_without_factors(subject: Subject) -> Rule:
    return Rule(tuple((InputDim(),) * len(shape) for shape in _operand_shapes(subject)), {})


def _named(subject: Subject, survivors: list[tuple[Cut, tuple[Combine, ...], int | None]]) -> Rule:
    """The rule with factors named in the order in which operands, then sizes, show them."""
    inputs = [[InputDim()] * len(shape) for shape in _operand_shapes(subject)]
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
