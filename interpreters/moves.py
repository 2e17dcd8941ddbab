"""Recognises and makes changes of shape in each operator dialect. In goes an operation; out comes a reshape,
permutation or broadcast, or for a contraction its letters as of an einsum. For passes: in go a value and a shape;
out come operations that give the value in that shape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, IntegerType, TensorType, UnitAttr, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from distir.dialects.onnx.tensors import TensorAttr, numpy_dtype
from distir.interpreters.reference import has_reference, run_operator


class Move(NamedTuple):
    """A change of shape of operand 0."""

    kind: str
    """reshape (row by row), permute, broadcast or tile (all of a dim again and again, as often as the sizes say)."""
    dims: tuple[int, ...] = ()
    """Of a permutation the operand's dim for each of the result; of a broadcast the result's dim for each of the operand."""


def shape(value: SSAValue) -> tuple[int, ...]:
    return cast("TensorType[Any]", value.type).get_shape()


def element(value: SSAValue) -> Attribute:
    return cast("TensorType[Any]", value.type).element_type


RESHAPES = frozenset(
    """
    aten.view aten._unsafe_view aten.reshape aten.unsqueeze aten.squeeze aten.squeeze.dim aten.squeeze.dims aten.flatten.using_ints
    aten.unflatten.int onnx.Reshape onnx.Flatten onnx.Squeeze onnx.Unsqueeze jax.reshape jax.squeeze
    """.split()
)
"""Their results have the elements of operand 0 in its order, row by row."""
BROADCASTS = frozenset(["aten.expand", "onnx.Expand", "jax.broadcast_in_dim"])
TILES = frozenset(["aten.repeat", "onnx.Tile", "jax.tile"])


def move_of(op: Operation) -> Move | None:
    """None for an operation that is no change of shape."""
    if not op.operands or len(op.results) != 1:
        return None
    source, made = op.operands[0], op.results[0]
    if (
        not isinstance(source.type, TensorType)
        or not isinstance(made.type, TensorType)
        or element(source) != element(made)
    ):
        return None
    if op.name in RESHAPES:
        return Move("reshape")
    if op.name in TILES:
        return Move("tile")
    if op.name in BROADCASTS:
        if (given := op.properties.get("broadcast_dimensions")) is not None:
            return Move("broadcast", tuple(_integers(given)))
        before = len(shape(made)) - len(shape(source))
        return Move("broadcast", tuple(range(before, len(shape(made)))))
    if len(op.operands) == 1 and shape(source) != shape(made) and _squeezes(op):
        return Move("reshape")
    if (
        len(op.operands) > 1
        or sorted(shape(source)) != sorted(shape(made))
        or contraction_of(op) is not None
        or op.regions
    ):
        return None
    if op.dialect_name() not in ("aten", "onnx", "jax") and not has_reference(op):
        return None
    dims = _permutation(type(op), tuple(op.properties.items()), len(shape(source)), element(source))
    return None if dims is None or tuple(shape(source)[d] for d in dims) != shape(made) else Move("permute", dims)


@lru_cache(8192)
def _permutation(
    kind: type[Operation], properties: tuple[tuple[str, Attribute], ...], rank: int, dtype: Attribute
) -> tuple[int, ...] | None:
    """By an array whose dims are all of different lengths."""
    sizes = tuple(range(2, rank + 2))
    type_ = TensorType(dtype, sizes)
    op = kind.create(operands=Block(arg_types=[type_]).args, result_types=[type_], properties=dict(properties))
    try:
        given = np.random.default_rng(0).integers(0, 100, sizes).astype(numpy_dtype(dtype))
        found = np.asarray(run_operator(op, [given])[0])
        dims = tuple(sizes.index(n) for n in found.shape)
        return dims if found.dtype == given.dtype and np.array_equal(given.transpose(dims), found) else None
    except Exception:  # it has no meaning on such a shape
        return None


def _squeezes(op: Operation) -> bool:
    """Whether dims of one element are all that is lost or new, as in a sum over one."""
    before, after = shape(op.operands[0]), shape(op.results[0])
    if [n for n in before if n != 1] != [n for n in after if n != 1] or op.regions or not has_reference(op):
        return False
    sizes = tuple(1 if n == 1 else i + 2 for i, n in enumerate(before))
    return _keeps(type(op), tuple(op.properties.items()), sizes, element(op.operands[0]), op.result_types[0])


@lru_cache(8192)
def _keeps(
    kind: type[Operation],
    properties: tuple[tuple[str, Attribute], ...],
    sizes: tuple[int, ...],
    dtype: Attribute,
    made: Attribute,
) -> bool:
    type_ = TensorType(dtype, sizes)
    op = kind.create(operands=Block(arg_types=[type_]).args, result_types=[made], properties=dict(properties))
    try:
        given = np.random.default_rng(0).integers(0, 100, sizes).astype(numpy_dtype(dtype))
        found = np.asarray(run_operator(op, [given])[0])
        return found.dtype == given.dtype and np.array_equal(given.reshape(-1), found.reshape(-1))
    except Exception:  # it has no meaning on such a shape
        return False


class Letters(NamedTuple):
    """A contraction as an einsum: a name for each dim of both operands and of the result."""

    first: tuple[Any, ...]
    second: tuple[Any, ...]
    result: tuple[Any, ...]


def contraction_of(op: Operation) -> Letters | None:
    """None for what is no contraction of two operands."""
    match op.name:
        case "aten.mm":
            return Letters(("m", "k"), ("k", "n"), ("m", "n"))
        case "aten.bmm":
            return Letters(("b", "m", "k"), ("b", "k", "n"), ("b", "m", "n"))
        case "onnx.MatMul" | "aten.matmul":
            first, second = (len(shape(v)) for v in op.operands)
            if min(first, second) < 2:
                return None
            batch = tuple(range(max(first, second) - 2))
            own = [batch[len(batch) - rank + 2 :] for rank in (first, second)]
            return Letters((*own[0], "m", "k"), (*own[1], "k", "n"), (*batch, "m", "n"))
        case "onnx.Einsum":
            inputs, _, output = cast(Any, op.properties["equation"]).data.replace(" ", "").partition("->")
            terms = inputs.split(",")
            if len(terms) != 2 or not output or "." in inputs or any(len(set(t)) < len(t) for t in terms):
                return None
            return Letters(tuple(terms[0]), tuple(terms[1]), tuple(output))
        case "jax.dot_general":
            from distir.dialects.jax.parameters import decode

            (left, right), (batch_left, batch_right) = decode(op.properties["dimension_numbers"])
            first, second = (
                [("a", d) for d in range(len(shape(op.operands[0])))],
                [("b", d) for d in range(len(shape(op.operands[1])))],
            )
            for a, b in (*zip(left, right, strict=True), *zip(batch_left, batch_right, strict=True)):
                second[b] = first[a]
            free = [
                [x for i, x in enumerate(own) if i not in {*summed, *shared}]
                for own, summed, shared in ((first, left, batch_left), (second, right, batch_right))
            ]
            return Letters(tuple(first), tuple(second), (*(first[d] for d in batch_left), *free[0], *free[1]))
        case _:
            return None


def _integers(attr: Attribute) -> list[int]:
    if isinstance(attr, DenseArrayBase):
        return [int(n) for n in cast(Any, attr).get_values()]
    return [each.value.data for each in cast("ArrayAttr[Any]", attr).data]


def reshape(dialect: str, value: SSAValue, sizes: Sequence[int]) -> list[Operation]:
    """Operations of a dialect, the last of which gives the value in another shape, row by row."""
    made = TensorType(element(value), sizes)
    if dialect == "onnx":
        from distir.dialects.onnx import OPERATORS

        numbers = TensorAttr.from_numpy(np.array(sizes, np.int64))
        constant = OPERATORS["Constant"].create(result_types=[numbers.type], properties={"value": numbers})
        return [constant, OPERATORS["Reshape"].create(operands=[value, *constant.results], result_types=[made])]
    if dialect == "jax":
        from distir.dialects.jax.operations import PRIMITIVES

        properties: dict[str, Attribute] = {
            "new_sizes": _array(sizes),
            "dimensions": UnitAttr(),
            "sharding": UnitAttr(),
        }
        return [PRIMITIVES["reshape"].create(operands=[value], result_types=[made], properties=properties)]
    from distir.dialects.aten import OPERATORS as ATEN

    size = {"shape": DenseArrayBase.from_list(i64, list(sizes))}
    return [ATEN["aten.reshape"].create(operands=[value], result_types=[made], properties=size)]


def permute(dialect: str, value: SSAValue, dims: Sequence[int]) -> list[Operation]:
    """The same with its dims in another order."""
    made = TensorType(element(value), [shape(value)[d] for d in dims])
    if dialect == "onnx":
        from distir.dialects.onnx import OPERATORS

        return [OPERATORS["Transpose"].create(operands=[value], result_types=[made], properties={"perm": _array(dims)})]
    if dialect == "jax":
        from distir.dialects.jax.operations import PRIMITIVES

        order = {"permutation": _array(dims)}
        return [PRIMITIVES["transpose"].create(operands=[value], result_types=[made], properties=order)]
    from distir.dialects.aten import OPERATORS as ATEN

    order = {"dims": DenseArrayBase.from_list(i64, list(dims))}
    return [ATEN["aten.permute"].create(operands=[value], result_types=[made], properties=order)]


NEGATIONS = {"aten": "aten.logical_not", "onnx": "onnx.Not", "jax": "jax.not"}


def is_negation(op: Operation) -> bool:
    """Whether the result is true where the operand, of truths, is not."""
    return op.name in (*NEGATIONS.values(), "aten.bitwise_not") and element(op.operands[0]) == IntegerType(1)


def negation(dialect: str, value: SSAValue) -> Operation:
    """An operation of a dialect that gives truth where a value has none."""
    if dialect == "onnx":
        from distir.dialects.onnx import OPERATORS

        kind: type[Operation] = OPERATORS["Not"]
    elif dialect == "jax":
        from distir.dialects.jax.operations import PRIMITIVES

        kind = PRIMITIVES["not"]
    else:
        from distir.dialects.aten import OPERATORS as ATEN

        kind = ATEN[NEGATIONS["aten"]]
    return kind.create(operands=[value], result_types=[value.type])


def _array(numbers: Sequence[int]) -> ArrayAttr[IntegerAttr]:
    return ArrayAttr([IntegerAttr(n, i64) for n in numbers])
