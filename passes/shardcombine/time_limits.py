"""Limits of CPU time that end a search from within: code and seconds go in, and `OutOfTime` is raised in the code that takes longer, so that
what was found until then can be kept. `isolation` ends what does not even listen to that."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

_AGAIN_SECONDS = 0.2
"""After which it is raised again."""


class OutOfTime(BaseException):
    """A question to an op takes too long; code that takes every exception for the op's answer lets it pass."""


@contextmanager
def limited_time(seconds: float, of_system_too: bool = False) -> Generator[None]:
    """Raises OutOfTime in what takes longer in this process, of its own time or of what the system does for it too; nothing where
    this thread gets no signals or the timer is set already. It is raised again where it was lost: numpy makes a SystemError of what
    is raised in its products of Python objects."""
    timer, number = (signal.ITIMER_PROF, signal.SIGPROF) if of_system_too else (signal.ITIMER_VIRTUAL, signal.SIGVTALRM)
    if (
        not math.isfinite(seconds)
        or threading.current_thread() is not threading.main_thread()
        or signal.getitimer(timer)[0]
    ):
        yield
        return

    is_over = False

    def stop(*_: Any) -> None:
        nonlocal is_over
        is_over = True
        raise OutOfTime

    previous: Callable[..., Any] | int | None = signal.signal(number, stop)
    signal.setitimer(timer, seconds, _AGAIN_SECONDS)
    try:
        yield
    except Exception as error:
        if is_over:
            raise OutOfTime from error
        raise
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, previous)
    if is_over:
        raise OutOfTime
