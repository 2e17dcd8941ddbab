"""Matches a local operation as a shard of an operation of the sequential program. In: a template with its rule, and
the values of the operands. Out: the indices and the partial sum of each result that it computes; or `Mismatch`, with
the reason.

A rule says that its operation can be cut along a factor into consecutive shards of any sizes. So it computes each block of the factor from that
block of the operands, and any list of blocks, in any order, may stand for one shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import cast

from distir.dialects.sharding import Gather, InputDim, Outside, OutsideKind, Rule, Shift
from distir.interpreters.proof import windows
from distir.interpreters.proof.addends import Addends
from distir.interpreters.proof.constants import close, located, stated, taken
from distir.interpreters.proof.indices import FREE, Indices, Mismatch, agreed, concat, full, product, ranges, special
from distir.interpreters.proof.templates import KEYS, Form, Template, agrees
from distir.interpreters.proof.values import Kind, Positions, Shard
from distir.interpreters.proof.weights import ONE, Addend

Outcome = tuple[tuple[Indices, ...], Addend | None]
"""Of one result: its indices, and which addend it is."""


@dataclass(frozen=True)
class Lookup:
    """What was done about indices before an operation that looks up."""

    index: int
    """The operand of indices."""
    positions: Positions
    ignored: int | None
    masked: tuple[int, ...] = ()
    """Operands that are zero where the index is of other positions."""
    masked_dims: tuple[int, ...] = ()


def is_index(kind: Kind) -> bool:
    """Whether elements are integers of more than one bit."""
    return kind.element.lstrip("su").startswith("i") and kind.element not in ("i1", "index")


@dataclass
class Application:
    """A template on operands, while it is solved."""

    template: Template
    form: Form
    operands: Sequence[Shard]
    """In the order of `values_read`."""
    lookup: Lookup | None = None
    """Which positions the shard has, of an operation that looks up."""

    def __post_init__(self) -> None:
        self.rule: Rule = self.template.rule or Rule(tuple(() for _ in self.template.kinds), {})
        self.cut: dict[str, Indices] = {}
        """The blocks that the shard has of every factor that is cut."""
        self.steps: dict[str, windows.Run] = {}
        """The steps that it runs of factors whose shards overlap."""

    def solve(self) -> list[Outcome]:
        """What each result is."""
        self._check_operands()
        self._find_blocks()
        if self.template.whole is not None and KEYS not in self.cut:
            raise Mismatch("it has all keys")
        self._check_operand_dims()
        self._check_lookup()
        self._check_constants()
        self._check_properties()
        found = [self._result(r) for r in range(len(self.template.results))]
        for kind, local, (indices, _) in zip(self.template.results, self.form.results, found, strict=True):
            shape = None if kind.shape is None else tuple(i.size for i in indices)
            if local.element != kind.element or local.shape != shape:
                raise Mismatch(f"a shard of {kind} has the type {local}, where {shape} is expected")
        return found

    # --- operands ---

    def dims_of(self, operand: int) -> Sequence[InputDim]:
        """What its dims carry; values that regions read carry nothing."""
        rank = len(self.template.kinds[operand].shape or ())
        dims = self.rule.inputs[operand] if operand < len(self.rule.inputs) else ()
        return dims if len(dims) == rank else [InputDim()] * rank

    def _check_operands(self) -> None:
        """Kinds are as expected, and what is used twice is one value, unless the rule has a shard of its own for each use: then it is one of
        any two values."""
        template = self.template
        if len(self.operands) != len(template.kinds):
            raise Mismatch(f"expected {len(template.kinds)} operands, got {len(self.operands)}")
        for i, (value, kind) in enumerate(zip(self.operands, template.kinds, strict=True)):
            first = template.alike[i]
            if self.operands[first] is not value and self.dims_of(first) == self.dims_of(i):
                raise Mismatch(f"operands {first} and {i} are expected to be the same value")
            if value.is_zero:
                if value.term.kind.element != kind.element or len(value.indices) != len(kind.shape or ()):
                    raise Mismatch(f"operand {i} is zeros of another type than {kind}")
            elif template.constants[i] is None or value.term.plain.array is None:
                if value.term.kind != kind:
                    raise Mismatch(f"operand {i} is of {value.term.kind}, expected {kind}")

    def _carried(self) -> list[tuple[int, int, InputDim, int, Indices]]:
        """Operand, dim, what it carries, its extent and its indices: of all operands but constants that are stated anew."""
        found: list[tuple[int, int, InputDim, int, Indices]] = []
        for i, (value, kind) in enumerate(zip(self.operands, self.template.kinds, strict=True)):
            if self._is_restated(i):
                continue
            for d, (dim, extent) in enumerate(zip(self.dims_of(i), kind.shape or (), strict=True)):
                found.append((i, d, dim, extent, value.indices[d]))
        return found

    def _is_restated(self, operand: int) -> bool:
        constant = self.template.constants[operand]
        return (
            constant is not None
            and self.operands[operand].term.plain is not constant
            and not self.operands[operand].is_zero
        )

    def _find_blocks(self) -> None:
        """The blocks of each factor, from the dims that carry it and, where no operand does, from the local results."""
        extents = self.template.extents
        carried = self._carried()
        told = {f for _, _, dim, _, indices in carried for f in dim.factors if not indices.is_free}
        for _, _, dim, extent, indices in [*carried, *self._located(told)]:
            if not dim.factors or indices.is_full(extent) or indices.is_free:
                continue
            if any(factor in self.rule.windowed for factor in dim.factors):
                continue
            if any(extents.get(factor, 0) == 0 for factor in dim.factors):
                raise Mismatch(f"{dim.factors} has no common extent in {self.template}")
            for factor, blocks in _blocks(dim, extent, indices, extents).items():
                if not blocks.is_full(extents[factor]):
                    known = self.cut.get(factor, blocks)
                    if (both := agreed(known, blocks)) is None:
                        raise Mismatch(
                            f"one operand has {known} of {factor}, another {blocks}", known.bases | blocks.bases
                        )
                    self.cut[factor] = both
        self.steps = windows.runs(self.template, self._carried())
        self._find_free()

    def _located(self, told: set[str]) -> list[tuple[int, int, InputDim, int, Indices]]:
        """Of constants that are stated anew, what they carry of factors that no other operand tells: which part of the template's they are
        is read off their entries."""
        found: list[tuple[int, int, InputDim, int, Indices]] = []
        for i, constant in enumerate(self.template.constants):
            if constant is None or constant.array is None or not self._is_restated(i):
                continue
            part, whole = self.operands[i].indices, constant.array.shape
            cut = [d for d in range(len(whole)) if len(part) == len(whole) and part[d].size != whole[d]]
            dims = self.dims_of(i)
            if len(cut) != 1 or not dims[cut[0]].factors or told & set(dims[cut[0]].factors):
                continue
            value = stated(self.operands[i])
            if value is not None and (indices := located(value, constant.array, cut[0])) is not None:
                found.append((i, cut[0], dims[cut[0]], whole[cut[0]], indices))
        return found

    def _find_free(self) -> None:
        """Factors that no operand tells: all blocks are equal, and the shard may be of any."""
        carried = self._carried()
        told = {f for _, _, dim, _, indices in carried for f in dim.factors if not indices.is_free}
        for _, _, dim, extent, indices in carried:
            if indices.is_free and len(dim.factors) == 1 and dim.factors[0] not in told | self.cut.keys():
                count = self.template.extents.get(dim.factors[0], 0)
                if count and indices.size != extent and indices.size * count % extent == 0:
                    self.cut[dim.factors[0]] = special(FREE, indices.size * count // extent)
        for factor, combines in self.rule.combines.items():
            extent = self.template.extents.get(factor, 0)
            if (
                factor not in told
                and extent
                and self.lookup is not None
                and isinstance(self.rule.offsets.get(factor), Outside)
            ):
                rows = ranges([(self.lookup.positions.start, self.lookup.positions.stop)])
                self.cut[factor] = rows.unscaled(self.unit(factor))
            if factor in told or factor in self.cut or not extent or factor in self.rule.windowed:
                continue
            for kind, local, combine in zip(self.template.results, self.form.results, combines, strict=True):
                if (
                    not isinstance(combine, Gather)
                    or kind.shape is None
                    or local.shape is None
                    or len(local.shape) <= combine.dim
                ):
                    continue
                others = [
                    f for f, cs in self.rule.combines.items() if f != factor and any(_into(c, combine.dim) for c in cs)
                ]
                blocks = Fraction(local.shape[combine.dim] * extent, kind.shape[combine.dim])
                blocks /= prod([self._share(f) for f in others], start=ONE)
                is_known = all(f in told or f in self.cut for f in others)
                if blocks != extent and is_known and blocks.denominator == 1:
                    self.cut[factor] = special(FREE, int(blocks))
                break

    def _check_operand_dims(self) -> None:
        """Every dim of every operand has what the blocks say."""
        for i, d, dim, extent, indices in self._carried():
            if any(factor in self.steps for factor in dim.factors):
                continue
            if indices.is_free and not self.operands[i].is_zero and not dim.factors and indices.size != extent:
                raise Mismatch(f"operand {i} has {indices.size} of {extent} in dim {d}, which the rule does not cut")
            expected = self._composed(dim.factors, dim.pieces, extent)
            if indices.is_free:
                if indices.size != expected.size:
                    raise Mismatch(
                        f"operand {i} has {indices.size} in dim {d}, expected {expected.size}", expected.bases
                    )
            elif not indices.may_be(expected):
                what = "which the rule does not cut" if not dim.factors else f"expected {expected}"
                raise Mismatch(
                    f"operand {i} has {indices} of {extent} in dim {d}, {what}", indices.bases | expected.bases
                )

    def _composed(self, factors: Sequence[str], pieces: Sequence[int], extent: int) -> Indices:
        """The indices of a dim that carries these factors, outermost first, in segments of the innermost."""
        if not any(factor in self.cut for factor in factors):
            return full(extent)
        extents = [self.template.extents[factor] for factor in factors]
        block = extent // prod(extents[:-1])
        last = self._blocks_in(factors[-1], pieces, block)
        for factor, count in zip(reversed(factors[:-1]), reversed(extents[:-1]), strict=True):
            last = product(self.cut.get(factor, full(count)), last, block)
            block *= count
        return last

    def _blocks_in(self, factor: str, pieces: Sequence[int], extent: int) -> Indices:
        blocks, count = self.cut.get(factor), self.template.extents[factor]
        if blocks is None:
            return full(extent)
        if blocks.equal is not None and len(pieces) > 1:
            raise Mismatch(f"{blocks} of each of several segments")
        parts: list[Indices] = []
        start = 0
        for piece in pieces or (1,):
            length = extent * piece // sum(pieces or (1,))
            parts.append(blocks.scaled(length // count).shifted(start))
            start += length
        return concat(parts)

    def _check_lookup(self) -> None:
        """The positions that indices and masks were made for are those of the shard."""
        found = [f for f in self.cut if isinstance(self.rule.offsets.get(f), Outside)]
        if not found and self.lookup is None:
            return
        if len(found) != 1 or self.lookup is None:
            raise Mismatch("indices are not made for the positions that the shard has")
        (factor,) = found
        positions, unit = self.lookup.positions, self.unit(factor)
        held = self.cut[factor].range
        if held is None:
            raise Mismatch(f"positions {self.cut[factor]} are not known", self.cut[factor].bases)
        if (held[0] * unit, held[1] * unit, self.extent(factor)) != (positions.start, positions.stop, positions.extent):
            raise Mismatch(
                f"indices are made for positions {positions.start}:{positions.stop}, the shard has {self.cut[factor]}"
            )
        outside = cast(Outside, self.rule.offsets[factor])
        expected = self.lookup.index, outside.ignored, (outside.number,) if outside.kind is OutsideKind.ZERO else ()
        if (self._index(), outside.ignored, expected[2]) != (
            self.lookup.index,
            self.lookup.ignored,
            self.lookup.masked,
        ):
            raise Mismatch("indices or operands are not masked as the rule says")

    def _index(self) -> int:
        """The operand of indices: the first of integers."""
        return next((i for i, kind in enumerate(self.template.kinds) if kind.shape is not None and is_index(kind)), -1)

    def masked_dims(self) -> tuple[int, ...]:
        """For each dim of the indices, the dim of what is masked that it is; -1 where it has extent 1."""
        (factor,) = [f for f in self.cut if isinstance(self.rule.offsets.get(f), Outside)]
        outside, index = cast(Outside, self.rule.offsets[factor]), self._index()
        found: list[int] = []
        for dim, extent in zip(self.dims_of(index), self.template.kinds[index].shape or (), strict=True):
            places: list[int] = []
            if dim.factor is not None and outside.kind is OutsideKind.ZERO:
                places = [d for d, other in enumerate(self.dims_of(outside.number)) if other.factor == dim.factor]
            elif dim.factor is not None:
                combine = self.rule.combines[dim.factor][0]
                places = [combine.dim] if isinstance(combine, Gather) else []
            if not places and extent != 1:
                raise Mismatch("a dim of the indices is none of what is masked")
            found.append(places[0] if places else -1)
        return tuple(found)

    @property
    def outside(self) -> Outside:
        """What is done about indices of other positions."""
        return next(o for f, o in self.rule.offsets.items() if f in self.cut and isinstance(o, Outside))

    # --- constants and properties ---

    def _check_constants(self) -> None:
        """A constant is the template's, at the indices of the shard, but for sizes that follow the shard's."""
        for i, constant in enumerate(self.template.constants):
            expected = self._expected_entries(self.form.names[i] if i < len(self.form.names) else "")
            if constant is None or not self._is_restated(i):
                if any(
                    self.template.entry(self.form.names[i], p) != e or constant is None for p, e in expected.items()
                ):
                    raise Mismatch(f"operand {i} has the sizes of the whole")
                continue
            value = stated(self.operands[i])
            assert constant.array is not None
            if value is None:
                raise Mismatch(f"operand {i} is {self.operands[i]}, expected a constant")
            wanted = constant.array
            if expected:
                wanted = wanted.copy()
                for position, entry in expected.items():
                    wanted.flat[position] = entry
            for d, dim in enumerate(self.dims_of(i)):
                indices = self._composed(dim.factors, dim.pieces, constant.array.shape[d])
                if indices is not full(constant.array.shape[d]):
                    wanted = taken(wanted, d, indices)
            if wanted.shape != value.shape or wanted.dtype != value.dtype or not close(wanted, value):
                raise Mismatch(f"operand {i} is another constant")

    def _share(self, factor: str) -> Fraction:
        """The part of a factor that the shard has."""
        if factor in self.steps:
            return ONE
        blocks = self.cut.get(factor)
        return ONE if blocks is None else Fraction(blocks.size, self.template.extents[factor])

    def _expected_entries(self, name: str) -> dict[int, int]:
        """The entries of a size attribute or operand that differ in the shard."""
        found: dict[int, int] = {}
        for (slot, position), factors in self.rule.sizes.items():
            share = prod([self._share(factor) for factor in factors], start=ONE)
            if slot == name and share != 1:
                entry = (self.template.entry(slot, position) or 0) * share
                if entry.denominator != 1:
                    raise Mismatch(f"entry {position} of {slot} does not divide")
                found[position] = int(entry)
        for factor, offset in self.rule.offsets.items():
            if isinstance(offset, Shift) and offset.name == name and factor in self.cut:
                entry = found.get(offset.position, self.template.entry(name, offset.position) or 0)
                found[offset.position] = entry + offset.by(self.start(factor))
        return found

    def start(self, factor: str) -> int:
        """The first index that a shard has of a factor whose operation counts positions."""
        blocks = self.cut[factor].range
        if blocks is None:
            raise Mismatch(f"the start of {self.cut[factor]} is not known", self.cut[factor].bases)
        return blocks[0] * self.unit(factor)

    def unit(self, factor: str) -> int:
        """How many indices a block has, in the first dim that carries the factor."""
        return self.extent(factor) // self.template.extents[factor]

    def extent(self, factor: str) -> int:
        """The extent of the first dim that carries a factor."""
        for i, kind in enumerate(self.template.kinds):
            for dim, extent in zip(self.dims_of(i), kind.shape or (), strict=True):
                if dim.factor == factor:
                    return extent
        for kind, combine in zip(self.template.results, self.rule.combines[factor], strict=True):
            if isinstance(combine, Gather) and kind.shape is not None:
                return kind.shape[combine.dim]
        raise Mismatch(f"no dim carries {factor}")

    def _check_properties(self) -> None:
        whole, local = self.template.form, self.form
        if (whole.attributes, whole.regions) != (
            local.attributes,
            local.regions,
        ) or whole.properties.keys() != local.properties.keys():
            raise Mismatch("its attributes or regions are others")
        for name, attribute in whole.properties.items():
            if not agrees(attribute, local.properties[name], self._expected_entries(name)):
                raise Mismatch(f"its {name} is {local.properties[name]}, in the sequential program {attribute}")

    # --- results ---

    def _result(self, result: int) -> Outcome:
        shape = self.template.results[result].shape
        if shape is None:
            return (), None
        indices = [full(extent) for extent in shape]
        for d, extent in enumerate(shape):
            into = [
                (f, c) for f, cs in self.rule.combines.items() if isinstance(c := cs[result], Gather) and c.dim == d
            ]
            into.sort(key=lambda each: len(each[1].outer))
            factors = [factor for factor, _ in into if factor not in self.rule.windowed]
            if any(factor in self.cut for factor in factors):
                pieces = next((c.pieces for f, c in into if f in self.cut and c.pieces), ())
                if pieces and len(factors) > 1 and next(f for f, c in into if c.pieces) != factors[-1]:
                    raise Mismatch("segments of a factor that is not the innermost")
                ordered = [f for f in factors if f in self.cut or any(f in c.outer for g, c in into if g in self.cut)]
                for inner, combine in into:
                    if inner in self.cut and tuple(ordered[: ordered.index(inner)]) != combine.outer:
                        raise Mismatch(f"{inner} is expected inside {combine.outer} in dim {d}")
                indices[d] = self._composed(ordered, pieces, extent)
            for factor, combine in into:
                if factor in self.steps:
                    indices[d] = self.steps[factor].computed(extent, combine)
        return tuple(indices), Addends(self.template, self.rule, self.operands, self.cut, self.steps).of(result)


def _into(combine: object, dim: int) -> bool:
    return isinstance(combine, Gather) and combine.dim == dim


def _blocks(dim: InputDim, extent: int, indices: Indices, extents: Mapping[str, int]) -> dict[str, Indices]:
    """The blocks of every factor that a dim carries, from its indices."""
    factors = dim.factors
    if dim.pieces:
        if len(factors) > 1:
            raise Mismatch("segments of a dim that carries several factors")
        first = extent * dim.pieces[0] // sum(dim.pieces)
        if indices.size * dim.pieces[0] % sum(dim.pieces):
            raise Mismatch(f"{indices} is no part of every segment", indices.bases)
        part = indices.slice(0, indices.size * dim.pieces[0] // sum(dim.pieces))
        return {dim.factors[-1]: part.unscaled(first // extents[dim.factors[-1]])}
    rest = indices.unscaled(extent // prod(extents[factor] for factor in factors))
    found: dict[str, Indices] = {}
    for factor in reversed(factors[1:]):
        rest, found[factor] = rest.split(extents[factor])
    found[factors[0]] = rest
    return found
