"""Primitives of JAX as numpy functions, for discovery. In go an operation and arrays: object arrays of exact
scalars, which XLA does not take, or doubles, without XLA's 30 ms for each new shape. Out come its results. Written
here are the primitives that rules need exactly: the ring, the order, reductions, contractions and views. For the
others, JAX's results show which move elements and which are elementwise. Discovery asks JAX itself for types first,
so operands fit here; and rules found here are executed with JAX's own primitives
(`tests/unit/rules/test_soundness.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.ir import Operation

from distir.dialects.jax import JaxOperation
from distir.dialects.jax.jaxprs import bind, parameters_of
from distir.interpreters.exact.arrays import moved, opaque, scalars
from distir.interpreters.exact.scalars import PRIME, Scalar

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]
Function = Callable[..., Any]


def on_arrays(
    op: JaxOperation, operands: Sequence[Array], run: Callable[[Sequence[Array]], list[Array]]
) -> list[Array]:
    """The results on arrays among which are object arrays of exact scalars, or doubles; `run` is the primitive on numbers.

    A result of fewer bits than every operand has been rounded, which does not commute with addition. Raises TypeError for a
    primitive that needs machine numbers."""
    exact = any(array.dtype == object for array in operands)
    floating = [isinstance(_element(value), AnyFloat) for value in op.operands]
    if not any(floating):
        return run(operands)
    function = TABLE.get(op.primitive)
    if not exact:
        return run(operands) if function is None else _listed(function(parameters_of(op), *operands))
    arrays = [scalars(array) if is_float else array for array, is_float in zip(operands, floating, strict=True)]
    if function is not None:
        results = _listed(function(parameters_of(op), *arrays))
    else:
        results = _unlisted(op, arrays, floating, run)
    bits = min(
        cast(AnyFloat, _element(v)).bitwidth for v, is_float in zip(op.operands, floating, strict=True) if is_float
    )
    return [
        opaque(f"round to {element}", array)
        if isinstance(element := _element(result), AnyFloat) and element.bitwidth < bits
        else array
        for array, result in zip(results, op.results, strict=True)
    ]


def _element(value: Any) -> Any:
    return value.type.element_type if isinstance(value.type, TensorType) else None


def _listed(results: Any) -> list[Array]:
    return [np.asarray(each) for each in (cast(list[Any], results) if isinstance(results, list) else [results])]


def _unlisted(
    op: JaxOperation, arrays: Sequence[Array], floating: Sequence[bool], run: Callable[[Sequence[Array]], list[Array]]
) -> list[Array]:
    """What is elementwise in floats gives a function of its elements of which nothing is known; what moves elements moves
    these."""
    if all(floating) and len(op.results) == 1 and _is_elementwise(op):
        alike = [a for a in arrays if a.shape] or list(arrays)
        return [opaque(f"{op.primitive} {_words(op)}", *np.broadcast_arrays(*arrays)).reshape(_joint_shape(alike))]
    places = [i for i, is_float in enumerate(floating) if is_float]

    def run_on(doubles: Sequence[Array]) -> list[Array]:
        given = list(arrays)
        for place, array in zip(places, doubles, strict=True):
            given[place] = array
        return run(given)

    found = moved([arrays[i] for i in places], run_on)
    if found is None or any(array is None for array in found):
        raise TypeError(f"{op.name} needs machine numbers")
    return [array for array in found if array is not None]


def _joint_shape(arrays: Sequence[Array]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(array.shape for array in arrays))


def _words(op: Operation) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(op.properties.items()))


_elementwise: dict[object, bool] = {}


def _is_elementwise(op: JaxOperation) -> bool:
    """Whether the primitive, with these parameters, takes arrays of any one shape and gives at each place a function of the
    elements there, the same at all places."""
    key = op.primitive, _words(op), len(op.operands)
    if key not in _elementwise:
        _elementwise[key] = _seen_to_be_elementwise(op)
    return _elementwise[key]


def _seen_to_be_elementwise(op: JaxOperation) -> bool:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.1, 0.9, (2, 3)).astype(np.float32) for _ in op.operands]
    order, changed = rng.permutation(6), [array.copy() for array in arrays]
    for array in changed:
        array[1, 1] = 0.95
    try:
        whole, permuted, other = (
            np.asarray(bind(op, given)[0])
            for given in (arrays, [a.reshape(-1)[order].reshape(2, 3) for a in arrays], changed)
        )
    except Exception:  # its parameters name a shape, or axes
        return False
    if whole.shape != (2, 3) or whole.dtype.kind != "f":
        return False
    same = (whole == other).reshape(-1)
    return np.array_equal(whole.reshape(-1)[order], permuted.reshape(-1)) and bool(np.delete(same, 4).all())


# --- the table --------------------------------------------------------------------------------------------------------


def _real(function: Function) -> Function:
    """Of numbers that are not machine integers, on which JAX means something else."""

    def checked(parameters: Parameters, *arrays: Array) -> Any:
        if any(array.dtype.kind in "iu" for array in arrays):
            raise TypeError("integers")
        return function(*arrays)

    return checked


def _on_values(function: Function) -> Function:
    return lambda parameters, *arrays: function(*arrays)


_divide = np.frompyfunc(lambda a, b: Scalar.of(a) / b, 2, 1)
_differ = np.frompyfunc(lambda a, b: not (Scalar.of(a) == b), 2, 1)


def _div(a: Array, b: Array) -> Any:
    return _divide(a, b) if object in (a.dtype, b.dtype) else a / b


def _ne(a: Array, b: Array) -> Any:
    return np.asarray(_differ(a, b)).astype(np.bool_) if object in (a.dtype, b.dtype) else a != b


def _compared(function: Function) -> Function:
    return lambda parameters, a, b: np.asarray(function(a, b)).astype(np.bool_)


def _integer_pow(parameters: Parameters, array: Array) -> Any:
    return array ** parameters["y"]


def _select(parameters: Parameters, which: Array, *cases: Array) -> Any:
    return np.select([which == i for i in range(len(cases))], list(cases)) if which.size else cases[0]


def _convert(parameters: Parameters, array: Array) -> Any:
    """What rounds is seen by the types of operand and result."""
    element = np.dtype(parameters["new_dtype"])
    if element.kind not in "iub":
        return array
    if array.dtype == object:
        raise TypeError("a cast of exact scalars to integers")
    if element.kind == "b":
        return array != 0
    limits, whole = np.iinfo(element), np.trunc(np.nan_to_num(array))  # as XLA: what is no number is 0
    inside = np.where((whole >= limits.min) & (whole < limits.max), whole, limits.min).astype(element)
    return np.where(whole < limits.max, inside, limits.max)


def _reduced(ufunc: np.ufunc) -> Function:
    def function(parameters: Parameters, array: Array) -> Any:
        return ufunc.reduce(array, axis=tuple(parameters["axes"]))

    return function


def _cumulated(ufunc: np.ufunc) -> Function:
    def function(parameters: Parameters, array: Array) -> Any:
        axis = parameters["axis"]
        if parameters["reverse"]:
            return np.flip(ufunc.accumulate(np.flip(array, axis), axis=axis), axis)
        return ufunc.accumulate(array, axis=axis)

    return function


def _broadcast_in_dim(parameters: Parameters, array: Array) -> Any:
    shape, dims = parameters["shape"], parameters["broadcast_dimensions"]
    extents = dict(zip(dims, array.shape, strict=True))
    return np.broadcast_to(array.reshape([extents.get(d, 1) for d in range(len(shape))]), shape)


def _reshape(parameters: Parameters, array: Array) -> Any:
    dims = parameters["dimensions"]
    return (array if dims is None else array.transpose(dims)).reshape(parameters["new_sizes"])


def _slice(parameters: Parameters, array: Array) -> Any:
    starts, stops = parameters["start_indices"], parameters["limit_indices"]
    strides = parameters["strides"] or (1,) * array.ndim
    return array[tuple(map(slice, starts, stops, strides))]


def _pad(parameters: Parameters, array: Array, value: Array) -> Any:
    """Inner padding, and negative padding, which removes."""
    config = parameters["padding_config"]
    inner = [n + max(n - 1, 0) * between for n, (_, _, between) in zip(array.shape, config, strict=True)]
    result = np.full(
        [n + max(low, 0) + max(high, 0) for n, (low, high, _) in zip(inner, config, strict=True)],
        value[()],
        array.dtype,
    )
    places = tuple(
        slice(max(low, 0), max(low, 0) + n, between + 1) for n, (low, _, between) in zip(inner, config, strict=True)
    )
    result[places] = array
    kept = tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high, _) in zip(result.shape, config, strict=True))
    return result[kept]


def _split(parameters: Parameters, array: Array) -> list[Array]:
    bounds = np.cumsum(parameters["sizes"])[:-1]
    return list(np.split(array, bounds, parameters["axis"]))


def _dot_general(parameters: Parameters, a: Array, b: Array) -> Any:
    (a_summed, b_summed), (a_batch, b_batch) = parameters["dimension_numbers"]
    a_free = [d for d in range(a.ndim) if d not in (*a_summed, *a_batch)]
    b_free = [d for d in range(b.ndim) if d not in (*b_summed, *b_batch)]
    batch, rows, columns = ([x.shape[d] for d in dims] for x, dims in ((a, a_batch), (a, a_free), (b, b_free)))
    summed = math.prod(a.shape[d] for d in a_summed)
    left = a.transpose([*a_batch, *a_free, *a_summed]).reshape(math.prod(batch), math.prod(rows), summed)
    right = b.transpose([*b_batch, *b_summed, *b_free]).reshape(math.prod(batch), summed, math.prod(columns))
    return _product(left, right).reshape(*batch, *rows, *columns)


def _convolution(parameters: Parameters, x: Array, w: Array) -> Any:
    """Products of the windows of a group with its kernels. Groups of channels and of samples have channels of the result each."""
    numbers, batches = parameters["dimension_numbers"], parameters["batch_group_count"]
    x, w = x.transpose(numbers.lhs_spec), w.transpose(numbers.rhs_spec)
    between = [(*sides, n - 1) for sides, n in zip(parameters["padding"], parameters["lhs_dilation"], strict=True)]
    x = _pad({"padding_config": [(0, 0, 0), (0, 0, 0), *between]}, x, np.zeros((), x.dtype))
    samples, kernel, groups = x.shape[0] // batches, w.shape[2:], batches * parameters["feature_group_count"]
    if batches > 1:
        x = x.reshape(groups, samples, *x.shape[1:])
    else:
        x = x.reshape(samples, groups, w.shape[1], *x.shape[2:]).swapaxes(0, 1)
    strides, dilations = parameters["window_strides"], parameters["rhs_dilation"]
    ends = [n - (k - 1) * d for n, k, d in zip(x.shape[3:], kernel, dilations, strict=True)]
    counts = [max(-(-end // stride), 0) for end, stride in zip(ends, strides, strict=True)]
    windows = [
        x[
            (
                ...,
                *(
                    slice(p * d, p * d + max(end, 0), s)
                    for p, d, end, s in zip(place, dilations, ends, strides, strict=True)
                ),
            )
        ]
        for place in np.ndindex(*kernel)
    ]
    rows = np.moveaxis(
        np.stack(windows, 3) if windows else np.zeros((*x.shape[:3], 0, *counts), x.dtype), (2, 3), (-2, -1)
    )
    taken, given = w.shape[1] * math.prod(kernel), w.shape[0] // groups
    left = rows.reshape(groups, samples * math.prod(counts), taken)
    right = w.reshape(groups, given, taken).swapaxes(1, 2)
    made = _product(left, right).reshape(groups, samples, *counts, given)
    made = np.moveaxis(made, (1, 0, -1), (0, 1, 2)).reshape(samples, groups * given, *counts)
    return made.transpose(np.argsort(numbers.out_spec))


def _product(a: Array, b: Array) -> Array:
    """Matrix products; those of exact scalars in Python's integers."""
    if a.dtype != object and b.dtype != object:
        return a @ b
    product = np.matmul(_integers(a), _integers(b))
    return np.asarray(np.frompyfunc(lambda number: Scalar(number % PRIME), 1, 1)(product), object)


def _integers(array: Array) -> Array:
    return np.asarray(np.frompyfunc(lambda number: Scalar.of(number).value, 1, 1)(array), object)


TABLE: dict[str, Function] = {
    **{name: _on_values(np.add) for name in ("add", "add_any")},
    "sub": _on_values(np.subtract),
    "mul": _on_values(np.multiply),
    "neg": _on_values(np.negative),
    "max": _on_values(np.maximum),
    "min": _on_values(np.minimum),
    "div": _real(_div),
    "integer_pow": _integer_pow,
    "square": _on_values(lambda a: a * a),
    "eq": _compared(np.equal),
    "ne": _real(_ne),
    "lt": _compared(np.less),
    "le": _compared(np.less_equal),
    "gt": _compared(np.greater),
    "ge": _compared(np.greater_equal),
    "select_n": _select,
    "convert_element_type": _convert,
    **{name: _on_values(lambda a: a) for name in ("copy", "copy_p", "stop_gradient")},
    "reduce_sum": _reduced(np.add),
    "reduce_prod": _reduced(np.multiply),
    "reduce_max": _reduced(np.maximum),
    "reduce_min": _reduced(np.minimum),
    "cumsum": _cumulated(np.add),
    "cumprod": _cumulated(np.multiply),
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "transpose": lambda parameters, a: a.transpose(parameters["permutation"]),
    "squeeze": lambda parameters, a: a.squeeze(tuple(parameters["dimensions"])),
    "slice": _slice,
    "rev": lambda parameters, a: np.flip(a, tuple(parameters["dimensions"])),
    "pad": _pad,
    "split": _split,
    "concatenate": lambda parameters, *arrays: np.concatenate(arrays, parameters["dimension"]),
}
