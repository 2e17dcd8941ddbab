"""How well the `analytic` cost model predicts measured steps on V100 machines, beside the original simulator's predictions.

    python -m benchmarks.accuracy                       # all rows whose configuration is known
    python -m benchmarks.accuracy --rows mlp            # only rows of models with this in their name
    python -m benchmarks.accuracy --csv out.csv         # and each row's prediction

Programs are the paper's, op for op (`benchmarks.paper`). Six rows calibrate, and are not judged; all others are judged, and nothing is
fitted to them:

* The DGX-2 is the built-in `dgx-2`, whose numbers are data sheets, library constants, and micro-benchmarks (of single matmuls and
  allreduces) that the original's authors made. How long the original's backend, a Python interpreter, takes to issue an operation is nowhere
  said: it is taken from one row without communication, GPT-2 1.6B on D = 16 at batch 2048.
* The other rows are of a server whose links nobody described: five rows at the smallest batch say what they are, one for each way of using them:
  allreduces of two and of four devices (D = 2, D = 4), messages (P = 2; `paper/data/v100x4.toml` has these three), allreduces between other
  pairs (D = T = 2), and what messages of four processes take to issue (P = 4, with the most microbatches; `paper/lab_server.py`).

Rows of `euromlsys21_ddp` are plain PyTorch, which has biases, overlaps its
allreduces and does not update weights: the program simulated for them is the original's without its optimizer.
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp, f16, f32

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.paper import gpt2, mlp
from benchmarks.paper.lab_server import FourProcesses
from benchmarks.paper.mlp_stages import Configuration, Mlp
from distir.interpreters.cost_models import CostModel, make_cost_model
from distir.interpreters.costs import PICOSECONDS, Costs
from distir.interpreters.machines import DeviceGroup, Machine, load_machine
from distir.interpreters.simulate import SummaryMemo, summarize
from distir.tools.agreement import Agreement

DATA = Path(__file__).parent / "paper" / "data" / "distir_measured.csv"
MACHINES = {"dgx2_mlsys22_lines": "dgx-2", "dgx2_mlsys22_scatter": "dgx-2"}
OTHER_MACHINE = str(DATA.with_name("v100x4.toml"))
LAB_SERVER = "v100x4_sept2021"
CALIBRATE = [
    (LAB_SERVER, "mlp 8x4096 (inferred)", Configuration(2, 1, 1, 1, 1024)),
    (LAB_SERVER, "mlp 8x4096 (inferred)", Configuration(4, 1, 1, 1, 1024)),
    (LAB_SERVER, "mlp 8x4096 (inferred)", Configuration(2, 2, 1, 1, 1024)),
    (LAB_SERVER, "mlp 8x4096 (inferred)", Configuration(1, 1, 2, 2, 1024)),
    (LAB_SERVER, "mlp 8x4096 (inferred)", Configuration(1, 1, 4, 16, 1024)),
    ("dgx2_mlsys22_lines", "gpt3-xl", Configuration(16, 1, 1, 1, 2048)),
]
"""Rows that are not judged."""
DISPATCH_SECONDS = 3.48e-5
"""Of the original's backend, so that the last of them takes what it took: 0.1429 s."""
PLAIN_PYTORCH = "euromlsys21_ddp"
OPTIMIZER = "grad.sgd"


@dataclass(frozen=True)
class Row:
    """One measured step."""

    dataset: str
    model: str
    layers: int
    width: int
    element_type: str
    configuration: Configuration
    measured_seconds: float
    original_seconds: float | None
    """What the original simulator predicted."""

    @property
    def machine(self) -> Machine:
        return _machine(MACHINES.get(self.dataset, OTHER_MACHINE), self.dataset != PLAIN_PYTORCH)

    @property
    def cost_model(self) -> str | type[CostModel]:
        if self.dataset != LAB_SERVER:
            return "analytic"
        c = self.configuration
        return FourProcesses if c.D * c.T * c.P == 4 else "analytic"

    @property
    def style(self) -> str:
        """Which degrees are above one: `D/T`, or `one device`."""
        c = self.configuration
        return "/".join(name for name in "DTP" if getattr(c, name) > 1) or "one device"

    def program(self) -> ModuleOp:
        if self.model in gpt2.MODELS:
            return gpt2.build(gpt2.MODELS[self.model], self.configuration)
        return mlp.build(
            Mlp(self.layers, self.width, {"fp16": f16, "fp32": f32}[self.element_type]), self.configuration
        )


def read_rows() -> list[Row]:
    """All rows whose configuration is known, in order."""
    with DATA.open(newline="") as file:
        return [
            Row(
                row["dataset"],
                row["model"],
                int(row["n_layer"]),
                int(row["d_model"]),
                row["dtype"],
                Configuration(*(int(row[key]) for key in ("D", "H_T", "P", "K", "batch_size"))),
                float(row["measured_latency_s"]),
                float(row["sim_latency_s"]) if row["sim_latency_s"] else None,
            )
            for row in csv.DictReader(file)
            if row["D"]
        ]


def is_judged(row: Row) -> bool:
    """Whether nothing was calibrated on the row."""
    return (row.dataset, row.model, row.configuration) not in CALIBRATE


@cache
def _machine(name: str, is_interpreted: bool) -> Machine:
    """The machine, with the host of the original's backend if that ran."""
    machine = load_machine(name)
    if not is_interpreted:
        return machine
    device = replace(machine.device, dispatch_seconds=DISPATCH_SECONDS)
    return replace(machine, groups=(DeviceGroup(device, None),))


def predictions(rows: Sequence[Row]) -> Iterator[float]:
    """Seconds per row. Programs are large and full of cycles: they are collected one by one."""
    known: dict[object, float] = {}
    memo = SummaryMemo()
    for number, row in enumerate(rows):
        updates = row.dataset != PLAIN_PYTORCH
        key = (id(row.machine), row.model, row.element_type, row.configuration, updates)
        if key not in known:
            summary = summarize(row.program(), row.machine, row.cost_model, memo=memo)
            seconds = summary.makespan_seconds
            if not updates:
                seconds -= _optimizer_seconds(row)
            known[key] = seconds
            del summary
            gc.collect(1)
        if sys.stderr.isatty():
            print(f"\r{number + 1} of {len(rows)} rows", end="", file=sys.stderr)
        yield known[key]


def _optimizer_seconds(row: Row) -> float:
    """The updates come last on every device, one after the other."""
    costs = Costs(make_cost_model("analytic", row.machine))
    updates = [op for op in row.program().walk() if op.name == OPTIMIZER]
    on_one = updates[: row.layers]
    return sum(costs.of(op, (0,)).picoseconds for op in on_one) / PICOSECONDS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="only rows whose dataset or model has this in its name")
    parser.add_argument("--csv", type=Path, help="writes each row's prediction here")
    options = parser.parse_args(arguments)
    rows = [row for row in read_rows() if is_judged(row) and options.rows in f"{row.dataset} {row.model}"]
    found = list(predictions(rows))
    if options.csv is not None:
        _write(options.csv, rows, found)
    _report(rows, found)
    return 0


def _report(rows: Sequence[Row], found: Sequence[float]) -> None:
    """Per dataset, workload and style; then the sums."""
    groups: dict[tuple[str, str, str], list[tuple[Row, float]]] = defaultdict(list)
    for row, seconds in zip(rows, found, strict=True):
        workload = "gpt-2" if row.model in gpt2.MODELS else "mlp"
        for style in (row.style, "all"):
            groups[row.dataset, workload, style].append((row, seconds))
            if row.dataset in MACHINES:
                groups["dgx2", workload, style].append((row, seconds))
    columns = f"{'rows':>5}{'median':>8}{'MAPE':>7}{'scaled':>8}{'scale':>7}{'rank':>7}"
    print(f"{'':44}{'analytic':^42}   {'original simulator':^42}")
    print(f"{'dataset':24}{'workload':10}{'style':10}{columns}   {columns}")
    for (dataset, workload, style), pairs in sorted(groups.items()):
        theirs = [(row, row.original_seconds) for row, _ in pairs if row.original_seconds is not None]
        print(f"{dataset:24}{workload:10}{style:10}{_cells(pairs)}   {_cells(theirs)}")


def _cells(pairs: Sequence[tuple[Row, float]]) -> str:
    """Rank correlation is of throughputs, since batches differ."""
    if not pairs:
        return ""
    measured = [row.measured_seconds for row, _ in pairs]
    a = Agreement.of([seconds for _, seconds in pairs], measured)
    rank = Agreement.of(
        [row.configuration.batch / seconds for row, seconds in pairs],
        [row.configuration.batch / row.measured_seconds for row, _ in pairs],
    ).spearman
    return f"{a.count:5}{a.median_error:8.1%}{a.mape:7.0%}{a.scaled_mape:8.0%}{a.scale:7.2f}{rank:7.3f}"


def _write(path: Path, rows: Sequence[Row], found: Sequence[float]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["dataset", "model", "batch", "D", "T", "P", "K", "measured_s", "analytic_s", "original_s"])
        for row, seconds in zip(rows, found, strict=True):
            c = row.configuration
            cells = (c.batch, c.D, c.T, c.P, c.K, row.measured_seconds, seconds, row.original_seconds)
            writer.writerow([row.dataset, row.model, *cells])


if __name__ == "__main__":
    sys.exit(main())
