"""Dropout of attention weights, spelled out as a product with random numbers. In goes a matched attention; out comes
its draw, in the form of the attention operation's operands, or nothing where the draw's dims do not fit the scores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import isclose, prod
from typing import NamedTuple

from xdsl.ir import Operation, SSAValue

from distir.dialects.attention import Dropout
from distir.dialects.random import BernoulliOp
from distir.interpreters.formulas import formula_of
from distir.interpreters.moves import shape
from distir.passes.attention.layouts import Dim, Part, regroup, traced, whole
from distir.passes.attention.spelled import Reach, Spelled, scaled

TOLERANCE = 1e-6
"""Of factors."""


class Drawn(NamedTuple):
    """A product with what was drawn: what is multiplied, by a number too."""

    op: BernoulliOp
    dims: list[Dim]
    """Of the product, as parts of the draw's."""
    number: float
    value: SSAValue


class SpelledDropout(NamedTuple):
    """What is drawn for the weights of one attention."""

    drawn: Drawn
    batch: list[list[Part]]
    """Of scores, for each of the draw's dims before rows and keys."""

    @property
    def factor(self) -> float:
        """Of a weight that is kept."""
        return 1 / self.drawn.op.probability.value.data

    @property
    def operands(self) -> Dropout:
        """As the attention operation takes them."""
        op = self.drawn.op
        return Dropout(1 - op.probability.value.data, op.key, op.positions)

    def is_of(self, op: Operation) -> bool:
        """Whether an operation multiplies by what is drawn here."""
        other = drawn_of(op)
        return other is not None and other.op is self.drawn.op and other.dims == self.drawn.dims

    def before(self, gradient: SSAValue) -> tuple[SSAValue, list[Operation]] | None:
        """What a gradient of the weights was before the draw was multiplied to it, and the operations between."""
        ops, number, times, value = list[Operation](), 1.0, 0, gradient
        while isinstance(op := value.owner, Operation) and (formula := formula_of(op)) is not None:
            if (drawn := drawn_of(op)) is not None and self.is_of(op):
                value, number, times = drawn.value, number * drawn.number, times + 1
            elif (by := scaled(op, formula, formula.operands[0])) is not None:
                value, number = op.operands[formula.operands[0]], number * by
            else:
                break
            ops.append(op)
        return (value, ops) if times == 1 and isclose(number, self.factor, rel_tol=TOLERANCE) else None


def drawn_of(op: Operation) -> Drawn | None:
    """The draw by which an operation multiplies."""
    formula = formula_of(op)
    if formula is None or formula.kind != "multiply" or len(set(formula.operands)) != 2:
        return None
    for i, other in (formula.operands, formula.operands[::-1]):
        numbers: list[float] = []

        def through(op: Operation, numbers: list[float] = numbers) -> int | None:
            if (formula := formula_of(op)) is None:
                return None
            number = 1.0 if formula.kind == "zero_or_one" else scaled(op, formula, formula.operands[0])
            if number is None:
                return None
            numbers.append(number)
            return formula.operands[0]

        source, dims, _ = traced(op.operands[i], through)
        if isinstance(source.owner, BernoulliOp) and shape(op.operands[i]) == shape(op.results[0]):
            return Drawn(source.owner, dims, prod(numbers), op.operands[other])
    return None


def dropout_of(found: Spelled, weights: Reach) -> SpelledDropout | None:
    """The draw with which weights are multiplied. The dims of scores are cut as the draw's are. None if there is none, or where its dims are no others
    than those of scores, rows and keys last."""
    for use in weights.others:
        drawn = drawn_of(use.operation)
        if drawn is None or drawn.value is not use.operation.operands[use.index]:
            continue
        parts = _aligned(weights.values[drawn.value][0], drawn)
        if parts is None or (batch := _batch(found, parts)) is None:
            return None
        found.refine([parts])
        return SpelledDropout(drawn, batch)
    return None


def _aligned(dims: Sequence[Dim], drawn: Drawn) -> list[Dim] | None:
    """For each dim of the draw, the part of scores that it is for."""
    places: dict[Part, Part] = {}
    for own, there in zip(dims, drawn.dims, strict=True):
        parts = regroup(own, [part.size for part in there])
        if parts is None or any(len(part) != 1 for part in parts):
            return None
        places.update(zip(there, chain.from_iterable(parts), strict=True))
    expected = whole(shape(drawn.op.output))
    if any(part not in places for dim in expected for part in dim):
        return None
    return [tuple(places[part] for part in dim) for dim in expected]


def _batch(found: Spelled, parts: Sequence[Dim]) -> list[list[Part]] | None:
    if len(parts) < 2 or parts[-2:] != [(found.rows,), (found.keys,)]:
        return None
    return [list(dim) for dim in parts[:-2]]
