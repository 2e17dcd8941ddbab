"""Compares the outputs of two programs. In go expected arrays, and the pieces that devices have; out comes one
comparison per output.

Every element is compared, on every device that has it, relative to the largest element; the update of a parameter or state
relative to its largest change, so that a small learning rate hides nothing. Where rounding alone moves an element by more than
that (the update of a gradient that is zero but for rounding), runs on slightly other values say by how much (`moves_of`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import AnyFloat, ModuleOp, TensorType

from distir.dialects.errors import DistirError
from distir.interpreters.global_arrays import Array, Piece, joined

MOVED_RUNS, MOVED_SECONDS = 8, 30.0
"""Runs on slightly other values, and how many CPU seconds all of them may take."""

MOVED_ULPS = 4
"""How much other these values are, at most, in units of rounding."""

TOLERANCES = ((64, 1e-10), (32, 1e-5), (0, 3e-2))
"""By bits. 16 bits and less: a few roundings of bfloat16, 2^-8 each."""

SAFETY = 10
"""How much further than in those runs an element may be moved; where rounding decides it, its square."""

FEW = 20
"""Of so many elements, one may be moved as far as others are, if no more are than in those runs: what rounding of a type coarser than f64 decides
is decided for other elements in each run (the sign of a small gradient, which is Adam's first step)."""
FINE = float(np.finfo(np.float64).eps)
"""Rounding of f64, which decides the same elements in every run: those that are zero but for it."""


@dataclass(frozen=True)
class Comparison:
    """One output of two programs."""

    name: str
    holds: bool
    says: str
    """The error if there is one to speak of, else why there is none."""
    ratio: float = 0.0
    """Of the largest error to what it may be."""
    tested: bool = True
    """Whether a wrong value would be seen: more than rounding decides what it is."""
    undecided: bool = False
    """Whether it does not hold because the same elements are no numbers in both, which says nothing."""


Moves = Iterable[Mapping[str, Array]]
"""Per output, how far each element was moved by values that differ in their last digits: after one run, after two, and so on."""


def compare(
    expected: Mapping[str, Any],
    got: Mapping[str, Sequence[Piece]],
    tolerance: float,
    arguments: Mapping[str, Any],
    moves: Moves,
) -> list[Comparison]:
    """One comparison per output of either. `arguments` are what updates changed.

    Unless the tolerance asked for is finer than rounding, `moves` widens it for elements that rounding decides; only as many runs are asked for
    as it takes."""
    compared: list[Comparison] = []
    moves = Remembered(moves)
    for name in dict.fromkeys((*expected, *got)):
        if name not in got or name not in expected:
            compared.append(Comparison(name, False, f"only the {'first' if name in expected else 'second'} has it"))
            continue
        argument = arguments.get(name)
        compared.append(_compare(name, np.asarray(expected[name]), got[name], tolerance, argument, moves))
    if compared and not any(c.tested for c in compared) and all(c.holds for c in compared):
        said = "rounding decides all of it: a wrong value would not be seen"
        compared = [Comparison(c.name, False, said, tested=False) for c in compared]
    return compared


def _compare(
    name: str,
    expected: Array,
    got: Sequence[Piece],
    tolerance: float,
    argument: Any,
    moves: Moves,
) -> Comparison:
    if got[0].shape != expected.shape:
        return Comparison(name, False, f"shapes {list(expected.shape)} and {list(got[0].shape)}")
    try:
        whole = joined(name, got)
    except DistirError as error:
        return Comparison(name, False, str(error).removeprefix(f"output {name}: "), np.inf)
    if expected.dtype.kind in "biuOSU" or whole.dtype.kind in "biuOSU":
        different = int((expected != whole).sum())
        return Comparison(
            name, not different, f"{different} of {expected.size} elements differ" if different else "equal"
        )
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = expected.astype(wide), whole.astype(wide)
    if (count := int((np.isnan(a) != np.isnan(b)).sum())) > 0:
        return Comparison(name, False, f"{count} of {a.size} elements are not a number in one of them", np.inf)
    if (count := int(np.isnan(a).sum())) > 0:
        said = f"{count} of {a.size} elements are not a number: give --inputs that the model is made for"
        return Comparison(name, False, said, np.inf, undecided=True)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite]):
        said = f"{int((a[~finite] != b[~finite]).sum())} of {a.size} elements are infinite in one of them"
        return Comparison(name, False, said, np.inf)
    error = np.zeros(a.shape)
    for piece in got:
        with np.errstate(invalid="ignore"):
            own = np.where(finite[piece.index], np.abs(piece.value.astype(wide) - a[piece.index]), 0.0)
        error[piece.index] = np.maximum(error[piece.index], own)
    argument = None if argument is None else np.asarray(argument)
    return _judged(
        name, a, error, finite, tolerance, argument, moves, unit(whole.dtype), smallest_numbers(whole.dtype)[1]
    )


def _judged(
    name: str,
    a: Array,
    error: Array,
    finite: Array,
    tolerance: float,
    argument: Array | None,
    moves: Moves,
    rounding: float,
    step: float,
) -> Comparison:
    """Whether these errors are small: relative to the result, or to what it has changed by. Numbers near zero are a `step` apart."""
    update = argument is not None and argument.shape == a.shape
    size = np.abs(a - argument.astype(a.dtype)) if update and argument is not None else np.abs(a)
    scale = float(size[finite].max(initial=0.0))
    limit = np.full(a.shape, tolerance * scale + 4 * step)
    if update:  # a sum is rounded to the digits of what it is the sum of
        limit += 4 * rounding * np.abs(np.where(finite, a, 0.0))
    if (error > limit).any() and tolerance >= 2 * rounding:
        exact = limit
        for distance in (known[name] for known in moves):
            margin = np.where(SAFETY * distance > 0.1 * scale, SAFETY**2, SAFETY)
            limit = np.where(distance > tolerance * scale / 100, np.maximum(exact, margin * distance), exact)
            others = error > limit if rounding > FINE else np.zeros(a.shape, bool)
            if FEW * others.sum() <= a.size and others.sum() <= (distance > exact).sum():
                limit[others] = np.maximum(limit[others], SAFETY * distance.max())
            if not (error > limit).any():
                break
    bad = error > limit
    undecided = int((limit > 0.1 * scale).sum()) if scale > 0 else 0
    at = int(np.argmax(np.where(bad, error, 0.0) if bad.any() else error if error.any() else limit)) if a.size else 0
    largest, allowed = (float(v.reshape(-1)[at]) if a.size else 0.0 for v in (error, limit))
    per = scale if scale > 0 else 1.0
    says = f"{largest / per:.3g} of at most {allowed / per:.3g}{', relative to its change' if update else ''}"
    if undecided and not bad.any():
        says += f"; rounding decides {undecided} of {a.size} elements"
    ratio = largest / allowed if allowed else (np.inf if largest else 0.0)
    return Comparison(name, not bad.any(), says, ratio, undecided < max(1, a.size))


def unit(dtype: np.dtype[Any]) -> float:
    """The distance of 1 to the next number of a floating type; of bfloat16 for those that numpy has not."""
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 2.0**-7


def smallest_numbers(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The smallest number of a floating type that has all digits, and the distance of those below; of bfloat16 for those that numpy has
    not."""
    if dtype.kind not in "fc":
        return 2.0**-126, 2.0**-133
    info = np.finfo(dtype)
    return float(info.smallest_normal), float(info.smallest_subnormal)


def whole_pieces(outputs: Mapping[str, Any]) -> dict[str, list[Piece]]:
    """Outputs that are known as global arrays only."""
    return {name: [Piece(0, np.shape(value), ..., np.asarray(value))] for name, value in outputs.items()}


def worst(several: Sequence[Sequence[Comparison]]) -> list[Comparison]:
    """Of the comparisons on several draws, the worst of each output."""
    found: dict[str, Comparison] = {}
    for each in (comparison for compared in several for comparison in compared):
        before = found.get(each.name)
        if before is None or _order(each) < _order(before):
            found[each.name] = each
    return list(found.values())


def _order(comparison: Comparison) -> tuple[bool, bool, float]:
    """The worst first."""
    return comparison.holds, comparison.undecided, -comparison.ratio


def tolerance_of(module: ModuleOp) -> float:
    """What values computed in the program's own types may be off by: by the narrowest floating type among them."""
    widths = {
        element.bitwidth
        for op in module.walk()
        for result in op.results
        if isinstance(result.type, TensorType)
        and isinstance(element := cast(TensorType[Any], result.type).element_type, AnyFloat)
    }
    narrowest = min(widths, default=32)
    return next(tolerance for width, tolerance in TOLERANCES if narrowest >= width)


# --- rounding ---


class Remembered(Moves):
    """What runs have said so far, then what more of them say: a run is made once, and only if somebody asks."""

    def __init__(self, moves: Moves) -> None:
        self._more = iter(moves)
        self._known: Mapping[str, Array] | None = None

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        if self._known is not None:
            yield self._known
        for known in self._more:
            self._known = known
            yield known


def moves_of(
    run: Callable[[dict[str, Array]], Mapping[str, Any]],
    values: Mapping[str, Array],
    outputs: Mapping[str, Any],
    dtype: np.dtype[Any] | None,
) -> Iterator[dict[str, Array]]:
    """How far each element of the outputs is moved by values that differ in their last digits (those of `dtype`, else of
    their own types), the argument that it updates left out. After each of several runs, the largest of all so far."""
    found: dict[str, Array] = {}
    began = time.process_time()
    for seed in range(MOVED_RUNS):
        if seed > 2 and (time.process_time() - began) * (seed + 1) / seed > MOVED_SECONDS:
            break
        near = _nearby(values, dtype, np.random.default_rng(seed))
        for name, output in run(near).items():
            if np.asarray(output).dtype.kind in "biuOSU":
                continue
            a, b = (np.asarray(v).astype(np.float64) for v in (outputs[name], output))
            if name in values and values[name].shape == a.shape:
                b = b - (near[name].astype(np.float64) - values[name].astype(np.float64))
            with np.errstate(invalid="ignore"):
                distance = np.nan_to_num(np.abs(a - b), nan=0.0)
            found[name] = np.maximum(found[name], distance) if name in found else distance
        yield found


def _nearby(values: Mapping[str, Array], dtype: np.dtype[Any] | None, random: np.random.Generator) -> dict[str, Array]:
    near: dict[str, Array] = {}
    for name, value in values.items():
        if value.dtype.kind != "f" and "float" not in value.dtype.name:
            near[name] = value
            continue
        near[name] = disturbed(value, MOVED_ULPS, value.dtype if dtype is None else dtype, random)
    return near


def disturbed(value: Array, ulps: float, dtype: np.dtype[Any], random: np.random.Generator) -> Array:
    """Other last digits of a type, by at most so many units. A number with fewer digits than others, near zero, is moved as far as the smallest
    number that has all; zero stays, which is mostly exact, and so do infinities and what would become one."""
    with np.errstate(invalid="ignore", over="ignore"):
        if value.dtype == dtype == np.float32:  # values of millions of numbers, in a seventh of the time
            moved = random.random(value.shape, np.float32) - np.float32(0.5)
            moved = value + np.float32(2 * ulps * unit(dtype)) * moved * value
        else:
            moved = np.asarray(value.astype(np.float64) * (1 + ulps * unit(dtype) * random.uniform(-1, 1, value.shape)))
        normal, step = smallest_numbers(dtype)
        if (small := (np.abs(moved) < normal) & (moved != 0)).any():
            moved = np.where(small, moved + ulps * step * random.uniform(-1, 1, value.shape), moved)
        moved = moved.astype(dtype)
        return moved if (finite := np.isfinite(moved)).all() else np.where(finite, moved, value.astype(dtype))
