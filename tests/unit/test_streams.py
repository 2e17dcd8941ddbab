"""What streams of their own gain: gradient reduction beside the backward pass, on costs that a reader can add up."""

import sys
from pathlib import Path

import pytest
from xdsl.context import Context

from distir.frontends.onnx import import_model
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate, summarize
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.tools.universe import DISTIR_UNIVERSE

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "examples")]

import mlp_onnx
import random_modules

UNIT = Path(__file__).parents[1] / "filecheck" / "passes" / "Inputs" / "unit.toml"


def distributed(**options: object):
    module = import_model(mlp_onnx.build([16] * 5, batch=32))
    context = Context()
    for name, dialect in DISTIR_UNIVERSE.all_dialects.items():
        context.register_dialect(name, dialect)
    DtpParallelizePass(**options).apply(context, module)
    return module


def test_all_reductions_but_the_last_are_hidden() -> None:
    """Four layers, an operation 1 us and a message 0.5 us: of four reductions only that of the first layer's gradient, which
    is made last, is left to wait for. A layer's backward is two operations, so no reduction waits for another."""
    plain, beside = (simulate(distributed(dp=2, overlap=overlap), load_machine(UNIT)) for overlap in (False, True))
    assert plain.counts["dist.allreduce"] == beside.counts["dist.allreduce"] == 4
    assert plain.makespan_picoseconds - beside.makespan_picoseconds == 3 * 500_000


@pytest.mark.filterwarnings("ignore:Constructing LpVariable:DeprecationWarning")
@pytest.mark.parametrize("degrees", [{"dp": 4}, {"dp": 2, "tp": 2, "pp": 2, "microbatches": 4}])
def test_summaries_of_streams_are_exact(degrees: dict[str, int]) -> None:
    module = distributed(**degrees, overlap=True)
    oracle, summary = (f(module, "dgx-2", random_modules.Uneven) for f in (simulate, summarize))
    assert summary.clocks == oracle.clocks
    assert summary.peak_memory_bytes == oracle.peak_memory_bytes
