"""What time and memory go to by the model's names: it adds up to what devices are busy with, and to the peak; layers and modules have the model's names."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import distir
from distir.frontends.pytorch import import_step
from distir.interpreters.machines import load_machine
from distir.interpreters.model_names import renamed
from distir.interpreters.simulate import simulate
from distir.interpreters.simulate.analysis import Analysis
from distir.interpreters.simulate.breakdown import breakdown, common, layer_of
from distir.interpreters.simulate.spans import CALL
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.tools.distir import main
from examples import gpt2_pytorch, mlp_onnx
from tests.unit import random_modules
from tests.unit.pytorch.test_module_paths import step


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(random_modules.programs())
def test_times_add_up_to_those_of_all_operations(module: ModuleOp) -> None:
    oracle = simulate(module, "dgx-2", random_modules.Uneven)
    analysis = Analysis(module, load_machine("dgx-2"), random_modules.Uneven)
    spans = [span for span in oracle.spans() if span.kind != CALL]
    peak = analysis.peak(0)
    for by in ("module", "layer", "kind", "operation"):
        parts = breakdown(analysis.expansion, peak, by)
        assert sum(part.picoseconds for part in parts) == sum(span.end - span.start for span in spans)
        communicating = sum(span.end - span.start for span in spans if span.communicates)
        assert sum(part.communication_picoseconds for part in parts) == communicating
        assert sum(part.bytes for part in parts) == peak.bytes


def test_names_are_those_of_the_model():
    module = step()
    DtpParallelizePass(dp=2).apply(Context(), module)
    analysis = Analysis(module, load_machine("dgx-2"))
    by_module = {part.name: part for part in breakdown(analysis.expansion, analysis.peak(0), "module")}
    assert {"blocks.0.0", "blocks.0.1", "head"} <= by_module.keys()
    by_layer = {part.name: part for part in breakdown(analysis.expansion, analysis.peak(0), "layer")}
    inner = [part.picoseconds for name, part in by_module.items() if name.startswith("blocks.0")]
    assert by_layer["blocks.0"].picoseconds == sum(inner)
    assert by_layer["head"].bytes >= 8 * 4 * 4


@pytest.mark.parametrize(
    "options",
    [pytest.param({"pp": 2}, marks=pytest.mark.long), {"pp": 2, "sharding": "ilp", "grouped": True}],
)
def test_layers_that_are_one_function_have_their_own_names(options: dict[str, Any]) -> None:
    """Times of layers are alike, and spans, the critical path and what is live say which layer they are of."""
    module = import_step(gpt2_pytorch.step())
    DtpParallelizePass(microbatches=2, **options).apply(Context(), module)
    analysis = Analysis(module, load_machine("dgx-2"))
    parts = {part.name: part for part in breakdown(analysis.expansion, analysis.peak(0), "layer")}
    assert parts["blocks.0"].picoseconds == pytest.approx(parts["blocks.1"].picoseconds, rel=0.2)
    by_oracle = {span.module for span in simulate(module, "dgx-2").spans()}
    assert {span.module for span in analysis.expansion.spans()} == by_oracle
    assert {"blocks.0.up", "blocks.1.up"} <= by_oracle


def test_the_longest_beginning_of_a_name_counts() -> None:
    around = ((("a.0", "a.1"), ("a.0.b", "a.2.b")), (("a.1", "a.9"),))
    assert [renamed(n, around) for n in ("a.0", "a.0.c", "a.0.b.c", "a.00", "a.1")] == [
        "a.9",
        "a.9.c",
        "a.2.b.c",
        "a.00",
        "a.9",
    ]


@pytest.mark.parametrize(
    ("module", "layer"),
    [
        ("blocks.3.mlp.up", "blocks.3"),
        ("head", "head"),
        ("encoder.norm", "encoder"),
        ("model.layers.11", "model.layers.11"),
        ("/h.3/attn/MatMul", "/h.3"),
        ("/lm_head/MatMul", "/lm_head"),
        ("0", "0"),
        ("(update_0)", "(update_0)"),
        ("", ""),
    ],
)
def test_layers(module: str, layer: str):
    assert layer_of(module) == layer


def test_what_names_have_in_common():
    assert common(["blocks.0.up", "", "blocks.0.down"]) == "blocks.0"
    assert common(["blocks.0", "head"]) == ""
    assert common([]) == ""


def test_a_searched_program_says_where_its_devices_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = distir.import_model(mlp_onnx.build([16] * 4, batch=32))
    plan = next(
        plan
        for plan in distir.search(model, "dgx-2", 4, exhaustive=True)
        if (plan.configuration.dp, plan.configuration.pp) == (2, 2)
    )
    plan.save(path := str(tmp_path / "plan.mlir"))
    assert main(["simulate", path, "--machine", "dgx-2", "--by", "layer"]) == 0
    printed = capsys.readouterr().out
    assert "of makespan" in printed
    assert "(pp 0, dp 0" in printed
    assert "(pp 1, dp 0" in printed
