"""Tables 2 and 3 of the paper: ranks, speed-ups, and that what a search leaves out cannot matter."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(name="grid")
def paper_grid(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`benchmarks` is not installed, and a dependency has a package of that name."""
    monkeypatch.syspath_prepend(str(ROOT))
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    from benchmarks.paper import grid

    return grid


class Evaluator:
    """Latencies affine in the batch and memory that grows with it, different for every plan; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __call__(self, points: Iterable[Any]) -> Iterator[Any]:
        from benchmarks.paper.points import Outcome

        for point in points:
            c = point.configuration
            self.asked.append(c)
            launches, slope = 0.01 * c.K * c.T + 0.003 * c.P, 1e-6 * (1 + 0.37 * c.T + 0.11 * c.P * c.P / c.K)
            yield Outcome(point, launches + slope * c.batch, 10**9 * c.D + 200_000 * c.batch // c.K)


def test_what_is_left_out_does_not_matter(grid: Any) -> None:
    batches = [2**i for i in range(7, 17)]
    everything = list(
        Evaluator()(grid.Point("gpt3-xl", c, 0.0, 0, "") for b in batches for c in grid.configurations(b))
    )
    ranked = sorted(filter(grid.fits, everything), key=grid.throughput, reverse=True)
    for rival in (ranked[0], ranked[6], ranked[100]):
        evaluator = Evaluator()
        found = grid.simulate(evaluator, "gpt3-xl", batches, rival.point.configuration)
        assert len(evaluator.asked) == len(set(evaluator.asked)) < len(everything)
        ahead = ranked[: ranked.index(rival) + 1]
        again = sorted(filter(grid.fits, found), key=grid.throughput, reverse=True)[: len(ahead)]
        assert [o.point.configuration for o in again] == [o.point.configuration for o in ahead]
        assert grid.speedups(ahead[0], found) == grid.speedups(ahead[0], everything)


def test_the_grid_of_the_paper_has_1035_configurations(grid: Any) -> None:
    """Table 1 of the paper; 75 per batch from 1024 on."""
    assert sum(len(grid.configurations(b)) for b in grid.BATCHES) == 1035
    assert len(grid.configurations(1024)) == 75


def test_table_2_on_one_row(grid: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The paper's numbers beside, ranks from 1, an empty cell where the pure plan is too large."""
    from benchmarks.paper import table2, tables

    row = next(row for row in table2.rows() if row.label == "MLP 1B" and row.best.batch == 8192)
    tables.command("", [row], {"stub": Evaluator()}, ["--csv", str(tmp_path / "out.csv")])
    header, line = (tmp_path / "out.csv").read_text().splitlines()
    cells = dict(zip(header.split(","), line.split(","), strict=True))
    assert (cells["batch"], cells["paper"], cells["vs P measured"]) == ("8192", "4/4/1/1", "3.6")
    assert cells["best of stub"] == "16/1/1/1"
    assert cells["vs D stub"] == "1.00"
    assert "of 1 rows" in capsys.readouterr().out
