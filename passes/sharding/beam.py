"""Beam search over plans: Algorithm 2 of the MetaDist paper with a state that makes it a dynamic program. In go a
problem and a width; out comes the fastest plan found.

Operations are taken in program order; a called function where it is called first. A candidate is what the rest of the
program can see (its frontier: values still to be used, in the states in which they were produced and those in which they
are held) and what it has cost; of candidates with one frontier the cheapest stays, and of all, the `width` cheapest. They are
made in the order of their cost, and no more of them than stay. With unlimited width the search is exhaustive.

Within a limit of memory (`beam_within`), candidates also carry the memory that they lead to, and are compared by both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.errors import DistirError
from distir.interpreters.walk import values_read
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding.candidates import Candidate, FrontierValue, Key, Step
from distir.passes.sharding.memory import footprint
from distir.passes.sharding.memory_lookahead import Limit, Use
from distir.passes.sharding.option_costs import OptionCosts
from distir.passes.sharding.problem import JointOption, Problem
from distir.passes.sharding.result import Result, result_of
from distir.passes.solver.deadline import NEVER, Deadline

CROWD = 1 / 2
"""The share of a beam that the best candidates fill where memory is limited; the rest is for those in which a large value is in other states."""
SOON = 4
"""Steps within which that value is used."""


class NoPlan(DistirError):
    """A beam that ends in no plan. `uncounted_bytes` is what plans at its end need at least beyond what was counted ahead."""

    def __init__(self, message: str, uncounted_bytes: int = 0):
        super().__init__(message)
        self.uncounted_bytes = uncounted_bytes


@dataclass
class Beam:
    """One search. With a limit, candidates that every completion takes beyond it are left out, and the memory of others has a price."""

    problem: Problem
    width: int | None
    limit: Limit | None = None
    deadline: Deadline = NEVER
    steps: list[Step] = field(default_factory=list[Step])
    _entered: dict[str, CallOp] = field(default_factory=dict[str, CallOp])
    _last: dict[Key, int] = field(default_factory=dict[Key, int])
    _dying: dict[int, list[Key]] = field(default_factory=dict[int, list[Key]])
    """Per step, the entries of a frontier that no later step looks at."""
    _telling: list[SSAValue | None] = field(default_factory=list["SSAValue | None"])
    """Per step, the value by whose states candidates are told apart."""
    _crowded: set[AxisStates | None] = field(default_factory=set["AxisStates | None"])
    """Of this step, the states of that value of which no more candidates are kept."""
    _smaller_states: dict[tuple[BlockArgument, AxisStates], list[AxisStates]] = field(
        default_factory=dict[tuple[BlockArgument, AxisStates], list[AxisStates]]
    )
    _numbers: Random = field(default_factory=lambda: Random(0))
    _tokens: dict[tuple[Key, FrontierValue], int] = field(default_factory=dict[tuple[Key, FrontierValue], int])

    def __post_init__(self) -> None:
        self._walk(self.problem.entry, None)
        self._lifetimes()
        if self.limit is not None:
            self._telling += self._largest()

    def search(self) -> Result:
        """The fastest plan found. Raises NoPlan if no candidate is left, or none that fits the limit; OutOfTime at the deadline."""
        beam = [Candidate(0, {}, 0, None if self.limit is None else self.limit.memory.start())]
        for number, step in enumerate(self.steps):
            beam = self._select(number, self._cheapest_first(beam, number, step))
            if not beam:
                raise NoPlan(f"the beam ends at {step.operation.name}: widen it")
        uncounted: list[int] = []
        for candidate in sorted(beam, key=lambda c: c.cost):
            plan = candidate.plan(self.problem)
            memory = footprint(self.problem, plan)
            if self.limit is None or memory.peak_bytes <= self.limit.bytes:
                return result_of(self.problem, plan, 0.0, memory)
            assert candidate.lookahead is not None
            uncounted.append(memory.peak_bytes - candidate.lookahead.peak)
        raise NoPlan("no plan at the end of the beam fits: widen it", min(uncounted))

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
            for value in values_read(op):
                self._last[value] = max(self._last.get(value, -1), number)
            if isinstance(op, CallOp):
                callee = self.problem.callee(op)
                for key in (*callee.body.block.args, *((callee.sym_name.data, i) for i in range(len(op.results)))):
                    self._last[key] = max(self._last.get(key, -1), number)
        for argument in self.problem.tied.values():
            self._last[argument] = len(self.steps)
        for key, number in self._last.items():
            self._dying.setdefault(number, []).append(key)

    def _largest(self) -> Iterator[SSAValue | None]:
        """Per step, the largest value that it makes or that one of the next uses, of those that there are by then."""
        made: set[SSAValue] = set()
        for number, step in enumerate(self.steps):
            results = (step.operation if step.leaves is None else step.leaves).results
            made.update(results)
            soon = [v for later in self.steps[number + 1 : number + 1 + SOON] for v in values_read(later.operation)]
            there = [v for v in (*results, *soon) if v in made]
            yield max(there, key=lambda v: self.problem.prices.bytes(v.type, self.problem.prices.whole), default=None)

    # --- one step ---

    def _cheapest_first(self, beam: Sequence[Candidate], number: int, step: Step) -> Iterator[Candidate]:
        """All ways to do one step within the limit of memory, by their score. What they need is found out when they come first."""
        waiting: list[tuple[int, int, bool, Candidate]] = []
        order = count()

        def best(bound: float) -> Iterator[Candidate]:
            while waiting and waiting[0][0] <= bound:
                _, place, is_settled, first = heappop(waiting)
                if is_settled:
                    yield first
                elif self._fits(first := self._settled(first)):
                    heappush(waiting, (first.score, place, True, first))

        for bound, candidate, option in self._starts(beam, step):
            self.deadline.check()
            yield from best(bound)
            if self._crowded and self._way(candidate, number, option) in self._crowded:
                continue
            for done in self._fitting(self._done(candidate.next(), number, option)):
                heappush(waiting, (done.score, next(order), done.lookahead is None, done))
        yield from best(inf)

    def _starts(self, beam: Sequence[Candidate], step: Step) -> Iterator[tuple[int, Candidate, JointOption | None]]:
        """Candidates with each option of an operation (of a call or return: none), and a cost that doing so exceeds or meets, least
        first."""
        op = step.operation
        if isinstance(op, CallOp | ReturnOp):
            yield from ((candidate.score, candidate, None) for candidate in beam)
            return
        yield from OptionCosts(self.problem, op, step.function, self.limit).cheapest_first(beam)

    def _done(self, start: Candidate, number: int, option: JointOption | None) -> list[Candidate]:
        """One step, by each way to choose what is not chosen yet."""
        step = self.steps[number]
        op, times = step.operation, self.problem.counts[step.function.sym_name.data]
        if isinstance(op, ReturnOp):
            return self._return(start, step)
        if isinstance(op, CallOp):
            return self._call(start, op, times)
        assert option is not None
        chosen = start.paying(self.problem.runs(op, step.function) * option.cost).choosing(op, option)
        if self.limit is not None and chosen.lookahead is not None:
            chosen = chosen.remembering(self.limit.memory.chosen(chosen.lookahead, op, option))
        ready = self._need_all(chosen, op, option.operands, times)
        return [self._defining(r, op.results, option.results) for r in ready]

    def _defining(self, candidate: Candidate, values: Sequence[SSAValue], states: Sequence[AxisStates]) -> Candidate:
        """With new values."""
        found = candidate.defining(zip(values, states, strict=True))
        for value, produced in zip(values, states, strict=True):
            if self.limit is not None and found.lookahead is not None:
                found = found.remembering(self.limit.memory.produced(found.lookahead, value, produced))
        return found

    def _need_all(
        self, candidate: Candidate, op: Operation, needed: Sequence[AxisStates], times: int
    ) -> list[Candidate]:
        ready = [candidate]
        for i, states in enumerate(needed):
            ready = self._narrowed([c for r in ready for c in self._need(r, (op, i), states, times)])
        return ready

    def _need(self, candidate: Candidate, use: Use, states: AxisStates, times: int) -> Iterator[Candidate]:
        """An operand in these states; an argument whose states are not chosen yet is chosen."""
        value = values_read(use[0])[use[1]]
        frontier_value = candidate.get(value)
        if frontier_value is None:
            assert isinstance(value, BlockArgument)
            for ready in self._choose_argument(candidate, value, states):
                yield from self._need(ready, use, states, times)
            return
        produced, held = frontier_value
        if states not in held:
            conversion = self.problem.prices.conversion(value.type, produced, states)
            if conversion is None:
                return
            candidate = candidate.with_value(value, produced, held | {states}).paying(times * conversion.picoseconds)
        if self.limit is not None and candidate.lookahead is not None:
            candidate = candidate.remembering(self.limit.memory.used(candidate.lookahead, value, use, states, produced))
        yield candidate

    def _choose_argument(
        self, candidate: Candidate, argument: BlockArgument, wanted: AxisStates
    ) -> Iterator[Candidate]:
        """An argument at its first use. What the first use wants is the cheapest so far; a narrow beam also tries the
        whole value and, where memory is short, the other states in which it may be passed."""
        found = self.problem.arguments[argument]
        wanted = next(iter(self.problem.passed([wanted])), wanted)
        if self.width is not None and wanted in found:
            whole = self.problem.prices.whole
            smaller = [] if self.limit is None else self._smaller(argument, wanted)
            others = [*(s for s in found if s == whole), *smaller]
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
                sources = self._need(candidate, (call, argument.index), states, times)
            for source in sources:
                yield self._defining(source, [argument], [states]).choosing(argument, states)

    def _smaller(self, argument: BlockArgument, wanted: AxisStates) -> list[AxisStates]:
        """States of an argument that need less memory than what its first use wants, of those that need as little the ones from which that is
        made the fastest."""
        if (known := self._smaller_states.get((argument, wanted))) is not None:
            return known
        prices, type_ = self.problem.prices, argument.type
        found: dict[int, tuple[int, AxisStates]] = {}
        for states in self.problem.arguments[argument]:
            conversion, size = prices.conversion(type_, states, wanted), prices.bytes(type_, states)
            if conversion is not None and size < prices.bytes(type_, wanted):
                best = found.get(size)
                if best is None or conversion.picoseconds < best[0]:
                    found[size] = conversion.picoseconds, states
        smaller = self._smaller_states[argument, wanted] = [states for _, states in found.values()]
        return smaller

    def _call(self, candidate: Candidate, call: CallOp, times: int) -> list[Candidate]:
        """A function that was entered before: its arguments and results are what they are."""
        callee = self.problem.callee(call)
        needed = [candidate.states(argument) for argument in callee.body.block.args]
        given = [candidate.states((callee.sym_name.data, i)) for i in range(len(call.results))]
        ready = self._need_all(candidate, call, needed, times)
        return [self._defining(r, call.results, given) for r in ready]

    def _return(self, candidate: Candidate, step: Step) -> list[Candidate]:
        """Results leave, one after the other; arguments that nothing used are chosen."""
        ready = [candidate]
        name = step.function.sym_name.data
        for argument in step.function.body.block.args:
            if all(isinstance(use.operation, ReturnOp) for use in argument.uses):
                whole = self.problem.prices.whole
                chosen = [c for r in ready for c in self._choose_argument(r, argument, whole)]
                ready = self._narrowed(chosen)
        for i, value in enumerate(step.operation.operands):
            ready = self._narrowed([c for r in ready for c in self._leave(r, step, i, value)])
        if step.leaves is None:
            return ready
        results = step.leaves.results
        return [self._defining(r, results, [r.states((name, i)) for i in range(len(results))]) for r in ready]

    def _leave(self, candidate: Candidate, step: Step, index: int, value: SSAValue) -> Iterator[Candidate]:
        name, use = step.function.sym_name.data, (step.operation, index)
        found, times = self.problem.results[name][index], self.problem.counts[name]
        is_entry = step.function is self.problem.entry
        if is_entry and not found:
            left = self.problem.leaving(candidate.states(value))
            for ready in () if left is None else self._need(candidate, use, left, times):
                yield ready.choosing((name, index), None)
            return
        if is_entry and index in self.problem.tied:
            states = candidate.states(self.problem.tied[index])
            found = [states] if states in found else []
        for states in found:
            for ready in self._need(candidate, use, states, times):
                yield ready.with_value((name, index), states, frozenset([states])).choosing((name, index), states)

    # --- the beam ---

    def _settled(self, candidate: Candidate) -> Candidate:
        """With all that it needs."""
        if self.limit is None or candidate.lookahead is None:
            return candidate
        return self._scored(candidate.remembering(self.limit.memory.settled(candidate.lookahead)))

    def _scored(self, candidate: Candidate) -> Candidate:
        candidate.score = candidate.cost
        if self.limit is not None and candidate.lookahead is not None:
            candidate.score += round(self.limit.price * candidate.lookahead.peak)
        return candidate

    def _fits(self, candidate: Candidate) -> bool:
        """As far as is known."""
        return (
            self.limit is None or candidate.lookahead is None or candidate.lookahead.peak <= self.limit.lookahead_bytes
        )

    def _fitting(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        return map(self._scored, filter(self._fits, candidates))

    def _narrowed(self, candidates: list[Candidate]) -> list[Candidate]:
        """The cheapest that fit, in the order in which they came: within a step of many choices."""
        if self.width is None or len(candidates) <= self.width:
            return candidates
        return sorted(self._fitting(candidates), key=lambda c: c.score)[: self.width]

    def _select(self, number: int, candidates: Iterator[Candidate]) -> list[Candidate]:
        """The cheapest candidates of different frontiers, of those that come cheapest first; where memory is limited, once these fill a part of
        the beam, only those in which a large value is in states that none has yet: what is cheap now may leave the next operation no memory."""
        found: dict[int, Candidate] = {}
        dying = self._dying.get(number, ())
        seen = set[AxisStates | None]()
        self._crowded.clear()
        for candidate in candidates:
            way = None if self.limit is None else self._way(candidate, number, None)
            if way in self._crowded:
                continue
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
            lookahead = None if candidate.lookahead is None else candidate.lookahead.next(dying)
            found[signature] = Candidate(
                candidate.cost, frontier, signature, lookahead, candidate.score, {}, candidate.parent, candidate.choices
            )
            seen.add(way)
            if len(found) == self.width:
                break
            if self.limit is not None and self.width is not None and len(found) >= CROWD * self.width:
                self._crowded |= seen
        return list(found.values())

    def _way(self, candidate: Candidate, number: int, option: JointOption | None) -> AxisStates | None:
        """What candidates of a step are told apart by: the states of the largest value that the step makes or that one of the next ones uses;
        None if they are not known yet."""
        value = self._telling[number]
        if option is not None and isinstance(value, OpResult) and value.op is self.steps[number].operation:
            return option.results[value.index]
        frontier_value = None if value is None else candidate.get(value)
        return None if frontier_value is None else frontier_value[0]

    def _token(self, key: Key, held: FrontierValue) -> int:
        """A number for an entry; frontiers are told apart by the exclusive or of theirs."""
        found = self._tokens.get((key, held))
        if found is None:
            found = self._tokens[key, held] = self._numbers.getrandbits(128)
        return found
