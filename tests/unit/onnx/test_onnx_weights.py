"""Weights in files: mapped, never read whole; a rank reads the slice that it owns; files that do not fit are named."""

import json
import runpy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from safetensors.numpy import save_file
from xdsl.context import Context

from distir.backends import torch as torch_backend
from distir.backends.torch import launch
from distir.dialects.errors import DistirError
from distir.frontends.onnx import import_model
from distir.frontends.weights import load, save
from distir.interpreters.reference import run
from distir.interpreters.weights import FilePart, WeightFile, file_part, weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass

EXAMPLES = Path(__file__).parents[3] / "examples"


def is_mapped(array: Any) -> bool:
    """Whether the array is a view of a file."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def test_parts_of_mapped_arrays_are_views_of_the_file(tmp_path: Path) -> None:
    arrays = {
        "f32": np.arange(24, dtype=np.float32).reshape(4, 6),
        "bf16": np.arange(6).astype(ml_dtypes.bfloat16),
        "none": np.zeros((0, 3), np.int64),
    }
    save_file(arrays, tmp_path / "w.safetensors")
    weights = WeightFile(tmp_path / "w.safetensors")
    assert sorted(weights) == sorted(arrays)
    for name, array in arrays.items():
        assert weights[name].dtype == array.dtype
        np.testing.assert_array_equal(weights[name], array)
    where = file_part(weights["f32"], [[(1, 3)], [(2, 6)]])
    assert where is not None
    part = FilePart(*json.loads(json.dumps(where))).read()  # as it goes to another process
    assert is_mapped(part)
    np.testing.assert_array_equal(part, arrays["f32"][1:3, 2:6])
    pieces = file_part(weights["f32"], [[(0, 4)], [(0, 1), (4, 6)]])
    assert pieces is not None
    np.testing.assert_array_equal(pieces.read(), arrays["f32"][:, [0, 4, 5]])
    assert file_part(arrays["f32"]) is None


def test_ranks_map_their_own_slices(tmp_path: Path) -> None:
    """What the launcher hands over is the input alone; every rank's slices come from the weights file."""
    build = runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"]
    model = build(n_layer=1, d_model=32, n_head=4, vocab=64, n_ctx=32)
    save(import_model(model, {"input1": (4, 1, 8)}), tmp_path / "p.mlir")
    ids = np.random.default_rng(0).integers(0, 64, (4, 1, 8))
    expected = run(load(tmp_path / "p.mlir"), {"input1": ids})
    module = load(tmp_path / "p.mlir")
    DtpParallelizePass(dp=1, tp=2).apply(Context(), module)
    handed: list[list[np.ndarray[Any, Any]]] = []
    sent: dict[int, dict[int, FilePart]] = {}

    def spy_arrays(path: Path, arrays: list[np.ndarray[Any, Any]], *rest: Any) -> None:
        handed.append(arrays)
        original(path, arrays, *rest)

    def spy_mapped(folder: Path, rank: int, parts: dict[int, FilePart]) -> None:
        sent[rank] = parts
        original_mapped(folder, rank, parts)

    original, original_mapped = launch.save_arrays, launch.save_mapped
    with patch.object(launch, "save_arrays", spy_arrays), patch.object(launch, "save_mapped", spy_mapped):
        actual = torch_backend.run(module, {"input1": ids})
    np.testing.assert_allclose(actual["output1"], expected["output1"], atol=1e-5)
    assert [[array.shape for array in arrays] for arrays in handed] == [[(4, 1, 8)], [(4, 1, 8)]]
    ranges = {part.ranges for part in sent[1].values()}
    assert ((((0, 32),), ((64, 128),))) in ranges  # the second half of the columns of the first MLP weight
    assert sorted(sent) == [0, 1]


# Files that do not fit.


def small_model(location: str, **fields: str) -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.zeros((2, 3), np.float32), "w")],
    )
    (weight,) = graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **fields}.items():
        weight.external_data.add(key=key, value=value)
    return helper.make_model(graph)


@pytest.mark.parametrize(
    ("location", "fields", "message"),
    [
        ("/etc/passwd", {}, "lies outside the model's folder"),
        ("sub/../../secret", {}, "lies outside the model's folder"),
        ("link", {}, "lies outside the model's folder"),
        ("none.bin", {}, "is missing: no file"),
        ("w.bin", {"offset": "8"}, "needs 24 bytes at 8"),
        ("w.bin", {"length": "16"}, "has length '16', but \\[2, 3\\] of float32 takes 24 bytes"),
        ("w.bin", {"offset": "-8"}, "expected a number of at least 0"),
        ("w.bin", {"offset": "many"}, "expected a number of at least 0"),
    ],
)
def test_external_data_that_does_not_fit_is_refused(
    tmp_path: Path, location: str, fields: dict[str, str], message: str
) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(64))
    (folder / "w.bin").write_bytes(bytes(24))
    (folder / "link").symlink_to(tmp_path / "secret")
    onnx.save(small_model(location, **fields), folder / "m.onnx")
    with pytest.raises(DistirError, match=message) as caught:
        import_model(folder / "m.onnx")
    assert "\n" not in str(caught.value)
    assert "'w'" in str(caught.value)


def test_a_weights_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"w": np.zeros((8, 8), np.float32)}, path)
    whole = path.read_bytes()
    for length in (0, 7, 40, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DistirError, match=r"w.safetensors: not a safetensors file, or cut short"):
            WeightFile(path)


def test_weights_of_a_saved_program_are_mapped(tmp_path: Path) -> None:
    onnx.save(small_model("w.bin"), tmp_path / "m.onnx")
    (tmp_path / "w.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    save(import_model(tmp_path / "m.onnx"), tmp_path / "p.mlir")
    weight = weights_of(load(tmp_path / "p.mlir"))["w"]
    assert is_mapped(weight)
    np.testing.assert_array_equal(weight, np.arange(6, dtype=np.float32).reshape(2, 3))


# What is read of large files.


def resident_bytes(path: Path) -> int:
    """How much of the file this process holds in memory: the `Rss` of its mappings (proc_pid_smaps(5))."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            ours = line.endswith(str(path))
        elif ours and first == "Rss:":
            total += int(line.split()[1]) << 10
    return total


def test_a_rank_reads_only_its_rows(tmp_path: Path) -> None:
    """Of 64 MB, the second eighth of the rows: 8 MB, and what the system reads around it."""
    weight = np.ones((4096, 4096), np.float32)
    save_file({"w": weight}, tmp_path / "w.safetensors")
    where = file_part(WeightFile(tmp_path / "w.safetensors")["w"], [[(512, 1024)], [(0, 4096)]])
    assert where is not None
    part = where.read()
    assert resident_bytes(tmp_path / "w.safetensors") < 1 << 20
    assert part.sum() == 512 * 4096
    assert 8 << 20 <= resident_bytes(tmp_path / "w.safetensors") < 12 << 20


def test_a_model_above_2_gb_is_imported_without_reading_it(tmp_path: Path) -> None:
    model = small_model("big.bin")
    (weight,) = model.graph.initializer
    weight.dims[:] = [3, 1 << 28]  # 3 GB of zeros, which take no room on a disk
    model.graph.node[0].input[0] = "w"
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 3
        value.type.tensor_type.shape.dim[1].dim_value = 1 << 28
    with open(tmp_path / "big.bin", "wb") as file:
        file.truncate(3 << 30)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    module = import_model(tmp_path / "m.onnx")
    assert weights_of(module)["w"].nbytes == 3 << 30
    assert resident_bytes(tmp_path / "big.bin") < 1 << 20
