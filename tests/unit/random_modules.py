"""Random programs for the simulators: nested calls on permuted devices, arguments that are one tensor or come back as
results, dead results, streams, tuples, and results that update arguments; under costs that tell all of it apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    TupleType,
    f32,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from distir.dialects.dist import AllReduceOp, CallOp, MoveOp, OnAttr, PackOp, SendOp, SliceOp, UnpackOp
from distir.dialects.dist.attributes import on_device, placed, placement, relocated
from distir.dialects.onnx import OPERATORS
from distir.interpreters.cost_models import CostModel
from distir.interpreters.machines import Overlap, load_machine
from distir.interpreters.work import Work

DEVICES = 3
MACHINE = replace(load_machine("dgx-2"), overlap=Overlap(compute_slowdown=0.5, communication_slowdown=0.25))
"""Messages on streams of their own cost the computation beside them."""
KINDS = ["relu", "identity", "slice", "send", "allreduce", "move", "pack", "unpack", "call", "call"]


class Uneven(CostModel):
    """Costs that differ by size and place, so that no two schedules tie by accident."""

    def matmul_seconds(self, work: Work, dtype: str) -> float:
        return (work.bytes + 1009) * 1e-12

    def elementwise_seconds(self, work: Work, dtype: str) -> float:
        return (work.bytes + 1013) * 1e-12

    def data_movement_seconds(self, work: Work) -> float:
        return (work.bytes + 31) * 1e-12

    def collective_seconds(self, kind: str, bytes: int, devices: Sequence[int]) -> float:
        if len(devices) == 1:
            return bytes * 1e-12
        return (bytes + sum(d * d for d in devices) + 101) * 1e-12

    def send_seconds(self, bytes: int, source: int, target: int) -> float:
        return (bytes + 17 * source + target + 103) * 1e-12


def on(value: SSAValue) -> OnAttr:
    found = placement(value.type)
    assert found is not None
    return found


class Program:
    """Draws functions @f0, @f1, ... and @main, each calling earlier ones. Every function has two arguments on each device, so
    that any earlier function can be called with arguments of the caller or with what became of them, also with the same
    one twice."""

    def __init__(self, draw: st.DrawFn, functions: int, length: int):
        self.draw = draw
        self.functions: list[FuncOp] = []
        for i in range(functions):
            self.functions.append(self.function(f"f{i}", length))
        main = self.function("main", length)
        names = [
            DictionaryAttr({"dist.name": StringAttr(f"{letter}{device}"), "dist.role": StringAttr("state")})
            for letter in "ab"
            for device in range(DEVICES)
        ]
        main.arg_attrs = ArrayAttr(names)
        main.res_attrs = ArrayAttr([self.one(names) for _ in main.function_type.outputs.data])
        self.module = ModuleOp([main, *reversed(self.functions)])

    def one(self, values: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(values))

    def function(self, name: str, length: int) -> FuncOp:
        block = Block(arg_types=[TensorType(f32, [4], on_device(device)) for device in range(DEVICES)] * 2)
        values: list[SSAValue] = list(block.args)
        for _ in range(self.draw(st.integers(1, length))):
            if (op := self.operation(values)) is not None:
                block.add_op(op)
                values += op.results
        results = self.draw(st.lists(st.sampled_from(values), max_size=4))
        block.add_op(ReturnOp(*results))
        return FuncOp(name, (block.arg_types, [v.type for v in results]), Region(block))

    def operation(self, values: list[SSAValue]) -> Operation | None:
        tensors = [v for v in values if isinstance(v.type, TensorType)]
        value = self.one(tensors)
        match self.one(KINDS):
            case "relu":
                return OPERATORS["Relu"].create(operands=[value], result_types=[value.type])
            case "identity":
                return OPERATORS["Identity"].create(operands=[value], result_types=[value.type])
            case "slice":
                return SliceOp(value, [(0, 2)])
            case "send":
                there = (on(value).device + self.draw(st.integers(1, DEVICES - 1))) % DEVICES
                return SendOp(value, placed(value.type, on_device(there, self.one(["", "comm"]))))
            case "allreduce":
                alike = [v for v in tensors if placed(v.type, None) == placed(value.type, None)]
                return AllReduceOp(list({on(v).device: v for v in alike}.values()))
            case "move":
                return MoveOp(value, "" if on(value).stream else "comm")
            case "pack":
                return PackOp([v for v in tensors if on(v) == on(value)][-3:])
            case "unpack":
                tuples = [v for v in values if isinstance(v.type, TupleType)]
                return UnpackOp(self.one(tuples)) if tuples else None
            case _:
                return self.call(tensors) if self.functions else None

    def call(self, tensors: list[SSAValue]) -> CallOp:
        """A call of an earlier function on the devices in any order."""
        callee = self.one(self.functions)
        devices = self.draw(st.permutations(range(DEVICES)))
        types = [relocated(t, devices) for t in callee.function_type.inputs.data]
        arguments = [self.one([v for v in tensors if v.type == t]) for t in types]
        results = [relocated(t, devices) for t in callee.function_type.outputs.data]
        return CallOp(callee.sym_name.data, arguments, devices, results)


@st.composite
def programs(draw: st.DrawFn) -> ModuleOp:
    return Program(draw, functions=draw(st.integers(1, 3)), length=8).module
