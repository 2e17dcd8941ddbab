"""Functions at the rows of one microbatch of one replica, without any device. In go a function and the states of its
arguments; out comes its local copy.

Every called function is copied once per states of its arguments. Types, size attributes and size operands become
local, and a result that is a mean over the batch becomes a partial sum by a local scale. The caller accumulates,
concatenates or reduces the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from distir.dialects.dist.local import ScaleOp
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import (
    Gather,
    InputDim,
    PartialRule,
    Replicated,
    Rule,
    RuleAttr,
    Sharded,
    State,
    UseFactor,
)
from distir.passes.distribution.batch.batch_axis import BatchPropagation
from distir.passes.distribution.literals import rule_with_literals
from distir.passes.distribution.options import RULE, Option, local_shape
from distir.passes.distribution.sizes import changes_of, local_constants, local_properties
from distir.passes.structure import copied, functions, stands_for, unique_symbol


class Localizer:
    """Copies functions at the shapes of one of `shards` parts of the batch."""

    def __init__(self, module: ModuleOp, propagation: BatchPropagation):
        self.module, self.propagation = module, propagation
        self.table = functions(module)
        self._copies: dict[tuple[str, tuple[State, ...]], FuncOp] = {}
        self._symbols: dict[FuncOp, SymbolRefAttr] = {}

    def function(self, name: str, states: Sequence[State]) -> FuncOp:
        """The local copy of a function for these states of its arguments; itself if nothing is cut."""
        if all(isinstance(s, Replicated) for s in states):
            return self.table[name]
        key = (name, tuple(states))
        if key not in self._copies:
            self._copies[key] = self._copy(name, states)
        return self._copies[key]

    def local_type(self, type_: Attribute, state: State) -> Attribute:
        if not isinstance(state, Sharded):
            return type_
        tensor = cast("TensorType[Any]", type_)
        return TensorType(tensor.element_type, local_shape(tensor.get_shape(), state, self.propagation.shards))

    def _copy(self, name: str, states: Sequence[State]) -> FuncOp:
        source = self.table[name]
        axis = self.propagation.function(name, states)
        arguments = source.body.block.args
        types = [self.local_type(v.type, s) for v, s in zip(arguments, states, strict=True)]
        body = Block(arg_types=types)
        mapping: dict[SSAValue, SSAValue] = {}
        for old, new in zip(arguments, body.args, strict=True):
            new.name_hint = old.name_hint
            mapping[old] = new
        for op in source.body.block.ops:
            if isinstance(op, ReturnOp):
                returned = [mapping[v] for v in op.operands]
                body.add_op(ReturnOp.create(operands=returned))
            elif isinstance(op, CallOp):
                self.copy_call(op, [axis.states[v] for v in op.operands], body, mapping)
            else:
                self.copy_op(op, axis.chosen[op], body, mapping)
        returns = cast(ReturnOp, body.last_op)
        result_types = [v.type for v in returns.operands]
        function = FuncOp(
            unique_symbol(self.module, name),
            (types, result_types),
            Region(body),
            source.sym_visibility,
        )
        self.module.body.block.add_op(function)
        return function

    def copy_call(self, call: CallOp, states: Sequence[State], body: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        """Adds a call of the callee's local copy."""
        callee = self.function(call.callee.string_value(), states)
        if (symbol := self._symbols.get(callee)) is None:
            symbol = self._symbols[callee] = SymbolRefAttr(callee.sym_name)
        types = callee.function_type.outputs.data
        copy = CallOp.create(
            operands=[mapping[v] for v in call.operands],
            result_types=types,
            properties={"callee": symbol},
            attributes=dict(call.attributes),
            location=call.location,
        )
        body.add_op(copy)
        stands_for(call, copy, mapping)

    def copy_op(self, op: Operation, option: Option, body: Block, mapping: dict[SSAValue, SSAValue]) -> None:
        """Adds the operation at local shapes."""
        factors = {option.choice.factor: self.propagation.shards} if isinstance(option.choice, UseFactor) else {}
        changes = changes_of(rule_with_literals(op), factors)
        operands = [mapping[v] for v in op.operands]
        for index, constant in local_constants(op, changes).items():
            body.add_op(constant)
            operands[index] = constant.results[0]
        copy = type(op).create(
            operands=operands,
            result_types=[self.local_type(r.type, s) for r, s in zip(op.results, option.results, strict=True)],
            properties=local_properties(op, changes),
            attributes=dict(op.attributes),
            regions=[copied(region, mapping) for region in op.regions],
            location=op.location,
        )
        body.add_op(copy)
        stands_for(op, copy, mapping)
        for index in option.means:
            scale = ScaleOp(copy.results[index], 1, self.propagation.shards)
            scale.attributes[RULE] = RuleAttr(linear_rule(cast("TensorType[Any]", scale.output.type).get_num_dims()))
            body.add_op(scale)
            mapping[op.results[index]] = scale.output


def linear_rule(rank: int) -> Rule:
    """The rule of an elementwise linear op: any dim may be cut, addends pass through."""
    dims = tuple(InputDim(f"S{i + 1}") for i in range(rank))
    combines = {f"S{i + 1}": (Gather(i),) for i in range(rank)}
    return Rule((dims,), combines, partials=(PartialRule(Reduction.SUM, (0,), (0,)),))
