"""One op under study. In goes an op; out come the numbers that can vary with a sharded dim, and its types and
results at other sizes.

The numbers are *slots*: operand dims greater than 1, and the entries of integer properties and of *size operands*
(integer constants of rank 0 or 1 on which the result types depend, such as the target of a reshape). A *point* gives
every slot a value: the op as found, a small stand-in, and the op on one shard are points of the same probe op."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    ComplexType,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    NoneType,
    Signedness,
    TensorType,
    UnrankedTensorType,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.irdl import AttrSizedOperandSegments, AttrSizedResultSegments, IRDLOperation
from xdsl.traits import ConstantLike

from distir.dialects.errors import DistirError, is_extra, reason_of
from distir.dialects.plugins import told_in_a_line
from distir.interpreters.shared import texts_of_regions
from distir.interpreters.walk import values_read
from distir.passes.shardcombine.domains import Abstract, Array, Domains, NotKnown
from distir.passes.structure import copied, share_name_hint

Point: TypeAlias = tuple[int, ...]
Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = tuple[Shape | None, ...]

FLOATING = ("float", "complex")
"""Kinds of elements that are rounded."""
_LARGEST_SIZE = 2**31
_LONGEST_SIZES = 8
"""Properties of more integers are tables of data, not of sizes."""
_SEGMENTS = (AttrSizedOperandSegments.attribute_name, AttrSizedResultSegments.attribute_name)


@dataclass(frozen=True)
class Slot:
    """One number: entry `position` of operand `owner`'s shape or value, or of the property named `owner`."""

    owner: int | str
    position: int
    length: int
    """How many entries the shape or value has."""
    is_size: bool


class Failure(NamedTuple):
    """Why an op did not run."""

    says: str
    is_refusal: bool = False
    """Whether a function of its meaning said that it does not take these operands, which need not be a mistake."""
    is_missing: bool = False
    """Whether what is missing is a library that comes with an extra."""

    @staticmethod
    def of(function: str, error: Exception) -> Failure:
        """What a function of its meaning raised."""
        if is_extra(error):
            return Failure(reason_of(error), is_missing=True)
        return Failure(f"{function}: {told_in_a_line(error)}", isinstance(error, DistirError))


def element_kind(type_: TensorType[Any]) -> str:
    """`float`, `complex`, `bool`, `integer`, or the type itself for what cannot be probed."""
    element = type_.element_type
    if isinstance(element, ComplexType):
        return "complex"
    if isinstance(element, AnyFloat):
        return "float"
    if isinstance(element, IntegerType):
        return "bool" if element.width.data == 1 else "integer"
    return str(element)


def integers_of(attribute: Attribute) -> tuple[int, ...] | None:
    """The entries of an integer, an array of integers or a dense array of integers."""
    if isinstance(attribute, IntegerAttr):
        return None if attribute.type == IntegerType(1) else (attribute.value.data,)
    if isinstance(attribute, ArrayAttr):
        entries = cast(ArrayAttr[Attribute], attribute).data
        if entries and all(isinstance(entry, IntegerAttr) for entry in entries):
            return tuple(cast(IntegerAttr[Any], entry).value.data for entry in entries)
    if isinstance(attribute, DenseArrayBase) and isinstance(attribute.elt_type, IntegerType):
        return tuple(attribute.get_values())
    return None


def _numbers_of(attribute: Attribute) -> list[float]:
    """The finite numbers of an attribute."""
    if isinstance(attribute, FloatAttr):
        value = float(cast(FloatAttr[Any], attribute).value.data)
        return [value] if math.isfinite(value) else []
    if isinstance(attribute, ArrayAttr):
        return [n for entry in cast(ArrayAttr[Attribute], attribute).data for n in _numbers_of(entry)]
    return [float(n) for n in integers_of(attribute) or ()]


def _with_integers(attribute: Attribute, entries: Sequence[int]) -> Attribute:
    if isinstance(attribute, IntegerAttr):
        return cast(Attribute, IntegerAttr(entries[0], cast(IntegerAttr[Any], attribute).type))
    if isinstance(attribute, ArrayAttr):
        old = cast(ArrayAttr[IntegerAttr[Any]], attribute).data
        return ArrayAttr([IntegerAttr(entry, each.type) for entry, each in zip(entries, old, strict=True)])
    element_type = cast(DenseArrayBase[Any], attribute).elt_type
    return DenseArrayBase.from_list(element_type, list(entries))


@lru_cache(4096)
def _text(attribute: Attribute) -> str:
    return str(attribute)


def operand_name(op: Operation, index: int) -> str:
    """The name of an operand in its op's definition; `operand<index>` where it has none of its own."""
    if isinstance(op, IRDLOperation):
        for name, _ in op.get_irdl_definition().operands:
            if isinstance(getattr(op, name, None), SSAValue) and getattr(op, name) is op.operands[index]:
                return name
    return f"operand{index}"


class ProbeOp:
    """The op with its slots. `infer` and `evaluate` answer at any point, and give None where the op rejects it."""

    def __init__(self, op: Operation, domains: Domains, is_general: bool = False):
        self.op, self.domains = op, domains
        self.operands = [self._abstract(value) for value in op.operands]
        first = {value: i for i, value in reversed(list(enumerate(op.operands)))}
        self.source = tuple(i if is_general else first[value] for i, value in enumerate(op.operands))
        """Operand i is the same value as operand source[i], the first of them."""
        self.recurrent: set[int] = set()
        """Slots of which types are found step by step, so that they are not asked far outside."""
        self.failure: Failure | None = None
        """Of the first trial of the op, or of type inference at its own sizes."""
        self._inferred: dict[Point, Shapes | None] = {}
        self._made: dict[Hashable, Operation] = {}
        self._types: dict[tuple[Attribute, Shape], TensorType[Any]] = {}
        typing = {i for i in range(len(self.operands)) if self._types_depend_on(i)}
        self.size_operands = frozenset(i for i in typing if element_kind(self._type(i)) == "integer")
        for i, operand in enumerate(self.operands):  # constants that are data: floats, tables of indices
            if isinstance(operand, np.ndarray) and i not in typing:
                if is_general or operand.ndim > 1 or element_kind(self._type(i)) != "integer":
                    self.operands[i] = self._type(i)
        self._keeps: bool | None = None
        self._replaced: dict[tuple[int | str, int], int] = {}
        """Stated integers that stand for others."""
        self.slots: tuple[Slot, ...] = ()
        values: list[int] = []
        slots: list[Slot] = []
        for slot, value in self._numbers():
            if 1 < value < _LARGEST_SIZE:
                slots.append(slot)
                values.append(value)
        self.slots, self.point = tuple(slots), tuple(values)

    def general(self) -> ProbeOp | None:
        """The probe op on any operands of its types: integer constants that are no sizes are drawn like others, and what is used twice is two
        values. None if it is that already."""
        return ProbeOp(self.op, self.domains, is_general=True) if self.special else None

    @property
    def special(self) -> set[int]:
        """The operands that are not any of their types: integer constants that are no sizes, and what is used twice."""
        constants = [(i, o) for i, o in enumerate(self.operands) if isinstance(o, np.ndarray)]
        tables = {i for i, o in constants if o.dtype.kind != "f" and i not in self.size_operands}
        return tables.union(*({i, source} for i, source in enumerate(self.source) if i != source))

    # --- operands ---

    def _abstract(self, value: SSAValue) -> Abstract:
        if isinstance(value.type, NoneType):
            return None
        if not isinstance(value.type, TensorType):
            raise TypeError(f"operand of type {value.type}")
        type_ = cast(TensorType[Any], value.type)
        owner = value.owner
        if isinstance(owner, Operation) and not owner.operands and owner.has_trait(ConstantLike):
            is_short = type_.get_num_dims() <= 1 and type_.get_shape() <= (_LONGEST_SIZES,)
            if is_short if element_kind(type_) == "float" else type_.get_num_dims() <= 1:
                return self.domains.evaluate(owner, [])[0]
        return TensorType(type_.element_type, type_.get_shape())

    def _type(self, index: int) -> TensorType[Any]:
        return cast(TensorType[Any], self._own_types[index])

    @cached_property
    def _own_types(self) -> list[Attribute]:
        """Of the operands, without encodings; what is no tensor stays as it is."""
        types = [value.type for value in self.op.operands]
        return [TensorType(t.element_type, t.get_shape()) if isinstance(t, TensorType) else t for t in types]

    @cached_property
    def _kinds(self) -> list[str]:
        return [element_kind(t) if isinstance(t, TensorType) else "" for t in self._own_types]

    def _types_depend_on(self, index: int) -> bool:
        """Whether the result types are lost when the value of this known operand of integers (sizes) or floats (the scales of a resize)
        is withheld."""
        if not isinstance(self.operands[index], np.ndarray) or element_kind(self._type(index)) == "bool":
            return False
        withheld = [self._type(i) if i == index else operand for i, operand in enumerate(self.operands)]
        try:
            results = self.domains.infer(self._detached(withheld, {}), withheld)
        except Exception:
            return True
        return any(result is not None and any(dim < 0 for dim in result.get_shape()) for result in results)

    @cached_property
    def stated_integers(self) -> tuple[int, ...]:
        """The op's longest table of integers: a property too long to be sizes."""
        tables = [integers_of(attribute) or () for attribute in self.op.properties.values()]
        longest = max(tables, key=len, default=())
        return longest if len(longest) > _LONGEST_SIZES else ()

    @cached_property
    def stated_floats(self) -> tuple[float, ...]:
        """The magnitudes of all numbers that the op states and that floats may be compared with: bounds, thresholds."""
        attributes = [attribute for name, attribute in self.op.properties.items() if name not in _SEGMENTS]
        found = [abs(number) for attribute in attributes for number in _numbers_of(attribute)]
        for operand in self.operands:
            if isinstance(operand, np.ndarray) and operand.dtype.kind in "fiu":
                found += np.abs(operand.astype(np.float64)).reshape(-1).tolist()
        return tuple(sorted(dict.fromkeys(found)))

    @cached_property
    def stated(self) -> dict[tuple[int | str, int], int]:
        """Every integer that the op states, by owner and entry: those of its properties, and of constant operands of one."""
        found: dict[tuple[int | str, int], int] = {}
        for name, attribute in self.op.properties.items():
            if name not in _SEGMENTS:
                found |= {(name, p): n for p, n in enumerate(integers_of(attribute) or ())}
        for i, operand in enumerate(self.operands):
            if isinstance(operand, np.ndarray) and operand.dtype.kind in "iu" and operand.size == 1:
                found[i, 0] = int(operand.reshape(-1)[0])
        return found

    def stating(self, owner: int | str, position: int, number: int) -> ProbeOp:
        """The op with this number in place of one that it states; points are as before."""
        other = copy(self)
        other._replaced = {**self._replaced, (owner, position): number}
        other._inferred, other._made = {}, {}
        return other

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """The operands that are data, each value once."""
        return tuple(
            i for i, operand in enumerate(self.operands) if isinstance(operand, TensorType) and self.source[i] == i
        )

    def element_type(self, index: int) -> Attribute:
        return self._type(index).element_type

    def integer_dtype(self, index: int) -> np.dtype[Any]:
        element = self._type(index).element_type
        if not isinstance(element, IntegerType) or element.width.data not in (8, 16, 32, 64):
            return np.dtype(np.int64)
        sign = "u" if element.signedness.data is Signedness.UNSIGNED else ""
        return np.dtype(f"{sign}int{element.width.data}")

    def uses(self, operands: Sequence[int]) -> tuple[int, ...]:
        """Every operand that is one of these values."""
        return tuple(i for i, source in enumerate(self.source) if source in operands)

    def kind(self, index: int) -> str:
        return self._kinds[index]

    # --- slots ---

    def _numbers(self) -> list[tuple[Slot, int]]:
        """Every number of the op that could be a slot."""
        numbers: list[tuple[Slot, int]] = []
        for i, operand in enumerate(self.operands):
            if isinstance(operand, TensorType) and self.source[i] == i:
                numbers += [
                    (Slot(i, d, operand.get_num_dims(), False), dim) for d, dim in enumerate(operand.get_shape())
                ]
        for i in sorted(self.size_operands):
            if self.source[i] == i:
                entries = cast(Array, self.operands[i]).reshape(-1).tolist()
                numbers += [(Slot(i, p, len(entries), True), entry) for p, entry in enumerate(entries)]
        for name, attribute in self.op.properties.items():
            if name not in _SEGMENTS and (entries := integers_of(attribute)) is not None:
                numbers += [(Slot(name, p, len(entries), True), entry) for p, entry in enumerate(entries)]
        return numbers

    def slot_name(self, slot: Slot) -> str:
        return slot.owner if isinstance(slot.owner, str) else operand_name(self.op, slot.owner)

    def at(self, point: Point) -> tuple[Operation, list[Abstract]]:
        """The op, detached, and its operands at a point."""
        values = {(s.owner, s.position): v for s, v in zip(self.slots, point, strict=True)} | self._replaced
        operands: list[Abstract] = []
        for i, operand in enumerate(self.operands):
            source = self.source[i]
            if isinstance(operand, TensorType):
                shape = tuple(values.get((source, d), dim) for d, dim in enumerate(operand.get_shape()))
                operand = self._tensor_type(cast(Attribute, operand.element_type), shape)
            elif operand is not None and (i in self.size_operands or self._replaced):
                entries = [values.get((source, p), v) for p, v in enumerate(operand.reshape(-1).tolist())]
                operand = np.array(entries, operand.dtype).reshape(operand.shape)
            operands.append(operand)
        return self._operation(operands, values), operands

    def _tensor_type(self, element: Attribute, shape: Shape) -> TensorType[Any]:
        if (known := self._types.get((element, shape))) is None:
            known = self._types[element, shape] = TensorType(element, shape)
        return known

    def _operation(self, operands: Sequence[Abstract], values: Mapping[tuple[int | str, int], int]) -> Operation:
        """As `_detached`, made once for equal properties: what the types of its operands are, interpreters are told."""
        if self.op.regions:
            return self._detached(operands, values)
        key = tuple(value for (owner, _), value in values.items() if isinstance(owner, str))
        if (known := self._made.get(key)) is None:
            known = self._made[key] = self._detached(operands, values)
        return known

    def _detached(self, operands: Sequence[Abstract], values: Mapping[tuple[int | str, int], int]) -> Operation:
        """A copy of the op on operands of these types, with these entries of properties; result shapes are unknown. What its regions use from
        outside are arguments beside its operands: the model's values are not used by copies."""

        def operand_type(i: int, operand: Abstract) -> Attribute:
            if isinstance(operand, np.ndarray):
                return TensorType(self.element_type(i), operand.shape)
            return NoneType() if operand is None else operand

        properties = dict(self.op.properties)
        for name, attribute in self.op.properties.items():
            if any(owner == name for owner, _ in values) and (entries := integers_of(attribute)) is not None:
                entries = [values.get((name, p), entry) for p, entry in enumerate(entries)]
                properties[name] = _with_integers(attribute, entries)
        captured = values_read(self.op)[len(self.op.operands) :]
        own = [operand_type(i, operand) for i, operand in enumerate(operands)]
        block = Block(arg_types=[*own, *(value.type for value in captured)])
        outside: dict[SSAValue, SSAValue] = dict(zip(captured, block.args[len(own) :], strict=True))
        for value, argument in outside.items():
            share_name_hint([argument], value.name_hint)
        op = type(self.op).create(
            operands=[block.args[source] for source in self.source],
            result_types=[
                UnrankedTensorType(cast(Attribute, type_.element_type)) if isinstance(type_, TensorType) else type_
                for type_ in self.op.result_types
            ],
            properties=properties,
            regions=[copied(region, outside) for region in self.op.regions],
        )
        block.add_op(op)
        return op

    def operand_shape(self, point: Point, index: int) -> Shape:
        """The shape of a data operand at a point."""
        values = {s.position: v for s, v in zip(self.slots, point, strict=True) if s.owner == self.source[index]}
        return tuple(values.get(d, dim) for d, dim in enumerate(self._type(index).get_shape()))

    # --- the two domains ---

    def infer(self, point: Point) -> Shapes | None:
        """The result shapes at a point by type inference; an absent result has none."""
        if point not in self._inferred:
            try:
                op, operands = self.at(point)
                results = self.domains.infer(op, operands)
                shapes = tuple(None if result is None else tuple(result.get_shape()) for result in results)
                known = all(dim >= 0 for shape in shapes for dim in shape or ())
                self._inferred[point] = shapes if known else None
            except Exception as error:
                self._inferred[point] = None
                if point == self.point and self.failure is None and not isinstance(error, NotKnown):
                    self.failure = Failure.of("types", error)
        return self._inferred[point]

    def evaluate(self, point: Point, arrays: dict[int, Array]) -> list[Array | None]:
        """The results at a point on these data operands; raises what the op raises."""
        op, concrete = self._concrete(point, arrays)
        results = self.domains.evaluate(op, concrete)
        return [None if result is None else np.asarray(result) for result in results]

    def _concrete(self, point: Point, arrays: Mapping[int, Array]) -> tuple[Operation, list[Array | None]]:
        op, operands = self.at(point)
        concrete: list[Array | None] = []
        for i, operand in enumerate(operands):
            concrete.append(arrays[self.source[i]] if isinstance(operand, TensorType) else operand)
        return op, concrete

    def consistent(self, point: Point, arrays: Mapping[int, Array]) -> dict[int, Array]:
        """These data operands, with the integers that another operator gave on the others where it must have been so."""
        return {**arrays, **self.kept(point, arrays)}

    def kept(self, point: Point, arrays: Mapping[int, Array]) -> dict[int, Array]:
        """Those integers, by operand."""
        if self._keeps is False:
            return {}
        found = {self.source[i]: array for i, array in self.domains.kept(*self._concrete(point, arrays)).items()}
        self._keeps = bool(found)
        return found

    def text(self, point: Point) -> str:
        """The op at a point, in words: equal texts, equal rules."""
        op, operands = self.at(point)
        words = [op.name]
        words += [f"{name}={_text(attribute)}" for name, attribute in sorted(op.properties.items())]
        for i, operand in enumerate(operands):
            if isinstance(operand, np.ndarray):
                words.append(f"{operand.dtype}{operand.tolist()}")
            elif operand is None:
                words.append("none")
            else:
                words.append(
                    f"%{self.source[i]}:{'x'.join(map(str, operand.get_shape()))}x{_text(operand.element_type)}"
                )
        words += texts_of_regions(op)
        words.append("->")
        for result in op.result_types:
            words.append(
                _text(cast(Attribute, result.element_type)) if isinstance(result, TensorType) else _text(result)
            )
        return " ".join(words)
