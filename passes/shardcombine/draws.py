"""Draws of operands for probes. In goes a probe op at its stand-in; out come operands with the whole results on
them, as many as it takes to believe the results of shards.

The arithmetic is the first that the op's code accepts: exact scalars, else floats. Integers are indices within the bounds that
the op does not raise on, or any where it takes any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import TensorType

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Combine, Reduce
from distir.passes.shardcombine.arithmetic import WITH_ZEROS, Arithmetic, Exact, Floats, draw_integers
from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.probe_op import FLOATING, Point, ProbeOp, element_kind
from distir.passes.shardcombine.standins import StandIn
from distir.passes.shardcombine.trial_runs import plain_arrays

SHARDS = (2, 3)
MANY_DRAWS, BOTH_DRAWS = 12, 3
_BY_ORDER = (Reduce(Reduction.MAX), Reduce(Reduction.MIN))
"""Combines that pick elements: two shards may agree with the whole by accident."""
_FAR_OUTSIDE = 2**31 - 1
_FEW = 8
_MOSTLY, _MORE = 0.7, 0.1
"""The share of a result's elements that are equal from which on it says little, and how much less of them says more."""
_REDRAWN = 16
_OTHERS = 6
FLOAT_DRAWS = 3


@dataclass(frozen=True)
class Draw:
    """One draw of the operands, and the whole results (None where absent)."""

    arrays: dict[int, Array]
    results: list[Array | None]

    def giving(self, results: list[Array | None]) -> Draw:
        """The same operands with other results."""
        return replace(self, results=results)


@dataclass(frozen=True)
class Trial:
    """A draw, the number of shards to try it with, and the arithmetic that it is of."""

    draw: Draw
    shards: int
    arithmetic: Arithmetic


class Draws:
    """Runs a probe op at its stand-in as a whole."""

    def __init__(self, probe_op: ProbeOp, small: StandIn, seed: int = 0):
        self.probe_op, self.small = probe_op, small
        self.rng = np.random.default_rng(seed)
        self.shapes = {i: probe_op.operand_shape(small.point, i) for i in probe_op.tensors}
        kept = probe_op.kept(small.point, plain_arrays(probe_op, small.point, 0))
        integers = [i for i in probe_op.tensors if probe_op.kind(i) == "integer"]
        self.bounds = {i: (0, 1) if i in kept else self._index_bounds(i) for i in integers}
        self.divisors = {i for i in integers if self.bounds[i] is None and self._divides(i)}
        """Integer operands of which zeros are refused, or make results that are not finite."""
        self.not_negative = {i for i in integers if self.bounds[i] is None and not self._accepts_negative(i)}
        """Integer operands that take any but negative ones."""
        self.kinds = [element_kind(t) if isinstance(t, TensorType) else "" for t in probe_op.op.result_types]
        self.arithmetic: Arithmetic = Exact()
        self.drawn: list[Draw] = []
        self._floats: Trial | None = None
        """For an op that runs on exact scalars: a draw of floats, on which it runs much faster."""
        self._enough = 0
        self._redraws = True
        """Whether draws of which results say little are drawn again at other scales: not where that was of no use."""
        self.constant: list[bool] = []

    def start(self, exact: bool = True, draws: int | None = None) -> bool:
        """Draws operands and runs the whole op in the first arithmetic that its code accepts, floats unless `exact`; so many draws
        are tried then, as many as it takes where none is said."""
        for arithmetic in (*((Exact(),) if exact else ()), Floats(positive=False), Floats(positive=True), WITH_ZEROS):
            previous = self.arithmetic, self.drawn
            self.arithmetic, self.drawn = arithmetic, []
            try:
                self.drawn = [self.draw(arithmetic, 0)]
                if isinstance(arithmetic, Exact):
                    self._draw_floats()
                self.drawn.append(self.draw(arithmetic, 1))
                self._draw_another_second()
            except Exception:
                self.arithmetic, self.drawn = previous
                continue
            if self._depends():
                break
            if previous[1]:
                self.arithmetic, self.drawn = previous
        if not self.drawn:
            return False
        if not isinstance(self.arithmetic, Exact):
            self._floats = None
        self.constant = [not depends for depends in self._depending()]
        enough = MANY_DRAWS if self._says_little() else max(self.arithmetic.draws, self._integer_draws())
        self._enough = enough if draws is None else draws
        return True

    def _draw_another_second(self) -> None:
        """Results of few values (a count of truths) may be equal in two draws by accident: a few others are tried."""
        if all(kind in FLOATING for kind in self.kinds):
            return
        for number in range(2, _OTHERS):
            if self._depends():
                return
            self.drawn[1] = self.draw(self.arithmetic, number)

    def _depends(self) -> bool:
        """Whether any result changes with the operands; one that does not says nothing, or is constant."""
        return any(self._depending())

    def _depending(self) -> list[bool]:
        """Whether each result does."""
        first, second = (draw.results for draw in self.drawn)
        return [
            one is not None and other is not None and not np.array_equal(one, other)
            for one, other in zip(first, second, strict=True)
        ]

    def _integer_draws(self) -> int:
        """How many draws integer operands need, and truths: few of them decide much, as an offset does, or whether to drop anything."""
        truths = [i for i in self.probe_op.tensors if self.probe_op.kind(i) == "bool"]
        counts = [math.prod(self.shapes[i]) for i in (*self.bounds, *truths)]
        return 0 if not counts else MANY_DRAWS if min(counts) <= _FEW else 3

    def _says_little(self) -> bool:
        """Whether results are of few values, which may agree by accident: truths, indices, floats that recur or are all
        the same. Floats that recur at fixed places only (where nothing is scattered, or padding is) leave what the
        others say."""
        first, second = (draw.results for draw in self.drawn)
        for kind, one, other in zip(self.kinds, first, second, strict=True):
            if one is not None and other is not None:
                if kind not in FLOATING:
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

    def float_trials(self) -> Iterator[Trial]:
        """A few draws of floats, on which any op runs fast; positive ones where others are not accepted."""
        for arithmetic in (Floats(positive=False), Floats(positive=True)):
            try:
                first = self.draw(arithmetic, 0)
            except Exception:
                continue
            yield Trial(first, 1, arithmetic)
            for number in range(1, FLOAT_DRAWS):
                try:
                    yield Trial(self.draw(arithmetic, number), 1, arithmetic)
                except Exception:
                    return
            return

    @property
    def is_constant(self) -> bool:
        """Whether some result was seen to depend on nothing."""
        results = self.drawn[0].results
        return any(c and r is not None for c, r in zip(self.constant, results, strict=True))

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
            if number == len(self.drawn):
                self.drawn.append(self._another(number))
            for shards in self._shards(number):
                yield Trial(self.drawn[number], shards, self.arithmetic)
            number += 1

    def _shards(self, number: int) -> Sequence[int]:
        """In how many shards draw `number` is tried: where it takes many draws, each number of them in turn."""
        if self._floats is not None:
            return SHARDS[:1]
        return SHARDS if number < BOTH_DRAWS else SHARDS[number % 2 :][:1]

    # --- operands ---

    def _draw_operand(self, i: int, arithmetic: Arithmetic, number: int) -> Array:
        kind = self.probe_op.kind(i)
        if kind == "float":
            return arithmetic.draw(self.shapes[i], self.rng, number)
        if kind == "complex":
            if not isinstance(arithmetic, Floats):
                raise TypeError("complex numbers are no exact scalars")
            real, imaginary = (arithmetic.draw(self.shapes[i], self.rng, number) for _ in range(2))
            return real + 1j * imaginary
        if kind == "bool":
            drawn = self.rng.random(self.shapes[i]) < 0.5
            return drawn if drawn.size > 1 else np.full_like(drawn, number % 2 == 0)
        largest = max((dim for shape in self.shapes.values() for dim in shape), default=1)
        dtype, stated = self.probe_op.integer_dtype(i), self.probe_op.stated_integers
        drawn = draw_integers(self.shapes[i], self.bounds[i], dtype, self.rng, number, largest, stated)
        drawn = np.abs(drawn) if i in self.not_negative else drawn
        return np.where(drawn == 0, dtype.type(1), drawn) if i in self.divisors else drawn

    def draw(self, arithmetic: Arithmetic, number: int) -> Draw:
        """Draw `number`; where the op does not take that kind, one of the first kind. Where most of a result is one value (a bound
        at which it saturates), the draw of several, each operand at a scale of its own, of which results say most."""
        try:
            drawn = self._drawn({i: arithmetic for i in self.probe_op.tensors}, arithmetic, number)
        except Exception:
            if number == 0:
                raise
            return self.draw(arithmetic, 0)
        if not isinstance(arithmetic, Floats) or not (arithmetic.may_mix and self._redraws):
            return drawn
        if (least := _sameness(drawn)) < _MOSTLY:
            return drawn
        others: list[Draw] = []
        for _ in range(_REDRAWN):
            try:
                mixed = {i: arithmetic.mixed(self.rng) for i in self.probe_op.tensors}
                others.append(self._drawn(mixed, arithmetic, int(self.rng.integers(0, MANY_DRAWS))))
            except Exception:
                continue
        best = min(others, key=_sameness, default=drawn)
        self._redraws = _sameness(best) < least - _MORE
        return best if self._redraws else drawn

    def _drawn(self, by_operand: Mapping[int, Arithmetic], arithmetic: Arithmetic, number: int) -> Draw:
        arrays = {i: self._draw_operand(i, each, number) for i, each in by_operand.items()}
        arrays = self.probe_op.consistent(self.small.point, arrays)
        return Draw(arrays, self.run(self.small.point, arrays, arithmetic))

    def _another(self, number: int) -> Draw:
        """A further draw; where even one of the first kind says nothing this time (a sum that is not finite), the first."""
        try:
            return self.draw(self.arithmetic, number)
        except Exception:
            return self.drawn[0]

    def run(self, point: Point, arrays: dict[int, Array], arithmetic: Arithmetic) -> list[Array | None]:
        results = self.probe_op.evaluate(point, arrays)
        return [None if result is None else arithmetic.readable(result) for result in results]

    def _with_integer(self, operand: int, value: int, distinct: bool = False) -> list[Array | None]:
        """Results where all of an operand is one integer."""
        arrays = plain_arrays(self.probe_op, self.small.point, 0, distinct)
        arrays[operand] = np.full_like(arrays[operand], value)
        return self.probe_op.evaluate(self.small.point, arrays)

    def _divides(self, operand: int) -> bool:
        def is_finite(value: int) -> bool:
            try:
                results = self._with_integer(operand, value)
            except Exception:
                return False
            return all(np.isfinite(r).all() for r in results if r is not None and r.dtype.kind in "fc")

        return is_finite(1) and not is_finite(0)

    def _accepts_negative(self, operand: int) -> bool:
        if not np.iinfo(self.probe_op.integer_dtype(operand)).min:
            return True
        try:
            self._with_integer(operand, -1)
        except Exception:
            return False
        return True

    def _index_bounds(self, operand: int) -> tuple[int, int] | None:
        """The indices that an integer operand may have, the second exclusive: those that the op does not raise on,
        negative ones left out. None if it takes any integer. Floats are distinct where it takes them: of equal ones (a region of no
        extent) an index may not be read."""

        def accepts(value: int, distinct: bool) -> bool:
            try:
                self._with_integer(operand, value, distinct)
            except Exception:
                return False
            return True

        low, distinct = next(((n, d) for d in (True, False) for n in (0, 1) if accepts(n, d)), (None, False))
        if low is None:
            return 0, 1
        limits = np.iinfo(self.probe_op.integer_dtype(operand))
        if accepts(min(_FAR_OUTSIDE, int(limits.max)), distinct):
            return None
        accepted, rejected = low, low + 1
        while accepts(rejected, distinct):
            accepted, rejected = rejected, 2 * rejected
        while rejected - accepted > 1:
            middle = (accepted + rejected) // 2
            accepted, rejected = (middle, rejected) if accepts(middle, distinct) else (accepted, middle)
        return low, rejected


def _sameness(draw: Draw) -> float:
    """The largest share of a result's elements that are equal; of results of few elements nothing is asked."""
    shares = [0.0]
    for result in draw.results:
        if result is not None and result.size > _FEW and result.dtype.kind in "iuf":
            _, counts = np.unique(result, return_counts=True)
            shares.append(float(counts.max()) / result.size)
    return max(shares)
