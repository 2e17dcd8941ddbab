"""The steps of the D/T/P transform, in order, on one module: stages, the batch axis, the tensor axis, devices.

`pipeline-stages`, `pipeline-schedule` and `dtp-parallelize` are each some of these steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import IntAttr, ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.sharding import REPLICATED, Choice, Sharded, State, UseFactor
from distir.interpreters.costs import Costs
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import Machine
from distir.passes.distribution.assemble import Assembler
from distir.passes.distribution.batch_axis import (
    BatchAxis,
    BatchPropagation,
    NeedsWhole,
    batch_states,
    explain,
    follow_batch,
)
from distir.passes.distribution.choices import PlanByPosition, TensorChoices
from distir.passes.distribution.deferred_scale import defer_scales
from distir.passes.distribution.ilp import solve
from distir.passes.distribution.inline import inline_calls
from distir.passes.distribution.layout import Layout, Tensor
from distir.passes.distribution.localize import Localizer
from distir.passes.distribution.lower import SITE, Lowering
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.one_rank import FirstRank
from distir.passes.distribution.options import replicate
from distir.passes.distribution.space import TensorSpace, is_contraction
from distir.passes.distribution.staged import StagedProgram
from distir.passes.distribution.stages import UPDATE, Assignment, TooManyStages, build_stages, phase_of, stage_calls
from distir.passes.distribution.tensor_network import Plan, choose
from distir.passes.distribution.variants import alternate
from distir.passes.distribution.weights import stage_weights
from distir.passes.structure import callee_of, calls_first, functions, shape_of, unique_symbol

SAME = 1e-6
"""Plans whose communication differs by less than this fraction communicate alike."""


class CutsLayers(TooManyStages):
    """A pipeline has more stages than the entry has forward operations, so that stages would begin inside its calls."""


def cut_into_stages(
    module: ModuleOp,
    batch: Mapping[int, int],
    shards: int,
    stages: int,
    machine: Machine,
    whole_layers: bool = False,
) -> None:
    """Rewrites the entry into calls of stage functions. Calls that hide a boundary of the batch axis, or of a stage where
    there are fewer calls than stages, are inlined first; with `whole_layers`, the latter raises CutsLayers."""
    calls_first(module)  # every function that is called has a body
    entry = entry_function(module)
    rows = min((shape_of(entry.body.block.args[i])[d] for i, d in batch.items()), default=1)
    weigh = stage_weights(module, machine, max(1, rows))
    axis = axis_of_entry(module, entry, batch, shards)
    try:
        assignment = Assignment(entry, axis, stages, weigh)
    except TooManyStages as error:
        if not any(isinstance(op, CallOp) for op in entry.body.block.ops):
            raise
        if whole_layers:
            raise CutsLayers(error.operations, stages) from None
        inline_calls(module, entry)
        assignment = Assignment(entry, axis_of_entry(module, entry, batch, shards), stages, weigh)
    while callees := assignment.straddling():
        inline_calls(module, entry, callees)
        assignment = Assignment(entry, axis_of_entry(module, entry, batch, shards), stages, weigh)
    build_stages(module, entry, assignment)


def axis_of_entry(module: ModuleOp, entry: FuncOp, batch: Mapping[int, int], shards: int) -> BatchAxis:
    """The batch axis of the entry; calls inside which a value leaves the axis are inlined until none is."""
    while True:
        if shards > 1:
            defer_scales(module, entry, batch)
        try:
            return follow_batch(module, entry, batch, shards)
        except NeedsWhole as error:
            hidden = _callees_with(module, error)
            if not hidden:
                raise explain(error, shards) from None
            inline_calls(module, entry, hidden)


def _callees_with(module: ModuleOp, error: NeedsWhole) -> frozenset[str]:
    """The functions that reach the op of an error, other than the entry itself; of a call, the one that it names."""
    if isinstance(error.op, CallOp):
        return frozenset({error.op.callee.string_value()})
    holder = error.op.parent_op()
    reaching = {holder.sym_name.data} if isinstance(holder, FuncOp) else set[str]()
    for function in calls_first(module):
        if any(callee_of(op) in reaching for op in function.body.block.ops):
            reaching.add(function.sym_name.data)
    return (
        frozenset() if isinstance(holder, FuncOp) and holder.sym_name.data == "main" else frozenset(reaching - {"main"})
    )


@dataclass
class LocalProgram:
    """A staged module at the shapes of one microbatch of one replica."""

    entry: FuncOp
    """The staged entry, at global shapes."""
    local: FuncOp
    """The same entry at local shapes, calling local functions: values correspond by position."""
    batch: dict[SSAValue, State]
    """Per value of `entry`, what it is along the batch axis inside the loop."""
    shards: int
    """Into how many parts the batch is cut."""
    rows: int
    cut: set[SSAValue]
    """Values of the local functions that grow with the rows."""


def localize(module: ModuleOp, batch: Mapping[int, int], shards: int) -> LocalProgram:
    """Adds the local copies of all stage functions, and an entry that calls them."""
    entry = entry_function(module)
    states = batch_states(entry, batch, shards)
    propagation = BatchPropagation(module, shards)
    localizer = Localizer(module, propagation)
    along: dict[SSAValue, State] = dict(zip(entry.body.block.args, states, strict=True))
    types = [localizer.local_type(a.type, s) for a, s in zip(entry.body.block.args, states, strict=True)]
    body = Block(arg_types=types)
    localizer.cut.update([v for v, state in zip(body.args, states, strict=True) if isinstance(state, Sharded)])
    mapping: dict[SSAValue, SSAValue] = dict(zip(entry.body.block.args, body.args, strict=True))
    for call in stage_calls(entry):
        needed = [REPLICATED if phase_of(call) == UPDATE else along[v] for v in call.operands]
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
        localizer.cut.update([v for v, state in zip(copy.results, results, strict=True) if isinstance(state, Sharded)])
        mapping.update(zip(call.results, copy.results, strict=True))
    last = entry.body.block.last_op
    returned = [mapping[v] for v in last.operands] if last is not None else []
    body.add_op(ReturnOp(*returned))
    local = FuncOp(unique_symbol(module, "local_main"), (types, [v.type for v in returned]), Region(body))
    local.arg_attrs, local.res_attrs = entry.arg_attrs, entry.res_attrs
    module.body.block.add_op(local)
    rows = min((entry.body.block.args[i].type.get_shape()[d] // shards for i, d in batch.items()), default=1)  # pyright: ignore
    return LocalProgram(entry, local, along, shards, rows, localizer.cut)


def choose_tensors(
    module: ModuleOp,
    program: LocalProgram,
    batch: Mapping[int, int],
    tp: int,
    machine: Machine,
    choices: Mapping[int, Choice] | None = None,
) -> Plan:
    """The tensor axis of `tp` > 1 devices. Raises DistirError if nothing can be cut. With `choices`, by site, only
    conversions are left to choose."""
    if choices is not None:
        ops = [op for f in calls_first(module, program.local.sym_name.data) for op in f.body.block.ops]
        fixed = {op: choices[_site(op)] for op in ops if SITE in op.attributes and _site(op) in choices}
        space = TensorSpace(module, program.local, batch, tp, fixed)
        return solve(space, program.rows, program.cut, collective_seconds(machine, tp))
    space = TensorSpace(module, program.local, batch, tp)
    contractions = [op for op in space.options if is_contraction(op)]
    if contractions and not any(isinstance(o.choice, UseFactor) for op in contractions for o in space.options[op]):
        op = contractions[0]
        raise DistirError(
            f"tp = {tp}: no contraction can be cut into {tp} parts; {op.name} of {[list(shape_of(v)) for v in op.operands if v not in program.cut]} "
            f"has the rule {op.attributes['dist.rule']}: choose a tp that divides its parameters' dims"
        )
    seconds = collective_seconds(machine, tp)
    best = choose(space, program.rows, program.cut, seconds)
    if best is not None:
        space.options = {op: [best[op]] for op in space.options}
    return solve(space, program.rows, program.cut, seconds)


def lower_tensors(module: ModuleOp, program: LocalProgram, tp: int, plan: Plan | None) -> Lowering:
    """Lowers every function to a template over `tp` devices."""
    reached = [f for f in calls_first(module, program.local.sym_name.data) if f is not program.local]
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
    lowering = Lowering(Mesh((("tp", tp),)), chosen, arguments, returned)
    for function in reached:
        lowering.lower(function)
    lowering.argument_states[program.local.sym_name.data] = [arguments[a] for a in program.local.body.block.args]
    return lowering


def collective_seconds(machine: Machine, devices: int) -> Callable[[str, int], float]:
    """The time of a collective among the first devices of a machine, as its analytic cost model has it."""
    from distir.interpreters.cost_models import make_cost_model

    model = make_cost_model("analytic", machine)
    group = list(range(devices))
    return lambda kind, bytes_: model.collective_seconds(kind, bytes_, group)


def staged_program(
    module: ModuleOp, program: LocalProgram, lowering: Lowering, tp: int, first_rank: FirstRank | None = None
) -> StagedProgram:
    """What every schedule of the program is assembled from; takes the staged entry out of the module."""
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
    module.body.block.erase_op(program.local)
    return StagedProgram(module, program.entry, tensors, calls, lowering, tp, first_rank)


def _of_part(state: State, shards: int) -> State:
    """A state along the batch axis, with the pieces of one part."""
    if not isinstance(state, Sharded):
        return state
    return Sharded(state.dim, tuple(piece // shards for piece in state.pieces))


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


def is_annotated(module: ModuleOp) -> bool:
    """Whether any op carries a rule."""
    return any("dist.rule" in op.attributes for f in calls_first(module) for op in f.body.block.ops)


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


def lower_stages(
    module: ModuleOp,
    batch: Mapping[int, int],
    layout: Layout,
    machine: Machine,
    known: TensorChoices,
    whole_layers: bool = False,
    costs: Costs | None = None,
) -> StagedProgram:
    """The D/T/P transform up to its schedule. The functions serve any number of replicas and microbatches of as many rows,
    but for the factors by which means over the batch are scaled; the batch must be cut in all of these, or in none. With
    `costs`, they are of the first tensor rank where these say that it stands for all: a program to simulate, not to run."""
    lowered = _lowered(module, batch, layout, machine, known, whole_layers)
    first_rank = FirstRank(layout.tp, costs) if costs is not None and layout.tp > 1 else None
    return staged_program(module, *lowered, layout.tp, first_rank)


def choose_once(
    module: ModuleOp, batch: Mapping[int, int], layout: Layout, machine: Machine, known: TensorChoices
) -> None:
    """Adds to what is known how the tensor axis of the layout is cut. The module is used up."""
    if layout.tp not in known.by_site:
        _best_plan(module, batch, layout, machine, known)


def _lowered(
    module: ModuleOp,
    batch: Mapping[int, int],
    layout: Layout,
    machine: Machine,
    known: TensorChoices,
    whole_layers: bool = False,
) -> tuple[LocalProgram, Lowering]:
    if layout.tp in known.by_site:
        if known.alternating[layout.tp]:
            alternate(module, entry_function(module), 2)
        program, plan = _plan(module, batch, layout, machine, known, whole_layers)
    elif layout.tp == 1:
        program, plan = _plan(module, batch, layout, machine, known, whole_layers)
    else:
        program, plan = _best_plan(module, batch, layout, machine, known)
    return program, lower_tensors(module, program, layout.tp, plan)


def _best_plan(
    module: ModuleOp, batch: Mapping[int, int], layout: Layout, machine: Machine, known: TensorChoices
) -> tuple[LocalProgram, Plan | None]:
    other = module.clone() if layout.tp > 1 else None
    found, others = TensorChoices(), TensorChoices()
    program, plan = _plan(module, batch, layout, machine, found)
    if plan is None or other is None:
        return program, plan
    known.alternating[layout.tp] = False
    if alternate(other, entry_function(other), 2):
        other_program, other_plan = _plan(other, batch, layout, machine, others)
        if other_plan is not None and other_plan.seconds < plan.seconds * (1 - SAME):
            _replace_body(module, other)
            program, plan, found = other_program, other_plan, others
            known.alternating[layout.tp] = True
    known.by_site[layout.tp] = {
        _site(op): option.choice for op, option in plan.options.items() if SITE in op.attributes
    }
    known.plans.update(found.plans)
    return program, plan


def _plan(
    module: ModuleOp,
    batch: Mapping[int, int],
    layout: Layout,
    machine: Machine,
    known: TensorChoices,
    whole_layers: bool = False,
) -> tuple[LocalProgram, Plan | None]:
    """Stages, parts of the batch, and the tensor axis, as far as known without asking the solver. What it says is added to
    the plans that are known."""
    ops = [
        op for function in functions(module).values() for op in function.body.block.ops if "dist.rule" in op.attributes
    ]
    for site, op in enumerate(ops):
        op.attributes[SITE] = IntAttr(site)
    shards = layout.dp * layout.microbatches
    cut_into_stages(module, batch, shards, layout.pp, machine, whole_layers)
    program = localize(module, batch, shards)
    if layout.tp == 1:
        return program, None
    key = (layout.tp, layout.pp, shards > 1)
    reached = calls_first(module, program.local.sym_name.data)
    if key in known.plans and (plan := known.plans[key].on(reached)) is not None:
        return program, plan
    plan = choose_tensors(module, program, batch, layout.tp, machine, known.by_site.get(layout.tp))
    known.plans[key] = PlanByPosition.of(plan, reached)
    return program, plan


def _site(op: Operation) -> int:
    return cast(IntAttr, op.attributes[SITE]).data


def _replace_body(module: ModuleOp, other: ModuleOp) -> None:
    """Moves the operations of another module into this one, in place of its own."""
    block = module.body.block
    for op in reversed(list(block.ops)):
        block.erase_op(op, safe_erase=False)
    for op in list(other.body.block.ops):
        op.detach()
        block.add_op(op)
