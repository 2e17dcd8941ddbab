"""The one formulation (`choice_network`, and of memory `memory_tables`) as an integer linear program. In goes a
choice network; out comes its optimal solution and a bound (PuLP, solved by HiGHS).

A binary variable per choice; everything else is continuous. For each use of a value, flows from its produced state to the needed state have both
as marginals, which is the tight form of the product of two choices; a conversion is paid once per value and needed state, however many
uses need it. One body stands for all its calls, so that the size of the program does not depend on depth, and it is linear in uses. Memory is
constrained at the program points where a solution exceeds the limit; points that never do are left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from xdsl.ir import Attribute

from distir.dialects.errors import DistirError
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding.choice_network import ChoiceNetwork, CostFunction, View
from distir.passes.sharding.memory import Point
from distir.passes.sharding.memory_tables import MemoryTables, Occupancy, PointUse
from distir.passes.solver.deadline import NEVER, Deadline, OutOfTime

MICROSECONDS = 1e-6
"""The objective is in microseconds, costs are in picoseconds."""
TOLERANCE = 1e-9
"""Of the solver, for rows and for what is integral: limits of memory are large sums."""
LEAST_SECONDS = 0.1
"""The solver gets at least so much."""

ONE = -1
"""In place of a variable: the constant 1."""
Linear = list[tuple[int, float]]
"""A sum of variables, by number, with coefficients."""
Flows = dict[tuple[AxisStates, AxisStates], Linear]
"""From a produced state to a needed one: 1 if both are chosen."""


class Infeasible(DistirError):
    """No plan satisfies all constraints."""


@dataclass
class Solution:
    """A choice of every variable of the network, and what none costs less than, in picoseconds."""

    choices: list[int]
    cost: float
    lower: float


class IntegerProgram:
    """The program of one network, or of several of one problem, whose largest cost is minimised. Raises OutOfTime where it is not built in time."""

    def __init__(self, choices: ChoiceNetwork, deadline: Deadline = NEVER, others: Sequence[ChoiceNetwork] = ()):
        import pulp

        self.choices, self._deadline = choices, deadline
        self._memory = MemoryTables(choices)
        self._model: Any = pulp.LpProblem("sharding", pulp.LpMinimize)
        self._variables: list[Any] = []
        self._chosen = [self._choice(costs.tolist()) for costs in choices.own[: choices.count]]
        """Per variable of the network and choice, 1 if it is chosen."""
        self._states: dict[View, dict[AxisStates, Linear]] = {}
        self._flows: dict[tuple[Attribute, View, View], Flows] = {}
        """Per type, how a value is produced and how it is needed."""
        self._constant, terms = self._split(self._cost(choices))
        if others:
            least = self._model.add_variable("most", 0)
            for each in (choices, *others):
                constant, of_each = self._split(self._cost(each))
                row = pulp.LpAffineExpression([(least, 1.0), *((x, -c * MICROSECONDS) for x, c in of_each)])
                self._model.addConstraint(pulp.LpConstraint(row, pulp.LpConstraintGE, rhs=constant * MICROSECONDS))
            self._constant, terms = 0.0, [(least, 1 / MICROSECONDS)]
        expression = pulp.LpAffineExpression([(x, c * MICROSECONDS) for x, c in terms])
        self._model.setObjective(expression)

    def _cost(self, choices: ChoiceNetwork) -> Linear:
        found: Linear = []
        for xs, costs in zip(self._chosen, choices.own, strict=False):
            found += [(x, c * w) for x_s, c in zip(xs, costs.tolist(), strict=True) if c < inf for x, w in x_s]
        for cost_function in choices.cost_functions:
            found += self._conversions(cost_function)
        return found

    def solve(self) -> Solution:
        """Solves to proven optimality, or as far as the deadline allows. Raises Infeasible if there is no solution, OutOfTime if none was
        found."""
        import pulp

        seconds = None if self._deadline.is_never else max(LEAST_SECONDS, self._deadline.left)
        solver = pulp.HiGHS(
            msg=False,
            gapRel=0.0,
            timeLimit=seconds,
            mip_feasibility_tolerance=TOLERANCE,
            primal_feasibility_tolerance=TOLERANCE,
        )
        self._model.solve(solver)
        if pulp.LpStatus[self._model.status] == "Infeasible":
            raise Infeasible("no sharding satisfies all pins")
        info = self._model.solverModel.getInfo()
        if info.primal_solution_status != 2:
            raise OutOfTime
        values = [float(x.value() or 0.0) for x in self._variables]
        found = [self._argmax(xs, values) for xs in self._chosen]
        found += [0] * (len(self.choices.own) - len(found))
        objective = info.objective_function_value
        bound = info.mip_dual_bound if self._model.isMIP() else objective
        return Solution(
            found, self._constant + objective / MICROSECONDS, self._constant + min(objective, bound) / MICROSECONDS
        )

    def forbid(self, choices: Sequence[int]) -> None:
        """Rules out one solution."""
        terms = [term for xs, i in zip(self._chosen, choices, strict=False) for term in xs[i]]
        self._row(terms, "<=", len(self._chosen) - 1.0)

    def limit(self, point: Point, limit: int) -> None:
        """Memory at a point is within the limit."""
        tables = self._memory.at(point)
        held = [
            (x, size * w)
            for v, sizes in tables.single.items()
            for x_s, size in zip(self._chosen[v], sizes.tolist(), strict=True)
            for x, w in x_s
        ]
        for occupancy, count in tables.occupied.items():
            held += [(x, count * weight) for x, weight in self._bytes(occupancy)]
        self._row([(x, size / limit) for x, size in held], "<=", 1.0)

    # --- variables and rows ---

    def _variable(self, is_binary: bool) -> int:
        number = len(self._variables)
        cat = "Binary" if is_binary else "Continuous"
        self._variables.append(self._model.add_variable(f"x{number}", 0, 1, cat=cat))
        return number

    def _choice(self, costs: Sequence[float]) -> list[Linear]:
        """One of so many; none whose cost is infinite."""
        self._deadline.check()
        if len(costs) == 1:
            return [[(ONE, 1.0)]]
        found: list[Linear] = [[(self._variable(True), 1.0)] if cost < inf else [] for cost in costs]
        self._row([term for x in found for term in x], "==", 1.0)
        return found

    def _largest(self, candidates: Sequence[Linear]) -> Linear:
        """What is at least each of several sums, and at least 0."""
        candidates = [terms for terms in candidates if any(weight > 0 for _, weight in terms)]
        if len(candidates) == 1 and all(weight > 0 for _, weight in candidates[0]):
            return candidates[0]
        if not candidates:
            return []
        found = self._variable(False)
        for terms in candidates:
            self._row([(found, 1.0), *((x, -weight) for x, weight in terms)], ">=", 0.0)
        return [(found, 1.0)]

    def _row(self, terms: Linear, sense: str, bound: float) -> None:
        import pulp

        constant, summed = self._split(terms)
        code = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}[sense]
        if not summed and not {"<=": constant <= bound, ">=": constant >= bound, "==": constant == bound}[sense]:
            raise Infeasible("no sharding satisfies all pins")
        if summed:
            expression = pulp.LpAffineExpression(summed)
            self._model.addConstraint(pulp.LpConstraint(expression, code, rhs=bound - constant))

    def _split(self, terms: Linear) -> tuple[float, list[tuple[Any, float]]]:
        """The constant, and each variable once."""
        total: dict[int, float] = defaultdict(float)
        for x, weight in terms:
            total[x] += weight
        constant = total.pop(ONE, 0.0)
        return constant, [(self._variables[x], weight) for x, weight in total.items() if weight]

    def _argmax(self, xs: Sequence[Linear], values: Sequence[float]) -> int:
        found = [sum(w * (1.0 if x == ONE else values[x]) for x, w in terms) for terms in xs]
        return found.index(max(found))

    # --- conversions ---

    def _of_states(self, view: View) -> dict[AxisStates, Linear]:
        """For each state, 1 if it is chosen."""
        if view not in self._states:
            found: dict[AxisStates, Linear] = {}
            for x, states in zip(self._chosen[view.variable], view.states, strict=True):
                found.setdefault(states, []).extend(x)
            self._states[view] = found
        return self._states[view]

    def _conversions(self, cost_function: CostFunction) -> Linear:
        """Adds the flows of each use; what the conversions cost that any of them needs, each paid once, as often as the first use that needs it
        counts."""
        self._deadline.check()
        prices, type_ = self.choices.problem.prices, cost_function.type
        paid: dict[tuple[AxisStates, AxisStates], list[tuple[Linear, int]]] = {}
        for view, runs in zip(cost_function.needed, cost_function.runs, strict=True):
            flows = self._flow(cost_function, view) if cost_function.message is None else _sent(self._of_states(view))
            for ends, flow in flows.items():
                paid.setdefault(ends, []).append((flow, runs))
        cost: Linear = []
        for (source, target), wanting in paid.items():
            if cost_function.message is not None:
                picoseconds = prices.message(type_, target, *cost_function.message)
            else:
                conversion = prices.conversion(type_, source, target)
                assert conversion is not None
                picoseconds = conversion.picoseconds
            for weight, terms in self._firsts(wanting):
                cost += [(x, w * weight * picoseconds) for x, w in terms]
        return cost

    def _firsts(self, wanting: Sequence[tuple[Linear, int]]) -> list[tuple[int, Linear]]:
        """For 0/1 variables in order, each with a weight: sums, with weights, that add up to the weight of the first that is 1."""
        if len({runs for _, runs in wanting}) == 1:
            weight = wanting[0][1]
            return [(weight, self._largest([terms for terms, _ in wanting]))] if weight else []
        found: list[tuple[int, Linear]] = []
        before: Linear = []
        for terms, runs in wanting:
            if runs:
                found.append((runs, self._largest([[*terms, *before]])))
            before += [(x, -w) for x, w in terms]
        return found

    def _flow(self, cost_function: CostFunction, view: View) -> Flows:
        key = cost_function.type, cost_function.produced, view
        if key not in self._flows:
            self._flows[key] = self._new_flow(cost_function, view)
        return self._flows[key]

    def _new_flow(self, cost_function: CostFunction, view: View) -> Flows:
        prices, produced = self.choices.problem.prices, cost_function.produced
        found: Flows = {}
        if view.variable == produced.variable:
            for x, source, target in zip(self._chosen[view.variable], produced.states, view.states, strict=True):
                if prices.conversion(cost_function.type, source, target) is None:
                    self._row(x, "==", 0.0)
                else:
                    found.setdefault((source, target), []).extend(x)
            return found
        sources, targets = self._of_states(produced), self._of_states(view)
        leaving: dict[AxisStates, Linear] = {source: [] for source in sources}
        entering: dict[AxisStates, Linear] = {target: [] for target in targets}
        for source, x in sources.items():
            for target, y in targets.items():
                if prices.conversion(cost_function.type, source, target) is None:
                    continue
                if len(sources) == 1 or len(targets) == 1:
                    flow = y if len(sources) == 1 else x
                else:
                    flow = [(self._variable(False), 1.0)]
                found[source, target] = flow
                leaving[source] += flow
                entering[target] += flow
        for sums, chosen in ((leaving, sources), (entering, targets)):
            for states, terms in sums.items():
                self._row([*terms, *((x, -weight) for x, weight in chosen[states])], "==", 0.0)
        return found

    # --- memory ---

    def _bytes(self, occupancy: Occupancy) -> Linear:
        """What a value holds at a point."""
        cost_function, prices = self.choices.cost_functions[occupancy.cost_function], self.choices.problem.prices
        if occupancy.converted is not None:
            found: Linear = []
            for (source, target), flow in self._flow(
                cost_function, cost_function.needed[occupancy.converted - 1]
            ).items():
                conversion = prices.conversion(cost_function.type, source, target)
                assert conversion is not None
                size = conversion.last_bytes if occupancy.is_last else conversion.transient_bytes
                found += [(x, size * weight) for x, weight in flow]
            return found
        own = self._original(occupancy, cost_function) if occupancy.has_memory else {}
        return [
            (x, prices.bytes(cost_function.type, states) * weight)
            for held in (own, self._copies(occupancy, cost_function))
            for states, terms in held.items()
            for x, weight in terms
        ]

    def _flows_of(self, occupancy: Occupancy, hold: PointUse) -> Flows:
        """Of one use; of one that takes the value as it was produced, as it is."""
        cost_function = self.choices.cost_functions[occupancy.cost_function]
        if hold.view:
            return self._flow(cost_function, cost_function.needed[hold.view - 1])
        return {(states, states): x for states, x in self._of_states(cost_function.produced).items()}

    def _original(self, occupancy: Occupancy, cost_function: CostFunction) -> dict[AxisStates, Linear]:
        """Per state in which a value was produced, 1 if it is held so: until its last use in it, or the last conversion that was not made
        before; not if it lies in another's memory."""
        uses = [(hold, self._flows_of(occupancy, hold)) for hold in occupancy.holds]
        elsewhere = self._memory.elsewhere(occupancy)
        found: dict[AxisStates, Linear] = {}
        for states, x in self._of_states(cost_function.produced).items():
            reasons = [x] if occupancy.is_born else []
            for hold, flows in uses if not occupancy.is_born else ():
                if not hold.is_lasting:
                    continue
                for (source, target), flow in flows.items():
                    if source == states and target == states:
                        reasons.append([*flow, *self._goes_on(occupancy, hold, states)])
                    elif source == states and not hold.is_earlier:
                        made = [of.get((source, target), []) for other, of in uses if other.is_earlier]
                        reasons.append([*flow, *((y, -weight) for terms in made for y, weight in terms)])
            less: Linear = []
            if occupancy.returned is not None:
                less += uses[occupancy.returned][1].get((states, states), [])
            if elsewhere is not None:
                holder, is_same = elsewhere
                less += [term for there, y in self._of_states(holder).items() if is_same(there, states) for term in y]
            minus = [(y, -weight) for y, weight in less]
            found[states] = self._largest([[*reason, *minus] for reason in reasons])
        return found

    def _goes_on(self, occupancy: Occupancy, hold: PointUse, states: AxisStates) -> Linear:
        """0 if the operation for which alone a use still holds a value needs it in these states, otherwise -1."""
        if hold.progress is None:
            return []
        chosen = self._of_states(occupancy.progress[hold.progress]).get(states, [])
        return [*chosen, (ONE, -1.0)]

    def _copies(self, occupancy: Occupancy, cost_function: CostFunction) -> dict[AxisStates, Linear]:
        """Per state, 1 if a copy in it is held: from the first use that needs it to the last, unless it is returned."""
        uses = [(hold, self._flows_of(occupancy, hold)) for hold in occupancy.holds]
        found: dict[AxisStates, Linear] = {}
        is_received = occupancy.is_received
        for target in dict.fromkeys(t for _, flows in uses for s, t in flows if s != t or is_received):

            def into(flows: Flows, target: AxisStates = target) -> Linear:
                return [
                    term for (s, t), flow in flows.items() if t == target and (t != s or is_received) for term in flow
                ]

            minus: Linear = []
            if occupancy.returned is not None:
                minus = [(x, -weight) for x, weight in into(uses[occupancy.returned][1])]
            both = [
                [*terms, *self._goes_on(occupancy, hold, target)] if (terms := into(flows)) else []
                for hold, flows in uses
                if hold.is_begun and hold.is_lasting
            ]
            begun = self._largest([into(flows) for hold, flows in uses if hold.is_begun and not hold.is_lasting])
            lasting = self._largest([into(flows) for hold, flows in uses if hold.is_lasting and not hold.is_begun])
            reasons = [[*terms, *minus] for terms in both if terms]
            if begun and lasting:
                reasons.append([*begun, *lasting, (ONE, -1.0), *minus])
            found[target] = self._largest(reasons)
        return found


def _sent(states: Mapping[AxisStates, Linear]) -> Flows:
    """What is sent in each state."""
    return {(each, each): x for each, x in states.items()}
