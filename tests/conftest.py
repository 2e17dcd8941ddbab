"""Hypothesis on shared machines: no deadlines, and the same examples in every run of `make test`.

`make check-long` draws new examples (`HYPOTHESIS_PROFILE=explore`): a failure there is news of an old fault, and must not
look like one of the change at hand.
"""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores Ctrl-C for what it starts in the background, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Commands that end their process may leave the garbage collector off; tests call them within one."""
    yield
    gc.enable()
