"""Training steps of real models, through `benchmarks/pytorch_models.py`: transformers with random weights, offline. Long
tests, for which `make check-long` installs the extra `models`."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

CUT = ["gpt2", "gpt2_dropout", "llama", "bert", "vit", "resnet_eval", "mixtral", "gat"]
IN_FLOAT32 = ("llama", "mixtral")
"""Whose normalisation and softmax are in single precision, whatever their parameters are."""


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    root = Path(__file__).parents[3]
    sys.path.insert(0, str(root))
    try:
        return runpy.run_path(str(root / "benchmarks" / "pytorch_models.py"))
    finally:
        sys.path.remove(str(root))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CUT)
def test_a_step_is_that_of_torch_under_every_plan(name: str, benchmark: dict[str, Any]) -> None:
    """By the reference executor, and by one process per device that trains three steps."""
    outcome = benchmark["examine"](name)
    assert outcome.differences["float64"] < 1e-9
    assert outcome.differences["float32"] < 1e-5
    assert len(outcome.plans) == 3
    for plan, result in outcome.plans.items():
        assert not isinstance(result, str), f"{plan}: {result}"
        assert result.verified < 1e-10
        assert result.trained < (1e-7 if name in IN_FLOAT32 else 1e-9)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_resnet_in_training_mode_is_refused_or_synchronised(benchmark: dict[str, Any]) -> None:
    outcome = benchmark["examine"]("resnet")
    assert outcome.differences["float64"] < 1e-9
    assert outcome.differences["float32"] < 1e-5
    synchronised = outcome.plans.pop(benchmark["SYNCHRONISED"])
    assert synchronised.verified < 1e-10
    assert synchronised.trained < 1e-9
    for plan, result in outcome.plans.items():
        assert isinstance(result, str), plan
        assert "statistics" in result
