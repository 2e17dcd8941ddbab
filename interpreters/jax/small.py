"""Primitives on small arrays by StableHLO's own reference interpreter, which comes with jaxlib: compiling one costs XLA
40 ms for each new shape, interpreting it 6 ms, nearly all of it the lowering. Discovery and shape arithmetic are made of small arrays.

The interpreter ends the process on an operation that it does not know, and on some cases of those that it knows, so only programs of the
operations listed here, each seen to work, are given to it, without those cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from distir.dialects.jax.library import library

LARGEST = 1 << 14
"""Elements of operands and results together; the interpreter takes about a microsecond for each."""

INTERPRETED = frozenset(
    f"stablehlo.{name}"
    for name in (
        "abs add and broadcast_in_dim cbrt ceil clamp compare concatenate constant convert convolution cosine divide "
        "dot_general dynamic_slice dynamic_update_slice exponential exponential_minus_one floor gather iota is_finite log "
        "log_plus_one logistic maximum minimum multiply negate not or pad power reduce reduce_window remainder reshape "
        "return reverse rsqrt scatter select select_and_scatter shift_left shift_right_arithmetic shift_right_logical "
        "sign sine slice sort sqrt subtract tanh transpose xor"
    ).split()
)
_PLUMBING = frozenset({"builtin.module", "func.func", "func.return", "func.call"})

_programs: dict[object, Any] = {}


def interpret(
    key: object, function: Callable[..., Any], operands: Sequence[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]] | None:
    """The results of a traceable function on these arrays, or None where the interpreter does not know an operation.

    Lowered programs are kept by `key`, which must stand for the function and the shapes and types of the operands."""
    if any(array.dtype not in _ELEMENTS or not array.size for array in operands):
        return None
    if key not in _programs:
        _programs[key] = _lower(function, operands)
    if (program := _programs[key]) is None:
        return None
    ir, stablehlo = library("jaxlib.mlir.ir"), library("jaxlib.mlir.dialects.stablehlo")
    with program.context, ir.Location.unknown():
        results = stablehlo.eval_module(program, [_dense(array) for array in operands])
        return [np.array(result) for result in results]


_ELEMENTS = frozenset(map(np.dtype, ("bool", "int8", "int16", "int32", "int64", "uint32", "float32", "float64")))


def _lower(function: Callable[..., Any], operands: Sequence[np.ndarray[Any, Any]]) -> Any:
    """The StableHLO module, or None if it has an operation that is not interpreted."""
    jax = library()
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in operands]
    if any(np.dtype(result.dtype) not in _ELEMENTS for result in jax.tree.leaves(jax.eval_shape(function, *shapes))):
        return None
    module: Any = jax.jit(function, keep_unused=True).lower(*shapes).compiler_ir("stablehlo")
    return module if _is_interpreted(module.operation) else None


def _is_interpreted(operation: Any) -> bool:
    name = operation.name
    inner = (op.operation for region in operation.regions for block in region.blocks for op in block.operations)
    if name in _UNSOUND and _UNSOUND[name](operation):
        return False
    return (name in INTERPRETED or name in _PLUMBING) and all(map(_is_interpreted, inner))


def _divides_integers(operation: Any) -> bool:
    """A division by zero ends the process; XLA's has a result."""
    ir = library("jaxlib.mlir.ir")
    return isinstance(ir.RankedTensorType(operation.results[0].type).element_type, ir.IntegerType)


def _puts_channels_first(operation: Any) -> bool:
    """A convolution whose result has channels before samples (the gradient by a kernel) ends the process where their numbers differ."""
    numbers = library("jaxlib.mlir.dialects.stablehlo").ConvDimensionNumbers(operation.attributes["dimension_numbers"])
    return numbers.output_feature_dimension < numbers.output_batch_dimension


def _orders_all_floats(operation: Any) -> bool:
    """It puts what is not a number before all others, and XLA after them."""
    return "compare_type" in operation.attributes and "TOTALORDER" in str(operation.attributes["compare_type"])


_UNSOUND: Mapping[str, Callable[[Any], bool]] = {
    "stablehlo.divide": _divides_integers,
    "stablehlo.remainder": _divides_integers,
    "stablehlo.convolution": _puts_channels_first,
    "stablehlo.compare": _orders_all_floats,
}
"""Operations that it knows, and in which cases it ends the process or gives something else than XLA."""


def _dense(array: Any) -> Any:
    """The array as an attribute of MLIR; bools one by one, since their packing differs between versions."""
    ir = library("jaxlib.mlir.ir")
    if array.dtype != np.bool_:
        return ir.DenseElementsAttr.get(np.array(array, order="C"), signless=array.dtype.kind != "u")
    type_ = ir.RankedTensorType.get(array.shape, ir.IntegerType.get_signless(1))
    return ir.DenseElementsAttr.get([ir.BoolAttr.get(bool(value)) for value in array.flat], type_)
