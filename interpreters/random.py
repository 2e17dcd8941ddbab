"""The `random` operators on arrays. In go a key and positions; out comes a draw per element: a hash of the key and
of one position per dim, in numpy's 64-bit integers.

    h = mix(key + GAMMA);  for each dim, outermost first:  h = mix(h + (position + 1) * GAMMA)

so the draws along a dim are the SplitMix64 stream that starts at what the dims before have given, and every index has a
stream of its own below it. `mix` is a bijection: no two positions of a dim share a stream. SplitMix64 and its constants:
Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014, figure 17 (mix: Stafford's variant 13).
The same function over tensors is in `random_tensors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import TensorType, f32, i1
from xdsl.ir import Attribute, Operation

from distir.dialects.random import BernoulliOp, UniformOp

Array = np.ndarray[Any, np.dtype[Any]]

GAMMA = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)
PROBABILITY_BITS, UNIFORM_BITS = 53, 24


def mix(z: Array) -> Array:
    """SplitMix64's output function, on uint64 modulo 2^64."""
    for shift, multiplier in zip(SHIFTS[:2], MULTIPLIERS, strict=True):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(multiplier)
    return z ^ (z >> np.uint64(SHIFTS[2]))


def bits(key: Array, positions: Sequence[Array]) -> Array:
    """64 bits for each element, as uint64."""
    with np.errstate(over="ignore"):
        found = mix(np.asarray(key).astype(np.int64).astype(np.uint64).reshape(()) + np.uint64(GAMMA))
        for vector in positions:
            steps = (np.asarray(vector).astype(np.int64).astype(np.uint64) + np.uint64(1)) * np.uint64(GAMMA)
            found = mix(found[..., None] + steps)
    return found


def threshold(probability: float) -> int:
    """The number of the 2^53 values of the upper bits that count as true."""
    return round(probability * 2**PROBABILITY_BITS)


def bernoulli(key: Array, positions: Sequence[Array], probability: float) -> Array:
    """True with this probability."""
    return np.asarray(bits(key, positions) >> np.uint64(64 - PROBABILITY_BITS) < np.uint64(threshold(probability)))


def run_random(op: Operation, operands: Sequence[Any], floats: np.dtype[Any] | None = None) -> tuple[Array, ...]:
    """The result of one op. With `floats`, uniform numbers are of that type; they are the same numbers."""
    key, *positions = (cast(Array, np.asarray(v)) for v in operands)
    if isinstance(op, BernoulliOp):
        return (bernoulli(key, positions, op.probability.value.data),)
    assert isinstance(op, UniformOp)
    upper = (bits(key, positions) >> np.uint64(64 - UNIFORM_BITS)).astype(floats or np.float32)
    return (upper * upper.dtype.type(2.0**-UNIFORM_BITS),)


def random_types(op: Operation, operand_types: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """The type of the result for these types of the key and the positions."""
    shape = [cast(TensorType[Any], type_).get_shape()[0] for type_ in operand_types[1:]]
    return (TensorType(i1 if isinstance(op, BernoulliOp) else f32, shape),)
