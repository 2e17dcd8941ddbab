"""A search that several processes share. In go a search and configurations; out come the same outcomes as from the search alone, each process looking at some
of them. Processes know the fastest plans of each other, so none simulates what cannot be among them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.interpreters.machines import Machine
from distir.passes.search.best_first import Fastest
from distir.passes.search.configurations import Configuration, Details, Outcome

if TYPE_CHECKING:
    from distir.passes.search.search import Search

DONE = "done"
MOST_WANTED = 10_000
"""Fastest plans of which processes tell each other."""


@dataclass
class SharedSearch:
    """A search whose configurations `jobs` processes look at; all else is the search's."""

    search: Search
    jobs: int

    @property
    def machine(self) -> Machine:
        return self.search.machine

    @property
    def cost_model(self) -> str:
        return self.search.cost_model

    @property
    def batch(self) -> str:
        return self.search.batch

    @property
    def memory_limit_bytes(self) -> int:
        return self.search.memory_limit_bytes

    def base(self, batch: int) -> ModuleOp:
        """The annotated program at a batch size."""
        return self.search.base(batch)

    def program(self, c: Configuration) -> ModuleOp:
        """The distributed program of a configuration. Raises DistirError where the rules or the batch forbid it."""
        self.search.evaluate(c)  # what another process chose for it is chosen here as well
        return self.search.program(c)

    def details(self, c: Configuration) -> Details:
        """What a plan's memory and communication are."""
        return self.search.details(c)

    def evaluate(self, c: Configuration) -> Outcome:
        """One configuration, as it is among others."""
        return self.search.evaluate(c)

    def outcomes(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        """Simulates all configurations that are wanted. Raises DistirError if a process ends before its time."""
        shares = _shares(configurations, self.jobs)
        if len(shares) < 2:
            yield from self.search.outcomes(configurations)
            return
        if "fork" not in get_all_start_methods():
            raise DistirError("--jobs: this system has no fork, by which processes share a search")
        self.search.prepare(configurations)
        self.search.fastest = Fastest(self.search.wanted) if 0 < self.search.wanted <= MOST_WANTED else None
        context, waiting = get_context("fork"), dict[Connection, Any]()
        try:
            for share in shares:
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(self.search, share, there), daemon=True)
                process.start()
                there.close()
                waiting[here] = process
            while waiting:
                for connection in cast("list[Connection]", wait(list(waiting))):
                    try:
                        said = connection.recv()
                    except EOFError:
                        raise DistirError(
                            "--jobs: a process ended before its time: was there not enough memory?"
                        ) from None
                    if isinstance(said, Exception):
                        raise said
                    if said == DONE:
                        waiting.pop(connection).join()
                    else:
                        yield said
        finally:
            self.search.fastest = None
            for process in waiting.values():
                process.terminate()
                process.join()


def _shares(configurations: Sequence[Configuration], jobs: int) -> list[list[Configuration]]:
    """Configurations of equal degrees stay together: they share stage functions."""
    groups: dict[tuple[int, int, bool], list[Configuration]] = {}
    for c in configurations:
        groups.setdefault((c.tp, c.pp, c.dp * c.microbatches > 1), []).append(c)
    jobs = min(jobs, len(groups))
    return [[c for group in list(groups.values())[job::jobs] for c in group] for job in range(jobs)]


def _work(search: Search, share: Sequence[Configuration], there: Connection) -> None:
    """One process: sends each outcome, then that it is done, or why not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked decides
    try:
        for outcome in search.outcomes(share):
            there.send(outcome)
        there.send(DONE)
    except BrokenPipeError:
        pass
    except Exception as error:
        there.send(error if isinstance(error, DistirError) else DistirError(f"--jobs: {type(error).__name__}: {error}"))
    finally:
        there.close()
        os._exit(0)
