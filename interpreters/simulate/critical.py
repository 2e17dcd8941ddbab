"""The critical path of a program. In goes a program opened on a machine; out come the operations that set the
makespan, and their times, which add up to it. The path runs from the last clock back to 0 without gaps: along a
stream, and to another stream where one waited for it. A call is followed inside once per entry clocks."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from distir.interpreters.costs import SLOWDOWN
from distir.interpreters.model_names import model_name
from distir.interpreters.simulate.bodies import Call
from distir.interpreters.simulate.expansion import COMPUTE, Expansion, Scope
from distir.interpreters.simulate.labels import callee_name
from distir.interpreters.simulate.spans import CALL, Span
from distir.interpreters.simulate.timing import TimedBody

SPANS = 1000


class Link(NamedTuple):
    """Operations on the path that are alike."""

    function: str
    """Where they stand."""
    name: str
    kind: str

    @property
    def communicates(self) -> bool:
        return self.kind not in COMPUTE


@dataclass(frozen=True)
class CriticalPath:
    """Picoseconds of the path, and what was done on it, in order of time."""

    links: Counter[Link]
    times: Counter[Link]
    """How many operations each link stands for."""
    spans: list[Span]
    """Calls and operations, each from where the path enters it to where it leaves it; calls are entered as long as there are at most
    `SPANS`."""

    @property
    def picoseconds(self) -> int:
        return sum(self.links.values())


@dataclass
class Way:
    """The path through a scope, from one of its streams at the end back to one at the start."""

    enters: int
    links: Counter[Link]
    times: Counter[Link]


class TooManySpansError(Exception):
    """There are more spans than `SPANS`."""


@dataclass
class Follower:
    """Follows paths, and notes spans of calls down to a depth; paths of deeper calls are remembered by their relative entry clocks."""

    expansion: Expansion
    depth: int
    spans: list[Span] = field(default_factory=list[Span])
    _ways: dict[tuple[TimedBody, str, tuple[int, ...], int], Way] = field(
        default_factory=dict[tuple[TimedBody, str, "tuple[int, ...]", int], Way]
    )

    def way(self, scope: Scope, entry: list[int], last: int) -> Way:
        """The path that ends on the stream `last` of the scope."""
        expansion, clocks = self.expansion, list(entry)
        stages = expansion.stages(scope)
        before: list[list[int]] = []
        for stage, step in zip(stages, scope.body.steps, strict=True):
            before.append([clocks[s] for s in stage.streams])
            expansion.advance(scope, stage, step, clocks)
        links, times, stream, at = Counter[Link](), Counter[Link](), last, clocks[last]
        for number in range(len(stages) - 1, -1, -1):
            stage, step = stages[number], scope.body.steps[number]
            if stream in stage.slows:
                link = Link(scope.function.name, stage.op.name, SLOWDOWN)
                links[link] += stage.slowdown
                times[link] += 1
                if scope.depth <= self.depth:
                    name, label = stage.op.name, scope.function.labels[stage.op]
                    where = (
                        scope.streams[stream],
                        at - stage.slowdown,
                        at,
                        scope.path,
                        label,
                        name,
                        scope.function.name,
                    )
                    self._note(Span(*where, SLOWDOWN, False, model_name(stage.op, scope.around)))
                at -= stage.slowdown
                continue
            if stream not in stage.streams:
                continue
            known = before[number]
            place = stage.streams.index(stream)
            if isinstance(step, Call):
                inside = expansion.inside(scope, step, stage.op)
                if scope.depth < self.depth:
                    found = self.way(inside, known, place)
                else:
                    found = self.inner(inside, tuple([clock - known[0] for clock in known]), place)
                links += found.links
                times += found.times
                latest = found.enters
            else:
                latest = max(range(len(known)), key=lambda i: (known[i], i == place))
                if stage.moves and stream != stage.streams[-1]:
                    latest = place
                if stage.picoseconds:
                    link = Link(scope.function.name, stage.op.name, stage.kind)
                    links[link] += stage.picoseconds
                    times[link] += 1
            stream = stage.streams[latest]
            entered = isinstance(step, Call) and scope.depth < self.depth
            if scope.depth <= self.depth and not entered and at > known[latest]:
                self._note(self._span(scope, number, place, known[latest], at))
            at = known[latest]
        return Way(stream, links, times)

    def inner(self, scope: Scope, entry: tuple[int, ...], last: int) -> Way:
        """The same for a call, from clocks relative to its first stream."""
        key = (scope.frame, scope.function.name, entry, last)
        if (way := self._ways.get(key)) is None:
            way = self._ways[key] = self.way(scope, list(entry), last)
        return way

    def _span(self, scope: Scope, number: int, place: int, start: int, end: int) -> Span:
        stage, step = self.expansion.stages(scope)[number], scope.body.steps[number]
        calls = isinstance(step, Call)
        name = callee_name(stage.op) if calls else stage.op.name
        function = name if calls else scope.function.name
        label = scope.function.labels[stage.op]
        communicates = not calls and stage.kind not in COMPUTE
        stream = scope.streams[stage.streams[place]]
        return Span(
            stream,
            start,
            end,
            scope.path,
            label,
            name,
            function,
            stage.kind,
            communicates,
            model_name(stage.op, scope.around),
        )

    def _note(self, span: Span) -> None:
        if len(self.spans) == SPANS and self.depth:
            raise TooManySpansError
        self.spans.append(span)


def critical_path(expansion: Expansion) -> CriticalPath:
    """The path of the whole program, to the lowest of the streams that finish last."""
    scope = expansion.entry()
    clocks = expansion.program.summary().clocks
    if not clocks:
        return CriticalPath(Counter(), Counter(), [])
    streams = scope.streams
    last = max(range(len(streams)), key=lambda i: (clocks[streams[i]], -streams[i][0], -i))
    found: CriticalPath | None = None
    with suppress(TooManySpansError):
        for depth in count():
            follower = Follower(expansion, depth)
            way = follower.way(scope, [0] * len(streams), last)
            found = CriticalPath(way.links, way.times, follower.spans[::-1])
            if all(span.kind != CALL for span in found.spans):
                break
    assert found is not None
    return found
