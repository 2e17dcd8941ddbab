"""The entry of a D/T/P program: stage functions placed and called in the order of a schedule, for every replica and
microbatch, with sends between stages, accumulation over microbatches, and reduction over replicas.

Device of (stage p, replica d, tensor rank t) = (p * D + d) * T + t: Megatron's order, tp fastest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, TensorType, i64
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue

from distir.dialects.dist import AccumulateOp, AllReduceOp, ConcatOp, PartAttr, SendOp, SliceOp, ZerosOp
from distir.dialects.dist import CallOp as DistCallOp
from distir.dialects.dist.attributes import on_device, placed, relocated
from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Partial, Replicated, Sharded, State
from distir.passes.distribution.conversions import convert, shard_ranges
from distir.passes.distribution.lower import Lowering
from distir.passes.distribution.options import local_shape
from distir.passes.distribution.stages import (
    BACKWARD,
    BEFORE,
    FORWARD,
    UPDATE,
    parameter_homes,
    phase_of,
    stage_calls,
    stage_of,
)
from distir.passes.distribution.tasks import steps
from distir.passes.structure import argument_attributes, functions, result_attributes, shape_of, text

SUM, PRODUCT = Partial(Reduction.SUM), Partial(Reduction.PROD)


@dataclass(frozen=True)
class Layout:
    """Degrees of a D/T/P program."""

    dp: int
    tp: int
    pp: int
    microbatches: int

    @property
    def devices(self) -> int:
        return self.dp * self.tp * self.pp

    def group(self, stage: int, replica: int) -> list[int]:
        """The devices of one replica of one stage."""
        first = (stage * self.dp + replica) * self.tp
        return list(range(first, first + self.tp))


@dataclass(frozen=True)
class Place:
    """Where and for which microbatch a value of the staged entry is held; None is once per step."""

    stage: int
    replica: int
    microbatch: int | None


@dataclass
class Template:
    """A stage call of one replica: its types and properties, its operands device by device, and which of them vary."""

    result_types: list[Attribute]
    properties: dict[str, Attribute]
    operands: list[list[SSAValue]]
    varying: list[tuple[int, SSAValue, State]]


@dataclass
class Tensor:
    """What a value of the staged entry is along the tensor and the batch axis."""

    batch: State
    tensor: State


class Assembler:
    """Builds the entry. `calls` maps each stage call to the placed function that it runs."""

    def __init__(
        self,
        module: ModuleOp,
        entry: FuncOp,
        layout: Layout,
        schedule: str,
        tensors: Mapping[SSAValue, Tensor],
        calls: Mapping[CallOp, str],
        lowering: Lowering,
    ):
        self.module, self.entry, self.layout, self.schedule = module, entry, layout, schedule
        self.tensors, self.calls, self.lowering = tensors, calls, lowering
        self.placed_functions = functions(module)
        self.block = Block()
        self.held: dict[tuple[SSAValue, Place], list[SSAValue]] = {}
        self.converted: dict[tuple[SSAValue, Place, State], list[SSAValue]] = {}
        self.accumulated: dict[tuple[SSAValue, int], list[SSAValue]] = {}
        self.reduced: set[SSAValue] = set()
        self.templates: dict[tuple[CallOp, int], Template] = {}
        self.argument_ports: list[dict[str, Attribute]] = []
        self.first_stage: dict[SSAValue, int] = {}
        self.users: dict[SSAValue, set[int]] = defaultdict(set)
        self.by_task: dict[tuple[str, int], list[CallOp]] = defaultdict(list)
        for call in stage_calls(entry):
            self.by_task[phase_of(call), stage_of(call)].append(call)
            if phase_of(call) in (FORWARD, BACKWARD):
                for value in call.operands:
                    self.users[value].add(stage_of(call))

    def build(self) -> FuncOp:
        """The new entry, which replaces the staged one."""
        self._arguments()
        for call in stage_calls(self.entry):
            if phase_of(call) == BEFORE:
                self._run_once(call)
        training = any(phase_of(call) == BACKWARD for call in stage_calls(self.entry))
        for step in steps(self.schedule, self.layout.pp, self.layout.microbatches, training):
            called = [
                (call, replica, task.microbatch)
                for task in step
                for call in self.by_task[BACKWARD if task.backward else FORWARD, task.stage]
                for replica in range(self.layout.dp)
            ]
            for call, replica, microbatch in called:
                self._run(call, Place(stage_of(call), replica, microbatch))
            for call, replica, microbatch in called:
                self._send_results(call, Place(stage_of(call), replica, microbatch))
        for call in stage_calls(self.entry):
            if phase_of(call) == UPDATE:
                self._run_once(call)
        return self._finish()

    # --- arguments and results -------------------------------------------------------------------------------------

    def _arguments(self) -> None:
        """Each argument on every stage that uses it; one that is updated, on its first only (the others receive it)."""
        updated = {text(a, "dist.name", "") for a in result_attributes(self.entry)}
        homes = parameter_homes(self.entry)
        attributes = argument_attributes(self.entry)
        for argument, known in zip(self.entry.body.block.args, attributes, strict=True):
            stages = homes[argument] or [0]
            if text(known, "dist.name", f"arg{argument.index}") in updated:
                stages = stages[:1]
            self.first_stage[argument] = stages[0]
            for stage in stages:
                for replica in range(self.layout.dp):
                    self._argument(argument, Place(stage, replica, None), known)

    def _argument(self, argument: BlockArgument, place: Place, known: Mapping[str, Attribute]) -> None:
        tensor = self.tensors[argument]
        values: list[SSAValue] = []
        for rank, device in enumerate(self.layout.group(place.stage, place.replica)):
            type_ = self._local_type(argument.type, tensor, device)
            value = self.block.insert_arg(type_, len(self.block.args))
            value.name_hint = argument.name_hint
            values.append(value)
            part = self._part(argument, tensor, place.replica, rank)
            self.argument_ports.append({**known, "dist.part": part})
        self.held[argument, place] = values

    def _local_type(self, type_: Attribute, tensor: Tensor, device: int) -> Attribute:
        whole = cast(TensorType[Any], type_)
        shape = local_shape(whole.get_shape(), tensor.batch, self.layout.dp)
        shape = local_shape(shape, tensor.tensor, self.layout.tp)
        return placed(TensorType(whole.element_type, shape), on_device(device))

    def _part(self, value: SSAValue, tensor: Tensor, replica: int, rank: int) -> PartAttr:
        """The part of the global array that a device holds when all microbatches are joined."""
        shape = shape_of(value)
        dims: list[list[tuple[int, int]]] = [[(0, n)] for n in shape]
        reductions = {s.reduction for s in (tensor.batch, tensor.tensor) if isinstance(s, Partial)}
        if len(reductions) > 1:
            raise DistirError("a result is addends of different kinds over replicas and over tensor ranks")
        for state, shard, shards in ((tensor.batch, replica, self.layout.dp), (tensor.tensor, rank, self.layout.tp)):
            if isinstance(state, Sharded):
                dims[state.dim] = shard_ranges(state.pieces, shard, shards)
        return PartAttr(dims, shape, next(iter(reductions), None))

    def _finish(self) -> FuncOp:
        returned: list[SSAValue] = []
        ports: list[dict[str, Attribute]] = []
        results = cast(ReturnOp, self.entry.body.block.last_op).operands
        for value, known in zip(results, result_attributes(self.entry), strict=True):
            tensor = self._returned(value)
            for stage, replica in self._holders(value):
                for rank, held in enumerate(self._addends(value, tensor, stage, replica)):
                    returned.append(held)
                    ports.append({**known, "dist.part": self._part(value, tensor, replica, rank)})
        self.block.add_op(ReturnOp(*returned))
        types = list(self.block.arg_types), [v.type for v in returned]
        name = self.entry.sym_name.data
        new = FuncOp(name, types, Region(self.block))
        new.arg_attrs = ArrayAttr([DictionaryAttr(d) for d in self.argument_ports])
        new.res_attrs = ArrayAttr([DictionaryAttr(d) for d in ports])
        self.module.body.block.insert_op_before(new, self.entry)
        self.module.body.block.erase_op(self.entry)
        self.module.attributes["dist.devices"] = IntegerAttr(self.layout.devices, i64)
        return new

    def _returned(self, value: SSAValue) -> Tensor:
        """What a result is over replicas and tensor ranks: as it is held, products multiplied out."""
        batch, tensor = self.tensors[value].batch, self.tensors[value].tensor
        if batch == PRODUCT:
            self._reduce(value)
        if isinstance(batch, Partial) and (value in self.reduced or self.layout.dp == 1):
            batch = REPLICATED
        return Tensor(batch, REPLICATED if tensor == PRODUCT else tensor)

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
        for index, value, state in template.varying:
            template.operands[index] = self._operand(value, place, state)
        op = DistCallOp.create(
            operands=[value for values in template.operands for value in values],
            result_types=template.result_types,
            properties=template.properties,
        )
        self.block.add_op(op)
        tp = self.layout.tp
        for i, result in enumerate(call.results):
            values: list[SSAValue] = list(op.results[i * tp : (i + 1) * tp])
            for value in values:
                value.name_hint = result.name_hint
            self.held[result, place] = values
            if place.microbatch is not None and self._leaves_loop(result):
                self._accumulate(result, values, place)

    def _template(self, call: CallOp, place: Place) -> Template:
        name = self.calls[call]
        group = self.layout.group(place.stage, place.replica)
        prototype = DistCallOp(
            name, [], group, [relocated(t, group) for t in self.placed_functions[name].function_type.outputs.data]
        )
        operands: list[list[SSAValue]] = []
        varying: list[tuple[int, SSAValue, State]] = []
        for index, (value, (state,)) in enumerate(zip(call.operands, self.lowering.argument_states[name], strict=True)):
            operands.append(self._operand(value, place, state))
            if self._varies(value):
                varying.append((index, value, state))
        return Template(list(prototype.result_types), dict(prototype.properties), operands, varying)

    def _varies(self, value: SSAValue) -> bool:
        """Whether a value is another one for every microbatch."""
        if isinstance(value, OpResult):
            return phase_of(value.op) in (FORWARD, BACKWARD)
        return isinstance(self.tensors[value].batch, Sharded)

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
        shape = shape_of(value)
        rows = shape[dim] // self.layout.microbatches
        ranges = [(0, n) for n in shape]
        ranges[dim] = (microbatch * rows, (microbatch + 1) * rows)
        op = SliceOp(value, ranges)
        op.output.name_hint = value.name_hint
        self.block.add_op(op)
        return op.output

    def _send_results(self, call: CallOp, place: Place) -> None:
        """After a step, what other stages use goes there."""
        for result in call.results:
            for stage in sorted(self.users[result] - {place.stage}):
                target = Place(stage, place.replica, place.microbatch)
                if (result, target) not in self.held:
                    self._send(result, target)

    def _send(self, value: SSAValue, target: Place) -> list[SSAValue]:
        """Sends a value from where it is held to another stage, rank by rank."""
        source = Place(self._home(value), target.replica, target.microbatch)
        sent: list[SSAValue] = []
        devices = self.layout.group(target.stage, target.replica)
        for held, device in zip(self.held[value, source], devices, strict=True):
            op = SendOp(held, placed(held.type, on_device(device)))
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

    def _leaves_loop(self, value: SSAValue) -> bool:
        """Whether an update or the return uses a value of the loop."""
        return any(isinstance(use.operation, ReturnOp) or phase_of(use.operation) == UPDATE for use in value.uses)

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
