"""What a plan takes at least, in time and memory, before its program is assembled: a search need not build a plan that cannot
fit, or cannot be among the fastest.

The loop over microbatches is walked in the order in which the program has it (`StagedProgram.in_order`), for one device of
each stage: the first tensor rank of the first replica. What is left of the program is what these devices certainly do: stage
calls, messages between stages, sums over microbatches and over replicas. Why these are bounds:

* Time. A program's clocks are a max-plus map of its operations in program order, and such a map is monotone: without an
  operation, or with one that takes less or waits for fewer devices, no clock is later (Baccelli et al., Synchronization and
  Linearity, 1992, chapter 1). A stage call is taken as its map's entry from this device to itself, which a call that waits
  for other ranks too can only exceed. All costs are those of the simulation.
* Memory. What is counted is live at that point of the program: parameters and state, what a stage call of a microbatch keeps
  for a later call of the same stage, addends since the first of them, outputs until they are joined. Inside a call,
  whatever does not surely live on is taken to die at its last use, so that what lives in the real program includes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, i64
from xdsl.dialects.func import CallOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from distir.dialects.dist import AccumulateOp, AllReduceOp, SendOp
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Partial
from distir.interpreters.costs import PARTICIPANTS, PICOSECONDS
from distir.interpreters.simulate.batches import LARGEST, BatchSummaries
from distir.passes.distribution.pipeline.layout import Layout, sent_to
from distir.passes.distribution.pipeline.staged import StagedProgram
from distir.passes.distribution.pipeline.stages import BACKWARD, BEFORE, FORWARD, UPDATE, phase_of, stage_of
from distir.passes.distribution.pipeline.tasks import in_flight
from distir.passes.search.stage_functions import StageFunctions, Vector, column_data


@dataclass(frozen=True)
class Least:
    """What a plan takes at least at one number of rows."""

    picoseconds: int
    bytes: int
    """On its fullest device."""

    @property
    def seconds(self) -> float:
        return self.picoseconds / PICOSECONDS


class Bounds:
    """The bounds of all plans of a staged program."""

    def __init__(self, staged: StagedProgram, summaries: BatchSummaries):
        self.staged, self.summaries = staged, summaries
        self.functions = StageFunctions(staged, summaries)
        self.zero = self.functions.zero
        self._calls: dict[tuple[CallOp, int, bool], Vector] = {}
        self._operations: dict[tuple[object, ...], Operation] = {}
        self._sums: dict[CallOp, Vector] = {}

    def bytes(self, layout: Layout, schedule: str, rows: Sequence[int]) -> dict[int, int]:
        """What the plan's fullest device has at least at each number of rows, without a walk: what the entry is given, and
        what the forward calls of all microbatches in flight keep."""
        columns = [self.summaries.rows.index(r) for r in rows]
        held = self.functions.held(layout)
        if self.staged.by_phase[BACKWARD]:
            alive = in_flight(schedule, layout.pp, layout.microbatches)
            most_each = [np.minimum(kept, LARGEST // n) * n for kept, n in zip(self._kept, alive, strict=True)]
            held = [mine + kept for mine, kept in zip(held, most_each, strict=True)]
        most = np.max([each[columns] for each in held], axis=0)
        return {r: int(bytes_) for r, bytes_ in zip(rows, most, strict=True)}

    @cached_property
    def _kept(self) -> list[Vector]:
        """Per stage, what is there of a microbatch between its forward and its backward part."""
        kept = [self.zero] * (1 + max(map(stage_of, self.staged.stage_calls), default=0))
        for call in self.staged.by_phase[FORWARD]:
            footprint, stage = self.functions.footprint(call), stage_of(call)
            kept[stage] = kept[stage] + footprint.keeps - footprint.frees
        received = dict.fromkeys(
            (value, stage_of(call))
            for call in self.staged.by_phase[FORWARD]
            for value in call.operands
            if isinstance(value, OpResult) and stage_of(value.op) != stage_of(call)
        )
        for value, stage in received:
            kept[stage] = kept[stage] + self.functions.received(cast(CallOp, value.op), value, stage)
        return kept

    def of(self, layout: Layout, schedule: str, rows: Sequence[int]) -> dict[int, Least]:
        """What the plan takes at least at each number of rows."""
        device = _Device(self, layout, [self.summaries.rows.index(r) for r in rows])
        for call, _, sends in self.staged.in_order(schedule, layout):
            if sends:
                device.send(call)
            else:
                device.run(call)
        for call in self.staged.by_phase[UPDATE]:
            device.update(call)
        return device.least(rows)

    def call(self, call: CallOp, layout: Layout, adds: bool = False) -> Vector:
        """From entry to exit of the first rank, of the first microbatch or of one that adds to sums."""
        devices = tuple(layout.group(stage_of(call), 0))
        if (known := self._calls.get((call, devices[0], adds))) is None:
            body = self.functions.body(call, adds)
            known = self.zero
            if (stream := next((i for i, (device, _) in enumerate(body.streams) if device == 0), None)) is not None:
                frame = self.summaries.frames.of(body, devices[: body.devices])
                start, offset = self.summaries.timing.map(frame)[stream]
                known = self.zero + start[stream] + offset if stream in start else self.zero
            self._calls[call, devices[0], adds] = known
        return known

    def sent(self, call: CallOp, result: OpResult, source: int, target: int) -> Vector:
        """A message with the first rank's part of a result."""
        type_ = self.functions.result_type(call, result)
        if (op := self._operations.get(("send", type_))) is None:
            there, to = sent_to(type_, 1)
            op = SendOp.create(operands=_values(type_), result_types=[there], properties={"to": to})
            self._operations["send", type_] = op
        return self._cost(op, (source, target))

    def reduced(self, call: CallOp, layout: Layout) -> Iterator[tuple[int, Vector]]:
        """Stages, and the sums over replicas of the first ranks' parts that a call after the loop is the first to need."""
        for (stage, type_, reduction), times in self._reductions[call].items():
            participants = [layout.group(stage, replica)[0] for replica in range(layout.dp)]
            on = DenseArrayBase.from_list(i64, participants)
            if (op := self._operations.get(("allreduce", type_, reduction, on))) is None:
                op = AllReduceOp(_values(type_), reduction)
                op.attributes[PARTICIPANTS] = on
                self._operations["allreduce", type_, reduction, on] = op
            yield stage, self._cost(op, (participants[0],)) * times

    @cached_property
    def _reductions(self) -> dict[CallOp, Counter[tuple[int, Attribute, Reduction]]]:
        """Of each call after the loop, the addends that it is the first to need: where they are, and what."""
        found: dict[CallOp, Counter[tuple[int, Attribute, Reduction]]] = {}
        seen: set[SSAValue] = set()
        for call in self.staged.by_phase[UPDATE]:
            found[call] = Counter()
            for value in call.operands:
                state = self.staged.tensors[value].batch
                if isinstance(state, Partial) and isinstance(value, OpResult) and value not in seen:
                    seen.add(value)
                    maker = cast(CallOp, value.op)
                    found[call][stage_of(maker), self.functions.result_type(maker, value), state.reduction] += 1
        return found

    def sums(self, call: CallOp) -> Vector:
        """Adding up, after it, what a call gives for a further microbatch one by one."""
        if (known := self._sums.get(call)) is None:
            known = self.zero
            together = {position for group in self.staged.addends(call) for position in group}
            for value in filter(self.functions.is_summed, call.results):
                if value.index in together:
                    continue
                state, type_ = self.staged.tensors[value].batch, self.functions.result_type(call, value)
                assert isinstance(state, Partial)
                if (op := self._operations.get(("accumulate", type_, state.reduction))) is None:
                    op = AccumulateOp(_values(type_, type_), state.reduction)
                    self._operations["accumulate", type_, state.reduction] = op
                known = known + self._cost(op, (0,))
            self._sums[call] = known
        return known

    def _cost(self, op: Operation, participants: tuple[int, ...]) -> Vector:
        return column_data(self.summaries.library.costs.of(op, participants).picoseconds)


class _Device:
    """The first tensor rank of the first replica of every stage, while the program is walked. Numbers are vectors, or integers
    where one number of rows is asked for."""

    def __init__(self, bounds: Bounds, layout: Layout, columns: Sequence[int]):
        self.bounds, self.layout, self.columns = bounds, layout, columns
        self._latest: Callable[[Any, Any], Any] = max if len(columns) == 1 else np.maximum
        self.clocks = [self._at(bounds.zero)] * layout.pp
        self.live = list(map(self._at, bounds.functions.held(layout)))
        self.peaks = list(self.live)
        self.total = sum(map(_most, self.live))
        """No less than any clock, and than the bytes of any device."""
        self._summed: set[CallOp] = set()
        self._calls: dict[tuple[CallOp, bool], tuple[int, float, list[Any]]] = {}
        self._sends: dict[CallOp, tuple[float, list[tuple[int, Any, Any]]]] = {}

    def _at(self, numbers: Vector) -> Any:
        return int(numbers[self.columns[0]]) if len(self.columns) == 1 else numbers[self.columns]

    def run(self, call: CallOp) -> None:
        """A call of the loop, or before it."""
        bounds, latest = self.bounds, self._latest
        if phase_of(call) == BEFORE:
            self._spend(stage_of(call), bounds.call(call, self.layout))
            return
        adds = call in self._summed
        if (known := self._calls.get((call, adds))) is None:
            sums = bounds.sums(call) if adds else bounds.zero
            vectors = (bounds.call(call, self.layout, adds) + sums, *bounds.functions.footprint(call, adds))
            numbers = list(map(self._at, vectors))
            known = self._calls[call, adds] = (stage_of(call), sum(map(_most, numbers)), numbers)
        stage, total, (picoseconds, peak, keeps, frees, addends) = known
        self._summed.add(call)
        self.total += total
        live = self.live[stage]
        self.peaks[stage] = latest(self.peaks[stage], live + peak)
        live = live + keeps - frees + addends
        self.clocks[stage] = self.clocks[stage] + picoseconds
        self.live[stage] = live
        self.peaks[stage] = latest(self.peaks[stage], live)

    def send(self, call: CallOp) -> None:
        """The messages with what a call gave."""
        source, latest = stage_of(call), self._latest
        if (known := self._sends.get(call)) is None:
            known = self._sends[call] = self._messages(call, source)
        self.total += known[0]
        for target, picoseconds, bytes_ in known[1]:
            end = latest(self.clocks[source], self.clocks[target]) + picoseconds
            self.clocks[source] = self.clocks[target] = end
            self.live[target] = self.live[target] + bytes_
            self.peaks[target] = latest(self.peaks[target], self.live[target])

    def _messages(self, call: CallOp, source: int) -> tuple[float, list[tuple[int, Any, Any]]]:
        """All picoseconds and bytes, and per message its target stage, its time and what it brings."""
        bounds, first = self.bounds, self.layout.group(source, 0)[0]
        found: list[tuple[int, Any, Any]] = []
        for result, stages in bounds.staged.results_sent(call):
            for stage in stages:
                value, target = cast(OpResult, result), self.layout.group(stage, 0)[0]
                picoseconds = self._at(bounds.sent(call, value, first, target))
                found.append((stage, picoseconds, self._at(bounds.functions.received(call, value, stage))))
        return sum([_most(number) for _, *numbers in found for number in numbers]), found

    def update(self, call: CallOp) -> None:
        """A call after the loop, after the sums over replicas that it needs."""
        if self.layout.dp > 1:
            for stage, picoseconds in self.bounds.reduced(call, self.layout):
                self._spend(stage, picoseconds)
        self._spend(stage_of(call), self.bounds.call(call, self.layout))

    def _spend(self, stage: int, picoseconds: Vector) -> None:
        own = self._at(picoseconds)
        self.clocks[stage] = self.clocks[stage] + own
        self.total += _most(own)

    def least(self, rows: Sequence[int]) -> dict[int, Least]:
        """By number of rows. Raises OverflowError where 64 bits may not hold it."""
        if self.total >= LARGEST:
            raise OverflowError("times or bytes")
        clocks, peaks = np.max(self.clocks, axis=0), np.max(self.peaks, axis=0)
        return {r: Least(int(c), int(p)) for r, c, p in zip(rows, np.ravel(clocks), np.ravel(peaks), strict=True)}


def _most(number: Any) -> float:
    return float(np.max(number, initial=0))


def _values(*types: Attribute) -> Sequence[SSAValue]:
    """Values that nothing makes."""
    return Block(arg_types=types).args
