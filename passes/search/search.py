"""The search over D/T/P plans: every configuration of a grid is built as the program it stands for and simulated.

What is simulated is what runs: the best plan's program is the one whose figures were printed. A configuration that the
rules forbid, or whose devices run out of memory, is kept with the reason."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import ceil
from time import monotonic

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.interpreters.costs import Costs
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import Machine
from distir.interpreters.simulate import SummaryMemo
from distir.interpreters.simulate.batches import MARK, BatchCosts, BatchSummaries
from distir.interpreters.simulate.reading import Reader
from distir.interpreters.simulate.summaries import open_program
from distir.interpreters.work import type_bytes
from distir.passes.distribution.batch.batch_axis import Phase, parse_batch
from distir.passes.distribution.batch.entry_axis import axis_of_entry
from distir.passes.distribution.options import SUM
from distir.passes.distribution.pipeline.at_rows import staged_at
from distir.passes.distribution.pipeline.layout import Layout
from distir.passes.distribution.pipeline.local_program import CutsLayers
from distir.passes.distribution.pipeline.staged import StagedProgram
from distir.passes.distribution.tensor.choices import TensorChoices
from distir.passes.distribution.tensor.tensor_axis import Variants
from distir.passes.overlap_communication import OverlapCommunicationPass
from distir.passes.search.best_first import BestFirst, Fastest, Program
from distir.passes.search.bounds import Bounds, Least
from distir.passes.search.configurations import CUTS_LAYERS, Configuration, Details, Figures, Outcome, ranked
from distir.passes.search.distribute import distribute, lower_stages
from distir.passes.search.representative import (
    details_of,
    details_of_one,
    figures_of_batches,
    figures_of_one,
    figures_of_program,
)
from distir.passes.structure import argument_attributes, text

MOST_WRITTEN_OUT = 128
"""Devices times microbatches of plans that are simulated with messages on streams unless asked: all that they do is written out."""
MOST_STAGED = 128
"""Programs of stages that are kept for configurations that are evaluated one by one: those that were used last."""


@dataclass
class Search:
    """Evaluates configurations of one model. `bind(batch)` gives the level 1 program at a batch size, afresh."""

    bind: Callable[[int], ModuleOp]
    machine: Machine
    cost_model: str
    memory_limit_bytes: int
    batch: str = ""
    overlapped: int = 0
    """How many of the fastest plans are simulated with messages on streams of their own too, where their programs are not long."""
    exhaustive: bool = False
    """Simulates also what cannot fit whatever its activations take."""
    wanted: int = 0
    """How many of the fastest plans are wanted: others, and what cannot fit, are not simulated where bounds say so
    (`bounds`), and no stage begins inside a repeated layer. 0: the figures of all."""
    fastest: Fastest | None = None
    """The plans that processes found that share the search."""
    choices: TensorChoices = field(default_factory=TensorChoices)
    """What is known of the tensor axis, to which is added what is found."""
    _bases: dict[int, ModuleOp] = field(default_factory=dict[int, ModuleOp])
    _memo: SummaryMemo = field(default_factory=SummaryMemo)
    _any_batch: ModuleOp | None = None
    _dims: dict[int, int] | None = None
    _bases_of_any_batch: dict[int, ModuleOp] = field(default_factory=dict[int, ModuleOp])
    _held: int | None = None
    _summed: int | None = None
    _variants: dict[tuple[int, int, bool], Variants] = field(default_factory=dict[tuple[int, int, bool], Variants])
    """By shards of the batch, stages, and whether these are of whole layers."""
    _for_all_rows: dict[tuple[int, int, int], StagedProgram] = field(
        default_factory=dict[tuple[int, int, int], StagedProgram]
    )
    """By ranks, stages and parts of the batch (one, or more): what those at each number of rows are made of."""
    _staged: dict[tuple[int, int, int, int], tuple[StagedProgram, Reader]] = field(
        default_factory=dict[tuple[int, int, int, int], tuple[StagedProgram, Reader]]
    )
    """By ranks, stages, parts of the batch (one, or more), and rows of a microbatch: what configurations that are evaluated one by one share."""
    _most_stages: dict[int, int] = field(default_factory=dict[int, int])
    """By shards of the batch, into how many stages the model can be cut between its layers, once that was too few."""

    def base(self, batch: int) -> ModuleOp:
        """The annotated program at a batch size. Once the search knows that its rules say how the model changes with the
        batch (`outcomes`), all sizes are made of one program."""
        from distir.passes.distribution.batch.rebatch import rebatch
        from distir.passes.dtp_parallelize import prepare

        if batch not in self._bases:
            if self._any_batch is not None:
                module = rebatch(self._any_batch, self.dims(self._any_batch), batch)
            else:
                module = self.bind(batch)
                prepare(Context(), module)
            self._bases = {batch: module}
        return self._bases[batch]

    def dims(self, module: ModuleOp) -> dict[int, int]:
        """The batch dims of the entry's arguments, which are those of the program for all batch sizes, if there is one."""
        if self._any_batch is None:
            return parse_batch(self.batch, entry_function(module))
        if self._dims is None:
            self._dims = parse_batch(self.batch, entry_function(self._any_batch))
        return self._dims

    def program(self, configuration: Configuration) -> ModuleOp:
        """The distributed program of a configuration. Raises DistirError where the rules or the batch forbid it."""
        module = self.base(configuration.batch).clone()
        c = configuration
        distribute(module, self.dims(module), c.layout, c.schedule, self.machine, self.choices, not c.overlap)
        if c.overlap:
            OverlapCommunicationPass().apply(Context(), module)
        return module

    def outcomes(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        """Simulates all configurations that are wanted, and the fastest with messages on streams too."""
        found: list[Outcome] = []
        for outcome in self._outcomes(configurations):
            found.append(outcome)
            yield outcome
        for each in ranked(found)[: self.overlapped]:
            c = replace(each.configuration, overlap=True)
            if not each.configuration.overlap and c.devices > 1 and c.devices * c.microbatches <= MOST_WRITTEN_OUT:
                yield self.evaluate(c)

    def _outcomes(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        """Those that differ in the batch alone are one program, built once, and those of equal stages share these."""
        self.prepare(configurations)
        if self._any_batch is None:
            yield from map(self.evaluate, configurations)
            return
        rows = sorted({c.rows for c in configurations})
        summaries = BatchSummaries(self.machine, self.cost_model, rows)
        alike: dict[tuple[int, int, bool], list[Configuration]] = {}
        for c in configurations:
            alike.setdefault((c.tp, c.pp, c.dp * c.microbatches > 1), []).append(c)
        with collector_paused():
            if self.wanted and not self.exhaustive:
                yield from self._best_first(list(alike.values()), summaries)
                return
            for group in alike.values():
                for item in self._opened(group, summaries):
                    yield from [item] if isinstance(item, Outcome) else self._simulated(item, summaries)

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        """Makes what all configurations share: the program for all batch sizes; that of one alone has its own."""
        if len(configurations) > 1 and not any(c.overlap for c in configurations):
            self._take_any_batch(configurations[0].batch)
        elif configurations and self._any_batch is None:
            self.base(configurations[0].batch)

    def _take_any_batch(self, batch: int) -> None:
        """Keeps the program at one batch size for all sizes, if its rules allow it."""
        if self._any_batch is not None:
            return
        from distir.passes.distribution.batch.rebatch import rebatch

        with suppress(DistirError):
            base = self.base(batch)
            self._bases_of_any_batch[2] = rebatch(base, self.dims(base), 2 * MARK)
            self._any_batch = base
            self._bases.clear()

    def _best_first(self, groups: Sequence[list[Configuration]], summaries: BatchSummaries) -> Iterator[Outcome]:
        """Simulates programs in the order of what they can reach at most, until no other can be among the fastest plans."""
        queue = BestFirst(self.wanted, self.fastest)
        for group in groups:
            queue.add(dict.fromkeys(group, 0.0))
        while (found := queue.next()) is not None:
            program, configurations = found
            if program is not None:
                yield from map(queue.note, self._simulated(program._replace(configurations=configurations), summaries))
                continue
            bounds: Bounds | None = None
            for item in self._opened(configurations, summaries):
                if isinstance(item, Outcome):
                    yield queue.note(item)
                    continue
                bounds = bounds or Bounds(item.staged, summaries)
                bytes_ = bounds.bytes(item.layout, item.schedule, [c.rows for c in item.configurations])
                large = {c: bytes_[c.rows] for c in item.configurations if bytes_[c.rows] > self.memory_limit_bytes}
                least = _least(bounds, item._replace(configurations=[c for c in item.configurations if c not in large]))
                large.update({c: each.bytes for c, each in least.items() if each.bytes > self.memory_limit_bytes})
                for c, needed in large.items():
                    yield self._too_large(c, needed, "needs at least")
                fitting = {c: each.seconds for c, each in least.items() if each.bytes <= self.memory_limit_bytes}
                queue.add(fitting, item)
        yield from queue.slower()

    def _opened(self, group: Sequence[Configuration], summaries: BatchSummaries) -> Iterator[Outcome | Program]:
        """Configurations whose stages are the same: their functions are built and understood once, for rows without number.
        Those that differ in the rows alone are one program."""
        first = group[0]
        if (least := self._held_bytes() / (first.tp * first.pp)) > self.memory_limit_bytes and not self.exhaustive:
            for c in group:
                yield self._too_large(c, ceil(least), "needs", " for parameters and state alone")
            return
        shards = _shards(first.layout)
        if first.pp > (most := self._most_stages.get(shards, first.pp)):
            yield from _cutting(group, CutsLayers(most, first.pp))
            return
        if self.wanted and not self.exhaustive and shards > 1:
            least += self._summed_bytes() / (first.tp * first.pp)
            if least > self.memory_limit_bytes:
                for c in group:
                    yield self._too_large(c, ceil(least), "needs", " for parameters, state and gradients alone")
                return
        try:
            self._choose_tensors(first.tp, shards)
        except DistirError:  # no T devices can share it, at any batch: said at its own size
            said = self.evaluate(first)
            yield said
            yield from (Outcome(c, None, said.dropped) if said.dropped else self.evaluate(c) for c in group[1:])
            return
        try:
            layout = Layout(shards, first.tp, first.pp, 1)
            whole = bool(self.wanted) and not self.exhaustive
            variants = self._variants_of(shards, first.pp, whole)
            staged = lower_stages(variants, layout, self.choices, summaries.library.costs)
        except CutsLayers as error:
            self._most_stages[shards] = error.operations
            yield from _cutting(group, error)
            return
        except DistirError:  # said of each at its own size
            yield from map(self.evaluate, group)
            return
        alike: dict[tuple[Layout, str], list[Configuration]] = {}
        for c in group:
            alike.setdefault((c.layout, c.schedule), []).append(c)
        for (layout, schedule), same in alike.items():
            yield Program(staged, layout, schedule, same)

    def _simulated(self, program: Program, summaries: BatchSummaries) -> Iterator[Outcome]:
        """The figures of a program's configurations."""
        configurations = program.configurations
        rows = [c.rows for c in configurations]
        try:
            found = figures_of_batches(program.staged, program.layout, program.schedule, rows, summaries)
        except (DistirError, OverflowError):
            yield from map(self.evaluate, configurations)
            return
        for c in configurations:
            yield self._outcome(c, found[c.rows])

    def _too_large(self, configuration: Configuration, least: int, needs: str, of_what: str = "") -> Outcome:
        limit = self.memory_limit_bytes / 1e9
        why = f"{needs} {least / 1e9:.1f} GB of memory{of_what}, the limit is {limit:.1f} GB"
        return Outcome(configuration, None, why, least)

    def _held_bytes(self) -> int:
        """Of parameters and state that the program uses: each is on one stage at least, on its T devices together."""
        if self._held is None:
            assert self._any_batch is not None
            entry = entry_function(self._any_batch)
            roles = [text(a, "dist.role", "input") for a in argument_attributes(entry)]
            arguments = zip(entry.body.block.args, roles, strict=True)
            kept = [v for v, role in arguments if role in ("parameter", "state") and v.first_use is not None]
            self._held = sum(type_bytes(v.type) for v in kept)
        return self._held

    def _summed_bytes(self) -> int:
        """Of what the loop over microbatches adds up for operations after it (gradients): when it ends, all of it is there, each
        on one stage at least, on its T devices together."""
        if self._summed is None:
            assert self._any_batch is not None
            module = self._marked(2).clone()
            entry = entry_function(module)
            axis = axis_of_entry(module, entry, self.dims(module), 2)
            after = [op for op, phase in axis.phases.items() if phase is Phase.AFTER]
            taken = dict.fromkeys([value for op in after for value in op.operands])
            self._summed = sum([type_bytes(v.type) for v in taken if axis.body.states[v] == SUM])
        return self._summed

    def _marked(self, shards: int) -> ModuleOp:
        """The program with a mark for the rows of each of so many parts of the batch."""
        if shards not in self._bases_of_any_batch:
            self._bases_of_any_batch[shards] = self.base(shards * MARK)
        return self._bases_of_any_batch[shards]

    def _choose_tensors(self, tp: int, shards: int) -> None:
        """Chooses the tensor axis once for all numbers of stages: on one stage, where repeated layers are tied."""
        if tp > 1 and tp not in self.choices.by_site:
            self._variants_of(shards, 1).choose(tp, self.choices)

    def _variants_of(self, shards: int, stages: int, whole_layers: bool = False) -> Variants:
        """The program of any batch in so many stages."""
        whole_layers = whole_layers and stages > 1
        key = (shards, stages, whole_layers)
        if key not in self._variants:
            module = self._marked(shards)
            self._variants[key] = Variants(module, self.dims(module), shards, stages, self.machine, whole_layers)
        return self._variants[key]

    def one_by_one(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        """Simulates configurations one after the other, each by a program at its own batch; those of equal stages and rows share the
        stage functions."""
        if configurations and not any(c.overlap for c in configurations):
            self._take_any_batch(configurations[0].batch)
        with collector_paused():
            yield from map(self.evaluate, configurations)

    def evaluate_alone(self, configuration: Configuration) -> Outcome:
        """Simulates one configuration as it is among others: its tensor axis is chosen for all batch sizes."""
        (outcome,) = self.one_by_one([configuration])
        return outcome

    def evaluate(self, configuration: Configuration) -> Outcome:
        """Simulates one configuration: what stands for its program at its own batch."""
        if configuration.overlap:
            return self.evaluate_whole(configuration)
        try:
            figures = self._figures_of_one(configuration)
        except DistirError:  # said of the whole
            return self.evaluate_whole(configuration)
        return self._outcome(configuration, figures)

    def evaluate_whole(self, configuration: Configuration) -> Outcome:
        """The same by the program of all devices."""
        sweep()
        try:
            program = open_program(self.program(configuration), self.machine, self.cost_model, memo=self._memo)
            figures = replace(figures_of_program(program, configuration.overlap), details=details_of(program))
        except DistirError as error:
            return Outcome(configuration, None, str(error))
        return self._outcome(configuration, figures)

    def details(self, c: Configuration) -> Details:
        """What a plan's memory and communication are."""
        sweep()
        memo = self._memo
        if not c.overlap:
            with suppress(DistirError), collector_paused():
                staged, reader = self._staged_with_reader(c)
                return details_of_one(staged, c.layout, c.schedule, self.machine, self.cost_model, memo, reader)
        return details_of(open_program(self.program(c), self.machine, self.cost_model, memo=memo))

    def _figures_of_one(self, configuration: Configuration) -> Figures:
        layout, schedule = configuration.layout, configuration.schedule
        staged, reader = self._staged_with_reader(configuration)
        return figures_of_one(staged, layout, schedule, self.machine, self.cost_model, self._memo, reader)

    def _staged_with_reader(self, configuration: Configuration) -> tuple[StagedProgram, Reader]:
        """The stage functions of a configuration, and what reads them."""
        layout = configuration.layout
        key = (layout.tp, layout.pp, _shards(layout), configuration.rows)
        if (known := self._staged.pop(key, None)) is None:
            staged = self._staged_at(configuration)
            known = staged, Reader(staged.module, self._memo.known(self.machine, self.cost_model, ()).library)
        self._staged[key] = known
        if len(self._staged) > MOST_STAGED:
            del self._staged[next(iter(self._staged))]
        return known

    def _staged_at(self, configuration: Configuration) -> StagedProgram:
        """The stage functions of a configuration, at its rows of a microbatch."""
        if self._any_batch is not None:
            with suppress(DistirError):  # these rows have functions of their own
                return staged_at(self._staged_for_all(configuration), configuration.rows, self._costs)
        module, layout = self.base(configuration.batch), configuration.layout
        shards = layout.dp * layout.microbatches
        cuts = self.choices.cuts.setdefault((layout.tp, layout.pp, shards > 1), {})
        variants = Variants(module, self.dims(module), shards, layout.pp, self.machine, cuts=cuts, used_once=True)
        if layout.tp > 1 and layout.tp not in self.choices.by_site:
            variants.choose(layout.tp, self.choices)
        return lower_stages(variants, layout, self.choices, self._costs)

    def _staged_for_all(self, configuration: Configuration) -> StagedProgram:
        """The stage functions of a configuration, for all rows that a microbatch may have."""
        tp, pp, shards = configuration.tp, configuration.pp, _shards(configuration.layout)
        if (tp, pp, shards) not in self._for_all_rows:
            self._choose_tensors(tp, shards)
            costs = BatchCosts(self._costs.model, [configuration.rows])
            staged = lower_stages(self._variants_of(shards, pp), Layout(shards, tp, pp, 1), self.choices, costs)
            self._for_all_rows[tp, pp, shards] = staged
        return self._for_all_rows[tp, pp, shards]

    @property
    def _costs(self) -> Costs:
        """Of operations at one batch."""
        return self._memo.known(self.machine, self.cost_model, ()).library.costs

    def _outcome(self, configuration: Configuration, figures: Figures) -> Outcome:
        if figures.peak_memory_bytes > self.memory_limit_bytes:
            peak, limit = figures.peak_memory_bytes / 1e9, self.memory_limit_bytes / 1e9
            return Outcome(configuration, figures, f"needs {peak:.1f} GB of memory, the limit is {limit:.1f} GB")
        return Outcome(configuration, figures)


def _shards(layout: Layout) -> int:
    """Parts of the batch in a program that serves any number of them: one, or more."""
    return 1 if layout.dp * layout.microbatches == 1 else 2


def _cutting(group: Sequence[Configuration], error: CutsLayers) -> Iterator[Outcome]:
    """Configurations that would cut repeated layers."""
    return (Outcome(c, None, f"{CUTS_LAYERS}: {error}") for c in group)


def _least(bounds: Bounds, program: Program) -> dict[Configuration, Least]:
    """What each configuration of a program takes at least; nothing where 64 bits may not hold it."""
    configurations = program.configurations
    if not configurations:
        return {}
    try:
        found = bounds.of(program.layout, program.schedule, [c.rows for c in configurations])
    except OverflowError:
        return dict.fromkeys(configurations, Least(0, 0))
    return {c: found[c.rows] for c in configurations}


MOST_UNSWEPT = 5_000_000
"""Objects that may be made, and not freed, before garbage is looked for: about a gigabyte."""
_next_sweep = 0.0
"""When garbage may be looked for again."""


def leave_collector_off() -> None:
    """No garbage collection until the process ends, nor then: for commands that end with a search, of which most stays (`sweep`)."""
    gc.disable()
    atexit.register(gc.freeze)


def sweep() -> None:
    """Frees programs that nothing needs any more, where many were made since the last time: before another is made, and in a tenth of the time at
    most."""
    global _next_sweep
    if gc.get_count()[0] > MOST_UNSWEPT and (start := monotonic()) >= _next_sweep:
        gc.collect()
        _next_sweep = monotonic() + 9 * (monotonic() - start)


@contextmanager
def collector_paused() -> Generator[None]:
    """No garbage collection: looking for cycles in programs that stay takes longer than building them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
