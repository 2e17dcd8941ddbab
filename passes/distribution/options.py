"""The options of an operation along one mesh axis. In go its rule and the number of shards; out come the ways to run
it, each with the states of operands and results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from xdsl.ir import Operation, SSAValue

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import (
    REPLICATED,
    Choice,
    Partial,
    Pieces,
    Replicate,
    Rule,
    RuleAttr,
    Sharded,
    State,
    UseFactor,
    UsePartial,
)
from distir.interpreters.walk import values_read
from distir.passes.distribution.size_entries import size_entries
from distir.passes.shardcombine.instances import instantiate, partial_instance
from distir.passes.structure import shape_of

RULE = "dist.rule"
ADDENDS = "dist.addends"
"""Of an operation that takes addends of gradients as they are: along axes that cut the batch they are reduced after it (`gradient-type`)."""


@dataclass(frozen=True)
class Option:
    """One choice for an op along an axis: what it needs of each operand and gives for each result. An op that only
    replicates also needs what its regions use from outside (`values_read`).

    `means` lists results whose shards are local means: each becomes an addend by a local scale of 1/shards."""

    choice: Choice
    operands: tuple[State, ...]
    results: tuple[State, ...]
    means: tuple[int, ...] = ()


def rule_of(op: Operation) -> Rule | None:
    attribute = op.attributes.get(RULE)
    return cast(RuleAttr, attribute).data if attribute is not None else None


def replicate(op: Operation) -> Option:
    """Every shard runs the whole op."""
    return Option(Replicate(), (REPLICATED,) * len(values_read(op)), (REPLICATED,) * len(op.results))


def options(
    op: Operation,
    shards: int,
    pieces: Iterable[Pieces] = (),
    rule: Rule | None = None,
    uneven: bool = False,
    overlapping: bool = False,
    offsets: bool = True,
) -> list[Option]:
    """All options of an op along an axis of `shards`, replication first, by its rule unless another is given; in even shards
    unless `uneven`, without overlap unless `overlapping`, and those of which shards must know their positions only if `offsets`.

    `pieces` are ways to cut a factor beside the one as a whole; those that do not fit a factor's extent are skipped."""
    rule = rule or rule_of(op)
    return [replicate(op), *dividing(op, shards, pieces, rule, uneven, overlapping, offsets)]


def dividing(
    op: Operation,
    shards: int,
    pieces: Iterable[Pieces],
    rule: Rule | None,
    uneven: bool = False,
    overlapping: bool = False,
    offsets: bool = True,
    of: Collection[str] | None = None,
) -> Iterator[Option]:
    """The same without replication, one after the other; those that cut these factors only, if any are given."""
    if rule is None:
        return
    windowed = rule.windowed
    for factor in (f for f in rule.factors if (overlapping or f not in windowed) and (of is None or f in of)):
        cuts = (factor_option(op, rule, factor, shards, cut, uneven) for cut in (None, *pieces))
        candidates = [option for option in cuts if option is not None]
        yield from candidates if len(candidates) < 2 else sorted(set(candidates), key=str)
    for factor in rule.offsets if offsets and of is None else ():  # in one piece: a shard's positions follow each other
        if (option := factor_option(op, rule, factor, shards, None, uneven)) is not None:
            yield option
    for index, partial in enumerate(rule.partials if of is None else ()):
        if partial.factor is None and (instance := partial_instance(rule, index, len(op.results))) is not None:
            yield Option(UsePartial(index), instance.operands, instance.results)


def factor_option(
    op: Operation, rule: Rule, factor: str, shards: int, pieces: Pieces | None, uneven: bool = False
) -> Option | None:
    """The option of cutting an op along a factor; None where the extents do not divide (`uneven`: are too small)."""
    operand_shapes = tuple([shape_of(v) for v in op.operands])
    result_shapes = tuple([shape_of(v) for v in op.results])
    sizes = size_entries(op, rule)
    key = factor, operand_shapes, result_shapes, shards, pieces, tuple(sizes.items()), uneven
    if key not in rule.options:
        instance = instantiate(rule, factor, operand_shapes, result_shapes, shards, pieces, sizes, uneven)
        choice = UseFactor(factor, pieces or ())
        option = instance and Option(choice, instance.operands, instance.results, instance.means)
        rule.options[key] = option
    return rule.options[key]


def chosen_option(op: Operation, choice: Choice, shards: int, uneven: bool = False) -> Option | None:
    """The option that a strategy's choice stands for, in shards that are even and do not overlap unless `uneven`; None where
    it does not fit the op."""
    rule = rule_of(op)
    match choice:
        case Replicate():
            return replicate(op)
        case UsePartial(index):
            if rule is None or index >= len(rule.partials):
                return None
            instance = partial_instance(rule, index, len(op.results))
            return None if instance is None else Option(choice, instance.operands, instance.results)
        case UseFactor(factor, pieces):
            if rule is None or factor not in rule.combines or (factor in rule.windowed and not uneven):
                return None
            return factor_option(op, rule, factor, shards, pieces or None, uneven)


def local_shape(shape: Sequence[int], state: State, shards: int | Fraction) -> tuple[int, ...]:
    """The shape of one shard."""
    if isinstance(state, Sharded):
        return (*shape[: state.dim], shape[state.dim] // shards, *shape[state.dim + 1 :])
    return tuple(shape)


def whole_pieces(value: SSAValue, dim: int) -> Sharded:
    """A dim cut evenly as one piece."""
    return Sharded(dim, (shape_of(value)[dim],))


SUM = Partial(Reduction.SUM)
