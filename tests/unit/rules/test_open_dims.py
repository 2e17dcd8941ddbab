"""Operators that were cut nowhere, or in fewer dims than everyone sees: counts of truths, complex numbers, recurrences, large windows. And
steps that are imported as operators that rules cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn
from torch.nn import functional
from xdsl.ir import Operation

from benchmarks.operator_instances import instances
from benchmarks.rule_dims import cut_by_halves, open_dims
from distir.frontends.eager import verify_against_eager
from distir.frontends.onnx import import_model
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.exact.scalars import Scalar
from distir.interpreters.isolation import answers
from distir.passes.shardcombine import discovery
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine.time_limits import OutOfTime, limited_time
from distir.passes.shardcombine_annotate import is_operator
from tests.long_cases import also_long
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
    assert "partial = [sum: 0 -> 0]" in rule_of(aten.view_as_real.default, numbers)
    assert "partial = [sum: 0 -> 0]" in rule_of(aten.view_as_complex.default, torch.rand(6, 8, 2))
    assert "partial" not in rule_of(aten.abs.default, numbers)


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


def pooled() -> Operation:
    op, _ = operation(Call(aten.max_pool2d.default, (torch.rand(4, 6, 8, 8), [3, 3], [1, 1], [1, 1]), {}))
    return op


def by_itself() -> Operation:
    """A convolution by its own input, which is asked as of two operands, and then as it is."""
    shapes = {"x": [6, 6, 3, 3], "y": [6, 6, 1, 1]}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph([helper.make_node("Conv", ["x", "x"], ["y"])], "g", [x], [y])
    return next(op for op in import_model(helper.make_model(graph)).walk() if op.name == "onnx.Conv")


@pytest.mark.parametrize(("make", "cuts"), [(pooled, 2), pytest.param(by_itself, 5, marks=pytest.mark.long)])
def test_what_is_found_before_the_time_is_over_is_kept(
    make: Callable[[], Operation], cuts: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cuts whole dims is found first, and then windows never end, of each form of the operator."""

    def windows(*_: object) -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    monkeypatch.setattr(discovery, "answers", partial(answers, cpu_seconds=6.0))
    monkeypatch.setattr(discovery, "CPU_SECONDS", 6.0)
    monkeypatch.setattr("distir.passes.shardcombine.class_rules.windows", windows)
    monkeypatch.setattr(discovery, "_is_all_cut", lambda *_: False)
    rule = Discovery(InterpreterDomains()).rule(make())
    assert [len(combines) for combines in rule.combines.values()] == [1] * cuts
    assert "may be cut in more ways" in capsys.readouterr().err


def test_the_end_of_the_time_is_not_taken_for_an_answer() -> None:
    """numpy makes a SystemError of what is raised in its products of exact scalars, and a search takes every Exception for the operator's own."""
    a, b = (np.full(shape, Scalar.of(5), object) for shape in ((4, 64), (256, 64)))

    def search() -> None:
        try:
            while True:
                np.dot(a, b.T)
        except Exception:
            return

    with pytest.raises(OutOfTime), limited_time(0.2):
        search()


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


def image() -> Tensor:
    return torch.randn(4, 6, 8, 10)


def with_gradients(function: Callable[..., Tensor]) -> Callable[..., Any]:
    def step(*args: Tensor) -> Any:
        args = tuple(each.requires_grad_() for each in args)
        return torch.autograd.grad(function(*args).square().sum(), args)

    return step


def truths_in_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x > 0).any(), (x > -1).all(1)


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], set[int]]] = {
    "pads that reflect": (lambda x: functional.pad(x, (1, 2, 2, 1), mode="reflect"), (image(),), set()),
    "their gradient": (with_gradients(lambda x: functional.pad(x, (1, 2, 2, 1), mode="reflect")), (image(),), set()),
    "circular pads": (lambda x: functional.pad(x, (1, 2, 2, 1), mode="circular"), (image(),), {8, 10, 11, 13, 2}),
    "writes to columns": (lambda x, y: x.index_put((torch.tensor([1, 2, 0]),), y), (image(), image()[:3]), {3, 4}),
    "resampling": (with_gradients(lambda x: functional.interpolate(x, (16, 20))), (image(),), {2}),
    "short-time transform": (
        lambda x: torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True).abs(),
        (torch.randn(4, 64),),
        {8, 64},
    ),
    "deviations": (lambda x: (x.std(1), x.var((1, 2), correction=0, keepdim=True)), (image(),), set()),
    "truths": (truths_in_rows, (image(),), set()),
    "logarithms of sums": (with_gradients(lambda x: torch.logsumexp(x, (1, 2))), (image(),), set()),
    "distances": (lambda x, y: torch.dist(x, y), (image(), image()), set()),
    "norms of weights": (with_gradients(lambda v, g: aten._weight_norm(v, g, 0)), (image(), image()[:, :1, :1, :1]), set()),
    "channels in groups": (with_gradients(lambda x: functional.channel_shuffle(x, 3)), (image(),), {3}),
    "inverse transforms": (lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=3), dim=3), (image(),), {6, 10}),
}  # fmt: skip


@pytest.mark.parametrize("name", also_long(CASES, [*CASES][::4]))
def test_dims_that_everyone_sees_cut(name: str) -> None:
    """All dims but those whose extents are given, and the program computes what PyTorch does."""
    function, args, open_ = CASES[name]
    module = import_step(function, args)
    assert verify_against_eager(module).holds
    ops = [op for op in module.walk() if is_operator(op)]
    rules = Discovery(InterpreterDomains()).rules(ops)
    left = {extent for op, rule in zip(ops, rules, strict=True) for _, _, extent in open_dims(op, rule)}
    assert left <= open_


def test_a_triangle_by_default_is_cut_in_its_rows_and_columns() -> None:
    """ONNX's, from the diagonal that is the default."""
    nodes = [helper.make_node("Trilu", ["x"], ["y"], upper=0)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [6, 8, 10]) for name in "xy")
    opset = [helper.make_opsetid("", 18)]
    module = import_model(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opset))
    (op,) = (op for op in module.walk() if op.name == "onnx.Trilu")
    rule = Discovery(InterpreterDomains()).rule(op)
    assert "offset = S2(raises = k[0]), offset = S3(lowers = k[0])" in str(rule)
