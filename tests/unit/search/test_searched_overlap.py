"""`distir search` chooses streams for messages and stages on each rank: the table says what a plan has, and its figures are those of the program."""

import json
from pathlib import Path
from typing import Any

import pytest

import distir
from distir.frontends.pytorch import import_step
from distir.passes.search.configurations import grid
from distir.tools.distir import main
from examples import mlp_pytorch
from tests.slow_machine import written


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "step.mlir").write_text(str(import_step(mlp_pytorch.step())))
    written(folder)
    return folder


def plans(folder: Path, **options: Any) -> distir.Plans:
    chosen = {"microbatches": [2], "schedules": ["1f1b"], **options}
    return distir.search(str(folder / "step.mlir"), chosen.pop("machine", folder / "machine.toml"), 2, **chosen)


def test_a_plan_has_streams_where_that_is_faster(folder: Path) -> None:
    given = {"dp": 2, "microbatches": [1], "machine": "dgx-a100"}
    (without,), (with_), found = (plans(folder, **given, overlap=overlap) for overlap in (False, True, None))
    assert with_[0].figures.latency_seconds < without.figures.latency_seconds
    assert found[0].figures == with_[0].figures
    assert [plan.configuration.overlap for plan in (without, with_[0], found[0])] == [False, True, True]
    simulated = distir.simulate(found[0].program, "dgx-a100")
    assert simulated.makespan_seconds == found[0].figures.latency_seconds
    assert found[0].hidden_shares["dp"] > 0


def test_the_table_says_which_plans_have_streams(folder: Path) -> None:
    found = plans(folder, exhaustive=True, machine="dgx-a100")
    assert {plan.configuration.overlap for plan in found} == {True, False}
    table = found.table()
    at = table.columns.index("overlap")
    assert [row[at] for row in table.rows] == ["yes" if plan.configuration.overlap else "no" for plan in found]
    assert [row["overlap"] for row in table.data] == [plan.configuration.overlap for plan in found]


def test_stages_on_each_rank_are_searched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["search", str(folder / "step.mlir"), "--machine", str(folder / "machine.toml"), "--devices", "2"]
    given += ["--pp", "2", "--microbatches", "2", "--sharding", "ilp", "--no-overlap", "--exhaustive"]
    path = str(folder / "plan.json")
    assert main([*given, "--schedules", "1f1b,interleaved", "--virtual", "2,3", "--json", "-o", path]) == 0
    said = json.loads(capsys.readouterr().out.partition("wrote")[0])
    rows = said["plans"] + said["dropped"]
    assert {(row["schedule"], row["virtual_stages"]) for row in rows} == {
        ("1f1b", 1),
        ("interleaved", 2),
        ("interleaved", 3),
    }
    best = said["plans"][0]
    assert json.loads(Path(path).read_text())["settings"]["virtual_stages"] == best["virtual_stages"]
    assert main(["plan", "show", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["figures"]["latency_seconds"] == best["latency_seconds"]
    assert main([*given, "--schedules", "1f1b,zbv", "--virtual", "3"]) == 1
    assert "--virtual 3: 1f1b, zbv have not so many stages on a rank" in capsys.readouterr().err


def test_which_schedules_have_how_many_stages() -> None:
    """Those that leave it open have what is asked, or what is usual; the others their own."""
    schedules = ["1f1b", "interleaved", "zbv"]
    for virtual, expected in ([], {1, 2}), ([4, 8], {1, 2, 4, 8}), ([1], {1, 2}):
        found = grid(2, [8], [4], schedules, lambda dp, tp, pp: pp == 2, virtual=virtual)
        assert {c.virtual for c in found} == expected
