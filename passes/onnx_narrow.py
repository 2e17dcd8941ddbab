"""Constants without the dims along which they repeat. In goes a constant operand of a broadcasting operator; out
comes one of its equal slices. Part of `onnx-fold-shapes`.

A mask or a table of positions that an exporter expands to the batch is folded to a constant of the batch's size, which
ties the program to whole batches. Where a broadcasting operator would repeat it anyway, it need not be repeated."""

from typing import Any, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from distir.dialects.onnx import OPERATORS, Constant, TensorAttr

ELEMENTWISE = tuple(OPERATORS[name] for name in ("Cast", "Neg", "Not", "Identity"))
BROADCASTING = tuple(
    OPERATORS[name]
    for name in (
        *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Sum", "Mean", "Where"),
        *("And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
    )
)


DEEPEST = 8
"""A chain of more operations is not followed."""


class RepeatedConstantsAreNarrow(RewritePattern):
    """An operand of a broadcasting operator that is made of constants (or of rows of a table by constant indices) keeps
    one of the equal slices along each dim that the other operands give to the result."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, BROADCASTING):
            return
        shapes = [_shape(value) for value in op.operands]
        result = _shape(op.results[0])
        if result is None or any(shape is None for shape in shapes):
            return
        known = cast(list[tuple[int, ...]], shapes)
        for i, value in enumerate(op.operands):
            if dims := _dropped(value, known, i, result):
                op.operands[i] = _narrow(value, dims, rewriter)
                rewriter.notify_op_modified(op)
                return


def _shape(value: SSAValue) -> tuple[int, ...] | None:
    if not isinstance(value.type, TensorType):
        return None
    shape = cast(TensorType[Attribute], value.type).get_shape()
    return None if DYNAMIC_INDEX in shape else shape


def _dropped(value: SSAValue, shapes: list[tuple[int, ...]], position: int, result: tuple[int, ...]) -> frozenset[int]:
    """The dims of an operand that become 1: equal slices, and the others give the result its size there."""
    import numpy as np

    dims: set[int] = set()
    shape = list(shapes[position])
    others = [s for i, s in enumerate(shapes) if i != position]
    for dim in sorted(_repeated(value)):
        trial = [*shape[:dim], 1, *shape[dim + 1 :]]
        if np.broadcast_shapes(*others, tuple(trial)) == result:
            dims.add(dim)
            shape = trial
    return frozenset(dims)


def _repeated(value: SSAValue, depth: int = 0) -> set[int]:
    """The dims of more than one element along which all slices of the value are known to be equal."""
    import numpy as np

    owner, shape = value.owner, _shape(value)
    if shape is None or depth > DEEPEST or isinstance(owner, Block):
        return set()
    if isinstance(owner, Constant):
        array = owner.value.to_numpy()
        return {
            dim
            for dim, size in enumerate(shape)
            if size > 1 and np.array_equal(np.broadcast_to(array.take([0], dim), shape), array)
        }
    if _takes_rows(owner):
        return _repeated(owner.operands[1], depth + 1)
    if not isinstance(owner, BROADCASTING + ELEMENTWISE):
        return set()
    dims = {dim for dim, size in enumerate(shape) if size > 1}
    for operand in owner.operands:
        if not dims:
            break
        sizes = _shape(operand)
        if sizes is None:
            return set()
        shift = len(shape) - len(sizes)
        own = _repeated(operand, depth + 1)
        dims -= {i + shift for i, size in enumerate(sizes) if size > 1 and i not in own}
    return dims


def _takes_rows(op: Operation) -> bool:
    """Whether the op gathers along the first dim: the dims of its indices are the leading dims of its result."""
    if not isinstance(op, OPERATORS["Gather"]):
        return False
    axis = op.properties.get("axis")
    return axis is None or cast(IntegerAttr[Any], axis).value.data == 0


def _narrow(value: SSAValue, dims: frozenset[int], rewriter: PatternRewriter) -> SSAValue:
    """The value with one slice along these dims, along which it repeats."""
    owner = value.owner
    shape = _shape(value)
    assert isinstance(owner, Operation)
    assert shape is not None
    if isinstance(owner, Constant):
        array = owner.value.to_numpy()
        kept = array[tuple(slice(0, 1) if dim in dims else slice(None) for dim in range(array.ndim))]
        narrow = Constant(TensorAttr.from_numpy(kept))
        rewriter.insert(narrow)
        return narrow.output
    if _takes_rows(owner):
        operands = [owner.operands[0], _narrow(owner.operands[1], dims, rewriter)]
    else:
        operands: list[SSAValue] = []
        for operand in owner.operands:
            sizes = cast(tuple[int, ...], _shape(operand))
            shift = len(shape) - len(sizes)
            own = frozenset(i for i, size in enumerate(sizes) if size > 1 and i + shift in dims)
            operands.append(_narrow(operand, own, rewriter) if own else operand)
    tensor = cast(TensorType[Attribute], value.type)
    kept_shape = [1 if dim in dims else size for dim, size in enumerate(shape)]
    copy = type(owner).create(
        operands=operands,
        result_types=[TensorType(tensor.element_type, kept_shape, tensor.encoding)],
        properties=dict(owner.properties),
        attributes=dict(owner.attributes),
    )
    rewriter.insert(copy)
    return copy.results[0]
