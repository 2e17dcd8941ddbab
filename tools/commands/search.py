"""`distir search`: walks a grid of D/T/P plans for a model on a machine, ranks them, and writes the best one's program."""

from __future__ import annotations

import csv
import io
import json
import sys
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Callable, Sequence
from math import inf
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, NamedTuple

from distir.dialects.errors import DistirError
from distir.interpreters.byte_sizes import parse_bytes
from distir.tools.commands.cache import add_no_cache
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.model import add_model_arguments
from distir.tools.commands.report import (
    add_settings,
    assumed_text,
    bytes_text,
    check_output,
    facts_of,
    print_table,
    say,
    write_whole,
)
from distir.tools.constraints import Degrees, add_constraints, integers
from distir.tools.plan_source import PlanSource
from distir.tools.plans import IMPOSSIBLE, Plans, kind_of

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from distir.passes.search.configurations import Configuration, Outcome
    from distir.passes.search.shared_search import AnySearch, SharedSearch
    from distir.tools.today import Today

EXAMPLES = """\
examples:
  distir search gpt2.onnx --shape input1=64,1,128 --machine dgx-2 --devices 16
  distir search gpt2.onnx --shape input1=64,1,128 --machine dgx-2 --devices 16 --batch-sizes 128..1024 --csv plans.csv
  distir search mlp.onnx --shape x=512,64 --shape z=512,64 --machine dgx-a100 --devices 8 -o best.mlir
"""

INTERRUPTED = 130
MOST_DEVICES = 1 << 20
"""The grid is tried degree by degree: more would not end."""
NARROWEST = 80
"""Columns of a table of plans, on a terminal that has no more, and where there is none."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "search",
        help="rank the ways to distribute a model over a machine",
        description="Simulates every data x tensor x pipeline parallel plan on N devices of a machine, and ranks them by "
        "throughput. Stop early with Ctrl-C: what was found so far is reported and written.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    add_model_arguments(parser)
    parser.add_argument("--machine", metavar="M", required=True, help="one of distir machines, or a .toml file")
    add_settings(parser)
    parser.add_argument("--devices", metavar="N", type=int, required=True, help="dp * tp * pp of every plan")
    parser.add_argument(
        "--batch-sizes", metavar="A,B|A..B", help="global batches; A..B doubles from A (default: the model's)"
    )
    add_constraints(parser)
    parser.add_argument("--microbatches", metavar="K,...", help="for plans with a pipeline (default: 2,4,...,128)")
    parser.add_argument(
        "--schedules",
        metavar="S,...",
        help="for plans with a pipeline: 1f1b, gpipe, pipedream, a plug-in's, or a FILE.csv of PyTorch's; with --sharding ilp also interleaved, "
        "looped-bfs, zb-h1, zbv and dualpipev (default: 1f1b, and gpipe to train)",
    )
    parser.add_argument(
        "--recompute",
        metavar="P,...",
        default="none",
        help="policies of recompute-activations to choose from: none, full, selective, full:2 (layers of each stage), NAME+NAME, ...; all: the first three "
        "(default: none)",
    )
    parser.add_argument(
        "--batch", metavar="ARG:DIM,...", default="", help="batch dims (default: dim 0 of inputs and labels)"
    )
    parser.add_argument("--cost-model", metavar="C", default="analytic", help="how costs are found (default: analytic)")
    parser.add_argument("--memory-limit", metavar="BYTES", help="per device, as in 28GB (default: the machine's)")
    parser.add_argument(
        "--exhaustive",
        action="store_true",
        help="simulate also plans that cannot fit, or cannot be among the best (--csv and --report: these always)",
    )
    parser.add_argument(
        "--sharding",
        choices=("auto", "dtp", "ilp"),
        default="auto",
        help="dtp: replicas hold all state, tensor ranks cut weights; ilp: D cuts the batch and T whatever is fastest, and both cut parameters and "
        "state where that is faster or fits (dtp-parallelize{sharding=ilp}), and gradients are accumulated also without a pipeline; auto: dtp, and to train "
        "ilp too, as long as there is time (default)",
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        help="for plans with --sharding ilp, those that promise most first (default: with auto as long as those of dtp take, at least 30; else as long "
        "as it takes)",
    )
    parser.add_argument(
        "--divide",
        action="store_true",
        help="with --sharding ilp, which it means: plans divide parameters and work first, also where a faster one does not (small models)",
    )
    parser.add_argument(
        "--zero",
        metavar="STAGE",
        type=int,
        choices=range(4),
        default=0,
        help="with --sharding ilp, which it means: replicas store state (1), gradients (2) and parameters (3) in parts (0: what is fastest)",
    )
    parser.add_argument(
        "--virtual",
        metavar="V,...",
        help="stages on each rank, by schedules that leave it open (interleaved, looped-bfs), of which one is looked at too (default: 2)",
    )
    parser.add_argument(
        "--overlap",
        action=BooleanOptionalAction,
        help="messages on streams of their own, beside computation (default: to train, where a plan is faster so and fits)",
    )
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="processes that share the search (default: 1)")
    parser.add_argument("--top", metavar="K", type=int, default=10, help="how many plans to print (default: 10)")
    parser.add_argument("--json", action="store_true", help="print the plans as JSON")
    parser.add_argument("--csv", metavar="F.csv", help="write all plans, those that were dropped too")
    parser.add_argument("--report", metavar="F.html", help="write a page with all plans, throughput against memory")
    add_no_cache(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write a plan: its program (.mlir), or the plan itself (.json)"
    )
    parser.add_argument(
        "--execute-top",
        metavar="N",
        type=int,
        help="run the N best plans here, one process per device: measured beside simulated",
    )
    parser.add_argument("--measure", metavar="N", type=int, default=5, help="runs of each of them (default: 5)")
    parser.add_argument(
        "--executions",
        metavar="F.json",
        help="keep what was measured, and begin with what this file has (--execute-top)",
    )
    parser.add_argument("--row", metavar="N", type=int, default=1, help="which plan -o writes (default: 1, the best)")
    parser.add_argument(
        "--from-config",
        metavar="TOOL:CONFIG",
        help="what is run today, simulated too: megatron:'ARGUMENTS', or megatron, torchtitan, deepspeed or accelerate and a file",
    )
    parser.add_argument(
        "--pin", metavar="PLAN.json", help="look at plans with the settings of this file only (docs/plans.md)"
    )
    parser.set_defaults(run=run)


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
    from distir.passes.search.configurations import distinct
    from distir.passes.search.search import leave_collector_off

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
    planned = len({c.plan for c in configurations})
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
        figures = _figures(plans, args.top)
        more = {} if executions is None else {"executed": executions.as_dict()}
        print(json.dumps(figures | more if now is None else {**figures, **more, "today": now.data}, indent=2))
    elif executions is not None:
        executions.report()
    say_to = sys.stderr if args.json else None
    if args.csv is not None:
        write_whole(args.csv, lambda stream: stream.write(_csv(plans).encode()))
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
            facts["a flop for each element is assumed of"] = assumed_text(_assumed(plans))
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
        degrees = f"D={c.dp} T={c.tp} P={c.pp} K={c.microbatches}"
        say(f"wrote {which} (batch {c.batch}, {degrees}{recompute}) to {args.output}", say_to)
    return INTERRUPTED if plans.interrupted else 0


def open_search(args: Namespace) -> tuple[AnySearch, list[Configuration], ModuleOp]:
    """The search, its configurations, and the model. Raises DistirError for a mistake in the options."""
    from distir.interpreters.entry import entry_function
    from distir.interpreters.machines import load_machine, with_settings
    from distir.passes.distribution.batch.batch_axis import parse_batch
    from distir.passes.distribution.pipeline.tasks import USUAL, is_plain, numbers_on_each
    from distir.passes.recomputation.policies import Policy
    from distir.passes.search.configurations import PAPER_MICROBATCHES, grid
    from distir.passes.search.joint_search import JointSearch
    from distir.passes.search.recomputed_search import RecomputedSearch
    from distir.passes.search.search import Search
    from distir.passes.search.staged_search import StagedSearch
    from distir.passes.structure import result_attributes, text
    from distir.tools.commands.model import load_model

    if args.pin is not None:
        from distir.tools.plan_files import read_plan
        from distir.tools.plan_runs import pin

        pin(args, read_plan(args.pin), args.pin)
    machine = load_machine(args.machine, args.settings)
    machine.check_devices(args.devices)
    degrees = Degrees.of(args, machine)
    shapes = _shapes(args.shape)
    model = load_model(args.model)
    name = args.model if isinstance(args.model, str) else "the model"
    entry = entry_function(model)
    batch = parse_batch(args.batch, entry)
    if not batch:
        raise DistirError(f"{name} has no input with a batch dim: say which with --batch ARG:DIM")
    bind = _binder(model, name, shapes, batch)
    batches = _batch_sizes(args.batch_sizes) if args.batch_sizes else [_own_batch(name, model, shapes, batch)]
    training = any(text(a, "dist.role", "output") != "output" for a in result_attributes(entry))
    virtual = integers(args.virtual, "--virtual") if args.virtual else []
    usual = (*USUAL, *(["interleaved"] if max(virtual, default=1) > 1 else [])) if training else USUAL[:1]
    schedules = _schedules(args.schedules) if args.schedules else usual
    for number in virtual:
        if number > 1 and not any(number in numbers_on_each(schedule, virtual) for schedule in schedules):
            raise DistirError(
                f"--virtual {number}: {', '.join(schedules)} have not so many stages on a rank: interleaved and looped-bfs do"
            )
    microbatches = integers(args.microbatches, "--microbatches") if args.microbatches else PAPER_MICROBATCHES
    limit = (
        parse_bytes(args.memory_limit, "--memory-limit") if args.memory_limit else machine.device.memory_capacity_bytes
    )
    if args.divide and args.sharding == "dtp":
        raise DistirError("--divide: --sharding dtp always cuts contractions: leave it out, or give --sharding ilp")
    if args.zero and args.sharding == "dtp":
        raise DistirError("--zero: with --sharding dtp replicas hold all state: leave it out, or give --sharding ilp")
    if args.time_limit is not None and not args.time_limit > 0:
        raise DistirError(f"--time-limit: expected more than 0 seconds, got {args.time_limit:g}")
    needs_ilp = args.divide or args.zero > 0
    if (other := next((each for each in schedules if not is_plain(each)), None)) and args.sharding == "dtp":
        raise DistirError(
            f"--schedules: {other} has several stages on a rank, or backward parts in two: give --sharding ilp"
        )
    policies = _policies(args.recompute, args.sharding)
    shardings = [args.sharding]
    if args.sharding == "auto":
        counted = any(Policy.read(policy).counts for policy in policies)
        shardings = ["ilp"] if needs_ilp or counted else ["dtp", "ilp"] if training else ["dtp"]
    plain = [schedule for schedule in schedules if is_plain(schedule)]
    shardings = [sharding for sharding in shardings if sharding == "ilp" or plain]
    overlap, tries_overlap = args.overlap is True, args.overlap is None and training
    configurations = [
        c
        for sharding in shardings
        for c in grid(
            args.devices,
            batches,
            microbatches,
            schedules if sharding == "ilp" else plain,
            sharding,
            degrees.allows,
            policies,
            virtual,
            overlap,
        )
    ]
    if pinned := getattr(args, "pinned", None):
        from distir.tools.plan_runs import fits

        configurations = [c for c in configurations if fits(pinned, c)]
    if not configurations and (pinned or str(degrees)):
        raise DistirError(
            f"{f'--pin {args.pin}' if pinned else degrees}: no plan for {args.devices} devices and a batch of {' or '.join(map(str, batches))}"
        )
    wanted = 0 if args.csv or args.report else args.top  # files have the figures of all plans
    name = with_settings(args.machine, args.settings)
    given = args.cost_model, limit, args.batch, tries_overlap
    staged = StagedSearch(bind, name, *given, wanted, args.divide, args.zero)
    staged.wanted = 0 if args.exhaustive else wanted
    staged.seconds = args.time_limit or inf
    if "dtp" not in shardings:
        return staged, configurations, model
    known = bind, machine, *given, args.exhaustive, wanted
    fast = (
        RecomputedSearch(*known, machine_name=name)
        if set(policies) - {"none"} or any(c.tp > 1 for c in configurations)
        else Search(*known)
    )
    return fast if shardings == ["dtp"] else JointSearch(fast, staged, args.time_limit), configurations, model


def _binder(
    model: ModuleOp, name: str, shapes: dict[str, tuple[int, ...]], batch: dict[int, int]
) -> Callable[[int], ModuleOp]:
    """Gives the model at a batch size: its batch dims set, its other open dims as `--shape` says. The types inside follow
    when it is prepared; those of a program that is not prepared again, here."""
    from distir.frontends.shapes import argument_dims, argument_name, bind_arguments
    from distir.interpreters.entry import entry_function
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


def _walk(search: AnySearch | SharedSearch, configurations: Sequence[Configuration]) -> tuple[list[Outcome], bool]:
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


def report(plans: Plans, top: int) -> None:
    """Prints the fastest plans, and what became of the others."""
    if plans:
        print_plans(plans, top)
    print(plans.summary())
    if slower := [o.configuration.batch / o.least_seconds for o in plans.outcomes if o.least_seconds]:
        print(f"  slower: at most {max(slower):,.1f} samples/s, by what they compute and send at least")
    impossible = {o.dropped for o in plans.outcomes if o.dropped is not None and o.figures is None}
    for reason in sorted(reason for reason in impossible if kind_of(reason) == IMPOSSIBLE):
        say(f"  not possible: {reason}")


def print_plans(plans: Plans, top: int) -> None:
    """Prints the fastest plans, with as many columns as a terminal is wide, and what their tokens are."""
    pipelines = {plan.configuration.schedule for plan in plans[:top] if plan.configuration.pp > 1}
    width = max(NARROWEST, get_terminal_size().columns if sys.stdout.isatty() else 0)
    table = plans.table(top).within(
        width, *(["schedule"] if len(pipelines) < 2 else []), "latency", "batch", "hidden", "comm"
    )
    print_table(table.rows, table.columns)
    if pipelines and "schedule" not in table.columns:
        print(f"schedule {min(pipelines)}")
    best = plans[0].configuration
    work = plans[0].source.work(best.batch)
    if work.tokens is not None:
        say(f"{work.tokens.per_sample} tokens per sample, by the dims of '{work.tokens.input}'")
    if assumed := assumed_text(_assumed(plans)):
        say(f"assumed: a flop for each element, of {assumed} on one device")


def _assumed(plans: Plans) -> dict[str, float]:
    """At the batch size of the best plan; nothing without one."""
    return plans[0].source.assumed(plans[0].configuration.batch) if plans else {}


def _figures(plans: Plans, top: int) -> dict[str, Any]:
    """What `--json` prints."""
    dropped = [o for o in plans.outcomes if o.dropped is not None]
    return {
        "plans": [plan.as_dict() for plan in plans[:top]],
        "front": [plan.rank for plan in plans.front()],
        "assumed": _assumed(plans),
        "planned": plans.planned,
        "fitting": len(plans),
        "interrupted": plans.interrupted,
        "dropped": [
            {
                "batch_size": o.configuration.batch,
                "dp": o.configuration.dp,
                "tp": o.configuration.tp,
                "pp": o.configuration.pp,
                "microbatches": o.configuration.microbatches,
                "schedule": o.configuration.schedule,
                "virtual_stages": o.configuration.virtual,
                "recompute": o.configuration.recompute,
                "sharding": o.configuration.sharding,
                "reason": o.dropped,
            }
            for o in dropped
        ],
    }


def _csv(plans: Plans) -> str:
    """All plans: those that fit by rank, then the others with the reason."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("batch_size", "dp", "tp", "pp", "microbatches", "schedule", "virtual_stages")
    names += ("recompute", "sharding", "overlap")
    figures = [name for name in (plans[0].as_dict() if plans else ()) if name not in ("rank", *names)]
    writer.writerow([*names, *figures, "dropped"])
    for plan in plans:
        numbers = plan.as_dict() | {"schedule": plan.configuration.schedule}
        writer.writerow([*_cells(numbers, *names, *figures), ""])
    for outcome in (o for o in plans.outcomes if o.dropped is not None):
        c, f = outcome.configuration, outcome.figures
        known = {} if f is None else {**f.as_dict(), "throughput_per_second": outcome.throughput}
        numbers = {**known, "batch_size": c.batch, "virtual_stages": c.virtual, **vars(c)}
        writer.writerow([*_cells(numbers, *names, *figures), outcome.dropped])
    return text.getvalue()


def _cells(numbers: dict[str, Any], *names: str) -> list[str]:
    """Of some columns; shares have six digits."""
    found = [(name, numbers.get(name)) for name in names]
    return ["" if v is None else f"{v:.6f}" if n.endswith("_share") else str(v) for n, v in found]


def _shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    from distir.frontends.shapes import parse_shape

    return dict(map(parse_shape, texts))


def _batch_sizes(text: str) -> list[int]:
    first, dots, last = text.partition("..")
    if not dots:
        return integers(text, "--batch-sizes")
    lows, highs = integers(first, "--batch-sizes"), integers(last, "--batch-sizes")
    if len(lows) != 1 or len(highs) != 1:
        raise DistirError(
            f"--batch-sizes: expected numbers with commas between them, or a range such as 8..64, got '{text}'"
        )
    (low,), (high,) = lows, highs
    if low > high:
        raise DistirError(f"--batch-sizes: {low}..{high} is empty")
    return [low << i for i in range((high // low).bit_length())]


def _policies(text: str, sharding: str) -> list[str]:
    from distir.passes.recomputation.policies import Policy

    policies = (
        ["none", "selective", "full"] if text == "all" else list(dict.fromkeys(p.strip() for p in text.split(",")))
    )
    for policy in policies:
        if Policy.read(policy).counts and sharding == "dtp":
            raise DistirError(f"--recompute {policy}: only --sharding ilp counts the layers of each stage")
    return policies


def _schedules(text: str) -> list[str]:
    from distir.passes.distribution.pipeline.tasks import check_schedule

    names = [name.strip() for name in text.split(",")]
    for name in names:
        check_schedule(name)
    return names
