"""Recognises the formula of an operator, whatever its name. In goes an operation; out come a sum, product, scaling,
selection, exponential, reduction or softmax and the places of its operands, found by running the operator on small
arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np
from xdsl.dialects.builtin import AnyFloat, IntegerType, TensorType, f64
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.traits import Pure

from distir.dialects.onnx.tensors import numpy_dtype
from distir.interpreters.moves import contraction_of, element, move_of, shape
from distir.interpreters.reference import has_reference, run_operator

Array = np.ndarray[Any, np.dtype[Any]]
MOST_KNOWN = 1 << 24
"""Elements of a constant that is computed here."""
KINDS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("add", lambda a, b: a + b),
    ("subtract", lambda a, b: a - b),
    ("multiply", lambda a, b: a * b),
    ("divide", lambda a, b: a / b),
    ("larger", np.maximum),
)


class Formula(NamedTuple):
    """What an operation with one result computes."""

    kind: str
    """same, scale (by `number`), exp, inverse_square, add, subtract, multiply, divide, larger, select (`condition ? first : second`), fill (the same, of a number), sum,
    maximum, softmax, softmax_gradient (of a gradient, and what the softmax gave), not_a_number, zero_or_one (of truths)."""
    operands: tuple[int, ...]
    """Positions, in the formula's order."""
    number: float = 0.0
    axis: int = 0


def known(value: SSAValue) -> Array | None:
    """The value in double precision, if it depends on no argument and is not too large."""
    op = value.owner
    if (
        not isinstance(value, OpResult)
        or not isinstance(op, Operation)
        or op.regions
        or not isinstance(value.type, TensorType)
        or not has_reference(op)
    ):
        return None
    if prod(shape(value)) > MOST_KNOWN or not op.has_trait(Pure):
        return None
    operands = [known(operand) for operand in op.operands]
    if any(operand is None for operand in operands):
        return None
    try:
        return np.asarray(run_operator(op, operands, np.dtype(np.float64))[value.index])
    except Exception:  # it has no meaning here
        return None


def number_of(value: SSAValue) -> float | None:
    """The number that all elements of a constant are."""
    while isinstance(op := value.owner, Operation) and move_of(op) is not None:
        value = op.operands[0]
    if not isinstance(value.type, TensorType) or (array := known(value)) is None or not array.size:
        return None
    return float(array.flat[0]) if array.dtype.kind in "fiuV" and (array == array.flat[0]).all() else None


def formula_of(op: Operation) -> Formula | None:
    """None for any other operation."""
    tensors = [v.type for v in (*op.operands, *op.results)]
    if len(op.results) != 1 or op.regions or not op.operands or not all(isinstance(t, TensorType) for t in tensors):
        return None
    if not has_reference(op) or op.dialect_name() in ("dist", "random", "attention") or contraction_of(op) is not None:
        return None
    if not isinstance(element(op.results[0]), AnyFloat) and element(op.results[0]) != IntegerType(1):
        return None
    given = tuple(known(v) if _is_index(v) and prod(shape(v)) < 16 else None for v in op.operands)
    constants = tuple(None if g is None else (g.shape, g.dtype.str, g.tobytes()) for g in given)
    types = tuple(_small(cast("TensorType[Any]", t)) for t in tensors)
    return _find(type(op), tuple(op.properties.items()), types, constants)


def _is_index(value: SSAValue) -> bool:
    kind = element(value)
    return isinstance(kind, IntegerType) and kind.width.data > 8


def _small(type_: TensorType[Any]) -> TensorType[Any]:
    """Each dim as long as it is far from the last: where operands are broadcast, they still fit."""
    sizes = type_.get_shape()
    kind = f64 if isinstance(type_.element_type, AnyFloat) else type_.element_type
    return TensorType(kind, [1 if n == 1 else len(sizes) - i + 1 for i, n in enumerate(sizes)])


@lru_cache(8192)
def _find(
    kind: type[Operation],
    properties: tuple[tuple[str, Attribute], ...],
    types: tuple[TensorType[Any], ...],
    constants: tuple[Any, ...],
) -> Formula | None:
    op = kind.create(operands=Block(arg_types=types[:-1]).args, result_types=types[-1:], properties=dict(properties))
    random = np.random.default_rng(0)
    arrays = [
        np.frombuffer(c[2], c[1]).reshape(c[0])
        if c
        else random.normal(0, 1, t.get_shape())
        if t.element_type == f64
        else random.integers(0, 2, t.get_shape()).astype(numpy_dtype(t.element_type))
        for t, c in zip(types, constants, strict=False)
    ]
    free = [i for i, c in enumerate(constants) if c is None]
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(run_operator(op, arrays, np.dtype(np.float64))[0])
            return next((f for f, expected in _candidates(arrays, free, found) if _equal(found, expected)), None)
    except Exception:  # it has no meaning on such shapes
        return None


def _equal(found: Array, expected: Any) -> bool:
    return found.shape == np.shape(expected) and bool(np.allclose(found, expected, 1e-5, 1e-7, equal_nan=True))


def _candidates(arrays: Sequence[Array], free: Sequence[int], found: Array) -> Iterator[tuple[Formula, Any]]:
    floats = [i for i in free if arrays[i].dtype.kind == "f"]
    truths = [i for i in free if arrays[i].dtype.kind == "b"]
    x = arrays[floats[0]] if floats else None
    if len(free) == len(truths) == 1 and found.dtype.kind == "f":
        yield Formula("zero_or_one", (truths[0],)), arrays[truths[0]]
    if x is None or len(free) > 3:
        return
    if found.dtype.kind == "b":
        yield Formula("not_a_number", (floats[0],)), np.isnan(x) if _is_nan_test(found) else None
    if len(free) == 1:
        yield Formula("same", (floats[0],)), x
        if found.shape == x.shape and x.size:
            ratio = float(found.flat[0] / x.flat[0])
            yield Formula("scale", (floats[0],), ratio), ratio * x
        yield Formula("exp", (floats[0],)), np.exp(x)
        yield Formula("inverse_square", (floats[0],)), x**-2.0
        for axis in range(x.ndim):
            yield Formula("softmax", (floats[0],), axis=axis), _softmax(x, axis)
            for keep in (False, True):
                yield Formula("sum", (floats[0],), axis=axis), x.sum(axis, keepdims=keep)
                yield Formula("maximum", (floats[0],), axis=axis), x.max(axis, keepdims=keep)
    if len(free) == len(floats) == 2:
        for name, function in KINDS:
            for order in ((floats[0], floats[1]), (floats[1], floats[0])):
                yield Formula(name, order), function(*(arrays[i] for i in order))
        for gradient, result in (floats, floats[::-1]):
            if arrays[gradient].shape == arrays[result].shape:
                g, p = arrays[gradient], arrays[result]
                for axis in range(g.ndim):
                    yield (
                        Formula("softmax_gradient", (gradient, result), axis=axis),
                        p * (g - (g * p).sum(axis, keepdims=True)),
                    )
    if len(truths) == 1 and len(floats) == 1 and (differs := found != x).any():
        number = float(found[differs].flat[0])
        yield Formula("fill", (truths[0], floats[0]), number), np.where(arrays[truths[0]], number, x)
        yield Formula("multiply", (floats[0], truths[0])), x * arrays[truths[0]]
    if len(truths) == 1 and len(floats) == 2:
        for first, second in (floats, floats[::-1]):
            yield (
                Formula("select", (truths[0], first, second)),
                np.where(*(arrays[i] for i in (truths[0], first, second))),
            )


def _is_nan_test(found: Array) -> bool:
    return not found.any()


def _softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)
