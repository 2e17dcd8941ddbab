"""The lookahead of a beam search: a memory lower bound of all completions. In goes a partial plan; out come bytes
that are live at each point of the execution, whatever is still chosen. A bound above the limit rules the candidate
out, long before the point is reached; what a choice adds to the peak to come is its cost in memory.

A value that is not chosen yet counts with the smallest of its shards. Once produced, it counts as produced until its next use, where it is
known what it is converted to; from there with the smallest of what is held, until the use after. At each use it is settled which of
these was held all along. Points are those of `memory.footprint`: every operand of every operation that is executed, calls entered, and its run. Views and
arguments of functions are counted once what they share their memory with is used no more; results in an argument's memory
and constants are not. A whole value is counted until it becomes addends, as on the device that keeps it, with shards of the device in the middle.
`memory.footprint` counts exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.interpreters.walk import uses_of, values_read
from distir.interpreters.work import shares_memory
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding.lifetimes import Lifetimes
from distir.passes.sharding.memory import least_extra
from distir.passes.sharding.problem import JointOption, Problem, produced_states
from distir.passes.structure import argument_attributes, is_constant, text

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Use = tuple[Operation, int]
"""An operation, and which of its operands."""


@dataclass(frozen=True)
class Change:
    """So many bytes more from a point to a point (inclusive), counted from each of these starts."""

    starts: Sequence[int]
    first: int
    last: int
    bytes: int


NOTHING: Sequence[Change] = ()


@dataclass(frozen=True)
class Extent:
    """What is known of a value's memory: until when each of its copies is counted, and the bytes that count until its next use for what is not settled."""

    until: Mapping[AxisStates, int]
    pending: int
    next_use: int = 0


@dataclass
class Lookahead:
    """A partial plan's memory: what is settled, and changes since then."""

    totals: Array
    """Bytes at every point, at least."""
    worst: int
    """The point of the peak."""
    peak: int
    """Bytes there, after the changes: at least the peak that they lead to."""
    extents: Mapping[SSAValue, Extent]
    """Of values that are still to be used, and others."""
    changes: tuple[Sequence[Change], ...] = ()
    changed: Mapping[SSAValue, Extent] = field(default_factory=dict[SSAValue, Extent])

    def extent(self, value: SSAValue) -> Extent:
        found = self.changed.get(value)
        return self.extents[value] if found is None else found

    def next(self, dying: Iterable[object]) -> Lookahead:
        """The start of a step, without what no later one looks at."""
        extents = {**self.extents, **self.changed}
        for key in dying:
            extents.pop(key, None)  # pyright: ignore[reportArgumentType, reportCallIssue]
        return Lookahead(self.totals, self.worst, self.peak, extents)


@dataclass
class _Life:
    """A value in its function, points counted from where that is entered."""

    own: Sequence[int]
    """Where the function is entered, those times when the value as it was produced is in memory of its own."""
    every: Sequence[int]
    """Where it is entered at all."""
    birth: int
    uses: dict[Use, int]
    """In their order, and their numbers."""
    converted: list[int]
    """Per use, the point of its conversion."""
    held: list[int]
    """Per use, until when it holds what it needs."""
    settled: list[int]
    """Per use, the last point of all uses until then."""
    least: int


class MemoryLookahead:
    """Of one problem."""

    def __init__(self, problem: Problem):
        import numpy as np

        self._problem = problem
        self._points = _Points(problem)
        self._lives: dict[SSAValue, _Life] = {}
        self._moments: dict[tuple[Operation, int], Sequence[Change]] = {}
        self._at: dict[tuple[int, int], int] = {}
        self._productions: dict[tuple[SSAValue, AxisStates], tuple[Extent, Sequence[Change]]] = {}
        self._uses: dict[tuple[Use, AxisStates, int], tuple[Extent, Extent, Sequence[Change]]] = {}
        for function in reversed(problem.functions):  # callers first
            for argument in function.body.block.args:
                self._add(argument, function)
            for op in function.body.block.ops:
                for result in op.results if not is_constant(op) else ():
                    self._add(result, function)
        self._least: Array = np.zeros(self._points.length[problem.entry], np.int64)
        for value, life in self._lives.items():
            last = life.settled[-1] if life.settled else life.birth
            if self._is_stored(value):
                last = len(self._least) - 1
            _apply(self._least, Change(life.own, life.birth, last, life.least))

    # --- what choices change ---

    def start(self) -> Lookahead:
        """Nothing is chosen yet."""
        worst = int(self._least.argmax())
        return Lookahead(self._least, worst, int(self._least[worst]), {})

    def chosen(self, lookahead: Lookahead, op: Operation, option: JointOption) -> Lookahead:
        """An operation does one option."""
        return self._with(lookahead, self._moment(op, option), lookahead.changed)

    def produced(self, lookahead: Lookahead, value: SSAValue, states: AxisStates) -> Lookahead:
        """A value is produced in some states."""
        extent, changes = self._production(value, states)
        return self._with(lookahead, changes, {**lookahead.changed, value: extent})

    def used(
        self, lookahead: Lookahead, value: SSAValue, use: Use, states: AxisStates, produced: AxisStates
    ) -> Lookahead:
        """A value is needed in some states."""
        extent, changes = self._use(value, use, states, produced, lookahead.extent(value))
        return self._with(lookahead, changes, {**lookahead.changed, value: extent})

    def _with(self, lookahead: Lookahead, changes: Sequence[Change], changed: Mapping[SSAValue, Extent]) -> Lookahead:
        peak = lookahead.peak + self._bytes_at(lookahead.worst, changes)
        return Lookahead(
            lookahead.totals, lookahead.worst, peak, lookahead.extents, (*lookahead.changes, changes), changed
        )

    def settled(self, lookahead: Lookahead) -> Lookahead:
        """With the peak that changes lead to."""
        totals = lookahead.totals.copy()
        for changes in lookahead.changes:
            for change in changes:
                _apply(totals, change)
        worst = int(totals.argmax())
        return Lookahead(totals, worst, int(totals[worst]), lookahead.extents, (), lookahead.changed)

    def moments(self, lookahead: Lookahead, op: Operation, options: Sequence[JointOption]) -> list[int]:
        """Per option, by how much more than the peak is held at the point of the peak for its moment and what it produces."""
        sizes: dict[object, int] = {}
        found: list[int] = []
        for option in options:
            total = self._bytes_at(lookahead.worst, self._moment(op, option))
            for value, states in zip(op.results, option.results, strict=True):
                if (value, states) not in sizes:
                    sizes[value, states] = self._bytes_at(lookahead.worst, self._production(value, states)[1])
                total += sizes[value, states]
            found.append(total)
        return found

    def needs(
        self, lookahead: Lookahead, value: SSAValue, use: Use, needed: Sequence[AxisStates], produced: AxisStates
    ) -> list[int]:
        """For each way to need a value, by how much more is held at the point of the peak."""
        sizes: dict[AxisStates, int] = {}
        for states in dict.fromkeys(needed):
            is_possible = self._problem.prices.conversion(value.type, produced, states) is not None
            changes = self._use(value, use, states, produced, lookahead.extent(value))[1] if is_possible else NOTHING
            sizes[states] = self._bytes_at(lookahead.worst, changes)
        return [sizes[states] for states in needed]

    def _bytes_at(self, point: int, changes: Sequence[Change]) -> int:
        """How much more some changes hold at a point; `changes` are remembered, so they are known by identity."""
        key = point, id(changes)
        if (found := self._at.get(key)) is None:
            found = self._at[key] = sum(
                change.bytes
                for change in changes
                for start in change.starts
                if start + change.first <= point <= start + change.last
            )
        return found

    def _moment(self, op: Operation, option: JointOption) -> Sequence[Change]:
        key = op, id(option)
        if (found := self._moments.get(key)) is None:
            point, size = self._points.run[op], least_extra(self._problem, op, option)
            starts = self._points.entered[self._points.function_of(op)]
            found = self._moments[key] = [Change(starts, point, point, size)] if size else NOTHING
        return found

    def _production(self, value: SSAValue, states: AxisStates) -> tuple[Extent, Sequence[Change]]:
        if (found := self._productions.get((value, states))) is None:
            found = self._productions[value, states] = self._new_production(value, states)
        return found

    def _new_production(self, value: SSAValue, states: AxisStates) -> tuple[Extent, Sequence[Change]]:
        life = self._lives.get(value)
        if life is None:
            return Extent({}, 0), NOTHING
        size = self._problem.prices.bytes(value.type, states)
        last = life.converted[0] if life.converted else life.birth
        if self._is_stored(value):
            last = len(self._least) - 1
        return Extent({states: life.birth - 1}, size), [Change(life.own, life.birth, last, size - life.least)]

    def _use(
        self, value: SSAValue, use: Use, states: AxisStates, produced: AxisStates, extent: Extent
    ) -> tuple[Extent, Sequence[Change]]:
        key = use, states, id(extent)  # of which there is one for each way to come to it
        if (found := self._uses.get(key)) is None:
            found = self._uses[key] = (extent, *self._new_use(value, use, states, produced, extent))
        return found[1:]

    def _new_use(
        self, value: SSAValue, use: Use, states: AxisStates, produced: AxisStates, extent: Extent
    ) -> tuple[Extent, Sequence[Change]]:
        life = self._lives.get(value)
        number = -1 if life is None else life.uses.get(use, -1)
        if life is None or number < extent.next_use:
            return extent, NOTHING
        prices, type_ = self._problem.prices, value.type
        at, until = life.converted[number], life.held[number]
        before = life.settled[extent.next_use - 1] if extent.next_use else life.birth - 1
        is_stored = self._is_stored(value)
        own, size = () if is_stored else life.own, prices.bytes(type_, states)
        ends, unknown = dict(extent.until), life.converted[extent.next_use]
        changes = [
            Change(own, before + 1, unknown, -extent.pending),
            Change(own, max(unknown, before) + 1, life.settled[number], -life.least),
        ]
        if states in ends:
            starts = own if states == produced else life.every
            changes.append(Change(starts, ends[states] + 1, until, size))
            ends[states] = max(until, ends[states])
        else:
            conversion = prices.conversion(type_, produced, states)
            assert conversion is not None
            if conversion.uses_source:
                changes.append(Change(own, ends[produced] + 1, at, prices.bytes(type_, produced)))
                ends[produced] = max(at, ends[produced])
            if not conversion.keeps_source:
                changes.append(Change(life.every, at, until, size))
            if is_stored:
                changes.append(Change(life.every, at, at, conversion.transient_bytes))
            else:
                changes.append(Change(own, at, at, conversion.last_bytes))
            ends[states] = until
        pending = 0
        if number + 1 < len(life.uses):
            pending = max(life.least, min(prices.bytes(type_, s) for s in ends))
            changes.append(Change(own, life.settled[number] + 1, life.converted[number + 1], pending - life.least))
        return Extent(ends, pending, number + 1), changes

    # --- when values are held ---

    def _is_stored(self, value: SSAValue) -> bool:
        """Whether a value is an argument of the entry, which stays."""
        return isinstance(value, BlockArgument) and value.block is self._problem.entry.body.block

    def _add(self, value: SSAValue, function: FuncOp) -> None:
        points = self._points
        if points.is_shared(value):
            return
        birth, own = self._birth(value, function)
        uses = sorted(
            ((use.operation, use.index) for use in uses_of(value) if points.has(use.operation)),
            key=lambda use: points.operand[use],
        )
        converted = [points.operand[use] for use in uses]
        held = [self._live_until(use, is_last=use == uses[-1]) for use in uses]
        settled: list[int] = []
        for end in held:
            settled.append(max(end, settled[-1] if settled else birth - 1))
        numbers = {use: i for i, use in enumerate(uses)}
        every = points.entered[function]
        found = self._lives[value] = _Life(own, every, birth, numbers, converted, held, settled, 0)
        if settled and settled[-1] < birth:
            found.own = ()
        states = {*produced_states(self._problem, value)}
        for op, index in uses:
            if not isinstance(op, ReturnOp):
                states.update(self._problem.needs_of(op, index))
        if self._is_stored(value):
            states = {*produced_states(self._problem, value)}
        found.least = min((self._problem.prices.bytes(value.type, s) for s in states), default=0)

    def _birth(self, value: SSAValue, function: FuncOp) -> tuple[int, Sequence[int]]:
        """From when a value counts by itself, and from which entries of its function."""
        points = self._points
        if isinstance(value, BlockArgument):
            if function is self._problem.entry:
                return 0, points.entered[function]
            return 0, [
                start + points.inside[call]
                for call in points.calls[function]
                if (source := self._lives.get(given := call.operands[value.index])) is not None
                and not self._is_stored(given)
                and [*source.uses][-1:] == [(call, value.index)]
                for start in source.own
            ]
        assert isinstance(value, OpResult)
        op = value.op
        if isinstance(op, CallOp):
            is_holder = points.lifetimes.holder(value) is value
            return points.run[op], points.entered[function] if is_holder else ()
        if not shares_memory(op):
            return points.run[op], points.entered[function]
        source = self._lives.get(op.operands[0])
        if source is None or self._is_stored(op.operands[0]):
            return points.run[op] + 1, ()
        return max(points.run[op], source.settled[-1]) + 1, source.own

    def _live_until(self, use: Use, is_last: bool) -> int:
        op, index = use
        if isinstance(op, CallOp):
            argument = self._problem.callee(op).body.block.args[index]
            inside = (self._points.operand[u.operation, u.index] for u in uses_of(argument))
            return self._points.inside[op] + (-1 if is_last else min(inside, default=-1))
        return self._points.run[op]


class _Points:
    """Points of an execution, numbered from where a function is entered."""

    def __init__(self, problem: Problem):
        self._problem = problem
        self.lifetimes = Lifetimes(problem)
        self.operand: dict[Use, int] = {}
        self.run: dict[Operation, int] = {}
        self.inside: dict[CallOp, int] = {}
        """Of a call, where the function that it calls is entered."""
        self.length: dict[FuncOp, int] = {}
        self.entered: dict[FuncOp, list[int]] = {problem.entry: [0]}
        self.calls: dict[FuncOp, list[CallOp]] = {f: [] for f in problem.functions}
        self._functions: dict[Operation, FuncOp] = {}
        for function in problem.functions:  # callees first
            self._number(function)
        for function in reversed(problem.functions):
            for call in self.calls[function]:
                caller = self.function_of(call)
                starts = [start + self.inside[call] for start in self.entered[caller]]
                self.entered.setdefault(function, []).extend(starts)
        self._shared: dict[FuncOp, frozenset[int]] = {}
        for function in reversed(problem.functions):
            self._shared[function] = self._shared_results(function)

    def function_of(self, op: Operation) -> FuncOp:
        return self._functions[op]

    def has(self, op: Operation) -> bool:
        return op in self.run

    def _number(self, function: FuncOp) -> None:
        point = 0
        for op in function.body.block.ops:
            self._functions[op] = function
            for i in range(len(values_read(op))):
                self.operand[op, i] = point
                point += 1
            if isinstance(op, CallOp):
                callee = self._problem.callee(op)
                self.calls[callee].append(op)
                self.inside[op] = point
                point += self.length[callee]
            self.run[op] = point
            point += 1
        self.length[function] = point

    def _shared_results(self, function: FuncOp) -> frozenset[int]:
        """Results that some call returns in the memory of an argument of the entry."""
        if function is self._problem.entry:
            attributes = argument_attributes(function)
            return frozenset(
                i
                for i, argument in self._problem.tied.items()
                if text(attributes[argument.index], "dist.role", "input") in ("parameter", "state")
            )
        return frozenset(r.index for call in self.calls[function] for r in call.results if self.is_shared(r))

    def is_shared(self, value: SSAValue) -> bool:
        """Whether a value, or a view of it, leaves in the memory of an argument."""
        if isinstance(value, BlockArgument):
            return False
        for use in uses_of(value):
            op = use.operation
            if isinstance(op, ReturnOp):
                if use.index in self._shared.get(self._functions[op], ()):
                    return True
            elif shares_memory(op) and use.index == 0 and any(map(self.is_shared, op.results)):
                return True
        return False


@dataclass(frozen=True)
class Limit:
    """Of the memory of plans."""

    memory: MemoryLookahead
    bytes: int
    price: float
    """Picoseconds that a candidate may cost more for a byte less at its peak."""
    uncounted_bytes: int = 0
    """What plans were found to need beyond what is counted ahead."""

    @property
    def lookahead_bytes(self) -> int:
        """What may be counted ahead."""
        return self.bytes - self.uncounted_bytes


def _apply(totals: Array, change: Change) -> None:
    if change.bytes and change.first <= change.last:
        for start in change.starts:
            totals[start + change.first : start + change.last + 1] += change.bytes
