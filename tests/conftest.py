"""Hypothesis on shared machines: no deadlines, and the same examples in every run of `make test`.

`make check-long` draws new examples (`HYPOTHESIS_PROFILE=explore`): a failure there is news of an old fault, and must not
look like one of the change at hand.
"""

import os

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
