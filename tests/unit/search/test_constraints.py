"""Which plans a user lets a search look at."""

import json

import pytest

import distir
from distir.tools.distir import main
from examples import mlp_onnx


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "mlp.mlir"
    path.write_text(str(distir.import_model(mlp_onnx.build([16] * 9, batch=64))))
    return str(path)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--tp 2 --pp 1", {(4, 2, 1)}),
        ("--dp 2..4 --pp 2,4", {(2, 1, 4), (2, 2, 2), (4, 1, 2)}),
        ("--most-tensor 2 --dp 1", {(1, 1, 8), (1, 2, 4)}),
        ("--tp-within-node --dp 1 --machine dgx-a100 --set node.devices=4", {(1, 1, 8), (1, 2, 4), (1, 4, 2)}),
    ],
)
def test_only_these_degrees_are_looked_at(
    model: str, options: str, expected: set[tuple[int, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    common = f"{model} --devices 8 --microbatches 2 --schedules 1f1b --exhaustive --json --machine dgx-2".split()
    assert main(["search", *common, *options.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(p["dp"], p["tp"], p["pp"]) for p in found["plans"] + found["dropped"]} == expected
    alone = sum(pp == 1 for _, _, pp in expected)  # in one microbatch, and in two
    assert found["planned"] == len(expected) + alone


def test_python_gives_numbers(model: str) -> None:
    plans = distir.search(model, "dgx-2", 8, tp=2, pp=[1, 2], microbatches=[2], schedules=["1f1b"], exhaustive=True)
    assert {(c.dp, c.tp, c.pp) for c in (plan.configuration for plan in plans)} == {(4, 2, 1), (2, 2, 2)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--tp 3", "--tp 3: no plan for 8 devices and a batch of 64"),
        ("--tp 3..7 --dp 8 --tp-within-node", "--dp 8 --tp 3..7 --tp-within-node: no plan for 8 devices"),
        ("--pp x", "--pp: expected positive numbers with commas between them, got 'x'"),
        ("--pp 4..2", "--pp: 4..2 is empty"),
        ("--dp 1,,3..4", "--dp: expected positive numbers with commas between them, got ''"),
        ("--most-tensor 0", "--most-tensor: expected at least 1"),
    ],
)
def test_mistakes(model: str, options: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", model, "--devices", "8", "--machine", "dgx-2", *options.split(), "--microbatches", "2"]) == 1
    assert said in capsys.readouterr().err
