"""`ilp-shard`: the fastest sharding over a mesh, proven: one integer linear program over all axes jointly.

Where it stands: level 1 or annotated -> annotated with strategies, which `apply-sharding` lowers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass

from distir.passes.solver.deadline import USUAL_SECONDS, Deadline

if TYPE_CHECKING:
    from distir.passes.sharding.problem import Problem


@dataclass(frozen=True)
class IlpShardPass(ModulePass):
    """Minimises the simulated time of one run, each stage on one stream: compute, communication and resharding, under a limit of memory
    per device at every program point.

    Within `time-limit`, the plan is the best that was found, and `dist.gap` says what is not proven; so it does of a pipeline of a large model, whose
    search ends once no other plan is faster by more than 3 % (`passes/sharding/pipeline_search.py`). `explain` writes the alternatives of values and
    what these cost, which memory constraints bind and how another plan differs to standard error, and keeps it as `dist.explanation` for the
    report of `distir simulate`. With `divide`, plans are compared first by the share of the flops and of the parameters that a device is left with,
    and by time among those (`passes/sharding/division.py`); so they are without it where the fastest plan cuts nothing. A
    note on stderr says what a faster plan takes.

    Requires: level 1 or 2 with static shapes (or shapes that fold); pins (`passes/distribution/pins.py`). Ensures:
    `dist.mesh` with the plan's `dist.seconds`, `dist.gap` (of a pipeline of many calls, those of ranks that differ) and `dist.peak_memory_bytes`; a strategy on every operation; the
    sharding of every argument and result of functions. Raises DistirError if no plan fits the limit, with the least
    memory that one needs."""

    name = "ilp-shard"
    mesh: str = ""
    """Axes and sizes, as in "dp=2,tp=4"; none: the mesh that the module names."""
    memory_limit: str = ""
    """What a device may hold, as in "28GB"; none: what the machine has."""
    machine: str = "dgx-a100"
    """A machine of `distir machines`, or a .toml file: whose costs count."""
    cost_model: str = "analytic"
    """How costs are found: analytic, distir, or a plug-in's."""
    restrict: str = ""
    """What an axis may cut, as in "dp=batch,tp=model"; none: anything."""
    shards: str = "any"
    """Which shards there may be: any, or even: of equal extents and without overlap, as DTensor and Shardy have them."""
    batch: str = ""
    """Batch dims, as in "x:0,label:0"; none: dim 0 of inputs and labels."""
    time_limit: float | None = USUAL_SECONDS
    """Seconds that the search may take; it ends before once the optimum is proven, or nearly."""
    cutoff: float | None = None
    """Seconds: a plan that takes longer is not sought; where there is no other, an error says what all take at least."""
    gap: float = 0.0
    """A plan will do of which it is proven that no other is faster by more than this share, as in 0.01; the search for the fastest ends there."""
    solver: str = "own"
    """own, or highs: one integer program."""
    explain: str = ""
    """Values, as in "w0,h", whose alternatives are said."""
    divide: bool = False
    """Whether plans are compared by what a device is left with, before they are by time."""
    schedule: str = "1f1b"
    """Of a staged program, the order of microbatches that counts: as for pipeline-schedule."""
    entry: str = "main"
    """The function that the program begins with."""

    def problem(self, ctx: Context, op: ModuleOp) -> tuple[Problem, Deadline]:
        """What is to be solved, and until when."""
        from distir.dialects.errors import DistirError
        from distir.passes.sharding.settings import build_problem

        if self.cutoff is not None and self.cutoff <= 0:
            raise DistirError(f"cutoff: expected more than 0 seconds, got {self.cutoff:g}")
        problem, deadline = build_problem(
            ctx,
            op,
            self.mesh,
            self.machine,
            self.cost_model,
            self.batch,
            self.restrict,
            self.shards,
            self.entry,
            self.time_limit,
            self.schedule,
        )
        if self.cutoff is not None:
            problem.cutoff = self.cutoff
        if not 0 <= self.gap < 1:
            raise DistirError(f"gap: expected a share from 0 to less than 1, got {self.gap:g}")
        problem.enough = max(problem.enough, self.gap)
        return problem, deadline

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.passes.sharding.divided_search import best_division
        from distir.passes.sharding.explain import EXPLANATION, explanation
        from distir.passes.sharding.settings import memory_limit, write

        problem, deadline = self.problem(ctx, op)
        limit = memory_limit(self.memory_limit, problem)
        result, note = best_division(problem, limit, deadline, self.solver, self.divide)
        if note:
            print(f"distir: note: ilp-shard: {note}", file=sys.stderr)
        if self.explain:
            lines = explanation(problem, result, self.explain.split(","), limit, deadline)
            print("\n".join(lines), file=sys.stderr)
            op.attributes[EXPLANATION] = ArrayAttr([StringAttr(line) for line in lines])
        write(problem, result)
