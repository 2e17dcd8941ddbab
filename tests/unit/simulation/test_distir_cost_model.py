"""The `distir` cost model against the original's formulas worked out by hand, and the paper's programs against points that
the original simulated."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from xdsl.dialects.builtin import TensorType, UnitAttr, f16, i64
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.dist import AllGatherOp, AllReduceOp, BroadcastOp, GatherOp, SendOp
from distir.dialects.dist.attributes import on_device
from distir.dialects.grad import LossOp, MatmulGradOp, SgdOp
from distir.dialects.onnx import OPERATORS
from distir.interpreters.cost_models import make_cost_model
from distir.interpreters.costs import Costs
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate, summarize

ROOT = Path(__file__).parents[3]
DGX2 = Costs(make_cost_model("distir", load_machine("dgx-2")))
A100 = Costs(make_cost_model("distir", load_machine("dgx-a100")))
FLOPS, BYTES, LAUNCH = 9.698420802449428e13, 1.6449294287743057e12, 1e-5
"""Per second; and seconds."""


def tensor(*shape: int, device: int | None = None, of: Any = f16) -> TensorType[Any]:
    return TensorType(of, shape) if device is None else TensorType(of, shape, on_device(device))


def values(*types: Attribute) -> Sequence[SSAValue]:
    return TestOp(result_types=types).results


def onnx(name: str, result: Attribute, *operands: Attribute) -> Operation:
    return OPERATORS[name].create(operands=values(*operands), result_types=[result])


def seconds(op: Operation, *devices: int, costs: Costs = DGX2) -> float:
    return costs.of(op, devices or (0,)).picoseconds / 1e12


def kernel(bytes: float, flops: float) -> float:
    return LAUNCH + bytes / BYTES + flops / FLOPS


def is_about(expected: float) -> Any:
    return pytest.approx(expected, abs=1e-12)


def test_matmul() -> None:
    """x is (64, 32), y is (32, 16): 2 B of 64 * 32 + 32 * 16 elements are read; 2 * 64 * 32 * 16 flops."""
    op = onnx("MatMul", tensor(64, 16), tensor(64, 32), tensor(32, 16))
    assert seconds(op) == is_about(kernel(2 * (2048 + 512), 65536))


def test_matmul_of_more_dims_sees_two() -> None:
    """(8, 16, 128, 64) by (8, 16, 64, 128) is taken for (8, 16) by (8, 16)."""
    op = onnx("MatMul", tensor(8, 16, 128, 128), tensor(8, 16, 128, 64), tensor(8, 16, 64, 128))
    assert seconds(op) == is_about(kernel(2 * (128 + 128), 2 * 8 * 16 * 16))


def test_gemm_is_a_matmul_and_an_addition() -> None:
    op = onnx("Gemm", tensor(64, 16), tensor(64, 32), tensor(32, 16), tensor(16))
    assert seconds(op) == is_about(kernel(2 * (2048 + 512), 65536) + kernel(2 * 1024 * 2, 1024))


def test_matmul_gradient() -> None:
    """dy (64, 16) by w.T (16, 32), and x.T (32, 64) by dy (64, 16)."""
    operands = values(tensor(64, 32), tensor(32, 16), tensor(64, 16))
    op = MatmulGradOp.create(operands=operands, result_types=[tensor(64, 32), tensor(32, 16)])
    assert seconds(op) == is_about(kernel(2 * (1024 + 512), 65536) + kernel(2 * (2048 + 1024), 65536))


def test_elementwise_counts_operands_like_the_first() -> None:
    x, row = tensor(1000, 1000), tensor(1000)
    assert seconds(onnx("Relu", x, x)) == is_about(kernel(2e6, 1e6))
    assert seconds(onnx("Add", x, x, row)) == is_about(kernel(4e6, 1e6))
    assert seconds(onnx("Softmax", x, x)) == is_about(kernel(2e6, 1e6))
    assert seconds(onnx("ReduceMean", tensor(1000, 1), x, tensor(1, of=i64))) == is_about(kernel(2e6, 1e6))


def test_loss_counts_the_label_alone() -> None:
    x = tensor(1000, 1000)
    assert seconds(LossOp.create(operands=values(x, x, tensor()), result_types=[x])) == is_about(kernel(2e6, 1e6))


def test_an_update_fused_into_another_is_free() -> None:
    op = SgdOp(*values(tensor(1000, 1000), tensor(1000, 1000)), 0.0)
    assert seconds(op) == is_about(kernel(4e6, 1e6))
    op = SgdOp(*values(tensor(1000, 1000), tensor(1000, 1000)), 0.0)
    op.attributes["fused"] = UnitAttr()
    assert seconds(op) == 0


def test_launches_and_what_is_free() -> None:
    x, shape, scalar = tensor(1000, 1000), tensor(2, of=i64), tensor(of=i64)
    for op in (
        onnx("Reshape", x, x, shape),
        onnx("Shape", shape, x),
        onnx("Gather", scalar, shape, scalar),
        onnx("Concat", tensor(2000, 1000), x, x),
    ):
        assert seconds(op) == is_about(LAUNCH), op.name
    for op in (
        onnx("Identity", x, x),
        onnx("Div", scalar, scalar, scalar),
        onnx("Cast", shape, shape),
        onnx("Sub", x, tensor(), x),
    ):
        assert seconds(op) == 0, op.name


def test_operators_that_the_original_lacks_are_a_launch() -> None:
    x = tensor(1000, 1000)
    assert seconds(onnx("Erf", x, x)) == is_about(LAUNCH)
    assert seconds(onnx("Expand", x, tensor(1000), tensor(2, of=i64))) == is_about(LAUNCH)


def test_send_has_no_latency() -> None:
    """1 MB is 8e-3 Gb; devices 2 and 3 have a measured bandwidth, 2 and 4 the mean."""
    op = SendOp(values(tensor(500_000, device=0))[0], tensor(500_000, device=1))
    assert seconds(op, 2, 3) == is_about(8e-3 / 1095.2057)
    assert seconds(op, 4, 2) == is_about(8e-3 / 1095.3)
    op = SendOp(values(tensor(device=0, of=i64))[0], tensor(device=1, of=i64))
    assert seconds(op, 2, 3) == 0


def test_collectives() -> None:
    parts = [tensor(500_000, device=d) for d in range(4)]
    whole = [tensor(2_000_000, device=d) for d in range(4)]
    allreduce = 0.0016246231647391587 * 8e-3 + 6.10879929736589e-05
    assert seconds(AllReduceOp(values(*parts)), *range(4)) == is_about(allreduce)
    assert seconds(AllGatherOp(values(*parts), 0, whole), *range(4)) == is_about(allreduce)
    assert seconds(BroadcastOp.create(operands=values(parts[0]), result_types=parts), *range(4)) == 0
    gather = GatherOp(values(*parts), 0, whole[3])
    assert seconds(gather, *range(4)) == is_about(2 * 8e-3 / 1095.2057), "2 B per element, counted twice; 2 to 3"


def test_a_group_size_without_calibration_is_a_ring() -> None:
    """Three devices: pairs (0, 1), (1, 2) and (0, 2); 2 * 2 / 3 of 8e-3 Gb."""
    op = AllReduceOp(values(*(tensor(500_000, device=d) for d in range(3))))
    assert seconds(op, 0, 1, 2) == is_about(4 / 3 * 8e-3 / ((1095.0955 + 1095.58 + 1095.3) / 3))


def test_another_machine_has_its_own_constants() -> None:
    """dgx-a100 reaches 3.12e14 * 0.712 flops in f16, and 2.039e12 * 0.79 bytes per second."""
    op = onnx("MatMul", tensor(64, 16), tensor(64, 32), tensor(32, 16))
    assert seconds(op, costs=A100) == is_about(LAUNCH + 5120 / (2.039e12 * 0.79) + 65536 / (3.12e14 * 0.712))
    op = SendOp(values(tensor(500_000, device=0))[0], tensor(500_000, device=1))
    assert seconds(op, 0, 1, costs=A100) == is_about(1e6 / 2.85e11)
    assert seconds(op, 7, 8, costs=A100) == is_about(1e6 / 2.4e10)


@pytest.fixture(name="paper")
def paper_modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`benchmarks` is not installed, and a dependency has a package of that name."""
    monkeypatch.syspath_prepend(str(ROOT))
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    from benchmarks.paper import points

    return points


SAMPLE = [
    ("mlp-small", 1024, 16, 1, 1, 1),
    ("mlp-small", 8192, 2, 8, 1, 1),
    ("mlp-small", 2048, 1, 1, 16, 8),
    ("mlp-small", 4096, 2, 2, 4, 16),
    ("mlp-medium", 8192, 4, 4, 1, 1),
    ("mlp-medium", 32768, 2, 4, 2, 8),
    ("mlp-large", 8192, 1, 1, 16, 4),
    ("mlp-large", 1024, 8, 2, 1, 1),
    ("gpt3-xl", 65536, 16, 1, 1, 1),
    ("gpt3-xl", 65536, 4, 2, 2, 2),
    ("gpt3-13B", 16384, 16, 1, 1, 1),
    ("gpt3-13B", 8192, 2, 8, 1, 1),
    ("gpt3-175B", 8192, 1, 2, 8, 4),
]
"""Model, batch, D, T, P, K; 13B has 40 heads, so with T = 8 it has 5, and with T = 16 the original drops some."""


def test_points_of_the_paper(paper: Any) -> None:
    by_key = {
        (p.model, p.configuration.batch, p.configuration.D, p.configuration.T, p.configuration.P, p.configuration.K): p
        for p in paper.read_points()
    }
    assert len(by_key) == 3508
    for outcome in paper.outcomes([by_key[key] for key in SAMPLE]):
        assert abs(outcome.latency_error) < 1e-5, outcome
        assert outcome.has_memory, outcome


def test_the_programs_hold_together_and_summaries_are_exact(paper: Any) -> None:
    configuration = paper.Configuration(2, 2, 2, 4, 64)
    from benchmarks.paper.gpt2 import Gpt2
    from benchmarks.paper.gpt2 import build as build_gpt2
    from benchmarks.paper.mlp import Mlp
    from benchmarks.paper.mlp import build as build_mlp

    for module in (build_mlp(Mlp(8, 32), configuration), build_gpt2(Gpt2(3, 4, 64), configuration)):
        module.verify()
        oracle = simulate(module, "dgx-2", "distir")
        summary = summarize(module, "dgx-2", "distir")
        assert summary.clocks == oracle.clocks
        assert summary.peak_memory_bytes == oracle.peak_memory_bytes


def test_the_schedule_is_pipedream_s(paper: Any) -> None:
    """Two stages, three microbatches, forward i and backward i of microbatch k as f or b, i, k. Time steps are the
    original scheduler's, by hand: nothing limits how many microbatches stage 0 begins."""
    from benchmarks.paper.pipedream import Stage, schedule

    stages = [Stage(0, 0), Stage(1, 1), Stage(2, 1, True), Stage(3, 0, True)]
    steps = [" ".join(f"{'b' if s.is_backward else 'f'}{s.device}{k}" for s, k in step) for step in schedule(stages, 3)]
    assert steps == ["f00", "f01 f10", "f02 b10", "b00 f11", "b11", "b01 f12", "b12", "b02"]
