"""Plan files in terms of `distir search`. In go a plan file and the options of a search; out come the search that looks at that plan alone, its program
and figures; and for a plan that a search found, its file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError
from distir.tools.plan_files import SETTINGS, MachineReference, ModelReference, PlanFile, hash_of
from distir.tools.plan_source import PlanSource

if TYPE_CHECKING:
    from distir.passes.search.configurations import Configuration, Outcome
    from distir.tools.plans import Plan

DEGREES = {"dp": "dp", "dp_replicate": "dp_replicate", "context_parallel": "cp", "tp": "tp", "pp": "pp"}
"""What a plan calls them, and a search."""
OPTIONS = {
    "batch_size": "batch_sizes",
    **DEGREES,
    "microbatches": "microbatches",
    "schedule": "schedules",
    "virtual_stages": "virtual",
    "divide": "divide",
    "zero": "zero",
    "recompute": "recompute",
    "overlap": "overlap",
    "gradient_type": "gradient_type",
    "matmul_type": "matmul_type",
    "matmul_keep": "matmul_keep",
    "memory_limit_bytes": "memory_limit",
}
"""The option of `distir search` that fixes each setting. Settings without one, or of which the option does not exist, are not simulated."""


def not_simulated(plan: PlanFile) -> list[str]:
    """Settings that are other than usual, and that no option of a search stands for: figures are those of plans without them."""
    from distir.tools.commands.search import defaults

    known = defaults()
    others = [name for name in SETTINGS if OPTIONS.get(name) not in known]
    return [f"{name} {plan.setting(name)}" for name in others if plan.setting(name) != SETTINGS[name].default]


def pin(args: Namespace, plan: PlanFile, path: str) -> None:
    """Fixes the options that the plan's settings stand for. Raises DistirError where an option that was given says otherwise."""
    from distir.tools.commands.search import defaults

    usual = defaults()
    for name, option in OPTIONS.items():
        value = plan.settings.get(name)
        if name not in plan.settings or value is None or option not in usual:
            continue
        text = value if isinstance(value, bool) or option == "zero" else str(value)
        if getattr(args, option) not in (usual[option], text):
            given = option.replace("_", "-")
            raise DistirError(f"--{given} {getattr(args, option)} and --pin {path}, where {name} is {value}: give one")
        setattr(args, option, text)
    args.pinned = dict(plan.settings)


def fits(pinned: dict[str, Any], c: Configuration) -> bool:
    """Whether a configuration is as pinned settings say; without a pipeline there is no schedule."""
    found = {"batch_size": c.batch, "microbatches": c.microbatches}
    found |= {name: getattr(c, degree) for name, degree in DEGREES.items()}
    found |= {"recompute": c.recompute, "overlap": c.overlap}
    return all(found.get(name, value) == value for name, value in pinned.items() if value is not None)


@dataclass
class PlanRun:
    """A plan file's program and figures."""

    plan: PlanFile
    args: Namespace

    @cached_property
    def _opened(self) -> tuple[PlanSource, Configuration]:
        from distir.tools.commands.search import open_search

        search, configurations, model = open_search(self.args)
        if not configurations:
            settings = ", ".join(f"{name} {self.plan.setting(name)}" for name in (*DEGREES, "microbatches"))
            raise DistirError(
                f"no such plan: {settings} do not divide a batch of {self.args.batch_sizes or 'the model'}"
            )
        return PlanSource(search, model, self.args), configurations[0]

    def share(self, source: PlanSource, same_search: bool) -> None:
        """Takes the model of a search, and, if it was asked for with the same options but for what it looks at, the search itself."""
        self.args.model = source.model
        own, configuration = self._opened
        self._opened = source if same_search else own, configuration

    @property
    def source(self) -> PlanSource:
        return self._opened[0]

    @property
    def configuration(self) -> Configuration:
        return self._opened[1]

    @cached_property
    def outcome(self) -> Outcome:
        """What became of it."""
        return self.source.search.evaluate(self.configuration)

    @cached_property
    def row(self) -> Plan:
        """Its figures and its program. Raises DistirError where there are none: the rules or the batch forbid it."""
        from distir.tools.plans import Plan

        if self.outcome.figures is None:
            raise DistirError(f"the plan is not possible: {self.outcome.dropped}")
        return Plan(1, self.configuration, self.outcome.figures, self.source)


def run_of(plan: PlanFile, path: str, model: str | None = None, machine: str | None = None, **options: Any) -> PlanRun:
    """The run of a plan file, of its own model and machine, or of others. Raises DistirError where these are not known, or the model is not the one."""
    from distir.tools.commands.search import defaults

    name = machine or plan.machine.name
    if name is None:
        raise DistirError(f"{path}: does not say of which machine: give --machine M")
    shapes = [f"{i}={','.join(map(str, s))}" for i, s in plan.model.shapes.items()]
    known = {
        "model": model or _model_of(plan, path),
        "machine": name,
        "settings": [] if machine else list(plan.machine.settings),
        "devices": plan.devices,
        "shape": shapes,
        "batch": plan.model.batch_dims,
        "cost_model": plan.machine.cost_model,
    }
    args = Namespace(**{**defaults(), **known, **options})
    pin(args, PlanFile({n: plan.setting(n) for n in SETTINGS}), path)
    return PlanRun(plan, args)


def _model_of(plan: PlanFile, path: str) -> str:
    """The model that the plan names, if it is a file, and still the same. A function that makes it is code, and is not called because a file says so."""
    named = plan.model.path
    if named is None:
        raise DistirError(f"{path}: does not say of which model: give --model MODEL")
    if not Path(named).is_file():
        why = "is no file here" if ":" not in named else "is code, which a plan cannot ask to run"
        raise DistirError(f"{path}: its model {named} {why}: give --model {named}")
    if plan.model.sha256 is not None and hash_of(named) != plan.model.sha256:
        raise DistirError(
            f"{path}: {named} is not the model that the plan was made for: give --model {named} to use it"
        )
    return named


def plan_file(source: PlanSource, c: Configuration, figures: Mapping[str, Any]) -> PlanFile:
    """The file of a plan that a search found, with its figures (`Plan.as_dict`)."""
    from distir.frontends.shapes import parse_shape

    args = source.args
    model = args.model if isinstance(args.model, str) else None
    settings = {name: getattr(args, option, SETTINGS[name].default) for name, option in OPTIONS.items()}
    settings |= {"batch_size": c.batch, "microbatches": c.microbatches}
    settings |= {name: getattr(c, degree) for name, degree in DEGREES.items()}
    settings |= {"schedule": c.schedule if c.pp > 1 else None, "memory_limit_bytes": source.search.memory_limit_bytes}
    settings |= {"recompute": c.recompute, "virtual_stages": c.virtual, "overlap": c.overlap}
    numbers = {name: value for name, value in figures.items() if value is None or isinstance(value, int | float)}
    found = {name: value for name, value in numbers.items() if name not in (*settings, *DEGREES.values(), "rank")}
    shapes = {name: list(sizes) for name, sizes in map(parse_shape, args.shape)}
    reference = ModelReference(model, None if model is None else hash_of(model), shapes, args.batch)
    return PlanFile(
        settings, reference, MachineReference(str(args.machine), list(args.settings), args.cost_model), found
    )
