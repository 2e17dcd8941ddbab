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

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import DenseArrayBase, TensorType, TupleType, i64
from xdsl.dialects.func import CallOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.dist import AccumulateOp, AllReduceOp, SendOp
from distir.dialects.sharding import Partial
from distir.interpreters.costs import PARTICIPANTS, PICOSECONDS
from distir.interpreters.simulate.batches import LARGEST, BatchSummaries
from distir.interpreters.simulate.bodies import Body
from distir.interpreters.simulate.liveness import DIES, LIVES, Context
from distir.passes.distribution.layout import Layout, Tensor, sent_to
from distir.passes.distribution.mesh import AxisStates
from distir.passes.distribution.options import local_shape
from distir.passes.distribution.staged import StagedProgram
from distir.passes.distribution.stages import BACKWARD, BEFORE, FORWARD, UPDATE, phase_of, stage_of

Vector = NDArray[np.int64]
"""Picoseconds or bytes, one per number of rows."""


@dataclass(frozen=True)
class Least:
    """What a plan takes at least at one number of rows."""

    picoseconds: int
    bytes: int
    """On its fullest device."""

    @property
    def seconds(self) -> float:
        return self.picoseconds / PICOSECONDS


class Footprint(NamedTuple):
    """What one stage call surely has in memory on the device, in bytes."""

    peak: Vector
    """The most inside, over what was there before."""
    keeps: Vector
    """Results that later calls of the microbatch use there, or that leave the loop side by side."""
    frees: Vector
    """What stayed for this call, and is not used there after it."""
    addends: Vector
    """Results that are summed over microbatches."""


class Bounds:
    """The bounds of all plans of a staged program."""

    def __init__(self, staged: StagedProgram, summaries: BatchSummaries):
        self.staged, self.summaries, self.costs = staged, summaries, summaries.library.costs
        self.zero: Vector = np.zeros(len(summaries.rows), np.int64)
        self._bodies = {call: self._body(call) for call in staged.stage_calls}
        self._calls: dict[tuple[CallOp, int], Vector] = {}
        self._operations: dict[tuple[object, ...], Operation] = {}
        self._sums: dict[CallOp, Vector] = {}
        self._footprints: dict[CallOp, Footprint] = {}
        self._bytes_made: dict[CallOp, dict[SSAValue, Vector]] = {}
        self._last_user = self._find_last_users()

    def of(self, layout: Layout, schedule: str, rows: Sequence[int]) -> dict[int, Least]:
        """What the plan takes at least at each number of rows."""
        device = _Device(self, layout, [self.summaries.rows.index(r) for r in rows])
        for call, _, sends in self.staged.in_order(schedule, layout):
            if sends:
                device.send(call)
            else:
                device.run(call)
        for call in self.staged.stage_calls:
            if phase_of(call) == UPDATE:
                device.update(call)
        return device.least(rows)

    def _body(self, call: CallOp) -> Body:
        """The stage function as the program calls it: what the entry is given stays, unless it is converted or sliced."""
        staged, name = self.staged, self.staged.calls[call]
        states = staged.lowering.argument_states[name]
        stays = [
            tuple([self._is_given(call.operands[i], states[i]) for i in group])
            for group in staged.signatures[call].operands
            for _ in range(staged.tp)
        ]
        return self.summaries.function(staged.module, name, stays)

    def _is_given(self, value: SSAValue, needed: AxisStates) -> bool:
        given = isinstance(value, BlockArgument) and not self.staged.varies(value)
        return given and needed == (self.staged.tensors[value].tensor,)

    # --- time ------------------------------------------------------------------------------------------------------

    def call(self, call: CallOp, layout: Layout) -> Vector:
        """From entry to exit of the first rank."""
        devices = tuple(layout.group(stage_of(call), 0))
        if (known := self._calls.get((call, devices[0]))) is None:
            body = self._bodies[call]
            known = self.zero
            if (stream := next((i for i, (device, _) in enumerate(body.streams) if device == 0), None)) is not None:
                start, offset = self.summaries.timing.map(self.summaries.frames.of(body, devices[: body.devices]))[
                    stream
                ]
                known = self.zero + start[stream] + offset if stream in start else self.zero
            self._calls[call, devices[0]] = known
        return known

    def sent(self, call: CallOp, result: OpResult, source: int, target: int) -> Vector:
        """A message with the first rank's part of a result."""
        type_ = self._result_type(call, result)
        if (op := self._operations.get(("send", type_))) is None:
            there, to = sent_to(type_, 1)
            op = SendOp.create(operands=_values(type_), result_types=[there], properties={"to": to})
            self._operations["send", type_] = op
        return self._cost(op, (source, target))

    def reduced(self, value: OpResult, participants: Sequence[int]) -> Vector:
        """The sum over replicas of the first rank's part."""
        state = self.staged.tensors[value].batch
        assert isinstance(state, Partial)
        type_, on = self._result_type(cast(CallOp, value.op), value), DenseArrayBase.from_list(i64, list(participants))
        key = ("allreduce", type_, state.reduction, on)
        if (op := self._operations.get(key)) is None:
            op = AllReduceOp(_values(type_), state.reduction)
            op.attributes[PARTICIPANTS] = on
            self._operations[key] = op
        return self._cost(op, (participants[0],))

    def sums(self, call: CallOp) -> Vector:
        """Adding up what a call gives for a further microbatch."""
        if (known := self._sums.get(call)) is None:
            known = self.zero
            for value in filter(self._is_summed, call.results):
                state, type_ = self.staged.tensors[value].batch, self._result_type(call, value)
                assert isinstance(state, Partial)
                if (op := self._operations.get(("accumulate", type_, state.reduction))) is None:
                    op = AccumulateOp(_values(type_, type_), state.reduction)
                    self._operations["accumulate", type_, state.reduction] = op
                known = known + self._cost(op, (0,))
            self._sums[call] = known
        return known

    def _cost(self, op: Operation, participants: tuple[int, ...]) -> Vector:
        return _data(self.costs.of(op, participants).picoseconds)

    def _result_type(self, call: CallOp, result: OpResult) -> Attribute:
        """Of the first rank's part."""
        groups = self.staged.signatures[call].results
        number = next(i for i, group in enumerate(groups) if result.index in group)
        outputs = self.staged.placed_functions[self.staged.calls[call]].function_type.outputs.data
        type_ = outputs[number * self.staged.tp]
        if len(groups[number]) == 1:
            return type_
        return cast(TupleType, type_).types.data[groups[number].index(result.index)]

    # --- memory ----------------------------------------------------------------------------------------------------

    def held(self, layout: Layout) -> list[Vector]:
        """Per stage, what the entry is given there."""
        found = [self.zero] * layout.pp
        bytes_: dict[Tensor, Vector] = {}
        for argument, stages in self.staged.places.items():
            tensor = self.staged.tensors[argument]
            if not isinstance(tensor.type, TensorType):
                continue
            if tensor not in bytes_:
                shape = local_shape(tensor.rows_joined(layout.microbatches), tensor.tensor, layout.tp)
                type_ = TensorType(cast(TensorType[Any], tensor.type).element_type, shape)
                bytes_[tensor] = _data(self.summaries.library.bytes(type_))
            for stage in stages:
                found[stage] = found[stage] + bytes_[tensor]
        return found

    def received(self, call: CallOp, result: OpResult, stage: int) -> Vector:
        """What a message brings to a stage, if calls there use it."""
        if (result, stage) not in self._last_user:
            return self.zero
        return _data(self.summaries.library.bytes(self._result_type(call, result)))

    def footprint(self, call: CallOp) -> Footprint:
        """What a call of the loop surely has in memory."""
        if (known := self._footprints.get(call)) is None:
            known = self._footprints[call] = self._footprint(call)
        return known

    def _footprint(self, call: CallOp) -> Footprint:
        staged, body, stage = self.staged, self._bodies[call], stage_of(call)
        frees, dying = self.zero, set[int]()
        for value in dict.fromkeys(call.operands):
            if self._last_user.get((value, stage)) is call:
                maker = cast(CallOp, value.owner)
                if stage_of(maker) != stage:
                    frees = frees + self.received(maker, cast(OpResult, value), stage)
                elif not staged.leaves_loop(value):
                    frees = frees + self._made(maker).get(value, self.zero)
        for number, group in enumerate(staged.signatures[call].operands):
            values = [call.operands[i] for i in group]
            if staged.varies(values[0]) and all([self._last_user.get((v, stage), call) is call for v in values]):
                for rank in range(staged.tp):
                    dying.update(_slots(body, number * staged.tp + rank))
        keeps, addends, living = self.zero, self.zero, set[int]()
        for number, group in enumerate(staged.signatures[call].results):
            for result in [call.results[i] for i in group]:
                made = self._made(call).get(result, self.zero)
                if self._is_summed(result):
                    addends = addends + made
                elif (result, stage) in self._last_user or staged.leaves_loop(result):
                    keeps = keeps + made
                else:
                    continue
                living.update(chain.from_iterable(body.results[number * staged.tp : (number + 1) * staged.tp]))
        fates = tuple([LIVES if slot in living else DIES for slot in body.made])
        dying = [slot for slot in sorted(dying) if body.used[slot] and slot not in living]
        memory = self.summaries.liveness.of(body, Context(tuple(dying), fates, None))
        return Footprint(cast(Any, memory.peak[0]), keeps, frees, addends)

    def _made(self, call: CallOp) -> dict[SSAValue, Vector]:
        """What the call allocates for its results on the device; where several share it, for the first."""
        if (known := self._bytes_made.get(call)) is None:
            body, taken = self._bodies[call], set[int]()
            known = self._bytes_made[call] = {}
            for number, group in enumerate(self.staged.signatures[call].results):
                slots = body.results[number * self.staged.tp]
                if len(slots) != len(group):
                    continue
                for index, slot in zip(group, slots, strict=True):
                    if slot >= body.arguments and slot not in taken:
                        taken.add(slot)
                        known[call.results[index]] = _data(body.slots[slot][1])
        return known

    def _is_summed(self, result: OpResult) -> bool:
        return self.staged.leaves_loop(result) and isinstance(self.staged.tensors[result].batch, Partial)

    def _find_last_users(self) -> dict[tuple[SSAValue, int], CallOp]:
        """Of what a microbatch's calls made, on a stage: the last of its calls there that uses it. Without what a call there
        takes otherwise than it is held: a converted copy may stand for it."""
        found: dict[tuple[SSAValue, int], CallOp] = {}
        converted: set[tuple[SSAValue, int]] = set()
        for call in [*self.staged.by_phase[FORWARD], *self.staged.by_phase[BACKWARD]]:
            body, stage, name = self._bodies[call], stage_of(call), self.staged.calls[call]
            states = self.staged.lowering.argument_states[name]
            for number, group in enumerate(self.staged.signatures[call].operands):
                slots = _slots(body, number * self.staged.tp)
                if len(slots) != len(group):
                    continue
                for index, slot in zip(group, slots, strict=True):
                    value = call.operands[index]
                    if isinstance(value, BlockArgument) or not self.staged.varies(value):
                        continue
                    if states[index] != (self.staged.tensors[value].tensor,):
                        converted.add((value, stage))
                    elif body.used[slot]:
                        found[value, stage] = call
        return {key: call for key, call in found.items() if key not in converted}


class _Device:
    """The first tensor rank of the first replica of every stage, while the program is walked."""

    def __init__(self, bounds: Bounds, layout: Layout, columns: Sequence[int]):
        self.bounds, self.layout, self.columns = bounds, layout, columns
        self.clocks = [self._at(bounds.zero)] * layout.pp
        self.live = [self._at(held) for held in bounds.held(layout)]
        self.peaks = list(self.live)
        self.total = 0.0
        """No less than any clock, and than the bytes of any device."""
        self._summed: set[CallOp] = set()
        self._reduced: set[SSAValue] = set()
        self._calls: dict[CallOp, tuple[Vector, Vector, Vector, Vector, Vector, Vector]] = {}
        self._sends: dict[CallOp, list[tuple[int, Vector, Vector]]] = {}
        self._totals: dict[CallOp, float] = defaultdict(float)
        """Of each call, and of its messages, all picoseconds and bytes."""

    def _at(self, numbers: Vector) -> Vector:
        return numbers[self.columns]

    def run(self, call: CallOp) -> None:
        """A call of the loop, or before it."""
        stage, bounds = stage_of(call), self.bounds
        if phase_of(call) == BEFORE:
            self._spend(stage, bounds.call(call, self.layout))
            return
        if (known := self._calls.get(call)) is None:
            numbers = (bounds.call(call, self.layout), bounds.sums(call), *bounds.footprint(call))
            known = self._calls[call] = cast(Any, tuple(map(self._at, numbers)))
            self._totals[call] = sum([float(each.max()) for each in known])
        picoseconds, sums, peak, keeps, frees, addends = known
        self.total += self._totals[call]
        self.peaks[stage] = np.maximum(self.peaks[stage], self.live[stage] + peak)
        self.live[stage] = self.live[stage] + keeps - frees
        if call in self._summed:
            picoseconds = picoseconds + sums
        else:
            self._summed.add(call)
            self.live[stage] = self.live[stage] + addends
        self.clocks[stage] = self.clocks[stage] + picoseconds
        self.peaks[stage] = np.maximum(self.peaks[stage], self.live[stage])

    def send(self, call: CallOp) -> None:
        """The messages with what a call gave."""
        source = stage_of(call)
        if (known := self._sends.get(call)) is None:
            first, known = self.layout.group(source, 0)[0], []
            for result, stages in self.bounds.staged.results_sent(call):
                for stage in stages:
                    value, target = cast(OpResult, result), self.layout.group(stage, 0)[0]
                    picoseconds = self._at(self.bounds.sent(call, value, first, target))
                    known.append((stage, picoseconds, self._at(self.bounds.received(call, value, stage))))
            self._sends[call] = known
            self._totals[call] += sum([float(each.max()) for _, *numbers in known for each in numbers])
        for target, picoseconds, bytes_ in known:
            end = np.maximum(self.clocks[source], self.clocks[target]) + picoseconds
            self.clocks[source] = self.clocks[target] = end
            self.live[target] = self.live[target] + bytes_
            self.peaks[target] = np.maximum(self.peaks[target], self.live[target])

    def update(self, call: CallOp) -> None:
        """A call after the loop, after the sums over replicas that it needs."""
        stage = stage_of(call)
        for value in dict.fromkeys(call.operands):
            if isinstance(self.bounds.staged.tensors[value].batch, Partial) and value not in self._reduced:
                self._reduced.add(value)
                if self.layout.dp > 1 and isinstance(value, OpResult):
                    home = stage_of(cast(CallOp, value.op))
                    participants = [self.layout.group(home, replica)[0] for replica in range(self.layout.dp)]
                    self._spend(home, self.bounds.reduced(value, participants))
        self._spend(stage, self.bounds.call(call, self.layout))

    def _spend(self, stage: int, picoseconds: Vector) -> None:
        own = self._at(picoseconds)
        self.clocks[stage] = self.clocks[stage] + own
        self.total += float(own.max())

    def least(self, rows: Sequence[int]) -> dict[int, Least]:
        """By number of rows. Raises OverflowError where 64 bits may not hold it."""
        if self.total + sum([float(held.max(initial=0)) for held in self.live]) >= LARGEST:
            raise OverflowError("times or bytes")
        clocks, peaks = np.max(self.clocks, axis=0), np.max(self.peaks, axis=0)
        return {r: Least(int(clocks[i]), int(peaks[i])) for i, r in enumerate(rows)}


def _data(number: object) -> Vector:
    return cast(Any, number).data


def _slots(body: Body, argument: int) -> range:
    """The slots of an argument."""
    first, _ = body.operands[argument]
    return range(first, first + body.arity[argument])


def _values(*types: Attribute) -> Sequence[SSAValue]:
    """Values that nothing makes."""
    return Block(arg_types=types).args
