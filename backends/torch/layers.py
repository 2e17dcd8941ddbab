"""ONNX layers on torch: activations, convolution, pooling, normalization and attention. In go a node and its
operands; out come tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from distir.backends.torch.table import TABLE, Node, NotInTable, Results, numbers, operator

__all__ = ["TABLE"]


@operator("LeakyRelu")
def leaky_relu(node: Node, x: Tensor) -> Tensor:
    return functional.leaky_relu(x, node["alpha"])


@operator("Gelu")
def gelu(node: Node, x: Tensor) -> Tensor:
    return functional.gelu(x, approximate=node["approximate"])


@operator("Swish")
def swish(node: Node, x: Tensor) -> Tensor:
    return x * torch.sigmoid(node["alpha"] * x)


@operator("Softmax")
def softmax(node: Node, x: Tensor) -> Tensor:
    return torch.softmax(x, node["axis"])


@operator("LogSoftmax")
def log_softmax(node: Node, x: Tensor) -> Tensor:
    return torch.log_softmax(x, node["axis"])


def _explicit_pads(node: Node, extents: Sequence[int], kernel: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Padding per spatial dim, innermost first as torch has it: (before, after) pairs."""
    n, mode = len(extents), node["auto_pad"]
    pads: list[int] = node["pads"] or [0] * (2 * n)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        dilations = node["dilations"] or [1] * n
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        totals = [
            max(0, (-(-extent // s) - 1) * s + span - extent)
            for extent, s, span in zip(extents, strides, spans, strict=True)
        ]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        pads = [*small, *large] if mode == "SAME_UPPER" else [*large, *small]
    elif mode == "VALID":
        pads = [0] * (2 * n)
    return [width for i in reversed(range(n)) for width in (pads[i], pads[n + i])]


def _beyond_the_end(
    node: Node, extents: Sequence[int], kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]
) -> list[int]:
    """What the last window of each spatial dim reaches beyond the padding with `ceil_mode`, as more of it: pairs, innermost first. A window
    that begins in the padding at the end is none."""
    n = len(extents)
    more = [0] * (2 * n)
    dilations = node["dilations"] or [1] * n
    for i in range(n) if node["ceil_mode"] else ():
        place = 2 * (n - 1 - i)
        before, after = pads[place], pads[place + 1]
        span = (kernel[i] - 1) * dilations[i] + 1
        last = -(-(before + extents[i] + after - span) // strides[i])
        last -= last * strides[i] >= before + extents[i]
        more[place + 1] = max(0, last * strides[i] + span - (before + extents[i] + after))
    return more


def _sum_of(pads: Sequence[int], more: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(pads, more, strict=True)]


@operator("Conv")
def conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    n = x.ndim - 2
    if not 1 <= n <= 3:
        raise NotInTable
    strides, dilations = node["strides"] or [1] * n, node["dilations"] or [1] * n
    pads = _explicit_pads(node, x.shape[2:], weight.shape[2:], strides)
    if any(pads):
        x = functional.pad(x, pads)
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[n - 1]
    return function(x, weight, bias, strides, 0, dilations, node["group"])


@operator("MaxPool")
def max_pool(node: Node, x: Tensor) -> Tensor:
    kernel: list[int] = node["kernel_shape"]
    n = len(kernel)
    if node.results > 1 or n > 3 or not x.is_floating_point():
        raise NotInTable
    strides = node["strides"] or [1] * n
    pads = _explicit_pads(node, x.shape[2:], kernel, strides)
    pads = _sum_of(pads, _beyond_the_end(node, x.shape[2:], kernel, strides, pads))
    if any(pads):
        x = functional.pad(x, pads, value=-math.inf)
    function = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[n - 1]
    return function(x, kernel, strides, 0, node["dilations"] or [1] * n)


@operator("AveragePool")
def average_pool(node: Node, x: Tensor) -> Tensor:
    kernel: list[int] = node["kernel_shape"]
    n = len(kernel)
    if n > 3 or any(d != 1 for d in node["dilations"] or []):
        raise NotInTable
    strides = node["strides"] or [1] * n
    pads = _explicit_pads(node, x.shape[2:], kernel, strides)
    beyond = _beyond_the_end(node, x.shape[2:], kernel, strides, pads)
    function = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[n - 1]
    means = function(functional.pad(x, _sum_of(pads, beyond)), kernel, strides)
    if not any(beyond) and (node["count_include_pad"] or not any(pads)):
        return means
    counted = functional.pad(torch.ones_like(x), pads, value=float(node["count_include_pad"]))
    return means / function(functional.pad(counted, beyond), kernel, strides)


@operator("GlobalAveragePool")
def global_average_pool(node: Node, x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@operator("BatchNormalization")
def batch_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Results:
    if node["training_mode"]:
        raise NotInTable
    return functional.batch_norm(x, mean, variance, scale, bias, eps=node["epsilon"])


def _statistics_type(x: Tensor) -> torch.dtype:
    """Statistics of half-precision tensors are computed in single precision (`stash_type`)."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


@operator("LayerNormalization")
def layer_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Results:
    axis = node["axis"] % x.ndim
    if node.results == 1 and scale.shape == x.shape[axis:] and (bias is None or bias.shape == scale.shape):
        return functional.layer_norm(x, x.shape[axis:], scale, bias, node["epsilon"])
    dims, wide = list(range(axis, x.ndim)), x.to(_statistics_type(x))
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    inverse = torch.rsqrt((centred * centred).mean(dims, keepdim=True) + node["epsilon"])
    y = (centred * inverse).to(x.dtype) * scale
    return (y if bias is None else y + bias), mean, inverse


@operator("RMSNormalization")
def rms_normalization(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    dims, wide = list(range(node["axis"] % x.ndim, x.ndim)), x.to(_statistics_type(x))
    return (wide * torch.rsqrt((wide * wide).mean(dims, keepdim=True) + node["epsilon"])).to(x.dtype) * scale


@operator("Dropout")
def dropout(node: Node, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> Results:
    if training is not None and numbers(training)[0] and (ratio is None or numbers(ratio)[0] > 0):
        raise NotInTable
    return x, torch.ones_like(x, dtype=torch.bool)


@operator("Attention")
def attention(
    node: Node, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *cache: Tensor | None
) -> Tensor:
    """Without a cache, a window or a soft cap; heads are a dim of their own, or part of the last one."""
    special = node["softcap"] or node["left_window_size"] != -1 or node["right_window_size"] != -1
    if node.results > 1 or special or any(tensor is not None for tensor in cache):
        raise NotInTable
    flat = query.ndim == 3
    if flat:
        query = query.unflatten(-1, (node["q_num_heads"], -1)).transpose(1, 2)
        key, value = (t.unflatten(-1, (node["kv_num_heads"], -1)).transpose(1, 2) for t in (key, value))
    if mask is not None and mask.shape[-1] != key.shape[-2]:
        raise NotInTable
    causal = bool(node["is_causal"])
    if mask is not None and causal:
        allowed = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        mask = mask & allowed if mask.dtype == torch.bool else mask.masked_fill(~allowed, -math.inf)
    result = functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal and mask is None, scale=node["scale"], enable_gqa=True
    )
    return result.transpose(1, 2).flatten(2) if flat else result
