"""Schedules of several stages on each rank, or with backward parts in two, as `torch.distributed.pipelining` has them: in go a rank, how many
there are, stages on each, and microbatches; out come the actions of the rank in order."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice, pairwise

from distir.dialects.errors import DistirError
from distir.passes.distribution.pipeline.table import FORWARD, FULL, INPUTS, WEIGHTS, Task


def forward_only(rank: int, ranks: int, virtual: int, microbatches: int) -> list[Task]:
    """Each microbatch through one stage after the other."""
    return [Task(chunk * ranks + rank, k) for chunk in range(virtual) for k in range(microbatches)]


def looped_bfs(rank: int, ranks: int, virtual: int, microbatches: int) -> list[Task]:
    """Breadth first: all microbatches through one stage of the rank before the next (Lamy-Poirier, 2022)."""
    backward = [Task(task.stage, task.microbatch, True) for task in forward_only(rank, ranks, virtual, microbatches)]
    return forward_only(rank, ranks, virtual, microbatches) + backward[::-1]


def interleaved(rank: int, ranks: int, virtual: int, microbatches: int) -> list[Task]:
    """Depth first: rounds of about as many microbatches as ranks go through one stage of the rank after the other; one forward, one backward
    (Narayanan et al., 2021). Where microbatches do not divide into rounds, the first rounds have one more."""
    forward, backward, warm_up = _rounds(rank, ranks, virtual, microbatches, 2)
    tasks = [Task(*each) for each in forward[:warm_up]]
    for i, each in enumerate(forward[warm_up:]):
        tasks += [Task(*each), Task(*backward[i], True)]
    return tasks + [Task(*each, True) for each in backward[len(forward) - warm_up :]]


def zb_h1(rank: int, ranks: int, virtual: int, microbatches: int) -> list[Task]:
    """ZB-H1: gradients for other stages first, those of weights where the rank would wait, with the memory of 1F1B (Qi et al., 2023, section
    2.2)."""
    forward, backward, warm_up = _rounds(rank, ranks, virtual, microbatches, 1)
    tasks = [Task(*each) for each in forward[:warm_up]]
    weights = iter(backward)
    for i, each in enumerate(backward):
        tasks += [Task(*ahead) for ahead in forward[warm_up + i : warm_up + i + 1]]
        tasks.append(Task.of(each[0], INPUTS, each[1]))
        tasks += [Task.of(stage, WEIGHTS, k) for stage, k in islice(weights, int(i >= rank))]
    return tasks + [Task.of(stage, WEIGHTS, k) for stage, k in weights]


def _rounds(
    rank: int, ranks: int, virtual: int, microbatches: int, ahead: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """The forwards of a rank in order, its backwards, and how many forwards come before the first backward: `ahead` more for each rank that
    follows."""
    rounds = max(1, microbatches // ranks)
    least, more = divmod(microbatches, rounds)
    starts = [i * least + min(i, more) for i in range(rounds + 1)]
    forward = [
        (chunk * ranks + rank, k)
        for start, stop in pairwise(starts)
        for chunk in range(virtual)
        for k in range(start, stop)
    ]
    backward = [(stage_of_last(stage, ranks, virtual), k) for stage, k in forward]
    most = least + bool(more)
    return forward, backward, min((virtual - 1) * most + ahead * (ranks - 1 - rank), len(forward))


def stage_of_last(stage: int, ranks: int, virtual: int) -> int:
    """The stage of the same rank that is as far from the last as this one is from the first."""
    return (virtual - 1 - stage // ranks) * ranks + stage % ranks


def zbv(rank: int, ranks: int, virtual: int, microbatches: int) -> list[Task]:
    """ZB-V: two stages on a rank, the second on the way back (Qi et al., 2023, section 6). Made for at least 2 P - 1 microbatches; of fewer,
    the others are left out."""
    first, second = rank, 2 * ranks - 1 - rank
    count = max(2 * ranks - 1, microbatches)
    numbers: defaultdict[tuple[int, str], int] = defaultdict(int)
    tasks: list[Task] = []

    def add(stage: int, *kinds: str) -> None:
        for kind in kinds:
            tasks.append(Task.of(stage, kind, numbers[stage, kind]))
            numbers[stage, kind] += 1

    for _ in range(2 * (ranks - rank) - 1):
        add(first, FORWARD)
    for _ in range(rank):
        add(second, FORWARD)
        add(first, FORWARD)
    for _ in range(ranks - rank):
        add(second, FORWARD, INPUTS, WEIGHTS)
    while numbers[second, FORWARD] < numbers[first, FORWARD] or numbers[first, FORWARD] < count:
        if numbers[first, FORWARD] < count:
            add(first, FORWARD)
        add(first, INPUTS, WEIGHTS)
        add(second, FORWARD, INPUTS, WEIGHTS)
    for _ in range(rank):
        add(first, INPUTS)
        add(second, INPUTS)
    for _ in range(ranks - rank):
        add(first, INPUTS, WEIGHTS)
    for stage in (second, first):
        while numbers[stage, WEIGHTS] < numbers[stage, INPUTS]:
            add(stage, WEIGHTS)
    return [task for task in tasks if task.microbatch < microbatches]


def dualpipev(rank: int, ranks: int, virtual: int, microbatches: int) -> list[Task]:
    """DualPipeV: the V-shaped half of DeepSeek's DualPipe (2024), whose pairs of a forward and a backward run one after the other here."""
    if microbatches < 2 * ranks:
        raise DistirError(
            f"the schedule dualpipev: expected at least as many microbatches as stages, got {microbatches} and {2 * ranks}"
        )
    pipe = _DualPipe(rank, 2 * ranks - 1 - rank)
    after = ranks - rank - 1
    pipe.add(2 * after, "0F")
    pipe.add(rank + 1, "0F", "1F")
    pipe.add(after, "1I", "W", "1F")
    pipe.add(microbatches - 2 * ranks + rank + 1, "0F", "1B", "1F", "0B")
    pipe.add(after, "1B", "1F", "0B")
    whole = (rank + 1) // 2 * 2 + 1 - rank % 2
    pipe.add(1, *(f"{i}{FULL if turn < whole else INPUTS}" for turn, i in enumerate("10" * (rank + 1))))
    pipe.add(after, "W", "0I")
    pipe.add(rank + 1, "W")
    return pipe.tasks


class _DualPipe:
    """The actions of a rank, each of the next microbatch of its kind: `0F` is a forward of the first of its stages, `W` the oldest of the
    gradients of weights that were left."""

    def __init__(self, *stages: int):
        self.stages, self.tasks = stages, list[Task]()
        self._numbers: defaultdict[tuple[int, bool], int] = defaultdict(int)
        self._left: list[tuple[int, int]] = []

    def add(self, times: int, *actions: str) -> None:
        for action in actions * times:
            if action == WEIGHTS:
                if self._left:
                    stage, microbatch = self._left.pop(0)
                    self.tasks.append(Task.of(stage, WEIGHTS, microbatch))
                continue
            stage, kind = self.stages[int(action[0])], action[1]
            number = self._numbers[stage, kind == FORWARD]
            self._numbers[stage, kind == FORWARD] += 1
            self.tasks.append(Task.of(stage, kind, number))
            if kind == INPUTS:
                self._left.append((stage, number))
