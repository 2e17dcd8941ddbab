"""The least memory that a plan needs: what a limit that nothing fits could be raised to. In goes a choice network;
out come a lean plan and a memory lower bound. Points are weighted so that the least weighted memory of any plan, a
lower bound of its peak, is as large as can be, by cutting planes as in `pricing`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distir.passes.sharding.choice_network import ChoiceNetwork
from distir.passes.sharding.memory import Footprint, footprint
from distir.passes.sharding.plans import ShardingPlan
from distir.passes.sharding.pricing import POINTS_AT_ONCE
from distir.passes.sharding.relaxation import Relaxation
from distir.passes.solver.bounds import minimum
from distir.passes.solver.deadline import NEVER, Deadline

ROUNDS = 30
TIE_BREAK = 1e-4
"""Bytes that the first plan's time counts for."""
CLOSE = 1e-6
"""Bounds that differ by a smaller share have met."""


@dataclass
class Least:
    """The plan that was found to need least."""

    choices: list[int]
    plan: ShardingPlan
    memory: Footprint
    lower_bytes: int
    """No plan needs less."""

    @property
    def is_proven(self) -> bool:
        return self.memory.peak_bytes <= self.lower_bytes


def least_memory(
    choices: ChoiceNetwork, start: Sequence[Sequence[int]], enough_bytes: int = 0, deadline: Deadline = NEVER
) -> Least:
    """Searches from some plans, given by their choices. A plan that needs no more than `enough_bytes` ends the search."""
    time = choices.network.cost(start[0]) or 1.0
    relaxation = Relaxation(choices, TIE_BREAK / time)
    found: list[Sequence[int]] = []
    best: Least | None = None
    lower, new = 0.0, start
    for _ in range(ROUNDS):
        for decided in new:
            plan = choices.plan(decided)
            memory = footprint(choices.problem, plan)
            found.append(decided)
            if best is None or memory.peak_bytes < best.memory.peak_bytes:
                best = Least(list(decided), plan, memory, 0)
            for point in memory.worst(int(lower), POINTS_AT_ONCE):
                if point not in relaxation.points:
                    relaxation.add_point(point)
        assert best is not None
        if best.memory.peak_bytes <= enough_bytes or deadline.is_over:
            break
        scale = float(best.memory.peak_bytes or 1)
        weights, promised = _weights(relaxation, found, scale)
        if best.memory.peak_bytes <= lower * (1 + CLOSE) or promised <= lower * (1 + CLOSE):
            break
        network = relaxation.network(weights)
        solved = minimum(network.copy(), deadline)
        lower = max(lower, network.cost(solved.choices) if solved.choices and solved.is_proven else solved.lower)
        if solved.choices is None or solved.choices in found:
            break
        new = [solved.choices]
    assert best is not None
    is_met = best.memory.peak_bytes <= lower * (1 + CLOSE)
    best.lower_bytes = best.memory.peak_bytes if is_met else int(lower)
    return best


def _weights(relaxation: Relaxation, found: Sequence[Sequence[int]], scale: float) -> tuple[list[float], float]:
    """The weights that maximise the least weighted memory of the plans found so far, and that memory."""
    import pulp

    model = pulp.LpProblem("weights", pulp.LpMaximize)
    bound = model.add_variable("bound")
    weights = [model.add_variable(f"weight{i}", 0) for i in range(len(relaxation.points))]
    model.setObjective(pulp.LpAffineExpression([(bound, 1.0)]))
    for choices in found:
        sizes = [relaxation.bytes_at(i, choices) / scale for i in range(len(weights))]
        terms = [(bound, 1.0), *((weight, -size) for weight, size in zip(weights, sizes, strict=True))]
        model.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(terms), pulp.LpConstraintLE, rhs=0.0))
    total = pulp.LpAffineExpression([(weight, 1.0) for weight in weights])
    model.addConstraint(pulp.LpConstraint(total, pulp.LpConstraintEQ, rhs=1.0))
    model.solve(pulp.HiGHS(msg=False))
    return [max(0.0, weight.value() or 0.0) for weight in weights], (bound.value() or 0.0) * scale
