"""What tests of commands work in."""

from pathlib import Path

import onnx
import pytest

from tests.end_to_end.commands import example


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a GPT-2 and an MLP training step in it."""
    onnx.save(example("gpt2_onnx")(n_layer=1, d_model=16, n_head=2, vocab=23, n_ctx=8), tmp_path / "gpt2.onnx")
    onnx.save(example("mlp_onnx")([8, 4, 2]), tmp_path / "mlp.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path
