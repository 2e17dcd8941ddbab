"""A primal heuristic, where prices led to no plan within the limit of memory. In goes a search by prices; out come
plans within the limit, or the leanest plan.

While a value has too many combinations of choices for a table, memory is counted with less than it takes
(`memory_tables`), and prices do not see that a plan exceeds the limit. So plans are sought among the choices that
promise to cost little: with so few, all tables are exact. Where none fits, the plan of least memory does if any
does, and the search goes on near its choices. A plan found bounds the time of the plans still sought."""

from __future__ import annotations

from distir.passes.sharding.least_memory import Least, least_memory
from distir.passes.sharding.pricing import Pricing
from distir.passes.solver.bounds import Bounds, promising

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""Of the choices: so many are looked at, one after the other."""
SWEEPS = 20
"""Passes over the network for the bounds by which choices are promising."""
PRICES = 10
"""Prices that are tried among them."""


def add_heuristic_plan(pricing: Pricing) -> Least | None:
    """Looks for plans within the limit; what was found to need least, if that was sought. Prices and their bound stay what they are."""
    _add_among_promising(pricing)
    if pricing.best is not None:
        return None
    starts = [found.choices for found in pricing.every]
    least = least_memory(pricing.relaxation.choices, starts, pricing.limit, pricing.deadline)
    pricing.add(least.choices)
    if pricing.best is not None:
        _add_among_promising(pricing)
    return least


def _add_among_promising(pricing: Pricing) -> None:
    """Looks for faster plans among the choices with the least bounds, and those of the best plan."""
    import numpy as np

    relaxation = pricing.relaxation
    every = relaxation.kept
    bounds = Bounds(relaxation.network([price / pricing.limit for price in pricing.prices]))
    bounds.improve(SWEEPS, pricing.deadline)
    for share in SHARES:
        best = pricing.best
        if pricing.is_closed:
            break
        known = (pricing.every[0] if best is None else best).choices
        chosen = promising(bounds.with_choice, int(share * relaxation.size))
        kept = [
            np.union1d(left[chosen[v]] if v in chosen else left, np.array([known[v]], dtype=left.dtype))
            for v, left in enumerate(every)
        ]
        with pricing.among(kept, [0.0] * len(relaxation.points)):
            pricing.improve(PRICES)
