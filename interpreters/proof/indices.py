"""The indices of a dim that a shard has. In: ranges of a global dim, or of a set that only a function's caller
knows. Out: their slices, joins, products and quotients, each a list of indices in the shard's own order.

Sets are interned: equal ones are one object. A set that a function is not told is an opaque base: only its size and
the extent of the dim are known. A proof with it holds for every set of that size, so that a body is walked once for
all microbatches and replicas. Where its content matters, `Mismatch` names the bases and the walk is repeated with
the caller's knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import gcd
from typing import Any, cast

LARGEST_PRODUCT = 1 << 16
"""More rows of a product than these are not enumerated."""


class Base:
    """What segments are ranges of. Bases are compared by identity."""

    __slots__ = ("extent", "level", "name", "size")

    def __init__(self, name: str, size: int = 0, extent: int = 0, level: int = 0):
        self.name, self.size, self.extent, self.level = name, size, extent, level

    def __repr__(self) -> str:
        return self.name


class Equal(Base):
    """Of a dim along which elements are equal within blocks of so many, and a period apart (0: they are not). Of each index, any may be meant
    whose element is equal."""

    __slots__ = ("block", "period")

    def __init__(self, period: int, block: int):
        super().__init__("any" if (period, block) == (1, 1) else f"any(period {period}, block {block})")
        self.period, self.block = period, block

    def same(self, a: int, b: int) -> bool:
        """Whether elements are equal at two starts of blocks."""
        return (a - b) % self.period == 0 if self.period else a == b


SPECIAL: set[Base | None] = set()
"""Bases that have no indices."""


@cache
def equal(period: int, block: int) -> Equal | None:
    """The base of these; None where no elements are equal."""
    if (period, block) == (0, 1):
        return None
    SPECIAL.add(base := Equal(period, block))
    return base


FREE = cast(Equal, equal(1, 1))
"""Along this dim all elements are equal: any indices may be meant."""
JUNK = Base("junk")
"""Rows that a window computes from a part of what they need."""
ZEROS = Base("zeros")
"""Rows of zeros in the place of rows of the value."""
SPECIAL.update((JUNK, ZEROS))

Segment = tuple[Base | None, int, int, int, int]
"""Base, scale, offset, start, stop: of the list of indices of the base (None: all of the dim), each taken `scale` times as consecutive
indices, entries `start` to `stop`, all of them moved on by `offset`."""


class Mismatch(Exception):
    """What was to be shown does not follow; where opaque bases (or weights) took part, it might with their content."""

    def __init__(self, reason: str, bases: Iterable[Any] = ()):
        super().__init__(reason)
        self.reason, self.bases = reason, frozenset(bases)


class Indices:
    """A list of indices of a dim."""

    __slots__ = ("__weakref__", "bases", "level", "segments", "size")
    _known: dict[tuple[Segment, ...], Indices] = {}

    segments: tuple[Segment, ...]
    size: int
    bases: frozenset[Base]
    """The opaque ones."""
    level: int
    """The highest of those; 0 where there are none."""

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Indices:
        """The interned list; touching segments are joined."""
        joined: list[Segment] = []
        for segment in (each for segment in segments for each in _normal(segment)):
            last = joined[-1] if joined else None
            if last is not None and last[:3] == segment[:3] and _continues(last, segment):
                joined[-1] = (*last[:4], last[4] + segment[4] - segment[3])
            elif segment[3] != segment[4]:
                joined.append(segment)
        key = tuple(joined)
        if (found := cls._known.get(key)) is None:
            found = object.__new__(cls)
            found.segments = key
            found.size = sum(segment[4] - segment[3] for segment in key)
            found.bases = frozenset(s[0] for s in key if s[0] is not None and s[0] not in SPECIAL)
            found.level = max([base.level for base in found.bases], default=0)
            cls._known[key] = found
        return found

    def __repr__(self) -> str:
        return " + ".join(_text(segment) for segment in self.segments) or "nothing"

    @property
    def is_free(self) -> bool:
        return len(self.segments) == 1 and self.segments[0][0] is FREE

    @property
    def equal(self) -> Equal | None:
        """Which elements are equal, if any indices may be meant that have such."""
        bases = {segment[0] for segment in self.segments}
        base = bases.pop() if len(bases) == 1 else None
        return base if isinstance(base, Equal) else None

    @property
    def chosen(self) -> Indices:
        """Some of the indices that may be meant."""
        return Indices.of((None, *s[1:]) if isinstance(s[0], Equal) else s for s in self.segments)

    def may_be(self, other: Indices) -> bool:
        """Whether these other indices may be meant."""
        return self is other or ((base := self.equal) is not None and _up_to(other, base) is self)

    @property
    def is_special(self) -> bool:
        """Whether some of it is no index."""
        return any(segment[0] in SPECIAL for segment in self.segments)

    @property
    def range(self) -> tuple[int, int] | None:
        """Start and stop, where it is one range of the dim."""
        if len(self.segments) == 1 and self.segments[0][0] is None:
            return self.segments[0][3], self.segments[0][4]
        return None

    def is_full(self, extent: int) -> bool:
        """Whether it is all of a dim, in order."""
        return self.may_be(full(extent))

    def slice(self, start: int, stop: int) -> Indices:
        """Entries of the list."""
        return self if (start, stop) == (0, self.size) else _slice(self, start, stop)

    def scaled(self, by: int) -> Indices:
        """Every index as `by` consecutive ones of a dim that is so much longer."""
        if by == 1:
            return self
        return Indices.of(
            (_base_of_rows(b, by), 1 if b is None or b in SPECIAL else s * by, o * by, i * by, j * by)
            for b, s, o, i, j in self.segments
        )

    def unscaled(self, by: int) -> Indices:
        """The inverse; Mismatch where blocks of `by` indices are cut."""
        if by == 1:
            return self
        for base, scale, offset, start, stop in self.segments:
            if start % by or stop % by or offset % by or (base is not None and base not in SPECIAL and scale % by):
                raise Mismatch(f"{self} is not made of blocks of {by}", self.bases)
        return Indices.of(
            (_base_of_blocks(b, by, self), s if b is None or b in SPECIAL else s // by, o // by, i // by, j // by)
            for b, s, o, i, j in self.segments
        )

    def shifted(self, by: int) -> Indices:
        """Every index moved on."""
        return Indices.of(
            (seg[0] if isinstance(seg[0], Equal) and by % seg[0].block == 0 else None, 1, 0, seg[3] + by, seg[4] + by)
            if seg[0] is None or isinstance(seg[0], Equal)
            else seg
            if seg[0] in SPECIAL
            else (*seg[:2], seg[2] + by, *seg[3:])
            for seg in self.segments
        )

    def split(self, inner: int) -> tuple[Indices, Indices]:
        """Outer and inner indices of which it is the product, in a dim that merges two, the inner of this extent. Mismatch if there
        are none."""
        return _split(self, inner)

    def substituted(self, known: Mapping[Base, Indices]) -> Indices:
        """With what the bases are."""
        if not self.bases or not any(base in known for base in self.bases):
            return self
        found: list[Segment] = []
        for segment in self.segments:
            base, scale, offset, start, stop = segment
            if base is None or base not in known:
                found.append(segment)
            else:
                found += known[base].scaled(scale).slice(start, stop).shifted(offset).segments
        return Indices.of(found)

    def minimal(self, extent: int) -> tuple[Indices, int, int]:
        """The same in the largest blocks: the indices of blocks, how many there are, and of how many indices each is."""
        block = extent
        for base, scale, offset, start, stop in self.segments:
            block = gcd(block, start, stop, offset, block if base is None else scale)
        return self.unscaled(block), extent // block, block


def _text(segment: Segment) -> str:
    base, scale, offset, start, stop = segment
    if base is None:
        return f"{start}:{stop}"
    return f"{base}[{start}:{stop}]" + (f"*{scale}" if scale != 1 else "") + (f"+{offset}" if offset else "")


@cache
def full(extent: int) -> Indices:
    """All of a dim."""
    return Indices.of([(None, 1, 0, 0, extent)])


@cache
def special(base: Base, size: int) -> Indices:
    """So many entries of a special base."""
    return Indices.of([(base, 1, 0, 0, size)])


def ranges(bounds: Iterable[tuple[int, int]]) -> Indices:
    """Half-open ranges of a dim, in this order."""
    return Indices.of([(None, 1, 0, start, stop) for start, stop in bounds])


def _normal(segment: Segment) -> Iterator[Segment]:
    """A segment; of a special base, the first that says the same, one for each block."""
    base, _, _, start, stop = segment
    if base not in SPECIAL:
        yield segment
    elif not isinstance(base, Equal):
        yield base, 1, 0, 0, stop - start
    else:
        while start < stop:
            first = start % base.period if base.period else start
            first -= first % base.block
            size = stop - start if base.block == 1 else min(stop - start, base.block - start % base.block)
            yield base, 1, 0, first, first + size
            start += size


def _continues(last: Segment, segment: Segment) -> bool:
    """Whether a segment, of the same base, follows on another."""
    base, end, start = last[0], last[4], segment[3]
    if base not in SPECIAL:
        return end == start
    if not isinstance(base, Equal):
        return True
    used = end % base.block
    return base.same(end - used, start) and used + segment[4] - start <= base.block if used else base.same(end, start)


def _base_of_rows(base: Base | None, by: int) -> Base | None:
    """What indices of a base are of, each taken as so many; some that are meant where blocks of them are equal."""
    if not isinstance(base, Equal):
        return base
    return equal(base.period * by, 1) if base.block == 1 else None


def _base_of_blocks(base: Base | None, by: int, indices: Indices) -> Base | None:
    """What blocks of so many indices of a base are of."""
    if not isinstance(base, Equal):
        return base
    period, block = base.period, base.block
    if (block % by and by % block) or (period % by and by % period):
        raise Mismatch(f"{indices} is not made of blocks of {by}")
    return equal(max(1, period // by) if period else 0, max(1, block // by))


@cache
def _up_to(indices: Indices, base: Equal) -> Indices | None:
    """The indices up to elements that are equal; None if they are not known."""
    for of, scale, *_ in indices.segments:
        period, block = (of.period, of.block) if isinstance(of, Equal) else (0 if of is None else scale, 1)
        if (of in SPECIAL and not isinstance(of, Equal)) or base.block % block:
            return None
        if period % base.period if base.period else period:
            return None
    return Indices.of((base, 1, 0, start + offset, stop + offset) for _, _, offset, start, stop in indices.segments)


def agreed(a: Indices, b: Indices) -> Indices | None:
    """The indices that both may be: along a dim where elements are equal, any."""
    if b.may_be(a):
        return a
    return b if a.may_be(b) else None


def concat(parts: Sequence[Indices]) -> Indices:
    """One list after the other."""
    return parts[0] if len(parts) == 1 else Indices.of(segment for part in parts for segment in part.segments)


@cache
def _slice(indices: Indices, start: int, stop: int) -> Indices:
    found: list[Segment] = []
    position = 0
    for base, scale, offset, first, last in indices.segments:
        low, high = max(start - position, 0), min(stop - position, last - first)
        if low < high:
            found.append((base, scale, offset, first + low, first + high))
        position += last - first
    return Indices.of(found)


@cache
def product(outer: Indices, inner: Indices, extent: int) -> Indices:
    """Indices of a dim that merges two: for each outer index, the inner ones, in a dim of this extent."""
    if inner.is_full(extent):
        return outer.scaled(extent)
    if outer.is_free and inner.is_free:
        return special(FREE, outer.size * inner.size)
    inner = inner if inner.is_free else inner.chosen
    if (repeated := outer.equal) is not None and repeated.block > 1:
        outer, repeated = outer.chosen, None
    if outer.size * len(inner.segments) > LARGEST_PRODUCT:
        raise Mismatch(f"{outer.size} rows of {inner} are too many to enumerate", outer.bases)
    if any(each.is_special and each.equal is None for each in (outer, inner)):
        raise Mismatch(f"{outer} of {inner} is no set of indices")
    merged = equal(0 if repeated is None else repeated.period * extent, extent if inner.is_free else 1)
    found: list[Segment] = []
    for base, scale, offset, start, stop in outer.segments:
        for position in range(start, stop):
            for segment in inner.segments:
                if merged is not None and (base is None or base is repeated) and (segment[0] is None or inner.is_free):
                    row = position * extent
                    found.append((merged, 1, 0, row + segment[3], row + segment[4]))
                    continue
                if base is None:
                    found += Indices.of([segment]).shifted(position * extent).segments
                elif segment[0] is None:
                    row = position * extent
                    found.append((base, scale * extent, offset * extent, row + segment[3], row + segment[4]))
                else:
                    raise Mismatch(f"{outer} and {inner} are both unknown", outer.bases | inner.bases)
    return Indices.of(found)


@cache
def _split(indices: Indices, extent: int) -> tuple[Indices, Indices]:
    try:
        return indices.unscaled(extent), full(extent)
    except Mismatch:
        pass
    rows: list[tuple[Segment, list[Segment]]] = []
    for segment in indices.segments:
        for outer, inner in _rows(segment, extent, indices):
            if rows and rows[-1][0] == outer and (indices.equal is None or inner[3] >= rows[-1][1][-1][4]):
                rows[-1][1].append(inner)
            else:
                rows.append((outer, [inner]))
            if len(rows) > LARGEST_PRODUCT:
                raise Mismatch(f"{indices} has too many rows to enumerate", indices.bases)
    inners = {Indices.of(inner) for _, inner in rows}
    if len(inners) != 1:
        raise Mismatch(f"{indices} is no product of indices of a dim and of one of {extent}", indices.bases)
    return Indices.of(outer for outer, _ in rows), inners.pop()


def _rows(segment: Segment, extent: int, indices: Indices) -> Iterable[tuple[Segment, Segment]]:
    """A segment cut at the rows of a merged dim: the outer index and the inner indices of each."""
    base, scale, offset, start, stop = segment
    if isinstance(base, Equal) and not (base.period % extent or (base.block % extent and extent % base.block)):
        outer, inner = equal(base.period // extent, max(1, base.block // extent)), equal(0, base.block)
        inner = FREE if base.block >= extent else inner
        while start < stop:
            row = start // extent
            end = min(stop, (row + 1) * extent)
            yield (outer, 1, 0, row, row + 1), (inner, 1, 0, start - row * extent, end - row * extent)
            start = end
    elif base is None or (base not in SPECIAL and scale % extent == 0 and offset % extent == 0):
        steps, moved = (1, 0) if base is None else (scale // extent, offset // extent)
        while start < stop:
            row = start // extent
            end = min(stop, (row + 1) * extent)
            yield (base, steps, moved, row, row + 1), (None, 1, 0, start - row * extent, end - row * extent)
            start = end
    elif base not in SPECIAL and offset % extent + base.extent * scale <= extent:
        row = offset // extent
        yield (None, 1, 0, row, row + 1), (base, scale, offset % extent, start, stop)
    else:
        raise Mismatch(f"{indices} cannot be read as rows of {extent}", indices.bases)


def forget() -> None:
    """Drops what is interned."""
    Indices._known.clear()  # pyright: ignore[reportPrivateUsage]
    for known in (full, special, _slice, _up_to, product, _split):
        known.cache_clear()
