"""Accelerate's YAML (FSDP, and what it passes to DeepSpeed and Megatron-LM) as a plan, and back. In goes the configuration; out come settings. Names are
those of Accelerate's launcher. It has no batch size: that is the script's."""

from __future__ import annotations

from typing import Any, cast

from distir.dialects.errors import DistirError
from distir.tools.plan_files import PlanFile
from distir.tools.plan_formats import Exported, Format, Imported, completed, share, unsaid, whole

STRATEGIES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2}
"""By FSDP's name, what is stored in parts; by number from 1, in this order."""
DISTRIBUTED = ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")
SIZES = {
    "dp_replicate": "dp_replicate_size",
    "dp_shard": "dp_shard_size",
    "tp": "tp_size",
    "cp": "cp_size",
    "sp": "sp_size",
}


def read(text: str, devices: int | None) -> Imported:
    """Raises DistirError for a file that is no YAML, or of another kind of distribution."""
    said = _parsed(text)
    kind = str(said.get("distributed_type", "NO")).upper()
    if kind not in DISTRIBUTED:
        raise DistirError(f"distributed_type: expected one of {', '.join(DISTRIBUTED)}, got '{kind[:60]}'")
    world = devices or whole(said.get("num_processes", 1), "num_processes")
    others = list[str]()
    settings: dict[str, Any] = {
        "microbatches": whole(said.get("gradient_accumulation_steps", 1), "gradient_accumulation_steps")
    }
    mesh = _table(said, "parallelism_config")
    sizes = {
        n: whole(mesh.get(f"parallelism_config_{key}", 1), f"parallelism_config_{key}") for n, key in SIZES.items()
    }
    settings |= {"tp": sizes["tp"], "context_parallel": sizes["cp"]}
    settings["dp_replicate"] = sizes["dp_replicate"]
    others += [f"parallelism_config_sp_size: {sizes['sp']}"] if sizes["sp"] > 1 else []
    settings |= {"FSDP": _fsdp, "DEEPSPEED": _deepspeed, "MEGATRON_LM": _megatron}.get(kind, lambda *_: {})(
        said, others
    )
    ranks = settings["tp"] * settings.get("pp", 1) * settings["context_parallel"]
    settings["dp"] = share(world, ranks, "num_processes of tensor x pipeline x context parallel ranks")
    share(settings["dp"], settings["dp_replicate"], "replicas of groups that each hold all state")
    return Imported(completed({"schedule": "1f1b", **settings}), others)


def _fsdp(said: dict[str, Any], others: list[str]) -> dict[str, Any]:
    table = _table(said, "fsdp_config")
    names, strategy = list(STRATEGIES), str(table.get("fsdp_sharding_strategy", "FULL_SHARD"))
    strategy = names[int(strategy) - 1] if strategy.isdecimal() and 0 < int(strategy) <= len(names) else strategy
    if strategy not in STRATEGIES:
        raise DistirError(f"fsdp_sharding_strategy: expected one of {', '.join(names)}, got '{strategy[:60]}'")
    zero, reshards = STRATEGIES[strategy], table.get("fsdp_reshard_after_forward", True)
    if str(reshards) in STRATEGIES:
        zero = STRATEGIES[str(reshards)]
    elif not _is_true(reshards):
        zero = min(zero, 2)
    others += ["fsdp_offload_params: true"] if _is_true(table.get("fsdp_offload_params")) else []
    recompute = "full" if _is_true(table.get("fsdp_activation_checkpointing")) else "none"
    prefetch = str(table.get("fsdp_backward_prefetch", "BACKWARD_PRE"))
    settings = {"zero": zero, "recompute": recompute, "overlap": prefetch not in ("NO_PREFETCH", "None")}
    nodes = whole(said.get("num_machines", 1), "num_machines")
    is_per_node = strategy.startswith("HYBRID") and not _table(said, "parallelism_config")
    return settings | ({"dp_replicate": nodes} if is_per_node else {})  # FSDP: a copy of all state on each node


def _deepspeed(said: dict[str, Any], others: list[str]) -> dict[str, Any]:
    table = _table(said, "deepspeed_config")
    if "deepspeed_config_file" in table:
        raise DistirError("deepspeed_config_file: give that file to distir plan import deepspeed")
    for name in ("offload_optimizer_device", "offload_param_device"):
        if str(table.get(name, "none")) != "none":
            others.append(f"{name}: {table[name]}")
    steps = table.get("gradient_accumulation_steps", 1)
    steps = 1 if steps == "auto" else whole(steps, "deepspeed_config.gradient_accumulation_steps")
    return {
        "zero": min(whole(table.get("zero_stage", 2), "deepspeed_config.zero_stage", 0), 3),
        "microbatches": steps,
        "overlap": True,
    }


def _megatron(said: dict[str, Any], others: list[str]) -> dict[str, Any]:
    table = {name.removeprefix("megatron_lm_"): value for name, value in _table(said, "megatron_lm_config").items()}
    return {
        "tp": whole(table.get("tp_degree", 1), "megatron_lm_tp_degree"),
        "pp": whole(table.get("pp_degree", 1), "megatron_lm_pp_degree"),
        "microbatches": whole(table.get("num_micro_batches", 1), "megatron_lm_num_micro_batches"),
        "recompute": "selective" if _is_true(table.get("recompute_activations")) else "none",
        "sequence_parallel": _is_true(table.get("sequence_parallelism")),
        "zero": int(_is_true(table.get("use_distributed_optimizer"))),
    }


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "1")


def _yaml() -> Any:
    try:
        import yaml  # pyright: ignore
    except ImportError as error:
        raise DistirError(
            "Accelerate's configuration needs PyYAML, which is not installed: pip install pyyaml"
        ) from error
    return yaml  # pyright: ignore


def _parsed(text: str) -> dict[str, Any]:
    yaml = _yaml()
    try:
        data: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DistirError(f"not a YAML file: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise DistirError("expected a mapping")
    return cast(dict[str, Any], data)


def _table(said: dict[str, Any], name: str) -> dict[str, Any]:
    table = said.get(name) or {}
    if not isinstance(table, dict):
        raise DistirError(f"{name}: expected a mapping")
    return cast(dict[str, Any], table)


def write(plan: PlanFile) -> Exported:
    """FSDP; with a pipeline, Megatron-LM."""
    known = {"dp", "tp", "pp", "microbatches", "zero"}
    known |= {"schedule"} if plan.setting("schedule") in (None, "1f1b") else set()
    data: dict[str, Any] = {"num_processes": plan.devices}
    if plan.setting("pp") > 1:
        known |= {"sequence_parallel"} | ({"recompute"} if plan.setting("recompute") == "selective" else set())
        table = {
            "tp_degree": plan.setting("tp"),
            "pp_degree": plan.setting("pp"),
            "num_micro_batches": plan.setting("microbatches"),
            "recompute_activations": plan.setting("recompute") == "selective",
            "sequence_parallelism": plan.setting("sequence_parallel"),
            "use_distributed_optimizer": plan.setting("zero") == 1,
        }
        known -= {"zero"} if (plan.setting("zero") or 0) > 1 else set()
        data |= {
            "distributed_type": "MEGATRON_LM",
            "megatron_lm_config": {f"megatron_lm_{n}": v for n, v in table.items()},
        }
        return Exported(_yaml().safe_dump(data), unsaid(plan, known))
    known |= {"overlap", "context_parallel"} | ({"recompute"} if plan.setting("recompute") == "full" else set())
    known -= {"zero"} if plan.setting("zero") == 1 else set()
    zero, dp, groups = (plan.setting(name) for name in ("zero", "dp", "dp_replicate"))
    is_sharded = (zero or 0) > 1
    known |= {"dp_replicate"} if is_sharded else set()
    hybrid = {"SHARD_GRAD_OP": "HYBRID_SHARD_ZERO2", "FULL_SHARD": "HYBRID_SHARD"}
    strategy = {2: "SHARD_GRAD_OP", 3: "FULL_SHARD"}.get(zero or 0, "NO_SHARD")
    strategy = hybrid[strategy] if is_sharded and groups > 1 else strategy
    mesh = {"dp_shard_size": share(dp, groups, "dp of dp_replicate")} if is_sharded else {}
    mesh |= {"dp_replicate_size": groups if is_sharded else dp} if groups > 1 or not is_sharded else {}
    mesh |= {"tp_size": plan.setting("tp"), "cp_size": plan.setting("context_parallel")}
    data |= {
        "distributed_type": "FSDP",
        "gradient_accumulation_steps": plan.setting("microbatches"),
        "fsdp_config": {
            "fsdp_sharding_strategy": strategy,
            "fsdp_activation_checkpointing": plan.setting("recompute") == "full",
            "fsdp_backward_prefetch": "BACKWARD_PRE" if plan.setting("overlap") else "NO_PREFETCH",
        },
        "parallelism_config": {f"parallelism_config_{name}": size for name, size in mesh.items()},
    }
    return Exported(_yaml().safe_dump(data), unsaid(plan, known))


FORMAT = Format(read, write)
