"""Where stages begin: weights and sizes of operations in program order go in, and the bounds of contiguous parts come out.
What is balanced is the heaviest part, within reason also the largest: a stage holds its parameters whatever it takes to run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf

Held = Sequence[Mapping[Hashable, int]]
"""What each operation takes that its part then holds, once, and how large it is."""

EVEN, SLOWER, HALVINGS = 1.2, 1.1, 6
"""Of cuts into stages: what counts as an even share of the parameters, what it may cost, and how often the bound is halved."""


def dividing_cuts(weights: Sequence[float], held: Held, parts: int, slower: float = SLOWER) -> list[int]:
    """Bounds of `parts` balanced parts; where one holds more than `EVEN` times its share of all, of cuts that are at most `slower` times as
    heavy one in which the largest part is smaller, down to that (by halving what is between, so not the very smallest)."""
    best = balanced_cuts(weights, parts)
    slowest, too_small = slower * _largest(weights, best), 0.0
    bound = enough = max(
        EVEN * _size(held) / parts, max([_size([each]) for each in held])
    )  # no part holds less than one operation
    for _ in range(HALVINGS):
        if (most := _size_of_largest(held, best)) <= max(enough, too_small):
            break
        found = balanced_cuts(weights, parts, held, bound)
        if found and _largest(weights, found) <= slowest:
            best, most = found, _size_of_largest(held, found)
        else:
            too_small = bound
        bound = (max(enough, too_small) + most) / 2
    return best


def _largest(weights: Sequence[float], bounds: Sequence[int]) -> float:
    return max(sum(weights[start:stop]) for start, stop in pairwise(bounds))


def _size_of_largest(held: Held, bounds: Sequence[int]) -> int:
    return max(_size(held[start:stop]) for start, stop in pairwise(bounds))


def _size(held: Held) -> int:
    return sum({what: size for each in held for what, size in each.items()}.values())


def _later(held: Held) -> list[list[tuple[int, float]]]:
    """Of what each operation takes, how large it is and which later operation is the next to take it."""
    following = dict[Hashable, float]()
    found = list[list[tuple[int, float]]]()
    for i, each in reversed(list(enumerate(held))):
        found.append([(size, following.get(what, inf)) for what, size in each.items()])
        following.update(dict.fromkeys(each, i))
    return found[::-1]


def balanced_cuts(weights: Sequence[float], parts: int, held: Held = (), most: float = inf) -> list[int]:
    """Bounds of `parts` contiguous non-empty parts whose heaviest part is lightest (then, whose squares are), of those in which no part
    holds more than `most`; empty if there are none.

    Dynamic programming over prefixes: O(len(weights)^2 parts) at most. The last part of a prefix is made longer as long as it is not
    heavier than the heaviest of the best cut that was found."""
    prefix, later = [0.0, *accumulate(weights)], _later(held)
    n = len(weights)
    best: list[dict[int, tuple[float, float, int]]] = [{0: (0.0, 0.0, 0)}]
    for part in range(1, parts + 1):
        row: dict[int, tuple[float, float, int]] = {}
        for stop in range(part, n - (parts - part) + 1):
            found: list[tuple[float, float, int]] = []
            lightest, size = inf, 0
            for start in range(stop - 1, part - 2, -1):
                if most < inf:
                    for bytes_, again in later[start]:
                        size += bytes_ if again >= stop else 0
                if size > most:
                    break
                if (known := best[-1].get(start)) is None:
                    continue
                if (load := prefix[stop] - prefix[start]) > lightest:
                    break
                found.append((max(known[0], load), known[1] + load * load, start))
                lightest = min(lightest, found[-1][0])
            if found:
                row[stop] = min(found)
        best.append(row)
    if n not in best[-1]:
        return []
    bounds = [n]
    for row in reversed(best[1:]):
        bounds.append(row[bounds[-1]][2])
    return bounds[::-1]
