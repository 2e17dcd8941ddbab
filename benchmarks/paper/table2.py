"""Table 2 of the paper: the best configuration of MLP training per batch size, from the paper's programs.

    python -m benchmarks.paper.table2 --csv table2.csv [--model "MLP 1B"]

The paper's best is the best *measured* of the ten best simulated; ours is the best simulated, with the rank of the paper's
among ours. Speed-ups beside are the paper's, measured, and ours, simulated.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper import grid

MODELS = {"MLP 1B": "mlp-small", "MLP 17B": "mlp-medium", "MLP 103B": "mlp-large"}
HEADER = (
    "model",
    "batch",
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
    for row in grid.read("table2.csv"):
        if options.model not in (None, row["model"]):
            continue
        batch, paper = int(row["batch_size"]), row["best_D/T/P/K"]
        ranked = [outcome for outcome in grid.simulate(MODELS[row["model"]], [batch]) if grid.fits(outcome)]
        ours = grid.speedups(ranked[0], ranked)
        measured = [row[f"speedup_vs_{axis}"] for axis in "DTP"]
        cells = [cell for pair in zip(measured, ours, strict=True) for cell in pair]
        best = grid.name(ranked[0].point.configuration)
        rows.append([row["model"], batch, paper, best, grid.rank(ranked, paper, batch), *cells])
    grid.show(HEADER, rows, options.csv)
    print(f"\n{sum(row[4] == 1 for row in rows)} of {len(rows)} equal the paper's")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
