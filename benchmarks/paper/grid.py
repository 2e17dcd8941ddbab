"""The search of the paper's evaluation: all configurations of 16 devices in powers of two, simulated on the paper's programs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.paper import gpt2, mlp
from benchmarks.paper.mlp_stages import Configuration
from benchmarks.paper.points import MACHINE, Outcome, Point
from distir.interpreters.machines import load_machine

DEVICES = 16
MEMORY_LIMIT_BYTES = 28e9
"""What the authors allowed of 32 GB, since larger configurations ran out of memory."""
BATCHES = tuple(2**i for i in range(7, 21))
Evaluate = Callable[[Iterable[Point]], Iterator[Outcome]]
"""Simulates points, one by one."""

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


def simulate(evaluate: Evaluate, model: str, batches: Iterable[int], rival: Configuration) -> list[Outcome]:
    """Every configuration that fits and is not slower than `rival`, and others.

    Batches go from the largest to the smallest. Time is affine in the batch for every operation, with a constant that is not
    negative, so that throughput never falls with the batch (nor does it in the 3,508 points): plans of the same D/T/P/K as
    one that fits and is slower than `rival` are slower still with a smaller batch, and are left out."""
    found = list(evaluate([Point(model, rival, 0.0, 0, "grid")]))
    settled: set[str] = set()

    def points() -> Iterator[Point]:
        for batch in sorted(batches, reverse=True):
            for c in configurations(batch):
                if c != rival and name(c) not in settled and may_fit(model, c):
                    yield Point(model, c, 0.0, 0, "grid")

    for outcome in evaluate(points()):
        found.append(outcome)
        if fits(outcome) and throughput(outcome) < throughput(found[0]):
            settled.add(name(outcome.point.configuration))
    return found


def may_fit(model: str, c: Configuration) -> bool:
    """Whether the matrices of the layers alone, which T and P divide, are within the limit of a device."""
    if model in gpt2.MODELS:
        matrices = gpt2.MODELS[model].layers * 12 * gpt2.MODELS[model].width ** 2
    else:
        matrices = mlp.MODELS[model].layers * mlp.MODELS[model].width ** 2
    return 2 * matrices / (c.T * c.P) < MEMORY_LIMIT_BYTES


def throughput(outcome: Outcome) -> float:
    """Samples per second."""
    return outcome.point.configuration.batch / outcome.latency_seconds


def fits(outcome: Outcome) -> bool:
    return outcome.peak_memory_bytes < MEMORY_LIMIT_BYTES


def name(c: Configuration) -> str:
    """Without its batch."""
    return f"{c.D}/{c.T}/{c.P}/{c.K}"


def parse(text: str, batch: int) -> Configuration:
    """From `name`."""
    d, t, p, k = map(int, text.split("/"))
    return Configuration(d, t, p, k, batch)


def speedups(best: Outcome, found: Iterable[Outcome]) -> list[str]:
    """Over pure data, tensor and pipeline parallelism (this with 128 microbatches, as in the paper), each at its best batch;
    empty where that needs more than the devices have, which is more than what a search is allowed."""
    capacity = load_machine(MACHINE).device.memory_capacity_bytes
    cells: list[str] = []
    for axis in ("D", "T", "P"):
        microbatches = 128 if axis == "P" else 1
        pure = [
            throughput(o)
            for o in found
            if getattr(o.point.configuration, axis) == DEVICES
            and o.point.configuration.K == microbatches
            and o.peak_memory_bytes <= capacity
        ]
        cells.append(f"{throughput(best) / max(pure):.2f}" if pure else "")
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
