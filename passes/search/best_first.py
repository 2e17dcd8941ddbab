"""The order in which a search looks at plans. In go configurations with lower bounds of their time; out comes the
next one to simulate, until no other can be among the fastest that were found."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from multiprocessing import get_context
from typing import Any, cast

from distir.passes.search.configurations import Configuration, Outcome


class Fastest:
    """The throughputs of the fastest plans that any process found, as many as are wanted."""

    def __init__(self, wanted: int):
        self._found: Any = get_context("fork").Array("d", max(wanted, 1))

    def note(self, throughput: float) -> None:
        """Counts a plan that was simulated."""
        with self._found.get_lock():
            values: list[float] = list(self._found)
            if throughput > min(values):
                self._found[values.index(min(values))] = throughput

    @property
    def throughputs(self) -> list[float]:
        """These, sorted; 0 for each that was not found yet."""
        return sorted(cast("list[float]", self._found[:]))


class BestFirst:
    """What was not looked at yet, and the throughputs of the fastest plans so far."""

    def __init__(self, wanted: int, others: Fastest | None = None):
        """`others` are the fastest plans that processes found that share the search."""
        self.wanted, self.others = wanted, others
        self._found: list[float] = []
        self._waiting: list[tuple[float, int, Configuration, float]] = []
        self._order = count()
        self._slower: dict[Configuration, float] = {}

    def add(self, configuration: Configuration, least_seconds: float, likely: float = 0.0) -> None:
        """Something to look at, with what it takes at least; in the order of what plans `likely` take, if that is more."""
        most = _throughput(configuration, max(least_seconds, likely))
        heappush(self._waiting, (-most, next(self._order), configuration, least_seconds))

    def next(self) -> Configuration | None:
        """What to look at next, of what can be among the fastest; None if there is nothing."""
        while self._waiting:
            _, _, configuration, least_seconds = heappop(self._waiting)
            if not self._is_slower(configuration, least_seconds, self._threshold):
                return configuration
        return None

    def close(self) -> None:
        """Of what is not looked at any more, what cannot be the fastest is slower."""
        for _, _, configuration, least_seconds in self._waiting:
            self._is_slower(configuration, least_seconds, self.throughput_of(1))

    def _is_slower(self, configuration: Configuration, least_seconds: float, threshold: float) -> bool:
        if is_slower := _throughput(configuration, least_seconds) < threshold:
            self._slower[configuration] = least_seconds
        return is_slower

    def note(self, outcome: Outcome) -> Outcome:
        """Counts a plan that was simulated."""
        if outcome.figures is not None and outcome.dropped is None:
            insort(self._found, outcome.throughput)
            if self.others is not None:
                self.others.note(outcome.throughput)
        return outcome

    def slower(self) -> Iterator[Outcome]:
        """The plans that were not simulated, since others are faster."""
        for c, least in self._slower.items():
            yield self.too_slow(c, least)

    def too_slow(self, configuration: Configuration, least_seconds: float) -> Outcome:
        """What became of a plan that takes at least so long."""
        most, every = _throughput(configuration, least_seconds), self._every
        faster = min(self.wanted, len(every) - bisect_right(every, most))
        others = "another is" if faster == 1 else f"{faster} others are"
        why = f"takes at least {least_seconds:.6g} s, so {others} faster"
        return Outcome(configuration, None, why, least_seconds=least_seconds)

    def cutoff(self, configuration: Configuration) -> float:
        """Seconds: a plan that takes longer is not among the fastest."""
        return configuration.batch / self._threshold if self._threshold else inf

    @property
    def is_full(self) -> bool:
        """Whether as many plans were found as are wanted."""
        return self._threshold > 0

    @property
    def _threshold(self) -> float:
        """The least throughput of the fastest plans, if as many as are wanted were found."""
        return self.throughput_of(self.wanted)

    def throughput_of(self, place: int) -> float:
        """The throughput of the plan at a place among those found, the fastest at 1; 0 if so many were not found."""
        every = self._every
        return every[-place] if len(every) >= place else 0.0

    @property
    def _every(self) -> list[float]:
        """The throughputs of the plans found, sorted: all of this process, or the fastest of all."""
        return self._found if self.others is None else self.others.throughputs


def _throughput(configuration: Configuration, seconds: float) -> float:
    return configuration.batch / seconds if seconds else inf
