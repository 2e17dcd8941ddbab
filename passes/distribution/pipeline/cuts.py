"""Where stages begin: weights and sizes of operations in program order go in, and the bounds of contiguous parts come out.
What is balanced is the heaviest part, within reason also the largest: a stage holds its parameters whatever it takes to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np

LiveBytes = Sequence[Mapping[Any, int]]
"""What each operation takes that its part then holds, once, and how large it is."""

EVEN, SLOWER, HALVINGS = 1.2, 1.1, 6
"""Of cuts into stages: what counts as an even share of the parameters, what it may cost, and how often the bound is halved."""

ROUNDING = 1e-12
"""Loads are differences of sums: parts whose loads differ by less, relatively, are equally heavy."""


def dividing_cuts(weights: Sequence[float], live: LiveBytes, parts: int, slower: float = SLOWER) -> list[int]:
    """Bounds of `parts` balanced parts; where one holds more than `EVEN` times its share of all, of cuts that are at most `slower` times as
    heavy one in which the largest part is smaller, down to that (by halving what is between, so not the very smallest)."""
    best = balanced_cuts(weights, parts)
    slowest, too_small = slower * _largest(weights, best), 0.0
    bound = enough = max(
        EVEN * _size(live) / parts, max([_size([each]) for each in live])
    )  # no part holds less than one operation
    for _ in range(HALVINGS):
        if (most := _size_of_largest(live, best)) <= max(enough, too_small):
            break
        found = balanced_cuts(weights, parts, live, bound)
        if found and _largest(weights, found) <= slowest:
            best, most = found, _size_of_largest(live, found)
        else:
            too_small = bound
        bound = (max(enough, too_small) + most) / 2
    return best


def joining_cuts(
    weights: Sequence[float],
    first: LiveBytes,
    last: LiveBytes,
    begins: Sequence[int],
    parts: int,
    slower: float = SLOWER,
) -> list[int]:
    """Bounds of parts that begin only where they may, unless other bounds are lighter or more even than is worth that. A parameter is where it is taken
    first, or where it is taken last."""
    free = _first_or_last(weights, first, last, parts, slower)
    if not parts <= len(begins) < len(weights):
        return free
    units = list(pairwise([*begins, len(weights)]))
    firsts, lasts = ([_together(live[start:stop]) for start, stop in units] for live in (first, last))
    bounds = _first_or_last([sum(weights[start:stop]) for start, stop in units], firsts, lasts, parts, slower)
    joined = [*(begins[i] for i in bounds[:-1]), len(weights)]
    most, enough = (min(_size_of_largest(first, each), _size_of_largest(last, each)) for each in (joined, free))
    is_worth = _largest(weights, joined) <= slower * _largest(weights, free)
    return joined if is_worth and most <= max(enough, EVEN * _size(first) / parts) else free


def _first_or_last(weights: Sequence[float], first: LiveBytes, last: LiveBytes, parts: int, slower: float) -> list[int]:
    bounds = dividing_cuts(weights, first, parts, slower) if parts > 1 else [0, len(weights)]
    if is_uneven(first, bounds) and first != last:
        other = dividing_cuts(weights, last, parts, slower)
        return other if is_more_even(last, other, first, bounds) else bounds
    return bounds


def is_more_even(live: LiveBytes, bounds: Sequence[int], other: LiveBytes, other_bounds: Sequence[int]) -> bool:
    """Whether another cut is uneven and the largest part of this one holds less."""
    return is_uneven(other, other_bounds) and _size_of_largest(live, bounds) < _size_of_largest(other, other_bounds)


def is_uneven(live: LiveBytes, bounds: Sequence[int]) -> bool:
    """Whether a part holds more than `EVEN` times its share of all."""
    return _size_of_largest(live, bounds) > EVEN * _size(live) / (len(bounds) - 1)


def _largest(weights: Sequence[float], bounds: Sequence[int]) -> float:
    return max(sum(weights[start:stop]) for start, stop in pairwise(bounds))


def _size_of_largest(live: LiveBytes, bounds: Sequence[int]) -> int:
    return max(_size(live[start:stop]) for start, stop in pairwise(bounds))


def _size(live: LiveBytes) -> int:
    return sum(_together(live).values())


def _together(live: LiveBytes) -> dict[Any, int]:
    return {what: size for each in live for what, size in each.items()}


def _reach(live: LiveBytes, stops: int, most: float) -> np.ndarray:
    """For each stop the earliest start of a part that ends there and holds at most `most` (the stop itself: not even one operation does)."""
    start, size, times, found = 0, 0, Counter[Any](), np.zeros(stops + 1, int)
    for stop, each in enumerate(live, 1):
        size += sum(bytes_ for what, bytes_ in each.items() if not times[what])
        times.update(each.keys())
        while size > most:
            times.subtract(live[start].keys())
            size -= sum(bytes_ for what, bytes_ in live[start].items() if not times[what])
            start += 1
        found[stop] = start
    return found


def _within(prefix: np.ndarray, reach: np.ndarray, heaviest: float) -> np.ndarray:
    """For each stop the earliest start of a part that is within reach and not heavier than `heaviest`."""
    return np.maximum(reach, np.searchsorted(prefix, prefix - heaviest * (1 + ROUNDING) - ROUNDING * prefix[-1]))


def _fewest(starts: np.ndarray) -> float:
    """How many parts there are at least: each as long as it may be, from the end."""
    stop, parts = len(starts) - 1, 0
    while stop:
        if starts[stop] >= stop:
            return inf
        stop, parts = int(starts[stop]), parts + 1
    return parts


def balanced_cuts(weights: Sequence[float], parts: int, live: LiveBytes = (), most: float = inf) -> list[int]:
    """Bounds of `parts` contiguous non-empty parts whose heaviest part is lightest (then, whose squares are), of those in which no part
    holds more than `most`; empty if there are none.

    How light the heaviest can be is found by halving: longest parts are fewest, and parts of fewer can be cut further. Then a dynamic
    program over prefixes adds up squares, in which the last part of a longer prefix never begins earlier (squares are convex), so that
    each row takes O(n log n): O(parts n log n) in all."""
    n, prefix = len(weights), np.concatenate([[0.0], np.cumsum(weights)])
    reach = _reach(live, n, most) if most < inf else np.zeros(n + 1, int)
    if n < parts or _fewest(reach) > parts:
        return []
    low, high = max([*weights, prefix[-1] / parts]), prefix[-1]
    if _fewest(_within(prefix, reach, low)) <= parts:
        high = low
    while high - low > high * ROUNDING:
        middle = (low + high) / 2
        low, high = (low, middle) if _fewest(_within(prefix, reach, middle)) <= parts else (middle, high)
    starts = _within(prefix, reach, high)
    squares, rows = np.where(np.arange(n + 1) > 0, inf, 0.0), list[np.ndarray]()
    for _ in range(parts):
        squares, begins = _longer(prefix, starts, squares)
        rows.append(begins)
    bounds = [n]
    for begins in reversed(rows):
        bounds.append(int(begins[bounds[-1]]))
    return bounds[::-1]


def _longer(prefix: np.ndarray, starts: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least sums of squares with one part more, and where that part begins: for the stop in the middle first, then for those between,
    whose parts begin between those of their neighbours."""
    n = len(prefix) - 1
    found, begins = np.full(n + 1, inf), np.zeros(n + 1, int)
    finite = np.flatnonzero(squares < inf)
    first, last = int(finite[0]), int(finite[-1])
    known = np.flatnonzero((starts <= last) & (np.arange(n + 1) > first))
    step = 1 << len(known).bit_length()
    while step >= 1:
        stops = np.arange(step - 1, len(known), 2 * step)
        at = known[stops]
        left = np.maximum(
            np.maximum(starts[at], first), np.where(stops >= step, begins[known[np.maximum(stops - step, 0)]], 0)
        )
        above = stops + step
        right = np.minimum(
            np.minimum(at - 1, last), np.where(above < len(known), begins[known[np.minimum(above, len(known) - 1)]], n)
        )
        step //= 2
        if not len(at):
            continue
        lengths = right - left + 1
        ends = np.cumsum(lengths)
        candidates = np.arange(ends[-1]) + np.repeat(left - ends + lengths, lengths)
        sums = squares[candidates] + (np.repeat(prefix[at], lengths) - prefix[candidates]) ** 2
        found[at] = least = np.minimum.reduceat(sums, ends - lengths)
        ties = np.flatnonzero(sums == np.repeat(least, lengths))
        begins[at] = candidates[ties[np.searchsorted(ties, ends - lengths)]]
    return found, begins
