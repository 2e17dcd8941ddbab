"""Runs operators of the `onnx` dialect on exact scalars. In go arrays, some of exact scalars; out come exact
results. The reference evaluator runs on object arrays of them. From its second run, an operator that only multiplies
and adds, or only picks elements by their order, runs on doubles, in a hundredth of the time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from distir.interpreters.exact.arrays import scalars
from distir.interpreters.exact.multilinear import Terms, on_exact, terms
from distir.interpreters.exact.residues import Residues, order, packed
from distir.interpreters.exact.scalars import beyond_ring

Array = np.ndarray[Any, Any]
Evaluate: TypeAlias = Callable[[dict[str, Array]], list[Any]]

_FEWEST, _MANY_COMPARED = 1000, 3000
"""Elements of operands from which on doubles pay, and comparisons (or other operations beyond the ring)."""
_MOST_KNOWN = 2000

_adds_products: dict[Hashable, bool] = {}
_picks_by_order: dict[Hashable, bool] = {}
_terms: dict[Hashable, Terms | None] = {}


def run_exactly(key: Hashable, feeds: Mapping[str, Array], on_scalars: Evaluate, on_doubles: Evaluate) -> list[Any]:
    """The results on these arrays, some of exact scalars. Operators of equal keys are one, but for what depends on shapes."""
    exact = {name: array for name, array in feeds.items() if array.dtype == object}
    if _picks_by_order.get(key) and (picked := _by_order(feeds, exact, on_doubles)) is not None:
        return picked
    if sum(array.size for array in exact.values()) < _FEWEST or _adds_products.get(key) is False:
        before = beyond_ring()
        results = on_scalars(dict(feeds))
        if key not in _picks_by_order and beyond_ring() - before > _MANY_COMPARED:
            found = _by_order(feeds, exact, on_doubles)
            _picks_by_order[key] = found is not None and all(map(_is_same, results, found))
        return results
    others = {name: array for name, array in feeds.items() if name not in exact}
    values = {name: _residues(array) for name, array in exact.items()}

    def run(arrays: Any) -> list[Array] | None:
        results = on_doubles({**others, **dict(zip(exact, arrays, strict=True))})
        return results if all(isinstance(r, np.ndarray) and r.dtype == np.float64 for r in results) else None

    def by_doubles() -> list[Any] | None:
        shapes = [array.shape for array in exact.values()]
        known = (key, tuple(shapes), *((array.shape, array.tobytes()) for array in others.values()))
        if known not in _terms:
            if len(_terms) > _MOST_KNOWN:
                _terms.clear()
            _terms[known] = terms(run, shapes)
        of = _terms[known]
        if of is None or not any(len(each) > 1 for each in of.products):
            return None
        try:
            return [scalars(packed(each)) for each in on_exact(run, [*values.values()], of)]
        except ArithmeticError:
            return None

    if key in _adds_products:
        found = by_doubles()
        return on_scalars(dict(feeds)) if found is None else found
    before = beyond_ring()
    results = on_scalars(dict(feeds))
    _adds_products[key] = beyond_ring() == before and _are_equal(results, by_doubles())
    return results


def _by_order(feeds: Mapping[str, Array], exact: Mapping[str, Array], on_doubles: Evaluate) -> list[Any] | None:
    """The results of an operator that gives elements of its operands as their order says (a maximum of windows), from its results on
    their places in that order; None if those are no places."""
    elements = np.concatenate([np.zeros(1, np.int64), *(_residues(array).reshape(-1) for array in exact.values())])
    _, first, places = np.unique(order(elements), return_index=True, return_inverse=True)
    middle, places = int(places[0]), places - places[0]
    given, start = dict(feeds), 1
    for name, array in exact.items():
        given[name] = places[start : start + array.size].astype(np.float64).reshape(array.shape)
        start += array.size
    try:
        return [_picked(result, elements[first], middle) for result in on_doubles(given)]
    except Exception:  # what the operator raises on doubles, or no places
        return None


def _picked(result: Array, elements: Residues, middle: int) -> Array:
    """The elements at these places of their order, counted from that of zero; integers and truths as they are. Raises ValueError for
    numbers that are no places."""
    if result.dtype != np.float64:
        return result
    places = np.round(result) + middle
    if not (np.isfinite(result).all() and (places == result + middle).all() and (places >= 0).all()):
        raise ValueError("no places")
    return scalars(packed(elements[places.astype(np.int64)]))


def _is_same(one: Any, other: Array) -> bool:
    if isinstance(one, np.ndarray) and one.dtype == object:
        return other.dtype == object and np.array_equal(_residues(one), _residues(other))
    return isinstance(one, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)


def _residues(array: Array) -> Residues:
    return np.array([each.value for each in scalars(array).reshape(-1).tolist()], np.int64).reshape(array.shape)


def _are_equal(results: list[Any], found: list[Any] | None) -> bool:
    return found is not None and all(
        isinstance(one, np.ndarray)
        and one.dtype == object
        and one.shape == other.shape
        and np.array_equal(_residues(cast(Array, one)), _residues(other))
        for one, other in zip(results, found, strict=True)
    )
