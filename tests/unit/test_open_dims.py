"""Operators that were cut nowhere, or in fewer dims than everyone sees: counts of truths, complex numbers, recurrences, large windows. And
steps that are imported as operators that rules cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from xdsl.ir import Operation

from benchmarks.operator_instances import instances
from benchmarks.rule_dims import cut_by_halves, open_dims
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters import isolation
from distir.passes.shardcombine import discovery
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine_annotate import is_operator
from tests.unit.aten_instances import Call, operation
from tests.unit.shard_executor import violations

aten = torch.ops.aten


def rule_of(function: object, *args: object) -> str:
    op, operands = operation(Call(function, args, {}))
    rule = Discovery(InterpreterDomains()).rule(op)
    wide = [a.astype({"f": np.float64, "c": np.complex128}.get(a.dtype.kind, a.dtype)) for a in operands]
    assert not violations(op, rule, wide, np.random.default_rng(0)).violations
    return str(rule)


def test_counts_of_truths_add_up() -> None:
    truths = torch.arange(480).reshape(6, 8, 10) % 3 == 0
    assert rule_of(aten.sum.default, truths).count("reduce(sum)") == 3
    assert rule_of(aten.count_nonzero.default, truths.float()[0]).count("reduce(sum)") == 2


def test_complex_numbers() -> None:
    numbers = torch.complex(torch.rand(6, 8, 10), torch.rand(6, 8, 10))
    assert "[S1, _, S2]" in rule_of(aten._fft_c2c.default, numbers, [1], 0, True)
    assert "{S1: gather(0), S2: reduce(sum), S3: gather(1)}" in rule_of(aten.mm.default, numbers[0], numbers[1].T)


def test_a_recurrence_is_cut_in_its_batch() -> None:
    (gru,) = instances("aten.gru.input")
    op, _ = gru.make()
    assert "[_, S1, _], [_, S1, _]" in str(Discovery(InterpreterDomains()).rule(op))


def test_rows_and_columns_of_large_windows() -> None:
    (pool,) = instances("onnx.MaxPool")
    op, operands = pool.make()
    rule = Discovery(InterpreterDomains()).rule(op)
    assert str(rule).count("halo = 6)") == 2
    assert open_dims(op, rule) == []
    assert cut_by_halves(op, operands) == {4: ["gather(0)"], 6: ["gather(1)"]}


def test_what_is_found_before_the_time_is_over_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batch and channels are found first, and then windows never end."""

    def windows(*_: object) -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    monkeypatch.setattr(isolation, "CPU_SECONDS", 5.0)
    monkeypatch.setattr(discovery, "CPU_SECONDS", 5.0)
    monkeypatch.setattr("distir.passes.shardcombine.class_rules.windows", windows)
    op, _ = operation(Call(aten.max_pool2d.default, (torch.rand(4, 6, 8, 8), [3, 3], [1, 1], [1, 1]), {}))
    rule = Discovery(InterpreterDomains()).rule(op)
    assert [len(combines) for combines in rule.combines.values()] == [1, 1]
    assert "may be cut in more ways" in capsys.readouterr().err


# --- imports ---


class Sequences(nn.Module):
    """What a step is made of that was one operator before, without a rule for what it sums over."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.head = nn.Upsample(scale_factor=2, mode="bilinear"), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.tril(torch.ones(8, 8))
        pooled = nn.functional.adaptive_avg_pool2d(self.up(x) * mask.repeat(2, 2), 4)
        buffer = torch.empty_like(pooled).copy_(pooled)
        return self.head(buffer.mean((2, 3))) / torch.linalg.vector_norm(self.head.weight)


def operators() -> list[Operation]:
    model = Sequences()
    step = training_step(model, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    module = import_step(step, (torch.randn(4, 6, 8, 8), torch.randint(0, 6, (4,))))
    return [op for op in module.walk() if is_operator(op)]


def test_steps_are_of_operators_that_rules_cut() -> None:
    ops = operators()
    names = {op.name for op in ops}
    assert {"aten.upsample_bilinear2d.vec", "aten.avg_pool2d", "aten.pow.Tensor_Scalar"} <= names
    assert not names & {"aten.linalg_vector_norm", "aten.empty_like", "aten._adaptive_avg_pool2d"}
    assert all("diagonal" in op.properties for op in ops if op.name == "aten.tril")
