"""One replica of a plan while its program is written: stage calls for every microbatch, sends between stages, accumulation, and
what the replica holds where. It writes into a block of its own (a function that every replica calls) or into the entry's.

What calls take and give together is packed (`bundles`). Operations of one microbatch are those of the others on other
values, so what they say of themselves (types, properties) is worked out once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from xdsl.dialects.builtin import UNKNOWN_LOC
from xdsl.dialects.func import CallOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from distir.dialects.dist import AccumulateOp, ConcatOp, SendOp, SliceOp
from distir.dialects.dist import CallOp as DistCallOp
from distir.dialects.sharding import Partial, Sharded, State
from distir.passes.distribution.conversions import convert
from distir.passes.distribution.pipeline.bundles import Group, packed, unpacked
from distir.passes.distribution.pipeline.layout import rows_of, sent_to
from distir.passes.distribution.pipeline.staged import StagedProgram
from distir.passes.distribution.pipeline.stages import BACKWARD, FORWARD, phase_of, stage_of
from distir.passes.structure import name_alike

Place = tuple[int, int | None]
"""A stage, and the microbatch for which a value is held there; None is once per step."""


class Converted(NamedTuple):
    """A value in another state along the tensor axis."""

    value: SSAValue
    state: State


class Given(NamedTuple):
    """Arguments that are one, by their first, in the states that their call needs."""

    first: SSAValue


class Together(NamedTuple):
    """Values, in these states, as one."""

    members: tuple[tuple[SSAValue, State], ...]


class Packed(NamedTuple):
    """What a call packs for the one that alone takes it."""

    maker: CallOp
    user: CallOp


class Sums(NamedTuple):
    """Addends that leave the loop together, added up so far."""

    call: CallOp
    group: Group


class Summed(NamedTuple):
    """One microbatch's result after the other that leaves the loop: added up so far, or the last."""

    value: SSAValue


What = SSAValue | Converted | Given | Together | Packed | Sums | Summed

Key = tuple[What, Place]
"""What is held, and where."""


class Result(NamedTuple):
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
    properties: Mapping[str, Attribute]
    operands: list[list[SSAValue]]
    """Group by group and device by device."""
    varying: list[tuple[int, SSAValue | CallOp, State]]
    """Which groups vary: what a group's value is, and in which state, or the call that packed it."""
    results: list[Result]
    """Group by group."""
    addends: list[Group]
    """Those that are added up over microbatches."""


class Replica:
    """The values of one replica, and the operations that make more of them. `devices` are those of each stage."""

    def __init__(self, staged: StagedProgram, block: Block, devices: Sequence[Sequence[int]], microbatches: int):
        self.staged, self.block, self.devices, self.microbatches = staged, block, devices, microbatches
        self.tensors = staged.tensors
        self.held: dict[Key, list[SSAValue]] = {}
        """Device by device, on a stage."""
        self.first_stage: dict[SSAValue, int] = {}
        """Of each argument, the first stage that holds it."""
        self._templates: dict[CallOp, Template] = {}
        self._sends: dict[tuple[SSAValue, int, bool], list[tuple[Attribute, Attribute]]] = {}
        self._adding: dict[CallOp, Mapping[str, Attribute]] = {}
        """Properties of calls that add to sums, equal for all microbatches."""
        self.spared: list[tuple[Operation, int]] = []
        """Where one tensor rank stands for all, what the first does not do (`one_rank`), each time that it does not, and the
        device."""

    def find(self, what: What, place: Place) -> list[SSAValue] | None:
        """What is held on a stage, device by device."""
        return self.held.get((what, place))

    def do(self, call: CallOp, microbatch: int | None, sends: bool) -> None:
        """Calls a stage function, or sends what it gave."""
        if sends:
            self.send_results(call, microbatch)
        else:
            self.run(call, microbatch)

    def run(self, call: CallOp, microbatch: int | None) -> None:
        """Calls a stage function; all microbatches share what does not depend on the microbatch."""
        if (template := self._templates.get(call)) is None:
            template = self._templates[call] = self._template(call, (stage_of(call), microbatch))
        place = (template.stage, microbatch)
        for index, source, state in template.varying:
            if isinstance(source, CallOp):
                template.operands[index] = self._found(Packed(source, call), place)
            else:
                template.operands[index] = self.operand(source, place, state)
        operands, properties = [value for values in template.operands for value in values], template.properties
        once = (template.stage, None)
        if template.addends and self.find(Sums(call, template.addends[0]), once) is not None:
            operands += [value for group in template.addends for value in self._found(Sums(call, group), once)]
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
                if self.find(result, (stage, microbatch)) is None:
                    self._send(result, (stage, microbatch))

    def operand(self, value: SSAValue, place: Place, state: State) -> list[SSAValue]:
        """A value on a stage, in the tensor state that a call needs."""
        values, source = self._on_stage(value, place), self.tensors[value].tensor
        if source == state:
            return values
        once, what = (place[0], None), Converted(value, state)
        where = once if values is self.find(value, once) else place
        if (found := self.find(what, where)) is None:
            found = self.held[what, where] = self.converted(values, source, state, place[0])
        return found

    def converted(self, values: list[SSAValue], source: State, target: State, stage: int) -> list[SSAValue]:
        """What the replica holds of a value on a stage, in another state along the tensor axis."""
        if (first := self.staged.first_rank) is None:
            return convert(values, source, target, self.block.add_op)
        value, spared = first.converted(values[0], source, target, self.block.add_op)
        self.spared += [(op, self.devices[stage][0]) for op in spared]
        return [value]

    def forget_conversions(self) -> None:
        """What was converted is converted anew: as where a function ends in which it was."""
        self.held = {key: values for key, values in self.held.items() if not isinstance(key[0], Converted)}

    def whole(self, value: SSAValue, stage: int) -> list[SSAValue]:
        """A value when the loop is over, on a stage."""
        if (held := self.find(value, (stage, None))) is not None:
            return held
        assert isinstance(value, OpResult)
        state, source = self.tensors[value].batch, stage_of(value.op)
        home = (source, None)
        if self.find(value, home) is None:
            if isinstance(state, Sharded) and self.microbatches > 1:
                by_microbatch = [self._found(value, (source, k)) for k in range(self.microbatches)]
                joins = [ConcatOp(parts, state.dim) for parts in zip(*by_microbatch, strict=True)]
                self.block.add_ops(joins)
                self.held[value, home] = [op.output for op in joins]
            else:
                if self.find(Summed(value), home) is None:
                    self._unpack_sums(value)
                self.held[value, home] = self._found(Summed(value), home)
        return self._found(value, home) if stage == source else self._send(value, (stage, None))

    # --- calls -----------------------------------------------------------------------------------------------------

    def _result(self, call: CallOp, group: Group) -> Result:
        result = call.results[group[0]]
        user = self.staged.kept_for(result) if len(group) > 1 else None
        name = result.name_hint if len(group) == 1 else "addends" if user is None else "held"
        return Result(group, result, user, self.staged.leaves_loop(result), name)

    def _made(self, call: CallOp, given: Result, values: list[SSAValue], place: Place) -> None:
        """Records what a call gave."""
        group, result, user, leaves, name = given
        name_alike(values, name)
        if user is not None:
            self.held[Packed(call, user), place] = values
        elif len(group) > 1:
            self.held[Sums(call, group), (place[0], None)] = values
        else:
            self.held[result, place] = values
            if leaves and place[1] is not None:
                self._accumulate(result, values, place[0])

    def _adding_properties(self, call: CallOp) -> Mapping[str, Attribute]:
        """Of a call once there are sums of its addends."""
        if call not in self._adding:
            self._adding[call] = DistCallOp.stating(self.staged.adding(call), tuple(self.devices[stage_of(call)]))
        return self._adding[call]

    def _template(self, call: CallOp, place: Place) -> Template:
        name, devices = self.staged.calls[call], self.devices[place[0]]
        types = self.staged.placed_functions[name].function_type.outputs.data
        states = self.staged.argument_states[name]
        operands: list[list[SSAValue]] = []
        varying: list[tuple[int, SSAValue | CallOp, State]] = []
        for index, positions in enumerate(self.staged.signatures[call].operands):
            value, (state,) = call.operands[positions[0]], states[positions[0]]
            if len(positions) > 1 and isinstance(value, OpResult) and self.staged.kept_for(value) is call:
                operands.append([])
                varying.append((index, cast(CallOp, value.op), state))
                continue
            if value in self.staged.together:
                operands.append(self._as_needed(value, (place[0], None)))
                continue
            if len(positions) > 1:
                operands.append(self._pack([(call.operands[i], states[i][0]) for i in positions], place[0]))
                continue
            operands.append(self.operand(value, place, state))
            if self.staged.varies(value):
                varying.append((index, value, state))
        results = [self._result(call, group) for group in self.staged.signatures[call].results]
        moved = self.staged.moved
        types = [moved(t, devices[i % len(devices)]) for i, t in enumerate(types)]
        return Template(
            place[0],
            types,
            DistCallOp.stating(name, tuple(devices)),
            operands,
            varying,
            results,
            self.staged.addends(call),
        )

    def _as_needed(self, first: SSAValue, place: Place) -> list[SSAValue]:
        """Arguments that are one, in the states that their call needs."""
        if (conversion := self.staged.conversion(first)) is None:
            return self._on_stage(first, place)
        key = Given(first), place
        if (found := self.find(*key)) is None:
            devices = self.devices[place[0]]
            op = DistCallOp.create(
                operands=self._on_stage(first, place),
                result_types=[self.staged.moved(t, d) for t, d in zip(conversion.types, devices, strict=True)],
                properties=DistCallOp.stating(conversion.name, tuple(devices)),
                location=UNKNOWN_LOC,
            )
            self.block.add_op(op)
            self.spared += [(spared, devices[0]) for spared in conversion.spared]
            found = self.held[key] = list(op.results)
        return found

    def _pack(self, members: Sequence[tuple[SSAValue, State]], stage: int) -> list[SSAValue]:
        """Values on a stage, which are there once per step, as one; calls that take the same ones share the tuple."""
        key = Together(tuple(members)), (stage, None)
        if (found := self.find(*key)) is None:
            values = [self.operand(value, key[1], state) for value, state in members]
            found = self.held[key] = [packed(each, self.block) for each in zip(*values, strict=True)]
        return found

    # --- values on stages ------------------------------------------------------------------------------------------

    def _on_stage(self, value: SSAValue, place: Place) -> list[SSAValue]:
        """A value on a stage: held there, sent there before, a slice of an input, or sent now."""
        if (held := self.find(value, place)) is not None:
            return held
        stage, microbatch = place
        if isinstance(value, OpResult) and phase_of(value.op) in (FORWARD, BACKWARD):
            return self.whole(value, stage) if microbatch is None else self._send(value, place)
        once = (stage, None)
        if (whole := self.find(value, once)) is None:
            whole = self._send(value, once)
        state = self.tensors[value].batch
        if microbatch is None or not isinstance(state, Sharded) or self.microbatches == 1:
            return whole
        parts = self._rows(whole, state.dim, microbatch)
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
        source = self._found(value, (self._home(value), target[1]))
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

    def _accumulate(self, value: SSAValue, values: list[SSAValue], stage: int) -> None:
        """Adds one microbatch's addends to those before; parts are kept for one concatenation at the end."""
        state, key = self.tensors[value].batch, (Summed(value), (stage, None))
        if isinstance(state, Sharded) and self.microbatches > 1:
            return
        if not isinstance(state, Partial) or (before := self.find(*key)) is None:
            self.held[key] = values
            return
        sums = [AccumulateOp(pair, state.reduction) for pair in zip(before, values, strict=True)]
        self.block.add_ops(sums)
        self.held[key] = [op.output for op in sums]
        name_alike(self.held[key], value.name_hint)

    def _unpack_sums(self, value: OpResult) -> None:
        """What a call gave together with this value, one by one."""
        call = cast(CallOp, value.op)
        group, home = self.staged.group_of(value), (stage_of(call), None)
        tuples = [unpacked(v, len(group), self.block) for v in self._found(Sums(call, group), home)]
        for position, values in zip(group, zip(*tuples, strict=True), strict=True):
            name_alike(values, call.results[position].name_hint)
            self.held[Summed(call.results[position]), home] = list(values)

    def _found(self, what: What, place: Place) -> list[SSAValue]:
        """What is held there."""
        found = self.find(what, place)
        assert found is not None
        return found
