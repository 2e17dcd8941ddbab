"""`beam-shard`: a good sharding over a mesh, found by beam search (Algorithm 2 of the MetaDist paper).

Where it stands: level 1 or annotated -> annotated with strategies, as `ilp-shard`, with the same costs and limits."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class BeamShardPass(ModulePass):
    """Keeps the `width` cheapest partial plans while it goes through the program; deterministic. Other options, requirements
    and what is written are those of `ilp-shard`; nothing is proven, so `dist.gap` is 1. Raises DistirError if the beam
    finds no plan within the limit of memory, which does not mean that there is none."""

    name = "beam-shard"
    mesh: str = ""
    """Axes and sizes, as in "dp=2,tp=4"; none: the mesh that the module names."""
    width: int = 16
    """Partial plans that are kept."""
    memory_limit: str = ""
    """What a device may hold, as in "28GB"; none: what the machine has."""
    machine: str = "dgx-a100"
    """A machine of `distir machines`, or a .toml file: whose costs count."""
    cost_model: str = "analytic"
    """How costs are found: analytic, distir, or a plug-in's."""
    restrict: str = ""
    """What an axis may cut, as in "dp=batch,tp=model"; none: anything."""
    shards: str = "any"
    """Which shards there may be: any, or even: of equal extents and without overlap."""
    batch: str = ""
    """Batch dims, as in "x:0,label:0"; none: dim 0 of inputs and labels."""
    schedule: str = "1f1b"
    """Of a staged program, the order of microbatches that counts: as for pipeline-schedule."""
    entry: str = "main"
    """The function that the program begins with."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.errors import DistirError
        from distir.passes.sharding.beam_within import beam_plan
        from distir.passes.sharding.settings import build_problem, memory_limit, write

        if self.width < 1:
            raise DistirError(f"width: expected at least 1, got {self.width}")
        problem, _ = build_problem(
            ctx,
            op,
            self.mesh,
            self.machine,
            self.cost_model,
            self.batch,
            self.restrict,
            self.shards,
            self.entry,
            schedule=self.schedule,
        )
        write(problem, beam_plan(problem, self.width, memory_limit(self.memory_limit, problem)))
