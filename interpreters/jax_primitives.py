"""The `jax` dialect in the domains of arrays and types: primitives are bound, and their abstract evaluation is asked.

JAX computes in the types that a program names, so 64-bit types are enabled for the time of each question."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from distir.dialects.errors import DistirError
from distir.dialects.jax import Constant, JaxOperation
from distir.dialects.onnx.tensors import numpy_dtype
from distir.frontends.jax.jaxprs import bind, parameters_of, primitive_of, shape_of
from distir.frontends.jax.trace import tensor_type

Array = np.ndarray[Any, Any]

_types: dict[object, list[TensorType[Attribute]]] = {}


@contextmanager
def wide_types() -> Generator[None]:
    """int64 and float64 are what they say."""
    import jax

    with jax.enable_x64(True):
        yield


def run_jax(op: Operation, operands: Sequence[Array], floats: np.dtype[Any] | None = None) -> list[Array]:
    """The results on these arrays, by the primitive itself.

    With `floats`, floating operands come in that type, and parameters that name a floating type mean it too, unless the
    result would have another shape (a bit cast): then the primitive runs as declared. Raises TypeError for object arrays.
    """
    if isinstance(op, Constant):
        value = op.value.to_numpy()
        return [value.astype(floats) if floats is not None and _is_floating(value.dtype) else value]
    if not isinstance(op, JaxOperation):
        raise DistirError(f"{op.name} is no operation of JAX")
    if any(value.dtype == object for value in operands):
        raise TypeError(f"{op.name} runs on numbers only")
    with wide_types():
        parameters = parameters_of(op)
        if floats is None or not any(_is_floating_type(v.type) for v in (*op.operands, *op.results)):
            return _arrays(bind(op, operands, parameters))
        wide = {name: _widened(value, floats) for name, value in parameters.items()}
        if _has_declared_shapes(op, operands, wide):
            return _arrays(bind(op, operands, wide))
        declared = [
            value.astype(numpy_dtype(cast(TensorType[Attribute], operand.type).element_type), copy=False)
            for value, operand in zip(operands, op.operands, strict=True)
        ]
        return _arrays(bind(op, declared, parameters))


def _arrays(values: Sequence[Any]) -> list[Array]:
    return [np.asarray(value) for value in values]


def _is_floating(dtype: np.dtype[Any]) -> bool:
    import jax.numpy

    return bool(jax.numpy.issubdtype(dtype, np.floating))


def _is_floating_type(type_: Attribute) -> bool:
    return _is_floating(numpy_dtype(cast(TensorType[Attribute], type_).element_type))


def _widened(parameter: Any, floats: np.dtype[Any]) -> Any:
    is_type = isinstance(parameter, np.dtype) and _is_floating(cast("np.dtype[Any]", parameter))
    return floats if is_type else parameter


def _has_declared_shapes(op: JaxOperation, operands: Sequence[Array], parameters: dict[str, Any]) -> bool:
    try:
        found = _abstract_results(op, [_shape_struct(value) for value in operands], parameters)
    except Exception:  # JAX says in many ways that a primitive does not take these types
        return False
    return [tuple(aval.shape) for aval in found] == [
        cast(TensorType[Attribute], result.type).get_shape() for result in op.results
    ]


def _shape_struct(value: Array) -> Any:
    import jax

    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def _abstract_results(op: JaxOperation, operands: Sequence[Any], parameters: dict[str, Any]) -> list[Any]:
    import jax

    primitive = primitive_of(op)
    results = jax.eval_shape(lambda *values: primitive.bind(*values, **parameters), *operands)
    return list(results) if primitive.multiple_results else [results]


def infer_jax(op: Operation, operands: Sequence[Attribute]) -> list[TensorType[Attribute]]:
    """The result types for these operand types. Raises DistirError, with JAX's reason, for what the primitive rejects.

    Answers are kept by primitive, parameters and operand types."""
    if isinstance(op, Constant):
        return [op.value.type]
    if not isinstance(op, JaxOperation):
        raise DistirError(f"{op.name} is no operation of JAX")
    key = None if op.regions else (type(op), tuple(op.properties.items()), tuple(operands))
    if key is not None and key in _types:
        return _types[key]
    with wide_types():
        try:
            found = _abstract_results(op, [shape_of(type_) for type_ in operands], parameters_of(op))
        except DistirError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise DistirError(f"{op.name} does not accept {', '.join(map(str, operands))}: {reason}") from error
        types = [tensor_type(aval, f"result {i} of {op.name}") for i, aval in enumerate(found)]
    if key is not None:
        _types[key] = types
    return types
