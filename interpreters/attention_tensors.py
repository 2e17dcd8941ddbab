"""Attention and its gradient on torch tensors, to trace and to run programs. In go queries, keys, values and a mask;
out come the result and the logarithm of each row's sum, or gradients. Torch's fused kernels are used where they have
the case, else the definition. `interpreters.attention` is the same on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from distir.dialects.attention import UNSEEN, is_grouped
from distir.interpreters import random_tensors

MOST_SCORES = 1 << 26
"""Where nothing fused has the case, rows are taken in blocks of at most so many scores."""


class Dropout(NamedTuple):
    """Which weights are zero: with this probability, drawn by the key at one position for each dim of the scores."""

    probability: float
    key: Tensor
    positions: Sequence[Tensor]

    def of(self, weights: Tensor, start: int, stop: int) -> Tensor:
        """What becomes of the weights of some rows."""
        *batch, rows, keys = self.positions
        probability = 1 - self.probability
        kept = random_tensors.bernoulli(self.key, [*batch, rows[start:stop], keys], probability)
        return weights * kept * (1 / probability)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    diagonal: int | None,
    dropout: Dropout | None = None,
) -> tuple[Tensor, Tensor]:
    """The result in the queries' type, and the logarithm of each row's sum in single precision (double for doubles)."""
    wide = _wide(query)
    if dropout is None and (fused := _fused(query, key, value, mask, diagonal)) is not None:
        output, logarithms = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *fused, 0.0, diagonal is not None, scale=scale
        )
        rows = query.shape[:-1]
        return output.reshape(*rows, value.shape[-1]), logarithms.reshape(rows).to(wide)
    outputs: list[Tensor] = []
    sums: list[Tensor] = []
    for start, stop in _blocks(query, key):
        scores, seen = _scores(query, key, mask, scale, diagonal, start, stop)
        logarithms = scores.logsumexp(-1)
        weights = (scores - logarithms[..., None]).exp().masked_fill(~seen, 0)
        weights = weights if dropout is None else dropout.of(weights, start, stop)
        outputs.append(weights @ _per_group(value, query).to(wide))
        sums.append(logarithms.masked_fill(~seen.any(-1), UNSEEN))
    return torch.cat(outputs, -2).to(query.dtype), torch.cat(sums, -1)


def backward(
    gradient: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    diagonal: int | None,
    dropout: Dropout | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by queries, keys and values, each in the type of its own."""
    wide = _wide(query)
    of_query: list[Tensor] = []
    of_key, of_value = (torch.zeros_like(each, dtype=wide) for each in (key, value))
    for start, stop in _blocks(query, key):
        rows = slice(start, stop)
        scores, seen = _scores(query, key, mask, scale, diagonal, start, stop)
        weights = (scores - logsumexp[..., rows, None]).exp().masked_fill(~seen, 0)
        of_rows, own = gradient[..., rows, :].to(wide), query[..., rows, :].to(wide)
        of_weights = of_rows @ _per_group(value, query).to(wide).mT
        kept = weights
        if dropout is not None:
            kept, of_weights = (dropout.of(each, start, stop) for each in (weights, of_weights))
        own_sum = (of_rows * output[..., rows, :].to(wide)).sum(-1, keepdim=True)
        of_scores = weights * (of_weights - own_sum) * scale
        of_query.append(of_scores @ _per_group(key, query).to(wide))
        of_key += _over_group(of_scores.mT @ own, key)
        of_value += _over_group(kept.mT @ of_rows, value)
    return torch.cat(of_query, -2).to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype)


def combine(output: Tensor, logsumexp: Tensor, other_output: Tensor, other_logsumexp: Tensor) -> tuple[Tensor, Tensor]:
    """The forward's results for the keys of both, in the types of the first."""
    total = torch.logaddexp(logsumexp, other_logsumexp)
    result = (logsumexp - total).exp()[..., None] * output + (other_logsumexp - total).exp()[..., None] * other_output
    return result.to(output.dtype), total


def _wide(query: Tensor) -> torch.dtype:
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def _fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, diagonal: int | None
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Operands with one batch dim and one dim of heads, where the kernel of the CPU has this case."""
    if (
        query.device.type != "cpu"
        or mask is not None
        or diagonal not in (None, 0)
        or query.shape[-1] != value.shape[-1]
    ):
        return None
    if (
        query.dim() < 3
        or not query.numel()
        or not key.numel()
        or is_grouped(query.dim(), key.dim())
        or query.dtype == torch.float16
    ):
        return None
    found = [each.reshape(-1, each.shape[-3], *each.shape[-2:]) for each in (query, key, value)]
    return found[0], found[1], found[2]


def _blocks(query: Tensor, key: Tensor) -> list[tuple[int, int]]:
    """Of the rows."""
    rows = query.shape[-2]
    step = max(1, MOST_SCORES // max(1, query[..., 0, 0].numel() * key.shape[-2]))
    return [(start, min(start + step, rows)) for start in range(0, rows, step)] or [(0, 0)]


def _scores(
    query: Tensor, key: Tensor, mask: Tensor | None, scale: float, diagonal: int | None, start: int, stop: int
) -> tuple[Tensor, Tensor]:
    """The scores of some rows, those that are not seen minus infinity, and which are seen."""
    wide = _wide(query)
    scores = (query[..., start:stop, :].to(wide) @ _per_group(key, query).to(wide).mT) * scale
    seen = torch.ones_like(scores, dtype=torch.bool)
    if diagonal is not None:
        seen = seen.tril(diagonal + start)
    if mask is not None:
        mask = mask if mask.shape[-2] == 1 else mask[..., start:stop, :]
        if mask.dtype == torch.bool:
            seen = seen & mask
        else:
            scores = scores + mask
            seen = seen & (scores != -torch.inf)
    return scores.masked_fill(~seen, -torch.inf), seen


def _per_group(keys: Tensor, query: Tensor) -> Tensor:
    return keys.unsqueeze(-3) if is_grouped(query.dim(), keys.dim()) else keys


def _over_group(gradient: Tensor, of: Tensor) -> Tensor:
    return gradient.sum(-3) if is_grouped(gradient.dim(), of.dim()) else gradient


def forward_on_meta(query: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The forward's results without data."""
    rows: Any = query.shape[:-1]
    return _as_kernels_lay_out(query, [*rows, value.shape[-1]]), query.new_empty(rows, dtype=_wide(query))


def backward_on_meta(*operands: Tensor) -> tuple[Tensor, ...]:
    """The gradients without data."""
    return tuple(_as_kernels_lay_out(operand, operand.shape) for operand in operands)


def _as_kernels_lay_out(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Fused kernels write rows outside of heads, as a model takes them apart."""
    if len(shape) < 4:
        return like.new_empty(shape)
    batch, *heads, rows, columns = shape
    return like.new_empty([batch, rows, *heads, columns]).movedim(1, -2)
