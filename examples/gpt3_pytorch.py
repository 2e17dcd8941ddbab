"""GPT-3 175B's training step in PyTorch, in mixed precision: bf16 beside float32 weights and AdamW. No weight is made.

distir import examples.gpt3_pytorch:step -o out/gpt3.mlir
distir search out/gpt3.mlir --machine dgx-h100 --devices 1024 --microbatches 6,12,24,48,96,192

Shapes: Brown et al., 2020, table 2.1; the global batch of 1536 sequences of 2048 tokens and the vocabulary of 51,200 are
Narayanan et al.'s, 2021, who trained it on 1,024 A100s with T = 8, P = 16 and D = 8; as they did, each block keeps its input and computes the rest anew in
its backward pass.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu
from torch.utils.checkpoint import checkpoint

from distir.frontends.pytorch import TrainingStep, training_step

LAYERS, WIDTH, HEADS = 96, 12288, 96
VOCABULARY, SEQUENCE, BATCH = 51200, 2048, 1536


class Block(nn.Module):
    """Causal attention and a feed-forward block, each behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """`x` is [batch, sequence, width]; `hidden` [sequence, sequence] is true where a position does not see another."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm_1(x)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        seen = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        x = x + self.projection(seen.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norm_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Tokens to logits; the embedding of the tokens is the last layer's weight too."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, sequence: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [batch, sequence, vocabulary] of tokens [batch, sequence]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = positions[:, None] < positions
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = checkpoint(block, x, hidden, use_reentrant=False, preserve_rng_state=False)
        return self.head(self.norm(x))


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over tokens."""
    return cross_entropy(logits.flatten(0, 1), labels.flatten())


def step(layers: int = LAYERS, batch: int = BATCH) -> TrainingStep:
    """The step of the paper's model, or of one with fewer layers."""
    with torch.device("meta"):
        model = GPT(layers, WIDTH, HEADS, VOCABULARY, SEQUENCE)
        example = torch.ones(batch, SEQUENCE, dtype=torch.long), torch.ones(batch, SEQUENCE, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-5, betas=(0.9, 0.95), weight_decay=0.1)
    return training_step(model, loss, optimizer, autocast=torch.bfloat16, example_args=example)
