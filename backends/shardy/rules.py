"""Translates rules. In goes a rule at the shapes of one operation; out comes Shardy's `op_sharding_rule`, and back.

Shardy's factors have sizes and belong to one operation; a rule of ours belongs to a class of operators. A factor that cuts all
of a dim is that dim's factor; factors inside each other are a dim of several factors; a dim in k equal pieces is a factor
of k, which cannot be cut, outside the one that can; a dim that no factor cuts has a factor of its own, which needs
replication; a factor with a halo is a permutation factor.

Shardy cannot express: the reduction that makes the whole, unequal pieces, the width of a halo, partial operands,
sizes that are rewritten for a shard, results that every shard computes. Factors that need one of these to be cut
soundly (partial operands, positions) need replication there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from distir.dialects.reductions import Reduction
from distir.dialects.sdy import Mapping, OpRule
from distir.dialects.sharding import Combine, Gather, Identity, InputDim, Reduce, Rule
from distir.passes.shardcombine.instances import Shape, factor_extent

DimFactors = list[tuple[str | None, int]]
"""The factors of one dim with their sizes, major to minor; None is a factor of its own."""


@dataclass(frozen=True)
class _Dim:
    """One dim of a tensor: which factors cut it, outermost first."""

    extent: int
    factors: tuple[str, ...]
    pieces: tuple[int, ...]


class _Inexpressible(Exception):
    """These factors cannot be said in Shardy's terms."""

    def __init__(self, factors: Sequence[str]):
        self.factors = set(factors)


def rule_to_shardy(rule: Rule, operand_shapes: Sequence[Shape], result_shapes: Sequence[Shape]) -> OpRule:
    """The rule at these shapes. Factors that Shardy cannot express or not soundly need replication."""
    extents = {f: factor_extent(rule, f, operand_shapes, result_shapes) for f in rule.factors}
    halos = set(rule.windowed)
    usable = {f for f in rule.factors if rule.partner(f) is None and f not in rule.offsets}
    while True:
        try:
            operands = [
                [_Dim(n, dim.factors, dim.pieces) for n, dim in zip(shape, dims, strict=True)]
                for shape, dims in zip(operand_shapes, rule.inputs, strict=True)
            ]
            results = [_gathered(rule, r, shape) for r, shape in enumerate(result_shapes)]
            tensors = [_tensor(dims, extents, usable, halos) for dims in (*operands, *results)]
            break
        except _Inexpressible as error:
            usable -= error.factors
    return _numbered(rule, tensors, len(operands), halos)


def _gathered(rule: Rule, result: int, shape: Shape) -> list[_Dim]:
    """The dims of a result by the factors whose shards concatenate along them."""
    dims: list[_Dim] = []
    for d, extent in enumerate(shape):
        found = [(f, c) for f, cs in rule.combines.items() if isinstance(c := cs[result], Gather) and c.dim == d]
        found.sort(key=lambda entry: len(entry[1].outer))
        for i, (factor, combine) in enumerate(found):
            if combine.outer != tuple(f for f, _ in found[:i]):
                raise _Inexpressible([factor])
        dims.append(_Dim(extent, tuple(f for f, _ in found), found[0][1].pieces if found else ()))
    return dims


def _tensor(dims: list[_Dim], extents: dict[str, int | None], usable: set[str], halos: set[str]) -> list[DimFactors]:
    carried = [f for dim in dims for f in dim.factors if f in usable]
    if twice := [f for f in carried if carried.count(f) > 1]:
        raise _Inexpressible(twice)
    return [_layout(dim, extents, usable, halos) for dim in dims]


def _layout(dim: _Dim, extents: dict[str, int | None], usable: set[str], halos: set[str]) -> DimFactors:
    wanted = [f for f in dim.factors if f in usable]
    if not wanted:
        return [(None, dim.extent)]
    if wanted[0] in halos and len(dim.factors) == 1 and not dim.pieces:
        return [(wanted[0], dim.extent)]
    sizes = [extents.get(f) for f in dim.factors]
    if set(wanted) & halos or len(set(dim.pieces)) > 1 or (dim.pieces and len(dim.factors) > 1):
        raise _Inexpressible(wanted)
    layout: DimFactors = [(None, len(dim.pieces))] if dim.pieces else []
    for factor, size in zip(dim.factors, sizes, strict=True):
        if size is None:
            raise _Inexpressible(wanted)
        layout.append((factor if factor in usable else None, size))
    known = prod(size for _, size in layout)
    if dim.extent == 0 or dim.extent % known:
        raise _Inexpressible(wanted)
    layout.append((None, dim.extent // known))
    return [entry for entry in layout if entry[1] > 1] or [(None, 1)]


def _numbered(rule: Rule, tensors: list[list[DimFactors]], operands: int, halos: set[str]) -> OpRule:
    """Factors numbered as they first appear."""
    numbers: dict[str, int] = {}
    sizes: list[int] = []
    own: list[int] = []

    def number(factor: str | None, size: int) -> int:
        if factor is not None and factor in numbers:
            known = numbers[factor]
            sizes[known] = max(sizes[known], size)
            return known
        sizes.append(size)
        if factor is not None:
            numbers[factor] = len(sizes) - 1
        elif size > 1:
            own.append(len(sizes) - 1)
        return len(sizes) - 1

    mappings = [tuple(tuple(number(f, n) for f, n in layout) for layout in tensor) for tensor in tensors]
    reduced = [n for f, n in numbers.items() if any(isinstance(c, Reduce) for c in rule.combines[f])]
    return OpRule(
        tuple(mappings[:operands]),
        tuple(mappings[operands:]),
        tuple(sizes),
        reduction=tuple(sorted(n for n in reduced if n not in {numbers.get(f) for f in halos})),
        need_replication=tuple(sorted(own)),
        permutation=tuple(sorted(n for f, n in numbers.items() if f in halos)),
    )


# --- back ------------------------------------------------------------------------------------------------------------


def rule_from_shardy(shardy: OpRule) -> Rule:
    """The rule that Shardy's says: factors that can be cut without communication, `S1`, `S2`, ... in their order. A
    factor of operands that is in no result and not reduced is not cut: Shardy does not say that its shards agree."""
    cut = {f for f, size in enumerate(shardy.sizes) if size > 1} - {*shardy.need_replication, *shardy.permutation}
    cut &= {f for tensor in shardy.operands for dim in tensor for f in dim}
    cut &= {f for tensor in shardy.results for dim in tensor for f in dim} | set(shardy.reduction)
    while lost := {f for t in (*shardy.operands, *shardy.results) for dim in t for f in _unsaid(dim, cut)}:
        cut -= lost
    names = {f: f"S{i + 1}" for i, f in enumerate(sorted(cut))}
    inputs = tuple(tuple(_input_dim(dim, names, shardy.sizes) for dim in tensor) for tensor in shardy.operands)
    combines = {
        name: tuple(_combine(f, tensor, names, shardy) for tensor in shardy.results) for f, name in names.items()
    }
    return Rule(inputs, combines)


def _unsaid(dim: tuple[int, ...], cut: set[int]) -> list[int]:
    """The factors of a dim that no rule of ours says: several of them, some inside a factor that cannot be cut."""
    found = [i for i, f in enumerate(dim) if f in cut]
    return [dim[i] for i in found] if len(found) > 1 and found != list(range(len(found))) else []


def _pieces(dim: tuple[int, ...], names: dict[int, str], sizes: Sequence[int]) -> tuple[int, ...]:
    """A factor that cannot be cut outside one that can: so many equal pieces."""
    first = next(i for i, f in enumerate(dim) if f in names)
    count = prod(sizes[f] for f in dim[:first])
    return (1,) * count if count > 1 else ()


def _input_dim(dim: tuple[int, ...], names: dict[int, str], sizes: Sequence[int]) -> InputDim:
    carried = [names[f] for f in dim if f in names]
    if not carried:
        return InputDim()
    return InputDim(carried[0], pieces=_pieces(dim, names, sizes), inner=tuple(carried[1:]))


def _combine(factor: int, tensor: Mapping, names: dict[int, str], shardy: OpRule) -> Combine:
    for d, dim in enumerate(tensor):
        if factor in dim:
            outer = tuple(names[f] for f in dim[: dim.index(factor)] if f in names)
            return Gather(d, pieces=_pieces(dim, names, shardy.sizes), outer=outer)
    return Reduce(Reduction.SUM) if factor in shardy.reduction else Identity()
