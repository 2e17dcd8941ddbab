"""The search over plans that the pipeline of passes makes: in go a model and configurations, out come the figures of the program that
`dtp-parallelize{sharding=ilp grouped=true}` writes for each. Nothing else is simulated, and the best plan's text is that program.

Configurations are looked at in the order of what they can reach at most, until no other can be among the fastest."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from time import monotonic

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import Machine, load_machine
from distir.interpreters.simulate import SummaryMemo, summarize
from distir.interpreters.simulate.summaries import open_program
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.pipeline.stages import (
    BACKWARD,
    FORWARD,
    UPDATE,
    WEIGHTS,
    phase_of,
    stage_calls,
    stage_of,
)
from distir.passes.distribution.pipeline.tasks import is_plain, splits_backward, stages_of, table_of
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare, preparing
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.recompute_activations import RecomputeActivationsPass
from distir.passes.search.best_first import BestFirst, Fastest
from distir.passes.search.configurations import UNSEEN, Configuration, Details, Outcome, ranked
from distir.passes.search.representative import details_of, figures_of_program
from distir.passes.sharding.search import NothingFits, TooSlow

PHASES = (FORWARD, BACKWARD, WEIGHTS, UPDATE)
SECONDS_PER_PLAN = 120.0
"""For choosing the sharding of one plan: what is best is proven if that is enough, and otherwise the best that was found."""
MOST_KEPT = 16
"""Programs of the fastest plans that are kept: one that is chosen again, in other time, may be another."""


@dataclass
class StagedSearch:
    """Evaluates configurations of one model. `bind(batch)` gives the level 1 program at a batch size, afresh; `machine` is a name or a path."""

    bind: Callable[[int], ModuleOp]
    machine_name: str
    cost_model: str
    memory_limit_bytes: int
    batch: str = ""
    tries_overlap: bool = False
    """Whether messages have streams of their own also where a configuration does not ask for it, if that is faster and fits."""
    wanted: int = 0
    """How many of the fastest plans are wanted; 0: the figures of all."""
    divides: bool = False
    """Whether each plan divides first (`ilp-shard{divide}`)."""
    zero: int = 0
    """What replicas store in parts (`zero-partition`); 0: what is fastest."""
    seconds: float = inf
    """For all plans together."""
    fastest: Fastest | None = None
    """The plans that processes found that share the search."""
    _end: float = inf
    _speeds: dict[tuple[int | str, ...], float] = field(default_factory=dict[tuple[int | str, ...], float])
    """Samples per second of the programs that are kept."""
    _bases: dict[int, ModuleOp] = field(default_factory=dict[int, ModuleOp])
    _sharded: dict[tuple[int | str, ...], ModuleOp | DistirError] = field(
        default_factory=dict[tuple[int | str, ...], "ModuleOp | DistirError"]
    )
    """Programs before their schedule, which depend on that only where it has other stages than plain ones: of the last plan, and of the fastest."""
    _seconds: dict[tuple[str, int, int, bool, bool], list[Sequence[float]]] = field(
        default_factory=dict[tuple[str, int, int, bool, bool], "list[Sequence[float]]"]
    )
    """Of the stages of a model, by policy of recomputation, batch, stages, whether there are several microbatches, and whether backward parts are in two."""
    _memo: SummaryMemo = field(default_factory=SummaryMemo)

    @cached_property
    def machine(self) -> Machine:
        return load_machine(self.machine_name)

    def base(self, batch: int) -> ModuleOp:
        """The annotated program at a batch size."""
        if batch not in self._bases:
            self._bases[batch] = self.bind(batch)
            prepare(Context(), self._bases[batch])
        return self._bases[batch]

    def passes(self, c: Configuration) -> DtpParallelizePass:
        """The pass that writes a configuration's program."""
        return DtpParallelizePass(
            dp=c.dp,
            tp=c.tp,
            pp=c.pp,
            microbatches=c.microbatches,
            schedule=c.schedule,
            recompute=c.recompute,
            batch=self.batch,
            machine=self.machine_name,
            cost_model=self.cost_model,
            overlap=c.overlap,
            virtual=c.virtual,
            sharding="ilp",
            memory_limit=str(self.memory_limit_bytes),
            restrict="dp=batch",
            time_limit=max(1.0, min(SECONDS_PER_PLAN, self._end - monotonic())),
            grouped=True,
            divide=self.divides,
            zero=self.zero,
        )

    def program(self, c: Configuration, cutoff: float = inf) -> ModuleOp:
        """The distributed program of a configuration. Raises DistirError where none fits, or the rules or the batch forbid it, and TooSlow."""
        passes = [
            replace(each, cutoff=cutoff) if isinstance(each, IlpShardPass) and cutoff < inf else each
            for each in self.passes(c).pipeline()[len(preparing()) :]
        ]
        last = next(i for i, each in enumerate(passes) if isinstance(each, ApplyShardingPass)) + 1
        key = _kept_as(c)
        if key not in self._sharded:
            for other in [each for each in self._sharded if each not in self._speeds]:
                del self._sharded[other]
            module = self.base(c.batch).clone()
            try:
                with contextlib.redirect_stderr(io.StringIO()):  # notes on plans that nobody may take
                    for each in passes[:last]:
                        each.apply(Context(), module)
                self._sharded[key] = module
            except TooSlow:  # by this schedule
                raise
            except DistirError as error:
                self._sharded[key] = error
        if isinstance(found := self._sharded[key], DistirError):
            raise found
        module = found.clone()
        for each in passes[last:]:
            each.apply(Context(), module)
        return module

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        """Makes what all configurations share: the annotated programs."""
        for batch in {c.batch for c in configurations}:
            self.base(batch)

    def outcomes(self, configurations: Sequence[Configuration], known: Sequence[Outcome] = ()) -> Iterator[Outcome]:
        """Simulates all configurations that are wanted, as far as there is time. What is `known` of other plans says which to look at soon, and
        what is too slow."""
        try:
            yield from self._outcomes(configurations, known)
        finally:
            self._end = inf

    def _outcomes(self, configurations: Sequence[Configuration], known: Sequence[Outcome]) -> Iterator[Outcome]:
        start = monotonic()
        self._end = start + self.seconds
        queue = BestFirst(self.wanted or len(configurations) + len(known) + 1, self.fastest)
        for outcome in known:
            queue.note(outcome)
        waiting = dict.fromkeys(configurations)
        same = {c.plan: c for c in configurations}
        for c in [same[plan] for o in ranked(known) if (plan := o.configuration.plan) in same]:
            if monotonic() >= start + self.seconds / 2:
                break
            del waiting[c]
            yield self._noted(queue, c)
        for c in list(waiting):
            if monotonic() >= start + self.seconds * 3 / 4:
                break
            try:
                queue.add({c: self.least_seconds(c) if self.wanted else 0.0})
            except DistirError as error:
                del waiting[c]
                yield Outcome(c, None, str(error))
        while monotonic() < self._end and (found := queue.next()) is not None:
            for c in found[1]:
                del waiting[c]
                yield self._noted(queue, c)
        for outcome in queue.slower():
            del waiting[outcome.configuration]
            yield outcome
        yield from (Outcome(c, None, f"{UNSEEN} {self.seconds:.3g} s") for c in waiting)

    def _noted(self, queue: BestFirst, c: Configuration) -> Outcome:
        try:
            outcome = queue.note(self.evaluate(c, queue.cutoff(c)))
        except TooSlow as error:
            return queue.too_slow(c, error.least_seconds)
        if outcome.dropped is None:
            key, speeds = _kept_as(c), self._speeds
            speeds[key] = max(outcome.throughput, speeds.get(key, 0.0))
            if len(speeds) > MOST_KEPT:
                del speeds[min(speeds, key=lambda each: speeds[each])]
        return outcome

    def evaluate_alone(self, c: Configuration) -> Outcome:
        """Exactly this one."""
        return self._evaluate(c)

    def evaluate(self, c: Configuration, cutoff: float = inf) -> Outcome:
        """Simulates one configuration; with `tries_overlap`, what comes out may be the same with messages on streams. Raises TooSlow where it is known
        to take longer than `cutoff` seconds."""
        alone = self._evaluate(c, cutoff)
        if not self.tries_overlap or c.overlap or alone.dropped is not None:
            return alone
        beside = self._evaluate(replace(c, overlap=True))
        return beside if beside.dropped is None and beside.throughput > alone.throughput else alone

    def _evaluate(self, c: Configuration, cutoff: float = inf) -> Outcome:
        try:
            module = self.program(c, cutoff)
            figures = figures_of_program(module, self.machine, self.cost_model, c.overlap, self._memo)
            figures = replace(figures, details=self._details(module))
        except TooSlow:
            raise
        except NothingFits as error:
            least, limit = error.least_bytes, self.memory_limit_bytes / 1e9
            return Outcome(
                c, None, f"needs at least {least / 1e9:.1f} GB of memory, the limit is {limit:.1f} GB", least
            )
        except DistirError as error:
            return Outcome(c, None, str(error))
        if figures.peak_memory_bytes > self.memory_limit_bytes:
            peak, limit = figures.peak_memory_bytes / 1e9, self.memory_limit_bytes / 1e9
            return Outcome(c, figures, f"needs {peak:.1f} GB of memory, the limit is {limit:.1f} GB")
        return Outcome(c, figures)

    def details(self, c: Configuration) -> Details:
        """What a plan's memory and communication are."""
        return self._details(self.program(c))

    def _details(self, module: ModuleOp) -> Details:
        return details_of(open_program(module, self.machine, self.cost_model, memo=self._memo))

    def least_seconds(self, c: Configuration) -> float:
        """What a plan takes at least, as far as an operation on a shard takes no smaller share of the time than the shard is of the whole. A
        rank waits for the first microbatch to come through the stages before its own; after the last one, the ranks of these have their backward
        part to do.
        Raises DistirError where the model has not so many stages."""
        stages = self._stages(c)
        ranks, first, ends = self._ranks(c, len(stages)), stages[0][-1], list[float]()
        for own in ranks:
            before = stages[: min(own)]
            waited, back = (sum(stage[i] for stage in before) / c.microbatches for i in (0, 1))
            forward, backward, weights, update = (sum(stages[stage][i] for stage in own) for i in range(4))
            ends.append(waited + forward + backward + max(weights + update, back + (first if before else 0.0)))
        return max(ends) / (c.dp * c.tp)

    def _ranks(self, c: Configuration, stages: int) -> Sequence[Sequence[int]]:
        """The stages of each rank."""
        if is_plain(c.schedule):
            return [[stage] for stage in range(stages)]
        homes = table_of(c.schedule, c.pp, c.microbatches, stages).rank_of
        return [[stage for stage, home in enumerate(homes) if home == rank] for rank in range(c.pp)]

    def _stages(self, c: Configuration) -> list[Sequence[float]]:
        """Seconds that one device takes for each stage: forward, backward, gradients that no stage waits for, and the update."""
        stages, splits = stages_of(c.schedule, c.pp, c.virtual), splits_backward(c.schedule)
        key = (
            c.recompute,
            c.batch,
            stages,
            c.microbatches > 1,
            splits,
        )  # stages begin at the same operations whatever the number
        if key not in self._seconds:
            module = self.base(c.batch).clone()
            cut = PipelineStagesPass(stages, self.batch, self.machine_name, c.microbatches, 1, splits, self.divides)
            cut.apply(Context(), module)
            RecomputeActivationsPass(c.recompute, self.machine_name, self.cost_model).apply(Context(), module)
            found = [[0.0] * len(PHASES) for _ in range(stages)]
            for call in stage_calls(entry_function(module)):
                if (phase := phase_of(call)) in PHASES:
                    time = summarize(module, self.machine, self.cost_model, call.callee.string_value(), memo=self._memo)
                    found[stage_of(call)][PHASES.index(phase)] += time.makespan_seconds
            self._seconds[key] = list(found)
        return self._seconds[key]


def _kept_as(c: Configuration) -> tuple[int | str, ...]:
    """What a program before its schedule depends on."""
    schedule = "" if is_plain(c.schedule) else c.schedule
    return c.recompute, c.batch, c.dp, c.tp, c.pp, c.microbatches, schedule, c.virtual
