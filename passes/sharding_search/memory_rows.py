"""Memory at one point of an execution, as a linear expression over an integer program's variables.

Every frame on the path to the point (the entry, and each function called) contributes what its own values hold there:
a value in the states in which it was produced, until its last use in them or the last conversion out of them; and each copy in
other states, from the first use that needs it to the last. A value that a call takes is held until its last use inside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from distir.interpreters.work import is_view
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding_search.integer_program import IntegerProgram, Use
from distir.passes.sharding_search.lifetimes import Lifetimes, Position, is_returned_in_place
from distir.passes.sharding_search.memory import Point, has_own_memory, least_extra
from distir.passes.structure import is_constant

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
        self._lifetimes = Lifetimes(program.problem)

    def terms(self, point: Point) -> Terms:
        """Bytes at a point."""
        frames = self._lifetimes.frames(point)
        found = [term for frame in frames for term in self._frame(frame.function, frame.position, frame.shared)]
        return found + self._transient(point)

    def _uses(self, value: SSAValue) -> list[Held]:
        found: list[Held] = []
        for use in self.program.uses[value]:
            for op, operand in use.operations:
                start, end = self._lifetimes.start(op, operand), self._lifetimes.held_until(op, operand)
                found.append(Held(use, start, end))
        return sorted(found, key=lambda held: held.start)

    # --- one frame ---

    def _frame(self, function: FuncOp, position: Position, shared: frozenset[int]) -> Terms:
        found: Terms = []
        is_entry = function is self.problem.entry
        for argument in function.body.block.args:
            if is_entry:
                found += self._sized(argument, self.program.produced[argument])
            found += self._copies(argument, position, shared, function)
        for op in function.body.block.ops:
            birth = self._lifetimes.birth(op)
            if birth > position:
                continue
            for i, result in enumerate(op.results):
                if not (is_view(op) and i == 0):
                    found += self._original(result, position, birth, shared, function)
                found += self._copies(result, position, shared, function)
        return found

    def _sized(self, value: SSAValue, states: dict[AxisStates, Any]) -> Terms:
        return [(x, float(self.problem.prices.bytes(value.type, s))) for s, x in states.items()]

    def _original(
        self, value: SSAValue, position: Position, birth: Position, shared: frozenset[int], function: FuncOp
    ) -> Terms:
        """The value in the states in which it was produced."""
        produced = self.program.produced[value]
        if position == birth:
            held: Terms = self._sized(value, produced)
            uses = [h for h in self._uses(value) if is_returned_in_place(function, value, h.use.operations, shared)]
            return held + self._without(value, uses)
        uses = [h for h in self._uses(value) if h.end >= position]
        if not uses:
            return []
        found: Terms = []
        for states in produced:
            size = float(self.problem.prices.bytes(value.type, states))
            needed = [self._needs_original(value, states, held, position) for held in uses]
            found += [(x, weight * size) for x, weight in self._largest([terms for terms in needed if terms])]
        return found + self._without(
            value, [h for h in uses if is_returned_in_place(function, value, h.use.operations, shared)]
        )

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
            returning = [h for h in lasting if is_returned_in_place(function, value, h.use.operations, shared)]
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
            return [(x, float(size)) for x, option in pairs if (size := least_extra(self.problem, op, option))]
        value = op.operands[point.operand]
        is_last = has_own_memory(value) and value.uses.get_length() == 1
        moments: dict[float, list[Any]] = defaultdict(list)
        for use in self.program.uses[value]:
            if (op, point.operand) in use.operations:
                for (source, target), flow in use.flows.items():
                    conversion = prices.conversion(value.type, source, target)
                    if conversion is not None:
                        size = conversion.last_bytes if is_last else conversion.transient_bytes
                        moments[float(size)].append(flow)
        return [(flow, size) for size, flows in moments.items() if size for flow in flows]


def _into(use: Use, target: AxisStates) -> Terms:
    """1 if a use needs a copy in these states."""
    return [(flow, 1.0) for (source, there), flow in use.flows.items() if there == target and source != target]
