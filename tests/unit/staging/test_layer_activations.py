"""The activations of a GPT's layer against Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198): to the byte,
with every difference explained by the tensor that it is."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout, gelu
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.simulate import summarize
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.outline_repeats import OutlineRepeatsPass
from distir.passes.recompute_activations import RecomputeActivationsPass
from tests.long_cases import also_long

S, B, H, A, TOKENS = 32, 64, 64, 4, 16


class Core(nn.Module):
    """What selective recomputation repeats (section 5)."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return dropout((q @ k.transpose(-1, -2)).softmax(-1), 0.1) @ v


class Layer(nn.Module):
    """As in the paper's figure 2, with a matrix for each of queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(H) for _ in range(2))
        self.core = Core()
        self.qkv = nn.ModuleList(nn.Linear(H, H) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(H, H), nn.Linear(H, 4 * H), nn.Linear(4 * H, H)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        q, k, v = (f(y).unflatten(-1, (A, -1)).transpose(1, 2) for f in self.qkv)
        seen = self.core(q, k, v)
        x = x + dropout(self.out(seen.transpose(1, 2).flatten(2)), 0.1)
        return x + dropout(self.down(gelu(self.up(self.norms[1](x)))), 0.1)


def step(layers: int) -> ModuleOp:
    """In 16 bits, with stochastic gradient descent."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(TOKENS, H), *(Layer() for _ in range(layers)), nn.Linear(H, TOKENS)).half()
        tokens = torch.ones(B, S, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = training_step(model, lambda x, y: cross_entropy(x.flatten(0, 1), y.flatten()), optimizer)
    return import_step(made, (tokens, tokens))


def peak_bytes(layers: int, policy: str, ranks: int) -> int:
    """Of a step on one device, or on that of so many tensor ranks which holds most."""
    module = step(layers)
    if ranks == 1:
        OutlineRepeatsPass().apply(Context(), module)
        RecomputeActivationsPass(policy).apply(Context(), module)
    else:
        megatron = DtpParallelizePass(tp=ranks, sharding="ilp", restrict="tp=model", divide=True, recompute=policy)
        megatron.apply(Context(), module)
    return max(summarize(module, "dgx-a100").peak_memory_bytes.values())


CASES = [("none", 1), ("full", 1), ("core", 1), ("none", 2), ("core", 2)]


@pytest.mark.parametrize(("policy", "ranks"), also_long(CASES, [("full", 1)], several=True))
def test_a_layer_holds_what_the_formulas_say(policy: str, ranks: int):
    """Equation 1: sbh (34 + 5as / h), masks of dropout in bytes, and equation 2, of t tensor ranks: sbh (10 + 24 / t + 5as / (ht)). Where the attention is
    repeated, 5as / h is not there (section 5). Here their masks are numbers of the activations' type, scaled: sbh more for each of the two on [s, b, h],
    ass b more for the one on the scores. The mean and the deviation of each norm's rows, which the paper leaves out, are 2 numbers a row; so are the keys of
    draws that are repeated. Under `full`: 2sbh, the layer's input."""
    whole = 2 * (6 * H)  # parameters that no rank has a part of: norms, and biases of what is summed
    parameters = 2 * (12 * H * H + 7 * H) // ranks + whole
    held = (peak_bytes(5, policy, ranks) - peak_bytes(3, policy, ranks)) // 2 - parameters
    scores = (5 + 1) * A * S * S * B // ranks
    layer, masks, norms = S * B * H * (10 + 24 // ranks), 2 * S * B * H, 2 * 2 * 2 * S * B
    assert (
        held
        == {
            "none": layer + scores + masks + norms,
            "core": layer + masks + norms + 8,
            "full": 2 * S * B * H + 3 * 8,
        }[policy]
    )
