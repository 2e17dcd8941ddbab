"""Torch's `prims` over residues. In go residues; out come residues: the ring, the order, and reductions over them.
All other elementwise prims are uninterpreted functions (`aten.exact`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distir.interpreters.exact import residues
from distir.interpreters.exact.residues import Residues

Array = np.ndarray[Any, Any]


def variance(array: Residues, dims: Sequence[int] | None, correction: float | None = 1, **_: Any) -> Residues:
    every = tuple(range(array.ndim)) if dims is None else tuple(d % array.ndim for d in dims)
    count = math.prod(array.shape[d] for d in every)

    def over(elements: Residues, number: float) -> Residues:
        total = residues.reduced(residues.total, elements, every)
        return residues.multiply(total, residues.reciprocal(residues.residues(number)))

    apart = residues.subtract(array, np.expand_dims(over(array, count), every))
    return over(residues.multiply(apart, apart), count - (1 if correction is None else correction))


def power(array: Residues, exponents: Array) -> Residues:
    array, exponents = np.broadcast_arrays(array, exponents)
    result = np.empty(array.shape, np.int64)
    for exponent in np.unique(exponents).tolist():
        at = exponents == exponent
        base = array[at] if exponent >= 0 else residues.reciprocal(array[at])
        result[at] = residues.power(base, abs(int(exponent)))
    return result


def _compared(relation: Callable[[Any, Any], Any]) -> Callable[[Residues, Residues], Any]:
    return lambda a, b: relation(residues.order(a), residues.order(b))


REDUCTIONS: dict[str, Callable[[Residues], Residues]] = {
    "sum": residues.total,
    "prod": residues.product,
    "amax": residues.greatest,
    "amin": residues.least,
}
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isfinite"})
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": residues.add,
    "sub": residues.subtract,
    "mul": residues.multiply,
    "div": lambda a, b: residues.multiply(a, residues.reciprocal(b)),
    "neg": residues.negative,
    "reciprocal": residues.reciprocal,
    "maximum": residues.greater,
    "minimum": residues.lesser,
    "where": lambda condition, a, b: np.where(condition != 0, a, b),
    "isfinite": lambda a: np.ones(a.shape, np.bool_),
    **{name: _compared(getattr(np, numpy_name)) for name, numpy_name in (
        ("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal"),
        ("eq", "equal"), ("ne", "not_equal"),
    )},
}  # fmt: skip
