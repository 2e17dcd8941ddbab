"""Element types and arrays at the border of torch. In go the program's types and numpy arrays; out come torch types
and tensors, and back. numpy has the small floats as ml_dtypes, which torch does not read: they cross as integers of
their width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Attribute

from distir.backends.torch.exchange import Array, is_native, with_native_type
from distir.dialects.errors import DistirError
from distir.dialects.onnx.types import ELEMENT_OF_TYPE
from distir.interpreters.aten.calls import in_floats

_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
_INTEGERS = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_SMALL_FLOATS = {torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}

EVERYDAY = frozenset(_FLOATS | _INTEGERS)
"""Element types that torch computes with."""
HELD = EVERYDAY | _SMALL_FLOATS | {torch.uint16, torch.uint32, torch.uint64, torch.float8_e8m0fnu}
"""Element types that it can hold."""


@dataclass(frozen=True)
class ElementTypes:
    """The program's element types as torch types; with `in_float64`, all floating point is computed in double, complex numbers in pairs."""

    in_float64: bool = False

    def of(self, element_type: Attribute) -> torch.dtype:
        """The torch type that holds an element type; DistirError if torch has none."""
        element = ELEMENT_OF_TYPE.get(element_type)
        dtype = getattr(torch, element.numpy_name, None) if element is not None else None
        if dtype not in HELD:
            raise DistirError(f"torch has no element type {element_type}: this program cannot run on the torch backend")
        return self.adapted(dtype)

    def adapted(self, dtype: torch.dtype) -> torch.dtype:
        return in_floats(dtype, torch.float64) if self.in_float64 else dtype

    def of_tensor(self, type_: Attribute) -> torch.dtype:
        return self.of(cast(TensorType[Attribute], type_).element_type)

    def holds(self, type_: Attribute) -> bool:
        """Whether torch has this type: a tensor of elements that it can hold."""
        element = (
            ELEMENT_OF_TYPE.get(type_.element_type) if isinstance(type_, TensorType | UnrankedTensorType) else None
        )
        return element is not None and getattr(torch, element.numpy_name, None) in HELD

    def value(self, value: object, device: torch.device) -> object:
        """The value as a tensor; what torch cannot hold (strings, 4-bit numbers, sequences) stays as it is."""
        if not isinstance(value, np.ndarray | np.generic) or getattr(torch, value.dtype.name, None) not in HELD:
            return value
        return self.tensor(np.asarray(cast(Array, value)), device)

    def tensor(self, array: Array, device: torch.device) -> torch.Tensor:
        """The array as a tensor of its own (never a view of read-only memory)."""
        tensor = torch.from_numpy(np.array(with_native_type(array)))
        if not is_native(array.dtype):
            tensor = tensor.view(getattr(torch, array.dtype.name))
        return tensor.to(device=device, dtype=self.adapted(tensor.dtype))


def plain_array(tensor: torch.Tensor) -> Array:
    """The tensor as a numpy array; types that numpy does not have come out as ml_dtypes."""
    tensor = tensor.detach().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    if hasattr(np, name):
        return tensor.numpy()
    import ml_dtypes

    bits = tensor.contiguous().view({1: torch.uint8, 2: torch.int16}[tensor.element_size()])
    return bits.numpy().view(np.dtype(getattr(ml_dtypes, name)))
