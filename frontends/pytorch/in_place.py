"""Updates in place. In goes the program of a training step; out comes the program with a mark (`dist.in_place`) on
operations of its optimizer that write where their first operand lies. So memory is counted as the emitted code needs
it: a decayed weight lies in the weight's memory, a chain of elementwise operations in one tensor."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from distir.dialects.aten import AtenOperation
from distir.interpreters.aten.calls import in_place_form, is_elementwise
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.work import IN_PLACE, is_view, type_bytes

SCALAR_BYTES = 16
"""Numbers of no dims have new memory: there is nothing to save."""


def mark_updates_in_place(module: ModuleOp) -> None:
    """Marks what an optimizer writes in place: between a parameter or state and its update, and what depends on state, as far as the operand's
    last use it is. Forward and backward parts are cut and computed again by later passes, so nothing there is marked."""
    entry = entry_function(module)
    block = entry.body.block
    returned = block.last_op
    assert isinstance(returned, ReturnOp)
    uses = _Uses(block)
    arguments = {
        p.name: a for p, a in zip(arguments_of(entry), block.args, strict=True) if p.role in ("parameter", "state")
    }
    for port, value in zip(results_of(entry), returned.operands, strict=True):
        if (argument := arguments.get(port.name)) is not None:
            for op in uses.chain(value, argument):
                op.attributes[IN_PLACE] = UnitAttr()
    after: set[SSAValue] = {a for p, a in zip(arguments_of(entry), block.args, strict=True) if p.role == "state"}
    for op in block.ops:
        if not after.isdisjoint(op.operands):
            after.update(op.results)
            if uses.may_overwrite(op) and uses.is_temporary(op.operands[0]) and uses.last[op.results[0]] < inf:
                op.attributes[IN_PLACE] = UnitAttr()


class _Uses:
    """Where values of a block are used last, also as views; what is returned is used for ever."""

    def __init__(self, block: Block) -> None:
        self.index = {op: i for i, op in enumerate(block.ops)}
        self.last: dict[SSAValue, float] = {}
        for op in reversed(list(block.ops)):
            self.last |= {result: self._last(result) for result in op.results}
        self.last |= {argument: self._last(argument) for argument in block.args}

    def _last(self, value: SSAValue) -> float:
        ends = [-1.0]
        for use in value.uses:
            op = use.operation
            ends.append(inf if isinstance(op, ReturnOp) else self.index[op])
            if is_view(op) and use.index == 0:
                ends += [self.last[result] for result in op.results]
        return max(ends)

    def may_overwrite(self, op: Operation) -> bool:
        """Whether an operation may write where its first operand lies."""
        if not isinstance(op, AtenOperation) or not is_elementwise(op.schema) or in_place_form(op) is None:
            return False
        is_large = type_bytes(op.results[0].type) > SCALAR_BYTES
        return is_large and self.last[op.operands[0]] == self.index[op]

    def is_temporary(self, value: SSAValue) -> bool:
        """Whether a value lies in memory of its own, and of nothing else's."""
        return isinstance(value, OpResult) and isinstance(value.op, AtenOperation) and not is_view(value.op)

    def chain(self, update: SSAValue, argument: SSAValue) -> Iterator[Operation]:
        """The operations before the one that makes an update, if all from the argument on write in place."""
        found: list[Operation] = []
        value = update
        while isinstance(value, OpResult) and self.may_overwrite(value.op):
            found.append(value.op)
            value = value.op.operands[0]
        yield from found[1:] if value is argument else ()
