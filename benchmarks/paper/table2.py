"""Table 2 of the paper: the best configuration of MLP training per batch size.

    python -m benchmarks.paper.table2 --csv table2.csv [--model "MLP 1B"]

From the paper's programs, and beside them from what `dtp-parallelize` makes of the same model under the same cost model. How the
columns are made is in `tables`; `docs/figures.md` has the table; `docs/reproduction.md` says where the two differ and why.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.paper import grid, tables
from benchmarks.paper.points import outcomes
from benchmarks.paper.sequential import evaluator

MODELS = {"MLP 1B": "mlp-small", "MLP 17B": "mlp-medium", "MLP 103B": "mlp-large"}


def rows() -> list[tables.Row]:
    found: list[tables.Row] = []
    for label, model, row, measured in tables.rows("table2.csv", MODELS):
        best = grid.parse(row["best_D/T/P/K"], int(row["batch_size"]))
        found.append(tables.Row(label, model, [best.batch], best, measured))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    ours = evaluator(tables.batches(rows()))
    tables.command(__doc__ or "", rows(), {"simulated": outcomes, "dtp-parallelize": ours}, arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
