"""`scaled_dot_product_attention` as one operation: while a step is traced, calls of it become the operators `distir.attention` and, in
the backward pass, `distir.attention_backward`, which the importer takes for those of the `attention` dialect.

What these have no case for (a mask with a gradient, a second derivative, dropout of rows that are merged with others) is traced as its definition, as
torch has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, fx
from xdsl.ir import Operation

from distir.dialects.attention import BackwardOp, Dropout, ForwardOp
from distir.frontends.pytorch.draws import Draws
from distir.interpreters import attention_tensors
from distir.interpreters.aten.calls import tensor_type

_LIBRARY = torch.library.Library("distir", "FRAGMENT")
_OPERANDS = "Tensor query, Tensor key, Tensor value, Tensor? mask"
_NUMBERS = "float scale, int? diagonal, float dropout, Tensor? draw, Tensor[] positions"
_LIBRARY.define(f"attention({_OPERANDS}, {_NUMBERS}) -> (Tensor, Tensor)")
_LIBRARY.define(
    f"attention_backward(Tensor gradient, Tensor output, Tensor logsumexp, {_OPERANDS}, {_NUMBERS}) "
    "-> (Tensor, Tensor, Tensor)"
)


def _on_cpu(compute: Callable[..., Any]) -> Callable[..., Any]:
    def run(*operands: Any) -> Any:
        *given, probability, key, positions = operands
        return compute(*given, None if key is None else attention_tensors.Dropout(probability, key, positions))

    return run


_LIBRARY.impl("attention", _on_cpu(attention_tensors.forward), "CPU")
_LIBRARY.impl("attention_backward", _on_cpu(attention_tensors.backward), "CPU")
_LIBRARY.impl("attention", lambda query, key, value, *_: attention_tensors.forward_on_meta(query, value), "Meta")
_LIBRARY.impl("attention_backward", lambda *operands: attention_tensors.backward_on_meta(*operands[3:6]), "Meta")
FORWARD, BACKWARD = torch.ops.distir.attention.default, torch.ops.distir.attention_backward.default


@contextmanager
def whole_attention(draws: Callable[[], Draws]) -> Generator[None]:
    """`scaled_dot_product_attention` is one operation meanwhile, where it has the case; dropout is drawn of the draws at the time."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("scaled_dot_product_attention", partial(_attention, draws), "AutogradCPU")
    try:
        yield
    finally:
        library._destroy()  # pyright: ignore[reportPrivateUsage]


def _attention(
    draws: Callable[[], Draws],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    operands, drawn = None, None
    if (
        0 <= dropout_p < 1
        and not (is_causal and attn_mask is not None)
        and not (attn_mask is not None and attn_mask.requires_grad)
    ):
        keys = (key, value)
        if dropout_p and enable_gqa and query.shape[-3] != key.shape[-3]:  # drawn for each query head
            keys = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in keys)
        operands = _aligned(query, *keys, attn_mask, enable_gqa)
    if operands is not None and dropout_p:
        drawn = _drawn(draws(), *operands[:2])
    if operands is None or (dropout_p and drawn is None):
        definition = torch.ops.aten._scaled_dot_product_attention_math
        options: Any = {"scale": scale, "enable_gqa": enable_gqa}
        return definition(query, key, value, attn_mask, dropout_p, is_causal, **options)[0]
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    output = cast(Tensor, _Attention.apply(*operands, scale, 0 if is_causal else None, dropout_p, drawn))
    return output.flatten(-4, -3) if operands[0].dim() > operands[1].dim() else output


def _aligned(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, enable_gqa: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None] | None:
    """Operands as the dialect has them: equal leading dims, or a dim for the query heads of one key head. None where it has not the case."""
    if min(query.dim(), key.dim(), value.dim()) < 2 or not query.dtype == key.dtype == value.dtype:
        return None
    if enable_gqa and query.dim() > 2 and query.shape[-3] != key.shape[-3]:
        groups = key.shape[-3]
        if query.shape[-3] % groups or key.shape[-3] != value.shape[-3]:
            return None
        query = query.unflatten(-3, (groups, query.shape[-3] // groups))
        if mask is not None and mask.dim() > 2:
            heads = mask.shape[-3]
            mask = mask.unsqueeze(-3) if heads == 1 else mask.unflatten(-3, (groups, heads // groups))
        shared = torch.broadcast_shapes(query.shape[:-3], key.shape[:-2], value.shape[:-2])
        query = query.expand(*shared, *query.shape[-3:])
    else:
        shared = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        query = query.expand(*shared, *query.shape[-2:])
    key, value = (each.expand(*shared, *each.shape[-2:]) for each in (key, value))
    if mask is not None:
        mask = mask.reshape(*[1] * (query.dim() - mask.dim()), *mask.shape)
    return query, key, value, mask


def _drawn(draws: Draws, query: Tensor, key: Tensor) -> tuple[Tensor, Sequence[Tensor]] | None:
    """The key and the positions of what torch's definition draws, a number for each score. None where queries or the batch are in one dim with others."""
    scores = [*query.shape[:-1], key.shape[-2]]
    if query.dim() > key.dim() or len(positions := draws.positions(scores)) != len(scores):
        return None
    return draws.key(), positions


class _Attention(torch.autograd.Function):
    """The operator and its gradient; a gradient that is differentiated again is that of the definition."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        scale: float,
        diagonal: int | None,
        dropout: float,
        drawn: tuple[Tensor, Sequence[Tensor]] | None,
    ) -> Tensor:
        ctx.numbers = scale, diagonal, dropout, *(drawn or (None, []))
        output, logsumexp = FORWARD(query, key, value, mask, *ctx.numbers)
        ctx.save_for_backward(query, key, value, mask, output, logsumexp)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, value, mask, output, logsumexp = ctx.saved_tensors
        (gradient,) = gradients
        if torch.is_grad_enabled():
            found = _differentiable(query, key, value, mask, gradient, *ctx.numbers)
        else:
            found = BACKWARD(gradient, output, logsumexp, query, key, value, mask, *ctx.numbers)
        return *found, *[None] * 5


def _differentiable(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    gradient: Tensor,
    scale: float,
    diagonal: int | None,
    dropout: float,
    draw: Tensor | None,
    positions: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    keys, values = (each.unsqueeze(-3) if query.dim() > key.dim() else each for each in (key, value))
    scores = (query @ keys.mT) * scale
    if diagonal is not None:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(diagonal)
        scores = scores.masked_fill(~visible, -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    weights = torch.softmax(scores, -1)
    if draw is not None:
        weights = weights * torch.ops.distir.bernoulli(draw, positions, 1 - dropout) * (1 / (1 - dropout))
    output = weights @ values
    return torch.autograd.grad(output, (query, key, value), gradient, create_graph=True)


def is_attention(target: Any) -> bool:
    """Whether a node of a graph calls the operator or its gradient."""
    return target in (FORWARD, BACKWARD)


def drawn_by(node: fx.Node) -> list[fx.Node]:
    """The key and the positions by which a node that calls it draws."""
    *_, draw, positions = node.args
    return [each for each in (draw, *cast("list[Any]", positions)) if isinstance(each, fx.Node)]


def attention_operation(target: Any, operands: Sequence[Any], value: Sequence[Tensor]) -> Operation:
    """The operation of a node: its arguments as values and numbers, and what it gives without data."""
    *tensors, scale, diagonal, probability, draw, positions = operands
    dropout = None if draw is None else Dropout(probability, draw, positions)
    if target is FORWARD:
        query, key, values, mask = tensors
        return ForwardOp(query, key, values, mask, scale, diagonal, [tensor_type(each) for each in value], dropout)
    gradient, output, logsumexp, query, key, values, mask = tensors
    return BackwardOp(gradient, output, logsumexp, query, key, values, mask, scale, diagonal, dropout)
