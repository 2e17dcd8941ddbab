"""Tensors and attributes of ONNX files as arrays and attributes of the dialect. In goes a protobuf and the folder of its file; out comes an
array, which is a view of the protobuf's or the file's bytes wherever the layout allows, or an attribute."""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, StringAttr, f32, i64
from xdsl.ir import Attribute

from distir.dialects.errors import DistirError
from distir.dialects.onnx import TensorAttr, numpy_dtype
from distir.dialects.onnx.protos import SI64, element_type, type_of
from distir.dialects.onnx.types import ELEMENT_OF_ONNX_NAME
from distir.interpreters.weights import map_array

Array = np.ndarray[Any, Any]


def array_of(tensor: TensorProto, folder: Path | None, model: str) -> Array:
    """The value of a tensor; data outside the model is mapped from its file, not read."""
    element = ELEMENT_OF_ONNX_NAME[TensorProto.DataType.Name(tensor.data_type).lower()]
    shape = tuple(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise DistirError(f"{model}: tensor '{tensor.name}' has shape {list(shape)}: expected sizes of at least 0")
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external_array(tensor, folder, model)
    packed = tensor.data_type in (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2)
    packed |= tensor.data_type in (TensorProto.FLOAT4E2M1, TensorProto.FLOAT6E2M3, TensorProto.FLOAT6E3M2)
    try:
        if tensor.HasField("raw_data") and element.itemsize and not packed:
            return np.frombuffer(tensor.raw_data, dtype=numpy_dtype(element.type)).reshape(shape)
        return numpy_helper.to_array(tensor)
    except ValueError as error:
        raise DistirError(f"{model}: tensor '{tensor.name}' of shape {list(shape)} has wrong data: {error}") from error


def _external_array(tensor: TensorProto, folder: Path | None, model: str) -> Array:
    fields = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    where = f"{model}: data of tensor '{tensor.name}'"
    if folder is None:
        raise DistirError(f"{where} lies in file '{location}', but the model has no folder: give its path instead")
    path = (folder / location).resolve()
    if not location or not path.is_relative_to(folder.resolve()):
        raise DistirError(f"{where} lies outside the model's folder ('{location}'): put the file beside the model")
    if not path.is_file():
        raise DistirError(f"{where} is missing: no file {path}")
    type = element_type(tensor.data_type)
    dtype, shape = numpy_dtype(type), tuple(tensor.dims)
    offset = int(number) if (number := fields.get("offset", "0")).isascii() and number.isdigit() else -1
    if offset < 0:
        raise DistirError(f"{where} is at offset '{number}': expected a number of at least 0")
    available = path.stat().st_size - offset
    needed = dtype.itemsize * prod(shape)
    if (length := fields.get("length", str(needed))) != str(needed):
        raise DistirError(f"{where} has length '{length}', but {list(shape)} of {dtype} takes {needed} bytes")
    if dtype.kind == "O" or needed > available:
        raise DistirError(f"{where} needs {needed} bytes at {offset} in {path}, which has {available}")
    return map_array(path, dtype, shape, offset)


def attribute_of(proto: AttributeProto, as_type: bool, folder: Path | None, model: str) -> Attribute:
    """The attribute's value in the dialect; `as_type` reads an integer as an element type."""
    value: Any = helper.get_attribute_value(proto)
    match proto.type:
        case AttributeProto.INT:
            return element_type(value) if as_type else IntegerAttr(value, SI64)
        case AttributeProto.FLOAT:
            return FloatAttr(value, f32)
        case AttributeProto.STRING:
            return StringAttr(value.decode())
        case AttributeProto.INTS:
            return ArrayAttr([IntegerAttr(item, i64) for item in value])
        case AttributeProto.FLOATS:
            return ArrayAttr([FloatAttr(item, f32) for item in value])
        case AttributeProto.STRINGS:
            return ArrayAttr([StringAttr(item.decode()) for item in value])
        case AttributeProto.TENSOR:
            return TensorAttr.from_numpy(array_of(value, folder, model))
        case AttributeProto.TYPE_PROTO if (type := type_of(value)) is not None:
            return type
        case _:
            kind = AttributeProto.AttributeType.Name(proto.type)
            raise DistirError(f"{model}: attribute '{proto.name}' is of kind {kind}, which is not supported")
