"""Exact scalars: a field under numpy, functions that are uninterpreted, an order that is blind to addition, no casts."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distir.interpreters.exact import residues
from distir.interpreters.exact.scalars import PRIME, Scalar, field_element

elements = st.integers(0, PRIME - 1).map(Scalar)


def array(*values: int) -> np.ndarray:
    result = np.empty(len(values), object)
    result[:] = [Scalar(value) for value in values]
    return result


@given(elements, elements, elements)
def test_field_laws(a: Scalar, b: Scalar, c: Scalar):
    assert a + b == b + a
    assert a * (b + c) == a * b + a * c
    assert a - a == 0
    if b != 0:
        assert a / b * b == a


@given(st.fractions(), st.fractions())
def test_rationals_are_exact(p: Fraction, q: Fraction):
    assert field_element(p) * field_element(q) % PRIME == field_element(p * q)
    assert (field_element(p) + field_element(q)) % PRIME == field_element(p + q)


def test_a_float_is_the_rational_that_it_stores():
    assert Scalar.of(0.1) == Scalar.of(Fraction(3602879701896397, 2**55))
    assert Scalar.of(np.float32(0.5)) * 2 == 1


@given(elements, elements)
def test_the_order_is_total_and_a_lattice(a: Scalar, b: Scalar):
    assert (a < b) + (a == b) + (a > b) == 1
    assert max(a, b) == max(b, a)
    assert max(a, min(a, b)) == a


def test_the_order_does_not_respect_addition_and_zero_is_not_extreme():
    numbers = [Scalar(i * 1_000_003) for i in range(1, 400)]
    assert 100 < sum(n > 0 for n in numbers) < 300
    pairs = pairwise(numbers)
    assert 100 < sum((a < b) == (a + 7 < b + 7) for a, b in pairs) < 300


@pytest.mark.parametrize("function", [np.exp, np.log, np.sqrt, np.tanh, np.sin, np.abs, np.floor, np.rint])
def test_numpy_functions_are_uninterpreted(function: np.ufunc):
    once, again, other = function(array(3))[0], function(array(3))[0], function(array(4))[0]
    assert isinstance(once, Scalar)
    assert once == again
    assert once != other
    assert function(array(7))[0] != once + other  # not additive


def test_numpy_code_runs_on_object_arrays():
    x, y = array(1, 2, 3), array(4, 5, 6)
    assert (x @ y) == 32
    assert np.mean(x) == 2
    assert (np.float32(2) * x)[2] == 6
    assert list(np.square(x)) == [1, 4, 9]
    assert np.reciprocal(x)[1] * 2 == 1
    assert (x**2)[2] == 9
    assert (x**-1)[1] == Scalar.of(0.5)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_casts_are_refused(dtype: str):
    with pytest.raises(TypeError):
        array(1, 2).astype(dtype)


def test_division_by_zero():
    with pytest.raises(ZeroDivisionError):
        Scalar(1) / 0


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 6, Fraction(1, 2)])
def test_numbers_may_be_kept_between_bounds(bound: Fraction):
    """Of any numbers, some are above the bound, some below the negative, some between, and zero is."""
    numbers = [Scalar(i * 1_000_003) for i in range(1, 2000)]
    assert -Scalar.of(bound) < 0 < Scalar.of(bound)
    for outside in (sum(n > bound for n in numbers), sum(n < -bound for n in numbers)):
        assert 20 < outside < 1000


@given(st.lists(st.tuples(st.integers(0, PRIME - 1), st.integers(0, PRIME - 1)), min_size=1, max_size=9))
def test_arrays_of_residues_compute_as_scalars_do(pairs: list[tuple[int, int]]):
    a, b = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    x, y = [Scalar(n) for n in a.tolist()], [Scalar(n) for n in b.tolist()]
    assert residues.add(a, b).tolist() == [(p + q).value for p, q in zip(x, y, strict=True)]
    assert residues.subtract(a, b).tolist() == [(p - q).value for p, q in zip(x, y, strict=True)]
    assert residues.multiply(a, b).tolist() == [(p * q).value for p, q in zip(x, y, strict=True)]
    assert residues.negative(a).tolist() == [(-p).value for p in x]
    assert residues.power(a, 13).tolist() == [(p**13).value for p in x]
    assert residues.greater(a, b).tolist() == [max(p, q).value for p, q in zip(x, y, strict=True)]
    assert residues.lesser(a, b).tolist() == [min(p, q).value for p, q in zip(x, y, strict=True)]
    assert residues.total(a) == sum(x, Scalar(0)).value
    assert residues.product(a) == math.prod(x, start=Scalar(1)).value
    assert residues.greatest(a) == max(x).value
    assert residues.least(a) == min(x).value
    if (a != 0).all():
        assert residues.reciprocal(a).tolist() == [(1 / p).value for p in x]


def test_numbers_become_residues_exactly():
    floats = np.array([[0.1, -2.0], [2.0**-40, 3e200]])
    assert residues.residues(floats).reshape(-1).tolist() == [field_element(x) for x in floats.reshape(-1).tolist()]
    assert residues.residues(np.array([-1, 5])).tolist() == [PRIME - 1, 5]
    assert residues.residues(True) == 1
