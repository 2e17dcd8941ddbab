"""Attention that JAX functions spell out becomes one operation, with equal values."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from xdsl.context import Context

from distir.frontends.jax import import_step
from distir.interpreters.equivalence import verify
from distir.passes.recognise_attention import RecogniseAttentionPass


@pytest.mark.parametrize("mask", ["causal", "given", "none"])
def test_softmax_of_jax_nn(mask: str) -> None:
    def attention(q: jax.Array, k: jax.Array, v: jax.Array, seen: jax.Array) -> jax.Array:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(8.0)
        if mask == "causal":
            scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), scores, -jnp.inf)
        elif mask == "given":
            scores = scores + seen[:, None, None]
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)

    x, seen = np.ones((2, 6, 3, 8), np.float32), np.ones((2, 6), np.float32)
    module = import_step(attention, (x, x, x, seen))
    found = module.clone()
    RecogniseAttentionPass().apply(Context(), found)
    found.verify()
    names = [op.name for op in found.walk()]
    assert names.count("attention.forward") == 1
    assert "jax.exp" not in names
    assert verify(module, found).holds


def test_gradient() -> None:
    """The gradient of a softmax of its parts, as JAX makes it."""

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.3, -jnp.inf)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)

    def step(q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        return jax.value_and_grad(lambda *given: (attention(*given) * g).sum(), argnums=(0, 1, 2))(q, k, v)

    x = np.ones((2, 6, 3, 8), np.float32)
    module = import_step(step, (x, x, x, x))
    found = module.clone()
    RecogniseAttentionPass().apply(Context(), found)
    found.verify()
    names = [op.name for op in found.walk()]
    assert [name for name in names if name.startswith("attention.")] == ["attention.forward", "attention.backward"]
    assert "jax.exp" not in names
    assert verify(module, found).holds
