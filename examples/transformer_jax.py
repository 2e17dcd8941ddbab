"""A training step of a small decoder transformer in JAX, as a program.

    distir import examples.transformer_jax:step -o step.mlir

Token and position embeddings, pre-norm blocks with causal attention and a GELU feed-forward, tied output weights, cross
entropy, SGD with momentum: plain JAX functions over dictionaries of arrays. Only `step` and `build` know distir.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.jax import import_step

Tree = Any
MOMENTUM, LEARNING_RATE = 0.9, 0.1


def parameters(layers: int, width: int, heads: int, vocabulary: int, length: int, seed: int = 0) -> Tree:
    """Random weights. Attention weights are (width, heads, width / heads), so that heads are a dim."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray[Any, Any]:
        return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def block() -> Tree:
        attention = {name: draw(width, heads, width // heads) for name in ("query", "key", "value")}
        return {
            "norm1": np.ones(width, np.float32),
            **attention,
            "out": draw(heads, width // heads, width),
            "norm2": np.ones(width, np.float32),
            "up": draw(width, 4 * width),
            "down": draw(4 * width, width),
        }

    return {"embedding": draw(vocabulary, width), "positions": draw(length, width), "blocks": [block()] * layers}


def _norm(x: Any, weight: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight


def _block(p: Tree, x: Any) -> Any:
    h = _norm(x, p["norm1"])
    query, key, value = (jnp.einsum("bsd,dhe->bhse", h, p[name]) for name in ("query", "key", "value"))
    scores = jnp.einsum("bhse,bhte->bhst", query, key) / np.sqrt(query.shape[-1])
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    attention = jax.nn.softmax(jnp.where(causal, scores, -1e9))
    x = x + jnp.einsum("bhst,bhte,hed->bsd", attention, value, p["out"])
    return x + jax.nn.gelu(_norm(x, p["norm2"]) @ p["up"]) @ p["down"]


def loss(params: Tree, tokens: Any, targets: Any) -> Any:
    """The mean cross entropy of the next tokens."""
    x = params["embedding"][tokens] + params["positions"]
    for block in params["blocks"]:
        x = _block(block, x)
    log_probabilities = jax.nn.log_softmax(x @ params["embedding"].T)
    return -jnp.mean(jnp.take_along_axis(log_probabilities, targets[..., None], -1))


def train(params: Tree, momentum: Tree, tokens: Any, targets: Any) -> tuple[Tree, Tree, Any]:
    """One step: new parameters, new momentum, the loss."""
    value, gradients = jax.value_and_grad(loss)(params, tokens, targets)
    momentum = jax.tree.map(lambda m, g: MOMENTUM * m + g, momentum, gradients)
    return jax.tree.map(lambda p, m: p - LEARNING_RATE * m, params, momentum), momentum, value


def arguments(
    layers: int = 2, width: int = 16, heads: int = 2, vocabulary: int = 29, batch: int = 4, length: int = 6
) -> tuple[Any, ...]:
    """Example arguments of `train`."""
    params = parameters(layers, width, heads, vocabulary, length)
    tokens = np.random.default_rng(1).integers(0, vocabulary, (2, batch, length)).astype(np.int32)
    return params, jax.tree.map(np.zeros_like, params), tokens[0], tokens[1]


def build(*args: Any) -> ModuleOp:
    """`train` on these arguments as a program."""
    return import_step(train, args, ("parameter", "state", "input", "label"), results=("parameter", "state", "output"))


def step() -> ModuleOp:
    """For `distir import`."""
    return build(*arguments())
