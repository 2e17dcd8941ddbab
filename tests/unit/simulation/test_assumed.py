"""Operators of which nothing says what they do are priced as a flop for each element, and every output names them, with their share of the time."""

import json
from pathlib import Path

import pytest
import torch
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step
from distir.frontends.weights import save
from distir.interpreters.cost_models import CostModel, make_cost_model
from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.costs import Costs
from distir.interpreters.machines import load_machine
from distir.interpreters.work import work_of
from distir.tools.distir import main


def spectrum(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """An operator whose flops are not in its types, a contraction, and what is priced by its bytes."""
    inverse = torch.linalg.inv_ex(x @ x.transpose(1, 2) + torch.eye(16))[0]
    return torch.softmax(inverse @ x, -1).cumsum(-1) @ w


@pytest.fixture(scope="module")
def module() -> ModuleOp:
    return import_step(spectrum, (torch.ones(8, 16, 32, device="meta"), torch.ones(32, 8, device="meta")))


@pytest.fixture(scope="module")
def program(module: ModuleOp, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("assumed") / "spectrum.mlir"
    save(module, path)
    return str(path)


def test_only_what_nothing_is_said_of(module: ModuleOp) -> None:
    ops = [op for op in module.walk() if op.name.startswith("aten.")]
    assert {op.name for op in ops if work_of(op).is_assumed} == {"aten.linalg_inv_ex"}
    assert {"aten.cumsum", "aten._softmax", "aten.bmm"} <= {op.name for op in ops}


def test_simulate_names_them(program: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["simulate", program, "--machine", "dgx-2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    ((name, share),) = figures["assumed"].items()
    assert name == "aten.linalg_inv_ex"
    page = tmp_path / "page.html"
    assert main(["simulate", program, "--machine", "dgx-2", "--by", "operation", "--report", str(page)]) == 0
    said = capsys.readouterr().out
    assert f"a flop for each element, of {name} ({share:.1%} of the time)" in said
    (row,) = (line for line in said.splitlines() if line.startswith(name))
    assert f"{share:.1%}" in row  # one device that is never idle: the share of the makespan
    assert f"{name} ({share:.1%} of the time)" in page.read_text("utf-8")


def test_search_names_them(program: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = [
        "search",
        program,
        "--machine",
        "dgx-2",
        "--devices",
        "2",
        "--batch",
        "x:0",
        "--report",
        str(page),
    ]
    assert main(command) == 0
    assert "assumed: a flop for each element, of aten.linalg_inv_ex (" in capsys.readouterr().out
    assert "aten.linalg_inv_ex (" in page.read_text("utf-8")
    assert main([*command, "--json"]) == 0
    assert [*json.loads(capsys.readouterr().out)["assumed"]] == ["aten.linalg_inv_ex"]


def test_a_cost_model_that_knows_the_operation_assumes_nothing(module: ModuleOp) -> None:
    class Own(AnalyticCostModel):
        def operation_seconds(self, op: object, devices: object) -> float | None:
            return 1.0

    (op,) = (op for op in module.walk() if op.name == "aten.linalg_inv_ex")
    models: list[CostModel] = [make_cost_model(kind, load_machine("dgx-2")) for kind in ("analytic", Own)]
    assert [Costs(model).assumed(op) for model in models] == [("aten.linalg_inv_ex",), ()]
