"""Options of the two searches. In go their texts and a module; out come the mesh, the limit, the axes' restrictions,
and the problem to solve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, f64, i64

from distir.dialects.errors import DistirError
from distir.dialects.sharding import MeshOp
from distir.interpreters.byte_sizes import parse_bytes
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.pipeline.tasks import check_schedule
from distir.passes.sharding.plans import annotate
from distir.passes.sharding.prices import prices_of
from distir.passes.sharding.problem import RESTRICTIONS, Problem, build
from distir.passes.sharding.result import Result
from distir.passes.sharding.search import NotInTime
from distir.passes.solver.deadline import Deadline, OutOfTime
from distir.passes.staging.order import ranks_of_entry

SHARDS = ("any", "even")
"""Which shards a plan may have: any that `apply-sharding` lowers; those of equal extents that do not overlap, which DTensor and
Shardy have too."""


def build_problem(
    context: Context,
    module: ModuleOp,
    mesh: str,
    machine: str,
    cost_model: str,
    batch: str,
    restrict: str,
    shards: str,
    entry: str,
    time_limit: float | None = None,
    schedule: str = "1f1b",
) -> tuple[Problem, Deadline]:
    """The problem of a module of level 1 or 2, and the end of the time to build and solve it, which begins once rules are discovered. Raises
    DistirError for options that do not fit it."""
    from distir.passes.decompose import DecomposePass
    from distir.passes.dtp_parallelize import prepare
    from distir.passes.structure import is_annotated

    if time_limit is not None and time_limit <= 0:
        raise DistirError(f"time-limit: expected more than 0 seconds, got {time_limit:g}")
    if shards not in SHARDS:
        raise DistirError(f"shards: expected one of {', '.join(SHARDS)}, got '{shards}'")
    parsed = replace(parse_mesh(mesh, module), uneven=shards == "any")
    check_schedule(schedule)
    restrictions = parse_restrictions(restrict, parsed)
    if not is_annotated(module):
        prepare(context, module)
        if any(size > 1 and restrictions.get(axis, "any") in ("any", "model") for axis, size in parsed.axes):
            DecomposePass(batch).apply(context, module)
    stages = ranks_of_entry(entry_function(module, entry), schedule)
    prices = prices_of(parsed, load_machine(machine), cost_model, stages)
    deadline = Deadline.after(time_limit)
    try:
        batches = parse_batch(batch, entry_function(module, entry))
        found = build(module, entry, prices, batches, restrictions, deadline, schedule)
    except OutOfTime:
        raise NotInTime(deadline.seconds, "the problem was not built in time") from None
    return found, deadline


def parse_mesh(text: str, module: ModuleOp) -> Mesh:
    """`dp=2,tp=4`; empty: the mesh that the module has."""
    if not text:
        found = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
        if len(found) != 1:
            raise DistirError('mesh: expected axes and sizes such as mesh="dp=2,tp=4"')
        return Mesh(tuple(found[0].axis_sizes.items()))
    axes: dict[str, int] = {}
    for item in text.split(","):
        axis, _, size = (part.strip() for part in item.partition("="))
        if not axis or axis in axes or not size.isdecimal() or int(size) < 1:
            raise DistirError(f'mesh: expected distinct axes and sizes such as mesh="dp=2,tp=4", got "{text}"')
        axes[axis] = int(size)
    return Mesh(tuple(axes.items()))


def parse_restrictions(text: str, mesh: Mesh) -> Mapping[str, str]:
    """`dp=batch,tp=model`."""
    found: dict[str, str] = {}
    names = [axis for axis, _ in mesh.axes]
    for item in filter(None, text.split(",")):
        axis, _, kind = (part.strip() for part in item.partition("="))
        if axis not in names or kind not in RESTRICTIONS:
            raise DistirError(
                f"restrict: expected AXIS=KIND with an axis of {', '.join(names)} and a kind of "
                f"{', '.join(RESTRICTIONS)}, got '{item}'"
            )
        found[axis] = kind
    return found


def memory_limit(text: str, problem: Problem) -> int:
    """Bytes of tensors; empty: what a device of the machine has, less its workspace and what fragmentation loses (the simulator
    also rounds each tensor up to the allocator's granularity, 512 bytes on GPUs)."""
    if text:
        return parse_bytes(text, "memory-limit")
    machine = problem.prices.machine
    return machine.device.memory_capacity_bytes - machine.memory.workspace_bytes


def write(problem: Problem, result: Result) -> None:
    """Writes the plan into the module, and what it costs onto `dist.mesh`."""
    annotate(problem, result.plan)
    for op in problem.module.body.block.ops:
        if isinstance(op, MeshOp):
            op.attributes["dist.seconds"] = FloatAttr(result.seconds, f64)
            op.attributes["dist.gap"] = FloatAttr(result.gap, f64)
            op.attributes["dist.peak_memory_bytes"] = IntegerAttr(result.memory.peak_bytes, i64)
