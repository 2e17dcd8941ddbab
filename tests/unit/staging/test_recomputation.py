"""Recomputation: what a step computes stays the same to the bit, what it holds becomes less, and `full` costs one more forward part."""

from collections import Counter
from contextlib import suppress
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, dropout, gelu
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import Block as IRBlock

from distir.dialects.dist import AccumulateOp
from distir.dialects.dist.microbatches import BatchRowsOp
from distir.dialects.errors import DistirError
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.cost_models import make_cost_model
from distir.interpreters.costs import Costs
from distir.interpreters.entry import entry_function
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.machines import load_machine
from distir.interpreters.module_check import check_module
from distir.interpreters.proof import prove
from distir.interpreters.reference import run
from distir.interpreters.simulate import summarize
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.outline_repeats import OutlineRepeatsPass
from distir.passes.recomputation.policies import NothingOfThatName
from distir.passes.recomputation.segments import Segment, keep_what_is_dear
from distir.passes.recompute_activations import RecomputeActivationsPass
from distir.passes.structure import callee_of, functions
from distir.tools.api import search
from tests.long_cases import also_long
from tests.small_models import residual_step
from tests.unit.equivalence.test_random_models import parse
from tests.unit.random_models import Program, models

TOKENS, WIDTH = 12, 16
POLICIES = ("full", "selective", "full:1", "selective:2/1", "mlp", "attention,aten.gelu", "bernoulli,_to_copy,div")


class Block(nn.Module):
    """Attention of one head with dropout, and a feed-forward block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.attention(self.norm(x)).chunk(3, -1)
        x = x + dropout((q @ k.transpose(-1, -2)).softmax(-1), 0.25) @ v
        return x + self.mlp(gelu(x))


class Net(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits.flatten(0, 1), labels.flatten())


@cache
def step(layers: int = 3, outlined: bool = True) -> ModuleOp:
    model = Net(layers)
    tokens = torch.randint(0, TOKENS, (8, 32), generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    module = import_step(training_step(model, loss, optimizer), (tokens, tokens))
    if outlined:
        OutlineRepeatsPass().apply(Context(), module)
    return module


def repeated(module: ModuleOp, policy: str) -> ModuleOp:
    copy = module.clone()
    RecomputeActivationsPass(policy).apply(Context(), copy)
    copy.verify()
    check_module(copy)
    return copy


@cache
def values() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    given = {**weights_of(step()), **draw_inputs(step(), 0)}
    return given, run(step(), given, dtype=np.float64)


@pytest.mark.parametrize(
    ("outlined", "policy"),
    also_long(product([True, False], POLICIES), [*zip([True, False] * 2, POLICIES, strict=False)], several=True),
)
def test_a_step_computes_the_same(policy: str, outlined: bool):
    """Dropout too: what is drawn again is drawn by the same key."""
    given, expected = values()
    found = repeated(step(outlined=outlined), policy)
    for name, value in run(found, given, dtype=np.float64).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    peaks = [summarize(module, "dgx-a100").peak_memory_bytes[0] for module in (found, step(outlined=outlined))]
    assert peaks[0] < peaks[1]


@pytest.mark.parametrize("policy", ["full", "selective"])
def test_what_is_repeated_is_proven(policy: str):
    assert prove(step(), repeated(step(), policy)).holds


def called(module: ModuleOp) -> dict[str, int]:
    """How often the entry calls each function."""
    return Counter(callee_of(op) or "" for op in entry_function(module).body.block.ops)


def test_full_recomputation_is_one_more_forward_part():
    """To the picosecond, less what only the layer's result is made of: here the last matrix product, its bias and the addition to the
    residual, which the backward part has no use for."""
    none, full = step(4), repeated(step(4), "full")
    (again,) = [name for name in called(full) if name.endswith("_again")]
    layer = again.removesuffix("_again")
    assert called(none)[layer] == called(full)[again] == called(full)[f"{layer}_forward"] == 4
    ops = list(functions(none)[layer].body.block.ops)[:-1]
    names = [op.name for op in functions(full)[again].body.block.ops]
    assert [op.name for op in ops] == [*names[:-1], "aten.t", "aten.addmm", "aten.view", "aten.add.Tensor"]
    costs = Costs(make_cost_model("analytic", load_machine("dgx-a100")))
    forward = sum(costs.of(op, (0,)).picoseconds for op in ops) - sum(costs.of(op, (0,)).picoseconds for op in ops[-4:])
    times = [summarize(module, "dgx-a100").makespan_picoseconds for module in (none, full)]
    assert times[1] - times[0] == 4 * forward


def test_a_layer_more_holds_its_input():
    """At the turn, 4 more layers hold their inputs more, in f32, and the keys of their draws; beside parameters and momentum."""
    few, many = (summarize(repeated(step(n), "full"), "dgx-a100").peak_memory_bytes[0] for n in (4, 8))
    stored = [sum(v.nbytes for v in weights_of(step(n)).values()) for n in (4, 8)]
    assert many - few == stored[1] - stored[0] + 4 * (8 * 32 * WIDTH * 4 + 8)


@pytest.mark.parametrize("degrees", [pytest.param({"tp": 2}, marks=pytest.mark.long), {"pp": 2}])
def test_a_batch_in_one_part_is_recomputed_too(degrees: dict[str, int]):
    """Gradients divided by how many labels there are begin when the loss is known, and need no loop to end before: what layers hold is dropped before."""
    peaks: list[int] = []
    for policy in ("none", "full"):
        program = step().clone()
        DtpParallelizePass(recompute=policy, **degrees).apply(Context(), program)
        peaks.append(max(summarize(program, "dgx-a100").peak_memory_bytes.values()))
    assert peaks[1] < 0.8 * peaks[0]


@given(models(), st.sampled_from(["full", "selective", "full:1", "Tanh", "MatMul,Softmax", "onnx.Split,Reshape"]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_random_steps_compute_the_same(program: Program, policy: str):
    module = parse(program.text)
    inputs = program.draw_inputs()
    expected = run(module, inputs, dtype=np.float64)
    with suppress(NothingOfThatName):
        module = repeated(module, policy)
    for name, value in run(module, inputs, dtype=np.float64).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.parametrize("policy", ["", "full:x", "selective:", "a,,b", "nowhere", "full:1/-2"])
def test_policies_that_are_none(policy: str):
    with pytest.raises(DistirError, match="policy: "):
        repeated(step(), policy)


def test_a_search_chooses_what_is_repeated():
    """Within less memory than the step needs, the fastest plan repeats as few layers of each stage as fit: none of the last, which has one microbatch in
    flight. Its program has its figures, and computes the same."""
    model = residual_step(layers=6, width=16, batch=16)
    options: dict[str, Any] = {"microbatches": [4], "schedules": ["1f1b"], "recompute": "none,full", "pp": 2}
    kept, less = search(model.module, "dgx-a100", 2, **options)
    assert (kept.configuration.recompute, less.configuration.recompute) == ("none", "full")
    limit = (kept.figures.peak_memory_bytes + less.figures.peak_memory_bytes) // 2
    best = search(model.module, "dgx-a100", 2, memory_limit=limit, **options).best
    assert best.configuration.recompute == "full:2/0"
    assert kept.figures.latency_seconds < best.figures.latency_seconds < less.figures.latency_seconds
    simulated = summarize(best.program, "dgx-a100")
    assert max(simulated.peak_memory_bytes.values()) == best.figures.peak_memory_bytes <= limit
    found = run(best.program, model.inputs, dtype=np.float64)
    for name, value in model.sequential(np.float64).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_view_that_cannot_be_repeated_is_kept() -> None:
    """Rows of a microbatch are taken where `pipeline-stages` says: the cut had no finite cost."""
    given_, other = (IRBlock(arg_types=[TensorType(f32, [64])]).args[0] for _ in range(2))
    rows = BatchRowsOp(given_, 0)
    ops = [rows, made := AccumulateOp([rows.output, other])]
    segment = Segment(ops, [rows.output, made.results[0]], {given_: 0, other: 0}, lambda op: 1)
    assert rows.output in keep_what_is_dear(segment)
