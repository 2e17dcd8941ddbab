"""`distir.discover`: rules of callables that are in no dialect, what they must be, and that they hold on real floats."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distir
from distir.dialects.errors import DistirError
from distir.passes.shardcombine.callables import CallableDomains
from tests.unit.shard_executor import violations

R = np.random.default_rng(0).standard_normal


def fused_gelu(x: Any, w: Any, b: Any) -> Any:
    y = x @ w + b
    return 0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * y * y * y)))


def fused_projection(x: Any, w: Any, b: Any, residual: Any) -> Any:
    return x @ w + b + residual


def blocked_attention(q: Any, k: Any, v: Any, block: int) -> Any:
    """Flash attention's loop over blocks of keys: a running maximum, sum and numerator."""
    greatest, total, numerator = None, 0, 0
    for start in range(0, k.shape[-2], block):
        scores = q @ np.swapaxes(k[..., start : start + block, :], -1, -2)
        here = scores.max(-1, keepdims=True)
        new = here if greatest is None else np.maximum(here, greatest)
        rescale = 1 if greatest is None else np.exp(greatest - new)
        weights = np.exp(scores - new)
        total = total * rescale + weights.sum(-1, keepdims=True)
        numerator = numerator * rescale + weights @ v[..., start : start + block, :]
        greatest = new
    return numerator / total


def batch_norm(x: Any, scale: Any) -> tuple[Any, Any]:
    mean = x.mean((0, 2))
    centred = x - mean[:, None]
    return centred / np.sqrt((centred * centred).mean((0, 2)) + 1e-5)[:, None] * scale[:, None], mean


def cross_entropy(scores: Any, labels: Any) -> Any:
    shifted = scores - scores.max(1, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return -np.take_along_axis(log, labels[:, None], 1).mean()


def group_heads(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads) if x.shape[-1] % heads == 0 else 1 / 0


def in_place(x: Any, y: Any) -> Any:
    x += y
    return x


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (fused_gelu, (R((8, 12)), R((12, 6)), R(6)), "[S1, _], [_, S2], [S2] -> {S1: gather(0), S2: gather(1)}"),
    (fused_projection, (R((8, 12)), R((12, 6)), R(6), R((8, 6))),
     "[S1, S2], [S2, S3], [S3], [S1, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}"),
    (lambda x, w: np.maximum(x @ w, 0), (R((8, 12)), R((12, 6))), "[S1, _], [_, S2] -> {S1: gather(0), S2: gather(1)}"),
    (lambda x: np.abs(x.sum(1)), (R((8, 12)),), "[S1, _] -> {S1: gather(0)}"),
    (lambda x: np.clip(x.sum(1), 0, None), (R((8, 12)),), "[S1, _] -> {S1: gather(0)}"),
    (lambda x: np.sign(x.sum(1)), (R((8, 12)),), "[S1, _] -> {S1: gather(0)}"),
    (lambda x: x.argmax(1), (R((8, 12)),), "[S1, _] -> {S1: gather(0)}"),
    (lambda x: x.any(1), (R((8, 12)) > 0,), "[S1, _] -> {S1: gather(0)}"),
    (lambda x: x.max(1), (np.ones((8, 12), np.int64),), "[S1, S2] -> {S1: gather(0), S2: reduce(max)}"),
    (np.unique, (np.ones(12),), "[_] -> {}"),
    (lambda x: x.mean(1), (np.broadcast_to(1.0, (4, 1 << 20)),), "[S1, S2] -> {S1: gather(0), S2: reduce(mean)}"),
    (cross_entropy, (R((8, 12)), np.zeros(8, np.int64)), "[S1, _], [S1] -> {S1: reduce(mean)}"),
    (lambda x, y: np.concatenate([x, y], -1), (R((8, 12)), R((8, 6))),
     "[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1, pieces = [2, 1])}"),
    (lambda xs: np.stack(xs), ([R((8, 12)), R((8, 12))],), "[S1, S2], [S1, S2] -> {S1: gather(1), S2: gather(2)}"),
    (np.broadcast_to, (R((12,)), (8, 12)), "[S1] -> {S1: gather(1), S2: gather(0)}, "
     "sizes = {shape[1]: S1, shape[0]: S2}"),
    (batch_norm, (R((8, 6, 10)), R(6)), "[_, S1, _], [S1] -> {S1: [gather(1), gather(0)]}"),
    (group_heads, (R((8, 12)), 4), "[S1, S2 * S3] -> {S1: gather(0), S2: gather(1), S3: gather(2)}, "
     "sizes = {heads[0]: S2}"),
    (in_place, (R((8, 12)), R((8, 12))), "[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}"),
    (lambda x: x + np.random.default_rng().standard_normal(x.shape), (R((8, 12)),), "[_, _] -> {}"),
    (np.linalg.inv, (R((8, 4, 4)),), "[S1, _, _] -> {S1: gather(0)}"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "rule"), CASES, ids=[str(i) for i in range(len(CASES))])
@pytest.mark.filterwarnings("ignore")
def test_numpy(function: Callable[..., Any], arguments: tuple[Any, ...], rule: str) -> None:
    found = distir.discover(function, arguments)
    assert str(found).startswith(f"#dist.rule<{rule}, ")
    assert ("found = probed" in str(found)) == (function is np.linalg.inv)
    domains = CallableDomains(function, arguments)
    small = [a[:, :24] if isinstance(a, np.ndarray) and a.size > 1 << 20 else a for a in domains.template.arrays]
    tried = violations(domains.operation(), found, small, np.random.default_rng(1), domains.evaluate)
    assert not tried.violations


@pytest.mark.filterwarnings("ignore")
def test_attention_in_blocks_of_keys() -> None:
    """The order of a maximum is not respected by sums: exact arithmetic sees that a block has no meaning of its own, and
    finds what holds for any blocks."""
    arguments = R((2, 3, 8, 4)), R((2, 3, 12, 4)), R((2, 3, 12, 5)), 4
    found = distir.discover(blocked_attention, arguments)
    assert str(found).startswith(
        "#dist.rule<[S1, S2, S3, _], [S1, S2, _, _], [S1, S2, _, S4] -> "
        "{S1: gather(0), S2: gather(1), S3: gather(2), S4: gather(3)}"
    )
    domains = CallableDomains(blocked_attention, arguments)
    tried = violations(domains.operation(), found, arguments[:3], np.random.default_rng(1), domains.evaluate)
    assert not tried.violations
    assert tried.factors >= 7


@pytest.mark.filterwarnings("ignore")
def test_torch() -> None:
    import torch

    x, w, b = torch.ones(8, 12), torch.ones(6, 12), torch.ones(6)

    def mlp(x: Any, w: Any, b: Any) -> Any:
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b), approximate="tanh")

    assert str(distir.discover(mlp, (x, w, b))) == (
        "#dist.rule<[S1, _], [S2, _], [S2] -> {S1: gather(0), S2: gather(1)}, found = exact>"
    )
    assert "S2: reduce(sum)" in str(distir.discover(torch.nn.functional.linear, (x, w)))
    assert "reduce" not in str(distir.discover(lambda x, w: torch.relu(x @ w.T), (x, w)))
    table = str(distir.discover(torch.nn.functional.embedding, (torch.zeros(3, 4, dtype=torch.int64), x)))
    assert table.startswith(
        "#dist.rule<[S1, S2], [S4, S3] -> {S1: gather(0), S2: gather(1), S3: gather(2), S4: reduce(sum)}"
    )
    assert "offset = S4" in table
    assert str(distir.discover(torch.nn.Linear(12, 6), (x,))).startswith("#dist.rule<[S1, _] -> {S1: gather(0)}")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_jax() -> None:
    import jax
    from jax import numpy as jnp

    found = distir.discover(lambda x, w: jax.nn.relu(x @ w), (jnp.ones((8, 12)), jnp.ones((12, 6))))
    assert str(found) == "#dist.rule<[S1, _], [_, S2] -> {S1: gather(0), S2: gather(1)}, found = probed>"
    found = distir.discover(lambda table, i: table[i], (jnp.ones((8, 12)), jnp.zeros(5, int)))
    assert str(found).startswith("#dist.rule<[S3, S1], [S2] -> {S1: gather(1), S2: gather(0), S3: reduce(sum)}")
    assert "offset = S3" in str(found)


@pytest.mark.filterwarnings("ignore")
def test_the_places_of_maxima_are_those_that_pooling_gave() -> None:
    """No kernel checks them: any others would be written to outside of the gradient. Channels and batch are independent, the
    gradient is linear, and windows that do not overlap move elements."""
    import torch

    aten = torch.ops.aten
    window = [2, 2], [2, 2], [0, 0], [1, 1], False
    x = torch.randn(4, 6, 8, 8)
    pooled, places = aten.max_pool2d_with_indices(x, *window)

    def gradient(g: Any, x: Any, places: Any) -> Any:
        return aten.max_pool2d_with_indices_backward(g, x, *window, places)

    rule = distir.discover(gradient, (pooled, x, places))
    assert str(rule) == (
        "#dist.rule<[S1, S2, _, _], [S1, S2, _, _], [S1, S2, _, _] -> {S1: gather(0), S2: gather(1)}, "
        "partial = [sum: 0 -> 0, max: 0 -> 0, min: 0 -> 0], found = exact>"
    )
    domains = CallableDomains(gradient, (pooled, x, places))
    arrays = [each.double().numpy() for each in (pooled, x)]
    tried = violations(domains.operation(), rule, [*arrays, places.numpy()], np.random.default_rng(1), domains.evaluate)
    assert tried.factors == 4
    assert not tried.violations
    assert "-> {}" in str(distir.discover(lambda g, x, p: gradient(g, x, p + 0), (pooled, x, places)))


@pytest.mark.filterwarnings("ignore")
def test_a_crash_is_not_ours() -> None:
    """Kernels that check no integers may end the process that they run in."""
    import torch

    def kernel(x: Any, index: Any) -> Any:
        if index.device.type == "cpu" and int(index.max()) >= len(x):
            os.kill(os.getpid(), signal.SIGKILL)
        return x[index]

    with pytest.raises(
        DistirError, match=r"^discover: kernel crashes \(SIGKILL\) on integers that are out of its range"
    ):
        distir.discover(kernel, (torch.ones(8, 12), torch.zeros(8, dtype=torch.int64)))


def test_what_cannot_be_discovered_is_said() -> None:
    with pytest.raises(DistirError, match=r"expected a tuple of arguments, got ndarray"):
        distir.discover(np.exp, np.ones(3))  # pyright: ignore
    with pytest.raises(DistirError, match="none of the example arguments is an array"):
        distir.discover(np.exp, (3.0,))
    with pytest.raises(DistirError, match="<lambda> fails on the example arguments: matmul"):
        distir.discover(lambda x, y: x @ y, (np.ones((2, 3)), np.ones((2, 3))))
    with pytest.raises(DistirError, match="arrays of complex128 have no rules"):
        distir.discover(np.exp, (np.ones(3, complex),))


def test_arguments_are_not_written_to() -> None:
    x = np.ones((8, 12))
    distir.discover(in_place, (x, x.copy()))
    assert (x == 1).all()
