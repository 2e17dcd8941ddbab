"""ONNX operators as torch functions, for the operators of everyday models, with the semantics of the newest opset.

In go the node (its attributes, defaults filled in) and the operands, None for an absent one; out comes a tensor or a
tuple. A case that an entry does not handle raises `NotInTable`: the ONNX reference evaluation runs it instead, like
any operator that is not here. The layers of networks are in `layers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

Results: TypeAlias = "Tensor | Sequence[Tensor | None]"
Operator = Callable[..., Results]


class NotInTable(Exception):
    """This case of the operator is left to the reference evaluation."""


@dataclass(frozen=True)
class Node:
    """What an entry may ask about its operation: `node["axis"]`, and how many results are wanted."""

    attributes: Mapping[str, Any]
    results: int = 1

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]


TABLE: dict[str, Operator] = {}


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Enters a function in the table."""

    def enter(function: Operator) -> Operator:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return enter


def numbers(x: Tensor) -> list[Any]:
    """The elements of an operand of at most one dim, such as a shape, without an operation on it: operators look at such
    operands also while they are traced (`training`)."""
    return x.tolist() if x.dim() else [x.tolist()]


# --- elementwise -----------------------------------------------------------------------------------------------------

_ELEMENTWISE: dict[str, Callable[..., Tensor]] = {
    "Abs": torch.abs,
    "Add": torch.add,
    "And": torch.logical_and,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Equal": torch.eq,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Identity": torch.Tensor.view_as,
    "IsNaN": torch.isnan,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Log": torch.log,
    "MatMul": torch.matmul,
    "Mul": torch.mul,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Or": torch.logical_or,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Softplus": functional.softplus,
    "Sqrt": torch.sqrt,
    "Sub": torch.sub,
    "Tanh": torch.tanh,
    "Where": torch.where,
    "Xor": torch.logical_xor,
}


def _attribute_free(function: Callable[..., Tensor]) -> Operator:
    return lambda node, *operands: function(*operands)


TABLE.update({name: _attribute_free(function) for name, function in _ELEMENTWISE.items()})
TABLE["Identity"] = lambda node, x: x


def _variadic(function: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    return lambda node, *operands: reduce(function, operands)


TABLE["Max"] = _variadic(torch.maximum)
TABLE["Min"] = _variadic(torch.minimum)
TABLE["Sum"] = _variadic(torch.add)


@operator("Div")
def div(node: Node, x: Tensor, y: Tensor) -> Tensor:
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


@operator("Mod")
def mod(node: Node, x: Tensor, y: Tensor) -> Tensor:
    return torch.fmod(x, y) if node["fmod"] else torch.remainder(x, y)


@operator("Pow")
def pow_(node: Node, x: Tensor, y: Tensor) -> Tensor:
    if not x.is_floating_point() and bool((y < 0).any()):
        raise NotInTable
    return torch.pow(x, y).to(x.dtype)


@operator("Clip")
def clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if low is not None:
        x = torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


@operator("Cast")
def cast_(node: Node, x: Tensor) -> Tensor:
    return x.to(node["to"])


@operator("CastLike")
def cast_like(node: Node, x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


# --- contractions ----------------------------------------------------------------------------------------------------


@operator("Gemm")
def gemm(node: Node, x: Tensor, y: Tensor, c: Tensor | None = None) -> Tensor:
    x, y = x.T if node["transA"] else x, y.T if node["transB"] else y
    if not x.is_floating_point():
        raise NotInTable
    if c is None:
        return node["alpha"] * (x @ y)
    return torch.addmm(c, x, y, beta=node["beta"], alpha=node["alpha"])


@operator("Einsum")
def einsum(node: Node, *operands: Tensor) -> Tensor:
    return torch.einsum(node["equation"], *operands)


# --- reductions ------------------------------------------------------------------------------------------------------


def _reduction(function: Callable[[Tensor, list[int], bool], Tensor], floats_only: bool = False) -> Operator:
    def run(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
        dims: list[int] = [] if axes is None else numbers(axes)
        if (floats_only and not x.is_floating_point()) or (not dims and node["noop_with_empty_axes"]) or not x.numel():
            raise NotInTable
        if x.ndim == 0:
            x, keep, dims = x.reshape(1), False, [0]
        else:
            keep, dims = bool(node["keepdims"]), dims or list(range(x.ndim))
        return function(x, dims, keep)

    return run


def _product(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    for dim in sorted((d % x.ndim for d in dims), reverse=True):
        x = torch.prod(x, dim, keepdim=keep, dtype=x.dtype)
    return x


TABLE["ReduceSum"] = _reduction(lambda x, dims, keep: torch.sum(x, dims, keep, dtype=x.dtype))
TABLE["ReduceMean"] = _reduction(lambda x, dims, keep: torch.mean(x, dims, keep), floats_only=True)
TABLE["ReduceMax"] = _reduction(lambda x, dims, keep: torch.amax(x, dims, keep))
TABLE["ReduceMin"] = _reduction(lambda x, dims, keep: torch.amin(x, dims, keep))
TABLE["ReduceProd"] = _reduction(_product)
TABLE["ReduceL2"] = _reduction(lambda x, dims, keep: (x * x).sum(dims, keep).sqrt(), floats_only=True)
TABLE["ReduceL1"] = _reduction(lambda x, dims, keep: torch.sum(x.abs(), dims, keep, dtype=x.dtype))
TABLE["ReduceLogSum"] = _reduction(lambda x, dims, keep: x.sum(dims, keep).log(), floats_only=True)
TABLE["ReduceLogSumExp"] = _reduction(lambda x, dims, keep: torch.logsumexp(x, dims, keep), floats_only=True)
TABLE["ReduceSumSquare"] = _reduction(lambda x, dims, keep: torch.sum(x * x, dims, keep, dtype=x.dtype))


@operator("ArgMax")
def arg_max(node: Node, x: Tensor) -> Tensor:
    if node["select_last_index"]:
        raise NotInTable
    return torch.argmax(x, node["axis"], keepdim=bool(node["keepdims"]))


@operator("CumSum")
def cum_sum(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    dim = numbers(axis)[0]
    if node["reverse"]:
        x = x.flip(dim)
    sums = torch.cumsum(x, dim, dtype=x.dtype)
    if node["exclusive"]:
        sums = torch.cat([torch.zeros_like(sums.narrow(dim, 0, 1)), sums.narrow(dim, 0, x.shape[dim] - 1)], dim)
    return sums.flip(dim) if node["reverse"] else sums


@operator("TopK")
def top_k(node: Node, x: Tensor, k: Tensor) -> Results:
    # Not torch.topk: of equal elements, ONNX takes the first.
    values, indices = torch.sort(x, dim=node["axis"], descending=bool(node["largest"]), stable=True)
    return values.narrow(node["axis"], 0, numbers(k)[0]), indices.narrow(node["axis"], 0, numbers(k)[0])


# --- shapes and views ------------------------------------------------------------------------------------------------


@operator("Reshape")
def reshape(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    sizes: list[int] = numbers(shape)
    if not node["allowzero"]:
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Transpose")
def transpose(node: Node, x: Tensor) -> Tensor:
    return x.permute(node["perm"] or list(reversed(range(x.ndim))))


@operator("Squeeze")
def squeeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(numbers(axes)))


@operator("Unsqueeze")
def unsqueeze(node: Node, x: Tensor, axes: Tensor) -> Tensor:
    dims: list[int] = numbers(axes)
    for dim in sorted(d % (x.ndim + len(dims)) for d in dims):
        x = x.unsqueeze(dim)
    return x


@operator("Flatten")
def flatten(node: Node, x: Tensor) -> Tensor:
    axis = node["axis"] + (x.ndim if node["axis"] < 0 else 0)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Expand")
def expand(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, numbers(shape)))


@operator("Tile")
def tile(node: Node, x: Tensor, repeats: Tensor) -> Tensor:
    return x.repeat(numbers(repeats))


@operator("Shape")
def shape_of(node: Node, x: Tensor) -> Tensor:
    return torch.tensor(x.shape[node["start"] : node["end"]], dtype=torch.int64, device=x.device)


@operator("Concat")
def concat(node: Node, *operands: Tensor) -> Tensor:
    return torch.cat(operands, node["axis"])


@operator("Split")
def split(node: Node, x: Tensor, sizes: Tensor | None = None) -> Results:
    if sizes is not None:
        return torch.split(x, numbers(sizes), node["axis"])
    parts = node["num_outputs"] or node.results
    return torch.split(x, -(-x.shape[node["axis"]] // parts), node["axis"])


@operator("Slice")
def slice_(
    node: Node, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    begins: list[int] = numbers(starts)
    dims: list[int] = list(range(len(begins))) if axes is None else numbers(axes)
    strides: list[int] = [1] * len(begins) if steps is None else numbers(steps)
    for start, end, dim, step in zip(begins, numbers(ends), dims, strides, strict=True):
        extent = x.shape[dim]
        # An end before the first element stops a backward slice after it; Python would count it from the back.
        kept = range(*slice(start, None if step < 0 and end < -extent else end, step).indices(extent))
        if step == 1:
            x = x.narrow(dim, kept.start, len(kept))
        else:
            x = x.index_select(dim, torch.tensor(list(kept), dtype=torch.int64, device=x.device))
    return x


@operator("Pad")
def pad(node: Node, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None) -> Tensor:
    if node["mode"] != "constant":
        raise NotInTable
    amounts: list[int] = numbers(pads)
    dims: list[int] = list(range(x.ndim)) if axes is None else [d % x.ndim for d in numbers(axes)]
    before, after = amounts[: len(dims)], amounts[len(dims) :]
    widths = {dim: (b, a) for dim, b, a in zip(dims, before, after, strict=True)}
    innermost_first = [w for dim in reversed(range(x.ndim)) for w in widths.get(dim, (0, 0))]
    return functional.pad(x, innermost_first, value=0 if value is None else numbers(value)[0])


@operator("Trilu")
def trilu(node: Node, x: Tensor, k: Tensor | None = None) -> Tensor:
    diagonal = 0 if k is None else numbers(k)[0]
    return torch.triu(x, diagonal) if node["upper"] else torch.tril(x, diagonal)


@operator("Range")
def range_(node: Node, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    return torch.arange(numbers(start)[0], numbers(limit)[0], numbers(delta)[0], dtype=start.dtype, device=start.device)


@operator("ConstantOfShape")
def constant_of_shape(node: Node, shape: Tensor) -> Tensor:
    value: Tensor = node["value"]
    return value.reshape(()).to(shape.device).expand(numbers(shape))


# --- indexing --------------------------------------------------------------------------------------------------------

_SCATTER_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _wrapped(indices: Tensor, extent: int) -> Tensor:
    """Indices from 0; ONNX counts negative ones from the back."""
    indices = indices.long()
    return torch.where(indices < 0, indices + extent, indices)


@operator("Gather")
def gather(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = node["axis"] % x.ndim
    flat = _wrapped(indices, x.shape[axis]).reshape(-1)
    return x.index_select(axis, flat).reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


@operator("GatherElements")
def gather_elements(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    return torch.gather(x, node["axis"], _wrapped(indices, x.shape[node["axis"]]))


@operator("ScatterElements")
def scatter_elements(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis = node["axis"]
    wrapped = _wrapped(indices, x.shape[axis])
    if node["reduction"] == "none":
        return x.scatter(axis, wrapped, updates)
    return x.scatter_reduce(axis, wrapped, updates, _SCATTER_REDUCTIONS[node["reduction"]])


def _flat_rows(indices: Tensor, shape: Sequence[int]) -> Tensor:
    """Index tuples into dims of this shape, as row numbers of the dims flattened."""
    rows = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=indices.device)
    for i, extent in enumerate(shape):
        rows = rows * extent + _wrapped(indices[..., i], extent)
    return rows


@operator("GatherND")
def gather_nd(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    batch, depth = node["batch_dims"], indices.shape[-1]
    batches, indexed, rest = x.shape[:batch], x.shape[batch : batch + depth], x.shape[batch + depth :]
    rows = _flat_rows(indices, indexed).reshape(math.prod(batches), -1)
    rows = rows + math.prod(indexed) * torch.arange(rows.shape[0], device=x.device)[:, None]
    flat = x.reshape(math.prod(batches) * math.prod(indexed), -1)
    return flat.index_select(0, rows.reshape(-1)).reshape([*indices.shape[:-1], *rest])


@operator("ScatterND")
def scatter_nd(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    indexed = x.shape[: indices.shape[-1]]
    rows = _flat_rows(indices, indexed).reshape(-1)
    flat, new = x.reshape(math.prod(indexed), -1), updates.reshape(len(rows), -1)
    if node["reduction"] == "none":
        return flat.index_copy(0, rows, new).reshape(x.shape)
    reduction = _SCATTER_REDUCTIONS[node["reduction"]]
    return flat.scatter_reduce(0, rows[:, None].expand_as(new), new, reduction).reshape(x.shape)
