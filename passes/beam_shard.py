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
    width: int = 16
    memory_limit: str = ""
    machine: str = "dgx-a100"
    cost_model: str = "analytic"
    restrict: str = ""
    shards: str = "any"
    batch: str = ""
    entry: str = "main"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.errors import DistirError
        from distir.passes.sharding_search.beam_within import beam_plan
        from distir.passes.sharding_search.settings import build_problem, memory_limit, write

        if self.width < 1:
            raise DistirError(f"width: expected at least 1, got {self.width}")
        problem, _ = build_problem(
            ctx, op, self.mesh, self.machine, self.cost_model, self.batch, self.restrict, self.shards, self.entry
        )
        write(problem, beam_plan(problem, self.width, memory_limit(self.memory_limit, problem)))
