"""Labels: distinct numbers that show which elements an operator moves, and where to. In go arrays; out come labelled
arrays, and from results the place of each label."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def labelled(arrays: Sequence[Array], labels: Array) -> list[Array]:
    """Arrays of these shapes with labels one after the other."""
    ends = np.cumsum([array.size for array in arrays])[:-1]
    return [part.reshape(array.shape) for part, array in zip(np.split(labels, ends), arrays, strict=True)]


def places_among(values: Array, labels: Array) -> Array:
    """Where each value is among the labels; -1 for no label."""
    if not labels.size:
        return np.full(values.shape, -1)
    order = np.argsort(labels)
    at = order[np.minimum(np.searchsorted(labels[order], values), len(labels) - 1)]
    return np.where(labels[at] == values, at, -1)
