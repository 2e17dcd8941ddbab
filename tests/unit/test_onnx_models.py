"""Real exports, through `benchmarks/onnx_models.py`: transformers with random weights, offline."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs pip install 'distir[models]'")

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "onnx_models.py"))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BENCHMARK["MODELS"])
def test_export_imports_with_static_shapes_and_computes_what_torch_does(name: str) -> None:
    outcome = BENCHMARK["examine"](name, [])
    assert outcome.nodes > 10
    assert outcome.is_static
    assert outcome.difference < 1e-5


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["bert", "t5"])
def test_distributed_export_equals_the_sequential_one(name: str) -> None:
    """Of the others, `dtp-parallelize` refuses with the reason: no rule cuts the batch of a reshape that merges two pairs
    of dims (GPT-2, Llama, Mixtral) or of a convolution (ViT, ResNet)."""
    outcome = BENCHMARK["examine"](name)
    assert outcome.plans
    for plan, result in outcome.plans.items():
        assert isinstance(result, float), f"{plan}: {result}"
        assert result < 1e-10
