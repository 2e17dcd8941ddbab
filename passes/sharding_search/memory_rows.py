"""Memory at one point of an execution, as a linear expression over an integer program's variables.

Every frame on the path to the point (the entry, and each function called) contributes what its own values hold there:
a value in the states in which it was produced, until its last use in them or the last conversion out of them; and each copy in
other states, from the first use that needs it to the last. A value that a call takes is held until its last use inside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from distir.interpreters.work import is_view
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding_search.integer_program import IntegerProgram, Use
from distir.passes.sharding_search.memory import Point, extra_memory
from distir.passes.structure import argument_attributes, is_constant, text

Position = tuple[float, ...]
"""Where a frame is: of operation k, conversions are at (2k, operand) and its run at (2k + 1,), followed by the position inside
the function that it calls."""

Terms = list[tuple[Any, float]]


@dataclass(frozen=True)
class Held:
    """One use of a value: the integer program's, where its conversion is, and until when it holds what it needs."""

    use: Use
    start: Position
    end: Position


class MemoryRows:
    """Rows of one integer program."""

    def __init__(self, program: IntegerProgram):
        self.program, self.problem = program, program.problem
        self._index: dict[Operation, int] = {}
        self._ends: dict[SSAValue, Position] = {}
        self._tied: dict[Operation, frozenset[int]] = {}
        for function in self.problem.functions:
            for k, op in enumerate(function.body.block.ops):
                self._index[op] = k
        for function in self.problem.functions:  # callees first: what a call holds depends on its callee
            for op in reversed(list(function.body.block.ops)):
                for result in op.results:
                    self._ends[result] = self._end_of(result)
            for argument in function.body.block.args:
                self._ends[argument] = self._end_of(argument)

    def terms(self, point: Point) -> Terms:
        """Bytes at a point."""
        attributes = argument_attributes(self.problem.entry)
        shared = frozenset(
            i
            for i, argument in self.problem.tied.items()
            if text(attributes[argument.index], "dist.role", "input") in ("parameter", "state")
        )
        found: Terms = []
        frames = [*point.path, None]
        function = self.problem.entry
        for depth, call in enumerate(frames):
            if call is None:
                found += self._frame(function, self._position(point), shared) + self._transient(point)
                break
            inner: Position = ()
            for step in point.path[depth:]:
                inner = (*inner, 2 * self._index[step] + 1)
            found += self._frame(function, (*inner, *self._position(point)), shared)
            shared = self._passed_on(call, shared)
            function = self.problem.callee(call)
        return found

    def _position(self, point: Point) -> Position:
        k = self._index[point.operation]
        return (2 * k + 1,) if point.operand is None else (2 * k, point.operand)

    def _passed_on(self, call: CallOp, shared: frozenset[int]) -> frozenset[int]:
        """Which results of a call are returned by its caller in the memory of an argument."""
        return frozenset(
            i
            for i, result in enumerate(call.results)
            for use in result.uses
            if isinstance(use.operation, ReturnOp) and use.index in shared
        )

    # --- lifetimes ---

    def _uses(self, value: SSAValue) -> list[Held]:
        found: list[Held] = []
        for use in self.program.uses[value]:
            for operation, operand in use.operations:
                k = self._index[operation]
                found.append(Held(use, (2 * k, operand), self._held_until(operation, operand)))
        return sorted(found, key=lambda held: held.start)

    def _held_until(self, op: Operation, operand: int) -> Position:
        k = self._index[op]
        here: Position = (2 * k + 1,)
        if isinstance(op, ReturnOp):
            return (inf,)
        if isinstance(op, CallOp):
            argument = self.problem.callee(op).body.block.args[operand]
            inside = self._ends[argument]
            if inside == (inf,):  # returned: an alias of a result
                last = self.problem.callee(op).body.block.last_op
                aliases = [i for i, v in enumerate(last.operands) if v is argument] if last is not None else []
                return max((self._ends[op.results[i]] for i in aliases), default=(2 * k + 1, inf))
            return (*here, *inside)
        if is_view(op) and operand == 0:
            return max(here, self._ends[op.results[0]])
        return here

    def _end_of(self, value: SSAValue) -> Position:
        """Until when a value is used in any states."""
        return max((self._held_until(use.operation, use.index) for use in value.uses), default=())

    # --- one frame ---

    def _frame(self, function: FuncOp, position: Position, shared: frozenset[int]) -> Terms:
        found: Terms = []
        is_entry = function is self.problem.entry
        for argument in function.body.block.args:
            if is_entry:
                found += self._sized(argument, self.program.produced[argument])
            found += self._copies(argument, position, shared, function)
        for op in function.body.block.ops:
            k = self._index[op]
            birth: Position = (2 * k + 2,) if isinstance(op, CallOp) else (2 * k + 1,)
            if birth > position:
                break
            for i, result in enumerate(op.results):
                if not (is_view(op) and i == 0):
                    found += self._original(result, position, birth, shared, function)
                found += self._copies(result, position, shared, function)
        return found

    def _sized(self, value: SSAValue, states: dict[AxisStates, Any]) -> Terms:
        return [(x, float(self.problem.prices.bytes(value.type, s))) for s, x in states.items()]

    def _is_shared(self, held: Held, value: SSAValue, function: FuncOp, shared: frozenset[int]) -> bool:
        last = function.body.block.last_op
        if last is None or not shared:
            return False
        return any(op is last and i in shared for op, i in held.use.operations) and not isinstance(value, BlockArgument)

    def _original(
        self, value: SSAValue, position: Position, birth: Position, shared: frozenset[int], function: FuncOp
    ) -> Terms:
        """The value in the states in which it was produced."""
        produced = self.program.produced[value]
        if position == birth:
            held: Terms = self._sized(value, produced)
            uses = [h for h in self._uses(value) if self._is_shared(h, value, function, shared)]
            return held + self._without(value, uses)
        uses = [h for h in self._uses(value) if h.end >= position]
        if not uses:
            return []
        found: Terms = []
        for states in produced:
            size = float(self.problem.prices.bytes(value.type, states))
            needed = [self._needs_original(value, states, held, position) for held in uses]
            found += [(x, weight * size) for x, weight in self._largest([terms for terms in needed if terms])]
        return found + self._without(value, [h for h in uses if self._is_shared(h, value, function, shared)])

    def _without(self, value: SSAValue, uses: Sequence[Held]) -> Terms:
        """Takes out what shares an argument's memory: the produced value, if it is returned as it is."""
        if not uses:
            return []
        flows = uses[0].use.flows
        return [(x, -float(self.problem.prices.bytes(value.type, s))) for (s, t), x in flows.items() if s == t]

    def _needs_original(self, value: SSAValue, states: AxisStates, held: Held, position: Position) -> Terms:
        """1 if this use keeps the produced value: it needs it so, or converts it later to what is not held yet."""
        found: Terms = []
        earlier = [other for other in self._uses(value) if other.start < position]
        for (source, target), flow in held.use.flows.items():
            if source != states:
                continue
            if target == source:
                found.append((flow, 1.0))
            elif held.start >= position and not any(other.use is held.use for other in earlier):
                before = [o.use.flows[source, target] for o in earlier if (source, target) in o.use.flows]
                if before:
                    rest = self.program.continuous()
                    self.program.row([(rest, 1.0), (flow, -1.0), *((x, 1.0) for x in before)], ">=", 0.0)
                    found.append((rest, 1.0))
                else:
                    found.append((flow, 1.0))
        return found

    def _copies(self, value: SSAValue, position: Position, shared: frozenset[int], function: FuncOp) -> Terms:
        """The copies in other states that are held here."""
        uses = self._uses(value)
        begun = [held for held in uses if held.start <= position]
        lasting = [held for held in uses if held.end >= position]
        if not begun or not lasting:
            return []
        found: Terms = []
        targets = dict.fromkeys(t for held in begun for (s, t) in held.use.flows if s != t)
        for target in targets:
            needs: list[Terms] = []
            pairs: set[tuple[int, int]] = set()
            for first in begun:
                for last in lasting:
                    key = (id(first.use), id(last.use))
                    if key in pairs or (first.start > last.start and first.use is not last.use):
                        continue
                    pairs.add(key)
                    if first.use is last.use:
                        needs.append(_into(first.use, target))
                    elif (into := _into(first.use, target)) and (again := _into(last.use, target)):
                        if last.start > position:  # not begun: held for it only if both need it
                            needs.append([*into, *again, (1.0, -1.0)])
                            continue
                        needs.append(again)
            size = float(self.problem.prices.bytes(value.type, target))
            found += [(x, weight * size) for x, weight in self._largest([terms for terms in needs if terms])]
            returning = [h for h in lasting if self._is_shared(h, value, function, shared)]
            found += [(x, -size * weight) for h in returning[:1] for x, weight in _into(h.use, target)]
        return found

    def _largest(self, candidates: Sequence[Terms]) -> Terms:
        """The largest of several expressions that are 0 or 1."""
        distinct: dict[tuple[tuple[int, float], ...], Terms] = {}
        for terms in candidates:
            distinct.setdefault(tuple((id(x), weight) for x, weight in terms), terms)
        only = list(distinct.values())
        if not only:
            return []
        if len(only) == 1 and all(weight > 0 for _, weight in only[0]):
            return only[0]
        largest = self.program.continuous()
        for terms in only:
            self.program.row([(largest, 1.0), *((x, -weight) for x, weight in terms)], ">=", 0.0)
        return [(largest, 1.0)]

    def _transient(self, point: Point) -> Terms:
        """What the conversion or the scaling at the point itself takes for a moment."""
        op, prices = point.operation, self.problem.prices
        if point.operand is None:
            if op not in self.program.options or is_constant(op):
                return []
            pairs = zip(self.program.options[op], self.problem.options[op], strict=True)
            return [
                (x, float(size)) for x, option in pairs if (size := extra_memory(self.problem, op, option).at_most())
            ]
        value = op.operands[point.operand]
        moments: dict[float, list[Any]] = defaultdict(list)
        for use in self.program.uses[value]:
            if (op, point.operand) in use.operations:
                for (source, target), flow in use.flows.items():
                    conversion = prices.conversion(value.type, source, target)
                    if conversion is not None and conversion.transient_bytes:
                        moments[float(conversion.transient_bytes)].append(flow)
        return [(flow, size) for size, flows in moments.items() for flow in flows]


def _into(use: Use, target: AxisStates) -> Terms:
    """1 if a use needs a copy in these states."""
    return [(flow, 1.0) for (source, there), flow in use.flows.items() if there == target and source != target]
