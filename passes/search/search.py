"""The search over plans that the pipeline of passes makes: in go a model and configurations, out come the figures of the program that
`dtp-parallelize{sharding=ilp grouped=true}` writes for each. Nothing else is simulated, and the best plan's text is that program.

Configurations are looked at in the order of what they can reach at most, until no other can be among the fastest."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from time import monotonic

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.interpreters.cost_models import CostModel, make_cost_model
from distir.interpreters.machines import Machine, load_machine
from distir.interpreters.simulate import SummaryMemo
from distir.interpreters.simulate.summaries import open_program
from distir.passes.distribution.pipeline.tasks import is_plain
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.pipeline_schedule import PipelineSchedulePass
from distir.passes.recomputation.policies import WORDS
from distir.passes.search.best_first import BestFirst, Fastest
from distir.passes.search.collector import sweep
from distir.passes.search.configurations import UNSEEN, Configuration, Details, Outcome, distinct, ranked
from distir.passes.search.fewer_layers import MOST_TRIED, FewerLayers
from distir.passes.search.figures import details_of, figures_of_program
from distir.passes.search.plan_bounds import PlanBounds
from distir.passes.sharding.search import NothingFits, NotInTime, TooSlow

SECONDS_PER_PLAN = 120.0
"""For choosing the sharding of one plan: what is best is proven if that is enough, and otherwise the best that was found."""
ENOUGH = 0.03
"""A plan will do whose sharding no other beats by more than this share: near the limit of memory the rest takes most of the time, for plans that are hardly faster (GPT-3 on 1,024
H100, D128 T8: 12 s and two minutes for the same plan; D512 T2: 4 instead of 20 s for 0.07 %)."""
MATTERS = 0.01
"""What takes a smaller share of a plan's time is not worth another plan."""
OF_ONE, LEAST_SECONDS = 1 / 6, 20.0
"""A plan may have this share of the time, and so much at least: near the limit of memory it takes longer to find one that is hardly faster (GPT-3 on 1,024 H100, D64 T16: 100 s, and
0.004 % faster than in 20 s). It may have as much as another took, and the first half of what is left: a slow machine finds plans too."""
KNOWING = 1 / 6
"""This share of the time is kept to know the stages of all plans, which says what fits no device, and what their tensor ranks do: which are slower than the fastest."""
FIRST = 4
"""Before the first plan it is found what tensor ranks do in so many, unless that takes a share `KNOWING` of the time: that is dearer than other bounds, but says which plans are worth it."""
LATER = 0.01
"""A plan that likely takes so much longer than it seemed waits until others were looked at."""
MOST_HIDDEN = 1.25
"""Where plans are tried with messages beside computation too, one may be so many times slower without than the fastest with (GPT-3 on 1,024 H100: D256 T4 takes
14.1 s, and 11.8 s with; D512 T2 14.8 and 11.9 s; D32 T4 P8 13.2 and 13.0 s)."""
MOST_GROUPED = 3
"""Of so many of the fastest plans those are tried too whose replicas are in groups, one on each node (Llama 3 8B on 64 H100 with a quarter of their network: 4 % faster)."""
MOST_REFINED, ONE_FORWARD = 3, 4 / 3
"""Of so many plans that repeat all layers those are tried too that repeat fewer of each stage, and are at most so many times faster."""
MOST_KEPT = 16
"""Programs of the fastest plans that are kept: one that is chosen again, in other time, may be another."""


@dataclass
class Search:
    """Evaluates configurations of one model. `bind(batch)` gives the level 1 program at a batch size, afresh; `machine` is a name or a path."""

    bind: Callable[[int], ModuleOp]
    machine_name: str
    cost_model: str
    memory_limit_bytes: int
    batch: str = ""
    restrict: str = "dp=batch"
    """What axes may cut, as for `ilp-shard`."""
    overlapped: int = 0
    """So many plans are wanted of those that are fastest with messages on streams of their own."""
    tries_groups: bool = False
    """Whether of the fastest plans those are simulated too whose replicas are in groups, one on each node."""
    tries_fewer_layers: bool = False
    """Whether of the fastest plans that repeat all layers, and do not fit otherwise, those are simulated too that repeat fewer."""
    wanted: int = 0
    """How many of the fastest plans are wanted; 0: the figures of all."""
    divides: bool = False
    """Whether each plan divides first (`ilp-shard{divide}`)."""
    zero: int | None = None
    """What replicas store in parts (`zero-partition`); None: what is fastest."""
    seconds: float = inf
    """For all plans together."""
    fastest: Fastest | None = None
    """The plans that processes found that share the search."""
    _end: float = inf
    _slowest: float | None = None
    """Seconds that a plan took that was found, at most."""
    _speeds: dict[tuple[int | str, ...], float] = field(default_factory=dict[tuple[int | str, ...], float])
    """Samples per second of the programs that are kept."""
    _bases: dict[tuple[int, bool], ModuleOp] = field(default_factory=dict[tuple[int, bool], ModuleOp])
    _sharded: dict[tuple[int | str, ...], ModuleOp | DistirError] = field(
        default_factory=dict[tuple[int | str, ...], "ModuleOp | DistirError"]
    )
    """Programs before their schedule, which depend on that only where it has other stages than plain ones: of the last plan, and of the fastest."""
    _unfitting: set[Configuration] = field(default_factory=set[Configuration])
    """Plans that do not fit unless layers are repeated."""
    _refined: int = 0
    """How many plans were tried with fewer layers."""
    _memo: SummaryMemo = field(default_factory=SummaryMemo)

    @cached_property
    def _costs(self) -> CostModel:
        return make_cost_model(self.cost_model, self.machine)

    @cached_property
    def bounds(self) -> PlanBounds:
        """What plans take at least."""
        return PlanBounds(
            self.base,
            self.passes,
            self.machine_name,
            self.machine,
            self.cost_model,
            self._costs,
            self.batch,
            self.divides,
            self.overlapped > 0,
            self.memory_limit_bytes,
            self._memo,
        )

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

    @property
    def _left(self) -> float:
        """Seconds for a plan."""
        left = self._end - monotonic()
        one = left / 2 if self._slowest is None else self._slowest
        return min(SECONDS_PER_PLAN, max(LEAST_SECONDS, self.seconds * OF_ONE, one), left)

    def passes(self, c: Configuration) -> DtpParallelizePass:
        """The pass that writes a configuration's program."""
        return DtpParallelizePass(
            dp=c.dp,
            dp_replicate=c.dp_replicate,
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
            restrict=self.restrict,
            time_limit=max(1.0, self._left),
            grouped=True,
            divide=self.divides,
            zero=self.zero,
        )

    def program(self, c: Configuration, cutoff: float = inf) -> ModuleOp:
        """The distributed program of a configuration. Raises DistirError where none fits, or the rules or the batch forbid it, and TooSlow."""
        passes = [
            replace(each, cutoff=cutoff if cutoff < inf else None, gap=ENOUGH)
            if isinstance(each, IlpShardPass)
            else each
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
            if self.tries_groups:
                yield from self._grouped(found)
        finally:
            self._end = inf

    def _grouped(self, found: Sequence[Outcome]) -> Iterator[Outcome]:
        """The fastest plans whose replicas span nodes, with groups of replicas on a node each, as far as there is time."""
        spanning = {o.configuration.plan: g for o in distinct(found) if (g := self._nodes_of_replicas(o)) > 1}
        fastest = [o for o in ranked(distinct(found)) if o.configuration.plan in spanning]
        for each in fastest[:MOST_GROUPED]:
            if monotonic() >= self._end:
                return
            c = each.configuration
            yield self.evaluate(replace(c, dp_replicate=spanning[c.plan]))

    def _nodes_of_replicas(self, outcome: Outcome) -> int:
        """Over how many nodes the replicas of a plan are that send each other enough to matter; 1 where nodes do not divide them."""
        c = outcome.configuration
        node = self.machine.levels[0].devices or c.devices
        details = outcome.figures.details if outcome.figures is not None else None
        sent = sum(details.communication.get("dp", (0.0, 0.0))) if details is not None else 0.0
        stage = c.dp * c.cp * c.tp
        return stage // node if sent > MATTERS and stage % node == 0 == node % (c.cp * c.tp) else 1

    def _outcomes(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        self._end = monotonic() + self.seconds
        queue = BestFirst(self.wanted or len(configurations) + 1, self.fastest)
        waiting = dict.fromkeys(configurations)
        bounds = {c: self.bounds.of(c) if self.wanted else iter(()) for c in waiting}
        alike, later = set[tuple[int | str, ...]](), set[Configuration]()
        likely, bounding, planning, is_known = dict[Configuration, float](), 0.0, 0.0, False
        for c in waiting:
            queue.add(c, 0.0)
        while monotonic() < self._end and (c := queue.next()) is not None:
            now = monotonic()
            try:
                is_first = c not in likely  # that costs little, others no more than plans
                has_first = self.bounds.known_works >= FIRST or bounding > self.seconds * KNOWING
                if is_first or bounding <= planning or not has_first:
                    least = next(bounds[c], None)
                    bounding += 0.0 if is_first else monotonic() - now
                    if least is not None:
                        likely[c] = self.bounds.likely(c)
                        queue.add(c, least, likely[c])
                        continue
                if self.wanted and (now_likely := self.bounds.likely(c)) > likely[c] * (1 + LATER):
                    likely[c] = now_likely  # as is known by now of others
                    queue.add(c, self.bounds.known(c), now_likely)
                    continue
                key = _kept_as(c)
                if key in alike and key not in self._sharded and c not in later:
                    later.add(c)  # as dear as the same by another schedule, and much like it: after all others
                    queue.add(c, self.bounds.least_seconds(c) if self.wanted else 0.0, inf)
                    continue
                alike.add(key)
                found = self._fitting(queue, c)
            except DistirError as error:
                found = [Outcome(c, None, str(error))]
            planning += monotonic() - now
            del waiting[c]
            yield from found
            is_late = queue.is_full or monotonic() >= self._end - self.seconds * KNOWING
            if self.wanted and is_late and not is_known:
                is_known = True
                self.bounds.measure(waiting, queue.throughput_of(1), self._end)
        for c in [c for c in waiting if self.wanted and self.bounds.is_measured(c)]:
            try:
                if (bytes_ := self.bounds.least_bytes(c)) > self.memory_limit_bytes:
                    outcome = self._too_large(c, bytes_)
                else:
                    queue.add(c, self.bounds.known(c))
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

    @property
    def _unseen(self) -> str:
        return f"{UNSEEN} {self.seconds:.3g} s"

    def _fitting(self, queue: BestFirst, c: Configuration) -> list[Outcome]:
        least = self.bounds.least_bytes(c) if self.wanted else 0
        found = [self._too_large(c, least)] if least > self.memory_limit_bytes else self._noted(queue, c)
        if c.recompute == "none" and all(each.needed_bytes > self.memory_limit_bytes for each in found):
            self._unfitting.add(c.plan)
        return found

    def _noted(self, queue: BestFirst, c: Configuration) -> list[Outcome]:
        """What becomes of a plan, and of the same with messages on streams if it could then be among the fastest."""
        try:
            slower = MOST_HIDDEN if self.overlapped else 1.0
            found = [self.evaluate(c, queue.cutoff(c) * slower)]
        except TooSlow as error:
            return [queue.too_slow(c, error.least_seconds)]
        if found[0].dropped is None and self._is_worth_hiding(queue, found[0]):
            found.append(self.evaluate(replace(c, overlap=True)))
        if fitting := ranked(found):
            self._keep(queue, fitting[0])
            if self._repeats_too_much(queue, fitting[0]):
                found += self._with_fewer_layers(queue, fitting[0].configuration)
        return found

    def _keep(self, queue: BestFirst, outcome: Outcome) -> None:
        """Counts a plan that fits, and keeps its program if it is among the fastest."""
        queue.note(outcome)
        key, speeds = _kept_as(outcome.configuration), self._speeds
        speeds[key] = max(outcome.throughput, speeds.get(key, 0.0))
        if len(speeds) > MOST_KEPT:
            del speeds[min(speeds, key=lambda each: speeds[each])]

    def _repeats_too_much(self, queue: BestFirst, outcome: Outcome) -> bool:
        """Whether a plan repeats all layers, does not fit without, and could be the fastest if it repeated few."""
        c = outcome.configuration
        fastest = queue.throughput_of(1)
        is_open = self.tries_fewer_layers and self._refined < MOST_REFINED and c.recompute in WORDS
        return (
            is_open
            and replace(c.plan, recompute="none") in self._unfitting
            and outcome.throughput * ONE_FORWARD >= fastest
        )

    def _with_fewer_layers(self, queue: BestFirst, last: Configuration) -> list[Outcome]:
        """The same plan with as few layers repeated in each stage as fit, as far as there is time."""
        found = list[Outcome]()
        try:
            fewer = FewerLayers(self.bounds, last)
        except DistirError:  # stages begin inside layers
            return found
        self._refined += 1
        for _ in range(MOST_TRIED):
            counts = fewer.next(self._peaks(last), self.memory_limit_bytes)
            if monotonic() >= self._end or counts is None:
                break
            outcome = self.evaluate(replace(last, recompute=fewer.policy(counts)))
            found.append(outcome)
            fewer.note(counts, outcome.dropped is None)
            if outcome.dropped is None:
                self._keep(queue, outcome)
                last = outcome.configuration
        return found

    def _peaks(self, c: Configuration) -> Mapping[int, int]:
        program = open_program(self.program(c), self.machine, self.cost_model, memo=self._memo)
        return program.summary().peak_memory_bytes

    def _is_worth_hiding(self, queue: BestFirst, outcome: Outcome) -> bool:
        """Whether a plan would be among the fastest so far if its devices never waited for messages."""
        c = outcome.configuration
        if not self.overlapped or c.overlap or c.devices == 1:
            return False
        return _without_messages(outcome) > queue.throughput_of(self.overlapped)

    def evaluate(self, c: Configuration, cutoff: float = inf) -> Outcome:
        """Simulates one configuration. Raises TooSlow where it is known to take longer than `cutoff` seconds."""
        sweep()
        start = monotonic()
        try:
            program = open_program(self.program(c, cutoff), self.machine, self.cost_model, memo=self._memo)
            figures = replace(figures_of_program(program, c.overlap), details=details_of(program))
            self._slowest = max(self._slowest or 0.0, monotonic() - start)
        except TooSlow:
            raise
        except NothingFits as error:
            return self._too_large(c, error.least_bytes)
        except NotInTime as error:
            return Outcome(c, None, self._unseen if self._left < SECONDS_PER_PLAN else str(error))
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


def _without_messages(outcome: Outcome) -> float:
    """Samples per second of a plan if its devices never waited for messages."""
    details = outcome.figures.details if outcome.figures is not None else None
    exposed = sum(share for share, _ in details.communication.values()) if details is not None else 0.0
    return outcome.throughput / max(1 - exposed, 1e-9)


def _kept_as(c: Configuration) -> tuple[int | str, ...]:
    """What a program before its schedule depends on."""
    schedule = "" if is_plain(c.schedule) else c.schedule
    return c.recompute, c.batch, c.dp, c.dp_replicate, c.cp, c.tp, c.pp, c.microbatches, schedule, c.virtual
