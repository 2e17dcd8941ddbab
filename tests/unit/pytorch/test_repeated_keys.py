"""Keys and values that a model repeats for groups of query heads are not in its attention operations, forward and backward, with equal values."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import mse_loss, scaled_dot_product_attention
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.attention import AttentionOp
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.equivalence import verify
from distir.interpreters.moves import shape
from distir.passes.recognise_attention import RecogniseAttentionPass

BATCH, TOKENS, DEPTH = 2, 6, 4
REPEATS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "interleaved": lambda x, n: x.repeat_interleave(n, 1),
    "expanded": lambda x, n: x[:, :, None].expand(-1, -1, n, -1, -1).flatten(1, 2),
    "tiled": lambda x, n: x.repeat(1, n, 1, 1),
    "tiled by expand": lambda x, n: x[:, None].expand(-1, n, -1, -1, -1).flatten(1, 2),
}


class Model(nn.Module):
    def __init__(self, heads: int, group: int, repeat: str, mask: str):
        super().__init__()
        self.heads, self.group, self.repeat, self.mask = heads, group, REPEATS[repeat], mask
        self.q = nn.Linear(DEPTH, heads * group * DEPTH)
        self.k, self.v = nn.Linear(DEPTH, heads * DEPTH), nn.Linear(DEPTH, heads * DEPTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (made(x).unflatten(-1, (-1, DEPTH)).transpose(1, 2) for made in (self.q, self.k, self.v))
        k = (
            k * torch.linspace(0.5, 2, TOKENS)[:, None]
        )  # as positions are put in: of another element type in mixed precision
        k, v = (self.repeat(each, self.group) for each in (k, v))
        rows = torch.arange(TOKENS)
        if self.mask == "spelled":
            scores = (q @ k.mT * 0.3).masked_fill(rows > rows[:, None], -torch.inf)
            return torch.softmax(scores, -1) @ v
        mask = None
        if self.mask == "of heads":
            slopes = torch.arange(1.0, q.shape[1] + 1)[:, None, None]
            mask = -slopes * (rows[:, None] - rows).abs()
        elif self.mask == "of rows":
            mask = rows[:, None] + 2 >= rows
        return scaled_dot_product_attention(q, k, v, mask, is_causal=self.mask == "causal")


def attentions(module: ModuleOp) -> list[AttentionOp]:
    return [op for op in module.walk() if isinstance(op, AttentionOp)]


def step_of(model: Model, autocast: torch.dtype | None = None) -> ModuleOp:
    x = torch.ones(BATCH, TOKENS, DEPTH)
    target = torch.ones(BATCH, model.heads * model.group, TOKENS, DEPTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return import_step(training_step(model, mse_loss, optimizer, example_args=(x, target), autocast=autocast))


def grouped(module: ModuleOp) -> ModuleOp:
    found = module.clone()
    RecogniseAttentionPass().apply(Context(), found)
    found.verify()
    return found


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(2, 3),
    st.sampled_from(list(REPEATS)),
    st.sampled_from(["none", "causal", "of heads", "of rows", "spelled"]),
)
def test_keys_are_those_of_their_own_heads(heads: int, group: int, repeat: str, mask: str) -> None:
    torch.manual_seed(0)
    module = step_of(Model(heads, group, repeat, mask))
    found = grouped(module)
    ops = attentions(found)
    assert len(ops) == 2
    for op in ops:
        assert [n for n in shape(op.key) if n != 1][-3:-2] in ([heads], [BATCH])
        assert torch.Size(shape(op.key)).numel() == BATCH * heads * TOKENS * DEPTH
    assert verify(module, found).holds


def test_conversions_between_stay() -> None:
    """In mixed precision keys are converted after they are repeated, and gradients before they are summed."""
    found = grouped(step_of(Model(2, 3, "interleaved", "causal"), torch.bfloat16))
    for op in attentions(found):
        assert torch.Size(shape(op.key)).numel() == BATCH * 2 * TOKENS * DEPTH
        assert str(op.key.type).endswith("xbf16>")


def by_keys(x: Tensor) -> Tensor:
    """Keys alone are repeated, not values."""
    k = x[:, None].expand(-1, 3, -1, -1)
    return scaled_dot_product_attention(k * 2, k, k * torch.arange(3.0)[:, None, None])


def by_gradient(x: Tensor) -> Tensor:
    """What is made of the gradient by keys is no sum over heads."""
    k = x[:, None].expand(-1, 3, -1, -1).detach().requires_grad_()
    return torch.autograd.grad(scaled_dot_product_attention(k * 2, k, k * 1).square().sum(), k)[0]


def of_itself(x: Tensor) -> Tensor:
    """Queries are the value that keys are."""
    k = x[:, None].expand(-1, 3, -1, -1)
    return scaled_dot_product_attention(k, k, k, is_causal=True)


def gradient_of_itself(x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(of_itself(x).square().sum(), x)[0]


def grouped_already(x: Tensor) -> Tensor:
    """Two heads of keys, which are one, for three of queries each."""
    k, q = x[:, None].expand(-1, 2, -1, -1), torch.stack([x * i for i in range(1, 7)], 1)
    return scaled_dot_product_attention(q, k, k * 2, enable_gqa=True)


@pytest.mark.parametrize("function", [by_keys, by_gradient, of_itself, gradient_of_itself, grouped_already])
def test_other_uses_of_repeated_keys_stay_equal(function: Callable[[Tensor], Tensor]) -> None:
    module = import_step(function, (torch.ones(BATCH, TOKENS, DEPTH),))
    assert verify(module, grouped(module)).holds
