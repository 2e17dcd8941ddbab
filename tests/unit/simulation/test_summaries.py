"""Summaries equal the op-by-op simulation, bit for bit, for all programs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.parser import Parser

from distir.dialects.dist import Dist, SendOp
from distir.dialects.errors import DistirError
from distir.dialects.grad import Grad
from distir.dialects.onnx import Onnx
from distir.dialects.rank import Rank
from distir.frontends.onnx import import_model
from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.machines import DeviceGroup, Machine, load_machine
from distir.interpreters.simulate import SummaryMemo, simulate, summarize, timing
from distir.interpreters.work import Work
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.tools.universe import DISTIR_UNIVERSE
from examples import mlp_onnx
from tests.unit import random_modules, random_programs

PAPER = Path(__file__).parents[2] / "filecheck" / "paper"
QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large]


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Dist, Grad, Onnx, Rank):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def same(
    module: ModuleOp,
    cost_model: Any = random_modules.Uneven,
    memo: SummaryMemo | None = None,
    machine: Machine = random_modules.MACHINE,
) -> None:
    """Asserts that both simulations agree in everything that a summary says."""
    oracle, summary = simulate(module, machine, cost_model), summarize(module, machine, cost_model, memo=memo)
    for stream in oracle.clocks.keys() | summary.clocks.keys():
        assert summary.clocks.get(stream, 0) == oracle.clocks.get(stream, 0), stream
    assert summary.makespan_picoseconds == oracle.makespan_picoseconds
    assert summary.makespan_seconds == oracle.makespan_seconds
    assert summary.peak_memory_bytes == oracle.peak_memory_bytes
    assert summary.busy_seconds == oracle.busy_seconds
    assert summary.counts == oracle.counts


SHARED = SummaryMemo()
"""Over all examples: what one program taught must hold for the next."""


@settings(max_examples=60, deadline=None, suppress_health_check=QUICK)
@given(random_modules.programs())
def test_equal_on_programs_that_alias_and_update(module: ModuleOp) -> None:
    same(module)
    same(module, memo=SHARED)


@settings(max_examples=60, deadline=None, suppress_health_check=QUICK)
@given(random_programs.programs())
def test_equal_on_programs_with_every_operation(program: random_programs.Program) -> None:
    same(program.module)
    same(program.module, AnalyticCostModel, SHARED)


def mixed(machine: Machine) -> Machine:
    """The machine with devices 1 and 2, and those from 3 on, slower each in its way."""
    device = machine.device
    slow = replace(device, kernel_floor_seconds=2 * device.kernel_floor_seconds)
    late = replace(device, dispatch_seconds=3 * device.kernel_floor_seconds)
    return replace(machine, groups=(DeviceGroup(device, 1), DeviceGroup(slow, 2), DeviceGroup(late, 61)))


MIXED = mixed(load_machine("local-cpu"))
MIXED_MEMO = SummaryMemo()


@settings(max_examples=60, deadline=None, suppress_health_check=QUICK)
@given(random_programs.programs())
def test_equal_where_devices_differ(program: random_programs.Program) -> None:
    same(program.module, AnalyticCostModel, MIXED_MEMO, MIXED)


@pytest.fixture
def maps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "DIFFERENT", 0)


@settings(max_examples=80, deadline=None, suppress_health_check=[*QUICK, HealthCheck.function_scoped_fixture])
@given(random_modules.programs())
def test_equal_where_every_call_is_a_map(maps_at_once: None, module: ModuleOp) -> None:
    same(module)


TWICE = """
    func.func @{name}(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {{
      %0 = "onnx.MatMul"(%x, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      %1 = "onnx.Relu"(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      func.return %1 : tensor<4x4xf32>
    }}
    func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {{
      %0 = func.call @{name}(%x, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      %1 = func.call @{name}(%0, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      func.return %1 : tensor<4x4xf32>
    }}"""


def test_a_memo_knows_functions_by_what_they_do() -> None:
    """A second program with the same function under another name asks for no cost; other shapes do."""
    asked: list[Work] = []

    class Counting(AnalyticCostModel):
        def matmul_seconds(self, work: Work, dtype: str) -> float:
            asked.append(work)
            return super().matmul_seconds(work, dtype)

    memo = SummaryMemo()
    first = summarize(parse(TWICE.format(name="layer")), "dgx-2", Counting, memo=memo)
    assert len(asked) == 1
    second = summarize(parse(TWICE.format(name="block")), "dgx-2", Counting, memo=memo)
    assert len(asked) == 1
    assert first.makespan_picoseconds == second.makespan_picoseconds
    summarize(parse(TWICE.format(name="layer").replace("4x4", "8x8")), "dgx-2", Counting, memo=memo)
    assert len(asked) == 2


def test_values_on_a_device_that_no_type_names() -> None:
    """What an unplaced function makes in a placed program is on device 0, though its type does not say so."""
    same(
        parse("""
    func.func @make(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
      %0 = "onnx.Relu"(%x) : (tensor<8xf32>) -> tensor<8xf32>
      func.return %0, %x : tensor<8xf32>, tensor<8xf32>
    }
    func.func @main(%x: tensor<8xf32>, %y: tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>> {
      %0, %1 = func.call @make(%x) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
      %3, %4 = func.call @make(%0) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
      %2 = "onnx.Relu"(%y) : (tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>>
      func.return %2 : tensor<4xf32, #dist.on<1>>
    }""")
    )


def test_functions_of_the_caller_say_costs() -> None:
    """As in `simulate`, and they are part of what a memo compares."""

    @register_impls
    class FreeSends(InterpreterFunctions):
        @impl(SendOp)
        def send(self, interpreter: Interpreter, op: SendOp, args: PythonValues) -> PythonValues:
            return (("send", 0.0),)

    module = parse("""
    func.func @main(%x: tensor<8xf32, #dist.on<0>>) -> tensor<8xf32, #dist.on<1>> {
      %0 = dist.send %x to 1 : tensor<8xf32, #dist.on<0>> -> tensor<8xf32, #dist.on<1>>
      func.return %0 : tensor<8xf32, #dist.on<1>>
    }""")
    memo = SummaryMemo()
    assert summarize(module, "dgx-2", memo=memo).makespan_picoseconds > 0
    assert summarize(module, "dgx-2", functions=[FreeSends()], memo=memo).makespan_picoseconds == 0


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        (TWICE.format(name="layer"), "missing"),
        (TWICE.format(name="layer").replace("4x4", "?x4"), "main"),
        ("func.func private @main(tensor<4xf32>)", "main"),
    ],
)
def test_mistakes_are_those_of_simulate(text: str, entry: str) -> None:
    with pytest.raises(DistirError) as expected:
        simulate(parse(text), "dgx-2", entry=entry)
    with pytest.raises(DistirError) as found:
        summarize(parse(text), "dgx-2", entry=entry)
    assert str(found.value) == str(expected.value)


@pytest.mark.filterwarnings("ignore:Constructing LpVariable:DeprecationWarning")
@pytest.mark.parametrize(
    "degrees", [{"dp": 2}, {"tp": 2}, {"pp": 2, "microbatches": 4}, {"dp": 2, "tp": 2, "pp": 2, "microbatches": 4}]
)
def test_equal_on_parallelized_training(degrees: dict[str, int]) -> None:
    """D/T/P programs of a training step of a multi-layer perceptron."""
    module = import_model(mlp_onnx.build([16] * 5, batch=32))
    context = Context()
    for name, dialect in DISTIR_UNIVERSE.all_dialects.items():
        context.register_dialect(name, dialect)
    DtpParallelizePass(**degrees).apply(context, module)
    same(module)
    same(module, AnalyticCostModel, SHARED)


@pytest.mark.parametrize("name", sorted(path.name for path in PAPER.glob("*.mlir")))
def test_equal_on_the_papers_figures(name: str) -> None:
    same(parse((PAPER / name).read_text()), AnalyticCostModel)
