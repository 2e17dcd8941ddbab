"""Steps of a schedule that recur are written once, as a function, in programs that are simulated and not run: the entry of a
deep loop is as short as that of a shallow one.

A pipeline in its steady state does the same for one microbatch after the other. One such period is a function over the
devices of the replica; twice of it is a function that calls it twice, and so on, so that any number of periods is a few
calls. A function stands for all periods: it slices the rows of the first one, where the others have as many rows elsewhere. What
is computed is therefore not what the schedule says; what it costs, and when what is there, is.

What a period takes from before it and what is used after it are its arguments and results, found as it is written. A value that
nothing uses after all dies inside, as in the program without functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import UNKNOWN_LOC
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from distir.dialects.dist import CallOp as DistCallOp
from distir.passes.distribution.pipeline.replica import Converted, Key, Packed, Place, Replica, What
from distir.passes.distribution.pipeline.stages import BACKWARD, FORWARD, phase_of, stage_of
from distir.passes.distribution.pipeline.tasks import Recurring, Task, recurring, step_numbers
from distir.passes.structure import name_alike, unique_symbol

FEWEST = 4
"""Periods from which on a function is written: fewer are as short without."""


class Periods(NamedTuple):
    """A function of so many periods, and what it takes and gives in terms of the first."""

    number: int
    name: str
    inputs: list[tuple[Key, list[Attribute]]]
    """With types, device by device."""
    outputs: list[tuple[Key, list[Attribute]]]
    spared: list[tuple[Operation, int]]
    """As in `Replica`, on its own devices."""


class Inside(Replica):
    """A replica inside a function: what it does not hold is an argument, if the replica around it holds it. Devices are numbered
    stage by stage."""

    def __init__(self, outer: Replica):
        ranks = outer.staged.ranks
        local = [list(range(p * ranks, (p + 1) * ranks)) for p in range(len(outer.devices))]
        super().__init__(outer.staged, Block(), local, outer.microbatches)
        self.outer, self.first_stage = outer, outer.first_stage
        self.inputs: dict[Key, list[SSAValue]] = {}

    def find(self, what: What, place: Place) -> list[SSAValue] | None:
        key = what, place
        if (own := self.held.get(key)) is not None:
            return own
        if (given := self.outer.find(what, place)) is None:
            return None
        block, devices = self.block, self.devices[place[0]]
        types = [self.staged.moved(value.type, device) for value, device in zip(given, devices, strict=True)]
        inside = [block.insert_arg(type_, len(block.args)) for type_ in types]
        name_alike(inside, given[0].name_hint)
        self.inputs[key] = self.held[key] = [*inside]
        return self.held[key]


class RecurringSteps:
    """Writes the steps of a schedule into a replica."""

    def __init__(self, replica: Replica, schedule: str):
        self.replica, self.staged = replica, replica.staged
        self.schedule = schedule, len(replica.devices), replica.microbatches, replica.staged.is_trained
        self._functions: list[FuncOp] = []
        self._step_of = step_numbers(*self.schedule)

    def write(self) -> list[FuncOp]:
        """All steps. Returns the functions that were written into the module of the staged program."""
        at = 0
        for part in recurring(*self.schedule, FEWEST):
            if part.times == 1:
                for step in part.steps:
                    self._do(self.replica, step)
            else:
                self._recur(part, at)
            at += len(part.steps) * part.times
        return self._functions

    def _do(self, replica: Replica, step: Sequence[Task]) -> None:
        for each in self.staged.in_step(step):
            replica.do(*each)

    def _recur(self, part: Recurring, at: int) -> None:
        """Writes a function for each power of two of periods, and calls them, the longest first."""
        written = [self._one_period(part, at)]
        while 2 * written[-1].number <= part.times:
            written.append(self._twice(written[-1], part, at))
        done = 0
        for periods in reversed(written):
            if done + periods.number <= part.times:
                self._call(self.replica, periods, done * part.shift)
                done += periods.number
        assert done == part.times

    def _one_period(self, part: Recurring, at: int) -> Periods:
        inside = Inside(self.replica)
        for step in part.steps:
            self._do(inside, step)
        return self._finish(inside, 1, at + len(part.steps))

    def _twice(self, half: Periods, part: Recurring, at: int) -> Periods:
        inside, later = Inside(self.replica), half.number * part.shift
        made = {key for key, _ in half.outputs}
        again = [((what, _later(place, later)), types) for (what, place), types in half.inputs]
        inputs = {**dict(half.inputs), **{key: types for key, types in again if key not in made}}
        inside.block = Block(arg_types=[type_ for types in inputs.values() for type_ in types])
        given = iter(inside.block.args)
        inside.inputs = {key: [next(given) for _ in types] for key, types in inputs.items()}
        inside.held.update(inside.inputs)
        self._call(inside, half, 0)
        self._call(inside, half, later)
        return self._finish(inside, 2 * half.number, at + 2 * half.number * len(part.steps))

    def _finish(self, inside: Inside, count: int, end: int) -> Periods:
        """The function of what was done inside, up to this step of the schedule."""
        given = inside.inputs
        made = {key: values for key, values in inside.held.items() if given.get(key) is not values}
        outputs = [(key, values) for key, values in made.items() if self._is_used(key, end)]
        inside.block.add_op(ReturnOp.create(operands=[v for _, values in outputs for v in values]))
        types = [[v.type for v in values] for _, values in outputs]
        name = unique_symbol(self.staged.module, "steps")
        signature = list(inside.block.arg_types), [type_ for each in types for type_ in each]
        function = FuncOp(name, signature, Region(inside.block), visibility="private")
        self.staged.module.body.block.add_op(function)
        self._functions.append(function)
        inputs = [(key, [v.type for v in values]) for key, values in given.items()]
        return Periods(count, name, inputs, list(zip([key for key, _ in outputs], types, strict=True)), inside.spared)

    def _call(self, replica: Replica, periods: Periods, later: int) -> None:
        """Calls a function for microbatches that are so many later than those it was written for."""
        devices = [device for group in replica.devices for device in group]
        operands: list[SSAValue] = []
        for (what, place), _ in periods.inputs:
            found = replica.find(what, _later(place, later))
            assert found is not None
            operands += found
        moved = self.staged.moved
        op = DistCallOp.create(
            operands=operands,
            result_types=[
                moved(type_, device)
                for (_, (stage, _)), types in periods.outputs
                for type_, device in zip(types, replica.devices[stage], strict=True)
            ],
            properties=DistCallOp.stating(periods.name, tuple(devices)),
            location=UNKNOWN_LOC,
        )
        replica.block.add_op(op)
        replica.spared += [(spared, devices[device]) for spared, device in periods.spared]
        results: Sequence[SSAValue] = op.results
        at = 0
        for (what, place), types in periods.outputs:
            replica.held[what, _later(place, later)] = list(results[at : at + len(types)])
            at += len(types)

    def _is_used(self, key: Key, end: int) -> bool:
        """Whether a call from this step on may use what is held, or what comes after the loop."""
        what, (stage, microbatch) = key
        if microbatch is None:
            return True
        value = what.value if isinstance(what, Converted) else what
        if isinstance(value, SSAValue):
            if self.staged.leaves_loop(value) and not isinstance(what, Converted):
                return True
            users = [use.operation for use in value.uses]
        else:
            assert isinstance(value, Packed)
            users = [value.user]
        calls = [call for call in users if isinstance(call, CallOp) and stage_of(call) == stage]
        tasks = [
            Task(stage, microbatch, phase_of(call) == BACKWARD)
            for call in calls
            if phase_of(call) in (FORWARD, BACKWARD)
        ]
        return any([self._step_of[task] >= end for task in tasks])


def _later(place: Place, microbatches: int) -> Place:
    stage, microbatch = place
    return stage, None if microbatch is None else microbatch + microbatches
