"""Holds predictions against published runs, none of which anything here was fitted to.

    python -m benchmarks.published [--rows TEXT] [--columns all]

Rows are those whose name contains the text. Printed per row: measured and predicted seconds, their ratio, and with `--columns all` the ratio with
each cause switched off; below, the mean error (MAPE) and the bias (mean of predicted / measured - 1) of each column.

`megatron_2020.csv`: NVIDIA/Megatron-LM at 52819194, images/tables.tex. `torchtitan_2024.csv`: pytorch/torchtitan,
benchmarks/llama3_h100_202412_torchtitan.md (kept for memory and time under FSDP; not predicted yet). CPU: about 20 s to import each model,
some seconds to plan and simulate a row.
"""

from __future__ import annotations

import argparse
from statistics import fmean

from benchmarks.published.runs import CAUSES, megatron, predict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--columns", choices=("one", "all"), default="one", help="all: also without each cause")
    given = parser.parse_args()
    columns = {"as it is": (), **({f"no {cause}": (cause,) for cause in CAUSES} if given.columns == "all" else {})}
    print(
        f"{'run':34}{'measured':>10}{'predicted':>11}{'GiB':>7}  " + "".join(f"{name:>12}" for name in columns),
        flush=True,
    )
    ratios: dict[str, list[float]] = {name: [] for name in columns}
    for run in megatron():
        if given.rows not in run.name:
            continue
        found = {name: predict(run, without) for name, without in columns.items()}
        for name, prediction in found.items():
            ratios[name].append(prediction.seconds / run.seconds)
        whole = found["as it is"]
        cells = "".join(f"{ratios[name][-1]:12.3f}" for name in columns)
        print(f"{run.name:34}{run.seconds:10.3f}{whole.seconds:11.3f}{whole.bytes / 2**30:7.1f}  {cells}", flush=True)
    for what, figure in (("MAPE", lambda r: abs(r - 1)), ("bias", lambda r: r - 1)):
        cells = "".join(f"{fmean(map(figure, each)):12.1%}" for each in ratios.values() if each)
        print(f"{what:62}  {cells}")


if __name__ == "__main__":
    main()
