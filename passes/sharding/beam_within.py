"""Beam search within a limit of memory (Lagrangian relaxation). In go a problem, a width and a limit; out comes the
best plan found. Where the first beam's plan exceeds the limit, further beams give a byte at the peak to come
(`memory_lookahead`) a price in time: nothing at first, then more."""

from __future__ import annotations

from distir.passes.sharding.beam import Beam, NoPlan
from distir.passes.sharding.memory_lookahead import Limit, MemoryLookahead
from distir.passes.sharding.plans import picoseconds
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.result import Result
from distir.passes.solver.deadline import NEVER, Deadline, OutOfTime

PRICES = (0.0, 0.1, 0.5, 2.0, 8.0)
"""Of as many bytes as the limit, in times of the plan found without it."""


def beam_plan(
    problem: Problem, width: int | None, memory_limit: int | None = None, deadline: Deadline = NEVER
) -> Result:
    """The best plan that a beam of this width finds. Prices rise until they make plans slower, or the deadline has passed. Raises NoPlan if none
    of the plans found fits the limit, OutOfTime if none was found in time."""
    if problem.carried:
        raise NoPlan("a beam does not search programs with microbatches: use ilp-shard")
    free = Beam(problem, width, deadline=deadline).search()
    if memory_limit is None or free.memory.peak_bytes <= memory_limit:
        return free
    memory, picoseconds_free = MemoryLookahead(problem), picoseconds(problem, free.plan)
    best: Result | None = None
    uncounted_bytes = 0
    for price in PRICES:
        limit = Limit(memory, memory_limit, price * picoseconds_free / memory_limit, uncounted_bytes)
        try:
            found = Beam(problem, width, limit, deadline).search()
        except NoPlan as none:
            uncounted_bytes = max(uncounted_bytes, none.uncounted_bytes)
            continue
        except OutOfTime:
            if best is None:
                raise
            break
        if best is not None and found.seconds >= best.seconds:
            break
        best = found
    if best is None:
        raise NoPlan(
            f"memory-limit {memory_limit} bytes: a beam of width {width} found no plan that fits (without a limit, one of "
            f"{free.memory.peak_bytes} bytes); there may be one: widen the beam, raise memory-limit, or use ilp-shard"
        )
    return best
