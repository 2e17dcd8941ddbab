"""What a plan takes at least, in time and memory, before its program is written: a search need not write the program of a plan that cannot fit, or
cannot be among the fastest. In go the model and configurations; out come seconds and bytes, as far as an operation on a shard takes no smaller
share of the time, and of the memory, than the shard is of the whole.

What tensor ranks do for one replica, with what they send each other, is the integer program's own answer for the model in one stage, without regard to memory: no
plan whose replicas have microbatches of as many rows does less, on however many stages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from time import monotonic
from typing import NamedTuple, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from distir.dialects.errors import DistirError
from distir.interpreters.cost_models import CostModel
from distir.interpreters.costs import PICOSECONDS
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import Machine
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
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.recompute_activations import RecomputeActivationsPass
from distir.passes.search.configurations import CUTS_LAYERS, Configuration
from distir.passes.sharding.path_weights import weights_of_loop
from distir.passes.sharding.search import choices_of, least_cost
from distir.passes.structure import argument_attributes, text

PHASES = (FORWARD, BACKWARD, WEIGHTS, UPDATE)
STATE = ("parameter", "state", "buffer")

MOST_LOOPS = 8
"""Programs of one stage that are kept."""
OF_LARGER = 0.9
"""What is sent in parts half as large, or to twice as many, takes at least this share of what half of it took: of the machines' collectives, some are slower per byte where they
send more (GPT-3 on 16 H100 as tensor ranks: 64 microbatches take 1.015 times as long as 128)."""


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


class Rows(NamedTuple):
    """A microbatch on the tensor ranks of one replica."""

    ranks: int
    rows: Fraction
    is_whole: bool
    """Whether it is the whole batch: what others have before the loop over microbatches is then in it."""

    @staticmethod
    def of(c: Configuration) -> Rows:
        """That of a plan."""
        return Rows(c.tp, Fraction(c.batch, c.dp * c.microbatches), c.dp * c.microbatches == 1)


@dataclass
class PlanBounds:
    """The bounds of the plans of one model. `base` gives its annotated program at a batch size, for devices that share sequences or not; `passes` what writes a
    plan."""

    base: Callable[[int, bool], ModuleOp]
    passes: Callable[[Configuration], DtpParallelizePass]
    machine_name: str
    machine: Machine
    cost_model: str
    costs: CostModel
    batch: str = ""
    divides: bool = False
    hides: bool = False
    """Whether plans are wanted whose replicas send beside computation."""
    memory_limit_bytes: int = 0
    memo: SummaryMemo = field(default_factory=SummaryMemo)
    _known: dict[tuple[str, int, bool, int, bool, bool], list[Stage]] = field(
        default_factory=dict[tuple[str, int, bool, int, bool, bool], "list[Stage]"]
    )
    """Of the stages of a model, by policy of recomputation, batch, whether devices share sequences, stages, whether there are several microbatches, and
    whether backward parts are in two."""
    _last_cut: tuple[tuple[int, ...], ModuleOp] | None = None
    """The last program in stages, and what it depends on: as many policies of recomputation as there are begin with it."""
    _most_stages: dict[int, int] = field(default_factory=dict[int, int])
    """By batch, into how many stages the model can be cut between its layers, once that was too few."""
    _loops: dict[tuple[object, ...], ModuleOp] = field(default_factory=dict[tuple[object, ...], ModuleOp])
    """Programs of one stage, by the passes that made them: tensor ranks of other numbers share them."""
    _sharded: dict[tuple[str, int], dict[Rows, float]] = field(
        default_factory=dict[tuple[str, int], "dict[Rows, float]"]
    )
    """What tensor ranks take for one microbatch in one stage, without updates: by policy and devices that share a sequence, and by tensor ranks and rows. Batches of
    all sizes share them."""

    def of(self, c: Configuration) -> Iterator[float]:
        """What a plan takes at least, in seconds: ever better, and dearer to know. Raises DistirError where the model has not so many stages."""
        least = self._least_of_any_stages(c)
        yield least
        for recompute in dict.fromkeys(("none", c.recompute)):
            yield (least := max(least, self.least_seconds(replace(c, recompute=recompute))))
        if not self.is_sharded(c):
            if (already := self._least_of_work(c, self._known_work(c))) > least:
                yield (least := already)
            self._add_work(c)
        yield max(least, self._least_of_work(c, self._known_work(c)))

    def known(self, c: Configuration) -> float:
        """The best bound of a plan whose stages are measured that takes no more to know."""
        least = max(self.least_seconds(replace(c, recompute="none")), self.least_seconds(c))
        return max(least, self._least_of_work(c, self._known_work(c)))

    def measure(self, configurations: Collection[Configuration], fastest: float, end: float) -> None:
        """Measures the stages of these plans, as long as there is time; and finds what their tensor ranks do as far as it is not known that they are slower than
        the fastest plan, of so many samples per second: first what bounds most plans."""
        plans = {self._key(each): each for c in configurations for each in (replace(c, recompute="none"), c)}
        together = sorted(plans.items(), key=lambda each: (*each[0][1:], each[0][0]))  # all policies of one cut
        for _, c in together:
            if monotonic() >= end:
                break
            with suppress(DistirError):
                self.stages(c)
        left: dict[object, list[Configuration]] = {}
        for c in configurations:
            if not self.is_sharded(c):
                left.setdefault((_work_key(c), Rows.of(c)), []).append(c)
        for each in sorted(left.values(), key=len, reverse=True):
            for c in each:
                with suppress(DistirError):
                    if monotonic() < end and self.is_measured(c) and c.batch / self.known(c) >= fastest:
                        self._add_work(c)
                        break

    def is_measured(self, c: Configuration) -> bool:
        """Whether the stages of a plan are known, or that the model has not so many."""
        keys = self._key(c), self._key(replace(c, recompute="none"))
        return keys[0][3] > self._most_stages.get(c.batch, keys[0][3]) or self._known.keys() >= {*keys}

    def likely(self, c: Configuration) -> float:
        """What a plan likely takes. Ranks of several stages wait for each other, stages are uneven, and replicas add up gradients, and gather in each microbatch
        parameters that fit no device whole, which a plan may do beside computation; what tensor ranks do is found, or as what was found of others says."""
        (stage,) = self.stages(in_one_stage(c))
        devices = c.dp * c.cp * c.tp
        extra = self._likely_extra(c) / devices
        work = sum(sum(each.seconds[:3]) for each in (self.stages(c) if self.is_measured(c) else [stage])) / devices
        uneven = self.least_seconds(c) / self._in_stages(c, work, work) if self.is_measured(c) else 1.0
        waits = 0.0 if is_plain(c.schedule) else (c.pp - 1) / (c.microbatches * max(c.virtual, 1))
        own, replicas = stage.weights // (c.pp * c.tp), range(0, devices, c.tp)
        gathers = sums = 0.0
        if len(replicas) > 1 and 2 * own + stage.state // (c.pp * devices) > self.memory_limit_bytes:  # with gradients
            gathers = 2 * c.microbatches * self.costs.collective_seconds("allgather", own, replicas)
        if len(replicas) > 1:
            sums = self.costs.collective_seconds("allreduce", own, replicas)
        computes = self._in_stages(c, work + extra, work) * max(1.0, uneven) * (1 + waits)
        if not self.hides:
            return computes + gathers + sums
        beside = (work + extra) / (c.pp * c.microbatches)  # gradients are complete in the last microbatch
        return max(computes + max(0.0, sums - beside), gathers + sums)

    def is_sharded(self, c: Configuration) -> bool:
        """Whether it is known what a plan's tensor ranks do."""
        return Rows.of(c) in self._sharded.get(_work_key(c), {})

    def _likely_extra(self, c: Configuration) -> float:
        """Seconds that tensor ranks of all replicas together likely take beside their shares of the work. Some of it grows with what they send, about
        a quarter of what forward parts keep; some with how often they begin an operation."""
        import numpy as np

        (stage,) = self.stages(in_one_stage(c))
        work, kept = sum(stage.seconds[:3]) / c.batch, stage.kept // 4 / c.batch  # of one row

        def grows(at: Rows) -> tuple[float, float]:
            sent = self.costs.collective_seconds("allreduce", int(kept * at.rows), range(at.ranks))
            return at.ranks * sent, float(at.ranks)

        def extra(at: Rows, seconds: float) -> float:
            return seconds * at.ranks * c.cp - work * float(at.rows)

        at = Rows.of(c)
        known = {other: s for other, s in self._sharded.get(("none", c.cp), {}).items() if s and other.ranks > 1}
        if at in known:
            return c.dp * c.microbatches * extra(at, known[at])
        if c.tp == 1:
            return 0.0
        factors = np.array([1.0, 0.0])
        if len(known) > 1:
            times = np.array([float(at.rows / other.rows) for other in known])  # of as many rows
            rows = times[:, None] * np.array([grows(other) for other in known])
            found = times * np.array([extra(*each) for each in known.items()])
            factors = np.maximum(np.linalg.lstsq(rows, found, rcond=None)[0], 0.0)
        return c.dp * c.microbatches * float(np.dot(factors, grows(at)))

    @property
    def known_works(self) -> int:
        """Of how many numbers of tensor ranks and microbatches it is known what these do."""
        return sum(map(len, self._sharded.values()))

    def _known_work(self, c: Configuration) -> float:
        """Seconds that a plan's tensor ranks take at least for all microbatches of one replica, in one stage, as far as is known: what was found, or what it says of more
        ranks and of more microbatches (`OF_LARGER`)."""
        at, found = Rows.of(c), 0.0
        for key in {_work_key(c), ("none", c.cp)}:
            for other, seconds in self._sharded.get(key, {}).items():
                times = other.rows / at.rows
                if at.ranks % other.ranks == 0 and times.denominator == 1:
                    least = 1.0 if at == other else OF_LARGER
                    found = max(found, least * seconds * other.ranks / at.ranks / int(times) * c.microbatches)
        return found

    def _add_work(self, c: Configuration) -> None:
        """Finds what a plan's tensor ranks do."""
        alone = replace(in_one_stage(c), dp=1, microbatches=c.dp * c.microbatches, recompute=_work_key(c)[0])
        known = self._sharded.setdefault(_work_key(c), {})
        if self.is_sharded(c):
            return
        try:
            known[Rows.of(c)] = self._least_of_loop(alone) / alone.microbatches
        except DistirError:  # not so many microbatches, or not in time
            known[Rows.of(c)] = 0.0

    def _least_of_loop(self, c: Configuration) -> float:
        passes = replace(self.passes(c), zero=None).planning()
        last = next(i for i, each in enumerate(passes) if isinstance(each, IlpShardPass))
        search, before = cast(IlpShardPass, passes[last]), passes[:last]
        if (key := (c.batch, *before)) not in self._loops:
            if len(self._loops) >= MOST_LOOPS:
                del self._loops[next(iter(self._loops))]
            module = self.base(c.batch, c.cp > 1).clone()
            for each in before:
                each.apply(Context(), module)
            self._loops[key] = module
        problem, deadline = search.problem(Context(), self._loops[key].clone())
        problem.order = None
        choices = choices_of(problem, deadline, weights_of_loop(problem))
        return max(0.0, least_cost(choices, choices.minimum(deadline.without_plan))) / PICOSECONDS

    def _least_of_work(self, c: Configuration, work: float) -> float:
        """What a plan takes whose tensor ranks have so much to do for one replica: whatever its stages, and in them."""
        (stage,) = self.stages(in_one_stage(c))
        through = stage.seconds[0] / (c.dp * c.cp * c.tp) if splits_backward(c.schedule) else work
        return max(
            self._in_stages(c, work, through, stage.seconds[-1] / (c.dp * c.cp * c.tp)), self.least_seconds(c, work)
        )

    def least_seconds(self, c: Configuration, work: float = 0.0) -> float:
        """What a plan takes at least, as far as an operation on a shard takes no smaller share of the time than the shard is of the whole. A
        rank waits for the first microbatch to come through the stages before its own; after the last one, the ranks of these have their backward
        part to do. What tensor ranks send, if that is known of the `work` of a replica in one stage, stages have as they have work (of it
        `OF_LARGER` counts: they may have it otherwise).
        Raises DistirError where the model has not so many stages."""
        stages = [stage.seconds for stage in self.stages(c)]
        alone = sum(sum(seconds[:3]) for seconds in stages)
        if (extra := work * c.dp * c.cp * c.tp - alone) > 0.0:
            sent = 1 + OF_LARGER * extra / alone
            stages = [[*(sent * each for each in seconds[:3]), seconds[3]] for seconds in stages]
        ranks, first, ends = self.stages_of_ranks(c, len(stages)), stages[0][-1], list[float]()
        for own in ranks:
            before = stages[: min(own)]
            waited, back = (sum(stage[i] for stage in before) / c.microbatches for i in (0, 1))
            forward, backward, weights, update = (sum(stages[stage][i] for stage in own) for i in range(4))
            ends.append(waited + forward + backward + max(weights + update, back + (first if before else 0.0)))
        return max(ends) / (c.dp * c.cp * c.tp)

    def _least_of_any_stages(self, c: Configuration) -> float:
        """The same wherever stages begin, without what ranks send each other."""
        (stage,) = self.stages(in_one_stage(c))
        devices = c.dp * c.cp * c.tp
        work = sum(stage.seconds[:3]) / devices
        return self._in_stages(c, work, stage.seconds[0] / devices if splits_backward(c.schedule) else work)

    def _in_stages(self, c: Configuration, work: float, through: float, update: float = 0.0) -> float:
        """What a pipeline takes for so much work of one replica. If each stage is given so much less of it than the one before as it waits longer, all end at once: no
        other division ends earlier. By other schedules than plain ones no rank need wait, but each microbatch goes `through` all stages."""
        k, evenly = c.microbatches, (work + update) / c.pp
        return max(evenly, work / (k * (1 - (1 - 1 / k) ** c.pp)) if is_plain(c.schedule) else through / k)

    def least_bytes(self, c: Configuration) -> int:
        """What a plan's fullest device holds at least, as no shard is a smaller part than one of all devices of a stage: state, and what the microbatches in
        flight keep. Raises DistirError where the model has not so many stages."""
        stages = self.stages(c)
        flying = table_of(c.schedule, c.pp, c.microbatches, len(stages)).in_flight()
        held = [stage.state + stage.kept * n // c.microbatches for stage, n in zip(stages, flying, strict=True)]
        return max(sum(held[stage] for stage in own) for own in self.stages_of_ranks(c, len(stages))) // (
            c.dp * c.cp * c.tp
        )

    def stages_of_ranks(self, c: Configuration, stages: int) -> Sequence[Sequence[int]]:
        """The stages of each rank."""
        if is_plain(c.schedule):
            return [[stage] for stage in range(stages)]
        homes = table_of(c.schedule, c.pp, c.microbatches, stages).rank_of
        return [[stage for stage, home in enumerate(homes) if home == rank] for rank in range(c.pp)]

    def _key(self, c: Configuration) -> tuple[str, int, bool, int, bool, bool]:
        """What the stages of a plan depend on."""
        count, splits = stages_of(c.schedule, c.pp, c.virtual), splits_backward(c.schedule)
        return c.recompute, c.batch, c.cp > 1, count, c.microbatches > 1, splits

    def stages(self, c: Configuration) -> list[Stage]:
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
        reader = Reader(module, self.memo.known(self.machine, self.cost_model, ()).library)
        for call in calls:
            stage, phase = stages[stage_of(call)], phase_of(call)
            name = call.callee.string_value()
            program = open_program(module, self.machine, self.cost_model, name, memo=self.memo, reader=reader)
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


def in_one_stage(c: Configuration) -> Configuration:
    """One stage as all of a plan's."""
    return replace(c, pp=1, virtual=1, recompute="none", schedule="1f1b")


def _work_key(c: Configuration) -> tuple[str, int]:
    """What the work of tensor ranks depends on, beside their number and that of rows. Policies that count layers of a stage are as none."""
    return "none" if ":" in c.recompute else c.recompute, c.cp
