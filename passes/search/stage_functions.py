"""The functions of a staged program as a simulation has them, and what each surely keeps in memory: what bounds of plans
(`bounds`) are made of. All is said of the first tensor rank."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import TensorType, TupleType
from xdsl.dialects.func import CallOp
from xdsl.ir import Attribute, BlockArgument, OpResult, SSAValue

from distir.dialects.sharding import Partial, State
from distir.interpreters.simulate.batches import BatchSummaries
from distir.interpreters.simulate.bodies import Body
from distir.interpreters.simulate.liveness import DIES, LIVES, Context
from distir.passes.distribution.mesh import AxisStates
from distir.passes.distribution.options import local_shape
from distir.passes.distribution.pipeline.layout import Layout
from distir.passes.distribution.pipeline.staged import StagedProgram
from distir.passes.distribution.pipeline.stages import BACKWARD, FORWARD, stage_of

Vector = NDArray[np.int64]
"""Picoseconds or bytes, one per number of rows."""


class Footprint(NamedTuple):
    """What one stage call surely has in memory on the device, in bytes."""

    peak: Vector
    """The most inside, over what was there before."""
    keeps: Vector
    """Results that later calls of the microbatch use there, or that leave the loop side by side."""
    frees: Vector
    """What stayed for this call, and is not used there after it."""
    addends: Vector
    """Results that are summed over microbatches, where the call does not add them to sums that are there."""


class StageFunctions:
    """The functions that the stage calls of a staged program run."""

    def __init__(self, staged: StagedProgram, summaries: BatchSummaries):
        self.staged, self.summaries = staged, summaries
        self.zero: Vector = np.zeros(len(summaries.rows), np.int64)
        self.bodies = {call: self._body(call) for call in staged.stage_calls}
        self._adding: dict[CallOp, Body] = {}
        self._result_types: dict[CallOp, dict[int, Attribute]] = {}
        self._footprints: dict[tuple[CallOp, bool], Footprint] = {}
        self._bytes_made: dict[CallOp, dict[SSAValue, Vector]] = {}
        self._last_user = self._find_last_users()

    def result_type(self, call: CallOp, result: OpResult) -> Attribute:
        """Of the first rank's part."""
        if call not in self._result_types:
            outputs = self.staged.placed_functions[self.staged.calls[call]].function_type.outputs.data
            types = self._result_types[call] = {}
            for number, group in enumerate(self.staged.signatures[call].results):
                type_ = outputs[number * self.staged.ranks]
                parts = cast(TupleType, type_).types.data if len(group) > 1 else [type_]
                types.update(zip(group, parts, strict=True))
        return self._result_types[call][result.index]

    def is_summed(self, result: OpResult) -> bool:
        """Whether it is added up over microbatches."""
        return self.staged.leaves_loop(result) and isinstance(self.staged.tensors[result].batch, Partial)

    def body(self, call: CallOp, adds: bool) -> Body:
        """The stage function of the first microbatch, or of one that adds to sums."""
        if not adds or not self.staged.addends(call):
            return self.bodies[call]
        if call not in self._adding:
            self._adding[call] = self._body(call, adds=True)
        return self._adding[call]

    def _body(self, call: CallOp, adds: bool = False) -> Body:
        """The stage function as the program calls it: what the entry is given stays, unless it is converted or sliced."""
        staged, name = self.staged, self.staged.calls[call]
        states = staged.argument_states[name]
        stays = [
            tuple([self._is_given(call.operands[i], states[i]) for i in group])
            for group in staged.signatures[call].operands
            for _ in range(staged.ranks)
        ]
        if adds:
            name = staged.adding(call)
            stays += [(False,) * len(group) for group in staged.addends(call) for _ in range(staged.ranks)]
        return self.summaries.function(staged.module, name, stays)

    def _is_given(self, value: SSAValue, needed: AxisStates) -> bool:
        given = isinstance(value, BlockArgument) and not self.staged.varies(value)
        return given and needed == (self.staged.tensors[value].tensor,)

    def held(self, layout: Layout) -> list[Vector]:
        """Per stage, what the entry is given there."""
        found = list(self._held_always)
        for argument, stages in self.staged.places.items():
            if self.staged.varies(argument):
                for stage in stages:
                    found[stage] = found[stage] + self._bytes_given(argument, layout.microbatches)
        return found

    @cached_property
    def _held_always(self) -> list[Vector]:
        """The same, without what grows with the batch."""
        found = [self.zero] * (1 + max([stage_of(call) for call in self.staged.stage_calls], default=0))
        alike: dict[tuple[Attribute, State, int], int] = defaultdict(int)
        one: dict[tuple[Attribute, State], BlockArgument] = {}
        for argument, stages in self.staged.places.items():
            if not self.staged.varies(argument):
                tensor = self.staged.tensors[argument]
                one[tensor.type, tensor.tensor] = argument
                for stage in stages:
                    alike[tensor.type, tensor.tensor, stage] += 1
        for call, held in self.staged.held.items():
            found[stage_of(call)] = found[stage_of(call)] + column_data(self.summaries.library.bytes(held[0]))
        for (type_, state, stage), times in alike.items():
            found[stage] = found[stage] + self._bytes_given(one[type_, state], 1) * times
        return found

    def _bytes_given(self, argument: BlockArgument, microbatches: int) -> Vector:
        """The first rank's part of an argument of the entry."""
        tensor = self.staged.tensors[argument]
        if not isinstance(tensor.type, TensorType):
            return self.zero
        shape = local_shape(tensor.rows_joined(microbatches), tensor.tensor, self.staged.tp)
        type_ = TensorType(cast("TensorType[Any]", tensor.type).element_type, shape)
        return column_data(self.summaries.library.bytes(type_))

    def received(self, call: CallOp, result: OpResult, stage: int) -> Vector:
        """What a message brings to a stage, if calls there use it."""
        if (result, stage) not in self._last_user:
            return self.zero
        return column_data(self.summaries.library.bytes(self.result_type(call, result)))

    def footprint(self, call: CallOp, adds: bool = False) -> Footprint:
        """What a call of the loop surely has in memory, of the first microbatch or of one that adds to sums."""
        if (known := self._footprints.get((call, adds))) is None:
            known = self._footprints[call, adds] = self._footprint(call, adds)
        return known

    def _footprint(self, call: CallOp, adds: bool) -> Footprint:
        staged, body, stage = self.staged, self.body(call, adds), stage_of(call)
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
                for rank in range(staged.ranks):
                    dying.update(_slots(body, number * staged.ranks + rank))
        for sums in range(len(staged.signatures[call].operands) * staged.ranks, len(body.operands)):
            dying.update(_slots(body, sums))
        keeps, addends, living = self.zero, self.zero, set[int]()
        for number, group in enumerate(staged.signatures[call].results):
            for result in [call.results[i] for i in group]:
                made = self._made(call).get(result, self.zero)
                if self.is_summed(result):
                    addends = addends if adds else addends + made
                elif (result, stage) in self._last_user or staged.leaves_loop(result):
                    keeps = keeps + made
                else:
                    continue
                living.update(chain.from_iterable(body.results[number * staged.ranks : (number + 1) * staged.ranks]))
        fates = tuple([LIVES if slot in living else DIES for slot in body.made])
        dying = [slot for slot in sorted(dying) if body.used[slot] and slot not in living]
        memory = self.summaries.liveness.of(body, Context(tuple(dying), fates, None))
        return Footprint(cast(Any, memory.peak[0]), keeps, frees, addends)

    def _made(self, call: CallOp) -> dict[SSAValue, Vector]:
        """What the call allocates for its results on the device; where several share it, for the first."""
        if (known := self._bytes_made.get(call)) is None:
            body, taken = self.bodies[call], set[int]()
            known = self._bytes_made[call] = {}
            for number, group in enumerate(self.staged.signatures[call].results):
                slots = body.results[number * self.staged.ranks]
                if len(slots) != len(group):
                    continue
                for index, slot in zip(group, slots, strict=True):
                    if slot >= body.arguments and slot not in taken:
                        taken.add(slot)
                        known[call.results[index]] = column_data(body.slots[slot][1])
        return known

    def _find_last_users(self) -> dict[tuple[SSAValue, int], CallOp]:
        """Of what a microbatch's calls made, on a stage: the last of its calls there that uses it. Without what a call there
        takes otherwise than it is held: a converted copy may stand for it."""
        found: dict[tuple[SSAValue, int], CallOp] = {}
        converted: set[tuple[SSAValue, int]] = set()
        for call in [*self.staged.by_phase[FORWARD], *self.staged.by_phase[BACKWARD]]:
            body, stage, name = self.bodies[call], stage_of(call), self.staged.calls[call]
            states = self.staged.argument_states[name]
            for number, group in enumerate(self.staged.signatures[call].operands):
                slots = _slots(body, number * self.staged.ranks)
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


def column_data(number: object) -> Vector:
    """The numbers of a column."""
    return cast(Any, number).data


def _slots(body: Body, argument: int) -> range:
    """The slots of an argument."""
    first, _ = body.operands[argument]
    return range(first, first + body.arity[argument])
