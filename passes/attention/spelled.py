"""Matches attention that a program spells out as matrix products and a softmax. In goes the last operation of the
softmax; out come queries, keys, values, mask and scale, or nothing where the pattern does not hold. Operations are
matched by their formulas (`interpreters/formulas`), not by their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from xdsl.ir import Operation, SSAValue, Use

from distir.interpreters.formulas import Formula, formula_of, number_of
from distir.interpreters.moves import contraction_of, move_of, shape
from distir.passes.attention.layouts import Dim, Named, Part, after, named, whole
from distir.passes.attention.softmaxes import Softmax, softmax_of

LONGEST = 16
"""Operations between the scores' product and the softmax."""
HIDDEN = -65504.0
"""Scores of at most this (of half precision the least) are those of what is not seen."""
FREE = "free"
"""The name of the dims that only one operand of a product has."""


class Mask(NamedTuple):
    """What hides scores, where their dims are `dims`."""

    value: SSAValue
    dims: list[Dim]
    kind: str
    """add: a number for each score; seen: true for those that count; hidden: for the others."""
    number: float
    """What hidden scores are."""


class Product(NamedTuple):
    """A contraction, one operand of which has dims with names."""

    op: Operation
    position: int
    dims: list[Dim]

    @property
    def letters(self) -> tuple[Any, Any, Any]:
        """Of this operand, of the other one, of the result."""
        found = contraction_of(self.op)
        assert found is not None
        return (*((found[0], found[1]) if self.position == 0 else (found[1], found[0])), found[2])

    @property
    def other(self) -> SSAValue:
        return self.op.operands[1 - self.position]

    @property
    def contracted(self) -> list[Part]:
        """What is summed."""
        own, other, result = self.letters
        return [
            part
            for letter, dim in zip(own, self.dims, strict=True)
            if letter in other and letter not in result
            for part in dim
        ]

    def names(self, letters: Sequence[Any], value: SSAValue) -> list[list[tuple[Any, int]]] | None:
        """Names of a value's dims: those of the named operand's, and one that is free; None if several are."""
        own = dict(zip(self.letters[0], self.dims, strict=True))
        found = [
            [(part, part.size) for part in own[letter]] if letter in own else [(FREE, n)]
            for letter, n in zip(letters, shape(value), strict=True)
        ]
        return found if sum((FREE, n) in names for names, n in zip(found, shape(value), strict=True)) == 1 else None

    @property
    def second(self) -> Named | None:
        """The other operand."""
        names = self.names(self.letters[1], self.other)
        return None if names is None else named(self.other, names)

    @property
    def end(self) -> tuple[list[Operation], list[Dim]] | None:
        """The product and the changes of shape that are all that is done with its result, and the dims of what they give."""
        names = self.names(self.letters[2], self.op.results[0])
        if names is None:
            return None
        dims = [tuple(Part(FREE, 1, n) if name == FREE else name for name, n in dim if n > 1) for dim in names]
        ops, parts = [self.op], set(chain.from_iterable(dims))
        while ops[-1].results[0].has_one_use():
            (use,) = ops[-1].results[0].uses
            move = move_of(use.operation) if use.index == 0 else None
            moved = None if move is None else after(dims, use.operation, move)
            if moved is None or set(chain.from_iterable(moved)) != parts:
                break
            ops.append(use.operation)
            dims = moved
        return ops, dims


@dataclass
class Spelled:
    """One attention: scores' product, what is done to the scores, softmax, and what its result goes into."""

    softmax: Softmax
    scores: Operation
    position: int = 0
    """Of the queries among the operands of the scores' product."""
    dims: list[Dim] = field(default_factory=list[Dim])
    """Of what the softmax gives, as parts of the dims of the scores' product."""
    scale: float = 1.0
    masks: list[Mask] = field(default_factory=list[Mask])
    inner: list[Operation] = field(default_factory=list[Operation])
    """What is computed of the scores alone, and is needed for nothing else."""

    @property
    def rows(self) -> Part:
        return self._leaf(1)

    @property
    def keys(self) -> Part:
        return self._leaf(0)

    def _leaf(self, which: int) -> Part:
        (part,) = self.dims[self.softmax.axis] if which == 0 else self._row_dim()
        return part

    def _row_dim(self) -> Dim:
        letters = contraction_of(self.scores)
        assert letters is not None
        free = [i for i, letter in enumerate(letters.result) if letter not in letters[1 - self.position]]
        return tuple(part for dim in self.dims for part in dim if part.origin in free)

    def refine(self, others: Sequence[Sequence[Dim]]) -> None:
        """Cuts parts of the scores' dims where they are cut in other values' dims."""
        self.dims = _refined(self.dims, [self.dims, *others])
        self.masks = [mask._replace(dims=_refined(mask.dims, [mask.dims, *others])) for mask in self.masks]

    @property
    def batch(self) -> list[Part]:
        return [part for dim in self.dims for part in dim if part not in (self.rows, self.keys)]

    def operand(self, position: int) -> Named | None:
        """Queries or keys."""
        letters = contraction_of(self.scores)
        assert letters is not None
        own = letters[position]
        parts = sorted({part for dim in self.dims for part in dim}, key=lambda part: -part.stride)
        names = [
            [(p, p.size) for p in parts if p.origin == letters.result.index(letter)]
            if letter in letters.result
            else [(FREE, n)]
            for letter, n in zip(own, shape(self.scores.operands[position]), strict=True)
        ]
        return named(self.scores.operands[position], names)


def spelled_of(op: Operation) -> Spelled | None:
    """The attention whose softmax ends with this operation."""
    if (softmax := softmax_of(op)) is None:
        return None
    for scores, path in _paths(softmax.scores, LONGEST):
        found = Spelled(softmax, scores)
        if _follow(found, path) and _orient(found):
            return found
    return None


def _paths(value: SSAValue, steps: int) -> Iterator[tuple[Operation, list[tuple[Operation, int]]]]:
    """Products of which the value is made elementwise, with the operations between, each with its operand on the way."""
    op = value.owner
    if not isinstance(op, Operation) or not steps:
        return
    if contraction_of(op) is not None:
        yield op, []
        return
    formula = None if move_of(op) is not None else formula_of(op)
    operands = (0,) if formula is None and move_of(op) is not None else formula.operands if formula is not None else ()
    for i in dict.fromkeys(operands):
        if np.prod(shape(op.operands[i])) == np.prod(shape(op.results[0])):
            for scores, path in _paths(op.operands[i], steps - 1):
                yield scores, [*path, (op, i)]


def _follow(found: Spelled, path: Sequence[tuple[Operation, int]]) -> bool:
    """Reads what is done to the scores. Whether it is scaling and masking."""
    dims: list[Dim] | None = whole(shape(found.scores.results[0]))
    for op, position in path:
        if (move := move_of(op)) is not None:
            dims = after(dims, op, move)
            if dims is None or any(part.is_repeated for part in chain.from_iterable(dims)):
                return False
            continue
        formula = formula_of(op)
        if formula is None or not _apply(found, op, formula, position, dims):
            return False
    found.dims = dims
    found.refine([dims, *(mask.dims for mask in found.masks)])
    found.inner = [found.scores, *(op for op, _ in path), *found.softmax.ops]
    return True


def _refined(dims: Sequence[Dim], others: Sequence[Sequence[Dim]]) -> list[Dim]:
    """The dims with every part cut where it is cut in the others."""
    cuts: dict[Any, set[int]] = {}
    for part in (part for each in others for dim in each for part in dim):
        cuts.setdefault(part.origin, set()).update((part.stride, part.stride * part.size))
    found: list[Dim] = []
    for dim in dims:
        parts: list[Part] = []
        for origin, stride, size in dim:
            edges = sorted(edge for edge in cuts[origin] if stride <= edge <= stride * size)
            parts += [Part(origin, low, high // low) for low, high in pairwise(edges)][::-1]
        found.append(tuple(parts))
    return found


def scaled(op: Operation, formula: Formula, position: int) -> float | None:
    """The number by which an operation multiplies this operand."""
    if formula.kind in ("same", "scale"):
        return formula.number if formula.kind == "scale" else 1.0
    if formula.kind == "multiply" or (formula.kind == "divide" and formula.operands[0] == position):
        (other,) = (i for i in formula.operands if i != position) if len(set(formula.operands)) == 2 else (position,)
        number = None if other == position else number_of(op.operands[other])
        if number is None or number == 0:
            return None
        return number if formula.kind == "multiply" else 1 / number
    return None


def hidden_by(op: Operation, formula: Formula, position: int) -> tuple[SSAValue, str, float] | None:
    """The condition by which an operation replaces elements of this operand by a number, what it is true for, and the number."""
    if formula.kind == "fill":
        return op.operands[formula.operands[0]], "hidden", formula.number
    if formula.kind != "select" or position not in formula.operands[1:]:
        return None
    condition, first, second = formula.operands
    number = number_of(op.operands[second if position == first else first])
    return None if number is None else (op.operands[condition], "seen" if position == first else "hidden", number)


def _apply(found: Spelled, op: Operation, formula: Formula, position: int, dims: list[Dim]) -> bool:
    if (number := scaled(op, formula, position)) is not None:
        if number != 1 and any(mask.kind == "add" or np.isfinite(mask.number) for mask in found.masks):
            return False
        found.scale *= number
        return True
    if formula.kind == "add" and formula.operands[0] != formula.operands[1]:
        (other,) = (i for i in formula.operands if i != position)
        found.masks.append(Mask(op.operands[other], dims, "add", 0.0))
        return True
    if (hidden := hidden_by(op, formula, position)) is not None and hidden[2] <= HIDDEN:
        found.masks.append(Mask(hidden[0], dims, *hidden[1:]))
        return True
    return False


def _orient(found: Spelled) -> bool:
    """Finds which operand has the keys: the one whose own dim the softmax goes over."""
    letters = contraction_of(found.scores)
    assert letters is not None
    keys = found.dims[found.softmax.axis]
    if len(keys) != 1 or keys[0].stride != 1 or keys[0].size != shape(found.scores.results[0])[keys[0].origin]:
        return False
    owners = [i for i in (0, 1) if letters.result[keys[0].origin] in letters[i]]
    if len(owners) != 1:
        return False
    found.position = 1 - owners[0]
    if len(found._row_dim()) != 1 or found._row_dim()[0] == keys[0]:  # pyright: ignore[reportPrivateUsage]
        return False
    mine = set(letters[found.position]) & set(letters[1 - found.position])
    if sum(letter not in letters.result for letter in letters.first) != 1 or set(letters.result) - {
        *letters.first,
        *letters.second,
    }:
        return False
    shared = {i for i, letter in enumerate(letters.result) if letter in mine}
    return all(part.origin in shared for part in found.batch) and found.operand(owners[0]) is not None


class Reach(NamedTuple):
    """All that is made of a value by changes of shape, copies and what `through` lets pass."""

    values: dict[SSAValue, tuple[list[Dim], float]]
    ops: list[Operation]
    products: list[tuple[Product, float]]
    others: list[Use]


def reach(value: SSAValue, dims: list[Dim], numbers: bool = False, passes: Any = None) -> Reach:
    """With `numbers`, also what is multiplied by numbers; `passes(op, formula, position, dims)` says what leaves a value as it is."""
    found = Reach({value: (dims, 1.0)}, [], [], [])
    waiting = [value]
    while waiting:
        value = waiting.pop()
        dims, scale = found.values[value]
        for use in value.uses:
            op, position = use.operation, use.index
            if (letters := contraction_of(op)) is not None:
                both = op.operands[0] is op.operands[1]
                found.others.append(use) if both or not letters else found.products.append(
                    (Product(op, position, dims), scale)
                )
                continue
            made, factor = None, 1.0
            if (move := move_of(op)) is not None and position == 0:
                made = after(dims, op, move)
                made = None if made is None or any(part.is_repeated for dim in made for part in dim) else made
            elif (formula := formula_of(op)) is not None:
                number = scaled(op, formula, position)
                if number is not None and (numbers or number == 1):
                    made, factor = dims, number
                elif passes is not None and passes(op, formula, position, dims):
                    made = dims
            if made is None:
                found.others.append(use)
                continue
            if op not in found.ops:
                found.ops.append(op)
                found.values[op.results[0]] = made, scale * factor
                waiting.append(op.results[0])
    return found
