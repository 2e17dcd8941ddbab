"""What Tables 2 and 3 of the paper have in common: the paper's best configuration of each row beside the best simulated.

The paper's best is the best *measured* of the ten best simulated; ours is the best simulated of all that fit, with the rank of
the paper's among them. Speed-ups are over pure data, tensor and pipeline parallelism (this with 128 microbatches): measured,
of the paper's best; simulated, of the best simulated. Empty where the pure configuration does not fit.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.paper import grid
from benchmarks.paper.mlp_stages import Configuration
from benchmarks.paper.points import Outcome


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the paper's table."""

    label: str
    model: str
    """As `points.program` calls it."""
    batches: Sequence[int]
    """The best is sought over all."""
    best: Configuration
    measured: Sequence[str]
    """Speed-ups over D, T and P."""


@dataclass(frozen=True)
class Best:
    """What a simulated grid says of a row."""

    configuration: Configuration
    rank: int | None
    """Of the paper's; None if it does not fit."""
    rank_at_batch: int | None
    """Among those of its batch: the authors measured the ten best of each batch."""
    speedups: Sequence[str]

    @classmethod
    def of(cls, row: Row, outcomes: Sequence[Outcome]) -> Best:
        ranked = sorted(filter(grid.fits, outcomes), key=grid.throughput, reverse=True)
        order = [o.point.configuration for o in ranked]
        ranks = [
            among.index(row.best) + 1 if row.best in among else None
            for among in (order, [c for c in order if c.batch == row.best.batch])
        ]
        return cls(order[0], ranks[0], ranks[1], grid.speedups(ranked[0], outcomes))


def rows(table: str, models: dict[str, str]) -> Iterable[tuple[str, str, dict[str, str], Sequence[str]]]:
    """Label, model, the columns and the speed-ups of each row of the paper's table."""
    for row in grid.read(table):
        yield row["model"], models[row["model"]], row, [row[f"speedup_vs_{axis}"] for axis in "DTP"]


def batches(rows: Iterable[Row]) -> dict[str, set[int]]:
    """Of each model, at what batches its rows are sought."""
    found: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        found[row.model].update(row.batches)
    return found


def command(
    description: str, rows: Sequence[Row], sources: dict[str, grid.Evaluate], arguments: Sequence[str] | None
) -> list[list[Best]]:
    """Parses the command line, simulates the grids of every source, and shows the table; returns what each source says
    of each row that was asked for."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="writes the table here")
    parser.add_argument("--model", choices=list(dict.fromkeys(row.label for row in rows)), help="only this one")
    parser.add_argument("--source", choices=list(sources), help="only from these programs")
    options = parser.parse_args(arguments)
    sources = {name: simulate for name, simulate in sources.items() if options.source in (None, name)}
    asked = [row for row in rows if options.model in (None, row.label)]
    console = Console(stderr=True)
    steps = [(name, row) for name in sources for row in asked]
    found = {
        (name, row): Best.of(row, grid.simulate(sources[name], row.model, row.batches, row.best))
        for name, row in track(steps, "rows", console=console, disable=not console.is_terminal)
    }
    bests = [[found[name, row] for name in sources] for row in asked]
    grid.show(header(list(sources)), [cells(row, best) for row, best in zip(asked, bests, strict=True)], options.csv)
    for name, of_source in zip(sources, zip(*bests, strict=True), strict=True):
        ranks = [best.rank for best in of_source]
        print(f"{name}: the paper's configuration is the best in {ranks.count(1)} of {len(ranks)} rows")
    return bests


def header(sources: Sequence[str]) -> list[str]:
    beside = [f"{what} {name}" for name in sources for what in ("best of", "rank in", "rank at its batch in")]
    speedups = [f"vs {axis} {name}" for axis in "DTP" for name in ("measured", *sources)]
    return ["model", "batch", "paper", *beside, *speedups]


def cells(row: Row, bests: Sequence[Best]) -> list[object]:
    """The batch is said where the best has another one than the paper's."""
    beside: list[object] = []
    for best in bests:
        c = best.configuration
        beside.append(grid.name(c) if c.batch == row.best.batch else f"{c.batch} {grid.name(c)}")
        beside += [rank or "does not fit" for rank in (best.rank, best.rank_at_batch)]
    speedups = [cell for axis in zip(row.measured, *(best.speedups for best in bests), strict=True) for cell in axis]
    return [row.label, row.best.batch, grid.name(row.best), *beside, *speedups]
