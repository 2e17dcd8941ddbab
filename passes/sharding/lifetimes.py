"""Lifetimes of values, whatever their states. In goes a problem; out come the positions from and until which each
value and each use is live, and the functions that run at a program point. `memory_tables` and `memory_lookahead` build on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.dist import MicrobatchesOp
from distir.interpreters.walk import uses_of
from distir.interpreters.work import shares_memory
from distir.passes.sharding.memory import Point
from distir.passes.sharding.problem import Problem
from distir.passes.structure import AnyCall, argument_attributes, is_constant, text

Position = tuple[float, ...]
"""Where a frame is: of operation k, conversions are at (2k, operand) and its run at (2k + 1,), followed by the position inside
the function that it calls."""


Use = tuple[Operation, int]
"""An operation, and which of its operands."""


@dataclass(frozen=True)
class ActiveCall:
    """A function that is being run at a program point."""

    function: FuncOp
    position: Position
    shared: frozenset[int]
    """Its results that lie in the memory of an argument of the entry."""


class Lifetimes:
    """Of one problem's values."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self._index: dict[Operation, int] = {}
        self._ends: dict[SSAValue, Position] = {}
        for function in problem.functions:
            for k, op in enumerate(function.body.block.ops):
                self._index[op] = k
        for function in problem.functions:  # callees first: what a call holds depends on its callee
            for op in reversed(list(function.body.block.ops)):
                for result in op.results:
                    self._ends[result] = self._end_of(result)
            for argument in function.body.block.args:
                self._ends[argument] = self._end_of(argument)

    def frames(self, point: Point) -> list[ActiveCall]:
        """The functions that are being run at a point, the entry first: of a staged program, its position is that in the timeline."""
        attributes = argument_attributes(self.problem.entry)
        shared = frozenset(
            i
            for i, argument in self.problem.tied.items()
            if text(attributes[argument.index], "dist.role", "input") in ("parameter", "state")
        )
        found: list[ActiveCall] = []
        function = self.problem.entry
        for depth, call in enumerate(point.path):
            inner: Position = tuple(2 * self._index[step] + 1 for step in point.path[depth:])
            found.append(ActiveCall(function, (*inner, *self._position(point)), shared))
            shared = self._passed_on(call, shared) if call.parent is function.body.block else frozenset[int]()
            function = self.problem.callee(call)
        if not point.path and self.problem.order is not None:
            return [ActiveCall(function, point.position, shared)]
        if self.problem.order is not None:  # the entry's calls are where the schedule has them
            found[0] = ActiveCall(found[0].function, (*point.position, *found[0].position[1:]), found[0].shared)
        return [*found, ActiveCall(function, self._position(point), shared)]

    def _position(self, point: Point) -> Position:
        k = self._index[point.operation]
        return (2 * k + 1,) if point.operand is None else (2 * k, point.operand)

    def _passed_on(self, call: AnyCall, shared: frozenset[int]) -> frozenset[int]:
        """Which results of a call are returned by its caller in the memory of an argument: of a loop, none."""
        if not isinstance(call, CallOp):
            return frozenset()
        return frozenset(
            i
            for i, result in enumerate(call.results)
            for use in result.uses
            if isinstance(use.operation, ReturnOp) and use.index in shared
        )

    def birth(self, op: Operation) -> Position:
        """From when an operation's results are held; a constant is stated where it is first used."""
        if is_constant(op):
            starts = (self.start(use.operation, use.index) for result in op.results for use in uses_of(result))
            return min(starts, default=(inf,))
        k = self._index[op]
        return (2 * k + 2,) if isinstance(op, AnyCall) else (2 * k + 1,)

    def start(self, op: Operation, operand: int) -> Position:
        """Where an operand is converted."""
        return (2 * self._index[op], operand)

    def end(self, value: SSAValue) -> Position:
        """Until when a value of a function is used in any states."""
        return self._ends[value]

    def remaining(self, op: Operation, operand: int, inside: Position) -> set[Use] | None:
        """What still needs what a call takes, where a position is inside of it: uses that need it as they run, if it was not converted for them;
        None if it is needed in any case."""
        assert isinstance(op, AnyCall)
        argument = self.problem.callee(op).body.block.args[operand]
        found: set[Use] = set()
        for use in uses_of(argument):
            user, index = use.operation, use.index
            if isinstance(user, ReturnOp) or self.start(user, index) >= inside:
                return None
            k = 2 * self._index[user] + 1
            if isinstance(user, AnyCall) and inside[:1] == (k,) and len(inside) > 1:
                rest = self.remaining(user, index, inside[1:])
                if rest is None:
                    return None
                found |= rest
            elif self.live_until(user, index) >= inside:
                if shares_memory(user):
                    return None
                found.add((user, index))
        return found

    def live_until(self, op: Operation, operand: int) -> Position:
        """Until when a use holds what it needs; what a call takes is held until its last use inside."""
        k = self._index[op]
        here: Position = (2 * k + 1,)
        if isinstance(op, ReturnOp):
            return (inf,)
        if isinstance(op, AnyCall):
            argument = self.problem.callee(op).body.block.args[operand]
            inside = self._ends[argument]
            if isinstance(op, MicrobatchesOp):
                return (2 * k + 1, inf)
            if inside == (inf,):  # returned: an alias of a result
                last = self.problem.callee(op).body.block.last_op
                aliases = [i for i, v in enumerate(last.operands) if root(v) is argument] if last is not None else []
                return max((self._ends[op.results[i]] for i in aliases), default=(2 * k + 1, inf))
            return (*here, *inside)
        if shares_memory(op) and operand == 0:
            return max(here, *(self._ends[result] for result in op.results))
        return here

    def holder(self, result: OpResult) -> SSAValue | None:
        """What a call's result shares its memory with, if nothing is converted: an argument of the function, or the result of
        the call (another one, or itself) that is held longest."""
        assert isinstance(result.op, CallOp)
        last = self.problem.callee(result.op).body.block.last_op
        if last is None:
            return None
        source = root(last.operands[result.index])
        if isinstance(source, BlockArgument):
            return source
        alike = [other for other, value in zip(result.op.results, last.operands, strict=True) if root(value) is source]
        return max(alike, key=lambda other: self._ends[other])

    def _end_of(self, value: SSAValue) -> Position:
        """Until when a value is used in any states."""
        return max((self.live_until(use.operation, use.index) for use in uses_of(value)), default=())


def root(value: SSAValue) -> SSAValue:
    """The value in whose memory a view of it lies."""
    while isinstance(value, OpResult) and shares_memory(value.op):
        value = value.op.operands[0]
    return value


def is_returned_in_place(
    function: FuncOp, value: SSAValue, operations: Sequence[tuple[Operation, int]], shared: frozenset[int]
) -> bool:
    """Whether a use of a value (its operations, and which of their operands) returns it in the memory of an argument."""
    last = function.body.block.last_op
    if last is None or not shared:
        return False
    return any(op is last and i in shared for op, i in operations) and not isinstance(value, BlockArgument)
