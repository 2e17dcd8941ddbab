"""Proofs of steps of JAX: losses times a constant, which comes first there, and recurrences that begin at a constant of zeros."""

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.dist import AllReduceOp
from distir.frontends.jax import import_step
from distir.interpreters.proof import prove
from distir.passes.decompose import prepare_like
from distir.passes.dtp_parallelize import DtpParallelizePass
from tests.long_cases import also_long

WIDTH, WORDS = 8, 16


def step(loss: Callable[..., Any], parameters: dict[str, Any], *batch: Any) -> ModuleOp:
    def train(parameters: Any, *batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients), value

    return import_step(
        train,
        (parameters, *batch),
        ("parameter", *["input"] * (len(batch) - 1), "label"),
        results=("parameter", "output"),
    )


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def two_losses() -> ModuleOp:
    def loss(p: Any, x: Any, y: Any) -> Any:
        z = jnp.tanh(x @ p["a"]) @ p["b"]
        return (
            ((z - y) ** 2).mean() + 1e-2 * (jax.nn.logsumexp(z, -1) ** 2).mean() - 0.5 * (x * z[:, :1]).sum(-1).mean()
        )

    parameters = {"a": numbers(WIDTH, WIDTH), "b": numbers(WIDTH, WIDTH)}
    return step(loss, parameters, numbers(4, WIDTH), numbers(4, WIDTH))


def recurrence() -> ModuleOp:
    def loss(p: Any, x: Any, y: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            gate, new = jax.nn.sigmoid(x @ p["ig"] + h @ p["hg"]), jnp.tanh(x @ p["in"] + h @ p["hn"])
            return (new := gate * h + (1 - gate) * new), new

        _, states = jax.lax.scan(cell, jnp.zeros((x.shape[0], WIDTH)), x.swapaxes(0, 1))
        return -jnp.take_along_axis(jax.nn.log_softmax(states.swapaxes(0, 1) @ p["o"]), y[..., None], -1).mean()

    parameters = {name: numbers(WIDTH, WIDTH) for name in ("ig", "hg", "in", "hn")} | {"o": numbers(WIDTH, WORDS)}
    return step(loss, parameters, numbers(4, 5, WIDTH), np.arange(20, dtype=np.int32).reshape(4, 5) % WORDS)


DEGREES: list[dict[str, int]] = [{"dp": 2, "tp": 2}, {"tp": 2}, {"pp": 2, "microbatches": 2, "dp": 2}]


@pytest.mark.parametrize(
    ("make", "degrees"),
    also_long(
        product([two_losses, recurrence], DEGREES),
        [(two_losses, DEGREES[0]), (two_losses, DEGREES[2]), (recurrence, DEGREES[1])],
        several=True,
    ),
)
def test_it_is_proven(make: Callable[[], ModuleOp], degrees: dict[str, int]):
    sequential = make()
    distributed = sequential.clone()
    DtpParallelizePass(**degrees).apply(Context(), distributed)  # pyright: ignore[reportArgumentType]
    prepare_like(sequential, distributed)
    proof = prove(sequential, distributed)
    assert proof, proof.failures


def test_without_a_reduction_it_is_not():
    sequential = two_losses()
    distributed = sequential.clone()
    DtpParallelizePass(dp=2, tp=2).apply(Context(), distributed)
    prepare_like(sequential, distributed)
    for number in range(sum(isinstance(op, AllReduceOp) for op in distributed.walk())):
        wrong = distributed.clone()
        reduction = [op for op in wrong.walk() if isinstance(op, AllReduceOp)][number]
        for operand, result in zip(reduction.operands, reduction.results, strict=True):
            result.replace_all_uses_with(operand)
        assert not prove(sequential, wrong), f"without {reduction}"
