"""The order of a staged program, before it is written: in goes a staged entry, placed or not, and a schedule; out comes where each value is made,
which stages hold which arguments, what goes to other stages after which call, and in which order microbatches run on each stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, cast

from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.dist import CallOp, MicrobatchesOp, PutRowsOp
from distir.dialects.errors import DistirError
from distir.passes.distribution.pipeline.stages import (
    BACKWARD,
    FORWARD,
    STAGE,
    UPDATE,
    VIRTUAL,
    WEIGHTS,
    home_first,
    phase_of,
    stage_of,
)
from distir.passes.distribution.pipeline.tasks import Task, ranks_of, steps, table_of
from distir.passes.structure import AnyCall, argument_attributes, functions, result_attributes, text

PHASES: Mapping[str, tuple[str, ...]] = {"F": (FORWARD,), "B": (BACKWARD, WEIGHTS), "I": (BACKWARD,), "W": (WEIGHTS,)}
"""What a task runs. Where backward parts are not in two, all is done with the gradients that earlier stages wait for."""

Use = tuple[Operation, int]
"""An operation, and which of its operands."""


class Order:
    """Of one staged program. So many values are `listed` for one of the program: one for each device, or that of a group. Where its steps have more
    than `most` calls, of ranks that make the same calls one is there, that with most microbatches in flight: no plan is slower than it is on these."""

    def __init__(self, module: ModuleOp, entry: FuncOp, listed: int, schedule: str, most: float = inf):
        self.module, self.entry, self.listed, self.schedule = module, entry, listed, schedule
        self.main = entry.body.block
        loops = [op for op in self.main.ops if isinstance(op, MicrobatchesOp)]
        if len(loops) > 1:
            raise DistirError(f"@{entry.sym_name.data} has {len(loops)} loops over microbatches: expected one at most")
        self.loop = loops[0] if loops else None
        self.function = functions(module)[self.loop.callee.string_value()] if self.loop else None
        self.body = self.function.body.block if self.function else None
        self.times = self.loop.times if self.loop else 1
        self.given = tuple(self.loop.operands) if self.loop else ()
        self.same = len(self.loop.same) if self.loop else 0
        """How many of what is given are the same in every microbatch; the others are what is carried into the first."""
        self.last = cast(ReturnOp, self.body.last_op) if self.body else None
        self.left = tuple(self.last.operands) if self.last else ()
        """What a microbatch leaves to the next."""
        calls = [op for block in (self.main, self.body) if block for op in block.ops if is_stage_call(op)]
        stages = 1 + max(map(stage_of, calls), default=0)
        self.ranks = ranks_of_entry(entry, schedule)
        """How many groups of devices there are: each has the same number of stages."""
        table = table_of(schedule, self.ranks, self.times, stages)
        self.rank_of = table.rank_of
        """Of each stage. Wherever else a stage is meant here, it is the rank that has it."""
        self.there: Sequence[int] = range(self.ranks)
        """The ranks that are there; what others send arrives when it is needed, and costs nothing there."""
        if len(calls) * self.times > most:
            self.there = self._distinct(calls, table.in_flight())
        self.steps: Sequence[Sequence[Task]] = ()
        self.orders: dict[tuple[int, str], list[int]] = defaultdict(list)
        """By stage and phase, the microbatches in the order in which they run there."""
        self.calls: dict[tuple[int, str], list[Operation]] = defaultdict(list)
        """By stage and kind of task, the calls of the body that it runs."""
        if self.body is not None:
            inside = [op for op in self.body.ops if is_stage_call(op)]
            training = any(phase_of(op) in (BACKWARD, WEIGHTS) for op in inside)
            every = steps(schedule, self.ranks, self.times, training, stages)
            self.steps = [[task for task in step if self.rank_of[task.stage] in self.there] for step in every]
            for task in (task for step in every for task in step):
                for phase in PHASES[task.kind]:
                    self.orders[task.stage, phase].append(task.microbatch)
            for op in inside:
                for kind in (kind for kind, phases in PHASES.items() if phase_of(op) in phases):
                    self.calls[stage_of(op), kind].append(op)
        self._homes: dict[SSAValue, int | None] = {}
        self._latest: dict[SSAValue, Operation | None] = {}
        self.remote: dict[Operation, dict[tuple[SSAValue, Use, int], None]] = defaultdict(dict)
        """By the call after which it is there, what goes to which other stages in every microbatch, and the use for which it does."""
        self.kept: dict[Operation, list[int]] = defaultdict(list)
        """By the call after which they can be made, which of the values that a microbatch leaves to the next are made then."""
        self._note_uses()
        self.names = [text(a, "dist.name", "") for a in result_attributes(entry)]
        """Of the results of the entry; "" for one without."""
        self.updated: dict[str, BlockArgument] = {}
        """The arguments of the entry, by name, that a result is the next value of."""
        self.places = self._places()

    def _distinct(self, calls: Sequence[Operation], in_flight: Sequence[int]) -> list[int]:
        """One rank of those that make the same calls."""
        made: dict[int, list[object]] = defaultdict(list)
        for op in sorted(calls, key=stage_of):
            made[self.rank(op)].append((op.parent, phase_of(op), cast(AnyCall, op).callee))
        held = {rank: sum(n for n, r in zip(in_flight, self.rank_of, strict=True) if r == rank) for rank in made}
        found: dict[tuple[object, ...], int] = {}
        for rank in sorted(made, key=lambda rank: (-held[rank], rank)):
            found.setdefault(tuple(made[rank]), rank)
        return sorted(found.values())

    # --- what is known beforehand -----------------------------------------------------------------------------------

    def rank(self, call: Operation) -> int:
        """Where a stage call runs."""
        return self.rank_of[stage_of(call)]

    def returned(self) -> list[tuple[int, SSAValue, list[int]]]:
        """The results of the entry, by number, with the ranks that return them, of those that are there."""
        last = cast(ReturnOp, self.main.last_op)
        return [(i, v, [rank for rank in self.ranks_of(i) if rank in self.there]) for i, v in enumerate(last.operands)]

    def ranks_of(self, index: int) -> Sequence[int]:
        """Which ranks return a result: of an update, those that have the argument."""
        last, first = cast(ReturnOp, self.main.last_op), index - index % self.listed
        if (argument := self.updated.get(self.names[first])) is not None:
            return self.places[argument]
        group = last.operands[first : first + self.listed]
        home = next((h for h in map(self.home, group) if h is not None), None)
        if home is None and isinstance(group[0], BlockArgument):
            return self.places[group[0]]
        return [home or 0]

    def called(self, step: Sequence[Task]) -> list[tuple[Operation, int]]:
        """The calls of a step of the schedule, each with its microbatch."""
        return [(op, task.microbatch) for task in step for op in self.calls[task.stage, task.kind]]

    def home(self, value: SSAValue) -> int | None:
        """The stage on which a value is made; None for what arguments and constants alone make."""
        if value not in self._homes:
            self._homes[value] = None  # of a carried value, while what carries it on is looked at
            self._homes[value] = self._home(value)
        return self._homes[value]

    def _home(self, value: SSAValue) -> int | None:
        if (same := self.stands_for(value)) is not None:
            return self.home(same)
        if isinstance(value, BlockArgument):
            return None
        op = cast(OpResult, value).op
        if is_stage_call(op):
            return self.rank(op)
        return next((h for h in map(self.home, made_of(op)) if h is not None), None)

    def stands_for(self, value: SSAValue) -> SSAValue | None:
        """The value of the entry that an argument of the loop's body has, or the value of the body that a carried one has later."""
        if isinstance(value, OpResult):
            return self.left[value.index] if value.op is self.loop else None
        if isinstance(value, BlockArgument) and value.block is self.body:
            if value.index < self.same:
                return self.given[value.index]
            return self.left[value.index - self.same] if value.index < len(self.given) else None
        return None

    def latest(self, value: SSAValue) -> Operation | None:
        """The last call of the body of the loop that a value of one microbatch is made of."""
        if value not in self._latest:
            found: list[Operation] = []
            if isinstance(value, OpResult) and value.op.parent is self.body:
                inner = [self.latest(v) for v in value.op.operands] if not is_stage_call(value.op) else [value.op]
                found = [op for op in inner if op is not None]
            assert self.body is not None
            order = {op: i for i, op in enumerate(self.body.ops)} if len(found) > 1 else {}
            self._latest[value] = max(found, key=lambda op: order[op]) if len(found) > 1 else next(iter(found), None)
        return self._latest[value]

    def _note_uses(self) -> None:
        for op in self.body.ops if self.body else ():
            if is_stage_call(op):
                for i in range(len(op.operands)):
                    self._note_use((op, i), self.rank(op))
        for i, value in enumerate(self.left):
            if (made := self.latest(value)) is not None:
                self.kept[made].append(i)

    def _note_use(self, use: Use, stage: int) -> None:
        value = use[0].operands[use[1]]
        home = self.home(value)
        if home not in (None, stage):
            if (made := self.latest(value)) is not None:
                self.remote[made][value, use, stage] = None
        elif isinstance(value, OpResult) and not is_stage_call(value.op):
            for i in range(len(value.op.operands)):
                self._note_use((value.op, i), stage)

    def _places(self) -> dict[BlockArgument, list[int]]:
        """Of each argument of the entry the stages that hold it: all that use it; of one that is updated, the one that does that."""
        users: dict[SSAValue, dict[int, None]] = defaultdict(dict)
        updaters: dict[SSAValue, dict[int, None]] = defaultdict(dict)
        for block in (self.main, self.body):
            for op in block.ops if block else ():
                if is_stage_call(op):
                    for value in op.operands:
                        self._note_users(value, self.rank(op), updaters if phase_of(op) == UPDATE else users)
        attributes, last = argument_attributes(self.entry), cast(ReturnOp, self.main.last_op)
        made = {name: value for value, name in zip(last.operands, self.names, strict=True) if name}
        found: dict[BlockArgument, list[int]] = {}
        for first in range(0, len(self.main.args), self.listed):
            group = self.main.args[first : first + self.listed]
            used, updating = ({s for a in group for s in by[a]} for by in (users, updaters))
            stages = home_first(used, updating, sorted({*used, *updating}))
            if (name := text(attributes[first], "dist.name", "")) in made:
                stages = stages[:1] or [self.home(made[name]) or 0]
                self.updated[name] = group[0]
            found.update((argument, stages or [0]) for argument in group)
        return found

    def _note_users(self, value: SSAValue, stage: int, users: dict[SSAValue, dict[int, None]]) -> None:
        """Notes the arguments of the entry of which a value is made on a stage."""
        home = self.home(value)
        where = stage if home is None else home
        if where in users[value]:
            return
        users[value][where] = None
        if (same := self.stands_for(value)) is not None:
            self._note_users(same, where, users)
            if isinstance(value, BlockArgument):
                self._note_users(self.given[value.index], where, users)
        elif isinstance(value, OpResult) and not is_stage_call(value.op):
            for operand in value.op.operands:
                self._note_users(operand, where, users)

    def origin(self, value: SSAValue, stage: int) -> int:
        """Where a value comes from that is not on a stage yet: that stage, if it can be made there, as what is the same in every microbatch can:
        it is sent once, and converted where it is needed."""
        if isinstance(value, BlockArgument) and value.block is self.main:
            return self.places[value][0]
        if self.is_same(value):
            return stage
        if (home := self.home(value)) is not None:
            return home
        # The loop may pass on zeros, which no stage makes.
        if isinstance(value, OpResult) and (same := self.stands_for(value)) is not None:
            return self.origin(same, stage)
        sources = made_of(value.op) if isinstance(value, OpResult) else ()
        return next((at for v in sources if (at := self._nearest(v, stage)) != stage), stage)

    def _nearest(self, value: SSAValue, stage: int) -> int:
        """Where a value that arguments alone make is there, or comes from: what is made of an argument that a stage does not hold is made where the
        argument is, as `timeline` has it."""
        is_held = isinstance(value, BlockArgument) and value.block is self.main and stage in self.places[value]
        return stage if is_held else self.origin(value, stage)

    def resolved(self, value: SSAValue, microbatch: int | None) -> tuple[SSAValue, int | None]:
        """What an argument of the body is in a microbatch, and a result of the loop in the last one. What is carried goes from one
        microbatch to that which its stage runs next: sums do not depend on the order, nor do rows."""
        while (same := self.passed_as(value, microbatch)) is not None:
            value, microbatch, _ = same
        return value, microbatch if self.is_inside(value) else None

    def passed_as(self, value: SSAValue, microbatch: int | None) -> tuple[SSAValue, int | None, Use] | None:
        """The value that another one is passed as, of which microbatch, and the use that passes it; None for what is made where it is."""
        if (same := self.stands_for(value)) is None:
            return None
        index = cast(BlockArgument | OpResult, value).index
        assert self.loop is not None
        assert self.last is not None
        if isinstance(value, BlockArgument) and index < self.same:
            return same, None, (self.loop, index)
        order = self.runs_in(same)
        if isinstance(value, OpResult):
            return same, order[-1], (self.last, index)
        if microbatch == order[0]:
            return self.given[index], None, (self.loop, index)
        return same, order[order.index(cast(int, microbatch)) - 1], (self.last, index - self.same)

    def is_same(self, value: SSAValue) -> bool:
        """Whether a value of the body is the same in every microbatch, or made of such alone beside the stage calls."""
        if isinstance(value, BlockArgument):
            return value.block is self.body and value.index < self.same
        op = cast(OpResult, value).op
        return self.is_inside(value) and not is_stage_call(op) and all(map(self.is_same, op.operands))

    def is_inside(self, value: SSAValue) -> bool:
        """Whether a value is one of the body of the loop."""
        block = value.op.parent if isinstance(value, OpResult) else value.owner
        return block is not None and block is self.body

    def runs_in(self, value: SSAValue) -> Sequence[int]:
        """In which order a value of the body is made."""
        if (made := self.latest(value)) is None:
            return range(self.times)
        return self.orders[stage_of(made), phase_of(made)]


def is_staged(entry: FuncOp) -> bool:
    """Whether an entry consists of stage calls, with or without a loop over microbatches."""
    return any(isinstance(op, MicrobatchesOp) or is_stage_call(op) for op in entry.body.block.ops)


def stages_of(entry: FuncOp) -> int:
    """How many stages an entry has; 1 if it is not staged."""
    table = functions(cast(ModuleOp, entry.parent_op()))
    loops = [op for op in entry.body.block.ops if isinstance(op, MicrobatchesOp)]
    bodies = [entry, *(table[loop.callee.string_value()] for loop in loops)]
    calls = [op for body in bodies for op in body.body.block.ops if is_stage_call(op)]
    return 1 + max(map(stage_of, calls), default=0)


def ranks_of_entry(entry: FuncOp, schedule: str) -> int:
    """How many groups of devices a staged entry has, each for the same number of stages. Raises DistirError where the schedule has it otherwise."""
    virtual = cast(ModuleOp, entry.parent_op()).attributes.get(VIRTUAL)
    return ranks_of(schedule, stages_of(entry), cast("IntegerAttr[Any]", virtual).value.data if virtual else None)


def is_stage_call(op: Operation) -> bool:
    """Whether an operation is a call of a staged program."""
    return isinstance(op, CallOp | func.CallOp) and STAGE in op.attributes


def made_of(op: Operation) -> Sequence[SSAValue]:
    """What an operation beside the stage calls is made of: of rows that are put into others, the rows first."""
    return [op.rows, op.input] if isinstance(op, PutRowsOp) else op.operands
