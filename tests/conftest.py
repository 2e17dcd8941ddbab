"""Hypothesis on shared machines: no deadlines; in continuous integration the same examples every time."""

import os

from hypothesis import settings

settings.register_profile("distir", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("distir")
