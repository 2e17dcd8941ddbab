"""Random keys in JAX programs, as raw numbers and as arrays of keys, and functions of pytrees in which not every leaf is an array."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from distir.dialects.errors import DistirError
from distir.frontends.eager import check_imported
from distir.frontends.jax import import_step
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.reference import run

pytestmark = pytest.mark.long

SAME = "two steps are the framework's own"
X, W = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), np.eye(4, dtype=np.float32)


def dropped(x: Any, key: Any) -> Any:
    return x * jax.random.bernoulli(key, 0.7, x.shape)


def scanned(w: Any, x: Any, key: Any) -> Any:
    """Dropout in layers that are computed anew in the backward pass."""

    def loss(w: Any) -> Any:
        def layer(h: Any, k: Any) -> tuple[Any, None]:
            return jax.checkpoint(lambda h: dropped(jnp.tanh(h @ w), k))(h), None

        return jax.lax.scan(layer, x, jax.random.split(key, 2))[0].sum()

    value, gradient = jax.value_and_grad(loss)(w)
    return w - 0.1 * gradient, value


def split(x: Any, key: Any) -> Any:
    return x + jax.random.uniform(jax.random.split(key)[1], x.shape)


def folded(x: Any, key: Any) -> Any:
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(2))
    return x + jax.vmap(lambda k: jax.random.normal(k, (4,)))(keys[::-1])


@pytest.mark.parametrize("make", [jax.random.PRNGKey, jax.random.key])
def test_a_scan_with_dropout_and_rematerialisation(make: Callable[[int], Any]) -> None:
    module = import_step(scanned, (W, X, make(0)), ("parameter", "input", "seed"), results=("parameter", "output"))
    assert check_imported(module).startswith(SAME)


@pytest.mark.parametrize("function", [dropped, folded, split])
@pytest.mark.parametrize("make", [jax.random.PRNGKey, jax.random.key])
def test_a_program_draws_what_jax_draws(function: Callable[..., Any], make: Callable[[int], Any]) -> None:
    key = make(3)
    module = import_step(function, (X, key), ("input", "seed"))
    name = arguments_of(entry_function(module))[1].name
    numbers = np.asarray(key if make is jax.random.PRNGKey else jax.random.key_data(key))
    found = run(module, {"x": X, name: numbers})
    np.testing.assert_allclose(next(iter(found.values())), function(X, key), rtol=1e-6)


def test_a_key_that_the_step_makes_and_one_that_it_returns() -> None:
    def step(seed: Any) -> tuple[Any, Any]:
        key, other = jax.random.split(jax.random.key(seed))
        return key, jax.random.uniform(other, (3,))

    module = import_step(step, (np.int32(5),), ("seed",))
    found = list(run(module, {"seed": np.int32(5)}).values())
    key, drawn = step(5)
    np.testing.assert_array_equal(found[0], jax.random.key_data(key))
    np.testing.assert_allclose(found[1], drawn, rtol=1e-6)


def test_what_is_not_known_of_keys_is_refused_by_name() -> None:
    with pytest.raises(
        DistirError,
        match=r"^primitive 'random_gamma' on keys of random numbers: what it computes of keys is not known$",
    ):
        import_step(lambda key: jax.random.gamma(key, 2.0, (3,)), (jax.random.key(0),), ("seed",))


def test_leaves_that_are_no_arrays_are_fixed() -> None:
    """As activation functions in modules of Equinox."""

    def step(model: dict[str, Any], x: Any) -> tuple[dict[str, Any], Any]:
        def loss(w: Any) -> Any:
            return model["activation"](x @ w).sum()

        value, gradient = jax.value_and_grad(loss)(model["w"])
        return model | {"w": model["w"] - 0.1 * gradient}, value

    model = {"activation": jnp.tanh, "w": W, "name": "first"}
    module = import_step(step, (model, X), ("parameter", "input"), results=("parameter", "output"))
    assert [port.name for port in arguments_of(entry_function(module))] == ["model.w", "x"]
    assert check_imported(module).startswith(SAME)
