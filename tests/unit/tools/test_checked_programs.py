"""The types of a program are checked once for each text of it: what was found right is remembered, nothing else is."""

import os
from pathlib import Path
from threading import Thread

import pytest

from distir.dialects.errors import DistirError
from distir.tools import checked_programs
from distir.tools.commands.model import load_program

PROGRAM = """func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "onnx.Relu"(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}"""


@pytest.fixture
def inferences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that are looked at; the user's cache is a new one."""
    from distir.interpreters import type_check

    looked_at: list[str] = []
    infer = type_check.abstract_operator
    monkeypatch.setenv("DISTIR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("DISTIR_NO_CACHE", raising=False)
    monkeypatch.setattr(
        type_check, "abstract_operator", lambda op, known: (looked_at.append(op.name), infer(op, known))[1]
    )
    return looked_at


def test_a_program_is_checked_once(tmp_path: Path, inferences: list[str]):
    (path := tmp_path / "p.mlir").write_text(PROGRAM)
    load_program(str(path))
    assert inferences == ["onnx.Relu"]  # the two are alike
    load_program(str(path))
    assert inferences == ["onnx.Relu"]
    path.write_text(path.read_text().replace("4x8", "4x9"))
    load_program(str(path))
    assert inferences == ["onnx.Relu"] * 2


def test_a_wrong_program_is_not_remembered(tmp_path: Path, inferences: list[str]):
    (path := tmp_path / "p.mlir").write_text(
        'func.func @main(%x: tensor<4xf32>) {\n  %0 = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<5xf32>\n  func.return\n}'
    )
    for _ in range(2):
        with pytest.raises(DistirError, match=r"onnx.Relu: result 0: expected tensor<4xf32>, got tensor<5xf32>"):
            load_program(str(path))
    assert checked_programs.files() == []


def test_without_a_cache_nothing_is_kept(tmp_path: Path, inferences: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DISTIR_NO_CACHE", "1")
    (path := tmp_path / "p.mlir").write_text(PROGRAM)
    load_program(str(path))
    load_program(str(path))
    assert inferences == ["onnx.Relu"] * 2
    assert not (tmp_path / "cache").exists()


def test_what_comes_through_a_pipe_is_checked_each_time(tmp_path: Path, inferences: list[str]):
    os.mkfifo(path := tmp_path / "p.mlir")
    for text in (PROGRAM, PROGRAM.replace("4x8", "4x9")):
        writer = Thread(target=path.write_text, args=(text,))
        writer.start()
        load_program(str(path))
        writer.join()
    assert inferences == ["onnx.Relu"] * 2
