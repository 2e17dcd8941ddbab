"""A problem without a limit of memory as a network of tables (`elimination`): one variable per operation, argument and result
that is free, one table per value for its conversions. The same choices and costs as the integer program's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING, Any

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding_search.bounds import cheapest
from distir.passes.sharding_search.elimination import Network, Table
from distir.passes.sharding_search.integer_program import PICOSECONDS, TIE_BREAK, called_with
from distir.passes.sharding_search.plans import Plan
from distir.passes.sharding_search.problem import Problem
from distir.passes.sharding_search.wide_tables import WideTable
from distir.passes.structure import is_constant

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


MOST_WRITTEN = 1 << 17
"""Larger tables of conversions are not written down before bounds have made them smaller."""


@dataclass(frozen=True)
class View:
    """The states of a value as a variable decides them: one for each of its choices."""

    variable: int
    states: tuple[AxisStates, ...]


class ChoiceNetwork:
    """The network under construction, function by function."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.network = Network()
        self._options: dict[Operation, int] = {}
        self._produced: dict[SSAValue, View] = {}
        self._uses: dict[SSAValue, list[View]] = {}
        self._results: dict[str, list[View | None]] = {}
        self._charges: dict[tuple[Attribute, View, tuple[View, ...]], int] = {}
        self._matrices: dict[Attribute, tuple[dict[AxisStates, int], Array]] = {}
        for function in problem.functions:
            self._add_arguments(function)
            self._add_body(function)
        self._add_ties()
        for (type_, produced, uses), runs in self._charges.items():
            self._add_table(type_, produced, uses, runs)

    def best_plan(self) -> Plan | None:
        """A fastest plan; None if elimination cannot find it."""
        decided = cheapest(self.network)
        if decided is None:
            return None
        options = {op: self.problem.options[op][decided[v]] for op, v in self._options.items()}

        def state(view: View) -> AxisStates:
            return view.states[decided[view.variable]]

        arguments = {a: state(view) for a, view in self._produced.items() if isinstance(a, BlockArgument)}
        results = {name: [v and state(v) for v in views] for name, views in self._results.items()}
        return Plan(options, arguments, results)

    def _choice(self, states: Sequence[AxisStates]) -> View:
        return View(self.network.variable([0.0] * len(states)), tuple(states))

    # --- functions ---

    def _add_arguments(self, function: FuncOp) -> None:
        alike: dict[object, View] = {}
        for argument in function.body.block.args:
            candidates = self.problem.arguments[argument]
            calls = called_with(argument)
            key = argument if calls is None else (argument.type, tuple(candidates), calls)
            if key not in alike:
                alike[key] = self._choice(candidates)
            self._produced[argument] = alike[key]
            self._uses[argument] = []

    def _add_body(self, function: FuncOp) -> None:
        problem, name = self.problem, function.sym_name.data
        runs = problem.counts[name]
        for op in function.body.block.ops:
            if isinstance(op, ReturnOp):
                self._results[name] = [self._returned(function, i, value, runs) for i, value in enumerate(op.operands)]
            elif isinstance(op, CallOp):
                for value, argument in zip(op.operands, problem.callee(op).body.block.args, strict=True):
                    self._add_use(value, self._produced[argument])
                for result, view in zip(op.results, self._results[op.callee.string_value()], strict=True):
                    assert view is not None
                    self._produced[result], self._uses[result] = view, []
            else:
                self._add_operation(op, runs)
        for value in (*function.body.block.args, *(r for op in function.body.block.ops for r in op.results)):
            uses = tuple(use for use in self._uses[value] if use != self._produced[value])
            if uses:
                key = (value.type, self._produced[value], uses)
                self._charges[key] = self._charges.get(key, 0) + runs

    def _add_operation(self, op: Operation, runs: int) -> None:
        found = self.problem.options[op]
        if is_constant(op):
            found = found[:1]
        variable = self.network.variable([float(runs * option.picoseconds) for option in found])
        self._options[op] = variable
        for i, value in enumerate(op.operands):
            self._add_use(value, View(variable, tuple(option.operands[i] for option in found)))
        whole = (self.problem.prices.whole,)
        for i, result in enumerate(op.results):
            states = whole if is_constant(op) else tuple(option.results[i] for option in found)
            self._produced[result], self._uses[result] = View(variable, states), []

    def _add_use(self, value: SSAValue, view: View) -> None:
        if view not in self._uses[value]:
            self._uses[value].append(view)

    def _returned(self, function: FuncOp, index: int, value: SSAValue, runs: int) -> View | None:
        """A result's states; None for one of the entry that leaves as it was produced."""
        problem = self.problem
        candidates = problem.results[function.sym_name.data][index]
        produced = self._produced[value]
        if function is problem.entry and not candidates:
            self._leave(value)
            return None
        if function is problem.entry and index in problem.tied:
            view = self._produced[problem.tied[index]]
            self._restrict(view, lambda s: s in candidates)
        elif self._uses[value] or set(candidates) != set(produced.states):
            view = self._choice(candidates)
        else:
            view = produced
        self._add_use(value, view)
        return view

    def _leave(self, value: SSAValue) -> None:
        """A result of the entry leaves as it was produced, its addends on every device."""
        problem, produced = self.problem, self._produced[value]

        def leaves(states: AxisStates) -> bool:
            left = problem.leaving(states)
            return left is not None and problem.prices.conversion(value.type, states, left) is not None

        self._restrict(produced, leaves)
        self._add_use(value, View(produced.variable, tuple(problem.leaving(s) or s for s in produced.states)))

    def _restrict(self, view: View, allowed: Callable[[AxisStates], bool]) -> None:
        import numpy as np

        self.network.charge(view.variable, np.array([0.0 if allowed(s) else inf for s in view.states]))

    # --- conversions ---

    def _add_table(self, type_: Attribute, produced: View, uses: Sequence[View], runs: int) -> None:
        """What the conversions of a value cost for all states in which it is produced and needed: each once."""
        import numpy as np

        views = [produced, *uses]
        states = list(dict.fromkeys(s for view in views for s in view.states))
        numbers = {s: i for i, s in enumerate(states)}
        needed = Counter(view.variable for view in views)
        scope = tuple(sorted(needed, key=lambda v: (v != produced.variable, needed[v] == 1)))
        first = sum(v == produced.variable or needed[v] > 1 for v in scope)
        classes: list[Array] = []
        members: list[list[tuple[AxisStates, ...]]] = []
        for variable in scope:
            seen: dict[tuple[AxisStates, ...], int] = {}
            rows = zip(*(view.states for view in views if view.variable == variable), strict=True)
            classes.append(np.array([seen.setdefault(row, len(seen)) for row in rows]))
            members.append(list(seen))
        shape = [len(m) for m in members]
        matrix = self._conversion_costs(type_, produced.states, states)
        if not runs:
            matrix = np.where(np.isfinite(matrix), 0.0, matrix)
        placed: list[Array] = []
        column = dict.fromkeys(scope, 0)
        for view in views:
            axis = scope.index(view.variable)
            placed.append(np.array([numbers[row[column[view.variable]]] for row in members[axis]]))
            column[view.variable] += 1
        written = len(scope) if prod(shape) <= MOST_WRITTEN else first
        here = [
            (at, view.variable) for at, view in zip(placed, views, strict=True) if scope.index(view.variable) < written
        ]
        source, *targets = (at.reshape([-1 if v == w else 1 for w in scope[:written]]) for at, v in here)
        costs = np.zeros(shape[:written])
        for i, target in enumerate(targets):
            added = runs * matrix[source, target]
            for earlier in targets[:i]:
                added = np.where(earlier == target, 0.0, added)
            costs = costs + added
        if written == len(scope):
            self.network.add(Table(scope, tuple(classes), costs))
            return
        needs = [at for at, view in zip(placed, views, strict=True) if scope.index(view.variable) >= written]
        order = [view.variable for view in views if scope.index(view.variable) >= written]
        opened = np.unique(np.concatenate(needs))
        opening = np.broadcast_to(runs * matrix[source[..., None], opened], (*shape[:written], len(opened)))
        for target in targets:
            opening = np.where(target[..., None] == opened, 0.0, opening)
        taken = tuple(np.searchsorted(opened, needs[order.index(v)]) for v in scope[written:])
        self.network.add_wide(WideTable(scope, tuple(classes), costs, opening, taken))

    def _conversion_costs(self, type_: Attribute, sources: Sequence[AxisStates], states: Sequence[AxisStates]) -> Array:
        """Picoseconds from each state that is a source to each; infinite if no collectives do it."""
        import numpy as np

        numbers, known = self._matrices.get(type_, ({}, np.empty((0, 0))))
        new = [s for s in states if s not in numbers]
        if new:
            numbers.update(zip(new, range(len(numbers), len(numbers) + len(new)), strict=True))
            known = np.pad(known, (0, len(new)), constant_values=np.nan)
            self._matrices[type_] = numbers, known
        columns = np.array([numbers[s] for s in states])
        rows = [(numbers[s], s) for s in dict.fromkeys(sources)]
        for row, source in rows:
            for i in map(int, np.flatnonzero(np.isnan(known[row, columns]))):
                conversion = self.problem.prices.conversion(type_, source, states[i])
                known[row, columns[i]] = inf if conversion is None else conversion.picoseconds
        return np.nan_to_num(known[np.ix_(columns, columns)], nan=inf, posinf=inf)

    def _add_ties(self) -> None:
        """Among equal plans, one that cuts parameters and state (as in the integer program)."""
        import numpy as np

        prices = self.problem.prices
        stored = list(self.problem.tied.values()) or list(self.problem.entry.body.block.args)
        total = sum(prices.bytes(a.type, prices.whole) for a in stored) or 1
        for argument in stored:
            view = self._produced[argument]
            shares = np.array([prices.bytes(argument.type, s) / total for s in view.states])
            self.network.charge(view.variable, shares * TIE_BREAK / PICOSECONDS)
