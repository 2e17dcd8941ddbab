"""A staged program whose functions are lowered to devices of their own: all that plans which differ in replicas, microbatches
and schedule have in common. `assemble` makes the entry of one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple, cast

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, TensorType, TupleType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue, TypeAttribute

from distir.dialects.dist import CallOp as DistCallOp
from distir.dialects.dist import PackOp
from distir.dialects.dist.attributes import on_device, placed, placement
from distir.dialects.sharding import Partial, Sharded, State
from distir.interpreters.held import HeldOp
from distir.passes.distribution.mesh import AxisStates
from distir.passes.distribution.pipeline.bundles import (
    Group,
    Signature,
    adding,
    grouped,
    sole_user,
    travel_packed,
)
from distir.passes.distribution.pipeline.layout import Layout, Tensor, local_types
from distir.passes.distribution.pipeline.one_rank import FirstRank, converting
from distir.passes.distribution.pipeline.stages import (
    BACKWARD,
    BEFORE,
    FORWARD,
    UPDATE,
    parameter_homes,
    phase_of,
    stage_calls,
    stage_of,
)
from distir.passes.distribution.pipeline.tasks import Task, steps
from distir.passes.structure import (
    argument_attributes,
    calls_first,
    functions,
    result_attributes,
    text,
    unique_symbol,
)


class Conversion(NamedTuple):
    """A function that converts arguments which are one, and what the first tensor rank is spared of it (`one_rank`)."""

    name: str
    types: Sequence[Attribute]
    """Of its results, by rank."""
    spared: Sequence[Operation]


Doing = tuple[CallOp, int | None, bool]
"""A stage call with its microbatch or, with True, that its results are sent."""


class StagedProgram:
    """Takes the staged entry, and the functions that nothing calls any more, out of the module; what stage calls take and give
    is packed (`bundles`). `calls` maps each stage call to the placed function that it runs, `argument_states` each such function to
    the states in which it needs its arguments. With `first_rank`, functions are cut down to what the first tensor rank does, if all do the
    same (`one_rank`); `is_first` says that they are already. A program that is not `to_run` takes as one argument what one call alone
    uses."""

    def __init__(
        self,
        module: ModuleOp,
        entry: FuncOp,
        tensors: Mapping[SSAValue, Tensor],
        calls: Mapping[CallOp, str],
        argument_states: Mapping[str, Sequence[AxisStates]],
        tp: int,
        first_rank: FirstRank | None = None,
        to_run: bool = True,
        is_first: bool = False,
    ):
        self.module, self.entry, self.tensors, self.calls = module, entry, tensors, calls
        self.argument_states = argument_states
        self.tp, self.to_run = tp, to_run
        self.stage_calls = stage_calls(entry)
        self.homes = parameter_homes(entry)
        self.argument_attributes = argument_attributes(entry)
        self.updated = {text(a, "dist.name", "") for a in result_attributes(entry)}
        self.looped: set[SSAValue] = set()
        """What calls before the loop or in it use."""
        self.users: dict[SSAValue, set[int]] = defaultdict(set)
        """Stages whose calls in the loop use a value."""
        self.by_task: dict[tuple[str, int], list[CallOp]] = defaultdict(list)
        self.by_phase: dict[str, list[CallOp]] = defaultdict(list)
        for call in self.stage_calls:
            self.by_phase[phase_of(call)].append(call)
            self.by_task[phase_of(call), stage_of(call)].append(call)
            if phase_of(call) != UPDATE:
                self.looped.update(call.operands)
            if phase_of(call) in (FORWARD, BACKWARD):
                for value in call.operands:
                    self.users[value].add(stage_of(call))
        roles = [text(a, "dist.role", "input") for a in self.argument_attributes]
        self._inputs = {v for v, role in zip(entry.body.block.args, roles, strict=True) if role in ("input", "label")}
        self._sent: dict[CallOp, list[tuple[SSAValue, list[int]]]] = {}
        self._kept_for: dict[SSAValue, CallOp | None] = {}
        self._take_out()
        self.placed_functions = functions(module)
        self.first_rank = first_rank if is_first else self._one_rank(first_rank)
        self.ranks = tp if self.first_rank is None else 1
        """For how many tensor ranks functions are written."""
        self.together: dict[SSAValue, list[SSAValue]] = {}
        """Arguments of the entry that are one, by their first."""
        self._converted: set[SSAValue] = set()
        """The first of those of which any is needed in another state than that in which it is given."""
        if not to_run:
            self._give_together()
        self._members = {v: members[0] for members in self.together.values() for v in members}
        self.signatures = {call: self._signature(call) for call in self.stage_calls}
        for call, signature in self.signatures.items():
            travel_packed(self.placed_functions[calls[call]], signature, self.ranks)
        self._forget()

    def _forget(self) -> None:
        """Forgets what depends on types."""
        self.ports: dict[SSAValue, list[DictionaryAttr]] = {}
        """Attributes of the parts of entry arguments that do not depend on the plan, by tensor rank."""
        self._adding: dict[CallOp, str] = {}
        self._conversions: dict[SSAValue, Conversion] = {}
        self._tuples: dict[tuple[SSAValue, int], TupleType] = {}
        self._moved: dict[tuple[int, int], tuple[Attribute, Attribute]] = {}
        """By the identity of types, which stay."""
        self.__dict__.pop("held", None)

    def with_functions(
        self,
        module: ModuleOp,
        tensors: Mapping[SSAValue, Tensor],
        argument_states: Mapping[str, Sequence[AxisStates]],
        first_rank: FirstRank | None,
    ) -> StagedProgram:
        """The same program with functions, tensors and states at other shapes. The functions are all of the module."""
        other = copy(self)
        other.module, other.tensors, other.argument_states, other.first_rank = (
            module,
            tensors,
            argument_states,
            first_rank,
        )
        other.placed_functions = functions(module)
        other._next = None
        other._forget()
        return other

    @property
    def is_trained(self) -> bool:
        """Whether the loop has a backward part."""
        return bool(self.by_phase[BACKWARD])

    def in_order(self, schedule: str, layout: Layout) -> Iterator[Doing]:
        """What a replica does before the loop and in it."""
        yield from self.before_loop()
        for step in steps(schedule, layout.pp, layout.microbatches, self.is_trained):
            yield from self.in_step(step)

    def before_loop(self) -> Iterator[Doing]:
        """What a replica does before the loop."""
        for call in self.by_phase[BEFORE]:
            yield call, None, False
            yield call, None, True

    def in_step(self, step: Sequence[Task]) -> Iterator[Doing]:
        """What a replica does in a step: the calls of all stages, then what they send."""
        called = [
            (call, task.microbatch)
            for task in step
            for call in self.by_task[BACKWARD if task.backward else FORWARD, task.stage]
        ]
        for sends in (False, True):
            for call, microbatch in called:
                yield call, microbatch, sends

    @cached_property
    def places(self) -> dict[BlockArgument, list[int]]:
        """Where each argument is: on every stage that uses it; one that is updated, on its first only (the others receive
        it)."""
        found = dict[BlockArgument, list[int]]()
        for argument, known in zip(self.entry.body.block.args, self.argument_attributes, strict=True):
            stages = self.homes[argument] or [0]
            updated = text(known, "dist.name", f"arg{argument.index}") in self.updated
            found[argument] = stages[:1] if updated else stages
        return found

    @cached_property
    def given(self) -> dict[BlockArgument, list[int]]:
        """The places of arguments, those that are one by the first of them."""
        return {a: stages for a, stages in self.places.items() if self._members.get(a, a) is a}

    @cached_property
    def held(self) -> dict[CallOp, list[TupleType]]:
        """What the functions that a stage call runs hold (`interpreters/held`), by rank; calls that hold nothing are not there."""
        known: dict[str, list[TupleType]] = {}

        def held_in(name: str) -> list[TupleType]:
            if name not in known:
                found = [list[TypeAttribute]() for _ in range(self.ranks)]
                for op in self.placed_functions[name].body.block.ops:
                    if isinstance(op, HeldOp):
                        on = placement(op.output.type)
                        found[0 if on is None else on.device].append(cast(TypeAttribute, op.output.type))
                    elif isinstance(op, DistCallOp):
                        for device, inner in zip(op.devices, held_in(op.callee_name), strict=False):
                            if inner.types.data:
                                found[device].append(inner)
                known[name] = [TupleType(tuple(each)) for each in found]
            return known[name]

        by_call = {call: held_in(self.calls[call]) for call in self.stage_calls}
        return {call: found for call, found in by_call.items() if any([each.types.data for each in found])}

    def tuple_type(self, first: SSAValue, device: int) -> TupleType:
        """The type of arguments that are one, on a device."""
        if (known := self._tuples.get((first, device))) is None:
            one, types = Layout(1, self.tp, 1, 1), dict[tuple[Attribute, State], Attribute]()
            members: list[Attribute] = []
            for tensor in [self.tensors[v] for v in self.together[first]]:
                if (type_ := types.get(key := (tensor.type, tensor.tensor))) is None:
                    type_ = types[key] = placed(local_types(tensor, one)[0], on_device(device))
                members.append(type_)
            known = PackOp.packed_type(members)
            self._tuples[first, device] = known
        return known

    def moved(self, type_: Attribute, device: int) -> Attribute:
        """A placed type on another device. Types are recognised by identity: a plan moves the same ones often."""
        if (known := self._moved.get((id(type_), device))) is None:
            known = self._moved[id(type_), device] = type_, self._there(type_, device)
        return known[1]

    def _there(self, type_: Attribute, device: int) -> Attribute:
        if isinstance(type_, TupleType):
            return TupleType(tuple([cast(TypeAttribute, self.moved(t, device)) for t in type_.types.data]))
        on = placement(type_)
        return type_ if on is None else placed(type_, on_device(device, on.stream))

    def _give_together(self) -> None:
        """Finds the arguments that only one call uses, whatever the microbatch."""
        known = {a: text(each, "dist.name", "") for a, each in zip(self.places, self.argument_attributes, strict=True)}
        for call in self.stage_calls:
            states = self.argument_states[self.calls[call]]
            own: list[tuple[BlockArgument, State]] = []
            for value, (state,) in zip(call.operands, states, strict=True):
                if not isinstance(value, BlockArgument) or self.varies(value) or known[value] in self.updated:
                    continue
                if isinstance(value.type, TensorType) and sole_user(value):
                    own.append((value, state))
            if len(own) > 1:
                own.sort(key=lambda each: each[0].index)
                first = own[0][0]
                self.together[first] = [value for value, _ in own]
                if any([state != self.tensors[value].tensor for value, state in own]):
                    self._converted.add(first)

    def conversion(self, first: SSAValue) -> Conversion | None:
        """The function that takes arguments that are one and gives them as one in the states that their call needs; None if they are
        given so. It is over the tensor ranks of one stage."""
        if first not in self._converted:
            return None
        if first not in self._conversions:
            (user,) = [use.operation for use in first.uses]
            assert isinstance(user, CallOp)
            needed = dict(zip(user.operands, self.argument_states[self.calls[user]], strict=True))
            members = [(self.tensors[value].tensor, needed[value][0]) for value in self.together[first]]
            types = [self.tuple_type(first, rank) for rank in range(self.ranks)]
            name = unique_symbol(self.module, "given")
            function, spared = converting(name, types, members, self.first_rank)
            self.module.body.block.add_op(function)
            self._conversions[first] = Conversion(name, function.function_type.outputs.data, spared)
        return self._conversions[first]

    def _one_rank(self, first_rank: FirstRank | None) -> FirstRank | None:
        """Cuts all functions down to the first rank, if it stands for all."""
        written = list(self.placed_functions.values())
        if first_rank is None or not first_rank.stands_for_all(written):
            return None
        for function in written:
            first_rank.keep(function)
        return first_rank

    def _take_out(self) -> None:
        reached = {id(f) for name in dict.fromkeys(self.calls.values()) for f in calls_first(self.module, name)}
        for function in functions(self.module).values():
            if id(function) not in reached and function is not self.entry:
                self.module.body.block.erase_op(function)
        self._next = None
        if self.entry.parent is self.module.body.block:
            self._next = self.entry.next_op
            self.entry.detach()

    def place(self, entry: FuncOp) -> None:
        """Puts an entry where the staged one was."""
        if self._next is None:
            self.module.body.block.add_op(entry)
        else:
            self.module.body.block.insert_op_before(entry, self._next)

    def _signature(self, call: CallOp) -> Signature:
        """Parameters and what was computed before the loop are one tuple, so is what another call made for this one alone,
        and so are addends that leave the loop."""
        looped = phase_of(call) in (FORWARD, BACKWARD)

        def operand_key(value: SSAValue) -> Hashable | None:
            if value in self._members:
                return "given"
            if isinstance(value, BlockArgument):
                return None if value in self._inputs or self.varies(value) else "held"
            if not self.varies(value):
                return "held"
            if not looped:
                return "addends" if isinstance(self.tensors[value].batch, Partial) else None
            return value.owner if self.kept_for(value) is call else None

        def as_packed(position: int) -> tuple[int, int]:
            value = call.operands[position]
            if isinstance(value, BlockArgument):
                return 0, value.index
            return 1, value.index if isinstance(value, OpResult) and self.kept_for(value) is call else position

        def result_key(value: SSAValue) -> Hashable | None:
            if (user := self.kept_for(value)) is not None:
                return user
            state = self.tensors[value].batch
            leaves = looped and self.leaves_loop(value) and not self.users[value]
            return state if leaves and isinstance(state, Partial) else None

        operands = [tuple(sorted(group, key=as_packed)) for group in grouped(call.operands, operand_key)]
        return Signature(tuple(operands), grouped(call.results, result_key))

    def kept_for(self, value: SSAValue) -> CallOp | None:
        """The call of the loop that alone uses a value of the loop, on the same stage and as it was returned."""
        if value not in self._kept_for:
            self._kept_for[value] = self._find_kept_for(value)
        return self._kept_for[value]

    def _find_kept_for(self, value: SSAValue) -> CallOp | None:
        user = sole_user(value)
        if not isinstance(value, OpResult) or not isinstance(user, CallOp):
            return None
        made, used = cast(CallOp, value.op), (phase_of(value.op), phase_of(user))
        if stage_of(made) != stage_of(user) or not set(used) <= {FORWARD, BACKWARD}:
            return None
        (needed,) = self.argument_states[self.calls[user]][list(user.operands).index(value)]
        return user if needed == self.tensors[value].tensor else None

    def varies(self, value: SSAValue) -> bool:
        """Whether a value is another one for every microbatch."""
        if isinstance(value, OpResult):
            return phase_of(value.op) in (FORWARD, BACKWARD)
        return isinstance(self.tensors[value].batch, Sharded)

    def results_sent(self, call: CallOp) -> list[tuple[SSAValue, list[int]]]:
        """The results of a call that calls of the loop on other stages use, and these stages."""
        if call not in self._sent:
            stages = [(result, sorted(self.users[result] - {stage_of(call)})) for result in call.results]
            self._sent[call] = [(result, others) for result, others in stages if others]
        return self._sent[call]

    def group_of(self, value: OpResult) -> Group:
        """The results that a call gives together with this one."""
        return next(group for group in self.signatures[cast(CallOp, value.op)].results if value.index in group)

    def leaves_loop(self, value: SSAValue) -> bool:
        """Whether an update or the return uses a value of the loop."""
        return any(isinstance(use.operation, ReturnOp) or phase_of(use.operation) == UPDATE for use in value.uses)

    def addends(self, call: CallOp) -> list[Group]:
        """The groups of a call's results that are added up over microbatches."""
        groups = self.signatures[call].results
        return [group for group in groups if len(group) > 1 and self.kept_for(call.results[group[0]]) is None]

    def adding(self, call: CallOp) -> str:
        """The function that a call runs once there are sums of its addends: it takes these last, and adds to them."""
        if call not in self._adding:
            name, results = self.calls[call], self.signatures[call].results
            states = [(number, self.tensors[call.results[results[number][0]]].batch) for number in range(len(results))]
            summed = set(self.addends(call))
            groups = [(n, cast(Partial, state).reduction) for n, state in states if results[n] in summed]
            self._adding[call] = unique_symbol(self.module, f"{name}_adding")
            function = adding(self.placed_functions[name], self._adding[call], groups, self.ranks)
            self.module.body.block.add_op(function)
        return self._adding[call]
