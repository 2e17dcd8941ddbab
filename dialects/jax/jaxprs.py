"""Operations of the `jax` dialect back as primitives. In go an operation and arrays, abstract values or traced
values; out come the primitive's results."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.jax.library import library
from distir.dialects.jax.operations import REGIONS, Constant, JaxOperation, Yield
from distir.dialects.jax.parameters import decode, primitives
from distir.dialects.onnx import Constant as FoldedConstant
from distir.dialects.onnx import numpy_dtype

OPEN = "[open]"
"""Ends the name of a region that is a jaxpr without constants of its own, as scatters take."""


def shape_of(type_: Attribute, floats: np.dtype[Any] | None = None) -> Any:
    """The `jax.ShapeDtypeStruct` of a tensor type; with `floats`, that is what floating elements are."""
    tensor = cast(TensorType[Attribute], type_)
    return library().ShapeDtypeStruct(tensor.get_shape(), _widened(numpy_dtype(tensor.element_type), floats))


def _widened(parameter: Any, floats: np.dtype[Any] | None) -> Any:
    """A parameter that names a floating type means `floats`, one that names a complex type means pairs of them."""
    return parameter if floats is None or not isinstance(parameter, np.dtype) else in_floats(parameter, floats)


def in_floats(dtype: np.dtype[Any], floats: np.dtype[Any]) -> np.dtype[Any]:
    """The type that stands for this one where everything floating is computed in `floats`."""
    if dtype.kind == "c":
        return np.result_type(floats, np.complex64)
    return floats if library("jax.numpy").issubdtype(dtype, np.floating) else dtype


def primitive_of(op: JaxOperation) -> Any:
    """The primitive; DistirError if the installed JAX has none of that name."""
    if (primitive := primitives().get(op.primitive)) is None:
        raise DistirError(f"{op.name}: the installed JAX has no such primitive")
    return primitive


def parameters_of(op: JaxOperation, floats: np.dtype[Any] | None = None) -> dict[str, Any]:
    """The parameters of the primitive, jaxprs included; with `floats`, floating types that they name are that one."""
    found = {name: _widened(decode(attribute), floats) for name, attribute in op.properties.items() if name != REGIONS}
    several: dict[str, list[Any]] = {}
    for path, region in zip(op.region_names(), op.regions, strict=True):
        name, bracket, _ = path.partition("[")
        jaxpr = _jaxpr(region.block, floats)
        if path.endswith(OPEN):
            found[name] = jaxpr.jaxpr
        elif bracket:
            several.setdefault(name, []).append(jaxpr)
        else:
            found[name] = jaxpr
    return found | {name: tuple(items) for name, items in several.items()}


def _jaxpr(block: Block, floats: np.dtype[Any] | None) -> Any:
    shapes = [shape_of(value.type, floats) for value in block.args]
    return library().make_jaxpr(lambda *values: _run_block(block, values, floats))(*shapes)


def _run_block(block: Block, arguments: Sequence[Any], floats: np.dtype[Any] | None) -> list[Any]:
    values: dict[SSAValue, Any] = dict(zip(block.args, arguments, strict=True))
    for op in block.ops:
        operands = [values[value] for value in op.operands]
        if isinstance(op, Yield):
            return operands
        parameters = parameters_of(op, floats) if isinstance(op, JaxOperation) else None
        results = bind(op, operands, parameters)
        if floats is not None and isinstance(op, Constant):
            results = [value.astype(_widened(value.dtype, floats)) for value in results]
        values.update(zip(op.results, results, strict=True))
    raise DistirError("a region of a jax operation does not end with jax.yield")


def bind(op: Operation, operands: Sequence[Any], parameters: Mapping[str, Any] | None = None) -> list[Any]:
    """The results of a primitive or constant, on arrays or under a trace."""
    if isinstance(op, Constant | FoldedConstant):
        return [op.value.to_numpy()]
    if not isinstance(op, JaxOperation):
        raise DistirError(f"{op.name} is no operation of JAX")
    primitive, given = primitive_of(op), parameters_of(op) if parameters is None else dict(parameters)
    most = _most_steps.get()
    if most is not None and may_not_end(given):
        numpy, (count, *found) = library("jax.numpy"), counting_steps(primitive, operands, given, most)
        floating = [numpy.issubdtype(each.dtype, np.inexact) for each in found]
        pairs = zip(found, floating, strict=True)
        return [numpy.where(count < most, each, np.nan).astype(each.dtype) if is_ else each for each, is_ in pairs]
    results = primitive.bind(*operands, **given)
    return list(results) if primitive.multiple_results else [results]


# --- loops that may have no end ---

_most_steps: ContextVar[int | None] = ContextVar("most_steps", default=None)


@contextmanager
def limited_steps(most: int) -> Generator[None]:
    """A `while` inside another operation takes so many steps at most: one that takes more gives no numbers."""
    token = _most_steps.set(most)
    try:
        yield
    finally:
        _most_steps.reset(token)


def may_not_end(parameters: Mapping[str, Any]) -> bool:
    """Whether these are the parameters of a `while` of one condition."""
    return "body_jaxpr" in parameters and not parameters["cond_jaxpr"].out_avals[0].shape


def counting_steps(primitive: Any, operands: Sequence[Any], parameters: Mapping[str, Any], most: int) -> list[Any]:
    """The number of steps that a `while` takes, so many at most, and its results after them."""
    jax, numpy, as_function = library(), library("jax.numpy"), library("jax.extend.core").jaxpr_as_fun
    of_cond, of_body = parameters["cond_nconsts"], parameters["body_nconsts"]
    cond, body = (as_function(parameters[name]) for name in ("cond_jaxpr", "body_jaxpr"))
    captured = operands[:of_cond], operands[of_cond : of_cond + of_body]
    start = [np.int32(0), *operands[of_cond + of_body :]]

    def goes_on(*values: Any) -> Any:
        count, *state = values[of_cond:]
        return numpy.logical_and(count < most, cond(*values[:of_cond], *state)[0])

    def step(*values: Any) -> Any:
        count, *state = values[of_body:]
        return [count + 1, *body(*values[:of_body], *state)]

    made = {
        "cond_jaxpr": jax.make_jaxpr(goes_on)(*captured[0], *start),
        "body_jaxpr": jax.make_jaxpr(step)(*captured[1], *start),
    }
    return list(primitive.bind(*captured[0], *captured[1], *start, **{**parameters, **made}))
