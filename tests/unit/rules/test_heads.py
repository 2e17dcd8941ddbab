"""Attention on the tensor axis: heads that lie inside the rows of a merged dim are cut like any others, however attention is
spelled and however many rows a batch has, so that every contraction of a training step falls as 1 / T on each device."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, scaled_dot_product_attention
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from distir.dialects.dist import CallOp
from distir.dialects.dist.attributes import placements
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.entry import entry_function
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.interpreters.work import Kind, work_of
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.search.configurations import Configuration
from distir.passes.search.search import Search
from distir.passes.structure import functions
from tests.long_cases import also_long

HEADS, HEAD, SEQUENCE = 4, 3, 5
WIDTH = HEADS * HEAD


class Attention(nn.Module):
    """Attention of one of the spellings, with a projection, and a residual."""

    def __init__(self, spelling: Callable[[Tensor, Tensor, Tensor], Tensor], groups: int = HEADS, fused: bool = False):
        super().__init__()
        torch.manual_seed(0)
        self.spelling, self.fused, self.groups = spelling, fused, groups
        self.sizes = [WIDTH, groups * HEAD, groups * HEAD]
        if fused:
            self.qkv = nn.Linear(WIDTH, sum(self.sizes))
        else:
            self.q, self.k, self.v = (nn.Linear(WIDTH, size) for size in self.sizes)
        self.projection = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).split(self.sizes, -1) if self.fused else (self.q(x), self.k(x), self.v(x))
        q, k, v = (t.unflatten(-1, (-1, HEAD)).transpose(1, 2) for t in (q, k, v))
        k, v = (t.repeat_interleave(HEADS // self.groups, 1) for t in (k, v))
        return x + self.projection(self.spelling(q, k, v).transpose(1, 2).flatten(2))


def matmuls(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) * HEAD**-0.5).softmax(-1) @ v


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    positions = torch.arange(SEQUENCE)
    scores = (q @ k.transpose(-1, -2)).masked_fill(positions[:, None] < positions, float("-inf"))
    return scores.softmax(-1) @ v


def einsums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1), v)


def merged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads of all rows in one dim, as in nn.MultiheadAttention and in models of T5's time."""
    q, k, v = (t.flatten(0, 1) for t in (q, k, v))
    return torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v).unflatten(0, (-1, HEADS))


def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """ALiBi, whose slopes differ by head: the bias is added in the merged dim."""
    slopes = 2.0 ** -torch.arange(1, HEADS + 1, dtype=q.dtype)
    bias = slopes[:, None, None] * torch.arange(SEQUENCE, dtype=q.dtype)
    rows = bias.expand(len(q), HEADS, 1, SEQUENCE).reshape(-1, 1, SEQUENCE)
    scores = torch.baddbmm(rows, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2))
    return torch.bmm(scores.softmax(-1), v.flatten(0, 1)).unflatten(0, (-1, HEADS))


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=True)


class PyTorchs(nn.Module):
    """The layer of PyTorch, sequence first or batch first."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.batch_first = batch_first
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        y = x + self.attention(x, x, x, need_weights=False)[0]
        return y if self.batch_first else y.transpose(0, 1)


SPELLINGS: dict[str, Callable[[], nn.Module]] = {
    "matmuls": lambda: Attention(matmuls),
    "fused qkv": lambda: Attention(masked, fused=True),
    "einsums": lambda: Attention(einsums),
    "merged": lambda: Attention(merged),
    "merged, fused qkv": lambda: Attention(merged, fused=True),
    "biased": lambda: Attention(biased),
    "grouped": lambda: Attention(merged, groups=2),
    "grouped, fused qkv": lambda: Attention(masked, groups=2, fused=True),
    "sdpa": lambda: Attention(fused),
    "grouped sdpa": lambda: Attention(fused, groups=2),
    "PyTorch's": lambda: PyTorchs(batch_first=True),
    "PyTorch's, sequence first": lambda: PyTorchs(batch_first=False),
}


@cache
def step(spelling: str, batch: int) -> ModuleOp:
    """An annotated training step of two layers."""
    model = nn.Sequential(SPELLINGS[spelling](), SPELLINGS[spelling]()).double()
    example = torch.randn(2, batch, SEQUENCE, WIDTH, dtype=torch.float64)
    made = training_step(model, mse_loss, torch.optim.Adam(model.parameters(), 1e-3))
    module = import_step(made, (example[0], example[1]))
    prepare(Context(), module)
    return module


def distributed(module: ModuleOp, **degrees: int) -> ModuleOp:
    copy = module.clone()
    DtpParallelizePass(**degrees).apply(Context(), copy)
    copy.verify()
    return copy


def contraction_flops(module: ModuleOp) -> int:
    """What contractions take on device 0."""
    table = functions(module)

    def of(function: FuncOp, device: int) -> int:
        found = 0
        for op in function.body.block.ops:
            if isinstance(op, CallOp):
                if device in op.devices:
                    found += of(table[op.callee.string_value()], op.devices.index(device))
            elif {on.device for on in placements(v.type for v in op.results)} == {device}:
                work = work_of(op)
                found += work.flops if work.kind is Kind.MATMUL else 0
        return found

    return of(entry_function(module), 0)


def check(module: ModuleOp, copy: ModuleOp) -> None:
    """The copy computes the same."""
    inputs = {**weights_of(module), **draw_inputs(module, 0, names=["input", "label"])}
    expected, got = run(module, inputs, dtype=np.float64), run(copy, inputs, dtype=np.float64)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-10, atol=1e-10, err_msg=name)


QUICK = ("biased", "grouped, fused qkv")


@pytest.mark.parametrize("spelling", also_long(SPELLINGS, QUICK[1:]))
def test_contractions_fall_as_tensor_ranks_grow(spelling: str):
    module = step(spelling, 4)
    whole = contraction_flops(distributed(module))
    for tp in (2,) if spelling in QUICK or "grouped" in spelling else (2, 4):
        copy = distributed(module, tp=tp)
        assert contraction_flops(copy) * tp == whole
        check(module, copy)


ROWS: list[tuple[int, dict[str, int]]] = [
    (1, {}),
    (4, {"dp": 2, "microbatches": 2, "pp": 2}),
    (16, {}),
    (4, {}),
    (4, {"dp": 2}),
    (4, {"microbatches": 4}),
    (16, {"dp": 2, "pp": 2, "microbatches": 4}),
]


@pytest.mark.parametrize("rows", also_long(ROWS, ROWS[1:2]), ids=str)
def test_however_many_rows(rows: tuple[int, dict[str, int]]):
    """16 rows of 2 heads are more pieces than are made whole again: all that heads are in stays cut."""
    batch, degrees = rows
    module = step("merged, fused qkv", batch)
    copy = distributed(module, tp=2, **degrees)
    assert contraction_flops(copy) * 2 == contraction_flops(distributed(module, **degrees))
    check(module, copy)


@pytest.mark.parametrize(
    "spelling", also_long(["merged, fused qkv", "matmuls", "grouped", "sdpa"], ["merged, fused qkv"])
)
def test_the_integer_program_cuts_heads_of_more_rows_than_are_listed(spelling: str):
    """Pieces for each of over 1,024 rows are written as a period."""
    module = step(spelling, 1040)
    copy = distributed(module, dp=2, tp=2, sharding="ilp", divide=True)
    assert contraction_flops(copy) * 4 == contraction_flops(distributed(module))
    check(module, copy)


def test_a_search_cuts_heads_for_any_batch():
    module = step("merged", 16)
    search = Search(
        lambda _: module.clone(), "dgx-a100", "analytic", 10**12, restrict="dp=batch,tp=model", divides=True
    )
    plans = [Configuration(16, dp, 2, pp, k, "1f1b") for dp, pp, k in [(2, 2, 8)]]
    for outcome in search.outcomes(plans):
        c = outcome.configuration
        program = search.program(c)
        one = distributed(module, dp=c.dp, pp=c.pp, microbatches=c.microbatches)
        assert contraction_flops(program) * 2 == contraction_flops(one)
    check(module, search.program(plans[-1]))
