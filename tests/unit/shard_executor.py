"""An executor of rules that shares no code with the one that finds them: the op run whole, and run in uneven shards by
the reference executor, on the same real arrays; what the shards give is put together as the rule says.

`violations` says in words what does not agree. An empty list after some `tried` ways is what a sound rule gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr
from xdsl.ir import Attribute, Block, Operation

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Gather, Identity, Reduce, Rule, Shift
from distir.interpreters.reference import run_operator
from distir.passes.shardcombine.instances import factor_extent
from distir.passes.shardcombine.probe_op import operand_name

Arrays = Sequence[Any]
Run = Callable[[Operation, Arrays], Sequence[Any]]
REDUCE = {Reduction.SUM: np.add, Reduction.MAX: np.maximum, Reduction.MIN: np.minimum, Reduction.PROD: np.multiply}
PRECISION = {8: 1e-9, 4: 1e-4}
"""Relative to the greatest element, by bytes; a hundredth for less."""

ROUNDING = 1e-4
"""Of the greatest operand, what a result is at least taken to be: smaller ones are what is left where sums cancel."""


@dataclass
class Counts:
    """How much was tried."""

    factors: int = 0
    windows: int = 0
    """Those factors whose shards overlap."""
    offsets: int = 0
    """Those whose shards need the start of their positions."""
    partials: int = 0


@dataclass
class Tried(Counts):
    """What was run, and what of it did not hold."""

    violations: list[str] = field(default_factory=list[str])


@dataclass
class Tally(Counts):
    """What was tried of many rules. `false` has what does not hold."""

    without: list[str] = field(default_factory=list[str])
    """What has no rule to try."""
    false: list[str] = field(default_factory=list[str])

    def add(self, name: str, rule: Rule, tried: Tried) -> None:
        for counted in fields(Counts):
            setattr(self, counted.name, getattr(self, counted.name) + getattr(tried, counted.name))
        self.false += [f"{name}: {each}; {rule}" for each in tried.violations]


def uneven(extent: int, shards: int) -> tuple[int, ...] | None:
    """Parts of an extent, uneven where it is large enough; None where it has too few blocks."""
    if extent < shards:
        return None
    if shards == 2:
        first = (extent - 1) // 3 or 1
        return first, extent - first
    return 1, (extent - 1) // 3 or 1, extent - 1 - ((extent - 1) // 3 or 1)


def held(extent: int, segments: Sequence[int], parts: Sequence[int], shard: int) -> list[int]:
    """The indices of a dim that a shard holds: within each segment, the part of its share."""
    indices: list[int] = []
    start = 0
    for segment in segments or (1,):
        length = extent * segment // sum(segments or (1,))
        bounds = [sum(parts[:i]) * length // sum(parts) for i in (shard, shard + 1)]
        indices += range(start + bounds[0], start + bounds[1])
        start += length
    return indices


def addends(array: Any, shards: int, reduction: Reduction, rng: np.random.Generator) -> list[Any]:
    """Arrays that reduce to this one."""
    noise = [rng.standard_normal(array.shape).astype(array.dtype) for _ in range(shards)]
    if reduction is Reduction.SUM:
        return [array - sum(noise[1:]), *noise[1:]]
    sign = -1 if reduction is Reduction.MAX else 1
    owner = rng.integers(0, shards, array.shape)
    return [
        np.where(owner == i, array, array + (sign * np.abs(n)).astype(array.dtype)).astype(array.dtype)
        for i, n in enumerate(noise)
    ]


def agree(actual: Any, expected: Any, scale: float = 0.0) -> bool:
    """Equal, or close for floats. Where the expected one is not finite, nothing is asked: sums of infinities differ."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape:
        return False
    if expected.dtype.kind in "iubOSU":
        return bool(np.array_equal(actual, expected))
    kind, numbers = (np.complex128, 2) if expected.dtype.kind == "c" else (np.float64, 1)
    tolerance = PRECISION.get(min(expected.dtype.itemsize, actual.dtype.itemsize) // numbers, 1e-2)
    actual, expected = actual.astype(kind), expected.astype(kind)
    finite = np.isfinite(expected)
    expected, actual = expected[finite], actual[finite]
    greatest = max(float(np.abs(expected).max(initial=0)), scale)
    return bool(np.allclose(actual, expected, rtol=tolerance, atol=tolerance * greatest))


def _greatest(array: Any) -> float:
    """The greatest size of a number of an array, if it is finite."""
    array = np.asarray(array)
    if array.dtype.kind in "iubOSU":
        return 0.0
    found = float(np.abs(array).astype(np.float64).max(initial=0))
    return found if np.isfinite(found) else 0.0


def together(combine: Any, whole: Any, shards: Arrays, parts: Sequence[int], repeats: int) -> Any:
    """What the shards' results make. Raises ValueError if they have not the shape that the combine needs."""
    match combine:
        case Identity():
            if not all(agree(shard, shards[0]) for shard in shards):
                raise ValueError("shards differ")
            return shards[0]
        case Gather(dim, _, pieces, _):
            result, seen = np.zeros_like(whole), np.zeros(whole.shape[dim], bool)
            for i, shard in enumerate(shards):
                indices = held(whole.shape[dim], (pieces or (1,)) * repeats, parts, i)
                index: list[Any] = [slice(None)] * whole.ndim
                index[dim] = indices
                if result[tuple(index)].shape != shard.shape:
                    raise ValueError(f"shard {i} has shape {shard.shape}")
                result[tuple(index)] = shard
                seen[indices] = True
            if not seen.all():
                raise ValueError("a part of the result is in no shard")
            return result
        case Reduce(Reduction.MEAN):
            return sum(s * (np.asarray(p, s.dtype) / sum(parts)) for s, p in zip(shards, parts, strict=True))
        case Reduce(reduction):
            return reduce(REDUCE[reduction], [shard.astype(whole.dtype) for shard in shards])
    raise AssertionError(combine)


def with_sizes(op: Operation, operands: Arrays, rule: Rule, factor: str, part: int, of: int) -> tuple[Operation, Any]:
    """The op and its operands with the sizes that carry the factor divided, for a shard of `part` of `of` blocks."""
    local, op = list(operands), op.clone()
    for (name, position), factors in rule.sizes.items():
        if factor not in factors:
            continue
        if name in op.properties:
            op.properties[name] = _divided(op.properties[name], position, part, of)
            continue
        for i in range(len(local)):
            if operand_name(op, i) == name:
                local[i] = np.array(local[i])
                local[i].reshape(-1)[position] = _share(int(local[i].reshape(-1)[position]), part, of)
    return op, local


def _share(size: int, part: int, of: int) -> int:
    assert size % of == 0, f"a size of {size} does not split in {of}"
    return size // of * part


def _divided(attribute: Attribute, position: int, part: int, of: int) -> Attribute:
    match attribute:
        case IntegerAttr():
            return IntegerAttr(_share(attribute.value.data, part, of), cast(Any, attribute.type))
        case ArrayAttr():
            entries = list(cast(Any, attribute).data)
            entries[position] = _divided(entries[position], 0, part, of)
            return ArrayAttr(entries)
        case DenseArrayBase():
            numbers = list(attribute.get_values())
            numbers[position] = _share(int(numbers[position]), part, of)
            return DenseArrayBase.from_list(cast(Any, attribute.elt_type), numbers)
    raise AssertionError(attribute)


def _moved(attribute: Attribute, position: int, by: int) -> Attribute:
    match attribute:
        case IntegerAttr():
            return IntegerAttr(attribute.value.data + by, cast(Any, attribute.type))
        case ArrayAttr():
            entries = list(cast(Any, attribute).data)
            entries[position] = _moved(entries[position], 0, by)
            return ArrayAttr(entries)
    raise AssertionError(attribute)


def numbers_of(attribute: Attribute) -> list[int]:
    match attribute:
        case IntegerAttr():
            return [attribute.value.data]
        case ArrayAttr():
            return [item.value.data for item in cast(Any, attribute).data]
        case DenseArrayBase():
            return [int(number) for number in attribute.get_values()]
    raise AssertionError(attribute)


def run_uses(run: Run, op: Operation, operands: Arrays) -> Sequence[Any]:
    """The results of the op, on a value of its own for each use of a value that has another array than the first: a rule may divide
    one use and not the other, and an op reads a value that is two operands once."""
    first = dict(reversed([*zip(op.operands, operands, strict=True)]))
    others = [i for i, value in enumerate(op.operands) if operands[i] is not first[value]]
    if others:
        op = op.clone()
        for i, value in zip(others, Block(arg_types=[op.operands[i].type for i in others]).args, strict=True):
            op.operands[i] = value
    return run(op, operands)


class _Check:
    def __init__(self, op: Operation, rule: Rule, operands: Arrays, run: Run, rng: np.random.Generator):
        self.op, self.rule, self.run, self.rng = op, rule, partial(run_uses, run), rng
        # Operands that are one value are one array.
        first = {value: i for i, value in reversed([*enumerate(op.operands)])}
        self.operands = [None if (o := operands[first[v]]) is None else np.asarray(o) for v in op.operands]
        self.wholes = [None if w is None else np.asarray(w) for w in run(op, self.operands)]
        self.shapes = [
            [() if a is None else cast(tuple[int, ...], a.shape) for a in arrays]
            for arrays in (self.operands, self.wholes)
        ]

    @cached_property
    def greatest_operand(self) -> float:
        return max((_greatest(operand) for operand in self.operands if operand is not None), default=0.0)

    @cached_property
    def sizes(self) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for name, position in self.rule.sizes:
            if name in self.op.properties:
                found[name, position] = numbers_of(self.op.properties[name])[position]
            for i, operand in enumerate(self.operands):
                if operand_name(self.op, i) == name:
                    found[name, position] = int(operand.reshape(-1)[position])
        return found

    def extent(self, factors: Sequence[str]) -> int:
        return math.prod(factor_extent(self.rule, factor, *self.shapes, self.sizes) or 0 for factor in factors)

    def split(self, operands: Sequence[int], shards: int, reduction: Reduction) -> dict[int, list[Any]]:
        """Addends of these operands; those that are one value have the same."""
        found: dict[int, list[Any]] = {}
        for i in operands:
            same = next((j for j in found if self.op.operands[j] is self.op.operands[i]), None)
            found[i] = found[same] if same is not None else addends(self.operands[i], shards, reduction, self.rng)
        return found

    def carried(self, factor: str) -> list[tuple[int, int, Any]]:
        """The operand dims that carry a factor."""
        dims = ((i, d, dim) for i, dims in enumerate(self.rule.inputs) for d, dim in enumerate(dims))
        return [each for each in dims if factor in each[2].factors]

    def anchors(self, factor: str) -> list[tuple[int, int, int, int]]:
        """Of what each shard has its own rows when shards overlap (results, or operands with zeros around them): the extent, the
        rows per step, and how many at either end of what a shard computes are not its own."""
        gathers = [(r, c) for r, c in enumerate(self.rule.combines[factor]) if isinstance(c, Gather)]
        if gathers:
            return [(self.shapes[1][r][c.dim], c.stride, -c.halo[0], -c.halo[1]) for r, c in gathers]
        return [(self.shapes[0][i][d], dim.stride, *dim.halo) for i, d, dim in self.carried(factor) if dim.filled]

    def steps(self, factor: str) -> int:
        """How many steps the op takes along a factor whose shards overlap: one for each row of some dim."""
        operands = [(self.shapes[0][i][d], dim.stride) for i, d, dim in self.carried(factor)]
        return next(extent for extent, stride, *_ in (*self.anchors(factor), *operands) if stride == 1)

    def window(self, factor: str, parts: Sequence[int]) -> Iterator[str]:
        """A factor whose shards overlap: each computes some rows of its neighbours too, which are dropped or have been zero."""
        anchors, steps, ends = self.anchors(factor), self.steps(factor), np.cumsum([0, *parts])
        made: list[Sequence[Any]] = []
        for first, last in pairwise(ends):
            own = {extent: [int(end * extent // ends[-1]) for end in (first, last)] for extent, *_ in anchors}
            own |= {
                (n := self.shapes[0][i][d]): [int(end * n // ends[-1]) for end in (first, last)]
                for i, d, _ in self.carried(factor)
            }
            enough = [
                (
                    [n for n in range(steps) if n == 0 or n * stride + before <= own[extent][0]],
                    [n for n in range(1, steps + 1) if n == steps or n * stride - after >= own[extent][1]],
                )
                for extent, stride, before, after in anchors
            ]
            low, high = min(max(lows) for lows, _ in enough), max(min(highs) for _, highs in enough)
            operands = list(self.operands)
            for i, d, dim in self.carried(factor):
                extent = operands[i].shape[d]
                if dim.filled:
                    others = np.setdiff1d(np.arange(extent), np.arange(*own[extent]))
                    operands[i] = operands[i].copy()
                    operands[i][(slice(None),) * d + (others,)] = 0
                operands[i] = np.take(operands[i], range(dim.stride * low, extent - dim.stride * (steps - high)), d)
            try:
                results = list(self.run(self.op, operands))
            except Exception as error:
                yield f"{factor} in {parts}: a shard raises {error}"
                return
            for r, combine in enumerate(self.rule.combines[factor]):
                if isinstance(combine, Gather):
                    start, stop = own[self.shapes[1][r][combine.dim]]
                    kept = range(start - combine.stride * low, stop - combine.stride * low)
                    results[r] = np.take(results[r], kept, combine.dim)
            made.append(results)
        for r, combine in enumerate(self.rule.combines[factor]):
            if isinstance(combine, Gather):
                if not agree(np.concatenate([shard[r] for shard in made], combine.dim), self.wholes[r]):
                    yield f"{factor} in {parts}: result {r} by {combine} differs"
            else:
                yield from self.compare(f"{factor} in {parts}", r, combine, made, parts, 1)

    def window_rows(self, factor: str) -> int:
        """How many rows shards share; 0 where an operand's extent is not one that the rule speaks of."""
        anchors, steps = self.anchors(factor), self.steps(factor)
        after = max(math.ceil(after / stride) for _, stride, _, after in anchors)
        for i, d, dim in self.carried(factor):
            beyond = self.shapes[0][i][d] - dim.stride * (steps - after)
            if not dim.halo[1] - dim.stride < beyond <= dim.halo[1]:
                return 0
        return anchors[0][0]

    def factor(self, factor: str, parts: Sequence[int]) -> Iterator[str]:
        of, partner = sum(parts), self.rule.partner(factor)
        split = self.split(partner.operands if partner else (), len(parts), Reduction.SUM)
        local: list[Sequence[Any]] = []
        for shard, part in enumerate(parts):
            operands = [split[i][shard] if i in split else array for i, array in enumerate(self.operands)]
            for i, dims in enumerate(self.rule.inputs):
                for d, dim in enumerate(dims):
                    if factor in dim.factors:
                        outside = self.extent(dim.factors[: dim.factors.index(factor)])
                        indices = held(self.shapes[0][i][d], (dim.pieces or (1,)) * outside, parts, shard)
                        operands[i] = np.take(operands[i], indices, d)
            try:
                local.append(self.run(*with_sizes(self.op, operands, self.rule, factor, part, of)))
            except Exception as error:
                yield f"{factor} in {parts}: shard {shard} raises {error}"
                return
        for r, combine in enumerate(self.rule.combines[factor]):
            outside = self.extent(combine.outer) if isinstance(combine, Gather) else 1
            yield from self.compare(f"{factor} in {parts}", r, combine, local, parts, outside)

    def lookup(self, factor: str, parts: Sequence[int]) -> Iterator[str]:
        """Positions of which each shard has some: indices count from its first, and what is done about the others is as the
        rule says."""
        of, outside, combines = sum(parts), self.rule.offsets[factor], self.rule.combines[factor]
        (index,) = (i for i, o in enumerate(self.operands) if o is not None and o.dtype.kind in "iu")
        carriers = [
            (i, d) for i, dims in enumerate(self.rule.inputs) for d, each in enumerate(dims) if factor in each.factors
        ]
        rows = [self.shapes[0][i][d] for i, d in carriers]
        rows = (rows + [self.shapes[1][r][c.dim] for r, c in enumerate(combines) if isinstance(c, Gather)])[0]
        given, ignored = self.operands[index], outside.number if outside.kind == "ignored" else None
        indices = np.where((given < 0) & (ignored is None), given + rows, given)
        local: list[Sequence[Any]] = []
        for shard, part in enumerate(parts):
            start, width = (sum(ns) * rows // of for ns in (parts[:shard], (part,)))
            inside = (indices >= start) & (indices < start + width)
            operands = list(self.operands)
            for i, d in carriers:
                operands[i] = np.take(operands[i], range(start, start + width), d)
            operands[index] = np.where(inside, indices - start, ignored or 0).astype(indices.dtype)
            kept = operands[outside.number] if outside.kind == "kept" else 0
            if outside.kind == "zero":
                dims = {d: d2 for d, x in enumerate(self.rule.inputs[index]) if x.factor is not None
                        for d2, y in enumerate(self.rule.inputs[outside.number]) if y.factor == x.factor}  # fmt: skip
                operands[outside.number] = np.where(
                    self._over(inside, dims, operands[outside.number]), operands[outside.number], 0
                )
            results = list(self.run(*with_sizes(self.op, operands, self.rule, factor, part, of)))
            if outside.kind in ("result", "kept"):
                gathered = {
                    d: self.rule.combines[x.factor][0] for d, x in enumerate(self.rule.inputs[index]) if x.factor
                }
                dims = {d: c.dim for d, c in gathered.items() if isinstance(c, Gather)}
                results[0] = np.where(self._over(inside, dims, results[0]), results[0], kept)
            local.append(results)
        for r, combine in enumerate(combines):
            yield from self.compare(f"{factor} in {parts}", r, combine, local, parts, 1)

    def shifted(self, factor: str, parts: Sequence[int]) -> Iterator[str]:
        """Positions that the op counts from one of its integers: that counts from the shard's first."""
        shift, local = self.rule.offsets[factor], list[Sequence[Any]]()
        for shard, part in enumerate(parts):
            operands, start = list(self.operands), sum(parts[:shard])
            for i, dims in enumerate(self.rule.inputs):
                for d, dim in enumerate(dims):
                    if factor in dim.factors:
                        operands[i] = np.take(operands[i], range(start, start + part), d)
            op, operands = with_sizes(self.op, operands, self.rule, factor, part, sum(parts))
            by = -start if shift.falls else start
            if shift.name in op.properties:
                op.properties[shift.name] = _moved(op.properties[shift.name], shift.position, by)
            else:
                (i,) = (i for i in range(len(operands)) if operand_name(self.op, i) == shift.name)
                operands[i] = np.array(operands[i])
                operands[i].reshape(-1)[shift.position] += by
            local.append(self.run(op, operands))
        for r, combine in enumerate(self.rule.combines[factor]):
            yield from self.compare(f"{factor} in {parts}", r, combine, local, parts, 1)

    @staticmethod
    def _over(inside: Any, dims: Mapping[int, int], value: Any) -> Any:
        """A mask of the indices, each dim of which is a dim of the value or of extent 1, over the value."""
        extents = [1] * value.ndim
        for d, dim in dims.items():
            extents[dim] = inside.shape[d]
        return inside.reshape(extents)

    def partial(self, index: int, shards: int) -> Iterator[str]:
        entry = self.rule.partials[index]
        split = self.split(entry.operands, shards, entry.reduction)
        locals_ = [[split[i][s] if i in split else a for i, a in enumerate(self.operands)] for s in range(shards)]
        results = [self.run(self.op, operands) for operands in locals_]
        for r in range(len(self.wholes)):
            combine = Reduce(entry.reduction) if r in entry.results else Identity()
            yield from self.compare(f"partial {entry.operands}", r, combine, results, (1,) * shards, 1)

    def compare(
        self, what: str, r: int, combine: Any, local: Sequence[Arrays], parts: Sequence[int], repeats: int
    ) -> Iterator[str]:
        whole, shards = self.wholes[r], [results[r] for results in local]
        if whole is None:
            if any(shard is not None for shard in shards):
                yield f"{what}: result {r} is absent as a whole"
            return
        shards = [np.asarray(shard) for shard in shards]
        try:
            made = together(combine, whole, shards, parts, repeats)
        except ValueError as error:
            yield f"{what}: result {r} by {combine}: {error}"
            return
        reduces = isinstance(combine, Reduce) and whole.dtype.kind not in "iubOSU"
        greatest = max([ROUNDING * self.greatest_operand, *(_greatest(shard) for shard in shards if reduces)])
        if not agree(made, whole, greatest):
            yield f"{what}: result {r} by {combine} differs"


def violations(
    op: Operation,
    rule: Rule,
    operands: Arrays,
    rng: np.random.Generator,
    run: Run = run_operator,
    shards: Sequence[int] = (2, 3),
) -> Tried:
    """Every factor of the rule in uneven shards, and every entry of its partial operands, against the op run whole.

    Raises what the op raises when it runs whole."""
    tried = Tried()
    with np.errstate(all="ignore"):
        check = _Check(op, rule, operands, run, rng)
        for count in shards:
            for factor in (*rule.factors, *rule.offsets):
                if factor in rule.offsets:
                    if parts := uneven(check.extent([factor]), count):
                        is_shift = isinstance(rule.offsets[factor], Shift)
                        tried.violations += (check.shifted if is_shift else check.lookup)(factor, parts)
                        tried.offsets += 1
                elif factor in rule.windowed:
                    if parts := uneven(check.window_rows(factor), count):
                        tried.violations += check.window(factor, parts)
                        tried.windows += 1
                elif parts := uneven(check.extent([factor]), count):
                    tried.violations += check.factor(factor, parts)
                    tried.factors += 1
            finite = all(o is None or o.dtype.kind in "iubOSU" or np.isfinite(o).all() for o in check.operands)
            for index, entry in enumerate(rule.partials):
                if entry.factor is None and finite:
                    tried.violations += check.partial(index, count)
                    tried.partials += 1
    return tried


def fresh(array: Any, rng: np.random.Generator) -> Any:
    """Other floats of the same kind: those of the array at other places, each up to a fifth larger or smaller, so that
    a function's domain is kept in most cases; anything but floats as it is."""
    if not isinstance(array, np.ndarray) or array.dtype.kind in "iubOSU" or array.dtype.kind == "c":
        return array
    moved = rng.permutation(array.reshape(-1)).reshape(array.shape)
    return (moved.astype(np.float64) * rng.uniform(0.8, 1.2, array.shape)).astype(array.dtype)
