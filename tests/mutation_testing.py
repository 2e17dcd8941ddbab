"""Mutation testing: mutants of a distributed program go in; whether each computes something else, and whether `verify` says so, come
out.

What a mutant computes is decided beside the program that it was made from, not beside the sequential one: both do the same
operations in the same order, so where they do not differ to the last digits they compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.equivalence import Expectation, Program, drawings, expectations
from distir.interpreters.global_arrays import Array, Piece
from distir.interpreters.inputs import draw_inputs, special_indices
from distir.interpreters.reference import run_pieces

DRAWS = 4
TOLERANCE = 1e-10


class Examiner:
    """Of one pair of programs."""

    def __init__(self, sequential: ModuleOp, distributed: Program) -> None:
        self.expectations: list[Expectation] = list(expectations(sequential, drawings(sequential)))
        self.values = [_other_values(sequential, number) for number in range(DRAWS)]
        self.right = [self._run(distributed, values) for values in self.values]
        self.why, self.same_bits = "", True

    def _run(self, program: Program, values: dict[str, Array]) -> dict[str, list[Piece]]:
        return run_pieces(program, values, dtype=np.float64, spread=np.random.default_rng(7))

    def verdict(self, mutant: Program) -> str:
        """`caught` by `verify`, `missed` by it, or `harmless`. What is the same to the last bit on the other values need not run on all of
        `verify`'s: most harmless mutants are."""
        if self.caught(mutant, self.expectations[:1]):
            return "caught"
        changed = self.changes(mutant)
        if (changed or not self.same_bits) and self.caught(mutant, self.expectations[1:]):
            return "caught"
        return "missed" if changed else "harmless"

    def changes(self, mutant: Program) -> bool:
        """Whether it computes something else, on any device, or does not run; `same_bits` says whether not a bit differs."""
        self.same_bits = True
        for values, right in zip(self.values, self.right, strict=True):
            try:
                got = self._run(mutant, values)
            except DistirError:
                self.same_bits = False
                return True
            self.same_bits = self.same_bits and _same(right, got)
            if not self.same_bits and _differ(right, got, values):
                return True
        return False

    def caught(self, mutant: Program, expectations: Sequence[Expectation] | None = None) -> bool:
        """Whether `verify` refuses it; `why` says what it said."""
        for expectation in self.expectations if expectations is None else expectations:
            try:
                compared = expectation.compare(mutant, TOLERANCE)
            except DistirError as error:
                self.why = str(error)
                return True
            if failed := [c for c in compared if not c.holds]:
                self.why = f"{failed[0].name}: {failed[0].says}"
                return True
        self.why = "every output agrees"
        return False


def _other_values(module: ModuleOp, number: int) -> dict[str, Array]:
    """Values from other seeds than those of `verify`, at other scales."""
    values = draw_inputs(module, 1000 + number, names=[p.name for p in arguments_of(entry_function(module))])
    random = np.random.default_rng(number)
    for port in arguments_of(entry_function(module)):
        value = values[port.name]
        if value.dtype.kind == "f" and value.size > 1:
            scale = {"state": (1.0, 1e-2, 1e-4, 1e-6), "parameter": (1.0, 2.0, 0.5, 1.0)}.get(
                port.role or "", (1.0,) * 4
            )
            values[port.name] = value.astype(np.float64) * scale[number % 4]
        elif port.role in ("input", "label") and (special := special_indices(module, port.name)):
            chosen = random.random(value.shape) < 0.4
            chosen.reshape(-1)[0] = False
            values[port.name] = np.where(chosen, special[0], value).astype(value.dtype)
    return values


def _same(right: dict[str, list[Piece]], got: dict[str, list[Piece]]) -> bool:
    """Whether every device has the same bits."""
    return right.keys() == got.keys() and all(
        len(pieces) == len(got[name])
        and all(
            a.value.dtype == b.value.dtype
            and a.value.shape == b.value.shape
            and a.value.tobytes() == b.value.tobytes()
            and _same_index(a.index, b.index)
            for a, b in zip(pieces, got[name], strict=True)
        )
        for name, pieces in right.items()
    )


def _differ(right: dict[str, list[Piece]], got: dict[str, list[Piece]], values: dict[str, Any]) -> bool:
    """Whether any device has other than rounding, relative to what it has or to what that has changed by."""
    if right.keys() != got.keys():
        return True
    for name, pieces in right.items():
        others = got[name]
        if len(pieces) != len(others):  # equal values may have become a minimum of them, which is one
            pieces, others = _distinct(pieces), _distinct(others)
        if len(pieces) != len(others):
            return True
        for a, b in zip(pieces, others, strict=True):
            if a.value.shape != b.value.shape or a.value.dtype != b.value.dtype or not _same_index(a.index, b.index):
                return True
            if a.value.dtype.kind != "f":
                if not np.array_equal(a.value, b.value):
                    return True
                continue
            change = a.value - values[name][a.index] if name in values and values[name].shape == a.shape else a.value
            scale = float(np.abs(change).max(initial=0.0))
            rounding = 8 * np.finfo(np.float64).eps * np.abs(a.value)
            if not (np.abs(a.value - b.value) <= 1e-12 * scale + rounding).all():
                return True
    return False


def _distinct(pieces: list[Piece]) -> list[Piece]:
    """Without those of the same bits in the same place as one before."""
    found: list[Piece] = []
    for piece in pieces:
        if not any(_same({"": [piece]}, {"": [other]}) for other in found):
            found.append(piece)
    return found


def _same_index(a: Any, b: Any) -> bool:
    if a is ... or b is ...:
        return a is b
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
