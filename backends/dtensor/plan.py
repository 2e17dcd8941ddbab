"""Reads an annotated module for DTensor. In goes the module; out come the sharding states of its arguments, and
their placements where DTensor can express them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import BlockArgument, Operation
from xdsl.utils.exceptions import VerifyException

from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import MeshOp, Partial, Replicated, Sharded, State, Windowed
from distir.interpreters.entry import arguments_of, entry_function
from distir.passes.apply_sharding import argument_states, chosen_options
from distir.passes.distribution.mesh import AxisStates, Mesh
from distir.passes.distribution.options import Option
from distir.passes.structure import calls_first, is_constant

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Placement

REDUCE_OPS = {Reduction.SUM: "sum", Reduction.MAX: "max", Reduction.MIN: "min", Reduction.PROD: "product"}


@dataclass(frozen=True)
class DTensorPlan:
    """The choices of an annotated module, read once."""

    mesh: Mesh
    entry: FuncOp
    options: Mapping[Operation, Sequence[Option]]
    """Per operation what it does along each axis."""
    arguments: Mapping[BlockArgument, AxisStates]


def plan_of(module: ModuleOp, entry: str = "main") -> DTensorPlan:
    """The plan of an annotated module: as `apply-sharding` reads it, an argument that does not say its sharding is what
    its first consumer needs. Raises DistirError for a module without one mesh and for a strategy that does not fit."""
    meshes = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
    if len(meshes) != 1:
        raise DistirError(
            f"expected one dist.mesh in the module, got {len(meshes)}: annotate it with ilp-shard or by hand"
        )
    function = entry_function(module, entry)
    ordered = calls_first(module, entry)
    try:
        options = {
            op: chosen_options(op, meshes[0])
            for f in ordered
            for op in f.body.block.ops
            if not isinstance(op, CallOp) and (op.operands or not is_constant(op))
        }
    except VerifyException as error:
        found = str(error).strip().splitlines()[-1]
        raise DistirError(f"{found} in even shards, which DTensor has: search with shards=even") from error
    mesh = Mesh(tuple(meshes[0].axis_sizes.items()))
    return DTensorPlan(mesh, function, options, argument_states(ordered, meshes[0], options))


def placement(state: State) -> Placement:
    """DTensor's placement along one axis; pieces are in the order of shards (`conversions`)."""
    from torch.distributed.tensor import Partial as PartialPlacement
    from torch.distributed.tensor import Replicate, Shard

    match state:
        case Replicated():
            return Replicate()
        case Sharded(dim, _):
            return Shard(dim)
        case Windowed(dim):
            raise DistirError(f"dim {dim} is cut with a halo, which no placement of DTensor says")
        case Partial(reduction):
            return PartialPlacement(REDUCE_OPS[reduction])


def placements(module: ModuleOp, entry: str = "main") -> dict[str, tuple[Placement, ...]]:
    """By name the placements of every argument of the entry, one per axis of the mesh in its order: what
    `distribute_tensor(tensor, mesh, placements)` takes.

    Raises DistirError for an argument that is cut in several pieces, which DTensor has no placement for, and for a
    module that is not annotated."""
    plan = plan_of(module, entry)
    found: dict[str, tuple[Placement, ...]] = {}
    for port, argument in zip(arguments_of(plan.entry), plan.entry.body.block.args, strict=True):
        states = plan.arguments[argument]
        if cut := next((s for s in states if isinstance(s, Sharded) and len(s.pieces) > 1), None):
            raise DistirError(
                f"{port.name}: dim {cut.dim} is cut in the pieces {list(cut.pieces)}, which no placement of DTensor says: "
                "forbid them in the search (dist.forbid), or run the plan with distir.backends.dtensor.run, which permutes"
            )
        found[port.name] = tuple(map(placement, states))
    return found


def parallelize(model: Any, module: ModuleOp, mesh: DeviceMesh, entry: str = "main") -> Any:
    """Makes the parameters and buffers of a `torch.nn.Module` DTensors as the plan of its program says, by their names in
    `state_dict()`; returns the model. DTensor then runs it by its own rules. Inputs are distributed by the caller.

    Raises DistirError as `placements` does, for a mesh of other sizes, and for a name that the plan does not have."""
    import torch
    from torch.distributed.tensor import distribute_tensor

    by_name, sizes = placements(module, entry), plan_of(module, entry).mesh.sizes
    if tuple(mesh.shape) != sizes:
        raise DistirError(f"the plan is for a mesh of {list(sizes)}, got one of {list(mesh.shape)}")
    for owner_name, owner in list(model.named_modules()):
        for name, tensor in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
            full_name = f"{owner_name}.{name}" if owner_name else name
            if full_name not in by_name:
                raise DistirError(
                    f"{full_name} of the model is no argument of the program: it has {', '.join(by_name)}"
                )
            placed = distribute_tensor(tensor.detach(), mesh, by_name[full_name])
            if isinstance(tensor, torch.nn.Parameter):
                owner.register_parameter(name, torch.nn.Parameter(placed, requires_grad=tensor.requires_grad))
            else:
                owner.register_buffer(name, placed)
    return model
