"""Pipeline stages. In go the operations of an entry and their weights; out come the stage of every operation, and
the entry as calls of one function per stage and phase.

The forward part is cut, in program order (what takes parameters again is put beside what took them first), into P
contiguous stages of balanced cost. The backward part follows the values: an operation runs where its parameter lives,
else where the activation it needs was kept, never later than the gradient that reaches it. Updates follow their
parameters, and what joins addends of several stages runs with them, once. No operator is named."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue

from distir.dialects.dist import AccumulateOp, MicrobatchesOp, PutRowsOp, TakeRowsOp, ZerosOp
from distir.dialects.errors import DistirError
from distir.dialects.sharding import Partial, Sharded
from distir.interpreters.walk import values_read
from distir.interpreters.work import type_bytes
from distir.passes.distribution.batch.batch_axis import Phase
from distir.passes.distribution.batch.entry_axis import BatchAxis
from distir.passes.distribution.pipeline.cuts import EVEN, SLOWER, is_more_even, joining_cuts
from distir.passes.structure import (
    argument_attributes,
    is_constant_expression,
    result_attributes,
    text,
    unique_symbol,
    user_of,
)

STAGE, PHASE = "dist.stage", "dist.phase"
BEFORE, FORWARD, BACKWARD, WEIGHTS, UPDATE = "before", "forward", "backward", "weights", "update"
LOOPED = (FORWARD, BACKWARD, WEIGHTS)
"""Phases that run in every microbatch."""
VIRTUAL = "dist.virtual"
"""Of a staged module: how many stages each rank has, where it has more than one."""

BESIDE = (AccumulateOp, MicrobatchesOp, PutRowsOp, TakeRowsOp, ZerosOp)
"""What a staged program has beside its stage calls."""

Weigh = Callable[[Operation], float]

Cuts = dict[int, list[int]]
"""By how many forward operations there are, the bounds of the stages among them: kept, so that a plan is cut alike at every batch."""


@dataclass(frozen=True)
class Group:
    """Where an operation goes: its phase, its stage, and its level (groups of one level do not depend on each other)."""

    phase: str
    stage: int
    level: int = 0


class TooManyStages(DistirError):
    """There are fewer forward operations than stages."""

    def __init__(self, operations: int, stages: int):
        super().__init__(
            f"cannot cut {operations} forward operations into {stages} pipeline stages: use at most {operations}"
        )
        self.operations = operations


class Assignment:
    """The group of every operation of the entry."""

    def __init__(self, entry: FuncOp, axis: BatchAxis, stages: int, weigh: Weigh, cuts: Cuts, slower: float = SLOWER):
        """Stages begin where `cuts` says; what it does not know is balanced, and added to it. They may be `slower` for parameters to be even."""
        self.entry, self.axis = entry, axis
        self.ops = [
            op for op in entry.body.block.ops if not is_constant_expression(op) and not isinstance(op, ReturnOp)
        ]
        self.groups: dict[Operation, Group] = {}
        self.home: dict[SSAValue, int] = {}
        self._joined: set[Operation] = set()
        self._joining: set[Operation] = set()
        """Where stages rather do not begin: what takes the same parameters is before these."""
        self._available: dict[SSAValue, set[int]] = defaultdict(set)
        ports = zip(entry.body.block.args, argument_attributes(entry), strict=True)
        self._parameters: set[SSAValue] = {
            v for v, a in ports if text(a, "dist.role", "input") in ("parameter", "state")
        }
        inside = [op for op in self.ops if axis.phases[op] is Phase.INSIDE]
        forward = forward_part(entry, inside)
        made = self._made_cut(inside)
        inside = [op for op in inside if op not in made]
        self._assign_forward(self._in_order([op for op in inside if op in forward]), stages, weigh, cuts, slower)
        self._assign_made([op for op in made if op in forward], FORWARD)
        before = [op for op in self.ops if axis.phases[op] is Phase.BEFORE]
        self._assign_before(before)  # parameters that are reached through these live where their results are used
        self._forward_homes = set(self.home)
        for op in reversed(before):
            for value in values_read(op):
                self._available[value].update(*(self._available[result] for result in op.results))
        self._assign_backward([op for op in inside if op not in forward])
        self._assign_made([op for op in made if op not in forward], BACKWARD)
        self._assign_after([op for op in self.ops if op not in self.groups and axis.phases[op] is not Phase.BEFORE])
        self._assign_before(before)
        for op in before:
            stage = self.groups[op].stage
            self.groups[op] = Group(BEFORE, stage, self._level(op, BEFORE, stage))

    def _level(self, op: Operation, phase: str, stage: int) -> int:
        """Of an operation on a stage outside the loop: later than what it takes of other stages."""
        taken = [self.groups[v.op] for v in values_read(op) if isinstance(v, OpResult) and v.op in self.groups]
        return max((g.level + (g.stage != stage) for g in taken if g.phase == phase), default=0)

    def _assign_forward(self, ops: Sequence[Operation], stages: int, weigh: Weigh, cuts: Cuts, slower: float) -> None:
        if len(ops) < stages:
            raise TooManyStages(len(ops), stages)
        first, last = self._held(ops), self._held(ops[::-1])[::-1]
        if len(ops) not in cuts:
            begins = [i for i, op in enumerate(ops) if op not in self._joining]
            cuts[len(ops)] = joining_cuts([weigh(op) for op in ops], first, last, begins, stages, slower)
        bounds = cuts[len(ops)]
        stage_of_op = [stage for stage, (start, stop) in enumerate(pairwise(bounds)) for _ in range(start, stop)]
        if is_more_even(last, bounds, first, bounds):
            for held, stage in zip(last, stage_of_op, strict=True):
                self.home.update(dict.fromkeys(held, stage))
        for op, stage in zip(ops, stage_of_op, strict=True):
            self._put(op, Group(FORWARD, stage))

    def _made_cut(self, ops: Sequence[Operation]) -> dict[Operation, None]:
        """What is in the loop because what it makes is cut: it takes nothing cut but of such."""
        made: dict[Operation, None] = {}
        states = self.axis.body.states
        for op in ops:
            cut = [v for v in values_read(op) if isinstance(states[v], Sharded | Partial)]
            makes = any(isinstance(states[r], Sharded) for r in op.results)
            if makes and all(isinstance(v, OpResult) and v.op in made for v in cut):
                made[op] = None
        return made

    def _assign_made(self, ops: Sequence[Operation], phase: str) -> None:
        """What is made of nothing that is cut (a scale for every row of the batch) is made by the stage that takes it first: there it is
        known how it is cut."""
        for op in reversed(ops):
            users = [self.groups.get(user_of(r, use)) for r in op.results for use in r.uses]
            stages = [g.stage for g in users if g is not None and g.phase == phase]
            self._put(op, Group(phase, (min if phase == FORWARD else max)(stages, default=0)))

    def _held(self, ops: Sequence[Operation]) -> list[dict[SSAValue, int]]:
        """Bytes of the parameters that each operation takes. A stage holds what it takes by itself; what is updated, or taken through what runs
        before the loop, the stage of the first of these operations holds, and sends."""
        updated = {text(a, "dist.name", "") for a in result_attributes(self.entry)}
        names = (text(a, "dist.name", "") for a in argument_attributes(self.entry))
        sent = {v for v, name in zip(self.entry.body.block.args, names, strict=True) if name in updated}
        held, done = list[dict[SSAValue, int]](), set[SSAValue]()
        for op in ops:
            taken = self._taken(op)
            own = taken.intersection(values_read(op)) - sent
            held.append({value: type_bytes(value.type) for value in own | (taken - done)})
            done |= taken
        return held

    def _taken(self, op: Operation) -> set[SSAValue]:
        """The parameters that an operation takes, also through what runs before the loop."""
        todo, seen = list(values_read(op)), set[SSAValue]()
        while todo:
            if (value := todo.pop()) in seen:
                continue
            seen.add(value)
            if isinstance(value, OpResult) and self.axis.phases.get(value.op) is Phase.BEFORE:
                todo += values_read(value.op)
        return self._parameters & seen

    def _in_order(self, ops: Sequence[Operation]) -> list[Operation]:
        """Forward operations in program order, but what takes the parameters of an earlier part again (the other view of a pair, the next chunk of a
        batch, a step of a recurrence, the layer with adapters) right behind that part, where what it is made of allows it, and what leads to it before
        that: a stage has all of what its parameters do."""
        takes = [self._taken(op) for op in ops]
        again = _taking_again(ops, takes)
        leads = _leading(ops, again)
        first = dict[SSAValue, int]()
        place = dict[Operation, int]()  # those that depend on no parameter have none yet
        moved = set[Operation]()
        for i, (op, taken) in enumerate(zip(ops, takes, strict=True)):
            makers = [v.op for v in values_read(op) if isinstance(v, OpResult) and v.op in place]
            is_again = _is_mostly(taken, first)
            is_led = bool(taken or makers) and leads.get(op, i) < i
            if is_again or is_led or (not taken and not moved.isdisjoint(makers)):
                behind = (
                    [first[v] for v in taken & first.keys()]
                    if is_again
                    else [place[ops[leads[op]]] - 1]
                    if is_led
                    else []
                )
                place[op] = max([*behind, *(place[maker] for maker in makers)])
                moved.add(op)
            elif taken or makers:
                place[op] = 2 * i
            for value in taken:
                first.setdefault(value, place[op])
        for i, op in reversed([*enumerate(ops)]):
            if op not in place:
                users = [user_of(result, use) for result in op.results for use in result.uses]
                place[op] = min([2 * i, *(place[user] for user in users if user in place)])
        ordered = sorted(ops, key=place.__getitem__)
        position = {op: i for i, op in enumerate(ordered)}
        for op, i in again.items():
            if place[op] == place[ops[i]]:
                self._joining.update(ordered[position[ops[i]] + 1 : position[op] + 1])
        return ordered

    def _put(self, op: Operation, group: Group) -> None:
        self.groups[op] = group
        for value in (*values_read(op), *op.results):
            if group.phase == FORWARD:
                self._available[value].add(group.stage)
            if isinstance(value, BlockArgument):
                self.home.setdefault(value, group.stage)

    def _is_gradient(self, value: SSAValue) -> bool:
        return isinstance(value, OpResult) and value.op in self.groups and self.groups[value.op].phase == BACKWARD

    def _assign_backward(self, ops: Sequence[Operation]) -> None:
        last = max((g.stage for g in self.groups.values()), default=0)
        for op in ops:
            if self._joins_stages(op):
                continue
            flow = min((self.groups[v.op].stage for v in values_read(op) if isinstance(v, OpResult) and self._is_gradient(v)),
                       default=last)  # fmt: skip
            read = [v for v in values_read(op) if not self._is_gradient(v)]
            parameters, kept = (
                [
                    max((s for s in self._available[v] if s <= flow), default=self.home.get(v, flow))
                    for v in read
                    if self._is_parameter(v) == is_parameter and (self._available[v] or v in self.home)
                ]
                for is_parameter in (True, False)
            )
            self._put(op, Group(BACKWARD, min([flow, *(parameters or kept)])))

    def _joins_stages(self, op: Operation) -> bool:
        """Whether it takes addends of several stages, all for operations after the loop (both gradients of a tied weight), or what is made of
        such. It runs once, when these were added up: in the loop, stages far apart would wait for each other in every microbatch."""
        made = [v.op for v in values_read(op) if isinstance(v, OpResult)]
        stages = {self.groups[each].stage for each in made if each in self.groups}
        if (len(stages) < 2 and self._joined.isdisjoint(made)) or not self._leads_after(op):
            return False
        self._joined.add(op)
        return True

    def _leads_after(self, op: Operation) -> bool:
        """Whether it takes addends, and what it gives is for operations after the loop, or for such as this one."""
        users = [user_of(result, use) for result in op.results for use in result.uses]
        return all(isinstance(self.axis.body.states.get(v), Partial) for v in values_read(op)) and all(
            self.axis.phases.get(user) is Phase.AFTER or self._leads_after(user) for user in users
        )

    def _is_parameter(self, value: SSAValue) -> bool:
        return value in self._parameters

    def _assign_after(self, ops: Sequence[Operation]) -> None:
        """Updates run where their parameter lives, with all that only they need; what several stages need, where it is made, or where what is made of
        it first is (the moments of one layer, of which all layers' update takes the norm)."""
        stages = {op: group.stage for op, group in self.groups.items()} | self._updated_stages(ops)
        for op in ops:
            made = [stages[v.op] for v in values_read(op) if isinstance(v, OpResult) and v.op in stages]
            if made:
                stages.setdefault(op, max(made))
        for op in reversed(ops):
            users = (user_of(result, use) for result in op.results for use in result.uses)
            stages.setdefault(op, min((stages[user] for user in users if user in stages), default=0))
        for op in ops:
            self._put(op, Group(UPDATE, stages[op], self._level(op, UPDATE, stages[op])))

    def _updated_stages(self, ops: Sequence[Operation]) -> dict[Operation, int]:
        """Of operations after the loop, the stage of the one parameter that they are for."""
        names = {
            text(a, "dist.name", ""): self.home.get(v)
            for a, v in zip(argument_attributes(self.entry), self.entry.body.block.args, strict=True)
        }
        last = self.entry.body.block.last_op
        wanted: dict[Operation, set[int]] = defaultdict(set)
        for value, a in zip(last.operands if last else (), result_attributes(self.entry), strict=True):
            stage = names.get(text(a, "dist.name", ""))
            if isinstance(value, OpResult) and stage is not None:
                wanted[value.op].add(stage)
        settled: dict[Operation, int] = {}
        for op in reversed(ops):
            homes = [self.home[v] for v in values_read(op) if self._is_parameter(v) and v in self.home]
            stages = set(homes[:1]) or wanted[op]
            if len(stages) == 1:
                settled[op] = next(iter(stages))
            for value in values_read(op):
                if isinstance(value, OpResult):
                    wanted[value.op] |= stages
        return settled

    def hiding(self, stages: int) -> list[CallOp]:
        """Where a stage has over `EVEN` times its share of the parameters: the forward calls that take so many by themselves, of which others that do
        not depend on them take some as well. A stage should begin inside them."""
        share = EVEN * sum(type_bytes(v.type) for v in self._forward_parameters) / stages
        held = Counter[int]()
        for value in self._forward_parameters:
            held[self.home[value]] += type_bytes(value.type)
        if max(held.values(), default=0) <= share:
            return []
        ops = [op for op in self.ops if op in self.groups and self.groups[op].phase == FORWARD]
        takes = [self._taken(op) for op in ops]
        again = {each for op, i in _taking_again(ops, takes).items() for each in (op, ops[i])}
        return [
            op
            for op, taken in zip(ops, takes, strict=True)
            if isinstance(op, CallOp) and op in again and sum(type_bytes(v.type) for v in taken) > share
        ]

    @property
    def _forward_parameters(self) -> list[SSAValue]:
        return [v for v in self.entry.body.block.args if self._is_parameter(v) and v in self._forward_homes]

    def straddling(self) -> dict[CallOp, Mapping[int, int]]:
        """Calls behind the forward part that take parameters of several stages (the updates of a repeated layer through which a boundary goes, after
        the loop or, of one microbatch, in it), and the stages of these operands. What the forward part has brought to a backward call's stage is there."""
        found: dict[CallOp, Mapping[int, int]] = {}
        for op, group in self.groups.items():
            if isinstance(op, CallOp) and group.phase in (BACKWARD, UPDATE):
                homes = {
                    i: self.home[v]
                    for i, v in enumerate(op.operands)
                    if self._is_parameter(v) and v in self._forward_homes
                }
                there = all(group.stage in self._available[op.operands[i]] for i in homes)
                if len(set(homes.values())) > 1 and not (there and group.phase == BACKWARD):
                    found[op] = homes
        return found

    def _assign_before(self, ops: Sequence[Operation]) -> None:
        """What does not depend on the batch is computed once, on the first stage that uses it, or where a parameter that it
        takes lives. Nothing is said of what no operation uses that has a group."""
        for op in reversed(ops):
            used_by = [user_of(r, use) for r in op.results for use in r.uses]
            stages = [self.groups[user].stage for user in used_by if user in self.groups]
            if not stages and any(user in self.axis.phases for user in used_by):
                continue
            homes = [self.home[v] for v in values_read(op) if isinstance(v, BlockArgument) and v in self.home]
            stage = min(homes or stages, default=0)
            self.groups[op] = Group(BEFORE, stage)
            for value in values_read(op):
                if isinstance(value, BlockArgument):
                    self.home[value] = min(self.home.get(value, stage), stage)


def forward_part(entry: FuncOp, inside: Sequence[Operation]) -> set[Operation]:
    """The operations that lead to the outputs; of a step that returns only updates, those up to the last first use of a
    parameter. Without updates, all."""
    attributes = result_attributes(entry)
    returned = list(entry.body.block.last_op.operands) if entry.body.block.last_op else []
    outputs = [v for v, a in zip(returned, attributes, strict=True) if text(a, "dist.role", "output") == "output"]
    if len(outputs) == len(returned):
        return set(inside)
    forward = _ancestors([v.op for v in outputs if isinstance(v, OpResult)]) & set(inside)
    if forward and len(forward) < len(inside):
        return forward
    roles = [text(a, "dist.role", "input") for a in argument_attributes(entry)]
    position = {op: i for i, op in enumerate(inside)}
    first_uses: list[Operation] = []
    for arg, role in zip(entry.body.block.args, roles, strict=True):
        users = _users_among(arg, position) if role == "parameter" else []
        if users:
            first_uses.append(min(users, key=position.__getitem__))
    return _ancestors(first_uses) & set(inside)


def _taking_again(ops: Sequence[Operation], takes: Sequence[set[SSAValue]]) -> dict[Operation, int]:
    """For what takes mostly parameters again, and does not depend on what took them first (a layer of the other view): the position of what did."""
    first, found = dict[SSAValue, int](), dict[Operation, int]()
    behind = dict[Operation, int]()  # on which of the first to take parameters each depends: a bit for every position
    for i, (op, taken) in enumerate(zip(ops, takes, strict=True)):
        makers = [behind[v.op] for v in values_read(op) if isinstance(v, OpResult) and v.op in behind]
        behind[op] = reduce(or_, makers, 0)
        known = taken & first.keys()
        if _is_mostly(taken, first) and not any(behind[op] >> first[v] & 1 for v in known):
            found[op] = max(first[v] for v in known)
        if taken > known:
            behind[op] |= 1 << i
        for value in taken:
            first.setdefault(value, i)
    return found


def _is_mostly(taken: set[SSAValue], known: Collection[SSAValue]) -> bool:
    """Whether more than half the bytes of these parameters are of known ones."""
    return 2 * sum(type_bytes(v.type) for v in taken if v in known) > sum(type_bytes(v.type) for v in taken)


def _leading(ops: Sequence[Operation], places: Mapping[Operation, int]) -> dict[Operation, int]:
    """Operations with places, and all that leads to them (the other view's own first layer)."""
    found = dict(places)
    for op in reversed(ops):
        if op in found:
            for maker in [v.op for v in values_read(op) if isinstance(v, OpResult)]:
                found[maker] = min(found.get(maker, found[op]), found[op])
    return found


def _users_among(value: SSAValue, ops: Collection[Operation]) -> list[Operation]:
    """The operations among these that take a value, or what others make of it (a weight that is cast before the loop)."""
    found, todo, seen = list[Operation](), [value], set[Operation]()
    while todo:
        value = todo.pop()
        for op in {user_of(value, use) for use in value.uses} - seen:
            seen.add(op)
            if op in ops:
                found.append(op)
            else:
                todo += op.results
    return found


def _ancestors(ops: Sequence[Operation]) -> set[Operation]:
    """These operations and all that they depend on."""
    found: set[Operation] = set()
    todo = list(ops)
    while todo:
        op = todo.pop()
        if op not in found:
            found.add(op)
            todo += [v.op for v in values_read(op) if isinstance(v, OpResult)]
    return found


def build_stages(
    module: ModuleOp, entry: FuncOp, all_ops: Sequence[Operation], groups: Mapping[Operation, Group]
) -> None:
    """Rewrites the entry, given by its operations but for constants, into calls of one function per group, tagged with phase and stage, in an order that runs.
    What is a constant and returned is of the first stage's updates."""
    members: dict[Group, list[Operation]] = defaultdict(list)
    block = entry.body.block
    terminator = block.last_op
    assert terminator is not None
    if constants := dict.fromkeys(
        v.op for v in terminator.operands if isinstance(v, OpResult) and _is_constant_value(v)
    ):
        members[Group(UPDATE, 0)] += constants
    for op in all_ops:
        members[groups[op]].append(op)
    given: dict[SSAValue, SSAValue] = {}
    """What stage calls return in place of a value. Operands are set once: setting one of thousands costs as much as all."""
    for group in sorted(members, key=_execution_order):
        ops = members[group]
        owners = set(ops)
        inputs = taken_by(ops)
        outputs = [r for op in ops for r in op.results if any(user_of(r, u) not in owners for u in r.uses)]
        function = function_of(ops, inputs, outputs, unique_symbol(module, f"{group.phase}_{group.stage}"))
        module.body.block.add_op(function)
        call = CallOp(function.sym_name.data, [given.get(v, v) for v in inputs], [v.type for v in outputs])
        call.attributes[STAGE] = IntegerAttr(group.stage, i64)
        call.attributes[PHASE] = StringAttr(group.phase)
        block.insert_op_before(call, terminator)
        for old, new in zip(outputs, call.results, strict=True):
            new.name_hint = old.name_hint
            given[old] = new
    terminator.operands = [given.get(v, v) for v in terminator.operands]
    for op in reversed(all_ops):
        block.erase_op(op, safe_erase=False)  # regions of operations that were erased before still name what they read
    for op in reversed(list(block.ops)):
        if is_constant_expression(op) and not any(True for r in op.results for _ in r.uses):
            block.erase_op(op)


def _execution_order(group: Group) -> tuple[int, int, int]:
    phase = (BEFORE, FORWARD, BACKWARD, WEIGHTS, UPDATE).index(group.phase)
    return phase, group.level, -group.stage if group.phase in (BACKWARD, WEIGHTS) else group.stage


def _is_constant_value(value: SSAValue) -> bool:
    return isinstance(value, OpResult) and is_constant_expression(value.op)


def taken_by(ops: Sequence[Operation]) -> list[SSAValue]:
    """The values that operations read and do not make, but constants."""
    made = {r for op in ops for r in op.results}
    return list(dict.fromkeys(v for op in ops for v in values_read(op) if v not in made and not _is_constant_value(v)))


@dataclass(frozen=True)
class Part:
    """Some operations of a function, as a function."""

    function: FuncOp
    takes: Sequence[SSAValue]
    gives: Sequence[SSAValue]


def function_of(ops: Sequence[Operation], inputs: Sequence[SSAValue], outputs: Sequence[SSAValue], name: str) -> FuncOp:
    """A function of copies of operations, with the constants that they read."""
    body = Block(arg_types=[v.type for v in inputs])
    mapping: dict[SSAValue, SSAValue] = {}
    for value, argument in zip(inputs, body.args, strict=True):
        argument.name_hint = value.name_hint
        mapping[value] = argument

    def add(op: Operation) -> None:
        for value in values_read(op):
            if value not in mapping and isinstance(value, OpResult) and is_constant_expression(value.op):
                add(value.op)
        body.add_op(op.clone(mapping))

    for op in ops:
        add(op)
    body.add_op(ReturnOp.create(operands=[mapping[v] for v in outputs]))
    types = [v.type for v in inputs], [v.type for v in outputs]
    return FuncOp(name, types, Region(body), visibility="private")


def stage_of(call: Operation) -> int:
    attribute = call.attributes[STAGE]
    assert isinstance(attribute, IntegerAttr)
    return attribute.value.data


def phase_of(call: Operation) -> str:
    return text(call.attributes, PHASE, FORWARD)


def stage_calls(entry: FuncOp) -> list[CallOp]:
    """The calls of a staged entry, in order; raises DistirError if the entry is not staged."""
    calls: list[CallOp] = []
    for op in entry.body.block.ops:
        if isinstance(op, CallOp) and STAGE in op.attributes and PHASE in op.attributes:
            calls.append(op)
        elif not isinstance(op, (ReturnOp, *BESIDE)) and not is_constant_expression(op):
            raise DistirError(f"{op.name} in @{entry.sym_name.data} belongs to no stage: run pipeline-stages first")
    return calls


def home_first(used: Collection[int], updated: Collection[int], stages: Collection[int]) -> list[int]:
    """Stages that use or update a parameter: one that does both, which is where it lives, comes first."""
    return sorted(stages, key=lambda stage: not (stage in used and stage in updated))
