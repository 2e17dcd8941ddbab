"""Building blocks of the paper's programs: placed types, functions over local devices, calls.

`Function` collects one function; `devices` everywhere are the function's own. Values made on equal devices of equal
functions have equal types, and types are interned, so that the simulator recognises them by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    TupleType,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from distir.dialects.dist import AllReduceOp, CallOp, ConcatOp, PackOp, SendOp, UnpackOp
from distir.dialects.dist.attributes import OnAttr, on_device
from distir.dialects.onnx import OPERATORS, OnnxOperation


@cache
def tensor(shape: tuple[int, ...], device: int, of: Attribute) -> TensorType[Any]:
    """The type of a tensor on a device."""
    return TensorType(of, shape, on_device(device))


@cache
def tuple_type(types: tuple[Any, ...]) -> TupleType:
    return TupleType(types)


def device_of(value: SSAValue) -> int:
    """Where a tensor, or a tuple of tensors, lives."""
    type_: Any = value.type
    while isinstance(type_, TupleType):
        type_ = type_.types.data[0]
    assert isinstance(type_.encoding, OnAttr)
    return type_.encoding.device


def shape_of(value: SSAValue) -> tuple[int, ...]:
    type_: Any = value.type
    return type_.get_shape()


@cache
def moved(type_: Any, device: int) -> Attribute:
    """The type on another device of the same or another function."""
    if isinstance(type_, TupleType):
        return tuple_type(tuple(moved(element, device) for element in type_.types.data))
    return tensor(type_.get_shape(), device, type_.element_type)


@cache
def copying(name: str) -> type[OnnxOperation]:
    """An ONNX operator whose result is a copy in memory, as in the original, where ours is a view of its operand."""
    return type(name, (OPERATORS[name],), {})


class Function:
    """A function while it is built."""

    def __init__(self, name: str, arguments: Sequence[Attribute]):
        self.name = name
        self.block = Block(arg_types=arguments)
        self._placed: dict[tuple[FuncOp, tuple[int, ...]], tuple[dict[str, Attribute], list[Attribute]]] = {}
        """What the calls of a function on the same devices share: properties and result types."""

    @property
    def arguments(self) -> Sequence[SSAValue]:
        return self.block.args

    def add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def onnx(
        self, name: str, operands: Sequence[SSAValue], result: Attribute, copies: bool = False, **properties: Attribute
    ) -> SSAValue:
        kind = copying(name) if copies else OPERATORS[name]
        return self.add(kind.create(operands=operands, result_types=[result], properties=properties))

    def identity(self, value: SSAValue) -> SSAValue:
        """A copy."""
        return self.onnx("Identity", [value], value.type, copies=True)

    def concat(self, values: Sequence[SSAValue]) -> SSAValue:
        """On dim 0."""
        return self.add(ConcatOp(values, 0))

    def send(self, value: SSAValue, device: int) -> SSAValue:
        type_ = moved(value.type, device)
        return self.add(SendOp.create(operands=[value], result_types=[type_], properties=_to(type_)))

    def allreduce(self, values: Sequence[SSAValue]) -> Sequence[SSAValue]:
        op = AllReduceOp(values)
        self.block.add_op(op)
        return op.results

    def pack(self, values: Sequence[SSAValue]) -> SSAValue:
        return self.add(PackOp.create(operands=values, result_types=[tuple_type(tuple(v.type for v in values))]))

    def unpack(self, value: SSAValue) -> Sequence[SSAValue]:
        op = UnpackOp(value)
        self.block.add_op(op)
        return op.results

    def unpacked(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """The elements of all these tuples."""
        return [element for value in values for element in self.unpack(value)]

    def call(self, callee: FuncOp, arguments: Sequence[SSAValue], devices: Sequence[int]) -> Sequence[SSAValue]:
        """Results are the callee's on these devices."""
        key = callee, tuple(devices)
        if (placed := self._placed.get(key)) is None:
            results = [moved(type_, devices[_device(type_)]) for type_ in callee.function_type.outputs.data]
            placed = self._placed[key] = dict(CallOp(callee.sym_name.data, [], devices, []).properties), results
        properties, results = placed
        op = CallOp.create(operands=arguments, result_types=results, properties=properties)
        self.block.add_op(op)
        return op.results

    def finish(self, results: Sequence[SSAValue]) -> FuncOp:
        self.block.add_op(ReturnOp(*results))
        types = FunctionType.from_lists(self.block.arg_types, [value.type for value in results])
        return FuncOp(self.name, types, Region(self.block))


@cache
def _to(result_type: Any) -> dict[str, Attribute]:
    return {"to": IntegerAttr(result_type.encoding.device, i64)}


@cache
def _device(type_: Any) -> int:
    while isinstance(type_, TupleType):
        type_ = type_.types.data[0]
    return type_.encoding.device


def named(role: str, name: str) -> DictionaryAttr:
    """How an entry argument or result says what it is."""
    return DictionaryAttr({"dist.role": StringAttr(role), "dist.name": StringAttr(name)})


def module_of(
    functions: Sequence[FuncOp], arguments: Sequence[DictionaryAttr], results: Sequence[DictionaryAttr], devices: int
) -> ModuleOp:
    """The last function is the entry."""
    entry = functions[-1]
    entry.arg_attrs = ArrayAttr(arguments)
    entry.res_attrs = ArrayAttr(results)
    return ModuleOp(list(functions), {"dist.devices": IntegerAttr(devices, i64)})
