"""Pipeline schedules: which stage runs which microbatch when.

A schedule is a list of tasks per stage; all stages advance in unit steps, and a task runs in the first step in which it
is next on its stage and what it needs was done in an earlier step. Messages follow each step, so that no stage waits for
a message that it could have taken later (the swap of the paper's Figures 2 and 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from distir.dialects.errors import DistirError
from distir.dialects.plugins import Registry


@dataclass(frozen=True)
class Task:
    """One microbatch of one stage, forward or backward."""

    stage: int
    microbatch: int
    backward: bool = False


def gpipe(stage: int, stages: int, microbatches: int) -> list[Task]:
    """All forward microbatches, then all backward ones in reverse (Huang et al., 2019)."""
    forward = [Task(stage, k) for k in range(microbatches)]
    return forward + [Task(stage, k, True) for k in reversed(range(microbatches))]


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[Task]:
    """Warm up with as many forwards as stages follow, then alternate: at most stages - stage microbatches are alive
    (Narayanan et al., 2019 and 2021, the synchronous schedule with a flush)."""
    warm_up = min(stages - stage - 1, microbatches)
    tasks = [Task(stage, k) for k in range(warm_up)]
    for k in range(microbatches - warm_up):
        tasks += [Task(stage, warm_up + k), Task(stage, k, True)]
    return tasks + [Task(stage, k, True) for k in range(microbatches - warm_up, microbatches)]


def pipedream(stage: int, stages: int, microbatches: int) -> list[Task]:
    """DistIR's scheduler (its section 4.1, in the original's code): in every step each stage that can work does, alternating
    forward and backward where it can, lowest microbatch first. Nothing limits how many microbatches are alive."""
    ready = [[Task(s, k) for k in range(microbatches) if s == 0] for s in range(stages)]
    was_backward, found = [True] * stages, list[Task]()
    while any(ready):
        step: list[Task] = []
        for s in range(stages):
            if ready[s]:
                turn = [task for task in ready[s] if task.backward != was_backward[s]] or ready[s]
                task = min(turn, key=lambda task: task.microbatch)
                was_backward[s] = task.backward
                ready[s].remove(task)
                step.append(task)
        for task in step:
            if (following := _follows(task, stages)) is not None:
                ready[following.stage].append(following)
        found += [task for task in step if task.stage == stage]
    return found


def _follows(task: Task, stages: int) -> Task | None:
    """What a task makes possible."""
    if task.backward:
        return Task(task.stage - 1, task.microbatch, True) if task.stage else None
    last = task.stage + 1 == stages
    return Task(task.stage, task.microbatch, True) if last else Task(task.stage + 1, task.microbatch)


Schedule = Callable[[int, int, int], list[Task]]
"""The tasks of a stage in order, from (stage, stages, microbatches)."""

SCHEDULES: Registry[Schedule] = Registry(
    "schedule", {"1f1b": one_forward_one_backward, "gpipe": gpipe, "pipedream": pipedream}
)
"""Those that `distir search` tries to train, unless it is told which, come first (`USUAL`)."""

USUAL = ("1f1b", "gpipe")


def check_schedule(schedule: str) -> None:
    """Raises DistirError for a schedule that there is not."""
    SCHEDULES.find(schedule)


def _tasks(schedule: str, stage: int, stages: int, microbatches: int) -> list[Task]:
    """The tasks of a stage; DistirError if the schedule does not have each microbatch go forward once and then backward once."""
    tasks = list(SCHEDULES.find(schedule)(stage, stages, microbatches))
    every = {Task(stage, k, backward) for k in range(microbatches) for backward in (False, True)}
    if len(tasks) != len(every) or set(tasks) != every:
        raise DistirError(
            f"the schedule {schedule} of {stages} stages and {microbatches} microbatches does not run each microbatch forward and "
            f"backward once on stage {stage}"
        )
    return tasks


@lru_cache(maxsize=64)
def steps(schedule: str, stages: int, microbatches: int, training: bool) -> Sequence[Sequence[Task]]:
    """The tasks of each step, by stage. Without a backward part every schedule is the forward order."""
    queues = [
        [task for task in _tasks(schedule, stage, stages, microbatches) if training or not task.backward]
        for stage in range(stages)
    ]
    done: set[Task] = set()
    found: list[list[Task]] = []
    while any(queues):
        step = [queue[0] for queue in queues if queue and _needs(queue[0], stages) <= done]
        if not step:
            raise DistirError(
                f"the schedule {schedule} of {stages} stages and {microbatches} microbatches waits for itself"
            )
        for task in step:
            queues[task.stage].pop(0)
        done.update(step)
        found.append(step)
    return found


class Recurring(NamedTuple):
    """Steps that come so many times in a row, each time for microbatches that are `shift` later."""

    steps: Sequence[Sequence[Task]]
    """The first time."""
    times: int
    shift: int


@lru_cache(maxsize=64)
def step_numbers(schedule: str, stages: int, microbatches: int, training: bool) -> Mapping[Task, int]:
    """In which step each task is."""
    found = steps(schedule, stages, microbatches, training)
    return {task: number for number, step in enumerate(found) for task in step}


@lru_cache(maxsize=64)
def recurring(schedule: str, stages: int, microbatches: int, training: bool, fewest: int) -> Sequence[Recurring]:
    """A schedule in parts: what comes at least `fewest` times in a row, and single steps. What recurs does nothing for the first
    time: each kind of task of each stage was in an earlier part."""
    found = steps(schedule, stages, microbatches, training)
    runs = [(period, shift, _equal_since(found, period, shift)) for period in (1, 2, 3, 4) for shift in (1, -1)]
    parts: list[Recurring] = []
    begun: set[tuple[int, bool]] = set()
    at = 0
    while at < len(found):
        times, period, shift = max(
            [(1 + equal[at] // period, period, shift) for period, shift, equal in runs],
            key=lambda each: (each[0] * each[1], -each[1]),
        )
        kinds = {(task.stage, task.backward) for step in found[at : at + period] for task in step}
        if times < fewest or not kinds <= begun:
            times, period = 1, 1
        parts.append(Recurring(found[at : at + period], times, shift))
        begun.update([(task.stage, task.backward) for step in parts[-1].steps for task in step])
        at += period * times
    return parts


def _equal_since(found: Sequence[Sequence[Task]], period: int, shift: int) -> list[int]:
    """From each step on, how many steps in a row are again there `period` steps later, for microbatches that are `shift` later."""
    equal = [0] * (len(found) + 1)
    for at in reversed(range(len(found) - period)):
        if _is_later(found[at], found[at + period], shift):
            equal[at] = equal[at + 1] + 1
    return equal


def _is_later(step: Sequence[Task], other: Sequence[Task], shift: int) -> bool:
    """Whether another step does the same for microbatches that are `shift` later."""
    if len(step) != len(other):
        return False
    for one, task in zip(step, other, strict=True):
        if one.microbatch + shift != task.microbatch or one.stage != task.stage or one.backward != task.backward:
            return False
    return True


@lru_cache(maxsize=256)
def in_flight(schedule: str, stages: int, microbatches: int) -> tuple[int, ...]:
    """Per stage, how many microbatches at most have gone forward there and not yet backward, when all are trained on."""
    found: list[int] = []
    for stage in range(stages):
        alive = most = 0
        for task in _tasks(schedule, stage, stages, microbatches):
            alive += -1 if task.backward else 1
            most = max(most, alive)
        found.append(most)
    return tuple(found)


def _needs(task: Task, stages: int) -> set[Task]:
    if not task.backward:
        return {Task(task.stage - 1, task.microbatch)} if task.stage else set()
    needs = {Task(task.stage, task.microbatch)}
    if task.stage + 1 < stages:
        needs.add(Task(task.stage + 1, task.microbatch, True))
    return needs
