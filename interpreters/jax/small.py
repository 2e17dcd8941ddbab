"""Runs primitives on small arrays, by StableHLO's own reference interpreter, which comes with jaxlib. In go a
traceable function and arrays; out come arrays. Compiling one costs XLA 40 ms for each new shape, interpreting it 6
ms, nearly all of it the lowering. Discovery and shape arithmetic are made of small arrays. Larger ones, and
operations with much work for each element (a convolution), XLA compiles with all optimizations left out, which takes
a quarter of the time.

The interpreter ends the process on an unknown operation, and on some cases of known ones. So it gets only programs
of the operations listed here, each seen to work, without those cases."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distir.dialects.jax.library import library

_Array = np.ndarray[Any, Any]

LARGEST = 1 << 17
"""Elements of operands and results together."""
_LARGEST_INTERPRETED = 1 << 14
"""Such elements; the interpreter takes about a microsecond for each."""
_CERTAINLY_LITTLE = 1 << 10
"""Such elements, with which there is no work that takes it long."""
_MOST_INTERPRETED, _MOST_WORK = 1 << 14, 1 << 21
"""Floating-point operations that are interpreted, in one to five microseconds each, and that are run without optimizations."""

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

_COMPILING_SECONDS = 0.04
"""What XLA takes to compile a small program, in CPU seconds."""

_programs: dict[object, Callable[[Sequence[_Array]], list[_Array]] | None] = {}


def run_small(
    key: object, function: Callable[..., Any], operands: Sequence[_Array], elements: int
) -> list[_Array] | None:
    """The results of a traceable function on these arrays, so many elements with the results; None where neither the interpreter nor
    compiling it here is of use.

    Programs are kept by `key`, which must stand for the function and the shapes and types of the operands."""
    if any(array.dtype not in _ELEMENTS or not array.size for array in operands):
        return None
    if key not in _programs:
        _programs[key] = _program(function, operands, elements)
    return None if (program := _programs[key]) is None else program(operands)


_ELEMENTS = frozenset(map(np.dtype, ("bool", "int8", "int16", "int32", "int64", "uint32", "float32", "float64")))


def _program(
    function: Callable[..., Any], operands: Sequence[_Array], elements: int
) -> Callable[[Sequence[_Array]], list[_Array]] | None:
    """What runs the function, or None if it has an operation that is not interpreted, or so much work that it should be optimized."""
    jax = library()
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in operands]
    if any(np.dtype(result.dtype) not in _ELEMENTS for result in jax.tree.leaves(jax.eval_shape(function, *shapes))):
        return None
    lowered: Any = jax.jit(function, keep_unused=True).lower(*shapes)
    if not _is_interpreted((module := lowered.compiler_ir("stablehlo")).operation):
        return None
    work = 0 if elements <= _CERTAINLY_LITTLE else (lowered.cost_analysis() or {}).get("flops", 0)
    if elements <= _LARGEST_INTERPRETED and work <= _MOST_INTERPRETED:
        return _Interpreted(lowered, module)
    return None if work > _MOST_WORK else _compiled(lowered)


@dataclass
class _Interpreted:
    """A program that is interpreted until that has taken as long as compiling it: a step of a recurrence comes again and again."""

    lowered: Any
    module: Any
    seconds: float = 0.0
    compiled: Callable[[Sequence[_Array]], list[_Array]] | None = None

    def __call__(self, operands: Sequence[_Array]) -> list[_Array]:
        if self.compiled is None and self.seconds > _COMPILING_SECONDS:
            self.compiled, self.lowered, self.module = _compiled(self.lowered), None, None
        if self.compiled is not None:
            return self.compiled(operands)
        start = time.process_time()
        results = _interpret(self.module, operands)
        self.seconds += time.process_time() - start
        return results


def _compiled(lowered: Any) -> Callable[[Sequence[_Array]], list[_Array]]:
    program, tree = lowered.compile({"xla_backend_optimization_level": 0}), library().tree
    return lambda arrays: [np.array(result) for result in tree.leaves(program(*arrays))]


def _interpret(module: Any, operands: Sequence[_Array]) -> list[_Array]:
    ir, stablehlo = library("jaxlib.mlir.ir"), library("jaxlib.mlir.dialects.stablehlo")
    with module.context, ir.Location.unknown():
        results = stablehlo.eval_module(module, [_dense(array) for array in operands])
        return [np.array(result) for result in results]


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
