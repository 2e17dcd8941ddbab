"""A new communication op joins each domain by one `@impl`, with no change to distir: here a ring shift."""

import numpy as np
import pytest
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Attribute, Block, Region
from xdsl.irdl import irdl_op_definition
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.attributes import on_device, placed
from distir.dialects.dist.communication import CollectiveOp
from distir.dialects.errors import DistirError
from distir.interpreters.module_check import check_module
from distir.interpreters.placement import place
from distir.interpreters.reference import run
from distir.interpreters.simulate import simulate


@irdl_op_definition
class RingShiftOp(CollectiveOp):
    """Participant i gets the operand of participant i - 1."""

    name = "test.ringshift"

    def verify_shapes(self) -> None:
        self.verify_pairwise()


@register_impls
class RingShiftArrays(InterpreterFunctions):
    @impl(RingShiftOp)
    def ringshift(self, interpreter: Interpreter, op: RingShiftOp, args: PythonValues) -> PythonValues:
        return (args[-1], *args[:-1])


@register_impls
class RingShiftPlaces(InterpreterFunctions):
    @impl(RingShiftOp)
    def ringshift(self, interpreter: Interpreter, op: RingShiftOp, args: PythonValues) -> PythonValues:
        return args


@register_impls
class RingShiftCosts(InterpreterFunctions):
    @impl(RingShiftOp)
    def ringshift(self, interpreter: Interpreter, op: RingShiftOp, args: PythonValues) -> PythonValues:
        return (("ringshift", 1e-6 * len(args)),)


@pytest.fixture
def module() -> ModuleOp:
    types: list[Attribute] = [placed(TensorType(f32, [2]), on_device(d)) for d in range(3)]
    block = Block(arg_types=types)
    shift = RingShiftOp(operands=[block.args], result_types=[types])
    block.add_ops([shift, func.ReturnOp(*shift.results)])
    module = ModuleOp([func.FuncOp("main", (types, types), Region(block))])
    module.verify()
    check_module(module)
    return module


def test_arrays(module: ModuleOp) -> None:
    inputs = {f"arg{i}": np.full(2, i, np.float32) for i in range(3)}
    with pytest.raises(DistirError, match=r"test.ringshift has no meaning here: .* @impl"):
        run(module, inputs)
    outputs = run(module, inputs, extra=(RingShiftArrays(),))
    assert [int(outputs[f"result{i}"][0]) for i in range(3)] == [2, 0, 1]


def test_places(module: ModuleOp) -> None:
    with pytest.raises(VerifyException, match="expected all operands on"):
        place(module)
    places = place(module, extra=(RingShiftPlaces(),))
    assert list(places.values()) == [on_device(d) for d in (0, 1, 2, 0, 1, 2)]


def test_costs(module: ModuleOp) -> None:
    assert simulate(module, "dgx-2", functions=(RingShiftCosts(),)).makespan_seconds == 3e-6
