"""Published runs as programs: a row of a table in, predicted seconds and bytes out, with any of the causes switched off."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i64

from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.costs import PARTICIPANTS
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import summarize
from distir.interpreters.work import Kind, Work
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.fuse_kernels import FuseKernelsPass

FOLDER = Path(__file__).parent
CAUSES = ("kernels", "tiles")
"""What can be switched off: fused kernels (each operation is a kernel), and tiles, waves and alignment of contractions."""


@dataclass(frozen=True)
class Run:
    """One row: how it was run, and what was measured."""

    name: str
    machine: str
    backend: str
    """Of `fuse-kernels`."""
    model: tuple[Any, ...]
    """Arguments of `models.gpt_step`."""
    tp: int
    dp: int
    seconds: float


@dataclass(frozen=True)
class Prediction:
    seconds: float
    bytes: int


class WithoutTiles(AnalyticCostModel):
    """Contractions without their shapes."""

    def matmul_seconds(self, work: Work, dtype: str) -> Any:
        return super().matmul_seconds(Work(Kind.MATMUL, work.flops, work.bytes), dtype)


def megatron() -> Iterator[Run]:
    """Megatron-LM's weak scaling of 2020: GPT with activations recomputed in every layer, 8 (V100) or 16 (A100) sequences per replica."""
    machines = {"DGX-2 V100-32GB": "dgx-2", "DGX-A100": "dgx-a100", "DGX-A100 cluster": "dgx-a100"}
    with (FOLDER / "megatron_2020.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            number = {
                name: int(row[name])
                for name in ("layers", "hidden", "heads", "seq", "vocab", "TP", "DP", "global_batch")
            }
            batch = number["global_batch"] // number["DP"]
            model = (number["layers"], number["hidden"], number["heads"], number["seq"], number["vocab"], batch)
            machine = machines[row["hardware"]]
            name = f"{row['case']} {row['hardware']} T={number['TP']} D={number['DP']}"
            yield Run(name, machine, "megatron", model, number["TP"], number["DP"], float(row["iter_ms"]) / 1000)


@lru_cache(2)
def _step(model: tuple[Any, ...]) -> ModuleOp:
    from benchmarks.published.models import gpt_step

    return gpt_step(*model)


@lru_cache(2)
def _planned(model: tuple[Any, ...], machine: str, tp: int, dp: int) -> ModuleOp:
    """The program of all devices of two replicas at most. Replicas do the same, so two stand for more: what they reduce together is
    charged as among all (`taking_part`), for the same bytes."""
    module = _step(model).clone() if dp < 2 else _step_of_two(model)
    DtpParallelizePass(tp=tp, dp=min(dp, 2), machine=machine).apply(Context(), module)
    for op in module.walk():
        if (
            dp > 2
            and op.name.startswith("dist.all")
            and len(devices := _participants(op)) == 2
            and abs(devices[1] - devices[0]) == tp
        ):
            everybody = [devices[0] + tp * replica for replica in range(dp)]
            op.attributes[PARTICIPANTS] = DenseArrayBase.from_list(i64, everybody)
    return module


def _step_of_two(model: tuple[Any, ...]) -> ModuleOp:
    *sizes, batch = model
    return _step((*sizes, 2 * batch)).clone()


def _participants(op: Any) -> list[int]:
    from distir.dialects.dist.attributes import placements

    return [on.device for on in placements(value.type for value in op.results)]


def predict(run: Run, without: Collection[str] = ()) -> Prediction:
    """What is predicted, with these causes switched off."""
    module = _planned(run.model, run.machine, run.tp, run.dp).clone()
    if "kernels" not in without:
        FuseKernelsPass(run.backend).apply(Context(), module)
    summary = summarize(module, load_machine(run.machine), WithoutTiles if "tiles" in without else "analytic")
    return Prediction(summary.makespan_seconds, max(summary.peak_memory_bytes.values()))
