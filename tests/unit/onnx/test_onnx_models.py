"""Real exports, through `benchmarks/onnx_models.py`: transformers with random weights, offline. Long tests, for which
`make check-long` installs the extra `models`."""

import runpy
from pathlib import Path
from typing import Any

import pytest

MODELS = ["gpt2", "llama", "bert", "vit", "t5", "mixtral", "resnet"]


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "onnx_models.py"))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_export_imports_with_static_shapes_and_computes_what_torch_does(name: str, benchmark: dict[str, Any]) -> None:
    assert set(benchmark["MODELS"]) == set(MODELS)
    outcome = benchmark["examine"](name, [])
    assert outcome.nodes > 10
    assert outcome.is_static
    assert outcome.difference < 1e-5


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_distributed_export_equals_the_sequential_one(name: str, benchmark: dict[str, Any]) -> None:
    outcome = benchmark["examine"](name)
    assert outcome.plans
    for plan, result in outcome.plans.items():
        assert isinstance(result, float), f"{plan}: {result}"
        assert result < 1e-10
