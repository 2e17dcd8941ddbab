"""A GPT training step in PyTorch (pre-norm blocks, tied to nothing but torch), for benchmarks: MetaDist's first workload. Its size
comes from the caller; the parameters are on the meta device, since no benchmark executes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


def gpt_step(
    layers: int, width: int, heads: int, vocabulary: int, batch: int, sequence: int, training: bool = True
) -> ModuleOp:
    """Forward, loss, backward and SGD of a GPT as a level 1 program, or only the forward part."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    from benchmarks.training_workloads import imported

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.norm_1(x)).split(width, dim=-1)
            q, k, v = (t.unflatten(-1, (heads, width // heads)).transpose(1, 2) for t in (q, k, v))
            weights = torch.softmax(q @ k.transpose(-1, -2) / (width // heads) ** 0.5, -1)
            x = x + self.projection((weights @ v).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.norm_2(x))))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(torch.zeros(batch, sequence, dtype=torch.long) for _ in range(2))

    return imported(Gpt, loss, inputs, training)
