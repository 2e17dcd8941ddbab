"""What an operation needs of a kernel that it joins. In goes the operation; out come its domain, the dims that it
reduces, and whether it is cheap to compute again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import AnyFloat, ComplexType, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import Pure

from distir.dialects.dist import AccumulateOp, FirstOnlyOp
from distir.dialects.dist.attributes import placement
from distir.dialects.dist.groups import by_rank
from distir.dialects.onnx.tensors import numpy_dtype
from distir.interpreters.reference import run_operator
from distir.interpreters.work import Kind, is_view, work_of


@dataclass(frozen=True)
class Fusible:
    """What an operation that may be in a kernel asks of it."""

    elements: int
    place: Attribute | None
    reduces: str
    is_view: bool
    adds: bool
    """Whether it may end a contraction: it adds to a sum, or converts for what does."""


def fusible_of(op: Operation) -> Fusible | None:
    """None for what is no part of a kernel."""
    if (
        op.regions
        or not op.results
        or by_rank(op) is not None
        or isinstance(op, FirstOnlyOp)
        or not (op.has_trait(Pure) or isinstance(op, AccumulateOp))
    ):
        return None
    tensors = [v.type for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
    if not all(cast("TensorType[Any]", t).has_static_shape() for t in tensors) or not isinstance(
        op.results[0].type, TensorType
    ):
        return None
    if any(isinstance(cast("TensorType[Any]", t).element_type, ComplexType) for t in tensors):
        return None  # no backend generates code for these (torch.compile says so, 2.13)
    place = placement(op.results[0].type)
    if is_view(op):
        return Fusible(0, place, "", True, True)
    if work_of(op).kind not in (Kind.ELEMENTWISE, Kind.DATA_MOVEMENT):
        return None
    made = max(elements(r.type) for r in op.results)
    shapes = [shape_of(v.type) for v in op.operands if isinstance(v.type, TensorType)]
    if not shapes:
        return Fusible(made, place, "", False, False)
    result = next(shape_of(r.type) for r in op.results if elements(r.type) == made)
    own = Fusible(
        made,
        place,
        "",
        False,
        _adds(op) or (_is_conversion(op) and all(_adds(use.operation) for use in op.results[0].uses)),
    )
    larger = [shape for shape in shapes if prod(shape) > made and reduced_dims(shape, result)]
    if larger:
        largest = max(larger, key=prod)
        return Fusible(prod(largest), place, reduced_dims(largest, result), False, False)
    smaller = {reduced_dims(result, shape_of(t)) for t in _tensor_types(op.results) if elements(t) < made} - {""}
    if (
        smaller
    ):  # beside a result for each element: of columns, as a norm's gradient has it, these are sums of their own
        return Fusible(made, place, "rows" if smaller == {"rows"} else "both", False, False)
    return replace(own, reduces="rows") if _mixes_rows(op) else own


def _adds(op: Operation) -> bool:
    return isinstance(op, AccumulateOp)


def _is_conversion(op: Operation) -> bool:
    """Whether the result is the operand in another element type, as far as types say."""
    if len(op.operands) != 1 or len(op.results) != 1 or not isinstance(op.operands[0].type, TensorType):
        return False
    return shape_of(op.operands[0].type) == shape_of(op.results[0].type) and op.operands[0].type != op.results[0].type


def reduced_dims(shape: Sequence[int], result: Sequence[int]) -> str:
    """Which dims of a shape a result has lost: the last, the first, others; nothing if it is no reduction of it."""
    kept = [n for n in result if n != 1]
    whole = [n for n in shape if n != 1]
    if len(kept) >= len(whole):
        return ""
    if whole[: len(kept)] == kept:
        return "rows"
    if whole[len(whole) - len(kept) :] == kept:
        return "columns"
    remaining = iter(whole)
    return "both" if all(n in remaining for n in kept) else ""


def is_contraction(op: Operation) -> bool:
    return (
        op.has_trait(Pure)
        and not op.regions
        and len(op.results) == 1
        and isinstance(op.results[0].type, TensorType)
        and work_of(op).kind is Kind.MATMUL
    )


def is_fill(op: Operation) -> bool:
    """Whether the result is the same whatever the values of the operand are, of which it has the shape (`zeros_like`)."""
    if not op.operands:
        return True
    if len(op.operands) > 1 or len(op.results) > 1 or is_view(op):
        return False
    operand, result = op.operands[0].type, op.results[0].type
    if not isinstance(operand, TensorType) or not isinstance(result, TensorType) or not shape_of(operand):
        return False
    if shape_of(operand) != shape_of(result):
        return False
    small = [TensorType(cast("TensorType[Any]", t).element_type, [2] * len(shape_of(t))) for t in (operand, result)]
    return _fills(type(op), tuple(op.properties.items()), *small)


@lru_cache(4096)
def _fills(
    kind: type[Operation],
    properties: tuple[tuple[str, Attribute], ...],
    operand: TensorType[Attribute],
    result: TensorType[Attribute],
) -> bool:
    if not isinstance(operand.element_type, AnyFloat) or not isinstance(result.element_type, AnyFloat):
        return False
    op = kind.create(operands=Block(arg_types=[operand]).args, result_types=[result], properties=dict(properties))
    dtype, random = numpy_dtype(operand.element_type), np.random.default_rng(0)
    try:
        found = [run_operator(op, [random.normal(0, 10, operand.get_shape()).astype(dtype)])[0] for _ in range(3)]
    except Exception:  # it has no meaning on such a shape
        return False
    return all(array is not None and np.array_equal(array, found[0]) for array in found)


def _mixes_rows(op: Operation) -> bool:
    """Whether an element of the result depends on more than the elements at its place, though nothing is smaller (a softmax, a sum so far)."""
    types = [v.type for v in (*op.operands, *op.results)]
    if not all(
        isinstance(t, TensorType) and isinstance(cast("TensorType[Any]", t).element_type, AnyFloat) for t in types
    ):
        return False
    if len(op.results) > 1 or not op.operands or len({shape_of(t) for t in types}) > 1 or not shape_of(types[0]):
        return False
    small = tuple(TensorType(cast("TensorType[Any]", t).element_type, [2] * len(shape_of(t))) for t in types)
    return _mixes(type(op), tuple(op.properties.items()), small[:-1], small[-1])


@lru_cache(4096)
def _mixes(
    kind: type[Operation],
    properties: tuple[tuple[str, Attribute], ...],
    operands: tuple[TensorType[Attribute], ...],
    result: TensorType[Attribute],
) -> bool:
    """On small arrays of which the last element is another the second time."""
    op = kind.create(operands=Block(arg_types=operands).args, result_types=[result], properties=dict(properties))
    random = np.random.default_rng(0)
    given = [random.uniform(0.5, 1, t.get_shape()).astype(numpy_dtype(t.element_type)) for t in operands]
    moved = [array.copy() for array in given]
    for array in moved:
        array[(-1,) * array.ndim] += array.dtype.type(1)
    try:
        first, second = (np.asarray(run_operator(op, arrays)[0]) for arrays in (given, moved))
    except Exception:  # it has no meaning on such a shape
        return False
    same = first == second
    same[(-1,) * same.ndim] = True
    return not bool(same.all())


def is_elementwise(op: Operation) -> bool:
    """Whether every result is of the shape to which the operands broadcast, or a view."""
    shapes = [shape_of(v.type) for v in op.operands if isinstance(v.type, TensorType)]
    if is_view(op):
        return True
    rank = max(map(len, shapes), default=0)
    columns = zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)
    return not shapes or (
        all(shape_of(r.type) == tuple(map(max, columns)) for r in op.results[:1]) and len(op.results) == 1
    )


def is_local(op: Operation) -> bool:
    """Whether every result is of the shape of an operand or fills one: the operation knows of no other elements."""
    shapes = [shape_of(t) for t in _tensor_types(op.operands)]
    return all(shape_of(t) in shapes for t in _tensor_types(op.results))


def _tensor_types(values: Sequence[SSAValue]) -> list[Attribute]:
    """Not those of absent operands and results."""
    return [v.type for v in values if isinstance(v.type, TensorType)]


def shape_of(type_: Attribute) -> tuple[int, ...]:
    return cast("TensorType[Any]", type_).get_shape()


def elements(type_: Attribute) -> int:
    return prod(shape_of(type_)) if isinstance(type_, TensorType) else 0
