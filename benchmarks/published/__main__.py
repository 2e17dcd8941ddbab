"""Holds predictions against published runs, none of which anything here was fitted to.

    python -m benchmarks.published [--rows TEXT] [--columns all] [--keep FOLDER]

Rows are those whose name contains the text. `--keep` writes their programs and `runs.csv`, to which `distir calibrate --fit` fits numbers of a machine. A row for which no plan fits says so. Printed per row: measured and predicted seconds, the memory that the fullest device reserves, its ratio to what was
measured and that of live tensors alone, and with `--columns all` the ratio of seconds with each cause switched off; below, for each set, the mean error (MAPE) and the bias (mean of predicted / measured - 1) of
each column.

`megatron_2020.csv`: NVIDIA/Megatron-LM at 52819194, images/tables.tex. `torchtitan.csv`: pytorch/torchtitan, benchmarks/*.md and docs/performance.md. `korthikanti_2022.csv`: arXiv 2205.05198, table 5.
`narayanan_2021.csv`: arXiv 2104.04473, tables 1 and 2. `bloom_2022.csv`: bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles-prequel.md. `mpt_2023.csv`: mosaicml/llm-foundry,
scripts/train/benchmarking/README.md. `nemo_2024.csv`: NVIDIA/NeMo, docs/source/performance/performance_summary.md. CPU: 20 to 45 s to import each model, 10 to 20 s to plan and simulate a row; a row of 175B takes 80 s in all, one of 530B or
1T with full recomputation 4 to 7 minutes and 2.2 GiB.
"""

from __future__ import annotations

import argparse
import csv
import gc
import re
from pathlib import Path
from statistics import fmean

from xdsl.dialects.builtin import ModuleOp

from benchmarks.published.runs import CAUSES, Run, predict, program_of, runs
from distir.dialects.errors import DistirError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--columns", choices=("one", "all"), default="one", help="all: also without each cause")
    parser.add_argument("--keep", type=Path, help="a folder for programs and a table of them")
    given = parser.parse_args()
    if given.keep is not None:
        try:
            given.keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"--keep {given.keep}: {error.strerror}: give a folder that can be made")
    gc.set_threshold(200_000, 50, 50)
    columns = {"as it is": (), **({f"no {cause}": (cause,) for cause in CAUSES} if given.columns == "all" else {})}
    heads = "".join(f"{name:>12}" for name in columns)
    print(f"{'run':52}{'measured':>9}{'predicted':>10}{'GiB':>7}{'reserved':>10}{'live':>10}  {heads}", flush=True)
    ratios: dict[str, dict[str, list[float]]] = {}
    for run in runs():
        if given.rows not in run.name:
            continue
        of_set = ratios.setdefault(run.set, {name: [] for name in ("reserved", "live", *columns)})
        try:
            program = program_of(run)
            if given.keep is not None:
                keep(given.keep, run, program)
            found = {name: predict(run, without, None if without else program) for name, without in columns.items()}
        except DistirError as error:
            print(f"{run.name:52}{run.seconds:9.3f}  no plan: {error}", flush=True)
            continue
        for name, prediction in found.items():
            of_set[name].append(prediction.seconds / run.seconds)
        whole, memory = found["as it is"], ""
        if run.bytes is not None:
            of_set["reserved"].append(whole.reserved / run.bytes)
            of_set["live"].append(whole.live / run.bytes)
            memory = "".join(f"{of_set[name][-1]:10.3f}" for name in ("reserved", "live"))
        cells = "".join(f"{of_set[name][-1]:12.3f}" for name in columns)
        print(
            f"{run.name:52}{run.seconds:9.3f}{whole.seconds:10.3f}{whole.reserved / 2**30:7.1f}{memory:>20}  {cells}",
            flush=True,
        )
    for name, columns_of_set in ratios.items():
        for what, figure in (("MAPE", lambda r: abs(r - 1)), ("bias", lambda r: r - 1)):
            means = [f"{fmean(map(figure, each)):.1%}" if each else "" for each in columns_of_set.values()]
            memory, cells = means[:2], means[2:]
            print(
                f"{name + ' ' + what:78}" + "".join(f"{each:>10}" for each in memory),
                *[f"{each:>11}" for each in cells],
            )


def keep(folder: Path, run: Run, program: ModuleOp) -> None:
    """Adds a run to the folder's table."""
    table, name = folder / "runs.csv", re.sub(r"\W+", "_", run.name) + ".mlir"
    (folder / name).write_text(str(program) + "\n", encoding="utf-8")
    is_new = not table.exists()
    with table.open("a", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        if is_new:
            rows.writerow(("program", "seconds", "name"))
        rows.writerow((name, run.seconds, run.name))


if __name__ == "__main__":
    main()
