"""What a search simulates of a plan: of replicas and of tensor ranks that are alike, one. The figures are those of the whole
program, bit for bit."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import fsum

from xdsl.ir import Operation

from distir.interpreters.cost_models import CostModel
from distir.interpreters.machines import Machine
from distir.interpreters.simulate import Summary, SummaryMemo, summarize
from distir.interpreters.simulate.batches import BatchSummaries, BatchSummary
from distir.interpreters.simulate.expansion import Expansion
from distir.interpreters.simulate.holdings import peak_of
from distir.interpreters.simulate.kinds import by_kind
from distir.interpreters.simulate.occupancy import by_axis, device_times
from distir.interpreters.simulate.reading import Reader
from distir.interpreters.simulate.summaries import OpenProgram, in_seconds, open_program
from distir.interpreters.work import Kind
from distir.passes.distribution.pipeline.assemble import Assembler
from distir.passes.distribution.pipeline.layout import Layout
from distir.passes.distribution.pipeline.staged import StagedProgram
from distir.passes.search.configurations import Details, Figures

Busy = Mapping[int, Mapping[str, float]]
"""Seconds of devices by kind."""


@dataclass(frozen=True)
class Representative:
    """The entry of a plan, or what the first replica does of it, by all tensor ranks or by the first."""

    copies: int
    """Replicas that it stands for."""
    ranks: int
    """Tensor ranks that each of its devices stands for."""
    spared: Sequence[tuple[Operation, int]]
    """What the first of these ranks does not do, each time that it does not, and its device."""

    def busy(self, all_: Busy, first: Busy) -> list[tuple[str, float]]:
        """Kinds, and the seconds that any device spends on them: of what is simulated, and of the first rank of each."""
        return [*_items(all_) * (self.copies * (self.ranks - 1)), *_items(first) * self.copies]


@contextmanager
def representative(staged: StagedProgram, layout: Layout, schedule: str, model: CostModel) -> Generator[Representative]:
    """The entry is in the staged program's module meanwhile."""
    alone = layout.dp > 1 and model.is_by_levels and _replicas_are_alike(layout, model.machine)
    assembler = Assembler(staged, layout, schedule, alone=alone)
    assembler.build()
    spared = [each for replica in assembler.replicas for each in replica.spared]
    try:
        yield Representative(layout.dp if alone else 1, layout.tp // staged.ranks, spared)
    finally:
        assembler.remove()


def _replicas_are_alike(layout: Layout, machine: Machine) -> bool:
    """Whether every replica's devices lie alike in the machine, so that all do the same at the same time."""
    devices = [[d for p in range(layout.pp) for d in layout.group(p, r)] for r in range(layout.dp)]
    return machine.is_uniform and len({machine.pattern(each) for each in devices}) == 1


def figures_of_batches(
    staged: StagedProgram, layout: Layout, schedule: str, rows: Sequence[int], summaries: BatchSummaries
) -> dict[int, Figures]:
    """The figures of a plan at each number of rows of a microbatch. Raises OverflowError where 64 bits may not hold them."""
    with representative(staged, layout, schedule, summaries.library.costs.model) as part:
        found = summaries.of(staged.module, rows)
    spent = summaries.spent(part.spared)
    figures: dict[int, Figures] = {}
    for r, summary in zip(rows, found, strict=True):
        column = summaries.rows.index(r)
        first = summary.without({key: int(each[column]) for key, each in spent.items()})
        figures[r] = figures_of(summary, part.busy(summary.busy_seconds, first.busy_seconds))
    return figures


def figures_of_one(
    staged: StagedProgram,
    layout: Layout,
    schedule: str,
    machine: Machine,
    cost_model: str,
    memo: SummaryMemo,
    reader: Reader,
) -> Figures:
    """The figures of a plan whose staged program is at its own batch. The reader is of the program's module."""
    costs = memo.known(machine, cost_model, ()).library.costs
    with representative(staged, layout, schedule, costs.model) as part:
        summary = summarize(staged.module, machine, cost_model, memo=memo, reader=reader)
    busy = {device: dict(kinds) for device, kinds in summary.busy_picoseconds.items()}
    for (device, kind), picoseconds in costs.spent(part.spared).items():
        busy[device][kind] -= picoseconds
    return figures_of(summary, part.busy(summary.busy_seconds, in_seconds(busy)))


def details_of_one(
    staged: StagedProgram,
    layout: Layout,
    schedule: str,
    machine: Machine,
    cost_model: str,
    memo: SummaryMemo,
    reader: Reader,
) -> Details:
    """Memory and communication of such a plan."""
    with representative(staged, layout, schedule, memo.known(machine, cost_model, ()).library.costs.model) as part:
        devices = layout.devices // (part.copies * part.ranks)
        return details_of(open_program(staged.module, machine, cost_model, memo=memo, reader=reader), devices)


def details_of(program: OpenProgram, devices: int | None = None) -> Details:
    """Memory of the fullest device at its peak, by kind, and communication by axis, on average over all devices or over so many, which are those
    that are simulated."""
    expansion, summary = Expansion(program), program.summary()
    peaks = summary.peak_memory_bytes
    memory = by_kind(peak_of(expansion, max(peaks, key=lambda device: peaks[device])).holdings)
    total = max(summary.makespan_picoseconds * (devices or summary.devices), 1)
    along = by_axis(device_times(expansion))
    return Details(memory, {axis: (time.exposed / total, time.hidden / total) for axis, time in along.items()})


def figures_of_program(program: OpenProgram, overlap: bool) -> Figures:
    """The figures of a whole program, by itself; with `overlap`, of one whose streams run side by side."""
    summary = program.summary()
    if not overlap:
        return figures_of(summary)
    times = device_times(Expansion(program))  # times of streams do not add up
    total = max(summary.makespan_picoseconds * summary.devices, 1)
    shares = [sum(time.compute for time in times) / total, sum(time.communication for time in times) / total]
    return Figures(summary.makespan_seconds, max(summary.peak_memory_bytes.values(), default=0), shares[0], shares[1])


def figures_of(simulation: Summary | BatchSummary, busy: Sequence[tuple[str, float]] | None = None) -> Figures:
    """What a simulation says, where this is what all devices spend on each kind; otherwise it is what its own devices do."""
    if busy is None:
        busy = _items(simulation.busy_seconds)
    makespan = simulation.makespan_seconds
    total = max(makespan * max(1, len(simulation.peak_memory_bytes)), 1e-30)
    kinds = {kind.value for kind in Kind}
    compute = fsum(seconds for kind, seconds in busy if kind in kinds)  # in whatever order they come
    communication = fsum(seconds for kind, seconds in busy if kind not in kinds)
    peak = max(simulation.peak_memory_bytes.values(), default=0)
    return Figures(makespan, peak, compute / total, communication / total)


def _items(by_device: Busy) -> list[tuple[str, float]]:
    return [item for kinds in by_device.values() for item in kinds.items()]
