"""Literal constants along the batch axis (a mask or positions that a model expanded to the batch). In goes a
literal; out comes a rule with a factor for each dim along which all slices are equal, since it can be stated for any
number of rows. So the batch axis may cut it for users whose other operands are cut."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from xdsl.dialects.builtin import BytesAttr, TensorType
from xdsl.ir import Operation
from xdsl.traits import ConstantLike

from distir.dialects.errors import DistirError
from distir.dialects.onnx import TensorAttr
from distir.dialects.sharding import Gather, Rule
from distir.passes.distribution.options import rule_of
from distir.passes.structure import is_constant

VALUE = "value"

LARGEST = 1 << 32
"""Elements of a literal, unless one stands for all."""


def rule_with_literals(op: Operation) -> Rule | None:
    """The rule of an op; of a literal, one factor for every dim along which it repeats."""
    if not is_constant(op) or not op.has_trait(ConstantLike):
        return rule_of(op)
    literal = op.properties.get(VALUE)
    return _literal_rule(literal) if isinstance(literal, TensorAttr) else None


@lru_cache(maxsize=256)
def _literal_rule(literal: TensorAttr) -> Rule | None:
    dims = repeated_dims(literal)
    if not dims:
        return None
    names = {dim: f"S{dim + 1}" for dim in dims}
    return Rule(
        (),
        {name: (Gather(dim),) for dim, name in names.items()},
        sizes={(VALUE, dim): (name,) for dim, name in names.items()},
    )


def repeated_dims(literal: TensorAttr) -> tuple[int, ...]:
    """The dims of more than one element along which all slices are equal."""
    if not isinstance(literal.data, BytesAttr):
        return ()
    dims = tuple(dim for dim, size in enumerate(literal.type.get_shape()) if size > 1)
    if literal.is_splat:
        return dims
    array = literal.to_numpy()
    return tuple(dim for dim in dims if (array.take([0], dim) == array).all())


def resized(literal: TensorAttr, dim: int, size: int) -> TensorAttr:
    """A literal that repeats along a dim, with `size` slices there; raises DistirError for one that is too large to be written down."""
    import numpy as np

    shape = list(literal.type.get_shape())
    shape[dim] = size
    if literal.is_splat:
        return TensorAttr(TensorType(literal.type.element_type, shape), literal.data)
    if prod(shape) > LARGEST:
        raise DistirError(f"a literal of shape {shape} has over {LARGEST} elements")
    first = literal.to_numpy().take([0], dim)
    return TensorAttr.from_numpy(np.broadcast_to(first, shape))
