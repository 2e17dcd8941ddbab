"""The search of the paper's evaluation: all configurations of 16 devices in powers of two, simulated on the paper's programs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper.mlp_stages import Configuration
from benchmarks.paper.points import Outcome, Point, outcomes

DEVICES = 16
MEMORY_LIMIT_BYTES = 28e9
"""What the authors allowed of 32 GB, since larger configurations ran out of memory."""
BATCHES = tuple(2**i for i in range(7, 21))
DATA = Path(__file__).parent / "data"


def configurations(batch: int) -> list[Configuration]:
    """75, fewer where replicas or microbatches would be empty; K is 1 without pipeline, else 2, 4, ..., 128."""
    powers = [2**i for i in range(DEVICES.bit_length())]
    degrees = [(d, t, DEVICES // d // t) for d in powers for t in powers if d * t <= DEVICES]
    grid = [
        Configuration(d, t, p, k, batch)
        for d, t, p in degrees
        for k in ([1] if p == 1 else [2**i for i in range(1, 8)])
    ]
    return [c for c in grid if c.rows >= 1]


def simulate(model: str, batch: int) -> list[Outcome]:
    """Every configuration, from the paper's programs."""
    return list(outcomes(Point(model, c, 0.0, 0, "grid") for c in configurations(batch)))


def throughput(outcome: Outcome) -> float:
    """Samples per second."""
    return outcome.point.configuration.batch / outcome.latency_seconds


def fits(outcome: Outcome) -> bool:
    return outcome.peak_memory_bytes < MEMORY_LIMIT_BYTES


def name(c: Configuration) -> str:
    return f"{c.D}/{c.T}/{c.P}/{c.K}"


def rank(ranked: Sequence[Outcome], configuration: str, batch: int) -> int | None:
    """From 1, among those given."""
    found = [(name(o.point.configuration), o.point.configuration.batch) for o in ranked]
    return found.index((configuration, batch)) + 1 if (configuration, batch) in found else None


def speedups(best: Outcome, ranked: Sequence[Outcome]) -> list[str]:
    """Over pure data, tensor and pipeline parallelism (this with 128 microbatches, as in the paper); empty where it does not
    fit."""
    cells: list[str] = []
    for axis in ("D", "T", "P"):
        microbatches = 128 if axis == "P" else 1
        pure = [
            o
            for o in ranked
            if getattr(o.point.configuration, axis) == DEVICES and o.point.configuration.K == microbatches
        ]
        cells.append(f"{throughput(best) / throughput(pure[0]):.2f}" if pure else "")
    return cells


def read(table: str) -> list[dict[str, str]]:
    """The paper's rows."""
    with (DATA / table).open(newline="") as file:
        return list(csv.DictReader(file))


def show(header: Sequence[str], rows: Sequence[Sequence[object]], path: Path | None) -> None:
    """Prints a table, and writes it as CSV if there is a path."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(f"{cell!s:>{width}}" for cell, width in zip(row, widths, strict=True)))
    if path is not None:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
