"""The entry of a D/T/P program: stage functions placed and called in the order of a schedule, for every replica and
microbatch, with sends between stages, accumulation over microbatches, and reduction over replicas.

What calls take and give together is packed (`bundles`); devices are numbered as in `layout`."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, i64
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue

from distir.dialects.dist import AccumulateOp, AllReduceOp, ConcatOp, SendOp, SliceOp, ZerosOp
from distir.dialects.dist import CallOp as DistCallOp
from distir.dialects.dist.attributes import relocated
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Partial, Replicated, Sharded, State
from distir.passes.distribution.bundles import (
    Group,
    packed,
    unpacked,
)
from distir.passes.distribution.conversions import convert
from distir.passes.distribution.layout import Layout, Place, Template, Tensor, local_type, part_of, rows_of, sent_to
from distir.passes.distribution.staged import StagedProgram
from distir.passes.distribution.stages import (
    BACKWARD,
    BEFORE,
    FORWARD,
    UPDATE,
    phase_of,
    stage_of,
)
from distir.passes.distribution.tasks import steps
from distir.passes.structure import result_attributes, text

SUM, PRODUCT = Partial(Reduction.SUM), Partial(Reduction.PROD)


class Assembler:
    """Builds the entry of one plan of a staged program."""

    def __init__(self, staged: StagedProgram, layout: Layout, schedule: str):
        self.staged, self.layout, self.schedule = staged, layout, schedule
        self.tensors, self.calls, self.lowering = staged.tensors, staged.calls, staged.lowering
        self.block = Block()
        self.held: dict[tuple[SSAValue, Place], list[SSAValue]] = {}
        self.converted: dict[tuple[SSAValue, Place, State], list[SSAValue]] = {}
        self.accumulated: dict[tuple[SSAValue, int], list[SSAValue]] = {}
        self.reduced: set[SSAValue] = set()
        self.templates: dict[tuple[CallOp, int], Template] = {}
        self.packed: dict[tuple[SSAValue, ...], SSAValue] = {}
        self.packs: dict[tuple[CallOp, CallOp, Place], list[SSAValue]] = {}
        """What a call packed for another, device by device."""
        self.sums: dict[tuple[CallOp, Group, int], list[SSAValue]] = {}
        """Addends that leave the loop together, accumulated so far."""
        self.argument_ports: list[DictionaryAttr] = []
        self.first_stage: dict[SSAValue, int] = {}

    def build(self) -> FuncOp:
        """The new entry, in the module of the staged program."""
        self._arguments()
        for call in self.staged.stage_calls:
            if phase_of(call) == BEFORE:
                self._run_once(call)
        training = any(phase_of(call) == BACKWARD for call in self.staged.stage_calls)
        for step in steps(self.schedule, self.layout.pp, self.layout.microbatches, training):
            called = [
                (call, replica, task.microbatch)
                for task in step
                for call in self.staged.by_task[BACKWARD if task.backward else FORWARD, task.stage]
                for replica in range(self.layout.dp)
            ]
            for call, replica, microbatch in called:
                self._run(call, Place(stage_of(call), replica, microbatch))
            for call, replica, microbatch in called:
                self._send_results(call, Place(stage_of(call), replica, microbatch))
        for call in self.staged.stage_calls:
            if phase_of(call) == UPDATE:
                self._run_once(call)
        return self._finish()

    # --- arguments and results -------------------------------------------------------------------------------------

    def _arguments(self) -> None:
        """Each argument on every stage that uses it; one that is updated, on its first only (the others receive it)."""
        staged, held, types = self.staged, list[tuple[BlockArgument, Place]](), list[Attribute]()
        for argument, known in zip(staged.entry.body.block.args, staged.argument_attributes, strict=True):
            stages = staged.homes[argument] or [0]
            if text(known, "dist.name", f"arg{argument.index}") in staged.updated:
                stages = stages[:1]
            self.first_stage[argument] = stages[0]
            tensor = self.tensors[argument]
            for stage in stages:
                for replica in range(self.layout.dp):
                    held.append((argument, Place(stage, replica, None)))
                    types += [local_type(tensor, self.layout, d) for d in self.layout.group(stage, replica)]
                    self.argument_ports += staged.ports(argument.index, known, tensor, self.layout, replica)
        self.block = Block(arg_types=types)
        tp = self.layout.tp
        for i, (argument, place) in enumerate(held):
            self.held[argument, place] = list(self.block.args[i * tp : (i + 1) * tp])
            for value in self.held[argument, place]:
                value.name_hint = argument.name_hint

    def _finish(self) -> FuncOp:
        returned: list[SSAValue] = []
        ports: list[dict[str, Attribute]] = []
        results = cast(ReturnOp, self.staged.entry.body.block.last_op).operands
        for value, known in zip(results, result_attributes(self.staged.entry), strict=True):
            tensor = self._returned(value)
            for stage, replica in self._holders(value):
                for rank, held in enumerate(self._addends(value, tensor, stage, replica)):
                    returned.append(held)
                    ports.append({**known, "dist.part": part_of(tensor, self.layout, replica, rank)})
        self.block.add_op(ReturnOp(*returned))
        types = list(self.block.arg_types), [v.type for v in returned]
        new = FuncOp(self.staged.entry.sym_name.data, types, Region(self.block))
        new.arg_attrs = ArrayAttr(self.argument_ports)
        new.res_attrs = ArrayAttr([DictionaryAttr(d) for d in ports])
        self.staged.place(new)
        self.staged.module.attributes["dist.devices"] = IntegerAttr(self.layout.devices, i64)
        return new

    def _returned(self, value: SSAValue) -> Tensor:
        """What a result is over replicas and tensor ranks: as it is held, products multiplied out."""
        batch, tensor = self.tensors[value].batch, self.tensors[value].tensor
        if batch == PRODUCT:
            self._reduce(value)
        if isinstance(batch, Partial) and (value in self.reduced or self.layout.dp == 1):
            batch = REPLICATED
        return Tensor(batch, REPLICATED if tensor == PRODUCT else tensor, self.tensors[value].type)

    def _addends(self, value: SSAValue, returned: Tensor, stage: int, replica: int) -> list[SSAValue]:
        """What a replica returns: of a sum over replicas or tensor ranks that the others hold too, only the first adds."""
        values = convert(
            self._whole(value, stage, replica), self.tensors[value].tensor, returned.tensor, self.block.add_op
        )
        if SUM not in (returned.batch, returned.tensor):
            return values
        adds = [
            (replica == 0 or returned.batch != REPLICATED) and (rank == 0 or returned.tensor != REPLICATED)
            for rank in range(len(values))
        ]
        zeros = [ZerosOp(v.type) for v, adding in zip(values, adds, strict=True) if not adding]
        self.block.add_ops(zeros)
        others = iter(zeros)
        return [v if adding else next(others).output for v, adding in zip(values, adds, strict=True)]

    def _holders(self, value: SSAValue) -> list[tuple[int, int]]:
        if isinstance(value, OpResult):
            stages = [stage_of(value.op)]
        else:
            stages = [place.stage for held, place in self.held if held is value and place.replica == 0]
        return [(stage, replica) for stage in dict.fromkeys(stages) for replica in range(self.layout.dp)]

    # --- calls -----------------------------------------------------------------------------------------------------

    def _run_once(self, call: CallOp) -> None:
        """A call outside the loop, on every replica."""
        for value in call.operands:
            if phase_of(call) == UPDATE:
                self._reduce(value)
        for replica in range(self.layout.dp):
            self._run(call, Place(stage_of(call), replica, None))
        for replica in range(self.layout.dp):
            self._send_results(call, Place(stage_of(call), replica, None))

    def _run(self, call: CallOp, place: Place) -> None:
        """Calls a stage function; all microbatches of a replica share what does not depend on the microbatch."""
        key = (call, place.replica)
        if key not in self.templates:
            self.templates[key] = self._template(call, place)
        template = self.templates[key]
        for index, source, state in template.varying:
            if isinstance(source, CallOp):
                template.operands[index] = self.packs.pop((source, call, place))
            else:
                template.operands[index] = self._operand(source, place, state)
        op = DistCallOp.create(
            operands=[value for values in template.operands for value in values],
            result_types=template.result_types,
            properties=template.properties,
        )
        self.block.add_op(op)
        tp = self.layout.tp
        for i, group in enumerate(self.staged.signatures[call].results):
            self._made(call, group, list(op.results[i * tp : (i + 1) * tp]), place)

    def _made(self, call: CallOp, group: Group, values: list[SSAValue], place: Place) -> None:
        """Records what a call gave."""
        result = call.results[group[0]]
        user = self.staged.kept_for(result) if len(group) > 1 else None
        for value in values:
            value.name_hint = result.name_hint if len(group) == 1 else "addends" if user is None else "held"
        if user is not None:
            self.packs[call, user, place] = values
        elif len(group) > 1:
            self._accumulate_together(call, group, values, place)
        else:
            self.held[result, place] = values
            if place.microbatch is not None and self.staged.leaves_loop(result):
                self._accumulate(result, values, place)

    def _template(self, call: CallOp, place: Place) -> Template:
        name = self.calls[call]
        group = self.layout.group(place.stage, place.replica)
        prototype = DistCallOp(
            name,
            [],
            group,
            [relocated(t, group) for t in self.staged.placed_functions[name].function_type.outputs.data],
        )
        states = self.lowering.argument_states[name]
        operands: list[list[SSAValue]] = []
        varying: list[tuple[int, SSAValue | CallOp, State]] = []
        for index, positions in enumerate(self.staged.signatures[call].operands):
            value, (state,) = call.operands[positions[0]], states[positions[0]]
            if len(positions) > 1 and isinstance(value, OpResult) and self.staged.kept_for(value) is call:
                operands.append([])
                varying.append((index, cast(CallOp, value.op), state))
                continue
            members = [self._operand(call.operands[i], place, states[i][0]) for i in positions]
            operands.append([self._packed(values) for values in zip(*members, strict=True)])
            if len(positions) == 1 and self.staged.varies(value):
                varying.append((index, value, state))
        return Template(list(prototype.result_types), dict(prototype.properties), operands, varying)

    def _packed(self, values: tuple[SSAValue, ...]) -> SSAValue:
        """The values as one; calls that take the same ones share the tuple."""
        if values not in self.packed:
            self.packed[values] = packed(values, self.block)
        return self.packed[values]

    def _operand(self, value: SSAValue, place: Place, state: State) -> list[SSAValue]:
        """A value on a stage, in the tensor state that a call needs."""
        values = self._on_stage(value, place)
        once = Place(place.stage, place.replica, None)
        key = (value, once if values is self.held.get((value, once)) else place, state)
        if key not in self.converted:
            self.converted[key] = convert(values, self.tensors[value].tensor, state, self.block.add_op)
        return self.converted[key]

    def _on_stage(self, value: SSAValue, place: Place) -> list[SSAValue]:
        """A value on a stage: held there, sent there before, a slice of an input, or sent now."""
        once = Place(place.stage, place.replica, None)
        if (value, place) in self.held:
            return self.held[value, place]
        if isinstance(value, OpResult) and phase_of(value.op) in (FORWARD, BACKWARD) and place.microbatch is None:
            return self._whole(value, place.stage, place.replica)
        if isinstance(value, OpResult) and phase_of(value.op) in (FORWARD, BACKWARD):
            return self._send(value, place)
        if (value, once) not in self.held:
            self._send(value, once)
        state = self.tensors[value].batch
        if place.microbatch is None or not isinstance(state, Sharded) or self.layout.microbatches == 1:
            return self.held[value, once]
        parts = [self._rows(v, state.dim, place.microbatch) for v in self.held[value, once]]
        self.held[value, place] = parts
        return parts

    def _rows(self, value: SSAValue, dim: int, microbatch: int) -> SSAValue:
        """One microbatch's rows of what a replica holds."""
        type_, properties = rows_of(value.type, dim, microbatch, self.layout.microbatches)
        op = SliceOp.create(operands=[value], result_types=[type_], properties=dict(properties))
        op.output.name_hint = value.name_hint
        self.block.add_op(op)
        return op.output

    def _send_results(self, call: CallOp, place: Place) -> None:
        """After a step, what other stages use goes there."""
        for result in call.results:
            for stage in sorted(self.staged.users[result] - {place.stage}):
                target = Place(stage, place.replica, place.microbatch)
                if (result, target) not in self.held:
                    self._send(result, target)

    def _send(self, value: SSAValue, target: Place) -> list[SSAValue]:
        """Sends a value from where it is held to another stage, rank by rank."""
        source = Place(self._home(value), target.replica, target.microbatch)
        sent: list[SSAValue] = []
        devices = self.layout.group(target.stage, target.replica)
        for held, device in zip(self.held[value, source], devices, strict=True):
            there, to = sent_to(held.type, device)
            op = SendOp.create(operands=[held], result_types=[there], properties={"to": to})
            op.output.name_hint = value.name_hint
            self.block.add_op(op)
            sent.append(op.output)
        self.held[value, target] = sent
        return sent

    def _home(self, value: SSAValue) -> int:
        """The stage that a value comes from: its producer's, or the first that holds an argument."""
        if isinstance(value, OpResult):
            return stage_of(value.op)
        return self.first_stage[value]

    # --- leaving the batch axis ------------------------------------------------------------------------------------

    def _accumulate(self, value: SSAValue, values: list[SSAValue], place: Place) -> None:
        """Adds one microbatch's addends to those before; parts are kept for one concatenation at the end."""
        state, key = self.tensors[value].batch, (value, place.replica)
        if key not in self.accumulated or isinstance(state, Replicated):
            self.accumulated[key] = values
        elif isinstance(state, Partial):
            sums = [AccumulateOp(pair, state.reduction) for pair in zip(self.accumulated[key], values, strict=True)]
            self.block.add_ops(sums)
            for op in sums:
                op.output.name_hint = value.name_hint
            self.accumulated[key] = [op.output for op in sums]

    def _accumulate_together(self, call: CallOp, group: Group, values: list[SSAValue], place: Place) -> None:
        """Adds one microbatch's tuples of addends to those before, by one call."""
        key = (call, group, place.replica)
        if key in self.sums:
            op = DistCallOp(
                self.staged.accumulation(call, group, values),
                [*self.sums[key], *values],
                self.layout.group(place.stage, place.replica),
                [value.type for value in values],
            )
            self.block.add_op(op)
            values = list(op.results)
            for value in values:
                value.name_hint = "sums"
        self.sums[key] = values

    def _unpack_sums(self, value: OpResult, replica: int) -> None:
        """What a call gave together with this value, one by one."""
        call = cast(CallOp, value.op)
        group = next(g for g in self.staged.signatures[call].results if value.index in g)
        tuples = [unpacked(v, len(group), self.block) for v in self.sums[call, group, replica]]
        for position, values in zip(group, zip(*tuples, strict=True), strict=True):
            for each in values:
                each.name_hint = call.results[position].name_hint
            self.accumulated[call.results[position], replica] = list(values)

    def _whole(self, value: SSAValue, stage: int, replica: int) -> list[SSAValue]:
        """A value when the loop is over, on the stage that holds it."""
        place = Place(stage, replica, None)
        if (value, place) in self.held:
            return self.held[value, place]
        assert isinstance(value, OpResult)
        state, source = self.tensors[value].batch, stage_of(value.op)
        home = Place(source, replica, None)
        if (value, home) not in self.held:
            if isinstance(state, Sharded) and self.layout.microbatches > 1:
                by_microbatch = [self.held[value, Place(source, replica, k)] for k in range(self.layout.microbatches)]
                joins = [ConcatOp(parts, state.dim) for parts in zip(*by_microbatch, strict=True)]
                self.block.add_ops(joins)
                self.held[value, home] = [op.output for op in joins]
            else:
                if (value, replica) not in self.accumulated:
                    self._unpack_sums(value, replica)
                self.held[value, home] = self.accumulated[value, replica]
        return self.held[value, place] if stage == source else self._send(value, place)

    def _reduce(self, value: SSAValue) -> None:
        """Makes the addends of all replicas one value on each of them."""
        state = self.tensors[value].batch
        if value in self.reduced or not isinstance(state, Partial):
            return
        assert isinstance(value, OpResult)
        stage = stage_of(value.op)
        replicas = [self._whole(value, stage, replica) for replica in range(self.layout.dp)]
        self.reduced.add(value)
        if self.layout.dp == 1:
            return
        for rank in range(self.layout.tp):
            op = AllReduceOp([values[rank] for values in replicas], state.reduction)
            self.block.add_op(op)
            for replica, result in enumerate(op.results):
                result.name_hint = value.name_hint
                self.held[value, Place(stage, replica, None)] = [
                    *self.held[value, Place(stage, replica, None)][:rank],
                    result,
                    *self.held[value, Place(stage, replica, None)][rank + 1 :],
                ]
