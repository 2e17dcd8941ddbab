"""The report says what the simulation says, and shows texts of a model without running them."""

import json
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.backends.report import simulation_report
from distir.backends.report.plans import pareto
from distir.dialects.dist import Dist
from distir.dialects.onnx import Onnx
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate
from distir.interpreters.simulate.analysis import Analysis
from tests.unit import random_modules


def report(module: ModuleOp, title: str = "program") -> tuple[str, Any]:
    page = simulation_report(title, Analysis(module, load_machine("dgx-2"), random_modules.Uneven), 4)
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return page, json.loads(text)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(random_modules.programs())
def test_its_figures_are_the_simulation(module: ModuleOp) -> None:
    oracle = simulate(module, "dgx-2", random_modules.Uneven)
    _, data = report(module)
    run = data["run"]
    assert run["makespan"] == oracle.makespan_picoseconds / 1e6
    assert len(run["spans"]) == len(list(oracle.spans()))
    assert {m["device"]: m["peak"] for m in run["memory"]} == oracle.peak_memory_bytes
    for device in run["memory"]:
        assert max(bytes_ for _, bytes_ in device["points"]) == device["peak"]
    for peak in run["peaks"]:
        assert sum(h["bytes"] * h["copies"] for h in peak["held"]) == peak["bytes"]


def test_texts_of_a_model_are_never_markup() -> None:
    evil = "</script><script>alert(1)</script>"
    context = Context()
    for dialect in (Builtin, Func, Dist, Onnx):
        context.load_dialect(dialect)
    module = Parser(
        context,
        f"""
    func.func @main(%x: tensor<4xf32> {{dist.name = "{evil}", dist.role = "input"}}) -> tensor<4xf32> {{
      %y = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      func.return %y : tensor<4xf32>
    }}""",
    ).parse_module()
    page, data = report(module, title=evil)
    assert evil not in page
    assert page.count("<script") == 2
    assert [h["name"] for h in data["run"]["peaks"][0]["held"]] == [evil, "y"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_the_front_is_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    beaten = {(m, s) for m, s in points if any((a <= m and b >= s) and (a, b) != (m, s) for a, b in points)}
    assert pareto(points) == sorted(set(points) - beaten)
