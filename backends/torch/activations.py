"""More ONNX layers on torch: activations, norms, losses and rotary embeddings of models that are trained. In go a node and its operands;
out come tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional

from distir.backends.torch.layers import TABLE
from distir.backends.torch.table import Node, NotInTable, Results, numbers, operator

__all__ = ["TABLE"]

_PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "Cosh": torch.cosh,
    "HardSwish": functional.hardswish,
    "Mish": functional.mish,
    "Sinh": torch.sinh,
    "Softsign": functional.softsign,
    "Tan": torch.tan,
}


def _of_one(function: Callable[[Tensor], Tensor]) -> Callable[..., Results]:
    return lambda node, x: function(x)


TABLE.update({name: _of_one(function) for name, function in _PLAIN.items()})


@operator("Elu")
def elu(node: Node, x: Tensor) -> Tensor:
    return functional.elu(x, node["alpha"])


@operator("Celu")
def celu(node: Node, x: Tensor) -> Tensor:
    return functional.celu(x, node["alpha"])


@operator("Selu")
def selu(node: Node, x: Tensor) -> Tensor:
    return node["gamma"] * torch.where(x > 0, x, node["alpha"] * torch.expm1(x.clamp(max=0)))


@operator("PRelu")
def prelu(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, slope * x, x)


@operator("HardSigmoid")
def hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    return (node["alpha"] * x + node["beta"]).clamp(0, 1)


@operator("ThresholdedRelu")
def thresholded_relu(node: Node, x: Tensor) -> Tensor:
    return torch.where(x > node["alpha"], x, torch.zeros_like(x))


@operator("Shrink")
def shrink(node: Node, x: Tensor) -> Tensor:
    if not x.is_floating_point():
        raise NotInTable
    low, high, zeros = x < -node["lambd"], x > node["lambd"], torch.zeros_like(x)
    return torch.where(low, x + node["bias"], torch.where(high, x - node["bias"], zeros))


@operator("Mean")
def mean(node: Node, *operands: Tensor) -> Tensor:
    return reduce(torch.add, operands) / len(operands)


@operator("OneHot")
def one_hot(node: Node, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    if indices.is_floating_point():
        raise NotInTable
    count = int(numbers(depth.reshape(-1))[0])
    axis = node["axis"] % (indices.dim() + 1)
    places = torch.where(indices < 0, indices + count, indices).unsqueeze(axis)
    classes = torch.arange(count, device=indices.device).reshape([-1] + [1] * (indices.dim() - axis))
    return torch.where(places == classes, values[1], values[0])


# --- norms -----------------------------------------------------------------------------------------------------------


@operator("InstanceNormalization")
def instance_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    dims, shape = tuple(range(2, x.dim())), [-1] + [1] * (x.dim() - 2)
    centred = x - x.mean(dims, keepdim=True)
    inverse = torch.rsqrt((centred * centred).mean(dims, keepdim=True) + node["epsilon"])
    return centred * inverse * scale.reshape(shape) + bias.reshape(shape)


@operator("GroupNormalization")
def group_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return functional.group_norm(x, node["num_groups"], scale, bias, node["epsilon"])


@operator("LRN")
def local_response_normalization(node: Node, x: Tensor) -> Tensor:
    size: int = node["size"]
    before = (size - 1) // 2
    padded = functional.pad(x * x, [0, 0] * (x.dim() - 2) + [before, size - 1 - before])
    total = padded.unfold(1, size, 1).sum(-1)
    return x / (node["bias"] + node["alpha"] / size * total) ** node["beta"]


@operator("LpNormalization")
def lp_normalization(node: Node, x: Tensor) -> Tensor:
    axis = node["axis"]
    norm = x.abs().sum(axis, keepdim=True) if node["p"] == 1 else (x * x).sum(axis, keepdim=True).sqrt()
    return torch.where(norm == 0, torch.zeros_like(x), x / torch.where(norm == 0, torch.ones_like(norm), norm))


@operator("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, x: Tensor) -> Tensor:
    axes: list[int] = node["axes"] or [0, 2, 3]
    centred = x - x.mean(axes, keepdim=True)
    return centred / ((centred * centred).mean(axes, keepdim=True).sqrt() + 1e-9)


# --- losses ----------------------------------------------------------------------------------------------------------


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood(node: Node, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    ignored = -100 if node["ignore_index"] is None else node["ignore_index"]
    return functional.nll_loss(x, target.long(), weight, ignore_index=ignored, reduction=node["reduction"])


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(node: Node, scores: Tensor, labels: Tensor, weight: Tensor | None = None) -> Results:
    logarithms = torch.log_softmax(scores, 1)
    return negative_log_likelihood(node, logarithms, labels, weight), logarithms  # pyright: ignore[reportReturnType]


# --- rotation by position --------------------------------------------------------------------------------------------


@operator("RotaryEmbedding")
def rotary_embedding(node: Node, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None) -> Tensor:
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    heads = x.transpose(1, 2) if x.dim() == 4 else x.unflatten(-1, (node["num_heads"], -1))
    size = node["rotary_embedding_dim"] or heads.shape[-1]
    turned, kept = heads[..., :size], heads[..., size:]
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    pairs = (turned[..., 0::2], turned[..., 1::2]) if node["interleaved"] else turned.chunk(2, -1)
    real, imaginary = cos * pairs[0] - sin * pairs[1], sin * pairs[0] + cos * pairs[1]
    if node["interleaved"]:
        turned = torch.stack([real, imaginary], -1).flatten(-2)
    else:
        turned = torch.cat([real, imaginary], -1)
    found = torch.cat([turned, kept], -1)
    return found.transpose(1, 2) if x.dim() == 4 else found.flatten(-2)
