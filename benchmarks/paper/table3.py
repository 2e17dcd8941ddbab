"""Table 3 of the paper: the best configuration and batch size of GPT-2 inference, from the paper's programs and from
`dtp-parallelize`.

    python -m benchmarks.paper.table3 --csv table3.csv [--model "GPT-2 1.6B"]

Batch sizes go from 128 to the largest that the authors could measure (larger ones ran out of memory): the cap of their
notebook. How the columns are made is in `tables`.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.paper import grid, tables
from benchmarks.paper.points import outcomes
from benchmarks.paper.sequential import evaluator

MODELS = {"GPT-2 1.6B": "gpt3-xl", "GPT-2 13B": "gpt3-13B", "GPT-2 175B": "gpt3-175B"}
LARGEST = {"gpt3-xl": 65536, "gpt3-13B": 32768, "gpt3-175B": 2048}
"""Batch."""


def rows() -> list[tables.Row]:
    found: list[tables.Row] = []
    for label, model, row, measured in tables.rows("table3.csv", MODELS):
        batches = [batch for batch in grid.BATCHES if batch <= LARGEST[model]]
        batch, best = row["best_batch/D/T/P/K"].split("/", 1)
        found.append(tables.Row(label, model, batches, grid.parse(best, int(batch)), measured))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    ours = evaluator(tables.batches(rows()))
    tables.command(__doc__ or "", rows(), {"simulated": outcomes, "dtp-parallelize": ours}, arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
