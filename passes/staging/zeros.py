"""Sums that start from zero: in goes a scheduled program whose first microbatch adds its gradients to zeros; out comes one in which it adds
nothing, by copies of its functions without these additions. `spared_runs` says of a staged program which runs are saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

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
from distir.passes.structure import cloned, functions, name_alike, unique_symbol

KEEPS_ZERO = (CommunicationOp, ConcatOp, FirstOnlyOp, InsertOp, ScaleOp, SliceOp)
"""What makes only zeros of zeros alone."""


def remove_zeros(module: ModuleOp, entry: FuncOp) -> None:
    """Removes additions of zeros from a placed program, in place. Zeros that one call takes are made by its function, if they are still
    needed there."""
    _Zeros(module).remove(entry.body.block)
    erase_unreached(module, entry.sym_name.data)


class _Zeros:
    def __init__(self, module: ModuleOp):
        self.module = module
        self.table = functions(module)
        self._copies: dict[tuple[str, tuple[int, ...]], str] = {}

    def remove(self, block: Block) -> None:
        zeros: dict[SSAValue, None] = {}
        for op in list(block.ops):
            are_zero = [value in zeros for value in op.operands]
            if isinstance(op, ZerosOp):
                zeros[op.output] = None
            elif isinstance(op, CallOp):
                self._move(op, [i for i, value in enumerate(op.operands) if value in zeros and value.has_one_use()])
            elif _is_sum(op) and any(are_zero):
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
        for index in reversed(indices):
            argument = block.args[index]
            op = ZerosOp(argument.type)
            name_alike(op.results, argument.name_hint)
            first = block.first_op
            assert first is not None
            block.insert_op_before(op, first)
            argument.replace_all_uses_with(op.output)
            block.erase_arg(argument)
        function.function_type = FunctionType.from_lists(block.arg_types, list(function.function_type.outputs))
        self.remove(block)
        return function.sym_name.data


def _is_sum(op: Operation) -> bool:
    return isinstance(op, AccumulateOp) and op.reduction.data == Reduction.SUM


def _replace(op: Operation, values: Sequence[SSAValue]) -> None:
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    assert op.parent is not None
    op.parent.erase_op(op)


def spared_runs(module: ModuleOp, entry: FuncOp) -> Mapping[Operation, int]:
    """How many runs of each operation of a staged program are none once it is scheduled: making sums of zeros, and adding to these."""
    table = functions(module)
    found: Counter[Operation] = Counter()
    for loop in entry.body.block.ops:
        if not isinstance(loop, MicrobatchesOp):
            continue
        for index in range(len(loop.same), len(loop.operands)):
            value = loop.operands[index]
            if not isinstance(value.owner, ZerosOp) or not value.has_one_use():
                continue
            argument = table[loop.callee.string_value()].body.block.args[index]
            if (adding := _adding(argument, table)) is not None:
                found[adding] += 1
                found[value.owner] += 1
    return found


def _adding(argument: BlockArgument, table: Mapping[str, FuncOp]) -> Operation | None:
    """What adds to an argument, the one thing that is done with it, maybe by functions that it is passed to."""
    if not argument.has_one_use():
        return None
    use = next(iter(argument.uses))
    if isinstance(use.operation, func.CallOp):
        return _adding(table[use.operation.callee.string_value()].body.block.args[use.index], table)
    return use.operation if _is_sum(use.operation) else None
