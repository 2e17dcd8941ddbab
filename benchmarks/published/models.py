"""The training steps of published runs, in plain PyTorch on the meta device: sizes go in, a level 1 program comes out.

`gpt_step` is Megatron-LM's GPT (Shoeybi et al., 2019; Narayanan et al., 2021) as it ran in 2020: half precision with master weights in
the optimizer, attention spelled out, dropout, every layer recomputed in the backward pass. `llama_step` is torchtitan's Llama 3
(2024): bf16 under FSDP's mixed precision, `scaled_dot_product_attention`, selective recomputation by operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step, written_step


class GptLayer(nn.Module):
    """A transformer layer of Megatron-LM. The sequence is the first dim, so that shards of it lie together."""

    def __init__(self, width: int, heads: int, dropout: float, recompute: str):
        super().__init__()
        self.heads, self.dropout, self.recompute = heads, dropout, recompute
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (self.heads, 3, -1)).permute(3, 1, 2, 0, 4)
        attend = self.attend
        if self.recompute == "selective":
            attend = partial(checkpoint, attend, use_reentrant=False)  # pyright: ignore
        attended = attend(q, k, v)
        x = x + F.dropout(self.projection(attended.permute(2, 0, 1, 3).flatten(2)), self.dropout)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh")), self.dropout)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What selective recomputation computes again (Korthikanti et al., 2022, section 5): large, and few operations."""
        scores = q @ k.mT * (1 / q.shape[-1] ** 0.5)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, -10000.0), -1)
        return F.dropout(weights, self.dropout) @ v


class Gpt(nn.Module):
    """Embeddings, layers, and logits by the embedding's weight; gives the loss."""

    def __init__(
        self, layers: int, width: int, vocabulary: int, sequence: int, recompute: str, layer: Callable[[], nn.Module]
    ):
        super().__init__()
        self.recompute = recompute
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.layers = nn.ModuleList(layer() for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = (self.tokens(tokens) + self.positions.weight).transpose(0, 1)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute == "full" else layer(x)  # pyright: ignore
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.t().flatten())


class HalfAdam(torch.optim.Optimizer):
    """Adam on master weights in single precision, of which the model has copies in half precision (Megatron-LM's FP16_Optimizer)."""

    def __init__(self, parameters: Any, lr: float = 1e-4):
        super().__init__(parameters, {"lr": lr})
        for parameter in self.param_groups[0]["params"]:
            wide = partial(torch.zeros_like, parameter, dtype=torch.float32)
            self.state[parameter] = {"master": wide(), "exp_avg": wide(), "exp_avg_sq": wide()}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore
        for parameter in self.param_groups[0]["params"]:
            state, gradient = self.state[parameter], parameter.grad.float()
            state["exp_avg"].mul_(0.9).add_(gradient, alpha=0.1)
            state["exp_avg_sq"].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            state["master"].addcdiv_(
                state["exp_avg"], state["exp_avg_sq"].sqrt().add_(1e-8), value=-self.param_groups[0]["lr"]
            )
            parameter.copy_(state["master"])


def gpt_step(
    layers: int,
    width: int,
    heads: int,
    sequence: int,
    vocabulary: int,
    batch: int,
    recompute: str = "full",
    dtype: str = "float16",
    dropout: float = 0.1,
) -> ModuleOp:
    """One step on so many sequences. `recompute` is `full` (every layer), `selective` (attention) or `none`."""
    with torch.device("meta"):
        layer = partial(GptLayer, width, heads, dropout, recompute)
        model = Gpt(layers, width, vocabulary, sequence, recompute, layer).to(getattr(torch, dtype))
        tokens = torch.zeros(batch, sequence, dtype=torch.long)
    return _imported(model, HalfAdam(model.parameters()), tokens)


class Linear(nn.Linear):
    """Multiplies in bf16 by a weight that is stored in f32, as FSDP's mixed precision has it: cast where it is gathered."""

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight.to(torch.bfloat16))


class RMSNorm(nn.RMSNorm):
    """Likewise; `fused`: one kernel, of which the backward pass needs what it read."""

    def __init__(self, width: int, fused: bool = False, keeps: bool = True):
        """`keeps`: whether anything is kept for the backward pass."""
        super().__init__(width)
        self.fused, self.keeps = Normalize() if fused else None, keeps

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.to(torch.bfloat16)
        if self.fused is None:
            return normalized(x, weight)
        return checkpoint(self.fused, x, weight, use_reentrant=False) if self.keeps else self.fused(x, weight)  # pyright: ignore


class Normalize(nn.Module):
    """A name for what is one kernel."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return normalized(x, weight)


def normalized(x: Tensor, weight: Tensor) -> Tensor:
    """Divided by the root of its mean square in single precision, and scaled in half, as torchtitan has it."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * weight


class LlamaLayer(nn.Module):
    """A transformer layer of Llama 3, as torchtitan writes it; or, not gated, with a squared ReLU (Nemotron 4)."""

    def __init__(
        self, width: int, heads: int, groups: int, hidden: int, gated: bool, norm: Callable[[int], RMSNorm] = RMSNorm
    ):
        super().__init__()
        size = width // heads
        self.heads, self.groups = heads, groups
        self.norm_1, self.norm_2 = norm(width), norm(width)
        self.q, self.k, self.v = (Linear(width, n * size, bias=False) for n in (heads, groups, groups))
        self.o = Linear(width, width, bias=False)
        self.gate = Linear(width, hidden, bias=False) if gated else None
        self.up = Linear(width, hidden, bias=False)
        self.down = Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        y = self.norm_1(x)
        q, k, v = (
            p(y).unflatten(-1, (n, -1)) for p, n in ((self.q, self.heads), (self.k, self.groups), (self.v, self.groups))
        )
        q, k = _rotated(q, turns), _rotated(k, turns)
        k, v = (t.repeat_interleave(self.heads // self.groups, 2) for t in (k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).flatten(2))
        y = self.norm_2(x)
        return x + self.down(F.relu(self.up(y)).square() if self.gate is None else F.silu(self.gate(y)) * self.up(y))


def _rotated(x: Tensor, turns: Tensor) -> Tensor:
    """Pairs of neighbours, as complex numbers in single precision, turned by an angle of the position."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


class Llama(nn.Module):
    """Embedding, layers and logits; gives the loss."""

    def __init__(
        self, layers: int, width: int, size: int, vocabulary: int, recompute: str, layer: Callable[[], nn.Module]
    ):
        super().__init__()
        self.recompute, self.size = recompute, size
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(layer() for _ in range(layers))
        self.norm, self.head = RMSNorm(width), Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = F.embedding(tokens, self.tokens.weight.to(torch.bfloat16))
        frequencies = 500000.0 ** -(torch.arange(0, self.size, 2, device=x.device) / self.size)
        angles = torch.arange(tokens.shape[1], device=x.device)[:, None, None] * frequencies
        turns = torch.polar(torch.ones_like(angles), angles)
        for i, layer in enumerate(self.layers):
            x = _recomputed(layer, self.recompute, i)(x, turns)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def _recomputed(layer: nn.Module, recompute: str, index: int = 0) -> Callable[..., Any]:
    match "full" if recompute == "layers" and index % 2 else recompute:
        case "full":
            return partial(checkpoint, layer, use_reentrant=False)  # pyright: ignore
        case "selective":
            contexts = partial(create_selective_checkpoint_contexts, _EverySecondMatmul())
            return partial(checkpoint, layer, use_reentrant=False, context_fn=contexts)  # pyright: ignore
        case _:
            return layer


class _EverySecondMatmul:
    """torchtitan's selective recomputation by operator: what attention and every second matmul give is kept."""

    def __init__(self) -> None:
        self.matmuls = {True: 0, False: 0}

    def __call__(self, context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if operator is torch.ops.aten.mm.default:
            self.matmuls[context.is_recompute] += 1
        is_kept = operator.namespace == "distir" or "attention" in operator.__name__
        is_kept |= operator is torch.ops.aten.mm.default and self.matmuls[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


def llama_step(
    layers: int,
    width: int,
    heads: int,
    groups: int,
    hidden: int,
    vocabulary: int,
    sequence: int,
    batch: int,
    recompute: str = "selective",
    half: bool = False,
    gated: bool = True,
    fused: bool = False,
) -> ModuleOp:
    """One step on so many sequences: parameters and state in f32, computation and gathered parameters in bf16; or `half`, parameters in bf16, and masters of
    them in f32 with the state. Norms may be `fused`."""
    with torch.device("meta"):
        norm = partial(RMSNorm, fused=fused, keeps=recompute != "selective")
        layer = partial(LlamaLayer, width, heads, groups, hidden, gated, norm)
        model = Llama(layers, width, width // heads, vocabulary, recompute, layer)
        model = model.to(torch.bfloat16) if half else model
        tokens = torch.zeros(batch, sequence, dtype=torch.long)
    optimizer = HalfAdam(model.parameters()) if half else torch.optim.AdamW(model.parameters(), lr=3e-4)
    return _imported(model, optimizer, tokens)


class MptLayer(nn.Module):
    """A transformer layer of MosaicML's MPT: no biases, norms in half precision, attention as one kernel."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = LayerNorm(width), LayerNorm(width)
        self.qkv, self.projection = Linear(width, 3 * width, bias=False), Linear(width, width, bias=False)
        self.up, self.down = Linear(width, 4 * width, bias=False), Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm_1(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class LayerNorm(nn.Module):
    """Of bf16, by a weight that is stored in f32."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight.to(torch.bfloat16))


class Tied(nn.Module):
    """Logits by a table that is not its own."""

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        return F.linear(x, table)


class Mpt(nn.Module):
    """Embeddings, layers, and logits by the embedding's weight; gives the loss."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, sequence: int, recompute: str):
        super().__init__()
        self.recompute = recompute
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.layers = nn.ModuleList(MptLayer(width, heads) for _ in range(layers))
        self.norm, self.head = LayerNorm(width), Tied()

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        table = self.tokens.weight.to(torch.bfloat16)
        x = F.embedding(tokens, table) + self.positions.weight.to(torch.bfloat16)
        for layer in self.layers:
            x = _recomputed(layer, self.recompute)(x)
        return F.cross_entropy(self.head(self.norm(x), table).flatten(0, 1).float(), labels.flatten())


def mpt_step(
    layers: int,
    width: int,
    heads: int,
    vocabulary: int,
    sequence: int,
    batch: int,
    recompute: str,
    half: bool = False,
) -> ModuleOp:
    """One step on so many sequences: parameters and state in f32, computation in bf16; or `half`, as for `llama_step`. `recompute` is `full` (every layer) or
    `none`."""
    with torch.device("meta"):
        model = Mpt(layers, width, heads, vocabulary, sequence, recompute)
        model = model.to(torch.bfloat16) if half else model
        tokens = torch.zeros(batch, sequence, dtype=torch.long)
    optimizer = HalfAdam(model.parameters()) if half else torch.optim.AdamW(model.parameters(), lr=1e-4)
    return _imported(model, optimizer, tokens)


def _imported(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> ModuleOp:
    """One step of a model that gives its loss, on tokens and labels of this shape."""

    def step(tokens: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(tokens, labels)
        loss.backward()
        optimizer.step()
        return loss

    return import_step(written_step(step, model, optimizer), (tokens, tokens))
