"""A problem as a network of cost functions (`elimination`). In goes a problem, without its limit of memory; out come
one variable per free operation, argument and result, and one cost function per value for its reshards. All solvers
solve this one formulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from operator import add
from typing import TYPE_CHECKING, Any

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from distir.dialects.sharding import Sharded
from distir.interpreters.walk import values_read
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding.division import stored_picoseconds
from distir.passes.sharding.path_weights import Weights, every_stage, weights_of
from distir.passes.sharding.plans import ShardingPlan
from distir.passes.sharding.problem import SOUGHT, Problem
from distir.passes.solver.bounds import Minimum, minimum
from distir.passes.solver.deadline import NEVER, Deadline
from distir.passes.solver.elimination import Network, Table
from distir.passes.solver.implicit_tables import ImplicitTable
from distir.passes.solver.shared_values import States, conversion_tables
from distir.passes.structure import AnyCall, is_constant, parameters

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


MOST_WRITTEN = 1 << 17
"""Larger tables of conversions are not written down before bounds have made them smaller."""
MOST_USES = 8
"""The table of a value with more uses is a sum of functions of one use each, for each state."""

TIE_BREAK = 100.0
"""Picoseconds for all parameters held whole rather than cut: below any difference that matters."""
UNEVEN = 2.0**-8
"""Picoseconds by which an operation in even shards is preferred to one that is as fast in others."""


@dataclass(frozen=True)
class View:
    """The states of a value as a variable decides them: one for each of its choices."""

    variable: int
    states: tuple[AxisStates, ...]

    def __hash__(self) -> int:
        """Of few numbers: there are many states, and views of one variable are few."""
        return hash((self.variable, len(self.states)))


@dataclass
class Use:
    """What some operations need of a value."""

    view: View
    operations: list[tuple[Operation, int]]
    """Operations, and which of their operands."""


@dataclass
class CostFunction:
    """Values of one type that are produced and needed by the same choices, in all functions together."""

    type: Attribute
    produced: View
    needed: tuple[View, ...]
    """By uses that may need it in other states."""
    runs: list[int]
    """Of each of these uses, how often it is what a conversion is made for; of messages, what is sent for it."""
    message: tuple[int, int] | None = None
    """From which stage to which other the value is sent, in every state that is needed."""


@dataclass(frozen=True)
class JointDomain:
    """The combinations of choices that meet at a value, as the axes of a table."""

    scope: tuple[int, ...]
    """Variables: the producer's, those with several needs, then the others."""
    first: int
    """How many are not of the last kind."""
    classes: tuple[Array, ...]
    """For each variable, which of its choices the value does not tell apart."""
    shape: tuple[int, ...]
    states: tuple[AxisStates, ...]
    placed: tuple[tuple[int, Array], ...]
    """For the produced states, each need, and another value's states, the axis of the variable and per class the number of the state."""

    def along(self, view: int, rank: int) -> Array:
        """The numbers of a view's states, for broadcasting over so many axes."""
        axis, numbers = self.placed[view]
        return numbers.reshape([-1 if i == axis else 1 for i in range(rank)])

    def narrowed(self, kept: Sequence[Array]) -> JointDomain:
        """The same where only these choices of each variable are left; the others have no class of their own."""
        import numpy as np

        used = [np.unique(c[kept[v]]) for v, c in zip(self.scope, self.classes, strict=True)]
        classes: list[Array] = []
        for numbers, size, before in zip(used, self.shape, self.classes, strict=True):
            renumbered = np.zeros(size, dtype=np.intp)
            renumbered[numbers] = np.arange(len(numbers))
            classes.append(renumbered[before])
        placed = tuple((axis, numbers[used[axis]]) for axis, numbers in self.placed)
        shape = tuple(len(numbers) for numbers in used)
        return replace(self, classes=tuple(classes), shape=shape, placed=placed).without_settled()

    def without_settled(self) -> JointDomain:
        """The same without variables of one class, but for the producer's: states that they decide are the same for all of its classes."""
        import numpy as np

        axes = [axis for axis, size in enumerate(self.shape) if size > 1 or not axis]
        if len(axes) == len(self.shape):
            return self
        placed = tuple(
            (axes.index(axis), numbers) if axis in axes else (0, np.repeat(numbers, self.shape[0]))
            for axis, numbers in self.placed
        )
        return replace(
            self,
            scope=tuple(self.scope[axis] for axis in axes),
            first=sum(axis < self.first for axis in axes),
            classes=tuple(self.classes[axis] for axis in axes),
            shape=tuple(self.shape[axis] for axis in axes),
            placed=placed,
        )


class ChoiceNetwork:
    """The network under construction, function by function."""

    def __init__(self, problem: Problem, deadline: Deadline = NEVER, weights: Weights | None = None):
        """`weights` say how often everything in a staged program counts; without, as often as it runs on any stage."""
        self.problem = problem
        self.weights = weights_of(problem, every_stage(problem)) if weights is None else weights
        self.network = Network()
        self.variables: dict[Operation, int] = {}
        """Of operations: a choice is an option."""
        self.produced: dict[SSAValue, View] = {}
        self.uses: dict[SSAValue, list[Use]] = {}
        self.cost_functions: list[CostFunction] = []
        self.cost_function_of: dict[SSAValue, int] = {}
        """Per value that anything uses, which of the cost functions is its own."""
        self.tables: dict[int, Table | ImplicitTable] = {}
        """Per cost function, what conversions cost."""
        self.by_state: dict[int, list[Table]] = {}
        """The same of values with too many uses, as a sum."""
        self._results: dict[str, list[View | None]] = {}
        self._known: dict[tuple[object, ...], int] = {}
        for function in problem.functions:
            deadline.check()
            self._add_arguments(function)
            self._add_body(function)
        self._add_ties()
        self.count = len(self.network.own)
        """How many variables are choices; those after them are indicators."""
        for number, cost_function in enumerate(self.cost_functions):
            deadline.check()
            if cost_function.needed:
                self._add_conversions(number, cost_function)
        self.own = list(self.network.own)
        """Per variable, the cost of each choice, without what tables of one variable add to it in the network."""
        for table in (*self.tables.values(), *(table for tables in self.by_state.values() for table in tables)):
            if isinstance(table, Table):
                self.network.add(table)
            else:
                self.network.add_wide(table)

    def fastest(self) -> list[int] | None:
        """The choices of a fastest plan; None if elimination cannot find it."""
        found = self.minimum(NEVER)
        return found.choices if found.is_proven else None

    def minimum(self, deadline: Deadline) -> Minimum:
        """The choices of a fastest plan, or of one that is fast enough, as far as they are found in time."""
        enough = 0.0 if self.problem.division is not None else SOUGHT * self.problem.enough
        return minimum(self.network.copy(), deadline, enough=enough)

    def replicated(self) -> list[int] | None:
        """The choices of the plan in which every value is whole everywhere; None if some choice does not allow it."""
        import numpy as np

        whole = self.problem.prices.whole
        allowed = [np.isfinite(costs) for costs in self.own]
        views = [*self.produced.values(), *(use.view for uses in self.uses.values() for use in uses)]
        for view in dict.fromkeys(views):
            allowed[view.variable] = allowed[view.variable] & [states == whole for states in view.states]
        if not all(each.any() for each in allowed):
            return None
        return [int(np.where(each, costs, inf).argmin()) for each, costs in zip(allowed, self.own, strict=True)]

    def plan(self, decided: Sequence[int]) -> ShardingPlan:
        """The plan of one choice per variable."""
        options = {op: self.problem.options[op][decided[v]] for op, v in self.variables.items()}

        def state(view: View) -> AxisStates:
            return view.states[decided[view.variable]]

        arguments = {a: state(view) for a, view in self.produced.items() if isinstance(a, BlockArgument)}
        results = {name: [v and state(v) for v in views] for name, views in self._results.items()}
        return ShardingPlan(options, arguments, results)

    def _choice(self, states: Sequence[AxisStates]) -> View:
        return View(self.network.variable([0.0] * len(states)), tuple(states))

    # --- functions ---

    def _add_arguments(self, function: FuncOp) -> None:
        alike: dict[object, View] = {}
        for argument in function.body.block.args:
            candidates = self.problem.arguments[argument]
            passed_on = self.problem.passed_on(argument)
            key = argument if passed_on is None else (argument.type, tuple(candidates), passed_on)
            if key not in alike:
                alike[key] = self._choice(candidates)
            self.produced[argument] = alike[key]
            self.uses[argument] = []

    def _add_body(self, function: FuncOp) -> None:
        problem, name, weights = self.problem, function.sym_name.data, self.weights
        is_scheduled = problem.is_scheduled(function)
        for op in function.body.block.ops:
            if isinstance(op, ReturnOp):
                self._results[name] = [self._returned(function, i, value, op) for i, value in enumerate(op.operands)]
            elif isinstance(op, AnyCall):
                for i, (value, argument) in enumerate(
                    zip(op.operands, parameters(op, problem.callee(op)), strict=True)
                ):
                    self._add_use(value, op, i, self.produced[argument])
                for result, view in zip(op.results, self._results[op.callee.string_value()], strict=True):
                    assert view is not None
                    self.produced[result], self.uses[result] = view, []
            else:
                runs = weights.operations[op] if is_scheduled else weights.functions[name] - weights.spared[op]
                self._add_operation(op, runs)
        for value in (*function.body.block.args, *(r for op in function.body.block.ops for r in op.results)):
            produced = self.produced[value]
            needed = tuple(use.view for use in self.uses[value] if use.view != produced)
            runs = 0 if is_scheduled else weights.functions[name] - weights.spared[value]
            self.cost_function_of[value] = self._meet(value.type, produced, needed, [runs] * len(needed))
            if is_scheduled:
                self._add_scheduled(value)

    def _add_scheduled(self, value: SSAValue) -> None:
        """The conversions and messages of a value that a schedule brings about, on each stage in the order in which they are needed."""
        views = {each: use.view for use in self.uses[value] for each in use.operations}
        produced = self.produced[value]
        for uses in self.weights.conversions.get(value, {}).values():
            runs: dict[View, int] = {}
            for use, count in uses.items():
                if views[use] != produced:
                    runs.setdefault(views[use], count)
            if any(runs.values()):
                self._meet(value.type, produced, tuple(runs), list(runs.values()))
        for ends, uses in self.weights.messages.get(value, {}).items():
            runs = {}
            for use, count in uses.items():
                runs.setdefault(views[use], count)
            if any(runs.values()):
                first = next(iter(runs))
                self._meet(value.type, first, tuple(runs), list(runs.values()), ends)

    def _meet(
        self,
        type_: Attribute,
        produced: View,
        needed: tuple[View, ...],
        runs: Sequence[int],
        message: tuple[int, int] | None = None,
    ) -> int:
        """The number of a cost function, where these uses run so often more."""
        number = self._known.setdefault((type_, produced, needed, message), len(self.cost_functions))
        if number == len(self.cost_functions):
            self.cost_functions.append(CostFunction(type_, produced, needed, [0] * len(needed), message))
        found = self.cost_functions[number].runs
        found[:] = map(add, found, runs)
        return number

    def _add_operation(self, op: Operation, runs: int) -> None:
        found = self.problem.options[op]
        if is_constant(op):
            found = found[:1]
        uneven = [0.0 if option.price.is_uniform else UNEVEN for option in found]
        costs = [runs * option.cost + extra for option, extra in zip(found, uneven, strict=True)]
        variable = self.network.variable(costs)
        self.variables[op] = variable
        for i, value in enumerate(values_read(op)):
            self._add_use(value, op, i, View(variable, tuple(option.operands[i] for option in found)))
        whole = (self.problem.prices.whole,)
        for i, result in enumerate(op.results):
            states = whole if is_constant(op) else tuple(option.results[i] for option in found)
            self.produced[result], self.uses[result] = View(variable, states), []

    def _add_use(self, value: SSAValue, op: Operation, index: int, view: View) -> None:
        for use in self.uses[value]:
            if use.view == view:
                use.operations.append((op, index))
                return
        self.uses[value].append(Use(view, [(op, index)]))

    def _returned(self, function: FuncOp, index: int, value: SSAValue, op: Operation) -> View | None:
        """A result's states; None for one of the entry that leaves as it was produced."""
        problem = self.problem
        candidates = problem.results[function.sym_name.data][index]
        produced = self.produced[value]
        if function is problem.entry and not candidates:
            self._leave(value, op, index)
            return None
        if (argument := problem.tied_in(function).get(index)) is not None:
            view = self.produced[argument]
            self._restrict(view, lambda s: s in candidates)
        elif self.uses[value] or set(candidates) != set(produced.states):
            view = self._choice(candidates)
        else:
            view = produced
        self._add_use(value, op, index, view)
        return view

    def _leave(self, value: SSAValue, op: Operation, index: int) -> None:
        """A result of the entry leaves as it was produced, its addends on every device."""
        problem, produced = self.problem, self.produced[value]

        def leaves(states: AxisStates) -> bool:
            left = problem.leaving(states)
            return left is not None and problem.prices.conversion(value.type, states, left) is not None

        self._restrict(produced, leaves)
        view = View(produced.variable, tuple(problem.leaving(s) or s for s in produced.states))
        self._add_use(value, op, index, view)

    def _restrict(self, view: View, allowed: Callable[[AxisStates], bool]) -> None:
        import numpy as np

        self.network.charge(view.variable, np.array([0.0 if allowed(s) else inf for s in view.states]))

    # --- conversions ---

    def domain(
        self, cost_function: CostFunction, other: View | None = None, progress: Sequence[View] = ()
    ) -> JointDomain:
        """Where a cost function's choices cross, the states of another value if one is given, and others in which this one is needed."""
        import numpy as np

        views = (cost_function.produced, *cost_function.needed, *progress)
        states = tuple(dict.fromkeys(s for view in views for s in view.states))
        numbers = [{s: i for i, s in enumerate(states)}] * len(views)
        if other is not None:
            at = len(views) - len(progress)
            views = (*views[:at], other, *views[at:])
            numbers.insert(at, {s: i for i, s in enumerate(dict.fromkeys(other.states))})
        needed = Counter(view.variable for view in views)
        producer = cost_function.produced.variable
        scope = tuple(sorted(needed, key=lambda v: (v != producer, needed[v] == 1)))
        first = sum(v == producer or needed[v] > 1 for v in scope)
        classes: list[Array] = []
        members: list[list[tuple[AxisStates, ...]]] = []
        for variable in scope:
            seen: dict[tuple[AxisStates, ...], int] = {}
            rows = zip(*(view.states for view in views if view.variable == variable), strict=True)
            classes.append(np.array([seen.setdefault(row, len(seen)) for row in rows]))
            members.append(list(seen))
        placed: list[tuple[int, Array]] = []
        column = dict.fromkeys(scope, 0)
        for view, number in zip(views, numbers, strict=True):
            axis = scope.index(view.variable)
            placed.append((axis, np.array([number[row[column[view.variable]]] for row in members[axis]])))
            column[view.variable] += 1
        found = JointDomain(scope, first, tuple(classes), tuple(len(m) for m in members), states, tuple(placed))
        return found.without_settled()

    def _add_conversions(self, number: int, cost_function: CostFunction) -> None:
        """What the conversions of a value cost for all states in which it is produced and needed: each once."""
        import numpy as np

        domain, runs = self.domain(cost_function), cost_function.runs
        matrix = self.problem.prices.between(cost_function.type, domain.states, cost_function.produced.states)
        if cost_function.message is not None:
            sent = [self.problem.prices.message(cost_function.type, s, *cost_function.message) for s in domain.states]
            matrix = np.broadcast_to(np.array(sent, dtype=np.float64), (len(sent), len(sent)))
        elif not any(runs):
            matrix = np.where(np.isfinite(matrix), 0.0, matrix)
        shape = domain.shape
        is_small = prod(shape) <= MOST_WRITTEN
        if is_small or (len(shape) - domain.first <= MOST_USES and prod(shape[: domain.first]) <= MOST_WRITTEN):
            self.tables[number] = self._joint_conversions(domain, runs, matrix)
        else:
            produced, *needed = (
                States(domain.scope[axis], numbers[domain.classes[axis]]) for axis, numbers in domain.placed
            )
            costs = np.where(matrix == 0, 0.0, min(runs) * matrix)
            self.by_state[number] = conversion_tables(self.network, produced, needed, costs)

    def _joint_conversions(self, domain: JointDomain, runs: Sequence[int], matrix: Array) -> Table | ImplicitTable:
        """The same as one table. What is too large to be written down counts each use as often as that which counts least."""
        import numpy as np

        scope, shape = domain.scope, domain.shape
        written = len(scope) if prod(shape) <= MOST_WRITTEN else domain.first
        if written < len(scope):
            runs = [min(runs)] * len(runs)
        count = [runs[i - 1] for i, (axis, _) in enumerate(domain.placed) if i and axis < written]
        here = [i for i, (axis, _) in enumerate(domain.placed) if axis < written]
        source, *targets = (domain.along(i, written) for i in here)
        costs = np.zeros(shape[:written])
        for i, target in enumerate(targets):
            added = _times(count[i], matrix[source, target])
            for earlier in targets[:i]:
                added = np.where(earlier == target, 0.0, added)
            costs = costs + added
        if written == len(scope):
            return Table(scope, domain.classes, costs)
        wide = dict(at for at in domain.placed if at[0] >= written)
        opened = np.unique(np.concatenate(list(wide.values())))
        opening = np.broadcast_to(_times(runs[0], matrix[source[..., None], opened]), (*shape[:written], len(opened)))
        for target in targets:
            opening = np.where(target[..., None] == opened, 0.0, opening)
        taken = tuple(np.searchsorted(opened, wide[axis]) for axis in range(written, len(scope)))
        return ImplicitTable(scope, domain.classes, costs, opening, taken)

    def _add_ties(self) -> None:
        """Among equal plans, one that cuts parameters and state, in outer dims, whose parts lie together; where dividing counts first, all that do."""
        import numpy as np

        prices = self.problem.prices
        stored = list(self.problem.tied.values()) or list(self.problem.entry.body.block.args)
        total = sum(prices.bytes(a.type, prices.whole) for a in stored) or 1
        for argument in stored:
            view = self.produced[argument]
            shares = np.array([prices.bytes(argument.type, s) / total for s in view.states])
            inner = np.array([sum(each.dim for each in s if isinstance(each, Sharded)) for s in view.states])
            self.network.charge(view.variable, shares * (TIE_BREAK + inner * UNEVEN / 2))
        for argument in self.problem.stored:
            view = self.produced[argument]
            costs = [stored_picoseconds(self.problem, argument, states) for states in view.states]
            self.network.charge(view.variable, np.array(costs, float))


def _times(count: int, costs: Array) -> Array:
    """Costs that are paid so often; what is impossible stays so."""
    import numpy as np

    return costs * count if count else np.where(np.isfinite(costs), 0.0, costs)
