"""Groups of operations as functions marked `dist.kernel`: a block with groups in, the block with calls in their place out. Equal kernels are
one function, whatever their devices."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from heapq import heappop, heappush

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr, UnitAttr
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import Rewriter

from distir.dialects.dist import CallOp
from distir.dialects.dist.attributes import placed, placement
from distir.dialects.dist.calls import KERNEL
from distir.interpreters.costs import SAID
from distir.passes.kernels.grouping import Group


class Kernels:
    """The kernels of one module, by what they compute."""

    def __init__(self, module: ModuleOp):
        self.module = module
        self._replaced: set[Operation] = set()
        self._names = {
            op.sym_name.data for op in module.body.block.ops if isinstance(op, func.FuncOp) and KERNEL in op.attributes
        }

    def outline(self, block: Block, groups: Sequence[Group]) -> None:
        """Each group becomes a call of a kernel; everything runs after what it needs, else in the order that it had."""
        if not groups:
            return
        ops = list(block.ops)
        place = {op: i for i, op in enumerate(ops)}
        places = [place[op] for group in groups for op in (*group.ops, *group.copied)]
        before, after = ops[min(places)].prev_op, ops[max(places)].next_op
        for group in groups:
            self._call(group)
        for op in reversed(list(block.ops)):
            if op in self._replaced and not any(result.uses for result in op.results):
                op.detach()
                op.erase()
        self._replaced.clear()
        _sort(block, before, after)

    def _call(self, group: Group) -> None:
        inside = {*group.ops, *group.copied}
        ops = [*group.copied, *group.ops]
        inputs = list(dict.fromkeys(v for op in ops for v in op.operands if v.owner not in inside))
        outputs = [r for op in group.ops for r in op.results if any(use.operation not in inside for use in r.uses)]
        name = self._function(ops, inputs, outputs)
        types = [value.type for value in outputs]
        on = next((at for value in (*outputs, *inputs) if (at := placement(value.type)) is not None), None)
        call = func.CallOp(name, inputs, types) if on is None else CallOp(name, inputs, on.devices, types)
        block = group.ops[-1].parent
        assert block is not None
        block.insert_op_after(call, group.ops[-1])
        for old, new in zip(outputs, call.results, strict=True):
            old.replace_uses_with_if(new, lambda use: use.operation not in inside)
        self._replaced |= inside

    def _function(self, ops: Sequence[Operation], inputs: Sequence[SSAValue], outputs: Sequence[OpResult]) -> str:
        """The name of the kernel that computes these of those, which is named after its text."""
        body = Block(arg_types=[placed(value.type, None) for value in inputs])
        values: dict[SSAValue, SSAValue] = dict(zip(inputs, body.args, strict=True))
        copies: dict[Operation, Operation] = {}
        for op in ops:
            copy = copies[op] = op.clone(values)
            for name in [name for name in copy.attributes if name.startswith("dist.") and name not in SAID]:
                del copy.attributes[name]
            body.add_op(copy)
        for op in body.ops:
            for result in op.results:
                result.name_hint = None
                Rewriter.replace_value_with_new_type(result, placed(result.type, None))
        body.add_op(func.ReturnOp(*(copies[r.op].results[r.index] for r in outputs)))
        types: tuple[list[Attribute], list[Attribute]] = (
            [a.type for a in body.args],
            [placed(v.type, None) for v in outputs],
        )
        function = func.FuncOp("kernel", types, Region(body), "private")
        name = f"kernel_{sha256(str(function).encode()).hexdigest()[:12]}"
        if name not in self._names:
            self._names.add(name)
            function.sym_name = StringAttr(name)
            function.attributes[KERNEL] = UnitAttr()
            self.module.body.block.add_op(function)
        return name


def _sort(block: Block, before: Operation | None, after: Operation | None) -> None:
    """Operations between two in their order, but each after those that it needs."""
    ops: list[Operation] = []
    op = block.first_op if before is None else before.next_op
    while op is not None and op is not after:
        ops.append(op)
        op = op.next_op
    place = {op: i for i, op in enumerate(ops)}
    waiting = [len({v.owner for v in op.operands if v.owner in place}) for op in ops]
    ready = [i for i, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        number = heappop(ready)
        order.append(number)
        for user in {use.operation for result in ops[number].results for use in result.uses}:
            if (at := place.get(user)) is not None:
                waiting[at] -= 1
                if not waiting[at]:
                    heappush(ready, at)
    assert len(order) == len(ops)
    if order != sorted(order):
        for op in ops:
            op.detach()
        for number in order:
            if after is None:
                block.add_op(ops[number])
            else:
                block.insert_op_before(ops[number], after)
