"""Softmaxes and their gradients, as one operation or spelled out. In goes the last operation; out come its operands,
the dim that it reduces, and all operations between."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from xdsl.ir import Operation, SSAValue

from distir.interpreters.formulas import formula_of, number_of
from distir.interpreters.moves import shape
from distir.passes.attention.layouts import converts, traced, whole


class Softmax(NamedTuple):
    """A softmax, as one operation or spelled out."""

    scores: SSAValue
    axis: int
    ops: list[Operation]
    weights: SSAValue | None = None
    """Exponentials, where it is spelled out."""
    sums: SSAValue | None = None
    """Theirs, broadcast."""


def softmax_of(op: Operation) -> Softmax | None:
    """A softmax that ends with this operation."""
    formula = formula_of(op)
    if formula is None:
        return None
    if formula.kind == "softmax":
        return Softmax(op.operands[formula.operands[0]], formula.axis, [op])
    if formula.kind != "divide":
        return None
    weights, sums = (op.operands[i] for i in formula.operands)
    exp = weights.owner
    if not isinstance(exp, Operation) or (made := formula_of(exp)) is None or made.kind != "exp":
        return None
    if (total := _reduced(sums, weights, "sum")) is None:
        return None
    (axis, ops), value = total, exp.operands[0]
    found = [op, exp, *ops]
    below = value.owner
    if isinstance(below, Operation) and (formula := formula_of(below)) is not None and formula.kind == "subtract":
        scores, largest = (below.operands[i] for i in formula.operands)
        most = _reduced(largest, scores, "maximum")
        if most is not None and most[0] == axis:
            return Softmax(scores, axis, [*found, below, *most[1]], weights, sums)
    return Softmax(value, axis, found, weights, sums)


class SpelledGradient(NamedTuple):
    """The gradient of a softmax that is spelled out: weights x (incoming / sums - sum of incoming x weights / sums squared)."""

    incoming: SSAValue
    result: SSAValue
    ops: list[Operation]


def gradient_of(softmax: Softmax) -> SpelledGradient | None:
    """None where the weights are used for no such thing, or for several."""
    found: list[SpelledGradient] = []
    for use in () if softmax.weights is None else softmax.weights.uses:
        op, formula = use.operation, formula_of(use.operation)
        if formula is None or formula.kind != "multiply":
            continue
        both = op.operands[formula.operands[0] if formula.operands[0] != use.index else formula.operands[1]]
        if (added := _operands_of(both, "add")) is None:
            continue
        for first, second in (added, added[::-1]):
            parts = _operands_of(first, "divide")
            if parts is not None and parts[1] is softmax.sums and isinstance(both.owner, Operation):
                ops = _weighted_sum(second, parts[0], softmax)
                if ops is not None and isinstance(first.owner, Operation):
                    found.append(SpelledGradient(parts[0], op.results[0], [op, both.owner, first.owner, *ops]))
    return found[0] if len(found) == 1 else None


def _operands_of(value: SSAValue, kind: str) -> tuple[SSAValue, ...] | None:
    """The operands of the formula that makes a value."""
    op = value.owner
    formula = formula_of(op) if isinstance(op, Operation) else None
    return None if formula is None or formula.kind != kind else tuple(value.owner.operands[i] for i in formula.operands)  # pyright: ignore


def _weighted_sum(value: SSAValue, incoming: SSAValue, softmax: Softmax) -> list[Operation] | None:
    """Operations that make a value: minus the sum of incoming x weights / sums squared, broadcast."""
    source, _, between = traced(value, lambda op: 0 if _negates(op) else converts(op))
    if sum(map(_negates, between)) != 1 or not isinstance(source.owner, Operation) or softmax.sums is None:
        return None
    product = source.owner.operands[0]
    reduced = _reduced(value, product, "sum", negated=True)
    outer = _operands_of(product, "multiply")
    if reduced is None or reduced[0] != softmax.axis or outer is None or softmax.weights not in outer:
        return None
    (inner,) = (each for each in outer if each is not softmax.weights) if outer[0] is not outer[1] else (outer[0],)
    factors = _operands_of(inner, "multiply")
    if factors is None or incoming not in factors or factors[0] is factors[1]:
        return None
    (inverse,) = (each for each in factors if each is not incoming)
    if _operands_of(inverse, "inverse_square") != (softmax.sums,):
        return None
    makers = [product.owner, inner.owner, inverse.owner]
    return [*reduced[1], *(op for op in makers if isinstance(op, Operation))]


def _negates(op: Operation) -> bool:
    return (formula := formula_of(op)) is not None and formula.kind == "scale" and abs(formula.number + 1) < 1e-12


def _reduced(value: SSAValue, of: SSAValue, kind: str, negated: bool = False) -> tuple[int, list[Operation]] | None:
    """The dim of `of` over which a value is its sum or maximum, broadcast to it."""

    def through(op: Operation) -> int | None:
        return 0 if negated and _negates(op) else converts(op) if (bounded := _bounded(op)) is None else bounded

    value, dims, ops = traced(value, through)
    op = value.owner
    if not isinstance(op, Operation) or (formula := formula_of(op)) is None or formula.kind != kind:
        return None
    if op.operands[formula.operands[0]] is not of:
        return None
    kept = [i for i in range(len(shape(of))) if len(shape(value)) == len(shape(of)) or i != formula.axis]
    back = [()] * (len(shape(of)) - len(dims)) + [
        tuple(part._replace(origin=kept[part.origin]) if not part.is_repeated else part for part in dim) for dim in dims
    ]
    expected = whole(shape(of))
    for i, dim in enumerate(back):
        if i == formula.axis:
            if any(not part.is_repeated for part in dim):
                return None
        elif dim != expected[i]:
            return None
    return formula.axis, [*ops, op]


def _bounded(op: Operation) -> int | None:
    """The operand that is the result, where the operation takes the larger of it and minus infinity."""
    if (formula := formula_of(op)) is None or formula.kind != "larger":
        return None
    return next(
        (b for a, b in (formula.operands, formula.operands[::-1]) if number_of(op.operands[a]) == -np.inf), None
    )
