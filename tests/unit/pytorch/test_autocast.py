"""Steps under autocast compute in the element types that CUDA's autocast gives, whatever the device of the trace."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distir.frontends.pytorch import autocast, import_step, training_step


def test_lists_are_those_of_this_torch() -> None:
    listed = {*autocast.SINGLE, *autocast.SINGLE_UNLESS_SAID, *autocast.WIDEST, *autocast.LOWER, *autocast.OTHERS}
    assert listed == autocast._known_to("AutocastCUDA")  # pyright: ignore[reportPrivateUsage]


HALF, SINGLE = "bf16", "f32"
CASES: list[tuple[str, Any, str]] = [
    ("softmax", lambda x: torch.softmax(x, -1), SINGLE),
    ("log_softmax", lambda x: F.log_softmax(x, -1), SINGLE),
    ("cross_entropy", lambda x: F.cross_entropy(x, torch.arange(8)), SINGLE),
    ("layer_norm", lambda x: F.layer_norm(x, [8]), SINGLE),
    ("pow", lambda x: x.pow(2), SINGLE),
    ("rsqrt", lambda x: x.rsqrt(), SINGLE),
    ("exp", lambda x: x.exp(), SINGLE),
    ("sum", lambda x: x.sum(-1), SINGLE),
    ("sum to a type", lambda x: x.sum(-1, dtype=torch.bfloat16), HALF),
    ("mean", lambda x: x.mean(-1), HALF),
    ("gelu", F.gelu, HALF),
    ("matmul", lambda x: x @ x.mT, HALF),
    ("cat", lambda x: torch.cat([x, x]), HALF),
]


@pytest.mark.parametrize(("name", "function", "expected"), CASES, ids=[case[0] for case in CASES])
def test_result_types(name: str, function: Any, expected: str) -> None:
    """On a bf16 value, as a matmul under autocast gives it."""

    def step(x: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return function(x @ x)

    module = import_step(step, [torch.randn(8, 8)])
    (result,) = module.body.block.first_op.function_type.outputs  # pyright: ignore
    assert str(result.element_type) == expected  # pyright: ignore


def test_the_cpu_s_own_autocast_is_as_it_was() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        before = torch.softmax(torch.ones(4, 4, dtype=torch.bfloat16), -1).dtype
    test_result_types(*CASES[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.softmax(torch.ones(4, 4, dtype=torch.bfloat16), -1).dtype == before == torch.bfloat16


def test_a_parameter_that_is_used_twice_is_cast_once() -> None:
    layer = nn.Linear(8, 8, bias=False)
    twice = nn.Sequential(layer, layer)
    step = training_step(twice, F.mse_loss, torch.optim.SGD(twice.parameters(), 0.1), autocast=torch.bfloat16)
    module = import_step(step, [torch.randn(8, 8, dtype=torch.bfloat16), torch.randn(8, 8)])
    *_, weight = module.body.block.first_op.body.block.args  # pyright: ignore
    assert sum(use.operation.name == "aten._to_copy" for use in weight.uses) == 1  # pyright: ignore
