"""How far predictions are from measurements. In go predicted and measured times; out come errors of the values,
errors up to one common factor, and of the order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """Of predicted with measured times."""

    count: int
    median_error: float
    """Of |predicted / measured - 1|."""
    mape: float
    """The mean of the same."""
    scale: float
    """Median of predicted / measured."""
    scaled_mape: float
    """Mean error of predictions divided by `scale`."""
    spearman: float
    """Rank correlation; nan of fewer than three."""

    @classmethod
    def of(cls, predicted: Sequence[float], measured: Sequence[float]) -> Agreement:
        ratio = np.array(predicted) / np.array(measured)
        scale = float(np.median(ratio))
        errors, scaled = np.abs(ratio - 1), np.abs(ratio / scale - 1)
        rank = spearman(predicted, measured)
        return cls(len(ratio), float(np.median(errors)), float(errors.mean()), scale, float(scaled.mean()), rank)


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation: Pearson's of the ranks, equal values sharing the mean of theirs."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1]) if len(a) > 2 else float("nan")


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, inverse, counts = np.unique(np.array(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]
