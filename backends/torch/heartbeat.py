"""Finds and names a stalled rank. In goes the current operation of every rank; out comes, for the launcher, the time
since the last progress and the place of each stalled rank.

A rank writes the number of its current operation into a mapped file, and the texts of all numbers into another:

    3.beat   numbers of 64 bits: the operation, how many runs have begun, and where callers are
    3.sites  line n: operation n, `rank.allreduce in @main`

While a program runs, a thread looks up the current operation: the program itself does nothing for it.
"""

from __future__ import annotations

import mmap
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_LENGTH = 24
LOOK_SECONDS = 0.1
"""How often a rank says where it is."""


class Heartbeat:
    """A rank's side. `cell[0]` is the operation that it is in, `cell[1]` the run."""

    def __init__(self, folder: Path, rank: int) -> None:
        path = folder / f"{rank}.beat"
        path.write_bytes(bytes(_LENGTH))
        with path.open("r+b") as file:
            self.cell = memoryview(mmap.mmap(file.fileno(), _LENGTH)).cast("Q")
        self._sites = (folder / f"{rank}.sites").open("w", buffering=1, encoding="utf-8")
        self._count = 0
        self.reach("start of the process")

    def site(self, text: str) -> int:
        """The number of an operation."""
        self._sites.write(" ".join(text.split()) + "\n")
        self._count += 1
        return self._count - 1

    def follow(self, line: Callable[[Any], int], sites: Mapping[int, str]) -> None:
        """From here on, says in which line of a program this thread is; `sites` are the operations of lines."""
        numbers = {number: self.site(text) for number, text in sites.items()}
        followed = threading.get_ident()

        def look() -> None:
            while True:
                time.sleep(LOOK_SECONDS)
                frame = sys._current_frames().get(followed)  # pyright: ignore[reportPrivateUsage]
                if (number := numbers.get(line(frame))) is None:
                    continue
                where = 0
                while frame is not None:  # callers tell one call of a layer from the next
                    frame, where = frame.f_back, (where * 31 + frame.f_lasti) % (1 << 64)
                self.cell[0], self.cell[2] = number, where

        threading.Thread(target=look, daemon=True).start()

    def reach(self, text: str) -> None:
        """The rank begins what the text says."""
        self.cell[0] = self.site(text)


class Watch:
    """The launcher's side: how long it is since any rank began an operation."""

    def __init__(self, folder: Path, world: int) -> None:
        self._folder, self._world = folder, world
        self._seen = [b""] * world
        self._since = time.monotonic()

    def silence_seconds(self) -> float:
        """Time since the last progress of any rank that was seen."""
        for rank in range(self._world):
            path = self._folder / f"{rank}.beat"
            if path.exists() and (beat := path.read_bytes()) != self._seen[rank]:
                self._seen[rank], self._since = beat, time.monotonic()
        return time.monotonic() - self._since

    def stalled(self, running: Sequence[int], processes: Sequence[int]) -> str:
        """Which of the ranks still running stand still, and where. Those that the system has stopped are the cause; else those that
        are not waiting for another; else all."""
        places = {rank: self._place(rank) for rank in running}
        stopped = [rank for rank in running if _is_stopped(processes[rank])]
        busy = [rank for rank in running if not places[rank].startswith("rank.")]
        named = stopped or busy or list(running)
        why = "the process is stopped" if stopped else "it did not end" if busy else "all wait for each other"
        where = "; ".join(f"rank {rank} in {places[rank]}" for rank in named[:8])
        others = f" (and {len(named) - 8} ranks more)" if len(named) > 8 else ""
        return f"{where}{others}: {why}"

    def _place(self, rank: int) -> str:
        try:
            site = int.from_bytes(self._seen[rank][:8], "little")
            return (self._folder / f"{rank}.sites").read_text("utf-8").splitlines()[site]
        except (OSError, IndexError):
            return "start of the process"


def _is_stopped(process: int) -> bool:
    """Whether a signal has stopped it, by Linux's /proc; False where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False
