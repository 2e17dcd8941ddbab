"""The points of a search. In go devices, batches, microbatches and schedules; out comes the grid of configurations.
Outcomes go in too, and come out ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from distir.passes.distribution.pipeline.tasks import USUAL, counts, is_plain, numbers_on_each

PAPER_MICROBATCHES = (2, 4, 8, 16, 32, 64, 128)
"""What the DistIR paper tries for pipelines (section 5.1); without a pipeline it has one microbatch."""


CUTS_LAYERS = "stages would begin inside repeated layers"
"""Why a pipeline was not looked at that is deeper than the model's entry has operations."""


UNSEEN = "not looked at within"
"""Why a plan has no figures for which there was no time."""


@dataclass(frozen=True)
class Configuration:
    """One point of the grid."""

    batch: int
    dp: int
    tp: int
    pp: int
    microbatches: int
    schedule: str
    recompute: str = "none"
    """The policy of `recompute-activations`."""
    virtual: int = 0
    """Stages on each rank of the pipeline; 0: as many as the schedule has."""
    overlap: bool = False
    """Whether messages have streams of their own."""
    cp: int = 1
    """Devices that share a sequence."""
    dp_replicate: int = 1
    """Groups of replicas that each hold all state."""

    @property
    def plan(self) -> Configuration:
        """The same whether or not messages have streams."""
        return replace(self, overlap=False)

    @property
    def rows(self) -> int:
        """Of a microbatch of one replica."""
        return self.batch // (self.dp * self.microbatches)

    @property
    def devices(self) -> int:
        return self.dp * self.cp * self.tp * self.pp

    @property
    def degrees_text(self) -> str:
        """Degrees and microbatches, as tables call them."""
        grouped = f" R={self.dp_replicate}" if self.dp_replicate > 1 else ""
        shared = f" C={self.cp}" if self.cp > 1 else ""
        return f"D={self.dp}{grouped}{shared} T={self.tp} P={self.pp} K={self.microbatches}"


@dataclass(frozen=True)
class Details:
    """What a plan's memory and communication are."""

    memory_by_kind: Mapping[str, int]
    """What the fullest device holds at its peak, by kind (`simulate/kinds`)."""
    communication: Mapping[str, tuple[float, float]]
    """By axis of the devices (`simulate/axes`): the shares of device time beside which the device computes nothing, and something."""


@dataclass(frozen=True)
class Figures:
    """What the simulation of a plan found. Shares are of device time, averaged over devices."""

    latency_seconds: float
    peak_memory_bytes: int
    compute_share: float
    communication_share: float
    details: Details | None = field(default=None, compare=False)
    """Where the search has looked."""

    @property
    def idle_share(self) -> float:
        return max(0.0, 1.0 - self.compute_share - self.communication_share)

    def as_dict(self) -> dict[str, float]:
        """By name, in the words of `--json`."""
        names = ("latency_seconds", "peak_memory_bytes", "compute_share", "communication_share", "idle_share")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Outcome:
    """A configuration and what became of it: figures, and why it is out if it is."""

    configuration: Configuration
    figures: Figures | None
    dropped: str | None = None
    least_memory_bytes: int = 0
    """Without figures: what its fullest device needs at least, as far as known."""
    least_seconds: float = 0.0
    """Of a plan that is not among the fastest: what it takes at least."""

    @property
    def needed_bytes(self) -> int:
        """What its fullest device needs, at least; 0 where that is not known."""
        return self.figures.peak_memory_bytes if self.figures else self.least_memory_bytes

    @property
    def throughput(self) -> float:
        """Samples per second; 0 without figures."""
        return self.configuration.batch / self.figures.latency_seconds if self.figures else 0.0


def degrees(devices: int) -> Iterator[tuple[int, int, int]]:
    """All (dp, tp, pp) whose product is the number of devices."""
    for tp in (t for t in range(1, devices + 1) if devices % t == 0):
        for pp in (p for p in range(1, devices // tp + 1) if devices // tp % p == 0):
            yield devices // tp // pp, tp, pp


def grid(
    devices: int,
    batches: Iterable[int],
    microbatches: Sequence[int],
    schedules: Sequence[str],
    allows: Callable[[int, int, int], bool] = lambda dp, tp, pp: True,
    policies: Sequence[str] = ("none",),
    virtual: Sequence[int] = (),
    overlap: bool = False,
    sharing: Sequence[int] = (1,),
    replicate: Callable[[int], Iterable[int]] = lambda dp: (1,),
) -> list[Configuration]:
    """All degrees that a user allows, whole rows for every microbatch of every replica, unless told 1, 2, 4, ... of them, and of a table from a file what it
    has. `virtual` says how many stages a rank has by schedules that leave it open, `sharing` how many devices may share a sequence, `replicate` in how many
    groups so many replicas may be."""
    alone = next((schedule for schedule in schedules if is_plain(schedule)), USUAL[0])
    return [
        Configuration(batch, dp, tp, pp, k, schedule, recompute, on_each, overlap, cp, groups)
        for recompute in policies
        for batch in batches
        for cp in sharing
        if devices % cp == 0
        for dp, tp, pp in degrees(devices // cp)
        if allows(dp, tp, pp)
        for k, schedule, on_each in (
            ordered(schedules, pp, microbatches or usual_microbatches(batch // dp), virtual)
            if pp > 1
            else [(k, alone, 1) for k in dict.fromkeys((1, *(microbatches or usual_microbatches(batch // dp))))]
        )
        if batch % (dp * k) == 0
        for groups in replicate(dp)
    ]


def usual_microbatches(rows: int) -> list[int]:
    """Numbers of microbatches that rows of a replica are cut into: those of 1, 2, 4, ... rows each, from 2 on and not many more than is worth while."""
    return [
        rows // each
        for each in (2**i for i in reversed(range(rows.bit_length())))
        if rows % each == 0 and 1 < rows // each <= PAPER_MICROBATCHES[-1]
    ]


def ordered(
    schedules: Sequence[str], ranks: int, microbatches: Sequence[int], virtual: Sequence[int] = ()
) -> list[tuple[int, str, int]]:
    """Numbers of microbatches, each with the schedules that have it and how many stages a rank has there."""
    found = [
        (k, schedule, on_each)
        for schedule in schedules
        for k in counts(schedule, ranks, microbatches)
        for on_each in numbers_on_each(schedule, virtual)
    ]
    return sorted(found, key=lambda each: each[0])


def distinct(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Of outcomes that differ only in whether messages have streams, the fastest that fits, or the last."""
    found: dict[Configuration, Outcome] = {}
    for outcome in outcomes:
        known = found.setdefault(outcome.configuration.plan, outcome)
        if known.dropped is not None or (outcome.dropped is None and outcome.throughput > known.throughput):
            found[outcome.configuration.plan] = outcome
    return list(found.values())


def ranked(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The plans that fit, fastest first; of equally fast ones the one that needs less memory, then fewer devices in
    groups."""
    fitting = [o for o in outcomes if o.figures is not None and o.dropped is None]

    def key(o: Outcome) -> tuple[float, ...]:
        return -o.throughput, o.figures.peak_memory_bytes if o.figures else 0, o.configuration.tp, o.configuration.pp

    return sorted(fitting, key=key)
