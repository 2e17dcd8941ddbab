"""`distir search --from-config TOOL:CONFIG`: the plan that a user runs today, beside the plans of a search. In go a
tool's configuration and the search; out come that plan's figures, simulated as all others are, and its rank among them."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from typing import Any, NamedTuple

from distir.dialects.errors import DistirError
from distir.tools.commands.report import bytes_text
from distir.tools.plan_files import PlanFile
from distir.tools.plan_formats import Imported, read_config
from distir.tools.plan_runs import PlanRun, not_simulated, pin
from distir.tools.plan_source import PlanSource
from distir.tools.plans import Plans

SAME = ("divide", "zero", "recompute", "gradient_type", "matmul_type", "matmul_keep")
"""Options of which a search has one value for all its plans."""


class Found(NamedTuple):
    """What is said of it: lines, and for `--json`."""

    lines: list[str]
    data: dict[str, Any]


@dataclass(frozen=True)
class Today:
    """What is run today."""

    found: Imported
    run: PlanRun

    @classmethod
    def of(cls, args: Namespace) -> Today:
        """What `--from-config` names; where no batch is given, its batch is that of the search. Raises DistirError."""
        tool, colon, source = str(args.from_config).partition(":")
        if not colon or not source:
            raise DistirError(f"--from-config {args.from_config}: expected TOOL:FILE, or megatron:'ARGUMENTS'")
        found = read_config(tool, source, args.devices)
        plan = PlanFile(found.settings)
        if plan.devices != args.devices:
            raise DistirError(f"--from-config {tool}: is for {plan.devices} devices, --devices {args.devices}")
        batch = plan.setting("batch_size")
        if args.batch_sizes is None and batch is not None:
            args.batch_sizes = str(batch)
        usual = {
            "dp": None,
            "dp_replicate": None,
            "cp": None,
            "tp": None,
            "pp": None,
            "microbatches": None,
            "schedules": None,
            "divide": False,
        }
        usual |= {
            "zero": None,
            "overlap": None,
            "virtual": None,
            "pin": None,
            "most_tensor": None,
            "tp_within_node": False,
            "from_config": None,
        }
        usual |= {"recompute": "none", "gradient_type": None, "matmul_type": None, "matmul_keep": None}
        own = Namespace(**{**vars(args), **usual, "batch_sizes": None if batch else args.batch_sizes})
        pin(own, plan, args.from_config)
        return cls(found, PlanRun(plan, own))

    def found_among(self, plans: Plans, source: PlanSource) -> Found:
        """How it does beside the plans that a search found; it may be one of them."""
        options = ([getattr(args, name, None) for name in SAME] for args in (self.run.args, source.args))
        try:
            self.run.share(source, next(options) == next(options))
            row = self.run.row
        except DistirError as error:
            lines = [f"today: {error}", *(f"  {note}" for note in self.notes())]
            return Found(lines, {"reason": str(error), "notes": self.notes()})
        c, speed, dropped = row.configuration, row.throughput_per_second, self.run.outcome.dropped
        rank = 1 + sum(each.throughput_per_second > speed for each in plans)
        slower = [o.configuration.batch / o.least_seconds for o in plans.outcomes if o.least_seconds]
        last = rank + sum(
            most > speed for most in slower
        )  # of plans that bounds excluded from the best, some may be faster
        ranks = f"rank {rank}" if last == rank else f"rank {rank} to {last}"
        settings = c.degrees_text + (f" {c.schedule}" if c.pp > 1 else "")
        does = dropped or f"{speed:,.1f} samples/s, {bytes_text(row.figures.peak_memory_bytes)}, {ranks}"
        ahead = plans.best.throughput_per_second / speed - 1 if plans else 0.0
        better = f"; the best plan is {ahead:.1%} faster" if ahead > 0 and dropped is None else ""
        data = {
            **row.as_dict(),
            "rank": None if dropped else rank,
            "rank_at_most": None if dropped else last,
            "reason": dropped,
            "notes": self.notes(),
        }
        return Found([f"today: {settings}: {does}{better}", *(f"  {note}" for note in self.notes())], data)

    def notes(self) -> list[str]:
        """What of it is not in the figures."""
        unknown = [f"a plan cannot say: {line}" for line in self.found.unsaid]
        return unknown + [f"not simulated: {line}" for line in not_simulated(self.run.plan)]
