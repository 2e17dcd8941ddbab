"""How often everything in a staged program is on some paths. In go paths, each with a factor; out come the factors
of operations, reshards and messages. With these, a plan's costs add up to its time along the paths."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Operation, SSAValue

from distir.dialects.dist import AccumulateOp, MicrobatchesOp
from distir.passes.distribution.pipeline.stages import LOOPED, phase_of
from distir.passes.sharding.lifetimes import Position
from distir.passes.sharding.occurrences import Occurrences, occurrences_of
from distir.passes.sharding.pipeline_time import Path
from distir.passes.sharding.problem import Problem
from distir.passes.staging.order import Use
from distir.passes.staging.zeros import StartingSum
from distir.passes.structure import AnyCall

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass
class Weights:
    """Of functions, by name, and in them of what runs less often; of what the entry and the loop over microbatches do beside calls; of
    conversions, by value and stage, and messages, by value, sender and receiver, for the use for which they are made."""

    functions: Counter[str] = field(default_factory=Counter[str])
    spared: Counter[Operation | SSAValue] = field(default_factory=Counter["Operation | SSAValue"])
    operations: Counter[Operation] = field(default_factory=Counter[Operation])
    conversions: dict[SSAValue, dict[int, Counter[Use]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counter))
    )
    messages: dict[SSAValue, dict[tuple[int, int], Counter[Use]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counter))
    )


Slot = tuple[object, ...]
"""What is counted: the field of the weights, and what it is of."""


def weights_of(problem: Problem, paths: Iterable[tuple[Path, int]]) -> Weights:
    """How often everything is on these paths, each so many times."""
    found, counts = Weights(), _counts_of(problem)
    if counts is None:
        found.functions[problem.entry.sym_name.data] = 1
    else:
        counts.add(found, paths)
    _add_callees(problem, found, [f for f in problem.functions if not problem.is_scheduled(f)])
    return found


def weights_of_loop(problem: Problem) -> Weights:
    """How often everything is in the forward and backward parts of all microbatches, on however many stages. What runs once, such as updates, is left out, and
    so are messages, and what is there only because of the loop: rows are taken and gradients added up as often as one replica has microbatches."""
    found, body, times = Weights(), problem.entry, 1
    for op in problem.entry.body.block.ops:
        if isinstance(op, MicrobatchesOp):
            body, times = problem.callee(op), op.times
    found.functions[body.sym_name.data] = times
    for op in body.body.block.ops:
        if isinstance(op, CallOp) and phase_of(op) in LOOPED:
            found.functions[op.callee.string_value()] += times
    for zero in problem.zeros:
        found.spared.update(zero.passed)
    _add_callees(problem, found, [f for f in problem.functions if f is not problem.entry and f is not body])
    for function in problem.functions:
        for op in function.body.block.ops:
            if isinstance(op, AccumulateOp) or function is body:
                found.spared[op] = found.functions[function.sym_name.data]
    return found


def _add_callees(problem: Problem, found: Weights, functions: Sequence[FuncOp]) -> None:
    """Counts what functions call; callees come first."""
    for function in reversed(functions):
        for op in function.body.block.ops:
            if isinstance(op, AnyCall):
                found.functions[op.callee.string_value()] += found.functions[function.sym_name.data]


def every_stage(problem: Problem) -> list[tuple[Path, int]]:
    """Everything: one path for each stage, which it never leaves."""
    return [] if problem.order is None else [(Path((((), stage),)), 1) for stage in problem.order.there]


def _counts_of(problem: Problem) -> _Counts | None:
    """Those of a problem, found once; None if it is not staged."""
    found = problem.known.get("counts")
    if not isinstance(found, _Counts) and (occurrences := occurrences_of(problem)) is not None:
        found = problem.known["counts"] = _Counts(problem, occurrences)
    return found if isinstance(found, _Counts) else None


class _Counts:
    """Everything that happens in a staged program, with its place, as arrays: so that what is on a path is one comparison."""

    def __init__(self, problem: Problem, occurrences: Occurrences):
        import numpy as np

        entries = list(_entries(problem, occurrences))
        self._positions = sorted({position for _, position, _, _ in entries})
        rank = {position: i for i, position in enumerate(self._positions)}
        numbers: dict[Slot, int] = {}
        self._slot = np.array([numbers.setdefault(slot, len(numbers)) for slot, _, _, _ in entries], dtype=np.intp)
        self._slots = list(numbers)
        self._rank = np.array([rank[position] for _, position, _, _ in entries], dtype=np.float64)
        self._stage = np.array([stage for _, _, stage, _ in entries], dtype=np.intp)
        self._receiver = np.array([receiver for _, _, _, receiver in entries], dtype=np.intp)

    def add(self, found: Weights, paths: Iterable[tuple[Path, int]]) -> None:
        """Adds what is on paths, each so many times."""
        import numpy as np

        total = np.zeros(len(self._slots))
        for path, times in paths:
            if times:
                total += times * np.bincount(self._slot, self._is_on(path), len(self._slots))
        for (kind, *of), count in zip(self._slots, map(round, total), strict=True):
            match kind, of:
                case "function", [name]:
                    found.functions[cast(str, name)] += count
                case "spared", [what]:
                    found.spared[cast(Operation, what)] += count
                case "operation", [op]:
                    found.operations[cast(Operation, op)] += count
                case "conversion", [value, stage, use]:
                    found.conversions[cast(SSAValue, value)][cast(int, stage)][cast(Use, use)] += count
                case _, [value, sender, receiver, use]:
                    ends = cast(int, sender), cast(int, receiver)
                    found.messages[cast(SSAValue, value)][ends][cast(Use, use)] += count
                case _:
                    raise AssertionError("slots are made here")

    def _is_on(self, path: Path) -> Array:
        """Whether each entry is on a path (`Path.has`)."""
        import numpy as np

        def rank(position: Position) -> float:
            at = bisect_left(self._positions, position)
            return at if self._positions[at : at + 1] == [position] else at - 0.5

        turns = np.array([rank(position) for position, _ in path.turns])
        stages = np.array([stage for _, stage in path.turns])
        before = stages[np.maximum(np.searchsorted(turns, self._rank, "left") - 1, 0)]
        after = stages[np.maximum(np.searchsorted(turns, self._rank, "right") - 1, 0)]
        is_message = self._receiver >= 0
        found = before == self._stage
        return found | (is_message & ((before == self._receiver) | (after == self._stage) | (after == self._receiver)))


def _entries(problem: Problem, occurrences: Occurrences) -> Iterator[tuple[Slot, Position, int, int]]:
    """What happens where, and on which stage; of messages, to which other (otherwise -1)."""
    order = occurrences.order
    firsts: dict[SSAValue, int] = {zero.argument: order.runs_in(order.left[zero.index])[0] for zero in problem.zeros}
    starting: dict[Operation, list[StartingSum]] = defaultdict(list)
    for zero in problem.zeros:
        for op in {zero.call, zero.adding}:
            if op is not None:
                starting[op].append(zero)
    for run in occurrences.runs:
        op, at = run.operation, (run.position, run.stage, -1)
        zeros = [zero for zero in starting.get(op, ()) if run.microbatch == firsts[zero.argument]]
        if isinstance(op, AnyCall):
            yield ("function", op.callee.string_value()), *at
            for each in (each for zero in zeros if zero.call is op for each in (*zero.passed, zero.adding)):
                yield ("spared", each), *at
        elif all(zero.adding is not op for zero in zeros):
            yield ("operation", op), *at
    for (value, microbatch, stage), there in occurrences.found.items():
        if there.is_received or (value in firsts and microbatch == firsts[value]):
            continue
        first: dict[Use, Position] = {}
        for each in sorted(there.uses, key=lambda each: each.start) if len(there.uses) > 1 else there.uses:
            first.setdefault(each.use, each.start)
        for use, position in first.items():
            yield ("conversion", value, stage, use), position, stage, -1
    for (value, _, sender, receiver), uses in occurrences.messages.items():
        first = {}
        for each in uses:
            first.setdefault(each.use, each.start)
        for use, position in first.items():
            yield ("message", value, sender, receiver, use), position, sender, receiver
