"""Hypothesis on shared machines: no deadlines."""

from hypothesis import settings

settings.register_profile("distir", deadline=None)
settings.load_profile("distir")
