"""Costs of one operation's options, for all candidates of a beam at once. In goes a beam; out come candidates with
an option each, cheapest first, by the costs of the operation and of reshards of its operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from distir.interpreters.walk import values_read
from distir.passes.sharding.candidates import Candidate, FrontierValue
from distir.passes.sharding.memory_lookahead import Limit
from distir.passes.sharding.problem import JointOption, Problem

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class OptionCosts:
    """Of one operation of a function."""

    def __init__(self, problem: Problem, op: Operation, function: FuncOp, limit: Limit | None):
        import numpy as np

        self._problem, self._operation, self._limit = problem, op, limit
        self._times = problem.counts[function.sym_name.data]
        self._options = problem.options[op]
        self._own: Array = problem.runs(op, function) * np.array([option.cost for option in self._options])
        self._tables: dict[tuple[int, FrontierValue], tuple[Array, Array]] = {}

    def cheapest_first(self, beam: Sequence[Candidate]) -> Iterator[tuple[int, Candidate, JointOption]]:
        """Candidates with each option that they can take within the limit, and their score at least, least first. What is left out: conversions
        of arguments that are still to be chosen, and a second one of the same value; of memory, all but the point of the peak so far."""
        import numpy as np

        costs = np.empty((len(beam), len(self._options)), np.int64)
        possible = np.ones(costs.shape, bool)
        for row, candidate in enumerate(beam):
            costs[row] = candidate.cost + self._own
            for table, is_possible in self._operands(candidate):
                costs[row] += table
                possible[row] &= is_possible
            if self._limit is not None:
                held = self._memory(self._limit, candidate)
                possible[row] &= held <= self._limit.lookahead_bytes
                costs[row] += np.rint(self._limit.price * held).astype(np.int64)
        (places,) = np.nonzero(possible.ravel())
        flat = costs.ravel()
        for place in places[np.argsort(flat[places], kind="stable")]:
            row, option = divmod(int(place), len(self._options))
            yield int(flat[place]), beam[row], self._options[option]

    def _memory(self, limit: Limit, candidate: Candidate) -> Array:
        """Per option, bytes at the point at which most is held so far."""
        import numpy as np

        lookahead, op = candidate.lookahead, self._operation
        assert lookahead is not None
        found: Array = lookahead.peak + np.array(limit.memory.moments(lookahead, op, self._options))
        for i, value in enumerate(read := values_read(op)):
            frontier_value = candidate.get(value)
            if frontier_value is not None and value not in read[:i]:
                needed = [option.operands[i] for option in self._options]
                found += np.array(limit.memory.needs(lookahead, value, (op, i), needed, frontier_value[0]))
        return found

    def _operands(self, candidate: Candidate) -> Iterator[tuple[Array, Array]]:
        values = values_read(self._operation)
        for i, value in enumerate(values):
            frontier_value = candidate.get(value)
            if frontier_value is not None and value not in values[:i]:
                if (found := self._tables.get((i, frontier_value))) is None:
                    found = self._tables[i, frontier_value] = self._conversions(i, frontier_value)
                yield found

    def _conversions(self, operand: int, frontier_value: FrontierValue) -> tuple[Array, Array]:
        """Per option, what it costs to have an operand as needed, and whether that is possible."""
        import numpy as np

        (produced, held), type_ = frontier_value, values_read(self._operation)[operand].type
        costs, possible = np.zeros(len(self._options), np.int64), np.ones(len(self._options), bool)
        for i, option in enumerate(self._options):
            needed = option.operands[operand]
            if needed not in held:
                conversion = self._problem.prices.conversion(type_, produced, needed)
                possible[i] = conversion is not None
                costs[i] = 0 if conversion is None else self._times * conversion.picoseconds
        return costs, possible
