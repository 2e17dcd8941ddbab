"""Clocks and memory derived by hand, on a machine where every compute op takes 1000 ps and every message 100 ps."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition
from xdsl.parser import Parser

from distir.backends.trace import write_trace
from distir.dialects.dist import Dist
from distir.dialects.dist.communication import CollectiveOp
from distir.dialects.errors import DistirError
from distir.dialects.grad import Grad
from distir.dialects.onnx import Onnx
from distir.dialects.rank import Rank
from distir.dialects.sharding import AxesAttr
from distir.interpreters.cost_models import CostModel
from distir.interpreters.module_check import check_module
from distir.interpreters.simulate import Simulation, simulate
from distir.interpreters.simulate.expansion import Expansion
from distir.interpreters.simulate.summaries import open_program
from distir.interpreters.work import Work

PAPER = Path(__file__).parents[2] / "filecheck" / "paper"
UNIT = str(PAPER.parent / "passes" / "Inputs" / "unit.toml")


class Constant(CostModel):
    """Every compute op 1000 ps, every message 100 ps."""

    def matmul_seconds(self, work: Work, dtype: str) -> float:
        return 1e-9

    def elementwise_seconds(self, work: Work, dtype: str) -> float:
        return 1e-9

    def data_movement_seconds(self, work: Work) -> float:
        return 1e-9

    def collective_seconds(self, kind: str, bytes: int, devices: Sequence[int]) -> float:
        return 1e-10

    def send_seconds(self, bytes: int, source: int, target: int) -> float:
        return 1e-10


def parse(text: str, *dialects: Dialect) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Dist, Grad, Onnx, Rank, *dialects):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    check_module(module)
    return module


ALIASES = """
!t0 = tensor<10xf32, #dist.on<0>>
!t1 = tensor<10xf32, #dist.on<1>>
!s0 = tensor<10xf32, #dist.on<0, "comm">>
!s1 = tensor<10xf32, #dist.on<1, "comm">>
!t = tensor<10xf32>
"""
TENSOR = 40
"""Bytes of each."""


def run(text: str, **options: Any) -> Simulation:
    return simulate(parse(ALIASES + text), "local-cpu", Constant, **options)


# --- clocks ----------------------------------------------------------------------------------------------------------


def test_disjoint_devices_run_in_parallel() -> None:
    found = run("""
    func.func @main(%a: !t0, %b: !t1) -> (!t0, !t1) {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %1 = "onnx.Relu"(%b) : (!t1) -> !t1
      %2 = "onnx.Relu"(%1) : (!t1) -> !t1
      func.return %0, %2 : !t0, !t1
    }""")
    assert found.clocks == {(0, ""): 1000, (1, ""): 2000}
    assert found.makespan_picoseconds == 2000
    assert found.makespan_seconds == 2e-9


def test_communication_waits_for_all_participants() -> None:
    """Device 0 is free at 1000 and device 1 at 2000: the allreduce runs 2000-2100 on both."""
    found = run("""
    func.func @main(%a: !t0, %b: !t1) -> (!t0, !t1) {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %1 = "onnx.Relu"(%b) : (!t1) -> !t1
      %2 = "onnx.Relu"(%1) : (!t1) -> !t1
      %3, %4 = dist.allreduce sum %0, %2 : (!t0, !t1) -> (!t0, !t1)
      func.return %3, %4 : !t0, !t1
    }""")
    assert found.clocks == {(0, ""): 2100, (1, ""): 2100}
    assert found.counts == {"onnx.Relu": 3, "dist.allreduce": 1}
    # Busy, not idle: device 0 computed 1000 ps and waited 1000 ps.
    assert found.busy_seconds[0] == {"elementwise": pytest.approx(1e-9), "allreduce": pytest.approx(1e-10)}
    assert found.busy_seconds[1] == {"elementwise": pytest.approx(2e-9), "allreduce": pytest.approx(1e-10)}


STREAMS = """
    func.func @main(%a: !t0, %b: !t1) -> (!t0, !t0) {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %c = dist.move %0 : !t0 -> !s0
      %d = dist.move %b : !t1 -> !s1
      %e, %f = dist.allreduce sum %c, %d : (!s0, !s1) -> (!s0, !s1)
      %1 = "onnx.Relu"(%0) : (!t0) -> !t0
      %g = dist.move %e : !s0 -> !t0
      %2 = "onnx.Add"(%1, %g) : (!t0, !t0) -> !t0
      func.return %2, %g : !t0, !t0
    }"""


def test_streams_overlap() -> None:
    """The allreduce runs 1000-1100 on the second streams while device 0 computes 1000-2000; the move then waits for
    neither."""
    found = run(STREAMS)
    assert found.clocks == {(0, ""): 3000, (0, "comm"): 1100, (1, "comm"): 1100}


def test_move_waits_for_its_source() -> None:
    """The main stream is free at 0 but waits for the second, which is busy until 1000; the second goes on at once."""
    found = run("""
    func.func @main(%a: !s0) -> (!t0, !s0) {
      %0 = "onnx.Relu"(%a) : (!s0) -> !s0
      %1 = dist.move %0 : !s0 -> !t0
      %2 = "onnx.Relu"(%1) : (!t0) -> !t0
      %3 = "onnx.Relu"(%0) : (!s0) -> !s0
      func.return %2, %3 : !t0, !s0
    }""")
    assert found.clocks == {(0, ""): 2000, (0, "comm"): 2000}


def test_calls_run_on_the_caller_s_devices() -> None:
    """@pair swaps roles: its device 0 is the caller's 2. Device 2 computes 0-1000 and sends to 0 at 1000-1100; @one, which
    names no device, runs on device 0."""
    found = run("""
    !t2 = tensor<10xf32, #dist.on<2>>
    func.func @main(%a: !t2) -> !t0 {
      %0 = dist.call @pair(%a) on [2, 0] : (!t2) -> !t0
      %1 = dist.call @one(%0) on [0] : (!t0) -> !t0
      func.return %1 : !t0
    }
    func.func @pair(%a: !t0) -> !t1 {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %1 = dist.send %0 to 1 : !t0 -> !t1
      func.return %1 : !t1
    }
    func.func @one(%a: !t) -> !t {
      %0 = func.call @two(%a) : (!t) -> !t
      func.return %0 : !t
    }
    func.func @two(%a: !t) -> !t {
      %0 = "onnx.Relu"(%a) : (!t) -> !t
      %1 = "onnx.Relu"(%0) : (!t) -> !t
      func.return %1 : !t
    }""")
    assert found.clocks == {(2, ""): 1100, (0, ""): 3100}
    assert found.counts == {"onnx.Relu": 3, "dist.send": 1}
    assert found.collectives_in("pair") == {"dist.send": 1}
    assert found.collectives_in("main") == {}
    assert found.peak_memory_bytes == {0: 2 * TENSOR, 1: 0, 2: 2 * TENSOR}


def test_sequential_program_is_on_device_0() -> None:
    found = run("""
    func.func @main(%a: !t) -> !t {
      %0 = "onnx.Relu"(%a) : (!t) -> !t
      func.return %0 : !t
    }""")
    assert (found.clocks, found.peak_memory_bytes) == ({(0, ""): 1000}, {0: 2 * TENSOR})


# --- memory ----------------------------------------------------------------------------------------------------------


def peak(text: str) -> int:
    """Peak of device 0 in tensors."""
    tensors, rest = divmod(run(text).peak_memory_bytes[0], TENSOR)
    assert rest == 0
    return tensors


def test_values_live_until_their_last_use() -> None:
    """%0 is free when %2 is made: never more than the argument and two values."""
    assert (
        peak("""
    func.func @main(%a: !t0) -> !t0 {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %1 = "onnx.Relu"(%0) : (!t0) -> !t0
      %2 = "onnx.Relu"(%1) : (!t0) -> !t0
      func.return %2 : !t0
    }""")
        == 3
    )


def test_dead_results_are_freed_after_their_operation() -> None:
    assert (
        peak("""
    func.func @main(%a: !t0) -> !t0 {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %1 = "onnx.Relu"(%a) : (!t0) -> !t0
      func.return %1 : !t0
    }""")
        == 2
    )


def test_arguments_of_the_entry_stay() -> None:
    assert (
        peak("""
    func.func @main(%a: !t0, %b: !t0) -> !t0 {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      func.return %0 : !t0
    }""")
        == 3
    )


def test_argument_of_a_call_lives_until_its_last_use_inside() -> None:
    """%0 dies at %i in the callee, before %j and %k are made; had it lived to the end of the call the peak would be 4."""
    assert (
        peak("""
    func.func @main(%a: !t0) -> !t0 {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %1 = dist.call @f(%0) on [0] : (!t0) -> !t0
      func.return %1 : !t0
    }
    func.func @f(%x: !t) -> !t {
      %i = "onnx.Relu"(%x) : (!t) -> !t
      %j = "onnx.Relu"(%i) : (!t) -> !t
      %k = "onnx.Relu"(%j) : (!t) -> !t
      func.return %k : !t
    }""")
        == 3
    )


def test_argument_of_a_call_that_is_used_later_lives_on() -> None:
    assert (
        peak("""
    func.func @main(%a: !t0) -> !t0 {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %1 = dist.call @f(%0) on [0] : (!t0) -> !t0
      %2 = "onnx.Add"(%0, %1) : (!t0, !t0) -> !t0
      func.return %2 : !t0
    }
    func.func @f(%x: !t) -> !t {
      %i = "onnx.Relu"(%x) : (!t) -> !t
      %j = "onnx.Relu"(%i) : (!t) -> !t
      func.return %j : !t
    }""")
        == 4
    )


def test_returned_argument_is_an_alias() -> None:
    """@f returns its argument: %1 is %0, which lives until %3 while %2 is alive: %a, %0, %2 and %3."""
    assert (
        peak("""
    func.func @main(%a: !t0) -> !t0 {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %1 = dist.call @f(%0) on [0] : (!t0) -> !t0
      %2 = "onnx.Relu"(%a) : (!t0) -> !t0
      %3 = "onnx.Add"(%1, %2) : (!t0, !t0) -> !t0
      func.return %3 : !t0
    }
    func.func @f(%x: !t) -> !t {
      func.return %x : !t
    }""")
        == 4
    )


def test_views_share_memory() -> None:
    """%1, the tuple and its element are %0, which dies at %2: %a, %0 and %2, then %a, %2 and %3."""
    assert (
        peak("""
    func.func @main(%a: !t0) -> !t0 {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %1 = "onnx.Identity"(%0) : (!t0) -> !t0
      %p = dist.pack %1, %a : (!t0, !t0) -> tuple<!t0, !t0>
      %e, %f = dist.unpack %p : (tuple<!t0, !t0>) -> (!t0, !t0)
      %2 = "onnx.Relu"(%e) : (!t0) -> !t0
      %3 = "onnx.Relu"(%2) : (!t0) -> !t0
      func.return %3 : !t0
    }""")
        == 3
    )


def test_memory_of_streams_is_the_device_s() -> None:
    """In the allreduce device 0 holds %a, %0 (moved, and used later) and %e; at the end %a, %1, %e and %2."""
    assert peak(STREAMS) == 4


def test_slices_concats_and_sends_allocate() -> None:
    """Device 0: 40 of argument, 20 of slice, 60 of concat. Device 1: what it is sent."""
    found = run("""
    func.func @main(%a: !t0) -> tensor<15xf32, #dist.on<1>> {
      %0 = dist.slice %a [0:5] : !t0 -> tensor<5xf32, #dist.on<0>>
      %1 = dist.concat %a, %0 dim 0 : (!t0, tensor<5xf32, #dist.on<0>>) -> tensor<15xf32, #dist.on<0>>
      %2 = dist.send %1 to 1 : tensor<15xf32, #dist.on<0>> -> tensor<15xf32, #dist.on<1>>
      func.return %2 : tensor<15xf32, #dist.on<1>>
    }""")
    assert found.peak_memory_bytes == {0: 120, 1: 60}


UPDATE = """
    func.func @main(%w: ARGUMENT {{dist.name = "w", dist.role = "{role}"}}, %g: !t0)
        -> (!t0 {{dist.name = "{result}", dist.role = "parameter"}}) {{
      %0 = grad.sgd %w, %g learning_rate 1.0e-1 : (!t0, !t0) -> !t0
      func.return %0 : !t0
    }}""".replace("ARGUMENT", "!t0")


def test_update_shares_its_argument_s_memory() -> None:
    assert peak(UPDATE.format(role="parameter", result="w")) == 2
    assert peak(UPDATE.format(role="state", result="w")) == 2
    assert peak(UPDATE.format(role="input", result="w")) == 3
    assert peak(UPDATE.format(role="parameter", result="v")) == 3


def test_update_on_another_device_allocates() -> None:
    found = run("""
    func.func @main(%w: !t0 {dist.name = "w", dist.role = "parameter"})
        -> (!t1 {dist.name = "w", dist.role = "parameter"}) {
      %0 = dist.send %w to 1 : !t0 -> !t1
      func.return %0 : !t1
    }""")
    assert found.peak_memory_bytes == {0: TENSOR, 1: TENSOR}


# --- the paper's programs --------------------------------------------------------------------------------------------


def paper(name: str) -> Simulation:
    return simulate(parse((PAPER / f"{name}.mlir").read_text()), UNIT)


def slices(simulation: Simulation, device: int, categories: str) -> list[tuple[str, float, float]]:
    """(operation or callee, start, end) in microseconds, in order of time."""
    events = [e for e in simulation.trace()["traceEvents"] if e["ph"] == "X" and e["pid"] == device]
    wanted = categories.split()
    rows = [e for e in events if category(e) in wanted]
    return sorted(((e["args"]["op"], e["ts"], e["ts"] + e["dur"]) for e in rows), key=lambda row: row[1])


def category(event: dict[str, Any]) -> str:
    if event["cat"] == "gpu_user_annotation":
        return "call"
    return "communication" if event["name"].startswith("nccl") else "compute"


def test_figure_3_top() -> None:
    """Device 1 computes p_1 while device 0 computes as_2."""
    found = paper("figure2")
    assert slices(found, 0, "call communication")[:4] == [
        ("dense", 2, 4),
        ("dist.send", 4, 4.5),
        ("dense", 4.5, 6.5),
        ("dist.send", 6.5, 7),
    ]
    assert slices(found, 1, "call communication")[:4] == [
        ("dist.send", 4, 4.5),
        ("dense", 4.5, 6.5),
        ("dist.send", 6.5, 7),
        ("loss_grad", 7, 8),
    ]


def test_figure_3_bottom() -> None:
    """Swapped, the send of as_2 comes before p_1 on device 1, which stands still from 4.5 to 6.5."""
    found = paper("figure2_swapped")
    assert slices(found, 1, "call communication")[:4] == [
        ("dist.send", 4, 4.5),
        ("dist.send", 6.5, 7),
        ("dense", 7, 9),
        ("loss_grad", 9, 10),
    ]
    assert found.makespan_picoseconds == paper("figure2").makespan_picoseconds + 2_000_000
    assert found.counts == paper("figure2").counts


def test_figure_8_drops_an_activation() -> None:
    """While the loss runs the activation (128 bytes) is not held: arguments 768, prediction, constant and result remain."""

    def during_loss(simulation: Simulation) -> int:
        step = next(i for i, s in enumerate(simulation.steps) if s.placed.op.name == "grad.loss_grad")
        return next(live for at, after, live in simulation.memory_profile(0) if (at, after) == (step, False))

    assert during_loss(paper("figure8")) == 768 + 128 + 4 + 128
    assert during_loss(paper("figure_sequential")) == 768 + 128 + 4 + 128 + 128


def test_figure_9_needs_less_memory_than_data_parallelism() -> None:
    zero, plain = paper("figure9").peak_memory_bytes, paper("data_parallel").peak_memory_bytes
    assert all(zero[device] < plain[device] for device in (0, 1))


def opened(name: str) -> Expansion:
    return Expansion(open_program(parse((PAPER / f"{name}.mlir").read_text()), UNIT))


# --- traces ----------------------------------------------------------------------------------------------------------


def test_trace_nests_operations_in_calls_and_shows_memory(tmp_path: Path) -> None:
    found = paper("figure2")
    write_trace(opened("figure2"), tmp_path / "trace.json")
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] in ("process_name", "thread_name")]
    assert names == ["device 0", "device 1", "main", "main"]
    assert slices(found, 0, "compute")[2:4] == [("onnx.MatMul", 2, 3), ("onnx.Relu", 3, 4)]
    for device in (0, 1):
        counted = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["pid"] == device]
        assert max(counted) == found.peak_memory_bytes[device]


def test_devices_of_a_trace_are_named_with_their_places(tmp_path: Path) -> None:
    """As in the report; an axis of one device is not named."""
    module = parse((PAPER / "figure2.mlir").read_text())
    module.attributes["dist.axes"] = AxesAttr((("pp", 2), ("tp", 1)))
    write_trace(Expansion(open_program(module, UNIT)), tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["device 0 (pp 0)", "device 1 (pp 1)"]


def test_a_trace_too_large_says_how_to_narrow_it(tmp_path: Path) -> None:
    with pytest.raises(DistirError, match=r"more than 9 slices: narrow it with --window .* or --depth layer"):
        write_trace(opened("figure2"), tmp_path / "trace.json", limit=9)
    assert not list(tmp_path.iterdir())


def test_trace_to_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DistirError, match="No such file"):
        write_trace(opened("figure8"), tmp_path / "none" / "trace.json")


# --- extension and mistakes ------------------------------------------------------------------------------------------


@irdl_op_definition
class RingShiftOp(CollectiveOp):
    """A communication operation that distir does not know: every participant gets its neighbour's tensor."""

    name = "test.ring_shift"


TestDialect = Dialect("test", [RingShiftOp])
RING = """
    func.func @main(%a: !t0, %b: !t1) -> (!t0, !t1) {
      %0 = "onnx.Relu"(%a) : (!t0) -> !t0
      %1, %2 = "test.ring_shift"(%0, %b) : (!t0, !t1) -> (!t0, !t1)
      func.return %1, %2 : !t0, !t1
    }"""


@register_impls
class RingShiftCost(InterpreterFunctions):
    @impl(RingShiftOp)
    def ring_shift(self, interpreter: Interpreter, op: RingShiftOp, args: PythonValues) -> PythonValues:
        assert args == (0, 1)
        return (("ring_shift", 7e-12),)


def test_new_communication_op_needs_only_its_cost() -> None:
    module = parse(ALIASES + RING, TestDialect)
    found = simulate(module, "local-cpu", Constant, functions=[RingShiftCost()])
    assert found.clocks == {(0, ""): 1007, (1, ""): 1007}
    assert found.peak_memory_bytes == {0: 3 * TENSOR, 1: 2 * TENSOR}
    assert found.collectives_in("main") == {"test.ring_shift": 1}
    with pytest.raises(DistirError, match=r"test.ring_shift runs on 2 devices: say what it costs with an @impl"):
        simulate(module, "local-cpu", Constant)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func @other(%a: !t) -> !t { func.return %a : !t }", "no function @main in the module"),
        ("func.func private @main(%a: !t) -> !t", "@main has no body"),
        (
            "func.func @main(%a: !t) -> !t { rank.send %a to 1 : !t  func.return %a : !t }",
            "@main is the program of one rank",
        ),
        (
            'func.func @main(%a: !t0, %b: !t) -> !t { %0 = "onnx.Relu"(%b) : (!t) -> !t  func.return %0 : !t }',
            "onnx.Relu in @main is on no device",
        ),
        (
            "func.func @main(%a: tensor<10xf32, #dist.on<64>>) { func.return }",
            "machine local-cpu has 64 devices, the program needs 65",
        ),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(DistirError, match=message):
        run(text)
