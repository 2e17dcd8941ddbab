"""Measured against simulated: training steps of MLPs on processes of this machine (torch.distributed with gloo).

    python benchmarks/measured_gloo.py                         # calibrates, then measures: some minutes
    python benchmarks/measured_gloo.py --machine here.toml     # simulates on a machine file of `distir calibrate`
    python benchmarks/measured_gloo.py --csv out.csv --runs 500

Each configuration is distributed by `dtp-parallelize`, simulated with `--cost-model analytic`, and the very program that was
simulated is executed. Nothing is fitted to steps: the machine comes from probes of single operations. Of the runs of a program the
fastest counts, as in calibration: other work on the machine makes runs longer, never shorter; steps are short, so that some are
not interrupted. Four processes share two cores or more:
they are simulated on a machine calibrated with four processes at once, and reported apart.
"""

from __future__ import annotations

import argparse
import csv
import runpy
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from xdsl.context import Context

sys.path.insert(0, str(Path(__file__).parents[1]))
from distir.backends.torch import execute
from distir.frontends.onnx import import_model
from distir.interpreters.machines import Machine, load_machine
from distir.interpreters.simulate import summarize
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.tools.agreement import Agreement
from distir.tools.distir import main as distir

EXAMPLE = Path(__file__).parents[1] / "examples" / "mlp_onnx.py"
SHARED = 4
"""Processes that are reported apart."""


@dataclass(frozen=True)
class MeasuredPlan:
    """A training step and its distribution."""

    layers: int
    width: int
    batch: int
    dp: int = 1
    tp: int = 1
    pp: int = 1
    microbatches: int = 1

    @property
    def processes(self) -> int:
        return self.dp * self.tp * self.pp


@dataclass(frozen=True)
class Outcome:
    """A plan's step, measured and simulated."""

    plan: MeasuredPlan
    measured_seconds: float
    simulated_seconds: float

    @property
    def error(self) -> float:
        return self.simulated_seconds / self.measured_seconds - 1


def plans() -> list[MeasuredPlan]:
    """32 of one and two processes, 6 of four."""
    steps = [MeasuredPlan(4, 128, 32), MeasuredPlan(4, 128, 128), MeasuredPlan(4, 256, 64), MeasuredPlan(8, 192, 64)]
    degrees = [
        {"microbatches": 1},
        {"microbatches": 4},
        {"dp": 2},
        {"dp": 2, "microbatches": 2},
        {"tp": 2},
        {"tp": 2, "microbatches": 2},
        {"pp": 2, "microbatches": 2},
        {"pp": 2, "microbatches": 4},
    ]
    shared = [
        {"dp": 4},
        {"tp": 4},
        {"pp": 4, "microbatches": 4},
        {"dp": 2, "tp": 2},
        {"dp": 2, "pp": 2, "microbatches": 2},
        {"tp": 2, "pp": 2, "microbatches": 2},
    ]
    return [replace(step, **d) for step in steps for d in degrees] + [replace(steps[2], **d) for d in shared]


def outcome(plan: MeasuredPlan, machine: Machine, runs: int) -> Outcome:
    """Distributes, simulates and runs a plan."""
    build = runpy.run_path(str(EXAMPLE))["build"]
    module = import_model(build([plan.width] * (plan.layers + 1), plan.batch, 0.01))
    options = {key: value for key, value in asdict(plan).items() if key in ("dp", "tp", "pp", "microbatches")}
    prepare(Context(), module)
    DtpParallelizePass(**options).apply(Context(), module)
    simulated = summarize(module, machine, "analytic").makespan_seconds
    random = np.random.default_rng(0)
    rows = (plan.batch, plan.width)
    inputs = {name: random.standard_normal(rows).astype(np.float32) for name in ("x", "z")}
    execution = execute(module, {**inputs, "n": np.float32(plan.batch)}, "gloo", measure=runs)
    return Outcome(plan, min(execution.runs), simulated)


def calibrated(folder: Path, processes: int) -> Machine:
    """This machine, as so many processes at once find it."""
    path = folder / f"here_{processes}.toml"
    print(f"calibrating with {processes} processes")
    if distir(["calibrate", "-o", str(path), "--processes", str(processes)]):
        raise SystemExit(1)
    return load_machine(path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", help="a machine file for one and two processes (default: calibrates)")
    parser.add_argument("--shared-machine", help="a machine file for four processes (default: calibrates)")
    parser.add_argument("--runs", type=int, default=200, help="of each program, of which the fastest counts")
    parser.add_argument("--csv", type=Path, help="writes each configuration's times here")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as name:
        folder = Path(name)
        machine = load_machine(options.machine) if options.machine else calibrated(folder, 2)
        shared = load_machine(options.shared_machine) if options.shared_machine else calibrated(folder, SHARED)
    found: list[Outcome] = []
    print(
        f"{'layers':>6}{'width':>7}{'batch':>7}{'D':>4}{'T':>3}{'P':>3}{'K':>3}{'measured':>12}{'simulated':>12}{'error':>8}"
    )
    for plan in plans():
        found.append(result := outcome(plan, shared if plan.processes == SHARED else machine, options.runs))
        cells = f"{plan.layers:6}{plan.width:7}{plan.batch:7}{plan.dp:4}{plan.tp:3}{plan.pp:3}{plan.microbatches:3}"
        times = f"{result.measured_seconds * 1e3:9.3f} ms{result.simulated_seconds * 1e3:9.3f} ms"
        print(f"{cells}{times}{result.error:+8.0%}", flush=True)
    if options.csv is not None:
        _write(options.csv, found)
    print()
    for title, those in (
        ("1 and 2 processes", [r for r in found if r.plan.processes < SHARED]),
        ("1 process", [r for r in found if r.plan.processes == 1]),
        ("2 processes", [r for r in found if r.plan.processes == 2]),
        ("4 processes", [r for r in found if r.plan.processes == SHARED]),
    ):
        a = Agreement.of([r.simulated_seconds for r in those], [r.measured_seconds for r in those])
        print(
            f"{title:18} {a.count:3} configurations   Spearman {a.spearman:.3f}   MAPE {a.mape:.0%}   "
            f"median error {a.median_error:.0%}   scale {a.scale:.2f}   scale-corrected MAPE {a.scaled_mape:.0%}"
        )
    return 0


def _write(path: Path, found: Sequence[Outcome]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*asdict(found[0].plan), "measured_seconds", "simulated_seconds"])
        for result in found:
            writer.writerow([*asdict(result.plan).values(), result.measured_seconds, result.simulated_seconds])


if __name__ == "__main__":
    sys.exit(main())
