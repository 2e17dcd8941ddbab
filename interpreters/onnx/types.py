"""Infers the result types of an `onnx` operation. In go the operation and its operands, as arrays or types; out come
result types, by onnx's own inference.

Answers are kept by operator, attributes, operand types and the values of small operands.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
import onnx
import onnx.shape_inference
from onnx import helper, numpy_helper
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, NoneType, TensorType, UnrankedTensorType
from xdsl.ir import Attribute, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.onnx import OnnxOperation
from distir.dialects.onnx.apart import crashes, is_safe
from distir.dialects.onnx.protos import node_proto, type_of, type_proto, with_defaults
from distir.dialects.onnx.types import ELEMENT_OF_NUMPY_NAME
from distir.interpreters.onnx.extents import disagreement

Array = np.ndarray[Any, Any]
Operand: TypeAlias = Array | Attribute | None

LARGEST_KEY = 1024
"""Operands of more elements are not worth comparing: their answers are not kept."""

_answers: dict[object, list[Attribute | None]] = {}
_schemas: dict[type, onnx.defs.OpSchema] = {}
_survived: set[object] = set()
"""Attributes and ranks that no inference of shapes has crashed on."""


def infer_types(op: OnnxOperation, operands: Sequence[Operand]) -> list[Attribute | None]:
    """A plain type per result (None for an absent one) for these operands, each an array, a type or absent.

    Raises DistirError with onnx's reason when the operands do not fit the operator.
    """
    key = _key(op, operands)
    if key is not None and (answer := _answers.get(key)) is not None:
        return answer
    answer = _infer(op, operands)
    if key is not None:
        _answers[key] = answer
    return answer


def _key(op: OnnxOperation, operands: Sequence[Operand]) -> object:
    parts: list[object] = [type(op), tuple(op.properties.items())]
    parts += [_without_shape(result.type) for result in op.results]
    for value in operands:
        if isinstance(value, np.ndarray):
            if value.size > LARGEST_KEY or value.dtype.kind == "O":
                return None
            parts.append((value.dtype.name, value.shape, value.tobytes()))
        else:
            parts.append(value)
    return tuple(parts)


def _without_shape(type: Attribute) -> Attribute:
    return cast(TensorType[Attribute], type).element_type if isinstance(type, TensorType) else type


def _infer(op: OnnxOperation, operands: Sequence[Operand]) -> list[Attribute | None]:
    def infer() -> dict[SSAValue, Attribute | None]:
        version = (
            op.schema.since_version - op.schema.deprecated
        )  # what came to be deprecated has types in the version before
        if (schema := _schemas.get(type(op))) is None:
            schema = onnx.defs.get_schema(op.schema.name, version, op.schema.domain)
            _schemas[type(op)] = schema
        names = {value: f"v{i}" for i, value in enumerate(dict.fromkeys((*op.operands, *op.results)))}
        types: dict[str, onnx.TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for value, known in zip(op.operands, operands, strict=True):
            if isinstance(known, np.ndarray):
                element = ELEMENT_OF_NUMPY_NAME[known.dtype.name].type
                types[names[value]] = type_proto(TensorType(element, known.shape))
                data[names[value]] = numpy_helper.from_array(known)
            elif known is not None:
                types[names[value]] = type_proto(known)
        opsets = [helper.make_opsetid(op.schema.domain, version)]
        node = node_proto(op, names.__getitem__)
        with with_defaults([node], {op.schema.domain: version}):
            found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=opsets)
        return {value: type_of(found[name]) for value, name in names.items() if name in found}

    _try_apart(op, operands, infer)
    if (reason := disagreement(op, *_extents(operands))) is not None:
        raise _refusal(op, operands, reason)
    try:
        inferred = infer()
    except onnx.shape_inference.InferenceError as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("[ShapeInferenceError] ")
        raise _refusal(op, operands, reason) from error
    unsaid = _UNSAID.get(op.schema.name) if op.schema.domain == "ai.onnx.ml" else None
    shapes, _ = _extents(operands)
    if unsaid is not None and all(shape is not None and len(shape) == 2 for shape in shapes):
        columns = unsaid(op, [shape[1] for shape in shapes if shape])
        element = cast(TensorType[Attribute] | UnrankedTensorType[Attribute], op.results[0].type).element_type
        return [TensorType(element, [next(shape[0] for shape in shapes if shape), columns])]
    return [None if isinstance(r.type, NoneType) else _type(inferred.get(r), r.type) for r in op.results]


_UNSAID: Mapping[str, Callable[[OnnxOperation, Sequence[int]], int]] = {
    "FeatureVectorizer": lambda op, columns: sum(_integers(op.properties["inputdimensions"])),
    "Imputer": lambda op, columns: columns[0],
    "LinearRegressor": lambda op, columns: _integers(op.properties["targets"])[0] if "targets" in op.properties else 1,
    "Normalizer": lambda op, columns: columns[0],
    "SVMRegressor": lambda op, columns: 1,
    "Scaler": lambda op, columns: columns[0],
}
"""Operators of ai.onnx.ml for which onnx has no inference: how many columns they make of matrices. Rows stay."""


def _try_apart(op: OnnxOperation, operands: Sequence[Operand], infer: Callable[[], object]) -> None:
    """Raises DistirError if inference ends its process, tried in a fork for an integer attribute that no dim or count is: onnx does not
    check all of them before it takes them for positions.

    Once for equal attributes and ranks."""
    ranks = [len(known.shape) if isinstance(known, np.ndarray) else _rank(known) for known in operands]
    least = -max(ranks, default=0)
    numbers = {
        name: number
        for name, each in op.properties.items()
        for number in _integers(each)
        if not is_safe(number, least, len(op.results) if isinstance(each, IntegerAttr) else 1)
    }
    if not numbers or (key := (type(op), tuple(op.properties.items()), tuple(ranks))) in _survived:
        return
    if crashes(infer):
        stated = ", ".join(f"{name} = {number}" for name, number in numbers.items())
        raise DistirError(f"{op.name} does not accept {stated}: onnx's inference of shapes crashes")
    _survived.add(key)


def _refusal(op: OnnxOperation, operands: Sequence[Operand], reason: str) -> DistirError:
    return DistirError(f"{op.name} does not accept {', '.join(map(_described, operands))}: {reason}")


def _extents(operands: Sequence[Operand]) -> tuple[list[tuple[int, ...] | None], list[tuple[int, ...] | None]]:
    """The shapes of operands, and the values of those that are vectors of known integers."""
    vectors = [isinstance(each, np.ndarray) and each.ndim == 1 and each.dtype.kind in "iu" for each in operands]
    values = [tuple(cast(Array, v).tolist()) if is_one else None for v, is_one in zip(operands, vectors, strict=True)]
    return [_shape(value) for value in operands], values


def _shape(value: Operand) -> tuple[int, ...] | None:
    """None of an absent operand, one of unknown rank, and one that is no tensor."""
    if isinstance(value, np.ndarray):
        return value.shape
    return value.get_shape() if isinstance(value, TensorType) else None


def _rank(type: Attribute | None) -> int:
    return type.get_num_dims() if isinstance(type, TensorType) else 0


def _integers(attribute: Attribute) -> list[int]:
    entries = cast(ArrayAttr[Attribute], attribute).data if isinstance(attribute, ArrayAttr) else (attribute,)
    return [entry.value.data for entry in entries if isinstance(entry, IntegerAttr)]


def _type(inferred: Attribute | None, declared: Attribute) -> Attribute:
    """The inferred type; where onnx infers nothing, only the element type is sure."""
    if inferred is not None:
        return inferred
    return UnrankedTensorType(_without_shape(declared)) if isinstance(declared, TensorType) else declared


def _described(value: Operand) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}" if value.size > 8 else str(value.tolist())
    return "none" if value is None else _text(value)


@lru_cache(4096)
def _text(type: Attribute) -> str:
    """Of a type that many refusals name."""
    return str(type)
