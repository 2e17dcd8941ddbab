"""The search over plans that the pipeline of passes makes: in go a model and configurations, out come the figures of the program that
`dtp-parallelize{sharding=ilp grouped=true}` writes for each. Nothing else is simulated, and the best plan's text is that program.

Configurations are looked at in the order of what they can reach at most, until no other can be among the fastest."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from time import monotonic

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from distir.dialects.errors import DistirError
from distir.interpreters.cost_models import CostModel, make_cost_model
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import Machine, load_machine
from distir.interpreters.simulate import SummaryMemo
from distir.interpreters.simulate.reading import Reader
from distir.interpreters.simulate.summaries import open_program
from distir.interpreters.work import type_bytes
from distir.passes.distribution.pipeline.local_program import CutsLayers
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
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.pipeline_schedule import PipelineSchedulePass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.recompute_activations import RecomputeActivationsPass
from distir.passes.search.best_first import BestFirst, Fastest
from distir.passes.search.configurations import CUTS_LAYERS, UNSEEN, Configuration, Details, Outcome, ranked
from distir.passes.search.representative import details_of, figures_of_program
from distir.passes.search.search import sweep
from distir.passes.sharding.search import NothingFits, NotInTime, TooSlow
from distir.passes.structure import argument_attributes, text

PHASES = (FORWARD, BACKWARD, WEIGHTS, UPDATE)
SECONDS_PER_PLAN = 120.0
"""For choosing the sharding of one plan: what is best is proven if that is enough, and otherwise the best that was found."""
STATE = ("parameter", "state", "buffer")
KNOWING = 1 / 8
"""This share of the time is kept to know the stages of all plans, which says what fits no device."""
MOST_KEPT = 16
"""Programs of the fastest plans that are kept: one that is chosen again, in other time, may be another."""


@dataclass
class Stage:
    """A stage of the model as one device would run it, on the whole batch."""

    seconds: list[float] = field(default_factory=lambda: [0.0] * len(PHASES))
    """Forward, backward, gradients that no stage waits for, and the update."""
    weights: int = 0
    """Bytes of parameters that no other stage takes."""
    state: int = 0
    """With what is kept for them."""
    kept: int = 0
    """Bytes that its forward part makes for its backward part."""


@dataclass
class StagedSearch:
    """Evaluates configurations of one model. `bind(batch)` gives the level 1 program at a batch size, afresh; `machine` is a name or a path."""

    bind: Callable[[int], ModuleOp]
    machine_name: str
    cost_model: str
    memory_limit_bytes: int
    batch: str = ""
    overlapped: int = 0
    """How many of the fastest plans are simulated with messages on streams of their own too."""
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
    _bases: dict[tuple[int, bool], ModuleOp] = field(default_factory=dict[tuple[int, bool], ModuleOp])
    _sharded: dict[tuple[int | str, ...], ModuleOp | DistirError] = field(
        default_factory=dict[tuple[int | str, ...], "ModuleOp | DistirError"]
    )
    """Programs before their schedule, which depend on that only where it has other stages than plain ones: of the last plan, and of the fastest."""
    _known: dict[tuple[str, int, bool, int, bool, bool], list[Stage]] = field(
        default_factory=dict[tuple[str, int, bool, int, bool, bool], "list[Stage]"]
    )
    """Of the stages of a model, by policy of recomputation, batch, whether devices share sequences, stages, whether there are several microbatches, and
    whether backward parts are in two."""
    _last_cut: tuple[tuple[int, ...], ModuleOp] | None = None
    """The last program in stages, and what it depends on: as many policies of recomputation as there are begin with it."""
    _most_stages: dict[int, int] = field(default_factory=dict[int, int])
    """By batch, into how many stages the model can be cut between its layers, once that was too few."""
    _memo: SummaryMemo = field(default_factory=SummaryMemo)

    @cached_property
    def _costs(self) -> CostModel:
        return make_cost_model(self.cost_model, self.machine)

    @cached_property
    def machine(self) -> Machine:
        return load_machine(self.machine_name)

    def base(self, batch: int, shares_sequences: bool = False) -> ModuleOp:
        """The annotated program at a batch size. Finding its rules is not of the time for plans."""
        if (key := (batch, shares_sequences)) not in self._bases:
            start = monotonic()
            self._bases[key] = self.bind(batch)
            prepare(Context(), self._bases[key], shares_sequences)
            self._end += monotonic() - start
        return self._bases[key]

    def passes(self, c: Configuration) -> DtpParallelizePass:
        """The pass that writes a configuration's program."""
        return DtpParallelizePass(
            dp=c.dp,
            cp=c.cp,
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
            for each in self.passes(c).planning()
        ]
        last = next(i for i, each in enumerate(passes) if isinstance(each, PipelineSchedulePass))
        key = _kept_as(c)
        if key not in self._sharded:
            for other in [each for each in self._sharded if each not in self._speeds]:
                del self._sharded[other]
            module = self.base(c.batch, c.cp > 1).clone()
            try:
                with redirect_stderr(io.StringIO()):  # notes on plans that nobody may take
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
        for key in {(c.batch, c.cp > 1) for c in configurations}:
            self.base(*key)

    def outcomes(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        """Simulates all configurations that are wanted, as far as there is time, and the fastest with messages on streams too."""
        found = list[Outcome]()
        try:
            for outcome in self._outcomes(configurations):
                found.append(outcome)
                yield outcome
            for each in ranked(found)[: self.overlapped]:
                if not each.configuration.overlap and each.configuration.devices > 1:
                    yield self.evaluate(replace(each.configuration, overlap=True))
        finally:
            self._end = inf

    def _outcomes(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        self._end = monotonic() + self.seconds
        queue = BestFirst(self.wanted or len(configurations) + 1, self.fastest)
        waiting = dict.fromkeys(configurations)
        bounds = {c: self.bounds(c) for c in waiting}
        alike, later = set[tuple[int | str, ...]](), set[Configuration]()
        bounded, bounding, planning, is_known = set[Configuration](), 0.0, 0.0, False
        for c in waiting:
            queue.add({c: 0.0})
        while monotonic() < self._end and (found := queue.next()) is not None:
            for c in found[1]:
                now = monotonic()
                try:
                    if c not in bounded or bounding < planning:  # the first costs little, others no more than plans
                        least = next(bounds[c], None)
                        bounding += monotonic() - now if c in bounded else 0.0
                        bounded.add(c)
                        if least is not None:
                            self._add(queue, c, least)
                            continue
                    key = _kept_as(c)
                    if key in alike and key not in self._sharded and c not in later:
                        later.add(c)  # as dear as the same by another schedule, and much like it: after all others
                        queue.add({c: self.least_seconds(c) if self.wanted else 0.0}, likely=inf)
                        continue
                    alike.add(key)
                    outcome = self._fitting(queue, c)
                except DistirError as error:
                    outcome = Outcome(c, None, str(error))
                planning += monotonic() - now
                del waiting[c]
                yield outcome
            is_late = queue.is_full or monotonic() >= self._end - self.seconds * KNOWING
            if self.wanted and is_late and not is_known:
                is_known = True
                self._know(waiting)
        for c in [c for c in waiting if self.wanted and self._is_known(c)]:
            try:
                if (bytes_ := self.least_bytes(c)) > self.memory_limit_bytes:
                    outcome = self._too_large(c, bytes_)
                else:
                    queue.add({c: max(self.bounds(c))})
                    continue
            except DistirError as error:  # a schedule may not have such a plan
                outcome = Outcome(c, None, str(error))
            del waiting[c]
            yield outcome
        queue.close()
        for outcome in queue.slower():
            if outcome.configuration in waiting:
                del waiting[outcome.configuration]
                yield outcome
        yield from (Outcome(c, None, self._unseen) for c in waiting)

    def _know(self, configurations: Iterable[Configuration]) -> None:
        """Measures the stages of these plans, as long as there is time."""
        plans = {self._key(each): each for c in configurations for each in (replace(c, recompute="none"), c)}
        for _, c in sorted(
            plans.items(), key=lambda each: (*each[0][1:], each[0][0])
        ):  # all policies of one cut together
            if monotonic() >= self._end:
                break
            with suppress(DistirError):
                self._stages(c)

    def _is_known(self, c: Configuration) -> bool:
        """Whether the stages of a plan are known, or that the model has not so many."""
        keys = self._key(c), self._key(replace(c, recompute="none"))
        return keys[0][3] > self._most_stages.get(c.batch, keys[0][3]) or self._known.keys() >= {*keys}

    @property
    def _unseen(self) -> str:
        return f"{UNSEEN} {self.seconds:.3g} s"

    def bounds(self, c: Configuration) -> Iterator[float]:
        """What a plan takes at least, in seconds: ever better, and dearer to know. Raises DistirError where the model has not so many stages."""
        if not self.wanted:
            return
        yield self._least_of_any_stages(c)
        yield self.least_seconds(replace(c, recompute="none"))
        if c.recompute != "none":
            yield self.least_seconds(c)

    def _add(self, queue: BestFirst, c: Configuration, least: float) -> None:
        """Plans come in the order of what they take at least, what ranks of several stages usually wait, and two sums, which a plan may hide or do without:
        of gradients over replicas, and over tensor ranks of a quarter of what forward parts keep for backward parts."""
        (stage,) = self._stages(_in_one_stage(c))
        weights, kept = stage.weights // (c.pp * c.tp), stage.kept // (c.dp * c.cp * c.microbatches * c.pp)
        replicas = range(0, c.dp * c.cp * c.tp, c.tp)
        sums = self._costs.collective_seconds("allreduce", weights, replicas) if len(replicas) > 1 else 0.0
        if c.tp > 1:
            sums += c.microbatches * self._costs.collective_seconds("allreduce", kept // 4, range(c.tp))
        waits = 0.0 if is_plain(c.schedule) else (c.pp - 1) / (c.microbatches * max(c.virtual, 1))
        queue.add({c: least}, likely=least * (1 + waits) + sums)

    def _fitting(self, queue: BestFirst, c: Configuration) -> Outcome:
        least = self.least_bytes(c) if self.wanted else 0
        return self._too_large(c, least) if least > self.memory_limit_bytes else self._noted(queue, c)

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
        return self.evaluate(c)

    def evaluate(self, c: Configuration, cutoff: float = inf) -> Outcome:
        """Simulates one configuration. Raises TooSlow where it is known to take longer than `cutoff` seconds."""
        sweep()
        try:
            program = open_program(self.program(c, cutoff), self.machine, self.cost_model, memo=self._memo)
            figures = replace(figures_of_program(program, c.overlap), details=details_of(program))
        except TooSlow:
            raise
        except NothingFits as error:
            return self._too_large(c, error.least_bytes)
        except NotInTime as error:
            is_over = self._end < inf and self._end - monotonic() < SECONDS_PER_PLAN
            return Outcome(c, None, self._unseen if is_over else str(error))
        except DistirError as error:
            return Outcome(c, None, str(error))
        if figures.peak_memory_bytes > self.memory_limit_bytes:
            peak, limit = figures.peak_memory_bytes / 1e9, self.memory_limit_bytes / 1e9
            return Outcome(c, figures, f"needs {peak:.1f} GB of memory, the limit is {limit:.1f} GB")
        return Outcome(c, figures)

    def _too_large(self, c: Configuration, least: int) -> Outcome:
        limit = self.memory_limit_bytes / 1e9
        return Outcome(c, None, f"needs at least {least / 1e9:.1f} GB of memory, the limit is {limit:.1f} GB", least)

    def details(self, c: Configuration) -> Details:
        """What a plan's memory and communication are."""
        sweep()
        return details_of(open_program(self.program(c), self.machine, self.cost_model, memo=self._memo))

    def least_seconds(self, c: Configuration) -> float:
        """What a plan takes at least, as far as an operation on a shard takes no smaller share of the time than the shard is of the whole. A
        rank waits for the first microbatch to come through the stages before its own; after the last one, the ranks of these have their backward
        part to do.
        Raises DistirError where the model has not so many stages."""
        stages = [stage.seconds for stage in self._stages(c)]
        ranks, first, ends = self._ranks(c, len(stages)), stages[0][-1], list[float]()
        for own in ranks:
            before = stages[: min(own)]
            waited, back = (sum(stage[i] for stage in before) / c.microbatches for i in (0, 1))
            forward, backward, weights, update = (sum(stages[stage][i] for stage in own) for i in range(4))
            ends.append(waited + forward + backward + max(weights + update, back + (first if before else 0.0)))
        return max(ends) / (c.dp * c.cp * c.tp)

    def _least_of_any_stages(self, c: Configuration) -> float:
        """The same wherever stages begin. If each is given so much less work than the one before as it waits longer, all end at once: no other
        division ends earlier. By other schedules than plain ones no rank need wait, but each microbatch goes through all stages."""
        (stage,) = self._stages(_in_one_stage(c))
        work, k = sum(stage.seconds[:3]) / (c.dp * c.cp * c.tp), c.microbatches
        if is_plain(c.schedule):
            return work / (k * (1 - (1 - 1 / k) ** c.pp))
        through = stage.seconds[0] / (c.dp * c.cp * c.tp) if splits_backward(c.schedule) else work
        return max(work / c.pp, through / k)

    def least_bytes(self, c: Configuration) -> int:
        """What a plan's fullest device holds at least, as no shard is a smaller part than one of all devices of a stage: state, and what the microbatches in
        flight keep. Raises DistirError where the model has not so many stages."""
        stages = self._stages(c)
        flying = table_of(c.schedule, c.pp, c.microbatches, len(stages)).in_flight()
        held = [stage.state + stage.kept * n // c.microbatches for stage, n in zip(stages, flying, strict=True)]
        return max(sum(held[stage] for stage in own) for own in self._ranks(c, len(stages))) // (c.dp * c.cp * c.tp)

    def _ranks(self, c: Configuration, stages: int) -> Sequence[Sequence[int]]:
        """The stages of each rank."""
        if is_plain(c.schedule):
            return [[stage] for stage in range(stages)]
        homes = table_of(c.schedule, c.pp, c.microbatches, stages).rank_of
        return [[stage for stage, home in enumerate(homes) if home == rank] for rank in range(c.pp)]

    def _key(self, c: Configuration) -> tuple[str, int, bool, int, bool, bool]:
        """What the stages of a plan depend on."""
        count, splits = stages_of(c.schedule, c.pp, c.virtual), splits_backward(c.schedule)
        return c.recompute, c.batch, c.cp > 1, count, c.microbatches > 1, splits

    def _stages(self, c: Configuration) -> list[Stage]:
        """The stages of a plan. They begin at the same operations whatever the number of microbatches."""
        if (key := self._key(c)) not in self._known:
            module = self._cut(c).clone()
            RecomputeActivationsPass(c.recompute, self.machine_name, self.cost_model).apply(Context(), module)
            self._known[key] = self._measured(module, key[3])
        return self._known[key]

    def _cut(self, c: Configuration) -> ModuleOp:
        """The program in a plan's stages, before anything is computed again; it is not to be changed."""
        key = self._key(c)[1:]
        if self._last_cut is not None and self._last_cut[0] == key:
            return self._last_cut[1]
        *_, count, _, splits = key
        if count > (most := self._most_stages.get(c.batch, count)):
            raise DistirError(f"{CUTS_LAYERS}: {CutsLayers(most, count)}")
        module = self.base(c.batch, c.cp > 1).clone()
        cut = PipelineStagesPass(count, self.batch, self.machine_name, c.microbatches, 1, splits, self.divides, True)
        try:
            cut.apply(Context(), module)
        except CutsLayers as error:
            self._most_stages[c.batch] = error.operations
            raise DistirError(f"{CUTS_LAYERS}: {error}") from None
        self._last_cut = key, module
        return module

    def _measured(self, module: ModuleOp, count: int) -> list[Stage]:
        entry = entry_function(module)
        stages, calls = [Stage() for _ in range(count)], [c for c in stage_calls(entry) if phase_of(c) in PHASES]
        takers = dict[SSAValue, set[tuple[str, int]]]()
        for call in calls:
            for value in call.operands:
                takers.setdefault(value, set()).add((phase_of(call), stage_of(call)))
        reader = Reader(module, self._memo.known(self.machine, self.cost_model, ()).library)
        for call in calls:
            stage, phase = stages[stage_of(call)], phase_of(call)
            name = call.callee.string_value()
            program = open_program(module, self.machine, self.cost_model, name, memo=self._memo, reader=reader)
            stage.seconds[PHASES.index(phase)] += program.summary().makespan_seconds
            if phase == FORWARD:
                own = {(BACKWARD, stage_of(call)), (WEIGHTS, stage_of(call))}
                passed = [r for r in call.results if own.isdisjoint(takers.get(r, ()))]
                stage.kept += max(0, program.bytes_left() - sum(type_bytes(r.type) for r in passed))
        for argument, attributes in zip(entry.body.block.args, argument_attributes(entry), strict=True):
            homes = {stage for _, stage in takers.get(argument, ())}
            if (role := text(attributes, "dist.role", "input")) in STATE and len(homes) == 1:
                stage, bytes_ = stages[homes.pop()], type_bytes(argument.type)
                stage.state += bytes_
                stage.weights += bytes_ if role == "parameter" else 0
        return stages


def _in_one_stage(c: Configuration) -> Configuration:
    return replace(c, pp=1, virtual=1, recompute="none", schedule="1f1b")


def _kept_as(c: Configuration) -> tuple[int | str, ...]:
    """What a program before its schedule depends on."""
    schedule = "" if is_plain(c.schedule) else c.schedule
    return c.recompute, c.batch, c.dp, c.cp, c.tp, c.pp, c.microbatches, schedule, c.virtual
