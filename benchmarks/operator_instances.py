"""About 240 operators with small operands, for `rule_dims`: calls of ATen with tensors, and nodes of ONNX with the types of
their operands. What comes out is one operation of the `aten` or the `onnx` dialect for each, with operands on which it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from xdsl.ir import Operation

from tests.unit.aten_instances import Call, operation
from tests.unit.onnx_operations import onnx_operation

aten = torch.ops.aten
Arrays = list[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Instance:
    """One operator: its name here, and what makes the operation and its operands."""

    name: str
    make: Callable[[], tuple[Operation, Arrays]]


def x(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) + 0.1


def i(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


def b(*shape: int) -> torch.Tensor:
    return x(*shape) > 0.6


def c(*shape: int) -> torch.Tensor:
    return torch.complex(x(*shape), x(*shape))


SUM, MEAN, NONE = 2, 1, 0
CELL = x(6, 7), [x(6, 8), x(6, 8)], x(32, 7), x(32, 8), x(32), x(32)
GROUPED = x(4, 12, 5, 7)

ATEN: list[tuple[Any, Sequence[Any]]] = [
    (aten.mm, (x(6, 8), x(8, 10))),
    (aten.bmm, (x(4, 6, 8), x(4, 8, 10))),
    (aten.addmm, (x(10), x(6, 8), x(8, 10))),
    (aten.baddbmm, (x(4, 6, 10), x(4, 6, 8), x(4, 8, 10))),
    (aten.mv, (x(6, 8), x(8))),
    (aten.dot, (x(8), x(8))),
    (aten.add.Tensor, (x(6, 8), x(6, 8))),
    (aten.where.self, (b(6, 8), x(6, 8), x(6, 8))),
    (aten.gelu_backward, (x(6, 8), x(6, 8))),
    (aten.native_group_norm, (GROUPED, x(12), x(12), 4, 12, 35, 6, 1e-5)),
    (aten.native_group_norm_backward, (GROUPED, GROUPED, x(4, 6), x(4, 6), x(12), 4, 12, 35, 6, [True, True, True])),
    (aten.native_layer_norm, (x(6, 8, 10), [10], x(10), x(10), 1e-5)),
    (aten.native_layer_norm_backward, (x(6, 8, 10), x(6, 8, 10), [10], x(6, 8, 1), x(6, 8, 1), x(10), x(10), [True] * 3)),
    (aten._fused_rms_norm, (x(6, 8, 10), [10], x(10), 1e-5)),
    (aten.native_batch_norm, (x(4, 6, 8), x(6), x(6), x(6), x(6), False, 0.1, 1e-5)),
    (aten.native_group_norm, (x(2, 320, 8, 8), x(320), x(320), 2, 320, 64, 32, 1e-5)),
    (aten.native_group_norm, (x(8, 32, 16), x(32), x(32), 8, 32, 16, 1, 1e-5)),
    (aten.native_group_norm_backward, (x(8, 32, 16), x(8, 32, 16), x(8, 1), x(8, 1), x(32), 8, 32, 16, 1, [True] * 3)),
    (aten.slice_scatter, (x(8, 64, 32), x(8, 1, 32), 1, 5, 6)),
    (aten.slice_scatter, (x(8, 4, 64, 16), x(8, 4, 8, 16), 2, 0, 8)),
    (aten.slice_scatter, (x(8, 8, 8), x(8, 4, 8), 1, 0, 4)),
    (aten.select_scatter, (x(8, 8, 8), x(8, 8), 1, 0)),
    (aten.index_put, (x(8, 64), [torch.arange(8), i(64, 8)], x(8))),
    (aten.index.Tensor, (x(8, 64, 32), [torch.arange(8), i(64, 8)])),
    (aten._adaptive_avg_pool2d, (x(8, 16, 14, 14), [7, 7])),
    (aten.reflection_pad2d, (x(8, 4, 16, 16), [1, 1, 1, 1])),
    (aten._fft_r2c, (x(8, 16, 16), [1, 2], 0, True)),
    (aten.linalg_vector_norm, (x(64, 64), float("inf"))),
    (aten._softmax, (x(6, 8, 10), -1, False)),
    (aten._log_softmax, (x(6, 8, 10), -1, False)),
    (aten._softmax_backward_data, (x(6, 8, 10), x(6, 8, 10), -1, torch.float32)),
    (aten._log_softmax_backward_data, (x(6, 8, 10), x(6, 8, 10), -1, torch.float32)),
    (aten.logsumexp, (x(6, 8, 10), [2])),
    (aten.select_scatter, (x(6, 8, 10), x(6, 10), 1, 3)),
    (aten.slice_scatter, (x(6, 8, 10), x(6, 4, 10), 1, 2, 6)),
    (aten.diagonal_scatter, (x(6, 8, 8), x(6, 8), 0, 1, 2)),
    (aten.slice, (x(6, 8, 10), 1, 2, 6)),
    (aten.slice_backward, (x(6, 4, 10), [6, 8, 10], 1, 2, 6, 1)),
    (aten.select, (x(6, 8, 10), 1, 3)),
    (aten.select_backward, (x(6, 10), [6, 8, 10], 1, 3)),
    (aten.diagonal, (x(6, 8, 8), 0, 1, 2)),
    (aten.diagonal_backward, (x(6, 8), [6, 8, 8], 0, 1, 2)),
    (aten.empty_like, (x(6, 8),)),
    (aten.zeros_like, (x(6, 8),)),
    (aten.full_like, (x(6, 8), 2.0)),
    (aten.new_empty, (x(6, 8), [6, 8])),
    (aten.new_zeros, (x(6, 8), [6, 8])),
    (aten.new_full, (x(6, 8), [6, 8], 3.0)),
    (aten.sum.dim_IntList, (x(6, 8, 10), [1])),
    (aten.sum.dim_IntList, (b(6, 8, 10), [1])),
    (aten.sum, (b(6, 8, 10),)),
    (aten.sum, (i(5, 6, 8, 10),)),
    (aten.mean.dim, (x(6, 8, 10), [1])),
    (aten.mean, (x(6, 8),)),
    (aten.var.correction, (x(6, 8), [1])),
    (aten.var_mean.correction, (x(6, 8), [1])),
    (aten.std.correction, (x(6, 8), [1])),
    (aten.amax, (x(6, 8), [1])),
    (aten.max.dim, (x(6, 8), 1)),
    (aten.argmax, (x(6, 8), 1)),
    (aten.any, (b(6, 8),)),
    (aten.any.dim, (b(6, 8), 1)),
    (aten.all.dim, (b(6, 8), 1)),
    (aten.prod.dim_int, (x(6, 8), 1)),
    (aten.cumsum, (x(6, 8), 1)),
    (aten.cumprod, (x(6, 8), 1)),
    (aten.logcumsumexp, (x(6, 8), 1)),
    (aten.sort, (x(6, 8), 1)),
    (aten.topk, (x(6, 10), 3, 1)),
    (aten.count_nonzero, (x(6, 8),)),
    (aten.linalg_vector_norm, (x(6, 8),)),
    (aten.linalg_vector_norm, (x(6, 8), 2, [1], True)),
    (aten.norm.ScalarOpt_dim, (x(6, 8), 2, [1])),
    (aten.index.Tensor, (x(6, 8, 10), [i(6, 5)])),
    (aten.index.Tensor, (x(6, 8, 10), [None, i(8, 5)])),
    (aten.index.Tensor, (x(6, 8, 10), [i(6, 5), i(8, 5)])),
    (aten.index_put, (x(6, 8, 10), [i(6, 5)], x(5, 8, 10))),
    (aten.index_put, (x(6, 8, 10), [i(6, 5)], x(5, 8, 10), True)),
    (aten.index_put, (x(6, 8, 10), [None, i(8, 5)], x(6, 5, 10), True)),
    (aten.index_put, (x(6, 8, 10), [i(6, 5), i(8, 5)], x(5, 10), True)),
    (aten.index_select, (x(6, 8, 10), 1, i(8, 5))),
    (aten.index_add, (x(6, 8, 10), 1, i(8, 5), x(6, 5, 10))),
    (aten.index_copy, (x(6, 8, 10), 1, torch.tensor([1, 4, 2, 0, 6]), x(6, 5, 10))),
    (aten.index_fill.int_Scalar, (x(6, 8, 10), 1, i(8, 5), 1.0)),
    (aten.gather, (x(6, 8), 1, i(8, 6, 5))),
    (aten.scatter.src, (x(6, 8), 1, i(8, 6, 5), x(6, 5))),
    (aten.scatter.value, (x(6, 8), 1, i(8, 6, 5), 1.0)),
    (aten.scatter_add, (x(6, 8), 1, i(8, 6, 5), x(6, 5))),
    (aten.scatter_reduce.two, (x(6, 8), 1, i(8, 6, 5), x(6, 5), "amax")),
    (aten.masked_fill.Scalar, (x(6, 8), b(6, 8), 1.0)),
    (aten.masked_scatter, (x(6, 8), b(6, 8), x(6, 8))),
    (aten.embedding, (x(10, 7), i(10, 6, 8))),
    (aten.embedding_dense_backward, (x(6, 8, 7), i(10, 6, 8), 10, -1, False)),
    (aten.histc, (x(6, 8), 5, 0.0, 1.0)),
    (aten.bincount, (i(7, 12), None, 7)),
    (aten.bucketize.Tensor, (x(6, 8), torch.linspace(0, 1, 5))),
    (aten.searchsorted.Tensor, (torch.sort(x(6, 8)).values, x(6, 10))),
    (aten.tril, (x(6, 8, 10),)),
    (aten.triu, (x(6, 8, 10),)),
    (aten.tril, (x(6, 8, 10), 2)),
    (aten.roll, (x(6, 8, 10), [3], [1])),
    (aten.roll, (x(6, 8, 10), [-3], [2])),
    (aten.flip, (x(6, 8, 10), [1])),
    (aten.constant_pad_nd, (x(4, 6, 8, 10), [1, 1, 2, 2])),
    (aten.reflection_pad1d, (x(4, 6, 10), [2, 1])),
    (aten.reflection_pad2d, (x(4, 6, 8, 10), [1, 1, 2, 2])),
    (aten.reflection_pad2d_backward, (x(4, 6, 12, 12), x(4, 6, 8, 10), [1, 1, 2, 2])),
    (aten.replication_pad2d, (x(4, 6, 8, 10), [1, 1, 2, 2])),
    (aten.replication_pad2d_backward, (x(4, 6, 12, 12), x(4, 6, 8, 10), [1, 1, 2, 2])),
    (aten.upsample_nearest2d.vec, (x(4, 6, 8, 10), None, [2.0, 2.0])),
    (aten.upsample_nearest2d, (x(4, 6, 8, 10), [16, 20])),
    (aten.upsample_bilinear2d, (x(4, 6, 8, 10), [16, 20], False)),
    (aten.upsample_bilinear2d.vec, (x(4, 6, 8, 10), None, False, [2.0, 2.0])),
    (aten.upsample_bicubic2d, (x(4, 6, 8, 10), [16, 20], False)),
    (aten._upsample_bilinear2d_aa, (x(4, 6, 8, 10), [4, 5], False)),
    (aten.upsample_nearest2d_backward, (x(4, 6, 16, 20), [16, 20], [4, 6, 8, 10])),
    (aten.upsample_bilinear2d_backward, (x(4, 6, 16, 20), [16, 20], [4, 6, 8, 10], False)),
    (aten.grid_sampler_2d, (x(4, 6, 8, 10), x(4, 7, 9, 2), 0, 0, False)),
    (aten.grid_sampler_2d, (x(4, 6, 8, 10), x(4, 7, 9, 2), 2, 0, False)),
    (aten._adaptive_avg_pool2d, (x(4, 6, 8, 10), [4, 5])),
    (aten._adaptive_avg_pool2d, (x(4, 6, 8, 10), [1, 1])),
    (aten._adaptive_avg_pool2d_backward, (x(4, 6, 4, 5), x(4, 6, 8, 10))),
    (aten.adaptive_max_pool2d, (x(4, 6, 8, 10), [4, 5])),
    (aten.avg_pool2d, (x(4, 6, 8, 10), [2, 2], [2, 2])),
    (aten.avg_pool2d_backward, (x(4, 6, 4, 5), x(4, 6, 8, 10), [2, 2], [2, 2], [0, 0], False, True, None)),
    (aten.max_pool2d_with_indices, (x(4, 6, 8, 10), [2, 2], [2, 2])),
    (aten.max_pool2d, (x(4, 6, 26, 28), [13, 13], [1, 1], [6, 6])),
    (aten.convolution, (x(4, 6, 8, 10), x(5, 6, 3, 3), x(5), [1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
    (aten._fft_r2c, (x(6, 8, 10), [2], 0, True)),
    (aten._fft_c2c, (c(6, 8, 10), [1], 0, True)),
    (aten._fft_c2r, (c(6, 8, 6), [2], 0, 10)),
    (aten.complex, (x(6, 8), x(6, 8))),
    (aten.mul.Tensor, (c(6, 8), c(6, 8))),
    (aten.view_as_real, (c(6, 8),)),
    (aten.view_as_complex, (x(6, 8, 2),)),
    (aten.abs, (c(6, 8),)),
    (aten.mse_loss, (x(6, 8), x(6, 8), MEAN)),
    (aten.mse_loss, (x(6, 8), x(6, 8), SUM)),
    (aten.mse_loss_backward, (x(), x(6, 8), x(6, 8), MEAN)),
    (aten.mse_loss_backward, (x(), x(6, 8), x(6, 8), SUM)),
    (aten.smooth_l1_loss_backward, (x(), x(6, 8), x(6, 8), SUM, 1.0)),
    (aten.binary_cross_entropy, (x(6, 8) / 2, x(6, 8) / 2, None, SUM)),
    (aten.nll_loss_forward, (x(6, 8), i(8, 6), None, SUM, -100)),
    (aten.nll_loss_backward, (x(), x(6, 8), i(8, 6), None, SUM, -100, x())),
    (aten.lstm_cell, CELL),
    (aten.gru_cell, (x(6, 7), x(6, 8), x(24, 7), x(24, 8), x(24), x(24))),
    (aten.lstm.input, (x(5, 6, 7), [x(1, 6, 8), x(1, 6, 8)], [x(32, 7), x(32, 8), x(32), x(32)], True, 1, 0.0, False, False, False)),
    (aten.gru.input, (x(5, 6, 7), x(1, 6, 8), [x(24, 7), x(24, 8), x(24), x(24)], True, 1, 0.0, False, False, False)),
    (aten.mkldnn_rnn_layer, (x(5, 6, 7), x(32, 7), x(32, 8), x(32), x(32), x(1, 6, 8), x(1, 6, 8), False, [], 2, 8, 1, True, False, False, False)),
    (aten.cat, ([x(6, 8), x(6, 10)], 1)),
    (aten.stack, ([x(6, 8), x(6, 8)], 1)),
    (aten.split.Tensor, (x(6, 8), 4, 1)),
    (aten.unfold, (x(6, 8), 1, 4, 2)),
    (aten.im2col, (x(4, 6, 8, 10), [3, 3], [1, 1], [1, 1], [1, 1])),
    (aten.col2im, (x(4, 54, 80), [8, 10], [3, 3], [1, 1], [1, 1], [1, 1])),
    (aten.pixel_shuffle, (x(4, 24, 5, 7), 2)),
    (aten.pixel_unshuffle, (x(4, 6, 10, 14), 2)),
    (aten.repeat, (x(6, 8), [2, 1, 3])),
    (aten.repeat_interleave.self_int, (x(6, 8), 2, 1)),
    (aten.expand, (x(6, 1, 8), [6, 5, 8])),
    (aten.as_strided, (x(6, 8), [6, 8], [8, 1])),
    (aten.view, (x(6, 8, 10), [48, 10])),
    (aten.permute, (x(6, 8, 10), [2, 0, 1])),
    (aten.kthvalue, (x(6, 8), 3, 1)),
    (aten.median.dim, (x(6, 8), 1)),
    (aten.cdist, (x(6, 8, 5), x(6, 10, 5))),
    (aten._cdist_forward, (x(6, 8, 5), x(6, 10, 5), 2.0, None)),
    (aten._pdist_forward, (x(8, 5), 2.0)),
    (aten.cross, (x(6, 8, 3), x(6, 8, 3), 2)),
    (aten.linalg_cross, (x(6, 8, 3), x(6, 8, 3))),
    (aten.linalg_inv_ex, (x(6, 5, 5) + 5 * torch.eye(5),)),
    (aten.linalg_cholesky_ex, (x(6, 5, 5) + 5 * torch.eye(5),)),
    (aten.linalg_qr, (x(6, 8, 5),)),
    (aten._trilinear, (x(6, 8), x(6, 8), x(6, 8), [], [], [], [1])),
    (aten._weight_norm_interface, (x(6, 8), x(6, 1), 0)),
    (aten.renorm, (x(6, 8), 2.0, 0, 1.0)),
    (aten.glu, (x(6, 8), 1)),
    (aten.glu_backward, (x(6, 4), x(6, 8), 1)),
    (aten._scaled_dot_product_flash_attention_for_cpu, (x(2, 4, 6, 8), x(2, 4, 10, 8), x(2, 4, 10, 8))),
    (aten._embedding_bag, (x(10, 7), i(10, 8), torch.tensor([0, 3, 5]))),
    (aten.one_hot, (i(5, 6), 5)),
    (aten.channel_shuffle, (x(4, 6, 8, 10), 3)),
    (aten.rot90, (x(6, 8, 10), 1, [1, 2])),
    (aten.trace, (x(8, 8),)),
    (aten.diag_embed, (x(6, 8),)),
    (aten.fill.Scalar, (x(6, 8), 1.0)),
    (aten.polar, (x(6, 8), x(6, 8))),
    (aten.addcmul, (x(6, 8), x(6, 8), x(6, 8))),
    (aten.addbmm, (x(6, 10), x(4, 6, 8), x(4, 8, 10))),
    (aten.addr, (x(6, 8), x(6), x(8))),
    (aten.nansum, (x(6, 8), [1])),
    (aten.aminmax, (x(6, 8),)),
    (aten.dist, (x(6, 8), x(6, 8))),
]  # fmt: skip


def _f(*shape: int) -> str:
    return "x".join([*map(str, shape), "f32"])


def _ints(name: str, *numbers: int) -> str:
    return f"{name} = [{', '.join(f'{n} : si64' for n in numbers)}]"


def _int(name: str, number: int) -> str:
    return f"{name} = {number} : si64"


_I = "xi64"
_IMAGE = _f(4, 6, 8, 10)
ONNX: list[tuple[str, Sequence[str], Sequence[str], str]] = [
    ("MatMul", [_f(6, 8), _f(8, 10)], [_f(6, 10)], ""),
    ("Gemm", [_f(6, 8), _f(8, 10), _f(10)], [_f(6, 10)], ""),
    ("Softmax", [_f(6, 8, 10)], [_f(6, 8, 10)], _int("axis", -1)),
    ("LogSoftmax", [_f(6, 8, 10)], [_f(6, 8, 10)], _int("axis", -1)),
    ("LayerNormalization", [_f(6, 8, 10), _f(10), _f(10)], [_f(6, 8, 10)], _int("axis", -1)),
    ("RMSNormalization", [_f(6, 8, 10), _f(10)], [_f(6, 8, 10)], _int("axis", -1)),
    ("GroupNormalization", [_f(4, 12, 5, 7), _f(12), _f(12)], [_f(4, 12, 5, 7)], _int("num_groups", 6)),
    ("InstanceNormalization", [_f(4, 6, 8, 10), _f(6), _f(6)], [_IMAGE], ""),
    ("BatchNormalization", [_f(4, 6, 8, 10), *[_f(6)] * 4], [_IMAGE], ""),
    ("LpNormalization", [_f(6, 8)], [_f(6, 8)], _int("axis", 1)),
    ("MeanVarianceNormalization", [_IMAGE], [_IMAGE], ""),
    ("LRN", [_IMAGE], [_IMAGE], _int("size", 3)),
    ("Gather", [_f(10, 7), f"6x8{_I}"], [_f(6, 8, 7)], _int("axis", 0)),
    ("GatherElements", [_f(6, 8), f"6x5{_I}"], [_f(6, 5)], _int("axis", 1)),
    ("GatherND", [_f(6, 8, 10), f"5x2{_I}"], [_f(5, 10)], ""),
    ("ScatterND", [_f(6, 8, 10), f"5x1{_I}", _f(5, 8, 10)], [_f(6, 8, 10)], ""),
    ("ScatterElements", [_f(6, 8), f"6x5{_I}", _f(6, 5)], [_f(6, 8)], _int("axis", 1)),
    ("TensorScatter", [_f(6, 12, 10), _f(6, 4, 10), f"6{_I}"], [_f(6, 12, 10)], _int("axis", 1)),
    ("Concat", [_f(6, 8), _f(6, 10)], [_f(6, 18)], _int("axis", 1)),
    ("Trilu", [_f(6, 8, 10)], [_f(6, 8, 10)], ""),
    ("Gelu", [_f(6, 8)], [_f(6, 8)], ""),
    ("Transpose", [_f(6, 8, 10)], [_f(10, 6, 8)], _ints("perm", 2, 0, 1)),
    ("Conv", [_IMAGE, _f(5, 6, 3, 3), _f(5)], [_f(4, 5, 8, 10)], _ints("pads", 1, 1, 1, 1)),
    ("ConvTranspose", [_IMAGE, _f(6, 5, 2, 2)], [_f(4, 5, 16, 20)], _ints("strides", 2, 2)),
    ("MaxPool", [_f(4, 6, 26, 28)], [_f(4, 6, 26, 28)], _ints("kernel_shape", 13, 13) + ", " + _ints("pads", 6, 6, 6, 6)),
    ("AveragePool", [_IMAGE], [_f(4, 6, 4, 5)], _ints("kernel_shape", 2, 2) + ", " + _ints("strides", 2, 2)),
    ("GlobalAveragePool", [_IMAGE], [_f(4, 6, 1, 1)], ""),
    ("GlobalMaxPool", [_IMAGE], [_f(4, 6, 1, 1)], ""),
    ("LpPool", [_IMAGE], [_f(4, 6, 4, 5)], _ints("kernel_shape", 2, 2) + ", " + _ints("strides", 2, 2)),
    ("ReduceSum", [_f(6, 8)], ["f32"], _int("keepdims", 0)),
    ("ReduceMean", [_f(6, 8)], ["f32"], _int("keepdims", 0)),
    ("ReduceMax", [_f(6, 8)], ["f32"], _int("keepdims", 0)),
    ("ReduceL2", [_f(6, 8)], ["f32"], _int("keepdims", 0)),
    ("ReduceL1", [_f(6, 8)], ["f32"], _int("keepdims", 0)),
    ("ReduceLogSumExp", [_f(6, 8)], ["f32"], _int("keepdims", 0)),
    ("ArgMax", [_f(6, 8)], [f"6{_I}"], _int("axis", 1) + ", " + _int("keepdims", 0)),
    ("CumSum", [_f(6, 8), "i64"], [_f(6, 8)], ""),
    ("LSTM", [_f(5, 6, 7), _f(1, 32, 7), _f(1, 32, 8), _f(1, 64)], [_f(5, 1, 6, 8), _f(1, 6, 8), _f(1, 6, 8)], _int("hidden_size", 8)),
    ("GRU", [_f(5, 6, 7), _f(1, 24, 7), _f(1, 24, 8), _f(1, 48)], [_f(5, 1, 6, 8), _f(1, 6, 8)], _int("hidden_size", 8)),
    ("RNN", [_f(5, 6, 7), _f(1, 8, 7), _f(1, 8, 8), _f(1, 16)], [_f(5, 1, 6, 8), _f(1, 6, 8)], _int("hidden_size", 8)),
    ("Attention", [_f(2, 4, 6, 8), _f(2, 4, 10, 8), _f(2, 4, 10, 8)], [_f(2, 4, 6, 8)], ""),
    ("RotaryEmbedding", [_f(2, 4, 6, 8), _f(2, 6, 4), _f(2, 6, 4)], [_f(2, 4, 6, 8)], ""),
    ("Where", ["6x8xi1", _f(6, 8), _f(6, 8)], [_f(6, 8)], ""),
    ("Einsum", [_f(4, 6, 8), _f(4, 10, 8)], [_f(4, 6, 10)], 'equation = "bij,bkj->bik"'),
    ("DepthToSpace", [_f(4, 24, 5, 7)], [_f(4, 6, 10, 14)], _int("blocksize", 2)),
    ("SpaceToDepth", [_f(4, 6, 10, 14)], [_f(4, 24, 5, 7)], _int("blocksize", 2)),
    ("GridSample", [_IMAGE, _f(4, 7, 9, 2)], [_f(4, 6, 7, 9)], 'mode = "linear"'),
    ("GridSample", [_IMAGE, _f(4, 7, 9, 2)], [_f(4, 6, 7, 9)], 'mode = "cubic"'),
    ("SoftmaxCrossEntropyLoss", [_f(6, 8), f"6{_I}"], ["f32"], 'reduction = "sum"'),
    ("NegativeLogLikelihoodLoss", [_f(6, 8), f"6{_I}"], ["f32"], 'reduction = "sum"'),
    ("Hardmax", [_f(6, 8)], [_f(6, 8)], _int("axis", 1)),
    ("PRelu", [_IMAGE, _f(6, 1, 1)], [_IMAGE], ""),
    ("EyeLike", [_f(6, 8)], [_f(6, 8)], ""),
    ("Det", [_f(6, 5, 5)], [_f(6)], ""),
    ("Shrink", [_f(6, 8)], [_f(6, 8)], ""),
    ("Swish", [_f(6, 8)], [_f(6, 8)], ""),
    ("NonZero", [_f(6, 8)], [f"2x48{_I}"], ""),
    ("BlackmanWindow", ["i64"], [_f(10)], ""),
]  # fmt: skip


def _onnx(name: str, operands: Sequence[str], results: Sequence[str], properties: str) -> tuple[Operation, Arrays]:
    op, rng = onnx_operation(name, operands, results, properties), np.random.default_rng(0)
    smallest = min([n for o in op.operands for n in getattr(o.type, "get_shape", tuple)()], default=1)
    arrays: Arrays = []
    for text in operands:
        *shape, element = text.split("x")
        dims = tuple(map(int, shape))
        match element:
            case "f32":
                arrays.append(rng.uniform(0.1, 1.0, dims))
            case "i1":
                arrays.append(rng.random(dims) < 0.5)
            case _:
                arrays.append(rng.integers(0, max(1, min(2, smallest)), dims))
    return op, arrays


def instances(only: str = "") -> Iterator[Instance]:
    """All of them, in the order of the lists; those whose names begin so."""

    def call(function: Any, args: Sequence[Any]) -> Callable[[], tuple[Operation, Arrays]]:
        overload = function.default if hasattr(function, "default") else function
        if not hasattr(overload, "_schema"):
            overload = getattr(function, function.overloads()[0])
        return lambda: operation(Call(overload, tuple(args), {}))

    for function, args in ATEN:
        name = str(function)
        if name.startswith(only):
            yield Instance(name, call(function, args))
    for name, operands, results, properties in ONNX:
        if f"onnx.{name}".startswith(only):
            yield Instance(f"onnx.{name}", lambda a=name, o=operands, r=results, p=properties: _onnx(a, o, r, p))
