"""Staged programs on devices: in goes a staged module; out comes one whose entry is placed, on one device where no mesh says otherwise."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from distir.dialects.dist import CallOp, MicrobatchesOp
from distir.dialects.errors import DistirError
from distir.dialects.sharding import MeshOp
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.pipeline.stages import stage_calls
from distir.passes.staging.order import is_stage_call
from distir.passes.structure import functions

ONE = "device"
"""The axis of a mesh of one device."""


def place_on_one_device(context: Context, module: ModuleOp, entry: FuncOp) -> None:
    """Places a staged module that no mesh was chosen for, in place."""
    loops = [op for op in entry.body.block.ops if isinstance(op, MicrobatchesOp)]
    table = functions(module)
    for function in (entry, *(table[loop.callee.string_value()] for loop in loops)):
        stage_calls(function)
    if any(isinstance(op, MeshOp) for op in module.body.block.ops):
        raise DistirError("the program has a mesh and is not placed: run apply-sharding first")
    first = module.body.block.first_op
    assert first is not None
    module.body.block.insert_op_before(MeshOp("mesh", {ONE: 1}), first)
    ApplyShardingPass(entry=entry.sym_name.data).apply(context, module)


def check_is_staged(module: ModuleOp, entry: FuncOp) -> None:
    """Raises DistirError unless all that a placed entry calls has a stage."""
    table = functions(module)
    loops = [op for op in entry.body.block.ops if isinstance(op, MicrobatchesOp)]
    for function in (entry, *(table[loop.callee.string_value()] for loop in loops)):
        for op in function.body.block.ops:
            if isinstance(op, CallOp) and not is_stage_call(op):
                raise DistirError(f"{op.name} of @{op.callee_name} belongs to no stage: run pipeline-stages first")
    calls = [op for op in entry.body.block.ops if isinstance(op, MicrobatchesOp) or is_stage_call(op)]
    if not calls:
        raise DistirError(f"@{entry.sym_name.data} has no stage: run pipeline-stages first")
