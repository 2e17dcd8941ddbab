"""Limits of CPU time that end a search from within: code and seconds go in, and `OutOfTime` is raised in the code that takes longer, so that
what was found until then can be kept. `isolation` ends what does not even listen to that."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


class OutOfTime(BaseException):
    """A question to an op takes too long; code that takes every exception for the op's answer lets it pass."""


@contextmanager
def limited_time(seconds: float, of_system_too: bool = False) -> Generator[None]:
    """Raises OutOfTime in what takes longer in this process, of its own time or of what the system does for it too; nothing where
    this thread gets no signals or the timer is set already."""
    timer, number = (signal.ITIMER_PROF, signal.SIGPROF) if of_system_too else (signal.ITIMER_VIRTUAL, signal.SIGVTALRM)
    if (
        not math.isfinite(seconds)
        or threading.current_thread() is not threading.main_thread()
        or signal.getitimer(timer)[0]
    ):
        yield
        return

    def stop(*_: Any) -> None:
        raise OutOfTime

    previous: Callable[..., Any] | int | None = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, previous)
