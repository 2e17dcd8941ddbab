"""The `random` operators on torch tensors, on any device. In go a key and positions; out come the draws of
`distir.interpreters.random`, from signed 64-bit integers that wrap around.

Ranks compute with it, and a model's dropout becomes it while it is traced (`frontends.pytorch.draws`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from distir.interpreters.random import GAMMA, MULTIPLIERS, PROBABILITY_BITS, SHIFTS, UNIFORM_BITS, threshold


def bernoulli(key: Tensor, positions: Sequence[Tensor], probability: float) -> Tensor:
    """True with this probability."""
    return _upper(_bits(key, positions), PROBABILITY_BITS) < threshold(probability)


def uniform(key: Tensor, positions: Sequence[Tensor], dtype: torch.dtype = torch.float32) -> Tensor:
    """Multiples of 2^-24 in [0, 1)."""
    return _upper(_bits(key, positions), UNIFORM_BITS).to(dtype) * 2.0**-UNIFORM_BITS


def _bits(key: Tensor, positions: Sequence[Tensor]) -> Tensor:
    found = _mix(key.reshape(()) + _signed(GAMMA))
    for vector in positions:
        found = _mix(found.unsqueeze(-1) + (vector + 1) * _signed(GAMMA))
    return found


def _mix(z: Tensor) -> Tensor:
    for shift, multiplier in zip(SHIFTS[:2], MULTIPLIERS, strict=True):
        z = (z ^ _right(z, shift)) * _signed(multiplier)
    return z ^ _right(z, SHIFTS[2])


def _upper(z: Tensor, bits: int) -> Tensor:
    return _right(z, 64 - bits)


def _right(z: Tensor, shift: int) -> Tensor:
    """A shift that brings in zeros: torch's of signed integers brings in the sign."""
    return (z >> shift) & (2 ** (64 - shift) - 1)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
