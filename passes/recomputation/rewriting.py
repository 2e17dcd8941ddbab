"""The backward part that repeats. In go the entry's backward part and the repetition of each segment; out comes a
backward part that takes the kept values, and makes the others again where they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from distir.interpreters.model_names import NAMES
from distir.interpreters.walk import values_read
from distir.passes.recomputation.segments import Repetition, is_repeatable
from distir.passes.recomputation.staged import Groups
from distir.passes.structure import share_name_hint, stands_for, unique_symbol, user_of

Make = Callable[[Operation], None]
"""Makes values again before an operation."""


@dataclass
class Repeating:
    """Makes dropped values again, each before the operation of the backward part that takes it first."""

    makers: dict[SSAValue, Make] = field(default_factory=dict[SSAValue, Make])
    made: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """What stands for a dropped value."""
    groups: Groups = field(default_factory=Groups)
    """Of a staged program, which group each operation is of: what is repeated joins that of what takes it."""

    def value(self, value: SSAValue, before: Operation) -> SSAValue:
        """A value as the backward part has it."""
        if value in self.makers and value not in self.made:
            self.makers[value](before)
        return self.made.get(value, value)

    def repeat(self, op: Operation) -> None:
        """Notes that an operation is repeated."""

        def make(before: Operation) -> None:
            for value in values_read(op):
                self.value(value, before)
            copy = op.clone(self.made)
            stands_for(op, copy, self.made)
            self.insert(copy, before)

        self.makers.update(dict.fromkeys(op.results, make))

    def insert(self, op: Operation, before: Operation) -> None:
        """Puts an operation before another one."""
        assert before.parent is not None
        before.parent.insert_op_before(op, before)
        if before in self.groups:
            self.groups[op] = self.groups[before]

    def rewire(self, late: Sequence[Operation]) -> None:
        """Lets the backward part take what is made again."""
        for op in late:
            for value in [v for v in values_read(op) if v in self.makers]:
                new = self.value(value, op)
                for use in [u for u in value.uses if user_of(value, u) is op]:
                    use.operation.operands[use.index] = new


class Layer:
    """Two functions in place of a layer's: one returns what is kept, one makes the rest again."""

    def __init__(self, module: ModuleOp, callee: FuncOp, repetition: Repetition):
        block, name = callee.body.block, callee.sym_name.data
        last = block.last_op
        assert isinstance(last, ReturnOp)
        self.returned = tuple(last.operands)
        self.made = repetition.made
        """Values of the layer's function that are made again."""
        dropped = set(self.made)
        self.kept = list(dict.fromkeys(v for v in (*self.returned, *repetition.taken) if v not in dropped))
        self.kept = [v for v in self.kept if v in set(self.returned) or not isinstance(v, BlockArgument)]
        self.arguments = tuple(block.args)
        read = {v for op in repetition.ops for v in values_read(op)}
        self.given = [v for v in (*block.args, *self.kept) if v in read]
        self.forward = _function(module, f"{name}_forward", self.arguments, list(block.ops)[:-1], self.kept)
        self.again = _function(module, f"{name}_again", self.given, repetition.ops, self.made)

    def replace(self, call: CallOp, repeating: Repeating) -> None:
        """Replaces a call, of which only results that are made again have uses afterwards: these are noted."""
        new = CallOp(self.forward.sym_name.data, list(call.operands), [v.type for v in self.kept])
        new.attributes.update(call.attributes)
        repeating.insert(new, call)
        results = dict(zip(self.kept, new.results, strict=True))
        for old, value in zip(call.results, self.returned, strict=True):
            if value in results:
                share_name_hint([results[value]], old.name_hint)
                old.replace_all_uses_with(results[value])

        def make(before: Operation) -> None:
            there = dict(zip((*self.arguments, *self.kept), (*new.operands, *new.results), strict=True))
            again = CallOp(
                self.again.sym_name.data,
                [repeating.value(there[v], before) for v in self.given],
                [v.type for v in self.made],
            )
            again.attributes.update({name: value for name, value in call.attributes.items() if name in NAMES})
            repeating.insert(again, before)
            made = dict(zip(self.made, again.results, strict=True))
            for old, value in zip(call.results, self.returned, strict=True):
                if value in made:
                    share_name_hint([made[value]], old.name_hint)
                    repeating.made[old] = made[value]

        dropped = [r for r, v in zip(call.results, self.returned, strict=True) if v in set(self.made)]
        repeating.makers.update(dict.fromkeys(dropped, make))


def _function(
    module: ModuleOp, stem: str, arguments: Sequence[SSAValue], ops: Sequence[Operation], results: Sequence[SSAValue]
) -> FuncOp:
    """A new function of the module: those of the operations that its results are made of."""
    body = Block(arg_types=[v.type for v in arguments])
    values: dict[SSAValue, SSAValue] = dict(zip(arguments, body.args, strict=True))
    for old, new in values.items():
        share_name_hint([new], old.name_hint)
    for op in lived(ops, results):
        body.add_op(copy := op.clone(values))
        stands_for(op, copy, values)
    body.add_op(ReturnOp(*(values[v] for v in results)))
    types = [v.type for v in arguments], [v.type for v in results]
    function = FuncOp(unique_symbol(module, stem), types, Region(body), visibility="private")
    module.body.block.add_op(function)
    return function


def lived(ops: Sequence[Operation], results: Sequence[SSAValue]) -> list[Operation]:
    """Of operations in order, those that do something for the results, or at all."""
    used, found = set(results), list[Operation]()
    for op in reversed(ops):
        if not is_repeatable(op) or not used.isdisjoint(op.results):
            found.append(op)
            used.update(values_read(op))
    return found[::-1]
