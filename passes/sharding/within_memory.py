"""The fastest plan within a limit of memory, where the fastest plan of all exceeds it. In go a problem and the
limit; out come the best plan found and a bound of all others.

Memory is priced first (`pricing`): that bounds the time of every plan within the limit, and plans found on the way are close to the
bound. Choices that no plan between the two makes are ruled out, and sparse elimination finds the optimum among those that are left, with memory at
each point as a resource. Where too many are left for it, they are parted by what large values hold
(`branching`), until bounds meet. Where few are left, variables that hold no memory at the points in question are eliminated, and the others
are a small integer program (`table_program`). Its solution is walked; where it exceeds the limit at further points, these are
constrained too, and the program is posed again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import inf

from distir.passes.sharding.branching import Branching
from distir.passes.sharding.choice_network import ChoiceNetwork
from distir.passes.sharding.knapsack_weights import KnapsackWeights, Uncounted
from distir.passes.sharding.least_memory import Least
from distir.passes.sharding.memory import Footprint
from distir.passes.sharding.pricing import EXACT, Found, Pricing
from distir.passes.sharding.primal_heuristic import add_heuristic_plan
from distir.passes.sharding.problem import SOUGHT
from distir.passes.sharding.relaxation import Relaxation
from distir.passes.solver.bounds import Bounds
from distir.passes.solver.deadline import NEVER, Deadline, OutOfTime
from distir.passes.solver.elimination import Network, Table
from distir.passes.solver.sparse_elimination import Resource, cheapest_within
from distir.passes.solver.sparse_tables import TooManyRows
from distir.passes.solver.table_program import TableProgram

PRICES = 30
"""Prices that are tried before the rest is left to the integer program."""
SWEEPS = 20
"""Passes over the network for the bounds by which choices are ruled out."""
WORTHWHILE = 0.95
"""Bounds are improved further while that leaves at most this share of the choices."""
SMALL_TABLES = 1 << 10
"""Elimination makes no larger tables for the integer program."""
LARGEST_PROGRAM = 1 << 17
"""With more entries in all tables it is not posed."""
MIDDLE_PROGRAM = 1 << 14
"""A smaller one is solved at once."""
FEW, SMALL_PROGRAM = 600, 1 << 11
"""With so few choices and entries it is solved rather than parted."""
MOST_ROWS = 1 << 21
"""Sparse elimination makes no larger tables."""
SECONDS_EACH = 1e-4
"""About what an entry takes to be posed: a program that would not be posed in time is not."""
SOLVER = 1e-7
"""To which share of the time the integer program is solved."""
ROUNDS = 60
"""Integer programs that are solved at most."""


class WithinMemory:
    """One search."""

    def __init__(self, choices: ChoiceNetwork, limit: int, deadline: Deadline = NEVER, enough: float = EXACT):
        """A plan of which the bound is short by at most the share `enough` will do."""
        self.relaxation = Relaxation(choices)
        self.pricing = Pricing(self.relaxation, limit, deadline, max(EXACT, SOUGHT * enough))
        self._enough = enough
        self.is_infeasible = False
        self.least: Least | None = None
        """The plan that needs least, if it was sought because prices led to none within the limit."""
        self._is_ended = False

    def search(self, fastest: list[int], memory: Footprint | None = None, lower: float | None = None) -> Found | None:
        """A fastest plan, starting from one that is fastest without a limit, or of which only a bound `lower` is known, and what it holds, if that is known; None if
        there is none (`is_infeasible`), or the method did not find one (in time). Afterwards `lower` bounds the time of all."""
        cost = self.pricing.add(fastest, memory).cost
        self.pricing.lower = cost if lower is None else lower
        with suppress(OutOfTime):
            self._search()
        return self.pricing.best

    def _search(self) -> None:
        pricing = self.pricing
        if not pricing.improve(PRICES):
            return
        if pricing.best is None:
            self.least = add_heuristic_plan(pricing)
            self.is_infeasible = self.least is not None and self.least.lower_bytes > pricing.limit
            if self.is_infeasible:
                return
        if pricing.is_enough or self._is_near():
            return
        self._narrow()
        if not pricing.improve(PRICES):
            return
        self._solve(MIDDLE_PROGRAM)
        self._eliminate()
        if pricing.best is not None and not pricing.is_enough:
            kept, prices = self.relaxation.kept, pricing.prices
            Branching(pricing, self._finish, self._cross).run()
            pricing.enter(kept, pricing.lower, prices)
            self._narrow()
            self._eliminate()
        for _ in range(ROUNDS):
            pricing.deadline.check()
            if pricing.is_enough or not self._solve():
                break

    def _is_near(self) -> bool:
        """Whether a plan will do that is near enough for its bound, which prices raise no more: where one need not be proven the best (GPT-3, D128 T8 on 1,024 H100: 14.51 s
        after 12 s, and 14.50 s after two minutes, of at least 14.35)."""
        if self._enough <= EXACT or self.pricing.best is None:
            return False
        self._cross()
        return self.pricing.short <= self._enough

    def _cross(self) -> None:
        """Looks for a plan that makes for each variable what some plan found so far does: memory is filled by what they save here and there."""
        import numpy as np

        pricing = self.pricing
        made = [np.array(sorted(set(choices))) for choices in zip(*(one.choices for one in pricing.every), strict=True)]
        with pricing.among(made, pricing.prices):
            self._solve(MIDDLE_PROGRAM)

    def _finish(self) -> bool:
        """Ends a part with few choices by integer programs; whether it did."""
        if self.relaxation.size > FEW:
            return False
        for _ in range(ROUNDS):
            if not self._solve(SMALL_PROGRAM):
                break
        return self._is_ended

    @property
    def is_proven(self) -> bool:
        """Whether no plan within the limit is faster than the one found."""
        return self.pricing.is_closed

    @property
    def lower(self) -> float:
        """Picoseconds that a plan within the limit takes at least."""
        return self.pricing.lower

    def _narrow(self) -> None:
        """Rules out choices until bounds hardly rule out more."""
        if self.pricing.best is None:
            return
        left = inf
        while not self.pricing.is_enough and self.relaxation.size < WORTHWHILE * left:
            left = self.relaxation.size
            self.pricing.narrow(SWEEPS)

    def _eliminate(self) -> None:
        """Finds the fastest plan by sparse elimination with memory as resources, if few combinations are left between the bounds."""
        pricing = self.pricing
        while pricing.best is not None and not pricing.is_enough:
            known = len(self.relaxation.points)
            try:
                chosen = self._among_rows(pricing.best.cost)
            except TooManyRows:
                return
            found = None if chosen is None else pricing.add(self.relaxation.original(chosen))
            is_fitting = found is None or found.memory.peak_bytes <= pricing.limit
            pricing.lower = max(
                pricing.lower, pricing.best.cost if found is None else min(found.cost, pricing.best.cost)
            )
            if is_fitting or len(self.relaxation.points) == known:
                return

    def _among_rows(self, most: float) -> list[int] | None:
        """The choices of a fastest plan within the limit at the points known so far, if it costs at most so much. Raises TooManyRows."""
        pricing = self.pricing
        network, held, wide = self._eliminated()
        for numbers, of_point in zip(held, wide, strict=True):
            numbers += [n for each in of_point if not _is_told(network, each.amounts) for n in each.least]
        prices = [price / pricing.limit for price in pricing.prices]
        for price, numbers in zip(prices, held, strict=True):
            for table in (network.limited[number] for number in numbers if price):
                network.add(Table(table.scope, table.classes, table.costs * price))
        most = (most + sum(pricing.prices)) * (1 + EXACT)
        bounds = Bounds(network)
        bounds.improve(SWEEPS, pricing.deadline)
        bounds.write()
        network.keep({v: (bound + network.settled <= most).nonzero()[0] for v, bound in bounds.with_choice.items()})
        resources = [
            Resource(
                [network.limited[number] for number in numbers],
                pricing.limit,
                price,
                [each.amounts.counted(network, each.count) for each in of_point if _is_told(network, each.amounts)],
            )
            for price, numbers, of_point in zip(prices, held, wide, strict=True)
        ]
        return cheapest_within(network, most, MOST_ROWS, resources, pricing.deadline)

    def _eliminated(self) -> tuple[Network, list[list[int]], list[list[Uncounted]]]:
        """Costs of what is left, few variables eliminated; per point the numbers of limited tables, and what has too many combinations for one.
        No variable on which that depends is eliminated."""
        network, held, occupied = self.relaxation.limited_apart()
        told = {o: KnapsackWeights.beside(network, self.relaxation, o) for of_point in occupied for o in of_point}
        least = [
            {o: self.relaxation.add_least(network, o, count) for o, count in of_point.items()} for of_point in occupied
        ]
        network.drop_dominated(self.pricing.deadline)
        network.eliminate(SMALL_TABLES, deadline=self.pricing.deadline)
        wide: list[list[Uncounted]] = []
        for numbers, of_point, at_least in zip(held, occupied, least, strict=True):
            wide.append([])
            for occupancy, count in of_point.items():
                amounts = told[occupancy]
                table = None if _is_told(network, amounts) else amounts.table(network, count)
                if table is None:
                    wide[-1].append(Uncounted(amounts, count, at_least[occupancy]))
                else:
                    numbers.append(network.add_limited(table))
        return network, held, wide

    def _solve(self, most_cells: int = LARGEST_PROGRAM) -> bool:
        """Solves the integer program of the points known so far, unless it is larger; whether another one is to be solved."""
        pricing, self._is_ended = self.pricing, True
        network, numbers, wide = self._eliminated()
        for of_point, uncounted in zip(numbers, wide, strict=True):
            of_point += [number for each in uncounted for number in each.least]
        if not network.drop_impossible():
            self.is_infeasible = pricing.best is None
            return False
        tables = (*(t.costs.size for t in network.tables), *(t.size for t in network.implicit_tables))
        limited = {(t.scope, t.costs.shape): t.costs.size for t in network.limited.values()}
        cells = sum(tables) + sum(limited.values())
        if cells > most_cells or cells * SECONDS_EACH > pricing.deadline.left:
            self._is_ended = False
            return False
        most = inf if pricing.best is None else pricing.best.cost * (1 + EXACT)
        program = TableProgram(network, numbers, pricing.limit, pricing.lower, most, pricing.deadline)
        known = len(self.relaxation.points)
        while True:
            chosen, bound = program.solve()
            pricing.lower = max(pricing.lower, min(bound, most))
            if chosen is None:
                self.is_infeasible = bound == inf and most == inf
                return False
            decided = network.decided(chosen)
            assert decided is not None
            found = pricing.add(self.relaxation.original(decided))
            if found.memory.peak_bytes <= pricing.limit:
                if bound > found.cost * (1 - SOLVER):
                    pricing.lower = max(pricing.lower, found.cost)
                return False
            pricing.deadline.check()
            if len(self.relaxation.points) > known:
                return True
            (point,) = found.memory.worst(pricing.limit, 1)
            number = self.relaxation.points.index(point)
            if not _count_what_is_held(program, network, number, wide[number]):
                program.forbid(chosen)


def _is_told(network: Network, amounts: KnapsackWeights) -> bool:
    """Whether a table of costs has all choices that memory depends on."""
    return any(set(amounts.scope) <= set(table.scope) for table in network.implicit_tables)


def _count_what_is_held(program: TableProgram, network: Network, point: int, wide: Sequence[Uncounted]) -> bool:
    """Counts at a point what the last solution holds there beyond what the program has counted so far; whether there is any."""
    is_more = False
    for value, each in enumerate(wide):
        if (more := each.beyond_least(network, program.positions)) > 0:
            is_more |= program.count(point, value, each.amounts.scope, each.amounts.classes(network), more)
    return is_more
