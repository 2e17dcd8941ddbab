"""The notebook runs from its first cell to its last, and what it shows is what it says."""

import ast
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[3] / "examples" / "plans.ipynb"


def shown_by(cells: list[str]) -> list[Any]:
    """The value of each cell's last expression, all run one after the other in one namespace."""
    namespace: dict[str, Any] = {}
    values: list[Any] = []
    for source in cells:
        tree = ast.parse(source)
        last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(NOTEBOOK), "exec"), namespace)
        values.append(None if last is None else eval(compile(last, str(NOTEBOOK), "eval"), namespace))
    return values


def test_the_notebook_runs():
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in code)
    _, plans, compared, simulated, files, proven, _ = shown_by(["".join(cell["source"]) for cell in code])
    assert len(plans) > 1
    assert plans._repr_html_().startswith("<table>")
    assert compared._repr_html_().startswith("<table>")
    assert simulated.makespan_seconds == plans.best.figures.latency_seconds
    assert {"best.json", "best.mlir", "report.html"} <= set(files)
    assert proven is True
