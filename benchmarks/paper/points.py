"""The points that the original simulated, and what ours says of the same programs."""

from __future__ import annotations

import csv
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from benchmarks.paper import gpt2, mlp
from benchmarks.paper.mlp_stages import Configuration
from distir.interpreters.simulate import SummaryMemo, summarize

DATA = Path(__file__).parent / "data" / "distir_dgx2_simulated.csv"
MACHINE = "dgx-2"
TOLERANCE_BYTES = 64


@dataclass(frozen=True)
class Point:
    """One row of the data."""

    model: str
    configuration: Configuration
    latency_seconds: float
    peak_memory_bytes: int
    source: str

    @property
    def tolerance(self) -> float:
        """Relative, of the latency: bandwidths of pairs are known to five digits."""
        return 1e-5 if self.configuration.P == 1 else 1e-3


@dataclass(frozen=True)
class Outcome:
    """What ours says of a point."""

    point: Point
    latency_seconds: float
    peak_memory_bytes: int

    @property
    def latency_error(self) -> float:
        """Relative."""
        return self.latency_seconds / self.point.latency_seconds - 1

    @property
    def memory_error_bytes(self) -> int:
        return self.peak_memory_bytes - self.point.peak_memory_bytes

    @property
    def has_latency(self) -> bool:
        return abs(self.latency_error) <= self.point.tolerance

    @property
    def has_memory(self) -> bool:
        return abs(self.memory_error_bytes) <= TOLERANCE_BYTES


def read_points() -> list[Point]:
    """All rows, in order."""
    degrees = ("dp_degree", "hp_degree", "pp_degree", "num_microbatches", "batch_size")
    with DATA.open(newline="") as file:
        return [
            Point(
                row["model_size"],
                Configuration(*(int(row[key]) for key in degrees)),
                float(row["sim_latency_s"]),
                int(row["sim_peak_memory_bytes"]),
                row["source"],
            )
            for row in csv.DictReader(file)
        ]


def program(model: str, configuration: Configuration) -> ModuleOp:
    """The level-3 program of a model of the data."""
    if model in gpt2.MODELS:
        return gpt2.build(gpt2.MODELS[model], configuration)
    return mlp.build(mlp.MODELS[model], configuration)


def outcomes(points: Iterable[Point]) -> Iterator[Outcome]:
    """Builds and simulates each point's program. Automatic garbage collection is off meanwhile: programs are large and
    full of cycles, and are collected one by one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        memo = SummaryMemo()
        for point in points:
            summary = summarize(program(point.model, point.configuration), MACHINE, "distir", memo=memo)
            yield Outcome(point, summary.makespan_seconds, max(summary.peak_memory_bytes.values()))
            del summary
            gc.collect(1)
    finally:
        if was_enabled:
            gc.enable()
