"""Hoists operations out of the loop over microbatches. In go an entry and its batch dims; out comes an entry that
runs operations on parameters alone once, before the loop, in functions of their own.

Their results are live throughout the loop, so an operation is moved only if its results are no larger than its operands (a weight that is cast). Views
take neither time nor memory and stay where they are used. What two calls make of the same values (a layer, and its repetition in
the backward part) is made once."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.traits import Pure

from distir.dialects.sharding import REPLICATED, State
from distir.interpreters.shared import Shared
from distir.interpreters.work import is_view, type_bytes
from distir.passes.distribution.batch.batch_axis import BatchPropagation, Phase
from distir.passes.distribution.batch.entry_axis import axis_of_entry
from distir.passes.distribution.inline import erase_unreached
from distir.passes.distribution.pipeline.stages import function_of, taken_by
from distir.passes.outline_repeats import token
from distir.passes.structure import cloned, functions, is_constant_expression, share_name_hint, unique_symbol


def run_before_loop(module: ModuleOp, entry: FuncOp, batch: Mapping[int, int], shards: int) -> None:
    """Rewrites the entry. Raises DistirError where rules do not let the batch be cut into so many parts."""
    axis = axis_of_entry(module, entry, batch, shards, gathers=True)
    states, early = dict(axis.body.states), [op for op, phase in axis.phases.items() if phase is Phase.BEFORE]
    found: list[SSAValue] = [*entry.body.block.args, *(r for op in early for r in op.results)]
    there = {value for value in found if states[value] == REPLICATED}
    hoisting = _Hoisting(module, axis.propagation)
    for op in list(entry.body.block.ops):
        if isinstance(op, CallOp) and axis.phases[op] is Phase.INSIDE:
            hoisting.split(op, states, there)
    erase_unreached(module, entry.sym_name.data)


@dataclass(frozen=True)
class _Parts:
    """A function in two: what depends on some of its arguments alone, and the rest."""

    arguments: Sequence[SSAValue]
    moved: Sequence[Operation]
    made: Sequence[OpResult]
    """Results of these that are used outside them."""
    rest: FuncOp | None
    """None if nothing is left."""
    takes: Sequence[SSAValue]
    """What the rest takes: arguments, and results of what is moved."""
    gives: Sequence[SSAValue]
    returned: Sequence[SSAValue]
    """What the function as it was returns."""


@dataclass
class _Hoisting:
    module: ModuleOp
    propagation: BatchPropagation
    _shared: Shared = field(default_factory=Shared)
    _parts: dict[Hashable, _Parts | None] = field(default_factory=dict[Hashable, "_Parts | None"])
    _functions: dict[Hashable, FuncOp] = field(default_factory=dict[Hashable, FuncOp])
    _numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _known: dict[int, SSAValue] = field(default_factory=dict[int, SSAValue])
    """By number, what is there before the loop, and what calls take."""

    def split(self, call: CallOp, states: dict[SSAValue, State], there: set[SSAValue]) -> CallOp | None:
        """Replaces a call whose function makes something of what is `there`, which is then there too; the call that makes it, if it is new."""
        fixed = tuple([i for i, value in enumerate(call.operands) if value in there])
        key = call.callee.string_value(), tuple([states[v] for v in call.operands]), fixed
        if key not in self._parts:
            self._parts[key] = self._part(*key) if fixed else None
        if (parts := self._parts[key]) is None:
            return None
        given: dict[SSAValue, SSAValue] = dict(zip(parts.arguments, call.operands, strict=True))
        numbers = self._numbered(parts, given)
        self._known.update((numbers[v], value) for v, value in given.items())
        new = [value for value in parts.made if numbers[value] not in self._known]
        before = self._before(key, parts, new, numbers, call) if new else None
        for value, result in zip(new, before.results if before else (), strict=True):
            states[result] = REPLICATED
            there.add(result)
            self._numbers["value", result] = numbers[value]
            self._known[numbers[value]] = result
        given.update((value, self._known[numbers[value]]) for value in parts.made)
        if parts.rest is not None:
            rest = _call(parts.rest, [given[v] for v in parts.takes], call)
            given.update(zip(parts.gives, rest.results, strict=True))
        for old, value in zip(call.results, parts.returned, strict=True):
            states.setdefault(given[value], states[old])
            if isinstance(value.owner, Operation):
                share_name_hint([given[value]], old.name_hint)
            old.replace_all_uses_with(given[value])
        call.detach()
        call.erase()
        return before

    def _part(self, name: str, along: Sequence[State], fixed: Sequence[int]) -> _Parts | None:
        """The parts of a function, of whose arguments these are there before the loop; None if nothing is moved, and no argument returned as it is."""
        axis, source = self.propagation.function(name, along), functions(self.module)[name]
        block = cloned(source).body.block
        copies = zip(_values(source.body.block), _values(block), strict=True)
        states = {copy: axis.states[value] for value, copy in copies}
        there: set[SSAValue] = {block.args[i] for i in fixed}
        moved = dict[Operation, None]()
        for op in list(block.ops):
            if isinstance(op, CallOp):
                if (before := self.split(op, states, there)) is not None:
                    moved[before] = None
            elif _is_moved(op, states, there):
                moved[op] = None
                there.update(op.results)
        for op in reversed(list(moved)):
            if is_view(op) and not any(use.operation in moved for result in op.results for use in result.uses):
                del moved[op]
        last = block.last_op
        assert isinstance(last, ReturnOp)
        returned = list(last.operands)
        if not moved and not any(v in returned for v in block.args):
            return None
        rest = [op for op in block.ops if op not in moved and op is not last and not is_constant_expression(op)]
        stated = dict.fromkeys(v.op for v in returned if isinstance(v, OpResult) and is_constant_expression(v.op))
        rest = [*stated, *rest]
        made = {r: None for op in moved for r in op.results if any(use.operation not in moved for use in r.uses)}
        gives = list(dict.fromkeys(v for v in returned if v.owner in set(rest)))
        takes = taken_by(rest)
        inside = self._add(rest, takes, gives, f"{name}_inside") if rest else None
        return _Parts(list(block.args), list(moved), list(made), inside, takes, gives, returned)

    def _numbered(self, parts: _Parts, given: Mapping[SSAValue, SSAValue]) -> dict[SSAValue, int]:
        """A number for each value that is moved, equal for what is made alike of the same values."""
        numbers = {v: self._number(("value", value)) for v, value in given.items()}

        def number(value: SSAValue) -> int:
            if value not in numbers:
                assert isinstance(value, OpResult)
                operands = tuple([number(v) for v in value.op.operands])
                numbers[value] = self._number((token(value.op, self._shared), value.index, operands))
            return numbers[value]

        for op in parts.moved:
            for result in op.results:
                number(result)
        return numbers

    def _number(self, content: Hashable) -> int:
        return self._numbers.setdefault(content, len(self._numbers))

    def _before(
        self, key: Hashable, parts: _Parts, new: Sequence[OpResult], numbers: Mapping[SSAValue, int], call: CallOp
    ) -> CallOp:
        """The call that makes what is new of what is made before the loop."""
        needed, ops = set[SSAValue](new), list[Operation]()
        for op in reversed(parts.moved):
            if not needed.isdisjoint(op.results):
                needed.update(v for v in op.operands if numbers.get(v) not in self._known)
                ops.insert(0, op)
        inputs, which = taken_by(ops), (key, tuple(new), tuple(ops))
        if which not in self._functions:
            self._functions[which] = self._add(ops, inputs, new, f"{call.callee.string_value()}_before")
        return _call(self._functions[which], [self._known[numbers[v]] for v in inputs], call)

    def _add(self, ops: Sequence[Operation], takes: Sequence[SSAValue], gives: Sequence[SSAValue], stem: str) -> FuncOp:
        function = function_of(ops, takes, gives, unique_symbol(self.module, stem))
        self.module.body.block.add_op(function)
        return function


def _values(block: Block) -> list[SSAValue]:
    return [*block.args, *(result for op in block.ops for result in op.results)]


def _is_moved(op: Operation, states: Mapping[SSAValue, State], there: Collection[SSAValue]) -> bool:
    """Whether an operation does the same in every microbatch, with what is there before, and makes nothing larger than that."""
    if op.regions or not op.has_trait(Pure) or is_constant_expression(op):
        return False
    if any(states[result] != REPLICATED for result in op.results):
        return False
    taken = {v for v in op.operands if not (isinstance(v, OpResult) and is_constant_expression(v.op))}
    if not all(v in there for v in taken):
        return False
    return sum(type_bytes(r.type) for r in op.results) <= sum(type_bytes(v.type) for v in taken)


def _call(function: FuncOp, operands: Sequence[SSAValue], instead: CallOp) -> CallOp:
    """A call before another one, with what is said of that."""
    call = CallOp(function.sym_name.data, operands, function.function_type.outputs.data)
    call.attributes.update(instead.attributes)
    last = function.body.block.last_op
    assert last is not None
    assert instead.parent is not None
    for result, value in zip(call.results, last.operands, strict=True):
        share_name_hint([result], value.name_hint)
    instead.parent.insert_op_before(call, instead)
    return call
