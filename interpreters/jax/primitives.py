"""Runs operations of the `jax` dialect by JAX itself. In go an operation and arrays, or operand types; out come
arrays, by binding the primitive, or result types, by its abstract evaluation.

JAX computes in the types that a program names, so 64-bit types are enabled for the time of each question."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.jax import Constant, JaxOperation
from distir.dialects.jax.jaxprs import (
    bind,
    counting_steps,
    in_floats,
    limited_steps,
    may_not_end,
    parameters_of,
    primitive_of,
    shape_of,
)
from distir.dialects.jax.library import library
from distir.dialects.jax.parameters import tensor_type
from distir.dialects.onnx.tensors import numpy_dtype
from distir.interpreters.jax.arrays import on_arrays
from distir.interpreters.jax.small import LARGEST, run_small
from distir.interpreters.shared import texts_of_regions

Array = np.ndarray[Any, Any]

_MOST_STEPS = 128
"""Of a `while`, where operands are drawn."""

_types: dict[object, list[TensorType[Attribute]]] = {}
_shapes: dict[object, bool] = {}
_loops: dict[object, Callable[..., list[Any]]] = {}
"""What counts the steps of a `while`, compiled."""


@contextmanager
def wide_types() -> Generator[None]:
    """int64 and float64 are what they say."""
    with library().enable_x64(True):
        yield


def run_jax(
    op: Operation, operands: Sequence[Array], floats: np.dtype[Any] | None = None, counts_steps: bool = False
) -> list[Array]:
    """The results on these arrays, by the primitive itself.

    With `floats`, floating operands come in that type (operands of float64 where the program says float32 mean it), and
    parameters that name a floating type mean it too, unless the result would have another shape (a bit cast): then the
    primitive runs as declared. Raises TypeError for object arrays, and with `counts_steps` DistirError for a `while` that takes more steps
    than discovery waits for.
    """
    if isinstance(op, Constant):
        value = op.value.to_numpy()
        return [value if floats is None else value.astype(in_floats(value.dtype, floats))]
    if not isinstance(op, JaxOperation):
        raise DistirError(f"{op.name} is no operation of JAX")
    if any(value.dtype == object for value in operands):
        raise TypeError(f"{op.name} runs on numbers only")
    if floats is None and any(
        value.dtype in (np.float64, np.complex128) and _declared(operand) != value.dtype
        for value, operand in zip(operands, op.operands, strict=True)
    ):
        floats = np.dtype(np.float64)
    run = _run_counting if counts_steps and op.primitive == "while" else _run
    with wide_types():
        if floats is None or not any(_is_floating_type(v.type) for v in (*op.operands, *op.results)):
            return run(op, operands, None)
        if _keeps_shapes(op, operands, floats):
            return run(op, operands, floats)
        declared = [value.astype(_declared(v), copy=False) for value, v in zip(operands, op.operands, strict=True)]
        return run(op, declared, None)


def _declared(value: SSAValue) -> np.dtype[Any]:
    return numpy_dtype(cast(TensorType[Attribute], value.type).element_type)


def run_jax_in_range(op: Operation, operands: Sequence[Array]) -> list[Array]:
    """As `run_jax`, also on object arrays of exact scalars, and an index outside its range is an error, where JAX clips it,
    fills or drops what it names: discovery draws indices, and learns from the error how far they go. So is a number of steps that is
    too large for a `while`, which XLA takes without end. Raises IndexError, DistirError, and TypeError for a primitive that insists on
    numbers."""
    if not isinstance(op, JaxOperation):
        return run_jax(op, operands)
    if op.primitive.startswith(("gather", "scatter")):
        _require_in_range(op, operands)
    with limited_steps(_MOST_STEPS):
        return on_arrays(op, operands, lambda arrays: run_jax(op, arrays, counts_steps=True))


def _require_in_range(op: JaxOperation, operands: Sequence[Array]) -> None:
    """Every window that an index starts lies inside the array, along every dim that is indexed."""
    numbers = parameters_of(op)["dimension_numbers"]
    whole, indices = operands[:2]
    if op.primitive == "gather":
        dims, sizes = numbers.start_index_map, parameters_of(op)["slice_sizes"]
    else:
        dims, single = (
            numbers.scatter_dims_to_operand_dims,
            {*numbers.inserted_window_dims, *numbers.operand_batching_dims},
        )
        windows = iter(operands[2].shape[d] for d in numbers.update_window_dims)
        sizes = [1 if d in single else next(windows) for d in range(whole.ndim)]
    for position, dim in enumerate(dims):
        starts = indices[..., position]
        if starts.size and (starts.min() < 0 or int(starts.max()) + sizes[dim] > whole.shape[dim]):
            raise IndexError(f"{op.name}: an index is out of range")


def _run(op: JaxOperation, operands: Sequence[Array], floats: np.dtype[Any] | None) -> list[Array]:
    parameters = parameters_of(op, floats)
    elements = sum(array.size for array in operands) + sum(_elements(result.type) for result in op.results)
    if elements <= LARGEST:
        key = (_meaning(op), floats, *((array.shape, array.dtype) for array in operands))
        if (results := run_small(key, lambda *values: bind(op, values, parameters), operands, elements)) is not None:
            return results
    return [np.asarray(value) for value in bind(op, operands, parameters)]


def _run_counting(op: JaxOperation, operands: Sequence[Array], floats: np.dtype[Any] | None) -> list[Array]:
    key = (_meaning(op), floats, *((array.shape, array.dtype) for array in operands))
    if key not in _loops:
        parameters = parameters_of(op, floats)
        if not may_not_end(parameters):
            return _run(op, operands, floats)
        counting = partial(counting_steps, primitive_of(op))
        _loops[key] = library().jit(lambda *values: counting(values, parameters, _MOST_STEPS), keep_unused=True)
    count, *results = _loops[key](*operands)
    if int(count) >= _MOST_STEPS:
        raise DistirError(f"{op.name}: takes more than {_MOST_STEPS} steps")
    return [np.asarray(value) for value in results]


def _meaning(op: JaxOperation) -> object:
    """What tells one operation from another, besides its operands' types."""
    return (type(op), tuple(op.properties.items()), texts_of_regions(op))


def _elements(type_: Attribute) -> int:
    return prod(cast(TensorType[Attribute], type_).get_shape()) if isinstance(type_, TensorType) else 0


def _is_floating(dtype: np.dtype[Any]) -> bool:
    return bool(library("jax.numpy").issubdtype(dtype, np.inexact))


def _is_floating_type(type_: Attribute) -> bool:
    return _is_floating(numpy_dtype(cast(TensorType[Attribute], type_).element_type))


def _keeps_shapes(op: JaxOperation, operands: Sequence[Array], floats: np.dtype[Any]) -> bool:
    """Whether the primitive gives the shapes that it gives of the declared types when floating types are `floats`."""
    key = (_meaning(op), floats, *((value.shape, value.dtype) for value in operands))
    if key not in _shapes:
        declared = [
            library().ShapeDtypeStruct(a.shape, _declared(v)) for a, v in zip(operands, op.operands, strict=True)
        ]
        try:
            wide, narrow = (
                [aval.shape for aval in _abstract_results(op, values, parameters_of(op, types))]
                for values, types in ((operands, floats), (declared, None))
            )
            _shapes[key] = wide == narrow
        except Exception:  # JAX says in many ways that a primitive does not take these types
            _shapes[key] = False
    return _shapes[key]


def _abstract_results(op: JaxOperation, operands: Sequence[Any], parameters: dict[str, Any]) -> list[Any]:
    """Abstract results for operands with a shape and a dtype: asked of the primitive's own rule, which takes a tenth of the
    time of a trace, where it has one."""
    jax, primitive = library(), primitive_of(op)
    avals = [jax.core.ShapedArray(value.shape, np.dtype(value.dtype)) for value in operands]
    try:
        results, _ = primitive.abstract_eval(*avals, **parameters)
    except NotImplementedError:
        results = jax.eval_shape(lambda *values: primitive.bind(*values, **parameters), *avals)
    return list(results) if primitive.multiple_results else [results]


def infer_jax(op: Operation, operands: Sequence[Attribute]) -> list[TensorType[Attribute]]:
    """The result types for these operand types. Raises DistirError, with JAX's reason, for what the primitive rejects.

    Answers are kept by primitive, parameters and operand types."""
    if isinstance(op, Constant):
        return [op.value.type]
    if not isinstance(op, JaxOperation):
        raise DistirError(f"{op.name} is no operation of JAX")
    key = (_meaning(op), tuple(operands))
    if key in _types:
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
    _types[key] = types
    return types
