"""The `onnx` dialect: every operator of ONNX, generated from the schemas of onnx 1.23.2 (opset 28).

Text is compatible with onnx-mlir for programs converted to that opset. `OPERATORS["MatMul"]` is the class of
`onnx.MatMul`; `OPERATORS["MatMul"].schema` tells its operands, results and attributes. Importing this imports neither
onnx nor numpy.
"""

from xdsl.ir import Dialect

from distir.dialects.onnx.operators import OPERATORS
from distir.dialects.onnx.schemas import OPSET_VERSION, SCHEMAS, AttributeSchema, OperatorSchema, Parameter
from distir.dialects.onnx.structure import Constant, NoValue, OnnxOperation, Yield
from distir.dialects.onnx.tensors import TensorAttr, numpy_dtype, without_encoding
from distir.dialects.onnx.types import MapType, OptionalType, SequenceType, StringType

__all__ = [
    "OPERATORS",
    "OPSET_VERSION",
    "SCHEMAS",
    "AttributeSchema",
    "Constant",
    "MapType",
    "NoValue",
    "Onnx",
    "OnnxOperation",
    "OperatorSchema",
    "OptionalType",
    "Parameter",
    "SequenceType",
    "StringType",
    "TensorAttr",
    "Yield",
    "numpy_dtype",
    "without_encoding",
]

Onnx = Dialect(
    "onnx",
    [*OPERATORS.values(), NoValue, Yield],
    [TensorAttr, StringType, SequenceType, OptionalType, MapType],
)
