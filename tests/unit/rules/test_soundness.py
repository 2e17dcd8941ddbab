"""No false rule: what discovery says of the single-operator node tests of onnx, and of operators on which probing is easily
deceived, against the executor of `shard_executor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distir
from distir.passes.shardcombine.callables import CallableDomains
from tests.unit.node_rules import measure
from tests.unit.shard_executor import violations
from tests.unit.step_rules import STEPS, TRANSFORMERS
from tests.unit.step_rules import measure as rules_of_steps

# One or two of some families; those that earlier versions of discovery were deceived by are among them: operands that
# decide much by few integers (diagonals, axes, lengths, offsets), bounds that cross, indices that leave gaps, functions
# that fall before they rise, results that are constant unless the operands meet.
SAMPLE = frozenset(
    "test_add_bcast test_averagepool_2d_pads test_cumsum_2d_axis_1 test_gathernd_example_int32 test_layer_normalization_3d_axis1_epsilon "
    "test_reversesequence_time test_scatter_elements_with_axis test_tril_neg".split()
)


def test_rules_of_a_sample_of_the_node_tests_hold() -> None:
    outcome = measure(SAMPLE.__contains__)
    assert not outcome.false
    assert outcome.tests >= len(SAMPLE)
    assert outcome.factors > 20
    assert outcome.partials > 10


@pytest.mark.long
def test_rules_of_all_single_operator_node_tests_hold() -> None:
    outcome = measure()
    assert not outcome.false
    assert outcome.tests >= 1462
    assert outcome.factors > 7500
    assert outcome.partials > 3500


def rule_of_torch(function: Callable[..., Any], *arguments: Any) -> str:
    """The rule as text, after it has held."""
    rule = distir.discover(function, arguments)
    domains = CallableDomains(function, arguments)
    rng = np.random.default_rng(2)
    arrays = [a.numpy() if a.dtype.is_floating_point is False else rng.standard_normal(a.shape) for a in arguments[:2]
              if hasattr(a, "dtype")]  # fmt: skip
    if sum(a.size for a in arrays) < 10_000:
        assert not violations(domains.operation(), rule, arrays, rng, domains.evaluate).violations
    return str(rule).removeprefix("#dist.rule<")


@pytest.mark.filterwarnings("ignore")
def test_traps() -> None:
    """Each deceives a probe that draws from [0, 1), integers from {0, 1}, or compares with a relative tolerance."""
    import torch

    f = torch.nn.functional
    x, w, big = torch.ones(8, 12), torch.ones(12, 6), torch.empty(1, 1).expand(4, 1 << 20)
    integers, labels = torch.ones(8, 12, dtype=torch.int64), torch.zeros(8, dtype=torch.int64)
    batch, rows_only = "[S1, S2], [S1, S2] -> {S1: gather(0), ", "[S1, _] -> {S1: gather(0)}"
    assert rule_of_torch(lambda x, w: torch.relu(x @ w), x, w).startswith(
        "[S1, _], [_, S2] -> {S1: gather(0), S2: gather(1)}"
    )
    assert rule_of_torch(lambda x: x.sum(1).abs(), x).startswith(rows_only)
    assert rule_of_torch(lambda x: x.sum(1).clamp(min=0), x).startswith(rows_only)
    assert rule_of_torch(lambda x: x.sum(1).sign(), x).startswith(rows_only)
    assert rule_of_torch(f.cross_entropy, x, labels).startswith("[S1, _], [S1] -> {S1: reduce(mean)}")
    assert rule_of_torch(lambda x: (x > 0).any(1), x).startswith(rows_only)
    assert rule_of_torch(lambda x: (x > 0).all(1), x).startswith(rows_only)
    assert "S2: reduce(max)" in rule_of_torch(lambda x: x.amax(1), integers)
    assert rule_of_torch(lambda x: x.argmax(1), x).startswith(rows_only)
    assert rule_of_torch(torch.mean, big, 1).startswith("[S1, S2] -> {S1: gather(0), S2: reduce(mean)}")
    assert rule_of_torch(lambda x, y: torch.cat([x, y], -1), x, x[:, :6]).startswith(
        batch + "S2: gather(1, pieces = [2, 1])}"
    )
    assert rule_of_torch(lambda x: x.log_softmax(-1), x).startswith(rows_only)
    assert rule_of_torch(lambda x, n: x.expand(n, x.shape[0]), x[0], 8).startswith(
        "[S1] -> {S1: gather(1), S2: gather(0)}"
    )
    assert rule_of_torch(lambda x: x.expand(8, x.shape[1]), x[:1]).startswith("[_, S1] -> {S1: gather(1)}")


def test_integers_that_divide_are_not_zero() -> None:
    """A mean of what came so far divides by its number: most draws of integers have a zero, of which nothing can be compared."""
    import torch

    x, whole, n = torch.ones(4, 6, 16), torch.ones(4, 6, 16, dtype=torch.int64), torch.arange(1, 7)[:, None]
    cut = "[S1, S2, S3], [S2, _] -> {S1: gather(0), S2: gather(1), S3: gather(2)}"
    assert rule_of_torch(lambda x, n: x / n, x, n).startswith(cut + ", partial = [sum: 0 -> 0]")
    assert rule_of_torch(lambda x, n: x // n, x, n).startswith(cut)
    assert rule_of_torch(lambda x, n: x % n, whole, n).startswith(cut)


@pytest.mark.long
def test_rules_of_training_steps_hold() -> None:
    """AdamW's, and of the layers of an MLP; then what is peculiar to attention over a graph."""
    outcome = rules_of_steps(["mlp"])
    assert not outcome.false
    assert outcome.classes > 30
    assert outcome.factors > 200
    assert outcome.partials > 100


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in STEPS if name not in (*TRANSFORMERS, "jax", "mlp")])
def test_rules_of_all_training_steps_hold(name: str) -> None:
    outcome = rules_of_steps([name])
    assert not outcome.false
    assert outcome.factors > 300
    assert outcome.windows > 0 or name != "convolutions"
    assert outcome.offsets > 0 or name != "gpt"


@pytest.mark.long
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_rules_of_all_steps_of_transformers_hold(name: str) -> None:
    outcome = rules_of_steps([name])
    assert not outcome.false
    assert outcome.factors > 300
