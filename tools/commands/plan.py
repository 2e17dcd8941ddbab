"""`distir plan`: plan files (docs/plans.md): what one says, what makes two differ, the program of one, and what other tools' configurations are as plans."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import Any

from distir.dialects.errors import DistirError
from distir.tools.commands.cache import add_no_cache
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.report import bytes_text, check_output, print_table, say, seconds_text, write_whole
from distir.tools.plan_comparison import Step, compare
from distir.tools.plan_files import MachineReference, ModelReference, PlanFile, hash_of, read_plan
from distir.tools.plan_formats import NAMES, load_format, read_config
from distir.tools.plan_runs import not_simulated, run_of

EXAMPLES = """\
examples:
  distir search gpt2.mlir --machine dgx-2 --devices 16 -o best.json
  distir search gpt2.mlir --machine dgx-2 --devices 16 --row 3 -o third.json
  distir plan show best.json
  distir plan compare third.json best.json      what each difference costs
  distir plan apply best.json -o best.mlir      the distributed program
  distir plan import torchtitan llama3_8b.toml --devices 64 -o today.json
  distir plan import megatron --devices 16 -o today.json -- --tensor-model-parallel-size 8 --micro-batch-size 4 --global-batch-size 512
  distir plan export megatron best.json         the arguments that launch it
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "plan",
        help="plan files: show, compare, apply; from and to other tools",
        description="Works with plan files, which distir search -o PLAN.json writes.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="what a plan says", formatter_class=HelpFormatter, allow_abbrev=False)
    show.add_argument("plan", metavar="PLAN.json")
    show.add_argument("--json", action="store_true", help="print it as JSON")
    show.set_defaults(run=run_show)
    apply = actions.add_parser(
        "apply", help="simulate a plan, and write its program", formatter_class=HelpFormatter, allow_abbrev=False
    )
    apply.add_argument("plan", metavar="PLAN.json")
    apply.add_argument("-o", "--output", metavar="OUT.mlir", help="write the distributed program")
    apply.set_defaults(run=run_apply)
    against = actions.add_parser(
        "compare",
        help="what differs, and what each difference costs",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    against.add_argument("first", metavar="A.json")
    against.add_argument("second", metavar="B.json")
    against.set_defaults(run=run_compare)
    taken = actions.add_parser(
        "import", help="another tool's configuration as a plan", formatter_class=HelpFormatter, allow_abbrev=False
    )
    taken.add_argument("tool", metavar="TOOL", help=", ".join(NAMES))
    taken.add_argument(
        "source", metavar="FILE|ARGS", nargs="+", help="its configuration; Megatron-LM's arguments also after --"
    )
    taken.add_argument("-o", "--output", metavar="PLAN.json", help="write the plan (default: print it)")
    taken.add_argument(
        "--devices", metavar="N", type=int, help="how many there are, where the configuration does not say"
    )
    taken.add_argument("--batch-size", metavar="N", type=int, help="of a step, where the configuration does not say")
    taken.add_argument("--model", metavar="MODEL", help="the model that it is for")
    taken.add_argument("--machine", metavar="M", help="the machine that it is for")
    taken.add_argument("--json", action="store_true", help="print the plan, and what it cannot say, as JSON")
    taken.set_defaults(run=run_import)
    given = actions.add_parser(
        "export", help="a plan as another tool's configuration", formatter_class=HelpFormatter, allow_abbrev=False
    )
    given.add_argument("tool", metavar="TOOL", help=", ".join(NAMES))
    given.add_argument("plan", metavar="PLAN.json")
    given.add_argument("-o", "--output", metavar="FILE", help="write it (default: print it)")
    given.add_argument("--json", action="store_true", help="print the configuration, and what it cannot say, as JSON")
    given.set_defaults(run=run_export)
    for each in (apply, against):
        each.add_argument("--model", metavar="MODEL", help="the model (default: the one that the plan names)")
        each.add_argument("--machine", metavar="M", help="the machine (default: the one that the plan names)")
        each.add_argument("--json", action="store_true", help="print the figures as JSON")
        add_no_cache(each)


def run_show(args: Namespace) -> int:
    plan = read_plan(args.plan)
    if args.json:
        print(plan.text(), end="")
        return 0
    shapes = ", ".join(f"{name} {'x'.join(map(str, sizes))}" for name, sizes in plan.model.shapes.items())
    rows = [
        ("model", " ".join(filter(None, (plan.model.path or "not named", shapes)))),
        ("machine", " ".join([plan.machine.name or "not named", *plan.machine.settings])),
        ("devices", str(plan.devices)),
        *((name, "-" if value is None else _shown(name, value)) for name, value in plan.settings.items()),
        *((name, _shown(name, value)) for name, value in plan.figures.items() if value is not None),
        ("distir", plan.distir),
    ]
    print_table(rows)
    return 0


def _shown(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return bytes_text(value)
    if name.endswith("latency_seconds"):
        return seconds_text(value)
    if name == "mfu" or name.endswith("_share"):
        return f"{value:.1%}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def run_apply(args: Namespace) -> int:
    if args.output is not None:
        check_output(args.output)
    plan = read_plan(args.plan)
    _say_what_is_not_simulated(plan, args.plan)
    run = run_of(plan, args.plan, args.model, args.machine, no_cache=args.no_cache)
    found = run.row.as_dict()
    if args.json:
        print(json.dumps({"plan": found, "dropped": run.outcome.dropped}, indent=2))
    else:
        rows = [(n, _shown(n, v), _against(n, v, plan)) for n, v in found.items() if v is not None and n != "rank"]
        print_table(rows, ("", "simulated", "the plan says" if plan.figures else ""))
    if run.outcome.dropped is not None:
        say(f"distir: note: the plan {run.outcome.dropped}", sys.stderr)
    if args.output is not None:
        run.row.save(args.output)
        say(f"wrote the program to {args.output}", sys.stderr if args.json else None)
    return 0


def _against(name: str, value: Any, plan: PlanFile) -> str:
    said = plan.figures.get(name, plan.settings.get(name))
    return "" if said is None else "the same" if said == value else _shown(name, said)


def run_compare(args: Namespace) -> int:
    plans = read_plan(args.first), read_plan(args.second)
    for plan, path in zip(plans, (args.first, args.second), strict=True):
        _say_what_is_not_simulated(plan, path)
    steps = compare(plans, (args.first, args.second), args.model, args.machine, no_cache=args.no_cache)
    if args.json:
        print(json.dumps([step.as_dict() for step in steps], indent=2))
        return 0
    if len(steps) == 1:
        print("no setting differs")
    print_table([_step_row(step, before) for step, before in zip(steps, [None, *steps], strict=False)],
                ("from the first plan", "step time", "", "memory", "", "time of devices"))  # fmt: skip
    return 0


def _step_row(step: Step, before: Step | None) -> tuple[str, ...]:
    """What a difference costs beside the plan before it."""
    if before is None:
        changes = ("", "")
    else:
        pairs = ((before.seconds, step.seconds), (before.memory_bytes, step.memory_bytes))
        changes = tuple(f"{new / old - 1:+.1%}" if old else "" for old, new in pairs)
    time, memory = seconds_text(step.seconds), bytes_text(step.memory_bytes)
    limit = ", ".join(f"{kind} {share:.0%}" for kind, share in step.shares.items() if round(share * 100))
    return (step.name + ("" if step.fits else " (does not fit)"), time, changes[0], memory, changes[1], limit)


def _say_what_is_not_simulated(plan: PlanFile, path: str) -> None:
    if others := not_simulated(plan):
        say(f"distir: note: {path}: not simulated: {', '.join(others)}", sys.stderr)


def run_import(args: Namespace) -> int:
    if args.output is not None:
        check_output(args.output)
    if args.devices is not None and args.devices < 1:
        raise DistirError("--devices: expected at least 1")
    found = read_config(args.tool, " ".join(args.source), args.devices)
    settings = found.settings | ({} if args.batch_size is None else {"batch_size": args.batch_size})
    model = ModelReference() if args.model is None else ModelReference(args.model, hash_of(args.model))
    plan = PlanFile(settings, model, MachineReference(args.machine))
    for line in found.unsaid:
        say(f"distir: note: a plan cannot say: {line}", sys.stderr)
    if args.output is not None:
        plan.save(args.output)
        say(f"wrote the plan to {args.output}", sys.stderr)
    if args.json:
        print(json.dumps({"plan": json.loads(plan.text()), "unsaid": found.unsaid}, indent=2))
    elif args.output is None:
        print(plan.text(), end="")
    return 0


def run_export(args: Namespace) -> int:
    if args.output is not None:
        check_output(args.output)
    text, unsaid = load_format(args.tool).write(read_plan(args.plan))
    if args.json:
        print(json.dumps({"tool": args.tool, "configuration": text, "unsaid": list(unsaid)}, indent=1))
        if args.output is None:
            return 0
    for line in unsaid:
        say(f"distir: note: {args.tool} cannot say: {line}", sys.stderr)
    if args.output is None:
        print(text, end="")
        return 0
    write_whole(args.output, lambda stream: stream.write(text.encode()))
    say(f"wrote the configuration to {args.output}", sys.stderr)
    return 0
