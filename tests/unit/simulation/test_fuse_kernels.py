"""`fuse-kernels`: programs with kernels compute what they did, cost what kernels read and write, and are simulated alike by both simulators."""

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from distir.dialects.dist.calls import is_kernel
from distir.dialects.registry import program_context
from distir.frontends.pytorch import import_step, training_step
from distir.frontends.text import parse_program
from distir.interpreters import reference
from distir.interpreters.equivalence import verify
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.machines import load_machine
from distir.interpreters.module_check import check_module
from distir.interpreters.simulate import simulate, summarize
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.fuse_kernels import FuseKernelsPass
from tests.long_cases import also_long


class Block(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.softmax(self.down(F.gelu(self.up(self.norm(x)), approximate="tanh")) * 0.5, -1)


def step(recompute: bool = False) -> ModuleOp:
    return imported(recompute).clone()


@cache
def imported(recompute: bool) -> ModuleOp:
    torch.manual_seed(0)
    first, second = Block(), Block()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x: Tensor) -> Tensor:
            if recompute:
                x = torch.utils.checkpoint.checkpoint(self.first, x, use_reentrant=False)  # pyright: ignore
                return self.second(x)
            return self.second(self.first(x))

    model = Model()
    made = training_step(model, F.cross_entropy, torch.optim.AdamW(model.parameters(), 1e-3))
    return import_step(made, (torch.randn(8, 16), torch.zeros(8, dtype=torch.long)))


def kernels(module: ModuleOp) -> dict[str, list[str]]:
    """Per kernel, its operations without their dialect."""
    functions = (f for f in module.body.block.ops if isinstance(f, FuncOp) and is_kernel(f))
    return {f.sym_name.data: [op.name.split(".")[1] for op in f.body.block.ops][:-1] for f in functions}


def fused(module: ModuleOp, backend: str) -> ModuleOp:
    FuseKernelsPass(backend).apply(Context(), module)
    module.verify()
    check_module(module)
    return module


@pytest.mark.parametrize("backend", ["inductor", "megatron"])
@pytest.mark.parametrize("recompute", [False, True])
def test_values_are_equal(backend: str, recompute: bool) -> None:
    module = step(recompute)
    inputs = draw_inputs(module, 0)
    before = reference.run(module, inputs)
    after = reference.run(fused(module, backend), inputs)
    assert kernels(module)
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])


BACKENDS, PLANS = ("inductor", "megatron"), ({"dp": 2, "tp": 2}, {"pp": 2, "microbatches": 2})


@pytest.mark.parametrize(
    ("backend", "options"),
    also_long(product(BACKENDS, PLANS), [(BACKENDS[1], PLANS[1])], several=True),
)
def test_distributed_programs(backend: str, options: dict[str, Any]) -> None:
    """Devices share kernels; both simulators see kernels as operations, and time and memory are less."""
    module = step()
    DtpParallelizePass(**options).apply(Context(), module)
    inputs = draw_inputs(module, 0)
    before, plain = reference.run(module, inputs), simulate(module, "dgx-a100")
    fused(module, backend)
    after, summary, simulation = (
        reference.run(module, inputs),
        summarize(module, load_machine("dgx-a100")),
        simulate(module, "dgx-a100"),
    )
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])
    assert simulation.makespan_seconds == summary.makespan_seconds < plain.makespan_seconds
    assert dict(simulation.peak_memory_bytes) == dict(summary.peak_memory_bytes)
    assert max(simulation.peak_memory_bytes.values()) <= max(plain.peak_memory_bytes.values())


def test_eager_leaves_everything_alone_and_twice_is_once() -> None:
    module = step()
    text = str(module)
    assert str(fused(module, "eager")) == text
    once = str(fused(module, "inductor"))
    assert once != text
    assert str(fused(module, "inductor")) == once


def test_the_paper_s_model_charges_operations_one_by_one() -> None:
    module = step()
    before = simulate(module, "dgx-2", "distir").makespan_seconds
    assert simulate(fused(module, "inductor"), "dgx-2", "distir").makespan_seconds == pytest.approx(before, rel=1e-9)


def trace(function: Any, *shapes: tuple[int, ...]) -> ModuleOp:
    return import_step(function, [torch.randn(shape) for shape in shapes])


def test_a_kernel_is_charged_what_it_reads_and_writes() -> None:
    """Three operations on 8 MB: one pass of 8 MB in and out, on a machine of 2.039e12 * 0.79 bytes per second, and 5 us."""
    module = trace(lambda x: (x + 1).relu() * 2, (2048, 1024))
    simulation = simulate(fused(module, "inductor"), "dgx-a100")
    assert simulation.makespan_seconds == pytest.approx(5e-6 + 2 * 2**23 / (2.039e12 * 0.79), rel=1e-6)
    assert max(simulation.peak_memory_bytes.values()) == 2 * 2**23


def test_a_reduction_is_read_again_by_inductor_alone() -> None:
    def normalised(x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) * 2

    assert [len(ops) for ops in kernels(fused(trace(normalised, (64, 32)), "inductor")).values()] == [3]
    assert [len(ops) for ops in kernels(fused(trace(normalised, (64, 32)), "megatron")).values()] == [2]


def test_rows_and_columns_are_reduced_by_different_kernels() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp() + 1
        return y.sum(0), y.sum(1)

    module = fused(trace(both, (64, 32)), "inductor")
    (kernel,) = kernels(module).values()
    assert kernel.count("sum") == 1
    assert sum(op.name.startswith("aten.sum") for op in module.walk()) == 2


def test_what_needs_a_contraction_in_its_middle_is_no_kernel() -> None:
    def around(x: Tensor, w: Tensor) -> Tensor:
        y = x.exp()
        return (y @ w) * y

    assert kernels(fused(trace(around, (32, 32), (32, 32)), "inductor")) == {}


def test_matmuls_accumulate_into_gradients_by_megatron_s_kernels() -> None:
    module = step()
    DtpParallelizePass(microbatches=2).apply(Context(), module)
    names = [set(ops) for ops in kernels(fused(module, "megatron")).values()]
    assert any(ops <= {"mm", "t", "accumulate"} and {"mm", "accumulate"} <= ops for ops in names)


def test_recomputation_joins_no_kernel_of_the_forward() -> None:
    """What a checkpointed layer computes again needs its input alone, so nothing else would keep it late."""
    module = fused(step(recompute=True), "inductor")
    for ops in kernels(module).values():
        assert ops.count("gelu") < 2
        assert ops.count("native_layer_norm") < 2


def test_a_model_that_is_compiled_in_parts_has_kernels_there() -> None:
    """Operations of other modules, and the loss, are left alone; updates are joined anyway, which is all that `foreach` does."""
    whole, part, none = step(), step(), step()
    FuseKernelsPass("inductor").apply(Context(), whole)
    FuseKernelsPass("inductor", "second").apply(Context(), part)
    FuseKernelsPass("foreach").apply(Context(), none)

    def updating(found: dict[str, list[str]]) -> list[list[str]]:
        return [ops for ops in found.values() if "addcdiv" in ops]

    assert len(kernels(whole)) > len(kernels(part)) > len(kernels(none)) == len(updating(kernels(none))) > 0
    assert updating(kernels(part))

    def of_first(module: ModuleOp) -> list[str]:
        return sorted(op.name for op in module.walk() if "first" in str(op.attributes.get("dist.module")))

    assert of_first(part) == of_first(step()) != of_first(whole)


@pytest.mark.filterwarnings("ignore:Constructing LpVariable:DeprecationWarning")
def test_kernels_of_groups_run_on_each_device_and_keep_what_differs() -> None:
    """What differs from device to device (`dist.by_rank`: rows of a table, the start of a slice) is in no kernel."""
    sequential, module = step(), step()
    DtpParallelizePass(dp=2, sharding="ilp", zero=3, grouped=True, overlap=True).apply(Context(), module)
    FuseKernelsPass("inductor").apply(Context(), module)
    check_module(module)
    assert kernels(module)
    assert verify(sequential, module).holds
    assert simulate(module, "dgx-a100").makespan_picoseconds == summarize(module, "dgx-a100").makespan_picoseconds


def test_what_depends_on_the_place_along_an_axis_is_in_no_kernel() -> None:
    """`dist.first_only` is zeros on all devices but the first."""
    text = """builtin.module attributes {dist.devices = 2 : i64} {
      dist.mesh @mesh = <["dp" = 2]>
      func.func @main(%x: VEC {dist.name = "x"}) -> (VEC {dist.name = "y"}) {
        %0 = "onnx.Relu"(%x) : (VEC) -> VEC
        %1 = dist.first_only %0 over "dp" : VEC -> VEC
        %2 = "onnx.Tanh"(%1) : (VEC) -> VEC
        %y = "onnx.Neg"(%2) : (VEC) -> VEC
        func.return %y : VEC
      }
    }""".replace("VEC", "tensor<4xf32, #dist.on<0:2>>")
    module = fused(parse_program(program_context(), text, "module"), "inductor")
    assert list(kernels(module).values()) == [["Tanh", "Neg"]]
