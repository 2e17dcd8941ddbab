"""One replica of a plan while its program is written: stage calls for every microbatch, sends between stages, accumulation, and
what the replica holds where. It writes into a block of its own (a function that every replica calls) or into the entry's.

What calls take and give together is packed (`bundles`). Operations of one microbatch are those of the others on other
values, so what they say of themselves (types, properties) is worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from xdsl.dialects.builtin import UNKNOWN_LOC
from xdsl.dialects.func import CallOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from distir.dialects.dist import AccumulateOp, ConcatOp, SendOp, SliceOp
from distir.dialects.dist import CallOp as DistCallOp
from distir.dialects.dist.attributes import relocated
from distir.dialects.sharding import Partial, Replicated, Sharded, State
from distir.passes.distribution.conversions import convert
from distir.passes.distribution.pipeline.bundles import Group, packed, unpacked
from distir.passes.distribution.pipeline.layout import rows_of, sent_to
from distir.passes.distribution.pipeline.staged import StagedProgram
from distir.passes.distribution.pipeline.stages import BACKWARD, FORWARD, phase_of, stage_of
from distir.passes.structure import name_alike

Place = tuple[int, int | None]
"""A stage, and the microbatch for which a value is held there; None is once per step."""


class Given(NamedTuple):
    """Results that a stage call gives together."""

    group: Group
    value: OpResult
    """The first."""
    user: CallOp | None
    """The call that alone takes them, packed."""
    leaves: bool
    """Whether they leave the loop."""
    name: str | None


@dataclass
class Template:
    """A stage call."""

    stage: int
    result_types: list[Attribute]
    properties: dict[str, Attribute]
    operands: list[list[SSAValue]]
    """Group by group and device by device."""
    varying: list[tuple[int, SSAValue | CallOp, State]]
    """Which groups vary: what a group's value is, and in which state, or the call that packed it."""
    results: list[Given]
    """Group by group."""
    addends: list[Group]
    """Those that are added up over microbatches."""


class Replica:
    """The values of one replica, and the operations that make more of them. `devices` are those of each stage."""

    def __init__(self, staged: StagedProgram, block: Block, devices: Sequence[Sequence[int]], microbatches: int):
        self.staged, self.block, self.devices, self.microbatches = staged, block, devices, microbatches
        self.tensors, self.lowering = staged.tensors, staged.lowering
        self.held: dict[tuple[SSAValue, Place], list[SSAValue]] = {}
        """Device by device, on a stage."""
        self.first_stage: dict[SSAValue, int] = {}
        """Of each argument, the first stage that holds it."""
        self.accumulated: dict[SSAValue, list[SSAValue]] = {}
        self.sums: dict[tuple[CallOp, Group], list[SSAValue]] = {}
        """Addends that leave the loop together, accumulated so far."""
        self._converted: dict[tuple[SSAValue, Place, State], list[SSAValue]] = {}
        self._templates: dict[CallOp, Template] = {}
        self._packed: dict[tuple[SSAValue, ...], SSAValue] = {}
        self._packs: dict[tuple[CallOp, CallOp, int | None], list[SSAValue]] = {}
        """What a call packed for another, device by device."""
        self._sends: dict[tuple[SSAValue, int, bool], list[tuple[Attribute, Attribute]]] = {}
        self._adding: dict[CallOp, dict[str, Attribute]] = {}
        """Properties of calls that add to sums, equal for all microbatches."""
        self.spared: list[Operation] = []
        """Where one tensor rank stands for all, what the first does not do (`one_rank`)."""

    def run(self, call: CallOp, microbatch: int | None) -> None:
        """Calls a stage function; all microbatches share what does not depend on the microbatch."""
        if (template := self._templates.get(call)) is None:
            template = self._templates[call] = self._template(call, (stage_of(call), microbatch))
        place = (template.stage, microbatch)
        for index, source, state in template.varying:
            if isinstance(source, CallOp):
                template.operands[index] = self._packs.pop((source, call, microbatch))
            else:
                template.operands[index] = self.operand(source, place, state)
        operands, properties = [value for values in template.operands for value in values], template.properties
        if template.addends and (call, template.addends[0]) in self.sums:
            operands += [value for group in template.addends for value in self.sums[call, group]]
            properties = self._adding_properties(call)
        op = DistCallOp.create(
            operands=operands, result_types=template.result_types, properties=properties, location=UNKNOWN_LOC
        )
        self.block.add_op(op)
        results: list[SSAValue] = list(op.results)
        ranks = self.staged.ranks
        for i, given in enumerate(template.results):
            self._made(call, given, results[i * ranks : (i + 1) * ranks], place)

    def send_results(self, call: CallOp, microbatch: int | None) -> None:
        """After a step, what other stages use goes there."""
        for result, stages in self.staged.results_sent(call):
            for stage in stages:
                if (result, (stage, microbatch)) not in self.held:
                    self._send(result, (stage, microbatch))

    def operand(self, value: SSAValue, place: Place, state: State) -> list[SSAValue]:
        """A value on a stage, in the tensor state that a call needs."""
        values, source = self._on_stage(value, place), self.tensors[value].tensor
        if source == state:
            return values
        once = (place[0], None)
        key = (value, once if values is self.held.get((value, once)) else place, state)
        if key not in self._converted:
            self._converted[key] = self.converted(values, source, state)
        return self._converted[key]

    def converted(self, values: list[SSAValue], source: State, target: State) -> list[SSAValue]:
        """What the replica holds of a value, in another state along the tensor axis."""
        if (first := self.staged.first_rank) is None:
            return convert(values, source, target, self.block.add_op)
        value, spared = first.converted(values[0], source, target, self.block.add_op)
        self.spared += spared
        return [value]

    def whole(self, value: SSAValue, stage: int) -> list[SSAValue]:
        """A value when the loop is over, on a stage."""
        if (held := self.held.get((value, (stage, None)))) is not None:
            return held
        assert isinstance(value, OpResult)
        state, source = self.tensors[value].batch, stage_of(value.op)
        home = (source, None)
        if (value, home) not in self.held:
            if isinstance(state, Sharded) and self.microbatches > 1:
                by_microbatch = [self.held[value, (source, k)] for k in range(self.microbatches)]
                joins = [ConcatOp(parts, state.dim) for parts in zip(*by_microbatch, strict=True)]
                self.block.add_ops(joins)
                self.held[value, home] = [op.output for op in joins]
            else:
                if value not in self.accumulated:
                    self._unpack_sums(value)
                self.held[value, home] = self.accumulated[value]
        return self.held[value, home] if stage == source else self._send(value, (stage, None))

    # --- calls -----------------------------------------------------------------------------------------------------

    def _given(self, call: CallOp, group: Group) -> Given:
        result = call.results[group[0]]
        user = self.staged.kept_for(result) if len(group) > 1 else None
        name = result.name_hint if len(group) == 1 else "addends" if user is None else "held"
        return Given(group, result, user, self.staged.leaves_loop(result), name)

    def _made(self, call: CallOp, given: Given, values: list[SSAValue], place: Place) -> None:
        """Records what a call gave."""
        group, result, user, leaves, name = given
        name_alike(values, name)
        if user is not None:
            self._packs[call, user, place[1]] = values
        elif len(group) > 1:
            self.sums[call, group] = values
        else:
            self.held[result, place] = values
            if leaves and place[1] is not None:
                self._accumulate(result, values)

    def _adding_properties(self, call: CallOp) -> dict[str, Attribute]:
        """Of a call once there are sums of its addends."""
        if call not in self._adding:
            devices = self.devices[stage_of(call)]
            self._adding[call] = DistCallOp(self.staged.adding(call), [], devices, []).properties
        return self._adding[call]

    def _template(self, call: CallOp, place: Place) -> Template:
        name, devices = self.staged.calls[call], self.devices[place[0]]
        types = self.staged.placed_functions[name].function_type.outputs.data
        prototype = DistCallOp(name, [], devices, [])
        states = self.lowering.argument_states[name]
        operands: list[list[SSAValue]] = []
        varying: list[tuple[int, SSAValue | CallOp, State]] = []
        for index, positions in enumerate(self.staged.signatures[call].operands):
            value, (state,) = call.operands[positions[0]], states[positions[0]]
            if len(positions) > 1 and isinstance(value, OpResult) and self.staged.kept_for(value) is call:
                operands.append([])
                varying.append((index, cast(CallOp, value.op), state))
                continue
            if value in self.staged.together:
                operands.append(self._on_stage(value, place))
                continue
            given = call.operands
            members = [self.operand(given[i], place, states[i][0]) for i in positions]
            operands.append([self._pack(values) for values in zip(*members, strict=True)])
            if len(positions) == 1 and self.staged.varies(value):
                varying.append((index, value, state))
        results = [self._given(call, group) for group in self.staged.signatures[call].results]
        types = [relocated(t, devices) for t in types]
        return Template(
            place[0], types, dict(prototype.properties), operands, varying, results, self.staged.addends(call)
        )

    def _pack(self, values: tuple[SSAValue, ...]) -> SSAValue:
        """The values as one; calls that take the same ones share the tuple."""
        if len(values) == 1:
            return values[0]
        if (found := self._packed.get(values)) is None:
            found = self._packed[values] = packed(values, self.block)
        return found

    # --- values on stages ------------------------------------------------------------------------------------------

    def _on_stage(self, value: SSAValue, place: Place) -> list[SSAValue]:
        """A value on a stage: held there, sent there before, a slice of an input, or sent now."""
        if (held := self.held.get((value, place))) is not None:
            return held
        stage, microbatch = place
        if isinstance(value, OpResult) and phase_of(value.op) in (FORWARD, BACKWARD):
            return self.whole(value, stage) if microbatch is None else self._send(value, place)
        once = (stage, None)
        if (value, once) not in self.held:
            self._send(value, once)
        state = self.tensors[value].batch
        if microbatch is None or not isinstance(state, Sharded) or self.microbatches == 1:
            return self.held[value, once]
        parts = self._rows(self.held[value, once], state.dim, microbatch)
        self.held[value, place] = parts
        return parts

    def _rows(self, values: Sequence[SSAValue], dim: int, microbatch: int) -> list[SSAValue]:
        """One microbatch's rows of what the replica holds."""
        parts: list[SSAValue] = []
        for value in values:
            type_, properties = rows_of(value.type, dim, microbatch, self.microbatches)
            op = SliceOp.create(operands=[value], result_types=[type_], properties=dict(properties))
            self.block.add_op(op)
            parts.append(op.results[0])
        name_alike(parts, values[0].name_hint)
        return parts

    def _send(self, value: SSAValue, target: Place) -> list[SSAValue]:
        """Sends a value from where it is held to another stage, rank by rank."""
        source = self.held[value, (self._home(value), target[1])]
        key = (value, target[0], target[1] is None)
        if (types := self._sends.get(key)) is None:
            devices = self.devices[target[0]]
            types = self._sends[key] = [sent_to(v.type, d) for v, d in zip(source, devices, strict=True)]
        sent: list[SSAValue] = []
        for held, (there, to) in zip(source, types, strict=True):
            op = SendOp.create(operands=[held], result_types=[there], properties={"to": to}, location=UNKNOWN_LOC)
            self.block.add_op(op)
            sent.append(op.results[0])
        name_alike(sent, value.name_hint)
        self.held[value, target] = sent
        return sent

    def _home(self, value: SSAValue) -> int:
        """The stage that a value comes from: its producer's, or the first that holds an argument."""
        return stage_of(value.op) if isinstance(value, OpResult) else self.first_stage[value]

    # --- leaving the batch axis ------------------------------------------------------------------------------------

    def _accumulate(self, value: SSAValue, values: list[SSAValue]) -> None:
        """Adds one microbatch's addends to those before; parts are kept for one concatenation at the end."""
        state = self.tensors[value].batch
        if value not in self.accumulated or isinstance(state, Replicated):
            self.accumulated[value] = values
        elif isinstance(state, Partial):
            sums = [AccumulateOp(pair, state.reduction) for pair in zip(self.accumulated[value], values, strict=True)]
            self.block.add_ops(sums)
            self.accumulated[value] = [op.output for op in sums]
            name_alike(self.accumulated[value], value.name_hint)

    def _unpack_sums(self, value: OpResult) -> None:
        """What a call gave together with this value, one by one."""
        call = cast(CallOp, value.op)
        group = self.staged.group_of(value)
        tuples = [unpacked(v, len(group), self.block) for v in self.sums[call, group]]
        for position, values in zip(group, zip(*tuples, strict=True), strict=True):
            name_alike(values, call.results[position].name_hint)
            self.accumulated[call.results[position]] = list(values)
