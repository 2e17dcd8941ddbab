"""Faults of one layer, microbatch or weight that takes what is another's: a module goes in; mutations come out in which an operation reads what
the one before it that is like it reads (the neighbouring layer's weight, another weight's state, the key of another draw), in which what it
makes is what that one made (a stale microbatch's activation), or in which a parameter or state is returned as it came."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from tests.mutation import Copy, Edit, Mutation


def sibling_mutations(module: ModuleOp) -> Iterator[Mutation]:
    for function in module.ops:
        if not isinstance(function, FuncOp) or function.is_declaration:
            continue
        last: dict[Hashable, Operation] = {}
        for op in function.body.block.ops:
            if isinstance(op, ReturnOp):
                yield from _not_updated(function, op)
                continue
            sibling = last.get(alike := _likeness(op))
            last[alike] = op
            if sibling is None:
                continue
            for i, (own, other) in enumerate(zip(op.operands, sibling.operands, strict=True)):
                if own is not other:
                    yield Mutation("sibling", op, f"operand {i} is that of the one before", _operand(op, i, other))
            if op.results and list(op.operands) != list(sibling.operands):
                yield Mutation("stale", op, "its results are those of the one before", _results(op, sibling))


def _likeness(op: Operation) -> Hashable:
    """Equal for operations that do the same to values of the same types."""
    types = (tuple(value.type for value in values) for values in (op.operands, op.results))
    return op.name, *types, tuple(sorted((name, str(value)) for name, value in op.properties.items()))


def _operand(op: Operation, index: int, value: SSAValue) -> Edit:
    def edit(copy: Copy) -> None:
        copy.ops[op].operands[index] = copy.values[value]

    return edit


def _results(op: Operation, sibling: Operation) -> Edit:
    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        for own, other in zip(mutant.results, copy.ops[sibling].results, strict=True):
            own.replace_all_uses_with(other)
        mutant.detach()
        mutant.erase()

    return edit


def _not_updated(function: FuncOp, returned: ReturnOp) -> Iterator[Mutation]:
    """Arguments and results of one name are what a step updates."""
    arguments = {
        (name, argument.type): argument
        for argument, name in zip(function.body.block.args, _names(function.arg_attrs), strict=False)
    }
    for i, (value, name) in enumerate(zip(returned.operands, _names(function.res_attrs), strict=False)):
        before = arguments.get((name, value.type))
        if name is not None and before is not None and before is not value:
            yield Mutation("not updated", returned, f"{name} is what it was", _operand(returned, i, before))


def _names(ports: Any) -> list[Attribute | None]:
    return [cast(Any, port).data.get("dist.name") for port in ports] if ports is not None else []
