"""Cuts a program into pipeline stages. In goes an annotated entry; out come calls of stage functions, and a copy of
them at the shapes of one microbatch of one replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from distir.dialects.sharding import REPLICATED, State
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import Machine
from distir.passes.distribution.batch.batch_axis import (
    BatchPropagation,
    NeedsWhole,
    batch_states,
    explain,
)
from distir.passes.distribution.batch.entry_axis import BatchAxis, axis_of_entry
from distir.passes.distribution.batch.localize import Localizer
from distir.passes.distribution.inline import erase_unreached, inline_calls
from distir.passes.distribution.pipeline.cuts import SLOWER
from distir.passes.distribution.pipeline.opened_calls import OpenedCalls
from distir.passes.distribution.pipeline.split_backward import split_backward
from distir.passes.distribution.pipeline.split_updates import SplitUpdates
from distir.passes.distribution.pipeline.stages import (
    BEFORE,
    UPDATE,
    Assignment,
    Cuts,
    TooManyStages,
    build_stages,
    phase_of,
    stage_calls,
)
from distir.passes.distribution.pipeline.weights import stage_weights
from distir.passes.structure import calls_first, shape_of, unique_symbol


class CutsLayers(TooManyStages):
    """A pipeline has more stages than the entry has forward operations, so that stages would begin inside its calls."""


def cut_into_stages(
    module: ModuleOp,
    batch: Mapping[int, int],
    shards: int,
    stages: int,
    machine: Machine,
    whole_layers: bool = False,
    gathers: bool = False,
    splits: bool = False,
    slower: float = SLOWER,
) -> BatchAxis:
    """Rewrites the entry into calls of stage functions. Calls that hide a boundary of the batch axis, or of a stage where
    there are fewer calls than stages, are inlined first; those in which too many parameters are taken again are calls for each stage instead; with `whole_layers`, the latter raises CutsLayers. The loop over microbatches `gathers` or not (`follow_batch`); where it `splits`, what no other stage waits for
    of the backward part is a phase of its own. Stages may be `slower` for parameters to be even (`dividing_cuts`). Returns the batch axis of the entry as it was."""
    cuts: Cuts = {}
    calls_first(module)  # every function that is called has a body
    entry = entry_function(module)
    rows = min((shape_of(entry.body.block.args[i])[d] for i, d in batch.items()), default=1)
    weigh = stage_weights(module, machine, max(1, rows))
    axis = axis_of_entry(module, entry, batch, shards, gathers)
    try:
        assignment = Assignment(entry, axis, stages, weigh, cuts, slower)
    except TooManyStages as error:
        if axis.gathered is not None:
            raise explain(axis.gathered, shards, gathers) from None
        if not any(isinstance(op, CallOp) for op in entry.body.block.ops):
            raise
        if whole_layers:
            raise CutsLayers(error.operations, stages) from None
        inline_calls(module, entry)
        axis = axis_of_entry(module, entry, batch, shards, gathers)
        assignment = Assignment(entry, axis, stages, weigh, cuts, slower)
    if hiding := assignment.hiding(stages):
        opened = OpenedCalls(module)
        opened.open(hiding)
        axis = axis_of_entry(module, entry, batch, shards, gathers)
        opened.close(Assignment(entry, axis, stages, weigh, {}, slower).groups)
        erase_unreached(module, entry.sym_name.data)
        axis, cuts = axis_of_entry(module, entry, batch, shards, gathers), {}
        weigh = stage_weights(module, machine, max(1, rows))
        assignment = Assignment(entry, axis, stages, weigh, cuts, slower)
    updates = SplitUpdates(module)
    while straddling := assignment.straddling():
        for call, homes in straddling.items():
            updates.split(call, homes)
        erase_unreached(module, entry.sym_name.data)
        axis = axis_of_entry(module, entry, batch, shards, gathers)
        assignment = Assignment(entry, axis, stages, weigh, cuts, slower)
    if splits:
        split_backward(module, assignment)
    build_stages(module, entry, assignment.ops, assignment.groups)
    return assignment.axis


@dataclass
class LocalProgram:
    """A staged module at the shapes of one microbatch of one replica."""

    entry: FuncOp
    """The staged entry, at global shapes."""
    local: FuncOp
    """The same entry at local shapes, calling local functions: values correspond by position."""
    batch: dict[SSAValue, State]
    """Per value of `entry`, what it is along the batch axis inside the loop."""


def localize(module: ModuleOp, batch: Mapping[int, int], shards: int) -> LocalProgram:
    """Adds the local copies of all stage functions, and an entry that calls them."""
    entry = entry_function(module)
    states = batch_states(entry, batch, shards)
    propagation = BatchPropagation(module, shards)
    localizer = Localizer(module, propagation)
    along: dict[SSAValue, State] = dict(zip(entry.body.block.args, states, strict=True))
    types = [localizer.local_type(a.type, s) for a, s in zip(entry.body.block.args, states, strict=True)]
    body = Block(arg_types=types)
    mapping: dict[SSAValue, SSAValue] = dict(zip(entry.body.block.args, body.args, strict=True))
    for call in stage_calls(entry):
        needed = [REPLICATED if phase_of(call) in (BEFORE, UPDATE) else along[v] for v in call.operands]
        name = call.callee.string_value()
        try:
            results = propagation.function(name, needed).results
        except NeedsWhole as error:
            raise explain(error, shards) from None
        along.update(zip(call.results, results, strict=True))
        callee = localizer.function(name, needed)
        copy = CallOp(callee.sym_name.data, [mapping[v] for v in call.operands], callee.function_type.outputs.data)
        copy.attributes.update(call.attributes)
        body.add_op(copy)
        mapping.update(zip(call.results, copy.results, strict=True))
    last = entry.body.block.last_op
    returned = [mapping[v] for v in last.operands] if last is not None else []
    body.add_op(ReturnOp.create(operands=returned))
    local = FuncOp(unique_symbol(module, "local_main"), (types, [v.type for v in returned]), Region(body))
    local.arg_attrs, local.res_attrs = entry.arg_attrs, entry.res_attrs
    module.body.block.add_op(local)
    return LocalProgram(entry, local, along)
