"""The output of a search. In go plans; out come the table of the fastest on the terminal, the object of `--json`,
and the lines of `--csv`."""

from __future__ import annotations

import csv
import io
import sys
from shutil import get_terminal_size
from typing import Any

from distir.tools.commands.report import assumed_text, print_table, say
from distir.tools.plans import IMPOSSIBLE, Plans, kind_of

NARROWEST = 80
"""Columns of a table of plans, on a terminal that has no more, and where there is none."""


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
    if found := assumed_text(assumed(plans)):
        say(f"assumed: a flop for each element, of {found} on one device")


def assumed(plans: Plans) -> dict[str, float]:
    """At the batch size of the best plan; nothing without one."""
    return plans[0].source.assumed(plans[0].configuration.batch) if plans else {}


def figures(plans: Plans, top: int) -> dict[str, Any]:
    """What `--json` prints."""
    dropped = [o for o in plans.outcomes if o.dropped is not None]
    return {
        "plans": [plan.as_dict() for plan in plans[:top]],
        "front": [plan.rank for plan in plans.front()],
        "assumed": assumed(plans),
        "planned": plans.planned,
        "fitting": len(plans),
        "interrupted": plans.interrupted,
        "dropped": [
            {
                "batch_size": o.configuration.batch,
                "dp": o.configuration.dp,
                "dp_replicate": o.configuration.dp_replicate,
                "cp": o.configuration.cp,
                "tp": o.configuration.tp,
                "pp": o.configuration.pp,
                "microbatches": o.configuration.microbatches,
                "schedule": o.configuration.schedule,
                "virtual_stages": o.configuration.virtual,
                "recompute": o.configuration.recompute,
                "reason": o.dropped,
            }
            for o in dropped
        ],
    }


def as_csv(plans: Plans) -> str:
    """All plans: those that fit by rank, then the others with the reason."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = (
        "batch_size",
        "dp",
        "dp_replicate",
        "cp",
        "tp",
        "pp",
        "microbatches",
        "schedule",
        "virtual_stages",
        "recompute",
        "overlap",
    )
    others = [name for name in (plans[0].as_dict() if plans else ()) if name not in ("rank", *names)]
    writer.writerow([*names, *others, "dropped"])
    for plan in plans:
        numbers = plan.as_dict() | {"schedule": plan.configuration.schedule}
        writer.writerow([*_cells(numbers, *names, *others), ""])
    for outcome in (o for o in plans.outcomes if o.dropped is not None):
        c, f = outcome.configuration, outcome.figures
        known = {} if f is None else {**f.as_dict(), "throughput_per_second": outcome.throughput}
        numbers = {**known, "batch_size": c.batch, "virtual_stages": c.virtual, **vars(c)}
        writer.writerow([*_cells(numbers, *names, *others), outcome.dropped])
    return text.getvalue()


def _cells(numbers: dict[str, Any], *names: str) -> list[str]:
    """Of some columns; shares have six digits."""
    found = [(name, numbers.get(name)) for name in names]
    return ["" if v is None else f"{v:.6f}" if n.endswith("_share") else str(v) for n, v in found]
