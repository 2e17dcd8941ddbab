"""The tensor axis as a network of tables, solved by elimination (`passes/solver/elimination`), exactly where tables stay small: the same choices
and costs as the integer program's (`ilp`).

One variable per operation, and per argument or result that is free; one table per value for its conversions. Programs are
chains with few values alive across them, so this takes a fraction of the solver's time. Options are chosen first, on a network
that grows with distinct bodies, not with layers (`choose`); then the states in which functions exchange values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.sharding import REPLICATED, Partial, Replicate, State, UseFactor
from distir.interpreters.held import HeldOp
from distir.interpreters.walk import values_read
from distir.passes.distribution.conversions import conversion_seconds
from distir.passes.distribution.options import Option
from distir.passes.distribution.space import TensorSpace, is_scattered, model_arguments, model_values
from distir.passes.solver.elimination import Network, Table
from distir.passes.structure import argument_attributes, executions, functions, is_stated, result_attributes, text

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MICROSECONDS = 1e6
TIE_BREAK = 1e-3
"""Microseconds for all parameters held whole rather than cut, and a tenth for each conversion and for each operation cut in
pieces: below any latency."""
IDLE = 1e6
"""Microseconds for a contraction that is whole and could be cut: above any communication."""
PASSES = 4
"""How often a step goes over a parameter, or over each value of its state: it is read forward and backward, and updated."""
SMALL = 1 << 12
"""Entries of the largest table that elimination makes without more ado."""
LARGEST = 1 << 16
"""Entries of the largest table that it makes at all: of a program that needs larger ones, the best assignment found so far is taken."""
MOST_JOINT = 1 << 12
"""Entries of the largest table of one value's conversions; a value that more choices depend on has one per pair."""


@dataclass
class Plan:
    """A solution: an option per operation, a state per function argument, and the objective's communication part."""

    options: dict[Operation, Option]
    arguments: dict[BlockArgument, State]
    results: dict[str, list[State]]
    """Per function, the states in which it returns its results."""
    seconds: float


class View(NamedTuple):
    """The states of a value as a variable decides them: one for each of its choices."""

    variable: int
    states: tuple[State, ...]

    def __hash__(self) -> int:
        return self.variable  # views of one variable are few


class _Conversions(NamedTuple):
    """Of a value of so many bytes: from the state in which it is produced to all in which it is needed."""

    produced: View
    needed: tuple[View, ...]
    bytes: int
    is_model: bool
    """Parameters and state are never communicated."""


def choose(
    space: TensorSpace, rows: int, cut: Set[SSAValue], seconds: Callable[[str, int], float]
) -> dict[Operation, Option] | None:
    """The best option of every operation; None if elimination finds none."""
    return TensorNetwork(space, rows, cut, seconds, joined=True).best_options()


class TensorNetwork:
    """The network, function by function. `rows`, `cut` and `seconds` are as in `ilp.solve`.

    If it is `joined`, a function that is called in one place (a stage) is part of its caller, and updates that are alike are
    one variable: all that follows are options."""

    def __init__(
        self,
        space: TensorSpace,
        rows: int,
        cut: Set[SSAValue],
        seconds: Callable[[str, int], float],
        joined: bool = False,
    ):
        self.space, self.rows, self.cut, self.seconds = space, rows, cut, seconds
        self.network = Network()
        self._table = functions(space.module)
        calls = Counter(o.callee.string_value() for f in space.functions for o in f.body.block.ops if _is_call(o))
        self._apart = {name for name, count in calls.items() if count > 1 or not joined}
        """Functions with variables of their own for arguments and results."""
        self._is_joined = joined
        self._same: dict[SSAValue, SSAValue] = {}
        """For values of functions that are part of their callers, the same where it comes from."""
        self._users: dict[SSAValue, list[tuple[Operation, int]]] = defaultdict(list)
        self._alike: dict[object, int] = {}
        self._counts = executions(space.functions, space.entry)
        self._model = model_values(space.functions, space.entry, self._table)
        self._whole = whole_prices(space, self._counts)
        self._options: dict[Operation, int] = {}
        self._produced: dict[SSAValue, View] = {}
        self._needed: dict[SSAValue, list[View]] = {}
        self._results: dict[str, list[View]] = {}
        self._shared: dict[tuple[bool, frozenset[View]], View] = {}
        self._weights: dict[_Conversions, int] = {}
        self._prices: dict[tuple[State, State, int], float] = {}
        for function in space.functions:
            if function is space.entry or function.sym_name.data in self._apart:
                self._add_function(function, self._counts[function.sym_name.data])
        self._tie_updates()
        for conversions, weight in self._weights.items():
            self._add_table(conversions, weight)

    def best_options(self) -> dict[Operation, Option] | None:
        """The options of a cheapest plan; None if elimination finds none."""
        decided = self._decided()
        if decided is None:
            return None
        return {op: self.space.options[op][decided[v]] for op, v in self._options.items()}

    def best_plan(self) -> Plan | None:
        """A cheapest plan; None if elimination finds none."""
        decided = self._decided()
        if decided is None:
            return None

        def state(view: View) -> State:
            return view.states[decided[view.variable]]

        options = {op: self.space.options[op][decided[v]] for op, v in self._options.items()}
        options.update((v.op, held_option(state(view))) for v, view in self._produced.items() if is_held(v))
        arguments = {v: state(view) for v, view in self._produced.items() if isinstance(v, BlockArgument)}
        results = {name: [state(view) for view in views] for name, views in self._results.items()}
        seconds = sum(
            weight * self._price(state(c.produced), target, c.bytes)
            for c, weight in self._weights.items()
            for target in dict.fromkeys(state(view) for view in c.needed)
        )
        return Plan(options, arguments, results, seconds)

    def _decided(self) -> list[int] | None:
        """The choice of every variable. Where all tables are small, looking for choices that others beat takes longer than it saves.
        Of choices that cost the same, replication comes first and is not taken. Of a program in which everything depends on everything (a cell
        that is unrolled), it is the best that was found, which need not be the best: work is bounded, and the same at any load."""
        from distir.passes.solver.bounds import minimum
        from distir.passes.solver.deadline import NEVER

        at_once = self.network.copy()
        if at_once.eliminate(SMALL, is_dropping=False):
            return at_once.decided(takes_last=True)
        return minimum(self.network, NEVER, SMALL, LARGEST).choices

    # --- functions ---

    def _variable(self, states: Sequence[State]) -> View:
        return View(self.network.variable([0.0] * len(states)), tuple(states))

    def _add_function(self, function: FuncOp, count: int) -> None:
        name, arguments = function.sym_name.data, function.body.block.args
        is_entry = function is self.space.entry
        for argument in arguments:
            self._needed[argument] = []
        ops, returned = self._operations(function)
        held = [op.output for op in ops if isinstance(op, HeldOp)]
        arguments = [*arguments, *held]
        for value in held:
            self._needed[value] = []
        for op in ops:
            if isinstance(op, HeldOp):
                continue
            if isinstance(op, CallOp):
                callee = op.callee.string_value()
                for value, argument in zip(op.operands, self._table[callee].body.block.args, strict=True):
                    self._need(self._source(value), self._produced[argument])
                for result, view in zip(op.results, self._results[callee], strict=True):
                    self._produced[result], self._needed[result] = view, []
            else:
                self._add_operation(op, returned if is_entry else ())
        for argument in arguments:
            self._produced[argument] = self._argument(self._needed[argument], is_entry or is_held(argument))
        for argument in arguments:
            if argument in self._whole:
                self._charge_whole(self._produced[argument], self._whole[argument])
        self._results[name] = [self._produced[v] if is_entry else self._returned(v) for v in returned]
        for view in self._results[name] if is_entry else ():
            if any(map(is_scattered, view.states)):
                self._charge(view.variable, [inf if is_scattered(state) else 0.0 for state in view.states])
        for value in (*arguments, *(r for op in ops if not isinstance(op, HeldOp) for r in op.results)):
            self._add_conversions(value, self._produced[value], self._needed[value], value in self._model, count)

    def _operations(self, function: FuncOp) -> tuple[list[Operation], Sequence[SSAValue]]:
        """The operations of a function and of those that are part of it, in order, and what it returns."""
        found: list[Operation] = []
        for op in function.body.block.ops:
            if isinstance(op, ReturnOp):
                return found, [self._source(v) for v in op.operands]
            if isinstance(op, CallOp) and op.callee.string_value() not in self._apart:
                callee = self._table[op.callee.string_value()]
                given = [self._source(v) for v in op.operands]
                self._same.update(zip(callee.body.block.args, given, strict=True))
                inner, returned = self._operations(callee)
                self._same.update(zip(op.results, returned, strict=True))
                found += inner
                continue
            found.append(op)
            for index, value in enumerate(values_read(op)):
                self._users[self._source(value)].append((op, index))
        return found, ()

    def _source(self, value: SSAValue) -> SSAValue:
        return self._same.get(value, value)

    def _add_operation(self, op: Operation, returned: Sequence[SSAValue]) -> None:
        found = self.space.options[op]
        key: object = op
        if len(found) == 1:
            key = None  # one variable for all that have no choice
        elif self._is_joined and (end := self._end(op, returned)) is not None:
            key = (type(op), tuple(found), end)
        if key not in self._alike:
            self._alike[key] = self.network.variable([0.0] * len(found))
        variable = self._options[op] = self._alike[key]
        extra = [option_price(self.space, op, option) for option in found] if len(found) > 1 else []
        if any(extra):
            self._charge(variable, extra)
        for i, value in enumerate(map(self._source, values_read(op))):
            view = View(variable, tuple(option.operands[i] for option in found))
            if not (is_stated(value) and set(view.states) == {REPLICATED}):
                self._need(value, view)
        for i, result in enumerate(op.results):
            self._produced[result] = View(variable, tuple(option.results[i] for option in found))
            self._needed[result] = []

    def _end(self, op: Operation, returned: Sequence[SSAValue]) -> tuple[object, ...] | None:
        """Where an operation ends the program, on what functions apart return and on arguments that otherwise only these use
        (the update of a parameter): what it shares with the updates of other layers. The best choice for one is the best for
        all, since nothing else depends on it."""
        if not returned or any(self._users[result] for result in op.results):
            return None
        found: list[object] = []
        for value in map(self._source, values_read(op)):
            if isinstance(value, BlockArgument):
                users = [(user, index) for user, index in self._users[value] if user is not op]
                calls = [(user.callee.string_value(), index) for user, index in users if isinstance(user, CallOp)]
                if len(calls) < len(users):
                    return None
                found.append((value.type, tuple(sorted(calls))))
            elif isinstance(value.owner, CallOp):
                found.append(self._produced[value])
            else:
                return None
        return tuple(found)

    def _need(self, value: SSAValue, view: View) -> None:
        if view not in self._needed[value]:
            self._needed[value].append(view)

    def _argument(self, needed: Sequence[View], is_input: bool) -> View:
        """An argument with one user is what that user needs; otherwise it has a state of its own. Inputs of the program
        never arrive as addends (replicas could not tell theirs apart)."""
        addends = is_input and any(isinstance(state, Partial) for view in needed for state in view.states)
        if len(needed) == 1 and not addends:
            return needed[0]
        key = (addends, frozenset(needed))
        if not needed or key not in self._shared:
            candidates = dict.fromkeys([REPLICATED, *(state for view in needed for state in view.states)])
            self._shared[key] = self._variable([s for s in candidates if not (addends and isinstance(s, Partial))])
        return self._shared[key]

    def _returned(self, value: SSAValue) -> View:
        """A result leaves as it was produced, or as the body converted it for itself anyway."""
        produced, needed = self._produced[value], self._needed[value]
        candidates = dict.fromkeys([*produced.states, *(state for view in needed for state in view.states)])
        if len(candidates) == 1 or all(view == produced for view in needed):
            return produced
        view = self._variable(list(candidates))
        self._need(value, view)
        return view

    def _charge_whole(self, view: View, price: float) -> None:
        self._charge(view.variable, [price * (state == REPLICATED) for state in view.states])

    def _charge(self, variable: int, costs: Sequence[float]) -> None:
        import numpy as np

        self.network.charge(variable, np.array(costs))

    def _tie_updates(self) -> None:
        """A result that updates an argument leaves in the argument's state."""
        entry = self.space.entry
        named = zip(argument_attributes(entry), entry.body.block.args, strict=True)
        arguments = {text(a, "dist.name", ""): v for a, v in named}
        last = entry.body.block.last_op
        returned = [self._source(v) for v in last.operands] if last is not None else []
        views = self._results[entry.sym_name.data]
        for value, attributes, view in zip(returned, result_attributes(entry), views, strict=True):
            argument = arguments.get(text(attributes, "dist.name", ""))
            if argument is not None:
                self._add_conversions(value, view, [self._produced[argument]], False, 1)

    # --- conversions ---

    def _add_conversions(
        self, value: SSAValue, produced: View, needed: Sequence[View], is_model: bool, count: int
    ) -> None:
        from distir.interpreters.work import type_bytes

        others = tuple(view for view in needed if view != produced)
        if others:
            whole = type_bytes(value.type)
            each = _Conversions(produced, others, whole // self.rows if value in self.cut else whole, is_model)
            self._weights[each] = self._weights.get(each, 0) + (0 if is_stated(value) else count)

    def _price(self, source: State, target: State, bytes_: int) -> float:
        key = source, target, bytes_
        if key not in self._prices:
            self._prices[key] = conversion_seconds(source, target, bytes_, self.space.shards, self.seconds)
        return self._prices[key]

    def _cost(self, conversions: _Conversions, weight: int, source: State, target: State) -> float:
        """Microseconds, with the tie-break for a conversion that is free."""
        if source != target and (is_scattered(source) or is_scattered(target)):
            return inf
        seconds = self._price(source, target, conversions.bytes)
        if conversions.is_model and seconds > 0:
            return inf
        return weight * (seconds * MICROSECONDS + TIE_BREAK * 0.1 * (source != target))

    def _add_table(self, conversions: _Conversions, weight: int) -> None:
        """What the conversions cost for all choices of the variables that decide them: each target is paid once, however
        many need it."""
        import numpy as np

        if len(conversions.needed) == 1:
            self._add_one(conversions, weight)
            return
        views = [conversions.produced, *conversions.needed]
        scope: dict[int, list[View]] = {}
        for view in dict.fromkeys(views):
            scope.setdefault(view.variable, []).append(view)
        if prod(len(set(zip(*(view.states for view in own), strict=True))) for own in scope.values()) > MOST_JOINT:
            self._add_pairs(conversions, weight)
            return
        states = list(dict.fromkeys(state for view in views for state in view.states))
        numbers = {state: i for i, state in enumerate(states)}
        classes: list[Array] = []
        placed: dict[View, Array] = {}
        dimensions: list[int] = []
        for variable, own in scope.items():
            seen: dict[tuple[State, ...], int] = {}
            rows = zip(*(view.states for view in own), strict=True)
            of_choices = [seen.setdefault(row, len(seen)) for row in rows]
            if len(seen) > 1:
                dimensions.append(variable)
                classes.append(np.array(of_choices))
            for view, column in zip(own, zip(*seen, strict=True), strict=True):
                own_numbers = np.array([numbers[state] for state in column])
                placed[view] = own_numbers if len(seen) > 1 else own_numbers[0]
        for view in placed:
            if view.variable in dimensions:
                axis = dimensions.index(view.variable)
                placed[view] = placed[view].reshape([-1 if a == axis else 1 for a in range(len(dimensions))])
        matrix = np.full((len(states), len(states)), inf)
        for source in dict.fromkeys(conversions.produced.states):
            for target in states:
                matrix[numbers[source], numbers[target]] = self._cost(conversions, weight, source, target)
        source, *targets = (placed[view] for view in views)
        costs = np.zeros([int(c.max()) + 1 for c in classes])
        for i, target in enumerate(targets):
            added = matrix[source, target]
            for earlier in targets[:i]:
                added = np.where(earlier == target, 0.0, added)
            costs = costs + added
        if dimensions:
            self.network.add(Table(tuple(dimensions), tuple(classes), costs))
        else:  # the same whatever is chosen
            self.network.charge(conversions.produced.variable, costs)

    def _add_one(self, conversions: _Conversions, weight: int) -> None:
        """The same for a value that is needed in one state."""
        import numpy as np

        produced, (needed,) = conversions.produced, conversions.needed
        if produced.variable == needed.variable:
            pairs = zip(produced.states, needed.states, strict=True)
            self._charge(produced.variable, [self._cost(conversions, weight, *pair) for pair in pairs])
            return
        sources, targets = [list(dict.fromkeys(view.states)) for view in (produced, needed)]
        costs = [[self._cost(conversions, weight, source, target) for target in targets] for source in sources]
        classes = [np.array([keys.index(s) for s in v.states]) for v, keys in ((produced, sources), (needed, targets))]
        self.network.add(Table((produced.variable, needed.variable), tuple(classes), np.array(costs)))

    def _add_pairs(self, conversions: _Conversions, weight: int) -> None:
        """The same for a value that many need: for each state, a variable says whether the value is converted to it."""
        import numpy as np

        produced = conversions.produced
        for target in dict.fromkeys(state for view in conversions.needed for state in view.states):
            made = self.network.variable([0.0, 0.0])
            price = np.array([[0.0, self._cost(conversions, weight, source, target)] for source in produced.states])
            self.network.add(Table((produced.variable, made), (np.arange(len(price)), np.arange(2)), price))
            for view in conversions.needed:
                needs = np.array([int(state == target) for state in view.states])
                if needs.any():
                    table = np.array([[0.0, 0.0], [inf, 0.0]])
                    self.network.add(Table((view.variable, made), (needs, np.arange(2)), table))


def option_price(space: TensorSpace, op: Operation, option: Option) -> float:
    """Microseconds of an option beside the conversions."""
    in_pieces = isinstance(option.choice, UseFactor) and len(option.choice.pieces) > 1
    return TIE_BREAK * 0.1 * in_pieces + IDLE * space.is_idle(op, option)


def is_held(value: SSAValue) -> TypeGuard[OpResult]:
    """Whether it is a parameter that a function holds."""
    return isinstance(value, OpResult) and isinstance(value.op, HeldOp)


def held_option(state: State) -> Option:
    """The option of a parameter that a function holds, by the state that it has there."""
    return Option(Replicate(), (), (state,))


def _is_call(op: object) -> TypeGuard[CallOp]:
    return isinstance(op, CallOp)


def whole_prices(space: TensorSpace, counts: Mapping[str, int]) -> dict[SSAValue, float]:
    """Microseconds for each argument of the entry that is a parameter or state, and for each that calls of a function have of their
    own, where it is whole rather than cut: the time of going over what a cut spares, and a tie-break by the part of all bytes that it is.
    `counts` says how often functions run."""
    from distir.interpreters.work import type_bytes

    sizes: dict[SSAValue, int] = {v: type_bytes(v.type) for v in model_arguments(space.entry)}
    for function in space.functions:
        for op in function.body.block.ops:
            if isinstance(op, HeldOp):
                sizes[op.output] = type_bytes(op.output.type) * counts[function.sym_name.data]
    total = sum(sizes.values()) or 1
    spared = PASSES * MICROSECONDS * space.byte_seconds * (1 - 1 / space.shards)
    return {v: size * spared + TIE_BREAK * size / total for v, size in sizes.items()}
