"""Operators that are sums of products, run on exact scalars by doubles (`interpreters.exact.multilinear`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distir.interpreters.exact import residues
from distir.interpreters.exact.multilinear import Terms, on_exact, terms
from distir.interpreters.exact.scalars import PRIME, Scalar

Array = np.ndarray[Any, Any]
SHAPES = (3, 4), (3, 4), (4,), ()
SETS = [frozenset(each) for size in range(5) for each in combinations(range(4), size)]


def sum_of_products(coefficients: dict[frozenset[int], int]) -> Callable[[Sequence[Array]], list[Array]]:
    """Of operands of `SHAPES`, broadcast, and summed along rows."""

    def run(arrays: Sequence[Array]) -> list[Array]:
        total = np.zeros((3, 4), arrays[0].dtype)
        for operands, coefficient in coefficients.items():
            part: Any = np.ones((3, 4), np.int64) * coefficient
            for i in sorted(operands):
                part = part * arrays[i]
            total = total + part
        return [total, total.sum(1)]

    return run


@given(st.dictionaries(st.sampled_from(SETS), st.integers(-3, 3).filter(bool)), st.integers(0, 2**32))
def test_sums_of_products_are_found_and_run(coefficients: dict[frozenset[int], int], seed: int) -> None:
    run = sum_of_products(coefficients)
    found = terms(run, SHAPES)
    assert found is not None
    if found.together:
        assert all(len(operands) == 1 for operands in coefficients)
    else:
        assert set(found.products) == set(coefficients)
    exact = [np.random.default_rng(seed + i).integers(0, PRIME, shape) for i, shape in enumerate(SHAPES)]
    try:
        values = on_exact(run, exact, found)
    except ArithmeticError:  # products of three limbs and more are too large for doubles
        assert max(map(len, coefficients)) > 2
        return
    expected = run([np.vectorize(Scalar, otypes=[object])(array) for array in exact])
    for value, wanted in zip(values, expected, strict=True):
        assert value.tolist() == np.vectorize(lambda x: Scalar.of(x).value)(wanted).tolist()


@pytest.mark.parametrize(
    "function",
    [np.abs, np.square, np.exp, np.sign, lambda x: np.maximum(x, 0), lambda x: np.clip(x, -100, 100), np.round],
)
def test_others_are_not(function: Callable[[Array], Array]) -> None:
    assert terms(lambda arrays: [function(arrays[0]) * arrays[1]], [(4,), (4,)]) is None


def test_results_that_are_no_floats_are_not() -> None:
    assert terms(lambda arrays: None, [(4,)]) is None


def test_many_operands_that_only_move() -> None:
    def run(arrays: Sequence[Array]) -> list[Array]:
        return [np.concatenate(arrays)]

    found = terms(run, [(2,)] * 9)
    assert found == Terms((), together=True)
    exact = [np.array([i, PRIME - i]) % PRIME for i in range(9)]
    np.testing.assert_array_equal(on_exact(run, exact, found)[0], np.concatenate(exact))


def test_what_doubles_do_not_hold_is_said() -> None:
    def run(arrays: Sequence[Array]) -> list[Array]:
        return [arrays[0] * 2.0**40]

    found = terms(run, [(2,)])
    assert found is not None
    with pytest.raises(ArithmeticError, match="doubles do not hold"):
        on_exact(run, [residues.residues(np.array([PRIME - 1, 1]))], found)
