"""Functions that add to sums: in goes a function of a program and which of its results are addends; out comes a copy that takes the sums
so far and returns them with its addends added, each where the addend is made, through the functions that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, OpResult, SSAValue

from distir.dialects.dist import AccumulateOp
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Gather, InputDim, PartialRule, Rule, RuleAttr
from distir.passes.distribution.options import RULE
from distir.passes.structure import cloned, functions, unique_symbol


class Accumulators:
    """Copies of the functions of one module that add to sums; each is made once."""

    def __init__(self, module: ModuleOp):
        self.module = module
        self._copies: dict[tuple[str, tuple[int, ...]], FuncOp] = {}

    def adding(self, name: str, results: Sequence[int]) -> FuncOp:
        """The copy of a function that takes, after its own arguments, a sum for each of these results, and gives it in place of the result."""
        key = name, tuple(results)
        if key not in self._copies:
            self._copies[key] = self._copy(functions(self.module)[name], results)
        return self._copies[key]

    def _copy(self, source: FuncOp, results: Sequence[int]) -> FuncOp:
        function = cloned(source)
        function.sym_name = StringAttr(unique_symbol(self.module, f"{source.sym_name.data}_adding"))
        function.attributes.update(source.attributes)
        self.module.body.block.add_op(function)
        block = function.body.block
        last = cast(ReturnOp, block.last_op)
        inside: dict[CallOp, list[int]] = {}
        """Calls whose results are returned, by them alone, and which of the results to add."""
        for index in results:
            value = last.operands[index]
            if isinstance(value, OpResult) and isinstance(value.op, CallOp) and value.has_one_use():
                inside.setdefault(value.op, []).append(index)
            else:
                total = block.insert_arg(value.type, len(block.args))
                total.name_hint = value.name_hint
                last.operands[index] = added([total], value, block)
        for call, returned in inside.items():
            totals = [block.insert_arg(last.operands[i].type, len(block.args)) for i in returned]
            for total, i in zip(totals, returned, strict=True):
                total.name_hint = last.operands[i].name_hint
            self.call_adding(call, [cast(OpResult, last.operands[i]).index for i in returned], totals)
        order = [i for i in results if i not in {j for each in inside.values() for j in each}]
        order += [i for each in inside.values() for i in each]
        _reorder(block, len(source.function_type.inputs), [order.index(i) for i in results])
        types = list(block.arg_types), [v.type for v in last.operands]
        function.function_type = FunctionType.from_lists(*types)
        return function

    def call_adding(self, call: CallOp, results: Sequence[int], totals: Sequence[SSAValue]) -> CallOp:
        """Replaces a call by one of the function that adds these results to sums."""
        ordered = sorted(zip(results, totals, strict=True), key=lambda each: each[0])
        callee = self.adding(call.callee.string_value(), [index for index, _ in ordered])
        operands = [*call.operands, *(total for _, total in ordered)]
        new = CallOp(callee.sym_name.data, operands, [r.type for r in call.results])
        new.attributes.update(call.attributes)
        block = call.parent
        assert block is not None
        block.insert_op_before(new, call)
        for old, result in zip(call.results, new.results, strict=True):
            result.name_hint = old.name_hint
            old.replace_all_uses_with(result)
        block.erase_op(call)
        return new


def _reorder(block: Block, own: int, order: Sequence[int]) -> None:
    """Puts arguments after the first `own` in this order."""
    given = list(block.args[own:])
    if list(order) == list(range(len(given))):
        return
    moved = [block.insert_arg(given[at].type, len(block.args)) for at in order]
    for new, at in zip(moved, order, strict=True):
        new.name_hint = given[at].name_hint
        given[at].replace_all_uses_with(new)
    for argument in given:
        block.erase_arg(argument)


def added(totals: Sequence[SSAValue], value: SSAValue, block: Block) -> SSAValue:
    """An addend added to sums as soon as it is made; without, what it is alone."""
    op = AccumulateOp([*totals, value])
    op.attributes[RULE] = RuleAttr(sum_rule(cast("TensorType[Any]", value.type).get_num_dims(), len(op.inputs)))
    op.output.name_hint = value.name_hint
    if isinstance(value, OpResult):
        block.insert_op_after(op, value.op)
    elif block.first_op is not None:
        block.insert_op_before(op, block.first_op)
    return op.output


def sum_rule(rank: int, operands: int) -> Rule:
    """The rule of an elementwise sum of so many tensors (of none: zeros): any dim may be cut, and sums of addends are addends."""
    dims = tuple(InputDim(f"S{i + 1}") for i in range(rank))
    combines = {f"S{i + 1}": (Gather(i),) for i in range(rank)}
    partial = PartialRule(Reduction.SUM, tuple(range(operands)), (0,))
    return Rule((dims,) * operands, combines, partials=(partial,))
