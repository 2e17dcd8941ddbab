"""Takes a time limit; gives the one deadline that every loop of a search asks, so that the limit holds wherever time is spent."""

from __future__ import annotations

from dataclasses import dataclass
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

    @staticmethod
    def after(seconds: float | None) -> Deadline:
        """So many seconds from now; without a limit, never."""
        return Deadline() if seconds is None else Deadline(monotonic(), seconds)

    @property
    def left(self) -> float:
        """Seconds until then, 0 afterwards."""
        return max(0.0, self.start + self.seconds - monotonic())

    @property
    def is_over(self) -> bool:
        return monotonic() >= self.start + self.seconds

    @property
    def is_never(self) -> bool:
        return self.seconds == inf

    @property
    def without_plan(self) -> Deadline:
        """The deadline of a search that has no plan yet."""
        return Deadline(self.start, WITHOUT_PLAN * self.seconds)

    def check(self) -> None:
        """Raises OutOfTime once it is over."""
        if monotonic() >= self.start + self.seconds:
            raise OutOfTime


NEVER = Deadline()
