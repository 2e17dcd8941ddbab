"""Llama 3 8B's training step in PyTorch, in mixed precision: bf16 beside float32 weights and AdamW. No weight is made.

distir import examples.llama3_pytorch:step -o out/llama3.mlir
distir search out/llama3.mlir --machine dgx-h100 --devices 64 --sharding ilp

Shapes: Grattafiori et al., "The Llama 3 Herd of Models", 2024, table 3; 64 sequences of 8,192 tokens are what torchtitan trains it with on
64 H100s (Liang et al., 2024), one sequence on each; each block keeps its input and computes the rest anew in its backward pass.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

from distir.frontends.pytorch import TrainingStep, training_step

LAYERS, WIDTH, HEADS, GROUPS, HIDDEN = 32, 4096, 32, 8, 14336
VOCABULARY, SEQUENCE, BATCH = 128256, 8192, 64


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        scale = x.float().square().mean(-1, keepdim=True).add(1e-5).rsqrt()
        return (x.float() * scale).type_as(x) * self.weight


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys, turned by their positions."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Block(nn.Module):
    """Causal attention whose groups of queries share a key and a value, and a gated feed-forward block."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int, fused: bool) -> None:
        super().__init__()
        self.size, self.shared, self.fused = width // heads, heads // groups, fused
        self.norm_1, self.norm_2 = Norm(width), Norm(width)
        self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """`x` is [batch, sequence, width]."""
        h = self.norm_1(x)
        q, k, v = (linear(h).unflatten(-1, (-1, self.size)).transpose(1, 2) for linear in (self.q, self.k, self.v))
        seen = self.attention(rotated(q, cos, sin), rotated(k, cos, sin), v)
        x = x + self.o(seen.transpose(1, 2).flatten(2))
        h = self.norm_2(x)
        return x + self.down(silu(self.gate(h)) * self.up(h))

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Fused, or spelled out."""
        k, v = (each.repeat_interleave(self.shared, 1) for each in (k, v))
        if self.fused:
            return scaled_dot_product_attention(q.type_as(v), k.type_as(v), v, is_causal=True)
        positions = torch.arange(q.shape[2], device=q.device)
        scores = (q @ k.transpose(-1, -2)) * self.size**-0.5
        return scores.masked_fill(positions[:, None] < positions, float("-inf")).softmax(-1) @ v


class Llama(nn.Module):
    """Tokens to logits."""

    def __init__(
        self, layers: int, width: int, heads: int, groups: int, hidden: int, vocabulary: int, fused: bool
    ) -> None:
        super().__init__()
        self.size = width // heads
        self.tokens, self.norm = nn.Embedding(vocabulary, width), Norm(width)
        self.blocks = nn.ModuleList(Block(width, heads, groups, hidden, fused) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [batch, sequence, vocabulary] of tokens [batch, sequence]."""
        frequencies = 500000.0 ** (-torch.arange(0, self.size, 2, device=tokens.device) / self.size)
        angles = torch.arange(tokens.shape[1], device=tokens.device)[:, None] * frequencies
        angles = torch.cat((angles, angles), -1)
        x, cos, sin = self.tokens(tokens), angles.cos(), angles.sin()
        for block in self.blocks:
            x = checkpoint(block, x, cos, sin, use_reentrant=False, preserve_rng_state=False)
        return self.head(self.norm(x))


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over tokens."""
    return cross_entropy(logits.flatten(0, 1), labels.flatten())


def step(layers: int = LAYERS, batch: int = BATCH, fused: bool = True) -> TrainingStep:
    """The step of the paper's model, or of one with fewer layers, or with attention spelled out."""
    with torch.device("meta"):
        model = Llama(layers, WIDTH, HEADS, GROUPS, HIDDEN, VOCABULARY, fused)
        example = torch.ones(batch, SEQUENCE, dtype=torch.long), torch.ones(batch, SEQUENCE, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    return training_step(model, loss, optimizer, autocast=torch.bfloat16, example_args=example)
