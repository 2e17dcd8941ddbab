"""Cutting into stages, and the order of schedules: for all weights, stages and microbatches."""

import runpy
from collections.abc import Hashable, Sequence
from itertools import combinations, pairwise
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distir.dialects.errors import DistirError
from distir.passes.distribution.pipeline.cuts import EVEN, SLOWER, balanced_cuts, dividing_cuts, joining_cuts
from distir.passes.distribution.pipeline.tasks import Task, steps

ORIGINAL = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "paper" / "pipedream.py"))
STAGES = st.integers(1, 6)
MICROBATCHES = st.integers(1, 9)
SCHEDULES = st.sampled_from(["gpipe", "1f1b", "pipedream"])

# --- cuts ---


def loads(weights: Sequence[float], bounds: Sequence[int]) -> list[float]:
    return [sum(weights[start:stop]) for start, stop in pairwise(bounds)]


def by_themselves(sizes: Sequence[int]) -> list[dict[Hashable, int]]:
    """Operations of which each takes something of its own."""
    return [{i: size} for i, size in enumerate(sizes)]


@given(st.data())
def test_the_heaviest_stage_is_as_light_as_can_be(data: st.DataObject):
    weights = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=9))
    parts = data.draw(st.integers(1, len(weights)))
    bounds = balanced_cuts(weights, parts)
    assert (bounds[0], bounds[-1]) == (0, len(weights))
    assert len(bounds) == parts + 1
    assert all(start < stop for start, stop in pairwise(bounds))
    every_cut = [(0, *inner, len(weights)) for inner in combinations(range(1, len(weights)), parts - 1)]
    lightest = min(max(loads(weights, cut)) for cut in every_cut)
    assert max(loads(weights, bounds)) == lightest


@pytest.mark.parametrize(
    ("weights", "parts", "bounds"),
    [
        ([1, 1, 1, 1], 2, [0, 2, 4]),
        ([1, 1, 1, 1], 3, [0, 2, 3, 4]),  # one stage has two of the four layers, whichever
        ([1, 9, 1, 1], 2, [0, 2, 4]),  # 10 | 2: [1] | 11 is heavier
        ([5, 1, 1, 1, 1, 1], 2, [0, 1, 6]),
        ([9, 1, 1, 1, 1], 3, [0, 1, 3, 5]),  # beside the heavy one, the others share evenly
    ],
)
def test_cuts_by_hand(weights: list[float], parts: int, bounds: list[int]):
    assert sorted(loads(weights, balanced_cuts(weights, parts))) == sorted(loads(weights, bounds))


@given(st.data())
def test_no_stage_is_larger_than_its_bound(data: st.DataObject):
    weights = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=8))
    sizes = data.draw(st.lists(st.integers(0, 20), min_size=len(weights), max_size=len(weights)))
    parts, most = data.draw(st.integers(1, len(weights))), data.draw(st.integers(0, 60))
    every_cut = [(0, *inner, len(weights)) for inner in combinations(range(1, len(weights)), parts - 1)]
    allowed = [max(loads(weights, cut)) for cut in every_cut if max(loads(sizes, cut)) <= most]
    bounds = balanced_cuts(weights, parts, by_themselves(sizes), most)
    assert bool(bounds) == bool(allowed)
    if bounds:
        assert max(loads(sizes, bounds)) <= most
        assert max(loads(weights, bounds)) == min(allowed)


@given(st.data())
def test_parameters_are_divided_where_it_costs_little(data: st.DataObject):
    """Never much slower than the fastest cut, never larger than it; and where it is uneven, a cut that is both even and not slow is taken."""
    weights = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=8))
    sizes = data.draw(st.lists(st.integers(0, 20), min_size=len(weights), max_size=len(weights)))
    parts = data.draw(st.integers(1, len(weights)))
    bounds, fastest = dividing_cuts(weights, by_themselves(sizes), parts), balanced_cuts(weights, parts)
    slowest = SLOWER * max(loads(weights, fastest))
    assert max(loads(weights, bounds)) <= slowest
    assert max(loads(sizes, bounds)) <= max(loads(sizes, fastest))
    every_cut = [(0, *inner, len(weights)) for inner in combinations(range(1, len(weights)), parts - 1)]
    even = EVEN * sum(sizes) / parts
    if any(max(loads(sizes, cut)) <= even and max(loads(weights, cut)) <= slowest for cut in every_cut):
        assert max(loads(sizes, bounds)) <= even


def test_what_several_parts_take_each_of_them_holds() -> None:
    table_and_layers: list[dict[Hashable, int]] = [{"table": 8}, {1: 3}, {2: 3}, {3: 3}, {"table": 8}]
    weights = [1, 3, 3, 3, 9]
    assert dividing_cuts(weights, table_and_layers, 2) == [0, 4, 5]  # 10 | 9; held: 17 | 8
    assert dividing_cuts(weights, table_and_layers, 2, inf) == [0, 3, 5]  # 7 | 12; held: 14 | 11


@given(st.data())
def test_parts_begin_where_they_may_unless_that_costs(data: st.DataObject):
    """Against all cuts: what begins elsewhere is lighter by more than is allowed than the lightest cut that does not, or holds less."""
    weights = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=8))
    parts = data.draw(st.integers(1, len(weights)))
    begins = [0, *sorted(data.draw(st.sets(st.integers(1, len(weights)))) - {len(weights)})]
    live = by_themselves([0] * len(weights))
    bounds = joining_cuts(weights, live, live, begins, parts)
    every_cut = [(0, *inner, len(weights)) for inner in combinations(range(1, len(weights)), parts - 1)]
    joined = [max(loads(weights, cut)) for cut in every_cut if set(cut[:-1]) <= set(begins)]
    lightest = min(max(loads(weights, cut)) for cut in every_cut)
    assert set(bounds[:-1]) <= set(begins) or not joined or min(joined) > SLOWER * lightest
    assert max(loads(weights, bounds)) <= SLOWER * lightest


def test_both_views_of_a_layer_are_on_one_stage():
    """Three layers of two views: of equal ones 4 | 2 is a third slower than 3 | 3; where the second view of one takes little, 30 | 21 hardly is than 29 | 22."""
    taken = [{"a": 1}, {}, {"b": 1}, {}, {"c": 1}, {}]
    assert joining_cuts([1] * 6, taken, taken, [0, 2, 4], 2) == [0, 3, 6]
    assert joining_cuts([10, 10, 9, 1, 10, 11], taken, taken, [0, 2, 4], 2) == [0, 4, 6]


# --- schedules ---


def completion_steps(schedule: str, stages: int, microbatches: int, training: bool) -> dict[Task, int]:
    """The step in which each task runs; a task that runs twice fails."""
    found: dict[Task, int] = {}
    for number, step in enumerate(steps(schedule, stages, microbatches, training)):
        assert len({task.stage for task in step}) == len(step), "a stage does one thing at a time"
        for task in step:
            assert task not in found
            found[task] = number
    return found


@given(SCHEDULES, STAGES, MICROBATCHES, st.booleans())
def test_every_microbatch_visits_every_stage_once(schedule: str, stages: int, microbatches: int, training: bool):
    found = completion_steps(schedule, stages, microbatches, training)
    directions = (False, True) if training else (False,)
    assert set(found) == {Task(p, k, d) for p in range(stages) for k in range(microbatches) for d in directions}


@given(SCHEDULES, STAGES, MICROBATCHES)
def test_what_a_task_needs_was_done_before(schedule: str, stages: int, microbatches: int):
    at = completion_steps(schedule, stages, microbatches, training=True)
    for k in range(microbatches):
        for p in range(stages):
            assert at[Task(p, k)] < at[Task(p, k, True)]
            if p:
                assert at[Task(p - 1, k)] < at[Task(p, k)]
                assert at[Task(p, k, True)] < at[Task(p - 1, k, True)]


def most_alive(schedule: str, stages: int, microbatches: int, stage: int) -> int:
    """The most microbatches whose activations a stage keeps at a time: forward done, backward not yet."""
    alive = most = 0
    for step in steps(schedule, stages, microbatches, training=True):
        for task in step:
            if task.stage == stage:
                alive += -1 if task.backward else 1
                most = max(most, alive)
    return most


@given(STAGES, MICROBATCHES)
def test_1f1b_keeps_at_most_as_many_microbatches_as_stages_follow(stages: int, microbatches: int):
    for stage in range(stages):
        assert most_alive("1f1b", stages, microbatches, stage) == min(microbatches, stages - stage)
        assert most_alive("gpipe", stages, microbatches, stage) == microbatches


@given(SCHEDULES, STAGES, MICROBATCHES)
def test_neither_schedule_has_more_bubbles_than_the_pipeline_needs(schedule: str, stages: int, microbatches: int):
    """With tasks of one step each: the first stage waits for its first gradient, the last for its first input."""
    needed = 2 * (microbatches + stages - 1)
    assert len(steps(schedule, stages, microbatches, training=True)) == needed
    assert len(steps(schedule, stages, microbatches, training=False)) == microbatches + stages - 1


def test_1f1b_of_two_stages_and_three_microbatches():
    """Step by step, derived by hand: F forward, B backward, stage:microbatch."""
    found = [
        " ".join(f"{'B' if t.backward else 'F'}{t.stage}:{t.microbatch}" for t in step)
        for step in steps("1f1b", 2, 3, training=True)
    ]
    assert found == [
        "F0:0",
        "F0:1 F1:0",
        "B1:0",
        "B0:0 F1:1",
        "F0:2 B1:1",
        "B0:1 F1:2",
        "B1:2",
        "B0:2",
    ]


def test_an_unknown_schedule_is_refused():
    with pytest.raises(DistirError, match="unknown schedule zigzag: expected 1f1b, 1f1b-eager, dualpipev, "):
        steps("zigzag", 2, 2, training=True)


@given(STAGES, MICROBATCHES, st.booleans())
def test_pipedream_runs_as_the_original_scheduler_does(stages: int, microbatches: int, training: bool):
    """Step by step, against the reproduction of DistIR's scheduler that the paper's figures are matched with."""
    Stage, schedule = ORIGINAL["Stage"], ORIGINAL["schedule"]
    chain = [Stage(p, p) for p in range(stages)]
    if training:
        chain += [Stage(stages + i, stages - 1 - i, True) for i in range(stages)]
    expected = [{Task(s.device, k, s.is_backward) for s, k in step} for step in schedule(chain, microbatches)]
    assert [set(step) for step in steps("pipedream", stages, microbatches, training)] == expected
