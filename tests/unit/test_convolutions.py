"""Rules of convolutions and their gradients, of any kernel, stride, padding, dilation and groups, against the executor of
`shard_executor`."""

from __future__ import annotations

import numpy as np
import pytest

from distir.dialects.sharding import Rule
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.unit.convolutions import BY_INPUT, BY_WEIGHT, FORWARD, Convolution, Spatial
from tests.unit.shard_executor import violations


def rule_that_holds(convolution: Convolution) -> Rule:
    """The rule, after it has held on random operands."""
    op, rng = convolution.operation(), np.random.default_rng(0)
    rule = Discovery(InterpreterDomains()).rule(op)
    assert not violations(op, rule, convolution.operands(rng), rng).violations, convolution
    return rule


@pytest.mark.parametrize("kind", [FORWARD, BY_INPUT, BY_WEIGHT])
def test_a_dilation_that_its_padding_balances_is_no_factor(kind: str) -> None:
    """Rows are as many whatever the two are together: a shard still needs rows as far away as the dilation."""
    rows = rule_that_holds(Convolution(kind, (Spatial(24, 3, padding=2, dilation=2),), inputs=5, outputs=7)).inputs[0][
        2
    ]
    assert rows.halo == (2, 2)
