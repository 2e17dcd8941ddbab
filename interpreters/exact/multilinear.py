"""Runs operators that are sums of products of their operands on exact scalars, by means of doubles. In go an
operator on doubles and arrays of residues; out come residues.

Contractions, convolutions, scatters and the like: `f(x, w, b) = x * w + b`. Each operand is cut in limbs of a few
bits, which doubles multiply and add exactly, and the operator's results on limbs are put together again. Its results
on a few random numbers show whether an operator is a sum of products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, TypeAlias

import numpy as np

from distir.interpreters.exact import residues
from distir.interpreters.exact.residues import Residues
from distir.interpreters.exact.scalars import PRIME

Array = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[Sequence[Array]], list[Array] | None]
"""The results of an operator on doubles; None if one of them is not of floats."""

_LIMB_BITS, _LIMBS = 21, 3
_LARGEST_DOUBLE = 2**53
_ENOUGH = 64
"""Elements of each result that are compared: rounding a few numbers may look additive."""
_MOST_OPERANDS = 4
"""Of which products are looked for: there are so many sets of operands."""


@dataclass(frozen=True)
class Terms:
    """The products of operands (by number) that add up to results; of an operator that is additive in all operands together, none
    are told apart."""

    products: tuple[frozenset[int], ...]
    together: bool = False


def terms(run: Run, shapes: Sequence[tuple[int, ...]]) -> Terms | None:
    """Those of an operator on operands of these shapes; None if it is not a sum of products."""
    generator = np.random.default_rng(7)

    def draw() -> list[Array]:
        return [np.asarray(generator.integers(-(2**10), 2**10, shape) / 4) for shape in shapes]

    at = draw()
    if (results := run(at)) is None:
        return None
    fewest = min((result.size for result in results if result.size), default=_ENOUGH)
    others = [draw() for _ in range(-(-_ENOUGH // fewest))]
    if all(_is_additive(run, at, other) for other in others):
        return Terms((), together=True)
    is_product = len(shapes) <= _MOST_OPERANDS and all(_is_affine_in_each(run, at, other) for other in others)
    return _products(run, at) if is_product else None


def _is_additive(run: Run, a: Sequence[Array], b: Sequence[Array]) -> bool:
    """Whether it makes of sums the sums of what it makes of these."""
    one, other, together = run(a), run(b), run(_sum(a, b))
    return one is not None and other is not None and together is not None and _equal(_sum(one, other), together)


def _is_affine_in_each(run: Run, a: Sequence[Array], b: Sequence[Array]) -> bool:
    """Whether it is so, but for what it makes of zeros, when one operand changes and the others stay."""
    at_a = run(a)
    for i, changed in enumerate(b):
        other, both, neither = (
            run([*a[:i], x, *a[i + 1 :]]) for x in (changed, a[i] + changed, np.zeros_like(changed))
        )
        if at_a is None or other is None or both is None or neither is None:
            return False
        if not _equal(_sum(at_a, other), _sum(both, neither)):
            return False
    return True


def _products(run: Run, at: Sequence[Array]) -> Terms | None:
    """Which products are not zero there."""
    found: dict[frozenset[int], list[Array]] = {}
    for chosen in _subsets(range(len(at))):
        value = run([each if i in chosen else np.zeros_like(each) for i, each in enumerate(at)])
        if value is None:
            return None
        for smaller, part in found.items():
            if smaller < chosen:
                value = [x - y for x, y in zip(value, part, strict=True)]
        if any(each.any() for each in value):
            found[chosen] = value
    return Terms(tuple(found))


def on_exact(run: Run, exact: Sequence[Residues], of: Terms) -> list[Residues]:
    """The results on arrays of exact scalars of an operator with these terms.

    Raises ArithmeticError if doubles do not hold what it makes of limbs."""
    limbs = [
        [(array >> (_LIMB_BITS * k) & (2**_LIMB_BITS - 1)).astype(np.float64) for k in range(_LIMBS)] for array in exact
    ]
    if of.together:
        parts = [(_exactly(run, [each[k] for each in limbs]), k) for k in range(_LIMBS)]
        return _total([_weighted(part, k) for part, k in parts])
    zeros = [np.zeros(array.shape) for array in exact]
    seen: dict[tuple[tuple[int, int], ...], list[Residues]] = {}
    added: list[list[Residues]] = []
    for operands in sorted(of.products, key=len):
        for ks in product(range(_LIMBS), repeat=len(operands)):
            at = tuple(zip(sorted(operands), ks, strict=True))
            places = dict(at)
            value = _exactly(run, [limbs[i][places[i]] if i in places else zeros[i] for i in range(len(exact))])
            for smaller, part in seen.items():
                if set(smaller) < set(at):
                    value = [residues.subtract(x, y) for x, y in zip(value, part, strict=True)]
            seen[at] = value
            added.append(_weighted(value, sum(ks)))
    return _total(added) if added else _exactly(run, zeros)


def _subsets(items: Sequence[int]) -> list[frozenset[int]]:
    """Smaller ones first."""
    return [frozenset(each) for size in range(len(items) + 1) for each in combinations(items, size)]


def _sum(one: Sequence[Array], other: Sequence[Array]) -> list[Array]:
    return [x + y for x, y in zip(one, other, strict=True)]


def _equal(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


def _exactly(run: Run, arrays: Sequence[Array]) -> list[Residues]:
    results = run(arrays)
    assert results is not None
    if any(np.abs(each).max(initial=0) >= _LARGEST_DOUBLE or (each != np.round(each)).any() for each in results):
        raise ArithmeticError("doubles do not hold its results")
    return [each.astype(np.int64) % PRIME for each in results]


def _weighted(parts: Sequence[Residues], limbs: int) -> list[Residues]:
    """Results of limbs that are so many in all above the lowest."""
    weight = np.int64(pow(2, _LIMB_BITS * limbs, PRIME))
    return [residues.multiply(part, weight) for part in parts]


def _total(parts: Sequence[Sequence[Residues]]) -> list[Residues]:
    total = list(parts[0])
    for part in parts[1:]:
        total = [residues.add(x, y) for x, y in zip(total, part, strict=True)]
    return total
