"""What primitives give on small arrays, where another interpreter than XLA may run them, beside JAX itself: divisions by zero, gradients by a
kernel of other numbers of channels than samples, orders of what is not a number, and a convolution of much work, which is compiled."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from distir.interpreters.jax.small import run_small

RANDOM = np.random.default_rng(0)
SAMPLES, KERNEL, GRADIENT = (
    RANDOM.standard_normal(shape).astype(np.float32) for shape in ((4, 2, 4, 4), (3, 2, 3, 3), (4, 3, 2, 2))
)


def by_kernel(x: Any, kernel: Any, gradient: Any) -> Any:
    return jax.vjp(lambda each: jax.lax.conv(x, each, (2, 2), "SAME"), kernel)[1](gradient)


def by_samples(x: Any, kernel: Any, gradient: Any) -> Any:
    return jax.vjp(lambda each: jax.lax.conv(each, kernel, (2, 2), "SAME"), x)[1](gradient)


def quotient(a: Any, b: Any) -> Any:
    return jax.lax.div(a, b)


def rest(a: Any, b: Any) -> Any:
    return jax.lax.rem(a, b)


def in_order(a: Any) -> Any:
    return jax.lax.sort(a)


def dilated(x: Any, kernel: Any) -> Any:
    return jax.lax.conv_general_dilated(x, kernel, (2, 2), ((1, 1), (1, 1)), (3, 3), (2, 2))


NUMBERS = np.array([5, -5, 3], np.int32), np.array([0, 0, 2], np.int32)
WIDE = tuple(RANDOM.standard_normal(shape).astype(np.float32) for shape in ((4, 4, 18, 18), (6, 4, 3, 3)))
UNORDERED = (np.array([np.nan, 1, -0.0, 0.0, -np.inf], np.float32),)


@pytest.mark.parametrize(
    ("function", "operands", "is_run"),
    [
        (by_kernel, (SAMPLES, KERNEL, GRADIENT), False),
        (by_samples, (SAMPLES, KERNEL, GRADIENT), True),
        (quotient, NUMBERS, False),
        (rest, NUMBERS, False),
        (quotient, tuple(each.astype(np.float32) for each in NUMBERS), True),
        (in_order, UNORDERED, False),
        (dilated, WIDE, True),
    ],
)
def test_small_arrays_give_what_xla_gives(
    function: Callable[..., Any], operands: tuple[Any, ...], is_run: bool
) -> None:
    key = function.__name__, *(each.dtype for each in operands)
    results = run_small(key, function, operands, sum(each.size for each in operands))
    assert (results is not None) is is_run
    for result, expected in zip(
        results or [], jax.tree.leaves(jax.jit(function)(*operands)), strict=results is not None
    ):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_what_is_run_again_and_again_is_compiled(monkeypatch: pytest.MonkeyPatch):
    """Interpreting takes about a microsecond for each element, each time."""
    monkeypatch.setattr("distir.interpreters.jax.small._COMPILING_SECONDS", 0.0)
    x, y = (RANDOM.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    for _ in range(3):
        (result,) = run_small("again", lambda a, b: a @ b, [x, y], 192) or ()
        np.testing.assert_allclose(result, x @ y, rtol=1e-5, atol=1e-5)
