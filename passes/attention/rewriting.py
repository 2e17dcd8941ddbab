"""Writes the attention operation. In goes a matched, spelled-out attention; out comes the program with one operation
in its place, and another in place of its gradient, where the program has it. Nothing is replaced if other operations use a value inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any, NamedTuple

from xdsl.dialects.builtin import Float64Type, TensorType, f32
from xdsl.ir import Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from distir.dialects.attention import BackwardOp, ForwardOp
from distir.interpreters.formulas import Formula, formula_of
from distir.interpreters.model_names import NAMES
from distir.interpreters.moves import contraction_of, element, shape
from distir.passes.attention.dropout import SpelledDropout, drawn_of, dropout_of
from distir.passes.attention.layouts import Dim, Named, Part, converts, named, regroup, traced
from distir.passes.attention.masks import Seen, seen_by
from distir.passes.attention.softmaxes import SpelledGradient, gradient_of
from distir.passes.attention.spelled import FREE, Product, Reach, Spelled, hidden_by, reach

TOLERANCE = 1e-6
"""Of the factors of scores and of their gradients."""


class Gradient(NamedTuple):
    """The gradient of one attention."""

    of_result: Named
    value: Named
    inner: list[Operation]
    weights: Operation
    """Makes the gradient of the weights."""
    query: Product | None
    key: Product | None


@dataclass
class Whole:
    """An attention with all that is made of its weights."""

    found: Spelled
    seen: Seen
    result: Product | None
    of_value: Product | None
    gradient: Gradient | None
    inner: list[Operation]
    dropout: SpelledDropout | None

    @property
    def ends(self) -> list[Operation]:
        """The operations whose results are replaced."""
        found = self.gradient
        products = (self.result, self.of_value, *(() if found is None else (found.query, found.key)))
        return [each.op for each in products if each is not None]

    @property
    def is_closed(self) -> bool:
        """Whether nothing else needs what is between."""
        inside = {*self.inner, *self.ends}
        block = self.found.scores.parent
        return all(op.parent is block for op in inside) and all(
            use.operation in inside for op in self.inner for result in op.results for use in result.uses
        )


def whole_of(found: Spelled) -> Whole | None:
    """The attention with its gradient. None where its weights are used for something else."""
    softmax = found.softmax.ops[0].results[0]
    dropout = dropout_of(found, reach(softmax, found.dims, passes=_is_guard))
    seen, weights = seen_by(found), reach(softmax, found.dims, passes=_is_guard)
    gradients = {use.operation for use in weights.others}
    if dropout is not None:
        drops = {op for op in gradients if dropout.is_of(op)}
        if weights.products or (weights := _dropped(weights, drops, dropout)) is None:
            return None
        gradients -= drops
    results = [each for each, _ in weights.products if each.contracted == [found.keys]]
    values = [each for each, _ in weights.products if each.contracted == [found.rows]]
    apart = gradient_of(found.softmax)
    if (
        seen is None
        or len(results) + len(values) != len(weights.products)
        or max(map(len, (results, values, gradients))) > 1
    ):
        return None
    if (apart is not None and gradients) or bool(values) != bool(gradients or apart) or not (results or values):
        return None
    result, value = (each[0] if each else None for each in (results, values))
    gradient = None
    inner = [*found.inner, *weights.ops]
    if value is not None:
        if apart is None:
            (op,) = gradients
            apart = _softmax_gradient(found, op, weights.values)
        gradient = None if apart is None else _gradient(found, apart, value, result, dropout)
        if gradient is None:
            return None
        inner += gradient.inner
    whole = Whole(found, seen, result, value, gradient, inner, dropout)
    return whole if whole.is_closed else None


def _dropped(weights: Reach, drops: set[Operation], dropout: SpelledDropout) -> Reach | None:
    """With what is made of the weights that are left. None where it is anything but products with them."""
    ops, products = [*weights.ops, *drops], list[tuple[Product, float]]()
    for op in drops:
        drawn = drawn_of(op)
        assert drawn is not None
        own = reach(op.results[0], weights.values[drawn.value][0], numbers=True, passes=_is_guard)
        if own.others or any(
            not isclose(scale * drawn.number, dropout.factor, rel_tol=TOLERANCE) for _, scale in own.products
        ):
            return None
        ops += own.ops
        products += own.products
    return weights._replace(ops=ops, products=products)


def _is_guard(op: Operation, formula: Formula, position: int, dims: list[Dim]) -> bool:
    """Whether an operation makes zeros of what is not a number, as what sees nothing has it."""
    if formula.kind == "not_a_number":
        return True
    if formula.kind not in ("fill", "select"):
        return False
    test = op.operands[formula.operands[0]].owner
    is_test = isinstance(test, Operation) and (made := formula_of(test)) is not None and made.kind == "not_a_number"
    return is_test and any(
        (hidden := hidden_by(op, formula, i)) is not None and hidden[1:] == ("hidden", 0.0)
        for i in formula.operands[1:]
    )


def _softmax_gradient(
    found: Spelled, op: Operation, weights: dict[SSAValue, tuple[list[Dim], float]]
) -> SpelledGradient | None:
    """The softmax's gradient as one operation, on weights in the shape that the softmax gave them."""
    formula = formula_of(op)
    if formula is None or formula.kind != "softmax_gradient":
        return None
    incoming, own = (op.operands[i] for i in formula.operands)
    if own not in weights or incoming in weights or weights[own][0] != found.dims or formula.axis != found.softmax.axis:
        return None
    return SpelledGradient(incoming, op.results[0], [op])


def _gradient(
    found: Spelled,
    of_softmax: SpelledGradient,
    of_value: Product,
    result: Product | None,
    dropout: SpelledDropout | None,
) -> Gradient | None:
    incoming, dims, drops = of_softmax.incoming, found.dims, list[Operation]()
    if dropout is not None:
        if (before := dropout.before(incoming)) is None:
            return None
        incoming, drops = before
    product, moved, between = traced(incoming, converts)
    if not isinstance(product.owner, Operation) or (operands := _operands(product, moved, dims, found)) is None:
        return None
    of_result, value = operands
    if (expected := of_value.second) is None or not expected.same(of_result):
        return None
    if result is not None and (result.second is None or not result.second.same(value)):
        return None
    scores = reach(of_softmax.result, dims, numbers=True, passes=_hides_again(found))
    queries = [(each, scale) for each, scale in scores.products if each.contracted == [found.keys]]
    keys = [(each, scale) for each, scale in scores.products if each.contracted == [found.rows]]
    if scores.others or len(queries) + len(keys) != len(scores.products) or max(len(queries), len(keys)) > 1:
        return None
    for products, position in ((queries, 1 - found.position), (keys, found.position)):
        for each, scale in products:
            own, other = found.operand(position), each.second
            if (
                own is None
                or other is None
                or not own.same(other)
                or not isclose(scale, found.scale, rel_tol=TOLERANCE)
            ):
                return None
    inner = [product.owner, *between, *drops, *of_softmax.ops, *scores.ops]
    query, key = (products[0][0] if products else None for products in (queries, keys))
    return Gradient(of_result, value, inner, product.owner, query, key)


def _operands(
    product: SSAValue, moved: Sequence[Dim], dims: Sequence[Dim], found: Spelled
) -> tuple[Named, Named] | None:
    """The gradient of the result, and the values, of the product that is the gradient of the weights."""
    op = product.owner
    if not isinstance(op, Operation) or (letters := contraction_of(op)) is None or len(moved) != len(dims):
        return None
    places: dict[Any, list[tuple[Part, Part]]] = {letter: [] for letter in letters.result}
    for here, there in zip(dims, moved, strict=True):
        parts = regroup(there, [part.size for part in here])
        if parts is None or any(len(each) != 1 or each[0].is_repeated for each in parts):
            return None
        for part, (place,) in zip(here, parts, strict=True):
            places[letters.result[place.origin]].append((place, part))
    names = {
        letter: [(part, part.size) for _, part in sorted(each, key=lambda pair: -pair[0].stride)]
        for letter, each in places.items()
    }
    operands: dict[bool, Named] = {}
    for value, own in zip(op.operands, (letters.first, letters.second), strict=True):
        labels = [names.get(letter, [(FREE, n)]) for letter, n in zip(own, shape(value), strict=True)]
        if sum(letter not in names for letter in own) != 1 or (one := named(value, labels)) is None:
            return None
        operands[found.rows in one.parts] = one
    return (operands[True], operands[False]) if len(operands) == 2 else None


def _hides_again(found: Spelled) -> Callable[[Operation, Formula, int, list[Dim]], bool]:
    """Whether an operation makes zeros where a mask hid scores: their gradients are zero already."""
    masks = {traced(mask.value)[0]: mask.kind for mask in found.masks}

    def passes(op: Operation, formula: Formula, position: int, dims: list[Dim]) -> bool:
        hidden = hidden_by(op, formula, position)
        return hidden is not None and hidden[2] == 0 and masks.get(traced(hidden[0])[0]) == hidden[1]

    return passes


def replace(whole: Whole, rewriter: PatternRewriter) -> bool:
    """Puts the operation in the place of what it computes; False, and nothing is changed, if the operands are none that it has."""
    found = whole.found
    dialect = found.scores.dialect_name()
    query, key = found.operand(found.position), found.operand(1 - found.position)
    value = (
        whole.result.second
        if whole.result is not None
        else whole.gradient.value
        if whole.gradient is not None
        else None
    )
    if query is None or key is None or value is None or len({element(each.source) for each in (query, key, value)}) > 1:
        return False
    batch = [[part] for part in found.batch] if whole.dropout is None else whole.dropout.batch
    dropout = None if whole.dropout is None else whole.dropout.operands
    rows, keys, free = [found.rows], [found.keys], [FREE]
    wanted = [(query, [*batch, rows, free]), (key, [*batch, keys, free]), (value, [*batch, keys, free])]
    given = [_placed(each, target, dialect) for each, target in wanted]
    if any(each is None for each in given):
        return False
    made: list[Operation] = [op for each in given if each is not None for op in each[0]]
    q, k, v = (each[1] for each in given if each is not None)
    mask: SSAValue | None = None
    if whole.seen.mask is not None:
        placed = whole.seen.placed([*batch, rows, keys], dialect)
        if placed is None:
            return False
        made += placed[0]
        mask = placed[1]
    number = element(q)
    columns = shape(v)[-1]
    types = [
        TensorType(number, [*shape(q)[:-1], columns]),
        TensorType(number if isinstance(number, Float64Type) else f32, shape(q)[:-1]),
    ]
    forward = ForwardOp(q, k, v, mask, found.scale, whole.seen.diagonal, list(types), dropout)
    backward, of_result = None, None
    if whole.gradient is not None:
        of_result = _placed(whole.gradient.of_result, [*batch, rows, free], dialect)
        if of_result is None:
            return False
        sums, diagonal = forward.logsumexp, whole.seen.diagonal
        backward = BackwardOp(of_result[1], forward.output, sums, q, k, v, mask, found.scale, diagonal, dropout)
    replaced: list[tuple[Product, SSAValue, list[list[Any]]]] = []
    if whole.result is not None:
        replaced.append((whole.result, forward.output, [*batch, rows, free]))
    if backward is not None and whole.gradient is not None:
        results = zip(
            (whole.gradient.query, whole.gradient.key, whole.of_value),
            backward.results,
            (rows, keys, keys),
            strict=True,
        )
        replaced += [(each, result, [*batch, own, free]) for each, result, own in results if each is not None]
    ends = [_ended(each, value, target, dialect) for each, value, target in replaced]
    if any(end is None for end in ends):
        return False
    early = [*made, forward]
    late = [] if backward is None or of_result is None else [*of_result[0], backward]
    later = [] if whole.gradient is None or whole.of_value is None else [whole.gradient.weights, whole.of_value.op]
    start = whole.result.op if whole.result is not None else _earliest(later)
    if not _are_made_before(early, start) or (late and not _are_made_before(late, _earliest(later), (start, forward))):
        return False
    for op in (forward, *([] if backward is None else [backward])):
        op.attributes.update({n: a for n, a in found.softmax.ops[0].attributes.items() if n in NAMES})
    rewriter.insert(early, InsertPoint.before(start))
    if late:
        rewriter.insert(late, InsertPoint.before(_earliest(later)))
    for end in (end for end in ends if end is not None):
        rewriter.replace(end.old[-1], end.new, [end.value])
        for op in reversed(end.old[:-1]):
            rewriter.erase(op)
    block = whole.inner[0].parent
    assert isinstance(block, Block)
    inner = set(whole.inner)
    for op in reversed([each for each in block.ops if each in inner]):
        rewriter.erase(op)
    return True


def _placed(value: Named, target: Sequence[Sequence[Any]], dialect: str) -> tuple[list[Operation], SSAValue] | None:
    if any(
        name not in value.parts for names in target for name in names if not isinstance(name, Part) or name.size > 1
    ):
        return None
    return value.arranged(target, dialect)


class End(NamedTuple):
    """Operations that give a product's result, the new ones in place of the old."""

    old: list[Operation]
    new: list[Operation]
    value: SSAValue


def _ended(product: Product, value: SSAValue, names: Sequence[Sequence[Any]], dialect: str) -> End | None:
    """A result of the attention operation, as the product's was."""
    own = named(value, [[(name, n) for name in each] for each, n in zip(names, shape(value), strict=True)], False)
    if own is None or (end := product.end) is None or element(value) != element(product.op.results[0]):
        return None
    old, dims = end
    new = own.arranged([[FREE if part.origin == FREE else part for part in dim] for dim in dims], dialect)
    return None if new is None else End(old, *new)


def _are_made_before(
    ops: Sequence[Operation], place: Operation, other: tuple[Operation, Operation] | None = None
) -> bool:
    """Whether all that new operations take is there at a place: also what is put in another place, if that is not after it."""
    block = place.parent
    assert isinstance(block, Block)
    order = {op: i for i, op in enumerate(block.ops)}
    if other is not None and order[other[0]] > order[place]:
        return False
    return all(order.get(v.owner, -1) < order[place] for op in ops for v in op.operands)  # pyright: ignore


def _earliest(ops: Sequence[Operation]) -> Operation:
    block = ops[0].parent
    assert isinstance(block, Block)
    wanted = set(ops)
    return next(op for op in block.ops if op in wanted)
