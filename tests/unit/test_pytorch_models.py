"""Training steps of real models, through `benchmarks/pytorch_models.py`: transformers with random weights, offline. Long
tests, for which `make check-long` installs the extra `models`."""

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MODELS = ["gpt2", "bert", "gat"]


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    root = Path(__file__).parents[2]
    sys.path.insert(0, str(root))
    try:
        return runpy.run_path(str(root / "benchmarks" / "pytorch_models.py"))
    finally:
        sys.path.remove(str(root))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_step_is_that_of_torch_and_distributed_that_of_one_device(name: str, benchmark: dict[str, Any]) -> None:
    outcome = benchmark["examine"](name)
    assert outcome.differences["float64"] < 1e-9
    assert outcome.differences["float32"] < 1e-5
    assert len(outcome.plans) == 3
    for plan, result in outcome.plans.items():
        assert isinstance(result, float), f"{plan}: {result}"
        assert result < 1e-10


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_processes_train_gpt2_to_the_same_parameters(benchmark: dict[str, Any]) -> None:
    from xdsl.context import Context

    from distir.backends.torch import run as run_processes
    from distir.interpreters.reference import run
    from distir.passes.dtp_parallelize import DtpParallelizePass

    module, state, steps = benchmark["imported"]("gpt2")
    distributed = module.clone()
    DtpParallelizePass(dp=2, tp=2).apply(Context(), distributed)
    alone, together = dict(state), dict(state)
    for given in steps:
        alone |= run(module, alone | given)
        together |= run_processes(distributed, together | given, backend="gloo")
    for name in state:
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-9, atol=1e-12, err_msg=name)
