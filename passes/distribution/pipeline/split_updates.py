"""Calls after the loop that take parameters of several stages (the updates of a repeated layer through which a boundary goes), in parts: in go such
a call and the stage of each parameter; out come calls of functions for one stage each. Calls that part alike share these functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from distir.interpreters.walk import values_read
from distir.passes.distribution.inline import inline_call
from distir.passes.distribution.pipeline.stages import Part, function_of, taken_by
from distir.passes.structure import functions, is_constant_expression, share_name_hint, unique_symbol


@dataclass
class SplitUpdates:
    """The calls of one module."""

    module: ModuleOp
    _parts: dict[tuple[str, tuple[tuple[int, int], ...]], list[Part] | None] = field(
        default_factory=dict[tuple[str, tuple[tuple[int, int], ...]], "list[Part] | None"]
    )

    def split(self, call: CallOp, homes: Mapping[int, int]) -> None:
        """Replaces a call, of whose operands these are on stages; by what its function does, where operations of several stages depend on each
        other."""
        callee = functions(self.module)[call.callee.string_value()]
        numbers = {home: number for number, home in enumerate(dict.fromkeys(homes.values()))}
        key = callee.sym_name.data, tuple((i, numbers[home]) for i, home in homes.items())
        if key not in self._parts:
            self._parts[key] = self._part(callee, dict(key[1]))
        if (parts := self._parts[key]) is None:
            inline_call(call, callee)
            return
        block, last = call.parent, callee.body.block.last_op
        assert block is not None
        assert last is not None
        given: dict[SSAValue, SSAValue] = dict(zip(callee.body.block.args, call.operands, strict=True))
        for part in parts:
            own = CallOp(part.function.sym_name.data, [given[v] for v in part.takes], [v.type for v in part.gives])
            own.attributes.update(call.attributes)
            block.insert_op_before(own, call)
            given.update(zip(part.gives, own.results, strict=True))
        for result, value in zip(call.results, last.operands, strict=True):
            share_name_hint([given[value]], result.name_hint)
            result.replace_all_uses_with(given[value])
        block.erase_op(call)

    def _part(self, callee: FuncOp, number_of: Mapping[int, int]) -> list[Part] | None:
        """One function per number of arguments; None if operations that depend on each other take arguments of several, or constants are returned."""
        block = callee.body.block
        last = block.last_op
        if last is None or any(isinstance(v, OpResult) and is_constant_expression(v.op) for v in last.operands):
            return None
        members: dict[int, list[Operation]] = {}
        for ops in connected(block):
            taken = {v.index for v in taken_by(ops) if isinstance(v, BlockArgument)}
            numbers = {number_of[i] for i in taken if i in number_of}
            if len(numbers) > 1:
                return None
            members.setdefault(min(numbers, default=0), []).extend(ops)
        returned, found = set(last.operands), list[Part]()
        for ops in members.values():
            takes, gives = taken_by(ops), [r for op in ops for r in op.results if r in returned]
            function = function_of(ops, takes, gives, unique_symbol(self.module, f"{callee.sym_name.data}_part"))
            self.module.body.block.add_op(function)
            found.append(Part(function, takes, gives))
        return found


def connected(block: Block) -> list[list[Operation]]:
    """The operations of a block, but constants, in sets that take nothing of each other; each in order."""
    sets: dict[Operation, list[Operation]] = {}
    for op in block.ops:
        if isinstance(op, ReturnOp) or is_constant_expression(op):
            continue
        sets[op] = [op]
        for value in values_read(op):
            if isinstance(value, OpResult) and value.op in sets and (other := sets[value.op]) is not sets[op]:
                small, large = sorted((other, sets[op]), key=len)
                large += small
                sets.update(dict.fromkeys(small, large))
    position = {op: i for i, op in enumerate(block.ops)}
    distinct = {id(ops): ops for ops in sets.values()}
    return [sorted(ops, key=position.__getitem__) for ops in distinct.values()]
