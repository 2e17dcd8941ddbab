"""Python's garbage collection in a process that makes many programs and keeps most. It is off until the process
ends; `sweep` frees unused programs at bounded cost."""

from __future__ import annotations

import atexit
import gc
from time import monotonic

MOST_UNSWEPT = 5_000_000
"""Objects that may be made, and not freed, before garbage is looked for: about a gigabyte."""
FULL = 4
"""Every so many times everything is looked at."""
_sweeps = 0
_next_sweep = 0.0
"""When garbage may be looked for again."""


def leave_collector_off() -> None:
    """No garbage collection until the process ends, nor then: for commands that end with a search, of which most stays (`sweep`)."""
    gc.disable()
    atexit.register(gc.freeze)


def sweep() -> None:
    """Frees programs that nothing needs any more, where many were made since the last time: before another is made, and in a tenth of the time at
    most. What is there after it is looked at again only every `FULL` times: most of it stays."""
    global _next_sweep, _sweeps
    if gc.get_count()[0] > MOST_UNSWEPT and (start := monotonic()) >= _next_sweep:
        if _sweeps % FULL == FULL - 1:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        _sweeps += 1
        _next_sweep = monotonic() + 9 * (monotonic() - start)
