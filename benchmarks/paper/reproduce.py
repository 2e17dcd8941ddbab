"""Holds `--cost-model distir` on the paper's programs against every point that the original simulated.

    python -m benchmarks.paper.reproduce            # every 12th point
    python -m benchmarks.paper.reproduce --all      # all 3,508
    python -m benchmarks.paper.reproduce --all --model gpt3-xl --csv out.csv

A point is matched when the latency is within 1e-5 (without pipeline) or 1e-3 (with), and the largest peak memory within 64
bytes. Mismatches are counted by what differs and where.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper.points import Outcome, outcomes, read_points

SAMPLE = 12


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help=f"all points, not every {SAMPLE}th")
    parser.add_argument("--model", help="only points of this model")
    parser.add_argument("--csv", type=Path, help="writes each point's outcome here")
    options = parser.parse_args(arguments)
    points = [point for point in read_points() if options.model in (None, point.model)]
    points = points if options.all else points[::SAMPLE]
    start = time.process_time()
    found: list[Outcome] = []
    for outcome in outcomes(points):
        found.append(outcome)
        if sys.stderr.isatty():
            print(f"\r{len(found)} of {len(points)} points", end="", file=sys.stderr)
    seconds = time.process_time() - start
    if options.csv is not None:
        write(found, options.csv)
    report(found)
    print(f"\n{len(found)} points in {seconds:.0f} CPU-s")
    return 0


def report(found: Sequence[Outcome]) -> None:
    """Matches per source, then the mismatches by kind."""
    header = f"{'source':20}{'model':12}{'P = 1':>12}{'P > 1':>14}{'worst latency':>28}{'worst memory':>16}"
    print(header, "-" * len(header), sep="\n")
    by_source: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in found:
        by_source[outcome.point.source, outcome.point.model].append(outcome)
    for (source, model), rows in by_source.items():
        cells: list[str] = []
        worst: list[str] = []
        for has_pipeline in (False, True):
            part = [r for r in rows if (r.point.configuration.P > 1) == has_pipeline]
            cells.append(f"{sum(r.has_latency and r.has_memory for r in part)}/{len(part)}")
            worst.append(f"{max((abs(r.latency_error) for r in part), default=0):.1e}")
        memory = max(abs(r.memory_error_bytes) for r in rows)
        print(f"{source:20}{model:12}{cells[0]:>12}{cells[1]:>14}{' / '.join(worst):>28}{f'{memory} B':>16}")
    wrong = [r for r in found if not (r.has_latency and r.has_memory)]
    print(f"\n{len(found) - len(wrong)} of {len(found)} points match")
    for kind, count in Counter(map(classify, wrong)).most_common():
        print(f"{count:6} {kind}")


def classify(outcome: Outcome) -> str:
    """What differs, and in which style of parallelism."""
    c = outcome.point.configuration
    what = [name for name, same in (("latency", outcome.has_latency), ("memory", outcome.has_memory)) if not same]
    style = "/".join(name for name, degree in (("D", c.D), ("T", c.T), ("P", c.P)) if degree > 1)
    sign = "more" if outcome.memory_error_bytes > 0 else "less"
    size = "" if outcome.has_memory else f", {sign} memory by {abs(outcome.memory_error_bytes):.1e} B or so"
    return f"{outcome.point.model}, {style}: {' and '.join(what)}{size}"


def write(found: Sequence[Outcome], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow("model,batch,D,T,P,K,latency_s,latency_error,peak_memory_bytes,memory_error_bytes".split(","))
        for r in found:
            c = r.point.configuration
            errors = (r.latency_seconds, r.latency_error, r.peak_memory_bytes, r.memory_error_bytes)
            writer.writerow([r.point.model, c.batch, c.D, c.T, c.P, c.K, *errors])


if __name__ == "__main__":
    raise SystemExit(main())
