"""`distir` as a user types it: every command on real files."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from distir.frontends.weights import load
from distir.interpreters import reference
from distir.interpreters.weights import weights_of
from tests.end_to_end.commands import PIPELINE, ROOT, SEQUENTIAL, run, unary

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
    expected = "returned int: expected an xDSL ModuleOp, an onnx ModelProto, a training_step or written_step of "
    assert expected in capsys.readouterr().err
    assert run("import", "my_models:broken") == 1
    assert capsys.readouterr().err == "distir: error: my_models:broken raised ValueError: no such size\n"
    assert run("import", "my_models:absent") == 1
    assert capsys.readouterr().err == "distir: error: my_models:absent: my_models has no absent\n"
    assert run("import", "my_models:modul") == 1
    assert "my_models has no modul (did you mean my_models:module?)" in capsys.readouterr().err
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


def test_verify_wants_the_same_weights(folder: Path, capsys: pytest.CaptureFixture[str]):
    """A plan of an earlier import, whose weights are beside it, would run on them."""
    for name in ("mlp", "earlier"):
        assert run("import", "mlp.onnx", "--shape", "x=6,8", "--shape", "z=6,2", "-o", f"{name}.mlir") == 0
    assert run("verify", "mlp.mlir", "earlier.mlir") == 0
    values = {name: np.array(value) for name, value in weights_of(load("earlier.mlir")).items()}
    last = sorted(values)[-1]
    values[last].flat[0] += 1
    save_file(values, "earlier.safetensors")
    for words in (["verify"], ["verify", "--proof"]):
        assert run(*words, "mlp.mlir", "earlier.mlir") == 1
        assert f"earlier.mlir: the value of '{last}' beside it is not that beside mlp.mlir" in capsys.readouterr().err
    Path("earlier.safetensors").unlink()
    assert run("verify", "--proof", "mlp.mlir", "earlier.mlir") == 0


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
    Path("acosh.mlir").write_text(unary("Acosh", "4x8xf32"))
    assert run("verify", "acosh.mlir", "acosh.mlir") == 1
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
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert names == sorted(names)
    assert {"dgx-1", "dgx-2", "dgx-a100", "dgx-h100", "local-cpu", "mi300x", "tpu-v5p", "v100-pcie"} <= set(names)
    assert run("machines", "dgx-2") == 0
    out = capsys.readouterr().out
    assert "34359738368" in out
    assert "NVIDIA DGX-2: 32 GB per device" in out
