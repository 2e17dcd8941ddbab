"""Beam search over plans: Algorithm 2 of the MetaDist paper with a state that makes it a dynamic program.

Operations are taken in program order; a called function where it is called first. A candidate is what the rest of the
program can see (its frontier: values still to be used, in the states in which they were produced and those in which they
are held) and what it has cost; of candidates with one frontier the cheapest stays, and of all, the `width` cheapest. Choices are
kept as parent pointers. With unlimited width the search is exhaustive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.errors import DistirError
from distir.interpreters.work import is_view
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding_search.memory import footprint
from distir.passes.sharding_search.plans import Plan
from distir.passes.sharding_search.problem import JointOption, Problem
from distir.passes.sharding_search.search import Result, result_of
from distir.passes.structure import is_constant

Key = SSAValue | tuple[str, int]
"""What a frontier knows of: a value, or a result of a function (name, index)."""
Holding = tuple[AxisStates, frozenset[AxisStates]]
"""The states in which a value was produced, and all in which it is held."""
Choice = tuple[object, object]
"""An operation and its option, or a key and its states."""


@dataclass(frozen=True)
class Step:
    """One operation of a function, or the second or a later call of one that was entered before."""

    function: FuncOp
    operation: Operation
    leaves: CallOp | None = None
    """Of a return, the call that it ends."""


@dataclass
class Candidate:
    """A partial plan: its cost in picoseconds, its frontier, and how it came to be. Within a step the frontier is that before
    the step, with changes."""

    cost: int
    before: Mapping[Key, Holding]
    signature: int
    """Of `before`: equal for equal frontiers."""
    changes: Mapping[Key, Holding] = field(default_factory=dict[Key, Holding])
    parent: Candidate | None = None
    choices: tuple[Choice, ...] = ()

    def get(self, key: Key) -> Holding | None:
        return self.changes.get(key) or self.before.get(key)

    def holding(self, key: Key, states: AxisStates, held: frozenset[AxisStates]) -> Candidate:
        """With one more entry, or another one, in the frontier."""
        return self.with_changes({**self.changes, key: (states, held)})

    def with_changes(self, changes: Mapping[Key, Holding]) -> Candidate:
        return Candidate(self.cost, self.before, self.signature, changes, self.parent, self.choices)

    def choosing(self, key: object, choice: object) -> Candidate:
        choices = (*self.choices, (key, choice))
        return Candidate(self.cost, self.before, self.signature, self.changes, self.parent, choices)

    def paying(self, cost: int) -> Candidate:
        return Candidate(self.cost + cost, self.before, self.signature, self.changes, self.parent, self.choices)


@dataclass
class Beam:
    """One search."""

    problem: Problem
    width: int | None
    memory_limit: int | None = None
    steps: list[Step] = field(default_factory=list[Step])
    _entered: dict[str, CallOp] = field(default_factory=dict[str, CallOp])
    _last: dict[Key, int] = field(default_factory=dict[Key, int])
    _dying: dict[int, list[Key]] = field(default_factory=dict[int, list[Key]])
    """Per step, the entries of a frontier that no later step looks at."""
    _numbers: Random = field(default_factory=lambda: Random(0))
    _tokens: dict[tuple[Key, Holding], int] = field(default_factory=dict[tuple[Key, Holding], int])

    def search(self) -> Result:
        """The best plan found. Raises DistirError if no candidate is left, or none that fits the limit of memory."""
        self._walk(self.problem.entry, None)
        self._lifetimes()
        beam = [Candidate(0, {}, 0)]
        for number, step in enumerate(self.steps):
            beam = self._select(number, [c for candidate in beam for c in self._expand(candidate, step)])
            if not beam:
                raise DistirError(
                    f"no sharding within {self.memory_limit} bytes is left at {step.operation.name}: widen the beam"
                )
        return self._best(beam)

    def _best(self, beam: list[Candidate]) -> Result:
        smallest = None
        for candidate in sorted(beam, key=lambda c: c.cost):
            plan = self._plan(candidate)
            memory = footprint(self.problem, plan)
            if self.memory_limit is None or memory.peak_bytes <= self.memory_limit:
                return result_of(self.problem, plan, 0.0, memory)
            smallest = min(memory.peak_bytes, smallest or memory.peak_bytes)
        raise DistirError(
            f"memory-limit {self.memory_limit} bytes: the beam of width {self.width} ends in no plan that fits; the smallest "
            f"of its plans needs {smallest} bytes: widen the beam, or use ilp-shard"
        )

    # --- the order of steps ---

    def _walk(self, function: FuncOp, call: CallOp | None) -> None:
        for op in function.body.block.ops:
            if isinstance(op, CallOp) and op.callee.string_value() not in self._entered:
                self._entered[op.callee.string_value()] = op
                self._walk(self.problem.callee(op), op)
            else:
                self.steps.append(Step(function, op, call if isinstance(op, ReturnOp) else None))

    def _lifetimes(self) -> None:
        """The last step that looks at each entry of a frontier."""
        at = {step.operation: number for number, step in enumerate(self.steps)}
        for number, step in enumerate(self.steps):
            if step.leaves is not None:
                at[step.leaves] = number
        for op, number in at.items():
            for value in op.operands:
                self._last[value] = max(self._last.get(value, -1), number)
            if isinstance(op, CallOp):
                callee = self.problem.callee(op)
                for key in (*callee.body.block.args, *((callee.sym_name.data, i) for i in range(len(op.results)))):
                    self._last[key] = max(self._last.get(key, -1), number)
        for argument in self.problem.tied.values():
            self._last[argument] = len(self.steps)
        for key, number in self._last.items():
            self._dying.setdefault(number, []).append(key)

    # --- one step ---

    def _expand(self, candidate: Candidate, step: Step) -> Iterator[Candidate]:
        """All ways to do one step, with their cost."""
        op, problem = step.operation, self.problem
        count = problem.counts[step.function.sym_name.data]
        start = Candidate(candidate.cost, candidate.before, candidate.signature, {}, candidate)
        if isinstance(op, ReturnOp):
            yield from self._return(start, step)
        elif isinstance(op, CallOp):
            yield from self._call(start, op, count)
        else:
            for option in problem.options[op]:
                chosen = start.paying(count * option.picoseconds).choosing(op, option)
                for ready in self._need_all(chosen, op, option.operands, count):
                    yield _define(ready, zip(op.results, option.results, strict=True))

    def _need_all(
        self, candidate: Candidate, op: Operation, needed: tuple[AxisStates, ...], count: int
    ) -> Iterator[Candidate]:
        ready = [candidate]
        for value, states in zip(op.operands, needed, strict=True):
            ready = [c for r in ready for c in self._need(r, value, states, count)]
        yield from ready

    def _need(self, candidate: Candidate, value: SSAValue, states: AxisStates, count: int) -> Iterator[Candidate]:
        """The value in these states; an argument whose states are not chosen yet is chosen."""
        holding = candidate.get(value)
        if holding is None:
            assert isinstance(value, BlockArgument)
            for ready in self._choose_argument(candidate, value, states):
                yield from self._need(ready, value, states, count)
            return
        produced, held = holding
        if states in held:
            yield candidate
            return
        conversion = self.problem.prices.conversion(value.type, produced, states)
        if conversion is not None:
            yield candidate.holding(value, produced, held | {states}).paying(count * conversion.picoseconds)

    def _choose_argument(
        self, candidate: Candidate, argument: BlockArgument, wanted: AxisStates
    ) -> Iterator[Candidate]:
        """An argument at its first use. What the first use wants is the cheapest so far; a narrow beam also tries the
        whole value and, where memory is short, the other states in which it may be passed."""
        found = self.problem.arguments[argument]
        wanted = next(iter(self.problem.passed([wanted])), wanted)
        if self.width is not None and wanted in found:
            whole = self.problem.prices.whole
            others = (
                found if self.memory_limit is not None and len(self.problem.tied) else [s for s in found if s == whole]
            )
            found = list(dict.fromkeys([wanted, *others]))
        function = argument.block.parent_op()
        assert isinstance(function, FuncOp)
        call = self._entered.get(function.sym_name.data)
        for states in found:
            if call is None:
                sources = [candidate]
            else:
                holder = call.parent_op()
                assert isinstance(holder, FuncOp)
                count = self.problem.counts[holder.sym_name.data]
                sources = self._need(candidate, call.operands[argument.index], states, count)
            for source in sources:
                yield source.holding(argument, states, frozenset([states])).choosing(argument, states)

    def _call(self, candidate: Candidate, call: CallOp, count: int) -> Iterator[Candidate]:
        """A function that was entered before: its arguments and results are what they are."""
        callee = self.problem.callee(call)
        needed = tuple(_states(candidate, argument) for argument in callee.body.block.args)
        given = [_states(candidate, (callee.sym_name.data, i)) for i in range(len(call.results))]
        for ready in self._need_all(candidate, call, needed, count):
            yield _define(ready, zip(call.results, given, strict=True))

    def _return(self, candidate: Candidate, step: Step) -> Iterator[Candidate]:
        """Results leave, one after the other; arguments that nothing used are chosen."""
        name, count = step.function.sym_name.data, self.problem.counts[step.function.sym_name.data]
        ready = [candidate]
        for argument in step.function.body.block.args:
            if all(isinstance(use.operation, ReturnOp) for use in argument.uses):
                whole = self.problem.prices.whole
                ready = self._narrowed([c for r in ready for c in self._choose_argument(r, argument, whole)])
        for i, value in enumerate(step.operation.operands):
            ready = self._narrowed([c for r in ready for c in self._leave(r, step, i, value, count)])
        for final in ready:
            if step.leaves is None:
                yield final
            else:
                given = [_states(final, (name, i)) for i in range(len(step.leaves.results))]
                yield _define(final, zip(step.leaves.results, given, strict=True))

    def _leave(self, candidate: Candidate, step: Step, index: int, value: SSAValue, count: int) -> Iterator[Candidate]:
        name = step.function.sym_name.data
        found = self.problem.results[name][index]
        is_entry = step.function is self.problem.entry
        if is_entry and not found:
            left = self.problem.leaving(_states(candidate, value))
            for ready in () if left is None else self._need(candidate, value, left, count):
                yield ready.choosing((name, index), None)
            return
        if is_entry and index in self.problem.tied:
            states = _states(candidate, self.problem.tied[index])
            found = [states] if states in found else []
        for states in found:
            for ready in self._need(candidate, value, states, count):
                yield ready.holding((name, index), states, frozenset([states])).choosing((name, index), states)

    # --- the beam ---

    def _narrowed(self, candidates: list[Candidate]) -> list[Candidate]:
        """The cheapest, in the order in which they came: within a step of many choices."""
        return sorted(candidates, key=lambda c: c.cost)[: self.width]

    def _select(self, number: int, candidates: list[Candidate]) -> list[Candidate]:
        """The cheapest candidates of different frontiers, cheapest first."""
        found: dict[int, Candidate] = {}
        dying = self._dying.get(number, ())
        for candidate in sorted(candidates, key=lambda c: c.cost):
            if len(found) == self.width:
                break
            changes = {key: held for key, held in candidate.changes.items() if self._last.get(key, -1) > number}
            signature = candidate.signature
            for key in {*changes, *dying}:
                if key in candidate.before:
                    signature ^= self._token(key, candidate.before[key])
                if key in changes:
                    signature ^= self._token(key, changes[key])
            if signature in found:
                continue
            if self.memory_limit is not None and self._bytes(candidate) > self.memory_limit:
                continue
            frontier = {**candidate.before, **changes}
            for key in dying:
                frontier.pop(key, None)
            found[signature] = Candidate(candidate.cost, frontier, signature, {}, candidate.parent, candidate.choices)
        return list(found.values())

    def _token(self, key: Key, held: Holding) -> int:
        """A number for an entry; frontiers are told apart by the exclusive or of theirs."""
        found = self._tokens.get((key, held))
        if found is None:
            found = self._tokens[key, held] = self._numbers.getrandbits(128)
        return found

    def _bytes(self, candidate: Candidate) -> int:
        """At least what the device holds now: arguments of the entry, and of every other value that is still to be used its
        smallest copy (views and arguments of called functions have no memory of their own)."""
        prices, total = self.problem.prices, 0
        for argument in self.problem.entry.body.block.args:
            states = _argument_states(candidate, argument)
            found = self.problem.arguments[argument] if states is None else [states]
            total += min(prices.bytes(argument.type, s) for s in found)
        for key, (_, held) in {**candidate.before, **candidate.changes}.items():
            if isinstance(key, OpResult) and not is_view(key.op) and not is_constant(key.op) and not self._updates(key):
                total += min(prices.bytes(key.type, s) for s in held)
        return total

    def _updates(self, value: OpResult) -> bool:
        return any(isinstance(u.operation, ReturnOp) and u.index in self.problem.tied for u in value.uses)

    def _plan(self, candidate: Candidate) -> Plan:
        chosen = dict(_chosen(candidate))
        options: dict[Operation, JointOption] = {}
        arguments: dict[BlockArgument, AxisStates] = {}
        results: dict[str, list[AxisStates | None]] = {
            f.sym_name.data: [None] * len(f.function_type.outputs) for f in self.problem.functions
        }
        for key, choice in chosen.items():
            if isinstance(key, Operation):
                assert isinstance(choice, JointOption)
                options[key] = choice
            elif isinstance(key, BlockArgument):
                arguments[key] = choice  # pyright: ignore[reportArgumentType]
            else:
                name, index = key  # pyright: ignore
                results[name][index] = choice  # pyright: ignore
        for op, found in self.problem.options.items():
            if is_constant(op):
                options.setdefault(op, found[0])
        return Plan(options, arguments, results)


def _chosen(candidate: Candidate) -> Mapping[object, object]:
    """Every choice of a candidate, its parents' included."""
    found: dict[object, object] = {}
    node: Candidate | None = candidate
    while node is not None:
        for key, choice in node.choices:
            found.setdefault(key, choice)
        node = node.parent
    return found


def _argument_states(candidate: Candidate, argument: BlockArgument) -> AxisStates | None:
    """How an argument arrives, while it is still to be used."""
    holding = candidate.get(argument)
    return None if holding is None else holding[0]


def _states(candidate: Candidate, key: Key) -> AxisStates:
    """The states in which what the frontier has was produced."""
    holding = candidate.get(key)
    assert holding is not None
    return holding[0]


def _define(candidate: Candidate, produced: Iterator[tuple[SSAValue, AxisStates]]) -> Candidate:
    """With new values in the frontier."""
    new = {value: (states, frozenset([states])) for value, states in produced}
    return candidate.with_changes({**candidate.changes, **new})
