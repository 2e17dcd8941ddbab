"""A search over schedules: those of several stages on a rank, or with backward parts in two, take at least what was said before they were built."""

from pathlib import Path

import pytest

from distir.passes.distribution.pipeline.tasks import table_of
from distir.passes.search.configurations import Configuration, grid
from distir.passes.search.plan_bounds import PlanBounds
from distir.passes.search.search import FIRST, Search
from tests.slow_machine import written
from tests.small_models import residual_step

LONG = [pytest.param(each, marks=pytest.mark.long) for each in ("looped-bfs", "zbv", "dualpipev", "interleaved")]


@pytest.mark.parametrize("schedule", ["zb-h1", "file", *LONG])
def test_a_plan_takes_at_least_what_was_said(schedule: str, tmp_path: Path) -> None:
    if schedule == "file":
        schedule = str(tmp_path / "one.csv")
        Path(schedule).write_text(table_of("zbv", 2, 4, 4).csv())
    search = Search(lambda _: residual_step().module.clone(), written(tmp_path), "analytic", 1 << 30)
    configuration = Configuration(8, 1, 1, 2, 4, schedule)
    found = search.evaluate(configuration).figures
    assert found is not None
    least = search.bounds.least_seconds(configuration)
    assert found.latency_seconds / 3 < least <= found.latency_seconds
    search.wanted = 1
    assert max(search.bounds.of(configuration)) <= found.latency_seconds
    assert found.peak_memory_bytes / 3 < search.bounds.least_bytes(configuration) <= found.peak_memory_bytes


def test_bounds_take_no_longer_than_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many plans there are, one is made once it is known of some what their tensor ranks do."""
    done = list[str]()

    def noting(of: type, name: str) -> None:
        whole = getattr(of, name)

        def noted(self: object, *given: object) -> object:
            done.append(name)
            return whole(self, *given)

        monkeypatch.setattr(of, name, noted)

    noting(PlanBounds, "_add_work")
    noting(Search, "evaluate")
    search = Search(
        lambda _: residual_step().module.clone(), written(tmp_path), "analytic", 1 << 30, wanted=1, seconds=60.0
    )
    list(search.outcomes(grid(2, [64], (2, 4, 8, 16, 32), ["1f1b", "zb-h1"])))
    assert done.index("evaluate") <= FIRST
    assert done.count("_add_work") > FIRST


def test_a_table_is_tried_where_it_fits(tmp_path: Path) -> None:
    path = str(tmp_path / "one.csv")
    Path(path).write_text(table_of("interleaved", 2, 6, 4).csv())
    found = grid(4, [24], (2, 4), [path, "zbv"])
    assert {(c.pp, c.microbatches) for c in found if c.schedule == path} == {(2, 6)}
    assert {(c.pp, c.microbatches) for c in found if c.schedule == "zbv"} == {(2, 2), (2, 4), (4, 2), (4, 4)}
    assert {(c.pp, c.microbatches) for c in found if c.schedule == "1f1b"} == {(1, 1), (1, 2), (1, 4)}
