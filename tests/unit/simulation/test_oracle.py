"""The compiled oracle of `benchmarks/oracle` against the interpreter, and summaries against both on a few configurations of the
grids."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from xdsl.dialects.builtin import ModuleOp

from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate
from tests.unit import random_modules, random_programs

ROOT = Path(__file__).parents[3]
QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
DGX2 = load_machine("dgx-2")


@pytest.fixture(name="tables")
def oracle_tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`benchmarks` is not installed, and a dependency has a package of that name."""
    monkeypatch.syspath_prepend(str(ROOT))
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    from benchmarks.oracle import tables

    return tables


def same(tables: Any, module: ModuleOp, cost_model: Any) -> None:
    expected, found = simulate(module, DGX2, cost_model), tables.run(module, DGX2, cost_model)
    assert tables.interpret(module, DGX2, cost_model) == found
    assert found.steps == len(expected.steps)
    assert found.makespan_picoseconds == expected.makespan_picoseconds
    assert dict(enumerate(found.peak_memory_bytes)) == expected.peak_memory_bytes


@settings(max_examples=40, deadline=None, suppress_health_check=QUICK)
@given(module=random_modules.programs())
def test_the_kernel_equals_the_interpreter(tables: Any, module: ModuleOp) -> None:
    same(tables, module, random_modules.Uneven)


@settings(max_examples=25, deadline=None, suppress_health_check=QUICK)
@given(program=random_programs.programs())
def test_the_kernel_equals_the_interpreter_on_every_operation(tables: Any, program: Any) -> None:
    same(tables, program.module, AnalyticCostModel)


@pytest.mark.parametrize("by", ["kernel", "interpreter"])
@pytest.mark.parametrize(
    ("model", "layers", "source"),
    [
        pytest.param("gpt3-xl", 4, "paper", marks=pytest.mark.long),
        ("mlp-small", 4, "paper"),
        ("mlp-small", 4, "dtp-parallelize"),
    ],
)
def test_summaries_equal_execution_on_the_papers_grids(
    tables: Any, model: str, layers: int, source: Any, by: str
) -> None:
    """Some configurations of shallow models: every style of parallelism, the kernel without numba included."""
    from benchmarks.oracle.__main__ import compare
    from benchmarks.oracle.programs import builder
    from benchmarks.paper.mlp_stages import Configuration

    degrees = [(16, 1, 1, 1), (1, 16, 1, 1), (1, 1, 4, 8), (2, 2, 2, 4)]
    tally = compare([Configuration(*d, 256) for d in degrees], builder(model, layers, source), by)
    assert (tally.equal, tally.total) == (4, 4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "layers", "source"),
    [
        ("gpt3-175B", 16, "paper"),
        ("mlp-small", None, "paper"),
        ("mlp-small", None, "dtp-parallelize"),
    ],
)
def test_summaries_equal_the_kernel_on_a_whole_grid(tables: Any, model: str, layers: int | None, source: Any) -> None:
    """75 configurations, and as many programs as the grid has structures."""
    pytest.importorskip("numba", reason="needs the extra 'accelerate'")
    from benchmarks.oracle.__main__ import compare
    from benchmarks.oracle.programs import builder, configurations

    tally = compare(configurations([8192]), builder(model, layers, source), "kernel")
    assert (tally.equal, tally.total) == (75, 75)
