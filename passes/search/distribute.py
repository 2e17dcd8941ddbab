"""The steps of the D/T/P transform, in order, on one module: stages and the batch axis (`local_program`), the tensor axis
(`tensor_axis`), devices.

`pipeline-stages`, `pipeline-schedule` and `dtp-parallelize` are each some of these steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import SSAValue

from distir.dialects.sharding import REPLICATED, Sharded, State, mapped
from distir.interpreters.costs import Costs
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import Machine
from distir.passes.distribution.lower import Lowering
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.options import replicate
from distir.passes.distribution.pipeline.assemble import Assembler
from distir.passes.distribution.pipeline.layout import Layout, Tensor
from distir.passes.distribution.pipeline.local_program import LocalProgram
from distir.passes.distribution.pipeline.one_rank import FirstRank, RanksDiffer, ShardsOfFirst
from distir.passes.distribution.pipeline.staged import StagedProgram
from distir.passes.distribution.pipeline.stages import stage_calls
from distir.passes.distribution.shards import Shards
from distir.passes.distribution.tensor.choices import TensorChoices
from distir.passes.distribution.tensor.tensor_axis import Variants, known_or_chosen, staged_at_sites
from distir.passes.distribution.tensor.tensor_network import Plan
from distir.passes.distribution.tensor.variants import alternate


def lower_tensors(
    program: LocalProgram, tp: int, plan: Plan | None, shards: Callable[[Mesh], Shards] = Shards
) -> Lowering:
    """Lowers every function that the local entry calls to a template over `tp` devices."""
    reached = program.functions[:-1]
    chosen = {
        op: [plan.options[op] if plan else replicate(op)]
        for function in reached
        for op in function.body.block.ops
        if not isinstance(op, (CallOp, ReturnOp))
    }
    arguments = {
        a: ((plan.arguments[a] if plan else REPLICATED),)
        for function in (*reached, program.local)
        for a in function.body.block.args
    }
    returned = {name: [(state,) for state in states] for name, states in plan.results.items()} if plan else {}
    lowering = Lowering(Mesh((("tp", tp),)), chosen, arguments, returned, shards=shards)
    for function in reached:
        lowering.lower(function)
    lowering.argument_states[program.local.sym_name.data] = [arguments[a] for a in program.local.body.block.args]
    return lowering


def staged_program(
    module: ModuleOp,
    program: LocalProgram,
    lowering: Lowering,
    tp: int,
    first_rank: FirstRank | None = None,
    to_run: bool = True,
    is_first: bool = False,
) -> StagedProgram:
    """What every schedule of the program is assembled from; takes the staged entry out of the module, if it is there."""
    tensors: dict[SSAValue, Tensor] = {}
    calls: dict[CallOp, str] = {}

    def note(value: SSAValue, local: SSAValue, state: State) -> None:
        tensors[value] = Tensor(_of_part(program.batch[value], program.shards), state, local.type)

    local = program.local.body.block.args
    arguments = lowering.argument_states[program.local.sym_name.data]
    for argument, part, (state,) in zip(program.entry.body.block.args, local, arguments, strict=True):
        note(argument, part, state)
    for call, part in zip(stage_calls(program.entry), stage_calls(program.local), strict=True):
        calls[call] = part.callee.string_value()
        for result, own, (state,) in zip(call.results, part.results, lowering.results[calls[call]], strict=True):
            note(result, own, state)
    if program.local.parent is module.body.block:
        module.body.block.erase_op(program.local)
    return StagedProgram(
        module, program.entry, tensors, calls, lowering.argument_states, tp, first_rank, to_run, is_first
    )


def _of_part(state: State, shards: int) -> State:
    """A state along the batch axis, with the pieces of one part."""
    if not isinstance(state, Sharded):
        return state
    return Sharded(state.dim, mapped(state.pieces, lambda piece: piece // shards))


def assemble(
    module: ModuleOp,
    program: LocalProgram,
    lowering: Lowering,
    layout: Layout,
    schedule: str,
    outline_replicas: bool = True,
) -> FuncOp:
    """Replaces the staged entry by the program for all devices."""
    staged = staged_program(module, program, lowering, layout.tp)
    return Assembler(staged, layout, schedule, outline_replicas).build()


def distribute(
    module: ModuleOp,
    batch: Mapping[int, int],
    layout: Layout,
    schedule: str,
    machine: Machine,
    known: TensorChoices | None = None,
    outline_replicas: bool = True,
) -> None:
    """The D/T/P transform of an annotated module. Repeated layers are cut alike, or alternately where that communicates
    less (`variants`). Choices found are added to `known`, and those in it are taken. With `outline_replicas`, the loop over
    microbatches is one function that every replica calls."""
    lowered = _lowered(module, batch, layout, machine, known or TensorChoices())
    assemble(module, *lowered, layout, schedule, outline_replicas)


def lower_stages(variants: Variants, layout: Layout, known: TensorChoices, costs: Costs) -> StagedProgram:
    """The D/T/P transform of a module cut into stages, up to its schedule: a program to simulate, not to run. It is of the first
    tensor rank where its costs say that this stands for all, and takes parameters in tuples. The functions serve any number of
    replicas and microbatches of as many rows, but for the factors by which means over the batch are scaled; the batch must
    be cut in all of these, or in none. The variants stay as they are."""
    program, plan = variants.copy(layout, known)
    if layout.tp == 1:
        return staged_program(program.module, program, lower_tensors(program, 1, plan), 1, to_run=False)
    first_rank = FirstRank(layout.tp, costs)
    if first_rank.lie_alike:
        with suppress(RanksDiffer):
            lowering = lower_tensors(program, layout.tp, plan, lambda mesh: ShardsOfFirst(mesh, first_rank))
            return staged_program(program.module, program, lowering, layout.tp, first_rank, False, is_first=True)
        program, plan = variants.copy(layout, known)
    lowering = lower_tensors(program, layout.tp, plan)
    return staged_program(program.module, program, lowering, layout.tp, first_rank, to_run=False)


def _lowered(
    module: ModuleOp, batch: Mapping[int, int], layout: Layout, machine: Machine, known: TensorChoices
) -> tuple[LocalProgram, Lowering]:
    shards = layout.dp * layout.microbatches
    if layout.tp > 1 and layout.tp not in known.by_site:
        Variants(module, batch, shards, layout.pp, machine).choose(layout.tp, known)
    if layout.tp > 1 and known.alternating[layout.tp]:
        alternate(module, entry_function(module), 2)
    cuts = known.cuts.setdefault((layout.tp, layout.pp, shards > 1), {})
    program = staged_at_sites(module, batch, shards, layout.pp, machine, cuts)
    return program, lower_tensors(program, layout.tp, known_or_chosen(program, layout, machine, known))
