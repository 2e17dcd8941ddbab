"""`batch-shard`: the batch cut along one axis of a mesh, everywhere, with reductions inside the program where they are needed.

Where it stands: level 1 or annotated -> annotated with strategies along that axis. `apply-sharding` lowers them, or `ilp-shard`
chooses for the other axes first. Where `dtp-parallelize` lets replicas run on their own until their gradients are
accumulated, here all take each operation together: batch norm in training mode is synchronised."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class BatchShardPass(ModulePass):
    """Cuts the batch (`batch`, "x:0": by default dim 0 of inputs and labels) along `axis` of `mesh` ("dp=2,tp=2").

    Requires: level 1 or 2 with static shapes (or shapes that fold). Ensures: `dist.mesh`; one function; a strategy for the axis
    on every operation but constants. Raises DistirError for a batch that does not divide, and for an operation that needs
    the whole of a value that the batch cuts."""

    name = "batch-shard"
    mesh: str = ""
    """Axes and sizes, as in "dp=2,tp=4"; none: the mesh that the module names."""
    axis: str = "dp"
    """The axis of the mesh."""
    batch: str = ""
    """Batch dims, as in "x:0,label:0"; none: dim 0 of inputs and labels."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.errors import DistirError
        from distir.dialects.sharding import MeshOp, StrategyAttr
        from distir.interpreters.entry import entry_function
        from distir.passes.distribution.batch.batch_axis import parse_batch
        from distir.passes.distribution.batch.batch_strategy import batch_choices
        from distir.passes.distribution.inline import inline_calls
        from distir.passes.distribution.lower import STRATEGY
        from distir.passes.dtp_parallelize import prepare
        from distir.passes.sharding.settings import parse_mesh

        mesh = parse_mesh(self.mesh, op)
        sizes = dict(mesh.axes)
        if self.axis not in sizes:
            raise DistirError(f"axis: expected one of {', '.join(sizes)}, got '{self.axis}'")
        prepare(ctx, op)
        entry = entry_function(op)
        while any(isinstance(each, CallOp) for each in entry.body.block.ops):
            inline_calls(op, entry)
        found = [each for each in op.body.block.ops if isinstance(each, MeshOp)]
        if not found:
            op.body.block.insert_op_before(MeshOp("mesh", sizes), entry)
        name = found[0].sym_name.data if found else "mesh"
        for each, choice in batch_choices(op, entry, parse_batch(self.batch, entry), sizes[self.axis]).items():
            each.attributes[STRATEGY] = StrategyAttr.of(name, {self.axis: choice})
