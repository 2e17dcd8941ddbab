"""Measures probes. In go probe programs; out come the seconds of one operation of each, on processes of this
machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from distir.backends.torch.calibration.probes import REPEATS, Probe
from distir.backends.torch.exchange import Job, parse, probe_path, times_path
from distir.backends.torch.launch import Workers, communication_groups


@dataclass(frozen=True)
class Sample:
    """A probe and what came out."""

    probe: Probe
    seconds: float
    """Of one operation, until the slowest process is done: the least of all runs, which others' work disturbs least."""
    issue_seconds: float
    """The same until the host has issued it."""


def measure(
    probes: Sequence[Probe], processes: int, backend: str, runs: int, progress: Callable[[int], object]
) -> list[Sample]:
    """Runs each probe `runs` times after one that does not count; `progress` is told how many are done. Raises DistirError
    if a process fails."""
    from distir.passes.project_to_rank import project

    with TemporaryDirectory(prefix="distir-") as name:
        folder = Path(name)
        programs = [[project(parse(probe.text), rank, "main") for rank in range(processes)] for probe in probes]
        for number, ranks in enumerate(programs):
            for rank, program in enumerate(ranks):
                probe_path(folder, number, rank).write_text(str(program), "utf-8")
        groups = communication_groups([program for ranks in programs for program in ranks])
        Job(backend, processes, "main", groups, runs, False).save(folder)
        with Workers(folder, processes, "distir.backends.torch.calibration.worker") as workers:
            workers.wait(None, lambda: progress(len(_lines(folder, 0))))
        times = [[json.loads(line) for line in _lines(folder, rank)] for rank in range(processes)]
    samples: list[Sample] = []
    for number, probe in enumerate(probes):
        slowest = [
            [max(t) for t in zip(*ranks, strict=True)] for ranks in zip(*(t[number] for t in times), strict=True)
        ]
        done, issued = (min(run[i] for run in _of_runs(slowest)) / REPEATS for i in (0, 1))
        samples.append(Sample(probe, done, issued))
    return samples


def _of_runs(slowest: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    return [(run[0], run[1]) for run in slowest]


def _lines(folder: Path, rank: int) -> list[str]:
    path = times_path(folder, rank)
    return path.read_text("utf-8").splitlines() if path.exists() else []
