"""A staged program written out: in goes one placed over the devices of one stage, with its loop over microbatches; out comes the program
for the devices of all stages, in which every call of every microbatch stands where the schedule has it, with messages between stages.

A value is made where its stage call is; what is made of it alone stays there, and goes to other stages by a message. What is made of
arguments of the entry alone is made on each stage that needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, TensorType, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from distir.dialects.dist import CallOp, InsertOp, PutRowsOp, SendOp, SliceOp, TakeRowsOp
from distir.dialects.dist.attributes import relocated
from distir.dialects.dist.calls import is_grouped
from distir.dialects.errors import DistirError
from distir.dialects.sharding import AxesAttr
from distir.passes.distribution.pipeline.stages import PHASE, STAGE, VIRTUAL
from distir.passes.staging.order import Order, is_stage_call
from distir.passes.staging.zeros import zeros_behind
from distir.passes.structure import argument_attributes, functions, give_body, result_attributes, share_name_hint

Key = tuple[SSAValue, int | None, int]
"""A value of the staged program, of which microbatch (None outside the loop), and on which stage."""


def write_schedule(module: ModuleOp, entry: FuncOp, schedule: str) -> set[SSAValue]:
    """Rewrites the entry of a placed staged module; returns the zeros of the new one from which sums over microbatches start."""
    count = cast("IntegerAttr[Any]", module.attributes["dist.devices"]).value.data
    writer = _Schedule(module, entry, count, schedule)
    writer.write()
    if writer.loop is not None:
        module.body.block.erase_op(functions(module)[writer.loop.callee.string_value()])
    module.attributes.pop(VIRTUAL, None)
    module.attributes["dist.devices"] = IntegerAttr(count * writer.ranks, i64)
    if isinstance(axes := module.attributes.get("dist.axes"), AxesAttr):
        module.attributes["dist.axes"] = AxesAttr((("pp", writer.ranks), *axes.data))
    return writer.zeros


class _Schedule(Order):
    def __init__(self, module: ModuleOp, entry: FuncOp, devices: int, schedule: str):
        super().__init__(module, entry, 1 if is_grouped(entry) else devices, schedule)
        self.devices = devices
        self.block = Block()
        self.made: dict[Key, SSAValue] = {}
        self.zeros = set[SSAValue]()
        self._starting = self._carried_zeros()

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Makes the new entry, in place of the old one."""
        ports = self._arguments()
        for op in self.main.ops:
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
        groups = [self.main.args[i : i + self.listed] for i in range(0, len(self.main.args), self.listed)]
        placed = [(argument, stage) for group in groups for stage in self.places[group[0]] for argument in group]
        self.block = Block(arg_types=[self._on_stage(argument.type, stage) for argument, stage in placed])
        for (argument, stage), new in zip(placed, self.block.args, strict=True):
            share_name_hint([new], argument.name_hint)
            self.made[argument, None, stage] = new
        attributes = argument_attributes(self.entry)
        return [attributes[argument.index] for argument, _ in placed]

    def _returned(self) -> tuple[list[SSAValue], list[Mapping[str, Attribute]]]:
        last = cast(ReturnOp, self.main.last_op)
        attributes = result_attributes(self.entry)
        values: list[SSAValue] = []
        ports: list[Mapping[str, Attribute]] = []
        for first in range(0, len(last.operands), self.listed):
            group = last.operands[first : first + self.listed]
            for stage in self.ranks_of(first):
                values += [self.get(value, None, stage) for value in group]
                ports += attributes[first : first + self.listed]
        return values, ports

    def _write_loop(self) -> None:
        for step in self.steps:
            called = self.called(step)
            for op, microbatch in called:
                self._call(op, microbatch)
                for i in self.kept[op]:
                    self.get(self.left[i], microbatch, cast(int, self.home(self.left[i])))
            for op, microbatch in called:
                for value, _, stage in self.remote[op]:
                    self.get(value, microbatch, stage)

    def _call(self, op: Operation, microbatch: int | None) -> None:
        """A stage call, of one microbatch, on its stage."""
        assert isinstance(op, CallOp)
        stage = self.rank(op)
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
        value, microbatch = self.resolved(value, microbatch)
        if (known := self.made.get((value, microbatch, stage))) is not None:
            return known
        source = self.origin(value, stage)
        if source != stage:
            sent = SendOp(self.get(value, microbatch, source), self._on_stage(value.type, stage))
            self.block.add_op(sent)
            share_name_hint(sent.results, value.name_hint)
            self.made[value, microbatch, stage] = sent.output
            return sent.output
        self._make(cast(OpResult, value).op, microbatch, stage)
        return self.made[value, microbatch, stage]

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
        if op in self._starting:
            self.zeros.update(made.results)

    def _carried_zeros(self) -> set[Operation]:
        """What states the zeros that are carried into the first microbatch by all devices that list them."""
        found = set[Operation]()
        for first in range(self.same, len(self.given), self.listed):
            behind = [zeros_behind(value) for value in self.given[first : first + self.listed]]
            found |= set[Operation]().union(*behind) if all(behind) else set()
        return found

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
        dim, moves = op.dim.value.data, op.moves(microbatch)
        part, whole = (self.get(value, microbatch, stage) for value in (op.rows, op.input))
        ranges = [(0, extent) for extent in cast("TensorType[Any]", part.type).get_shape()]
        made = list[Operation]()
        for start, stop, at in moves:
            ranges[dim] = start, stop
            taken = [SliceOp(part, ranges)] if len(moves) > 1 else []
            whole = InsertOp(taken[0].output if taken else part, whole, dim, at).output
            made += [*taken, whole.owner]
        self.block.add_ops(made[:-1])
        return made[-1]

    def _define(self, op: Operation, made: Operation, microbatch: int | None, stage: int) -> None:
        for old, new in zip(op.results, made.results, strict=True):
            share_name_hint([new], old.name_hint)
            self.made[old, microbatch, stage] = new

    # --- devices ----------------------------------------------------------------------------------------------------

    def _moved(self, stage: int) -> Sequence[int]:
        return range(stage * self.devices, (stage + 1) * self.devices)

    def _on_stage(self, type_: Attribute, stage: int) -> Attribute:
        return relocated(type_, self._moved(stage))
