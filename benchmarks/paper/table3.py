"""Table 3 of the paper: the best configuration of GPT-2 inference, from the paper's programs.

    python -m benchmarks.paper.table3 --csv table3.csv [--model "GPT-2 1.6B"]

Batch sizes go from 128 to the largest that the authors could measure (larger ones ran out of memory). The paper's best is
the best *measured* of the ten best simulated; ours is the best simulated, with the rank of the paper's among ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper import grid

MODELS = {"GPT-2 1.6B": ("gpt3-xl", 65536), "GPT-2 13B": ("gpt3-13B", 32768), "GPT-2 175B": ("gpt3-175B", 2048)}
"""And their largest batch."""
HEADER = (
    "model",
    "paper",
    "ours",
    "rank of the paper's",
    *(f"{who} vs {a}" for a in "DTP" for who in ("paper", "ours")),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="writes the table here")
    parser.add_argument("--model", choices=list(MODELS), help="only this one")
    options = parser.parse_args(arguments)
    rows: list[list[object]] = []
    for row in grid.read("table3.csv"):
        if options.model not in (None, row["model"]):
            continue
        model, largest = MODELS[row["model"]]
        batches = [2**i for i in range(7, largest.bit_length())]
        ranked = [outcome for outcome in grid.simulate(model, batches) if grid.fits(outcome)]
        batch, paper = row["best_batch/D/T/P/K"].split("/", 1)
        ours = grid.speedups(ranked[0], ranked)
        measured = [row[f"speedup_vs_{axis}"] for axis in "DTP"]
        cells = [cell for pair in zip(measured, ours, strict=True) for cell in pair]
        best = ranked[0].point.configuration
        place = grid.rank(ranked, paper, int(batch))
        rows.append([row["model"], f"{batch} {paper}", f"{best.batch} {grid.name(best)}", place, *cells])
    grid.show(HEADER, rows, options.csv)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
