"""Operations of the sequential program as templates. In: its operations, their types and rules. Out: for each
distinct one, the form of a local operation that is its shard: name, properties, regions, types, and the factors of
its rule with their extents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation

from distir.dialects.sharding import Gather, Rule, RuleAttr
from distir.interpreters.model_names import NAMES
from distir.interpreters.proof.values import Head, Kind, Shard, Term, is_zero, kind_of

RULE = "dist.rule"
KEYS = "keys"
"""The factor of the keys in the rule of a template whose results are for some of them."""


class Kinds:
    """The kind of each type; types are looked up by identity."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Attribute, Kind]] = {}
        self._kinds: dict[tuple[tuple[int, ...] | None, Attribute], Kind] = {}

    def __call__(self, type_: Attribute) -> Kind:
        if (found := self._known.get(id(type_))) is not None:
            return found[1]
        if isinstance(type_, TensorType):
            tensor = cast("TensorType[Any]", type_)
            key = (tensor.get_shape(), tensor.element_type)
        else:
            key = (None, type_)
        if (kind := self._kinds.get(key)) is None:
            kind = self._kinds[key] = kind_of(key[0], str(key[1]))
        self._known[id(type_)] = (type_, kind)
        return kind


def integers(attribute: Attribute) -> list[int] | None:
    """The numbers of an attribute that is an integer or a list of them."""
    match attribute:
        case IntegerAttr():
            return [cast("IntegerAttr[Any]", attribute).value.data]
        case DenseArrayBase():
            return [int(v) for v in cast("DenseArrayBase[Any]", attribute).get_values()]
        case ArrayAttr():
            items = [integers(item) for item in attribute.data]
            return (
                None if any(item is None or len(item) != 1 for item in items) else [item[0] for item in items if item]
            )
        case _:
            return None


def agrees(whole: Attribute, local: Attribute, expected: Mapping[int, int]) -> bool:
    """Whether a property is the whole's but for these entries, which are as expected."""
    if not expected:
        return whole == local
    entries, found = integers(whole), integers(local)
    if type(whole) is not type(local) or entries is None or found is None or len(entries) != len(found):
        return False
    return all(expected.get(i, entry) == other for i, (entry, other) in enumerate(zip(entries, found, strict=True)))


@dataclass(eq=False)
class Form:
    """What an operation says beside its operands. Interned by `Forms`: equal ones are one object."""

    name: str
    properties: dict[str, Attribute]
    attributes: tuple[tuple[str, Attribute], ...]
    regions: Any
    results: tuple[Kind, ...]
    names: tuple[str, ...]
    """Of operands, in the operation's definition."""

    @cached_property
    def entries(self) -> dict[str, list[int]]:
        """The numbers of its properties."""
        found = {name: integers(attribute) for name, attribute in self.properties.items()}
        return {name: numbers for name, numbers in found.items() if numbers is not None}


class Forms:
    """The form of each operation."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self._known: dict[Any, Form] = {}
        self._of: dict[int, tuple[Operation, Form]] = {}

    def __call__(self, op: Operation) -> Form:
        if (found := self._of.get(id(op))) is not None:
            return found[1]
        attributes = _attributes(op)
        results = tuple([self.kinds(r.type) for r in op.results])
        regions = tuple([_region(op, self.kinds)]) if op.regions else ()
        key = (
            op.name,
            tuple(sorted(op.properties.items(), key=lambda e: e[0])),
            attributes,
            regions,
            results,
            len(op.operands),
        )
        if (form := self._known.get(key)) is None:
            form = Form(op.name, dict(op.properties), attributes, regions, results, operand_names(op))
            self._known[key] = form
        self._of[id(op)] = (op, form)
        return form


def _attributes(op: Operation) -> tuple[tuple[str, Attribute], ...]:
    return tuple(sorted(((k, v) for k, v in op.attributes.items() if not is_note(k)), key=lambda each: each[0]))


def is_note(name: str) -> bool:
    """Whether an attribute says nothing about what the operation computes."""
    return name in NAMES or name.startswith("dist.") or name == "rank.stream"


def operand_names(op: Operation) -> tuple[str, ...]:
    """The name of each operand in its operation's definition; `operand<index>` where it has none of its own."""
    found = [f"operand{i}" for i in range(len(op.operands))]
    if isinstance(op, IRDLOperation):
        for name, _ in op.get_irdl_definition().operands:
            value = getattr(op, name, None)
            if isinstance(value, SSAValue):
                index = next(
                    i for i, operand in enumerate(op.operands) if operand is value and found[i].startswith("operand")
                )
                found[index] = name
    return tuple(found)


def _region(op: Operation, kinds: Kinds) -> tuple[Any, ...]:
    """What regions say, with values by number and types without their extents: those follow from the operands'."""
    numbers: dict[SSAValue, int] = {}
    inside = {value for each in op.walk() for value in each.results}
    inside |= {a for each in op.walk() for region in each.regions for block in region.blocks for a in block.args}

    def number(value: SSAValue) -> int:
        return numbers.setdefault(
            value, len(numbers) if value in inside else -1 - sum(v not in inside for v in numbers)
        )

    def rough(type_: Attribute) -> tuple[int | None, str]:
        kind = kinds(type_)
        return None if kind.shape is None else len(kind.shape), kind.element

    def said(each: Operation) -> tuple[Any, ...]:
        blocks = [
            (tuple((number(a), rough(a.type)) for a in block.args), tuple(map(said, block.ops)))
            for region in each.regions
            for block in region.blocks
        ]
        return (
            each.name,
            tuple(sorted(each.properties.items(), key=lambda e: e[0])),
            _attributes(each),
            tuple(number(v) for v in each.operands),
            tuple((number(r), rough(r.type)) for r in each.results),
            tuple(blocks),
        )

    return tuple(
        (tuple((number(a), rough(a.type)) for a in b.args), tuple(map(said, b.ops)))
        for r in op.regions
        for b in r.blocks
    )


@dataclass(eq=False)
class Template(Head):
    """A distinct operation of the sequential program."""

    form: Form
    kinds: tuple[Kind, ...]
    """Of the values that it reads."""
    constants: tuple[Term | None, ...]
    """The constants among them, without the numbers that scale them."""
    alike: tuple[int, ...]
    """For each, the first that is the same value."""
    rule: Rule | None
    whole: Template | None = None
    """Of one whose results are for some of the keys, that of all (`parts`)."""
    evaluated: Sequence[Term] | None = None
    """Its results, where it reads nothing but constants."""
    scale: Any = None
    """What names it, if it multiplies its first operand by a number."""
    extents: dict[str, int] = field(default_factory=dict[str, int])
    """Of every factor, how many blocks may be told apart."""

    def __post_init__(self) -> None:
        if self.rule is not None:
            self.extents = _extents(self)

    def __str__(self) -> str:
        return self.form.name

    @property
    def results(self) -> tuple[Kind, ...]:
        return self.form.results

    def filled(self, other: Any, operands: Sequence[Term]) -> Template | None:
        """Operations that differ only in which operands are constants, or one value twice: that whose operands these are like, if one is."""
        if not isinstance(other, Template) or (self.form, self.kinds, self.whole) != (
            other.form,
            other.kinds,
            other.whole,
        ):
            return None
        constants = [o.plain if o.plain.array is not None else None for o in operands]
        alike = tuple([operands.index(o) for o in operands])
        return next((t for t in (self, other) if [*t.constants] == constants and t.alike == alike), self)

    def is_nothing(self, operand: int) -> bool:
        """Whether an operand is a constant of zeros: however often it is added, it adds nothing."""
        constant = self.constants[operand]
        return constant is not None and is_zero(constant)

    def entry(self, name: str, position: int) -> int | None:
        """What stands at a place of a property or of a constant operand."""
        if name in self.form.entries:
            numbers: Sequence[int] = self.form.entries[name]
        else:
            array = next(
                (c.array for c, n in zip(self.constants, self.form.names, strict=False) if n == name and c), None
            )
            if array is None or array.dtype.kind not in "iub":
                return None
            numbers = array.reshape(-1).tolist()
        return int(numbers[position]) if position < len(numbers) else None


def rule_of(op: Operation) -> Rule | None:
    """The rule that the operation carries."""
    attribute = op.attributes.get(RULE)
    return attribute.data if isinstance(attribute, RuleAttr) else None


def _extents(template: Template) -> dict[str, int]:
    """How many equal blocks each factor has: what all dims and sizes that carry it have in common."""
    rule = template.rule
    assert rule is not None
    known: dict[str, int] = {}

    def of(factor: str) -> int:
        if factor not in known:
            known[factor] = 0
            known[factor] = common(factor)
        return known[factor]

    def common(factor: str) -> int:
        blocks: list[int] = []
        outside: set[str] = set()
        for kind, dims in zip(template.kinds, rule.inputs, strict=False):
            for extent, dim in zip(kind.shape or (), dims, strict=False):
                if factor in dim.factors:
                    outer = dim.factors[: dim.factors.index(factor)]
                    outside |= set(outer)
                    blocks.append(_block(extent, [of(each) for each in outer], sum(dim.pieces or (1,))))
        for kind, combine in zip(template.results, rule.combines[factor], strict=False):
            if isinstance(combine, Gather) and kind.shape is not None:
                outside |= set(combine.outer)
                extent = kind.shape[combine.dim]
                blocks.append(_block(extent, [of(each) for each in combine.outer], sum(combine.pieces or (1,))))
        for (name, position), factors in rule.sizes.items():
            if factor in factors and (entry := template.entry(name, position) or 0) > 0:
                blocks.append(_block(entry, [of(each) for each in factors if each in outside], 1))
        return 0 if 0 in blocks else math.gcd(*blocks)

    for factor in rule.combines:
        of(factor)
    return known


def _block(extent: int, outer: Sequence[int], pieces: int) -> int:
    parts = math.prod(outer) * pieces
    return 0 if parts == 0 or extent % parts else extent // parts


def fits(template: Template, values: Sequence[Shard]) -> bool:
    """Whether operands are of the kinds of a template's, as far as zeros and constants do not hide it: most templates of an operator are told apart by that."""
    return len(values) == len(template.kinds) and all(
        value.term.kind is kind or value.is_zero or value.term.plain.array is not None
        for value, kind in zip(values, template.kinds, strict=True)
    )


def likeness(form: Form, values: Sequence[Shard], template: Template) -> tuple[int, int, int]:
    """How much an operation is like a template: of several that it is no shard of, the reason of the most alike is given."""
    kinds = zip(values, template.kinds, strict=False)
    properties = sum(template.form.properties.get(name) == each for name, each in form.properties.items())
    ranks = sum(len(v.indices) == len(kind.shape or ()) for v, kind in zip(values, template.kinds, strict=False))
    return ranks, sum(v.term.kind == kind or v.is_zero for v, kind in kinds), properties
