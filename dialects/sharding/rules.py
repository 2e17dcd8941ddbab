"""Rules: all ways found to run an op on shards. In go the shards of operands, as a rule's factors cut them; out come
shards of results, and how they combine.

A rule names the *factors* of an op: dims that carry the same factor are cut together, and its combine says how the
results of the shards become the whole result (MetaDist's ShardSpec and CombineSpec in one)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, cast

from distir.dialects.reductions import Reduction

Halo = tuple[int, int]
"""To the left and to the right."""
NO_HALO: Halo = (0, 0)


@dataclass(frozen=True)
class InputDim:
    """One dim of an operand: the factor it carries (None is the paper's NoShardDim) and how shards of it are cut."""

    factor: str | None = None
    halo: Halo = NO_HALO
    """How many indices beyond its own a shard reads on either side, at most; where the dim ends, as many as there are."""
    pieces: tuple[int, ...] = ()
    """Relative sizes of the segments that are each cut evenly; empty is one segment."""
    inner: tuple[str, ...] = ()
    """Factors inside `factor`, outermost first: a view's dim is their product in row-major order, and one of them is cut
    within every index of those before it."""
    stride: int = 1
    """Indices of the dim per step of the factor: the rows that a window moves on."""
    filled: bool = False
    """Whether a shard has zeros in the place of the indices beyond its own, and not what is there."""

    @property
    def is_windowed(self) -> bool:
        """Whether shards overlap, or a step of the factor is not one of the dim."""
        return self.halo != NO_HALO or self.stride != 1 or self.filled

    @property
    def factors(self) -> tuple[str, ...]:
        """All factors that the dim carries, outermost first."""
        return () if self.factor is None else (self.factor, *self.inner)


@dataclass(frozen=True)
class Gather:
    """The shards' results concatenate along `dim` (per piece)."""

    dim: int
    halo: Halo = NO_HALO
    """How much of a shard's result its neighbours have too on either side: negative halos are discarded, positive ones
    added (MetaDist, figure 5). Where the dim ends there is none."""
    pieces: tuple[int, ...] = ()
    outer: tuple[str, ...] = ()
    """Factors outside this one in a dim that a view merged: the shards concatenate within every index of them."""
    stride: int = 1
    """Indices of the dim per step of the factor, where shards overlap."""

    @property
    def is_windowed(self) -> bool:
        """Whether shards' results overlap, or a step of the factor is not one of the dim."""
        return self.halo != NO_HALO or self.stride != 1


@dataclass(frozen=True)
class Reduce:
    """The shards' results are addends."""

    reduction: Reduction


@dataclass(frozen=True)
class Identity:
    """Every shard computes the whole result."""


Combine = Gather | Reduce | Identity


@dataclass(frozen=True)
class PartialRule:
    """Partial `operands` (the others replicated, or cut along `factor`) give partial `results`."""

    reduction: Reduction
    operands: tuple[int, ...]
    results: tuple[int, ...]
    factor: str | None = None


class OutsideKind(StrEnum):
    """What is done about indices of positions that another shard has."""

    RESULT = "result"
    """The result counts as zero there."""
    ZERO = "zero"
    """Operand `number` is made zero there."""
    KEPT = "kept"
    """The result is there what operand `number` is."""
    IGNORED = "ignored"
    """The index becomes `number`, which the operator ignores."""


@dataclass(frozen=True)
class Outside:
    """How an operator that looks up is told which indices are not its shard's."""

    kind: OutsideKind = OutsideKind.RESULT
    number: int = 0

    @property
    def ignored(self) -> int | None:
        """The index that the operator ignores, if that is how."""
        return self.number if self.kind is OutsideKind.IGNORED else None


@dataclass(frozen=True)
class Shift:
    """How an operator is told where its shard begins that counts positions from one of its own integers, such as the diagonal at
    which a triangle begins: entry `position` of the property or operand `name` grows by the start of the shard, or falls by it."""

    name: str
    position: int
    falls: bool = False

    def by(self, start: int) -> int:
        """What is added to the entry for a shard that begins at `start`."""
        return -start if self.falls else start


Offset = Outside | Shift
"""What is done for a shard that has to know which positions it has."""


@dataclass(frozen=True)
class Rule:
    """All ways found to run an op on shards."""

    inputs: tuple[tuple[InputDim, ...], ...]
    combines: Mapping[str, tuple[Combine, ...]]
    sizes: Mapping[tuple[str, int], tuple[str, ...]] = field(default_factory=dict[tuple[str, int], tuple[str, ...]])
    """By name and position, the factors that a size is a multiple of."""
    partials: tuple[PartialRule, ...] = ()
    offsets: Mapping[str, Offset] = field(default_factory=dict[str, Offset])
    """Factors whose shards need to know which positions they have. Those of a lookup (rows of a table) have an `Outside`: the only
    integer operand is shifted by the start of the shard, and something is done about indices outside."""
    found: str = "exact"
    """`exact` (by exact scalars), `probed` (by floats), or `unknown`: the op was not run."""

    def __str__(self) -> str:
        """The rule as in the text of a program, `#dist.rule<...>`."""
        from distir.dialects.sharding.rule_text import RuleAttr

        return str(RuleAttr(cast(Any, self)))

    def __hash__(self) -> int:
        return hash(
            (
                self.inputs,
                tuple(self.combines.items()),
                tuple(self.sizes.items()),
                self.partials,
                tuple(self.offsets.items()),
                self.found,
            )
        )

    @property
    def factors(self) -> tuple[str, ...]:
        """Those that need no offset."""
        return tuple(factor for factor in self.combines if factor not in self.offsets)

    @cached_property
    def options(self) -> dict[Hashable, Any]:
        """What operations of this rule may do, by what it depends on: a memory for passes that ask for many alike (`options`)."""
        return {}

    @cached_property
    def windowed(self) -> frozenset[str]:
        """Factors whose shards overlap."""
        inputs = {d.factor for dims in self.inputs for d in dims if d.is_windowed and d.factor is not None}
        trimmed = {f for f, cs in self.combines.items() if any(isinstance(c, Gather) and c.is_windowed for c in cs)}
        return frozenset(inputs | trimmed)

    def outside(self, factor: str) -> frozenset[str]:
        """The factors that this one lies inside, in some dim."""
        return self._outside[factor]

    @cached_property
    def _outside(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {factor: set() for factor in self.combines}
        for dim in (dim for dims in self.inputs for dim in dims):
            for factor in dim.inner:
                found.setdefault(factor, set()).update(dim.factors[: dim.factors.index(factor)])
        for factor, combines in self.combines.items():
            found[factor].update(*[combine.outer for combine in combines if isinstance(combine, Gather)])
        return {factor: frozenset(outer) for factor, outer in found.items()}

    def partner(self, factor: str) -> PartialRule | None:
        """The partial operands that `factor` needs beside its cut dims (a bias in a split contraction)."""
        return next((p for p in self.partials if p.factor == factor), None)
