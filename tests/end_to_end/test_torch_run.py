"""Programs on real processes: every communication op against numpy, and ranks that fail or die.

Starting a process costs seconds of importing torch, so each test runs one program that checks many things.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import ml_dtypes
import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    Builtin,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    bf16,
    f32,
    i1,
    i16,
    i64,
)
from xdsl.dialects.func import Func, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region
from xdsl.parser import Parser

from distir.backends.torch import execute, run
from distir.backends.torch.exchange import Job, inputs_path, program_path, save_arrays, save_mapped
from distir.backends.torch.launch import Workers
from distir.dialects import dist
from distir.dialects.dist import OnAttr, PartAttr
from distir.dialects.errors import DistirError
from distir.dialects.onnx import Onnx
from distir.dialects.reductions import Reduction
from tests.end_to_end.commands import ranks_of
from tests.long_cases import also_long


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, dist.Dist, Onnx):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def tensor(*shape: int, on: int, element: Attribute = f32) -> TensorType[Attribute]:
    return TensorType(element, shape, OnAttr(on))


ROWS = (3, 1, 2, 4)
STARTS = (0, 3, 4, 6)
"""Rows of the uneven parts of the 10 x 4 array x on devices 0..3, and where they start."""


def communication_program() -> ModuleOp:
    """Every communication op on four devices: even and uneven, participants in any order, roots in and outside."""
    arguments: dict[str, TensorType[Attribute]] = {f"x{d}": tensor(ROWS[d], 4, on=d) for d in range(4)}
    arguments |= {f"a{d}": tensor(6, 4, on=d) for d in range(3)}
    arguments |= {f"i{d}": tensor(4, on=d, element=i16) for d in (0, 3)}
    arguments |= {"b2": tensor(2, 3, on=2, element=i1), "h3": tensor(2, on=3, element=bf16)}
    block = Block(arg_types=list(arguments.values()))
    x0, x1, x2, x3, a0, a1, a2, i0, i3, b2, h3 = block.args
    a3, x3_short = dist.SendOp(a1, tensor(6, 4, on=3)), dist.SliceOp(x3, [(1, 4), (0, 4)])

    def everywhere(*devices: int) -> list[Attribute]:
        return [tensor(10, 4, on=d) for d in devices]

    sum_, mean, max_, min_, prod = (
        dist.AllReduceOp([a0, a1, a2]),
        dist.AllReduceOp([a1, a0], Reduction.MEAN),
        dist.AllReduceOp([a2, a1], Reduction.MAX),
        dist.AllReduceOp([a0, a1], Reduction.MIN),
        dist.AllReduceOp([a0, a1], Reduction.PROD),
    )
    short = dist.AllReduceOp([i0, i3])
    packs = [dist.PackOp([a, x, i]) for a, x, i in ((a0, x0, i0), (a3.output, x3_short.output, i3))]
    bucket = dist.AllReduceOp([pack.output for pack in packs])
    unpacked = dist.UnpackOp(bucket.results[1])
    sends = [
        dist.SendOp(a0, tensor(6, 4, on=1)),
        dist.SendOp(b2, tensor(2, 3, on=0, element=i1)),
        dist.SendOp(h3, tensor(2, on=1, element=bf16)),
    ]
    gathered = dist.AllGatherOp([x0, x1, x2, x3], 0, everywhere(0, 1, 2, 3))
    backwards = dist.AllGatherOp([x3, x2, x1, x0], 0, everywhere(3, 2, 1, 0))
    even = dist.ReduceScatterOp([a2, a1, a0], 0, [tensor(2, 4, on=d) for d in (2, 1, 0)])
    uneven = dist.ReduceScatterOp([a0, a1, a2], 0, [tensor(n, 4, on=d) for d, n in enumerate((1, 3, 2))])
    columns = dist.ReduceScatterOp([a1, a0], 1, [tensor(6, 2, on=d) for d in (1, 0)], Reduction.MAX)
    exchanged = dist.AllToAllOp([a1, a0], 1, 0, [tensor(12, 2, on=d) for d in (1, 0)])
    ragged = dist.AllToAllOp([x2, x0], 1, 0, [tensor(5, n, on=d) for d, n in ((2, 1), (0, 3))])
    # tuples: of unequal rows, of several element types, participants in descending order
    pairs = [dist.PackOp([x, i]) for x, i in ((x3, i3), (x0, i0))]
    rows, shorts = [tensor(7, 4, on=d) for d in (3, 0)], [tensor(8, on=d, element=i16) for d in (3, 0)]
    gathered_types = [dist.PackOp.packed_type(types) for types in zip(rows, shorts, strict=True)]
    pair = dist.UnpackOp((gathered_tuples := dist.AllGatherOp([p.output for p in pairs], 0, gathered_types)).results[1])
    addends = [dist.PackOp([a, a, i]) for a, i in ((a3.output, i3), (a0, i0))]
    kept = [(tensor(3, 4, on=d), tensor(m, 4, on=d), tensor(2, on=d, element=i16)) for d, m in ((3, 2), (0, 4))]
    tuples = dist.ReduceScatterOp([p.output for p in addends], 0, [dist.PackOp.packed_type(each) for each in kept])
    shares = [dist.UnpackOp(result) for result in tuples.results]
    windows = dist.ExchangeOp(
        [x0, x1, x2, x3], 0, [0, 2, 1, 9], [tensor(n, 4, on=d) for d, n in enumerate((5, 3, 9, 1))]
    )
    broadcast = dist.BroadcastOp(a1, [tensor(6, 4, on=d) for d in (3, 0)])
    scatter = dist.ScatterOp(a0, 0, [tensor(2, 4, on=3), tensor(4, 4, on=0)])
    gather = dist.GatherOp([x3, x1, x2, x0], 0, tensor(10, 4, on=1))
    elsewhere = dist.ReduceOp([a0, a1], tensor(6, 4, on=3), Reduction.MAX)
    here = dist.ReduceOp([a0, a1], tensor(6, 4, on=0), Reduction.MEAN)
    product = dist.ReduceOp([a2, a1], tensor(6, 4, on=0), Reduction.PROD)
    block.add_ops(
        [
            a3,
            x3_short,
            *packs,
            bucket,
            unpacked,
            *sends,
            sum_,
            mean,
            max_,
            min_,
            prod,
            short,
            gathered,
            backwards,
            even,
            uneven,
            columns,
            exchanged,
            ragged,
        ]
    )
    block.add_ops([*pairs, gathered_tuples, pair, *addends, tuples, *shares])
    block.add_ops([windows, broadcast, scatter, gather, elsewhere, here, product])
    results = {
        "sent": sends[0].output,
        "sent_bool": sends[1].output,
        "sent_half": sends[2].output,
        "sum": sum_.results[0],
        "mean": mean.results[0],
        "max": max_.results[0],
        "min": min_.results[0],
        "prod": prod.results[1],
        "sum_short": short.results[1],
        **{f"bucket{i}": result for i, result in enumerate(unpacked.results)},
        "gathered": gathered.results[0],
        "gathered_backwards": backwards.results[0],
        **{f"gathered_tuple{i}": result for i, result in enumerate(pair.results)},
        **{f"scattered_tuple{i}_{j}": r for i, share in enumerate(shares) for j, r in enumerate(share.results)},
        "scattered_even": even.results[0],
        "scattered_uneven": uneven.results[1],
        "scattered_columns": columns.results[1],
        "exchanged0": exchanged.results[1],
        "exchanged1": exchanged.results[0],
        "exchanged_uneven0": ragged.results[1],
        "exchanged_uneven2": ragged.results[0],
        **{f"window{d}": result for d, result in enumerate(windows.results)},
        "broadcast3": broadcast.results[0],
        "broadcast0": broadcast.results[1],
        "scatter3": scatter.results[0],
        "scatter0": scatter.results[1],
        "gather": gather.output,
        "reduce_elsewhere": elsewhere.output,
        "reduce_here": here.output,
        "reduce_prod": product.output,
    }
    block.add_op(ReturnOp(*results.values()))
    main = FuncOp("main", (list(arguments.values()), [v.type for v in results.values()]), Region(block))
    parts = {f"x{d}": PartAttr([[(STARTS[d], STARTS[d] + ROWS[d])], [(0, 4)]], (10, 4)) for d in range(4)}
    main.properties["arg_attrs"] = ArrayAttr(
        DictionaryAttr(
            {"dist.name": StringAttr("x"), "dist.part": parts[name]}
            if name in parts
            else {"dist.name": StringAttr(name)}
        )
        for name in arguments
    )
    main.properties["res_attrs"] = ArrayAttr(DictionaryAttr({"dist.name": StringAttr(name)}) for name in results)
    module = ModuleOp([main], {"dist.devices": IntegerAttr(4, i64)})
    module.verify()
    return module


def test_communication():
    draw = np.random.default_rng(0).standard_normal
    x = draw((10, 4)).astype(np.float32)
    a0, a1, a2 = (draw((6, 4)).astype(np.float32) for _ in range(3))
    i0, i3 = np.array([1, -2, 3, 30000], np.int16), np.array([5, 6, -7, 2767], np.int16)
    b2 = np.array([[True, False, True], [False, False, True]])
    h3 = np.array([1.5, -2.25], ml_dtypes.bfloat16)
    inputs = {"x": x, "a0": a0, "a1": a1, "a2": a2, "i0": i0, "i3": i3, "b2": b2, "h3": h3}
    outputs = run(communication_program(), inputs)
    total, largest = a0 + a1 + a2, np.maximum(a0, a1)
    reversed_parts = [x[6:10], x[4:6], x[3:4], x[0:3]]
    expected = {
        "sent": a0,
        "sent_bool": b2,
        "sent_half": h3,
        "sum": total,
        "mean": (a0 + a1) / 2,
        "max": np.maximum(a1, a2),
        "min": np.minimum(a0, a1),
        "prod": a0 * a1,
        "sum_short": np.array([6, 4, -4, 32767], np.int16),
        "bucket0": a0 + a1,
        "bucket1": x[0:3] + x[7:10],
        "bucket2": np.array([6, 4, -4, 32767], np.int16),
        "gathered": x,
        "gathered_backwards": np.concatenate(reversed_parts),
        "gathered_tuple0": np.concatenate([x[6:10], x[0:3]]),
        "gathered_tuple1": np.concatenate([i3, i0]),
        "scattered_tuple0_0": (a0 + a1)[0:3],
        "scattered_tuple0_1": (a0 + a1)[0:2],
        "scattered_tuple0_2": np.array([6, 4], np.int16),
        "scattered_tuple1_0": (a0 + a1)[3:6],
        "scattered_tuple1_1": (a0 + a1)[2:6],
        "scattered_tuple1_2": np.array([-4, 32767], np.int16),
        "scattered_even": total[0:2],
        "scattered_uneven": total[1:4],
        "scattered_columns": largest[:, 2:4],
        "exchanged_uneven0": np.concatenate([x[4:6, 1:4], x[0:3, 1:4]]),
        "exchanged_uneven2": np.concatenate([x[4:6, 0:1], x[0:3, 0:1]]),
        "exchanged0": np.concatenate([a1[:, 2:4], a0[:, 2:4]]),
        "exchanged1": np.concatenate([a1[:, 0:2], a0[:, 0:2]]),
        "window0": x[0:5],
        "window1": x[2:5],
        "window2": x[1:10],
        "window3": x[9:10],
        "broadcast3": a1,
        "broadcast0": a1,
        "scatter3": a0[0:2],
        "scatter0": a0[2:6],
        "gather": np.concatenate([x[6:10], x[3:4], x[4:6], x[0:3]]),
        "reduce_elsewhere": largest,
        "reduce_here": (a0 + a1) / 2,
        "reduce_prod": a1 * a2,
    }
    assert outputs.keys() == expected.keys()
    for name, value in expected.items():
        assert outputs[name].dtype == value.dtype, name
        np.testing.assert_allclose(outputs[name].astype(np.float64), value.astype(np.float64), 1e-6, err_msg=name)


CALLS = """
builtin.module attributes {dist.devices = 2 : i64} {
  func.func @layer(%w: tensor<4x4xf32>, %x: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = "onnx.MatMul"(%x, %w) : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %1 = "onnx.Relu"(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    func.return %1 : tensor<2x4xf32>
  }
  func.func @exchange(%x: tensor<2x4xf32, #dist.on<0>>, %y: tensor<2x4xf32, #dist.on<1>>)
      -> (tensor<4x4xf32, #dist.on<0>>, tensor<4x4xf32, #dist.on<1>>) {
    %0, %1 = dist.allgather %x, %y dim 0 : (tensor<2x4xf32, #dist.on<0>>, tensor<2x4xf32, #dist.on<1>>)
        -> (tensor<4x4xf32, #dist.on<0>>, tensor<4x4xf32, #dist.on<1>>)
    func.return %0, %1 : tensor<4x4xf32, #dist.on<0>>, tensor<4x4xf32, #dist.on<1>>
  }
  func.func @main(
      %w: tensor<4x4xf32, #dist.on<0>> {dist.name = "w", dist.part = #dist.part<[0:4, 0:4] of [4, 4]>},
      %v: tensor<4x4xf32, #dist.on<1>> {dist.name = "w", dist.part = #dist.part<[0:4, 0:4] of [4, 4]>},
      %x: tensor<2x4xf32, #dist.on<0>> {dist.name = "x", dist.part = #dist.part<[0:2, 0:4] of [4, 4]>},
      %y: tensor<2x4xf32, #dist.on<1>> {dist.name = "x", dist.part = #dist.part<[2:4, 0:4] of [4, 4]>})
      -> (tensor<2x4xf32, #dist.on<0>> {dist.name = "h", dist.part = #dist.part<[0:2, 0:4] of [4, 4]>},
          tensor<2x4xf32, #dist.on<1>> {dist.name = "h", dist.part = #dist.part<[2:4, 0:4] of [4, 4]>},
          tensor<2x4xf32, #dist.on<0>> {dist.name = "s", dist.part = #dist.part<[0:2, 0:4] of [2, 4], partial sum>},
          tensor<2x4xf32, #dist.on<1>> {dist.name = "s", dist.part = #dist.part<[0:2, 0:4] of [2, 4], partial sum>},
          tensor<4x4xf32, #dist.on<0>> {dist.name = "all", dist.part = #dist.part<[0:4, 0:4] of [4, 4]>},
          tensor<4x4xf32, #dist.on<1>> {dist.name = "all", dist.part = #dist.part<[0:4, 0:4] of [4, 4]>},
          tensor<2x4xf32, #dist.on<0>> {dist.name = "local"}) {
    %0 = dist.call @layer(%w, %x) on [0] : (tensor<4x4xf32, #dist.on<0>>, tensor<2x4xf32, #dist.on<0>>) -> tensor<2x4xf32, #dist.on<0>>
    %1 = dist.call @layer(%w, %0) on [0] : (tensor<4x4xf32, #dist.on<0>>, tensor<2x4xf32, #dist.on<0>>) -> tensor<2x4xf32, #dist.on<0>>
    %2 = dist.call @layer(%v, %y) on [1] : (tensor<4x4xf32, #dist.on<1>>, tensor<2x4xf32, #dist.on<1>>) -> tensor<2x4xf32, #dist.on<1>>
    %3 = dist.call @layer(%v, %2) on [1] : (tensor<4x4xf32, #dist.on<1>>, tensor<2x4xf32, #dist.on<1>>) -> tensor<2x4xf32, #dist.on<1>>
    %4, %5 = dist.call @exchange(%3, %1) on [1, 0] : (tensor<2x4xf32, #dist.on<1>>, tensor<2x4xf32, #dist.on<0>>)
        -> (tensor<4x4xf32, #dist.on<1>>, tensor<4x4xf32, #dist.on<0>>)
    %6 = dist.slice %5 [2:4, 0:4] : tensor<4x4xf32, #dist.on<0>> -> tensor<2x4xf32, #dist.on<0>>
    %7 = dist.zeros : tensor<2x4xf32, #dist.on<0>>
    %8 = dist.move %6 : tensor<2x4xf32, #dist.on<0>> -> tensor<2x4xf32, #dist.on<0, "side">>
    %9 = dist.scale %8 by 2/3 : tensor<2x4xf32, #dist.on<0, "side">>
    %10 = dist.move %9 : tensor<2x4xf32, #dist.on<0, "side">> -> tensor<2x4xf32, #dist.on<0>>
    %11 = dist.accumulate mean %7, %10 : (tensor<2x4xf32, #dist.on<0>>, tensor<2x4xf32, #dist.on<0>>) -> tensor<2x4xf32, #dist.on<0>>
    %12 = dist.pack %7, %11 : (tensor<2x4xf32, #dist.on<0>>, tensor<2x4xf32, #dist.on<0>>) -> tuple<tensor<2x4xf32, #dist.on<0>>, tensor<2x4xf32, #dist.on<0>>>
    %13, %14 = dist.unpack %12 : (tuple<tensor<2x4xf32, #dist.on<0>>, tensor<2x4xf32, #dist.on<0>>>) -> (tensor<2x4xf32, #dist.on<0>>, tensor<2x4xf32, #dist.on<0>>)
    func.return %1, %3, %0, %2, %5, %4, %14 : tensor<2x4xf32, #dist.on<0>>, tensor<2x4xf32, #dist.on<1>>, tensor<2x4xf32, #dist.on<0>>,
        tensor<2x4xf32, #dist.on<1>>, tensor<4x4xf32, #dist.on<0>>, tensor<4x4xf32, #dist.on<1>>, tensor<2x4xf32, #dist.on<0>>
  }
}
"""


def test_calls_local_ops_parts_and_float64():
    draw = np.random.default_rng(1).standard_normal
    w, x = draw((4, 4)), draw((4, 4))
    execution = execute(parse(CALLS), {"w": w, "x": x}, dtype=np.float64, measure=3)
    hidden = np.maximum(x @ w, 0)
    h = np.maximum(hidden @ w, 0)
    expected = {
        "h": h,
        "s": hidden[0:2] + hidden[2:4],
        "all": np.concatenate([h[2:4], h[0:2]]),
        "local": h[0:2] * (2 / 3) / 2,
    }
    assert execution.outputs.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(execution.outputs[name], value, 1e-14, err_msg=name)
    assert 0 < execution.seconds < 1


PAIR = """
builtin.module attributes {dist.devices = 2 : i64} {
  func.func @main(%x: tensor<4xf32, #dist.on<0>> {dist.name = "x"}, %i: tensor<2xi64, #dist.on<1>> {dist.name = "i"},
                  %y: tensor<4xf32, #dist.on<1>> {dist.name = "y"})
      -> (tensor<2xf32, #dist.on<1>> {dist.name = "z"}, tensor<4xf32, #dist.on<0>> {dist.name = "s"}) {
    %0 = "onnx.Gather"(%y, %i) <{axis = 0 : si64}> : (tensor<4xf32, #dist.on<1>>, tensor<2xi64, #dist.on<1>>) -> tensor<2xf32, #dist.on<1>>
    %1, %2 = dist.allreduce sum %x, %y : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>)
        -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>)
    func.return %0, %1 : tensor<2xf32, #dist.on<1>>, tensor<4xf32, #dist.on<0>>
  }
}
"""
INPUTS = {"x": np.ones(4, np.float32), "y": np.ones(4, np.float32), "i": np.array([0, 9])}


@contextmanager
def signal_to_rank_1(number: signal.Signals) -> Generator[list[float]]:
    """Sends it once both ranks run; the list gets the time of that."""

    def send() -> None:
        while 1 not in (workers := ranks_of(os.getpid())):
            time.sleep(0.02)
        process, folder = workers[1]
        while not (folder / "rendezvous").exists():
            time.sleep(0.02)
        time.sleep(0.5)
        os.kill(process, number)
        sent.append(time.monotonic())

    sent: list[float] = []
    sender = threading.Thread(target=send)
    sender.start()
    yield sent
    sender.join()


def test_rank_that_raises_is_named():
    start = time.monotonic()
    with pytest.raises(DistirError, match=r"^rank 1 failed: onnx.Gather in @main: .*out of range") as caught:
        run(parse(PAIR), INPUTS)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 20
    assert not ranks_of(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process through /proc")
def test_rank_that_is_killed_ends_the_run():
    with signal_to_rank_1(signal.SIGKILL) as sent, pytest.raises(DistirError, match=r"^rank 1 was killed by SIGKILL"):
        execute(parse(PAIR), {**INPUTS, "i": np.array([0, 1])}, measure=10**9)
    assert time.monotonic() - sent[0] < 2
    assert not ranks_of(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process through /proc")
def test_rank_that_stalls_ends_the_run():
    where = r"^no progress for 6 seconds: rank 1 in \S+ .*: the process is stopped$"
    with signal_to_rank_1(signal.SIGSTOP) as sent, pytest.raises(DistirError, match=where):
        execute(parse(PAIR), {**INPUTS, "i": np.array([0, 1])}, measure=10**9, timeout_seconds=6)
    assert time.monotonic() - sent[0] < 12
    assert not ranks_of(os.getpid())


def test_ranks_that_wait_for_each_other_end_the_run():
    """Each rank waits for a message that the other would send after its own: a program that no projection makes."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        Job("gloo", 2, "main", [], 0, False).save(folder)
        for rank in (0, 1):
            text = f"""func.func @main() {{
                %0 = "rank.recv"() <{{peer = {1 - rank} : i64}}> : () -> tensor<1xf32>
                "rank.send"(%0) <{{peer = {1 - rank} : i64}}> : (tensor<1xf32>) -> ()
                func.return
            }}"""
            program_path(folder, rank).write_text(text)
            save_arrays(inputs_path(folder, rank), [])
            save_mapped(folder, rank, {})
        waiting = r"^no progress for 6 seconds: rank 0 in rank.recv in @main; rank 1 in rank.recv in @main: all wait"
        with Workers(folder, 2) as workers, pytest.raises(DistirError, match=waiting):
            workers.wait(6)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes through /proc")
@pytest.mark.parametrize("how", also_long([signal.SIGINT, signal.SIGKILL], [signal.SIGKILL]))
def test_workers_end_with_their_launcher(how: signal.Signals, tmp_path: Path):
    """One that is stopped too; nothing is said of the process that starts them."""
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "import test_torch_run as t\n"
        "t.run(t.parse(t.PAIR), t.INPUTS)\n"
    )
    root = Path(__file__).parents[2]
    launcher = subprocess.Popen(
        [sys.executable, "-c", script, "", str(Path(__file__).parent)],
        env={**os.environ, "PYTHONPATH": f"{root / '.ns'}{os.pathsep}{root}", "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
    )
    while len(workers := ranks_of(launcher.pid)) < 2:
        assert launcher.poll() is None
        time.sleep(0.02)
    os.kill(workers[1][0], signal.SIGSTOP)
    launcher.send_signal(how)
    _, errors = launcher.communicate(timeout=20)
    assert errors.splitlines()[-1:] == ([b"KeyboardInterrupt"] if how == signal.SIGINT else [])
    deadline = time.monotonic() + (2 if how == signal.SIGINT else 10)
    while (alive := any(Path(f"/proc/{number}").exists() for number, _ in workers.values())) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.02)
    assert not alive
    assert not list(tmp_path.iterdir())


def test_user_mistakes_start_no_process():
    module = parse(PAIR)
    with pytest.raises(DistirError, match=r"^input y is missing"):
        run(module, {"x": INPUTS["x"], "i": INPUTS["i"]})
    with pytest.raises(DistirError, match=r"^expected the backend gloo or nccl, got mpi$"):
        run(module, INPUTS, "mpi")
    with pytest.raises(DistirError, match=r"not in float32$"):
        run(module, INPUTS, dtype=np.float32)
