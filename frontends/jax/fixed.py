"""Functions of pytrees in which not every leaf is an array, as modules of Equinox have activation functions among theirs. In goes a function
and its example arguments; out comes one of arrays alone: the other leaves are what they are in the example, and left out of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distir.dialects.jax.library import library


def of_arrays(function: Callable[..., Any], example_args: Sequence[Any]) -> tuple[Callable[..., Any], Sequence[Any]]:
    """The function of arrays alone, and its example arguments, in which None stands for the leaves that are fixed."""
    tree = library().tree_util
    leaves, structure = tree.tree_flatten(tuple(example_args))

    def of_arrays_alone(*args: Any) -> Any:
        given = iter(tree.tree_leaves(args))
        merged = [next(given) if is_array(leaf) else leaf for leaf in leaves]
        return _arrays_of(function(*tree.tree_unflatten(structure, merged)))

    return of_arrays_alone, tree.tree_unflatten(structure, [leaf if is_array(leaf) else None for leaf in leaves])


def is_array(leaf: Any) -> bool:
    """Whether JAX takes it as one: an array, a number, or what has the shape and type of one."""
    return isinstance(leaf, bool | int | float | complex | np.generic) or (
        hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    )


def _arrays_of(results: Any) -> Any:
    return library().tree_util.tree_map(lambda leaf: leaf if is_array(leaf) else None, results)
