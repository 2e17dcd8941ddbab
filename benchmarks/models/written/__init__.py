"""Training steps as people write them by hand (several optimizers, averages of weights, losses of their own, frozen parts), by name: a
function gives the step, to be imported with its own example arguments (a batch of 4)."""

from benchmarks.models.written import (
    acting,
    audio,
    contrastive,
    fields,
    generating,
    graphs,
    language,
    normalising,
    sequences,
    vision,
)
from benchmarks.models.written.table import WRITTEN

__all__ = [
    "WRITTEN",
    "acting",
    "audio",
    "contrastive",
    "fields",
    "generating",
    "graphs",
    "language",
    "normalising",
    "sequences",
    "vision",
]
