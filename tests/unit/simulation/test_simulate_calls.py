"""For all programs: a call means what inlining it means, for every clock and every byte; and without calls, memory is what
a list of the live tensors after every operation says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from distir.dialects.dist import CallOp, MoveOp, PackOp, SendOp, UnpackOp
from distir.dialects.dist.attributes import relocated
from distir.dialects.onnx import OPERATORS
from distir.interpreters.module_check import check_module
from distir.interpreters.simulate import simulate
from tests.unit.random_modules import DEVICES, Uneven, on, programs


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
        device = int(str(attributes.data["dist.name"]).strip('"')[1:])  # arguments ai and bi are on device i
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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
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
