"""Takes a time limit; gives the one deadline that every loop of a search asks, so that the limit holds wherever time is spent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from time import monotonic

USUAL_SECONDS = 45.0
"""The time limit where none is given."""
WITHOUT_PLAN = 0.6
"""The share of the time after which a search that has no plan yet leaves the rest to one that finds some plan."""


class OutOfTime(Exception):
    """A deadline has passed in the middle of something."""


@dataclass(frozen=True)
class Deadline:
    """The end of a time limit."""

    start: float = 0.0
    seconds: float = inf
    share: float = 1.0
    """So much of the seconds counts."""

    @staticmethod
    def after(seconds: float | None) -> Deadline:
        """So many seconds from now; without a limit, never."""
        return Deadline() if seconds is None else Deadline(monotonic(), seconds)

    @property
    def left(self) -> float:
        """Seconds until then, 0 afterwards."""
        return max(0.0, self._end - monotonic())

    @property
    def _end(self) -> float:
        return self.start + self.share * self.seconds

    @property
    def is_over(self) -> bool:
        return monotonic() >= self._end

    @property
    def is_never(self) -> bool:
        return self.seconds == inf

    @property
    def without_plan(self) -> Deadline:
        """The deadline of a search that has no plan yet."""
        return replace(self, share=WITHOUT_PLAN)

    def check(self) -> None:
        """Raises OutOfTime once it is over."""
        if self.is_over:
            raise OutOfTime


NEVER = Deadline()
