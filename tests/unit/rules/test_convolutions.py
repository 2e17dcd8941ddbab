"""Rules of convolutions and their gradients, of any kernel, stride, padding, dilation and groups, against the executor of
`shard_executor`."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import Operation

from distir.dialects.sharding import Rule
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.long_cases import also_long
from tests.unit.convolutions import (
    BY_INPUT,
    BY_WEIGHT,
    FORWARD,
    ONNX_KINDS,
    TRANSPOSED,
    Convolution,
    Spatial,
    can_be_cut,
    drawn,
)
from tests.unit.shard_executor import violations


def rule_that_holds(convolution: Convolution, op: Operation | None = None) -> Rule:
    """The rule (of the operation of ATen if no other is given), after it has held on random operands."""
    op, rng = op or convolution.operation(), np.random.default_rng(0)
    rule = Discovery(InterpreterDomains()).rule(op)
    operands = convolution.operands(rng)
    operands += [None] * (len(op.operands) - len(operands))
    assert not violations(op, rule, operands, rng).violations, convolution
    return rule


@pytest.mark.parametrize("kind", [FORWARD, BY_INPUT, BY_WEIGHT])
def test_a_dilation_that_its_padding_balances_is_no_factor(kind: str) -> None:
    """Rows are as many whatever the two are together: a shard still needs rows as far away as the dilation."""
    rows = rule_that_holds(Convolution(kind, (Spatial(24, 3, padding=2, dilation=2),), inputs=5, outputs=7)).inputs[0][
        2
    ]
    assert rows.halo == (2, 2)


LARGE: dict[str, Convolution] = {
    "patches of 16": Convolution(FORWARD, (Spatial(224, 16, 16),) * 2, 2, 1, 3, 768, bias=True),
    "7x7, stride 2": Convolution(BY_INPUT, (Spatial(224, 7, 2, 3),) * 2, 2, 1, 3, 64),
    "11x11, stride 4": Convolution(BY_WEIGHT, (Spatial(224, 11, 4, 2),) * 2, 2, 1, 3, 64),
    "dilated by 12": Convolution(FORWARD, (Spatial(64, 3, 1, 12, 12),) * 2, 2, 1, 256, 256),
    "31 rows, depthwise": Convolution(FORWARD, (Spatial(56, 31, 1, 15),), 2, 128, 1, 1),
    "32 groups of 16": Convolution(BY_WEIGHT, (Spatial(28, 3, 2, 1),) * 2, 2, 32, 16, 16),
    "groups of many channels": Convolution(FORWARD, (Spatial(28, 3, 1, 1),) * 2, 2, 2, 64, 64),
    "upsampled by 8": Convolution(TRANSPOSED, (Spatial(16, 16, 8, 4),) * 2, 2, 1, 21, 21),
}
"""Of networks of vision and speech, at their sizes. That they hold is shown at smaller ones, since these take long to run."""


@pytest.mark.parametrize("name", also_long(LARGE, [*LARGE][::3]))
def test_rows_and_columns_at_the_sizes_of_networks(name: str) -> None:
    convolution = LARGE[name]
    rule = Discovery(InterpreterDomains()).rule(convolution.operation())
    assert not uncut(convolution, rule)
    channels = [each.factor for dims in rule.inputs for each in dims[:2]]
    assert channels.count(None) == (convolution.inputs == 1), rule


HARD: dict[str, Convolution] = {
    "an output padding beyond the kernel": Convolution(TRANSPOSED, (Spatial(17, 1, 1, 0, 3, more=1),), 2, 4, 2, 2),
    "a dilation that its rows explain": Convolution(
        BY_INPUT, (Spatial(30, 11, 1, 0, 2), Spatial(29, 3, 2, 3, 3)), 2, 1, 4, 3
    ),
    "groups beside a dilation": Convolution(
        FORWARD, (Spatial(78, 11, 2, 0, 3), Spatial(23, 5, 1, 2, 2)), 2, 2, 3, 2, True
    ),
    "groups that types do not see": Convolution(
        BY_WEIGHT, (Spatial(37, 3, 4, 1), Spatial(115, 3, 5, 1, 3)), 2, 2, 2, 3
    ),
    "a padding of more than a kernel": Convolution(BY_WEIGHT, (Spatial(40, 15, 2, 35, 5),), 2, 3, 2, 1),
    "a kernel whose rows are rows of the result": Convolution(BY_INPUT, (Spatial(18, 6, 1, 7, 3),), 2, 1, 1, 6),
    "groups whose number divides rows and a stride": Convolution(
        FORWARD, (Spatial(96, 2, 4, 2, 6), Spatial(10, 11, 1, 5)), 3, 4, 3, 3
    ),
    "windows side by side in a few rows": Convolution(
        BY_WEIGHT, (Spatial(60, 8, 1, 0, 4), Spatial(79, 8, 2, 0, 3)), 1, 2, 6, 1
    ),
    "three rows for each of the operand, many of which overlap": Convolution(
        TRANSPOSED, (Spatial(20, 9, 3, 0, 3),), 2, 1, 3, 2
    ),
    "three rows, of which a third is one": Convolution(FORWARD, (Spatial(14, 3, 4),), 2, 1, 3, 2),
}
"""Of which a class says too little: their rules are found with all numbers that they state. Of the last, rows of the operand and of
the kernel could be cut together if there were only as many rows as the dilation."""


@pytest.mark.parametrize("name", also_long(HARD, [*HARD][::2]))
def test_ops_that_are_a_class_of_their_own(name: str) -> None:
    rule = rule_that_holds(HARD[name])
    assert not uncut(HARD[name], rule)
    assert channel_factors(rule) == HARD[name].channel_factors()


ONNX: dict[str, Convolution] = {
    "up, side by side": Convolution(TRANSPOSED, (Spatial(12, 2, 2),) * 2, 4, 1, 64, 32, bias=True),
    "up, overlapping": Convolution(TRANSPOSED, (Spatial(12, 4, 2, 1),) * 2, 4, 1, 256, 128, bias=True),
    "up, with an output padding": Convolution(TRANSPOSED, (Spatial(12, 3, 2, 1, 1, 1),) * 2, 4, 1, 8, 16, bias=True),
    "groups": Convolution(TRANSPOSED, (Spatial(12, 3, 2),) * 2, 4, 2, 3, 2, bias=True),
    "a dilation that its padding balances": Convolution(
        TRANSPOSED, (Spatial(10, 9, 4, 3), Spatial(24, 3, 8, 2, 2, 4)), 2, 1, 3, 2, bias=True
    ),
    "as many groups as channels": Convolution(TRANSPOSED, (Spatial(12, 3, 2),) * 2, 4, 8, 1, 1, bias=True),
}
"""Transposed convolutions of ONNX, as networks for segmentation have them."""


@pytest.mark.parametrize("name", also_long(ONNX, [*ONNX][::2]))
def test_transposed_convolutions_of_onnx(name: str) -> None:
    rule = rule_that_holds(ONNX[name], ONNX[name].onnx_operation())
    assert not uncut(ONNX[name], rule)
    assert channel_factors(rule) == ONNX[name].channel_factors()


def channel_factors(rule: Rule) -> int:
    """How many factors the batch and channels have."""
    return len({factor for dims in rule.inputs for dim in dims[:2] for factor in dim.factors})


def uncut(convolution: Convolution, rule: Rule) -> list[Spatial]:
    """The spatial dims that can be cut and have no factor."""
    dims = rule.inputs[1 if convolution.kind == BY_WEIGHT else 0][2:]
    both = zip(convolution.spatial, dims, strict=True)
    return [each for each, dim in both if dim.factor is None and can_be_cut(each, convolution.kind)]


def test_rows_of_drawn_convolutions() -> None:
    rng = np.random.default_rng(2)
    for _ in range(3):
        convolution = drawn(rng)
        assert not uncut(convolution, rule_that_holds(convolution)), convolution


@pytest.mark.long
def test_rows_of_many_drawn_convolutions() -> None:
    """All rules hold, and every dim has one, channels in and of groups too."""
    rng, dims = np.random.default_rng(3), 0
    for _ in range(150):
        convolution = drawn(rng)
        dims += sum(can_be_cut(each, convolution.kind) for each in convolution.spatial)
        rule = rule_that_holds(convolution)
        assert not uncut(convolution, rule), convolution
        assert channel_factors(rule) == convolution.channel_factors(), convolution
    assert dims > 150


@pytest.mark.long
def test_many_drawn_convolutions_of_onnx() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        convolution = drawn(rng, ONNX_KINDS)
        rule = rule_that_holds(convolution, convolution.onnx_operation())
        assert not uncut(convolution, rule), convolution
        assert channel_factors(rule) == convolution.channel_factors(), convolution
