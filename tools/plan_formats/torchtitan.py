"""torchtitan's TOML as a plan, and back. In go the tables [training], [parallelism], [activation_checkpoint] and [quantize.linear.float8]; out come settings.
Names are those of `torchtitan/config/job_config.py` and `parallelism.py`."""

from __future__ import annotations

import json
import tomllib
from typing import Any, cast

from distir.dialects.errors import DistirError
from distir.tools.plan_files import PlanFile
from distir.tools.plan_formats import (
    SCHEDULES,
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

KNOWN = {
    "data_parallel_replicate_degree": 1,
    "data_parallel_shard_degree": -1,
    "fsdp_reshard_after_forward": "default",
    "tensor_parallel_degree": 1,
    "enable_sequence_parallel": True,
    "pipeline_parallel_degree": 1,
    "pipeline_parallel_schedule": "1F1B",
    "pipeline_parallel_microbatch_size": 1,
    "num_pp_microbatches": 1,
    "context_parallel_degree": 1,
    "expert_parallel_degree": 1,
}
"""Of [parallelism], with defaults."""
USUAL: dict[str, Any] = {
    "disable_loss_parallel": False,
    "enable_async_tensor_parallel": False,
    "pipeline_parallel_schedule_csv": "",
    "context_parallel_rotate_method": "allgather",
}
"""What a plan cannot say, where it is other than this."""
FLOAT8 = "quantize.linear.float8"
LOOPED = ("interleaved", "looped-bfs", "zbv", "dualpipev")
"""Schedules with two stages on a device, unless told."""


def read(text: str, devices: int | None) -> Imported:
    """Raises DistirError for a file that is no TOML, and where devices or batches do not divide."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DistirError(f"not a TOML file: {error}") from error
    parallelism, training = _table(tables, "parallelism"), _table(tables, "training")
    said = {**KNOWN, **parallelism}
    names = (
        "data_parallel_replicate_degree",
        "tensor_parallel_degree",
        "pipeline_parallel_degree",
        "context_parallel_degree",
    )
    replicas, tp, pp, cp = (whole(said[name], f"parallelism.{name}") for name in names)
    shards = whole(said["data_parallel_shard_degree"], "parallelism.data_parallel_shard_degree", -1)
    if shards == -1:
        if devices is None:
            raise DistirError("parallelism.data_parallel_shard_degree is -1, the rest of the devices: give --devices N")
        shards = share(devices, replicas * tp * pp * cp, f"{devices} devices of the other degrees")
    others = [f"parallelism.{n} = {v}" for n, v in parallelism.items() if n not in KNOWN and v != USUAL.get(n)]
    dp, local = replicas * shards, whole(training.get("local_batch_size", 8), "training.local_batch_size")
    batch = whole(training.get("global_batch_size", -1), "training.global_batch_size", -1)
    batch = local * dp if batch == -1 else batch
    rounds = share(batch, local * dp, "training.global_batch_size of training.local_batch_size x replicas")
    schedule = {theirs.lower(): ours for ours, theirs in SCHEDULES.items()}.get(
        str(said["pipeline_parallel_schedule"]).lower()
    )
    if pp > 1 and schedule is None:
        others.append(f"parallelism.pipeline_parallel_schedule = {said['pipeline_parallel_schedule']}")
    microbatches = rounds
    if pp > 1:
        each = whole(said["pipeline_parallel_microbatch_size"], "parallelism.pipeline_parallel_microbatch_size")
        count = whole(said["num_pp_microbatches"], "parallelism.num_pp_microbatches")
        microbatches = (
            count
            if "num_pp_microbatches" in parallelism
            else share(local, each, "training.local_batch_size of microbatches")
        )
        others += [f"training.global_batch_size = {batch} ({rounds} rounds of the pipeline)"] if rounds > 1 else []
        microbatches *= rounds
    never = said["fsdp_reshard_after_forward"] == "never"
    settings: dict[str, Any] = {
        "batch_size": batch,
        "dp": dp,
        "dp_replicate": replicas,
        "tp": tp,
        "pp": pp,
        "microbatches": microbatches,
        "schedule": schedule,
        "virtual_stages": 2 if pp > 1 and schedule in LOOPED else 1,
        "zero": 0 if shards * cp == 1 else 2 if never else 3,  # which shares state over devices of a sequence too
        "recompute": _recompute(_table(tables, "activation_checkpoint"), others),
        "sequence_parallel": tp > 1 and bool(said["enable_sequence_parallel"]),
        "context_parallel": cp,
        "expert_parallel": whole(said["expert_parallel_degree"], "parallelism.expert_parallel_degree"),
        "gradient_type": {"float32": "f32", "bfloat16": "bf16", None: None}.get(training.get("mixed_precision_reduce")),
        **_matmul_type(tables),
    }
    return Imported(completed(settings), others)


def _matmul_type(tables: dict[str, Any]) -> dict[str, Any]:
    """Whether linear layers multiply in 8 bits, and which do not."""
    if not {"float8", FLOAT8} & {*_names(_table(tables, "model"), "converters")}:
        return {}
    table = tables
    for name in FLOAT8.split("."):
        table = _table(table, name)
    kept = _names(table or _table(tables, "float8"), "filter_fqns")
    return {"matmul_type": "f8E4M3FN", "matmul_keep": ",".join(kept) or None}


def _names(table: dict[str, Any], name: str) -> list[str]:
    found: Any = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in cast("list[Any]", found)):
        raise DistirError(f"{name}: expected a list of names")
    return cast("list[str]", found)


def _table(tables: dict[str, Any], name: str) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise DistirError(f"[{name}]: expected a table")
    return cast(dict[str, Any], table)


def _recompute(table: dict[str, Any], others: list[str]) -> str:
    mode = str(table.get("mode", "selective")) if table else "none"
    if mode == "selective" and str(option := table.get("selective_ac_option", "2")) != "op":
        others.append(f"activation_checkpoint.selective_ac_option = {option} (every so many layers)")
    if mode not in ("none", "full", "selective"):
        raise DistirError(f"activation_checkpoint.mode: expected none, selective or full, got '{mode[:60]}'")
    return mode


def write(plan: PlanFile) -> Exported:
    """The three tables."""
    known = {"batch_size", "dp", "tp", "pp", "microbatches", "context_parallel", "expert_parallel", "sequence_parallel"}
    in_fp8 = plan.setting("matmul_type") == "f8E4M3FN"
    known |= {"gradient_type", *(("matmul_type", "matmul_keep") if in_fp8 else ())}
    dp, pp, zero, schedule = (plan.setting(name) for name in ("dp", "pp", "zero", "schedule"))
    policy, virtual = plan.setting("recompute"), plan.setting("virtual_stages")
    known |= {"recompute"} if policy in ("none", "full", "selective") else set()
    known |= {"schedule"} if pp == 1 or schedule is None or schedule in SCHEDULES else set()
    known |= {"virtual_stages"} if virtual == (2 if pp > 1 and schedule in LOOPED else 1) else set()
    known |= {"zero"} if zero != 1 else set()
    shares = ["zero 0 (devices that share a sequence store state in parts)"] * (
        not zero and plan.setting("context_parallel") > 1
    )
    shares += ["dp_replicate 1 (each replica stores all state)"] * (bool(shares) and dp > 1)
    local = share(batch_of(plan), dp, "batch_size of dp")
    is_sharded = (zero or 0) > 1
    known |= {"dp_replicate"} if is_sharded else set()
    replicas = plan.setting("dp_replicate") if is_sharded else dp
    training = {"local_batch_size": local if pp > 1 else microbatch_of(plan), "global_batch_size": batch_of(plan)}
    reduced = {"f32": "float32", "bf16": "bfloat16"}.get(plan.setting("gradient_type"))
    parallelism = {
        "data_parallel_replicate_degree": replicas,
        "data_parallel_shard_degree": share(dp, replicas, "dp of dp_replicate"),
        **({"fsdp_reshard_after_forward": "never"} if zero == 2 else {}),
        "tensor_parallel_degree": plan.setting("tp"),
        **({} if plan.setting("sequence_parallel") or plan.setting("tp") == 1 else {"enable_sequence_parallel": False}),
        "pipeline_parallel_degree": pp,
        **({"pipeline_parallel_schedule": SCHEDULES.get(str(schedule), "1F1B")} if pp > 1 else {}),
        **({"pipeline_parallel_microbatch_size": microbatch_of(plan)} if pp > 1 else {}),
        "context_parallel_degree": plan.setting("context_parallel"),
        "expert_parallel_degree": plan.setting("expert_parallel"),
    }
    checkpoint = {"mode": policy if "recompute" in known else "none"}
    checkpoint |= {"selective_ac_option": "op"} if policy == "selective" else {}
    tables = {
        "training": training | ({"mixed_precision_reduce": reduced} if reduced else {}),
        "parallelism": parallelism,
        "activation_checkpoint": checkpoint,
    }
    if in_fp8:
        kept = [name for name in (plan.setting("matmul_keep") or "").split(",") if name]
        tables |= {"model": {"converters": [FLOAT8]}, FLOAT8: {"filter_fqns": kept}}
    lines = [
        f"[{name}]\n" + "".join(f"{k} = {_value(v)}\n" for k, v in table.items()) for name, table in tables.items()
    ]
    return Exported("\n".join(lines), unsaid(plan, known) + shares)


def _value(value: object) -> str:
    if isinstance(value, list):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


FORMAT = Format(read, write)
