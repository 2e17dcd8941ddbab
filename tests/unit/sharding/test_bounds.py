"""Bounds of plans: no plan takes less, and a search that uses them finds the plans that the whole grid has."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.dialects.onnx import Onnx
from distir.frontends.onnx import import_model
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate.batches import BatchSummaries
from distir.passes.search.best_first import Program
from distir.passes.search.bounds import Bounds
from distir.passes.search.configurations import Configuration, Figures, Outcome, grid, ranked
from distir.passes.search.search import Search
from examples import gpt2_onnx, mlp_onnx
from tests.unit import random_models

QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
NO_LIMIT = 1 << 50
DGX2 = load_machine("dgx-2")


class Checked(Search):
    """Compares the bounds of every program that it simulates with what is found."""

    tightness: dict[Configuration, tuple[float, float]]

    def _simulated(self, program: Program, summaries: BatchSummaries) -> list[Outcome]:  # type: ignore[override]
        found = list(super()._simulated(program, summaries))
        rows = [c.rows for c in program.configurations]
        least = Bounds(program.staged, summaries).of(program.layout, program.schedule, rows)
        bytes_ = Bounds(program.staged, summaries).bytes(program.layout, program.schedule, rows)
        for outcome in found:
            figures, bound = outcome.figures, least[outcome.configuration.rows]
            assert isinstance(figures, Figures)
            assert bound.seconds <= figures.latency_seconds
            assert bytes_[outcome.configuration.rows] <= bound.bytes <= figures.peak_memory_bytes
            self.tightness[outcome.configuration] = (
                bound.seconds / figures.latency_seconds,
                bound.bytes / figures.peak_memory_bytes,
            )
        return found


def tightness(search: Checked, configurations: list[Configuration]) -> list[tuple[float, float]]:
    """What each plan's bounds are of its figures, both of which are at most 1."""
    search.tightness = {}
    assert all(outcome.figures is not None for outcome in search.outcomes(configurations))
    return list(search.tightness.values())


@settings(max_examples=4, **QUIET)
@given(random_models.models(4))
def test_no_plan_of_a_random_model_takes_less(program: random_models.Program) -> None:
    context = Context()
    for dialect in (Builtin, Func, Onnx):
        context.load_dialect(dialect)
    model = Parser(context, program.text).parse_module()
    search = Checked(lambda _: model.clone(), DGX2, "analytic", NO_LIMIT)
    search.tightness = {}
    assert list(search.outcomes(grid(4, [12, 60], (3,), ["1f1b", "gpipe"])))


@pytest.mark.parametrize("machine", ["dgx-2", "dgx-h100"])
def test_no_training_plan_takes_less(machine: str) -> None:
    """Eight layers of 256 x 256 on up to 8 devices: most of what a plan does is in its bounds."""
    search = Checked(lambda n: import_model(mlp_onnx.build([256] * 9, batch=n)), load_machine(machine), "analytic", NO_LIMIT)  # fmt: skip
    found = tightness(search, grid(8, [64], (4,), ["1f1b", "gpipe"]))
    assert min(time for time, _ in found) > 0.8
    assert min(memory for _, memory in found) > 0.7


def test_no_inference_plan_takes_less() -> None:
    search = Checked(lambda n: import_gpt2(n), DGX2, "analytic", NO_LIMIT)
    found = tightness(search, grid(4, [16, 64], (2, 4), ["gpipe"]))
    assert min(time for time, _ in found) > 0.9


def import_gpt2(batch: int) -> ModuleOp:
    model = gpt2_onnx.build(n_layer=4, d_model=16, n_head=2, vocab=23, n_ctx=8)
    return import_model(model, {"input1": (batch, 1, 4)})


@settings(max_examples=3, **QUIET)
@given(st.integers(1, 5), st.sampled_from([NO_LIMIT, 20_000, 9_000, 6_000]), st.sampled_from([24, 96]))
def test_the_fastest_are_those_of_the_whole_grid(wanted: int, limit: int, batch: int) -> None:
    def outcomes(wanted: int, exhaustive: bool) -> list[Outcome]:
        model = import_model(mlp_onnx.build([16] * 9, batch=batch))
        search = Search(lambda _: model.clone(), DGX2, "analytic", limit, wanted=wanted, exhaustive=exhaustive)
        return list(search.outcomes(configurations))

    configurations = grid(4, [batch], (2, 4), ["1f1b", "gpipe"])
    whole, some = outcomes(0, exhaustive=True), outcomes(wanted, exhaustive=False)
    assert {o.configuration for o in some} == set(configurations)
    assert ranked(some)[:wanted] == ranked(whole)[:wanted]
    figures = {o.configuration: o.figures for o in whole}
    for outcome in some:
        found = figures[outcome.configuration]
        assert found is not None
        assert outcome.least_memory_bytes <= found.peak_memory_bytes
        assert outcome.least_seconds <= found.latency_seconds
        if outcome.figures is None:
            assert outcome.least_memory_bytes > limit or outcome.least_seconds > 0
