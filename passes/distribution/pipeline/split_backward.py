"""Backward parts in two. In go an entry and the stage of each operation; out come two phases. Operations stay in the
first if another stage waits for their results; the others (gradients of weights, mostly) may run later, in the second.

A call whose function does both becomes calls of two functions; the second takes what it needs of the first. No operation is named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.interpreters.walk import values_read
from distir.passes.distribution.pipeline.stages import (
    BACKWARD,
    WEIGHTS,
    Assignment,
    Group,
    function_of,
    taken_by,
)
from distir.passes.structure import cloned, functions, is_constant_expression, share_name_hint, unique_symbol, user_of


def split_backward(module: ModuleOp, assignment: Assignment) -> None:
    """Gives the backward operations that no other stage waits for the phase WEIGHTS."""
    groups = assignment.groups
    backward = [op for op in assignment.ops if groups[op].phase == BACKWARD]

    def is_awaited(result: OpResult) -> bool:
        users = [groups.get(user_of(result, use)) for use in result.uses]
        stage = groups[result.op].stage
        return any(user and user.phase in (BACKWARD, WEIGHTS) and user.stage != stage for user in users)

    parts: defaultdict[Operation, list[Operation]] = defaultdict(list)
    for op, part, leads in _Splitter(module).parted(backward, is_awaited):
        group = groups[op]
        groups[part] = group if leads else Group(WEIGHTS, group.stage, group.level)
        parts[op].insert(0, part)
    assignment.ops = [part for op in assignment.ops for part in parts.get(op, (op,))]


class _Halves(NamedTuple):
    """Of a function, in which half each result is and where, and what each half takes: arguments, and results of the first."""

    names: tuple[str, str]
    results: Sequence[tuple[int, int]]
    takes: tuple[Sequence[SSAValue], Sequence[SSAValue]]
    leaves: tuple[Sequence[SSAValue], Sequence[SSAValue]]


class _Splitter:
    def __init__(self, module: ModuleOp):
        self.module = module
        self._known: dict[tuple[str, tuple[int, ...]], _Halves | None] = {}

    def parted(
        self, ops: Sequence[Operation], is_awaited: Callable[[OpResult], bool]
    ) -> Iterator[tuple[Operation, Operation, bool]]:
        """From the last operation on, each with what takes its place (itself, or each of two calls) and whether that leads to a value that
        is awaited."""
        leading: set[SSAValue] = set()
        for op in reversed(ops):
            needed = [result.index for result in op.results if result in leading or is_awaited(result)]
            halves = None
            if isinstance(op, CallOp) and 0 < len(needed) < len(op.results):
                halves = self._halves(op.callee.string_value(), tuple(needed))
            if halves is None:
                if needed:
                    leading.update(values_read(op))
                yield op, op, bool(needed)
            else:
                assert isinstance(op, CallOp)
                first, second = _calls(op, halves)
                leading.update(first.operands)
                yield op, second, False
                yield op, first, True

    def _halves(self, name: str, needed: tuple[int, ...]) -> _Halves | None:
        """The functions that lead to these results of a function and to the others; None if it does not come apart."""
        if (name, needed) not in self._known:
            self._known[name, needed] = self._part(functions(self.module)[name], needed)
        return self._known[name, needed]

    def _part(self, source: FuncOp, needed: Sequence[int]) -> _Halves | None:
        block = cloned(source).body.block
        last = block.last_op
        assert isinstance(last, ReturnOp)
        if any(not isinstance(v, OpResult) or is_constant_expression(v.op) for v in last.operands):
            return None
        ops = [op for op in block.ops if not is_constant_expression(op) and op is not last]
        wanted = {last.operands[i] for i in needed}
        halves: tuple[list[Operation], list[Operation]] = [], []
        for _, part, leads in self.parted(ops, wanted.__contains__):
            halves[not leads].insert(0, part)
        made = [{result for op in half for result in op.results} for half in halves]
        takes = taken_by(halves[0]), taken_by(halves[1])
        leaves = [list(dict.fromkeys(v for v in last.operands if v in each)) for each in made]
        if not leaves[1]:
            return None
        leaves[0] += [v for v in takes[1] if v in made[0] and v not in leaves[0]]
        names: list[str] = []
        for half, taken, left, kind in zip(halves, takes, leaves, ("inputs", WEIGHTS), strict=True):
            names.append(unique_symbol(self.module, f"{source.sym_name.data}_{kind}"))
            function = function_of(half, taken, left, names[-1])
            function.attributes.update(source.attributes)
            self.module.body.block.add_op(function)
        where = [(half, leaves[half].index(v)) for v in last.operands for half in (0, 1) if v in made[half]]
        return _Halves((names[0], names[1]), where, takes, (leaves[0], leaves[1]))


def _calls(call: CallOp, halves: _Halves) -> tuple[CallOp, CallOp]:
    """The calls of both halves of a function, in place of its call."""
    block = call.parent
    assert block is not None
    made: list[CallOp] = []
    for half in (0, 1):
        operands = [
            call.operands[v.index] if isinstance(v, BlockArgument) else made[0].results[halves.leaves[0].index(v)]
            for v in halves.takes[half]
        ]
        made.append(CallOp(halves.names[half], operands, [v.type for v in halves.leaves[half]]))
        made[half].attributes.update(call.attributes)
        for result, value in zip(made[half].results, halves.leaves[half], strict=True):
            share_name_hint([result], value.name_hint)
        block.insert_op_before(made[half], call)
    for old, (half, index) in zip(call.results, halves.results, strict=True):
        new = made[half].results[index]
        share_name_hint([new], old.name_hint)
        old.replace_all_uses_with(new)
    block.erase_op(call)
    return made[0], made[1]
