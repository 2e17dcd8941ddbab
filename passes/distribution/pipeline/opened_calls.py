"""Calls that stages begin inside. In go calls of an entry, and later the group of each operation that they hid; out come these operations in their
place, and then a call for those of each stage. Calls that part alike share functions: the sharding of one part is found once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from distir.passes.distribution.inline import inline_call
from distir.passes.distribution.pipeline.stages import BEFORE, FORWARD, Group, Part, function_of, taken_by
from distir.passes.structure import functions, share_name_hint, unique_symbol, user_of


@dataclass(frozen=True)
class _Opened:
    """A call, and what is in its place."""

    call: Mapping[str, Attribute]
    """What was said of the call."""
    arguments: Mapping[SSAValue, SSAValue]
    """Its operands, by the arguments of its function."""
    copies: Mapping[Operation, Operation]
    """Its operations, by those of its function."""


@dataclass
class OpenedCalls:
    """The calls of one module."""

    module: ModuleOp
    _opened: list[_Opened] = field(default_factory=list[_Opened])
    _parts: dict[tuple[Operation, ...], Part] = field(default_factory=dict[tuple[Operation, ...], Part])

    def open(self, calls: Sequence[CallOp]) -> None:
        """Puts operations in the place of these calls, which are in program order."""
        table = functions(self.module)
        for call in calls:
            body = table[call.callee.string_value()].body.block
            arguments: dict[SSAValue, SSAValue] = dict(zip(body.args, call.operands, strict=True))
            own = [op for op in body.ops if not isinstance(op, ReturnOp)]
            copies = inline_call(call, table[call.callee.string_value()])
            self._opened.append(_Opened(dict(call.attributes), arguments, dict(zip(own, copies, strict=True))))

    def close(self, groups: Mapping[Operation, Group]) -> None:
        """Puts calls in the place of the forward operations again, one for those of each stage."""
        given = dict[SSAValue, SSAValue]()
        for opened in self._opened:
            self._close(opened, groups, given)

    def _close(self, opened: _Opened, groups: Mapping[Operation, Group], given: dict[SSAValue, SSAValue]) -> None:
        members, rest = defaultdict[int, list[Operation]](list), list[Operation]()
        copies, following = opened.copies, list(opened.copies.values())[-1].next_op
        assert following is not None
        block = following.parent
        assert block is not None
        for op, copy in copies.items():
            if (group := groups.get(copy)) is not None and group.phase == FORWARD:
                members[group.stage].append(op)
            elif group is not None and group.phase != BEFORE:
                rest.append(copy)
        values = {argument: given.get(value, value) for argument, value in opened.arguments.items()}
        values.update(
            (old, own) for op, copy in copies.items() for old, own in zip(op.results, copy.results, strict=True)
        )
        for stage in sorted(members):
            part = self._part(tuple(members[stage]))
            call = CallOp(part.function.sym_name.data, [values[v] for v in part.takes], [v.type for v in part.gives])
            call.attributes.update(opened.call)
            block.insert_op_before(call, following)
            for value, new in zip(part.gives, call.results, strict=True):
                share_name_hint([new], value.name_hint)
                given[values[value]] = new
                values[value].replace_all_uses_with(new)
                values[value] = new
        for copy in rest:
            copy.detach()
            block.insert_op_before(copy, following)
        for op in reversed([op for ops in members.values() for op in ops]):
            block.erase_op(copies[op], safe_erase=False)

    def _part(self, ops: tuple[Operation, ...]) -> Part:
        if ops not in self._parts:
            takes, owners = taken_by(ops), set(ops)
            gives = [r for op in ops for r in op.results if any(user_of(r, use) not in owners for use in r.uses)]
            function = function_of(ops, takes, gives, unique_symbol(self.module, "layer_part"))
            self.module.body.block.add_op(function)
            self._parts[ops] = Part(function, takes, gives)
        return self._parts[ops]
