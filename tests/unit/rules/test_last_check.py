"""Rules that a small stand-in, or one kind of draw, made seem true: they are not in what discovery gives. And what is found of ops that
crash or take too long."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from xdsl.ir import Operation

from distir.interpreters import operator_dialects
from distir.interpreters.isolation import NoAnswer, answers
from distir.interpreters.operator_dialects import MEANINGS, Meaning
from distir.passes.shardcombine.cache import RuleCache, current_file, read_entries
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.tools.distir import main
from tests.unit.aten_instances import Call, operation
from tests.unit.onnx_operations import onnx_operation
from tests.unit.rule_sweep import SOURCES, swept
from tests.unit.rules.test_offsets import triangle
from tests.unit.shard_executor import violations

aten = torch.ops.aten


def doubles(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


def rule_that_holds(op: Operation, operands: Sequence[Any]) -> str:
    rule = Discovery(InterpreterDomains()).rule(op)
    assert not violations(op, rule, operands, np.random.default_rng(0)).violations
    return str(rule)


@pytest.mark.parametrize(("name", "diagonal"), [("aten.triu", -63), ("aten.tril", 1500), ("onnx.Trilu", -63)])
def test_a_diagonal_that_a_few_rows_do_not_reach(name: str, diagonal: int) -> None:
    """Rows and columns still have their offsets: windows do not take them for cuts without one."""
    (op,) = (op for op in triangle(name, diagonal, 130, 120).walk() if op.name == name)
    operands = [np.random.default_rng(1).standard_normal((3, 130, 120)), np.array(diagonal)][: len(op.operands)]
    text = rule_that_holds(op, operands)
    assert text.count("raises") == text.count("lowers") == (diagonal < 0)


def test_a_value_that_is_two_operands_is_one_array_in_the_executor() -> None:
    """Drawn apart for each operand, it would make a rule that holds seem false: addends of the one are none of the other."""
    op, operands = operation(Call(aten.cat.default, ([doubles(2, 5), doubles(2, 5), doubles(2, 5)], 1), {}))
    op.operands[2] = op.operands[0]
    assert "sum: (0, 1, 2) -> 0" in rule_that_holds(op, operands)


def test_a_value_that_is_two_operands_may_be_cut_in_one_of_them() -> None:
    """The gradient and the second points are one value, and the gradient alone is cut by rows: a shard has its rows of the one and all of the
    other."""
    op, operands = operation(
        Call(aten._cdist_backward.default, (doubles(5, 5), doubles(5, 5), doubles(5, 5), 3.0, doubles(5, 5)), {})
    )
    op.operands[2], operands[2] = op.operands[0], operands[0]
    assert (
        "[S1, S2], [S1, S3], [S2, S3], [S1, S2] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}"
        in rule_that_holds(op, operands)
    )


def test_addends_may_be_zeros() -> None:
    """A value that all ranks have is made partial by zeros, of which a factorisation says that they are singular."""
    op, _ = operation(Call(aten.linalg_lu_factor_ex.default, (doubles(1, 5),), {}))
    assert "partial" not in str(Discovery(InterpreterDomains()).rule(op))


def test_sums_of_small_integers_wrap_in_shards_as_in_the_whole() -> None:
    bytes_ = torch.randint(0, 256, (4, 9), dtype=torch.uint8)
    op, operands = operation(Call(aten.mm.default, (bytes_, bytes_.T.contiguous()), {}))
    assert "S2: reduce(sum)" in rule_that_holds(op, operands)


def test_a_series_is_not_summed_over_a_trillion_integers() -> None:
    """Polygamma takes a step for every integer from its argument up to zero: asked for large negative numbers it does not end."""
    op, operands = operation(Call(aten.polygamma.default, (2, doubles(4, 5)), {}))
    assert "[S1, S2] -> {S1: gather(0), S2: gather(1)}" in rule_that_holds(op, operands)


def test_an_in_place_operator_inside_another_is_not_lost() -> None:
    """An LSTM cell adds its two products in place: without the first, results do not depend on the input."""
    n, i, h = 6, 7, 8
    weights = (doubles(4 * h, i), doubles(4 * h, h), doubles(4 * h), doubles(4 * h))
    call = Call(aten.lstm_cell.default, (doubles(n, i), [doubles(n, h), doubles(n, h)], *weights), {})
    assert "[S1, _], [S1, _], [S1, _]" in rule_that_holds(*operation(call))


def test_a_stand_in_that_enlarges_says_nothing_of_an_op_that_adds() -> None:
    call = Call(aten.upsample_nearest2d_backward.default, (doubles(2, 3, 10, 12), [10, 12], [2, 3, 5, 6]), {})
    assert "partial = [sum: 0 -> 0], found" in rule_that_holds(*operation(call))


@pytest.mark.parametrize("shape", [(), (15,)])
def test_zero_times_infinity_is_no_sum_of_addends(shape: tuple[int, ...]) -> None:
    """x log1p(y) is 0 where x is, whatever y: also where the addends of x, each with its own infinite result, are not."""
    op, _ = operation(Call(aten.special_xlog1py.default, (doubles(15), doubles(*shape).abs()), {}))
    x = np.random.default_rng(0).integers(-2, 3, 15).astype(float)
    assert "partial" not in rule_that_holds(op, [x, np.full(shape, -1.0)])


def test_a_whole_that_is_finite_of_addends_that_are_not() -> None:
    """Of one number times logarithms, either all results are finite or those of numbers below zero are not."""
    op, _ = operation(Call(aten.xlogy.Tensor, (doubles(), doubles(10, 5)), {}))
    assert "partial" not in rule_that_holds(op, [np.zeros(()), np.random.default_rng(0).standard_normal((10, 5))])


def test_what_is_an_extreme_of_most_numbers_only() -> None:
    """A gradient is passed on where a number is not zero, or beyond a bound: the least and the largest addends of both operands are
    those of the result in most draws."""
    call = Call(aten.softshrink_backward.default, (doubles(5, 5), doubles(5, 5), 0.0), {})
    assert "(0, 1)" not in rule_that_holds(*operation(call))
    assert "(0, 1)" not in rule_that_holds(
        *operation(Call(aten.hardshrink_backward.default, (doubles(), doubles(), 0.5), {}))
    )


def test_integers_that_saturate_say_nothing() -> None:
    """Of a quantized convolution: rows and columns overlap."""
    pads = ", ".join(["1 : si64"] * 4)
    types = ["1x2x8x7xui8", "f32", "ui8", "3x2x3x3xui8", "f32", "ui8", "f32", "ui8"]
    op = onnx_operation("QLinearConv", types, ["1x3x8x7xui8"], f"pads = [{pads}]")
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 255, (1, 2, 8, 7)).astype(np.uint8), rng.integers(0, 255, (3, 2, 3, 3)).astype(np.uint8)
    scales = [np.array(n, np.float32) for n in (0.02, 0.02, 1.0)]
    zeros = [np.array(n, np.uint8) for n in (128, 120, 100)]
    text = rule_that_holds(op, [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2]])
    assert text.count("halo = 1)") == 2


NUMBERS: list[tuple[Any, tuple[Any, ...]]] = [
    (aten.threshold.default, (doubles(5, 6), -800.0, -1.0)),
    (aten.hardtanh.default, (doubles(5, 6), 500.0, 900.0)),
    (aten.softshrink.default, (doubles(5, 6), 70.0)),
    (aten.threshold_backward.default, (doubles(), doubles(), 100.0)),
    (aten.hardtanh_backward.default, (doubles(5, 5), doubles(), -0.5, 0.5)),
    (aten.softplus_backward.default, (doubles(), doubles(), 3.0, 300.0)),
    (aten._prelu_kernel_backward.default, (doubles(), doubles(), doubles())),
    (aten.renorm.default, (doubles(5, 5, 5), 1e4, 2, 0.5)),
    (aten._pdist_backward.default, (doubles(10), doubles(5, 5), float("inf"), torch.zeros(10).double())),
    (aten._cdist_backward.default, (doubles(5, 6, 5), doubles(5, 6, 2), doubles(5, 5, 2), 1e30, doubles(5, 6, 5))),
]


@pytest.mark.parametrize(
    ("function", "args"),
    [*NUMBERS[::3], *(pytest.param(*each, marks=pytest.mark.long) for i, each in enumerate(NUMBERS) if i % 3)],
)
def test_numbers_that_usual_draws_do_not_reach(function: Any, args: tuple[Any, ...]) -> None:
    op, operands = operation(Call(function, args, {}))
    for scale in (1.0, 100.0, 1000.0):
        rule_that_holds(op, [scale * operand for operand in operands])


# --- isolation ---


LINEAR: list[tuple[Any, tuple[Any, ...], str]] = [
    (aten.div.Tensor, (doubles(), doubles()), "sum: 0 -> 0"),
    (aten.div.Tensor, (doubles(4, 5), doubles()), "sum: 0 -> 0"),
    (aten.mul.Tensor, (doubles(), doubles()), "sum: 1 -> 0"),
    (aten.mul.Tensor, (doubles(4, 5), doubles()), "sum: 1 -> 0"),
    (aten.add.Tensor, (doubles(), doubles()), "sum: (0, 1) -> 0"),
    (aten.sub.Tensor, (doubles(), doubles()), "sum: (0, 1) -> 0"),
    (aten.neg.default, (doubles(),), "sum: 0 -> 0"),
    (aten.expand.default, (doubles(), [4, 5]), "sum: 0 -> 0"),
    (aten.where.self, (torch.tensor([[True], [False]]), doubles(), doubles()), "sum: (1, 2) -> 0"),
    (aten.mse_loss_backward.default, (doubles(), doubles(4, 5), doubles(4, 5), 1), "sum: 0 -> 0"),
    (aten._softmax_backward_data.default, (doubles(1, 1), doubles(1, 1), 1, torch.float64), "sum: 0 -> 0"),
]


@pytest.mark.parametrize(("function", "args", "partial"), LINEAR)
def test_what_is_linear_in_a_number_takes_its_addends(function: Any, args: tuple[Any, ...], partial: str) -> None:
    """However often it is drawn: also where the number, or what is made of it, is zero."""
    assert partial in rule_that_holds(*operation(Call(function, args, {})))


def test_answers_go_on_behind_a_crash_and_a_time_out() -> None:
    def spins() -> str:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    def crashes() -> str:
        import ctypes

        return ctypes.string_at(0).decode()

    def raises() -> str:
        raise ValueError("no")

    questions = [lambda: "a", crashes, lambda: "b\nb", spins, raises, lambda: "c"]
    found = list(answers(questions, cpu_seconds=0.3))
    assert [each for each in found if isinstance(each, str)] == ["a", "b\nb", "c"]
    reasons = [each.reason for each in found if isinstance(each, NoAnswer)]
    assert reasons[0] == "crashes (SIGSEGV)"
    assert reasons[1].startswith("takes more than")
    assert reasons[2] == "ValueError: no"


def test_an_operator_whose_kernel_does_not_check_indices_is_cut() -> None:
    """It writes wherever labels say; what it is made of raises there, so it is asked again with labels in range alone."""
    labels = torch.tensor([0, 4, -100, 2, 2, 1])
    loss = (doubles(6), doubles(6, 5), labels, doubles(5), 0, -100, torch.tensor(3.0).double())
    text = rule_that_holds(*operation(Call(aten.nll_loss_backward.default, loss, {})))
    assert "[S1], [S1, S2], [S1], [S2], []" in text
    assert "ignored = -100" in text


def test_an_operator_that_crashes_has_no_rule_and_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reads wherever offsets say. The operator after it has its rule; nothing is kept of what did not run."""
    monkeypatch.setenv("DISTIR_CACHE_DIR", str(tmp_path))
    starts = torch.tensor([0, 2, 5, 9, 15])
    arguments = (doubles(4), doubles(4), doubles(15), "sum")
    crashing, _ = operation(Call(aten._segment_reduce_backward.default, arguments, {"offsets": starts}))
    plain, _ = operation(Call(aten.mm.default, (doubles(5, 6), doubles(6, 7)), {}))
    discovery = Discovery(InterpreterDomains(), RuleCache.on_disk())
    none, some = discovery.rules([crashing, plain])
    discovery.cache.save()
    assert not none.combines
    assert none.found == "unknown"
    assert len(some.combines) == 3
    assert re.search(
        r"note: aten._segment_reduce_backward on tensor<4xf64>.* it crashes \(SIG", capsys.readouterr().err
    )
    assert not [key for key in read_entries(current_file()) if "segment_reduce" in key]


# --- the cache ---


def test_an_entry_that_was_changed_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTIR_CACHE_DIR", str(tmp_path))
    op, _ = operation(Call(aten.mm.default, (doubles(5, 6), doubles(6, 7)), {}))
    first = Discovery(InterpreterDomains(), RuleCache.on_disk())
    rule = first.rule(op)
    first.cache.save()
    text = current_file().read_text()
    current_file().write_text(text.replace("reduce(sum)", "reduce(max)"))
    assert text.count("reduce(sum)")
    again = Discovery(InterpreterDomains(), RuleCache.on_disk())
    assert again.rule(op) == rule
    assert again.probed == 1
    again.cache.save()
    assert current_file().read_text() == text


def test_a_changed_meaning_is_another_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A dialect from outside that computes something else, from an edited file, or that had no meaning before."""
    op, _ = operation(Call(aten.relu.default, (doubles(5, 6),), {}))
    keys: list[str | None] = []
    cache = RuleCache.in_memory()
    for number, text in enumerate(("x = 1\n", "x = 2\n")):
        module, file = ModuleType(f"outside{number}"), tmp_path / f"outside{number}.py"
        file.write_text(text)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, f"outside{number}", module)
        monkeypatch.setitem(MEANINGS, "aten", Meaning(reference="outside0:run", types=f"outside{number}:infer"))
        keys.append(cache.key(op, "same"))
    monkeypatch.delitem(operator_dialects.MEANINGS, "aten")
    keys.append(cache.key(op, "same"))
    assert len({*keys}) == 3
    monkeypatch.setitem(MEANINGS, "aten", Meaning(reference="nowhere.to.be.found:run"))
    assert cache.key(op, "same") is None


def test_the_cache_is_shown_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISTIR_CACHE_DIR", str(tmp_path))
    discovery = Discovery(InterpreterDomains(), RuleCache.on_disk())
    discovery.rule(operation(Call(aten.mm.default, (doubles(5, 6), doubles(6, 7)), {}))[0])
    discovery.cache.save()
    assert main(["cache", "show"]) == 0
    assert "in use" in capsys.readouterr().out
    assert main(["cache", "show", "--operators"]) == 0
    assert re.search(r"aten\.mm\s+2", capsys.readouterr().out)
    (tmp_path / "other.json").write_text("{}")
    assert main(["cache", "clear"]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["other.json"]
    monkeypatch.setenv("DISTIR_NO_CACHE", "1")
    assert RuleCache.on_disk().path is None


# --- a sweep ---


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dialect", SOURCES)
def test_rules_at_extreme_numbers_hold(dialect: str) -> None:
    outcome = swept(dialect, seed=1, seconds=3600, most=1500)
    assert not outcome.false
    assert not outcome.slow
    assert outcome.tried > 10_000
