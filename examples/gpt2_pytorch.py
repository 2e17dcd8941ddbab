"""A small GPT-2 in PyTorch that learns the bytes of a text (`text/`), trained with AdamW. Its program holds its first weights.

distir import examples.gpt2_pytorch:step -o out/gpt2.mlir
distir search out/gpt2.mlir --machine local-cpu --devices 2 -o out/plan.mlir
distir train out/plan.mlir --data examples/text/shakespeare.txt --steps 200 --checkpoint out/gpt2
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu

from distir.frontends.pytorch import TrainingStep, training_step

LAYERS, WIDTH, HEADS = 2, 64, 4
VOCABULARY, SEQUENCE, BATCH = 256, 64, 16


class Block(nn.Module):
    """Causal attention and a feed-forward block, each behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm_1(x)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        seen = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        x = x + self.projection(seen.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norm_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Logits of the next byte at every position of [batch, sequence] bytes."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, sequence: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        sequence = tokens.shape[1]
        hidden = torch.ones(sequence, sequence, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.tokens(tokens) + self.positions.weight[:sequence]
        for block in self.blocks:
            x = block(x, hidden)
        return self.head(self.norm(x))


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits.flatten(0, 1), labels.flatten())


def make() -> GPT2:
    torch.manual_seed(0)
    return GPT2(LAYERS, WIDTH, HEADS, VOCABULARY, SEQUENCE)


def step() -> TrainingStep:
    """A batch forward and backward, and AdamW."""
    model = make()
    example = torch.zeros(BATCH, SEQUENCE, dtype=torch.long), torch.zeros(BATCH, SEQUENCE, dtype=torch.long)
    return training_step(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-3), example_args=example)
