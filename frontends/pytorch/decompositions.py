"""Decompositions of ATen operators while a step is traced. In goes an operator's call; out come operators that can
be cut in more ways, or that compute the same in parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from distir.frontends.pytorch.ctc import ctc_loss, ctc_loss_backward
from distir.frontends.pytorch.known_numbers import number_of
from distir.frontends.pytorch.scalers import unscale, update_scale


@cache
def decompositions() -> dict[Any, Any]:
    """Decompositions of the operators that may average over samples (they have an argument `reduction`): what they divide
    by becomes a number or a value of the program, so that a part of the batch is divided by what the whole batch is. Of
    those that take from an operand nothing but its element type. Of norms in mixed precision. Of the gradient of a
    convolution, in one operator for each operand. Of the gradient of an embedding, whose padding index becomes one that is no position,
    so that shards of its rows need not know it, and which is divided by how often each row occurs before. Of connectionist temporal
    classification, whose kernels have no shapes. Of gradients on a device without data. Of numbers that are the same in every run. Of operators over lists, of products of groups, and of gradient scalers. And of the one that writes to its operands without saying so in its schema."""
    from torch._decomp import decomposition_table

    aten = torch.ops.aten
    ours: dict[Any, Any] = {
        aten.new_zeros.default: partial(_filled, 0),
        aten.new_ones.default: partial(_filled, 1),
        aten.new_empty.default: partial(_filled, 0),
        aten.new_empty_strided.default: _filled_strided,
        aten.empty_like.default: _zeros_for_empty,
        aten._adaptive_avg_pool2d.default: partial(_adaptive, aten.avg_pool2d.default),
        aten._adaptive_avg_pool3d.default: partial(_adaptive, aten.avg_pool3d.default),
        aten.adaptive_max_pool2d.default: partial(_adaptive, aten.max_pool2d_with_indices.default),
        aten.adaptive_max_pool3d.default: partial(_adaptive, aten.max_pool3d_with_indices.default),
        aten._adaptive_avg_pool2d_backward.default: partial(_adaptive_mean_backward, aten.avg_pool2d_backward.default),
        aten._adaptive_avg_pool3d_backward.default: partial(_adaptive_mean_backward, aten.avg_pool3d_backward.default),
        aten.adaptive_max_pool2d_backward.default: partial(
            _adaptive_maximum_backward, aten.max_pool2d_with_indices_backward.default
        ),
        aten.adaptive_max_pool3d_backward.default: partial(
            _adaptive_maximum_backward, aten.max_pool3d_with_indices_backward.default
        ),
        aten.convolution_backward.default: _convolution_backward,
        aten.embedding_dense_backward.default: _embedding_dense_backward,
        **{each: ctc_loss for each in (aten._ctc_loss.default, aten._ctc_loss.Tensor)},
        **{each: ctc_loss_backward for each in (aten._ctc_loss_backward.default, aten._ctc_loss_backward.Tensor)},
        aten.var_mean.correction: _var_mean,
        aten.var.correction: _var,
        aten.std.correction: _std,
        aten.logsumexp.default: _logsumexp,
        aten.dist.default: _dist,
        aten.norm.ScalarOpt_dim: _norm,
        aten.any.default: _any,
        aten.any.dim: _any,
        aten.any.dims: _any,
        aten.all.default: _all,
        aten.all.dim: _all,
        aten.all.dims: _all,
        aten.channel_shuffle.default: _channel_shuffle,
        aten.as_strided.default: _overlapping_windows,
        aten.upsample_nearest1d_backward.default: _nearest_backward,
        aten.upsample_nearest2d_backward.default: _nearest_backward,
        aten.upsample_nearest3d_backward.default: _nearest_backward,
        aten._weight_norm_interface_backward.default: aten._weight_norm_differentiable_backward.default,
        aten.native_layer_norm.default: partial(_norm_in_parameter_type, aten.native_layer_norm.default),
        aten.native_group_norm.default: partial(_norm_in_parameter_type, aten.native_group_norm.default),
        aten.ones_like.default: _one_like,
        aten._grouped_mm.default: _grouped_mm,
        aten._efficientzerotensor.default: _plain_zeros,
        **{each: partial(number_of, each) for each in (aten._local_scalar_dense.default, aten.equal.default)},
        **{each: partial(_with_data, each) for each in (aten.zeros.default, aten._to_copy.default)},
        aten._amp_foreach_non_finite_check_and_unscale_.default: unscale,
        aten._amp_update_scale_.default: update_scale,
    }
    ours |= {operator: partial(_each_by_itself, operator) for operator in _over_lists()}
    in_parts = (
        aten.native_batch_norm.default,
        aten.native_batch_norm_backward.default,
        aten.linalg_vector_norm.default,
        aten._weight_norm_interface.default,
    )
    ours[aten.multilabel_margin_loss_forward.default] = _multilabel_margin_loss
    return {
        operator: decomposition
        for operator, decomposition in decomposition_table.items()
        if isinstance(operator, torch._ops.OpOverload)  # pyright: ignore[reportPrivateUsage]
        and (
            operator in in_parts or any(argument.name == "reduction" for argument in operator._schema.arguments)  # pyright: ignore
        )
    } | ours


def _plain_zeros(size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """Zeros, for those that no memory is behind."""
    return torch.zeros(size, dtype=dtype)


def _with_data(operator: Any, *args: Any, device: torch.device | None = None, **options: Any) -> Tensor:
    """Where transforms of `torch.func` are nested, autograd takes tensors that are traced for tensors of the device `meta`, and makes and moves
    gradients there."""
    return operator(*args, **options) if device is not None and device.type == "meta" else NotImplemented


def _over_lists() -> list[Any]:
    """Operators that do the same to each tensor of a list."""
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten) if name.startswith("_foreach_")]
    return [getattr(packet, overload) for packet in packets for overload in packet.overloads() if "out" not in overload]


def _each_by_itself(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """An operator over lists as one operator per tensor, which is how it is defined."""
    return operator._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)  # pyright: ignore


def _grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """A product for each group of rows (or of what is summed over, or of columns), which end at `offs`: as one product for all
    groups in which the others' are zeros, since a program has no sizes that depend on values. It is as many times the work."""
    if bias is not None or (offs is None and (a.dim(), b.dim()) != (3, 3)):
        return NotImplemented
    if offs is None:
        return torch.bmm(a, b).to(out_dtype or a.dtype)
    ends = offs.unsqueeze(1)
    starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    at = torch.arange(a.shape[0] if b.dim() == 3 else b.shape[-1] if a.dim() == 3 else a.shape[1])
    inside = (at >= starts) & (at < ends)
    if b.dim() == 3:
        found = torch.bmm(torch.where(inside.unsqueeze(2), a, 0), b).sum(0)
    elif a.dim() == 3:
        found = torch.bmm(a, torch.where(inside.unsqueeze(1), b, 0)).sum(0)
    else:
        found = torch.bmm(torch.where(inside.unsqueeze(1), a, 0), b.expand(len(offs), *b.shape))
    return found.to(out_dtype or a.dtype)


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Labels of a row end at the first that is negative; torch's own decomposition counts label 0 for each after it."""
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    counts = (labels < 0).cumsum(1) == 0
    of_label = torch.where(counts, labels, 0)
    found = ((of_label.unsqueeze(2) == torch.arange(rows.shape[1])) & counts.unsqueeze(2)).any(1)
    margins = (1 - rows.gather(1, of_label).unsqueeze(2) + rows.unsqueeze(1)).clamp_min(0)
    each = torch.where(counts.unsqueeze(2) & ~found.unsqueeze(1), margins, 0).sum((1, 2)) / rows.shape[1]
    loss = each.mean() if reduction == 1 else each.sum() if reduction == 2 else each.reshape(x.shape[:-1])
    return loss, found.to(x.dtype).reshape(target.shape)


def _one_like(x: Tensor, *, dtype: torch.dtype | None = None, **_: object) -> Tensor:
    """The gradient of a loss of itself, which does not depend on it."""
    if x.numel() != 1:
        return NotImplemented
    return torch.full(x.shape, 1, dtype=dtype or x.dtype)


def _zeros_for_empty(x: Tensor, *, dtype: torch.dtype | None = None, **_: object) -> Tensor:
    """Of memory that may hold anything, every run has the same."""
    return torch.full(x.shape, 0, dtype=dtype or x.dtype)


def _windows(x: Tensor, sizes: Sequence[int]) -> list[int] | None:
    """The rows of each window of an adaptive pooling to these sizes, if all windows are alike and lie side by side."""
    extents = x.shape[x.dim() - len(sizes) :]
    if any(n % size for n, size in zip(extents, sizes, strict=True)):
        return None
    return [n // size for n, size in zip(extents, sizes, strict=True)]


def _adaptive(pooling: Any, x: Tensor, sizes: Sequence[int]) -> Any:
    """An adaptive pooling as one that states its windows."""
    return NotImplemented if (windows := _windows(x, sizes)) is None else pooling(x, windows, windows)


def _adaptive_mean_backward(backward: Any, gradient: Tensor, x: Tensor) -> Tensor:
    sizes = gradient.shape[gradient.dim() - _spatial_dims(backward) :]
    if (windows := _windows(x, sizes)) is None:
        return NotImplemented
    return backward(gradient, x, windows, windows, [0] * len(windows), False, True, None)


def _adaptive_maximum_backward(backward: Any, gradient: Tensor, x: Tensor, places: Tensor) -> Tensor:
    sizes = gradient.shape[gradient.dim() - _spatial_dims(backward) :]
    if (windows := _windows(x, sizes)) is None:
        return NotImplemented
    zeros, ones = [0] * len(windows), [1] * len(windows)
    return backward(gradient, x, windows, windows, zeros, ones, False, places)


def _spatial_dims(pooling: Any) -> int:
    return next(argument.N for argument in pooling._schema.arguments if argument.name == "kernel_size")


def _filled_strided(
    like: Tensor, size: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype | None = None, **_: object
) -> Tensor:
    return torch.full(size, 0, dtype=dtype or like.dtype)


def _filled(value: int, like: Tensor, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: object) -> Tensor:
    return torch.full(size, value, dtype=dtype or like.dtype)


def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = list(range(x.dim())) if dim is None else list(dim)
    count = prod(x.shape[d] for d in dims)
    mean = x.sum(dims, keepdim=True) / count
    centered = x - mean
    var = (centered * centered).sum(dims, keepdim=keepdim) / max(count - (1 if correction is None else correction), 0)
    return var, mean if keepdim else mean.reshape(var.shape)


def _var(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    return _var_mean(x, dim, correction=correction, keepdim=keepdim)[0]


def _std(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    return _var(x, dim, correction=correction, keepdim=keepdim).sqrt()


def _logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """In the parts that its kernels are: a maximum, of which infinities count as 0, and a sum."""
    if not x.dtype.is_floating_point or not x.numel():
        return NotImplemented
    dims = list(dim)
    highest = x.amax(dims, keepdim=True)
    highest = torch.where(highest.abs() == torch.inf, 0, highest)
    found = (x - highest).exp().sum(dims, keepdim=keepdim).log()
    return found + (highest if keepdim else highest.reshape(found.shape))


def _dist(x: Tensor, other: Tensor, p: float = 2) -> Tensor:
    return torch.linalg.vector_norm(x - other, p)


def _norm(x: Tensor, p: float | None, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    return torch.linalg.vector_norm(x, 2 if p is None else p, dim, keepdim)


def _any(x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """Whether their number is not zero: numbers of shards add up."""
    return _number(x, dim, keepdim) > 0 if x.dtype == torch.bool else NotImplemented


def _all(x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    return _number(~x, dim, keepdim) == 0 if x.dtype == torch.bool else NotImplemented


def _number(x: Tensor, dim: int | Sequence[int] | None, keepdim: bool) -> Tensor:
    return x.sum() if dim is None else x.sum([dim] if isinstance(dim, int) else list(dim), keepdim=keepdim)


def _channel_shuffle(x: Tensor, groups: int) -> Tensor:
    batch, channels, *rest = x.shape
    return x.reshape(batch, groups, channels // groups, *rest).transpose(1, 2).reshape(x.shape)


def _overlapping_windows(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """What says by strides that it has windows of the last dim (those of a short-time transform), by the windows' length and step."""
    *outer, rows = x.shape
    if not x.is_contiguous() or storage_offset or len(size) != x.dim() + 1 or list(size[:-2]) != outer:
        return NotImplemented
    windows, length, step = size[-2], size[-1], stride[-2]
    if list(stride[:-2]) != list(x.stride()[:-1]) or stride[-1] != 1 or step < 1:
        return NotImplemented
    used = (windows - 1) * step + length
    if not 0 < used <= rows:
        return NotImplemented
    return (x if used == rows else x[..., :used]).unfold(-1, length, step)


def _nearest_backward(
    gradient: Tensor, output_size: Sequence[int], input_size: Sequence[int], *scales: float | None
) -> Tensor:
    """Of a resampling by whole factors, the sum over the copies of each position."""
    batch, channels, *rows = input_size
    factors = [
        large // small if small and large % small == 0 else 0 for large, small in zip(output_size, rows, strict=True)
    ]
    if not all(factors) or any(s not in (None, float(f)) for s, f in zip(scales, factors, strict=False)):
        return NotImplemented
    split = [n for pair in zip(rows, factors, strict=True) for n in pair]
    return gradient.reshape(batch, channels, *split).sum([3 + 2 * i for i in range(len(rows))])


def _norm_in_parameter_type(norm: Any, x: Tensor, *args: Any) -> Any:
    """A norm of bfloat16 values by float32 parameters, as its kernel computes it: tensors without data say that mean and
    deviation are bfloat16, which they are not."""
    wide = next((a.dtype for a in args if isinstance(a, Tensor)), x.dtype)
    if wide == x.dtype:
        return NotImplemented
    normed, *statistics = norm(x.to(wide), *args)
    return normed.to(x.dtype), *statistics


def _convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """One operator per gradient, since each has a way of its own to be cut by rows and columns: that of the input is the
    convolution transposed, that of the bias a sum. The kernels of the two convolutions are separate in any case."""
    of_input, of_weight, of_bias = output_mask
    if not of_input and not of_bias:
        return NotImplemented
    aten, rest = torch.ops.aten, (stride, padding, dilation, transposed, output_padding, groups)
    found: list[Tensor | None] = [None, None, None]
    if of_input:
        more = [0] * len(stride) if transposed else _rows_beyond(gradient, x, weight, stride, padding, dilation)
        like = aten.convolution(gradient, weight, None, stride, padding, dilation, not transposed, more, groups)
        if like.shape != x.shape:
            return NotImplemented
        found[0] = like
    if of_weight:
        found[1] = aten.convolution_backward(gradient, x, weight, [0], *rest, [False, True, False])[1]
    if of_bias:
        found[2] = gradient.sum([d for d in range(gradient.dim()) if d != 1])
    return tuple(found)


def _embedding_dense_backward(
    gradient: Tensor, indices: Tensor, rows: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """With -1 for indices of the padding, and as the padding index; what counts by how often its row occurs is divided by that first."""
    if padding_idx < 0 and not scale_grad_by_freq:
        return NotImplemented
    if scale_grad_by_freq:
        flat = indices.reshape(-1)
        occurs = torch.zeros(rows, dtype=torch.long).index_add(0, flat, torch.ones(flat.shape, dtype=torch.long))
        gradient = gradient / occurs[indices].unsqueeze(-1)
    kept = torch.where(indices == padding_idx, -1, indices) if padding_idx >= 0 else indices
    return torch.ops.aten.embedding_dense_backward(gradient, kept, rows, -1, False)


def _rows_beyond(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Of each spatial dim, how many rows the input has more than the windows of the result reach."""
    found: list[int] = []
    for i, (step, pad, apart) in enumerate(zip(*_per_dim(stride, padding, dilation, dims=x.dim() - 2), strict=True), 2):
        found.append(x.shape[i] + 2 * pad - apart * (weight.shape[i] - 1) - 1 - step * (gradient.shape[i] - 1))
    return found


def _per_dim(*options: Sequence[int], dims: int) -> list[list[int]]:
    """Options with one entry for every spatial dim; a single one stands for all."""
    return [[*option] * (dims if len(option) == 1 else 1) for option in options]
