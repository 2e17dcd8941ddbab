"""What discovery finds for the operators that training needs most, and what it does not: the table of `docs/rule_table.md`.

    python -m benchmarks.rule_coverage [--write docs/rule_table.md]

The first rows are those of Figure 3 of the MetaDist paper. Each other row is an operator of ATen (or a function of torch
over several), through `distir.discover`. `missing` is written by hand: the valid ways to cut that are not in the rule.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import distir

aten = torch.ops.aten
TRAIN = (True, 0.1, 1e-5)


@dataclass
class Row:
    """An operator, example arguments, and what its rule lacks."""

    family: str
    name: str
    call: Callable[..., Any]
    arguments: Sequence[Any]
    missing: str = ""


def t(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


def indices(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def convolution(stride: int = 1, padding: int = 0, groups: int = 1, dilation: int = 1) -> Callable[..., Any]:
    def call(x: Any, w: Any, b: Any = None) -> Any:
        return aten.convolution(x, w, b, [stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], groups)

    return call


def by_input(stride: int = 1, padding: int = 0, more: int = 0) -> Callable[..., Any]:
    def call(g: Any, w: Any, groups: int = 1) -> Any:
        return aten.convolution(g, w, None, [stride] * 2, [padding] * 2, [1, 1], True, [more] * 2, groups)

    return call


def by_weight(stride: int = 1, padding: int = 0) -> Callable[..., Any]:
    def call(g: Any, x: Any, w: Any, groups: int = 1) -> Any:
        rest = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, [False, True, False]
        return aten.convolution_backward(g, x, w, [0], *rest)[1]

    return call


def average_backward(g: Any, x: Any) -> Any:
    return aten.avg_pool2d_backward(g, x, [3, 3], [2, 2], [1, 1], False, True, None)


def maximum_backward(g: Any, x: Any) -> Any:
    return aten.max_pool2d_backward(g, x, [3, 3], [2, 2], [1, 1])


def maximum_backward_by_places(g: Any, x: Any, places: Any) -> Any:
    return aten.max_pool2d_with_indices_backward(g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places)


def grouped(x: Any, w: Any, b: Any, groups: int) -> Any:
    return aten.convolution(x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], groups)


def numpy_layer_norm(x: Any) -> Any:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + 1e-5)


STATISTICS = "the batch: partial sums of the statistics, by decomposition"
NORMALISED = "the normalised dims: partial sums of the statistics, by decomposition"
CLASSES = "the classes: a partial maximum and sum, by decomposition"
ROWS = np.ones((8, 12)), np.ones((12, 6))
Z, MEAN = t(8, 10, 6), t(8, 10, 1)
X = torch.randn(4, 6, 8, 9)
MAXIMA = torch.ones(4, 6, 4, 5), X, aten.max_pool2d_with_indices(X, [3, 3], [2, 2], [1, 1])[1]
ROW = [
    Row("Figure 3", "MatMul", lambda x, w: x @ w, ROWS),
    Row("Figure 3", "Elementwise-Add", lambda x, y: x + y, (ROWS[0], ROWS[0])),
    Row("Figure 3", "LayerNorm", numpy_layer_norm, ROWS[:1], NORMALISED),
    Row("matmul", "mm", aten.mm, (t(8, 12), t(12, 6))),
    Row("matmul", "bmm", aten.bmm, (t(4, 8, 12), t(4, 12, 6))),
    Row("matmul", "addmm", aten.addmm, (t(6), t(8, 12), t(12, 6))),
    Row("matmul", "linear (3-d)", torch.nn.functional.linear, (t(4, 8, 12), t(6, 12), t(6))),
    Row("matmul", "einsum bij,bkj->bik", lambda x, y: torch.einsum("bij,bkj->bik", x, y), (t(4, 8, 12), t(4, 6, 12))),
    Row("convolution", "1x1", convolution(), (t(4, 6, 8, 9), t(10, 6, 1, 1))),
    Row("convolution", "3x3", convolution(), (t(4, 6, 8, 9), t(10, 6, 3, 3))),
    Row("convolution", "3x3, padding, bias", convolution(padding=1), (t(4, 6, 8, 9), t(10, 6, 3, 3), t(10))),
    Row("convolution", "3x3, stride 2, padding, bias", convolution(2, 1), (t(4, 6, 8, 9), t(10, 6, 3, 3), t(10))),
    Row("convolution", "3x3, dilation 2, padding 2", convolution(padding=2, dilation=2), (t(4, 6, 8, 9), t(10, 6, 3, 3))),
    Row("convolution", "2x2, stride 2 (patches)", convolution(2), (t(4, 6, 8, 10), t(10, 6, 2, 2))),
    Row("convolution", "3x3, groups", grouped, (t(4, 12, 8, 9), t(8, 3, 3, 3), t(8), 4)),
    Row("convolution", "depthwise 3x3", grouped, (t(4, 12, 8, 9), t(12, 1, 3, 3), t(12), 12)),
    Row("convolution", "by its input, 3x3, padding", by_input(padding=1), (t(4, 10, 8, 9), t(10, 6, 3, 3))),
    Row("convolution", "by its input, 3x3, stride 2", by_input(2, 1, 1), (t(4, 10, 4, 5), t(10, 6, 3, 3))),
    Row("convolution", "by its input, 2x2, stride 2 (patches)", by_input(2), (t(4, 10, 4, 5), t(10, 6, 2, 2))),
    Row("convolution", "by its input, 3x3, groups", by_input(1, 1), (t(4, 8, 8, 9), t(8, 3, 3, 3), 4)),
    Row("convolution", "by its weight, 3x3, padding", by_weight(padding=1), (t(4, 10, 8, 9), t(4, 6, 8, 9), t(10, 6, 3, 3))),
    Row("convolution", "by its weight, 3x3, stride 2", by_weight(2, 1), (t(4, 10, 4, 5), t(4, 6, 8, 9), t(10, 6, 3, 3))),
    Row("convolution", "by its weight, 2x2, stride 2 (patches)", by_weight(2), (t(4, 10, 4, 5), t(4, 6, 8, 10), t(10, 6, 2, 2))),
    Row("convolution", "by its weight, 3x3, groups", by_weight(1, 1), (t(4, 8, 8, 9), t(4, 12, 8, 9), t(8, 3, 3, 3), 4)),
    Row("convolution", "by its weight, depthwise 3x3", by_weight(1, 1),
        (t(4, 12, 8, 9), t(4, 12, 8, 9), t(12, 1, 3, 3), 12)),
    Row("pooling", "max_pool2d 2x2", lambda x: aten.max_pool2d(x, [2, 2]), (t(4, 6, 8, 10),)),
    Row("pooling", "max_pool2d 3x3, stride 2, padding", lambda x: aten.max_pool2d(x, [3, 3], [2, 2], [1, 1]), (t(4, 6, 8, 10),)),
    Row("pooling", "avg_pool2d 3x3, stride 1", lambda x: aten.avg_pool2d(x, [3, 3], [1, 1]), (t(4, 6, 8, 10),)),
    Row("pooling", "adaptive_avg_pool2d to 1x1", lambda x: x.mean((2, 3)), (t(4, 6, 8, 10),)),
    Row("pooling", "avg_pool2d_backward 3x3, stride 2, padding", average_backward, (t(4, 6, 4, 5), t(4, 6, 8, 9))),
    Row("pooling", "max_pool2d_backward 3x3, stride 2, padding", maximum_backward, MAXIMA[:2]),
    Row("pooling", "max_pool2d_with_indices_backward 3x3, stride 2, padding", maximum_backward_by_places, MAXIMA,
        "rows and columns: places of maxima are positions in the whole image"),
    Row("norm", "native_layer_norm", lambda x, w, b: aten.native_layer_norm(x, [x.shape[-1]], w, b, 1e-5),
        (Z, t(6), t(6)), NORMALISED),
    Row("norm", "native_layer_norm_backward",
        lambda g, x, m, r, w, b: aten.native_layer_norm_backward(g, x, [x.shape[-1]], m, r, w, b, [True, True, True]),
        (Z, Z, MEAN, MEAN, t(6), t(6)), NORMALISED),
    Row("norm", "native_batch_norm, training", lambda x, w, b: aten.native_batch_norm(x, w, b, None, None, *TRAIN),
        (t(4, 6, 10), t(6), t(6)), STATISTICS),
    Row("norm", "native_batch_norm, inference",
        lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-5)[0],
        (t(4, 6, 10), t(6), t(6), t(6), t(6))),
    Row("norm", "group_norm", lambda x, groups, w, b: torch.nn.functional.group_norm(x, groups, w, b),
        (t(4, 12, 10), 6, t(12), t(12))),
    Row("attention", "scaled_dot_product_attention", torch.nn.functional.scaled_dot_product_attention,
        (t(2, 4, 8, 6), t(2, 4, 10, 6), t(2, 4, 10, 5)),
        "the keys (a partial maximum and sum) and the width of queries and keys (a partial product), by decomposition"),
    Row("attention", "_softmax over keys", lambda x: aten._softmax(x, -1, False), (t(4, 8, 10),),
        "the keys: a partial maximum and sum, by decomposition"),
    Row("attention", "_softmax_backward_data", lambda g, y: aten._softmax_backward_data(g, y, -1, torch.float32),
        (t(4, 8, 10), t(4, 8, 10)), "the keys: a partial sum, by decomposition"),
    Row("positions", "tril", lambda x, diagonal: aten.tril(x, diagonal), (t(4, 8, 9), 0)),
    Row("positions", "triu", lambda x, diagonal: aten.triu(x, diagonal), (t(4, 8, 9), 1)),
    Row("embedding", "embedding", aten.embedding, (t(10, 6), indices(4, 8))),
    Row("embedding", "embedding_dense_backward",
        lambda g, i, rows, padding: aten.embedding_dense_backward(g, i, rows, padding, False),
        (t(4, 8, 6), indices(4, 8), 10, -1)),
    Row("embedding", "index_add", lambda x, i, y: aten.index_add(x, 0, i, y), (t(10, 6), indices(8), t(8, 6))),
    Row("embedding", "scatter of a number", lambda x, i: aten.scatter(x, 1, i, -1.0), (t(8, 10), indices(8, 1))),
    Row("loss", "cross_entropy", torch.nn.functional.cross_entropy, (t(8, 12), indices(8)), CLASSES),
    Row("loss", "nll_loss_forward, sum", lambda x, y, i: aten.nll_loss_forward(x, y, None, 2, i)[0],
        (t(8, 12), indices(8), -100)),
    Row("loss", "nll_loss_backward, sum",
        lambda g, x, y, w, i: aten.nll_loss_backward(g, x, y, None, 2, i, w),
        (t(), t(8, 12), indices(8), t(), -100)),
    Row("loss", "_log_softmax_backward_data", lambda g, y: aten._log_softmax_backward_data(g, y, -1, torch.float32),
        (t(8, 12), t(8, 12)), "the classes: a partial sum, by decomposition"),
    Row("loss", "mse_loss, mean", torch.nn.functional.mse_loss, (t(8, 12), t(8, 12))),
]  # fmt: skip


def rule_text(row: Row) -> str:
    """The rule, without the name of the attribute."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return str(distir.discover(row.call, row.arguments)).removeprefix("#dist.rule<").removesuffix(">")


def table() -> str:
    lines = ["| operator | rule | not in the rule |", "|---|---|---|"]
    family = ""
    for row in ROW:
        if row.family != family:
            family = row.family
            lines.append(f"| **{family}** | | |")
        lines.append(f"| {row.name} | `{rule_text(row)}` | {row.missing} |")
    return "\n".join(lines) + "\n"


START, END = "<!-- table -->\n", "<!-- end of table -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="rules of the operators that training needs most")
    parser.add_argument("--write", type=Path, help="replace the table in this file")
    options = parser.parse_args()
    start = time.process_time()
    text = table()
    if options.write is None:
        print(text)
    else:
        before, _, rest = options.write.read_text().partition(START)
        options.write.write_text(f"{before}{START}{text}{END}{rest.partition(END)[2]}")
    print(f"{len(ROW)} operators, {time.process_time() - start:.1f} s of CPU")


if __name__ == "__main__":
    main()
