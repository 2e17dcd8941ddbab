"""Trains an emitted program on this machine. In goes its folder; out come rank 0's lines and the files of
`train.py`, which runs in one process per rank, watched until all are done.

The first rank that fails or dies ends all of them and becomes one DistirError, which says from which step a new start goes on. A signal
is handed on, so that the ranks end after their step, with a checkpoint."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from distir.backends.torch.exchange import log_path
from distir.backends.torch.forks import POLL_SECONDS, Process, environment
from distir.backends.torch.heartbeat import Watch
from distir.backends.torch.launch import LOOK_SECONDS
from distir.dialects.errors import DistirError

LOST = "lost another rank"
"""In what a rank says (`distir_faults`) that fails because another has ended."""
GRACE_SECONDS = 60.0
"""How long ranks that are asked to end may take for it: a step, and a checkpoint."""


class Interrupt(Exception):
    """A signal asked for the end, and the ranks have ended."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def train(
    folder: Path,
    words: Sequence[str],
    world: int,
    timeout_seconds: float = 300.0,
    say: Callable[[str], object] = print,
) -> None:
    """Runs `train.py` with these words on `world` processes; `say` gets what rank 0 prints, line by line. Raises DistirError for a rank that fails,
    is killed or stalls for `timeout_seconds`, and Interrupt after Ctrl-C or SIGTERM."""
    with TemporaryDirectory(prefix="distir-") as name:
        _Ranks(folder, Path(name), words, world, timeout_seconds, say).run()


class _Ranks:
    def __init__(
        self,
        folder: Path,
        exchange: Path,
        words: Sequence[str],
        world: int,
        timeout_seconds: float,
        say: Callable[[str], object],
    ) -> None:
        self.folder, self.exchange, self.words, self.world, self.say = folder, exchange, words, world, say
        self.timeout_seconds = timeout_seconds
        self.processes: list[Process] = []
        self.asked = 0
        """The signal that asked for the end."""

    def run(self) -> None:
        before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for rank in range(self.world):
                self.processes.append(self._start(rank))
            self._wait()
        finally:
            for process in self.processes:
                process.end()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start(self, rank: int) -> Process:
        own = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": self.world,
            "DISTIR_MEETING": self.exchange / "rendezvous",
        }
        return Process(
            [self.folder / "train.py", *self.words],
            environment() | {name: str(value) for name, value in own.items()},
            self.exchange / f"{rank}.out",
            log_path(self.exchange, rank),
        )

    def _ask(self, number: int, frame: object) -> None:
        if self.asked and number == signal.SIGINT:
            raise Interrupt(number)
        self.asked = number

    def _wait(self) -> None:
        watch, looked, until = Watch(self.exchange, self.world), time.monotonic(), float("inf")
        with (self.exchange / "0.out").open(encoding="utf-8", errors="replace") as output:
            while True:
                if self.asked and until == float("inf"):
                    until = time.monotonic() + GRACE_SECONDS
                    for process in self.processes:
                        process.send_signal(signal.SIGTERM)
                statuses = [process.poll() for process in self.processes]
                self._tell(output)
                if all(status == 0 for status in statuses):
                    if self.asked:
                        raise Interrupt(self.asked)
                    return
                if any(statuses):
                    raise DistirError(self._failure())
                if time.monotonic() > until:
                    raise DistirError(f"the ranks did not end within {GRACE_SECONDS:g} seconds")
                if time.monotonic() - looked > min(LOOK_SECONDS, self.timeout_seconds):
                    if watch.silence_seconds() > self.timeout_seconds:
                        running = [rank for rank, status in enumerate(statuses) if status is None]
                        where = watch.stalled(running, [process.pid for process in self.processes])
                        raise DistirError(f"no progress for {self.timeout_seconds:g} seconds: {where}")
                    looked = time.monotonic()
                time.sleep(POLL_SECONDS)

    def _tell(self, output: IO[str]) -> None:
        """Hands on the lines that rank 0 has finished."""
        while True:
            place = output.tell()
            line = output.readline()
            if not line.endswith("\n"):
                output.seek(place)
                return
            self.say(line[:-1])

    def _failure(self) -> str:
        """What ended the ranks. One that was killed comes first, then what rank 0 says: the others fail because of it, or with it."""
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
            time.sleep(POLL_SECONDS)
        found: list[str] = []
        for rank, process in enumerate(self.processes):
            status, lines = process.poll(), _lines(log_path(self.exchange, rank))
            own = next((line.partition(": ")[2] for line in lines if line.startswith("train.py: ")), None)
            if status is not None and status < 0:
                name = signal.Signals(-status).name
                return f"rank {rank} was killed by {name}" + (
                    ": the system does that when memory runs out" if name == "SIGKILL" else ""
                )
            if own is not None:
                found.insert(len(found) if LOST in own else 0, own)
            elif status and lines:
                found.append(f"rank {rank} failed: {lines[-1]}")
        return found[0] if found else "a rank ended without a word"


def _lines(path: Path) -> list[str]:
    """What a rank said, without what torch puts before a line of a rank."""
    text = path.read_text("utf-8", errors="replace")
    lines = [line.partition("]: ")[2] if line.startswith("[rank") else line for line in text.splitlines()]
    return [line for line in lines if line.strip()]


def last_checkpoint(folder: str | os.PathLike[str]) -> str | None:
    """The name of the newest checkpoint of a folder that is there."""
    found = sorted(path.name for path in Path(folder).glob("step_*") if path.is_dir())
    return found[-1] if found else None
