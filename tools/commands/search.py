"""`distir search`: walks a grid of D/T/P plans for a model on a machine, ranks them, and writes the best one's program."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from distir.dialects.errors import DistirError
from distir.interpreters.byte_sizes import parse_bytes
from distir.tools.commands.report import (
    assumed_text,
    bytes_text,
    check_output,
    facts_of,
    say,
    write_whole,
)
from distir.tools.commands.search_options import add_options, batch_sizes_of, policies_of, schedules_of, shapes_of
from distir.tools.commands.search_output import as_csv, assumed, figures, report
from distir.tools.constraints import Degrees, integers
from distir.tools.plan_source import PlanSource
from distir.tools.plans import Plans

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from distir.passes.search.configurations import Configuration, Outcome
    from distir.passes.search.search import Search
    from distir.passes.search.shared_search import SharedSearch
    from distir.tools.today import Today

INTERRUPTED = 130
MOST_DEVICES = 1 << 20
"""The grid is tried degree by degree: more would not end."""


def add_parser(subparsers: Any) -> None:
    add_options(subparsers).set_defaults(run=run)


def defaults() -> dict[str, Any]:
    """What every option is that is not given."""
    from argparse import ArgumentParser

    add_parser((parser := ArgumentParser()).add_subparsers())
    return vars(parser.parse_args(["search", "MODEL", "--machine", "M", "--devices", "1"]))


class Found(NamedTuple):
    """A search that is over."""

    plans: Plans
    source: PlanSource
    today: Today | None = None
    """What is run today, if that was asked too."""


def find_plans(args: Namespace) -> Found:
    """Evaluates the plans that the options name. Raises DistirError for a mistake in them."""
    from distir.passes.search.collector import leave_collector_off
    from distir.passes.search.configurations import distinct

    if args.devices < 1 or args.top < 1:
        raise DistirError("--devices and --top: expected at least 1")
    if args.measure < 1 or (args.execute_top is not None and not 1 <= args.execute_top <= args.top):
        raise DistirError(
            f"--execute-top and --measure: expected at least 1, and at most the {args.top} plans of --top"
        )
    if args.row < 1 or args.jobs < 1:
        raise DistirError("--row and --jobs: expected at least 1")
    if args.devices > MOST_DEVICES:
        raise DistirError(f"--devices {args.devices}: expected at most {MOST_DEVICES:,}")
    leave_collector_off()
    if args.calibrate_from is not None:
        from distir.tools.commands.fit_runs import fitted_settings

        args.settings = [
            *args.settings,
            *fitted_settings(args.calibrate_from, args.machine, args.settings, args.cost_model),
        ]
    today = None
    if args.from_config is not None:
        from distir.tools.today import Today

        today = Today.of(args)
    search, configurations, model = open_search(args)
    if args.jobs > 1:
        from distir.passes.search.shared_search import SharedSearch

        search = SharedSearch(search, args.jobs)
    outcomes, interrupted = _walk(search, configurations)
    source = PlanSource(search, model, args)
    planned = len({c.plan for c in (*configurations, *(o.configuration for o in outcomes))})
    return Found(Plans.of(distinct(outcomes), source, planned, interrupted), source, today)


def run(args: Namespace) -> int:
    for path in (args.csv, args.report, args.output, args.executions):
        if path is not None:
            check_output(path)
    plans, source, today = find_plans(args)
    search, now = source.search, None if today is None else today.found_among(plans, source)
    executions = None
    if not args.json:
        report(plans, args.top)
        for line in () if now is None else now.lines:
            say(line)
    if args.execute_top is not None and plans:
        from distir.tools.execute_top import execute_top

        executions = execute_top(plans, args.execute_top, args.measure, args.executions)
    if args.json:
        found = figures(plans, args.top)
        more = {} if executions is None else {"executed": executions.as_dict()}
        print(json.dumps(found | more if now is None else {**found, **more, "today": now.data}, indent=2))
    elif executions is not None:
        executions.report()
    say_to = sys.stderr if args.json else None
    if args.csv is not None:
        write_whole(args.csv, lambda stream: stream.write(as_csv(plans).encode()))
        say(f"wrote {len(plans.outcomes)} plans to {args.csv}", say_to)
    if args.report is not None:
        from distir.backends.report import search_report

        title = f"{args.model} on {args.devices} devices of {search.machine.name}"
        analysis = None
        if plans:
            from distir.interpreters.simulate.analysis import Analysis

            analysis = Analysis(plans.best.program, search.machine, search.cost_model)
        fitting = [outcome for outcome in plans.outcomes if outcome.figures is not None and outcome.dropped is None]
        by_plan = {outcome.configuration: outcome for outcome in fitting}
        best = [by_plan[plan.configuration] for plan in plans]
        facts = {"command": args.command_line, **facts_of(search.machine.name, args.cost_model)}
        more = [
            {
                "tokens": plan.tokens_per_second,
                "mfu": plan.mfu,
                "exposed": plan.exposed_shares,
                "hidden": plan.hidden_shares,
            }
            for plan in plans
        ]
        if plans:
            kinds = [f"{name} {bytes_text(count)}" for name, count in plans.best.memory_by_kind.items()]
            facts["memory of the best plan"] = ", ".join(kinds)
            facts["a flop for each element is assumed of"] = assumed_text(assumed(plans))
        page = search_report(title, plans.outcomes, best, search.memory_limit_bytes, analysis, facts, more)
        write_whole(args.report, lambda stream: stream.write(page.encode()))
        say(f"wrote the report to {args.report}", say_to)
    if not plans and plans.interrupted:
        return INTERRUPTED
    best = plans.best
    if args.output is not None:
        if args.row > len(plans):
            raise DistirError(f"--row {args.row}: {len(plans)} plans were found: give a smaller one, or a larger --top")
        chosen = plans[args.row - 1]
        chosen.save(args.output)
        c, which = chosen.configuration, "the best plan" if chosen is best else f"plan {args.row}"
        recompute = "" if c.recompute == "none" else f", recompute {c.recompute}"
        say(f"wrote {which} (batch {c.batch}, {c.degrees_text}{recompute}) to {args.output}", say_to)
    return INTERRUPTED if plans.interrupted else 0


def open_search(args: Namespace) -> tuple[Search, list[Configuration], ModuleOp]:
    """The search, its configurations, and the model. Raises DistirError for a mistake in the options."""
    from distir.interpreters.entry import entry_function
    from distir.interpreters.machines import load_machine, with_settings
    from distir.passes.distribution.batch.batch_axis import left_out, parse_batch
    from distir.passes.distribution.pipeline.tasks import USUAL, numbers_on_each
    from distir.passes.search.configurations import grid
    from distir.passes.search.search import Search
    from distir.passes.structure import result_attributes, text
    from distir.tools.commands.model import load_model

    if args.pin is not None:
        from distir.tools.plan_files import read_plan
        from distir.tools.plan_runs import pin

        pin(args, read_plan(args.pin), args.pin)
    machine = load_machine(args.machine, args.settings)
    machine.check_devices(args.devices)
    degrees = Degrees.of(args, machine)
    shapes = shapes_of(args.shape)
    model = load_model(args.model)
    name = args.model if isinstance(args.model, str) else "the model"
    entry = entry_function(model)
    batch = parse_batch(args.batch, entry)
    if not batch:
        raise DistirError(f"{name} has no input with a batch dim: say which with --batch ARG:DIM")
    if not args.batch and (whole := left_out(batch, entry)):
        say(f"distir: note: {whole}: --batch says otherwise", sys.stderr)
    bind = binder_of(model, name, shapes, batch, args)
    batches = batch_sizes_of(args.batch_sizes) if args.batch_sizes else [_own_batch(name, model, shapes, batch)]
    training = any(text(a, "dist.role", "output") != "output" for a in result_attributes(entry))
    virtual = integers(args.virtual, "--virtual") if args.virtual else []
    usual = (*USUAL, *(["interleaved"] if max(virtual, default=1) > 1 else [])) if training else USUAL[:1]
    schedules = schedules_of(args.schedules) if args.schedules else usual
    for number in virtual:
        if number > 1 and not any(number in numbers_on_each(schedule, virtual) for schedule in schedules):
            raise DistirError(
                f"--virtual {number}: {', '.join(schedules)} have not so many stages on a rank: interleaved and looped-bfs do"
            )
    microbatches = integers(args.microbatches, "--microbatches") if args.microbatches else ()
    limit = (
        parse_bytes(args.memory_limit, "--memory-limit") if args.memory_limit else machine.device.memory_capacity_bytes
    )
    if args.matmul_keep and not args.matmul_type:
        raise DistirError("--matmul-keep: give --matmul-type too, which it leaves modules out of")
    if args.matmul_type and any(args.matmul_type not in g.device.peak_flops_per_second for g in machine.groups):
        raise DistirError(
            f"--matmul-type: {machine.name} has no rate for {args.matmul_type}: --set device.peak_flops_per_second.{args.matmul_type}=1e15"
        )
    if not args.time_limit > 0:
        raise DistirError(f"--time-limit: expected more than 0 seconds, got {args.time_limit:g}")
    sharing = degrees.sharing(args.devices)
    tries_sharing = "cp" not in degrees.ranges and training and _has_attention(model)
    if tries_sharing:
        sharing = [cp for cp in range(1, max(1, args.devices // max(batches)) + 1) if args.devices % cp == 0]
    policies = policies_of(args.recompute)
    overlap, tries_overlap = args.overlap is True, args.overlap is None and training
    configurations = [
        c
        for c in grid(
            args.devices,
            batches,
            microbatches,
            schedules,
            degrees.allows,
            policies,
            virtual,
            overlap,
            sharing,
            degrees.replicate,
        )
        if c.cp == 1 or not tries_sharing or c.dp * c.microbatches == c.batch
    ]
    if pinned := getattr(args, "pinned", None):
        from distir.tools.plan_runs import fits

        configurations = [c for c in configurations if fits(pinned, c)]
    if not configurations and (args.pin or (str(degrees) and not pinned)):
        raise DistirError(
            f"{f'--pin {args.pin}' if pinned else degrees}: no plan for {args.devices} devices and a batch of {' or '.join(map(str, batches))}"
        )
    search = Search(
        bind,
        with_settings(args.machine, args.settings),
        args.cost_model,
        limit,
        args.batch,
        restrict="dp=batch" if training else "dp=batch,tp=model",
        overlapped=args.top if tries_overlap else 0,
        tries_groups=training and not args.zero == 0 and "dp-replicate" not in degrees.ranges and pinned is None,
        tries_fewer_layers="none" in policies and len(policies) > 1 and pinned is None,
        wanted=0 if args.exhaustive or args.csv or args.report else args.top,  # files have the figures of all plans
        divides=args.divide,
        zero=args.zero,
        seconds=args.time_limit,
    )
    return search, configurations, model


def _has_attention(model: ModuleOp) -> bool:
    from distir.dialects.attention import AttentionOp

    return any(isinstance(op, AttentionOp) for op in model.walk())


def binder_of(
    model: ModuleOp, name: str, shapes: dict[str, tuple[int, ...]], batch: dict[int, int], args: Namespace
) -> Callable[[int], ModuleOp]:
    """Gives the model at a batch size: its batch dims set, its other open dims as `--shape` says. The types inside follow
    when it is prepared; those of a program that is not prepared again, here. With `--gradient-type` or `--matmul-type` it is prepared, and gradients are
    cast, or products say their type."""
    from xdsl.context import Context

    from distir.frontends.shapes import argument_dims, argument_name, bind_arguments
    from distir.interpreters.entry import entry_function
    from distir.passes.dtp_parallelize import prepare
    from distir.passes.gradient_type import GradientTypePass
    from distir.passes.matmul_type import MatmulTypePass
    from distir.passes.structure import is_annotated
    from distir.tools.commands.model import make_static, require_bound

    def bind(size: int) -> ModuleOp:
        module = model.clone()
        entry = entry_function(module)
        bound = dict(shapes)
        for index, dim in batch.items():
            argument, dims = argument_name(entry, index), argument_dims(entry, index) or []
            if isinstance(dims[dim], int) and dims[dim] != size:
                raise DistirError(
                    f"{name}: the batch of '{argument}' is fixed to {dims[dim]}, so a batch of {size} needs a model with "
                    "an open batch dimension"
                )
            known = list(bound.get(argument, [d for d in dims if isinstance(d, int)]))
            if len(known) == len(dims):
                known[dim] = size
            elif len(known) == len(dims) - 1 and not isinstance(dims[dim], int):
                known.insert(dim, size)
            else:
                require_bound(module, name)
            bound[argument] = tuple(known)
        bind_arguments(entry, bound)
        require_bound(module, name)
        if is_annotated(module):
            make_static(module, name)
        if args.gradient_type or args.matmul_type:
            prepare(Context(), module)
        if args.gradient_type:
            GradientTypePass(args.gradient_type, args.batch).apply(Context(), module)
        if args.matmul_type:
            MatmulTypePass(args.matmul_type, args.matmul_keep or "").apply(Context(), module)
        return module

    return bind


def _own_batch(name: str, model: ModuleOp, shapes: dict[str, tuple[int, ...]], batch: dict[int, int]) -> int:
    """The batch size that the model, or `--shape`, has."""
    from distir.frontends.shapes import argument_dims, argument_name
    from distir.interpreters.entry import entry_function

    entry = entry_function(model)
    for index, dim in batch.items():
        dims = shapes.get(argument_name(entry, index)) or argument_dims(entry, index) or []
        if dim < len(dims) and isinstance(extent := dims[dim], int):
            return extent
    raise DistirError(
        f"{name}: the batch dimension is open: give --batch-sizes, or --shape {argument_name(entry, min(batch))}=..."
    )


def _walk(search: Search | SharedSearch, configurations: Sequence[Configuration]) -> tuple[list[Outcome], bool]:
    """Evaluates all configurations under a progress bar; Ctrl-C ends the walk and keeps what was found."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    outcomes: list[Outcome] = []
    columns = (TextColumn("searching"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("plans", total=len(configurations))
        try:
            for outcome in search.outcomes(configurations):
                outcomes.append(outcome)
                progress.advance(task)
        except KeyboardInterrupt:
            return outcomes, True
    return outcomes, False
