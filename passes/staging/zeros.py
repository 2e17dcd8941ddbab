"""Sums that start from zero. In goes a scheduled program whose first microbatch adds its gradients to zeros; out
comes one where it adds nothing, by copies of its functions without these additions. `starting_sums` lists these sums of a staged program."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from distir.dialects.dist import (
    AccumulateOp,
    CallOp,
    ConcatOp,
    FirstOnlyOp,
    InsertOp,
    MicrobatchesOp,
    ScaleOp,
    SliceOp,
    ZerosOp,
)
from distir.dialects.dist.communication import CommunicationOp
from distir.dialects.reductions import Reduction
from distir.passes.distribution.inline import erase_unreached
from distir.passes.structure import cloned, functions, share_name_hint, unique_symbol

KEEPS_ZERO = (CommunicationOp, ConcatOp, FirstOnlyOp, InsertOp, ScaleOp, SliceOp)
"""What makes only zeros of zeros alone."""


ZERO = -2
"""In place of the number of a value: a sum that starts, of zeros that go as what adds to them does."""


def remove_zeros(module: ModuleOp, entry: FuncOp, starting: Collection[SSAValue]) -> None:
    """Removes additions of these zeros of the entry from a placed program, in place. Those that one call takes are made by its function, if they
    are still needed there. Zeros that some devices state in place of addends which others have are none of these: what is done with them, all
    devices do at the same time."""
    _Zeros(module).remove(entry.body.block, starting)
    erase_unreached(module, entry.sym_name.data)


class _Zeros:
    def __init__(self, module: ModuleOp):
        self.module = module
        self.table = functions(module)
        self._copies: dict[tuple[str, tuple[int, ...]], str] = {}

    def remove(self, block: Block, starting: Collection[SSAValue]) -> None:
        zeros = dict.fromkeys(starting)
        for op in list(block.ops):
            are_zero = [value in zeros for value in op.operands]
            if isinstance(op, CallOp):
                self._move(op, [i for i, value in enumerate(op.operands) if value in zeros and value.has_one_use()])
            elif is_sum(op) and any(are_zero):
                self._shorten(op, [value for value in op.operands if value not in zeros])
            elif isinstance(op, KEEPS_ZERO) and all(are_zero):
                made = [ZerosOp(result.type) for result in op.results]
                block.insert_ops_before(made, op)
                _replace(op, [each.output for each in made])
                zeros.update(dict.fromkeys(each.output for each in made))
        for value in zeros:
            if isinstance(value.owner, ZerosOp) and value.first_use is None:
                block.erase_op(value.owner)

    def _shorten(self, op: Operation, left: Sequence[SSAValue]) -> None:
        """Replaces a sum by that of its operands that are not zeros, if there are any."""
        if len(left) == 1:
            _replace(op, left)
        elif left:
            new = AccumulateOp(left)
            assert op.parent is not None
            op.parent.insert_op_before(new, op)
            _replace(op, [new.output])

    def _move(self, call: CallOp, indices: Sequence[int]) -> None:
        """Lets the function of a call make these operands, which are zeros."""
        if not indices:
            return
        key = call.callee_name, tuple(indices)
        if key not in self._copies:
            self._copies[key] = self._without(self.table[call.callee_name], indices)
        operands = [value for i, value in enumerate(call.operands) if i not in indices]
        call.operands = operands
        call.properties.update(CallOp.stating(self._copies[key], call.devices))

    def _without(self, source: FuncOp, indices: Sequence[int]) -> str:
        """A copy of a function that makes these arguments."""
        function = cloned(source)
        function.sym_name = StringAttr(unique_symbol(self.module, f"{source.sym_name.data}_first"))
        self.module.body.block.insert_op_after(function, source)
        block = function.body.block
        made: list[SSAValue] = []
        for index in reversed(indices):
            argument = block.args[index]
            op = ZerosOp(argument.type)
            share_name_hint(op.results, argument.name_hint)
            first = block.first_op
            assert first is not None
            block.insert_op_before(op, first)
            made.append(op.output)
            argument.replace_all_uses_with(op.output)
            block.erase_arg(argument)
        function.function_type = FunctionType.from_lists(block.arg_types, list(function.function_type.outputs))
        self.remove(block, made)
        return function.sym_name.data


def zeros_behind(value: SSAValue) -> set[Operation]:
    """What states the zeros that a value is made of alone; empty if it is made of anything else."""
    op = value.owner
    if isinstance(op, ZerosOp):
        return {op}
    if not isinstance(op, KEEPS_ZERO):
        return set()
    behind = [zeros_behind(operand) for operand in op.operands]
    return set().union(*behind) if all(behind) else set()


def is_sum(op: Operation) -> bool:
    """Whether an operation adds its operands."""
    return isinstance(op, AccumulateOp) and op.reduction.data == Reduction.SUM


def left_of_sum(op: Operation, operands: Sequence[int]) -> int | None:
    """The number of what a sum is of which all other operands are zeros; None where it is none of these."""
    left = [number for number in operands if number != ZERO]
    if len(left) == len(operands) or len(left) > 1 or not is_sum(op):
        return None
    return left[0] if left else ZERO


def _replace(op: Operation, values: Sequence[SSAValue]) -> None:
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    assert op.parent is not None
    op.parent.erase_op(op)


@dataclass(frozen=True)
class StartingSum:
    """A sum over microbatches that starts from zeros, which go with what adds to them."""

    index: int
    """Which of the values that are carried."""
    zeros: Operation
    argument: BlockArgument
    """Of the body of the loop."""
    call: Operation | None
    """The call that adds; None if the body does."""
    passed: tuple[BlockArgument, ...]
    """The arguments of functions that take the sum."""
    adding: Operation


def starting_sums(module: ModuleOp, entry: FuncOp) -> list[StartingSum]:
    """The sums of a staged program to which the first microbatch adds nothing once it is scheduled."""
    table = functions(module)
    found: list[StartingSum] = []
    for loop in entry.body.block.ops:
        if not isinstance(loop, MicrobatchesOp):
            continue
        for index in range(len(loop.same), len(loop.operands)):
            value = loop.operands[index]
            if not isinstance(value.owner, ZerosOp) or not value.has_one_use():
                continue
            argument = table[loop.callee.string_value()].body.block.args[index]
            if (adding := _adding(argument, table)) is not None:
                op, passed, call = adding
                found.append(StartingSum(index - len(loop.same), value.owner, argument, call, passed, op))
    return found


def _adding(
    argument: BlockArgument, table: Mapping[str, FuncOp]
) -> tuple[Operation, tuple[BlockArgument, ...], Operation | None] | None:
    """What adds to an argument, the one thing that is done with it, maybe by functions that it is passed to; their arguments; the first call."""
    if not argument.has_one_use():
        return None
    use = next(iter(argument.uses))
    if isinstance(use.operation, func.CallOp):
        passed = table[use.operation.callee.string_value()].body.block.args[use.index]
        found = _adding(passed, table)
        return None if found is None else (found[0], (passed, *found[1]), use.operation)
    return (use.operation, (), None) if is_sum(use.operation) else None
