"""The order of a staged program: in goes one placed over the devices of one stage, with its loop over microbatches; out comes the program
for the devices of all stages, in which every call of every microbatch stands where the schedule has it, with messages between stages.

A value is made where its stage call is; what is made of it alone stays there, and goes to other stages by a message. What is made of
arguments of the entry alone is made on each stage that needs it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, TensorType, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.dist import CallOp, InsertOp, MicrobatchesOp, PutRowsOp, SendOp, SliceOp, TakeRowsOp
from distir.dialects.dist.attributes import relocated
from distir.dialects.dist.calls import is_grouped
from distir.dialects.errors import DistirError
from distir.passes.distribution.pipeline.stages import BACKWARD, PHASE, STAGE, phase_of, stage_of
from distir.passes.distribution.pipeline.tasks import Task, steps
from distir.passes.structure import argument_attributes, functions, give_body, name_alike, result_attributes, text

Key = tuple[SSAValue, int | None, int]
"""A value of the staged program, of which microbatch (None outside the loop), and on which stage."""


def write_schedule(module: ModuleOp, entry: FuncOp, schedule: str) -> None:
    """Rewrites the entry of a placed staged module."""
    count = cast("IntegerAttr[Any]", module.attributes["dist.devices"]).value.data
    writer = _Schedule(module, entry, count, schedule)
    writer.write()
    if writer.loop is not None:
        module.body.block.erase_op(functions(module)[writer.loop.callee.string_value()])
    module.attributes["dist.devices"] = IntegerAttr(count * writer.stages, i64)


class _Schedule:
    def __init__(self, module: ModuleOp, entry: FuncOp, devices: int, schedule: str):
        self.module, self.entry, self.devices = module, entry, devices
        self.listed = 1 if is_grouped(entry) else devices
        """How many values stand for one of the program: one for each device, or that of the group."""
        self.source = entry.body.block
        loops = [op for op in self.source.ops if isinstance(op, MicrobatchesOp)]
        if len(loops) > 1:
            raise DistirError(f"@{entry.sym_name.data} has {len(loops)} loops over microbatches: expected one at most")
        self.loop = loops[0] if loops else None
        self.body = functions(module)[self.loop.callee.string_value()].body.block if self.loop else None
        self.times = self.loop.times if self.loop else 1
        self.given = tuple(self.loop.operands) if self.loop else ()
        self.same = len(self.loop.same) if self.loop else 0
        """How many of what is given are the same in every microbatch; the others are what is carried into the first."""
        self.left = tuple(cast(ReturnOp, self.body.last_op).operands) if self.body else ()
        """What a microbatch leaves to the next."""
        calls = [op for block in (self.source, self.body) if block for op in block.ops if is_stage_call(op)]
        self.stages = 1 + max(map(stage_of, calls), default=0)
        self.steps: Sequence[Sequence[Task]] = ()
        self.orders: dict[tuple[int, bool], list[int]] = defaultdict(list)
        """By stage and whether backward, the microbatches in the order in which they run there."""
        if self.body is not None:
            training = any(_phase(op) == BACKWARD for op in self.body.ops)
            self.steps = steps(schedule, self.stages, self.times, training)
        for task in (task for step in self.steps for task in step):
            self.orders[task.stage, task.backward].append(task.microbatch)
        self.block = Block()
        self.made: dict[Key, SSAValue] = {}
        self._homes: dict[SSAValue, int | None] = {}
        self._latest: dict[SSAValue, Operation | None] = {}
        self.remote: dict[Operation, dict[SSAValue, set[int]]] = defaultdict(dict)
        """By the call after which it is there, what goes to which other stages in every microbatch."""
        self.kept: dict[Operation, list[SSAValue]] = defaultdict(list)
        """By the call after which they can be made, values carried to the next microbatch that no call makes."""
        self._note_uses()
        self.places = self._places()

    # --- what is known beforehand -----------------------------------------------------------------------------------

    def home(self, value: SSAValue) -> int | None:
        """The stage on which a value is made; None for what arguments and constants alone make."""
        if value not in self._homes:
            self._homes[value] = None  # of a carried value, while what carries it on is looked at
            self._homes[value] = self._home(value)
        return self._homes[value]

    def _home(self, value: SSAValue) -> int | None:
        if (same := self._stands_for(value)) is not None:
            return self.home(same)
        if isinstance(value, BlockArgument):
            return None
        op = cast(OpResult, value).op
        if is_stage_call(op):
            return stage_of(op)
        return next((h for h in map(self.home, _sources(op)) if h is not None), None)

    def _stands_for(self, value: SSAValue) -> SSAValue | None:
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
                for value in op.operands:
                    self._note_use(value, stage_of(op))
        last = self.body.last_op if self.body else None
        for value in last.operands if last else ():
            made = self.latest(value)
            if isinstance(value, OpResult) and not is_stage_call(value.op) and made:
                self.kept[made].append(value)

    def _note_use(self, value: SSAValue, stage: int) -> None:
        home = self.home(value)
        if home not in (None, stage):
            if (made := self.latest(value)) is not None:
                self.remote[made].setdefault(value, set()).add(stage)
        elif isinstance(value, OpResult) and not is_stage_call(value.op):
            for operand in value.op.operands:
                self._note_use(operand, stage)

    def _places(self) -> dict[BlockArgument, list[int]]:
        """Of each argument of the entry the stages that hold it: all that use it; of one that is updated, the first."""
        users: dict[SSAValue, dict[int, None]] = defaultdict(dict)
        for block in (self.source, self.body):
            for op in block.ops if block else ():
                if is_stage_call(op):
                    for value in op.operands:
                        self._note_users(value, stage_of(op), users)
        attributes = argument_attributes(self.entry)
        updated = {text(a, "dist.name", "") for a in result_attributes(self.entry)}
        found: dict[BlockArgument, list[int]] = {}
        for first in range(0, len(self.source.args), self.listed):
            group = self.source.args[first : first + self.listed]
            stages = sorted({stage for argument in group for stage in users[argument]}) or [0]
            if text(attributes[first], "dist.name", f"arg{first}") in updated:
                stages = stages[:1]
            found.update((argument, stages) for argument in group)
        return found

    def _note_users(self, value: SSAValue, stage: int, users: dict[SSAValue, dict[int, None]]) -> None:
        """Notes the arguments of the entry of which a value is made on a stage."""
        home = self.home(value)
        where = stage if home is None else home
        if where in users[value]:
            return
        users[value][where] = None
        if (same := self._stands_for(value)) is not None:
            self._note_users(same, where, users)
            if isinstance(value, BlockArgument):
                self._note_users(self.given[value.index], where, users)
        elif isinstance(value, OpResult) and not is_stage_call(value.op):
            for operand in value.op.operands:
                self._note_users(operand, where, users)

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Makes the new entry, in place of the old one."""
        ports = self._arguments()
        for op in self.source.ops:
            if op is self.loop:
                self._write_loop()
            elif is_stage_call(op):
                self._call(op, None)
        returned, results = self._returned()
        self.block.add_op(ReturnOp.create(operands=returned))
        give_body(self.entry, self.block)
        self.entry.arg_attrs = ArrayAttr([DictionaryAttr(dict(port)) for port in ports])
        self.entry.res_attrs = ArrayAttr([DictionaryAttr(dict(port)) for port in results])

    def _arguments(self) -> list[Mapping[str, Attribute]]:
        groups = [self.source.args[i : i + self.listed] for i in range(0, len(self.source.args), self.listed)]
        placed = [(argument, stage) for group in groups for stage in self.places[group[0]] for argument in group]
        self.block = Block(arg_types=[self._on_stage(argument.type, stage) for argument, stage in placed])
        for (argument, stage), new in zip(placed, self.block.args, strict=True):
            name_alike([new], argument.name_hint)
            self.made[argument, None, stage] = new
        attributes = argument_attributes(self.entry)
        return [attributes[argument.index] for argument, _ in placed]

    def _returned(self) -> tuple[list[SSAValue], list[Mapping[str, Attribute]]]:
        last = cast(ReturnOp, self.source.last_op)
        attributes = result_attributes(self.entry)
        values: list[SSAValue] = []
        ports: list[Mapping[str, Attribute]] = []
        for first in range(0, len(last.operands), self.listed):
            group = last.operands[first : first + self.listed]
            home = next((h for h in map(self.home, group) if h is not None), None)
            argument = group[0]
            stages = [0] if home is None else [home]
            if home is None and isinstance(argument, BlockArgument):
                stages = self.places[argument]
            for stage in stages:
                values += [self.get(value, None, stage) for value in group]
                ports += attributes[first : first + self.listed]
        return values, ports

    def _write_loop(self) -> None:
        assert self.body is not None
        by_task: dict[tuple[bool, int], list[Operation]] = defaultdict(list)
        for op in self.body.ops:
            if is_stage_call(op):
                by_task[phase_of(op) == BACKWARD, stage_of(op)].append(op)
        for step in self.steps:
            called = [(op, task.microbatch) for task in step for op in by_task[task.backward, task.stage]]
            for op, microbatch in called:
                self._call(op, microbatch)
                for value in self.kept[op]:
                    self.get(value, microbatch, cast(int, self.home(value)))
            for op, microbatch in called:
                for value, stages in self.remote[op].items():
                    for stage in sorted(stages):
                        self.get(value, microbatch, stage)

    def _call(self, op: Operation, microbatch: int | None) -> None:
        """A stage call, of one microbatch, on its stage."""
        assert isinstance(op, CallOp)
        stage = stage_of(op)
        operands = [self.get(value, microbatch, stage) for value in op.operands]
        call = CallOp.create(
            operands=operands,
            result_types=[self._on_stage(t, stage) for t in op.result_types],
            properties=CallOp.stating(op.callee_name, tuple(self._moved(stage)[d] for d in op.devices)),
            attributes={k: v for k, v in op.attributes.items() if k not in (STAGE, PHASE)},
            location=op.location,
        )
        self.block.add_op(call)
        self._define(op, call, microbatch, stage)

    def get(self, value: SSAValue, microbatch: int | None, stage: int) -> SSAValue:
        """A value on the device of a stage that its own device is one of, made or sent now if it is not there."""
        value, microbatch = self._resolved(value, microbatch)
        if (known := self.made.get((value, microbatch, stage))) is not None:
            return known
        source = self._source(value, stage)
        if source != stage:
            sent = SendOp(self.get(value, microbatch, source), self._on_stage(value.type, stage))
            self.block.add_op(sent)
            name_alike(sent.results, value.name_hint)
            self.made[value, microbatch, stage] = sent.output
            return sent.output
        self._make(cast(OpResult, value).op, microbatch, stage)
        return self.made[value, microbatch, stage]

    def _source(self, value: SSAValue, stage: int) -> int:
        """Where a value comes from that is not on a stage yet: that stage, if it can be made there."""
        if isinstance(value, BlockArgument):
            return self.places[value][0]
        home = self.home(value)
        return stage if home is None else home

    def _resolved(self, value: SSAValue, microbatch: int | None) -> tuple[SSAValue, int | None]:
        """What an argument of the body is in a microbatch, and a result of the loop in the last one. What is carried goes from one
        microbatch to that which its stage runs next: sums do not depend on the order, nor do rows."""
        while (same := self._stands_for(value)) is not None:
            if isinstance(value, BlockArgument) and value.index < self.same:
                value, microbatch = same, None
                continue
            order = self._order(same)
            if isinstance(value, OpResult):
                value, microbatch = same, order[-1]
            elif microbatch == order[0]:
                value, microbatch = self.given[cast(BlockArgument, value).index], None
            else:
                value, microbatch = same, order[order.index(cast(int, microbatch)) - 1]
        is_inner = isinstance(value, OpResult) and value.op.parent is self.body
        return value, microbatch if is_inner else None

    def _order(self, value: SSAValue) -> Sequence[int]:
        """In which order a value of the body is made."""
        if (made := self.latest(value)) is None:
            return range(self.times)
        return self.orders[stage_of(made), phase_of(made) == BACKWARD]

    def _make(self, op: Operation, microbatch: int | None, stage: int) -> None:
        """An operation beside the stage calls."""
        if is_stage_call(op):
            raise DistirError(
                f"a value of {op.name} on stage {stage} is needed before it is made: the schedule does not fit"
            )
        if isinstance(op, PutRowsOp):
            made: Operation = self._put(op, cast(int, microbatch), stage)
        elif isinstance(op, TakeRowsOp):
            made = self._rows(op, cast(int, microbatch), stage)
        else:
            made = type(op).create(
                operands=[self.get(v, microbatch, stage) for v in op.operands],
                result_types=[self._on_stage(t, stage) for t in op.result_types],
                properties=self._properties(op, stage),
                attributes=dict(op.attributes),
                location=op.location,
            )
        self.block.add_op(made)
        self._define(op, made, microbatch, stage)

    def _properties(self, op: Operation, stage: int) -> dict[str, Attribute]:
        """The properties on another stage: which device a message goes to is one."""
        properties = dict(op.properties)
        if isinstance(to := properties.get("to"), IntegerAttr):
            properties["to"] = IntegerAttr(self._moved(stage)[cast("IntegerAttr[Any]", to).value.data], i64)
        elif to is not None:
            raise DistirError(f"{op.name} between stage calls: not known how it moves to another stage")
        return properties

    def _rows(self, op: TakeRowsOp, microbatch: int, stage: int) -> Operation:
        dim = op.dim.value.data
        shape = list(cast("TensorType[Any]", op.input.type).get_shape())
        rows = cast("TensorType[Any]", op.output.type).get_shape()[dim]
        ranges = [(0, extent) for extent in shape]
        ranges[dim] = microbatch * rows, (microbatch + 1) * rows
        return SliceOp(self.get(op.input, microbatch, stage), ranges)

    def _put(self, op: PutRowsOp, microbatch: int, stage: int) -> Operation:
        dim = op.dim.value.data
        rows = cast("TensorType[Any]", op.rows.type).get_shape()[dim]
        part, whole = (self.get(value, microbatch, stage) for value in (op.rows, op.input))
        return InsertOp(part, whole, dim, microbatch * rows)

    def _define(self, op: Operation, made: Operation, microbatch: int | None, stage: int) -> None:
        for old, new in zip(op.results, made.results, strict=True):
            name_alike([new], old.name_hint)
            self.made[old, microbatch, stage] = new

    # --- devices ----------------------------------------------------------------------------------------------------

    def _moved(self, stage: int) -> list[int]:
        return [stage * self.devices + device for device in range(self.devices)]

    def _on_stage(self, type_: Attribute, stage: int) -> Attribute:
        return relocated(type_, self._moved(stage))


def is_stage_call(op: Operation) -> bool:
    """Whether an operation is a call of a staged program."""
    return isinstance(op, CallOp) and STAGE in op.attributes


def _phase(op: Operation) -> str | None:
    return phase_of(op) if is_stage_call(op) else None


def _sources(op: Operation) -> Sequence[SSAValue]:
    """What an operation beside the stage calls is made of: of rows that are put into others, the rows first."""
    return [op.rows, op.input] if isinstance(op, PutRowsOp) else op.operands
