"""An integer linear program for the rest of a problem with a limit of memory, after bounds and elimination. In goes
the network of the variables that are left; out come their cheapest choices and a lower bound. A binary variable per
choice, and per table a continuous one for each combination of its classes, with the choices as marginals. Costs and
memory are linear in them (the local polytope of the network, with a row of memory per program point)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

from distir.passes.solver.deadline import NEVER, Deadline
from distir.passes.solver.elimination import Network, Table

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

LARGEST = 1000.0
"""Costs in the program are at most about this: the solver's tolerances are absolute."""

LEAST_SECONDS = 0.1
"""The solver gets at least so much."""

Terms = list[tuple[Any, float]]


class TableProgram:
    """The program of a network's variables that are left."""

    def __init__(
        self,
        network: Network,
        limited: Sequence[Sequence[int]],
        limit: float,
        least: float,
        most: float,
        deadline: Deadline = NEVER,
    ):
        """`limited` are, per point, the numbers of the limited tables that count there; solutions cost between `least` and
        `most`."""
        import pulp

        self._network, self._least, self._deadline = network, least, deadline
        self._scale = LARGEST / max(abs(most if most < inf else least), 1e-300)
        self.model: Any = pulp.LpProblem("tables", pulp.LpMinimize)
        self._count = 0
        self.positions: dict[int, int] = {}
        """What the last solution has chosen, by position among what is left."""
        self._chosen = {v: self._binaries(len(network.own[v])) for v in network.left}
        self._classes: dict[tuple[int, bytes], list[Any]] = {}
        self._cells: dict[tuple[tuple[int, ...], tuple[bytes, ...]], Array] = {}
        tables = [*network.tables, *(Table(*wide.written()) for wide in network.implicit_tables)]
        costs: Terms = [
            (x, float(c)) for v in network.left for x, c in zip(self._chosen[v], network.own[v], strict=True)
        ]
        for table in tables:
            costs += self._terms(table)
        self._costs = [(x, c * self._scale) for x, c in costs if c]
        self._counted: set[tuple[int, int, tuple[int, ...]]] = set()
        self._limit = limit
        self._held = [[t for number in numbers for t in self._terms(network.limited[number])] for numbers in limited]
        for terms in self._held:
            self._limited_row(terms)
        if most < inf:
            self._row(self._costs, "<=", (most - network.settled) * self._scale)
        objective = _expression(self._costs)
        self._constant, objective.constant = objective.constant + network.settled * self._scale, 0.0
        self.model.setObjective(objective)

    # --- solution ---

    def solve(self) -> tuple[dict[int, int] | None, float]:
        """The choice of every variable that is left in a cheapest solution, None if there is none (or none was found in
        time), and a lower bound of its cost."""
        import pulp

        seconds = None if self._deadline.is_never else max(LEAST_SECONDS, self._deadline.left)
        self.model.solve(pulp.HiGHS(msg=False, gapRel=0.0, timeLimit=seconds))
        info = self.model.solverModel.getInfo()
        if pulp.LpStatus[self.model.status] == "Infeasible":
            return None, inf
        bound = max(self._least, (self._constant + info.mip_dual_bound) / self._scale)
        if info.primal_solution_status != 2:
            return None, bound
        for v, xs in self._chosen.items():
            values = [_value(x) for x in xs]
            self.positions[v] = values.index(max(values))
        chosen = {v: self._network.original(v, i) for v, i in self.positions.items()}
        if pulp.LpStatus[self.model.status] == "Optimal":
            bound = max(bound, (self._constant + info.objective_function_value) / self._scale)
        return chosen, bound

    def forbid(self, chosen: Mapping[int, int]) -> None:
        """Rules out one solution."""
        xs = [
            x for v, xs in self._chosen.items() for i, x in enumerate(xs) if self._network.original(v, i) == chosen[v]
        ]
        self._row([(x, 1.0) for x in xs], "<=", len(xs) - 1.0)

    def count(self, point: int, value: int, scope: Sequence[int], classes: Sequence[Array], more: float) -> bool:
        """Counts so many more bytes of a value at a point, both by number, wherever choices of these variables are of the classes that those of
        the last solution are; False if it does."""
        combination = point, value, tuple(int(c[self.positions[v]]) for v, c in zip(scope, classes, strict=True))
        if combination in self._counted:
            return False
        self._counted.add(combination)
        self._count += 1
        z = self.model.add_variable(f"z{self._count}", 0, 1)
        terms: Terms = [(z, -1.0)]
        for v, of_choices in zip(scope, classes, strict=True):
            alike = (of_choices == of_choices[self.positions[v]]).tolist()
            terms += [(x, 1.0) for x, is_uniform in zip(self._chosen[v], alike, strict=True) if is_uniform]
        self._row(terms, "<=", len(scope) - 1.0)
        self._held[point].append((z, more))
        self._limited_row(self._held[point])
        return True

    # --- variables ---

    def _limited_row(self, terms: Terms) -> None:
        self._row([(x, size / self._limit) for x, size in terms], "<=", 1.0)

    def _binaries(self, count: int) -> list[Any]:
        if count == 1:
            return [1.0]
        xs: list[Any] = []
        for _ in range(count):
            self._count += 1
            xs.append(self.model.add_variable(f"x{self._count}", 0, 1, cat="Binary"))
        self._row([(x, 1.0) for x in xs], "==", 1.0)
        return xs

    def _of_classes(self, variable: int, classes: Array) -> list[Any]:
        """Per class of a variable's choices, the expression that is 1 if one of them is chosen."""
        key = variable, classes.tobytes()
        if key not in self._classes:
            xs = self._chosen[variable]
            members = [
                [xs[i] for i, c in enumerate(classes) if c == number] for number in range(int(classes.max()) + 1)
            ]
            self._classes[key] = [
                found[0] if len(found) == 1 else _expression([(x, 1.0) for x in found]) for found in members
            ]
        return self._classes[key]

    def _terms(self, table: Table) -> Terms:
        """The table's value as a linear expression."""
        import numpy as np

        self._deadline.check()
        if len(table.scope) == 1:
            marginals = self._of_classes(table.scope[0], table.classes[0])
            return [(x, float(c)) for x, c in zip(marginals, table.costs, strict=True) if c]
        key = table.scope, tuple(c.tobytes() for c in table.classes)
        if key not in self._cells:
            self._cells[key] = np.empty(table.costs.shape, dtype=object)
            marginals = [self._of_classes(v, c) for v, c in zip(table.scope, table.classes, strict=True)]
            cells = self._cells[key]
            for index in product(*map(range, table.costs.shape)):
                self._count += 1
                cells[index] = self.model.add_variable(f"z{self._count}", 0, 1)
            for axis, chosen in enumerate(marginals):
                for number, x in enumerate(chosen):
                    some = np.take(cells, number, axis).reshape(-1).tolist()
                    self._row([*((z, 1.0) for z in some), (x, -1.0)], "==", 0.0)
        found: Terms = []
        for z, c in zip(self._cells[key].reshape(-1), table.costs.reshape(-1).tolist(), strict=True):
            if c == inf:
                z.upBound = 0
            elif c:
                found.append((z, c))
        return found

    def _row(self, terms: Terms, sense: str, bound: float) -> None:
        import pulp

        code = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}[sense]
        self.model.addConstraint(pulp.LpConstraint(_expression(terms), code, rhs=bound))


def _expression(terms: Terms) -> Any:
    """A linear expression of variables, numbers and expressions."""
    import pulp

    found = pulp.LpAffineExpression()
    for x, weight in terms:
        found += x * weight
    return found


def _value(x: Any) -> float:
    return x if isinstance(x, float) else float(x.value() or 0.0)
