"""Partial plans of a beam search. In goes a candidate and its next choice; out comes the longer candidate: its
frontier (what the rest of the program can see of it), its cost, and its choices, kept as parent pointers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding.memory_lookahead import Lookahead
from distir.passes.sharding.plans import ShardingPlan
from distir.passes.sharding.problem import JointOption, Problem
from distir.passes.structure import is_constant

Key = SSAValue | tuple[str, int]
"""What a frontier knows of: a value, or a result of a function (name, index)."""
FrontierValue = tuple[AxisStates, frozenset[AxisStates]]
"""The states in which a value was produced, and all in which it is held."""
Choice = tuple[object, object]
"""An operation and its option, or a key and its states."""


@dataclass
class Candidate:
    """A partial plan: its cost in picoseconds, its frontier, and how it came to be. Within a step the frontier is that before
    the step, with changes."""

    cost: int
    before: Mapping[Key, FrontierValue]
    signature: int
    """Of `before`: equal for equal frontiers."""
    lookahead: Lookahead | None = None
    """Its memory, where that is limited."""
    score: int = 0
    """By which candidates are compared: the cost, and the price of the memory."""
    changes: Mapping[Key, FrontierValue] = field(default_factory=dict[Key, FrontierValue])
    parent: Candidate | None = None
    choices: tuple[Choice, ...] = ()

    def next(self) -> Candidate:
        """The start of a step from here."""
        return Candidate(self.cost, self.before, self.signature, self.lookahead, self.score, {}, self)

    def get(self, key: Key) -> FrontierValue | None:
        return self.changes.get(key) or self.before.get(key)

    def states(self, key: Key) -> AxisStates:
        """The states in which what the frontier has was produced."""
        frontier_value = self.get(key)
        assert frontier_value is not None
        return frontier_value[0]

    def with_value(self, key: Key, states: AxisStates, held: frozenset[AxisStates]) -> Candidate:
        """With one more entry, or another one, in the frontier."""
        return self._with_changes({**self.changes, key: (states, held)})

    def defining(self, produced: Iterable[tuple[SSAValue, AxisStates]]) -> Candidate:
        """With new values in the frontier."""
        new = {value: (states, frozenset([states])) for value, states in produced}
        return self._with_changes({**self.changes, **new})

    def choosing(self, key: object, choice: object) -> Candidate:
        return self._but(self.cost, self.lookahead, self.changes, (*self.choices, (key, choice)))

    def paying(self, cost: int) -> Candidate:
        return self._but(self.cost + cost, self.lookahead, self.changes, self.choices)

    def remembering(self, lookahead: Lookahead | None) -> Candidate:
        """With other memory."""
        return self._but(self.cost, lookahead, self.changes, self.choices)

    def _with_changes(self, changes: Mapping[Key, FrontierValue]) -> Candidate:
        return self._but(self.cost, self.lookahead, changes, self.choices)

    def _but(
        self, cost: int, lookahead: Lookahead | None, changes: Mapping[Key, FrontierValue], choices: tuple[Choice, ...]
    ) -> Candidate:
        return Candidate(cost, self.before, self.signature, lookahead, self.score, changes, self.parent, choices)

    def plan(self, problem: Problem) -> ShardingPlan:
        """What a candidate at the end of the program has chosen."""
        options: dict[Operation, JointOption] = {}
        arguments: dict[BlockArgument, AxisStates] = {}
        results: dict[str, list[AxisStates | None]] = {
            f.sym_name.data: [None] * len(f.function_type.outputs) for f in problem.functions
        }
        for key, choice in self._chosen().items():
            if isinstance(key, Operation):
                assert isinstance(choice, JointOption)
                options[key] = choice
            elif isinstance(key, BlockArgument):
                arguments[key] = choice  # pyright: ignore[reportArgumentType]
            else:
                name, index = key  # pyright: ignore
                results[name][index] = choice  # pyright: ignore
        for op, found in problem.options.items():
            if is_constant(op):
                options.setdefault(op, found[0])
        return ShardingPlan(options, arguments, results)

    def _chosen(self) -> Mapping[object, object]:
        """Every choice, parents' included."""
        found: dict[object, object] = {}
        node: Candidate | None = self
        while node is not None:
            for key, choice in node.choices:
                found.setdefault(key, choice)
            node = node.parent
        return found


@dataclass(frozen=True)
class Step:
    """One operation of a function, or the second or a later call of one that was entered before."""

    function: FuncOp
    operation: Operation
    leaves: Operation | None = None
    """Of a return, the call that it ends."""
