"""Beam search over plans: Algorithm 2 of the MetaDist paper with a state that makes it a dynamic program.

Operations are taken in program order; a called function where it is called first. A candidate is what the rest of the
program can see (its frontier: values still to be used, in the states in which they were produced and those in which they
are held) and what it has cost; of candidates with one frontier the cheapest stays, and of all, the `width` cheapest. They are
made in the order of their cost, and no more of them than stay. With unlimited width the search is exhaustive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, islice
from random import Random

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding_search.candidates import Candidate, Holding, Key, Step
from distir.passes.sharding_search.held_memory import HeldMemory
from distir.passes.sharding_search.memory import footprint
from distir.passes.sharding_search.option_costs import OptionCosts
from distir.passes.sharding_search.problem import JointOption, Problem
from distir.passes.sharding_search.search import Result, result_of


def beam_plan(problem: Problem, width: int | None, memory_limit: int | None = None) -> Result:
    """The best plan that a beam of this width finds. Memory guides the search where the plan that is found without regard to it
    exceeds the limit. Raises DistirError if no candidate is left, or none that fits the limit."""
    found = Beam(problem, width).search()
    if memory_limit is None or found.memory.peak_bytes <= memory_limit:
        return found
    return Beam(problem, width, memory_limit).search()


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

    def __post_init__(self) -> None:
        self._walk(self.problem.entry, None)
        self._lifetimes()
        self._memory = HeldMemory(self.problem, self.steps)

    def search(self) -> Result:
        """The best plan found. Raises DistirError if no candidate is left, or none that fits the limit of memory."""
        beam = [Candidate(0, {}, 0, self._memory.at_start())]
        for number, step in enumerate(self.steps):
            beam = self._select(number, self._cheapest_first(beam, number, step))
            if not beam:
                raise DistirError(
                    f"no sharding within {self.memory_limit} bytes is left at {step.operation.name}: widen the beam"
                )
        return self._best(beam)

    def _best(self, beam: list[Candidate]) -> Result:
        smallest = None
        for candidate in sorted(beam, key=lambda c: c.cost):
            plan = candidate.plan(self.problem)
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

    def _cheapest_first(self, beam: Sequence[Candidate], number: int, step: Step) -> Iterator[Candidate]:
        """All ways to do one step within the limit of memory, in the order of their cost."""
        waiting: list[tuple[int, int, Candidate]] = []
        order = count()
        for bound, candidate, option in self._starts(beam, step):
            while waiting and waiting[0][0] <= bound:
                yield heappop(waiting)[2]
            for done in self._fitting(self._done(candidate.next(), number, option), number):
                heappush(waiting, (done.cost, next(order), done))
        while waiting:
            yield heappop(waiting)[2]

    def _starts(self, beam: Sequence[Candidate], step: Step) -> Iterator[tuple[int, Candidate, JointOption | None]]:
        """Candidates with each option of an operation (of a call or return: none), and a cost that doing so exceeds or meets, least
        first."""
        op = step.operation
        if isinstance(op, CallOp | ReturnOp):
            yield from ((candidate.cost, candidate, None) for candidate in beam)
            return
        times = self.problem.counts[step.function.sym_name.data]
        yield from OptionCosts(self.problem, op, times).cheapest_first(beam)

    def _done(self, start: Candidate, number: int, option: JointOption | None) -> list[Candidate]:
        """One step, by each way to choose what is not chosen yet."""
        step = self.steps[number]
        op, times = step.operation, self.problem.counts[step.function.sym_name.data]
        if isinstance(op, ReturnOp):
            return self._return(start, number)
        if isinstance(op, CallOp):
            return self._call(start, op, number, times)
        assert option is not None
        chosen = start.paying(times * option.picoseconds).choosing(op, option)
        ready = self._need_all(chosen, op, option.operands, number, times)
        return [r.defining(zip(op.results, option.results, strict=True)) for r in ready]

    def _need_all(
        self, candidate: Candidate, op: Operation, needed: Sequence[AxisStates], number: int, times: int
    ) -> list[Candidate]:
        ready = [candidate]
        for value, states in zip(op.operands, needed, strict=True):
            ready = self._narrowed([c for r in ready for c in self._need(r, value, states, times)], number)
        return ready

    def _need(self, candidate: Candidate, value: SSAValue, states: AxisStates, times: int) -> Iterator[Candidate]:
        """The value in these states; an argument whose states are not chosen yet is chosen."""
        holding = candidate.get(value)
        if holding is None:
            assert isinstance(value, BlockArgument)
            for ready in self._choose_argument(candidate, value, states):
                yield from self._need(ready, value, states, times)
            return
        produced, held = holding
        if states in held:
            yield candidate
            return
        conversion = self.problem.prices.conversion(value.type, produced, states)
        if conversion is not None:
            yield candidate.holding(value, produced, held | {states}).paying(times * conversion.picoseconds)

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
                times = self.problem.counts[holder.sym_name.data]
                sources = self._need(candidate, call.operands[argument.index], states, times)
            for source in sources:
                yield source.holding(argument, states, frozenset([states])).choosing(argument, states)

    def _call(self, candidate: Candidate, call: CallOp, number: int, times: int) -> list[Candidate]:
        """A function that was entered before: its arguments and results are what they are."""
        callee = self.problem.callee(call)
        needed = [candidate.states(argument) for argument in callee.body.block.args]
        given = [candidate.states((callee.sym_name.data, i)) for i in range(len(call.results))]
        ready = self._need_all(candidate, call, needed, number, times)
        return [r.defining(zip(call.results, given, strict=True)) for r in ready]

    def _return(self, candidate: Candidate, number: int) -> list[Candidate]:
        """Results leave, one after the other; arguments that nothing used are chosen."""
        step, ready = self.steps[number], [candidate]
        name = step.function.sym_name.data
        for argument in step.function.body.block.args:
            if all(isinstance(use.operation, ReturnOp) for use in argument.uses):
                whole = self.problem.prices.whole
                chosen = [c for r in ready for c in self._choose_argument(r, argument, whole)]
                ready = self._narrowed(chosen, number)
        for i, value in enumerate(step.operation.operands):
            ready = self._narrowed([c for r in ready for c in self._leave(r, step, i, value)], number)
        if step.leaves is None:
            return ready
        results = step.leaves.results
        return [r.defining((result, r.states((name, i))) for i, result in enumerate(results)) for r in ready]

    def _leave(self, candidate: Candidate, step: Step, index: int, value: SSAValue) -> Iterator[Candidate]:
        name = step.function.sym_name.data
        found, times = self.problem.results[name][index], self.problem.counts[name]
        is_entry = step.function is self.problem.entry
        if is_entry and not found:
            left = self.problem.leaving(candidate.states(value))
            for ready in () if left is None else self._need(candidate, value, left, times):
                yield ready.choosing((name, index), None)
            return
        if is_entry and index in self.problem.tied:
            states = candidate.states(self.problem.tied[index])
            found = [states] if states in found else []
        for states in found:
            for ready in self._need(candidate, value, states, times):
                yield ready.holding((name, index), states, frozenset([states])).choosing((name, index), states)

    # --- the beam ---

    def _fits(self, candidate: Candidate, number: int) -> bool:
        if self.memory_limit is None:
            return True
        return self._memory.during(candidate, number, self.steps[number]) <= self.memory_limit

    def _fitting(self, candidates: Iterable[Candidate], number: int) -> Iterator[Candidate]:
        return (candidate for candidate in candidates if self._fits(candidate, number))

    def _narrowed(self, candidates: list[Candidate], number: int) -> list[Candidate]:
        """The cheapest that fit, in the order in which they came: within a step of many choices."""
        if self.width is None or len(candidates) <= self.width:
            return candidates
        return list(islice(self._fitting(sorted(candidates, key=lambda c: c.cost), number), self.width))

    def _select(self, number: int, candidates: Iterator[Candidate]) -> list[Candidate]:
        """The cheapest candidates of different frontiers, of those that come cheapest first."""
        found: dict[int, Candidate] = {}
        dying = self._dying.get(number, ())
        for candidate in candidates:
            changes = {key: held for key, held in candidate.changes.items() if self._last.get(key, -1) > number}
            signature = candidate.signature
            for key in {*changes, *dying}:
                if key in candidate.before:
                    signature ^= self._token(key, candidate.before[key])
                if key in changes:
                    signature ^= self._token(key, changes[key])
            if signature in found:
                continue
            frontier = {**candidate.before, **changes}
            for key in dying:
                frontier.pop(key, None)
            held = self._memory.after(candidate, number)
            found[signature] = Candidate(
                candidate.cost, frontier, signature, held, {}, candidate.parent, candidate.choices
            )
            if len(found) == self.width:
                break
        return list(found.values())

    def _token(self, key: Key, held: Holding) -> int:
        """A number for an entry; frontiers are told apart by the exclusive or of theirs."""
        found = self._tokens.get((key, held))
        if found is None:
            found = self._tokens[key, held] = self._numbers.getrandbits(128)
        return found
