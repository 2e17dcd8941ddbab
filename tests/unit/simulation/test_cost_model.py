"""The work of operations against torch's flop counter, and the analytic model against times derived by hand."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BoolAttr,
    ComplexType,
    DenseArrayBase,
    IntegerAttr,
    IntegerType,
    NoneType,
    Signedness,
    StringAttr,
    TensorType,
    TupleType,
    f16,
    f32,
    f64,
    i1,
    i8,
    i32,
)
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute, Block, Operation

from distir.dialects.aten import OPERATORS as ATEN
from distir.dialects.dist import AllGatherOp, AllToAllOp, ExchangeOp, PackOp, ReduceScatterOp, SliceOp
from distir.dialects.dist.attributes import on_device, placed
from distir.dialects.errors import DistirError
from distir.dialects.grad import MatmulGradOp
from distir.dialects.onnx import OPERATORS
from distir.interpreters import cost_models
from distir.interpreters.aten.work import PRODUCTS, is_attention
from distir.interpreters.cost_models import CostModel, cost_model_names, make_cost_model
from distir.interpreters.cost_models.analytic import AnalyticCostModel, padding
from distir.interpreters.costs import Cost, Costs
from distir.interpreters.machines import Device, DeviceGroup, Level, Machine, Tiles, load_machine
from distir.interpreters.work import Contraction, Kind, Work, dtype_bytes, type_bytes, work_of

SI64 = IntegerType(64, Signedness.SIGNED)


def tensor(*shape: int, of: Any = f32) -> TensorType[Any]:
    return TensorType(of, shape)


def onnx(name: str, operands: Sequence[Attribute], result: Attribute, **properties: Attribute) -> Operation:
    values = TestOp(result_types=operands).results
    return OPERATORS[name].create(operands=values, result_types=[result], properties=properties)


def torch_flops(run: Any, *shapes: tuple[int, ...]) -> int:
    """What torch counts for a function of tensors of these shapes."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        run(*(torch.empty(shape, device="meta") for shape in shapes))
    return counter.get_total_flops()


def test_matmul_flops_are_torch_s() -> None:
    import torch

    work = work_of(onnx("MatMul", [tensor(3, 5, 7), tensor(7, 11)], tensor(3, 5, 11)))
    assert work.flops == torch_flops(torch.matmul, (3, 5, 7), (7, 11))
    assert (work.kind, work.bytes) == (Kind.MATMUL, 4 * (105 + 77 + 165))
    assert work.contractions == (Contraction(1, 15, 11, 7),)
    batched = work_of(onnx("MatMul", [tensor(2, 3, 5, 7), tensor(2, 3, 7, 11)], tensor(2, 3, 5, 11)))
    assert batched.flops == torch_flops(torch.matmul, (2, 3, 5, 7), (2, 3, 7, 11))
    assert batched.contractions == (Contraction(6, 5, 11, 7),)
    vectors = work_of(onnx("MatMul", [tensor(3, 5, 7), tensor(7)], tensor(3, 5)))
    assert vectors.flops == 2 * 3 * 5 * 7
    quantised = onnx("QLinearMatMul", [tensor(5, 7), tensor(), tensor(), tensor(7, 11)], tensor(5, 11))
    assert work_of(quantised).flops == torch_flops(torch.matmul, (5, 7), (7, 11))


def test_gemm_flops_are_torch_s() -> None:
    import torch

    plain = work_of(onnx("Gemm", [tensor(5, 7), tensor(7, 11), tensor(11)], tensor(5, 11)))
    assert plain.flops == torch_flops(lambda a, b, c: torch.addmm(c, a, b), (5, 7), (7, 11), (11,))
    transposed = onnx("Gemm", [tensor(7, 5), tensor(7, 11), tensor(11)], tensor(5, 11), transA=IntegerAttr(1, SI64))
    assert work_of(transposed).flops == plain.flops


def test_convolution_flops_are_torch_s() -> None:
    import torch.nn.functional as F

    conv = work_of(
        onnx(
            "Conv", [tensor(2, 6, 9, 9), tensor(4, 3, 3, 3), NoneType()], tensor(2, 4, 7, 7), group=IntegerAttr(2, SI64)
        )
    )
    assert conv.contractions == (Contraction(2, 2 * 49, 2, 27),)
    assert conv.flops == torch_flops(lambda x, w: F.conv2d(x, w, groups=2), (2, 6, 9, 9), (4, 3, 3, 3))
    up = work_of(onnx("ConvTranspose", [tensor(2, 6, 5, 5), tensor(6, 4, 3, 3), NoneType()], tensor(2, 4, 11, 11)))
    assert up.flops == torch_flops(lambda x, w: F.conv_transpose2d(x, w, stride=2), (2, 6, 5, 5), (6, 4, 3, 3))


@pytest.mark.parametrize(
    ("equation", "shapes", "result"),
    [
        ("bhqd,bhkd->bhqk", [(2, 3, 5, 7), (2, 3, 11, 7)], (2, 3, 5, 11)),
        ("ij,jk", [(5, 7), (7, 11)], (5, 11)),
        ("...ij,...jk->...ik", [(3, 5, 7), (3, 7, 11)], (3, 5, 11)),
        ("ij,jk,kl->il", [(5, 7), (7, 11), (11, 13)], (5, 13)),
        ("io,bo,bi->b", [(5, 7), (3, 7), (3, 5)], (3,)),
        ("ij,jk->i", [(5, 7), (7, 11)], (5,)),
    ],
)
def test_einsum_flops_are_torch_s(
    equation: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands are given in the best order, which is the one that torch takes without opt_einsum."""
    import torch

    monkeypatch.setattr(torch.backends.opt_einsum, "enabled", False)
    types = [tensor(*shape) for shape in shapes]
    work = work_of(onnx("Einsum", types, tensor(*result), equation=StringAttr(equation)))
    assert work.kind == Kind.MATMUL
    assert work.flops == torch_flops(lambda *values: torch.einsum(equation, *values), *shapes)


def test_einsum_without_a_product_is_elementwise() -> None:
    outer = work_of(onnx("Einsum", [tensor(5), tensor(7)], tensor(5, 7), equation=StringAttr("i,j->ij")))
    assert (outer.kind, outer.flops) == (Kind.ELEMENTWISE, 35)
    total = work_of(onnx("Einsum", [tensor(5, 7)], tensor(5), equation=StringAttr("ij->i")))
    assert (total.kind, total.flops) == (Kind.ELEMENTWISE, 35)


@pytest.mark.parametrize(("name", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_flops_are_torch_s(name: str, gates: int) -> None:
    """What torch counts for one step of a cell, times the steps: 5 steps, batch 3, 7 features, 11 hidden, both ways."""
    import torch

    cell = {"RNN": torch.nn.RNNCell, "GRU": torch.nn.GRUCell, "LSTM": torch.nn.LSTMCell}[name](7, 11)
    operands = [tensor(5, 3, 7), tensor(2, gates * 11, 7), tensor(2, gates * 11, 11)]
    work = work_of(onnx(name, operands, tensor(5, 2, 3, 11)))
    one = 2 * 3 * gates * 11 * (7 + 11)
    assert sum(2 * p.numel() * 3 for n, p in cell.named_parameters() if n.startswith("weight")) == one
    assert work.flops == 2 * 5 * one
    assert work.contractions[1].times == 5


def test_attention_flops_are_torch_s() -> None:
    from torch.utils.flop_counter import sdpa_flop_count

    query, key, value = (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)
    op = onnx("Attention", [tensor(*query), tensor(*key), tensor(*value)], tensor(2, 3, 5, 6))
    assert work_of(op).flops == sdpa_flop_count(query, key, value)
    merged = onnx("Attention", [tensor(2, 5, 24), tensor(2, 7, 24), tensor(2, 7, 18)], tensor(2, 5, 18))
    assert work_of(merged).flops == sdpa_flop_count(query, key, value)


def aten(name: str, shapes: Sequence[tuple[int, ...]], *results: Attribute, **properties: Attribute) -> Operation:
    values = TestOp(result_types=[tensor(*shape) for shape in shapes]).results
    return ATEN[f"aten.{name}"].create(operands=values, result_types=results, properties=properties)


def test_attention_kernels_of_torch() -> None:
    """Flops are torch's, but with a causal mask, for which torch counts all: of 5 x 5 scores 15 are seen, of 5 x 7 from the last 25."""
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    query, key, value = (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)
    result = tensor(2, 3, 5, 6)
    whole = work_of(aten("scaled_dot_product_attention", [query, key, value], result))
    assert (whole.kind, whole.flops) == (Kind.ATTENTION, sdpa_flop_count(query, key, value))
    causal = BoolAttr.from_bool(True)
    equal = work_of(aten("scaled_dot_product_attention", [query] * 3, tensor(*query), is_causal=causal))
    assert equal.flops == sdpa_flop_count(query, query, query) * 15 // 25
    name, operands = "_scaled_dot_product_flash_attention_for_cpu_backward", [(2, 3, 5, 6), query, key, value]
    back = work_of(aten(name, [*operands, (2, 3, 5, 6), (2, 3, 5)], *(tensor(*each) for each in (query, key, value))))
    assert (back.kind, back.flops) == (Kind.ATTENTION_GRADIENT, sdpa_backward_flop_count(*operands))
    # The kernel's own operator has positions before heads, or samples one after the other: here two, of 5 and 7 at most.
    lengths = {f"max_{each}": IntegerAttr(n, IntegerType(64)) for each, n in (("q", 5), ("k", 7))}
    swapped = [(each[0], each[2], each[1], each[3]) for each in (query, key, value)]
    absent = {"operandSegmentSizes": DenseArrayBase.from_list(i32, [1] * 3 + [0] * 5)}
    flash = aten("_flash_attention_forward", swapped, result, **lengths, **absent, is_causal=causal)
    assert work_of(flash).flops == whole.flops * 25 // 35
    joined = [(9, 3, 8), (12, 3, 8), (12, 3, 6), (3,), (3,)]
    present = {"operandSegmentSizes": DenseArrayBase.from_list(i32, [1] * 5 + [0] * 3)}
    assert work_of(aten("_flash_attention_forward", joined, result, **lengths, **present)).flops == whole.flops


def test_all_that_torch_has_formulas_of_is_known() -> None:
    from torch.utils.flop_counter import flop_registry

    counted = {str(each).removeprefix("aten.") for each in flop_registry}
    schemas = [kind.schema for kind in ATEN.values() if kind.schema.packet in counted]
    assert len(schemas) > 15
    assert [each.text for each in schemas if each.packet not in PRODUCTS and not is_attention(each)] == []


def test_matmul_grad_flops_are_torch_s() -> None:
    import torch

    x, w, dy = (TestOp(result_types=[tensor(*s)]).results[0] for s in ((3, 5, 7), (7, 11), (3, 5, 11)))
    op = MatmulGradOp(operands=[x, w, dy], result_types=[x.type, w.type])

    def backward(x: torch.Tensor, w: torch.Tensor) -> None:
        y = x.requires_grad_() @ w.requires_grad_()
        y.sum().backward()

    forward = torch_flops(torch.matmul, (3, 5, 7), (7, 11))
    assert work_of(op).flops == torch_flops(backward, (3, 5, 7), (7, 11)) - forward


def test_default_work() -> None:
    """Any other operator: its operands and results, and one flop per result element; copies do none."""
    relu = onnx("Relu", [tensor(5, 7, of=f16)], tensor(5, 7, of=f16))
    assert work_of(relu) == Work(Kind.ELEMENTWISE, 35, 2 * 35 + 2 * 35)
    transpose = onnx("Transpose", [tensor(5, 7)], tensor(7, 5))
    assert work_of(transpose) == Work(Kind.DATA_MOVEMENT, 0, 2 * 140)
    cut = SliceOp(TestOp(result_types=[tensor(5, 7)]).results[0], [(0, 2), (0, 7)])
    assert work_of(cut) == Work(Kind.DATA_MOVEMENT, 0, 140 + 56)
    assert work_of(onnx("Shape", [tensor(5, 7)], tensor(2, of=IntegerType(64)))).kind == Kind.NOTHING
    assert work_of(onnx("Reshape", [tensor(5, 7), tensor(1, of=IntegerType(64))], tensor(35))) == Work(Kind.VIEW)


def test_dynamic_shape_is_refused() -> None:
    with pytest.raises(DistirError, match=r"onnx.Relu: tensor<\?x7xf32> has no static shape: run onnx-fold-shapes"):
        work_of(onnx("Relu", [tensor(DYNAMIC_INDEX, 7)], tensor(DYNAMIC_INDEX, 7)))


def test_type_bytes() -> None:
    assert type_bytes(tensor(3, of=f64)) == 24
    assert type_bytes(tensor(3, of=i1)) == 3
    assert type_bytes(tensor(3, of=IntegerType(4))) == 3
    assert type_bytes(tensor(3, of=ComplexType(f32))) == 24
    assert type_bytes(TupleType((tensor(3), tensor(of=f16)))) == 14
    assert type_bytes(NoneType()) == 0
    assert [dtype_bytes(dtype) for dtype in ("f16", "bf16", "f8E4M3FN", "si64", "i1", "index")] == [2, 2, 1, 8, 1, 8]


FAST = 1e30
"""A rate that takes no time."""
DEVICE = Device("test", {"f32": 1e12, "f16": 4e12}, 0.5, 1e6, 1e9, 0.25, 2**30, 1e-3)
LEVELS = (Level("node", 1e-5, 1e-6, 1e9, 4), Level("cluster", 1e-4, 1e-5, 1e8))
MACHINE = Machine("test", (DeviceGroup(DEVICE, None),), LEVELS)
MODEL = AnalyticCostModel(MACHINE)


def test_roofline() -> None:
    """1e9 flops at 1e12 x 0.5 x 1e9 / (1e9 + 1e6) flop/s take 2.002 ms; 1e6 bytes at 1e9 x 0.25 take 4 ms."""
    assert MODEL.matmul_seconds(Work(Kind.MATMUL, 10**9, 0), "f32") == pytest.approx(1e-3 + 2.002e-3)
    assert MODEL.matmul_seconds(Work(Kind.MATMUL, 10**9, 10**6), "f32") == pytest.approx(1e-3 + 4e-3)
    assert MODEL.matmul_seconds(Work(Kind.MATMUL, 10**9, 0), "f16") == pytest.approx(1e-3 + 2.002e-3 / 4)
    assert MODEL.elementwise_seconds(Work(Kind.ELEMENTWISE, 10**9, 10**6), "f32") == pytest.approx(5e-3)
    assert MODEL.data_movement_seconds(Work(Kind.DATA_MOVEMENT, 0, 10**6)) == pytest.approx(5e-3)


def test_a_kernel_per_contraction() -> None:
    """Three kernels of 1e6 flops: three floors, and each runs at half the rate: 2 us each at 1e12."""
    work = Work(Kind.MATMUL, 3 * 10**6, 0, (Contraction(1, 50, 100, 100, times=3),))
    assert MODEL.matmul_seconds(work, "f32") == pytest.approx(3e-3 + 3 * 2 * 2e-6)


def test_host_dispatch() -> None:
    """Nothing is shorter than the host takes to issue it: 5 ms."""
    device = replace(DEVICE, dispatch_seconds=5e-3)
    model = AnalyticCostModel(replace(MACHINE, groups=(DeviceGroup(device, None),)))
    assert model.data_movement_seconds(Work(Kind.DATA_MOVEMENT, 0, 1)) == 5e-3
    assert model.send_seconds(1, 0, 1) == 5e-3
    assert model.data_movement_seconds(Work(Kind.DATA_MOVEMENT, 0, 10**7)) == pytest.approx(1e-3 + 40e-3)


TILES = Tiles(64, 32, 10, 128, 128, 0.5, 16, 1.5)


@pytest.mark.parametrize(
    ("contraction", "factor"),
    [
        (Contraction(1, 1280, 128, 64), 1.0),  # 10 tiles on 10 processors
        (Contraction(1, 65, 128, 64), 128 / 65),  # rows padded to 2 x 64; less than a wave
        (Contraction(1, 64, 40, 64), 64 / 40),  # columns padded to 2 x 32
        (Contraction(1, 1920, 128, 64), 1 + 0.5 * (2 / 1.5 - 1)),  # 1.5 waves take 2, half of it lost
        (Contraction(3, 1280, 128, 64), 1.0),  # 3 waves
        (Contraction(1, 1280, 128, 63), 1.5),  # 63 f16 elements are no multiple of 16 bytes
        (Contraction(1, 64, 36, 64), 1.5 * 64 / 36),  # nor are 36
        (Contraction(1, 0, 128, 64), 0.0),
    ],
)
def test_padding(contraction: Contraction, factor: float) -> None:
    assert padding(contraction, TILES, 2) == pytest.approx(factor)


def test_padding_slows_matmuls() -> None:
    """70 rows of 64-row tiles cost 128: 2 x 128 x 128 x 8192 flops at 4e12 x 0.5, and 1e6 flops to saturate."""
    device = replace(DEVICE, tiles=TILES)
    model = AnalyticCostModel(replace(MACHINE, groups=(DeviceGroup(device, None),)))
    contraction = Contraction(1, 70, 128, 8192)
    work = Work(Kind.MATMUL, contraction.flops, 0, (contraction,))
    assert model.matmul_seconds(work, "f16") == pytest.approx(1e-3 + (2 * 128 * 128 * 8192 + 1e6) / 2e12)


def test_formulas_take_arrays() -> None:
    """One value per batch size, each equal to what it is alone."""
    rows = np.array([70, 1280, 4096])
    machine = replace(MACHINE, groups=(DeviceGroup(replace(DEVICE, tiles=TILES, dispatch_seconds=2e-3), None),))
    model = AnalyticCostModel(machine)

    def seconds(m: Any) -> list[Any]:
        contraction = Contraction(1, m, 128, 8192)
        work = Work(Kind.MATMUL, contraction.flops, 2 * m * 8192, (contraction,))
        group = [0, 1, 4, 5]
        kinds = ("allreduce", "allgather", "broadcast", "alltoall")
        return [
            model.matmul_seconds(work, "f16"),
            model.elementwise_seconds(work, "f16"),
            model.send_seconds(work.bytes, 0, 5),
            *(model.collective_seconds(kind, work.bytes, group) for kind in kinds),
        ]

    for found, *alone in zip(seconds(rows), *(seconds(int(m)) for m in rows), strict=True):
        assert found.tolist() == alone


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("allreduce", 1e-5 + 5e-6 + 1.5e-3),  # 6 steps, 2 x 3/4 of 1e6 bytes at 1e9 bytes/s
        ("allgather", 1e-5 + 2e-6 + 0.75e-3),  # 3 steps, 3/4
        ("reducescatter", 1e-5 + 2e-6 + 0.75e-3),
        ("alltoall", 1e-5 + 2e-6 + 0.75e-3),
        ("scatter", 1e-5 + 1e-6 + 0.75e-3),  # binomial: 2 steps
        ("gather", 1e-5 + 1e-6 + 0.75e-3),
        ("broadcast", 1e-5 + 1e-6 + 1e-3),  # tree: 2 steps
        ("reduce", 1e-5 + 1e-6 + 1e-3),
    ],
)
def test_collectives_in_a_node(kind: str, seconds: float) -> None:
    assert MODEL.collective_seconds(kind, 10**6, range(4)) == pytest.approx(seconds)
    assert MODEL.collective_seconds(kind, 10**6, [2]) == 0


def test_an_exchange_of_windows() -> None:
    """Three parts of 1000 rows of 1000 bytes; everyone also reads 10 rows of its neighbours. The one in the middle receives two
    messages, one after the other, and sends two meanwhile."""
    operands = [placed(TensorType(i8, [1000, 1000]), on_device(d)) for d in range(3)]
    rows = (1010, 1020, 1010)
    results = [placed(TensorType(i8, [n, 1000]), on_device(d)) for d, n in enumerate(rows)]
    op = ExchangeOp(Block(arg_types=operands).args, 0, [0, 990, 1990], results)
    op.verify()
    cost = Costs(MODEL).of(op, (0, 1, 2))
    assert cost.kind == "exchange"
    assert cost.picoseconds == pytest.approx(2 * (1e-5 + 1e-5) * 1e12)


def test_collectives_between_nodes() -> None:
    """Two nodes of two devices: reduce-scatter inside, allreduce of the halves between, all-gather inside; an allgather alone is one ring."""
    inside = 1e-5 + 0.5e-3  # one step, half of 1e6 bytes at 1e9
    between = 1e-4 + 1e-5 + 5e-3  # two steps, 2 x 1/2 of 0.5e6 bytes at 1e8
    group = [0, 1, 4, 5]
    assert MODEL.collective_seconds("allreduce", 10**6, group) == pytest.approx(2 * inside + between)
    ring = 1e-4 + 2e-6 + 0.75e6 / 2e8  # three steps, one of them between nodes, where two rings share the bytes
    assert MODEL.collective_seconds("allgather", 10**6, group) == pytest.approx(ring)
    assert MODEL.collective_seconds("reducescatter", 10**6, group) == pytest.approx(ring)
    # One device per node: only the link between nodes.
    assert MODEL.collective_seconds("allreduce", 10**6, [0, 4]) == pytest.approx(1e-4 + 1e-5 + 1e-2)
    # Uneven nodes: one ring of three, 2 of its 4 steps between nodes.
    assert MODEL.collective_seconds("allreduce", 10**6, [0, 1, 4]) == pytest.approx(1e-4 + 1e-5 + 2e-6 + 4 / 3 * 1e-2)


def test_the_cheapest_algorithm() -> None:
    """8 nodes of one device: few bytes go over the tree, 2 x 3 steps and twice the bytes; many over the ring, 2 x 7 steps
    and 2 x 7/8 of the bytes."""
    group = range(0, 32, 4)
    assert MODEL.collective_seconds("allreduce", 1000, group) == pytest.approx(1e-4 + 5e-5 + 2 * 1000 / 1e8)
    assert MODEL.collective_seconds("allreduce", 10**8, group) == pytest.approx(1e-4 + 13e-5 + 1.75)


def test_shared_adapters() -> None:
    """4 devices of a node share 2 adapters. Hierarchical: each has half an adapter for its quarter of the bytes."""
    machine = replace(MACHINE, levels=(LEVELS[0], replace(LEVELS[1], adapters=2)))
    model = AnalyticCostModel(machine)
    inside = 1e-5 + 2e-6 + 0.75e-3
    between = 1e-4 + 1e-5 + 0.25e6 / 0.5e8
    assert model.collective_seconds("allreduce", 10**6, range(8)) == pytest.approx(2 * inside + between)
    # One device of each node has one of the adapters; with 8 adapters it has two, and 4 devices have all.
    assert model.send_seconds(10**6, 3, 4) == pytest.approx(1e-4 + 1e-2)
    many = AnalyticCostModel(replace(machine, levels=(LEVELS[0], replace(LEVELS[1], adapters=8))))
    assert many.send_seconds(10**6, 3, 4) == pytest.approx(1e-4 + 0.5e-2)


def test_three_levels() -> None:
    """Pods of 2 nodes of 2 devices: reduce-scatter in pods, allreduce of quarters between pods, all-gather in pods."""
    levels = (Level("node", 1e-5, 0, 1e9, 2), Level("pod", 1e-5, 0, 1e8, 4), Level("cluster", 1e-5, 0, 1e7))
    model = AnalyticCostModel(replace(MACHINE, levels=levels))
    pod = 1e-5 + 0.75e6 / 2e8
    between = 1e-5 + 0.25e6 / 1e7
    assert model.collective_seconds("allreduce", 10**6, range(8)) == pytest.approx(2 * pod + between)


def test_devices_that_differ() -> None:
    """Half a machine is twice as fast; each device's operations cost what they cost there, for the oracle and the rest."""
    slow, fast = DeviceGroup(DEVICE, 4), DeviceGroup(replace(DEVICE, name="fast", kernel_floor_seconds=5e-4), 4)
    costs = Costs(AnalyticCostModel(replace(MACHINE, groups=(slow, fast))))
    relu = onnx("Relu", [tensor(250_000)], tensor(250_000))
    assert costs.of(relu, (3,)).picoseconds == 9_000_000_000
    assert costs.of(relu, (4,)).picoseconds == 8_500_000_000


def test_sends() -> None:
    assert MODEL.send_seconds(10**6, 0, 3) == pytest.approx(1e-5 + 1e-3)
    assert MODEL.send_seconds(10**6, 3, 4) == pytest.approx(1e-4 + 1e-2)


def test_fits() -> None:
    """The DGX-2's measured allreduce: of 8 devices 66 us and 122.4e9 bytes/s of bus bandwidth; 5 devices count as 8."""
    model = AnalyticCostModel(load_machine("dgx-2"))
    whole = 66e-6 + 2 * 7 / 8 * 1e9 / 122.4e9
    assert model.collective_seconds("allreduce", 10**9, range(8)) == pytest.approx(whole)
    assert model.collective_seconds("allgather", 10**9, range(8)) == pytest.approx(66e-6 + 7 / 8 * 1e9 / 122.4e9)
    assert model.collective_seconds("allreduce", 0, range(5)) == pytest.approx(66e-6)
    assert model.collective_seconds("alltoall", 10**9, range(8)) == pytest.approx(11.8e-6 + 6 * 3.4e-6 + 7 / 8 / 136.9)


def test_dgx_h100_allgather_has_its_own_fit() -> None:
    model = AnalyticCostModel(load_machine("dgx-h100"))
    assert model.collective_seconds("allgather", 10**9, range(8)) == pytest.approx(17e-6 + 7 / 8 / 361.4)


def test_costs_are_rounded_once() -> None:
    """1/3 s is 333333333333.33 ps."""
    device = replace(DEVICE, kernel_floor_seconds=1 / 3, memory_bandwidth_bytes_per_second=FAST)
    third = replace(MACHINE, groups=(DeviceGroup(device, None),))
    costs = Costs(AnalyticCostModel(third))
    assert costs.of(onnx("Relu", [tensor(5)], tensor(5)), (0,)) == Cost("elementwise", 333_333_333_333)


def test_collective_cost_is_by_the_whole_tensor() -> None:
    """An all-gather of two 2000-byte shards moves half of 4000 bytes at 1e9 bytes/s: 10 us + 2 us."""
    shards = [TensorType(f32, [500], on_device(d)) for d in range(2)]
    wholes = [TensorType(f32, [1000], on_device(d)) for d in range(2)]
    op = AllGatherOp(TestOp(result_types=shards).results, 0, wholes)
    assert Costs(MODEL).of(op, (0, 1)) == Cost("allgather", 12_000_000)
    assert Costs(MODEL).of(op, (0, 4)) == Cost("allgather", 120_000_000)


def test_registry(monkeypatch: pytest.MonkeyPatch) -> None:

    class Doubled(AnalyticCostModel):
        def send_seconds(self, bytes: int, source: int, target: int) -> float:
            return 2 * super().send_seconds(bytes, source, target)

    monkeypatch.setitem(cost_models.COST_MODELS, "doubled", Doubled)
    assert cost_model_names() == ["analytic", "distir", "doubled"]
    model: CostModel = make_cost_model("doubled", MACHINE)
    assert model.send_seconds(10**6, 0, 3) == pytest.approx(2 * (1e-5 + 1e-3))
    with pytest.raises(DistirError, match="unknown cost model best: expected analytic, distir or doubled"):
        make_cost_model("best", MACHINE)


@pytest.mark.parametrize(
    ("make", "operand", "result", "copied"),
    [
        (partial(AllGatherOp, dim=0), (4, 6), (8, 6), None),
        (partial(AllGatherOp, dim=1), (4, 6), (4, 12), (4, 12)),
        (partial(AllGatherOp, dim=1), (1, 6), (1, 12), None),
        (partial(ReduceScatterOp, dim=1), (4, 6), (4, 3), (4, 6)),
        (partial(AllToAllOp, split=0, concat=1), (4, 6), (2, 12), (2, 12)),
        (partial(AllToAllOp, split=1, concat=0), (4, 6), (8, 3), (4, 6)),
    ],
)
def test_parts_that_do_not_lie_together_are_copied(
    make: Any, operand: tuple[int, ...], result: tuple[int, ...], copied: tuple[int, ...] | None
) -> None:
    """Parts of any dim but the outermost are strided in memory: messages take them packed, and give them packed."""
    values = Block(arg_types=[placed(tensor(*operand), on_device(device)) for device in (0, 1)]).args
    op = make(values, result_types=[placed(tensor(*result), on_device(device)) for device in (0, 1)])
    whole = max(type_bytes(tensor(*operand)), type_bytes(tensor(*result)))
    seconds = MODEL.collective_seconds(op.name.removeprefix("dist."), whole, range(2))
    if copied is not None:
        seconds += MODEL.layout_seconds(type_bytes(tensor(*copied)))
    assert Costs(MODEL).of(op, (0, 1)).picoseconds == round(seconds * 1e12)


@pytest.mark.parametrize(("make", "are_copied"), [(AllGatherOp, True), (ReduceScatterOp, False)])
def test_tensors_that_come_together_are_copied(make: Any, are_copied: bool) -> None:
    """A message of two tensors gives the parts of both by device; those that go in it are made there."""
    parts = [placed(PackOp.packed_type([tensor(4, 6), tensor(2)]), on_device(device)) for device in (0, 1)]
    wholes = [placed(PackOp.packed_type([tensor(8, 6), tensor(4)]), on_device(device)) for device in (0, 1)]
    given, made = (parts, wholes) if make is AllGatherOp else (wholes, parts)
    op = make(Block(arg_types=given).args, 0, made)
    bytes_ = type_bytes(wholes[0])
    seconds = MODEL.collective_seconds(op.name.removeprefix("dist."), bytes_, range(2))
    seconds += MODEL.layout_seconds(bytes_) if are_copied else 0.0
    assert Costs(MODEL).of(op, (0, 1)).picoseconds == round(seconds * 1e12)
