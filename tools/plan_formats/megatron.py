"""Megatron-LM's arguments as a plan, and back. In goes an argument line, or the script that has it; out come settings. Names are those of
`megatron/training/arguments.py` and `megatron/core/model_parallel_config.py` (August 2026)."""

from __future__ import annotations

import re
import shlex
from typing import Any

from distir.dialects.errors import DistirError
from distir.tools.plan_files import PlanFile
from distir.tools.plan_formats import Exported, Format, Imported, completed, microbatch_of, share, unsaid, whole

NUMBERS = (
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
    "expert-model-parallel-size",
    "micro-batch-size",
    "global-batch-size",
    "num-layers",
    "num-layers-per-virtual-pipeline-stage",
    "num-virtual-stages-per-pipeline-rank",
    "recompute-num-layers",
    "num-distributed-optimizer-instances",
    "nproc-per-node",
    "nnodes",
    "world-size",
)
FLAGS = (
    "sequence-parallel",
    "use-distributed-optimizer",
    "overlap-grad-reduce",
    "overlap-param-gather",
    "recompute-activations",
    "grad-reduce-in-bf16",
    "accumulate-allreduce-grads-in-fp32",
    "use-megatron-fsdp",
    "use-torch-fsdp2",
)
CHOICES = {
    "recompute-granularity": ("full", "selective"),
    "recompute-method": ("uniform", "block"),
    "fp8-format": ("e4m3", "hybrid"),
    "data-parallel-sharding-strategy": ("no_shard", "optim", "optim_grads", "optim_grads_params"),
}
OUTPUT = "output_layer"
"""Its name for the layer of logits, which has no 8 bits."""
CONCERNS = re.compile(r"parallel|overlap|recompute|fsdp|sharding|offload|pipeline|rampup|hierarchical-comm")
"""Names of arguments that change how a model is distributed."""
ELSEWHERE = re.compile(r"^(ckpt|no-ckpt|dist-ckpt|inference|rl)|data-sharding")


def read(text: str, devices: int | None) -> Imported:
    """Raises DistirError for an argument without its value, and where devices or batches do not divide."""
    said, others = _arguments(text)
    tp, pp = said.get("tensor-model-parallel-size", 1), said.get("pipeline-model-parallel-size", 1)
    cp, layers = said.get("context-parallel-size", 1), said.get("num-layers")
    launched = said["nproc-per-node"] * said.get("nnodes", 1) if "nproc-per-node" in said else None
    if (world := devices or said.get("world-size", launched)) is None:
        raise DistirError("Megatron-LM's arguments do not say how many devices there are: give --devices N")
    dp = share(world, tp * pp * cp, f"{world} devices of tensor x pipeline x context parallel ranks")
    micro = said.get("micro-batch-size", 1)
    batch = said.get("global-batch-size", micro * dp)
    groups = said.get("num-distributed-optimizer-instances", 1)
    share(dp, groups, "replicas of --num-distributed-optimizer-instances")
    settings: dict[str, Any] = {
        "batch_size": batch,
        "dp": dp,
        "dp_replicate": groups,
        "tp": tp,
        "pp": pp,
        "microbatches": share(batch, micro * dp, "--global-batch-size of --micro-batch-size x replicas"),
        "context_parallel": cp,
        "expert_parallel": said.get("expert-model-parallel-size", 1),
        "sequence_parallel": "sequence-parallel" in said and tp > 1,
        "overlap": "overlap-grad-reduce" in said,
        "gradient_type": "bf16"
        if "grad-reduce-in-bf16" in said
        else "f32"
        if "accumulate-allreduce-grads-in-fp32" in said
        else None,
        "zero": _zero(said),
        "matmul_type": "f8E4M3FN" if "fp8-format" in said else None,
        "matmul_keep": OUTPUT if "fp8-format" in said else None,
    }
    virtual = said.get("num-virtual-stages-per-pipeline-rank", 1)
    if "num-layers-per-virtual-pipeline-stage" in said:
        if layers is None:
            raise DistirError("--num-layers-per-virtual-pipeline-stage: give --num-layers too")
        each = said["num-layers-per-virtual-pipeline-stage"]
        virtual = share(layers, each * pp, "--num-layers of virtual stages x ranks")
    settings |= {"virtual_stages": virtual, "schedule": "interleaved" if virtual > 1 else "1f1b"}
    return Imported(completed(settings | _recompute(said, others)), others)


def _arguments(text: str) -> tuple[dict[str, Any], list[str]]:
    """What is said, and what concerns plans that is not known here."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise DistirError(f"not an argument line: {error}") from error
    said: dict[str, Any] = {}
    others: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        value = value if equals else following
        if name in NUMBERS:
            said[name] = whole(value, f"--{name}")
        elif name in FLAGS:
            said[name] = True
        elif name in CHOICES:
            if value not in CHOICES[name]:
                raise DistirError(f"--{name}: expected one of {', '.join(CHOICES[name])}, got '{value[:60]}'")
            said[name] = value
        elif CONCERNS.search(name) and not ELSEWHERE.search(name):
            others.append(word if equals or following.startswith("--") else f"{word} {following}".strip())
    return said, others


def _zero(said: dict[str, Any]) -> int:
    if "use-torch-fsdp2" in said:
        return 3
    if "use-megatron-fsdp" in said:
        return CHOICES["data-parallel-sharding-strategy"].index(
            said.get("data-parallel-sharding-strategy", "optim_grads_params")
        )
    return int("use-distributed-optimizer" in said)


def _recompute(said: dict[str, Any], others: list[str]) -> dict[str, str]:
    """`--recompute-method block` repeats the first layers of each stage; `uniform`, all, in groups."""
    policy = said.get("recompute-granularity", "selective" if "recompute-activations" in said else "none")
    count = said.get("recompute-num-layers")
    if policy == "full" and count is not None and said.get("recompute-method") == "block":
        return {"recompute": f"full:{count}"}
    if policy == "full" and (count or 1) > 1:
        others.append(f"--recompute-num-layers {count} (groups of layers)")
    return {"recompute": policy}


def write(plan: PlanFile) -> Exported:
    """What a launcher has to know too (`--nproc-per-node`) is not among it."""
    known = {"batch_size", "dp", "tp", "pp", "microbatches", "context_parallel", "expert_parallel", "sequence_parallel"}
    known |= {"overlap", "gradient_type", "zero", "dp_replicate"}
    in_fp8 = plan.setting("matmul_type") == "f8E4M3FN"
    known |= {"matmul_type"} if in_fp8 else set()
    known |= {"matmul_keep"} if in_fp8 and plan.setting("matmul_keep") == OUTPUT else set()
    in_all = in_fp8 and plan.setting("matmul_keep") is None
    tp, pp, zero, virtual = (plan.setting(name) for name in ("tp", "pp", "zero", "virtual_stages"))
    sizes = {
        "tensor-model-parallel-size": tp,
        "pipeline-model-parallel-size": pp,
        "context-parallel-size": plan.setting("context_parallel"),
        "expert-model-parallel-size": plan.setting("expert_parallel"),
    }
    words = [f"--{name} {size}" for name, size in sizes.items() if size > 1 or name.startswith(("tensor", "pipeline"))]
    words += [f"--micro-batch-size {microbatch_of(plan)}", f"--global-batch-size {plan.setting('batch_size')}"]
    schedule = plan.setting("schedule")
    if pp == 1 or schedule in (None, "1f1b", "interleaved"):
        known |= {"schedule", "virtual_stages"}
        words += [f"--num-virtual-stages-per-pipeline-rank {virtual}"] if virtual > 1 else []
    policy, _, count = plan.setting("recompute").partition(":")
    if policy == "full" and (not count or count.isdecimal()):
        method = f"block --recompute-num-layers {count}" if count else "uniform --recompute-num-layers 1"
        words.append(f"--recompute-granularity full --recompute-method {method}")
    elif plan.setting("recompute") == "selective":
        words.append("--recompute-granularity selective")
    known |= {"recompute"} if policy in ("full", "selective") and (not count or count.isdecimal()) else set()
    words += ["--sequence-parallel"] if plan.setting("sequence_parallel") else []
    if zero == 1:
        words.append("--use-distributed-optimizer")
    elif zero:
        strategy = CHOICES["data-parallel-sharding-strategy"][zero]
        words.append(f"--use-megatron-fsdp --data-parallel-sharding-strategy {strategy}")
    groups = plan.setting("dp_replicate")
    words += [f"--num-distributed-optimizer-instances {groups}"] if zero and groups > 1 else []
    words += ["--overlap-grad-reduce"] if plan.setting("overlap") else []
    words += ["--overlap-param-gather"] if plan.setting("overlap") and zero else []
    reduced = {"bf16": "--grad-reduce-in-bf16", "f32": "--accumulate-allreduce-grads-in-fp32", None: ""}
    words += filter(None, [reduced[plan.setting("gradient_type")]])
    words += ["--fp8-format hybrid"] if in_fp8 else []
    kept = [f"matmul_keep null (it leaves {OUTPUT} as it is)"] * in_all
    return Exported(" ".join(words) + "\n", unsaid(plan, known) + kept)


FORMAT = Format(read, write)
