"""Runs one operation of the `onnx` dialect. In go the operation and arrays; out come arrays, by the reference
evaluator of the onnx package.

Executors call `run_onnx` for each operation. Evaluators are built once per operator, attributes and element types, and
kept: building one takes longer than most small operations.

Three kinds of number go through it: those of the declared types; a wider float in place of every declared one (programs
are verified in float64); and object arrays of exact scalars, which are passed to numpy as they are (rules are
discovered so).
"""

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from xdsl.dialects.builtin import NoneType, TensorType, UnrankedTensorType
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.onnx import SCHEMAS, Constant, NoValue, OnnxOperation, numpy_dtype
from distir.dialects.onnx.protos import node_proto, type_proto
from distir.dialects.onnx.types import ELEMENT_OF_NUMPY_NAME, ELEMENT_OF_TYPE
from distir.interpreters.onnx.bodies import has_bodies, run_with_bodies
from distir.interpreters.onnx.exact import run_exactly
from distir.interpreters.onnx.kernels import REPLACED

Array = np.ndarray[Any, Any]

OPSETS = [
    helper.make_opsetid(domain, max(s.since_version for s in SCHEMAS.values() if s.domain == domain))
    for domain in sorted({schema.domain for schema in SCHEMAS.values()})
]


def run_onnx(
    op: Operation, operands: Sequence[Array | None], floats: np.dtype[Any] | None = None
) -> list[Array | None]:
    """The results of one operation on arrays (None for an absent operand or result).

    The operands of an operation with graphs inside are followed by the values that those use from outside.

    A result has the declared element type of the operation's result. With `floats`, or when a floating-point operand
    has another type than the operation declares, every declared floating-point type stands for that one instead, casts
    included. With an operand of objects, results are what numpy gives.

    Raises DistirError when the operator has no reference implementation, or it fails.
    """
    if isinstance(op, NoValue):
        return [None]
    if isinstance(op, Constant):
        value = op.value.to_numpy()
        if floats is not None and value.dtype.kind == "c":  # of another dialect's operators
            return [value.astype(np.result_type(floats, np.complex64))]
        return [value if floats is None or not _is_floating(value.dtype) else value.astype(floats)]
    assert isinstance(op, OnnxOperation)
    if has_bodies(op):
        return run_with_bodies(op, operands, lambda inner, values: run_onnx(inner, values, floats))
    operands = [np.asarray(value) if isinstance(value, np.generic) else value for value in operands]
    exact = any(_kind(value) == "O" for value in operands) and not _is_string(op)
    floats = floats or (None if exact else _wider_floats(op, operands))
    try:
        names = _names(op.operands)
        feeds = dict(zip(names, _of_one_kind(op, operands, exact, floats), strict=True))
        feeds.pop("", None)
        with np.errstate(all="ignore"):
            values = iter(_evaluated(op, feeds, floats, exact))
    except DistirError:
        raise
    except Exception as error:
        message = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DistirError(f"{op.name} cannot be evaluated on {_described(operands)}: {message}") from error
    results: list[Array | None] = []
    for result in op.results:
        value = None if isinstance(result.type, NoneType) else next(values)
        results.append(value if exact or value is None else _typed(value, result.type, floats))
    return results


def _evaluated(
    op: OnnxOperation, feeds: dict[str, Array | None], floats: np.dtype[Any] | None, exact: bool
) -> list[Any]:
    def run(floats: np.dtype[Any] | None) -> Callable[[Any], list[Any]]:
        return lambda feeds: cast(list[Any], _evaluator(op, floats).run(None, feeds))

    if not exact or op.regions or not all(isinstance(value, np.ndarray) for value in feeds.values()):
        return run(floats)(feeds)
    arrays = cast(dict[str, Array], feeds)
    return run_exactly(_key(op, floats), arrays, run(floats), run(np.dtype(np.float64)))


def _of_one_kind(
    op: Operation, operands: Sequence[Array | None], exact: bool, floats: np.dtype[Any] | None
) -> list[Array | None]:
    """The operands with a constant among them brought to the kind of number that the others are."""
    objects = {
        _element(operand.type)
        for operand, value in zip(op.operands, operands, strict=True)
        if exact and _kind(value) == "O"
    }
    brought = list(operands)
    for i, (operand, value) in enumerate(zip(op.operands, operands, strict=True)):
        if not isinstance(value, np.ndarray):
            continue
        if _element(operand.type) in objects:
            brought[i] = value.astype(object, copy=False)
        elif floats is not None and _is_floating(value.dtype):
            brought[i] = value.astype(floats, copy=False)
    return brought


def _typed(value: Any, type: Attribute, floats: np.dtype[Any] | None) -> Any:
    """The value as an array of the declared element type, or of `floats` in its place."""
    if not isinstance(type, TensorType | UnrankedTensorType):
        return value
    dtype = numpy_dtype(type.element_type)
    if floats is not None and _is_floating(dtype):
        dtype = floats
    return np.asarray(value).astype(dtype, copy=False)


def _kind(value: object) -> str:
    """numpy's kind of an array; sequences and absent operands have none."""
    return value.dtype.kind if isinstance(value, np.ndarray) else ""


def _is_floating(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or "float" in dtype.name


def _is_string(op: Operation) -> bool:
    """Whether object arrays are tensors of strings here."""
    return any("onnx.String" in str(value.type) for value in (*op.operands, *op.results))


def _wider_floats(op: Operation, operands: Sequence[Array | None]) -> np.dtype[Any] | None:
    """The floating-point type that the operands have in place of the declared one."""
    for operand, value in zip(op.operands, operands, strict=True):
        if isinstance(value, np.ndarray) and _kind(value) == "f" and isinstance(operand.type, TensorType):
            declared = numpy_dtype(cast(TensorType[Attribute], operand.type).element_type)
            if _is_floating(declared) and declared != value.dtype:
                return value.dtype
    return None


def _names(values: Sequence[SSAValue], prefix: str = "i") -> list[str]:
    return ["" if isinstance(v.type, NoneType) else f"{prefix}{n}" for n, v in enumerate(values)]


# Evaluators, by what the evaluation depends on.

_evaluators: dict[Hashable, ReferenceEvaluator] = {}


def _evaluator(op: OnnxOperation, floats: np.dtype[Any] | None) -> ReferenceEvaluator:
    if op.regions:
        return _new_evaluator(op, floats)
    key = _key(op, floats)
    evaluator = _evaluators.get(key)
    if evaluator is None:
        evaluator = _evaluators[key] = _new_evaluator(op, floats)
    return evaluator


def _key(op: OnnxOperation, floats: np.dtype[Any] | None) -> Hashable:
    """What the evaluator of an operation without graphs depends on."""
    return (
        type(op),
        tuple(op.properties.items()),
        tuple(_element(value.type) for value in op.operands),
        tuple(isinstance(value.type, NoneType) for value in op.results),
        floats,
    )


def _element(type: Attribute) -> Attribute:
    return cast(Attribute, type.element_type) if isinstance(type, TensorType) else type


def _new_evaluator(op: OnnxOperation, floats: np.dtype[Any] | None) -> ReferenceEvaluator:
    """An evaluator of the model with this one node."""
    names = dict(zip(op.operands, _names(op.operands), strict=True))
    # An operand that is given twice has two positions but one value: every position has its own name in the node.
    node = node_proto(op, _name_inside(op, names))
    del node.input[:], node.output[:]
    node.input.extend(_names(op.operands))
    while node.input and not node.input[-1]:
        node.input.pop()
    node.output.extend(_names(op.results, "o"))
    while node.output and not node.output[-1]:
        node.output.pop()
    if floats is not None:
        _widen_casts(op, node, floats)
    inputs = [
        helper.make_value_info(name, _without_shape(value.type, floats))
        for name, value in zip(_names(op.operands), op.operands, strict=True)
        if name
    ]
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name]
    graph = helper.make_graph([node], "op", inputs, outputs)
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=OPSETS), new_ops=REPLACED)


def _name_inside(op: OnnxOperation, names: dict[SSAValue, str]) -> Any:
    """Names for values in the graphs of the operation; values from around it are not visible to one node."""
    inside = {id(value) for inner in op.walk() if inner is not op for value in inner.results}
    inside |= {id(arg) for region in op.regions for block in region.blocks for arg in block.args}

    @cache
    def name_of(value: SSAValue) -> str:
        if value in names or value.owner is op:
            return names.get(value, "")
        if id(value) not in inside:
            raise DistirError(f"{op.name} cannot be evaluated alone: its graph uses values from outside")
        return f"v{len(names) + name_of.cache_info().misses}"

    return name_of


def _without_shape(type: Attribute, floats: np.dtype[Any] | None) -> onnx.TypeProto:
    if isinstance(type, TensorType):
        element: Attribute = type.element_type
        if floats is not None and _is_floating(numpy_dtype(element)):
            element = ELEMENT_OF_NUMPY_NAME[floats.name].type
        return type_proto(UnrankedTensorType(element))
    return type_proto(type)


def _widen_casts(op: OnnxOperation, node: onnx.NodeProto, floats: np.dtype[Any]) -> None:
    """Attributes that are floating-point types become the type that stands for all of them."""
    for attribute in node.attribute:
        value = op.properties.get(attribute.name)
        if value in ELEMENT_OF_TYPE and _is_floating(numpy_dtype(value)):
            attribute.i = onnx.TensorProto.DataType.Value(ELEMENT_OF_NUMPY_NAME[floats.name].onnx_name.upper())


def _described(operands: Sequence[Array | None]) -> str:
    texts = (f"{v.dtype}{list(v.shape)}" if isinstance(v, np.ndarray) else type(v).__name__ for v in operands)
    return ", ".join(texts) or "nothing"
