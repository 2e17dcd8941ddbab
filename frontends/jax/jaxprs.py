"""Operations of the `jax` dialect back as primitives: bound to arrays, to abstract values, or under a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.jax.operations import REGIONS, Constant, JaxOperation, Yield
from distir.dialects.onnx.tensors import numpy_dtype
from distir.frontends.jax.parameters import decode

OPEN = "[open]"
"""Ends the name of a region that is a jaxpr without constants of its own, as scatters take."""


def shape_of(type_: Attribute) -> Any:
    """The `jax.ShapeDtypeStruct` of a tensor type."""
    import jax

    tensor = cast(TensorType[Attribute], type_)
    return jax.ShapeDtypeStruct(tensor.get_shape(), numpy_dtype(tensor.element_type))


def primitive_of(op: JaxOperation) -> Any:
    """The primitive; DistirError if the installed JAX has none of that name."""
    from jax.extend import core
    from jax.extend.core import primitives

    if not _PRIMITIVES:
        _PRIMITIVES.update({p.name: p for p in vars(primitives).values() if isinstance(p, core.Primitive)})
    if op.primitive not in _PRIMITIVES:
        raise DistirError(f"{op.name}: the installed JAX has no such primitive")
    return _PRIMITIVES[op.primitive]


_PRIMITIVES: dict[str, Any] = {}


def parameters_of(op: JaxOperation) -> dict[str, Any]:
    """The parameters of the primitive, jaxprs included."""
    found = {name: decode(attribute) for name, attribute in op.properties.items() if name != REGIONS}
    several: dict[str, list[Any]] = {}
    for path, region in zip(op.region_names(), op.regions, strict=True):
        name, bracket, _ = path.partition("[")
        jaxpr = _jaxpr(region.block)
        if path.endswith(OPEN):
            found[name] = jaxpr.jaxpr
        elif bracket:
            several.setdefault(name, []).append(jaxpr)
        else:
            found[name] = jaxpr
    return found | {name: tuple(items) for name, items in several.items()}


def _jaxpr(block: Block) -> Any:
    import jax

    return jax.make_jaxpr(lambda *values: run_block(block, values))(*(shape_of(value.type) for value in block.args))


def run_block(block: Block, arguments: Sequence[Any]) -> list[Any]:
    """What a region of `jax` operations gives for these values, which may be traced."""
    values: dict[SSAValue, Any] = dict(zip(block.args, arguments, strict=True))
    for op in block.ops:
        operands = [values[value] for value in op.operands]
        if isinstance(op, Yield):
            return operands
        values.update(zip(op.results, bind(op, operands), strict=True))
    raise DistirError("a region of a jax operation does not end with jax.yield")


def bind(op: Operation, operands: Sequence[Any], parameters: Mapping[str, Any] | None = None) -> list[Any]:
    """The results of a primitive or constant, on arrays or under a trace."""
    if isinstance(op, Constant):
        return [op.value.to_numpy()]
    if not isinstance(op, JaxOperation):
        raise DistirError(f"{op.name} is no operation of JAX")
    primitive = primitive_of(op)
    results = primitive.bind(*operands, **(parameters_of(op) if parameters is None else parameters))
    return list(results) if primitive.multiple_results else [results]
