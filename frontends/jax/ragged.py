"""Products of groups (`jax.lax.ragged_dot`, whose primitive has no public name). In go the operands of the primitive
and the sizes of groups; out comes one product for all groups, in which the rows of other groups are zeros, since a
program has no sizes that depend on values. It is as many times the work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distir.dialects.errors import DistirError
from distir.dialects.jax.library import library

NAME = "ragged_dot_general"


def as_product(parameters: Mapping[str, Any], left: Any, right: Any, sizes: Any) -> Any:
    """What the primitive computes: the rows of `left` in groups of these sizes, one after the other."""
    numpy, lax, numbers = library("jax.numpy"), library("jax.lax"), parameters["ragged_dot_dimension_numbers"]
    (summed, also_summed), (batch, also_batch) = numbers.dot_dimension_numbers
    (ragged,) = numbers.lhs_ragged_dimensions
    if batch or sizes.ndim != 1 or parameters["group_offset"] is not None:
        raise DistirError(f"primitive '{NAME}' with batch dimensions or an offset of groups: write it as a product")
    ends = numpy.cumsum(sizes)[:, None]
    row = numpy.arange(left.shape[ragged], dtype=sizes.dtype)
    inside = (row >= ends - sizes[:, None]) & (row < ends)
    shape = [len(sizes) if d == 0 else left.shape[ragged] if d == ragged + 1 else 1 for d in range(left.ndim + 1)]
    of_groups = numpy.where(inside.reshape(shape), left, numpy.zeros((), left.dtype))
    dims, groups = [d + 1 for d in summed], list(numbers.rhs_group_dimensions)
    over_groups = [0] if groups else []  # else a result for each group
    return lax.dot_general(
        of_groups,
        right,
        ((dims + over_groups, [*also_summed, *groups]), ([], [*also_batch])),
        precision=parameters["precision"],
        preferred_element_type=parameters["preferred_element_type"],
    )
