"""The activations of a GPT's layer against Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198): to the byte,
with every difference explained by the tensor that it is."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout, gelu
from xdsl.context import Context

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.simulate import summarize
from distir.passes.outline_repeats import OutlineRepeatsPass
from distir.passes.recompute_activations import RecomputeActivationsPass
from tests.long_cases import also_long

S, B, H, A, TOKENS = 32, 64, 64, 4, 16


class Layer(nn.Module):
    """As in the paper's figure 2, with a matrix for each of queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(H) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(H, H) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(H, H), nn.Linear(H, 4 * H), nn.Linear(4 * H, H)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        q, k, v = (f(y).unflatten(-1, (A, -1)).transpose(1, 2) for f in self.qkv)
        seen = dropout((q @ k.transpose(-1, -2)).softmax(-1), 0.1) @ v
        x = x + dropout(self.out(seen.transpose(1, 2).flatten(2)), 0.1)
        return x + dropout(self.down(gelu(self.up(self.norms[1](x)))), 0.1)


def peak_bytes(layers: int, policy: str) -> int:
    """Of a step in 16 bits, with stochastic gradient descent, on one device."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(TOKENS, H), *(Layer() for _ in range(layers)), nn.Linear(H, TOKENS)).half()
        tokens = torch.ones(B, S, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = training_step(model, lambda x, y: cross_entropy(x.flatten(0, 1), y.flatten()), optimizer)
    module = import_step(step, (tokens, tokens))
    OutlineRepeatsPass().apply(Context(), module)
    RecomputeActivationsPass(policy).apply(Context(), module)
    return summarize(module, "dgx-a100").peak_memory_bytes[0]


@pytest.mark.parametrize("policy", also_long(["none", "full"], ["full"]))
def test_a_layer_holds_what_the_formula_says(policy: str):
    """Equation 1: sbh (34 + 5as / h), masks of dropout in bytes. Here their masks are numbers of the activations' type, scaled: sbh more for each of the
    two on [s, b, h], ass b more for the one on the scores. The mean and the deviation of each norm's rows, which the paper leaves out, are 2 numbers a row.
    Under `full`: 2sbh, the layer's input, and the keys of its three draws."""
    parameters = 2 * (12 * H * H + 13 * H)
    held = (peak_bytes(5, policy) - peak_bytes(3, policy)) // 2 - parameters
    formula = S * B * H * 34 + 5 * A * S * S * B
    masks, norms, keys = 2 * S * B * H + A * S * S * B, 2 * 2 * 2 * S * B, 3 * 8
    assert held == (formula + masks + norms if policy == "none" else 2 * S * B * H + keys)
