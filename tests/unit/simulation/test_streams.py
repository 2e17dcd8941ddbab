"""What streams of their own gain: gradient reduction beside the backward pass, on costs that a reader can add up."""

from dataclasses import replace
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.source import source_of
from distir.dialects.dist import AllReduceOp, Dist
from distir.dialects.errors import DistirError
from distir.dialects.onnx import Onnx
from distir.frontends.onnx import import_model
from distir.interpreters.cost_models import make_cost_model
from distir.interpreters.costs import Costs
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import Memory, Overlap, load_machine
from distir.interpreters.proof import prove, prove_ranks
from distir.interpreters.ranks import explicit
from distir.interpreters.simulate import simulate, summarize
from distir.interpreters.simulate.allocator import MAIN, requests, reserved_bytes
from distir.interpreters.simulate.analysis import Analysis
from distir.interpreters.simulate.summaries import open_program
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.overlap_communication import OverlapCommunicationPass
from distir.passes.project_to_rank import project
from distir.tools.universe import DISTIR_UNIVERSE
from examples import mlp_onnx
from tests.unit import random_modules

UNIT = Path(__file__).parents[2] / "filecheck" / "passes" / "Inputs" / "unit.toml"


GRADIENT = 16 * 16 * 4
"""Bytes of each of the four gradients."""


def distributed(**options: object):
    module = import_model(mlp_onnx.build([16] * 5, batch=32))
    context = Context()
    for name, dialect in DISTIR_UNIVERSE.all_dialects.items():
        context.register_dialect(name, dialect)
    DtpParallelizePass(**options).apply(context, module)
    return module


def test_all_reductions_but_the_last_are_hidden() -> None:
    """Four layers, an operation 1 us and a message 0.5 us: of four reductions only that of the first layer's gradient, which
    is made last, is left to wait for. A layer's backward is two operations, so no reduction waits for another."""
    plain, beside = (
        simulate(distributed(dp=2, overlap=overlap, bucket=0), load_machine(UNIT)) for overlap in (False, True)
    )
    assert plain.counts["dist.allreduce"] == beside.counts["dist.allreduce"] == 4
    assert plain.makespan_picoseconds - beside.makespan_picoseconds == 3 * 500_000


def test_communication_by_axis_exposed_and_hidden() -> None:
    """The same four layers, a message 0.5 us. Two replicas reduce four gradients: 2 us, of which 1.5 us are beside computation if they have a
    stream. On two stages with two microbatches, a device takes part in a message to the other stage and one back for each microbatch (4), and in the
    reduction of its two layers' gradients over replicas (2)."""

    def along(**options: object):
        times = Analysis(distributed(**options), load_machine(UNIT)).device_times
        return [{axis: tuple(time) for axis, time in each.by_axis.items()} for each in times]

    assert along(dp=2) == [{"dp": (2_000_000, 0)}] * 2
    assert along(dp=2, overlap=True, bucket=0) == [{"dp": (500_000, 1_500_000)}] * 2
    found = along(dp=2, pp=2, microbatches=2, schedule="gpipe")
    assert found == [{"pp": (2_000_000, 0), "dp": (1_000_000, 0)}] * 4


@pytest.mark.filterwarnings("ignore:Constructing LpVariable:DeprecationWarning")
def test_times_of_groups_are_those_of_each_device() -> None:
    """One device of each kind stands for the others; a sum is along the axis that it is over."""
    module = distributed(dp=2, tp=2, pp=2, microbatches=2, sharding="ilp", divide=True, grouped=True, overlap=True)
    grouped, each = (Analysis(m, load_machine(UNIT)).device_times for m in (module, explicit(module)))
    assert grouped == each
    assert {axis for time in each for axis in time.by_axis} == {"pp", "dp", "tp"}


@pytest.mark.parametrize(
    ("bucket", "messages"), [(GRADIENT, 4), (2 * GRADIENT, 2), (3 * GRADIENT, 2), (4 * GRADIENT, 1)]
)
def test_gradients_are_reduced_in_buckets(bucket: int, messages: int) -> None:
    """A message takes 0.5 us however large it is here. Whatever the buckets are, the last one, with the first layer's gradient, is waited for: of
    the 2 us of four reductions one after the other, 0.5 us is left."""
    plain, beside = (simulate(distributed(dp=2, overlap=on, bucket=bucket), load_machine(UNIT)) for on in (False, True))
    assert (plain.counts["dist.allreduce"], beside.counts["dist.allreduce"]) == (4, messages)
    assert plain.makespan_picoseconds - beside.makespan_picoseconds == 3 * 500_000


def test_a_bucket_of_a_tuple_costs_what_its_bytes_cost() -> None:
    """One message of all bytes."""
    machine = load_machine("dgx-a100")
    model = make_cost_model("analytic", machine)
    (op,) = (op for op in entry_function(distributed(dp=2, overlap=True)).walk() if isinstance(op, AllReduceOp))
    assert Costs(model).of(op, (0, 1)).picoseconds == round(
        model.collective_seconds("allreduce", 4 * GRADIENT, (0, 1)) * 1e12
    )


def test_the_proof_follows_tuples_through_reductions() -> None:
    """Reductions of tuples are proven element by element, in the program of all devices and in those of ranks; a bucket
    that is not reduced is found."""
    sequential = import_model(mlp_onnx.build([16] * 5, batch=32))
    prepare(Context(), sequential)
    program = distributed(dp=2, overlap=True)
    assert prove(sequential, program).holds
    assert prove_ranks(sequential, [project(program, rank) for rank in range(2)]).holds
    for op in [op for op in program.walk() if isinstance(op, AllReduceOp)]:
        for operand, result in zip(op.operands, op.results, strict=True):
            result.replace_all_uses_with(operand)
        op.parent.erase_op(op)
    assert not prove(sequential, program).holds


@pytest.mark.filterwarnings("ignore:Constructing LpVariable:DeprecationWarning")
@pytest.mark.parametrize(("bucket", "messages"), [(0, 4), (2 * GRADIENT, 2), (1 << 20, 1)])
def test_parameters_in_parts_are_gathered_and_reduced_in_buckets(bucket: int, messages: int) -> None:
    """Parameters stored in parts: each of four layers gathers its own, forward and backward, and one message reduces and cuts several gradients; proven, and both simulations are
    equal."""
    sequential = import_model(mlp_onnx.build([16] * 5, batch=32))
    prepare(Context(), sequential)
    program = distributed(dp=2, sharding="ilp", zero=3, divide=True, overlap=True, bucket=bucket)
    oracle, summary = (f(program, "dgx-2", random_modules.Uneven) for f in (simulate, summarize))
    assert summary.clocks == oracle.clocks
    assert summary.peak_memory_bytes == oracle.peak_memory_bytes
    assert (oracle.counts["dist.allgather"], oracle.counts["dist.reducescatter"]) == (8, messages)
    assert prove(sequential, program).holds
    assert prove_ranks(sequential, [project(program, rank) for rank in range(2)]).holds


@pytest.mark.filterwarnings("ignore:Constructing LpVariable:DeprecationWarning")
@pytest.mark.parametrize("bucket", [0, 2 * GRADIENT, 1 << 20])
@pytest.mark.parametrize("degrees", [{"dp": 4}, {"dp": 2, "tp": 2, "pp": 2, "microbatches": 4}])
def test_summaries_of_streams_are_exact(degrees: dict[str, int], bucket: int) -> None:
    module = distributed(**degrees, overlap=True, bucket=bucket)
    oracle, summary = (f(module, "dgx-2", random_modules.Uneven) for f in (simulate, summarize))
    assert summary.clocks == oracle.clocks
    assert summary.peak_memory_bytes == oracle.peak_memory_bytes


def test_what_a_message_costs_the_computation_beside_it() -> None:
    """`simulate/streams.mlir` derives 3 us without a cost of overlap: on both devices an operation 0-1, then one of 1-2 beside
    a message of 0.5 us. The message takes 20 % longer beside computation, 0.6 us, and half of that is lost to the
    computation: 3.3 us, the message 1-1.6."""
    text = (UNIT.parents[1] / "simulate" / "streams.mlir").read_text()
    context = Context()
    for dialect in (Builtin, Func, Dist, Onnx):
        context.load_dialect(dialect)
    machine = replace(load_machine(UNIT), overlap=Overlap(compute_slowdown=0.5, communication_slowdown=0.2))
    found = simulate(Parser(context, text).parse_module(), machine)
    assert found.makespan_picoseconds == 3_300_000
    assert found.clocks[0, "comm"] == 1_600_000
    assert found.busy_seconds[0] == {"elementwise": 3e-6, "allreduce": 0.6e-6, "slowdown": 0.3e-6}


@pytest.mark.filterwarnings("ignore:Constructing LpVariable:DeprecationWarning")
def test_parameters_stored_in_parts_are_fetched_ahead() -> None:
    """On the unit machine, an operation takes 1 us and a message 0.5 us, with a copy of 1 us, since columns do not lie together. One after the other a layer
    takes 8 us, and the entry two operations more: 18 us. Beside: the weight is there at 2.5 (the next layer's at 5), the layer's operations end at 4.5
    (the next layer's at 7.5, since all that it waits for is there), its gradients are reduced and negated until 10, while the entry's first operation
    runs; then they are added."""
    text = (UNIT.parents[1] / "overlap-communication" / "functions.mlir").read_text()
    context = Context()
    for dialect in (Builtin, Func, Dist, Onnx):
        context.load_dialect(dialect)
    plain = Parser(context, text).parse_module()
    beside = plain.clone()
    OverlapCommunicationPass().apply(context, beside)
    for simulated in (simulate, summarize):
        found = [simulated(program, load_machine(UNIT)).makespan_picoseconds for program in (plain, beside)]
        assert found == [18_000_000, 11_000_000]


def test_messages_on_streams_run_beside_computation() -> None:
    """Generated programs post what is on a stream, and wait for what they receive where it comes back to the main stream."""
    program = distributed(pp=2, microbatches=2, overlap=True)
    first, second = (source_of(project(program, rank), ElementTypes()).likeness for rank in range(2))
    assert "send_beside(" in first
    assert "receive_beside(" in second
    assert " send(" not in first + second
    received = [line.split(" = ")[0].strip() for line in second.splitlines() if "= receive_beside(" in line]
    assert received
    assert all(f"{name} = wait({name})" in second for name in received)


def test_waiting_for_a_message_waits_for_no_later_one() -> None:
    """Three operations (1 us each) and their messages (0.5 us each) follow each other on the first device: what is made at 1, 2 and 3 us is there at 1.5,
    2.5 and 3.5 us. The second device computes 1 us with each, from then on, to 4.5 us; it would to 5.5 us if it waited for the message after, too."""
    values = "".join(
        f"""
        %a{i + 1} = "onnx.Relu"(%a{i}) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
        %b{i + 1} = dist.send %a{i + 1} to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>"""
        for i in range(3)
    )
    uses = [
        f'%c{i} = "onnx.Relu"(%b{i}) : (tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>>' for i in (1, 2, 3)
    ]
    body = values.replace("%a3 =", f"{uses[0]}\n        %a3 =") + "\n".join(uses[1:])
    context = Context()
    for dialect in (Builtin, Func, Dist, Onnx):
        context.load_dialect(dialect)
    module = Parser(
        context, f"func.func @main(%a0: tensor<4xf32, #dist.on<0>>) {{ {body} func.return }}"
    ).parse_module()
    OverlapCommunicationPass().apply(context, module)
    assert simulate(module, load_machine(UNIT)).makespan_picoseconds == 4_500_000


def test_buckets_of_fewer_bytes_than_none_are_refused() -> None:
    module = import_model(mlp_onnx.build([16] * 3, batch=8))
    with pytest.raises(DistirError, match="bucket: expected at least 0 bytes, got -1"):
        DtpParallelizePass(dp=2, overlap=True, bucket=-1).apply(Context(), module)


@pytest.mark.parametrize("options", [{"dp": 2}, {"dp": 2, "tp": 2}, {"dp": 2, "pp": 2, "microbatches": 4}], ids=str)
def test_each_stream_has_memory_of_its_own(options: dict[str, int]) -> None:
    """What a device allocates, in order, is what the executed steps do: tensor by tensor, on the stream of the step. An allocator that keeps nothing
    reserves what is live; one with segments of 2 MiB, which hold all of a small model's tensors, one for each stream."""
    module, machine = distributed(**options, overlap=True, bucket=0), load_machine(UNIT)
    simulation, program = simulate(module, machine), open_program(module, machine)
    for device in range(simulation.devices):
        assert reserved_bytes(program, device, machine) == simulation.peak_memory_bytes[device]
        made = [s for s in simulation.storages if s.device == device and s.bytes]
        streams = {
            stream
            for s in made
            if s.born >= 0
            for on, stream in simulation.steps[s.born].placed.streams
            if on == device
        }
        large = tuple(replace(g, device=replace(g.device, memory_capacity_bytes=1 << 30)) for g in machine.groups)
        memory = Memory(allocator_granularity_bytes=512, allocator_segment_bytes=1 << 21)
        segmented = replace(machine, groups=large, memory=memory)
        assert reserved_bytes(program, device, segmented) == len({MAIN, *streams}) << 21


def test_tensors_that_are_one_message_have_a_buffer_meanwhile() -> None:
    """Replicas reduce the gradients of all parameters: one by one each has the memory of its result; in one message, a buffer of all of them too."""

    def allocated(bucket: int) -> int:
        program = open_program(distributed(dp=2, overlap=True, bucket=bucket), load_machine(UNIT))
        return sum(request.bytes for request in requests(program, 0))

    assert allocated(1 << 20) - allocated(0) == 4 * GRADIENT
