"""Translates to ONNX protobufs. In go types, properties, operations and bodies of the dialect; out come protobufs,
nodes and graphs, and from protobufs types. Interpreters pass them to onnx, and exports write them to files. Tensors
and attributes of files are read by `distir.frontends.onnx.protos`."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    NoneType,
    Signedness,
    StringAttr,
    TensorType,
    UnrankedTensorType,
)
from xdsl.ir import Attribute, Block, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.onnx import (
    MapType,
    NoValue,
    OnnxOperation,
    OptionalType,
    SequenceType,
    TensorAttr,
    Yield,
)
from distir.dialects.onnx.types import ELEMENT_OF_ONNX_NAME, ELEMENT_OF_TYPE

SI64 = IntegerType(64, Signedness.SIGNED)


# Types.


def element_type(code: int) -> Attribute:
    """The element type of a `TensorProto.DataType`; DistirError for a number that is none."""
    if code == TensorProto.UNDEFINED or code not in TensorProto.DataType.values():
        raise DistirError(f"no ONNX element type has the number {code}")
    return ELEMENT_OF_ONNX_NAME[TensorProto.DataType.Name(code).lower()].type


def element_code(type: Attribute) -> int:
    """The `TensorProto.DataType` of an element type."""
    return TensorProto.DataType.Value(ELEMENT_OF_TYPE[type].onnx_name.upper())


def is_floating(code: int) -> bool:
    """Whether a `TensorProto.DataType` is one of floating-point numbers."""
    return "FLOAT" in (name := TensorProto.DataType.Name(code)) or name == "DOUBLE"


def is_quantised(code: int) -> bool:
    """Whether it is one of integers of a byte or less."""
    return TensorProto.DataType.Name(code) in ("INT8", "UINT8", "INT4", "UINT4", "INT2", "UINT2")


def type_of(proto: TypeProto) -> Attribute | None:
    """The type, or None where the model does not say (or says something that is neither tensor, sequence nor map)."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type" and proto.tensor_type.elem_type:
        element = element_type(proto.tensor_type.elem_type)
        if not proto.tensor_type.HasField("shape"):
            return UnrankedTensorType(element)
        dims = proto.tensor_type.shape.dim
        known = [d.HasField("dim_value") and d.dim_value >= 0 for d in dims]  # inference has given -1
        return TensorType(element, [d.dim_value if k else DYNAMIC_INDEX for d, k in zip(dims, known, strict=True)])
    if kind == "sequence_type" and (inner := type_of(proto.sequence_type.elem_type)):
        return SequenceType(inner)
    if kind == "optional_type" and (inner := type_of(proto.optional_type.elem_type)):
        return OptionalType(inner)
    if kind == "map_type" and (inner := type_of(proto.map_type.value_type)):
        return MapType(element_type(proto.map_type.key_type), inner)
    return None


def type_proto(type: Attribute) -> TypeProto:
    """The protobuf of a type; placement is left out, an open dimension has no value."""
    if isinstance(type, TensorType):
        tensor = cast(TensorType[Attribute], type)
        dims = [None if dim == DYNAMIC_INDEX else dim for dim in tensor.get_shape()]
        return helper.make_tensor_type_proto(element_code(tensor.element_type), dims)
    if isinstance(type, UnrankedTensorType):
        return helper.make_tensor_type_proto(element_code(type.element_type), None)
    if isinstance(type, SequenceType):
        return helper.make_sequence_type_proto(type_proto(type.element))
    if isinstance(type, OptionalType):
        return helper.make_optional_type_proto(type_proto(type.element))
    if isinstance(type, MapType):
        return helper.make_map_type_proto(element_code(type.key), type_proto(type.value))
    raise DistirError(f"ONNX has no type for {type}")


# Attributes. A property's kind is the schema's; discardable attributes are not sent back to ONNX.


def attribute_proto(name: str, kind: str, attribute: Attribute) -> AttributeProto:
    """The protobuf of a property of the schema's kind (`INT`, `FLOATS`, ...)."""
    code = AttributeProto.AttributeType.Value(kind)
    if kind == "TYPE_PROTO":
        return helper.make_attribute(name, type_proto(attribute))
    return helper.make_attribute(name, _python_value(attribute), attr_type=code)


def _python_value(attribute: Attribute) -> Any:
    if isinstance(attribute, IntegerAttr | FloatAttr):
        return cast(IntegerAttr[Any] | FloatAttr[Any], attribute).value.data
    if isinstance(attribute, StringAttr):
        return attribute.data
    if isinstance(attribute, ArrayAttr):
        return [_python_value(item) for item in cast(ArrayAttr[Attribute], attribute)]
    if attribute in ELEMENT_OF_TYPE:
        return element_code(attribute)
    return numpy_helper.from_array(TensorAttr.of(attribute).to_numpy())


# Nodes and graphs, from operations.

NameOf = Callable[[SSAValue], str]


def node_proto(op: OnnxOperation, name_of: NameOf) -> NodeProto:
    """The operation as a node; absent operands and results are empty names."""
    schema = op.schema

    def names(values: Sequence[SSAValue]) -> list[str]:
        listed = ["" if isinstance(value.type, NoneType) else name_of(value) for value in values]
        while listed and not listed[-1]:
            listed.pop()
        return listed

    node = helper.make_node(schema.name, names(op.operands), names(op.results), domain=schema.domain)
    regions = iter(op.regions)
    for attribute in schema.attributes:
        if attribute.kind == "GRAPH":
            if (region := next(regions, None)) is not None and region.blocks:
                node.attribute.append(
                    helper.make_attribute(attribute.name, graph_proto(region.block, name_of, attribute.name))
                )
        elif (value := op.properties.get(attribute.name)) is not None:
            kind = "TENSOR" if schema.name == "Constant" else attribute.kind
            node.attribute.append(attribute_proto(attribute.name, kind, value))
    return node


@cache
def _defaults(operator: str, version: int, domain: str) -> dict[str, AttributeProto]:
    if not onnx.defs.has(operator, version, domain):
        return {}
    attributes = onnx.defs.get_schema(operator, version, domain).attributes
    return {name: each.default_value for name, each in attributes.items() if each.default_value.type}


@contextmanager
def with_defaults(nodes: Iterable[NodeProto], versions: Mapping[str, int]) -> Generator[None]:
    """The nodes state, meanwhile, the attributes that they leave out, as these versions of operator sets say them: onnx's inference of
    shapes takes others for some of them (both sides of an STFT)."""
    before = [(node, len(node.attribute)) for node in nodes]
    for node, _ in before:
        stated = {attribute.name for attribute in node.attribute}
        defaults = _defaults(node.op_type, versions.get(node.domain, 0), node.domain)
        node.attribute.extend(each for name, each in defaults.items() if name not in stated)
    try:
        yield
    finally:
        for node, count in before:
            del node.attribute[count:]


def graph_proto(body: Block, name_of: NameOf, name: str) -> GraphProto:
    """A body as a graph; values of the program around it keep their names, as ONNX's outer scope wants."""
    nodes = [node_proto(op, name_of) for op in body.ops if isinstance(op, OnnxOperation)]
    for op in body.ops:
        if not isinstance(op, OnnxOperation | NoValue | Yield):
            raise DistirError(f"{op.name} cannot be inside the graph of an ONNX operator")
    terminator = body.last_op
    assert isinstance(terminator, Yield)

    def value_info(value: SSAValue) -> onnx.ValueInfoProto:
        return helper.make_value_info(name_of(value), type_proto(value.type))

    return helper.make_graph(
        nodes, name, [value_info(arg) for arg in body.args], [value_info(v) for v in terminator.operands]
    )
