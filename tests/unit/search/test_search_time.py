"""`distir search` of a training step by the integer program, which it is planned by unless told: what there is no time for is said."""

import json
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

from distir.passes.search.best_first import BestFirst
from distir.passes.search.configurations import UNSEEN, Configuration, Details, Figures, Outcome, distinct
from distir.passes.search.search import Search
from distir.passes.sharding.search import NotInTime
from distir.tools.distir import main
from distir.tools.plans import Plans

SEARCH = "--machine dgx-a100 --devices 2 --microbatches 2 --schedules 1f1b --top 99 --json".split()


def search(mlp_step: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert main(["search", str(mlp_step), *SEARCH, *options]) == 0
    return json.loads(capsys.readouterr().out.partition("wrote")[0])


def test_a_step_of_training_is_planned_by_the_integer_program(
    mlp_step: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, asked = search(mlp_step, capsys), search(mlp_step, capsys, "--sharding", "ilp")
    assert found["plans"] == asked["plans"]
    assert len(found["plans"]) == found["planned"]


@pytest.mark.parametrize(("left", "is_unseen"), [(1.0, True), (1e6, False)])
def test_a_plan_that_the_time_of_all_cuts_short(left: float, is_unseen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not looked at; one that was not found in the time of a plan is not possible."""

    def program(self: Search, c: Configuration, cutoff: float) -> None:
        raise NotInTime(left, "no plan was found in time")

    monkeypatch.setattr(Search, "program", program)
    search = Search(lambda batch: ModuleOp([]), "dgx-a100", "analytic", 1, seconds=left)
    monkeypatch.setattr(search, "_end", monotonic() + left)
    dropped = search.evaluate(Configuration(8, 2, 1, 1, 1, "1f1b")).dropped or ""
    assert dropped.startswith(UNSEEN) == is_unseen


@pytest.mark.parametrize(
    ("left", "slowest", "seconds"), [(60, None, 30), (60, 25.0, 25), (60, 5.0, 20), (10, 25.0, 10), (999, None, 120)]
)
def test_the_time_of_a_plan(left: float, slowest: float | None, seconds: float) -> None:
    """Half of what is left for the first that is found; for others as much as one took."""
    search = Search(lambda batch: ModuleOp([]), "dgx-a100", "analytic", 1, seconds=60.0)
    search._end, search._slowest = monotonic() + left, slowest
    assert search.passes(Configuration(8, 2, 1, 1, 1, "1f1b")).time_limit == pytest.approx(seconds, abs=1.0)


def outcome(overlap: bool, seconds: float | None, why: str | None = None) -> Outcome:
    figures = None if seconds is None else Figures(seconds, 1, 1.0, 0.0)
    return Outcome(Configuration(8, 2, 1, 1, 1, "1f1b", overlap=overlap), figures, why)


@pytest.mark.parametrize(
    ("outcomes", "which"),
    [
        ([outcome(False, 2.0), outcome(True, 1.0)], 1),
        ([outcome(False, 1.0), outcome(True, 2.0)], 0),
        ([outcome(False, 1.0, "needs 9 GB"), outcome(True, 2.0)], 1),
        ([outcome(False, None, "needs 9 GB"), outcome(True, None, UNSEEN)], 1),
        ([outcome(False, 1.0), outcome(True, None, UNSEEN)], 0),
    ],
)
def test_the_faster_that_fits(outcomes: list[Outcome], which: int) -> None:
    assert distinct(outcomes) == [outcomes[which]]


def test_which_plans_are_tried_with_messages_on_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that would be among the fastest so far without any waiting for messages."""
    exposed = {1: 0.3, 2: 0.2, 3: 0.5, 4: 0.4}
    tried = list[int]()

    def evaluate(self: Search, c: Configuration, cutoff: float = 0.0) -> Outcome:
        if c.overlap:
            tried.append(c.microbatches)
            return Outcome(c, Figures(0.8, 1, 1.0, 0.0))
        details = Details({}, {"dp": (exposed[c.microbatches], 0.0)})
        return Outcome(c, Figures(0.9 + c.microbatches / 10, 1, 1.0, 0.0, details=details))

    plans = [Configuration(8, 2, 1, 1, k, "1f1b") for k in exposed]
    search = Search(lambda batch: ModuleOp([]), "dgx-a100", "analytic", 1, overlapped=1)
    monkeypatch.setattr(Search, "evaluate", evaluate)
    assert len(list(search.outcomes(plans))) == len(plans) + len(tried)
    assert tried == [1, 3, 4]


def test_what_is_known_to_be_slower_is_said_when_time_is_over() -> None:
    """Of plans that were not looked at: one that takes at least longer than the fastest that was found is not the fastest, also where fewer were found than
    are wanted; another is unseen."""
    queue = BestFirst(wanted=10)
    queue.note(outcome(True, 2.0))
    slow, fast = (Configuration(8, 2, 1, 1, k, "1f1b") for k in (2, 4))
    queue.add(slow, 3.0)
    queue.add(fast, 1.0)
    queue.close()
    (found,) = queue.slower()
    assert (found.configuration, found.least_seconds) == (slow, 3.0)
    assert found.dropped == "takes at least 3 s, so another is faster"


def test_no_time_at_all(mlp_step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(mlp_step), *SEARCH[:-1], "--time-limit", "0.000001", "-o", "none.mlir"]) == 1
    assert "no plan was found: 5 were not looked at within 1e-06 s: allow more time" in capsys.readouterr().err


def test_a_search_that_was_stopped_says_so() -> None:
    plans = Plans((), (outcome(False, None, "takes at least 2 s"),), 1, interrupted=True)
    assert plans.summary() == "0 of 1 plans simulated; 1 are slower; stopped before its end"


@pytest.mark.parametrize("seconds", ["0", "nan", "-1"])
def test_mistakes(mlp_step: Path, seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(mlp_step), *SEARCH, "--time-limit", seconds]) == 1
    assert f"--time-limit: expected more than 0 seconds, got {seconds}" in capsys.readouterr().err
