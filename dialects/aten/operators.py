"""The operation classes of the `aten` dialect. In goes the schema of an overload, read when the operator is first
met; out comes its operation class, with the verifier."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    NoneType,
    StringAttr,
    TensorType,
    UnitAttr,
)
from xdsl.ir import Attribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    AnyAttr,
    AnyOf,
    AttrConstraint,
    AttrSizedOperandSegments,
    AttrSizedResultSegments,
    BaseAttr,
    IRDLOperation,
    OpDef,
    OperandDef,
    OptOperandDef,
    OptPropertyDef,
    ParsePropInAttrDict,
    PropertyDef,
    RangeOf,
    ResultDef,
    VarOperandDef,
    VarResultDef,
    get_accessors_from_op_def,
    lazy_traits_def,
)
from xdsl.traits import OpTrait, Pure

from distir.dialects.aten.schemas import SCHEMAS, Argument, Schema
from distir.dialects.traits import ViewOfFirstOperand

GIVEN = "_given"
"""Ends the name of the property that says which of a `Tensor?[]`'s entries are operands."""

_TENSOR = BaseAttr(TensorType)
_RESULT = AnyOf((BaseAttr(TensorType), BaseAttr(NoneType)))
_NUMBER = AnyOf((BaseAttr(IntegerAttr), BaseAttr(FloatAttr)))
_CONSTRAINTS: dict[str, AttrConstraint] = {
    "int": BaseAttr(IntegerAttr),
    "bool": BaseAttr(IntegerAttr),
    "float": BaseAttr(FloatAttr),
    "Scalar": _NUMBER,
    "str": BaseAttr(StringAttr),
    "ScalarType": BaseAttr(TypeAttribute),
    "int[]": BaseAttr(DenseArrayBase),
    "float[]": BaseAttr(ArrayAttr),
    "bool[]": BaseAttr(ArrayAttr),
    "Scalar[]": BaseAttr(ArrayAttr),
}


class AtenOperation(IRDLOperation):
    """Base of every operator of ATen: its class knows the operator's schema."""

    if TYPE_CHECKING:  # at run time xDSL would take it for a field of the operation
        schema: ClassVar[Schema]

    @classmethod
    def get_irdl_definition(cls) -> OpDef:
        definition = _definition(cls.schema)
        if "verify_" not in vars(cls):
            for name, accessor in get_accessors_from_op_def(definition, None).items():
                if name not in ("get_irdl_definition", "traits"):
                    setattr(cls, name, accessor)
        return definition

    def verify_(self) -> None:
        self.get_irdl_definition().verify(self)

    def values(self) -> list[tuple[Argument, SSAValue | list[SSAValue | None] | Attribute | None]]:
        """Per argument of the schema that the dialect keeps, what this operation has for it; None if nothing."""
        segments = iter(self._segments())
        operands = iter(self.operands)
        found: list[tuple[Argument, SSAValue | list[SSAValue | None] | Attribute | None]] = []
        for argument in _kept(self.schema):
            if not argument.is_tensor:
                found.append((argument, self.properties.get(argument.name)))
                continue
            taken = [next(operands) for _ in range(next(segments))]
            if not argument.is_list:
                found.append((argument, taken[0] if taken else None))
            elif argument.items_optional and (given := self.properties.get(argument.name + GIVEN)) is not None:
                present = cast(ArrayAttr[BoolAttr], given).data
                rest = iter(taken)
                found.append((argument, [next(rest) if entry.value.data else None for entry in present]))
            else:
                found.append((argument, [*taken]))
        return found

    def _segments(self) -> Sequence[int]:
        """How many operands each tensor argument has."""
        sizes = self.properties.get(AttrSizedOperandSegments.attribute_name)
        if isinstance(sizes, DenseArrayBase):
            return [int(size) for size in sizes.get_values()]
        tensors = [argument for argument in _kept(self.schema) if argument.is_tensor]
        single = sum(not _is_segment(argument) for argument in tensors)
        return [len(self.operands) - single if _is_segment(argument) else 1 for argument in tensors]


def _kept(schema: Schema) -> list[Argument]:
    return [argument for argument in schema.arguments if not argument.is_placement]


def _is_segment(argument: Argument) -> bool:
    return argument.optional or argument.is_list


@cache
def _definition(schema: Schema) -> OpDef:
    definition, taken = OpDef(f"aten.{schema.qualified_name}"), set(dir(AtenOperation))

    def name(wanted: str) -> str:
        wanted += "_" if keyword.iskeyword(wanted) or wanted in taken else ""
        taken.add(wanted)
        return wanted

    segments = 0
    for argument in _kept(schema):
        if argument.is_tensor:
            segments += _is_segment(argument)
            operand = OperandDef(_TENSOR)
            if argument.is_list:
                operand = VarOperandDef(RangeOf(_TENSOR))
            elif argument.optional:
                operand = OptOperandDef(_TENSOR)
            definition.operands.append((name(argument.name), operand))
            if argument.items_optional:
                definition.properties[argument.name + GIVEN] = OptPropertyDef(BaseAttr(ArrayAttr))
            continue
        constraint = _CONSTRAINTS.get(argument.type, AnyAttr())
        if argument.optional:
            constraint = (
                AnyOf((constraint, BaseAttr(UnitAttr))) if argument.default not in (None, "None") else constraint
            )
        required = argument.default is None and not argument.optional
        definition.properties[argument.name] = PropertyDef(constraint) if required else OptPropertyDef(constraint)
    lists = [type_.endswith("[]") for type_ in schema.results]
    for i, is_list in enumerate(lists):
        result = VarResultDef(RangeOf(_TENSOR)) if is_list else ResultDef(_RESULT)
        definition.results.append((name(f"result{i}"), result))
    if segments > 1:
        definition.options.append(AttrSizedOperandSegments(as_property=True))
        definition.properties[AttrSizedOperandSegments.attribute_name] = PropertyDef(BaseAttr(DenseArrayBase))
    if sum(lists) > 1:
        definition.options.append(AttrSizedResultSegments(as_property=True))
        definition.properties[AttrSizedResultSegments.attribute_name] = PropertyDef(BaseAttr(DenseArrayBase))
    definition.options.append(ParsePropInAttrDict())
    definition.traits = lazy_traits_def(lambda: _traits(schema))
    return definition


def _traits(schema: Schema) -> tuple[OpTrait, ...]:
    pure = () if schema.is_random else (Pure(),)
    return (*pure, ViewOfFirstOperand()) if schema.is_view else pure


def _operator_class(schema: Schema) -> type[AtenOperation]:
    members = {
        "name": f"aten.{schema.qualified_name}",
        "schema": schema,
        "traits": lazy_traits_def(lambda: _traits(schema)),
        "__doc__": schema.text,
        "__module__": __name__,
    }
    return type(schema.qualified_name, (AtenOperation,), members)


OPERATORS: dict[str, type[AtenOperation]] = {
    f"aten.{name}": _operator_class(schema) for name, schema in SCHEMAS.items()
}
"""The class of each overload, by the name of its operation."""
