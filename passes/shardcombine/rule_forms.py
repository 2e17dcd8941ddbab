"""Two forms of a rule. In go the cuts that discovery found, and the rule comes out. In go a rule and an op's sizes, and the cuts come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Combine, Gather, InputDim, PartialRule, Reduce, Rule, Steps, Windowed
from distir.passes.shardcombine.cuts import Cut, Layout, Survivor, factor_name
from distir.passes.shardcombine.factors import Factor
from distir.passes.shardcombine.instances import factor_extent, instantiate
from distir.passes.shardcombine.probe_op import Point, ProbeOp, Shape, Shapes


def operand_shapes(op: Operation) -> list[Shape]:
    shapes: list[Shape] = []
    for value in op.operands:
        shapes.append(tuple(value.type.get_shape()) if isinstance(value.type, TensorType) else ())
    return shapes


def rule_without_factors(op: Operation) -> Rule:
    """The rule of an op that did not run."""
    return Rule(tuple((InputDim(),) * len(shape) for shape in operand_shapes(op)), {}, found="unknown")


def rule_of(probe_op: ProbeOp, survivors: Sequence[Survivor]) -> Rule:
    """The rule with factors named in the order in which operands, then sizes, show them; those whose shards overlap, and
    those that need an offset, last."""

    def first_shown(survivor: Survivor) -> tuple[bool, bool, tuple[bool, int], int]:
        slots = survivor.cut.factor.slots
        is_windowed = any(layout.is_windowed for layout in survivor.cut.layouts.values())
        depth = max((len(layout.outer) for layout in survivor.cut.layouts.values()), default=0)
        return survivor.offset is not None, is_windowed, min((probe_op.slots[i].is_size, i) for i in slots), depth

    in_order = sorted(survivors, key=first_shown)
    names = {factor_name(s.cut.factor): f"S{number}" for number, s in enumerate(in_order, 1)}
    inputs = [[InputDim()] * len(shape) for shape in operand_shapes(probe_op.op)]
    sizes: dict[tuple[str, int], tuple[str, ...]] = {}
    partials: list[PartialRule] = []
    for survivor in in_order:
        cut, name = survivor.cut, names[factor_name(survivor.cut.factor)]
        for i in cut.factor.slots:
            slot = probe_op.slots[i]
            if slot.is_size:
                where = probe_op.slot_name(slot), slot.position
                sizes[where] = (*sizes.get(where, ()), name)
                continue
            layout = cut.layouts[i]
            factors = (*(names[factor_name(outer)] for outer in layout.outer), name)
            for operand in probe_op.uses((slot.owner,)) if isinstance(slot.owner, int) else ():
                if len(factors) > len(inputs[operand][slot.position].factors):
                    inputs[operand][slot.position] = InputDim(
                        factors[0], layout.halo, layout.pieces, factors[1:], layout.stride, layout.filled
                    )
        if survivor.partners:
            reduced = tuple(r for r, combine in enumerate(survivor.combines) if combine == Reduce(Reduction.SUM))
            partials.append(PartialRule(Reduction.SUM, probe_op.uses(survivor.partners), reduced, name))

    def renamed(combine: Combine) -> Combine:
        if isinstance(combine, Gather) and combine.outer:
            return replace(combine, outer=tuple(names[outer] for outer in combine.outer))
        return combine

    combines = {names[factor_name(s.cut.factor)]: tuple(map(renamed, s.combines)) for s in in_order}
    offsets = {names[factor_name(s.cut.factor)]: s.offset for s in in_order if s.offset is not None}
    return Rule(tuple(map(tuple, inputs)), combines, sizes, tuple(partials), offsets)


@dataclass(frozen=True)
class RuleAt:
    """A rule at one size of its op."""

    probe_op: ProbeOp
    rule: Rule
    point: Point
    results: Shapes

    @staticmethod
    def of(probe_op: ProbeOp, rule: Rule, point: Point) -> RuleAt | None:
        """None where types reject the size."""
        results = probe_op.infer(point)
        return None if results is None or min(point, default=1) < 1 else RuleAt(probe_op, rule, point, results)

    @cached_property
    def _shapes(self) -> tuple[list[Shape], list[Shape]]:
        operands = [
            self.probe_op.operand_shape(self.point, self.probe_op.source[i])
            if self.probe_op.source[i] in self.probe_op.tensors
            else shape
            for i, shape in enumerate(operand_shapes(self.probe_op.op))
        ]
        return operands, [shape or () for shape in self.results]

    @cached_property
    def _sizes(self) -> dict[tuple[str, int], int]:
        both = zip(self.probe_op.slots, self.point, strict=True)
        return {(self.probe_op.slot_name(slot), slot.position): n for slot, n in both if slot.is_size}

    @cached_property
    def slots(self) -> dict[str, tuple[int, ...]]:
        """The slots that carry each factor."""
        number = {(slot.owner, slot.position): i for i, slot in enumerate(self.probe_op.slots)}
        by_name = {
            (self.probe_op.slot_name(slot), slot.position): i
            for i, slot in enumerate(self.probe_op.slots)
            if slot.is_size
        }
        found: dict[str, set[int]] = {name: set() for name in self.rule.combines}
        for i, dims in enumerate(self.rule.inputs):
            for d, dim in enumerate(dims):
                for name in dim.factors:
                    found[name].add(number.get((self.probe_op.source[i], d), -1))
        for where, names in self.rule.sizes.items():
            for name in names:
                found[name].add(by_name.get(where, -1))
        return {name: tuple(sorted(i for i in slots if i >= 0)) for name, slots in found.items()}

    def extent(self, name: str) -> int:
        """How many equal blocks the factor has here, or steps if its shards overlap; 0 where it cannot be cut."""
        if name in self.rule.windowed:
            steps = self._steps(name)
            return 0 if steps is None else steps.count
        return factor_extent(self.rule, name, *self._shapes, self._sizes) or 0

    def _steps(self, name: str) -> Steps | None:
        instance = instantiate(self.rule, name, *self._shapes, 2, uneven=True)
        states = () if instance is None else instance.operands
        return next((state.steps for state in states if isinstance(state, Windowed)), None)

    def strides(self, name: str) -> dict[int, int]:
        """Of a factor whose shards overlap, the rows per step of every slot."""
        found: dict[int, int] = {}
        for i in self.slots[name]:
            slot = self.probe_op.slots[i]
            found[i] = 1 if slot.is_size or not isinstance(slot.owner, int) else self._dim(i).stride
        return found

    def _dim(self, slot: int) -> InputDim:
        owner, position = self.probe_op.slots[slot].owner, self.probe_op.slots[slot].position
        assert isinstance(owner, int)
        return self.rule.inputs[owner][position]

    def with_extent(self, name: str, extent: int) -> RuleAt | None:
        """With so many blocks or steps of one factor, and else as here; None where types or the rule do not allow it."""
        here = self.extent(name)
        if name in self.rule.windowed:
            strides = self.strides(name)
            point = tuple(n + strides.get(i, 0) * (extent - here) for i, n in enumerate(self.point))
        else:
            if any(self.point[i] % here for i in self.slots[name]):
                return None
            point = tuple(n // here * extent if i in self.slots[name] else n for i, n in enumerate(self.point))
        found = RuleAt.of(self.probe_op, self.rule, point)
        return found if found is not None and found.extent(name) == extent else None

    @cached_property
    def factors(self) -> dict[str, Factor]:
        """Those that can be cut here, by name."""
        found: dict[str, Factor] = {}
        for name, combines in self.rule.combines.items():
            if (extent := self.extent(name)) > 1:
                dims = tuple((r, c.dim) for r, c in enumerate(combines) if isinstance(c, Gather))
                found[name] = Factor(self.slots[name], dims, extent)
        return found

    @cached_property
    def survivors(self) -> dict[str, Survivor]:
        """The cuts of those. Factors are called by their names in the rule."""
        found: dict[str, Survivor] = {}
        for name, factor in self.factors.items():
            layouts: dict[int, Layout] = {}
            for i in factor.slots:
                if not self.probe_op.slots[i].is_size:
                    dim = self._dim(i)
                    outer = tuple(self.factors[o] for o in dim.factors[: dim.factors.index(name)] if o in self.factors)
                    is_windowed = name in self.rule.windowed
                    layouts[i] = Layout(dim.pieces, outer, dim.halo, dim.stride, is_windowed, dim.filled)
            partner = self.rule.partner(name)
            partners = () if partner is None else tuple(i for i in partner.operands if self.probe_op.source[i] == i)
            combines = self.rule.combines[name]
            found[name] = Survivor(Cut(factor, layouts), combines, partners, self.rule.offsets.get(name))
        return found

    def without(self, factors: set[str], partials: set[int]) -> Rule:
        """The rule without these factors, those that lie inside them, and these entries of its partial operands."""
        left = {name: s for name, s in self.survivors.items() if name not in factors}
        left = {name: s for name, s in left.items() if not self.rule.outside(name) & factors}

        def renamed(combine: Combine) -> Combine:
            if isinstance(combine, Gather) and combine.outer:
                return replace(combine, outer=tuple(factor_name(self.factors[outer]) for outer in combine.outer))
            return combine

        made = rule_of(self.probe_op, [replace(s, combines=tuple(map(renamed, s.combines))) for s in left.values()])
        kept = [e for i, e in enumerate(self.rule.partials) if e.factor is None and i not in partials]
        return replace(made, partials=(*kept, *made.partials), found=self.rule.found)
