"""Summaries equal the op-by-op simulation, bit for bit, for all programs."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.grad import Grad
from distir.dialects.onnx import Onnx
from distir.dialects.rank import Rank
from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.simulate import SummaryMemo, simulate, summarize, timing

sys.path.append(str(Path(__file__).parent))

import random_modules
import random_programs

PAPER = Path(__file__).parents[1] / "filecheck" / "paper"
QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large]


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Dist, Grad, Onnx, Rank):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def same(module: ModuleOp, cost_model: Any = random_modules.Uneven, memo: SummaryMemo | None = None) -> None:
    """Asserts that both simulations agree in everything that a summary says."""
    oracle, summary = simulate(module, "dgx-2", cost_model), summarize(module, "dgx-2", cost_model, memo=memo)
    for stream in oracle.clocks.keys() | summary.clocks.keys():
        assert summary.clocks.get(stream, 0) == oracle.clocks.get(stream, 0), stream
    assert summary.makespan_picoseconds == oracle.makespan_picoseconds
    assert summary.makespan_seconds == oracle.makespan_seconds
    assert summary.peak_memory_bytes == oracle.peak_memory_bytes
    assert summary.busy_seconds == oracle.busy_seconds
    assert summary.counts == oracle.counts


SHARED = SummaryMemo()
"""Over all examples: what one program taught must hold for the next."""


@settings(max_examples=300, deadline=None, suppress_health_check=QUICK)
@given(random_modules.programs())
def test_equal_on_programs_that_alias_and_update(module: ModuleOp) -> None:
    same(module)
    same(module, memo=SHARED)


@settings(max_examples=150, deadline=None, suppress_health_check=QUICK)
@given(random_programs.programs())
def test_equal_on_programs_with_every_operation(program: random_programs.Program) -> None:
    same(program.module)
    same(program.module, AnalyticCostModel, SHARED)


@pytest.fixture
def maps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "DIFFERENT", 0)


@settings(max_examples=200, deadline=None, suppress_health_check=[*QUICK, HealthCheck.function_scoped_fixture])
@given(random_modules.programs())
def test_equal_where_every_call_is_a_map(maps_at_once: None, module: ModuleOp) -> None:
    same(module)


@pytest.mark.parametrize("name", sorted(path.name for path in PAPER.glob("*.mlir")))
def test_equal_on_the_papers_figures(name: str) -> None:
    same(parse((PAPER / name).read_text()), AnalyticCostModel)
