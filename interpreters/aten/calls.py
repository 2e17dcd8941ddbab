"""Compiles an operation of the `aten` dialect. In goes the operation; out comes a function of torch tensors that
calls its operator. All domains of `aten` compute this way.

    compute = compile_call(op)
    results = compute([a, b])        # torch tensors, in the order of the operands; None for a result of type none

The tensors decide the domain: data, shapes alone (the meta device), or exact scalars (`aten.exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from xdsl.dialects.builtin import (
    NoneType,
    TensorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.aten import AtenOperation, Schema
from distir.dialects.errors import DistirError
from distir.dialects.onnx.types import ELEMENT_OF_TYPE
from distir.interpreters.aten.kernels import registered
from distir.interpreters.aten.properties import python_value

Compute = Callable[[Sequence[Tensor]], list[Tensor | None]]
Adapt = Callable[[torch.dtype], torch.dtype]

_KERNELS = registered()
_WRITTEN = {"native_batch_norm": ("running_mean", "running_var")}


def torch_dtype(element_type: Attribute) -> torch.dtype:
    """The torch type of an element type. Raises DistirError if torch has none."""
    element = ELEMENT_OF_TYPE.get(element_type)
    dtype = getattr(torch, element.numpy_name, None) if element is not None else None
    if not isinstance(dtype, torch.dtype):
        raise DistirError(f"torch has no element type {element_type}")
    return dtype


def element_type(dtype: torch.dtype) -> Attribute:
    """The element type of a torch type. Raises DistirError if a program has none."""
    name = str(dtype).removeprefix("torch.")
    found = next((element.type for element in ELEMENT_OF_TYPE.values() if element.numpy_name == name), None)
    if found is None:
        raise DistirError(f"a program has no element type for {dtype}")
    return found


def tensor_type(tensor: Tensor) -> TensorType[Attribute]:
    return TensorType(element_type(tensor.dtype), list(tensor.shape))


@cache
def overload(schema: Schema) -> Any:
    """The operator in torch. Raises DistirError if this torch does not have it."""
    packet = getattr(torch.ops.aten, schema.packet, None)
    found = getattr(packet, schema.overload, None)
    if found is None:
        raise DistirError(f"aten.{schema.qualified_name}: torch {torch.__version__} has no such operator")
    return found


def written_operands(schema: Schema) -> Sequence[str]:
    """Those that the operator writes to, though its schema says nothing of it: it is given copies, as a program has values."""
    return _WRITTEN.get(schema.qualified_name, ())


def in_place_form(op: AtenOperation) -> Any:
    """The operator that writes the result where the first operand lies; None if there is none, or the result is of another type."""
    schema = op.schema
    if schema.is_view or len(op.results) != 1 or not op.operands or op.results[0].type != op.operands[0].type:
        return None
    if not schema.arguments[0].is_tensor or list(op.operands).count(op.operands[0]) > 1:
        return None
    return getattr(getattr(torch.ops.aten, f"{schema.packet}_", None), schema.overload, None)


def is_elementwise(schema: Schema) -> bool:
    """Whether each element of the result is computed of those at its place."""
    return torch.Tag.pointwise in overload(schema).tags


def compile_call(
    op: Operation, adapt: Adapt = lambda dtype: dtype, function: Callable[..., Any] | None = None
) -> Compute:
    """The operation as a function of its operands. `adapt` gives the type to compute with for each type that the
    operation names, its declared results' types included; `function` stands for the operator, and takes its arguments
    by name."""
    return Binding(op, adapt).compute(function)


def in_floats(dtype: torch.dtype, floats: torch.dtype) -> torch.dtype:
    """The type that stands for this one where everything floating is computed in `floats`, complex numbers in pairs of it."""
    return floats if dtype.is_floating_point else floats.to_complex() if dtype.is_complex else dtype


_bindings: WeakKeyDictionary[Operation, tuple[object, dict[torch.dtype | None, Binding]]] = WeakKeyDictionary()


def binding_of(op: Operation, floats: torch.dtype | None = None) -> Binding:
    """The arguments of the operation, read again only where it has changed; with this type, if any, for all of floats."""
    first = {operand: i for i, operand in reversed(list(enumerate(op.operands)))}
    state = dict(op.properties), [first[operand] for operand in op.operands], tuple(op.result_types)
    known = _bindings.get(op)
    if known is None or known[0] != state:
        known = _bindings[op] = state, {}
    if floats not in known[1]:
        known[1][floats] = Binding(op, lambda dtype: in_floats(dtype, floats) if floats else dtype)
    return known[1][floats]


class Binding:
    """The arguments of an operation: which are operands, and the values of the others. `adapt` is that of `compile_call`."""

    def __init__(self, op: Operation, adapt: Adapt = lambda dtype: dtype):
        assert isinstance(op, AtenOperation)
        self.schema = op.schema
        position = {operand: i for i, operand in reversed(list(enumerate(op.operands)))}
        self._fixed: dict[str, Any] = {}
        self._single: list[tuple[str, int]] = []
        self._lists: list[tuple[str, list[int | None]]] = []
        for argument, value in op.values():
            if isinstance(value, SSAValue):
                self._single.append((argument.name, position[value]))
            elif isinstance(value, list):
                if value or not argument.optional:
                    self._lists.append((argument.name, [None if v is None else position[v] for v in value]))
            elif value is not None:
                self._fixed[argument.name] = python_value(value, lambda type_: adapt(torch_dtype(type_)))
            elif argument.default is None:
                self._fixed[argument.name] = None
        types = [r.type.element_type if isinstance(r.type, TensorType) else None for r in op.results]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        self._types = [None if type_ is None else adapt(torch_dtype(type_)) for type_ in types]

    def compute(self, function: Callable[..., Any] | None = None) -> Compute:
        """The operation, or another function of its arguments by name, as a function of its operands."""
        call: Callable[..., Any] = function or overload(self.schema)
        written = [name for name, _ in self._single if name in written_operands(self.schema)]

        def compute(operands: Sequence[Tensor]) -> list[Tensor | None]:
            named = {name: operands[i] for name, i in self._single}
            named |= {name: named[name].clone() for name in written}
            named |= {name: [None if i is None else operands[i] for i in members] for name, members in self._lists}
            results = call(**named, **self._fixed)
            if isinstance(results, Tensor):
                results = (results,)
            flat = [each for r in results for each in (cast(Sequence[Any], r) if isinstance(r, list | tuple) else (r,))]
            return [
                result if result is None or result.dtype == dtype or dtype is None else result.to(dtype)
                for result, dtype in zip(flat, self._types, strict=True)
            ]

        return compute


def result_types(op: Operation, results: Sequence[Tensor | None]) -> list[Attribute]:
    return [NoneType() if result is None else tensor_type(result) for result in results]
