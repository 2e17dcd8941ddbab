"""The difference of two plans. In go two plan files; out comes the way from the first to the second, one setting
changed at a time, each with its time and memory: the differences add up to the gain of the second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from distir.dialects.errors import DistirError
from distir.tools.plan_files import SETTINGS, MachineReference, PlanFile
from distir.tools.plan_runs import not_simulated, run_of

TOGETHER = (
    ("batch_size",),
    ("dp", "dp_replicate", "context_parallel", "tp", "pp"),
    ("microbatches",),
    ("schedule",),
    ("virtual_stages",),
    ("divide",),
    ("zero",),
    ("recompute",),
    ("overlap",),
    ("gradient_type",),
    ("matmul_type", "matmul_keep"),
    ("memory_limit_bytes",),
)
"""Settings that are changed together, in the order in which it is tried: degrees make one mesh."""


@dataclass(frozen=True)
class Step:
    """A plan on the way."""

    name: str
    """What was changed."""
    seconds: float
    memory_bytes: int
    shares: Mapping[str, float]
    """Of device time, that computes, communicates and waits."""
    throughput_per_second: float
    fits: bool

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    plans: Sequence[PlanFile], paths: Sequence[str], model: str | None, machine: str | None, **options: Any
) -> list[Step]:
    """The first plan, then each difference. A difference that is no plan by itself comes with the next ones. Raises DistirError where one of the
    plans is not possible, or they are for two models."""
    first, second = plans
    hashes = {plan.model.sha256 for plan in plans} if model is None else set[str | None]()
    if len(hashes) > 1 or (model is None and first.model.path != second.model.path):
        raise DistirError(f"{paths[1]}: is for another model than {paths[0]}: give --model MODEL to compare on one")
    said = {name: (first.setting(name), second.setting(name)) for name in SETTINGS}
    groups = [(*g, "schedule") if "dp" in g and None in said["schedule"] else g for g in TOGETHER]
    left = [group for group in groups if any(said[name][0] != said[name][1] for name in group)]
    left = [group for group in left if group != ("schedule",) or None not in said["schedule"]]

    def step(plan: PlanFile, name: str, path: str) -> Step:
        run = run_of(plan, path, model, machine, **options)
        row, figures = run.row, run.row.figures
        shares = {
            "compute": figures.compute_share,
            "communication": figures.communication_share,
            "idle": figures.idle_share,
        }
        throughput, fits = row.throughput_per_second, run.outcome.dropped is None
        return Step(name, figures.latency_seconds, figures.peak_memory_bytes, shares, throughput, fits)

    found = [step(first, paths[0], paths[0])]
    current = first
    if _other_machine(first.machine, second.machine) and machine is None:
        current = replace(current, machine=second.machine)
        found.append(
            step(current, f"machine {' '.join([str(second.machine.name), *second.machine.settings])}", paths[1])
        )
    while left:
        for count in range(1, len(left) + 1):
            if (taken := _first_possible(current, second, left, count, step)) is not None:
                current, next_step, gone = taken
                found.append(next_step)
                left = [group for group in left if group not in gone]
                break
        else:
            step(second, paths[1], paths[1])  # says why
            break
    return found


def _first_possible(
    current: PlanFile, second: PlanFile, left: Sequence[tuple[str, ...]], count: int, step: Any
) -> tuple[PlanFile, Step, list[tuple[str, ...]]] | None:
    """The first plan of those with so many more of the second one's settings that is possible."""
    for start in range(len(left) - count + 1):
        gone = list(left[start : start + count])
        names = [name for group in gone for name in group if current.setting(name) != second.setting(name)]
        changed = replace(current, settings={**current.settings, **{name: second.setting(name) for name in names}})
        text = ", ".join(f"{name} {current.setting(name)} to {second.setting(name)}" for name in names)
        if not_simulated(changed) != not_simulated(current) and not _options(names):
            text += " (not simulated)"
        try:
            return changed, step(changed, text, "the plan"), gone
        except DistirError:
            continue
    return None


def _options(names: Sequence[str]) -> bool:
    from distir.tools.plan_runs import OPTIONS

    return any(name in OPTIONS for name in names)


def _other_machine(one: MachineReference, other: MachineReference) -> bool:
    return (one.name, list(one.settings), one.cost_model) != (other.name, list(other.settings), other.cost_model)
