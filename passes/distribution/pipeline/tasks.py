"""Pipeline schedules by name: in goes a name or a CSV file, and how many ranks, stages on each, and microbatches; out come the table of what
each rank does, and the steps in which all advance.

A task runs in the first step in which it is next on its rank and what it needs was done in an earlier step. Messages follow each
step, so that no stage waits for a message that it could have taken later (the swap of the paper's Figures 2 and 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from distir.dialects.errors import DistirError
from distir.dialects.plugins import Registry, expected
from distir.passes.distribution.pipeline.table import Table, Task, read_table
from distir.passes.distribution.pipeline.virtual_orders import (
    dualpipev,
    forward_only,
    interleaved,
    looped_bfs,
    zb_h1,
    zbv,
)


def gpipe(stage: int, stages: int, microbatches: int) -> list[Task]:
    """All forward microbatches, then all backward ones (Huang et al., 2019), in the same order, as PyTorch has it."""
    return [Task(stage, k, backward) for backward in (False, True) for k in range(microbatches)]


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[Task]:
    """Warm up with as many forwards as stages follow, then alternate: at most stages - stage microbatches are alive
    (Narayanan et al., 2019 and 2021, the synchronous schedule with a flush)."""
    return _alternating(stage, stages - stage - 1, microbatches)


def one_forward_one_backward_eager(stage: int, stages: int, microbatches: int) -> list[Task]:
    """The same with twice as many forwards first, so that a message may take as long as a microbatch on a stage before one waits for it: at most
    2 (stages - stage) - 1 microbatches are alive (Zhuang et al., 2022, "On optimizing the communication of model parallelism", section 4)."""
    return _alternating(stage, 2 * (stages - stage - 1), microbatches)


def _alternating(stage: int, ahead: int, microbatches: int) -> list[Task]:
    """One forward, one backward, after as many forwards as are to be ahead."""
    warm_up = min(ahead, microbatches)
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


StageTasks = Callable[[int, int, int], list[Task]]
"""The tasks of a stage in order, from (stage, stages, microbatches): what a plug-in registers for one stage on each rank."""


@dataclass(frozen=True)
class Virtual:
    """A schedule of any number of stages on each rank, or of as many as it says."""

    tasks: Callable[[int, int, int, int], list[Task]]
    """Of a rank, from (rank, ranks, stages on each, microbatches)."""
    usual: int = 1
    """How many stages each rank has, unless told."""
    fixed: bool = False
    """Whether it has no other."""
    splits: bool = False
    """Whether backward parts are in two."""


SCHEDULES: Registry[StageTasks | Virtual] = Registry(
    "schedule",
    {
        "1f1b": one_forward_one_backward,
        "gpipe": gpipe,
        "pipedream": pipedream,
        "1f1b-eager": one_forward_one_backward_eager,
        "interleaved": Virtual(interleaved, 2),
        "looped-bfs": Virtual(looped_bfs, 2),
        "zb-h1": Virtual(zb_h1, splits=True),
        "zbv": Virtual(zbv, 2, fixed=True, splits=True),
        "dualpipev": Virtual(dualpipev, 2, fixed=True, splits=True),
        "forward-only": Virtual(forward_only),
    },
)
"""Those that `distir search` tries to train, unless it is told which, come first (`USUAL`)."""

USUAL = ("1f1b", "gpipe")
FILE = ".csv"


def check_schedule(schedule: str) -> None:
    """Raises DistirError for a schedule that there is not."""
    if schedule.endswith(FILE):
        read_table(Path(schedule))
    elif schedule not in SCHEDULES:
        raise DistirError(f"unknown schedule {schedule}: {expected(schedule, SCHEDULES, 'FILE.csv')}")


def ranks_of(schedule: str, stages: int, virtual: int | None = None) -> int:
    """How many ranks have so many stages, `virtual` of them each, as far as the schedule leaves that open: then one. Raises DistirError where
    they do not divide."""
    if schedule.endswith(FILE):
        return len(read_table(Path(schedule)).rows)
    found = SCHEDULES.get(schedule)
    own = 0 if isinstance(found, Virtual) and found.fixed else 1
    each = stages_on_each(schedule, own if virtual is None else virtual)
    if stages % each:
        raise DistirError(f"the schedule {schedule} has {each} stages on each rank: they are {stages} in all")
    return stages // each


def stages_of(schedule: str, ranks: int, virtual: int = 0) -> int:
    """How many stages a pipeline has. Raises DistirError where the schedule has it otherwise."""
    if schedule.endswith(FILE) and virtual == 0:
        return read_table(Path(schedule)).stages
    return ranks * (virtual if schedule.endswith(FILE) else stages_on_each(schedule, virtual))


def stages_on_each(schedule: str, wanted: int = 0) -> int:
    """How many stages each rank has: as many as are `wanted`, or what the schedule has unless told (0). Raises DistirError where it has not so
    many."""
    check_schedule(schedule)
    found = SCHEDULES[schedule]
    own, fixed = (found.usual, found.fixed) if isinstance(found, Virtual) else (1, True)
    if fixed and wanted not in (0, own):
        raise DistirError(f"the schedule {schedule} has {own} stage{'s' * (own > 1)} on each rank, not {wanted}")
    return wanted or own


def numbers_on_each(schedule: str, wanted: Sequence[int] = ()) -> Sequence[int]:
    """How many stages each rank may have: the numbers above 1 that are `wanted`, of a schedule that leaves it open, otherwise its own."""
    if schedule.endswith(FILE):
        table = read_table(Path(schedule))
        return [table.stages // len(table.rows)]
    found, several = SCHEDULES[schedule], [number for number in wanted if number > 1]
    is_open = isinstance(found, Virtual) and found.usual > 1 and not found.fixed
    return several if several and is_open else [stages_on_each(schedule)]


def is_plain(schedule: str) -> bool:
    """Whether each rank has one stage, and backward parts are whole."""
    check_schedule(schedule)
    if schedule.endswith(FILE):
        table = read_table(Path(schedule))
        return table.stages == len(table.rows) and not table.splits
    found = SCHEDULES[schedule]
    return not isinstance(found, Virtual) or (found.usual == 1 and not found.splits)


def counts(schedule: str, ranks: int, microbatches: Sequence[int]) -> Sequence[int]:
    """Of these numbers of microbatches, those that a schedule has on so many ranks; a table from a file has its own."""
    if not schedule.endswith(FILE):
        return microbatches
    table = read_table(Path(schedule))
    return [table.microbatches] if len(table.rows) == ranks else []


def splits_backward(schedule: str) -> bool:
    """Whether a schedule has backward parts in two."""
    check_schedule(schedule)
    if schedule.endswith(FILE):
        return read_table(Path(schedule)).splits
    found = SCHEDULES[schedule]
    return isinstance(found, Virtual) and found.splits


def table_of(schedule: str, ranks: int, microbatches: int, stages: int = 0) -> Table:
    """The table of a schedule, checked; of one stage on each rank, unless told. Raises DistirError where it is not one for so many."""
    stages = stages or ranks
    if not schedule.endswith(FILE):
        return _built(schedule, ranks, microbatches, stages // ranks)
    table = read_table(Path(schedule))
    found, wanted = (len(table.rows), table.stages, table.microbatches), (ranks, stages, microbatches)
    if found != wanted:
        has, needed = ("{} ranks, {} stages and {} microbatches".format(*each) for each in (found, wanted))
        raise DistirError(f"the schedule {schedule} has {has}: the program has {needed}")
    return table


@lru_cache(maxsize=64)
def _built(schedule: str, ranks: int, microbatches: int, virtual: int) -> Table:
    stages_on_each(schedule, virtual)
    order = SCHEDULES[schedule]
    name = f"{schedule} of {ranks} ranks, {ranks * virtual} stages and {microbatches} microbatches"
    rows = [
        order.tasks(rank, ranks, virtual, microbatches)
        if isinstance(order, Virtual)
        else order(rank, ranks, microbatches)
        for rank in range(ranks)
    ]
    if other := [each for row in cast(list[list[object]], rows) for each in row if not isinstance(each, Task)]:
        raise DistirError(f"the schedule {name} has {other[0]!r}: expected a Task")
    return Table(name, rows).check()


def steps(schedule: str, ranks: int, microbatches: int, training: bool, stages: int = 0) -> Sequence[Sequence[Task]]:
    """The tasks of each step, by rank. Without a backward part every schedule is the forward order."""
    table = table_of(schedule, ranks, microbatches, stages)
    if training and not table.trains:
        raise DistirError(f"the schedule {table.name} has no backward part, and the program has one")
    return table.all_steps if training else table.forward.all_steps


@lru_cache(maxsize=256)
def in_flight(schedule: str, stages: int, microbatches: int) -> Sequence[int]:
    """Per stage, how many microbatches at most have gone forward there and not yet backward, when all are trained on."""
    return table_of(schedule, stages, microbatches).in_flight()
