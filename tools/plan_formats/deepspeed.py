"""DeepSpeed's JSON as a plan, and back. In goes the configuration; out come settings. Names are those of DeepSpeed's "Configuration JSON" page."""

from __future__ import annotations

import json
from typing import Any, cast

from distir.dialects.errors import DistirError
from distir.tools.plan_files import PlanFile
from distir.tools.plan_formats import (
    Exported,
    Format,
    Imported,
    batch_of,
    completed,
    microbatch_of,
    share,
    unsaid,
    whole,
)

TYPES = {"bf16": "bf16", "bfp16": "bf16", "fp32": "f32"}
ZERO = {"stage", "overlap_comm", "mics_shard_size"}
"""What a plan says of `zero_optimization`."""
OFFLOAD = (
    "offload_optimizer",
    "offload_param",
    "zero_hpz_partition_size",
    "zero_quantized_weights",
    "zero_quantized_gradients",
)
"""What changes where state is, or what is sent, beside the stage."""


def read(text: str, devices: int | None) -> Imported:
    """Raises DistirError for a file that is no JSON, and where devices or batches do not divide. What is "auto" is not said."""
    try:
        data: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DistirError(f"not a JSON file: {error}") from error
    if not isinstance(data, dict):
        raise DistirError("expected an object")
    said = cast(dict[str, Any], data)
    zero, others = _table(said, "zero_optimization"), list[str]()
    sizes = {
        name: whole(said[name], name)
        for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        if said.get(name, "auto") != "auto"
    }
    tp = whole(_table(said, "tensor_parallel").get("autotp_size", 1), "tensor_parallel.autotp_size")
    pp = _table(said, "pipeline").get("stages", 1)
    pp = whole(pp, "pipeline.stages") if pp != "auto" else 1
    dp, batch, steps = _batch(
        sizes, None if devices is None else share(devices, tp * pp, f"{devices} devices of tensor x pipeline ranks")
    )
    others += [
        f"zero_optimization.{n} = {json.dumps(zero[n])}" for n in OFFLOAD if zero.get(n) not in (None, False, 1, {})
    ]
    checkpoint = _table(said, "activation_checkpointing")
    others += [f"activation_checkpointing.{n} = true" for n, v in checkpoint.items() if v is True]
    stage = whole(zero.get("stage", 0), "zero_optimization.stage", 0)
    if stage > 3:
        raise DistirError(f"zero_optimization.stage: expected 0 to 3, got {stage}")
    group = whole(zero.get("mics_shard_size", -1), "zero_optimization.mics_shard_size", -1)
    groups = share(dp, group, "replicas of zero_optimization.mics_shard_size") if group > 0 and stage == 3 else 1
    kind = said.get("communication_data_type")
    if kind is not None and kind not in TYPES:
        others.append(f"communication_data_type = {kind}")
    settings: dict[str, Any] = {
        "batch_size": batch,
        "dp": dp,
        "dp_replicate": groups,
        "tp": tp,
        "pp": pp,
        "microbatches": steps,
        "schedule": "1f1b",
        "zero": stage,
        "overlap": bool(zero.get("overlap_comm", stage == 3)),
        "gradient_type": TYPES.get(str(kind)),
    }
    return Imported(completed(settings), others)


def _batch(sizes: dict[str, int], replicas: int | None) -> tuple[int, int | None, int]:
    """Replicas, the batch and the microbatches: of these and of the rows of a microbatch, one follows from the others."""
    batch, micro = sizes.get("train_batch_size"), sizes.get("train_micro_batch_size_per_gpu")
    steps = sizes.get("gradient_accumulation_steps")
    if replicas is None:
        if batch is None or micro is None or steps is None:
            raise DistirError("the configuration does not say how many devices there are: give --devices N")
        replicas = share(
            batch, micro * steps, "train_batch_size of train_micro_batch_size_per_gpu x gradient_accumulation_steps"
        )
    if batch is not None and micro is not None:
        found = share(batch, micro * replicas, "train_batch_size of train_micro_batch_size_per_gpu x replicas")
        if steps not in (None, found):
            raise DistirError(
                f"gradient_accumulation_steps: {found} follow from the other sizes and {replicas} replicas, got {steps}"
            )
        return replicas, batch, found
    steps = steps or 1
    return replicas, micro * steps * replicas if batch is None and micro is not None else batch, steps


def _table(said: dict[str, Any], name: str) -> dict[str, Any]:
    table = said.get(name, {})
    if not isinstance(table, dict):
        raise DistirError(f"{name}: expected an object")
    return cast(dict[str, Any], table)


def write(plan: PlanFile) -> Exported:
    """The sizes, ZeRO, and what tensor and pipeline ranks there are."""
    known = {"batch_size", "dp", "tp", "pp", "microbatches", "zero", "overlap", "gradient_type"}
    known |= {"schedule"} if plan.setting("schedule") in (None, "1f1b") else set()
    kind = {"bf16": "bf16", "f32": "fp32"}.get(plan.setting("gradient_type"))
    data: dict[str, Any] = {
        "train_batch_size": batch_of(plan),
        "train_micro_batch_size_per_gpu": microbatch_of(plan),
        "gradient_accumulation_steps": plan.setting("microbatches"),
        "zero_optimization": {"stage": plan.setting("zero") or 0, "overlap_comm": plan.setting("overlap")},
    }
    if plan.setting("zero") == 3 and (groups := plan.setting("dp_replicate")) > 1:
        known |= {"dp_replicate"}
        data["zero_optimization"]["mics_shard_size"] = share(plan.setting("dp"), groups, "dp of dp_replicate")
    data |= {"tensor_parallel": {"autotp_size": plan.setting("tp")}} if plan.setting("tp") > 1 else {}
    data |= {"pipeline": {"stages": plan.setting("pp")}} if plan.setting("pp") > 1 else {}
    data |= {"communication_data_type": kind} if kind else {}
    return Exported(json.dumps(data, indent=2) + "\n", unsaid(plan, known))


FORMAT = Format(read, write)
