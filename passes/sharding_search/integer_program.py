"""The best plan as an integer linear program (PuLP, solved by HiGHS), over all axes of the mesh jointly.

Binary variables choose one option per operation and one joint state per function argument and result; everything else is
continuous. For each use of a value, flows from its produced state to the needed state have both as marginals, which is the
tight form of the product of two choices; a conversion is paid once per value and needed state, however many uses need it. One
body stands for all its calls, so that the size of the program does not depend on depth. Memory is constrained at the program
points where a solution exceeds the limit (`memory_rows`); points that never do are left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding_search.plans import Plan
from distir.passes.sharding_search.problem import JointOption, Problem
from distir.passes.structure import AnyCall, is_constant, parameters

PICOSECONDS = 1e-6
"""The objective is in microseconds."""
TIE_BREAK = 1e-4
"""Microseconds for all parameters held whole rather than cut: below any difference that matters."""

States = dict[AxisStates, Any]
"""For each joint state, the linear expression that is 1 if it is chosen."""


@dataclass
class Use:
    """One use of a value, or several with the same needs."""

    operations: list[tuple[Operation, int]]
    """Operations, and which of their operands."""
    states: States
    flows: dict[tuple[AxisStates, AxisStates], Any] = field(default_factory=dict[tuple[AxisStates, AxisStates], Any])
    """From a produced state to a needed one: 1 if both are chosen."""


@dataclass
class Solution:
    """A plan, and how much better another could be."""

    plan: Plan
    seconds: float
    bound_seconds: float
    variables: int
    rows: int

    @property
    def gap(self) -> float:
        """The part of the objective that is not proven necessary; 0 is optimal."""
        return max(0.0, 1.0 - self.bound_seconds / self.seconds) if self.seconds > 0 else 0.0


class Infeasible(DistirError):
    """No plan satisfies all constraints."""


class IntegerProgram:
    """The program under construction, function by function."""

    def __init__(self, problem: Problem):
        import pulp

        self.problem = problem
        self.model: Any = pulp.LpProblem("sharding", pulp.LpMinimize)
        self.options: dict[Operation, list[Any]] = {}
        self.produced: dict[SSAValue, States] = {}
        self.uses: dict[SSAValue, list[Use]] = defaultdict(list)
        self.results: dict[str, list[States | None]] = {}
        self._cost: list[tuple[Any, float]] = []
        self._ties: list[tuple[Any, float]] = []
        self._count = 0
        self._alike: dict[object, tuple[list[Use], dict[tuple[AxisStates, AxisStates], Any]]] = {}
        for function in problem.functions:
            self._add_arguments(function)
            self._add_body(function)
        self._add_ties()
        self._constant, objective = _split(_summed([*self._cost, *self._ties]))
        self.model.setObjective(pulp.LpAffineExpression(objective))

    def solve(self, seconds_limit: float | None = None) -> Solution:
        """Solves to proven optimality, or as far as the time limit allows. Raises DistirError if there is no solution."""
        import pulp

        solver = pulp.HiGHS(msg=False, gapRel=0.0, timeLimit=seconds_limit)
        self.model.solve(solver)
        status = pulp.LpStatus[self.model.status]
        if status == "Infeasible":
            raise Infeasible("no sharding satisfies all pins")
        info = self.model.solverModel.getInfo()
        if info.primal_solution_status != 2:
            raise DistirError(f"the solver found no plan in {seconds_limit} s: allow more time ({status})")
        plan = self._plan()
        cost = sum(weight * _value(x) for x, weight in self._cost)
        extra = sum(weight * _value(x) for x, weight in self._ties)
        bound = self._constant + info.mip_dual_bound if self._count else cost + extra
        return Solution(
            plan, cost * 1e-6, min(cost, bound - extra) * 1e-6, self.model.numVariables(), self.model.numConstraints()
        )

    # --- variables ---

    def binary(self) -> Any:
        self._count += 1
        return self.model.add_variable(f"x{self._count}", 0, 1, cat="Binary")

    def continuous(self) -> Any:
        self._count += 1
        return self.model.add_variable(f"z{self._count}", 0, 1)

    def row(self, terms: Sequence[tuple[Any, float]], sense: str, bound: float) -> None:
        """Adds `sum of terms` sense bound, where a term's variable may be a number or an expression."""
        import pulp

        constant, summed = _split(_summed(terms))
        code = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}[sense]
        if summed:
            expression = pulp.LpAffineExpression(summed)
            self.model.addConstraint(pulp.LpConstraint(expression, code, rhs=bound - constant))

    def choice(self, states: Sequence[AxisStates]) -> States:
        """One of these states."""
        if len(states) == 1:
            return {states[0]: 1.0}
        chosen: States = {s: self.binary() for s in states}
        self.row([(x, 1.0) for x in chosen.values()], "==", 1.0)
        return chosen

    # --- functions ---

    def _add_arguments(self, function: FuncOp) -> None:
        alike: dict[object, States] = {}
        for argument in function.body.block.args:
            candidates = self.problem.arguments[argument]
            passed_on = self.problem.passed_on(argument)
            key = (argument.type, tuple(candidates), passed_on)
            if passed_on is None or key not in alike:
                alike[key] = self.choice(candidates)
            self.produced[argument] = alike[key]

    def _add_body(self, function: FuncOp) -> None:
        problem, name = self.problem, function.sym_name.data
        weight = problem.counts[name] * PICOSECONDS
        for op in function.body.block.ops:
            if isinstance(op, ReturnOp):
                self.results[name] = [self._returned(function, i, v, op) for i, v in enumerate(op.operands)]
            elif isinstance(op, AnyCall):
                for value, argument in zip(op.operands, parameters(op, problem.callee(op)), strict=True):
                    self._add_use(value, op, argument.index, self.produced[argument])
                for result, states in zip(op.results, self.results[op.callee.string_value()], strict=True):
                    assert states is not None
                    self.produced[result] = states
            else:
                self._add_operation(op, weight)
        for value in (*function.body.block.args, *(r for op in function.body.block.ops for r in op.results)):
            self._add_flows(value, weight)

    def _add_operation(self, op: Operation, weight: float) -> None:
        found = self.problem.options[op]
        if is_constant(op):
            self.produced.update((r, {self.problem.prices.whole: 1.0}) for r in op.results)
            self.options[op] = [1.0]
            self._cost.append((1.0, weight * found[0].picoseconds))
            return
        xs: list[Any] = [1.0] if len(found) == 1 else [self.binary() for _ in found]
        self.options[op] = xs
        if len(xs) > 1:
            self.row([(x, 1.0) for x in xs], "==", 1.0)
        self._cost += [(x, weight * option.picoseconds) for x, option in zip(xs, found, strict=True)]
        for i, value in enumerate(op.operands):
            self._add_use(value, op, i, _by_state([(o.operands[i], x) for o, x in zip(found, xs, strict=True)]))
        for i, result in enumerate(op.results):
            self.produced[result] = _by_state([(o.results[i], x) for o, x in zip(found, xs, strict=True)])

    def _add_use(self, value: SSAValue, op: Operation, index: int, states: States) -> None:
        for use in self.uses[value]:
            if use.states is states or _same(use.states, states):
                use.operations.append((op, index))
                return
        self.uses[value].append(Use([(op, index)], states))

    def _returned(self, function: FuncOp, index: int, value: SSAValue, op: Operation) -> States | None:
        """A result's states; None for one of the entry that leaves as it was produced."""
        problem = self.problem
        candidates = problem.results[function.sym_name.data][index]
        if function is problem.entry and not candidates:
            self._leave(value, op, index)
            return None
        if (tied := problem.tied_in(function).get(index)) is not None:
            argument = self.produced[tied]
            states = argument
            self.row([(x, 1.0) for s, x in argument.items() if s not in candidates], "==", 0.0)
        else:
            produced = self.produced[value]
            is_free = self.uses[value] or set(candidates) != set(produced)
            states = self.choice(candidates) if is_free else produced
        self._add_use(value, op, index, states)
        return states

    def _leave(self, value: SSAValue, op: Operation, index: int) -> None:
        """A result of the entry leaves as it was produced, its addends on every device."""
        flows: dict[tuple[AxisStates, AxisStates], Any] = {}
        for states, x in self.produced[value].items():
            left = self.problem.leaving(states)
            if left is None or self.problem.prices.conversion(value.type, states, left) is None:
                self.row([(x, 1.0)], "==", 0.0)
            else:
                flows[states, left] = x
        needed = _by_state([(left, x) for (_, left), x in flows.items()])
        self.uses[value].append(Use([(op, index)], needed, flows))

    def _add_flows(self, value: SSAValue, weight: float) -> None:
        """Flows of each use, and the conversions that they pay together."""
        produced, uses = self.produced[value], self.uses[value]
        prices = self.problem.prices
        key = (value.type, id(produced), *(id(use.states) for use in uses))
        if key in self._alike:  # the same choices meet, as between other calls of the same functions
            known, paid = self._alike[key]
            for use, other in zip(uses, known, strict=True):
                use.flows = other.flows
        else:
            paid = self._paid(value, produced, uses)
            self._alike[key] = uses, paid
        for (source, target), x in paid.items():
            conversion = prices.conversion(value.type, source, target)
            assert conversion is not None
            self._cost.append((x, weight * conversion.picoseconds))

    def _paid(self, value: SSAValue, produced: States, uses: Sequence[Use]) -> dict[tuple[AxisStates, AxisStates], Any]:
        """Adds the flows of each use; the conversions that any of them needs, which are paid once."""
        prices = self.problem.prices
        paid: dict[tuple[AxisStates, AxisStates], Any] = {}
        for use in uses:
            if use.flows:
                pass  # a result that leaves as it was produced
            elif use.states is produced or _same(use.states, produced):
                use.flows = {(s, s): x for s, x in produced.items()}
            else:
                for source in produced:
                    for target in use.states:
                        if prices.conversion(value.type, source, target) is not None:
                            use.flows[source, target] = self._flow(produced, use.states, source, target)
                self._marginals(produced, use)
            for (source, target), flow in use.flows.items():
                conversion = prices.conversion(value.type, source, target)
                assert conversion is not None
                if not conversion.picoseconds:
                    continue
                if len(uses) == 1:
                    paid[source, target] = flow
                    continue
                if (source, target) not in paid:
                    paid[source, target] = self.continuous()
                self.row([(paid[source, target], 1.0), (flow, -1.0)], ">=", 0.0)
        return paid

    def _flow(self, produced: States, needed: States, source: AxisStates, target: AxisStates) -> Any:
        """A flow; where one side has one state only, it is the other side's choice."""
        if len(produced) == 1:
            return needed[target]
        return produced[source] if len(needed) == 1 else self.continuous()

    def _marginals(self, produced: States, use: Use) -> None:
        if len(produced) == 1 or len(use.states) == 1:
            reached = {(s, t) for s, t in use.flows}
            for s, x in produced.items():
                for t, y in use.states.items():
                    if (s, t) not in reached:
                        self.row([(y if len(produced) == 1 else x, 1.0)], "==", 0.0)
            return
        outgoing: dict[AxisStates, list[tuple[Any, float]]] = defaultdict(list)
        incoming: dict[AxisStates, list[tuple[Any, float]]] = defaultdict(list)
        for (source, target), flow in use.flows.items():
            outgoing[source].append((flow, 1.0))
            incoming[target].append((flow, 1.0))
        for source, x in produced.items():
            self.row([*outgoing[source], (x, -1.0)], "==", 0.0)
        for target, x in use.states.items():
            self.row([*incoming[target], (x, -1.0)], "==", 0.0)

    def _add_ties(self) -> None:
        """Among equal plans, one that cuts parameters and state."""
        entry = self.problem.entry.body.block.args
        stored = [a for a in self.problem.tied.values()] or list(entry)
        total = sum(self.problem.prices.bytes(a.type, self.problem.prices.whole) for a in stored) or 1
        for argument in stored:
            for states, x in self.produced[argument].items():
                share = self.problem.prices.bytes(argument.type, states) / total
                self._ties.append((x, TIE_BREAK * share))

    # --- solution ---

    def _plan(self) -> Plan:
        options: dict[Operation, JointOption] = {}
        for op, xs in self.options.items():
            options[op] = self.problem.options[op][_argmax(xs)]
        arguments: dict[BlockArgument, AxisStates] = {}
        for value, states in self.produced.items():
            if isinstance(value, BlockArgument):
                arguments[value] = list(states)[_argmax(list(states.values()))]
        results = {
            name: [None if s is None else list(s)[_argmax(list(s.values()))] for s in found]
            for name, found in self.results.items()
        }
        return Plan(options, arguments, results)


def _argmax(xs: Sequence[Any]) -> int:
    values = [_value(x) for x in xs]
    return values.index(max(values))


def _value(x: Any) -> float:
    if isinstance(x, float):
        return x
    return cast(float, x.value() or 0.0)


def _by_state(pairs: Sequence[tuple[AxisStates, Any]]) -> States:
    import pulp

    grouped: dict[AxisStates, list[Any]] = defaultdict(list)
    for state, x in pairs:
        grouped[state].append(x)
    found: States = {}
    for state, xs in grouped.items():
        constant, terms = _split(_summed([(x, 1.0) for x in xs]))
        found[state] = xs[0] if len(xs) == 1 else (pulp.LpAffineExpression(terms) if terms else constant)
    return found


def _same(a: States, b: States) -> bool:
    """Whether two choices are one: the same variable for each state."""
    return a.keys() == b.keys() and all(a[s] is b[s] or (isinstance(a[s], float) and a[s] == b[s]) for s in a)


def _summed(terms: Sequence[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """Terms over variables only, each once; numbers under None."""
    import pulp

    total: dict[Any, float] = defaultdict(float)
    for x, weight in terms:
        if isinstance(x, float):
            total[None] += x * weight
        elif isinstance(x, pulp.LpAffineExpression):
            for variable, coefficient in x.items():
                total[variable] += coefficient * weight
        else:
            total[x] += weight
    return [(x, weight) for x, weight in total.items() if weight and x is not None] + (
        [(None, total[None])] if total.get(None) else []
    )


def _split(terms: Sequence[tuple[Any, float]]) -> tuple[float, list[tuple[Any, float]]]:
    constant = sum(weight for x, weight in terms if x is None)
    return constant, [(x, weight) for x, weight in terms if x is not None]
