"""At least what a device holds while a beam search goes through a program: arguments of the entry, and of every other value that
is still to be used its smallest copy. Views, results that lie in an argument's memory and what a called function passes on count
nothing of their own. No plan needs less (`memory.footprint` counts exactly), so a candidate that exceeds a limit here is none."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.func import CallOp, ReturnOp
from xdsl.ir import OpResult, SSAValue

from distir.interpreters.work import is_view
from distir.passes.sharding_search.candidates import Candidate, Holding, Key, Step
from distir.passes.sharding_search.lifetimes import Lifetimes
from distir.passes.sharding_search.problem import Problem
from distir.passes.structure import is_constant


class HeldMemory:
    """Of one problem, whose operations are taken in this order."""

    def __init__(self, problem: Problem, steps: Sequence[Step]):
        self._problem = problem
        self._lifetimes = Lifetimes(problem)
        self._entry_arguments = frozenset[Key](problem.entry.body.block.args)
        self._least: dict[Key, int] = {
            a: min(problem.prices.bytes(a.type, s) for s in problem.arguments[a]) for a in problem.entry.body.block.args
        }
        self._has_memory: dict[Key, bool] = {}
        self._until: dict[Key, int] = self._last_uses(steps)
        self._freed: dict[int, list[Key]] = {}
        for value, number in self._until.items():
            if self._counts(value) and value not in self._entry_arguments:
                self._freed.setdefault(number, []).append(value)

    def at_start(self) -> int:
        """Arguments, in the smallest parts in which they may arrive."""
        return sum(self._least.values())

    def during(self, candidate: Candidate, number: int, step: Step) -> int:
        """At least what is held during a step. What a call takes may be gone before its results are there."""
        is_passing = isinstance(step.operation, CallOp | ReturnOp)
        return self.after(candidate, number) if is_passing else self._with_changes(candidate, number)

    def after(self, candidate: Candidate, number: int) -> int:
        """At least what is held after a step."""
        gone = sum(self._bytes(key, candidate.get(key)) for key in self._freed.get(number, ()))
        return self._with_changes(candidate, number) - gone

    def _with_changes(self, candidate: Candidate, number: int) -> int:
        total = candidate.bytes
        for key, holding in candidate.changes.items():
            if self._counts(key) and (key in self._entry_arguments or number <= self._until.get(key, -1)):
                total += self._bytes(key, holding) - self._bytes(key, candidate.before.get(key))
        return total

    def _bytes(self, key: Key, holding: Holding | None) -> int:
        if holding is None:
            return self._least.get(key, 0)
        assert isinstance(key, SSAValue)
        if key in self._entry_arguments:
            return self._problem.prices.bytes(key.type, holding[0])
        return min(self._problem.prices.bytes(key.type, states) for states in holding[1])

    def _counts(self, key: Key) -> bool:
        if (found := self._has_memory.get(key)) is None:
            found = self._has_memory[key] = key in self._entry_arguments or self._has_own_memory(key)
        return found

    def _has_own_memory(self, key: Key) -> bool:
        if not isinstance(key, OpResult) or is_view(key.op) or is_constant(key.op) or self._updates(key):
            return False
        return not isinstance(key.op, CallOp) or self._lifetimes.holder(key) is key

    def _updates(self, value: OpResult) -> bool:
        """Whether a value leaves in the memory of an argument."""
        return any(isinstance(u.operation, ReturnOp) and u.index in self._problem.tied for u in value.uses)

    def _last_uses(self, steps: Sequence[Step]) -> dict[Key, int]:
        """The step after which a value may be gone; one that is passed to a function, when that is entered, with the last use there."""
        at = {step.operation: number for number, step in enumerate(steps)}
        entered = {step.leaves for step in steps if step.leaves is not None}
        found: dict[Key, int] = {}
        for function in self._problem.functions:  # callees first
            for op in function.body.block.ops:
                for i, value in enumerate(op.operands):
                    used = at.get(op, -1)
                    if op in entered:
                        assert isinstance(op, CallOp)
                        used = found.get(self._problem.callee(op).body.block.args[i], -1)
                    found[value] = max(used, found.get(value, -1))
        return found
