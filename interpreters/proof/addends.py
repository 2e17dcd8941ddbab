"""Finds the partial sum (addend) that a shard of an operation computes. In: the operation's template and rule, its
operands, and the blocks of factors that the shard has. Out: for each result, the weights of the indices summed; None
where the result is whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import PartialRule, Reduce, Rule
from distir.interpreters.proof import windows
from distir.interpreters.proof.indices import Base, Indices, Mismatch
from distir.interpreters.proof.templates import Template
from distir.interpreters.proof.values import Shard
from distir.interpreters.proof.weights import MAIN, ONE, Addend, Axis, Leaf, Weights, addend, leaves_of, region


@dataclass(frozen=True)
class Addends:
    """A shard of an operation whose blocks are known."""

    template: Template
    rule: Rule
    operands: Sequence[Shard]
    cut: Mapping[str, Indices]
    steps: Mapping[str, windows.Run]

    def of(self, result: int) -> Addend | None:
        """Which addend a result is."""
        own = self._own_axes(result)
        partial = [i for i, value in enumerate(self.operands) if value.addend is not None or value.is_zero]
        partners = [(f, p) for f in self.cut if (p := self.rule.partner(f)) is not None and result in p.results]
        beside = {i for _, p in partners for i in p.operands}
        if not partial and not own:
            return None
        if any(self._is_nothing(p, result, beside) for p in self.rule.partials):
            return addend(Reduction.SUM, [Leaf((), (), Weights(Fraction(0)))])
        kinds = {r for _, _, _, r in own} | {a.reduction for v in self.operands if (a := v.addend) is not None}
        if any(self.operands[i].is_zero for i in partial):
            kinds.add(Reduction.SUM)
        if len(kinds) != 1:
            raise Mismatch(f"addends of several kinds meet: {', '.join(sorted(kinds))}")
        (reduction,) = kinds
        linear = self._linear(set(partial) - beside, reduction)
        through = set(linear.operands) if linear is not None and result in linear.results else set[int]()
        if linear is not None and not through and not own and not beside:
            return None  # it does not depend on them
        leaves: list[Leaf] = []
        axes: list[Axis] = [((), factor, self.template.extents[factor]) for factor, _, _, _ in own]
        if not through - beside:
            leaves.append(
                _leaf((MAIN,) if beside else (), axes, [(i, w) for _, i, w, _ in own], Leaf((), (), Weights(ONE)))
            )
        for i in sorted(through | beside):
            if self.template.is_nothing(i):
                continue
            outside = [f for f, p in partners if i in p.operands]
            kept = [(axis, (b, w)) for axis, (f, b, w, _) in zip(axes, own, strict=True) if f not in outside]
            value = self.operands[i]
            for leaf in (Leaf((), (), Weights(Fraction(0))),) if value.is_zero else leaves_of(value.addend):
                leaves.append(_leaf((i, *leaf.path), [a for a, _ in kept], [each for _, each in kept], leaf, i))
        return addend(reduction, leaves)

    def _is_nothing(self, partial: PartialRule, result: int, beside: set[int]) -> bool:
        """Whether a result is zero, since operands are in which it is linear. The others must be no addends, unless it is linear in them too:
        zero divided by an addend of zero is no number. An operand `beside` what a shard sums says nothing of that sum."""
        if not self._takes_sums(partial, result):
            return False
        zero = [i for i in partial.operands if self.operands[i].is_zero]
        if not set(zero) - beside or not all(i in zero or self.template.is_nothing(i) for i in partial.operands):
            return False
        linear = {i for p in self.rule.partials if self._takes_sums(p, result) for i in p.operands}
        return all(
            i in linear or self.template.is_nothing(i) or (value.addend is None and not value.is_zero)
            for i, value in enumerate(self.operands)
        )

    @staticmethod
    def _takes_sums(partial: PartialRule, result: int) -> bool:
        return partial.factor is None and partial.reduction is Reduction.SUM and result in partial.results

    def _own_axes(self, result: int) -> list[tuple[str, Indices, Fraction, Reduction]]:
        """Factors over which the shard has reduced a part of what there is, with the weight of each block."""
        found: list[tuple[str, Indices, Fraction, Reduction]] = []
        for factor, combines in self.rule.combines.items():
            combine = combines[result]
            if not isinstance(combine, Reduce):
                continue
            if factor in self.steps:
                blocks, extent = self.steps[factor].own_rows()
                self.template.extents[factor] = extent
            elif factor in self.cut:
                blocks, extent = self.cut[factor], self.template.extents[factor]
            else:
                continue
            mean = combine.reduction is Reduction.MEAN
            weight = Fraction(extent, blocks.size) if mean and blocks.size else ONE
            found.append((factor, blocks, weight, Reduction.SUM if mean else combine.reduction))
        return found

    def _linear(self, operands: set[int], reduction: Reduction) -> PartialRule | None:
        """The entry of the rule by which these operands may be addends."""
        if not operands:
            return None
        fitting = [
            p
            for p in self.rule.partials
            if p.factor is None and p.reduction is reduction and operands <= set(p.operands)
        ]
        if not fitting:
            bases = frozenset[Base]().union(*[self.operands[i].bases for i in operands])
            which = ", ".join(map(str, sorted(operands)))
            values = "; ".join(str(self.operands[i]) for i in sorted(operands))
            raise Mismatch(f"operand {which} is an addend, and its rule takes none there: {values}", bases)
        return min(fitting, key=lambda p: len(p.operands))


def _leaf(
    path: tuple[int, ...],
    axes: Sequence[Axis],
    own: Sequence[tuple[Indices, Fraction]],
    inner: Leaf,
    step: int | None = None,
) -> Leaf:
    """Weights over own axes of those of a leaf of an operand."""
    inner_axes = inner.axes
    if step is not None:
        inner_axes = tuple([((step, *p), factor, extent) for p, factor, extent in inner.axes])
    if inner.weights.symbols and own:
        raise Mismatch("what a caller has summed is cut", [symbol for symbol, _ in inner.weights.symbols])
    function, depth = inner.weights.explicit, len(inner.axes)
    for indices, weight in reversed(own):
        function = region(indices, weight, function, depth)
        depth += 1
    return Leaf(path, (*axes, *inner_axes), Weights(function, inner.weights.symbols))
