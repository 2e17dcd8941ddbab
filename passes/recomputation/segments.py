"""Segments of the forward part. In go operations and the values that the backward part needs; out come the values to
keep and the operations to repeat, under a policy.

`selective` is a minimum cut: every value that is needed in the backward part is kept, which costs its bytes, or computed again, which costs the time
of its operation and needs the operands in the same way. A second costs as many bytes as full recomputation frees per second, so a repetition is chosen
where it frees more bytes for its time than repeating the whole segment does on average. Both extremes, `none` and `full`, cost the same by this
measure, and the cut is the cheapest choice of all. (PyTorch's partitioner cuts the same graph, but forbids to repeat what its list calls expensive.)"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Any

from xdsl.dialects.func import CallOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.traits import Pure

from distir.interpreters.walk import values_read
from distir.interpreters.work import is_view, type_bytes
from distir.passes.structure import is_constant_expression

Choice = Callable[["Segment"], set[SSAValue]]
"""A policy: the values of a segment that are kept."""


MOST_SEGMENTS = 64


@dataclass(frozen=True)
class Segment:
    """Operations in program order. Kept values are those that the backward part takes."""

    ops: Sequence[Operation]
    needed: Sequence[SSAValue]
    """Results that only the backward part takes, beside other operations of the segment."""
    held: Mapping[SSAValue, int]
    """Bytes of keeping what is not made here: 0 for what is there anyway."""
    picoseconds: Callable[[Operation], int]
    own: Mapping[Operation, None] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", dict.fromkeys(self.ops))

    def storage(self, value: SSAValue) -> SSAValue:
        """The value in whose memory a value is."""
        while isinstance(value, OpResult) and value.op in self.own and is_view(value.op) and value not in self.held:
            value = value.op.operands[0]
        return value

    def bytes_of(self, values: Iterable[SSAValue]) -> int:
        """What keeping values takes."""
        kept = dict.fromkeys(map(self.storage, values))
        return sum(self.held.get(v, 0 if self._is_outside(v) else type_bytes(v.type)) for v in kept)

    def _is_outside(self, value: SSAValue) -> bool:
        return not isinstance(value, OpResult) or value.op not in self.own

    def closed(self, kept: set[SSAValue]) -> Repetition:
        """What is repeated if these values are kept: all that the needed ones are made of. What cannot be repeated is kept too."""
        taken, repeated = dict[SSAValue, None](), set[Operation]()
        todo = list(self.needed)
        while todo:
            value = todo.pop()
            if self._is_outside(value) or value in self.held or value in kept or not is_repeatable(value.owner):
                taken[value] = None
            elif value.owner not in repeated and isinstance(value, OpResult):
                repeated.add(value.op)
                todo += values_read(value.op)
        return Repetition(self, tuple(op for op in self.ops if op in repeated), tuple(taken))

    @cached_property
    def none(self) -> Repetition:
        """Nothing is repeated."""
        return self.closed(set(self.needed))

    @cached_property
    def full(self) -> Repetition:
        """Nothing is kept that can be repeated."""
        return self.closed(set())


@dataclass(frozen=True)
class Repetition:
    """What is repeated of a segment, and what it is made of."""

    segment: Segment
    ops: Sequence[Operation]
    taken: Sequence[SSAValue]
    """Kept values, and what the segment was given."""

    @property
    def bytes(self) -> int:
        """What is kept for the backward part."""
        return self.segment.bytes_of(self.taken)

    @property
    def picoseconds(self) -> int:
        return sum(map(self.segment.picoseconds, self.ops))

    @property
    def made(self) -> list[SSAValue]:
        """The needed values that are not kept."""
        repeated = set(self.ops)
        return [v for v in self.segment.needed if v.owner in repeated]


def is_repeatable(op: Any) -> bool:
    """Whether an operation does the same whenever it runs. (Draws are functions of a key.)"""
    return isinstance(op, CallOp) or (isinstance(op, Operation) and op.has_trait(Pure))


def keep_nothing(segment: Segment) -> set[SSAValue]:
    """The policy `full`: nothing but inputs is kept, unless that is more."""
    return set() if segment.full.bytes < segment.none.bytes else set(segment.needed)


def keep_all_but(matches: Callable[[Operation], bool]) -> Choice:
    """The policy that names operations: their results are not kept, nor what only views or expands constants."""

    def choice(segment: Segment) -> set[SSAValue]:
        free = [op for op in segment.ops if matches(op) or is_view(op) or is_constant_expression(op)]
        kept: set[SSAValue] = {r for op in segment.ops for r in op.results}
        kept.difference_update(r for op in free for r in op.results)
        return _with_views(segment, kept)

    return choice


def keep_what_is_dear(segment: Segment) -> set[SSAValue]:
    """The policy `selective`."""
    import networkx as nx

    freed, picoseconds = segment.none.bytes - segment.full.bytes, segment.full.picoseconds
    if freed <= 0:
        return set(segment.needed)
    graph: Any = nx.DiGraph()
    # On the side of "needed" are values that the backward part takes and operations that are repeated.
    for op in segment.ops:
        if is_repeatable(op):
            graph.add_edge(op, "end", capacity=segment.picoseconds(op) * freed)
        else:
            graph.add_edge(op, "end")
        for value in values_read(op):
            graph.add_edge(op, value)
        for result in op.results:
            if is_repeatable(op) and (is_view(op) or is_constant_expression(op)):
                graph.add_edge(result, op)
            elif result not in segment.held:
                graph.add_edge(result, op, capacity=type_bytes(result.type) * picoseconds)
    for value, bytes in segment.held.items():
        graph.add_edge(value, "end", capacity=bytes * picoseconds)
    for value in segment.needed:
        graph.add_edge("needed", value)
    _, (_, needed) = nx.minimum_cut(
        graph.reverse(copy=False), "end", "needed"
    )  # of equal cuts, the one that repeats least
    kept: set[SSAValue] = {r for op in segment.ops if op not in needed for r in op.results if r in needed}
    return _with_views(segment, kept)


def _with_views(segment: Segment, kept: set[SSAValue]) -> set[SSAValue]:
    """Needed views of what is kept, or given, are kept as they are: they take no memory."""
    stays = kept | set(segment.held)
    return kept | {v for v in segment.needed if (s := segment.storage(v)) in stays or s.owner not in segment.own}


def cheap_cuts(ops: Sequence[Operation], kept: Sequence[int], crossing: Sequence[int]) -> list[Sequence[Operation]]:
    """Operations in order, cut where few bytes cross: what crosses is kept, and what is kept of one segment is there again at a time, so the sum of
    the former and the largest of the latter is least (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016). By operation,
    `kept` are the bytes that the backward part takes of its results, `crossing` those that later operations take of it and of all before it."""
    total, best = sum(kept), (inf, list[int]())
    for parts in range(1, min(len(ops), MOST_SEGMENTS) + 1):
        best = min(best, _cut_within(kept, crossing, -(-total // parts)))
    return [ops[start:stop] for start, stop in pairwise([0, *best[1]])]


def _cut_within(kept: Sequence[int], crossing: Sequence[int], most: int) -> tuple[float, list[int]]:
    """The cut into segments that keep at most so many bytes each (or have one operation) across which least goes: its cost, and its ends."""
    n = len(kept)
    least: list[float] = [0.0] * (n + 1)
    start_of, inside, first = [0] * (n + 1), 0, 0
    candidates: deque[int] = deque()  # ends of the segment before, of which later ones cost less
    for stop in range(1, n + 1):
        while candidates and least[candidates[-1]] >= least[stop - 1]:
            candidates.pop()
        candidates.append(stop - 1)
        inside += kept[stop - 1]
        while inside > most and first < stop - 1:
            inside -= kept[first]
            first += 1
        while candidates[0] < first:
            candidates.popleft()
        start_of[stop] = candidates[0]
        least[stop] = least[candidates[0]] + (crossing[stop - 1] if stop < n else 0)
    ends, stop = list[int](), n
    while stop > 0:
        ends.append(stop)
        stop = start_of[stop]
    ends.reverse()
    largest = max(sum(kept[start:stop]) for start, stop in pairwise([0, *ends]))
    return least[n] + largest, ends
