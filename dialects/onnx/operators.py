"""The operation classes of the `onnx` dialect. In goes the schema of an ONNX operator; out comes its operation
class.

Conventions are onnx-mlir's: the operation is `onnx.<Name>`; operands, results and attributes have the schema's names;
an absent optional operand is `onnx.NoValue`, an absent optional result has type `none`; attributes are properties
(accepted in the attribute dictionary too), INT as `1 : si64`, FLOAT as f32, INTS as an array of i64, and the `to` of a
cast as a type; graphs are regions. The verifier checks operand and result types against the schema, type variables
included.

Classes are made through OpDef, which skips the reflection of `irdl_op_definition`: 0.2 ms less for each of 226 classes.
"""

import keyword
from dataclasses import dataclass

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    NoneType,
    StringAttr,
)
from xdsl.ir import Attribute, TypeAttribute
from xdsl.irdl import (
    AnyAttr,
    AnyOf,
    AttrConstraint,
    BaseAttr,
    OpDef,
    OperandDef,
    OptPropertyDef,
    ParsePropInAttrDict,
    PropertyDef,
    RangeOf,
    RegionDef,
    ResultDef,
    VarOperandDef,
    VarRegionDef,
    VarResultDef,
    VerificationContext,
    get_accessors_from_op_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from distir.dialects.onnx.schemas import SCHEMAS, AttributeSchema, OperatorSchema, Parameter
from distir.dialects.onnx.structure import Constant, OnnxOperation
from distir.dialects.onnx.tensors import TensorAttr
from distir.dialects.onnx.types import type_string


@dataclass(frozen=True)
class OnnxTypeConstraint(AttrConstraint):
    """The types that a formal parameter allows; uses of one type variable in a node have one type."""

    parameter: Parameter

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        parameter = self.parameter
        if isinstance(attr, NoneType):
            if parameter.option == "optional":
                return
            raise VerifyException(f"'{parameter.name}' is required, got none")
        type = type_string(attr)
        if type not in parameter.types:
            allowed = ", ".join(sorted(parameter.types))
            raise VerifyException(f"'{parameter.name}' may be one of {allowed}; got {type}")
        if parameter.bound:
            previous = constraint_context.get_variable(parameter.type_variable)
            if previous is None:
                constraint_context.set_attr_variable(parameter.type_variable, StringAttr(type))
            elif previous != StringAttr(type):
                raise VerifyException(
                    f"'{parameter.name}' has type {type}, but type variable {parameter.type_variable} "
                    f"is already {getattr(previous, 'data', previous)}"
                )

    def mapping_type_vars(self, type_var_mapping: object) -> "OnnxTypeConstraint":
        return self


_RESERVED = frozenset(dir(OnnxOperation)) | {"schema", "name"}
_TENSOR = AnyOf((BaseAttr(TensorAttr), BaseAttr(DenseIntOrFPElementsAttr)))
_ATTRIBUTE_CONSTRAINTS: dict[str, AttrConstraint] = {
    "INT": BaseAttr(IntegerAttr),
    "FLOAT": BaseAttr(FloatAttr),
    "STRING": BaseAttr(StringAttr),
    "INTS": BaseAttr(ArrayAttr),
    "FLOATS": BaseAttr(ArrayAttr),
    "STRINGS": BaseAttr(ArrayAttr),
    "TENSOR": _TENSOR,
    "TYPE_PROTO": BaseAttr(TypeAttribute),
}


def is_element_type(operator: OperatorSchema, attribute: AttributeSchema) -> bool:
    """Whether the attribute is written as a type (`to = f32`) though ONNX has an integer: Cast, as in onnx-mlir."""
    return operator.name == "Cast" and attribute.name == "to"


def _accessor(name: str, taken: set[str]) -> str:
    """A Python name for a schema's name; a result named like an operand becomes `out_<name>`."""
    name = name.replace(".", "_")
    if keyword.iskeyword(name) or name in _RESERVED:
        name += "_"
    while name in taken:
        name = "out_" + name
    taken.add(name)
    return name


def _definition(schema: OperatorSchema) -> OpDef:
    definition, taken = OpDef(f"onnx.{schema.name}"), set[str]()
    for parameter in schema.inputs:
        constraint = OnnxTypeConstraint(parameter)
        operand = VarOperandDef(RangeOf(constraint)) if parameter.option == "variadic" else OperandDef(constraint)
        definition.operands.append((_accessor(parameter.name, taken), operand))
    for parameter in schema.outputs:
        constraint = OnnxTypeConstraint(parameter)
        result = VarResultDef(RangeOf(constraint)) if parameter.option == "variadic" else ResultDef(constraint)
        definition.results.append((_accessor(parameter.name, taken), result))
    for attribute in schema.attributes:
        if attribute.kind == "GRAPH":
            _add_region(definition, attribute, taken)
            continue
        constraint = _ATTRIBUTE_CONSTRAINTS.get(attribute.kind, AnyAttr())
        if is_element_type(schema, attribute):
            constraint = BaseAttr(TypeAttribute)
        property_ = PropertyDef(constraint) if attribute.required else OptPropertyDef(constraint)
        definition.properties[attribute.name] = property_
        definition.accessor_names[_accessor(attribute.name, taken)] = (attribute.name, "property")
    definition.options.append(ParsePropInAttrDict())
    if schema.deterministic:
        definition.traits = traits_def(Pure())
    return definition


def _add_region(definition: OpDef, attribute: AttributeSchema, taken: set[str]) -> None:
    """A required graph is a region of its own; optional ones (FlexAttention's) share one variadic segment."""
    if attribute.required:
        definition.regions.append((_accessor(attribute.name, taken), RegionDef()))
    elif not any(isinstance(region, VarRegionDef) for _, region in definition.regions):
        definition.regions.append(("graphs", VarRegionDef()))


def _operator_class(schema: OperatorSchema) -> type[OnnxOperation]:
    definition = _definition(schema)
    folder = schema.domain.replace(".", "")
    documentation = (
        f"ONNX {schema.name}, since version {schema.since_version} of "
        f"{schema.domain or 'ai.onnx'}: https://onnx.ai/onnx/operators/onnx_{folder}_{schema.name}.html"
    )
    members = {"name": definition.name, "schema": schema, "__doc__": documentation, "__module__": __name__}
    members |= get_accessors_from_op_def(definition, None)
    return type(schema.name, (OnnxOperation,), members)


OPERATORS: dict[str, type[OnnxOperation]] = {
    name: Constant if name == "Constant" else _operator_class(schema) for name, schema in SCHEMAS.items()
}
"""The operation class of each ONNX operator, by operator name."""
