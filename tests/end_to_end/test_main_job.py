"""The main job on a GPT-2 of 12 layers with dynamic shapes and on a training step: import, distribute, simulate, project,
run."""

import numpy as np
import pytest

from distir.interpreters.reference import run_ranks
from distir.interpreters.simulate import simulate, summarize
from distir.passes.project_to_rank import project
from tests.small_models import Model, gpt2, mlp


@pytest.mark.parametrize(("model", "layers"), [(gpt2(layers=12), 12), (mlp(), 4)], ids=["gpt2", "mlp"])
def test_import_distribute_simulate_project_run(model: Model, layers: int):
    distributed = model.distributed(dp=2, tp=2, pp=2, microbatches=2, schedule="1f1b")
    simulation = simulate(distributed, "dgx-2")
    assert set(simulation.peak_memory_bytes) == set(range(8))
    assert summarize(distributed, "dgx-2").makespan_picoseconds == simulation.makespan_picoseconds
    # A layer runs once per microbatch of each of the 2 replicas, on 2 tensor ranks.
    assert simulation.counts["onnx.MatMul" if layers == 4 else "onnx.Softmax"] == layers * 2 * 2 * 2
    got = run_ranks([project(distributed, rank) for rank in range(8)], model.inputs, dtype=np.float64)
    for name, value in model.sequential(np.float64).items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-10 * max(1.0, np.abs(value).max()), err_msg=name)
