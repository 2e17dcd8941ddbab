"""For all programs: a call means what inlining it means, for every clock and every byte; and without calls, memory is what
a list of the live tensors after every operation says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    ModuleOp,
    StringAttr,
    TensorType,
    TupleType,
    f32,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from distir.dialects.dist import AllReduceOp, CallOp, MoveOp, OnAttr, PackOp, SendOp, SliceOp, UnpackOp
from distir.dialects.dist.attributes import on_device, placed, placement, relocated
from distir.dialects.onnx import OPERATORS
from distir.interpreters.cost_models import CostModel
from distir.interpreters.module_check import check_module
from distir.interpreters.simulate import simulate
from distir.interpreters.work import Work

DEVICES = 3
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
        return (bytes + sum(d * d for d in devices) + 101) * 1e-12

    def send_seconds(self, bytes: int, source: int, target: int) -> float:
        return (bytes + 17 * source + target + 103) * 1e-12


def on(value: SSAValue) -> OnAttr:
    found = placement(value.type)
    assert found is not None
    return found


class Program:
    """Draws functions @f0, @f1, ... and @main, each calling earlier ones. Every function has an argument on each device, so
    that any earlier function can be called with arguments of the caller or with what became of them."""

    def __init__(self, draw: st.DrawFn, functions: int, length: int):
        self.draw = draw
        self.functions: list[FuncOp] = []
        for i in range(functions):
            self.functions.append(self.function(f"f{i}", length))
        main = self.function("main", length)
        names = [DictionaryAttr({"dist.name": StringAttr(f"a{i}"), "dist.role": StringAttr("state")}) for i in range(3)]
        main.arg_attrs = ArrayAttr(names)
        main.res_attrs = ArrayAttr([self.one(names) for _ in main.function_type.outputs.data])
        self.module = ModuleOp([main, *reversed(self.functions)])

    def one(self, values: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(values))

    def function(self, name: str, length: int) -> FuncOp:
        block = Block(arg_types=[TensorType(f32, [4], on_device(device)) for device in range(DEVICES)])
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


def inlined(module: ModuleOp) -> ModuleOp:
    """The module with every call replaced by the callee's operations on the caller's devices."""
    functions = {f.sym_name.data: f for f in module.ops if isinstance(f, FuncOp)}
    main = functions["main"]
    block = Block(arg_types=main.function_type.inputs.data)

    def run(function: FuncOp, devices: Sequence[int], arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        values: dict[SSAValue, SSAValue] = dict(zip(function.body.block.args, arguments, strict=True))
        for op in function.body.block.ops:
            operands = [values[v] for v in op.operands]
            if isinstance(op, ReturnOp):
                return operands
            if isinstance(op, CallOp):
                results = run(functions[op.callee_name], [devices[d] for d in op.devices], operands)
            else:
                types = [relocated(t, devices) for t in op.result_types]
                properties: dict[str, Attribute] = dict(op.properties)
                if isinstance(op, SendOp):
                    properties = SendOp(operands[0], types[0]).properties
                copy = type(op).create(operands=operands, result_types=types, properties=properties)
                block.add_op(copy)
                results = copy.results
            values.update(zip(op.results, results, strict=True))
        raise AssertionError("a function without return")

    results = run(main, range(DEVICES), block.args)
    block.add_op(ReturnOp(*results))
    type_ = FunctionType.from_lists(main.function_type.inputs.data, [v.type for v in results])
    function = FuncOp("main", type_, Region(block), arg_attrs=main.arg_attrs, res_attrs=main.res_attrs)
    return ModuleOp([function])


@st.composite
def programs(draw: st.DrawFn) -> ModuleOp:
    return Program(draw, functions=draw(st.integers(1, 3)), length=8).module


def peaks_by_listing(flat: ModuleOp) -> dict[int, int]:
    """Peak memory of a program without calls: before each operation and after its results, list what is needed later."""
    (main,) = (f for f in flat.ops if isinstance(f, FuncOp))
    tensors: dict[SSAValue, frozenset[SSAValue]] = {v: frozenset([v]) for v in main.body.block.args}
    ops = list(main.body.block.ops)
    for op in ops[:-1]:
        for i, result in enumerate(op.results):
            match op:
                case PackOp():
                    tensors[result] = frozenset[SSAValue]().union(*(tensors[v] for v in op.operands))
                case UnpackOp():
                    packed = op.input.owner
                    assert isinstance(packed, PackOp)
                    tensors[result] = tensors[packed.operands[i]]
                case _:
                    view = isinstance(op, MoveOp | OPERATORS["Identity"])
                    tensors[result] = tensors[op.operands[0]] if view else frozenset([result])
    assert main.res_attrs is not None
    free: set[SSAValue] = set()
    for value, attributes in zip(ops[-1].operands, main.res_attrs.data, strict=True):
        device = int(str(attributes.data["dist.name"]).strip('"')[1:])  # argument ai is on device i
        free |= {t for t in tensors[value] if on(t).device == device}
    free -= set(main.body.block.args)
    peaks = dict.fromkeys(range(DEVICES), 0)
    for i, op in enumerate(ops):
        made = {t for earlier in ops[: i + 1] for v in earlier.results for t in tensors[v]}
        used = {t for later in ops[i:] for v in later.operands for t in tensors[v]}
        own = {t for v in op.results for t in tensors[v]}
        live = (set(main.body.block.args) | (made & used) | own) - free
        for device in range(DEVICES):
            held = sum(4 * cast(TensorType[Any], t.type).get_shape()[0] for t in live if on(t).device == device)
            peaks[device] = max(peaks[device], held)
    return peaks


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs())
def test_calls_are_as_inlined(module: ModuleOp) -> None:
    module.verify()
    check_module(module)
    flat = inlined(module)
    flat.verify()
    check_module(flat)
    outlined, reference = simulate(module, "dgx-2", Uneven), simulate(flat, "dgx-2", Uneven)
    assert outlined.clocks == reference.clocks
    assert outlined.makespan_picoseconds == reference.makespan_picoseconds
    assert outlined.peak_memory_bytes == reference.peak_memory_bytes
    assert reference.peak_memory_bytes == peaks_by_listing(flat)
    assert outlined.counts == reference.counts
    assert [list(outlined.memory_profile(d)) for d in range(3)] == [list(reference.memory_profile(d)) for d in range(3)]
