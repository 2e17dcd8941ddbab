"""Gradient operators: whether their operands fit together is asked of the operator that they are the gradient of, and so the
rules of a convolution's gradient are found. By hand: y = conv(x, w) sums over input channels and is independent in batch
and output channels, so its gradient is the same einsum with the operands' roles exchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.aten.gradients import gradient_fits
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.reference import run
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.long_cases import also_long
from tests.unit.aten_instances import Call, operation
from tests.unit.shard_executor import violations

aten = torch.ops.aten


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def convolved(gradient: torch.Tensor, bias: int = 5) -> bool | None:
    x, w = meta(4, 3, 8, 8), meta(5, 3, 3, 3)
    options = ([bias], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])
    return gradient_fits(aten.convolution_backward.default, (gradient, x, w, *options), {})


def test_a_gradient_has_the_shape_of_what_it_is_the_gradient_of() -> None:
    assert convolved(meta(4, 5, 4, 4))
    assert convolved(meta(4, 5, 4, 4), bias=0)
    assert convolved(meta(2, 5, 4, 4)) is False
    assert convolved(meta(4, 5, 8, 4)) is False


def test_kept_results_have_the_shapes_that_the_operator_gave() -> None:
    window = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    pooled = aten.max_pool2d_with_indices_backward.default
    assert gradient_fits(pooled, (meta(4, 3, 4, 4), meta(4, 3, 8, 8), *window, meta(4, 3, 4, 4)), {})
    assert gradient_fits(pooled, (meta(4, 3, 4, 4), meta(4, 3, 8, 8), *window, meta(2, 3, 4, 4)), {}) is False


def test_nothing_is_said_of_what_has_no_operator_of_its_name() -> None:
    assert gradient_fits(aten.add.Tensor, (meta(4), meta(4)), {}) is None
    assert gradient_fits(aten.embedding_dense_backward.default, (meta(4, 2), meta(4), 8, -1, False), {}) is None


def test_the_sizes_of_a_view_say_what_it_took() -> None:
    assert gradient_fits(aten.slice_backward.default, (meta(4), [8], 0, 0, 4, 1), {})
    assert gradient_fits(aten.slice_backward.default, (meta(2), [8], 0, 0, 4, 1), {}) is False


CONVOLUTIONS: list[tuple[str, dict[str, Any], int, str, str]] = [
    (
        "3x3",
        {"kernel_size": 3, "padding": 1},
        9,
        "[S1, S2, S4(halo = 1), S5(halo = 1)], [S2, S3, _, _] -> {S1: gather(0), S2: reduce(sum), S3: gather(1), "
        "S4: gather(2, halo = -1), S5: gather(3, halo = -1)}",
        "[S1, S2, S4(halo = 1, fill = zero), S5(halo = 1, fill = zero)], [S1, S3, S4(halo = 1), S5(halo = 1)], "
        "[S2, S3, _, _] -> {S1: W, S2: gather(0), S3: gather(1), S4: W, S5: W}",
    ),
    (
        "3x3, stride 2",
        {"kernel_size": 3, "padding": 1, "stride": 2, "bias": False},
        8,
        "[S1, S2, S4(halo = [0, 1]), S5(halo = [0, 1])], [S2, S3, _, _] -> {S1: gather(0), S2: reduce(sum), "
        "S3: gather(1), S4: gather(2, halo = [0, -1], stride = 2), S5: gather(3, halo = [0, -1], stride = 2)}",
        "[S1, S2, S4(halo = 1, fill = zero), S5(halo = 1, fill = zero)], [S1, S3, S4(halo = 2, stride = 2), "
        "S5(halo = 2, stride = 2)], [S2, S3, _, _] -> {S1: W, S2: gather(0), S3: gather(1), S4: W, S5: W}",
    ),
    (
        "1x1",
        {"kernel_size": 1},
        7,
        "[S1, S2, S3, S4], [S2, S5, _, _] -> {S1: gather(0), S2: reduce(sum), S3: gather(2), S4: gather(3), S5: gather(1)}",
        "[S1, S2, S3, S4], [S1, S5, S3, S4], [S2, S5, _, _] -> {S1: W, S2: gather(0), S3: W, S4: W, S5: gather(1)}",
    ),
    (
        "patches",
        {"kernel_size": 2, "stride": 2},
        12,
        "[S1, S2, S3, S4], [S2, S5, S6, S7] -> {S1: gather(0), S2: reduce(sum), S3: gather(2), S4: gather(3), S5: gather(1), "
        "S6: gather(2, outer = S3), S7: gather(3, outer = S4)}, sizes = {stride[0]: S6, stride[1]: S7}",
        "[S1, S2, S3, S4], [S1, S5, S3, S4], [S2, S5, _, _] -> {S1: W, S2: gather(0), S3: W, S4: W, S5: gather(1)}",
    ),
]
"""Of the gradient by the input and by the weight (where W is the sum): batch, output channels, input channels, rows and columns. By
hand: a row of the input is under the kernel's three rows of the result, and under two or one of them where it moves on by two. Shards of
the weight's gradient that have rows of the result's read the input's beside them too. Patches need no
neighbours, and a part of the kernel gives a part of every patch."""


def operations(name: str, layers: list[nn.Module], rows: int, outputs: int) -> list[Operation]:
    """Those of this name in a step that trains a convolution of 6 channels, then the layers; gradients are the last first."""
    model = nn.Sequential(nn.Conv2d(1, 6, 1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    step = training_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    module = import_step(step, (torch.randn(8, 1, rows, rows), torch.randn(8, outputs)))
    functions = [f for f in module.ops if isinstance(f, FuncOp)]
    return [op for f in functions for op in f.body.block.ops if op.name == name]


def rule_that_holds(op: Operation) -> str:
    """The rule as text, after it has held on random operands."""
    rule = Discovery(InterpreterDomains()).rule(op)
    rng = np.random.default_rng(0)
    shapes = [operand.type.get_shape() for operand in op.operands]  # pyright: ignore
    operands = [rng.standard_normal(shape) for shape in shapes]
    for i, array in InterpreterDomains().kept(op, operands).items():
        operands[i] = array
    tried = violations(op, rule, operands, rng)
    assert not tried.violations
    assert tried.factors + tried.windows >= 4, rule
    return str(rule)


@pytest.mark.parametrize(
    ("name", "options", "rows", "by_input", "by_weight"),
    also_long(CONVOLUTIONS, CONVOLUTIONS[::2], several=True),
    ids=[c[0] for c in CONVOLUTIONS],
)
def test_all_ways_to_cut_the_gradients_of_a_convolution(
    name: str, options: dict[str, Any], rows: int, by_input: str, by_weight: str
) -> None:
    """The import has an operation for each: the transposed convolution, one for the weight, and a sum for the bias."""
    layers: list[nn.Module] = [nn.Conv2d(6, 10, **options)]
    by_the_input = [op for op in operations("aten.convolution", layers, rows, 10) if "transposed = true" in str(op)][-1]
    assert by_input in rule_that_holds(by_the_input)
    assert by_weight.replace("W", "[identity, reduce(sum), identity]").replace(
        "gather(0)", "[identity, gather(0), identity]"
    ).replace("gather(1)", "[identity, gather(1), identity]") in rule_that_holds(
        operations("aten.convolution_backward", layers, rows, 10)[0]
    )


def test_the_gradient_of_a_view_has_its_sizes() -> None:
    """Of `x[:, 0]`: batch and features are cut in the gradient and in the sizes of what it is the gradient of."""

    class First(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x)[:, 0]

    step = training_step(
        nn.Sequential(nn.Linear(6, 6), First()), nn.functional.mse_loss, lambda p: torch.optim.SGD(p, lr=0.1)
    )
    module = import_step(step, (torch.randn(4, 5, 6), torch.randn(4, 6)))
    op = next(op for op in module.walk() if op.name == "aten.select_backward")
    assert "[S1, S2] -> {S1: gather(0), S2: gather(2)}, sizes = {input_sizes[0]: S1, input_sizes[2]: S2}" in str(
        Discovery(InterpreterDomains()).rule(op)
    )


def test_groups_are_cut_together() -> None:
    """Of a grouped convolution and its gradient, groups are independent: every channel dim and the number of groups. Within
    each, input channels are summed over; a bias is then an addend, of which one shard has all."""
    grouped, depthwise = nn.Conv2d(6, 12, 3, groups=3), nn.Conv2d(6, 6, 3, groups=6, bias=False)
    forward = operations("aten.convolution", [grouped], 6, 12)[1]
    text = rule_that_holds(forward)
    assert (
        "[S1, S2 * S3, S5(halo = [0, 2]), S6(halo = [0, 2])], [S2 * S4, S3, _, _], [S2 * S4] -> {S1: gather(0), "
        "S2: gather(1), S3: reduce(sum), S4: gather(1, outer = S2)" in text
    )
    assert "sizes = {groups[0]: S2}" in text
    assert "sum: S3, 2 -> 0" in text
    gradient = operations("aten.convolution_backward", [depthwise], 8, 6)[0]
    text = rule_that_holds(gradient)
    assert "S2: [identity, gather(0), identity], S3: [identity, reduce(sum), identity]" in text
    assert "sizes = {groups[0]: S2}" in text
    assert "S3(halo = [0, 2])" in text


@pytest.mark.parametrize(
    ("batch", "channels", "rows", "groups"),
    also_long([(3, 16, 9, 4), (6, 12, 12, 4), (4, 8, 4, 4), (6, 6, 6, 6)], [(6, 6, 6, 6)], several=True),
    ids=str,
)
def test_the_groups_of_a_norm(batch: int, channels: int, rows: int, groups: int) -> None:
    """Whichever of samples, channels, rows and groups are equal in number: what the operator states of them follows the cut."""
    x, kept, vector = torch.ones(batch, channels, rows, rows), torch.ones(batch, groups), torch.ones(channels)
    numbers = (batch, channels, rows * rows, groups)
    forward, _ = operation(Call(aten.native_group_norm.default, (x, vector, vector + 1, *numbers, 1e-5), {}))
    gradient = (x, x + 1, kept, kept + 1, vector, *numbers, [True] * 3)
    backward, _ = operation(Call(aten.native_group_norm_backward.default, gradient, {}))
    sizes = "sizes = {N[0]: S1, C[0]: S2, group[0]: S2}"
    assert "S2: [gather(1), gather(1), gather(1)]}, " + sizes in rule_that_holds(forward)
    assert "S1: [gather(0), reduce(sum), reduce(sum)], S2: [gather(1), gather(0), gather(0)]}, " + sizes in (
        rule_that_holds(backward)
    )


class WithPlaces(nn.Module):
    """A pooling whose places something else takes, so that they are a value of the program."""

    def __init__(self, **window: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(**window, return_indices=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maxima, places = self.pool(x)
        return maxima * places


STRIDED = {"kernel_size": 3, "stride": 2, "padding": 1}


@pytest.mark.parametrize("window", also_long([{"kernel_size": 2}, STRIDED], [STRIDED]), ids=str)
def test_the_places_of_maxima_are_those_that_pooling_gave(window: dict[str, int]) -> None:
    """No kernel checks them: any others would be written outside of the result."""
    op = operations("aten.max_pool2d_with_indices_backward", [WithPlaces(**window)], 6, 6)[0]
    assert "[S1, S2, _, _], [S1, S2, _, _], [S1, S2, _, _] -> {S1: gather(0), S2: gather(1)}" in rule_that_holds(op)


def test_rows_of_an_embedding_with_a_padding_index_are_cut() -> None:
    """The gradient of the padding's row is zero, and is so whichever shard has the row."""
    embedding = nn.Embedding(12, 6, padding_idx=3)
    step = training_step(embedding, lambda y, t: (y * t).sum(), torch.optim.SGD(embedding.parameters(), lr=1.0))
    indices = torch.tensor([[3, 0, 11], [5, 3, 2], [3, 9, 9], [1, 6, 3]])
    module = import_step(step, (indices, torch.randn(4, 3, 6)))
    (gradient,) = (op for op in module.walk() if op.name == "aten.embedding_dense_backward")
    rule = Discovery(InterpreterDomains()).rule(gradient)
    assert "S4: gather(0)}, sizes = {num_weights[0]: S4}" in str(rule)
    assert "offset = S4(ignored = -1)" in str(rule)
    given = {"input": indices.numpy(), "label": np.ones((4, 3, 6)), "weight": np.zeros((12, 6))}
    found = run(module, {p.name: given[p.name] for p in arguments_of(entry_function(module))}, dtype=np.float64)
    counts = [1, 1, 1, 0, 0, 1, 1, 0, 0, 2, 0, 1]
    np.testing.assert_array_equal(found["weight"], -np.outer(counts, np.ones(6)))
