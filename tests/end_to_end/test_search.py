"""`distir search` as a user types it: the ranking, the files it writes, its limits, Ctrl-C, and its mistakes."""

import csv
import json
import re
import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import pytest

from distir.frontends.weights import load
from distir.interpreters.simulate import simulate
from distir.passes.search.configurations import Configuration, Outcome, degrees, grid
from distir.passes.search.search import Search
from distir.tools.distir import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpt2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    build = runpy.run_path(str(ROOT / "examples" / "gpt2_onnx.py"))["build"]
    onnx.save(build(n_layer=2, d_model=16, n_head=2, vocab=23, n_ctx=8), tmp_path / "gpt2.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plans(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


SEARCH = ("search", "gpt2.onnx", "--shape", "input1=8,1,4", "--machine", "dgx-2", "--devices", "4")
OF_TWO = (*SEARCH, "--devices", "2", "--microbatches", "2")


def test_degrees_are_all_factorisations() -> None:
    # 12 = dp * tp * pp has 18 ordered factorisations: (2 + 2 choose 2) for 2^2 times (1 + 2 choose 2) for 3.
    found = set(degrees(12))
    assert len(found) == 18
    assert all(dp * tp * pp == 12 for dp, tp, pp in found)


def test_the_grid_of_the_paper_has_1035_configurations() -> None:
    """Table 1: 16 devices, K in 2..128 with a pipeline, batches 2^7..2^20, whole rows for every microbatch."""
    batches = [2**i for i in range(7, 21)]
    found = grid(16, batches, (2, 4, 8, 16, 32, 64, 128), ("1f1b",))
    assert sum(c.pp > 1 or c.microbatches == 1 for c in found) == 1035


def test_plans_are_ranked_and_written(gpt2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH, "--microbatches", "2", "--csv", "plans.csv", "-o", "best.mlir", "--top", "3"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split()[:6] == ["rank", "batch", "D", "T", "P", "K"]
    rows = plans(gpt2 / "plans.csv")
    assert len(rows) == 9  # (4,1,1) (2,2,1) (1,4,1) in one microbatch and in two, (2,1,2) (1,2,2) (1,1,4)
    throughputs = [float(row["throughput_per_second"]) for row in rows]
    assert throughputs == sorted(throughputs, reverse=True)
    # What was printed is what was written: the program's own simulation gives the figures of its row.
    best = simulate(load("best.mlir"), "dgx-2")
    assert best.makespan_seconds == float(rows[0]["latency_seconds"])
    assert max(best.peak_memory_bytes.values()) == int(rows[0]["peak_memory_bytes"])
    assert main(["import", "gpt2.onnx", "--shape", "input1=8,1,4", "-o", "gpt2.mlir"]) == 0
    assert main(["verify", "gpt2.mlir", "best.mlir"]) == 0


def test_the_report_is_one_page(gpt2: Path) -> None:
    assert main([*SEARCH, "--microbatches", "2", "--report", "report.html"]) == 0
    page = (gpt2 / "report.html").read_text()
    assert not re.search(r'(src|href)="|url\(|@import', page)
    data = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)[0])
    assert len(data["search"]["plans"]) == 9
    assert [plan["rank"] for plan in data["search"]["plans"]] == [*range(1, 10)]
    best = data["search"]["plans"][0]
    assert data["run"]["makespan"] == pytest.approx(best["latency"])
    assert max(m["peak"] for m in data["run"]["memory"]) == best["peak"]
    assert sum(link["time"] for link in data["run"]["links"]) == pytest.approx(best["latency"])


def test_batch_sizes_need_an_open_batch(gpt2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OF_TWO, "--batch-sizes", "4..16", "--csv", "plans.csv"]) == 0
    assert {row["batch_size"] for row in plans(gpt2 / "plans.csv")} == {"4", "8", "16"}
    main(["import", "gpt2.onnx", "--shape", "input1=8,1,4", "-o", "fixed.mlir"])
    capsys.readouterr()
    assert main(["search", "fixed.mlir", "--machine", "dgx-2", "--devices", "2", "--batch-sizes", "4"]) == 1
    assert "the batch of 'input1' is fixed to 8" in capsys.readouterr().err


def test_a_memory_limit_drops_plans_with_the_reason(gpt2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OF_TWO, "--csv", "plans.csv"]) == 0
    peaks = sorted(int(row["peak_memory_bytes"]) for row in plans(gpt2 / "plans.csv"))
    capsys.readouterr()
    limit = (peaks[0] + peaks[-1]) // 2
    assert main([*OF_TWO, "--csv", "some.csv", "--memory-limit", str(limit)]) == 0
    fitting = [row for row in plans(gpt2 / "some.csv") if not row["dropped"]]
    assert fitting  # some hold less than without a limit
    assert all(int(row["peak_memory_bytes"]) <= limit for row in fitting)
    assert main([*OF_TWO, "--csv", "few.csv", "--memory-limit", str(peaks[0] // 2)]) in (0, 1)
    dropped = [row for row in plans(gpt2 / "few.csv") if row["dropped"].startswith("needs at least ")]
    assert dropped
    assert f"{len(dropped)} exceed the memory" in capsys.readouterr().out
    assert main([*OF_TWO, "--memory-limit", "1KB"]) == 1
    assert "no plan fits" in capsys.readouterr().err


def test_ctrl_c_reports_what_was_found(
    gpt2: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = Search.outcomes

    def interrupted(self: Search, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        found = outcomes(self, configurations)
        yield next(found)
        yield next(found)
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "outcomes", interrupted)
    assert main([*SEARCH, "--microbatches", "2", "--csv", "plans.csv"]) == 130
    assert "2 of 9 plans simulated" in capsys.readouterr().out
    assert len(plans(gpt2 / "plans.csv")) == 2


def test_training_tries_both_schedules(gpt2: Path) -> None:
    build = runpy.run_path(str(ROOT / "examples" / "mlp_onnx.py"))["build"]
    onnx.save(build([8, 8, 8]), gpt2 / "mlp.onnx")
    shapes = ("--shape", "x=8,8", "--shape", "z=8,8")
    arguments = ("search", "mlp.onnx", *shapes, "--machine", "dgx-a100", "--devices", "2", "--microbatches", "2")
    assert main([*arguments, "--csv", "plans.csv"]) == 0
    pipelines = [row for row in plans(gpt2 / "plans.csv") if row["pp"] == "2"]
    assert {row["schedule"] for row in pipelines} == {"1f1b", "gpipe"}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (("--devices", "32"), "machine dgx-2 has 16 devices, the program needs 32"),
        (("--devices", "0"), "--devices and --top: expected at least 1"),
        (("--batch-sizes", "none"), "--batch-sizes: expected positive numbers"),
        (("--batch-sizes", "1,2..4"), "--batch-sizes: expected numbers with commas between them, or a range"),
        (("--batch-sizes", "4..9223372036854775808"), "--batch-sizes: expected numbers up to 2147483647"),
        (("--microbatches", "1" * 30), "--microbatches: expected numbers up to 2147483647"),
        (("--machine", "dgx-9"), "dgx-9"),
        (("--schedules", "zigzag"), "unknown schedule zigzag: expected 1f1b, 1f1b-eager, dualpipev, "),
        (("--memory-limit", "much"), "--memory-limit: expected a size such as 28GB"),
        (("--cost-model", "oracle"), "oracle"),
        (("--batch", "input9:0"), "batch: no argument 'input9'"),
        (("-o", "no/where.mlir"), "no folder"),
    ],
)
def test_a_mistake_is_one_line(
    gpt2: Path, capsys: pytest.CaptureFixture[str], extra: tuple[str, ...], message: str
) -> None:
    assert main([*SEARCH, "--microbatches", "2", *extra]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert {path.name for path in gpt2.iterdir()} == {"gpt2.onnx"}


def test_a_files_name_writes_no_control_characters(gpt2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "\x1b[2K\u202e.csv"
    assert main([*SEARCH, "--microbatches", "2", "--csv", name]) == 0
    assert "\\x1b[2K\\u202e.csv" in capsys.readouterr().out
    assert (gpt2 / name).is_file()


def test_overlap_puts_messages_on_streams(gpt2: Path) -> None:
    """What is written is what was simulated."""
    assert main([*SEARCH, "--microbatches", "2", "--overlap", "--csv", "plans.csv", "-o", "best.mlir"]) == 0
    for plan in plans(gpt2 / "plans.csv"):
        assert sum(float(plan[f"{kind}_share"]) for kind in ("compute", "communication", "idle")) == pytest.approx(
            1, abs=2e-6
        )  # of six digits each
    assert simulate(load("best.mlir"), "dgx-2").makespan_seconds == pytest.approx(
        float(plans(gpt2 / "plans.csv")[0]["latency_seconds"])
    )
