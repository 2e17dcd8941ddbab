"""Plans of a model, as Python has them. In goes what a search found; out come the plans that fit, fastest first, as a table (text, HTML, pandas)
and one by one, each with its figures and its program. `distir.search` makes them, and `distir search` prints them."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, overload

from distir.dialects.errors import DistirError
from distir.tools.commands.report import along_text, bytes_text, seconds_text, shown, table_text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from distir.passes.search.configurations import Configuration, Details, Figures, Outcome
    from distir.tools.plan_source import PlanSource


@dataclass(frozen=True)
class Table:
    """Rows of figures: text when printed, HTML in a notebook."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: Callable[[], Sequence[dict[str, Any]]] = tuple
    """The same as numbers, when they are asked for."""

    @cached_property
    def data(self) -> Sequence[dict[str, Any]]:
        """The same as numbers, for pandas."""
        return self.numbers()

    def within(self, width: int, *columns: str) -> Table:
        """Without as many of these columns, in turn, as it takes to be no wider."""
        for column in [each for each in columns if each in self.columns]:
            if max(map(len, str(self).splitlines())) <= width:
                break
            self = self.without(column)
        return self

    def without(self, column: str) -> Table:
        """Without one of its columns."""
        i = self.columns.index(column)
        rows = tuple(row[:i] + row[i + 1 :] for row in self.rows)
        return replace(self, columns=self.columns[:i] + self.columns[i + 1 :], rows=rows)

    def __str__(self) -> str:
        return table_text(self.rows, self.columns)

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """A `<table>`."""

        def row(tag: str, cells: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(shown(cell))}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(row("td", cells) for cells in self.rows)
        return f"<table><thead>{row('th', self.columns)}</thead><tbody>{body}</tbody></table>"

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` of the numbers. Raises DistirError where pandas is not installed."""
        try:
            import pandas  # pyright: ignore
        except ImportError as error:
            raise DistirError("to_pandas needs pandas, which is not installed: pip install pandas") from error
        return pandas.DataFrame(list(self.data))  # pyright: ignore


@dataclass(frozen=True)
class Plan:
    """One way to distribute the model."""

    rank: int
    """1 is the fastest."""
    configuration: Configuration
    figures: Figures
    source: PlanSource = field(repr=False)
    """The search that found it."""

    @property
    def throughput_per_second(self) -> float:
        """Samples."""
        return self.configuration.batch / self.figures.latency_seconds

    @cached_property
    def program(self) -> ModuleOp:
        """The distributed program (level 3), with the model's values: what was simulated, and what runs."""
        return self.source.program(self.configuration)

    @property
    def tokens_per_second(self) -> float | None:
        """None where the model has none (`interpreters/model_work`)."""
        tokens = self.source.work(self.configuration.batch).tokens
        return tokens and self.throughput_per_second * tokens.per_sample

    @property
    def model_flops_per_device_second(self) -> float:
        """Of the model's contractions, each once: what is computed anew does not count."""
        work = self.source.work(self.configuration.batch)
        return work.total_flops / (self.figures.latency_seconds * self.configuration.devices)

    @property
    def mfu(self) -> float | None:
        """Model flops utilization: of what the devices could do at their peaks, the share that the model's contractions are. None without any."""
        c, work = self.configuration, self.source.work(self.configuration.batch)
        peak = work.peak_flops_per_second(self.source.search.machine, c.devices)
        return work.total_flops / (self.figures.latency_seconds * peak) if peak else None

    @cached_property
    def _details(self) -> Details:
        return self.source.details(self.configuration, self.figures)

    @property
    def memory_by_kind(self) -> Mapping[str, int]:
        """What the fullest device holds at its peak: weights, gradients, optimizer state and activations."""
        return self._details.memory_by_kind

    @property
    def exposed_shares(self) -> dict[str, float]:
        """By axis (dp, cp, tp, pp), the share of device time in communication beside which the device computes nothing."""
        return self._shares(0)

    @property
    def hidden_shares(self) -> dict[str, float]:
        """By axis, the share of device time in communication beside which the device computes."""
        return self._shares(1)

    def _shares(self, kind: int) -> dict[str, float]:
        """Groups of replicas are with replicas."""
        axes = {axis: (axis, "dp_replicate") if axis == "dp" else (axis,) for axis in DEGREES}
        known = self._details.communication
        return {axis: sum(known.get(each, (0.0, 0.0))[kind] for each in parts) for axis, parts in axes.items()}

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the program, and its values beside it; to a file that is called .json, the plan (docs/plans.md)."""
        if fspath(path).endswith(".json"):
            from distir.tools.plan_runs import plan_file

            plan_file(self.source, self.configuration, self.as_dict()).save(fspath(path))
            return
        from distir.tools.commands.model import save_program

        save_program(self.program, fspath(path))

    def as_dict(self) -> dict[str, Any]:
        """The plan and its figures: bytes, seconds, shares of device time."""
        c, f = self.configuration, self.figures
        return {
            "rank": self.rank,
            "batch_size": c.batch,
            "dp": c.dp,
            "dp_replicate": c.dp_replicate,
            "cp": c.cp,
            "tp": c.tp,
            "pp": c.pp,
            "microbatches": c.microbatches,
            "schedule": c.schedule if c.pp > 1 else None,
            "virtual_stages": c.virtual,
            "recompute": c.recompute,
            "overlap": c.overlap,
            "throughput_per_second": self.throughput_per_second,
            "tokens_per_second": self.tokens_per_second,
            "latency_seconds": f.latency_seconds,
            "model_flops_per_device_second": self.model_flops_per_device_second,
            "mfu": self.mfu,
            "peak_memory_bytes": f.peak_memory_bytes,
            **{f"{kind}_bytes": bytes_ for kind, bytes_ in self.memory_by_kind.items()},
            "compute_share": f.compute_share,
            "communication_share": f.communication_share,
            "idle_share": f.idle_share,
            **{f"{axis}_exposed_share": share for axis, share in self.exposed_shares.items()},
            **{f"{axis}_hidden_share": share for axis, share in self.hidden_shares.items()},
        }


PLAN_COLUMNS = ("batch", "D", "R", "C", "T", "P", "K", "schedule")
"""What tables call a configuration's settings (`plan_cells`)."""
COLUMNS = (
    "rank",
    *PLAN_COLUMNS,
    "V",
    "recompute",
    "overlap",
    "samples/s",
    "latency",
    "memory",
    "MFU",
    "comm",
    "hidden",
    "bubble",
)
"""`comm` is the time of devices that goes to communication beside which they do not compute, by axis, `hidden` what goes to communication beside which they
do, `bubble` what they wait. Where the model has tokens, theirs are counted, not samples."""
DEGREES = ("dp", "cp", "tp", "pp")
IMPOSSIBLE = "are not possible"


@dataclass(frozen=True)
class Plans(Sequence[Plan]):
    """The plans that fit, fastest first."""

    ranked: tuple[Plan, ...]
    outcomes: tuple[Outcome, ...] = field(repr=False)
    """What became of every configuration that was looked at, those that were dropped too."""
    planned: int
    """Configurations of the grid."""
    interrupted: bool = False
    """Whether the search was stopped before its end."""

    @classmethod
    def of(
        cls,
        outcomes: Sequence[Outcome],
        source: PlanSource,
        planned: int,
        interrupted: bool = False,
    ) -> Plans:
        """What a search found, and what it knows beside."""
        from distir.passes.search.configurations import ranked

        plans = [(o.configuration, o.figures) for o in ranked(outcomes)]
        fitting = [Plan(rank, c, f, source) for rank, (c, f) in enumerate(plans, 1) if f is not None]
        return cls(tuple(fitting), tuple(outcomes), planned, interrupted)

    @overload
    def __getitem__(self, index: int) -> Plan: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Plan]: ...
    def __getitem__(self, index: int | slice) -> Plan | Sequence[Plan]:
        return self.ranked[index]

    def __len__(self) -> int:
        return len(self.ranked)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.ranked)

    @property
    def best(self) -> Plan:
        """The fastest. Raises DistirError, which says what the leanest plan needs, if none fits."""
        if not self.ranked:
            raise DistirError(self._nothing_fits())
        return self.ranked[0]

    def front(self) -> list[Plan]:
        """The plans that no other beats in both throughput and memory, fastest first."""
        found: list[Plan] = []
        for plan in self.ranked:
            if not found or plan.figures.peak_memory_bytes < found[-1].figures.peak_memory_bytes:
                found.append(plan)
        return found

    def table(self, top: int | None = None) -> Table:
        """One row per plan. Of groups of replicas (R), devices that share a sequence (C), virtual stages (V), recomputation, and streams of messages it says nothing where plans do not
        differ in it."""
        plans = self.ranked[:top]
        per_second = "samples/s" if any(plan.tokens_per_second is None for plan in plans) else "tokens/s"
        columns = tuple(per_second if name == "samples/s" else name for name in COLUMNS)
        table = Table(columns, tuple(map(_row, plans)), lambda: [plan.as_dict() for plan in plans])
        if all(plan.configuration.recompute == "none" for plan in self):
            table = table.without("recompute")
        table = without_usual(table, [plan.configuration for plan in self])
        if all(plan.configuration.virtual == 1 for plan in self):
            table = table.without("V")
        if len({plan.configuration.overlap for plan in self}) < 2:
            table = table.without("overlap")
        if not any(any(plan.hidden_shares.values()) for plan in plans):
            table = table.without("hidden")
        return table

    def compare(self, *plans: int | Plan) -> Table:
        """What differs between plans (by default the first two), a row per figure, with the last column beside the first in percent."""
        chosen = [self[p - 1] if isinstance(p, int) else p for p in plans] or list(self[:2])
        if len(chosen) < 2:
            raise DistirError(f"compare: expected at least two plans, got {len(chosen)}")
        dicts = [plan.as_dict() for plan in chosen]
        data = [
            {"figure": name, **{f"plan {plan.rank}": each[name] for plan, each in zip(chosen, dicts, strict=True)}}
            for name in dicts[0]
            if name != "rank" and len({each[name] for each in dicts}) > 1
        ]
        rows = [
            (d["figure"], *(_text(d["figure"], v) for v in list(d.values())[1:]), _change(*list(d.values())[1:]))
            for d in data
            if len({_text(d["figure"], v) for v in list(d.values())[1:]}) > 1
        ]
        columns = ("figure", *(f"plan {plan.rank}" for plan in chosen), "last against first")
        return Table(columns, tuple(rows), lambda: data)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`, a row per plan."""
        return self.table().to_pandas()

    def _repr_html_(self) -> str:
        return f"{self.table().html()}<p>{html.escape(self.summary())}</p>"

    def __str__(self) -> str:
        return "\n".join(filter(None, [str(self.table()) if self.ranked else "", self.summary()]))

    def summary(self) -> str:
        """How many plans were simulated, and what became of the others."""
        dropped = Counter(kind_of(o.dropped) for o in self.outcomes if o.dropped is not None)
        simulated = sum(o.figures is not None for o in self.outcomes)
        others = "".join(f"; {n} {kind}" for kind, n in dropped.items())
        early = "; stopped before its end" if self.interrupted else ""
        return f"{simulated} of {self.planned} plans simulated{others}{early}"

    def _nothing_fits(self) -> str:
        from distir.passes.search.configurations import UNSEEN

        built = [o.figures.peak_memory_bytes for o in self.outcomes if o.figures is not None]
        unbuilt = [o.least_memory_bytes for o in self.outcomes if o.least_memory_bytes]
        if (
            not built
            and not unbuilt
            and (late := [o.dropped for o in self.outcomes if (o.dropped or "").startswith(UNSEEN)])
        ):
            return f"no plan was found: {len(late)} were {late[0]}: allow more time (--time-limit)"
        if not built and not unbuilt:
            return f"no plan is possible: {self.outcomes[0].dropped if self.outcomes else 'the grid is empty'}"
        least = bytes_text(min(built)) if built else f"at least {bytes_text(min(unbuilt))}"
        return f"no plan fits: the leanest needs {least} per device; take more devices or a smaller batch"


def plan_cells(c: Configuration) -> tuple[str, ...]:
    """The cells of `PLAN_COLUMNS`."""
    numbers = (c.batch, c.dp, c.dp_replicate, c.cp, c.tp, c.pp, c.microbatches)
    return (*map(str, numbers), c.schedule if c.pp > 1 else "-")


def without_usual(table: Table, configurations: Sequence[Configuration]) -> Table:
    """The table without groups of replicas and shared sequences, where no configuration has any."""
    if all(c.cp == 1 for c in configurations):
        table = table.without("C")
    return table.without("R") if all(c.dp_replicate == 1 for c in configurations) else table


def _row(plan: Plan) -> tuple[str, ...]:
    c, f, tokens = plan.configuration, plan.figures, plan.tokens_per_second
    return (
        *(str(plan.rank), *plan_cells(c)),
        *(str(c.virtual), c.recompute, "yes" if c.overlap else "no"),
        f"{plan.throughput_per_second:,.1f}" if tokens is None else f"{tokens:,.0f}",
        *(seconds_text(f.latency_seconds), bytes_text(f.peak_memory_bytes)),
        "-" if plan.mfu is None else f"{plan.mfu:.1%}",
        *(along_text(plan.exposed_shares), along_text(plan.hidden_shares), f"{f.idle_share:.0%}"),
    )


def _text(figure: str, value: Any) -> str:
    if value is None:
        return "-"
    if figure.endswith("_seconds"):
        return seconds_text(value)
    if figure.endswith("_bytes"):
        return bytes_text(value)
    if figure.endswith("_share"):
        return f"{value:.1%}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _change(first: Any, *others: Any) -> str:
    """The last number beside the first; nothing of what is no number, as yes and no are none."""
    last = others[-1]
    if not first or isinstance(first, bool) or not isinstance(first, int | float) or not isinstance(last, int | float):
        return ""
    return f"{last / first - 1:+.1%}"


def kind_of(reason: str | None) -> str:
    """In what way a configuration is out."""
    from distir.passes.search.configurations import CUTS_LAYERS, UNSEEN

    kinds = (
        ("needs ", "exceed the memory"),
        ("takes ", "are slower"),
        (CUTS_LAYERS, "would cut repeated layers"),
        (UNSEEN, "were not looked at for want of time (--time-limit)"),
    )
    for start, kind in kinds:
        if reason is not None and reason.startswith(start):
            return kind
    return IMPOSSIBLE
