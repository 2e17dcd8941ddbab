"""Takes a problem; gives what toulbar2, a solver of weighted constraints that shares no code with ours, says of its optimum (Hurley et al.,
"Multi-language evaluation of exact solvers in graphical model discrete optimization", 2016)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from distir.passes.sharding.choice_network import ChoiceNetwork
from distir.passes.sharding.memory import footprint
from distir.passes.sharding.plans import picoseconds
from distir.passes.sharding.relaxation import Relaxation
from distir.passes.solver.elimination import Network, Table

LARGEST = 1 << 20
"""Entries of the largest cost function that is written down."""


class Unsolved(Exception):
    """The oracle does not answer: a cost function is too large, or its bound does not meet its cost in time."""


def fastest(choices: ChoiceNetwork, limit: int | None, seconds: int = 20) -> int | None:
    """Picoseconds of a fastest plan within a limit of memory, as its plan adds up; None if there is none. Points are constrained once a
    solution exceeds the limit there. Raises Unsolved."""
    relaxation = Relaxation(choices)
    while True:
        network, numbers, wide = relaxation.limited_apart()
        if any(wide):
            raise Unsolved
        found = _solved(network, numbers, limit or 0, seconds)
        if found is None:
            return None
        plan = choices.plan(relaxation.original(found))
        memory = footprint(choices.problem, plan)
        if limit is None or memory.peak_bytes <= limit:
            return picoseconds(choices.problem, plan)
        new = [point for point in memory.worst(limit, 4) if point not in relaxation.points]
        assert new, "memory is counted as less than it is"
        for point in new:
            relaxation.add_point(point)


def _solved(network: Network, numbers: list[list[int]], limit: int, seconds: int) -> list[int] | None:
    import pytoulbar2

    tables = [*network.tables, *(Table(*wide.written()) for wide in network.implicit_tables)]
    top = 1 + round(sum(float(t[np.isfinite(t)].max(initial=0)) for t in (*network.own, *(t.costs for t in tables))))
    cfn: Any = pytoulbar2.CFN(top)
    for v, own in enumerate(network.own):
        cfn.AddVariable(f"x{v}", [f"v{i}" for i in range(len(own))])
        cfn.AddFunction([f"x{v}"], _integers(own, top))
    for table in tables:
        cfn.AddFunction([f"x{v}" for v in table.scope], _integers(_spread(table), top))
    for point, of_point in enumerate(numbers):
        taken: Counter[tuple[str, int]] = Counter()
        left = limit
        for number in of_point:
            table = network.limited[number]
            least = int(table.costs.min())
            left -= least
            if len(table.scope) == 1:
                sizes = table.costs[table.classes[0]]
                taken.update({(f"x{table.scope[0]}", i): int(s) - least for i, s in enumerate(sizes)})
                continue
            held, index = np.unique(_spread(table), return_inverse=True)
            name = f"p{point}t{number}"
            cfn.AddVariable(name, [f"v{i}" for i in range(len(held))])
            is_right = index.reshape(-1)[:, None] == np.arange(len(held))
            cfn.AddFunction([*(f"x{v}" for v in table.scope), name], _integers(np.where(is_right, 0, np.inf), top))
            taken.update({(name, i): int(s) - least for i, s in enumerate(held)})
        if left < 0:
            return None
        if terms := [(*choice, size) for choice, size in taken.items() if size]:
            cfn.AddGeneralizedLinearConstraint(terms, "<=", left)
    found = cfn.Solve(timeLimit=seconds)
    if found is None:
        if cfn.GetDDualBound() < top:
            raise Unsolved
        return None
    assignment = [int(i) for i in found[0][: len(network.own)]]
    assert abs(network.cost(assignment) - found[1]) <= len(tables) + len(network.own)  # each is rounded
    if round(cfn.GetDDualBound()) != round(found[1]):
        raise Unsolved
    return assignment


def _spread(table: Table) -> np.ndarray:
    """Costs by choices instead of classes."""
    if np.prod([float(len(c)) for c in table.classes]) > LARGEST:
        raise Unsolved
    return table.costs[np.ix_(*table.classes)]


def _integers(costs: np.ndarray, top: int) -> list[int]:
    return [top if np.isinf(cost) else round(float(cost)) for cost in costs.reshape(-1)]
