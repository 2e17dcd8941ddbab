"""Cut the operands of a stand-in, run the shards, and see how their results combine.

Every candidate is tried with two and with three uneven shards. Local types are inferred first and must be what the
combine expects; only then does anything run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np
from xdsl.dialects.builtin import TensorType

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import NO_HALO, Combine, Gather, Halo, Identity, Reduce
from distir.interpreters.exact_scalars import beyond_ring
from distir.passes.shardcombine.arithmetic import Arithmetic, Exact, Floats, draw_integers, reduces
from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.standins import LARGEST_LEFTOVER, Factor, StandIn, plain_arrays
from distir.passes.shardcombine.subject import Point, Shape, Subject, element_kind

SHARDS = (2, 3)
MANY_DRAWS = 12
_BY_ORDER = (Reduce(Reduction.MAX), Reduce(Reduction.MIN))
"""Combines that pick elements: two shards may agree with the whole by accident."""
_FAR_OUTSIDE = 2**31 - 1
_FEW = 8
Pieces = tuple[int, ...]


def portions(extent: int, shards: int) -> tuple[int, ...]:
    """Uneven parts of an extent of at least five, no two shards alike where possible."""
    if shards == 2:
        first = (extent - 1) // 2
        return (first, extent - first)
    return (1, (extent - 1) // 3, extent - 1 - (extent - 1) // 3)


def shard_indices(size: int, pieces: Pieces, parts: Sequence[int], shard: int) -> list[int]:
    """The indices of one shard of a dim of `pieces` (relative sizes; empty: one), each cut in the ratio of parts."""
    pieces = pieces or (1,)
    start, indices = 0, list[int]()
    for piece in pieces:
        length = size * piece // sum(pieces)
        width = length // sum(parts)
        indices += range(start + sum(parts[:shard]) * width, start + sum(parts[: shard + 1]) * width)
        start += length
    return indices


@dataclass(frozen=True)
class Layout:
    """How a factor lies in a dim: in pieces, or once within every index of the factors outside it, or in windows."""

    pieces: Pieces = ()
    outer: tuple[Factor, ...] = ()
    halo: Halo = NO_HALO
    stride: int = 1
    is_windowed: bool = False

    @property
    def segments(self) -> Pieces:
        """Relative sizes of the segments of the dim that are each cut."""
        return (self.pieces or (1,)) * math.prod(f.extent for f in self.outer)


@dataclass(frozen=True)
class Cut:
    """A factor with its layout in each operand dim that carries it (by slot)."""

    factor: Factor
    layouts: Mapping[int, Layout]


@dataclass(frozen=True)
class Survivor:
    """A cut whose results combine."""

    cut: Cut
    combines: tuple[Combine, ...]
    """Factors are named by `factor_name`."""
    partners: tuple[int, ...] = ()
    """The operands that must then be partial sums."""
    is_offset: bool = False
    """Whether each shard needs the start of its positions."""


def factor_name(factor: Factor) -> str:
    """A name that no other factor of the stand-in has."""
    return "_".join(map(str, factor.slots))


@dataclass(frozen=True)
class Draw:
    """One draw of the operands, and the whole results (None where absent)."""

    arrays: dict[int, Array]
    results: list[Array | None]


@dataclass(frozen=True)
class Trial:
    """A draw, the number of shards to try it with, and the arithmetic that it is of."""

    draw: Draw
    shards: int
    arithmetic: Arithmetic


class Probe:
    """Runs a subject at its stand-in, whole and in shards."""

    def __init__(self, subject: Subject, small: StandIn, seed: int = 0):
        self.subject, self.small = subject, small
        self.rng = np.random.default_rng(seed)
        self.shapes = {i: subject.operand_shape(small.point, i) for i in subject.tensors}
        kept = subject.kept(small.point, plain_arrays(subject, small.point, 0))
        integers = [i for i in subject.tensors if subject.kind(i) == "integer"]
        self.bounds = {i: (0, 1) if i in kept else self._index_bounds(i) for i in integers}
        self.kinds = [element_kind(t) if isinstance(t, TensorType) else "" for t in subject.op.result_types]
        self.named = {factor_name(factor): factor for factor in small.factors}
        self.arithmetic: Arithmetic = Exact()
        self._draws: list[Draw] = []
        self._floats: Trial | None = None
        """For an op that only adds and multiplies exact scalars: a draw of floats, on which it runs much faster."""
        self._enough = 0
        self._constant: list[bool] = []

    def start(self) -> bool:
        """Draws operands and runs the whole op in the first arithmetic that its code accepts."""
        for arithmetic in (Exact(), Floats(positive=False), Floats(positive=True)):
            previous = self.arithmetic, self._draws
            self.arithmetic, self._draws = arithmetic, []
            try:
                before = beyond_ring()
                self._draws = [self.draw(arithmetic, 0)]
                if isinstance(arithmetic, Exact) and beyond_ring() == before:
                    self._draw_floats()
                self._draws.append(self.draw(arithmetic, 1))
            except Exception:
                self.arithmetic, self._draws = previous
                continue
            if self._depends():
                break
            if previous[1]:
                self.arithmetic, self._draws = previous
        if not self._draws:
            return False
        if not isinstance(self.arithmetic, Exact):
            self._floats = None
        self._constant = [not depends for depends in self._depending()]
        self._enough = MANY_DRAWS if self._says_little() else max(self.arithmetic.draws, self._integer_draws())
        return True

    def _depends(self) -> bool:
        """Whether any result changes with the operands; one that does not says nothing, or is constant."""
        return any(self._depending())

    def _depending(self) -> list[bool]:
        """Whether each result does."""
        first, second = (draw.results for draw in self._draws)
        return [
            one is not None and other is not None and not np.array_equal(one, other)
            for one, other in zip(first, second, strict=True)
        ]

    def _integer_draws(self) -> int:
        """How many draws integer operands need: few of them decide much, as an offset does."""
        counts = [math.prod(self.shapes[i]) for i in self.bounds]
        return 0 if not counts else MANY_DRAWS if min(counts) <= _FEW else 3

    def _says_little(self) -> bool:
        """Whether results are of few values, which may agree by accident: truths, indices, floats that recur or are all
        the same. Floats that recur at fixed places only (where nothing is scattered, or padding is) leave what the
        others say."""
        first, second = (draw.results for draw in self._draws)
        for kind, one, other in zip(self.kinds, first, second, strict=True):
            if one is not None and other is not None:
                if kind != "float":
                    return True
                common = np.intersect1d(one, other)
                recurs = np.isin(one, common)
                if common.size and (not np.array_equal(recurs, np.isin(other, common)) or (~recurs).sum() <= _FEW):
                    return True
            if any(each is not None and each.size > 1 and (each == each.flat[0]).all() for each in (one, other)):
                return True
        return False

    def _draw_floats(self) -> None:
        try:
            floats = Floats(positive=False)
            self._floats = Trial(self.draw(floats, 0), max(SHARDS), floats)
        except Exception:
            self._floats = None

    @property
    def is_constant(self) -> bool:
        """Whether some result was seen to depend on nothing."""
        results = self._draws[0].results
        return any(c and r is not None for c, r in zip(self._constant, results, strict=True))

    def draws_tried(self) -> Iterator[Trial]:
        """Each draw that it takes to believe that results concatenate."""
        seen: list[Draw] = []
        for trial in self.trials([]):
            if not any(trial.draw is draw for draw in seen):
                seen.append(trial.draw)
                yield trial

    def trials(self, candidates: Sequence[Sequence[Combine]]) -> Iterator[Trial]:
        """As many trials as it takes to believe the candidates, which may get fewer meanwhile. Floats come first where they
        are fast: they reject, and what they accept is tried on exact scalars, in fewest shards."""
        number = 0
        if self._floats is not None:
            yield self._floats
        while number < self._enough or (number < MANY_DRAWS and any(c and c[0] in _BY_ORDER for c in candidates)):
            if number == len(self._draws):
                self._draws.append(self.draw(self.arithmetic, number))
            for shards in SHARDS if self._floats is None else SHARDS[:1]:
                yield Trial(self._draws[number], shards, self.arithmetic)
            number += 1

    # --- operands ---

    def _draw_operand(self, i: int, arithmetic: Arithmetic, number: int) -> Array:
        kind = self.subject.kind(i)
        if kind == "float":
            return arithmetic.draw(self.shapes[i], self.rng, number)
        if kind == "bool":
            return self.rng.random(self.shapes[i]) < 0.5
        largest = max((dim for shape in self.shapes.values() for dim in shape), default=1)
        dtype, stated = self.subject.integer_dtype(i), self.subject.stated_integers
        return draw_integers(self.shapes[i], self.bounds[i], dtype, self.rng, number, largest, stated)

    def draw(self, arithmetic: Arithmetic, number: int) -> Draw:
        """Draw `number`; where the op does not take that kind, one of the first kind."""
        try:
            arrays = {i: self._draw_operand(i, arithmetic, number) for i in self.subject.tensors}
            arrays = self.subject.consistent(self.small.point, arrays)
            return Draw(arrays, self._run(self.small.point, arrays, arithmetic))
        except Exception:
            if number == 0:
                raise
        return self.draw(arithmetic, 0)

    def _run(self, point: Point, arrays: dict[int, Array], arithmetic: Arithmetic) -> list[Array | None]:
        results = self.subject.evaluate(point, arrays)
        return [None if result is None else arithmetic.readable(result) for result in results]

    def _index_bounds(self, operand: int) -> tuple[int, int] | None:
        """The indices that an integer operand may have, the second exclusive: those that the op does not raise on,
        negative ones left out. None if it takes any integer."""

        def accepts(value: int) -> bool:
            arrays = plain_arrays(self.subject, self.small.point, 0)
            arrays[operand] = np.full_like(arrays[operand], value)
            try:
                self.subject.evaluate(self.small.point, arrays)
            except Exception:
                return False
            return True

        limits = np.iinfo(self.subject.integer_dtype(operand))
        if accepts(min(_FAR_OUTSIDE, int(limits.max))):
            return None
        low = next((n for n in (0, 1) if accepts(n)), None)
        if low is None:
            return 0, 1
        accepted, rejected = low, low + 1
        while accepts(rejected):
            accepted, rejected = rejected, 2 * rejected
        while rejected - accepted > 1:
            middle = (accepted + rejected) // 2
            accepted, rejected = (middle, rejected) if accepts(middle) else (accepted, middle)
        return low, rejected

    # --- factors ---

    def cuts(self, factor: Factor, survivors: Sequence[Survivor] = ()) -> Iterator[Cut]:
        """Ways to cut the operands along a factor: plain first, then in pieces taken from the leftovers. In a dim that
        survivors carry, only inside them."""
        dims = [i for i in factor.slots if not self.subject.slots[i].is_size]
        choices: list[list[Layout]] = []
        for i in dims:
            taken = [s.cut.layouts[i] for s in survivors if i in s.cut.layouts]
            if any(layout.pieces for layout in taken):
                return
            outer = [s.cut.factor for s in survivors if i in s.cut.layouts]
            outer = [f for _, f in sorted(zip(taken, outer, strict=True), key=lambda pair: len(pair[0].outer))]
            pieces = () if taken or i in self.small.altered else self._pieces(factor, self.small.leftovers[i])
            choices.append([Layout((), tuple(outer)), *map(Layout, pieces)])
        for layouts in product(*choices):
            yield Cut(factor, dict(zip(dims, layouts, strict=True)))

    def _pieces(self, factor: Factor, leftover: int) -> list[Pieces]:
        """Sequences of leftovers that sum to this one: of sizes, results or operands; else ones."""
        slots, small = self.subject.slots, self.small
        if leftover == 1 or leftover > 4 * LARGEST_LEFTOVER:
            return []
        groups: dict[object, list[int]] = {}
        for i in factor.slots:
            groups.setdefault(slots[i].owner if slots[i].is_size else "operands", []).append(small.leftovers[i])
        groups["results"] = [small.result_leftover(r, d) for r, d in factor.results]
        found = [tuple(group) for group in groups.values() if sum(group) == leftover and len(group) > 1]
        if leftover <= LARGEST_LEFTOVER:
            found.append((1,) * leftover)
        return list(dict.fromkeys(found))

    def local_point(self, factor: Factor, part: int) -> Point:
        return tuple(
            value // factor.extent * part if i in factor.slots else value for i, value in enumerate(self.small.point)
        )

    def _expected(self, factor: Factor, part: int) -> list[Shape | None]:
        return [
            None
            if shape is None
            else tuple(dim // factor.extent * part if (r, d) in factor.results else dim for d, dim in enumerate(shape))
            for r, shape in enumerate(self.small.shapes)
        ]

    def combines(
        self, cut: Cut, partial: Sequence[int] = (), survivors: Sequence[Survivor] = ()
    ) -> tuple[Combine, ...] | None:
        """How results combine when operands are cut and these others are partial sums; None if they do not. Results may
        lie inside those of survivors."""
        dims = [len([d for result, d in cut.factor.results if result == r]) for r in range(len(self.kinds))]
        if any(count > 1 for count in dims):
            return None
        if (candidates := self._gathers(cut, survivors)) is None:
            return None
        for trial in self.trials(candidates):
            draw, shards = trial.draw, trial.shards
            parts = portions(cut.factor.extent, shards)
            points = [self.local_point(cut.factor, part) for part in parts]
            for part, point in zip(parts, points, strict=True):
                if (shapes := self.subject.infer(point)) is None or list(shapes) != self._expected(cut.factor, part):
                    return None
            operands = [self._shard(draw, cut, parts, shard) for shard in range(shards)]
            for i in partial:
                addends = trial.arithmetic.addends(draw.arrays[i], shards, Reduction.SUM, self.rng)
                for shard, addend in enumerate(addends):
                    operands[shard][i] = addend
            if (results := self.run_shards(points, operands, trial.arithmetic)) is None:
                return None
            weights = [Fraction(part, cut.factor.extent) for part in parts]
            candidates[:] = self._holding(trial, results, candidates, parts, weights)
            if not all(candidates):
                return None
        return tuple(each[0] for each in candidates)

    def _gathers(self, cut: Cut, survivors: Sequence[Survivor]) -> list[list[Combine]] | None:
        """Per result, the combines that its dims allow, preferred first. None where the result was seen to depend on
        nothing: that shards agree says nothing then."""
        candidates: list[list[Combine]] = []
        for r in range(len(self.kinds)):
            dim = next((d for result, d in cut.factor.results if result == r), None)
            if dim is None:
                if self._constant[r] and self._draws[0].results[r] is not None:
                    return None
                candidates.append([Identity(), *map(Reduce, self._reductions(r))])
            else:
                known = not self.small.altered
                pieces = self._pieces(cut.factor, self.small.result_leftover(r, dim)) if known else []
                candidates.append([Gather(dim), *(Gather(dim, NO_HALO, p) for p in pieces)])
                gathers = [(s, c) for s in survivors if isinstance(c := s.combines[r], Gather) and c.dim == dim]
                if gathers and not any(c.pieces for _, c in gathers):
                    gathers.sort(key=lambda pair: len(pair[1].outer))
                    outer = tuple(factor_name(s.cut.factor) for s, _ in gathers)
                    candidates[-1].append(Gather(dim, NO_HALO, (), outer))
        return candidates

    def _reductions(self, result: int) -> list[Reduction]:
        """Sums are not accepted from floats that the op casts: rounding to fewer bits does not commute with them."""
        type_ = self.subject.op.result_types[result]
        element = type_.element_type if isinstance(type_, TensorType) else None
        casts = all(self.subject.element_type(i) != element for i in self.subject.tensors)
        if casts and not isinstance(self.arithmetic, Exact):
            return [Reduction.MAX, Reduction.MIN]
        return [Reduction.SUM, Reduction.MEAN, Reduction.MAX, Reduction.MIN, Reduction.PROD]

    def _shard(self, draw: Draw, cut: Cut, parts: Sequence[int], shard: int) -> dict[int, Array]:
        arrays = dict(draw.arrays)
        for i, layout in cut.layouts.items():
            slot = self.subject.slots[i]
            assert isinstance(slot.owner, int)
            array = arrays[slot.owner]
            indices = shard_indices(self.small.point[i], layout.segments, parts, shard)
            arrays[slot.owner] = np.take(array, indices, slot.position)
        return arrays

    def run_shards(
        self, points: Sequence[Point], operands: Sequence[dict[int, Array]], arithmetic: Arithmetic
    ) -> list[list[Array | None]] | None:
        try:
            for point, arrays in zip(points, operands, strict=True):
                kept = self.subject.kept(point, arrays)
                if not all(np.array_equal(arrays[i], integers) for i, integers in kept.items()):
                    return None  # no kernel checks those
            return [self._run(point, arrays, arithmetic) for point, arrays in zip(points, operands, strict=True)]
        except Exception:
            return None

    def _holding(
        self,
        trial: Trial,
        results: Sequence[Sequence[Array | None]],
        candidates: Sequence[Sequence[Combine]],
        parts: Sequence[int],
        weights: Sequence[Fraction],
    ) -> list[list[Combine]]:
        holding: list[list[Combine]] = []
        for r, whole in enumerate(trial.draw.results):
            shards = [shard[r] for shard in results]
            if whole is None:
                holding.append([Identity()])
                continue
            present = [shard for shard in shards if shard is not None]
            holds = _combined(whole, present, parts, weights, trial.arithmetic, self.kinds[r], self.named)
            holding.append([c for c in candidates[r] if len(present) == len(shards) and holds(c)])
        return holding

    # --- positions ---

    def looks_up(self, cut: Cut, survivors: Sequence[Survivor]) -> bool:
        """Whether the cut operand is a table of which shards have some positions each: results of shifted indices, zero
        where the index lies outside, add up to the whole."""
        operands = enumerate(self.subject.op.operands)
        indices = [i for i, v in operands if isinstance(v.type, TensorType) and self.subject.kind(i) == "integer"]
        if (
            len(indices) != 1
            or indices[0] not in self.subject.tensors
            or len(self.kinds) != 1
            or cut.factor.results
            or any(o.pieces for o in cut.layouts.values())
        ):
            return False
        (index,) = indices
        slots = [self.subject.slots[i] for i in cut.factor.slots]
        if any(s.is_size or s.owner == index for s in slots) or self.bounds[index] != (0, cut.factor.extent):
            return False
        dims = self._dims_of_indices(index, survivors)
        if dims is None or not self._counts_negatives(index, cut.factor.extent):
            return False
        candidates: list[list[Combine]] = [[Reduce(Reduction.SUM)]]
        for trial in self.trials(candidates):
            parts = portions(cut.factor.extent, trial.shards)
            points = [self.local_point(cut.factor, part) for part in parts]
            if any(
                list(self.subject.infer(p) or ()) != self._expected(cut.factor, n)
                for n, p in zip(parts, points, strict=True)
            ):
                return False
            starts = [sum(parts[:shard]) for shard in range(trial.shards)]
            operands = [self._shard(trial.draw, cut, parts, shard) for shard in range(trial.shards)]
            shifted = [arrays[index] - start for arrays, start in zip(operands, starts, strict=True)]
            for arrays, local, part in zip(operands, shifted, parts, strict=True):
                arrays[index] = np.clip(local, 0, part - 1)
            if (results := self.run_shards(points, operands, trial.arithmetic)) is None:
                return False
            for shard, local, part in zip(results, shifted, parts, strict=True):
                if (value := shard[0]) is None:
                    return False
                extents = dict(zip(dims, local.shape, strict=True))
                mask = ((local >= 0) & (local < part)).reshape([extents.get(d, 1) for d in range(value.ndim)])
                shard[0] = np.where(mask, value, np.zeros((), value.dtype))
            weights = [Fraction(part, cut.factor.extent) for part in parts]
            candidates[:] = self._holding(trial, results, candidates, parts, weights)
            if not all(candidates):
                return False
        return True

    def _dims_of_indices(self, index: int, survivors: Sequence[Survivor]) -> list[int] | None:
        """The result dim that each dim of the indices is, -1 for one of extent 1; None if they are not dims of the result."""
        found: list[int] = []
        for d, extent in enumerate(self.shapes[index]):
            slot = next((i for i, s in enumerate(self.subject.slots) if (s.owner, s.position) == (index, d)), None)
            combine = next((s.combines[0] for s in survivors if slot in s.cut.layouts), None)
            match combine:
                case Gather(dim, (0, 0), (), ()):
                    found.append(dim)
                case None if extent == 1:
                    found.append(-1)
                case _:
                    return None
        kept = [d for d in found if d >= 0]
        return found if kept == sorted(set(kept)) else None

    def _counts_negatives(self, index: int, extent: int) -> bool:
        """Whether a negative index is an error or counts from the end, whatever it is (no index is one to ignore)."""
        arrays = dict(self._draws[0].arrays)

        def results(value: int) -> list[Array | None] | None:
            arrays[index] = np.full_like(arrays[index], value)
            return (self.run_shards([self.small.point], [arrays], self.arithmetic) or [None])[0]

        for value in (-100, *range(-extent - 1, 0)):
            if (got := results(value)) is None or got[0] is None:
                continue
            counted = results(value + extent) if value + extent >= 0 else None
            if counted is None or counted[0] is None or not self.arithmetic.equal(got[0], counted[0]):
                return False
        return True

    # --- partial operands ---

    def passes_partial(self, operands: Sequence[int], reduction: Reduction) -> tuple[int, ...] | None:
        """The results that are partial when these operands are; the others are whole. None if no result is."""
        candidates: list[list[Combine]] = [[Identity(), Reduce(reduction)] for _ in self.kinds]
        if all(kind != "float" for kind in self.kinds):
            return None
        for trial in self.trials(candidates):
            draw, shards = trial.draw, trial.shards
            locals_ = [dict(draw.arrays) for _ in range(shards)]
            for i in operands:
                addends = trial.arithmetic.addends(draw.arrays[i], shards, reduction, self.rng)
                for local, addend in zip(locals_, addends, strict=True):
                    local[i] = addend
            if (results := self.run_shards([self.small.point] * shards, locals_, trial.arithmetic)) is None:
                return None
            weights = [Fraction(1, shards)] * shards
            candidates[:] = self._holding(trial, results, candidates, (1,) * shards, weights)
            if not all(candidates):
                return None
        partial = tuple(r for r, each in enumerate(candidates) if isinstance(each[0], Reduce))
        return partial or None

    def copies(self, operands: Sequence[int], results: Sequence[int]) -> bool:
        """Whether every element of these results is one of these operands or zero. An op that copies and passes sums moves
        elements from fixed places to fixed places, so it passes every reduction."""
        if not isinstance(self.arithmetic, Exact):
            return False
        draw = self._draws[0]
        known = np.concatenate([[0], *(self.arithmetic.readable(draw.arrays[i]).reshape(-1) for i in operands)])
        return all(result is not None and np.isin(result, known).all() for result in (draw.results[r] for r in results))

    def partial_candidates(self) -> list[tuple[int, ...]]:
        """Sets of operands that may be partial together: one, two or all floats; if rounded, of the results' type."""
        types = {t.element_type for t in self.subject.op.result_types if isinstance(t, TensorType)}
        floats = [
            i
            for i in self.subject.tensors
            if self.subject.kind(i) == "float"
            and (isinstance(self.arithmetic, Exact) or types == {self.subject.element_type(i)})
        ]
        sets = [*combinations(floats, 1), *combinations(floats, 2), tuple(floats)]
        return [s for s in dict.fromkeys(sets) if s]


def _combined(
    whole: Array,
    shards: Sequence[Array],
    parts: Sequence[int],
    weights: Sequence[Fraction],
    arithmetic: Arithmetic,
    kind: str,
    factors: Mapping[str, Factor],
) -> Callable[[Combine], bool]:
    """Whether a combine makes the whole of the shards."""
    alike = all(shard.shape == whole.shape for shard in shards)

    def holds(combine: Combine) -> bool:
        match combine:
            case Identity():
                return alike and all(arithmetic.equal(shard, whole) for shard in shards)
            case Reduce(reduction):
                return alike and reduces(arithmetic, whole, shards, reduction, weights, kind)
            case Gather(dim, _, pieces, outer):
                segments = Layout(pieces, tuple(factors[name] for name in outer)).segments
                for i, shard in enumerate(shards):
                    indices = shard_indices(whole.shape[dim], segments, parts, i)
                    if not arithmetic.equal(shard, np.take(whole, indices, dim)):
                        return False
                return True

    return holds
