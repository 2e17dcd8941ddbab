"""A staged program of any batch (`interpreters/simulate/batches`: a microbatch has `MARK` rows) at a number of rows: its stage
functions with the types and sizes that they have there. Everything else is shared."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Region, SSAValue

from distir.dialects.errors import DistirError
from distir.interpreters.costs import Costs
from distir.interpreters.simulate.batches import attribute_at, operation_at
from distir.passes.distribution.pipeline.layout import Tensor
from distir.passes.distribution.pipeline.one_rank import FirstRank, RanksDiffer
from distir.passes.distribution.pipeline.staged import StagedProgram
from distir.passes.distribution.rows import state_at
from distir.passes.structure import stands_for


def staged_at(staged: StagedProgram, rows: int, costs: Costs) -> StagedProgram:
    """The program at so many rows of a microbatch. Raises DistirError where that is another one: an operation has regions, or
    tensor ranks are not alike there."""
    first_rank = staged.first_rank
    if first_rank is not None:
        if not first_rank.holds_at(costs, lambda op: operation_at(op, rows)):
            raise RanksDiffer(f"tensor ranks differ at {rows} rows of a microbatch")
        first_rank = FirstRank(staged.tp, costs)
    module = ModuleOp([_function_at(function, rows) for function in staged.placed_functions.values()])
    tensors = {
        value: Tensor(state_at(tensor.batch, rows), state_at(tensor.tensor, rows), attribute_at(tensor.type, rows))
        for value, tensor in staged.tensors.items()
    }
    states = {
        name: [tuple([state_at(state, rows) for state in axes]) for axes in arguments]
        for name, arguments in staged.argument_states.items()
    }
    return staged.with_functions(module, tensors, states, first_rank)


def _function_at(function: FuncOp, rows: int) -> FuncOp:
    old = function.body.block
    block = Block(arg_types=[attribute_at(type_, rows) for type_ in old.arg_types])
    values: dict[SSAValue, SSAValue] = dict(zip(old.args, block.args, strict=True))
    for op in old.ops:
        if op.regions:
            raise DistirError(f"{op.name} has regions, which may change with the rows")
        own = type(op).create(
            operands=[values[v] for v in op.operands],
            result_types=[attribute_at(r.type, rows) for r in op.results],
            properties={name: attribute_at(value, rows) for name, value in op.properties.items()},
            attributes=op.attributes,
            location=op.location,
        )
        block.add_op(own)
        stands_for(op, own, values)
    inputs, outputs = function.function_type.inputs.data, function.function_type.outputs.data
    types = [attribute_at(t, rows) for t in inputs], [attribute_at(t, rows) for t in outputs]
    return FuncOp(function.sym_name.data, types, Region(block), function.sym_visibility)
