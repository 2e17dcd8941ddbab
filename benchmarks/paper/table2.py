"""Table 2 of the paper: the best configuration of MLP training per batch size.

    python -m benchmarks.paper.table2 --csv table2.csv [--model "MLP 1B"]

From the paper's programs, and beside them from what `dtp-parallelize` makes of the same model under the same cost model. How the
columns are made is in `tables`; `docs/reproduction.md` has the table, and says where the two differ and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from benchmarks.paper import grid, tables
from benchmarks.paper.points import Outcome
from benchmarks.paper.sequential import Transform

MODELS = {"MLP 1B": "mlp-small", "MLP 17B": "mlp-medium", "MLP 103B": "mlp-large"}


def rows() -> list[tables.Row]:
    return [
        tables.Row(label, model, [batch], batch, row["best_D/T/P/K"], measured)
        for label, model, row, measured in tables.rows("table2.csv", MODELS)
        for batch in [int(row["batch_size"])]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    transform = cache(Transform)

    def ours(model: str, batch: int) -> list[Outcome]:
        return [transform(model).outcome(c) for c in grid.configurations(batch) if grid.may_fit(model, c)]

    tables.command(__doc__ or "", rows(), {"simulated": grid.simulate, "dtp-parallelize": ours}, arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
