"""Tests by running whether two programs compute the same. In go a sequential program and another of its model; out
comes one comparison per output, the worst of several draws of all values.

Values are drawn so that faults show: every weight, state and input differs, none is zero or one; state is large, as
after a step, and small; labels include some that the loss ignores. The model's own values are one more draw.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast
from zlib import crc32

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType

from distir.dialects.errors import DistirError
from distir.interpreters import reference
from distir.interpreters.comparison import Comparison, Remembered, compare, moves_of, worst
from distir.interpreters.entry import Port, arguments_of, entry_function, results_of
from distir.interpreters.global_arrays import Array
from distir.interpreters.inputs import between_zero_and_one, draw_inputs, integer_tables, small, special_indices
from distir.interpreters.rounding import rounded_more, rounded_on_purpose

Program = ModuleOp | Sequence[ModuleOp]
"""A program of level 1 to 3, or those of all ranks."""

Values = dict[str, Array]

DRAWS = 3
"""Draws beside the values that the model has."""

BUDGET_SECONDS = 60.0
"""No other draw begins when it would likely end after this."""

SPECIAL_SHARE = 0.2
"""Of labels that a loss ignores, among all."""

SMALL_STATE = 1e-3


@dataclass(frozen=True)
class Verification:
    """What was found."""

    comparisons: list[Comparison]
    draws: list[str]
    """What the programs were run on."""
    skipped: int
    """Draws that would have taken too long."""

    @property
    def holds(self) -> bool:
        return all(each.holds for each in self.comparisons)


def verify(
    sequential: ModuleOp,
    program: Program,
    given: Mapping[str, Array] | None = None,
    *,
    tolerance: float = 1e-10,
    dtype: Any = np.float64,
    count: int = DRAWS,
    seed: int = 0,
    budget_seconds: float = BUDGET_SECONDS,
    names: tuple[str, str] = ("the first program", "the second program"),
) -> Verification:
    """Runs both on several draws of all values that are not `given`, until one shows a difference. Raises DistirError, which
    names the program, where one cannot run or the second has arguments that the first has not."""
    check_arguments(sequential, program, names)
    compared: list[list[Comparison]] = []
    says: list[str] = []
    began = time.monotonic()
    plan = drawings(sequential, given, count, seed)
    try:
        for expectation in expectations(sequential, plan, dtype):
            try:
                compared.append(expectation.compare(program, tolerance))
            except DistirError as error:
                raise _Second(error) from error
            says.append(expectation.says)
            spent = time.monotonic() - began
            if not all(c.holds for c in compared[-1]) or spent + spent / len(says) > budget_seconds:
                break
    except _Second as error:
        raise DistirError(f"{names[1]}: {error}") from error
    except DistirError as error:
        raise DistirError(f"{names[0]}: {error}") from error
    holds = all(each.holds for each in compared[-1])
    skipped = len(plan) - len(says) if holds and time.monotonic() - began > budget_seconds / 2 else 0
    types = [*_types_that_differ(sequential, program), *rounded_more(sequential, program), *rounded_on_purpose(program)]
    return Verification([*worst(compared), *types], says, skipped)


class _Second(DistirError):
    """Of the second program."""


def _ports(program: Program, of: Callable[[Any], list[Port]]) -> dict[str, Port]:
    modules = [program] if isinstance(program, ModuleOp) else program
    return {port.name: port for module in modules for port in reversed(of(entry_function(module)))}


def check_arguments(sequential: ModuleOp, program: Program, names: tuple[str, str]) -> None:
    """Raises DistirError for an argument of the second that the first does not have, or not of that element type."""
    first, second = _ports(sequential, arguments_of), _ports(program, arguments_of)
    for name, port in second.items():
        if name not in first:
            raise DistirError(f"{names[1]} has an argument '{name}' that {names[0]} has not")
        if (types := _element_types(first[name], port)) is not None:
            raise DistirError(
                f"argument '{name}' has elements of {types[0]} in {names[0]}, of {types[1]} in {names[1]}"
            )


def _types_that_differ(sequential: ModuleOp, program: Program) -> list[Comparison]:
    """Results of other element types: all floating values are computed in one type here."""
    first, second = _ports(sequential, results_of), _ports(program, results_of)
    pairs = ((name, _element_types(port, second[name])) for name, port in first.items() if name in second)
    return [Comparison(name, False, f"elements of {types[0]} and {types[1]}") for name, types in pairs if types]


def _element_types(a: Port, b: Port) -> tuple[str, str] | None:
    """The element types of two ports, where they are not the same."""
    if not isinstance(a.type, TensorType) or not isinstance(b.type, TensorType):
        return None
    types = [cast(TensorType[Any], port.type).element_type for port in (a, b)]
    return None if types[0] == types[1] else (str(types[0]), str(types[1]))


# --- what the sequential program computes ---


@dataclass
class Expectation:
    """What the sequential program computes from one draw of values."""

    module: ModuleOp
    says: str
    values: Values
    outputs: dict[str, Any]
    dtype: np.dtype[Any]

    @cached_property
    def moved(self) -> Remembered:
        """How far rounding alone moves each element of the outputs (`moves_of`)."""
        return Remembered(moves_of(self._run, self.values, self.outputs, self.dtype))

    def _run(self, values: Values) -> dict[str, Any]:
        return reference.run(self.module, values, dtype=self.dtype)

    def compare(self, program: Program, tolerance: float) -> list[Comparison]:
        """Another program on the same values. Raises DistirError if it does not run."""
        spread = np.random.default_rng(0)
        got = reference.run_pieces(program, self.values, dtype=self.dtype, spread=spread)
        return compare(self.outputs, got, tolerance, self.values, self.moved)


def expectations(module: ModuleOp, plan: Sequence[Drawing], dtype: Any = np.float64) -> Iterator[Expectation]:
    """What the program computes from each of the draws; from those only from which it computes numbers. If there is none, the
    first one."""
    first: Expectation | None = None
    found = False
    for drawing in plan:
        for candidate in drawing.candidates:
            if (values := candidate()) is None:
                continue
            outputs = reference.run(module, values, dtype=dtype)
            expectation = Expectation(module, drawing.says, values, outputs, np.dtype(dtype))
            first = first or expectation
            if are_numbers(outputs):
                found = True
                yield expectation
                break
    if not found and first is not None:
        yield first


def are_numbers(outputs: Mapping[str, Any]) -> bool:
    """Whether every floating output has numbers only, one of them finite."""
    arrays = [array for output in outputs.values() if (array := np.asarray(output)).size and array.dtype.kind in "fc"]
    return not any(np.isnan(array).any() or not np.isfinite(array).any() for array in arrays)


# --- draws ---


@dataclass(frozen=True)
class Drawing:
    """Values for all arguments, to be made when they are asked for; the first from which a program computes numbers is taken."""

    says: str
    candidates: Sequence[Callable[[], Values | None]]


def drawings(
    module: ModuleOp, given: Mapping[str, Array] | None = None, count: int = DRAWS, seed: int = 0
) -> list[Drawing]:
    """`count` draws of all values that are not `given`, and after the first of them the model's own."""
    from distir.interpreters.weights import weights_of

    source = _Source(module, dict(given or {}), {n: np.asarray(v) for n, v in weights_of(module).items()}, seed)
    plan = [source.drawing(number) for number in range(count if source.drawn else 1)]
    if set(source.own) & set(source.drawn):
        plan.insert(1, Drawing("the model's own values", [source.as_the_model_has_them]))
    return plan


@dataclass
class _Source:
    """Where values come from."""

    module: ModuleOp
    given: Values
    own: Values
    """The model's."""
    seed: int

    def __post_init__(self) -> None:
        function = entry_function(self.module)
        self.ports = {port.name: port for port in reversed(arguments_of(function))}
        self.drawn = [name for name in self.ports if name not in self.given]
        updated = {port.name for port in results_of(function)}
        tables = integer_tables(self.module, self.ports.values())
        self.tables = {n: v for n, v in tables.items() if n in self.drawn and n not in updated}
        self.state = [n for n in self.drawn if self.ports[n].role == "state" and n in updated]
        indices = [n for n in self.drawn if self.ports[n].role in ("input", "label")]
        self.special = {name: special_indices(self.module, name) for name in indices}

    def drawing(self, number: int) -> Drawing:
        """The first has large state, the second such as a step leaves, the third small state, inputs and parameters."""

        def afresh() -> Values:
            if number % 3 != 2:
                return self.afresh(number, 1.0)
            return small(self.module, self.afresh(number, SMALL_STATE)) | self.given

        candidates = [afresh, lambda: self.after_a_step(number), lambda: self.near_the_model(number)]
        if number % 3 == 1:
            candidates[:2] = candidates[1::-1]
        between = [lambda each=each: self._between_zero_and_one(each()) for each in candidates]
        if any(self.special.values()):  # a mean over labels that are all ignored is no number
            ordinary = [partial(self.afresh, number, SMALL_STATE, False), partial(self.near_the_model, number, False)]
            between += ordinary
        return Drawing(f"seed {self.seed + number}", candidates + between)

    def _between_zero_and_one(self, values: Values | None) -> Values | None:
        return None if values is None else between_zero_and_one(self.module, values) | self.given

    def afresh(self, number: int, of_state: float, has_special: bool = True) -> Values:
        """Every value drawn, state at this scale; among indices are those that are no positions. Tables of integers are the model's."""
        values = draw_inputs(self.module, self.seed + number, names=self.drawn)
        for name in self.drawn:
            value = values[name]
            if name in self.state and value.size > 1 and value.dtype.kind not in "iub":
                values[name] = (value * of_state).astype(value.dtype)
            if has_special and self.special.get(name):
                values[name] = _with_special(value, self.special[name], self._random(number, name))
        if number % 3 == 0:
            values |= self._different_counts(values, number)
        return values | self.tables | self.given

    def _different_counts(self, values: Values, number: int) -> Values:
        """Counts of steps, no two of them equal: which is whose shows."""
        counts = [name for name in self.state if values[name].size == 1]
        order = self._random(number, "counts").permutation(len(counts))
        return {n: np.full_like(values[n], 1 + k) for n, k in zip(counts, order, strict=True)}

    def after_a_step(self, number: int) -> Values | None:
        """Every value drawn, and state that one step on another batch leaves."""
        if not self.state:
            return None
        values = self.afresh(number, 1.0)
        before = {name: self.own.get(name, np.zeros_like(values[name])) for name in self.state}
        batch = {n: v for n, v in self.afresh(number + DRAWS, 1.0).items() if self.ports[n].role in ("input", "label")}
        after = reference.run(self.module, values | batch | before | self.given, dtype=np.float64)
        return values | {name: np.asarray(after[name]) for name in self.state}

    def near_the_model(self, number: int, has_special: bool = True) -> Values | None:
        """The model's values times numbers from 0.5 to 1.5: what is zero or infinite stays so."""
        if not self.own:
            return None
        values = self.afresh(number, SMALL_STATE, has_special)
        for name in self.own.keys() & set(self.drawn):
            value = self.own[name]
            if value.dtype.kind in "iub" or self.ports[name].role == "state":
                values[name] = value
            else:
                near = value.astype(np.float64) * self._random(number, name).uniform(0.5, 1.5, value.shape)
                values[name] = near.astype(value.dtype)
        return values

    def as_the_model_has_them(self) -> Values:
        return self.afresh(0, 1.0) | {n: v for n, v in self.own.items() if n in self.drawn}

    def _random(self, number: int, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed + number, crc32(name.encode()), 1])


def _with_special(value: Array, special: Sequence[int], random: np.random.Generator) -> Array:
    """Some of the numbers, but not all, replaced by these."""
    if value.size < 2:
        return value
    chosen = random.random(value.size) < SPECIAL_SHARE
    chosen[random.choice(value.size, 2, replace=False)] = True, False
    return np.where(chosen.reshape(value.shape), random.choice(special, value.shape), value).astype(value.dtype)
