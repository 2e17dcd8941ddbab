"""Arrays of random keys as tensors of numbers, with the dims of one key behind the array's own. In goes an equation
on keys; out comes a function of plain arrays that computes the same, which can be traced.

Drawing, splitting, folding and seeding are those of the keys' implementation. Another primitive that gives keys for keys can only
move them: it moves each number of a key as it moves the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from distir.dialects.jax.library import library

SAME = frozenset({"random_wrap", "random_unwrap", "random_clone"})
"""Primitives between keys and their numbers."""


COUNTS = "iota_2x32_shape"
"""The primitive that counts elements in numbers of 64 bits, high halves and low halves: what an implementation draws from."""


def counts(shape: Sequence[int]) -> Any:
    """What it gives. Raises ValueError for 2^32 elements and more."""
    numpy = library("jax.numpy")
    if (elements := prod(shape)) >= 1 << 32:
        raise ValueError(f"{elements:,} numbers drawn at once")
    low = library("jax.lax").iota(numpy.uint32, elements).reshape(shape)
    return numpy.zeros(shape, numpy.uint32), low


def is_key(aval: Any) -> bool:
    """Whether these are keys, not numbers."""
    return hasattr(getattr(aval, "dtype", None), "_impl")


def numbers(aval: Any) -> Any:
    """The shape and type of the numbers of an array of keys; of another array, its own."""
    jax = library()
    if not is_key(aval):
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    return jax.ShapeDtypeStruct((*aval.shape, *aval.dtype._impl.key_shape), library("jax.numpy").uint32)


def numbers_of(array: Any) -> Any:
    """The numbers of an array of keys; of another array, itself."""
    return library().random.key_data(array) if is_key(array) else array


def keys_of(array: Any, example: Any) -> Any:
    """The keys of these numbers, if the example is of keys."""
    return library().random.wrap_key_data(array, impl=example.dtype._impl.name) if is_key(example) else array


def on_numbers(equation: Any) -> Callable[..., Any]:
    """What an equation of which an operand or a result is of keys, or that counts for them, does to numbers."""
    avals, params = [variable.aval for variable in equation.invars], equation.params
    match equation.primitive.name:
        case name if name == COUNTS:
            return partial(counts, params["shape"])
        case "random_bits":
            drawn = partial(_of_keys(avals[0]).random_bits, bit_width=params["bit_width"], shape=params["shape"])
            return _each(drawn, avals[0].ndim)
        case "random_split":
            return _each(partial(_of_keys(avals[0]).split, shape=params["shape"]), avals[0].ndim)
        case "random_seed":
            return _each(params["impl"].seed, avals[0].ndim)
        case "random_fold_in":
            return _folding(_of_keys(avals[0]).fold_in, avals[0].ndim, avals[1].ndim)
        case _:
            return _moved(equation, avals)


def _of_keys(aval: Any) -> Any:
    """The implementation of keys: functions of the numbers of one."""
    return aval.dtype._impl


def _each(function: Callable[..., Any], dims: int) -> Callable[..., Any]:
    """The function of one key, for an array of keys of so many dims."""
    for _ in range(dims):
        function = library().vmap(function)
    return function


def _folding(fold: Callable[..., Any], of_keys: int, of_data: int) -> Callable[..., Any]:
    """For arrays of so many dims; what has fewer is the same for each of the first of the other's."""
    for i in reversed(range(max(of_keys, of_data))):
        fold = library().vmap(
            fold, in_axes=(0 if i >= max(of_data - of_keys, 0) else None, 0 if i >= max(of_keys - of_data, 0) else None)
        )
    return fold


def _moved(equation: Any, avals: Sequence[Any]) -> Callable[..., Any]:
    """Of a primitive that gives keys for keys. Raises ValueError for another."""
    if not all(is_key(variable.aval) for variable in equation.outvars):
        raise ValueError("what it computes of keys is not known")
    (shape,) = {v.aval.dtype._impl.key_shape for v in (*equation.invars, *equation.outvars) if is_key(v.aval)}
    axes = [-1 if is_key(aval) else None for aval in avals]
    function: Callable[..., Any] = partial(equation.primitive.bind, **equation.params)
    for _ in shape:
        function = library().vmap(function, in_axes=axes, out_axes=-1)
    return function
