"""`distir` as a user types it: every command on real files, and every mistake as one line."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from distir.frontends.weights import load
from distir.interpreters import reference
from distir.interpreters.weights import weights_of
from distir.tools.distir import main

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "tests" / "filecheck" / "paper"
SEQUENTIAL, PIPELINE = str(PAPER / "figure_sequential.mlir"), str(PAPER / "figure2.mlir")


def example(name: str) -> Callable[..., ModelProto]:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["build"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a GPT-2 and an MLP training step in it."""
    onnx.save(example("gpt2_onnx")(n_layer=1, d_model=16, n_head=2, vocab=23, n_ctx=8), tmp_path / "gpt2.onnx")
    onnx.save(example("mlp_onnx")([8, 4, 2]), tmp_path / "mlp.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> int:
    return main(arguments)


# import


def test_import_prints_the_program(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("import", "mlp.onnx", "--shape", "x=6,8") == 0
    out, err = capsys.readouterr()
    assert out.startswith("builtin.module {\n  func.func @main(%x: tensor<6x8xf32>")
    assert "unbound" not in err  # x and z share the open dimension
    assert err == "distir: note: 2 parameters of 40 elements, 0 constants of 0 elements\n"


def test_import_writes_program_and_weights(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("import", "mlp.onnx", "--shape", "x=6,8", "--shape", "z=6,2", "-o", "mlp.mlir") == 0
    assert capsys.readouterr() == ("", "distir: note: 2 parameters of 40 elements, 0 constants of 0 elements\n")
    assert {path.name for path in folder.iterdir()} == {"gpt2.onnx", "mlp.onnx", "mlp.mlir", "mlp.safetensors"}
    written = weights_of(load("mlp.mlir"))
    for initializer in onnx.load("mlp.onnx").graph.initializer:
        np.testing.assert_array_equal(written[initializer.name], onnx.numpy_helper.to_array(initializer))


def test_import_notes_what_is_unbound_and_binds_it_later(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("import", "gpt2.onnx", "-o", "open.mlir") == 0
    assert capsys.readouterr().err == (
        "distir: note: input 'input1' has unbound dimensions 'batch' (dim 0) and 'sequence' (dim 2): "
        "bind with --shape input1=BATCH,1,SEQUENCE\n"
        "distir: note: 16 parameters of 3,808 elements, 111 constants of 176 elements\n"
    )
    assert run("import", "open.mlir", "--shape", "input1=2,1,4", "-o", "bound.mlir") == 0
    assert capsys.readouterr().err == ""
    assert "tensor<?" not in Path("bound.mlir").read_text()
    assert run("verify", "bound.mlir", "bound.mlir") == 0


def test_import_from_a_function(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "my_models.py").write_text(
        f"import runpy\nbuild = runpy.run_path({str(ROOT / 'examples' / 'mlp_onnx.py')!r})['build']\n"
        "def mlp(): return build([8, 4, 2])\n"
        "def module():\n"
        f"    from distir.frontends.weights import load\n    return load({SEQUENTIAL!r})\n"
        "def number(): return 3\n"
        "def broken(): raise ValueError('no\\nsuch size')\n"
    )
    assert run("import", "my_models:mlp", "--shape", "x=6,8") == 0
    assert "tensor<6x8xf32>" in capsys.readouterr().out
    assert run("import", "my_models:module") == 0
    assert "func.call @dense" in capsys.readouterr().out
    assert run("import", "my_models:number") == 1
    expected = "returned a int: expected an xDSL ModuleOp, an onnx ModelProto, a training_step or written_step of "
    assert expected in capsys.readouterr().err
    assert run("import", "my_models:broken") == 1
    assert capsys.readouterr().err == "distir: error: my_models:broken raised ValueError: no such size\n"
    assert run("import", "my_models:absent") == 1
    assert "has no attribute 'absent'" in capsys.readouterr().err
    assert run("import", "no_such_module:f") == 1
    assert "No module named 'no_such_module'" in capsys.readouterr().err


# simulate


def test_simulate_prints_writes_and_counts(folder: Path, capsys: pytest.CaptureFixture[str]):
    unit = str(ROOT / "tests" / "filecheck" / "passes" / "Inputs" / "unit.toml")
    assert run("simulate", PIPELINE, "--machine", unit, "--json", "--trace", "trace.json") == 0
    figures = json.loads(capsys.readouterr().out)
    # figure2.mlir derives the makespan and the peaks; 15 us of device 0 and of device 1 are compute, 2 us are sends
    assert figures["makespan_seconds"] == 23e-6
    assert figures["throughput_per_second"] == pytest.approx(4 / 23e-6)
    assert figures["peak_memory_bytes"] == [1152, 1152]
    assert figures["communication_count"] == {"send": 4}
    assert figures["share"] == pytest.approx({"compute": 15 / 23, "communication": 2 / 23, "idle": 6 / 23})
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert max(e["ts"] + e["dur"] for e in events if e["ph"] == "X") == pytest.approx(23)


def test_a_trace_of_a_window_and_of_each_rank(folder: Path):
    """What the program does from 4 to 7 us on device 1, as `test_figure_3_top` derives it; files for trace analysis."""
    unit = str(ROOT / "tests" / "filecheck" / "passes" / "Inputs" / "unit.toml")
    where = ["--window", "4us..7us", "--devices", "1", "--depth", "stage"]
    assert run("simulate", PIPELINE, "--machine", unit, "--trace", "window.json", *where) == 0
    events = json.loads(Path("window.json").read_text())["traceEvents"]
    slices = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [("ncclDevKernel_SendRecv", 4, 0.5), ("dense", 4.5, 2), ("ncclDevKernel_SendRecv", 6.5, 0.5)]
    assert run("simulate", PIPELINE, "--machine", unit, "--trace", "ranks/") == 0
    busy = 0.0
    for rank in (0, 1):
        trace = json.loads(Path(f"ranks/rank-{rank}.json").read_text())
        assert trace["distributedInfo"] == {"backend": "nccl", "rank": rank, "world_size": 2}
        kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
        assert {e["args"]["stream"] for e in kernels} == {7}
        busy += sum(e["dur"] for e in kernels)
    assert busy == pytest.approx(2 * 15 + 2 * 2)


def test_simulate_a_model_on_one_device(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("import", "gpt2.onnx", "--shape", "input1=3,1,8", "-o", "gpt2.mlir") == 0
    assert run("simulate", "gpt2.mlir", "--machine", "dgx-2") == 0
    out = capsys.readouterr().out
    assert "1 device, analytic cost model" in out
    assert "(batch 3)" in out
    assert "communication  none" in out


def test_simulate_says_what_does_not_fit(folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("big.mlir").write_text(unary("Relu", "200000x100000xf32"))
    assert run("simulate", "big.mlir", "--machine", "dgx-2") == 0
    assert "149 GiB on device 0, 465.7% of 32 GiB: DOES NOT FIT" in capsys.readouterr().out


def test_streams_that_overlap_are_counted_once(folder: Path, capsys: pytest.CaptureFixture[str]):
    """On a unit machine: Relu on the main stream 0-1; the copy sends 0-0.5 beside it, so communication hides."""
    unit = str(ROOT / "tests" / "filecheck" / "passes" / "Inputs" / "unit.toml")
    Path("overlap.mlir").write_text("""
    builtin.module attributes {dist.devices = 2 : i64} {
      func.func @main(%x: tensor<4xf32, #dist.on<0>>)
          -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1, "comm">>) {
        %c = dist.move %x : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<0, "comm">>
        %y = "onnx.Relu"(%x) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
        %s = dist.send %c to 1 : tensor<4xf32, #dist.on<0, "comm">> -> tensor<4xf32, #dist.on<1, "comm">>
        func.return %y, %s : tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1, "comm">>
      }
    }""")
    assert run("simulate", "overlap.mlir", "--machine", unit, "--json") == 0
    # device 0 computes all the time; device 1 communicates a quarter of the two devices' time
    assert json.loads(capsys.readouterr().out)["share"] == {"compute": 0.5, "communication": 0.25, "idle": 0.25}


# verify


def test_verify_draws_tokens_inside_the_vocabulary(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("import", "gpt2.onnx", "--shape", "input1=2,1,8", "-o", "gpt2.mlir") == 0
    assert run("verify", "gpt2.mlir", "gpt2.mlir") == 0
    out = capsys.readouterr().out
    assert out.startswith("all values drawn: seed 0, the model's own values, seed 1, seed 2\n")
    assert out.endswith("every output agrees (1)\n")
    (folder / "gpt2.safetensors").unlink()
    assert run("verify", "gpt2.mlir", "gpt2.mlir") == 1
    assert "weights are missing" in capsys.readouterr().err


def test_verify_uses_given_inputs(folder: Path, capsys: pytest.CaptureFixture[str]):
    np.savez("inputs.npz", x=np.zeros((4, 8)), y=np.ones((4, 8)))
    assert run("verify", SEQUENTIAL, PIPELINE, "--inputs", "inputs.npz") == 0
    assert capsys.readouterr().out.startswith("all values but x, y drawn: seed 0, seed 1, seed 2\noutput")


def test_verify_dtype_and_tolerance(capsys: pytest.CaptureFixture[str]):
    assert run("verify", SEQUENTIAL, PIPELINE, "--dtype", "f32") == 1  # sums in another order, 24 bits
    assert run("verify", SEQUENTIAL, PIPELINE, "--dtype", "f32", "--tolerance", "1e-5") == 0


def test_verify_wants_the_same_outputs(folder: Path, capsys: pytest.CaptureFixture[str]):
    text = Path(SEQUENTIAL).read_text()
    Path("one.mlir").write_text(text.replace('!w {dist.name = "w2", dist.role = "parameter"}\n  ) {', "!w\n  ) {"))
    assert run("verify", SEQUENTIAL, "one.mlir") == 1
    out = capsys.readouterr().out
    assert "only the first has it" in out
    assert "only the second has it" in out


def test_verify_never_accepts_nan(folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("log.mlir").write_text(unary("Log", "4x8xf32"))
    assert run("verify", "log.mlir", "log.mlir") == 1
    assert "are not a number: give --inputs" in capsys.readouterr().out


def test_verify_refuses_what_is_too_large(folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("huge.mlir").write_text(unary("Relu", "1000000x1000000xf32"))
    assert run("verify", "huge.mlir", "huge.mlir") == 1
    # x and y, a million squared each, 8 bytes an element
    assert capsys.readouterr().err.startswith("distir: error: huge.mlir needs about 14.55 TiB of memory to execute")


def test_a_name_cannot_write_lines_or_colours(folder: Path, capsys: pytest.CaptureFixture[str]):
    """What a terminal would take for the last line of `verify`, and what would hide it."""
    name = "y\\0Aevery output agrees (1)\\0A\\1B[8m\\C2\\85\\E2\\80\\AE"
    text = unary("Relu", "4x8xf32").replace('{dist.name = "y"', f'{{dist.name = "{name}"')
    assert name in text
    Path("relu.mlir").write_text(text)
    Path("other.mlir").write_text(text.replace("onnx.Relu", "onnx.Abs"))
    assert run("verify", "relu.mlir", "other.mlir") == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "1 of 1 outputs differ"
    assert len(out.splitlines()) == 4
    assert r"y\nevery output agrees (1)\n\x1b[8m\x85\u202e" in out
    Path("relu.mlir").write_text(text.replace("dist.name", "dist.other"))
    assert run("run", "relu.mlir", "--inputs", "y\n\x1b[8m.npz") == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "\x1b" not in err


# run


def test_run_checks_measures_and_writes(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("run", PIPELINE, "--check", SEQUENTIAL, "--measure", "2", "-o", "outputs.npz", "--seed", "3") == 0
    out = capsys.readouterr().out
    assert out.startswith("weights drawn with seed 3\ninputs drawn with seed 3: x, y\n")
    assert "the median of 2 runs" in out
    assert out.endswith("every output agrees (2)\n")
    with np.load("outputs.npz") as outputs:
        assert {name: outputs[name].shape for name in outputs.files} == {"w1": (8, 8), "w2": (8, 8)}


def test_run_finds_a_wrong_program(folder: Path, capsys: pytest.CaptureFixture[str]):
    text = Path(PIPELINE).read_text()
    Path("wrong.mlir").write_text(text.replace("accumulate sum %dw1_1, %dw1_2", "accumulate sum %dw1_1, %dw1_1"))
    assert run("run", "wrong.mlir", "--check", SEQUENTIAL) == 1
    assert "1 of 2 outputs differ" in capsys.readouterr().out


def test_run_trains_steps_on_batches_in_turn(folder: Path, capsys: pytest.CaptureFixture[str]):
    """What a step updates goes into the next; the loss of each is printed; the last is the reference's."""
    assert run("import", "mlp.onnx", "--shape", "x=6,8", "-o", "mlp.mlir") == 0
    state, expected = dict(weights_of(load("mlp.mlir"))), {}
    batches = [{"x": np.full((6, 8), k, np.float32), "z": np.zeros((6, 2), np.float32)} for k in (0.25, 0.5)]
    for name, batch in zip("ab", batches, strict=True):
        np.savez(f"{name}.npz", **batch, n=np.float32(6))
    for step in range(3):
        expected = reference.run(load("mlp.mlir"), state | batches[step % 2] | {"n": np.float32(6)})
        state |= {name: value for name, value in expected.items() if name in state}
    options = ["--steps", "3", "--inputs", "a.npz", "--inputs", "b.npz", "--check", "mlp.mlir", "-o", "trained.npz"]
    assert run("run", "mlp.mlir", *options) == 0
    assert capsys.readouterr().out.endswith("every output agrees (3)\n")
    with np.load("trained.npz") as outputs:
        for name in outputs.files:
            np.testing.assert_allclose(outputs[name], expected[name], 1e-5, 1e-6)


def test_run_prints_the_loss_of_each_step(folder: Path, capsys: pytest.CaptureFixture[str]):
    """sum(w * x), then w - x: with x = (1, 2) and w = (3, 5) that is 13, then 13 - 5, then 13 - 2 * 5."""
    Path("step.mlir").write_text("""
func.func @main(%x: tensor<2xf32> {dist.name = "x"}, %w: tensor<2xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<f32> {dist.name = "loss"}, tensor<2xf32> {dist.name = "w"}) {
  %p = "onnx.Mul"(%w, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %none = "onnx.NoValue"() : () -> none
  %l = "onnx.ReduceSum"(%p, %none) <{keepdims = 0 : si64}> : (tensor<2xf32>, none) -> tensor<f32>
  %u = "onnx.Sub"(%w, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %l, %u : tensor<f32>, tensor<2xf32>
}""")
    np.savez("start.npz", x=np.float32([1, 2]), w=np.float32([3, 5]))
    assert run("run", "step.mlir", "--steps", "3", "--inputs", "start.npz", "--check", "step.mlir") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[:4]]
    assert rows == [["step", "loss"], ["1", "13"], ["2", "8"], ["3", "3"]]


def test_run_draws_a_batch_for_each_step(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("run", PIPELINE, "--check", SEQUENTIAL, "--steps", "3", "--seed", "1", "-o", "three.npz") == 0
    assert capsys.readouterr().out.endswith("every output agrees (2)\n")
    assert run("run", PIPELINE, "--seed", "1", "-o", "one.npz") == 0
    with np.load("three.npz") as three, np.load("one.npz") as one:
        assert not np.allclose(three["w1"], one["w1"])


def test_run_an_imported_model_on_its_weights(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("import", "mlp.onnx", "--shape", "x=6,8", "-o", "mlp.mlir") == 0
    inputs = {"x": np.ones((6, 8), np.float32), "z": np.zeros((6, 2), np.float32), "n": np.float32(6)}
    np.savez("inputs.npz", **inputs)
    assert run("run", "mlp.mlir", "--inputs", "inputs.npz", "-o", "outputs.npz") == 0
    assert "drawn" not in capsys.readouterr().out
    expected = reference.run(load("mlp.mlir"), inputs)
    with np.load("outputs.npz") as outputs:
        assert set(outputs.files) == {"loss", "w0", "w1"}
        for name in outputs.files:
            np.testing.assert_allclose(outputs[name], expected[name], 1e-5, 1e-6)


# machines


def test_machines(capsys: pytest.CaptureFixture[str]):
    assert run("machines") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [
        "dgx-1",
        "dgx-2",
        "dgx-a100",
        "dgx-h100",
        "local-cpu",
        "v100-pcie",
    ]
    assert run("machines", "dgx-2") == 0
    out = capsys.readouterr().out
    assert "34359738368" in out
    assert "NVIDIA DGX-2: 32 GB per device" in out


# mistakes


def unary(operator: str, type_: str) -> str:
    return (
        f'func.func @main(%x: tensor<{type_}> {{dist.name = "x", dist.role = "input"}})\n'
        f'    -> (tensor<{type_}> {{dist.name = "y", dist.role = "output"}}) {{\n'
        f'  %y = "onnx.{operator}"(%x) : (tensor<{type_}>) -> tensor<{type_}>\n'
        f"  func.return %y : tensor<{type_}>\n}}\n"
    )


def foreign_model() -> bytes:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    node = helper.make_node("Magic", ["x"], ["y"], domain="com.example")
    graph = helper.make_graph([node], "g", [value], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets).SerializeToString()


RANK = """builtin.module attributes {rank.rank = 0 : i64, dist.devices = 2 : i64} {
  func.func @main(%x: tensor<4xf32>) { func.return }
}"""
DOMINANCE = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = "onnx.Relu"(%b) : (tensor<4xf32>) -> tensor<4xf32>
  %b = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %a : tensor<4xf32>
}"""

MISTAKES = {
    "no command": ([], "the following arguments are required: COMMAND; see distir --help"),
    "unknown command": (["fly"], "invalid choice: 'fly'"),
    "wrong flag": (["machines", "--fast"], "unrecognized arguments: --fast"),
    "missing flag": (["simulate", PIPELINE], "required: --machine; see distir simulate --help"),
    "abbreviated flag": (["simulate", PIPELINE, "--mach", "dgx-2"], "required: --machine"),
    "bad tolerance": (["verify", SEQUENTIAL, PIPELINE, "--tolerance", "-1"], "expected a number of at least 0, got -1"),
    "bad seed": (["run", PIPELINE, "--seed", "x"], "expected a whole number of at least 0, got x"),
    "bad backend": (["run", PIPELINE, "--backend", "mpi"], "invalid choice: 'mpi'"),
    "missing ONNX": (["import", "absent.onnx"], "absent.onnx: cannot be read: No such file or directory"),
    "missing program": (["simulate", "absent.mlir", "--machine", "dgx-2"], "absent.mlir: cannot be read: No such file"),
    "folder": (["import", "."], ".: no such model: expected FILE.onnx"),
    "folder as program": (["verify", ".", "."], ".: cannot be read: Is a directory"),
    "no model": (["import", "gpt2"], "gpt2: no such model: expected FILE.onnx, FILE.mlir (level 1 or 2), or MODULE:"),
    "empty ONNX": (["import", "empty.onnx"], "empty.onnx: the file is empty"),
    "empty program": (["simulate", "empty.mlir", "--machine", "dgx-2"], "empty.mlir: the file is empty"),
    "truncated ONNX": (["import", "cut.onnx"], "cut.onnx: not an ONNX model, or cut short"),
    "truncated program": (["import", "cut.mlir"], "cut.mlir:3:38: Expected shape type."),
    "binary program": (["import", "binary.mlir"], "binary.mlir: cannot be read: it is not text"),
    "model as program": (
        ["simulate", "mlp.onnx", "--machine", "dgx-2"],
        "mlp.onnx is an ONNX model, expected a program",
    ),
    "unknown domain": (["import", "foreign.onnx"], "operator Magic of node 'y' is in the unknown domain 'com.example'"),
    "unknown dialect": (["import", "unknown.mlir"], "unknown.mlir:3:20: Operation magic.relu is not registered"),
    "ill-formed program": (["verify", "dominance.mlir", "dominance.mlir"], "dominance.mlir: "),
    "unbound dimension": (
        ["simulate", "open.mlir", "--machine", "dgx-2"],
        "open.mlir: input 'x' has unbound dimension 'batch' (dim 0): bind with distir import ... --shape x=BATCH,8",
    ),
    "malformed shape": (["import", "mlp.onnx", "--shape", "x"], "shape 'x': expected NAME=SIZE,SIZE,..."),
    "wrong input": (["import", "mlp.onnx", "--shape", "q=1"], "no input 'q' to give a shape; the inputs are x, z, n"),
    "two shapes": (["import", "mlp.onnx", "--shape", "x=1,8", "--shape", "x=2,8"], "--shape gives input 'x' twice"),
    "distributed model": (["import", PIPELINE], "figure2.mlir is a distributed program (level 3): expected a model"),
    "missing machine": (
        ["simulate", PIPELINE, "--machine", "cray"],
        "unknown machine cray: expected dgx-1, dgx-2, dgx-a100",
    ),
    "missing machine file": (["machines", "cray.toml"], "machine file cray.toml: No such file or directory"),
    "unknown cost model": (
        ["simulate", PIPELINE, "--machine", "dgx-2", "--cost-model", "guess"],
        "unknown cost model guess: expected analytic",
    ),
    "too many devices": (
        ["simulate", "wide.mlir", "--machine", "dgx-2"],
        "machine dgx-2 has 16 devices, the program needs 17",
    ),
    "rank program": (
        ["simulate", "rank.mlir", "--machine", "dgx-2"],
        "rank.mlir is the program of one rank (level 4): ",
    ),
    "rank verified": (["verify", SEQUENTIAL, "rank.mlir"], "rank.mlir is the program of one rank (level 4): expected"),
    "rank run": (["run", "rank.mlir"], "rank.mlir is the program of one rank (level 4): expected the distributed"),
    "no such folder": (["import", "mlp.onnx", "-o", "no/mlp.mlir"], "no/mlp.mlir: cannot be written: no folder no"),
    "output is a folder": (["import", "mlp.onnx", "-o", "folder.mlir"], "folder.mlir: cannot be written: it is not a"),
    "output is the model": (["import", "mlp.onnx", "-o", "mlp.onnx"], "expected a name that ends in .mlir"),
    "window without a trace": (["simulate", PIPELINE, "--machine", "dgx-2", "--window", "0ms..1ms"], "give --trace"),
    "window that is no window": (
        ["simulate", PIPELINE, "--machine", "dgx-2", "--trace", "t.json", "--window", "soon..later"],
        "--window: expected a time such as 10ms, 1.5s, 20us or 50%, got 'soon'",
    ),
    "window after the end": (
        ["simulate", PIPELINE, "--machine", "dgx-2", "--trace", "t.json", "--window", "10s..11s"],
        "--window: 10s..11s is empty: the program runs from 0 to",
    ),
    "devices that are not there": (
        ["simulate", PIPELINE, "--machine", "dgx-2", "--trace", "t.json", "--devices", "0,1..5"],
        "--devices: 0,1..5: the program has devices 0..1",
    ),
    "trace to a device": (
        ["simulate", PIPELINE, "--machine", "dgx-2", "--trace", "/dev/null"],
        "/dev/null: cannot be written: it is not a regular file",
    ),
    "trace to a folder of others": (
        ["simulate", PIPELINE, "--machine", "dgx-2", "--trace", "others/"],
        "trace others/: the folder holds other files (mine.txt, ...): name a new one",
    ),
    "weights that are no file": (
        ["run", "zero.mlir"],
        "dist.weights 'a\\x00b' names no file",
    ),
    "no such machine": (
        ["search", "relu.mlir", "--machine", "dgx-a100", "--devices", "99999999999999999999"],
        "--devices 99999999999999999999: expected at most 1,048,576",
    ),
    "learning rate that is no number": (
        ["import", "relu.mlir", "--train", "loss=mse_loss", "optimizer=sgd:lr=nan"],
        "--train: nan: expected a finite number",
    ),
    "outputs to a folder": (["run", PIPELINE, "-o", "."], ".: cannot be written: it is not a regular file"),
    "no steps": (["run", PIPELINE, "--steps", "0"], "argument --steps: expected a whole number of at least 1, got 0"),
    "batches of one step": (
        ["run", PIPELINE, "--inputs", "a.npz", "--inputs", "b.npz"],
        "several --inputs are batches of several steps: give --steps N",
    ),
    "steps of a model": (
        ["run", "relu.mlir", "--steps", "2"],
        "relu.mlir updates nothing, so its steps are all the same",
    ),
    "inputs are no npz": (["verify", SEQUENTIAL, PIPELINE, "--inputs", "cut.mlir"], "cut.mlir: not an .npz file"),
    "inputs are empty": (["verify", SEQUENTIAL, PIPELINE, "--inputs", "empty.mlir"], "empty.mlir: not an .npz file"),
    "inputs are cut": (["verify", SEQUENTIAL, PIPELINE, "--inputs", "cut.npz"], "cut.npz: not an .npz file"),
    "one array": (["verify", SEQUENTIAL, PIPELINE, "--inputs", "one.npy"], "one.npy: holds one array"),
    "pickles": (["verify", SEQUENTIAL, PIPELINE, "--inputs", "pickle.npz"], "pickle.npz: not an .npz file of plain"),
    "unknown input": (["verify", SEQUENTIAL, PIPELINE, "--inputs", "q.npz"], "q.npz: no input 'q'; the inputs are w1,"),
    "misshapen input": (["verify", SEQUENTIAL, PIPELINE, "--inputs", "x.npz"], "input x: expected shape [4, 8], got"),
    "missing inputs": (["run", PIPELINE, "--inputs", "absent.npz"], "absent.npz: cannot be read: No such file"),
}


@pytest.fixture
def mistakes(folder: Path) -> Path:
    """Files with something wrong in them."""
    whole = Path("mlp.onnx").read_bytes()
    Path("cut.onnx").write_bytes(whole[: len(whole) // 2])
    Path("foreign.onnx").write_bytes(foreign_model())
    Path("binary.mlir").write_bytes(whole)
    Path("folder.mlir").mkdir()
    for name in ("empty.onnx", "empty.mlir"):
        Path(name).touch()
    program = unary("Relu", "4x8xf32")
    Path("cut.mlir").write_text(program[: len(program) * 3 // 4])
    Path("unknown.mlir").write_text(program.replace("onnx.Relu", "magic.relu"))
    Path("open.mlir").write_text(
        unary("Relu", "?x8xf32").replace('dist.role = "input"', 'dist.role = "input", onnx.dim_params = "0:batch"')
    )
    Path("dominance.mlir").write_text(DOMINANCE)
    Path("rank.mlir").write_text(RANK)
    Path("wide.mlir").write_text(Path(PIPELINE).read_text().replace("dist.devices = 2", "dist.devices = 17"))
    Path("relu.mlir").write_text(unary("Relu", "4x8xf32"))
    Path("zero.mlir").write_text(
        f'builtin.module attributes {{dist.weights = "a\\00b"}} {{\n{unary("Relu", "4x8xf32")}\n}}'
    )
    Path("others").mkdir()
    Path("others/mine.txt").touch()
    np.savez("q.npz", q=np.zeros(3))
    np.savez("x.npz", x=np.zeros(3))
    np.savez("pickle.npz", x=np.array([{}], object))
    np.save("one.npy", np.zeros(3))
    Path("cut.npz").write_bytes(Path("q.npz").read_bytes()[:60])
    return folder


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake: str, mistakes: Path, capsys: pytest.CaptureFixture[str]):
    arguments, message = MISTAKES[mistake]
    before = sorted(mistakes.iterdir())
    assert run(*arguments) == 1
    out, err = capsys.readouterr()
    assert err.startswith("distir: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert "DistirError" not in err
    assert not out or out.startswith("weights drawn")
    assert sorted(mistakes.iterdir()) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_output(folder: Path, capsys: pytest.CaptureFixture[str]):
    folder.chmod(0o555)
    try:
        assert run("import", "mlp.onnx", "-o", "mlp.mlir") == 1
    finally:
        folder.chmod(0o755)
    assert "mlp.mlir: cannot be written: folder . is read-only" in capsys.readouterr().err


# the process


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / ".ns")}


COMMAND = [sys.executable, "-m", "distir.tools.distir"]


@pytest.mark.parametrize("command", ["", "import", "search", "simulate", "run", "verify", "machines"])
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]):
    assert run(*command.split(), "--help") == 0
    out = capsys.readouterr().out
    assert f"usage: distir {command}".rstrip() in out
    assert f"examples:\n  distir {command}" in out


def test_starts_light():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert not imported & {"numpy", "onnx", "torch", "rich"}


def test_a_reader_that_goes_away_is_no_mistake(folder: Path):
    process = subprocess.Popen(
        [*COMMAND, "import", "gpt2.onnx"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert err.replace(b"\r", b"").count(b"\n") <= 1  # the note on unbound dimensions
    assert b"Traceback" not in err
    assert b"BrokenPipe" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_ctrl_c(folder: Path):
    os.mkfifo("pipe.mlir")  # the command waits in it for a program
    process = subprocess.Popen(
        [*COMMAND, "verify", "pipe.mlir", "pipe.mlir"], stderr=subprocess.PIPE, env=environment()
    )
    with open("pipe.mlir", "w"):  # opens when the command has
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert err == b"distir: interrupted\n"
    assert process.returncode == 130


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals to send")
@pytest.mark.parametrize("tool", ["distir", "distir_opt"])
@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_while_starting(tool: str, number: signal.Signals, word: str):
    """Sent while modules are imported: a module of the standard library says when."""
    code = (
        "import os, sys, runpy\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'xdsl.ir': os.kill(os.getpid(), int(sys.argv.pop()))\n"
        "sys.meta_path.insert(0, Finder())\n"
        f"runpy.run_module('distir.tools.{tool}', run_name='__main__', alter_sys=True)\n"
    )
    arguments = [sys.executable, "-c", code, "--version", str(int(number))]
    process = subprocess.run(arguments, capture_output=True, text=True, env=environment())
    assert process.stderr == f"{tool.replace('_', '-')}: {word}\n"
    assert process.returncode == 128 + number


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit of a file's size")
def test_a_full_disk_leaves_what_was_there(folder: Path):
    """The limit of a file's size lets the weights be written, and the program not; then not even the weights."""
    import resource

    assert run("import", "mlp.onnx", "-o", "out.mlir") == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    weights, program = len(before["out.safetensors"]), len(before["out.mlir"])
    assert weights < program
    for limit in (program - 1, weights - 1):
        process = subprocess.run(
            [*COMMAND, "import", "mlp.onnx", "-o", "out.mlir"],
            stderr=subprocess.PIPE,
            env=environment(),
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )
        assert process.returncode == 1
        assert process.stderr.count(b"\n") == 1
        assert b"cannot be written: File too large" in process.stderr
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
