"""Functions of pytrees in which not every leaf is an array, as modules of Equinox have activation functions among
theirs. In go a function and its example arguments; out comes a function of arrays alone. The other leaves stay as in
the example, and are left out of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distir.dialects.jax.library import library

FIXED: Sequence[tuple[type, ...]] = ((), (bool,), (bool, int, float, complex))
"""Types of Python's numbers that are fixed as well, tried in this order: where the function cannot be traced
since it decides by them (an `inference` flag, the rate of a dropout)."""


def traced(
    function: Callable[..., Any], example_args: Sequence[Any]
) -> tuple[Callable[..., Any], Sequence[Any], Any, Any]:
    """The function of arrays alone, its example arguments, in which None stands for the leaves that are fixed, its jaxpr and the shape of what
    it returns."""
    jax = library()
    held = {type(leaf) for leaf in jax.tree_util.tree_leaves(tuple(example_args))}
    refused: Exception | None = None
    for fixed in FIXED:
        if refused is not None and held.isdisjoint(fixed):
            continue
        alone, examples = _of_arrays(function, example_args, fixed)
        try:
            return alone, examples, *jax.make_jaxpr(alone, return_shape=True)(*examples)
        except Exception as error:  # the user's own code, too
            refused = refused or error
    assert refused is not None
    raise refused


def _of_arrays(
    function: Callable[..., Any], example_args: Sequence[Any], fixed: tuple[type, ...]
) -> tuple[Callable[..., Any], Sequence[Any]]:
    tree = library().tree_util
    leaves, structure = tree.tree_flatten(tuple(example_args))

    def is_array(leaf: Any) -> bool:
        return type(leaf) not in fixed and _is_array(leaf)

    def of_arrays_alone(*args: Any) -> Any:
        given = iter(tree.tree_leaves(args))
        merged = [next(given) if is_array(leaf) else leaf for leaf in leaves]
        results = function(*tree.tree_unflatten(structure, merged))
        return tree.tree_map(lambda leaf: leaf if is_array(leaf) else None, results)

    return of_arrays_alone, tree.tree_unflatten(structure, [leaf if is_array(leaf) else None for leaf in leaves])


def _is_array(leaf: Any) -> bool:
    """Whether JAX takes it as one: an array, a number, or what has the shape and type of one."""
    return isinstance(leaf, bool | int | float | complex | np.generic) or (
        hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    )
