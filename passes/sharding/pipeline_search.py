"""The plan of several stages whose schedule ends first: in goes a problem; out come the plan, its makespan, and a bound of all others.

The makespan is the largest of sums along paths (`pipeline_time`). Any mixture of paths whose shares add up to 1 bounds it from below, and costs
along a mixture add up, so the plan that costs least along it bounds all plans. The mixture that bounds best is found by cutting planes
(Kelley, 1960), as prices of memory are: plans found so far say which mixture promises most, and the longest path of each new plan joins. What is
tried lies between that mixture and the one that bounds best so far (in-out separation; Ben-Ameur & Neto, 2007): a stage that is on no path of a
mixture has no costs, and plans along it may do anything there. After a mixture that gave no faster plan, only the bound is left to raise, and what
is tried is the one that promises most. The first mixtures are found without regard to memory. While the bound is not near, every stage has a little of each mixture; one of those plans
is taken if it needs less memory than the best and is about as fast, unless the best is proven.
What mixtures leave open (no plan is half of one and half of another) is closed by the integer program with a row for each path, where that is small; of a large problem, a plan near its bound will do."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError
from distir.passes.sharding.choice_network import TIE_BREAK, ChoiceNetwork
from distir.passes.sharding.integer_program import Infeasible, IntegerProgram
from distir.passes.sharding.memory import Point
from distir.passes.sharding.path_weights import every_stage, weights_of
from distir.passes.sharding.pipeline_time import Path, PipelineTime
from distir.passes.sharding.plans import ShardingPlan
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.result import Result, result_of
from distir.passes.sharding.search import (
    ROUNDS,
    Solved,
    TooSlow,
    check_cutoff,
    choices_of,
    least_cost,
    solve,
    solved_within,
)
from distir.passes.solver.bounds import Bounds, Minimum
from distir.passes.solver.deadline import NEVER, Deadline, OutOfTime

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SHARES = 1 << 10
"""Shares of paths are so many parts of 1: costs stay integers."""
MIXTURES = 12
"""So many are tried at most."""
FREE = 3
"""So many at most are tried without regard to memory."""
TOWARDS = 0.75
"""How far the next mixture lies from the one that bounds best towards the one that promises most."""
PATIENCE = 2
"""After so many mixtures in a row that give neither a better bound nor a faster plan no more are tried."""
CONVERGED = 1e-5
"""A mixture is good enough if others promise a bound that is at most this share higher."""
EXACT = 1e-9
SWEEPS = 20
"""Passes over a network for the bounds by which choices are ruled out."""
SMALL = 500
"""With at most so many choices left the rest is left to the integer program."""
LARGE = 4_000
"""With more choices at first a plan is good enough if no other is faster by more than `NEAR`: more mixtures hardly ever found a faster one, and took
half of the time (`benchmarks.pipeline_gap`)."""
NEAR = 0.03
NEAR_EACH = 0.005
"""The same of the plan along one mixture within a limit of memory (GPT-3 of 16 layers in 4 stages, D4 T8 K8 on DGX-H100: 30 instead of 91 CPU-s, and
a bound within 0.021 instead of 0.29, since there is time for more mixtures)."""
STAGES = 256
"""All stages together have one part in so many of each mixture, until the bound is as near: what that weakens it by."""


class PipelineSearch:
    """One search."""

    def __init__(self, problem: Problem, limit: int | None, deadline: Deadline = NEVER, solver: str = "own"):
        self._problem, self._limit, self._deadline, self._solver = problem, limit, deadline, solver
        self._paths: list[Path] = [path for path, _ in every_stage(problem)]
        self._times: list[PipelineTime] = []
        self._best: Solved | None = None
        self._makespan = inf
        self._stages = len(self._paths)
        self._of_all: tuple[Solved | None, float] = None, inf
        """The best plan along a mixture that has all stages, and when it ends."""
        self._lower = 0.0
        self._free: tuple[list[tuple[Path, int]], ChoiceNetwork, Minimum] | None = None
        """The last mixture without regard to memory, and the plan that costs least along it."""
        self._bounding: tuple[ChoiceNetwork, int] | None = None
        """Costs along the mixture that bounds best, and how many parts 1 is of."""

    def result(self) -> Result:
        """The best plan. Raises as `best_plan` does."""
        if self._solver != "highs":
            self._mix()
        if not self._is_near and not self._is_large:
            try:
                self._close()
            except (OutOfTime, DistirError):
                if self._best is None:
                    raise
        bound = None if self._is_closed else self._lower * 1e-12
        assert self._best is not None
        best, (of_all, makespan) = self._best, self._of_all
        is_about_as_fast = not self._is_closed and makespan <= self._makespan * (1 + 1 / STAGES)
        if of_all is not None and is_about_as_fast and of_all.memory.peak_bytes < best.memory.peak_bytes:
            best = of_all
        return result_of(self._problem, best.plan, bound, best.memory, best.binding, best.prices)

    @property
    def _is_closed(self) -> bool:
        return self._best is not None and self._makespan - self._lower <= EXACT * self._makespan

    @property
    def _is_large(self) -> bool:
        return self._bounding is not None and self._bounding[0].network.size > LARGE

    @property
    def _enough(self) -> float:
        return max(NEAR, self._problem.enough) if self._is_large else self._problem.enough

    @property
    def _is_near(self) -> bool:
        return self._best is not None and self._makespan - self._lower <= self._enough * self._makespan

    def _mix(self) -> None:
        shares: Sequence[int] = [SHARES // len(self._paths)] * len(self._paths)
        if self._limit is not None:
            shares = self._without_limit(shares)
        centre, in_vain = shares, 0
        for _ in range(MIXTURES):
            lower, makespan = self._lower, self._makespan
            try:
                self._solve(shares)
            except TooSlow:
                raise
            except (OutOfTime, DistirError):
                if self._best is None:
                    raise
                break
            if self._lower > lower:
                centre = shares
            in_vain = 0 if self._lower > lower or self._makespan < makespan else in_vain + 1
            check_cutoff(self._problem, self._lower * 1e-12)
            if self._is_closed or self._is_near or self._deadline.is_over or in_vain == PATIENCE:
                break
            promising, promised = self._next_shares()
            middle = [*centre, *[0] * (len(promising) - len(centre))]
            towards = TOWARDS if self._makespan < makespan else 1.0
            shares = [round(towards * new + (1 - towards) * old) for new, old in zip(promising, middle, strict=True)]
            if self._makespan - self._lower > self._makespan / STAGES:
                shares = self._with_every_stage(shares)
            if promised <= self._lower * (1 + CONVERGED):
                break

    def _without_limit(self, shares: Sequence[int]) -> Sequence[int]:
        """A mixture that bounds well, by plans without regard to memory: these are found sooner, and say as well that all take too long."""
        for _ in range(FREE):
            mixture, total = self._mixture(shares)
            choices = choices_of(self._problem, self._deadline, weights_of(self._problem, mixture))
            found = choices.minimum(self._deadline.without_plan)
            self._free = mixture, choices, found
            if found.choices is None:
                break
            self._bound(choices, least_cost(choices, found), total)
            check_cutoff(self._problem, self._lower * 1e-12)
            self._note(PipelineTime(self._problem, choices.plan(found.choices)))
            promising, promised = self._next_shares()
            if promised <= self._lower * (1 + NEAR) or self._deadline.is_over:
                break
            shares = self._with_every_stage(promising)
        return [*shares, *[0] * (len(self._paths) - len(shares))]

    def _with_every_stage(self, shares: Sequence[int]) -> list[int]:
        """A mixture of which every stage has a little."""
        least = max(1, SHARES // STAGES // self._stages)
        return [*(max(share, least) for share in shares[: self._stages]), *shares[self._stages :]]

    def _mixture(self, shares: Sequence[int]) -> tuple[list[tuple[Path, int]], int]:
        """Paths with their shares, and how many parts 1 is of."""
        mixture = [(path, share) for path, share in zip(self._paths, shares, strict=True) if share]
        return mixture, sum(share for _, share in mixture)

    def _solve(self, shares: Sequence[int]) -> None:
        """The plan that costs least along a mixture of paths."""
        mixture, total = self._mixture(shares)
        if self._free is not None and self._free[0] == mixture:
            _, choices, known = self._free
        else:
            choices, known = choices_of(self._problem, self._deadline, weights_of(self._problem, mixture)), None

        def cost(plan: ShardingPlan) -> float:
            time = PipelineTime(self._problem, plan)
            return sum(share * time.along(path) for path, share in mixture)

        enough = max(self._problem.enough, NEAR_EACH if choices.network.size > LARGE else EXACT)
        is_first = self._best is None
        found = solve(choices, self._limit, self._deadline, self._solver, cost, is_first, enough, total, known)
        self._bound(choices, cost(found.plan) if found.lower is None else found.lower, total)
        self._add(found, all(shares[: self._stages]))

    def _bound(self, choices: ChoiceNetwork, lower: float, total: int) -> None:
        """Takes note of what plans cost at least along a mixture of so many parts."""
        if lower / total > self._lower or self._bounding is None:
            self._lower, self._bounding = max(self._lower, lower / total), (choices, total)

    def _note(self, time: PipelineTime) -> int:
        """Takes note of a plan's longest path, and returns its makespan."""
        makespan, path = time.longest()
        self._times.append(time)
        if path not in self._paths:
            self._paths.append(path)
        return makespan

    def _add(self, found: Solved, is_of_all: bool = False) -> None:
        makespan = self._note(PipelineTime(self._problem, found.plan))
        if makespan < self._makespan:
            self._best, self._makespan = found, makespan
        if is_of_all and makespan < self._of_all[1]:
            self._of_all = found, makespan

    def _next_shares(self) -> tuple[list[int], float]:
        """The mixture that bounds best as far as plans found so far tell, and that bound."""
        import pulp

        scale = max(1.0, self._lower)
        model = pulp.LpProblem("mixture", pulp.LpMaximize)
        bound = model.add_variable("bound")
        shares = [model.add_variable(f"share{i}", 0) for i in range(len(self._paths))]
        model.setObjective(pulp.LpAffineExpression([(bound, 1.0)]))
        for time in self._times:
            along = [time.along(path) / scale for path in self._paths]
            terms = [(bound, 1.0), *((share, -each) for share, each in zip(shares, along, strict=True))]
            model.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(terms), pulp.LpConstraintLE, rhs=0.0))
        total = pulp.LpAffineExpression([(share, 1.0) for share in shares])
        model.addConstraint(pulp.LpConstraint(total, pulp.LpConstraintEQ, rhs=1.0))
        model.solve(pulp.HiGHS(msg=False))
        return [round(SHARES * max(0.0, s.value() or 0.0)) for s in shares], (bound.value() or 0.0) * scale

    def _left(self) -> list[Array] | None:
        """For each variable, which of its choices a better plan may make; None if nothing is known."""
        import numpy as np

        if self._bounding is None:
            return None
        choices, total = self._bounding
        bounds = Bounds(choices.network.copy())
        bounds.improve(SWEEPS, self._deadline)
        most = self._makespan * total * (1 + EXACT) + TIE_BREAK
        found = [np.ones(len(costs), dtype=bool) for costs in choices.own[: choices.count]]
        for v, bound in bounds.with_choice.items():
            if v < choices.count:
                found[v] = bound <= most
        return found

    def _close(self) -> None:
        """Solves the integer program with a row for each path, until the longest path of its plan is one of them, if few choices are left."""
        left = self._left()
        if left is not None and sum(int(each.sum()) for each in left if each.sum() > 1) > SMALL:
            return
        constrained: list[Point] = []
        for _ in range(ROUNDS):
            networks = [
                choices_of(self._problem, self._deadline, weights_of(self._problem, [(path, 1)]))
                for path in self._paths
            ]
            for costs, is_left in zip(networks[0].own, left or (), strict=False):
                costs[~is_left] = inf
            program = IntegerProgram(networks[0], self._deadline, networks[1:])
            if self._limit is not None:
                for point in constrained:
                    program.limit(point, self._limit)
            known = len(self._paths)
            for _ in range(ROUNDS):
                if known < len(self._paths):
                    break
                try:
                    solution, plan, memory = solved_within(program, self._limit, constrained)
                except Infeasible:
                    if self._best is None:
                        raise
                    self._lower = self._makespan
                    return
                self._lower = max(self._lower, min(solution.lower, self._makespan))
                if plan is not None:
                    self._add(Solved(plan, None, memory, constrained))
                if self._makespan <= self._lower * (1 + EXACT):
                    self._lower = self._makespan
                    return
                if plan is not None and known == len(self._paths):
                    program.forbid(solution.choices)
            else:
                return  # along the paths that are known these plans take less than they do: another program would forbid the same
