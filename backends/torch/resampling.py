"""ONNX layers on torch that change an image's size or sample it: transposed convolution, resizing, grids, blocks of pixels; and frequencies. In go a node and
its operands; out come tensors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor
from torch.nn import functional

from distir.backends.torch.activations import TABLE
from distir.backends.torch.table import Node, NotInTable, numbers, operator

__all__ = ["TABLE"]


@operator("ConvTranspose")
def conv_transpose(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    n = x.dim() - 2
    if not 1 <= n <= 3:
        raise NotInTable
    strides, dilations = node["strides"] or [1] * n, node["dilations"] or [1] * n
    more, wanted = node["output_padding"] or [0] * n, node["output_shape"]
    kernel, pads, mode = weight.shape[2:], node["pads"] or [0] * (2 * n), node["auto_pad"]
    full = [(x.shape[i + 2] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + more[i] for i in range(n)]
    if mode in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        wanted = [x.shape[i + 2] * strides[i] for i in range(n)]
    if wanted:
        totals = [size - own for size, own in zip(full, wanted[-n:], strict=True)]
        halves, rests = [t // 2 for t in totals], [t - t // 2 for t in totals]
        pads = [*halves, *rests] if mode == "SAME_UPPER" else [*rests, *halves]
    function = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[n - 1]
    y = function(x, weight, None, strides, 0, 0, node["group"], dilations)
    cut = [width for i in reversed(range(n)) for width in (-pads[i], more[i] - pads[n + i])]
    y = functional.pad(y, cut) if any(cut) else y
    return y if bias is None else y + bias.reshape([-1] + [1] * n)


@operator("GlobalMaxPool")
def global_max_pool(node: Node, x: Tensor) -> Tensor:
    return x.amax(tuple(range(2, x.dim())), keepdim=True)


@operator("DepthToSpace")
def depth_to_space(node: Node, x: Tensor) -> Tensor:
    size: int = node["blocksize"]
    if node["mode"] == "CRD":
        return functional.pixel_shuffle(x, size)
    blocks = x.unflatten(1, (size, size, -1))
    return blocks.permute(0, 3, 4, 1, 5, 2).flatten(4, 5).flatten(2, 3)


@operator("SpaceToDepth")
def space_to_depth(node: Node, x: Tensor) -> Tensor:
    size: int = node["blocksize"]
    blocks = x.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return blocks.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)


_MODES = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


@operator("GridSample")
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    if x.dim() not in (4, 5) or (x.dim() == 5 and node["mode"] == "cubic"):
        raise NotInTable
    return functional.grid_sample(x, grid, _MODES[node["mode"]], node["padding_mode"], bool(node["align_corners"]))


@operator("Resize")
def resize(
    node: Node, x: Tensor, region: Tensor | None = None, scales: Tensor | None = None, sizes: Tensor | None = None
) -> Tensor:
    """Along one dim after the other, by the matrix of what each pixel has of each."""
    given = [] if scales is None else numbers(scales)
    wanted = [] if sizes is None else numbers(sizes)
    special = node["keep_aspect_ratio_policy"] != "stretch" or node["coordinate_transformation_mode"].startswith(
        "tf_crop"
    )
    if special or not x.is_floating_point():
        raise NotInTable
    names = ("antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "mode", "nearest_mode")
    options = tuple((name, node[name]) for name in names)
    for i, dim in enumerate(node["axes"] or range(x.dim())):
        if wanted[i] == x.shape[dim] if wanted else given[i] == 1:
            continue
        of_one = _resizing(x.shape[dim], given[i] if given else None, wanted[i] if wanted else None, options)
        matrix = torch.from_numpy(of_one).to(x.device, x.dtype)
        x = (x.movedim(dim, -1) @ matrix).movedim(-1, dim)
    return x


@lru_cache(256)
def _resizing(size: int, scale: float | None, wanted: int | None, options: tuple[tuple[str, Any], ...]) -> Any:
    """What becomes of each pixel of a row alone, by the reference evaluation: rows of a matrix."""
    operands = ["x", "", "scales"] if wanted is None else ["x", "", "", "sizes"]
    node = helper.make_node("Resize", operands, ["y"], axes=[1], **dict(options))
    kinds = {"x": TensorProto.DOUBLE, "scales": TensorProto.FLOAT, "sizes": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(name, kinds[name], None) for name in operands if name]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)])
    feeds = {"x": np.eye(size), "scales": np.array([scale], np.float32), "sizes": np.array([wanted or 0], np.int64)}
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    (found,) = ReferenceEvaluator(model).run(None, {name: feeds[name] for name in operands if name})  # pyright: ignore
    return found


@operator("DFT")
def dft(node: Node, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None) -> Tensor:
    dim = (-2 if axis is None else numbers(axis)[0]) % x.dim()
    size = None if length is None else numbers(length)[0]
    if node["inverse"] and node["onesided"]:
        raise NotInTable
    if node["onesided"]:
        return torch.view_as_real(torch.fft.rfft(x[..., 0], size, dim))
    values = torch.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x[..., 0]
    return torch.view_as_real((torch.fft.ifft if node["inverse"] else torch.fft.fft)(values, size, dim))


@operator("STFT")
def stft(node: Node, x: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None) -> Tensor:
    if length is None and window is None:
        raise NotInTable
    size: int = numbers(length)[0] if length is not None else window.shape[0]  # pyright: ignore[reportOptionalMemberAccess]
    if x.shape[-1] != 1 or (window is not None and window.shape[0] != size):
        raise NotInTable
    frames = x[..., 0].unfold(1, size, numbers(step)[0])
    frames = frames if window is None else frames * window
    return torch.view_as_real((torch.fft.rfft if node["onesided"] else torch.fft.fft)(frames))
