"""ONNX types as xDSL attributes: element types, and the types that are not tensors.

Tensors are builtin tensors; the encoding slot stays free for the placement of a distributed program. Names of types
follow onnx-mlir (`!onnx.String`, `!onnx.Seq<...>`, `!onnx.Opt<...>`). Nothing here imports numpy or onnx.
"""

from typing import NamedTuple

from xdsl.dialects.builtin import (
    BFloat16Type,
    ComplexType,
    Float4E2M1FNType,
    Float6E2M3FNType,
    Float6E3M2FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    Signedness,
    TensorType,
    UnrankedTensorType,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition


@irdl_attr_definition
class StringType(ParametrizedAttribute, TypeAttribute):
    """The element type of a tensor of strings."""

    name = "onnx.String"


@irdl_attr_definition
class SequenceType(ParametrizedAttribute, TypeAttribute):
    """A sequence of values of one type."""

    name = "onnx.Seq"
    element: Attribute


@irdl_attr_definition
class OptionalType(ParametrizedAttribute, TypeAttribute):
    """A value that may be absent at run time (an operand absent by construction has type `none`)."""

    name = "onnx.Opt"
    element: Attribute


@irdl_attr_definition
class MapType(ParametrizedAttribute, TypeAttribute):
    """A dictionary, as the classifiers of ai.onnx.ml give."""

    name = "onnx.Map"
    key: Attribute
    value: Attribute


class Element(NamedTuple):
    """One ONNX element type under its three names; `itemsize` is in bytes as numpy stores it (0 for strings)."""

    onnx_name: str
    type: Attribute
    numpy_name: str
    itemsize: int


def _integers(*widths: int) -> list[Element]:
    rows: list[Element] = []
    for width in widths:
        size = max(width // 8, 1)
        rows.append(Element(f"int{width}", IntegerType(width), f"int{width}", size))
        unsigned = IntegerType(width, Signedness.UNSIGNED)
        rows.append(Element(f"uint{width}", unsigned, f"uint{width}", size))
    return rows


ELEMENTS: tuple[Element, ...] = (
    Element("float", Float32Type(), "float32", 4),
    Element("double", Float64Type(), "float64", 8),
    Element("float16", Float16Type(), "float16", 2),
    Element("bfloat16", BFloat16Type(), "bfloat16", 2),
    Element("bool", IntegerType(1), "bool", 1),
    *_integers(2, 4, 8, 16, 32, 64),
    Element("string", StringType(), "object", 0),
    Element("complex64", ComplexType(Float32Type()), "complex64", 8),
    Element("complex128", ComplexType(Float64Type()), "complex128", 16),
    Element("float8e4m3fn", Float8E4M3FNType(), "float8_e4m3fn", 1),
    Element("float8e4m3fnuz", Float8E4M3FNUZType(), "float8_e4m3fnuz", 1),
    Element("float8e5m2", Float8E5M2Type(), "float8_e5m2", 1),
    Element("float8e5m2fnuz", Float8E5M2FNUZType(), "float8_e5m2fnuz", 1),
    Element("float8e8m0", Float8E8M0FNUType(), "float8_e8m0fnu", 1),
    Element("float6e2m3", Float6E2M3FNType(), "float6_e2m3fn", 1),
    Element("float6e3m2", Float6E3M2FNType(), "float6_e3m2fn", 1),
    Element("float4e2m1", Float4E2M1FNType(), "float4_e2m1fn", 1),
)

ELEMENT_OF_TYPE: dict[Attribute, Element] = {element.type: element for element in ELEMENTS}
ELEMENT_OF_ONNX_NAME: dict[str, Element] = {element.onnx_name: element for element in ELEMENTS}
ELEMENT_OF_NUMPY_NAME: dict[str, Element] = {element.numpy_name: element for element in ELEMENTS}


def type_string(type: Attribute) -> str:
    """The type as ONNX schemas spell it, without its shape: `tensor(float)`, `seq(tensor(int64))`."""
    if isinstance(type, TensorType | UnrankedTensorType):
        element = ELEMENT_OF_TYPE.get(type.element_type)
        return f"tensor({element.onnx_name if element else type.element_type})"
    if isinstance(type, SequenceType):
        return f"seq({type_string(type.element)})"
    if isinstance(type, OptionalType):
        return f"optional({type_string(type.element)})"
    if isinstance(type, MapType):
        key = ELEMENT_OF_TYPE.get(type.key)
        value = type_string(type.value).removeprefix("tensor(").removesuffix(")")  # schemas name the element alone
        return f"map({key.onnx_name if key else type.key}, {value})"
    return str(type)
