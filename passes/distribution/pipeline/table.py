"""A pipeline schedule as a table: in goes, for each rank (the devices of some stages), what it does in order, or a CSV file as PyTorch writes
them; out comes a table that was checked, and the steps in which all ranks run it. The first action that cannot run is named."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from distir.dialects.errors import DistirError

FORWARD, FULL, INPUTS, WEIGHTS = "F", "B", "I", "W"
"""What a rank computes, in PyTorch's letters: forward, backward, and a backward in two parts: gradients that earlier stages wait for, and
the others."""

COMPUTED: Mapping[str, tuple[str, ...]] = {"F": ("F",), "B": ("I", "W"), "I": ("I",), "W": ("W",)}
"""What is done once an action is."""
MESSAGES = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")
KEPT = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
"""What PyTorch does with sharded parameters and gradients between actions."""

OVERLAPPED = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
CELL = re.compile(rf"([0-9]{{1,6}})({'|'.join((*KEPT, *MESSAGES))}|[FBIW])([0-9]{{0,6}})")
LARGEST_BYTES = 1 << 26
"""Of a file."""

Done = tuple[int, str, int]
"""Of a stage and a microbatch, what is done."""


@dataclass(frozen=True)
class Task:
    """What a rank does for one microbatch of one stage: forward, backward, or one part of the backward (`I`, `W`), or a message. What
    concerns no microbatch (`UNSHARD`) has number -1."""

    stage: int
    microbatch: int
    backward: bool = False
    part: str = ""
    """Beside F and B."""

    @staticmethod
    def of(stage: int, kind: str, microbatch: int) -> Task:
        return Task(stage, microbatch, kind in (FULL, INPUTS, WEIGHTS), "" if kind in (FORWARD, FULL) else kind)

    @property
    def kind(self) -> str:
        return self.part or (FULL if self.backward else FORWARD)

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch if self.microbatch >= 0 else ''}"


@dataclass(frozen=True, eq=False)
class Table:
    """The actions of each rank in order. `name` is what errors call it."""

    name: str
    rows: Sequence[Sequence[Task]]

    @cached_property
    def tasks(self) -> Sequence[Sequence[Task]]:
        """What each rank computes: without messages, which follow from where stages are."""
        return [[task for task in row if task.kind in COMPUTED] for row in self.rows]

    @cached_property
    def rank_of(self) -> Sequence[int]:
        """Of each stage, the rank that has it."""
        found = {task.stage: rank for rank, row in enumerate(self.tasks) for task in row}
        return [found[stage] for stage in range(len(found))]

    @property
    def stages(self) -> int:
        return len(self.rank_of)

    @cached_property
    def microbatches(self) -> int:
        return 1 + max(task.microbatch for row in self.tasks for task in row)

    @cached_property
    def splits(self) -> bool:
        """Whether backward parts are in two."""
        return any(task.part for row in self.tasks for task in row)

    @cached_property
    def trains(self) -> bool:
        """Whether there are backward parts."""
        return any(task.backward for row in self.tasks for task in row)

    @cached_property
    def forward(self) -> Table:
        """Without backward parts."""
        return Table(self.name, [[task for task in row if task.kind == FORWARD] for row in self.tasks])

    def in_flight(self) -> list[int]:
        """Per stage, of how many microbatches at most something is kept at a time: the forward is done, and the backward not yet all."""
        alive, most = [0] * self.stages, [0] * self.stages
        for task in (task for row in self.tasks for task in row):
            alive[task.stage] += (task.kind == FORWARD) - (WEIGHTS in COMPUTED[task.kind])
            most[task.stage] = max(most[task.stage], alive[task.stage])
        return most

    def csv(self) -> str:
        """As PyTorch writes it: a line for each rank."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([map(str, row) for row in self.rows])
        return text.getvalue()

    # --- checks -----------------------------------------------------------------------------------------------------

    def check(self) -> Table:
        """Raises DistirError, with the first action that is wrong, unless stages 0 to S - 1 each have one rank, and every microbatch goes
        forward once, and backward once after that, everywhere or nowhere; and unless what each action needs comes before it, wherever it is."""
        if not all(self.tasks):
            raise self._error(f"rank {next(r for r, row in enumerate(self.tasks) if not row)} has nothing to do")
        home: dict[int, int] = {}
        done: dict[Done, Task] = {}
        for rank, task in self._all():
            if home.setdefault(task.stage, rank) != rank:
                raise self._error(f"{task} is on rank {rank}, and stage {task.stage} on rank {home[task.stage]}")
            for each in results(task):
                if each in done:
                    twice = "again" if done[each] == task else f"beside {done[each]}"
                    raise self._error(f"{task} comes {twice} on rank {rank}")
                done[each] = task
        for stage in range(1 + max(home)):
            for kind in (FORWARD, INPUTS, WEIGHTS) if self.trains else (FORWARD,):
                for microbatch in range(self.microbatches):
                    if (stage, kind, microbatch) not in done:
                        where = f" on rank {home[stage]}" if stage in home else ""
                        whole = kind == INPUTS and (stage, WEIGHTS, microbatch) not in done
                        raise self._error(f"{stage}{FULL if whole else kind}{microbatch} is missing{where}")
        if not self.trains and (early := [task for _, task in self._all() if task.kind.endswith("_B")]):
            raise self._error(f"{early[0]} sends the gradient of no backward part")
        assert self.all_steps
        return self

    @cached_property
    def all_steps(self) -> Sequence[Sequence[Task]]:
        """What all ranks compute in each unit step: a rank runs its next action in the first step in which all that it needs was done
        before. Raises DistirError where none can."""
        left = [list(reversed(row)) for row in self.rows]
        last, received = self.stages - 1, self._received
        done: set[Done] = set()
        found: list[list[Task]] = []
        while any(left):
            step = [row[-1] for row in left if row and all(each in done for each in needs(row[-1], last, received))]
            if not step:
                raise self._error(self._waiting(left, done))
            for row in left:
                if row and row[-1] in step:
                    row.pop()
            for task in step:
                done.update(results(task))
            if computed := [task for task in step if task.kind in COMPUTED]:
                found.append(computed)
        return found

    def makespan(self, seconds: Callable[[Task], float]) -> float:
        """How long the table takes where messages take no time."""
        ends = dict.fromkeys(range(len(self.rows)), 0.0)
        done: dict[Done, float] = {}
        for task in (task for step in self.all_steps for task in step):
            rank = self.rank_of[task.stage]
            start = max([ends[rank], *(done[each] for each in needs(task, self.stages - 1, ()))])
            ends[rank] = start + seconds(task)
            done.update(dict.fromkeys(results(task), ends[rank]))
        return max(ends.values())

    @cached_property
    def _received(self) -> set[Done]:
        return {
            (task.stage, task.kind, task.microbatch) for row in self.rows for task in row if task.kind[:4] == "RECV"
        }

    def _all(self) -> Iterator[tuple[int, Task]]:
        return ((rank, task) for rank, row in enumerate(self.tasks) for task in row)

    def _waiting(self, left: Sequence[Sequence[Task]], done: set[Done]) -> str:
        """Why no rank can go on: what comes before what it needs on its own rank, if there is such an action; otherwise, who waits for whom."""
        makers = {each: (rank, task) for rank, row in enumerate(left) for task in row for each in results(task)}
        chain: list[tuple[int, Task]] = []
        rank = next(rank for rank, row in enumerate(left) if row)
        while (here := (rank, left[rank][-1])) not in chain:
            chain.append(here)
            task = here[1]
            wanted = next(each for each in needs(task, self.stages - 1, self._received) if each not in done)
            if wanted not in makers:
                return f"{task} on rank {rank} waits for {Task.of(*wanted)}, which is missing"
            other, maker = makers[wanted]
            if other == rank:
                return f"{task} on rank {rank} waits for {maker}, which comes after it"
            rank = other
        cycle = chain[chain.index(here) :]
        return ", ".join(
            f"{task} on rank {rank} waits for rank {other}"
            for (rank, task), (other, _) in zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        )

    def _error(self, text: str) -> DistirError:
        return DistirError(f"the schedule {self.name}: {text}")


def results(task: Task) -> list[Done]:
    """What is done once an action is."""
    return [(task.stage, kind, task.microbatch) for kind in COMPUTED.get(task.kind, (task.kind,))]


def needs(task: Task, last_stage: int, received: Container[Done]) -> list[Done]:
    """What must be done before an action; `received` are the messages that a table gives itself."""
    stage, microbatch, kind = task.stage, task.microbatch, task.kind
    if kind == FORWARD:
        found = [(stage - 1, FORWARD, microbatch)] if stage else []
        message = stage, "RECV_F", microbatch
    elif kind in (FULL, INPUTS):
        found = [(stage, FORWARD, microbatch)]
        if stage < last_stage:
            found.append((stage + 1, INPUTS, microbatch))
        message = stage, "RECV_B", microbatch
    else:
        other = {"RECV_F": (stage - 1, "SEND_F"), "RECV_B": (stage + 1, "SEND_B"), "SEND_F": (stage, FORWARD)}
        return [] if kind in KEPT else [(*other.get(kind, (stage, INPUTS)), microbatch)]
    return [*found, message] if message in received else found


def read_table(path: Path) -> Table:
    """A table from a CSV file. Raises DistirError, in a line, for one that cannot be read or does not hold."""
    try:
        status = path.stat()
    except OSError as error:
        raise DistirError(f"{path}: {error.strerror}") from None
    return _read_table(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _read_table(path: Path, _changed: int, _bytes: int) -> Table:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
        if len(data) > LARGEST_BYTES:
            raise DistirError(f"{path}: a schedule of more than {LARGEST_BYTES >> 20} MiB")
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    except OSError as error:
        raise DistirError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise DistirError(f"{path}: not a CSV file") from None
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if not rows:
        raise DistirError(f"{path}: a schedule of no actions")
    return Table(
        str(path), [[task for cell in row for task in _read(cell, path, r)] for r, row in enumerate(rows)]
    ).check()


def _read(cell: str, path: Path, rank: int) -> list[Task]:
    """The actions of a cell: two of a pair that PyTorch may overlap, none of an empty one."""
    text = cell.strip()
    if (pair := OVERLAPPED.fullmatch(text)) is not None:
        return [task for each in pair[1].split(";") for task in _read(each, path, rank)]
    if not text:
        return []
    found = CELL.fullmatch(text)
    if found is None or not (found[3] or found[2] in KEPT):
        raise DistirError(f"{path}: rank {rank}: expected an action such as 2F0, 1I3 or 0SEND_F1, got '{text[:40]}'")
    return [Task.of(int(found[1]), found[2], int(found[3] or -1))]
