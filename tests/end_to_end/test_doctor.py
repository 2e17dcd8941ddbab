"""`distir doctor` says what is so, and the commands that it prints work."""

import json
import runpy
import shlex
from pathlib import Path
from typing import Any

import onnx
import pytest

from distir.tools.distir import main
from distir.tools.distir_opt import main as opt

ROOT = Path(__file__).parents[2]

MADE = """
import torch
from distir.frontends.pytorch import import_step, training_step


def torch_step():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    step = training_step(model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    return import_step(step, (torch.randn(8, 8), torch.randn(8, 4)))


def jax_step():
    import jax.numpy as jnp
    import numpy as np
    from distir.frontends.jax import import_step

    def train(w, x):
        return w - 0.1 * x.T @ jnp.tanh(x @ w), jnp.sum(x @ w)

    return import_step(train, (np.ones((8, 8), np.float32),) * 2, ("parameter", "input"), results=("parameter", "output"))


def inverse():
    return torch.linalg.inv, (torch.eye(3) + 0.1,)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with models in it."""
    build = runpy.run_path(str(ROOT / "examples" / "gpt2_onnx.py"))["build"]
    onnx.save(build(n_layer=1, d_model=16, n_head=2, vocab=23, n_ctx=8), tmp_path / "gpt2.onnx")
    (tmp_path / "made_for_doctor.py").write_text(MADE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def typed(line: str) -> int:
    """What a command that is typed ends with."""
    tool, *arguments = shlex.split(line)
    if tool == "distir":
        return main(arguments)
    assert tool == "distir-opt"
    try:
        return opt(arguments) or 0
    except SystemExit as ended:
        return int(ended.code or 0)


def diagnosed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["doctor", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "model",
    ["gpt2.onnx", "made_for_doctor:torch_step", pytest.param("made_for_doctor:jax_step", marks=pytest.mark.long)],
)
def test_commands_that_it_prints_work(model: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = diagnosed(capsys, model)
    assert [line.split()[1] for line in found["commands"] if line.startswith("distir ")][:1] == ["import"]
    assert any(line.startswith("distir-opt") for line in found["commands"])
    assert any(line.startswith("distir verify") for line in found["commands"])
    for line in found["commands"]:
        assert typed(line) == 0, line
        capsys.readouterr()


@pytest.mark.filterwarnings("ignore")
def test_it_says_what_goes_in_and_what_axes_can_divide(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = diagnosed(capsys, "gpt2.onnx")
    assert [port["name"] for port in found["inputs"]] == ["input1"]
    assert found["held"]["parameter"] == {"tensors": 16, "elements": 3808, "bytes": 4 * 3808}
    assert found["open"] == [
        "input 'input1' has unbound dimensions 'batch' (dim 0) and 'sequence' (dim 2): --shape input1=BATCH,1,SEQUENCE"
    ]
    assert found["static"]
    assert found["shapes"] == ["input1=8,1,8"]  # 16 and 64 tokens are more than it has positions
    assert found["axes"]["batch"]["parameters"] == 0
    assert found["axes"]["batch"]["work"] > 0.95
    assert found["axes"]["tensor"]["parameters"] > 0.9
    assert found["without_rule"] == []
    assert [plan["says"] for plan in found["plans"]] == [""] * 3
    assert all(plan["work"] < 0.75 for plan in found["plans"])


@pytest.mark.filterwarnings("ignore")
def test_an_operator_that_nothing_cuts_is_named_and_no_plan_is_promised(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "made_for_doctor:inverse"]) == 0
    out = capsys.readouterr().out
    assert "aten.linalg_inv_ex" in out
    assert "distir-opt" not in out
    commands = [line.strip() for line in out.partition("\ncommands\n")[2].splitlines()]
    assert commands
    assert [typed(line) for line in commands] == [0] * len(commands)


def test_a_program_that_stays_open_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (int64[r, n] y) { y = NonZero(x) }'
    )
    onnx.save(model, folder / "open.onnx")
    found = diagnosed(capsys, "open.onnx")
    assert not found["static"]
    assert "NonZero" in found["why"]
    assert [typed(line) for line in found["commands"]] == [0]


def test_mistakes_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "none.onnx"]) == 1
    assert main(["doctor", "gpt2.onnx", "--seconds", "0"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert "none.onnx" in first
    assert second == "distir: error: --seconds: expected more than 0, got 0"
