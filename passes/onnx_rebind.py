"""A program at other sizes of its inputs than it has. In goes a program with static types and the new shapes; out comes the same program
at these, where sizes that are written down as numbers grow with what they are given. Part of `onnx-fold-shapes`.

A reshape's target belongs to the dims of its operand in the order of their elements: the entry where a dim that grew lies grows with it. A
value that does not depend on the inputs (a token, a state of zeros, a mask) is repeated where the others grew, if all its slices are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.interpreter import PythonValues
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.onnx import OPERATORS, Constant, TensorAttr
from distir.frontends.shapes import argument_dims, argument_name
from distir.interpreters.mixed import MixedValue, MixedWalk, is_static, mixed_operator, type_of

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

RESHAPE, EXPAND = OPERATORS["Reshape"], OPERATORS["Expand"]
WRITTEN: Mapping[type[Operation], int] = {RESHAPE: 1, EXPAND: 1, OPERATORS["Resize"]: 3}
"""Which operand says the result's shape."""


def own_sizes(function: FuncOp, shapes: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """The shapes, with the sizes that the arguments have already in place of others."""
    own = dict(shapes)
    for i in range(len(function.args)):
        dims, name = argument_dims(function, i), argument_name(function, i)
        if dims is not None and name in shapes and len(dims) == len(shapes[name]):
            sizes = [dim if isinstance(dim, int) else given for dim, given in zip(dims, shapes[name], strict=True)]
            if sizes != list(shapes[name]):
                own[name] = sizes
    return own


def rebind(function: FuncOp, shapes: Mapping[str, Sequence[int]]) -> None:
    """Change what is written in the program so that it works on arguments of these shapes; their types follow. Raises DistirError, with
    the operation, where that cannot be."""
    types = [
        TensorType(cast(TensorType[Attribute], value.type).element_type, shapes[name]) if name in shapes else value.type
        for value, name in ((value, argument_name(function, i)) for i, value in enumerate(function.args))
    ]
    before = _walked(function, [value.type for value in function.args])
    walk = _walked(function, types, before.known)
    returned = function.get_return_op()
    assert returned is not None
    changed = [value for value, type in zip(function.args, types, strict=True) if value.type != type]
    for i, value in enumerate(returned.operands):
        if (shape := _shape(walk.known[value])) == _shape(before.known[value]) and shape and _depends(value, changed):
            raise DistirError(
                f"result {i} keeps its shape {list(shape)} at the new sizes of {', '.join(shapes)}: the program does something with "
                "one batch that it would not do with each row"
            )
    for op, position, target in walk.targets:
        op.operands[position] = _constant_before(op, target)
    for op, position, shape in walk.repeated:
        _repeat(op, position, shape)
    for value, known in walk.known.items():
        if not isinstance(value.owner, Constant) and isinstance(value.type, TensorType) and known is not None:
            cast(Any, value)._type = type_of(known)


def _constant_before(op: Operation, array: Array) -> SSAValue:
    constant = Constant(TensorAttr.from_numpy(array))
    assert op.parent is not None
    op.parent.insert_op_before(constant, op)
    return constant.output


class RebindingWalk(MixedWalk):
    """Infers types, and notes what has to change for that by what is known of the values before (`before`)."""

    before: Mapping[SSAValue, MixedValue] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.targets: list[tuple[Operation, int, Array]] = []
        self.repeated: list[tuple[Operation, int, Shape]] = []

    def run(self, op: Operation, operands: PythonValues) -> PythonValues:
        if self.before is None:
            return super().run(op, operands)
        operands = self._with_target(op, operands)
        try:
            return super().run(op, operands)
        except DistirError as error:
            for repeated, changes in self._repeating(op, operands):
                try:
                    results = super().run(op, repeated)
                except DistirError:
                    continue
                self.repeated += changes
                return results
            raise DistirError(f"the program has sizes written in it: {error}") from error

    def _with_target(self, op: Operation, operands: PythonValues) -> PythonValues:
        """The operands with the result's shape, where it is one of them and a number of the program, as it must be now."""
        position = WRITTEN.get(type(op))
        if position is None or len(operands) <= position or not isinstance(operands[position], np.ndarray):
            return operands
        assert self.before is not None
        written, stated = cast(Array, operands[position]), self.before[op.operands[position]]
        old, new = _shape(self.before[op.operands[0]]), _shape(operands[0])
        result = _shape(self.before[op.results[0]])
        is_written = isinstance(stated, np.ndarray) and np.array_equal(stated, written)
        if not is_written or old is None or new is None or result is None or old == new:
            return operands
        scaled = _reshaped(old, new, result) if isinstance(op, RESHAPE) else _aligned(old, new, result)
        kept = scaled[len(scaled) - written.size :]
        target = np.array([w if w < 0 else n for w, n in zip(written.tolist(), kept, strict=True)], written.dtype)
        if np.array_equal(target, written):
            return operands
        self.targets.append((op, position, target))
        return (*operands[:position], target, *operands[position + 1 :])

    def _repeating(
        self, op: Operation, operands: PythonValues
    ) -> Iterator[tuple[PythonValues, list[tuple[Operation, int, Shape]]]]:
        """Operands of which those that did not grow are repeated along one dim where others grew, with what that changes."""
        assert self.before is not None
        grown = {
            (old, new)
            for operand, known in zip(op.operands, operands, strict=False)
            for old, new in zip(_shape(self.before[operand]) or (), _shape(known) or (), strict=False)
            if old != new
        }
        for old, new in sorted(grown):
            for dim in range(4):
                changes = list[tuple[Operation, int, Shape]]()
                repeated = list(operands)
                for i, (operand, known) in enumerate(zip(op.operands, operands, strict=False)):
                    shape = _shape(known)
                    if (
                        shape is None
                        or shape != _shape(self.before[operand])
                        or not _is_repeated(operand, known, dim, old)
                    ):
                        continue
                    longer = (*shape[:dim], new, *shape[dim + 1 :])
                    changes.append((op, i, longer))
                    if isinstance(known, np.ndarray):
                        repeated[i] = np.broadcast_to(known.take([0], dim), longer)
                    else:
                        repeated[i] = TensorType(cast(TensorType[Attribute], known).element_type, longer)
                if changes:
                    yield tuple(repeated), changes


def _is_repeated(value: SSAValue, known: MixedValue, dim: int, size: int) -> bool:
    """Whether a value has this size along a dim, and all slices are known to be equal."""
    shape = _shape(known)
    if shape is None or dim >= len(shape) or shape[dim] != size:
        return False
    if isinstance(known, np.ndarray):
        return bool((known == known.take([0], dim)).all())
    return size == 1 or _spread(value, dim) is not None


def _spread(value: SSAValue, dim: int) -> SSAValue | None:
    """What an `onnx.Expand` repeats along this dim."""
    if not isinstance(value.owner, EXPAND):
        return None
    source, rank = value.owner.operands[0], len(_shape(value.type) or ())
    shape = _shape(source.type) or ()
    return source if dim < rank - len(shape) or shape[dim - rank + len(shape)] == 1 else None


def _repeat(op: Operation, position: int, shape: Shape) -> None:
    """The operand of this op gets this shape: a constant is written so, another value expanded."""
    value = op.operands[position]
    tensor = cast(TensorType[Attribute], value.type)
    (dim,) = [i for i, (old, new) in enumerate(zip(tensor.get_shape(), shape, strict=True)) if old != new]
    if isinstance(value.owner, Constant):
        array = value.owner.value.to_numpy()
        op.operands[position] = _constant_before(op, np.broadcast_to(array.take([0], dim), shape).copy())
        return
    target = _constant_before(op, np.array(shape))
    source = _spread(value, dim) or value
    expanded = EXPAND.create(operands=[source, target], result_types=[TensorType(tensor.element_type, shape)])
    assert op.parent is not None
    op.parent.insert_op_before(expanded, op)
    op.operands[position] = expanded.results[0]


def _walked(
    function: FuncOp, types: Sequence[Attribute], before: Mapping[SSAValue, MixedValue] | None = None
) -> RebindingWalk:
    walk = RebindingWalk(cast(Any, function.parent_op()), default=mixed_operator)
    walk.before = before
    walk.enter(function, list(types))
    return walk


def _shape(value: MixedValue) -> Shape | None:
    """The static shape of a value, if it is known."""
    if isinstance(value, np.ndarray):
        return value.shape
    if isinstance(value, TensorType) and is_static(value):
        return cast(TensorType[Attribute], value).get_shape()
    return None


def _reshaped(old: Shape, new: Shape, result: Shape) -> list[int]:
    """The shape of a reshape's result when its operand's goes from `old` to `new`."""
    grown = list(result)
    for dim, (one, other) in enumerate(zip(old, new, strict=True)):
        if one != other and one:
            outside, entry = prod(old[:dim]), 0
            while outside > 1 and entry + 1 < len(result) and prod(result[: entry + 1]) <= outside:
                entry += 1
            grown[entry] = grown[entry] * other // one
    return grown


def _aligned(old: Shape, new: Shape, result: Shape) -> list[int]:
    """The same, where the last dims belong together: those that have the operand's size keep it."""
    grown, shift = list(result), len(result) - len(old)
    for dim, (one, other) in enumerate(zip(old, new, strict=True)):
        if one != other and one:
            grown[dim + shift] = grown[dim + shift] * other // one
    return grown


def _depends(value: SSAValue, arguments: Sequence[SSAValue]) -> bool:
    """Whether a value is computed from one of the arguments."""
    pending, seen = [value], set[SSAValue]()
    while pending:
        each = pending.pop()
        if each in arguments:
            return True
        if each not in seen:
            seen.add(each)
            if isinstance(each.owner, Operation):
                pending += each.owner.operands
    return False
