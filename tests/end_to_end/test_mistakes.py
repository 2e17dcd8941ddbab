"""Every mistake of a user of `distir` is one line."""

import os
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.end_to_end.commands import PIPELINE, SEQUENTIAL, run, unary


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
WRONG_TYPE = """func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x9xf32>) -> tensor<4x8xf32> {
  %0 = "OP"(%x, %w) : (tensor<4x8xf32>, tensor<8x9xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
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
    "folder": (["import", "."], ".: is a folder: expected FILE.onnx, FILE.mlir (level 1 or 2), or MODULE:"),
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
    "type of ONNX": (
        ["simulate", "matmul.mlir", "--machine", "dgx-2"],
        "matmul.mlir: onnx.MatMul: result 0: expected tensor<4x9xf32>, got tensor<4x8",
    ),
    "type of torch": (
        ["search", "mm.mlir", "--machine", "dgx-2", "--devices", "2"],
        "mm.mlir: aten.mm: result 0: expected tensor<4x9xf32>, got tensor<4x8",
    ),
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
        "unknown machine cray: expected aws-p4d, aws-p4de, dgx-1",
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
    Path("matmul.mlir").write_text(WRONG_TYPE.replace("OP", "onnx.MatMul"))
    Path("mm.mlir").write_text(WRONG_TYPE.replace("OP", "aten.mm"))
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
