"""The data of a search for the report's page. In go the outcomes of all plans; out come their figures and the Pareto
front of throughput against peak memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distir.passes.search.configurations import Outcome


def plans_data(
    outcomes: Sequence[Outcome],
    best: Sequence[Outcome],
    memory_limit_bytes: int,
    more: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Ranked plans first, with `more` of their figures, then those that are out, with the reason. Latencies are in microseconds."""
    rows = [_plan(rank, o) for rank, o in enumerate(best, 1)]
    for row, figures in zip(rows, more, strict=False):
        row.update(figures)
    rows += [_plan(None, o) for o in outcomes if o.dropped is not None]
    points = [(o.figures.peak_memory_bytes, o.throughput) for o in outcomes if o.figures is not None]
    return {"plans": rows, "front": pareto(points), "limit": memory_limit_bytes}


def _plan(rank: int | None, outcome: Outcome) -> dict[str, Any]:
    c, f = outcome.configuration, outcome.figures
    plan: dict[str, Any] = {
        "tokens": None,
        "mfu": None,
        "exposed": {},
        "hidden": {},
        "rank": rank,
        "batch": c.batch,
        "dp": c.dp,
        "dp_replicate": c.dp_replicate,
        "cp": c.cp,
        "tp": c.tp,
        "pp": c.pp,
        "k": c.microbatches,
    }
    plan |= {
        "schedule": c.schedule,
        "recompute": c.recompute,
        "dropped": outcome.dropped,
        "throughput": outcome.throughput,
    }
    if f is None:
        return {**plan, "latency": None, "peak": None, "shares": None}
    shares = {"compute": f.compute_share, "communication": f.communication_share, "idle": f.idle_share}
    return {**plan, "latency": f.latency_seconds * 1e6, "peak": f.peak_memory_bytes, "shares": shares}


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (memory, throughput) that no other beats in both, by memory."""
    front: list[tuple[float, float]] = []
    for memory, throughput in sorted(points, key=lambda p: (p[0], -p[1])):
        if not front or throughput > front[-1][1]:
            front.append((memory, throughput))
    return front
