"""Published runs as programs: a row of a table in, predicted seconds and bytes out, with any of the causes switched off."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType

from distir.dialects.sharding import Replicate, StrategyAttr
from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.machines import load_machine, with_settings
from distir.interpreters.simulate.allocator import reserved_bytes
from distir.interpreters.simulate.summaries import open_program
from distir.interpreters.work import Kind, Work, is_view
from distir.passes.distribution.lower import STRATEGY
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.fuse_kernels import FuseKernelsPass

FOLDER = Path(__file__).parent
CAUSES = ("kernels", "tiles", "overlap")
"""What can be switched off: fused kernels (each operation is a kernel), tiles, waves and alignment of contractions, and messages beside computation (where
the run has them)."""


@dataclass(frozen=True)
class Run:
    """One row: how it was run, and what was measured."""

    name: str
    machine: str
    backend: FuseKernelsPass
    """The kernels that it ran."""
    model: tuple[str, tuple[Any, ...]]
    """A function of `models`, and its arguments."""
    plan: DtpParallelizePass
    seconds: float
    """Of a step."""
    whole: tuple[int, int] | None = None
    """Sequence and width of what every tensor rank computes whole, as it was run, though a search finds it faster in parts: norms, dropout and sums between the
    matmuls of a layer; not lookups, whose tables are cut."""
    bytes: float | None = None
    """That the allocator reserved on the fullest device, where that was measured."""

    @property
    def set(self) -> str:
        """What it is published in."""
        return self.name.split()[0]


@dataclass(frozen=True)
class Prediction:
    seconds: float
    live: int
    """Bytes of tensors on the fullest device, exactly."""
    reserved: int
    """An estimate: with the workspace of libraries and what streams do not lend each other."""


class WithoutTiles(AnalyticCostModel):
    """Contractions without their shapes."""

    def matmul_seconds(self, work: Work, dtype: str) -> Any:
        return super().matmul_seconds(Work(Kind.MATMUL, work.flops, work.bytes), dtype)


def _stages(virtual: int) -> dict[str, Any]:
    """Options of a plan with so many stages on each rank."""
    return {"schedule": "interleaved", "virtual": virtual} if virtual > 1 else {}


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def megatron() -> Iterator[Run]:
    """Megatron-LM's weak scaling of 2020: GPT with activations recomputed in every layer, 8 (V100) or 16 (A100) sequences per replica. The table is of
    September 2020 (git log), when DGX A100 had devices of 40 GB and 1.555 TB/s only: those of 80 GB were announced in November."""
    machines = {"DGX-2 V100-32GB": "dgx-2", "DGX-A100": "dgx-a100-40gb", "DGX-A100 cluster": "dgx-a100-40gb"}
    for row in _rows("megatron_2020"):
        sizes = [int(row[name]) for name in ("layers", "hidden", "heads", "seq", "vocab")]
        tp, dp = int(row["TP"]), int(row["DP"])
        model = ("gpt_step", (*sizes, int(row["global_batch"])))
        machine = machines[row["hardware"]]
        name = f"megatron-2020 {row['case']} {row['hardware']} T={tp} D={dp}"
        plan = DtpParallelizePass(
            tp=tp, dp=dp, machine=machine, sharding="ilp", grouped=True, memory_limit="1TB", time_limit=120.0
        )
        seconds = float(row["iter_ms"]) / 1000
        yield Run(name, machine, FuseKernelsPass("megatron"), model, plan, seconds, (sizes[3], sizes[1]))


def torchtitan() -> Iterator[Run]:
    """torchtitan's Llama of 2024 and 2025: sharded data parallelism, a layer's parameters fetched ahead in one message and its gradients reduced in f32 in one,
    fused AdamW. What is recomputed: what operators name, every second layer, or all. Compiled by transformer layer, so that the loss is not; norms are one kernel
    where the configuration of the time says so. Where tensor ranks' messages are asynchronous, they are cut in as many chunks as there are ranks, with the matmul
    before or after them. Where there are stages, as many microbatches as these, and the search says when parameters are gathered (torchtitan: once)."""
    machines = {"H100": "grand-teton-h100", "A100": "dgx-a100"}
    recompute = {"operators": "selective", "layers": "layers", "full": "full", "none": "none"}
    for row in _rows("torchtitan"):
        names = ("gpus", "TP", "PP", "CP", "local_batch", "seq")
        devices, tp, pp, cp, local, sequence = (int(row[name]) for name in names)
        layers, width, heads, groups, hidden, vocabulary = (
            int(row[name]) for name in ("layers", "hidden", "heads", "groups", "ffn", "vocab")
        )
        dp, machine = devices // tp // pp // cp, machines[row["hardware"]]
        compiled = "layers" if row["kernels"] == "compiled" else row["norm"]
        backend = FuseKernelsPass("inductor", compiled) if compiled else FuseKernelsPass("foreach")
        sizes = (layers, width, heads, groups, hidden, vocabulary, sequence, local * dp, recompute[row["recompute"]])
        sizes += (False, True, row["norm"] == "fused")
        keys = width // heads * groups
        plan = DtpParallelizePass(
            dp=dp,
            cp=cp,
            tp=tp,
            pp=pp,
            microbatches=pp,
            **_stages(2 if row["schedule"] == "interleaved" else 1),
            machine=machine,
            sharding="ilp",
            zero=3 if pp == 1 else None,
            grouped=True,
            overlap=True,
            bucket=4 * (2 * width * (width + keys + 1) + 3 * width * hidden) // tp,
            chunks=tp if row["messages"] == "async" else 1,
            in_place=row["messages"] == "async",
            gradient_type="f32",
            matmul_type="f8E4M3FN" if row["products"] else "",
            matmul_keep="head" if row["products"] else "",
            time_limit=120.0,
        )
        how = f"{row['kernels']}{' async' if row['messages'] else ''}"
        if row["set"] != "2024":
            how += f" {row['recompute']}"
        degrees = "".join(f" {axis}={n}" for axis, n in zip("TPC", (tp, pp, cp), strict=True) if n > 1)
        name = f"torchtitan-{row['set']} {row['case']} {how} D={dp}{degrees}"
        name += f" s={sequence}" if row["set"] == "float8" else ""
        name += f" {row['schedule']}" if row["schedule"] else ""
        seconds = local * sequence / (float(row["tokens_per_s_per_gpu"]) * tp * pp * cp)
        memory = float(row["memory_gib"]) * 2**30 if row["memory_gib"] else None
        yield Run(name, machine, backend, ("llama_step", sizes), plan, seconds, bytes=memory)


def korthikanti() -> Iterator[Run]:
    """Megatron-LM of 2022 on DGX A100 80GB, stages interleaved, with every layer computed again in the backward pass, or attention alone and activations
    between layers cut along the sequence. Messages between stages are not waited for where they are sent. Looked at after the cost model was as it is."""
    for row in _rows("korthikanti_2022"):
        sizes = [int(row[name]) for name in ("layers", "hidden", "heads", "seq", "vocab", "global_batch")]
        tp, pp, virtual = int(row["TP"]), int(row["PP"]), int(row["interleaved"])
        is_selective = row["recompute"] == "selective"
        plan = DtpParallelizePass(
            tp=tp,
            pp=pp,
            microbatches=int(row["microbatches"]),
            **_stages(virtual),
            machine="dgx-a100",
            sharding="ilp",
            restrict="dp=batch" if is_selective else "dp=batch,tp=model",
            grouped=True,
            overlap=pp > 1,
            time_limit=300.0,
        )
        name = f"korthikanti-2022 {row['case']} {row['recompute']} recomputation T={tp} P={pp}"
        model = ("gpt_step", (*sizes, row["recompute"]))
        whole = None if is_selective else (sizes[3], sizes[1])
        yield Run(name, "dgx-a100", FuseKernelsPass("megatron"), model, plan, float(row["iter_s"]), whole)


def mpt() -> Iterator[Run]:
    """MosaicML's MPT of 2023 in bf16: sharded data parallelism with parameters gathered in every microbatch, attention as one kernel, and in some rows every layer
    computed again."""
    machines = {"a100_80gb": "dgx-a100", "h100_80gb": "dgx-h100"}
    for row in _rows("mpt_2023"):
        sizes = [int(row[name]) for name in ("layers", "hidden", "heads", "vocab", "seq")]
        dp, microbatch, count = int(row["gpus"]), int(row["microbatch"]), int(row["microbatches"])
        machine, rows = machines[row["hardware"]], microbatch * count
        plan = DtpParallelizePass(
            dp=dp,
            microbatches=count,
            machine=machine,
            sharding="ilp",
            zero=3,
            grouped=True,
            overlap=True,
            time_limit=120.0,
        )
        name = f"mpt-2023 {row['case']} {row['hardware']} s={row['seq']} {row['recompute']} recomputation D={dp}"
        model = ("mpt_step", (*sizes, rows * dp, row["recompute"]))
        seconds = rows * sizes[-1] / float(row["tokens_per_s_per_gpu"])
        yield Run(name, machine, FuseKernelsPass("foreach"), model, plan, seconds)


def narayanan() -> Iterator[Run]:
    """Megatron-LM of 2021 on Selene (DGX A100 80GB): every layer computed again, stages interleaved where it says so; and DeepSpeed's ZeRO-3 of that time, which
    gathers each parameter by itself. Sequences of 2,048 and 51,200 tokens. Seconds are the paper's operations (its equation 3) at the rate that it states."""
    sequence, vocabulary = 2048, 51200
    for row in _rows("narayanan_2021"):
        layers, width, heads, tp, pp, virtual, devices, batch = (
            int(row[name]) for name in ("layers", "hidden", "heads", "TP", "PP", "interleaved", "gpus", "global_batch")
        )
        dp = devices // tp // pp
        plan = DtpParallelizePass(
            dp=dp,
            tp=tp,
            pp=pp,
            microbatches=batch // dp // int(row["microbatch"]),
            **_stages(virtual),
            zero=int(row["zero"] or 0),
            machine="dgx-a100",
            sharding="ilp",
            grouped=True,
            overlap=True,
            memory_limit="1TB",
            time_limit=300.0,
        )
        operations = 96 * batch * sequence * layers * width**2
        operations *= 1 + sequence / (6 * width) + vocabulary / (16 * layers * width)
        seconds = operations / (devices * float(row["tflops_per_gpu"]) * 1e12)
        name = f"narayanan-2021 {row['case']} {'ZeRO-3 ' if row['zero'] else ''}T={tp} P={pp} D={dp}"
        model = ("gpt_step", (layers, width, heads, sequence, vocabulary, batch))
        yield Run(name, "dgx-a100", FuseKernelsPass("megatron"), model, plan, seconds, (sequence, width))


def bloom() -> Iterator[Run]:
    """BigScience's trials of February 2022 for BLOOM with Megatron-DeepSpeed on Jean Zay: every layer computed again, state cut over replicas (ZeRO 1), a vocabulary
    of 250,880. What 12 replicas do not divide they cut padded; here it is cut over four, in groups. DeepSpeed's
    pipeline waits for its messages (`deepspeed/runtime/pipe/p2p.py`), and reduces gradients after its last one. The machine is that of `dgx-a100` but for the network. Settings changed from day to day, and repeated runs differ by 5 %."""
    machine = str(FOLDER / "jean-zay-a100.toml")
    for row in _rows("bloom_2022"):
        layers, width, heads, dp, tp, pp, microbatch, batch = (
            int(row[name]) for name in ("layers", "hidden", "heads", "DP", "TP", "PP", "microbatch", "global_batch")
        )
        sequence, in_bf16 = 2048, row["date"] == "02-28"
        plan = DtpParallelizePass(
            dp=dp,
            dp_replicate=dp // gcd(dp, width),
            tp=tp,
            pp=pp,
            microbatches=batch // dp // microbatch,
            zero=1,
            machine=machine,
            sharding="ilp",
            grouped=True,
            gradient_type="f32" if in_bf16 else "",
            memory_limit="1TB",
            time_limit=300.0,
        )
        name = f"bloom-2022 {row['date']} {layers}x{width} A={heads} T={tp} P={pp} D={dp} b={microbatch} B={batch}"
        dtype = "bfloat16" if in_bf16 else "float16"
        model = ("gpt_step", (layers, width, heads, sequence, 250880, batch, "full", dtype, 0.0))
        memory = float(row["memory_gb"]) * 1e9 if row["memory_gb"] else None
        yield Run(
            name, machine, FuseKernelsPass("megatron"), model, plan, float(row["iter_s"]), (sequence, width), memory
        )


def nemo() -> Iterator[Run]:
    """NVIDIA NeMo's models of July 2024 on DGX H100: products with weights in 8 bits but for the logits, cuDNN's attention, parameters in bf16 with state cut over
    replicas, stages interleaved, tensor ranks' messages
    in as many chunks as there are ranks, nothing computed again. GPT 3 has no biases here."""
    fit = {
        "forward": 0.535,
        "backward": 0.462,
    }  # cuDNN, heads of 128, 8192 positions: FlashAttention-3 (Shah et al., 2024), figures 5 and 6
    machine = with_settings("dgx-h100", [f"device.attention.bf16.128.{name}={value}" for name, value in fit.items()])
    for row in _rows("nemo_2024"):
        names = ("layers", "hidden", "heads", "groups", "ffn", "vocab", "seq", "global_batch")
        layers, width, heads, *_, vocabulary, sequence, batch = sizes = [int(row[name]) for name in names]
        devices, tp, pp, cp, virtual = (int(row[name]) for name in ("gpus", "TP", "PP", "CP", "interleaved"))
        dp = devices // tp // pp // cp
        plan = DtpParallelizePass(
            dp=dp,
            cp=cp,
            tp=tp,
            pp=pp,
            microbatches=batch // dp // int(row["microbatch"]),
            **_stages(virtual),
            zero=1,
            machine=machine,
            sharding="ilp",
            restrict="dp=batch",
            grouped=True,
            overlap=True,
            chunks=tp,
            in_place=True,
            memory_limit="1TB",
            time_limit=300.0,
            matmul_type="f8E4M3FN",
            matmul_keep="head",
        )
        model = ("llama_step", (*sizes, "none", True, row["case"].startswith("LLAMA")))
        if row["case"].startswith("GPT"):
            model = ("mpt_step", (layers, width, heads, vocabulary, sequence, batch, "none", True))
        name = f"nemo-2024 {row['case']} T={tp} P={pp} C={cp} D={dp}"
        seconds = batch * sequence / devices / float(row["tokens_per_s_per_gpu"])
        yield Run(name, machine, FuseKernelsPass("megatron"), model, plan, seconds)


def runs() -> Iterator[Run]:
    """All rows."""
    yield from bloom()
    yield from megatron()
    yield from narayanan()
    yield from torchtitan()
    yield from korthikanti()
    yield from mpt()
    yield from nemo()


@lru_cache(2)
def _step(model: tuple[str, tuple[Any, ...]]) -> ModuleOp:
    from benchmarks.published import models

    function, arguments = model
    return getattr(models, function)(*arguments)


@lru_cache(2)
def _planned(
    model: tuple[str, tuple[Any, ...]], plan: DtpParallelizePass, whole: tuple[int, int] | None = None
) -> ModuleOp:
    """The program of all devices."""
    module = _step(model).clone()
    if whole is not None and plan.tp > 1:
        prepare(Context(), module)
        for op in module.walk():
            shapes = [v.type.get_shape() for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
            of_table = any(len(shape) == 2 and shape[1] == whole[1] for shape in shapes)
            if not is_view(op) and not of_table and any(len(shape) == 3 and shape[::2] == whole for shape in shapes):
                op.attributes[STRATEGY] = StrategyAttr.of("mesh", {"tp": Replicate()})
    plan.apply(Context(), module)
    return module


def program_of(run: Run, without: Collection[str] = ()) -> ModuleOp:
    """What is simulated, with these causes switched off."""
    plan = replace(run.plan, overlap=False) if "overlap" in without else run.plan
    module = _planned(run.model, plan, run.whole).clone()
    if "kernels" not in without:
        run.backend.apply(Context(), module)
    return module


def predict(run: Run, without: Collection[str] = (), module: ModuleOp | None = None) -> Prediction:
    """What is predicted, with these causes switched off; of a module, if it is at hand."""
    machine = load_machine(run.machine)
    module = program_of(run, without) if module is None else module
    program = open_program(module, machine, WithoutTiles if "tiles" in without else "analytic")
    summary = program.summary()
    live = summary.peak_memory_bytes
    fullest = max(live, key=lambda device: live[device])
    reserved = reserved_bytes(program, summary.stand_in.get(fullest, fullest), machine)
    return Prediction(summary.makespan_seconds, live[fullest], reserved)
